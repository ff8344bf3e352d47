//! The arithmetic of quotas and bursts; all values refer to the CFS period that the cgroup really has.

use qosm_sdk::{MilliCpu, scale};

/// Smallest quota that the kernel accepts, in microseconds.
pub(crate) const QUOTA_MIN_USEC: u64 = 1_000;

/// The base quota: what a kubelet writes for a CPU limit. The loop returns to it.
pub(crate) fn base_quota(limit_milli: u64, period_usec: u64) -> u64 {
    MilliCpu(limit_milli).per_period(period_usec).max(QUOTA_MIN_USEC)
}

/// The highest quota that the loop may set: `quota_burst_percent` of the base, and never less than the base.
pub(crate) fn ceiling(base_usec: u64, quota_burst_percent: i64) -> u64 {
    match u64::try_from(quota_burst_percent) {
        Ok(percent) if percent > 100 => scale(base_usec, percent, 100),
        _ => base_usec,
    }
}

/// CFS burst for a CPU limit: `burst_percent` of what the limit allows in one period.
pub(crate) fn burst(limit_milli: u64, burst_percent: i64, period_usec: u64) -> u64 {
    let percent = u64::try_from(burst_percent).unwrap_or(0);
    scale(limit_milli.saturating_mul(percent), period_usec, 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_follows_limit_and_period() {
        for (limit, period, base) in [
            (2_000, 100_000, 200_000),
            (5, 100_000, 1_000),
            (9, 100_000, 1_000),
            (10, 100_000, 1_000),
            (11, 100_000, 1_100),
            (2_000, 50_000, 100_000),
            (1_500, 10_000, 15_000),
        ] {
            assert_eq!(base_quota(limit, period), base, "{limit}m over {period} us");
        }
    }

    #[test]
    fn the_ceiling_is_never_below_the_base() {
        for (base, percent, ceil) in [
            (200_000, 300, 600_000),
            (200_000, 100, 200_000),
            (200_000, 101, 202_000),
            (200_000, 50, 200_000),
            (200_000, 0, 200_000),
            (200_000, -7, 200_000),
            (1_001, 150, 1_501),
            (u64::MAX, i64::MAX, u64::MAX),
        ] {
            assert_eq!(ceiling(base, percent), ceil, "{percent} % of {base}");
        }
    }

    #[test]
    fn the_burst_is_a_share_of_the_real_limit() {
        for (limit, percent, period, expected) in [
            (5_000, 1_000, 100_000, 5_000_000),
            (3_000, 1_000, 100_000, 3_000_000),
            (5_000, 500, 100_000, 2_500_000),
            (3_000, 500, 100_000, 1_500_000),
            (1_000, 1_000, 100_000, 1_000_000),
            (5, 1_000, 100_000, 5_000),
            (1, 1, 100_000, 1),
            (2_000, 1_000, 50_000, 1_000_000),
            (0, 1_000, 100_000, 0),
            (2_000, 0, 100_000, 0),
            (2_000, -1, 100_000, 0),
        ] {
            assert_eq!(burst(limit, percent, period), expected, "{percent} % of {limit}m over {period} us");
        }
    }
}
