//! The arithmetic of one cgroup: converts percentages of requests and limits into bytes.
//!
//! Divisions truncate. All computations use 128 bits and are capped at the largest value that a memcg file accepts, so no request, limit or
//! percentage can overflow.

use serde::Deserialize;

/// The largest number of bytes in the kernel's files and in Kubernetes' quantities.
pub(crate) const MAX_BYTES: u64 = i64::MAX.unsigned_abs();

/// How `memory.high` follows from request, limit and `throttlingPercent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HighFormula {
    /// A point between request and limit, rounded down to a page. Used by Koordinator since 1.3 and by the kubelet (KEP-2570).
    #[default]
    Current,
    /// A share of the limit, whatever the request; not rounded. Documented by Koordinator up to 1.2 and by ack-koordinator.
    Legacy,
}

/// A value of `memory.high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum High {
    /// The kernel's `max`.
    Unlimited,
    /// In bytes.
    Bytes(u64),
}

/// `percent` percent of `amount`; a negative percentage gives 0.
pub(crate) fn share(amount: u64, percent: i64) -> u64 {
    bytes(i128::from(amount) * i128::from(percent) / 100)
}

/// `memory.high` of a container.
///
/// `base` is the container's limit, else its pod's, or the node's allocatable memory if neither has one. 0 percent means unlimited.
pub(crate) fn high(formula: HighFormula, request: u64, base: u64, percent: i64, page: u64) -> High {
    if percent == 0 {
        return High::Unlimited;
    }
    let (request, base, percent) = (i128::from(request), i128::from(base), i128::from(percent));
    let page = i128::from(page.max(1));
    High::Bytes(bytes(match formula {
        HighFormula::Current => (request + (base - request) * percent / 100) / page * page,
        HighFormula::Legacy => base * percent / 100,
    }))
}

/// Raises `memory.high` to at least one page, and to `needed` rounded down to whole pages: a bound of 0 is the strictest one, and no
/// percentage of an amount means that.
pub(crate) fn high_at_least(high: High, needed: u64, page: u64) -> High {
    let page = page.max(1);
    match high {
        High::Bytes(bytes) => High::Bytes(bytes.max(needed / page * page).max(page)),
        High::Unlimited => High::Unlimited,
    }
}

/// Raises `memory.low` to at least `memory.min` if both are set; 0 stays 0.
pub(crate) fn low_over_min(low: Option<u64>, min: Option<u64>) -> Option<u64> {
    match (low, min) {
        (Some(low), Some(min)) if low > 0 => Some(low.max(min)),
        _ => low,
    }
}

/// Raises `memory.high` to at least `memory.min` if both are set; 0 stays 0.
pub(crate) fn high_over_min(high: Option<High>, min: Option<u64>) -> Option<High> {
    match (high, min) {
        (Some(High::Bytes(bytes)), Some(min)) if bytes > 0 => Some(High::Bytes(bytes.max(min))),
        _ => high,
    }
}

/// Scales `value`, a part of `total`, so that the total fits into `cap`. The scaled parts never add up to more than the cap.
pub(crate) fn scaled(value: u64, cap: u64, total: u128) -> u64 {
    if total <= u128::from(cap) {
        return value;
    }
    // total > cap >= 0, so it is not 0.
    u64::try_from(u128::from(value) * u128::from(cap) / total).unwrap_or(MAX_BYTES)
}

/// A sum that cannot overflow.
pub(crate) fn total(parts: impl IntoIterator<Item = u64>) -> u128 {
    parts.into_iter().map(u128::from).sum()
}

/// Lowers `memory.min` so that `below_percent` percent of the limit stay reclaimable; 0 changes nothing.
pub(crate) fn below_limit(min: u64, limit: Option<u64>, below_percent: u32) -> u64 {
    match limit {
        Some(limit) if below_percent > 0 => min.min(limit.saturating_sub(share(limit, i64::from(below_percent)))),
        _ => min,
    }
}

/// A sum that is capped at [`MAX_BYTES`].
pub(crate) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, |total: u64, part| total.saturating_add(part).min(MAX_BYTES))
}

