//! The profile `koordinator`: steps of a fifth, as Koordinator's agent makes them.

use crate::pool::NodeState;
use crate::step::{Situation, Why};
use qosm_sdk::scale;

#[derive(Clone, Copy)]
enum Operation {
    Up,
    Down,
    Remain,
}

/// The next quota. The bounds always apply: a quota above the ceiling is cut, one below the base is lifted.
pub(crate) fn step(situation: &Situation) -> (u64, Why) {
    let (operation, why) = operation(situation);
    let wished = match operation {
        Operation::Up => scale(situation.current, 12, 10),
        Operation::Down => scale(situation.current, 8, 10),
        Operation::Remain => situation.current,
    };
    let target = situation.bounded(wished);
    // If only the bounds moved the quota, they are the reason, whichever operation was chosen.
    let moved_as_wished = match operation {
        Operation::Up => target > situation.current,
        Operation::Down => target < situation.current,
        Operation::Remain => false,
    };
    (target, if moved_as_wished { why } else { Why::Bounds })
}

fn operation(situation: &Situation) -> (Operation, Why) {
    if situation.refused {
        return (Operation::Down, Why::AllowanceUsed);
    }
    match (situation.node, situation.activity) {
        (NodeState::Overload, _) => (Operation::Down, Why::Overload),
        (NodeState::Idle, Some(activity)) if activity.is_throttled() => {
            (Operation::Up, Why::Throttled(activity.throttled_percent()))
        }
        _ => (Operation::Remain, Why::Bounds),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::step::Activity;

    fn activity(nr_throttled: u64) -> Activity {
        Activity { window_usec: 1_000_000, nr_periods: 10, nr_throttled, ..Activity::default() }
    }

    fn at(current: u64) -> Situation {
        Situation {
            current,
            base: 200_000,
            ceil: 600_000,
            period_usec: 100_000,
            activity: Some(activity(0)),
            refused: false,
            node: NodeState::Idle,
        }
    }

    #[test]
    fn a_throttled_container_climbs_in_seven_steps() {
        let mut quota = 200_000;
        for expected in [240_000, 288_000, 345_600, 414_720, 497_664, 597_196, 600_000, 600_000] {
            quota = step(&Situation { activity: Some(activity(3)), ..at(quota) }).0;
            assert_eq!(quota, expected);
        }
    }

    #[test]
    fn an_overloaded_node_takes_it_back_in_five_steps() {
        let mut quota = 600_000;
        for expected in [480_000, 384_000, 307_200, 245_760, 200_000, 200_000] {
            quota = step(&Situation { node: NodeState::Overload, ..at(quota) }).0;
            assert_eq!(quota, expected);
        }
    }

    #[test]
    fn the_operation_follows_the_first_rule_that_fits() {
        use NodeState::{Cooling, Idle, Overload, Unknown};
        for (refused, throttled, node, quota) in [
            (true, Some(3), Idle, 240_000),
            (true, Some(0), Cooling, 240_000),
            (true, None, Unknown, 240_000),
            (true, Some(3), Overload, 240_000),
            (false, None, Idle, 300_000),
            (false, None, Overload, 240_000),
            (false, Some(1), Idle, 360_000),
            (false, Some(1), Cooling, 300_000),
            (false, Some(1), Unknown, 300_000),
            (false, Some(1), Overload, 240_000),
            (false, Some(0), Idle, 300_000),
            (false, Some(0), Cooling, 300_000),
            (false, Some(0), Unknown, 300_000),
            (false, Some(0), Overload, 240_000),
        ] {
            let situation = Situation { refused, activity: throttled.map(activity), node, ..at(300_000) };
            assert_eq!(step(&situation).0, quota, "{situation:?}");
        }
    }

    #[test]
    fn the_bounds_apply_to_a_quota_that_remains() {
        for (current, expected) in [(700_000, 600_000), (100_000, 200_000), (1, 200_000), (400_000, 400_000)] {
            assert_eq!(step(&at(current)), (expected, Why::Bounds));
        }
    }

    #[test]
    fn throttling_without_periods_is_none() {
        let odd = Activity { nr_periods: 0, nr_throttled: 4, ..Activity::default() };
        assert_eq!(step(&Situation { activity: Some(odd), ..at(300_000) }).0, 300_000);
    }

    proptest! {
        #[test]
        fn a_step_stays_within_the_bounds(
            current: u64, base in 1_000_u64..1 << 40, more in 0_u64..1 << 40, throttled: Option<u8>, refused: bool, node in 0..4_usize,
        ) {
            let situation = Situation {
                current,
                base,
                ceil: base + more,
                refused,
                activity: throttled.map(|throttled| activity(throttled.into())),
                node: [NodeState::Idle, NodeState::Cooling, NodeState::Overload, NodeState::Unknown][node],
                ..at(0)
            };
            let (target, _) = step(&situation);
            prop_assert!((base..=base + more).contains(&target));
        }

        #[test]
        fn overload_ends_at_the_base(current: u64, base in 1_000_u64..1 << 40, more in 0_u64..1 << 40) {
            let mut situation = Situation { current, base, ceil: base + more, node: NodeState::Overload, ..at(0) };
            for _ in 0..200 {
                situation.current = step(&situation).0;
            }
            prop_assert_eq!(situation.current, base);
        }
    }
}
