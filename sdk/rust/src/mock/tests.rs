//! What the mock host holds, shows and refuses.

use super::*;
use crate::{
    Bandwidth, Bound, Container, CpuBandwidth, CpuWeight, Description, EventKind, Host, MemoryProtection, NoConfig,
    Pod, PodFacts, PodId, Policy, Protection, Rejection, Session, State, Target, Tick,
};

const WEB: Target = Target::Pod(1);
const APP: Target = Target::Container(7);

#[test]
fn what_is_staged_is_held_only_after_a_good_end() {
    let mut host = MockHost::default();
    host.set_quota(WEB, Some(5_000), "because");
    host.assert_held(WEB, CPU_QUOTA, 5_000);
    host.discard();
    host.assert_free(WEB, CPU_QUOTA);
    host.set_quota(WEB, None, "because");
    assert_eq!(host.commit().len(), 1);
    assert_eq!(host.leases().get(&(WEB, CPU_QUOTA)), Some(&Value::Max));
    host.release_quota(WEB);
    host.assert_free(WEB, CPU_QUOTA);
}

#[test]
fn a_commit_shows_in_the_bandwidth_column() {
    let mut host = MockHost::default();
    let row = Bandwidth { target: WEB, quota_usec: Some(1), baseline_quota_usec: Some(100_000), period_usec: 100_000 };
    host.columns.bandwidth.push(row);
    for (quota, shown) in [(Some(Some(7_000)), Some(7_000)), (Some(None), None), (None, Some(100_000))] {
        match quota {
            Some(quota) => host.set_quota(WEB, quota, "because"),
            None => host.release_quota(WEB),
        }
        host.commit();
        assert_eq!(host.columns.bandwidth[0].quota_usec, shown);
    }
}

#[test]
fn protection_replaces_what_was_held() {
    let mut host = MockHost::default();
    host.protect(WEB, &Protection { min_bytes: Some(4096), oom_group: Some(true), ..Protection::NONE }, "asked");
    host.commit();
    host.protect(WEB, &Protection { high: Some(Bound::Unlimited), ..Protection::NONE }, "asked");
    host.commit();
    assert_eq!(host.leases().iter().collect::<Vec<_>>(), [(&(WEB, "memory.high"), &Value::Max)]);
    host.release_protection(WEB);
    host.commit();
    assert_eq!(host.to_string(), "nothing");
}

#[test]
fn a_weight_and_idle_are_leases_of_their_own() {
    let mut host = MockHost::default();
    host.set_weight(APP, 250, "because");
    host.set_idle(7, true, "because");
    host.commit();
    assert_eq!(host.to_string(), "container 7 cpu.idle = 1\ncontainer 7 cpu.weight = 250");
    host.release_idle(7);
    host.release_weight(APP);
    host.commit();
    assert!(host.leases().is_empty());
}

