//! Whole evaluations with values computed by hand.

use qosm_sdk::{KubeQos, QosClass};

use super::*;
use crate::config::{Field, Gates, Profile, Thresholds};
use crate::feature::Resource;
use crate::input::{BeCpu, Memory, Node, Pressure, Sample};
use crate::marks::Marks;
use crate::pod::Requests;

const SECOND: u64 = 1_000_000;
const GIB: u64 = 1 << 30;

/// All features on.
fn config(profile: Profile) -> Config {
    let json = r#"{"enable": true, "cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60,
        "cpuEvictThresholdPercent": 80, "memoryEvictThresholdPercent": 70, "evictEnabledPriorityThreshold": 5999,
        "cpuAllocatableEvictThresholdPercent": 110, "cpuAllocatableEvictLowerPercent": 100,
        "memoryAllocatableEvictThresholdPercent": 110, "memoryAllocatableEvictLowerPercent": 100, "allocatableEvictPriorityThreshold": 7999}"#;
    let strategy: Thresholds = serde_json::from_str(json).unwrap();
    Config { policy: Settings { profile, features: Gates::ALL, ..Settings::default() }, strategy }
}

fn batch(name: &str, priority: i32, gib: u64, cpus: u64, now_usec: u64) -> Pod {
    Pod {
        priority: Some(priority),
        class: Some(QosClass::Be),
        kube_qos: KubeQos::BestEffort,
        cpu: Some(Sample { amount: cpus * 1_000_000, at_usec: now_usec }),
        memory: Some(Sample { amount: gib * GIB, at_usec: now_usec }),
        requests: Requests { batch_cpu: cpus * 1_000, batch_memory: gib * GIB, ..Requests::default() },
        ..Pod::new(&format!("uid-{name}"), name)
    }
}

/// A node of 16 CPUs and 100 GiB with no shortage.
fn inputs(now_usec: u64) -> Inputs {
    Inputs {
        node: Some(Node {
            cpu_capacity_milli: 16_000,
            memory_capacity_bytes: 100 * GIB,
            allocatable: [(Resource::BatchCpu, 100_000), (Resource::BatchMemory, i64::MAX)].into(),
        }),
        pods: vec![batch("a", 5_100, 10, 2, now_usec), batch("b", 5_200, 20, 4, now_usec), Pod::new("uid-web", "web")],
        be: Some(BeCpu { request_milli: 6_000, used_milli: 6_000, real_limit_milli: 6_000, at_usec: now_usec }),
        cpu: Some(Sample { amount: 8_000_000, at_usec: now_usec }),
        memory: Some(Memory {
            total_bytes: 100 * GIB,
            available_bytes: 50 * GIB,
            at_usec: now_usec,
            ..Memory::default()
        }),
        ..Inputs::default()
    }
}

fn with_available(mut inputs: Inputs, gib: u64) -> Inputs {
    inputs.memory.as_mut().unwrap().available_bytes = gib * GIB;
    inputs
}

fn starving(mut inputs: Inputs) -> Inputs {
    let be = inputs.be.as_mut().unwrap();
    (be.used_milli, be.real_limit_milli) = (2_000, 2_000);
    inputs
}

fn told(decisions: &Decisions) -> Vec<String> {
    decisions
        .evictions
        .iter()
        .map(|eviction| format!("{} {} {:?}", eviction.feature, eviction.name, eviction.urgency))
        .collect()
}

fn run(state: &mut State, inputs: &Inputs, now_usec: u64) -> Vec<String> {
    told(&tick(state, &config(Profile::Responsive), inputs, now_usec))
}

#[test]
fn a_calm_node_evicts_nobody() {
    let decisions = tick(&mut State::default(), &config(Profile::Responsive), &inputs(0), 0);
    assert_eq!(decisions, Decisions::default());
}

#[test]
fn memory_is_evicted_at_once_and_cpu_after_twenty_seconds() {
    let mut state = State::default();
    let short = |second: u64| starving(with_available(inputs(second * SECOND), 25));
    // 75 % used, target 68 %: 7 GiB, which pod a has.
    let accepted = BTreeMap::from([("uid-a".to_owned(), Outcome::Accepted)]);
    assert_eq!(run(&mut state, &short(0), 0), ["BEMemoryEvict a Soon"]);
    for second in 1..20 {
        let mut later = short(second);
        later.memory = inputs(second * SECOND).memory;
        later.outcomes.clone_from(&accepted);
        assert_eq!(run(&mut state, &later, second * SECOND), [] as [&str; 0], "{second}");
    }
    // 60 % of 6000 less 2000: 1600m. Pod a is still there and will release its 2 CPUs, so no other pod has to leave.
    let mut later = short(20);
    later.memory = inputs(20 * SECOND).memory;
    later.outcomes = accepted;
    assert_eq!(run(&mut state, &later, 20 * SECOND), [] as [&str; 0]);
    later.pods.remove(0);
    assert_eq!(run(&mut state, &later, 20 * SECOND), ["BECPUEvict b Soon"]);
}

