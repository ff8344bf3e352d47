//! Rows of the knobs for block devices: each file has a line per device.
//!
//! Source: Linux `Documentation/admin-guide/cgroup-v2.rst`, "IO"; `tg_set_limit` in block/blk-throttle.c, `ioc_qos_write` and
//! `ioc_cost_model_write` in block/blk-iocost.c.

use qosm_model::block_io::{DeviceNumber, Hundredths, IoCostModel, IoCostQos, IoLatency, IoLimits};
use qosm_model::knob::{Knob, Level, Value};

use super::{ALL_LEVELS, DefaultFound, Encoding, Group, HierarchyRule, KnobRow, Line, Place};
use crate::mounts::Controller;

const THROTTLING: &str = "cgroup v2 with the controller io turned on in cgroup.subtree_control of every cgroup above (CONFIG_BLK_DEV_THROTTLING)";
const WEIGHTS: &str = "cgroup v2 with the controller io, Linux 5.4 (CONFIG_BLK_CGROUP_IOCOST)";

/// The kernel's bounds of a device's speed (`VRATE_MIN_PPM`, `VRATE_MAX_PPM`), in hundredths of a percent.
const LEAST_SPEED: Hundredths = Hundredths(100);
const MOST_SPEED: Hundredths = Hundredths(1_000_000);
const WHOLE: Hundredths = Hundredths(10_000);

const fn row(
    knob: Knob,
    file: &'static str,
    line: Line,
    place: Place,
    levels: &'static [Level],
    kernel: &'static str,
) -> KnobRow {
    KnobRow {
        knob,
        place,
        levels,
        not_elsewhere: None,
        // v1 has none of these files; the names are never used there.
        v1: file,
        v2: file,
        encoding: Encoding::Line(line),
        range: 0..=0,
        capped: 0..=0,
        unlimited: false,
        default: Value::Unset,
        kernel,
        hierarchy: HierarchyRule::None,
        group: Group::Io,
        raise_order: 0,
        slow: false,
        instead: None,
        partner: None,
        masked: None,
        holds_back_partner: false,
        specified_by: None,
        default_found: DefaultFound::Decision(
            "neither kubelet, runtime nor systemd writes a device that it was told nothing of",
        ),
    }
}

const fn of_cgroups(knob: Knob, file: &'static str, line: Line, kernel: &'static str) -> KnobRow {
    row(knob, file, line, Place::Cgroup(Controller::Io), ALL_LEVELS, kernel)
}

const fn of_node(knob: Knob, file: &'static str, line: Line) -> KnobRow {
    row(knob, file, line, Place::CgroupRoot(Controller::Io), &[Level::Node], WEIGHTS)
}

pub(super) const MAX: KnobRow = of_cgroups(Knob::IoMax(DeviceNumber::NONE), "io.max", Line::Limits, THROTTLING);
pub(super) const WEIGHT: KnobRow = of_cgroups(Knob::IoWeight(DeviceNumber::NONE), "io.weight", Line::Weight, WEIGHTS);
pub(super) const COST_QOS: KnobRow = of_node(Knob::IoCostQos(DeviceNumber::NONE), "io.cost.qos", Line::CostQos);
pub(super) const COST_MODEL: KnobRow = of_node(Knob::IoCostModel(DeviceNumber::NONE), "io.cost.model", Line::CostModel);

/// The text after the device's numbers in a write.
pub(super) fn encode(line: Line, value: Value) -> String {
    match (value, line) {
        (Value::Unset, Line::Limits) => IoLimits::default().to_string(),
        (Value::Unset, Line::Weight) => "default".to_owned(),
        (Value::Unset, Line::CostQos) => IoCostQos { is_enabled: false, latency: None }.to_string(),
        (Value::Unset, Line::CostModel) => "ctrl=auto".to_owned(),
        (value, _) => value.to_string(),
    }
}

/// Whether a value is valid for the line.
pub(super) fn accepts(line: Line, value: Value) -> bool {
    match (value, line) {
        (Value::Unset, _) => true,
        (Value::IoLimits(limits), Line::Limits) => {
            limits.fields().into_iter().all(|(_, limit)| limit.is_none_or(|limit| limit >= IoLimits::LEAST))
        }
        (Value::Number(weight), Line::Weight) => (1..=10_000).contains(&weight),
        (Value::IoCostQos(qos), Line::CostQos) => qos.latency.is_none_or(is_possible),
        (Value::IoCostModel(model), Line::CostModel) => is_countable(model),
        _ => false,
    }
}

fn is_possible(latency: IoLatency) -> bool {
    let IoLatency { read_permyriad, write_permyriad, min, max, .. } = latency;
    read_permyriad <= WHOLE && write_permyriad <= WHOLE && LEAST_SPEED <= min && min <= max && max <= MOST_SPEED
}

