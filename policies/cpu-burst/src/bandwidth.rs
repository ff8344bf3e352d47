//! The arithmetic of quotas and bursts. Everything is computed from the enforcement period that the cgroup really has.

/// Smallest quota that the kernel takes.
pub(crate) const QUOTA_MIN_USEC: u64 = 1_000;

/// What a kubelet writes for a CPU limit: the quota to which the loop returns.
pub(crate) fn base_quota(limit_milli: u64, period_usec: u64) -> u64 {
    scale(limit_milli, period_usec, 1_000).max(QUOTA_MIN_USEC)
}

/// The highest quota that the loop may give: so many percent of the base, and never less than the base.
pub(crate) fn ceiling(base_usec: u64, quota_burst_percent: i64) -> u64 {
    match u64::try_from(quota_burst_percent) {
        Ok(percent) if percent > 100 => scale(base_usec, percent, 100),
        _ => base_usec,
    }
}

/// CFS burst for a CPU limit: so many percent of what the limit allows in one period.
pub(crate) fn burst(limit_milli: u64, burst_percent: i64, period_usec: u64) -> u64 {
    let percent = u64::try_from(burst_percent).unwrap_or(0);
    scale(limit_milli.saturating_mul(percent), period_usec, 100_000)
}

/// `value * by / over`, truncated, without overflow. Nothing is divided by 0, but by 1.
pub(crate) fn scale(value: u64, by: u64, over: u64) -> u64 {
    let over = over.max(1);
    match value.checked_mul(by) {
        Some(product) => product / over,
        // Rare, and on 32-bit Wasm many times slower.
        None => u64::try_from(u128::from(value) * u128::from(by) / u128::from(over)).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_is_exact_where_products_overflow() {
        for (value, by, over, scaled) in [
            (7, 3, 2, 10),
            (u64::MAX, 3, 4, 13_835_058_055_282_163_711),
            (u64::MAX, 4, 3, u64::MAX),
            (1 << 40, 1 << 40, 1 << 41, 1 << 39),
            (5, 2, 0, 10),
        ] {
            assert_eq!(scale(value, by, over), scaled);
        }
    }

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
