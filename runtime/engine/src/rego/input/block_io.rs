//! Block devices, and volumes of pods on them.

use std::collections::BTreeMap;

use qosm_model::block_io::{BlockDevice, DeviceNumber, PodVolume};
use qosm_model::pod::PodId;

use super::Word;

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceRow<'a> {
    names: &'a [String],
    partitions: &'a [String],
    volume_groups: &'a [String],
}

impl<'a> From<&'a BlockDevice> for DeviceRow<'a> {
    fn from(device: &'a BlockDevice) -> Self {
        Self { names: &device.names, partitions: &device.partitions, volume_groups: &device.volume_groups }
    }
}

#[derive(serde::Serialize)]
pub(super) struct VolumeRow<'a> {
    name: &'a str,
    device: Word<DeviceNumber>,
}

/// Devices by their numbers, such as `8:16`.
pub(super) fn devices(devices: &[BlockDevice]) -> BTreeMap<String, DeviceRow<'_>> {
    devices.iter().map(|device| (device.number.to_string(), device.into())).collect()
}

/// Volumes by pod, only of pods that the policy was given.
pub(super) fn volumes<'a>(
    volumes: &'a [PodVolume],
    is_known: impl Fn(PodId) -> bool,
) -> BTreeMap<String, Vec<VolumeRow<'a>>> {
    let mut by_pod: BTreeMap<String, Vec<VolumeRow<'_>>> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| is_known(volume.pod)) {
        let row = VolumeRow { name: &volume.name, device: Word(volume.device) };
        by_pod.entry(volume.pod.0.to_string()).or_default().push(row);
    }
    by_pod
}