/// Whether the kernel can compute costs from the numbers. From 0 it makes a device without cost. Near 2^64, kernels
/// before 6.3 overflow when rounding up to pages, and divide by the resulting 0.
fn is_countable(model: IoCostModel) -> bool {
    let IoCostModel { read_bps, read_seq_iops, read_rand_iops, write_bps, write_seq_iops, write_rand_iops } = model;
    let numbers = [read_bps, read_seq_iops, read_rand_iops, write_bps, write_seq_iops, write_rand_iops];
    numbers.into_iter().all(|number| (1..=i64::MAX.unsigned_abs()).contains(&number))
}

/// Describes the valid values.
pub(super) fn allowed(line: Line) -> &'static str {
    match line {
        Line::Limits => "limits of 2 and more, or max",
        Line::Weight => "1 to 10000",
        Line::CostQos => "percentages up to 100, a speed from 1 to 10000 percent, the least no more than the most",
        Line::CostModel => "numbers from 1 to 9223372036854775807",
    }
}

/// The limits as the kernel returns them: it counts requests in 32 bits, and the largest number means no limit.
pub(super) fn rounded(limits: IoLimits) -> Value {
    let bytes = |limit: Option<u64>| limit.filter(|limit| *limit < u64::MAX);
    let requests = |limit: Option<u64>| limit.filter(|limit| *limit < u32::MAX.into());
    let limits = IoLimits {
        read_bps: bytes(limits.read_bps),
        write_bps: bytes(limits.write_bps),
        read_iops: requests(limits.read_iops),
        write_iops: requests(limits.write_iops),
    };
    if limits.is_unlimited() { Value::Unset } else { Value::IoLimits(limits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(read_bps: Option<u64>, write_iops: Option<u64>) -> IoLimits {
        IoLimits { read_bps, write_iops, ..IoLimits::default() }
    }

    #[test]
    fn what_is_not_said_of_a_device_is_written_as_the_kernels_own() {
        for (line, text) in [
            (Line::Limits, "rbps=max wbps=max riops=max wiops=max"),
            (Line::Weight, "default"),
            (Line::CostQos, "enable=0 ctrl=auto"),
            (Line::CostModel, "ctrl=auto"),
        ] {
            assert_eq!(encode(line, Value::Unset), text);
        }
        assert_eq!(encode(Line::Weight, Value::Number(200)), "200");
    }

    #[test]
    fn limits_of_none_and_one_are_refused_as_the_kernel_refuses_them() {
        for (limit, taken) in [(Some(0), false), (Some(1), false), (Some(2), true), (None, true)] {
            assert_eq!(accepts(Line::Limits, Value::IoLimits(limits(limit, None))), taken, "{limit:?}");
            assert_eq!(accepts(Line::Limits, Value::IoLimits(limits(None, limit))), taken, "{limit:?}");
        }
        assert!(
            !accepts(Line::Limits, Value::Number(2)) && !accepts(Line::Weight, Value::IoLimits(limits(None, None)))
        );
        for (weight, taken) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
            assert_eq!(accepts(Line::Weight, Value::Number(weight)), taken, "{weight}");
        }
    }

    #[test]
    fn a_cost_that_the_kernel_would_refuse_or_divide_by_is_refused() {
        let good = IoLatency {
            read_permyriad: WHOLE,
            read_latency: 3000,
            write_permyriad: Hundredths(9500),
            write_latency: 3000,
            min: LEAST_SPEED,
            max: MOST_SPEED,
        };
        let qos = |latency| Value::IoCostQos(IoCostQos { is_enabled: true, latency: Some(latency) });
        assert!(accepts(Line::CostQos, qos(good)));
        for bad in [
            IoLatency { read_permyriad: Hundredths(10_001), ..good },
            IoLatency { write_permyriad: Hundredths(10_001), ..good },
            IoLatency { min: Hundredths(99), ..good },
            IoLatency { max: Hundredths(1_000_001), ..good },
            IoLatency { min: Hundredths(200), max: Hundredths(199), ..good },
        ] {
            assert!(!accepts(Line::CostQos, qos(bad)), "{bad:?}");
        }
        let model = |read_bps| IoCostModel {
            read_bps,
            read_seq_iops: 1,
            read_rand_iops: 1,
            write_bps: 1,
            write_seq_iops: 1,
            write_rand_iops: 1,
        };
        assert!(accepts(Line::CostModel, Value::IoCostModel(model(1))));
        for number in [0, i64::MAX.unsigned_abs() + 1, u64::MAX] {
            assert!(!accepts(Line::CostModel, Value::IoCostModel(model(number))), "{number}");
        }
    }

    #[test]
    fn what_the_kernel_counts_as_no_limit_is_none() {
        assert_eq!(rounded(limits(None, Some(u32::MAX.into()))), Value::Unset);
        assert_eq!(rounded(limits(Some(u64::MAX), None)), Value::Unset);
        let most = limits(Some(u64::MAX - 1), Some(u64::from(u32::MAX) - 1));
        assert_eq!(rounded(most), Value::IoLimits(most));
    }
}
