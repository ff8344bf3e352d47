//! The quota that a kubelet writes for a CPU limit.

use qosm_model::knob::Value;
use qosm_model::unit::{Micros, MilliCpu};

use crate::Host;
use crate::layout::Driver;
use crate::probe::BurstRule;

/// The shortest quota that the kubelet writes (`MinQuotaPeriod` in `pkg/kubelet/cm`).
const MIN_QUOTA: u64 = 1000;
/// systemd takes quotas per second; the systemd driver rounds them up to whole hundredths of a CPU (`addCpuQuota` in
/// opencontainers/cgroups).
const SYSTEMD_STEP: u64 = 10_000;
const SECOND: u64 = 1_000_000;

/// The quotas that a kubelet, a runtime and systemd write for a limit: the exact one, and with the systemd driver also
/// the rounded one, since the runtime and systemd write the same file one after the other.
fn quotas(driver: Driver, limit: MilliCpu, period: Micros) -> Vec<u64> {
    let exact = (limit.0.saturating_mul(period.0) / 1000).max(MIN_QUOTA);
    if driver == Driver::Cgroupfs || period.0 == 0 {
        return vec![exact];
    }
    let a_second = exact.saturating_mul(SECOND) / period.0;
    let rounded = a_second.div_ceil(SYSTEMD_STEP).saturating_mul(SYSTEMD_STEP).saturating_mul(period.0) / SECOND;
    if rounded > exact { vec![exact, rounded] } else { vec![exact] }
}

impl Host {
    /// Quotas that the kubelet and container runtimes write for a CPU limit under the current driver, lowest first.
    pub fn limit_quotas(&self, limit: MilliCpu, period: Micros) -> Vec<Value> {
        let quotas = quotas(self.layout.driver, limit, period);
        quotas.into_iter().map(|quota| Value::Number(i64::try_from(quota).unwrap_or(i64::MAX))).collect()
    }

    /// Whether a burst makes the kernel refuse a quota below it (`EINVAL`): true if the kernel accepts no burst above the quota.
    pub fn burst_holds_back_quota(&self) -> bool {
        self.probe.burst_rule == BurstRule::BurstWithinQuota
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_rounds_up_to_whole_hundredths() {
        for (limit, period, cgroupfs, systemd) in [
            (500, 100_000, 50_000, vec![50_000]),
            (517, 100_000, 51_700, vec![51_700, 52_000]),
            (15, 100_000, 1500, vec![1500, 2000]),
            (5, 100_000, 1000, vec![1000]),
            (1, 100_000, 1000, vec![1000]),
            (517, 50_000, 25_850, vec![25_850, 26_000]),
            (333, 10_000, 3330, vec![3330, 3400]),
            (100, 5_000, 1000, vec![1000]),
            (0, 100_000, 1000, vec![1000]),
        ] {
            let (limit, period) = (MilliCpu(limit), Micros(period));
            assert_eq!(quotas(Driver::Cgroupfs, limit, period), [cgroupfs], "{limit} {period:?}");
            assert_eq!(quotas(Driver::Systemd, limit, period), systemd, "{limit} {period:?}");
        }
    }
}
