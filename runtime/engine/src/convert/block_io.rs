//! Conversion of block devices and their I/O settings between the contract's types and the model's, with the ranges that
//! the kernel accepts.

use qosm_model::block_io::{
    BlockDevice, DeviceNumber, Hundredths, IoCostModel, IoCostQos, IoLatency, IoLimits, PodVolume,
};
use qosm_model::knob::{Knob, Value};

use crate::bindings::qosm::policy::block_io;
use crate::error::Rule;

/// Weights that the kernel accepts.
pub(crate) const WEIGHTS: std::ops::RangeInclusive<u32> = 1..=10_000;
/// 100 %, in hundredths of a percent.
pub(crate) const PERCENT: u32 = 10_000;
/// Range within which the kernel may scale a device's speed relative to its cost model, in hundredths of a percent
/// (`VRATE_MIN_PPM` and `VRATE_MAX_PPM` of block/blk-iocost.c).
pub(crate) const SPEED: std::ops::RangeInclusive<u32> = 100..=1_000_000;

/// The knob of a kind for a device. The device `0:0` is refused.
pub(crate) fn of(knob: Knob, device: block_io::Device) -> Result<Knob, Rule> {
    let knob = knob.of(DeviceNumber { major: device.major, minor: device.minor });
    if knob.device() == Some(DeviceNumber::NONE) {
        return Err(refused(knob, "it is no device; take one of `read-devices`".to_owned()));
    }
    Ok(knob)
}

fn refused(knob: Knob, why: String) -> Rule {
    Rule::Device { knob: knob.kind_name(), device: knob.device().unwrap_or_default(), why }
}

/// Drops limits that the kernel treats as `max`: it counts operations in 32 bits, and the largest number means no limit.
/// If kept, such a limit would read back as another value than was written.
pub(crate) fn in_force(limits: IoLimits) -> IoLimits {
    let bps = |limit: Option<u64>| limit.filter(|limit| *limit != u64::MAX);
    let iops = |limit: Option<u64>| limit.filter(|limit| *limit < u64::from(u32::MAX));
    IoLimits {
        read_bps: bps(limits.read_bps),
        write_bps: bps(limits.write_bps),
        read_iops: iops(limits.read_iops),
        write_iops: iops(limits.write_iops),
    }
}

/// The value of `io.max`.
pub(crate) fn limits(knob: Knob, own: block_io::Limits) -> Result<Value, Rule> {
    let limits = in_force(IoLimits {
        read_bps: own.read_bps,
        write_bps: own.write_bps,
        read_iops: own.read_iops,
        write_iops: own.write_iops,
    });
    let names = ["read-bps", "write-bps", "read-iops", "write-iops"];
    let too_low = |(_, limit): &(&str, Option<u64>)| limit.is_some_and(|limit| limit < IoLimits::LEAST);
    let of_fields = names.into_iter().zip(limits.fields().map(|(_, limit)| limit));
    if let Some((name, Some(limit))) = of_fields.into_iter().find(too_low) {
        let why = format!("`{name}` is {limit}, and should be at least {}, or none", IoLimits::LEAST);
        return Err(refused(knob, why));
    }
    if limits.is_unlimited() {
        return Err(refused(knob, "it limits nothing; give it up with `release-max`".to_owned()));
    }
    Ok(Value::IoLimits(limits))
}

/// The value of `io.weight`.
pub(crate) fn weight(knob: Knob, weight: u32) -> Result<Value, Rule> {
    if WEIGHTS.contains(&weight) {
        return Ok(Value::Number(weight.into()));
    }
    let why = format!("`weight` is {weight}, and should be within {} and {}", WEIGHTS.start(), WEIGHTS.end());
    Err(refused(knob, why))
}

/// The value of `io.cost.qos`.
pub(crate) fn qos(knob: Knob, own: block_io::CostQos) -> Result<Value, Rule> {
    let latency = own.latency.map(|own| latency(knob, own)).transpose()?;
    Ok(Value::IoCostQos(IoCostQos { is_enabled: own.enabled, latency }))
}