#[test]
fn after_an_eviction_the_group_cools_down() {
    let mut state = State::default();
    let mut at = |second: u64, available| {
        let mut inputs = with_available(inputs(second * SECOND), available);
        // Pod a, evicted at 0 s, is gone a second later.
        inputs.pods.retain(|pod| second == 0 || pod.name != "a");
        run(&mut state, &inputs, second * SECOND)
    };
    assert_eq!(at(0, 25), ["BEMemoryEvict a Soon"]);
    for second in [1, 2, 3] {
        assert_eq!(at(second, 20), [] as [&str; 0]);
    }
    assert_eq!(at(4, 20), ["BEMemoryEvict b Soon"]);
}

#[test]
fn who_is_evicted_and_still_there_counts_as_released() {
    let mut state = State::default();
    assert_eq!(run(&mut state, &with_available(inputs(0), 25), 0), ["BEMemoryEvict a Soon"]);
    // 78 % used: 10 GiB are needed, and pod a has them.
    assert_eq!(run(&mut state, &with_available(inputs(5 * SECOND), 22), 5 * SECOND), [] as [&str; 0]);
    // 79 %: 11 GiB.
    assert_eq!(run(&mut state, &with_available(inputs(6 * SECOND), 21), 6 * SECOND), ["BEMemoryEvict b Soon"]);
    // No pod was evicted at 5 s, so the cool-down began at 6 s.
    assert_eq!(state.evicted_at_usec[&Group::Memory], 6 * SECOND);
}

#[test]
fn a_pod_that_leaves_by_itself_counts_too() {
    let mut inputs = with_available(inputs(0), 25);
    inputs.pods[1].is_leaving = true;
    assert_eq!(run(&mut State::default(), &inputs, 0), [] as [&str; 0]);
}

#[test]
fn an_eviction_that_was_refused_is_somebody_elses() {
    let mut state = State::default();
    run(&mut state, &with_available(inputs(0), 25), 0);
    let mut refused = with_available(inputs(SECOND), 25);
    refused.outcomes =
        [("uid-a".to_owned(), Outcome::Refused { why: "its budget allows no disruption".into(), at_usec: SECOND })]
            .into();
    let decisions = tick(&mut state, &config(Profile::Responsive), &refused, SECOND);
    // A round whose evictions were all refused has no cool-down.
    assert_eq!(told(&decisions), ["BEMemoryEvict b Soon"]);
    assert_eq!(decisions.withdrawals, ["uid-a"], "the controller does not try again");
    insta::assert_snapshot!(decisions.reports[0].text, @"pod default/a: its eviction was refused: its budget allows no disruption; another pod may be chosen");
    // After a minute the pod may be chosen again.
    let mut later = with_available(inputs(62 * SECOND), 25);
    later.pods.remove(1);
    assert_eq!(run(&mut state, &later, 62 * SECOND), ["BEMemoryEvict a Soon"]);
}

#[test]
fn a_pod_that_never_leaves_counts_no_longer_and_is_not_evicted_again() {
    let mut state = State::default();
    run(&mut state, &with_available(inputs(0), 25), 0);
    let at = |second: u64| {
        let mut inputs = with_available(inputs(second * SECOND), 25);
        inputs.outcomes = [("uid-a".to_owned(), Outcome::Accepted)].into();
        inputs
    };
    // Its grace period of 30 s plus a minute, counted from when the eviction was accepted.
    assert_eq!(run(&mut state, &at(10), 10 * SECOND), [] as [&str; 0]);
    assert_eq!(run(&mut state, &at(99), 99 * SECOND), [] as [&str; 0]);
    let decisions = tick(&mut state, &config(Profile::Responsive), &at(100), 100 * SECOND);
    assert_eq!(told(&decisions), ["BEMemoryEvict b Soon"]);
    assert_eq!(decisions.withdrawals, [] as [&str; 0]);
    insta::assert_snapshot!(decisions.reports[0].text, @"pod default/a is still there long after it was evicted; it counts as released no longer");
    let mut later = at(1_000);
    later.pods.remove(1);
    assert_eq!(run(&mut state, &later, 1_000 * SECOND), [] as [&str; 0]);
}

