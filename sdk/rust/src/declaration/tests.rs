//! The session calls the host for differences only.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use crate::mock::{self, CPU_BURST, CPU_QUOTA, CPU_WEIGHT, CPUSET_MEMS, ClassChange, MockHost};
use crate::{
    BandwidthShare, Container, Description, Host, NoConfig, Pod, PodFacts, PodId, Policy, Protection, Rejection,
    Session, Share, Target, Tick,
};

const WEB: Target = Target::Pod(1);
const APP: Target = Target::Container(7);

/// Declares what the test sets next.
#[derive(Default)]
struct Wanting(Vec<Want>);

#[derive(Clone, Debug)]
enum Want {
    Quota(Target, u64, &'static str),
    Burst(Target, u64),
    Weight(u32),
    Idle(bool),
    Identity(i8),
    CoreGroup(u64),
    Nodes(&'static [u32]),
    Cpus(&'static [u32]),
    Limit(Option<u64>),
    Shares(u32),
    Min(u64),
    Class(&'static str, u32),
    Member(Target, &'static str),
    Release(Target),
    Undefine(&'static str),
    Keep(Target),
    KeepAll,
    Fail,
}

impl Policy for Wanting {
    type Config = ();
    type PodConfig = NoConfig;

    fn describe() -> Description {
        Description::new("wanting", "0.1.0", "For these tests.")
    }

    fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> {
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        for want in &self.0 {
            match *want {
                Want::Quota(target, quota, reason) => host.set_quota(target, Some(quota), reason),
                Want::Burst(target, burst) => host.set_burst(target, burst, "asked for"),
                Want::Weight(weight) => host.set_weight(APP, weight, "asked for"),
                Want::Idle(idle) => host.set_idle(7, idle, "asked for"),
                Want::Identity(identity) => host.set_identity(WEB, identity, "asked for"),
                Want::CoreGroup(group) => host.set_core_group(7, group, "asked for"),
                Want::Nodes(nodes) => host.set_memory_nodes(7, nodes, "asked for"),
                Want::Cpus(cpus) => host.set_cpus(WEB, cpus, "asked for"),
                Want::Limit(bytes) => host.set_memory_limit(WEB, bytes, "asked for"),
                Want::Shares(shares) => host.set_shares(APP, shares, "asked for"),
                Want::Min(min) => {
                    host.protect(APP, &Protection { min_bytes: Some(min), ..Protection::NONE }, "asked for");
                }
                Want::Class(class, percent) => {
                    let share = Share { cache: None, bandwidth: Some(BandwidthShare::Percent(percent)) };
                    host.define_class(class, &share, &[], "asked for");
                }
                Want::Member(target, class) => host.assign_class(target, class, "asked for"),
                Want::Release(target) => host.release_quota(target),
                Want::Undefine(class) => host.undefine_class(class),
                Want::Keep(target) => host.keep(target),
                Want::KeepAll => host.keep_all(),
                Want::Fail => return Err("it cannot decide".into()),
            }
        }
        Ok(())
    }
}

struct Run {
    host: MockHost,
    session: Session<Wanting>,
}

const INTERFACES: [&str; 7] = [
    "cpu-bandwidth",
    "cpu-identity",
    "cpu-weight",
    "cpuset",
    "memory-limit",
    "memory-protection",
    "resctrl-allocation",
];

impl Run {
    fn new() -> Self {
        let mut run = Self { host: MockHost::default(), session: Session::default() };
        run.give(&[7]);
        run
    }

    fn give(&mut self, containers: &[u32]) {
        let containers = containers.iter().map(|id| Container { ..mock::container(*id, &format!("c{id}")) });
        let web = PodFacts { containers: containers.collect(), ..mock::pod(1, "default", "web") };
        self.session.pods(&mut self.host, vec![web], &[]).unwrap();
    }

    /// Number of host calls that an evaluation with these declarations makes.
    fn calls(&mut self, wants: &[Want]) -> usize {
        let count = |host: &MockHost| INTERFACES.iter().map(|interface| host.calls(interface)).sum::<usize>();
        let before = count(&self.host);
        self.session.policy_mut().0 = wants.to_vec();
        match self.session.evaluate(&mut self.host, mock::tick(1_000)) {
            Ok(()) => drop(self.host.commit()),
            Err(_) => self.host.discard(),
        }
        count(&self.host) - before
    }
}

#[test]
fn the_host_is_called_for_what_differs_and_releases_what_is_not_declared() {
    let all = [
        Want::Quota(WEB, 5_000, "it is throttled"),
        Want::Burst(APP, 7),
        Want::Weight(100),
        Want::Idle(false),
        Want::Nodes(&[0]),
        Want::Min(4_096),
        Want::Class("be", 30),
        Want::Member(WEB, "be"),
        Want::Identity(-1),
        Want::CoreGroup(5),
    ];
    let mut run = Run::new();
    assert_eq!(run.calls(&all), all.len());
    assert_eq!(run.calls(&all), 0, "nothing changed");
    let mut shuffled = all.clone();
    shuffled[..6].reverse();
    assert_eq!(run.calls(&shuffled), 0, "the order does not count");
    for (one, other) in [
        (0, Want::Quota(WEB, 5_001, "it is throttled")),
        (0, Want::Quota(WEB, 5_001, "for another reason")),
        (1, Want::Burst(APP, 8)),
        (2, Want::Weight(101)),
        (3, Want::Idle(true)),
        (4, Want::Nodes(&[0, 1])),
        (5, Want::Min(8_192)),
        (6, Want::Class("be", 40)),
        (8, Want::Identity(2)),
    ] {
        let mut changed = all.clone();
        changed[one] = other;
        run.calls(&all);
        assert_eq!(run.calls(&changed), 1, "{:?}", changed[one]);
    }
    run.calls(&all);
    run.host.take_class_changes();
    assert_eq!(run.calls(&[]), all.len());
    assert_eq!(run.host.to_string(), "nothing");
    let over = [ClassChange::Release { target: WEB }, ClassChange::Undefine { class: "be".into() }];
    assert_eq!(run.host.take_class_changes(), over, "members leave before their class goes");
    assert_eq!(run.calls(&[]), 0);
}

#[test]
fn what_is_kept_stays_as_it_was_declared() {
    let mut run = Run::new();
    run.calls(&[Want::Quota(WEB, 5, ""), Want::Burst(WEB, 6), Want::Weight(100), Want::Class("be", 1)]);
    assert_eq!(run.calls(&[Want::KeepAll]), 0);
    assert_eq!(run.calls(&[Want::Keep(WEB), Want::Release(WEB)]), 3, "the quota, the weight and the class");
    run.host.assert_free(WEB, CPU_QUOTA);
    run.host.assert_held(WEB, CPU_BURST, 6);
    run.host.assert_free(APP, CPU_WEIGHT);
}

#[test]
fn what_is_released_is_not_kept_by_what_keeps_all() {
    for keeps in [Want::Keep(WEB), Want::KeepAll] {
        let mut run = Run::new();
        run.calls(&[Want::Quota(WEB, 5, ""), Want::Burst(WEB, 6)]);
        assert_eq!(run.calls(&[Want::Release(WEB), keeps]), 1);
        run.host.assert_free(WEB, CPU_QUOTA);
        run.host.assert_held(WEB, CPU_BURST, 6);
    }
}

#[test]
fn a_failed_evaluation_changes_nothing() {
    let before = [Want::Quota(WEB, 5, ""), Want::Class("be", 10), Want::Member(WEB, "be")];
    let unknown = Target::Container(99);
    for failing in [
        vec![Want::Quota(WEB, 6, ""), Want::Quota(WEB, 7, ""), Want::Nodes(&[0]), Want::Class("ls", 9), Want::Fail],
        vec![Want::Undefine("be"), Want::Quota(unknown, 1, "")],
        vec![Want::Release(WEB), Want::Fail],
    ] {
        let mut run = Run::new();
        run.calls(&before);
        run.calls(&failing);
        assert_eq!(run.calls(&before), 0, "{failing:?}");
        run.host.assert_held(WEB, CPU_QUOTA, 5);
        run.host.assert_free(APP, CPUSET_MEMS);
        assert_eq!(run.host.class_of(WEB), Some("be"));
        run.give(&[7]);
        run.host.assert_held(WEB, CPU_QUOTA, 5);
    }
}

#[test]
fn a_failed_evaluation_leaves_nothing_that_the_next_commit_would_take() {
    for (wants, why) in [
        (vec![Want::Quota(WEB, 6, ""), Want::Fail], "it cannot decide"),
        (vec![Want::Burst(Target::Container(99), 1), Want::Fail], "it names container 99, which it was not given"),
    ] {
        let mut run = Run::new();
        run.session.policy_mut().0 = wants;
        assert_eq!(run.session.evaluate(&mut run.host, mock::tick(1_000)), Err(why.into()));
        assert_eq!(run.host.commit(), [], "{why}");
        assert_eq!(run.calls(&[Want::Burst(WEB, 7)]), 1);
        assert_eq!(run.host.to_string(), "pod 1 cpu.burst = 7", "{why}");
    }
}

#[test]
fn what_vanished_is_not_released_and_is_set_anew_when_it_comes_back() {
    let mut run = Run::new();
    run.give(&[7, 8]);
    let both = [Want::Burst(APP, 1), Want::Burst(Target::Container(8), 1)];
    assert_eq!(run.calls(&both), 2);
    run.give(&[8]);
    assert_eq!(run.calls(&both[1..]), 0);
    run.give(&[7, 8]);
    assert_eq!(run.calls(&both), 1);
}

#[test]
fn the_first_evaluation_gives_up_what_an_earlier_instance_held() {
    let mut run = Run::new();
    run.calls(&[Want::Quota(WEB, 5, ""), Want::Burst(WEB, 6), Want::Class("be", 1), Want::Member(WEB, "be")]);
    run.session = Session::default();
    run.give(&[7]);
    run.calls(&[Want::Burst(WEB, 6)]);
    assert_eq!(run.host.to_string(), "pod 1 cpu.burst = 6");
    assert_eq!(run.host.classes(), &mock::Classes::default());
}

/// What an evaluation can declare about a quota or burst of two targets.
#[derive(Clone, Copy, Debug)]
enum Say {
    Quota(usize, u64),
    Burst(usize, u64),
    Release(usize),
    Keep(usize),
    KeepAll,
}

fn sayings() -> impl Strategy<Value = Vec<(Vec<Say>, bool)>> {
    let say = prop_oneof![
        (0..3_usize, 1..4_u64).prop_map(|(target, value)| Say::Quota(target, value)),
        (0..3_usize, 1..4_u64).prop_map(|(target, value)| Say::Burst(target, value)),
        (0..3_usize).prop_map(Say::Release),
        (0..3_usize).prop_map(Say::Keep),
        Just(Say::KeepAll),
    ];
    vec((vec(say, 0..8), prop::bool::weighted(0.2)), 1..12)
}

proptest! {
    /// For every sequence of declarations, the host holds what the last successful evaluation set or kept and did not release.
    #[test]
    fn what_is_held_is_what_the_last_good_evaluation_declared(evaluations in sayings()) {
        const TARGETS: [Target; 3] = [WEB, APP, Target::Container(8)];
        let mut run = Run::new();
        run.give(&[7, 8]);
        let mut held = BTreeMap::new();
        for (said, fails) in evaluations {
            let mut declared = BTreeMap::new();
            let mut released = BTreeSet::new();
            let mut wants = Vec::new();
            for say in said {
                match say {
                    Say::Quota(target, value) => {
                        wants.push(Want::Quota(TARGETS[target], value, ""));
                        declared.insert((target, CPU_QUOTA), value);
                        released.remove(&target);
                    }
                    Say::Burst(target, value) => {
                        wants.push(Want::Burst(TARGETS[target], value));
                        declared.insert((target, CPU_BURST), value);
                    }
                    Say::Release(target) => {
                        wants.push(Want::Release(TARGETS[target]));
                        declared.remove(&(target, CPU_QUOTA));
                        released.insert(target);
                    }
                    Say::Keep(_) | Say::KeepAll => {
                        wants.push(match say {
                            Say::Keep(target) => Want::Keep(TARGETS[target]),
                            _ => Want::KeepAll,
                        });
                        for (&key, &value) in &held {
                            let (target, knob) = key;
                            let is_meant = !matches!(say, Say::Keep(other) if other != target);
                            if is_meant && !(knob == CPU_QUOTA && released.contains(&target)) {
                                declared.entry(key).or_insert(value);
                            }
                        }
                    }
                }
            }
            if fails {
                wants.push(Want::Fail);
            } else {
                held = declared;
            }
            run.calls(&wants);
            for (index, target) in TARGETS.into_iter().enumerate() {
                for knob in [CPU_QUOTA, CPU_BURST] {
                    match held.get(&(index, knob)) {
                        Some(value) => run.host.assert_held(target, knob, *value),
                        None => run.host.assert_free(target, knob),
                    }
                }
            }
            prop_assert_eq!(run.calls(&[Want::KeepAll]), 0);
        }
    }
}

#[test]
fn cpus_and_limits_are_declared_and_shares_are_the_weights_lease() {
    let mut run = Run::new();
    let all = [Want::Cpus(&[0, 70]), Want::Limit(Some(4_096)), Want::Weight(100)];
    assert_eq!((run.calls(&all), run.calls(&all)), (3, 0));
    let others = [Want::Cpus(&[1]), Want::Limit(None), Want::Shares(1_024)];
    assert_eq!((run.calls(&others), run.calls(&others)), (3, 0), "one call each, and no release of the weight");
    run.host.assert_held(WEB, mock::CPUSET_CPUS, &[1]);
    run.host.assert_held(WEB, mock::MEMORY_MAX, mock::Value::Max);
    run.host.assert_held(APP, mock::CPU_WEIGHT, mock::Value::Shares(1_024));
    assert_eq!(run.calls(&[]), 3);
    for (target, knob) in [(WEB, mock::CPUSET_CPUS), (WEB, mock::MEMORY_MAX), (APP, mock::CPU_WEIGHT)] {
        run.host.assert_free(target, knob);
    }
}