fn latency(knob: Knob, own: block_io::Latency) -> Result<IoLatency, Rule> {
    let within = |name: &str, number: u32, least: u32, most: u32| {
        let why = || format!("`{name}` is {number}, and should be within {least} and {most}");
        if (least..=most).contains(&number) { Ok(Hundredths(number)) } else { Err(refused(knob, why())) }
    };
    let latency = IoLatency {
        read_permyriad: within("read-permyriad", own.read_permyriad, 0, PERCENT)?,
        read_latency: own.read_latency_usec,
        write_permyriad: within("write-permyriad", own.write_permyriad, 0, PERCENT)?,
        write_latency: own.write_latency_usec,
        min: within("min", own.min, *SPEED.start(), *SPEED.end())?,
        max: within("max", own.max, *SPEED.start(), *SPEED.end())?,
    };
    if latency.min > latency.max {
        return Err(refused(knob, format!("`min` is {}, and should be at most `max`, {}", own.min, own.max)));
    }
    Ok(latency)
}

/// The value of `io.cost.model`.
pub(crate) fn model(knob: Knob, own: block_io::CostModel) -> Result<Value, Rule> {
    let above_0 = |name: &str, number: u64| {
        let why = || {
            format!(
                "`{name}` is {number}, and should be what the device can do, within 1 and {}; or give it up with `release-cost-model`",
                i64::MAX
            )
        };
        if (1..=i64::MAX.unsigned_abs()).contains(&number) { Ok(number) } else { Err(refused(knob, why())) }
    };
    Ok(Value::IoCostModel(IoCostModel {
        read_bps: above_0("read-bps", own.read_bps)?,
        read_seq_iops: above_0("read-seq-iops", own.read_seq_iops)?,
        read_rand_iops: above_0("read-rand-iops", own.read_rand_iops)?,
        write_bps: above_0("write-bps", own.write_bps)?,
        write_seq_iops: above_0("write-seq-iops", own.write_seq_iops)?,
        write_rand_iops: above_0("write-rand-iops", own.write_rand_iops)?,
    }))
}

fn number(device: DeviceNumber) -> block_io::Device {
    block_io::Device { major: device.major, minor: device.minor }
}

/// A device of the node.
pub(crate) fn device(device: &BlockDevice) -> block_io::DeviceInfo {
    block_io::DeviceInfo {
        device: number(device.number),
        names: device.names.clone(),
        partitions: device.partitions.clone(),
        volume_groups: device.volume_groups.clone(),
    }
}