#[test]
fn what_nobody_answers_is_taken_back_before_another_pod_is_chosen() {
    let mut state = State::default();
    run(&mut state, &with_available(inputs(0), 25), 0);
    assert_eq!(run(&mut state, &with_available(inputs(89 * SECOND), 25), 89 * SECOND), [] as [&str; 0]);
    let mut waiting = with_available(inputs(90 * SECOND), 25);
    waiting.outcomes = [("uid-a".to_owned(), Outcome::Pending)].into();
    let decisions = tick(&mut state, &config(Profile::Responsive), &waiting, 90 * SECOND);
    assert_eq!(
        (told(&decisions), decisions.withdrawals),
        (vec!["BEMemoryEvict b Soon".to_owned()], vec!["uid-a".into()])
    );
    insta::assert_snapshot!(decisions.reports[0].text, @"pod default/a: its eviction was refused: nobody answered in time; another pod may be chosen");
}

#[test]
fn what_is_needed_no_more_is_taken_back() {
    let taken_back = |outcome: Option<Outcome>, urgent: bool, second: u64| {
        let mut state = State::default();
        let mut first = with_available(inputs(0), 25);
        first.memory.as_mut().unwrap().is_alarmed = urgent;
        assert_eq!(tick(&mut state, &config(Profile::Responsive), &first, 0).evictions.len(), 1);
        let mut decisions = Decisions::default();
        for now in 1..=second {
            let mut calm = inputs(now * SECOND);
            calm.outcomes = outcome.clone().map(|outcome| ("uid-a".to_owned(), outcome)).into_iter().collect();
            decisions = tick(&mut state, &config(Profile::Responsive), &calm, now * SECOND);
            assert_eq!(told(&decisions), [] as [&str; 0]);
            // A withdrawn eviction is forgotten, so the pod can be chosen again.
            assert_eq!(decisions.withdrawals.is_empty(), state.evicted.contains_key("uid-a") || now < second);
            if !decisions.withdrawals.is_empty() {
                break;
            }
        }
        decisions.withdrawals.len()
    };
    for (outcome, urgent, second, expected) in [
        (None, false, 9, 0),
        (None, false, 10, 1),
        (Some(Outcome::Pending), false, 10, 1),
        (Some(Outcome::Accepted), false, 30, 0),
        // The node itself would end the pod within seconds.
        (Some(Outcome::Pending), true, 1, 1),
        (Some(Outcome::Accepted), true, 30, 0),
    ] {
        assert_eq!(taken_back(outcome.clone(), urgent, second), expected, "{outcome:?} {urgent} {second}");
    }
    // Missing measurements do not count as calm.
    let mut state = State::default();
    run(&mut state, &with_available(inputs(0), 25), 0);
    for second in 1..30 {
        let unknown = Inputs { memory: None, ..inputs(second * SECOND) };
        let decisions = tick(&mut state, &config(Profile::Responsive), &unknown, second * SECOND);
        assert_eq!(decisions.withdrawals, [] as [&str; 0]);
    }
}

#[test]
fn memory_that_cannot_wait_is_now() {
    // 65 % used, near the threshold of 70 %, and all tasks wait for memory.
    let mut inputs = with_available(inputs(0), 35);
    inputs.memory.as_mut().unwrap().pressure = Some(Pressure { full_usec: 300_000, window_usec: SECOND });
    let decisions = tick(&mut State::default(), &config(Profile::Responsive), &inputs, 0);
    assert_eq!(told(&decisions), ["BEMemoryEvict a Now"]);
    assert_eq!(decisions.evictions[0].grace_seconds, 0);
    assert_eq!(told(&tick(&mut State::default(), &config(Profile::Koordinator), &inputs, 0)), [] as [&str; 0]);
}

