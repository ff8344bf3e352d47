//! Mode `cfsQuota`: one quota for all batch pods.

use crate::input::Quota;

/// The CFS period that koordinator assumes, in microseconds.
pub const PERIOD_USEC: u64 = 100_000;
/// Minimum quota of batch pods per period of 100 ms, in microseconds: a fiftieth of a CPU.
pub const MIN_QUOTA_USEC: u64 = 2_000;

/// How the quota changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It stays: the change is too small, or a rise is not due yet.
    Stay,
    /// The new quota, in microseconds per period.
    Set(u64),
}

/// A step as koordinator takes it. The quota is at least [`MIN_QUOTA_USEC`]; changes below 1 % of the node are skipped unless the target is
/// that minimum; a rise is at most 10 % of the node, except from unlimited. Unlimited counts as −1 in both comparisons, and the period as
/// 100 ms.
///
/// Source: koordinator `pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go`.
pub fn koordinator_step(allowed_milli: i64, current_usec: Option<u64>, capacity_milli: i64) -> Step {
    let target = target(allowed_milli, PERIOD_USEC);
    let node = node_cpus(capacity_milli).saturating_mul(PERIOD_USEC);
    let difference = match current_usec {
        Some(current) => target.abs_diff(current),
        None => target.saturating_add(1),
    };
    if difference < node / 100 && target != MIN_QUOTA_USEC {
        return Step::Stay;
    }
    Step::Set(current_usec.map_or(target, |current| target.min(current.saturating_add(node / 10))))
}

/// A step of the profile `responsive`: the same rules with the period in force, but from unlimited it always goes down to the target.
/// `may_rise` tells whether the quota may grow now.
pub fn responsive_step(allowed_milli: i64, current: Quota, capacity_milli: i64, may_rise: bool) -> Step {
    let target = target(allowed_milli, current.period_usec);
    let node = node_cpus(capacity_milli).saturating_mul(current.period_usec);
    let Some(current_usec) = current.quota_usec else { return Step::Set(target) };
    if target > current_usec && !may_rise {
        return Step::Stay;
    }
    if target.abs_diff(current_usec) < node / 100 && target != minimum(current.period_usec) {
        return Step::Stay;
    }
    Step::Set(target.min(current_usec.saturating_add(node / 10)))
}

/// The quota per period for this amount of CPU; at least the minimum.
fn target(allowed_milli: i64, period_usec: u64) -> u64 {
    let milli = u64::try_from(allowed_milli).unwrap_or(0);
    qosm_sdk::scale(milli, period_usec, 1000).max(minimum(period_usec))
}

/// A fiftieth of a CPU; at least 1000 µs, the smallest quota that the kernel accepts.
fn minimum(period_usec: u64) -> u64 {
    qosm_sdk::scale(MIN_QUOTA_USEC, period_usec, PERIOD_USEC).max(1_000)
}