/// A volume of a pod.
pub(crate) fn volume(volume: &PodVolume) -> block_io::Volume {
    block_io::Volume { pod: volume.pod.0, name: volume.name.clone(), device: number(volume.device) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: block_io::Device = block_io::Device { major: 8, minor: 16 };
    const NONE: block_io::Limits =
        block_io::Limits { read_bps: None, write_bps: None, read_iops: None, write_iops: None };
    const LATENCY: block_io::Latency = block_io::Latency {
        read_permyriad: 9_500,
        read_latency_usec: 3_000,
        write_permyriad: 10_000,
        write_latency_usec: 4_000,
        min: 100,
        max: 1_000_000,
    };
    const MODEL: block_io::CostModel = block_io::CostModel {
        read_bps: i64::MAX.unsigned_abs(),
        read_seq_iops: 2,
        read_rand_iops: 3,
        write_bps: 4,
        write_seq_iops: 5,
        write_rand_iops: 6,
    };

    fn said(result: Result<Value, Rule>) -> String {
        result.map_or_else(|rule| rule.to_string(), |value| value.to_string())
    }

    fn max(own: block_io::Limits) -> String {
        said(of(Knob::IoMax(DeviceNumber::NONE), DISK).and_then(|knob| limits(knob, own)))
    }

    fn cost(own: block_io::Latency) -> String {
        let own = block_io::CostQos { enabled: true, latency: Some(own) };
        said(of(Knob::IoCostQos(DeviceNumber::NONE), DISK).and_then(|knob| qos(knob, own)))
    }

    #[test]
    fn a_device_is_named() {
        let none = block_io::Device { major: 0, minor: 0 };
        let error = of(Knob::IoWeight(DeviceNumber::NONE), none).unwrap_err().to_string();
        assert_eq!(error, "its `io.weight` of device 0:0: it is no device; take one of `read-devices`");
        let knob = of(Knob::IoWeight(DeviceNumber::NONE), DISK).unwrap();
        assert_eq!(knob.to_string(), "io.weight 8:16");
    }

    #[test]
    fn limits_are_at_least_2_and_one_is_needed() {
        assert_eq!(
            max(block_io::Limits { read_bps: Some(1 << 20), write_iops: Some(2), ..NONE }),
            "rbps=1048576 wbps=max riops=max wiops=2"
        );
        assert_eq!(max(block_io::Limits { write_bps: Some(u64::MAX - 1), ..NONE }).split(' ').nth(1), {
            Some("wbps=18446744073709551614")
        });
        let few = "its `io.max` of device 8:16: `write-iops` is 1, and should be at least 2, or none";
        assert_eq!(max(block_io::Limits { read_bps: Some(4_096), write_iops: Some(1), ..NONE }), few);
        let nothing = "its `io.max` of device 8:16: it limits nothing; give it up with `release-max`";
        assert_eq!(max(NONE), nothing);
    }

    #[test]
    fn what_the_kernel_takes_for_no_limit_is_none() {
        let most = u64::from(u32::MAX);
        let own =
            block_io::Limits { read_bps: Some(u64::MAX), read_iops: Some(most), write_iops: Some(most - 1), ..NONE };
        assert_eq!(max(own), "rbps=max wbps=max riops=max wiops=4294967294");
        let own = block_io::Limits { read_bps: Some(u64::MAX), read_iops: Some(most + 7), ..NONE };
        assert!(max(own).ends_with("give it up with `release-max`"));
    }

    #[test]
    fn a_weight_is_what_the_kernel_takes() {
        let knob = Knob::IoWeight(DeviceNumber { major: 8, minor: 16 });
        assert_eq!([1, 10_000].map(|own| said(weight(knob, own))), ["1", "10000"]);
        for own in [0, 10_001] {
            let why = format!("its `io.weight` of device 8:16: `weight` is {own}, and should be within 1 and 10000");
            assert_eq!(said(weight(knob, own)), why);
        }
    }

    #[test]
    fn latencies_are_in_bounds() {
        let line = "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=100.00 wlat=4000 min=1.00 max=10000.00";
        assert_eq!(cost(LATENCY), line);
        for (own, why) in [
            (
                block_io::Latency { read_permyriad: 10_001, ..LATENCY },
                "`read-permyriad` is 10001, and should be within 0 and 10000",
            ),
            (block_io::Latency { write_permyriad: 10_001, ..LATENCY }, "`write-permyriad` is 10001"),
            (block_io::Latency { min: 99, ..LATENCY }, "`min` is 99, and should be within 100 and 1000000"),
            (block_io::Latency { max: 1_000_001, ..LATENCY }, "`max` is 1000001, and should be within 100 and 1000000"),
            (block_io::Latency { min: 300, max: 200, ..LATENCY }, "`min` is 300, and should be at most `max`, 200"),
        ] {
            let error = cost(own);
            assert!(error.starts_with(&format!("its `io.cost.qos` of device 8:16: {why}")), "{error}");
        }
    }

    #[test]
    fn a_model_has_no_number_that_is_0() {
        let knob = Knob::IoCostModel(DeviceNumber { major: 8, minor: 16 });
        let line =
            "ctrl=user model=linear rbps=9223372036854775807 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6";
        assert_eq!(said(model(knob, MODEL)), line);
        let error = said(model(knob, block_io::CostModel { write_seq_iops: 0, ..MODEL }));
        assert_eq!(
            error,
            "its `io.cost.model` of device 8:16: `write-seq-iops` is 0, and should be what the device can do, within 1 and \
             9223372036854775807; or give it up with `release-cost-model`"
        );
    }
}
