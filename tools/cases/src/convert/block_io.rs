//! Block devices, and the settings of them.

use qosm_model::block_io::{BlockDevice, BlockDevices, DeviceNumber, PodVolume};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::PodId;
use qosm_model::setting::Remark;
use qosm_sdk::mock::{self, IoKnob, IoValue};
use qosm_sdk::{IoCostModel, IoCostQos, IoDevice, IoLatency, IoLimits};

use super::sdk_target;

fn number(device: IoDevice) -> DeviceNumber {
    DeviceNumber { major: device.major, minor: device.minor }
}

/// The devices and volumes of a case.
pub(super) fn devices(columns: &mock::Columns) -> BlockDevices {
    let device = |info: &qosm_sdk::IoDeviceInfo| BlockDevice {
        number: number(info.device),
        names: info.names.clone(),
        partitions: info.partitions.clone(),
        volume_groups: info.volume_groups.clone(),
    };
    let volume = |volume: &qosm_sdk::IoVolume| PodVolume {
        pod: PodId(volume.pod),
        name: volume.name.clone(),
        device: number(volume.device),
    };
    BlockDevices {
        devices: columns.block_devices.iter().map(device).collect(),
        volumes: columns.pod_volumes.iter().map(volume).collect(),
    }
}

fn kind(knob: Knob) -> Option<(IoKnob, DeviceNumber)> {
    match knob {
        Knob::IoMax(device) => Some((IoKnob::Max, device)),
        Knob::IoWeight(device) => Some((IoKnob::Weight, device)),
        Knob::IoCostQos(device) => Some((IoKnob::CostQos, device)),
        Knob::IoCostModel(device) => Some((IoKnob::CostModel, device)),
        _ => None,
    }
}

fn sdk(device: DeviceNumber) -> IoDevice {
    IoDevice { major: device.major, minor: device.minor }
}

fn held(value: Value) -> Option<IoValue> {
    match value {
        Value::Number(weight) => u32::try_from(weight).ok().map(IoValue::Weight),
        Value::IoLimits(own) => Some(IoValue::Limits(IoLimits {
            read_bps: own.read_bps,
            write_bps: own.write_bps,
            read_iops: own.read_iops,
            write_iops: own.write_iops,
        })),
        Value::IoCostQos(own) => {
            let latency = own.latency.map(|own| IoLatency {
                read_permyriad: own.read_permyriad.0,
                read_latency_usec: own.read_latency,
                write_permyriad: own.write_permyriad.0,
                write_latency_usec: own.write_latency,
                min: own.min.0,
                max: own.max.0,
            });
            Some(IoValue::CostQos(IoCostQos { enabled: own.is_enabled, latency }))
        }
        Value::IoCostModel(own) => Some(IoValue::CostModel(IoCostModel {
            read_bps: own.read_bps,
            read_seq_iops: own.read_seq_iops,
            read_rand_iops: own.read_rand_iops,
            write_bps: own.write_bps,
            write_seq_iops: own.write_seq_iops,
            write_rand_iops: own.write_rand_iops,
        })),
        Value::Shares(_) | Value::Cpus(_) | Value::Unset | Value::Max => None,
    }
}

/// A staged change of a device knob; `None` for another knob.
pub(super) fn change(target: Target, knob: Knob, value: Option<Value>, reason: &str) -> Option<mock::IoChange> {
    let (kind, device) = kind(knob)?;
    Some(mock::IoChange {
        target: sdk_target(target),
        knob: kind,
        device: sdk(device),
        value: value.and_then(held),
        reason: reason.into(),
    })
}

/// A remark on the cost model of devices; `None` for a remark on a cgroup or another knob.
pub(super) fn remark(remark: &Remark) -> Option<mock::IoRemark> {
    if remark.target != Target::Node {
        return None;
    }
    let (knob, device) = kind(remark.knob)?;
    let device = Some(sdk(device)).filter(|_| device != DeviceNumber::NONE);
    Some(mock::IoRemark { knob, device, reason: remark.reason.to_string() })
}