#[test]
fn what_cannot_wait_waits_a_second_and_takes_along_who_was_to_leave_soon() {
    let mut state = State::default();
    assert_eq!(run(&mut state, &with_available(inputs(0), 25), 0), ["BEMemoryEvict a Soon"]);
    let short = |second: u64, available| {
        let mut inputs = with_available(inputs(second * SECOND), available);
        inputs.memory.as_mut().unwrap().is_alarmed = true;
        inputs
    };
    // The eviction of pod a is reported again, as urgent. Pod a has the 10 GiB that 78 % require.
    let decisions = tick(&mut state, &config(Profile::Responsive), &short(1, 22), SECOND);
    assert_eq!(told(&decisions), ["BEMemoryEvict a Now"]);
    insta::assert_snapshot!(decisions.evictions[0].message(), @"trigger by koordlet feature BEMemoryEvict, kill pod: a: all tasks wait for memory, and the pod, evicted earlier, is still there");
    // Only once. 85 % require 17 GiB, and the cool-down of 4 s does not apply.
    assert_eq!(run(&mut state, &short(2, 15), 2 * SECOND), ["BEMemoryEvict b Now"]);
    assert_eq!(run(&mut state, &short(3, 15), 3 * SECOND), [] as [&str; 0]);
}

#[test]
fn tasks_are_worked_in_order_and_share_what_is_released() {
    let mut all = starving(with_available(inputs(30 * SECOND), 25));
    all.cpu = Some(Sample { amount: 15_000_000, at_usec: 30 * SECOND });
    let marks = Marks { is_enabled: true, ..Marks::default() };
    for pod in &mut all.pods {
        pod.marks = marks.clone();
    }
    all.node.as_mut().unwrap().allocatable = [(Resource::BatchCpu, 5_000), (Resource::BatchMemory, i64::MAX)].into();
    all.pods.push(Pod { marks, ..batch("c", 5_300, 1, 1, 30 * SECOND) });
    let mut state = State { started_at_usec: Some(0), ..State::default() };
    // BECPUEvict needs 1600m, and pod a has 2000m. CPUAllocatableEvict: 7000 of 5000, so 2000m, covered by pod a. CPUEvict: 15000 of 16000,
    // target 78 %, so 2520m: pod a uses 2000m, pod b the rest. Memory: 7 GiB, covered by pods a and b, which were just evicted.
    assert_eq!(run(&mut state, &all, 30 * SECOND), ["BECPUEvict a Soon", "CPUEvict b Soon"]);
}

#[test]
fn each_eviction_says_by_how_much_what_and_why() {
    let decisions = tick(&mut State::default(), &config(Profile::Responsive), &with_available(inputs(0), 15), 0);
    assert_eq!(told(&decisions), ["BEMemoryEvict a Soon", "BEMemoryEvict b Soon"]);
    insta::assert_snapshot!(decisions.evictions[0].message(), @"trigger by koordlet feature BEMemoryEvict, kill pod: a: the node uses 85 % of its memory, >= 70 %; to release: 17Gi; this pod is number 1 of 2 (priority 5100, uses 10Gi) and releases 10Gi of memory used; still to release: 7Gi of memory");
    insta::assert_snapshot!(decisions.evictions[1].message(), @"trigger by koordlet feature BEMemoryEvict, kill pod: b: the node uses 85 % of its memory, >= 70 %; to release: 17Gi; this pod is number 2 of 2 (priority 5200, uses 20Gi) and releases 20Gi of memory used");
}

#[test]
fn a_pods_grace_period_is_bounded() {
    for (own, grace) in [(None, 30), (Some(5), 5), (Some(0), 0), (Some(3_600), 30)] {
        let mut inputs = with_available(inputs(0), 25);
        inputs.pods[0].grace_seconds = own;
        let decisions = tick(&mut State::default(), &config(Profile::Responsive), &inputs, 0);
        assert_eq!(decisions.evictions[0].grace_seconds, grace, "{own:?}");
    }
}

