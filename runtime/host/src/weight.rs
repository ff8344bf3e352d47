//! CPU weights: one scale for both cgroup versions, the effect of `cpu.idle`, and the kubelet's weight for a CPU request.
//!
//! The scale is the kernel's own. It stores every weight as v1's `cpu.shares`; a weight of 100 on v2 equals 1024
//! shares, rounded to the nearest (`sched_weight_from_cgroup` and `sched_weight_to_cgroup` in kernel/sched). So a
//! weight gives the same share of a CPU on either version, a new cgroup has 100 on both, and, since a weight
//! corresponds to about ten shares, a written value reads back. The kubelet's formulas from v1 to v2 map one range onto
//! the other instead, and turn 1024 shares into a weight of 39: they only serve to recognize its values.

use qosm_model::knob::{IDLE_WEIGHT, Knob, Target, Value};
use qosm_model::unit::MilliCpu;

use crate::error::HostError;
use crate::knob_table::{self, Encoding};
use crate::knobs::Executed;
use crate::mounts::CgroupVersion;
use crate::targets::CgroupFile;
use crate::{Host, parse};

/// Minimum number of shares: the kernel raises smaller numbers to it.
pub(crate) const MIN_SHARES: i64 = 2;
/// Maximum number of shares: the kernel lowers larger numbers to it.
pub(crate) const MAX_SHARES: i64 = 262_144;
/// Content of `cpu.shares` while `cpu.idle` is 1.
pub(crate) const IDLE_SHARES: i64 = 3;

const MIN_WEIGHT: i64 = 1;
const MAX_WEIGHT: i64 = 10_000;

/// The shares that equal a weight.
pub(crate) fn shares(weight: i64) -> i64 {
    if Value::Number(weight) == IDLE_WEIGHT {
        IDLE_SHARES
    } else {
        (weight.saturating_mul(1024).saturating_add(50)) / 100
    }
}

/// The weight nearest to these shares.
pub(crate) fn nearest(shares: i64) -> i64 {
    (shares.saturating_mul(100).saturating_add(512) / 1024).clamp(MIN_WEIGHT, MAX_WEIGHT)
}

/// Shares as a value: a weight, if one equals them exactly.
pub(crate) fn of_shares(number: i64) -> Value {
    let weight = nearest(number);
    if shares(weight) == number { Value::Number(weight) } else { Value::Shares(number) }
}

/// A wanted weight or number of shares as it is written: shares on v1; on v2 they are mapped as in KEP-2254, so that a
/// policy's weight compares with the kubelet's.
pub(crate) fn of_wanted(version: CgroupVersion, value: Value) -> Value {
    match (value, version) {
        (Value::Shares(shares), _) if !(MIN_SHARES..=MAX_SHARES).contains(&shares) => value,
        (Value::Shares(shares), CgroupVersion::V1) => of_shares(shares),
        (Value::Shares(shares), CgroupVersion::V2) => Value::Number(stretched(shares)),
        (other, _) => other,
    }
}

/// The lowest value that can be written.
pub(crate) fn lowest(version: CgroupVersion) -> Value {
    match version {
        CgroupVersion::V1 => Value::Shares(MIN_SHARES),
        CgroupVersion::V2 => Value::Number(MIN_WEIGHT),
    }
}

/// The shares that the kubelet writes for a CPU request (`MilliCPUToShares`).
pub(crate) fn requested_shares(request: MilliCpu) -> i64 {
    let shares = i64::try_from(request.0.saturating_mul(1024) / 1000).unwrap_or(MAX_SHARES);
    shares.clamp(MIN_SHARES, MAX_SHARES)
}

/// KEP-2254: maps shares from 2 to 262144 linearly onto weights from 1 to 10000.
pub(crate) fn stretched(shares: i64) -> i64 {
    1 + (shares - MIN_SHARES) * (MAX_WEIGHT - 1) / (MAX_SHARES - MIN_SHARES)
}