/// Performs one action in each evaluation.
#[derive(Default)]
struct Acting(Option<Action>);

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Quota(Target, u64),
    Reason(usize),
    Event(PodId, &'static str),
    Events(usize),
    Settings(usize),
    MemoryNodes(&'static [u32]),
    Cpus(&'static [u32]),
    Limit(u64),
}

impl Policy for Acting {
    type Config = ();
    type PodConfig = NoConfig;

    fn describe() -> Description {
        Description::new("acting", "0.1.0", "For these tests.")
    }

    fn pods<H: Host>(&mut self, host: &mut H, pods: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> {
        if pods.iter().any(|pod| pod.name == "measured") {
            host.node();
            assert_eq!(host.bandwidth(), [], "columns are shown to evaluations alone");
        }
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        match self.0 {
            None => {}
            Some(Action::Quota(target, quota)) => host.set_quota(target, Some(quota), "because"),
            Some(Action::Reason(length)) => host.set_quota(APP, Some(1), &"x".repeat(length)),
            Some(Action::Event(pod, reason)) => host.emit(pod, EventKind::Normal, reason, ""),
            Some(Action::Events(count)) => (0..count).for_each(|_| host.emit(1, EventKind::Normal, "Done", "")),
            Some(Action::Settings(count)) => (1..).take(count).for_each(|quota| host.set_quota(APP, Some(quota), "")),
            Some(Action::MemoryNodes(nodes)) => host.set_memory_nodes(7, nodes, ""),
            Some(Action::Cpus(cpus)) => host.set_cpus(APP, cpus, ""),
            Some(Action::Limit(bytes)) => host.set_memory_limit(APP, Some(bytes), ""),
        }
        Ok(())
    }
}

fn web() -> PodFacts {
    PodFacts { containers: vec![container(7, "app")], ..pod(1, "default", "web") }
}

fn done(action: Action) -> (MockHost, Result<(), String>) {
    let mut host = MockHost::default();
    let mut session = Session::of(Acting(Some(action)));
    session.pods(&mut host, vec![web()], &[]).unwrap();
    let result = session.evaluate(&mut host, tick(1_000));
    (host, result)
}

#[test]
fn what_a_host_refuses_is_refused_as_a_whole() {
    for (action, why) in [
        (Action::Quota(Target::Pod(2), 1), "it names pod 2, which it was not given"),
        (Action::Quota(Target::Container(8), 1), "it names container 8, which it was not given"),
        (Action::Quota(APP, u64::MAX), "its quota is 18446744073709551615, which no cgroup file can hold"),
        (Action::Event(2, "Done"), "it names pod 2, which it was not given"),
        (
            Action::Event(1, "it is done"),
            "`it is done` is not the reason of an event: one word in camel case, at most 128 letters and digits",
        ),
        (Action::Events(257), "it emits more than 256 pod events"),
        (Action::Settings(16_385), "it stages more than 16384 settings"),
        (Action::MemoryNodes(&[]), "its number of NUMA nodes is 0, which no cgroup file can hold"),
        (Action::MemoryNodes(&[0, 63]), "its NUMA node is 63, which no cgroup file can hold"),
        (Action::Cpus(&[]), "its number of CPUs is 0, which no cgroup file can hold"),
        (Action::Cpus(&[0, 1024]), "its CPU is 1024, which no cgroup file can hold"),
        (Action::Limit(u64::MAX), "its memory limit is 18446744073709551615, which no cgroup file can hold"),
    ] {
        let (mut host, result) = done(action);
        assert_eq!(result, Err(why.into()));
        assert_eq!((host.commit(), host.events.len()), (Vec::new(), 0), "{why}");
    }
    for action in [
        Action::Quota(APP, 1),
        Action::Quota(WEB, 1),
        Action::Reason(5000),
        Action::Events(256),
        Action::Event(1, "Done"),
    ] {
        assert_eq!(done(action).1, Ok(()));
    }
}

#[test]
fn what_is_gone_cannot_be_named_and_takes_along_what_was_held() {
    let (mut host, _) = done(Action::Quota(APP, 1));
    host.commit();
    let mut session = Session::of(Acting(Some(Action::Quota(APP, 2))));
    let restarted = PodFacts { containers: vec![container(8, "app")], ..web() };
    session.pods(&mut host, vec![restarted], &[]).unwrap();
    assert_eq!(host.to_string(), "nothing");
    let error = session.evaluate(&mut host, tick(1_000)).unwrap_err();
    assert_eq!(error, "it names container 7, which it was not given");
    session.pods(&mut host, Vec::new(), &[1]).unwrap();
    let mut late = Session::of(Acting(Some(Action::Quota(WEB, 2))));
    assert_eq!(late.evaluate(&mut host, tick(1_000)), Err("it names pod 1, which it was not given".into()));
}

#[test]
fn nothing_is_measured_before_the_first_evaluation() {
    let mut host = MockHost::default();
    host.columns.node = Some(node(8, 1 << 30));
    let mut session = Session::<Acting>::default();
    let measured = || vec![pod(1, "default", "measured")];
    let error = session.pods(&mut host, measured(), &[]).unwrap_err();
    assert_eq!(error, "it reads `node` before its first evaluation, when nothing has been measured yet");
    session.evaluate(&mut host, tick(1_000)).unwrap();
    session.pods(&mut host, measured(), &[]).unwrap();
}

#[test]
fn interfaces_that_are_not_granted_are_refused() {
    let mut host = MockHost::granting(["cpu-stat"]);
    let mut session = Session::of(Acting(Some(Action::Quota(APP, 1))));
    session.pods(&mut host, vec![web()], &[]).unwrap();
    let error = session.evaluate(&mut host, tick(1_000)).unwrap_err();
    assert_eq!(error, "it imports `cpu-bandwidth`, which is not granted here");
    assert_eq!(host.used(), ["cpu-bandwidth"]);
    host.save_state(b"always granted").unwrap();
    assert_eq!(host.load_state(), b"always granted", "what was saved in this call is there already");
}

#[test]
fn an_assertion_that_fails_tells_what_is_held() {
    let mut host = MockHost::default();
    host.set_quota(WEB, Some(5_000), "");
    host.set_burst(APP, 7, "");
    let told = std::panic::catch_unwind(|| host.assert_held(WEB, CPU_QUOTA, Value::Max)).unwrap_err();
    let told = told.downcast_ref::<String>().unwrap();
    assert_eq!(
        told,
        "pod 1 cpu.quota = max is not held; what is held:\npod 1 cpu.quota = 5000\ncontainer 7 cpu.burst = 7"
    );
}

#[test]
fn containers_are_what_tests_say() {
    let app = Container { cpu_limit_milli: Some(500), ..container(7, "app") };
    assert_eq!((app.id, app.cpu_limit_milli), (7, Some(500)));
}
