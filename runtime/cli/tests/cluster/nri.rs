//! The agent as a plug-in of a real containerd: the settings of a container's cgroup at its first instruction.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::agent::{Agent, Module};
use crate::node::{BUSYBOX, Pod, component, kubectl, try_kubectl};
use crate::policies::{annotated, burst};
use crate::waiting::{wait_for, wait_until};

/// Prints the CFS burst at the first instruction, then about how many milliseconds passed until there was one.
const LOOK: &str = "f=/sys/fs/cgroup/cpu/cpu.cfs_burst_us; [ -e $f ] || f=/sys/fs/cgroup/cpu.max.burst; read -r b < $f; \
    echo first $b; n=0; while [ $b = 0 ] && [ $n -lt 20000 ]; do usleep 1000; n=$((n+1)); read -r b < $f; done; \
    echo after $n; exec sleep 3600";

/// Number of containers that start at once.
const AT_ONCE: usize = 20;

fn looking() -> Value {
    json!({"containers": [{
        "name": "app", "image": BUSYBOX, "command": ["sh", "-c", LOOK],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}},
    }]})
}

/// The output of a pod of [`looking`]: the burst at its first instruction, and how long it waited for one.
#[track_caller]
fn seen(pod: &str) -> (i64, u32) {
    wait_for(&format!("{pod} tells what it saw"), || {
        let said = try_kubectl(&["logs", pod]).ok()?;
        let number = |word: &str| said.lines().find_map(|line| line.strip_prefix(word))?.trim().parse::<i64>().ok();
        Some((number("first ")?, u32::try_from(number("after ")?).ok()?))
    })
}

#[test]
fn a_container_has_its_settings_at_its_first_instruction() {
    let (_module, agent) = (Module::apply("cpu-burst", &burst()), Agent::start_beside_the_runtime());
    // On a loaded machine the agent may answer too late; then the container does not wait.
    let first = wait_for("a start that was answered in time", || {
        let pod = Pod::create_with("qosm-first", &annotated("cpuBurstOnly"), &looking());
        let (first, _) = seen("qosm-first");
        let explained = agent.ask(&["explain", "default/qosm-first"]).unwrap();
        assert!(explained.contains("cpu.burst"), "{explained}");
        let group = pod.cgroup("app");
        wait_until("it comes at any rate", || group.burst() == 20_000);
        pod.delete();
        (first != 0).then_some(first)
    });
    assert_eq!(first, 20_000);

    // The agent reacts to a resize as soon as the runtime has written it.
    let pod = Pod::create_with("qosm-first", &annotated("cpuBurstOnly"), &looking());
    let group = pod.cgroup("app");
    wait_until("its burst", || group.burst() == 20_000);
    let patch = r#"{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":"300m"}}}]}}"#;
    kubectl(&["patch", "pod", "qosm-first", "--subresource=resize", "--patch", patch]);
    wait_until("quota and burst follow the new limit", || group.quota() == 30_000 && group.burst() == 30_000);

    // The runtime stops and starts again.
    component("stop", "containerd");
    wait_until("doctor tells that the runtime is away", || {
        agent.ask(&["doctor"]).is_ok_and(|table| table.contains("containers start all the same"))
    });
    assert_eq!(group.burst(), 30_000, "what it held it holds");
    component("start", "containerd");
    agent.wait_until_registered();
    assert_eq!(group.burst(), 30_000);
}

#[test]
fn of_many_containers_at_once_none_fails_and_those_answered_in_time_never_ran_without() {
    let (_module, agent) = (Module::apply("cpu-burst", &burst()), Agent::start_beside_the_runtime());
    let count = std::env::var("QOSM_STARTS").ok().and_then(|text| text.parse().ok()).unwrap_or(AT_ONCE);
    let names: Vec<String> = (0..count).map(|number| format!("qosm-many-{number}")).collect();
    let pods = Pod::create_all(&names, &annotated("cpuBurstOnly"), &looking());
    let seen: Vec<_> = names.iter().map(|name| seen(name)).collect();
    let without: Vec<u32> = seen.iter().filter(|(first, _)| *first == 0).map(|(_, waited)| *waited).collect();
    println!("{count} at once: {} without a burst at the first instruction, for {without:?} ms", without.len());
    assert!(seen.iter().all(|(_, waited)| *waited < 20_000), "{seen:?}");
    let outcomes = agent.starts();
    println!("{outcomes:?}");
    let others: u64 = outcomes.iter().filter(|(outcome, _)| *outcome != "in-time").map(|(_, count)| count).sum();
    assert!(u64::try_from(without.len()).unwrap() <= others, "{without:?}, {outcomes:?}");
    for pod in pods {
        pod.delete();
    }
}

/// The agent is stopped as by a debugger: none of its threads answers.
#[test]
fn an_agent_that_stands_still_delays_starts_by_no_more_than_one_time_out_of_the_runtime() {
    let (_module, agent) = (Module::apply("cpu-burst", &burst()), Agent::start_beside_the_runtime());
    kill_process(agent.pid(), Signal::STOP).unwrap();
    let begun = Instant::now();
    let started: Vec<_> = (0..3)
        .map(|number| Pod::create_with(&format!("qosm-still-{number}"), &annotated("cpuBurstOnly"), &looking()))
        .collect();
    let took = begun.elapsed();
    let groups: Vec<_> = started.iter().map(|pod| pod.cgroup("app")).collect();
    assert!(groups.iter().all(|group| group.burst() == 0), "nobody sets anything meanwhile");
    kill_process(agent.pid(), Signal::CONT).unwrap();
    // Each of the five calls of each start would wait for two seconds.
    assert!(took < Duration::from_secs(25), "{took:?}");
    agent.wait_until_registered();
    wait_until("each gets its burst", || groups.iter().all(|group| group.burst() == 20_000));
}
