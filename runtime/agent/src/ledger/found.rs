//! What the kernel shows of a knob that the journal records: qosm's value, the baseline, or another program's.

use std::collections::BTreeMap;

use qosm_host::knob_table::row;
use qosm_host::{Host, HostError};
use qosm_model::knob::{Target, Value};
use qosm_model::lease::Timestamp;
use qosm_model::problem::chain;

use crate::journal::Record;
use crate::path::is_within;

/// Whether a cgroup is, or is within, one of a paused pod.
pub(crate) fn is_paused(paused: &BTreeMap<String, i64>, cgroup: &str, now: Timestamp) -> bool {
    paused.iter().any(|(pod, until)| now.0 < *until && is_within(cgroup, pod))
}

/// What the kernel shows of a knob that the journal records.
pub(crate) enum Found {
    /// qosm's value, or the one that qosm's last write was about to replace.
    Ours(Value),
    /// The baseline: never written, or restored already.
    Baseline,
    /// A value that another program wrote.
    Foreign(Value),
    /// The knob or its cgroup is gone.
    Gone,
    /// The error if the knob cannot be read now. Its record stays.
    Unknown(String),
}

/// Compares a recorded knob with the kernel, on a target that is attached to the cgroup of the record's name.
pub(crate) fn compare_with_kernel(host: &mut Host, target: Target, record: &Record) -> Found {
    if host.identity(target) != Some(record.identity) {
        return Found::Gone;
    }
    match host.read(target, record.knob) {
        Ok(found) => compare(record, found),
        Err(error) if error.is_gone() => Found::Gone,
        // The cgroup lost the file together with its controller. Where the controller is not mounted nothing is known.
        Err(HostError::Unsupported { .. }) if host.file(target, record.knob).is_some() => Found::Gone,
        Err(error) => Found::Unknown(chain(&error)),
    }
}

/// Compares a knob's value with its record.
fn compare(record: &Record, found: Value) -> Found {
    match found {
        found if found == record.baseline => Found::Baseline,
        found if found == record.written || found == record.previous => Found::Ours(found),
        // A slow bound comes down in steps: the agent may have ended between two of them.
        found if row(record.knob).slow && record.written < found && found < record.previous => Found::Ours(found),
        // The agent, or a restore, may have ended before it wrote a value over the one that the mask leaves.
        found if row(record.knob).is_left_by_mask(record.written, found) => Found::Ours(found),
        found if row(record.knob).is_left_by_mask(record.previous, found) => Found::Ours(found),
        found => Found::Foreign(found),
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::knob::{IDLE_WEIGHT, Knob, Level};

    use super::*;

    #[test]
    fn what_an_agent_that_was_killed_left_is_told_from_what_others_wrote() {
        let shares = Value::Shares(51);
        let record = |knob, previous, written| Record {
            cgroup: String::new(),
            identity: 1,
            level: Level::Container,
            knob,
            baseline: if knob == Knob::CpuWeight { shares } else { Value::Max },
            previous,
            written,
            policy: String::new(),
            since: Timestamp(0),
        };
        let number = Value::Number;
        let entered = record(Knob::CpuWeight, shares, IDLE_WEIGHT);
        let left = record(Knob::CpuWeight, IDLE_WEIGHT, shares);
        let held = record(Knob::CpuWeight, number(100), number(250));
        let lowered = record(Knob::MemoryHigh, number(1 << 30), number(1 << 20));
        for (record, found, expected) in [
            (&entered, shares, "baseline"),
            (&entered, IDLE_WEIGHT, "ours"),
            (&entered, number(100), "ours"),
            (&entered, number(99), "foreign"),
            (&left, IDLE_WEIGHT, "ours"),
            // Between `cpu.idle` and the weight.
            (&left, number(100), "ours"),
            (&left, number(99), "foreign"),
            (&held, number(250), "ours"),
            (&held, IDLE_WEIGHT, "foreign"),
            (&lowered, number(1 << 25), "ours"),
            (&lowered, number(1 << 31), "foreign"),
        ] {
            let reported = match compare(record, found) {
                Found::Ours(_) => "ours",
                Found::Baseline => "baseline",
                Found::Foreign(_) => "foreign",
                Found::Gone | Found::Unknown(_) => "gone",
            };
            assert_eq!(reported, expected, "{found} in {record:?}");
        }
    }
}
