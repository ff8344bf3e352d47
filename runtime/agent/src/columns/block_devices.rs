//! Observe: the node's block devices, and the volumes of pods that are mounted from them.

use std::collections::BTreeMap;

use qosm_host::Host;
use qosm_model::block_io::{BlockDevices, PodVolume};
use qosm_model::pod::PodId;

use crate::table::PodTable;

/// Reads the disks, and the volumes of active pods. Mounts are read again if the disks changed or `looks_again` is set.
pub(crate) fn block_devices(host: &mut Host, pods: &PodTable, looks_again: bool) -> BlockDevices {
    let (devices, mounted) = host.block_devices(looks_again);
    if mounted.is_empty() {
        return BlockDevices { devices, volumes: [].into() };
    }
    let active = pods.iter().filter(|entry| entry.pod.active);
    let known: BTreeMap<&str, PodId> = active.map(|entry| (entry.pod.uid.as_str(), entry.id)).collect();
    let volume = |mounted: &qosm_host::MountedVolume| {
        let pod = *known.get(mounted.pod_uid.as_str())?;
        Some(PodVolume { pod, name: mounted.name.clone(), device: mounted.device })
    };
    BlockDevices { devices, volumes: mounted.iter().filter_map(volume).collect() }
}