/// Maps the same ranges by a curve on which 1024 shares give a weight of 100, as runtimes do since runc 1.3.2 and crun 1.23.
fn curved(shares: i64) -> i64 {
    if shares <= MIN_SHARES {
        return MIN_WEIGHT;
    }
    let log = f64::from(u32::try_from(shares).unwrap_or(u32::MAX)).log2();
    let weight = 10_f64.powf((log * log + 125.0 * log) / 612.0 - 7.0 / 34.0).ceil();
    // Search the weight instead of casting a floating-point number; there are few candidates.
    let mut weights = MIN_WEIGHT..MAX_WEIGHT;
    weights.find(|&candidate| f64::from(u32::try_from(candidate).unwrap_or(u32::MAX)) >= weight).unwrap_or(MAX_WEIGHT)
}

impl Host {
    /// A policy's wanted value as the knob holds it on this node: on cgroup v2, shares become a weight.
    pub fn as_held(&self, knob: Knob, value: Value) -> Value {
        of_wanted(self.knob_version(knob_table::row(knob)), value)
    }

    /// The values that the kubelet and container runtimes write for a CPU request: one on v1; on v2 one per formula.
    pub fn requested_weights(&self, request: MilliCpu) -> Vec<Value> {
        let shares = requested_shares(request);
        match self.knob_version(knob_table::row(Knob::CpuWeight)) {
            CgroupVersion::V1 => vec![of_shares(shares)],
            CgroupVersion::V2 => vec![Value::Number(stretched(shares)), Value::Number(curved(shares))],
        }
    }

    /// The weight that applies, given the content of the file: kernels differ in what they print for an idle cgroup (3
    /// shares on v1; on v2 a 0, or a 1 if they clamp).
    pub(crate) fn weight_in_force(&mut self, target: Target, printed: Value) -> Value {
        if self.is_idle(target) { IDLE_WEIGHT } else { printed }
    }

    fn is_idle(&mut self, target: Target) -> bool {
        let Ok(length) = self.read_file(target, CgroupFile::Knob(Knob::CpuIdle)) else { return false };
        let version = self.knob_version(knob_table::row(Knob::CpuIdle));
        parse::knob(Encoding::Flag, version, self.page(), &self.buffer[..length]) == Some(Value::Number(1))
    }

    /// An idle cgroup's weight is a consequence of `cpu.idle`: there is nothing to write.
    pub(crate) fn take_idle_weight(&mut self, target: Target) -> Result<Executed, HostError> {
        if self.read(target, Knob::CpuWeight)? == IDLE_WEIGHT {
            return Ok(Executed::Done(IDLE_WEIGHT));
        }
        let path = self.file_path_or_name(target, CgroupFile::Knob(Knob::CpuWeight));
        Err(HostError::NotIdle { target, path })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_weights_as_the_kernel_computes_them() {
        for (shares, value) in [
            (2, Value::Shares(2)),
            (9, Value::Shares(9)),
            (10, Value::Number(1)),
            (11, Value::Shares(11)),
            (20, Value::Number(2)),
            (204, Value::Shares(204)),
            (205, Value::Number(20)),
            (1024, Value::Number(100)),
            (102_400, Value::Number(10_000)),
            (102_401, Value::Shares(102_401)),
            (262_144, Value::Shares(262_144)),
            (i64::MAX, Value::Shares(i64::MAX)),
        ] {
            assert_eq!(of_shares(shares), value, "{shares}");
        }
    }

    #[test]
    fn a_request_becomes_what_the_kubelet_writes() {
        for (milli, shares, straight, curve) in [
            (0, 2, 1, 1),
            (100, 102, 4, 17),
            (250, 256, 10, 35),
            (1000, 1024, 39, 100),
            (2000, 2048, 79, 174),
            (256_000, 262_144, 10_000, 10_000),
            (u64::MAX, 262_144, 10_000, 10_000),
        ] {
            let found = requested_shares(MilliCpu(milli));
            assert_eq!((found, stretched(found), curved(found)), (shares, straight, curve), "{milli}");
        }
    }

    proptest! {
        #[test]
        fn a_weight_reads_back(weight in MIN_WEIGHT..=MAX_WEIGHT) {
            prop_assert_eq!(of_shares(shares(weight)), Value::Number(weight));
        }

        #[test]
        fn shares_are_kept(number in MIN_SHARES..=MAX_SHARES) {
            let back = match of_shares(number) {
                Value::Number(weight) => shares(weight),
                Value::Shares(shares) => shares,
                _ => 0,
            };
            prop_assert_eq!(back, number);
        }
    }
}