#[test]
fn what_lasts_is_told_when_it_begins_and_when_it_ends() {
    let mut config = config(Profile::Responsive);
    config.strategy.cpu = crate::config::Field::Wrong("\"80\"".into());
    let mut state = State::default();
    // 100 % used, target 68 %: 32 GiB, and the pods have 30.
    let texts = |decisions: Decisions| decisions.reports.into_iter().map(|report| report.text).collect::<Vec<_>>();
    let first = texts(tick(&mut state, &config, &with_available(inputs(0), 0), 0));
    insta::assert_debug_snapshot!(first, @r#"
    [
        "CPUEvict is off: cpuEvictThresholdPercent is \"80\"; write a whole number, without quotes",
        "BEMemoryEvict: all pods that it may evict release too little, 2Gi of memory are lacking",
        "MemoryEvict: all pods that it may evict release too little, 2Gi of memory are lacking",
    ]
    "#);
    assert_eq!(texts(tick(&mut state, &config, &with_available(inputs(SECOND), 0), SECOND)), [] as [&str; 0]);
    let mut unknown = inputs(5 * SECOND);
    unknown.memory = None;
    let then = texts(tick(&mut state, &config, &unknown, 5 * SECOND));
    insta::assert_debug_snapshot!(then, @r#"
    [
        "BEMemoryEvict: nothing is lacking any more",
        "MemoryEvict: nothing is lacking any more",
        "BEMemoryEvict does nothing: the memory of the node is not measured, or too long ago",
        "MemoryEvict does nothing: the memory of the node is not measured, or too long ago",
    ]
    "#);
}

#[test]
fn each_invalid_setting_of_a_feature_is_reported_and_again_after_a_restart() {
    let evaluate = |state: &mut State, threshold: Option<&str>| {
        let mut config = config(Profile::Responsive);
        if let Some(text) = threshold {
            config.strategy.cpu = crate::config::Field::Wrong(text.to_owned());
        }
        let decisions = tick(state, &config, &inputs(0), 0);
        decisions.reports.into_iter().map(|report| report.text).collect::<Vec<_>>()
    };
    let invalid = |text: &str| {
        vec![format!("CPUEvict is off: cpuEvictThresholdPercent is {text}; write a whole number, without quotes")]
    };
    let mut state = State::default();
    assert_eq!(evaluate(&mut state, Some("\"80\"")), invalid("\"80\""));
    assert_eq!(evaluate(&mut state, Some("\"80\"")), [""; 0]);
    assert_eq!(evaluate(&mut state, Some("true")), invalid("true"));
    let mut state = State::restore(&state.save()).unwrap();
    assert_eq!(evaluate(&mut state, Some("true")), invalid("true"));
    assert_eq!(evaluate(&mut state, Some("true")), [""; 0]);
    assert_eq!(evaluate(&mut state, None), ["CPUEvict: its settings can be used again, or are gone"]);
    assert_eq!(evaluate(&mut state, Some("true")), invalid("true"));
}

#[test]
fn switching_off_forgets_cool_downs_and_who_was_evicted() {
    let mut state = State::default();
    run(&mut state, &with_available(inputs(0), 25), 0);
    assert!(!state.evicted.is_empty() && !state.evicted_at_usec.is_empty());
    let off = Config {
        strategy: Thresholds { enable: Field::Is(false), ..Thresholds::default() },
        ..config(Profile::Responsive)
    };
    let decisions = tick(&mut state, &off, &with_available(inputs(SECOND), 25), SECOND);
    assert_eq!(decisions, Decisions { withdrawals: vec!["uid-a".into()], ..Decisions::default() });
    assert_eq!(state, State { started_at_usec: Some(0), ..State::default() });
    // After eviction is switched on again, it may act at once; for CPU, too, the start was long ago.
    assert_eq!(run(&mut state, &with_available(inputs(2 * SECOND), 25), 2 * SECOND), ["BEMemoryEvict a Soon"]);
}

#[test]
fn used_memory_is_bytes() {
    // Koordinator counts a small victim as a thousand times as large, and stops after it.
    let mut inputs = with_available(inputs(0), 25);
    inputs.pods[0].memory = Some(Sample { amount: 64 << 20, at_usec: 0 });
    for profile in [Profile::Koordinator, Profile::Responsive] {
        assert_eq!(
            told(&tick(&mut State::default(), &config(profile), &inputs, 0)),
            ["BEMemoryEvict a Soon", "BEMemoryEvict b Soon"]
        );
    }
}

#[test]
fn who_was_chosen_this_moment_is_told_once() {
    let mut state = State { started_at_usec: Some(0), ..State::default() };
    let at = |second: u64| {
        let mut inputs = starving(with_available(inputs(second * SECOND), 35));
        inputs.memory.as_mut().unwrap().is_alarmed = true;
        inputs
    };
    // Pod a is evicted because of CPU. It has the 2 GiB that memory needs, and gets a second before the eviction becomes urgent.
    assert_eq!(run(&mut state, &at(30), 30 * SECOND), ["BECPUEvict a Soon"]);
    assert_eq!(run(&mut state, &at(31), 31 * SECOND), ["BECPUEvict a Now"]);
    assert_eq!(run(&mut state, &at(32), 32 * SECOND), [] as [&str; 0]);
}