fn bytes(value: i128) -> u64 {
    u64::try_from(value.max(0)).map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn a_share_truncates_and_saturates() {
        for (amount, percent, expected) in [
            (100 * MIB, 100, 104_857_600),
            (100 * MIB, 0, 0),
            (GIB, 50, 536_870_912),
            (GIB, 200, 2 * GIB),
            (199, 1, 1),
            (99, 1, 0),
            (GIB, -1, 0),
            (u64::MAX, 100, MAX_BYTES),
            (u64::MAX, i64::MAX, MAX_BYTES),
            (u64::MAX, i64::MIN, 0),
        ] {
            assert_eq!(share(amount, percent), expected, "{percent} % of {amount}");
        }
    }

    #[test]
    fn high_follows_the_current_formula() {
        let cases = [
            // request, base, percent, page, expected
            (0, 100 * MIB, 80, 4096, 83_886_080),
            (2 * GIB, 6 * GIB, 80, 4096, 5_583_454_208),
            (0, GIB, 80, 4096, 858_992_640),
            (0, GIB, 40, 4096, 429_494_272),
            (GIB, GIB, 40, 4096, GIB),
            (0, GIB, 80, 65536, 858_980_352),
            (100 * MIB, 100 * MIB + 4095, 100, 4096, 100 * MIB),
            // The request exceeds the node's allocatable memory and there is no limit: between the two.
            (4 * GIB, 2 * GIB, 50, 4096, 3 * GIB),
            (4 * GIB, 2 * GIB, 100, 4096, 2 * GIB),
            (0, 4095, 100, 4096, 0),
            (7, 7, 50, 0, 7),
        ];
        for (request, base, percent, page, expected) in cases {
            assert_eq!(
                high(HighFormula::Current, request, base, percent, page),
                High::Bytes(expected),
                "{percent} % from {request} to {base}"
            );
        }
        assert_eq!(high(HighFormula::Current, u64::MAX, u64::MAX, i64::MAX, 4096), High::Bytes(MAX_BYTES));
        assert_eq!(high(HighFormula::Current, 0, u64::MAX, i64::MIN, 4096), High::Bytes(0));
    }

    #[test]
    fn high_follows_the_legacy_formula() {
        for (request, base, percent, expected) in
            [(2 * GIB, 6 * GIB, 80, 5_153_960_755), (0, 100 * MIB, 80, 83_886_080), (GIB, GIB, 40, 429_496_729)]
        {
            assert_eq!(high(HighFormula::Legacy, request, base, percent, 4096), High::Bytes(expected));
        }
    }

    #[test]
    fn no_throttling_is_unlimited_in_both_formulas() {
        for formula in [HighFormula::Current, HighFormula::Legacy] {
            assert_eq!(high(formula, GIB, 2 * GIB, 0, 4096), High::Unlimited);
        }
    }

    #[test]
    fn high_is_a_page_at_least_and_what_is_needed() {
        for (bytes, needed, page, expected) in [
            (0, 0, 4096, 4096),
            (409, 512, 4096, 4096),
            (1638, 2048, 65_536, 65_536),
            (8192, 5000, 4096, 8192),
            (8192, 13_000, 4096, 12_288),
            (0, 0, 0, 1),
        ] {
            assert_eq!(high_at_least(High::Bytes(bytes), needed, page), High::Bytes(expected), "{bytes} {needed}");
        }
        assert_eq!(high_at_least(High::Unlimited, 8192, 4096), High::Unlimited);
    }

    #[test]
    fn low_and_high_are_raised_to_min_only_when_both_are_wanted() {
        assert_eq!(low_over_min(Some(1), Some(5)), Some(5));
        assert_eq!(low_over_min(Some(9), Some(5)), Some(9));
        assert_eq!(low_over_min(Some(0), Some(5)), Some(0));
        assert_eq!(low_over_min(Some(1), None), Some(1));
        assert_eq!(low_over_min(None, Some(5)), None);
        assert_eq!(high_over_min(Some(High::Bytes(1)), Some(5)), Some(High::Bytes(5)));
        assert_eq!(high_over_min(Some(High::Bytes(9)), Some(5)), Some(High::Bytes(9)));
        assert_eq!(high_over_min(Some(High::Bytes(0)), Some(5)), Some(High::Bytes(0)));
        assert_eq!(high_over_min(Some(High::Unlimited), Some(5)), Some(High::Unlimited));
        assert_eq!(high_over_min(Some(High::Bytes(1)), None), Some(High::Bytes(1)));
        assert_eq!(high_over_min(None, Some(5)), None);
    }

    #[test]
    fn protection_can_be_kept_below_the_limit() {
        for (min, limit, below, expected) in [
            (100, Some(100), 0, 100),
            (100, Some(50), 0, 100),
            (100, Some(100), 5, 95),
            (90, Some(100), 5, 90),
            (100, None, 5, 100),
            (100, Some(100), 100, 0),
        ] {
            assert_eq!(below_limit(min, limit, below), expected, "{min} under {limit:?} by {below} %");
        }
    }

    #[test]
    fn parts_are_scaled_into_the_cap() {
        assert_eq!(scaled(60, 100, 100), 60);
        assert_eq!(scaled(60, 100, 120), 50);
        assert_eq!(scaled(MAX_BYTES, 0, total([MAX_BYTES])), 0);
        assert_eq!(scaled(MAX_BYTES, MAX_BYTES - 1, total([MAX_BYTES])), MAX_BYTES - 1);
        assert_eq!(scaled(MAX_BYTES, MAX_BYTES, total([MAX_BYTES, MAX_BYTES])), MAX_BYTES / 2);
        assert_eq!(sum([MAX_BYTES, 5]), MAX_BYTES);
    }
}