/// Number of CPUs of the node, rounded up as Kubernetes does.
fn node_cpus(capacity_milli: i64) -> u64 {
    u64::try_from(capacity_milli).unwrap_or(0).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn koordinators_steps_by_hand() {
        // 16 CPUs: 1 % is 16000 µs, 10 % are 160000 µs.
        for (allowed, current, step) in [
            // Down at once, by any amount.
            (1_200, Some(1_500_000), Step::Set(120_000)),
            (3_200, Some(1_000_000), Step::Set(320_000)),
            // At least 2000 µs, even if nothing is allowed.
            (0, Some(1_500_000), Step::Set(2_000)),
            (-5_000, Some(1_500_000), Step::Set(2_000)),
            (19, Some(1_500_000), Step::Set(2_000)),
            (21, Some(1_500_000), Step::Set(2_100)),
            // A change below 1 % of the node is skipped: 15999 µs is, 16000 µs is not.
            (1_000, Some(115_999), Step::Stay),
            (1_000, Some(84_001), Step::Stay),
            (1_000, Some(116_000), Step::Set(100_000)),
            (1_000, Some(84_000), Step::Set(100_000)),
            // The minimum is always written.
            (0, Some(2_500), Step::Set(2_000)),
            (0, Some(2_000), Step::Set(2_000)),
            // Up by at most 10 %.
            (8_000, Some(100_000), Step::Set(260_000)),
            (2_600, Some(100_000), Step::Set(260_000)),
            (2_601, Some(100_000), Step::Set(260_000)),
            // From unlimited to any quota.
            (8_000, None, Step::Set(800_000)),
            // Except for a small quota, whose distance from −1 is small too.
            (100, None, Step::Stay),
            (159, None, Step::Stay),
            (160, None, Step::Set(16_000)),
            (0, None, Step::Set(2_000)),
        ] {
            assert_eq!(koordinator_step(allowed, current, 16_000), step, "{allowed} {current:?}");
        }
        // Capacity counts in whole CPUs, rounded up: 15.5 CPUs are 16.
        assert_eq!(koordinator_step(8_000, Some(100_000), 15_500), Step::Set(260_000));
        assert_eq!(koordinator_step(8_000, Some(100_000), 15_000), Step::Set(250_000));
    }

    #[test]
    fn responsive_steps_by_hand() {
        let quota = |quota_usec| Quota { quota_usec, period_usec: PERIOD_USEC };
        for (allowed, current, may_rise, step) in [
            (1_200, quota(Some(1_500_000)), true, Step::Set(120_000)),
            (8_000, quota(Some(100_000)), true, Step::Set(260_000)),
            (8_000, quota(Some(100_000)), false, Step::Stay),
            // A decrease does not depend on `may_rise`.
            (500, quota(Some(100_000)), false, Step::Set(50_000)),
            (1_000, quota(Some(115_999)), true, Step::Stay),
            // On a full node, an unlimited quota is reduced all the same.
            (100, quota(None), true, Step::Set(10_000)),
            (100, quota(None), false, Step::Set(10_000)),
            (-1, quota(None), true, Step::Set(2_000)),
            // A period of 10 ms: 1 % of the node is 1600 µs, 10 % are 16000 µs.
            (1_200, Quota { quota_usec: Some(150_000), period_usec: 10_000 }, true, Step::Set(12_000)),
            (8_000, Quota { quota_usec: Some(10_000), period_usec: 10_000 }, true, Step::Set(26_000)),
            // The kernel refuses quotas below 1000 µs.
            (0, Quota { quota_usec: None, period_usec: 10_000 }, true, Step::Set(1_000)),
        ] {
            assert_eq!(responsive_step(allowed, current, 16_000, may_rise), step, "{allowed} {current:?} {may_rise}");
        }
    }

    proptest! {
        #[test]
        fn rises_are_bounded_and_the_minimum_holds(
            allowed in -100_000..100_000_i64, current in 2_000..50_000_000_u64, capacity in 1_000..512_000_i64, may_rise: bool,
        ) {
            let tenth = u64::try_from(capacity).unwrap().div_ceil(1000) * 10_000;
            let quota = Quota { quota_usec: Some(current), period_usec: PERIOD_USEC };
            for step in [koordinator_step(allowed, Some(current), capacity), responsive_step(allowed, quota, capacity, may_rise)] {
                if let Step::Set(quota) = step {
                    prop_assert!(quota >= MIN_QUOTA_USEC && quota <= current + tenth);
                }
            }
            if let Step::Set(quota) = responsive_step(allowed, quota, capacity, false) {
                prop_assert!(quota <= current);
            }
        }

        #[test]
        fn no_number_makes_it_panic(allowed: i64, current: Option<u64>, period_usec: u64, capacity: i64, may_rise: bool) {
            let _ = koordinator_step(allowed, current, capacity);
            let _ = responsive_step(allowed, Quota { quota_usec: current, period_usec }, capacity, may_rise);
        }
    }
}
