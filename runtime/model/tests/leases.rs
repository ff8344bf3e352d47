//! The stack of leases on a knob: the winner, the value after a release, and the counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::lease::{Holder, Leases, Priority, Timestamp};
use qosm_model::pod::{ContainerId, PodId};

const KNOBS: [Knob; 2] = [Knob::CfsQuota, Knob::CfsBurst];
const POLICIES: [(&str, i32); 3] = [("burst", 0), ("memory", 0), ("override", 10)];

#[derive(Clone, Copy, Debug)]
enum Act {
    Hold { policy: usize, container: u32, knob: usize, value: i64 },
    Release { policy: usize, container: u32, knob: usize },
    Unload { policy: usize },
    Vanish { container: u32 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (0..3usize, 0..4u32, 0..2usize, 0..3i64)
            .prop_map(|(policy, container, knob, value)| Act::Hold { policy, container, knob, value }),
        3 => (0..3usize, 0..4u32, 0..2usize).prop_map(|(policy, container, knob)| Act::Release { policy, container, knob }),
        1 => (0..3usize).prop_map(|policy| Act::Unload { policy }),
        1 => (0..4u32).prop_map(|container| Act::Vanish { container }),
    ];
    proptest::collection::vec(act, 0..60)
}

fn target(container: u32) -> Target {
    Target::Container(ContainerId(container))
}

proptest! {
    #[test]
    fn the_highest_priority_wins_and_of_equals_the_name_that_sorts_first(acts in acts()) {
        let mut leases = Leases::default();
        // The last value that each policy asked for.
        let mut wanted: BTreeMap<(u32, usize, usize), i64> = BTreeMap::new();
        for (moment, act) in (0i64..).zip(acts) {
            match act {
                Act::Hold { policy, container, knob, value } => {
                    let (name, priority) = POLICIES[policy];
                    let holder = Holder { policy: name.into(), priority: Priority(priority) };
                    let before = leases.effective(target(container), KNOBS[knob]).map(|lease| lease.value);
                    let reason: Arc<str> = "because".into();
                    let changed =
                        leases.acquire(&holder, target(container), KNOBS[knob], Value::Number(value), reason, Timestamp(moment));
                    let after = leases.effective(target(container), KNOBS[knob]).map(|lease| lease.value);
                    prop_assert_eq!(changed, before != after);
                    wanted.insert((container, knob, policy), value);
                }
                Act::Release { policy, container, knob } => {
                    let before = leases.effective(target(container), KNOBS[knob]).map(|lease| lease.value);
                    let changed = leases.release(POLICIES[policy].0, target(container), KNOBS[knob]);
                    let after = leases.effective(target(container), KNOBS[knob]).map(|lease| lease.value);
                    prop_assert_eq!(changed, before != after);
                    wanted.remove(&(container, knob, policy));
                }
                Act::Unload { policy } => {
                    let released = leases.release_policy(POLICIES[policy].0);
                    prop_assert_eq!(released.len(), wanted.keys().filter(|(.., holder)| *holder == policy).count());
                    wanted.retain(|(.., holder), _| *holder != policy);
                }
                Act::Vanish { container } => {
                    leases.forget(target(container));
                    wanted.retain(|(of, ..), _| *of != container);
                }
            }
            for (policy, (name, _)) in POLICIES.iter().enumerate() {
                prop_assert_eq!(leases.count(name), wanted.keys().filter(|(.., holder)| *holder == policy).count());
                prop_assert_eq!(leases.count(name), leases.held_by(name).count());
            }
            for container in 0..4 {
                for (knob, &which) in KNOBS.iter().enumerate() {
                    // `override` has the highest priority; the others are equal, and `burst` sorts first.
                    let winner = [2, 0, 1].into_iter().find_map(|policy| wanted.get(&(container, knob, policy)));
                    let effective = leases.effective(target(container), which).map(|lease| lease.value);
                    prop_assert_eq!(effective, winner.map(|&value| Value::Number(value)));
                }
            }
        }
    }
}

#[test]
fn since_when_a_value_is_held_moves_only_with_the_value() {
    let mut leases = Leases::default();
    let holder = Holder { policy: "burst".into(), priority: Priority(0) };
    for (moment, value, since) in [(1, 5, 1), (2, 5, 1), (3, 6, 3)] {
        leases.acquire(&holder, target(1), Knob::CfsBurst, Value::Number(value), "because".into(), Timestamp(moment));
        let lease = leases.effective(target(1), Knob::CfsBurst).unwrap();
        assert_eq!(lease.since, Timestamp(since));
    }
}

#[test]
fn a_lease_that_is_denied_does_not_count_whatever_its_priority() {
    let mut leases = Leases::default();
    let holder = |policy: &str, priority| Holder { policy: policy.into(), priority: Priority(priority) };
    let (target, knob) = (Target::Pod(PodId(1)), Knob::MemoryMin);
    let value = |leases: &Leases| leases.effective(target, knob).map(|lease| lease.value);
    leases.acquire(&holder("strong", 200), target, knob, Value::Number(1), "".into(), Timestamp(0));
    leases.acquire(&holder("weak", 100), target, knob, Value::Number(2), "".into(), Timestamp(0));
    assert!(leases.deny("strong", target, knob, Some("not its pod".into())));
    assert_eq!(value(&leases), Some(Value::Number(2)));
    assert!(
        !leases.acquire(&holder("strong", 200), target, knob, Value::Number(3), "".into(), Timestamp(1)),
        "still denied"
    );
    assert!(leases.release("weak", target, knob));
    assert_eq!((value(&leases), leases.count("strong")), (None, 1));
    assert!(leases.deny("strong", target, knob, None));
    assert_eq!(value(&leases), Some(Value::Number(3)));
}
