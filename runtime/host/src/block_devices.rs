//! The node's block devices, and the volumes of pods on them.
//!
//! Kernel: `/proc/partitions` lists all devices, `/sys/block` whole disks with their partitions and the devices on top
//! of them (Documentation/ABI/stable/sysfs-block, Documentation/ABI/testing/sysfs-block-dm).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use qosm_model::block_io::{BlockDevice, DeviceNumber};
use qosm_model::knob::{Knob, Target, Value};
use rustix::io::Errno;

use crate::backend::{Area, Backend as _};
use crate::error::{self, HostError};
use crate::targets::CgroupFile;
use crate::{Host, mounts, parse};

/// Number of ticks after which disks and mounts are read again in any case.
const LOOK_TICKS: u32 = 30;

/// Cached devices and volumes, and when to read them again.
#[derive(Default)]
pub(crate) struct KnownDevices {
    /// Content of `/proc/partitions` at the last read.
    of: Option<Vec<u8>>,
    devices: Arc<[BlockDevice]>,
    volumes: Arc<[MountedVolume]>,
    /// The tick of the last read; `None` before the first.
    looked: Option<u32>,
}

/// A volume of a pod, found by the kubelet's mount point: `…/pods/UID/volumes/PLUGIN/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountedVolume {
    /// UID of the pod.
    pub pod_uid: String,
    /// Name of the volume's directory.
    pub name: String,
    /// The whole disk that holds the volume.
    pub device: DeviceNumber,
}

impl Host {
    /// Whole disks by number, and the volumes of pods on them. The host reads them again when `/proc/partitions`
    /// changes or `looks_again` is set, and in any case every 30 ticks: device mapper renames disks, and mounts change,
    /// without notice.
    pub fn block_devices(&mut self, looks_again: bool) -> (Arc<[BlockDevice]>, Arc<[MountedVolume]>) {
        let partitions = self.backend.read_once(Area::Proc, "partitions").unwrap_or_default();
        let is_old = self.known_devices.looked.is_none_or(|tick| self.tick.saturating_sub(tick) >= LOOK_TICKS);
        if is_old || looks_again || self.known_devices.of.as_ref() != Some(&partitions) {
            let (devices, disks) = self.read_disks();
            let devices = Arc::from(devices);
            let volumes = self.read_volumes(&devices, &disks).into();
            self.known_devices = KnownDevices { of: Some(partitions), devices, volumes, looked: Some(self.tick) };
        }
        (Arc::clone(&self.known_devices.devices), Arc::clone(&self.known_devices.volumes))
    }

    /// The current line of `io.cost.qos` or `io.cost.model`; `None` if it cannot be read.
    pub fn device_cost(&self, knob: Knob) -> Option<Value> {
        self.read_node_knob(knob).ok()
    }

    /// Whether the kernel has a device with this number and a nonzero size. Returns `true` if `/proc/partitions` cannot be read.
    pub fn has_device(&self, device: DeviceNumber) -> bool {
        let Ok(text) = self.backend.read_once(Area::Proc, "partitions") else { return true };
        String::from_utf8_lossy(&text).lines().any(|line| partition(line) == Some(device))
    }

    /// The error that explains the kernel's refusal of a line; `None` if the kernel's error suffices.
    pub(crate) fn refused_device(
        &self,
        target: Target,
        knob: Knob,
        device: DeviceNumber,
        source: &io::Error,
    ) -> Option<HostError> {
        if error::is(source, Errno::NODEV) {
            return self.check_device(target, knob, device).err();
        }
        let path = || self.file_path_or_name(target, CgroupFile::Knob(knob));
        error::is(source, Errno::OPNOTSUPP).then(|| HostError::NoCostModel { target, knob, path: path() })
    }

    /// Refuses numbers of missing devices and of partitions.
    pub(crate) fn check_device(&self, target: Target, knob: Knob, device: DeviceNumber) -> Result<(), HostError> {
        let path = || self.file_path_or_name(target, CgroupFile::Knob(knob));
        if !self.has_device(device) {
            return Err(HostError::NoDevice { target, knob, device, path: path() });
        }
        // A partition's folder is inside its disk's.
        let folder = format!("dev/block/{device}");
        match self.sys_text(&format!("{folder}/partition")).and_then(|_| self.sys_number(&format!("{folder}/../dev"))) {
            Some(disk) => Err(HostError::Partition { target, knob, device, disk, path: path() }),
            None => Ok(()),
        }
    }

    fn read_disks(&self) -> (Vec<BlockDevice>, BTreeMap<DeviceNumber, DeviceNumber>) {
        let mut disks = BTreeMap::new();
        let mut devices = Vec::new();
        for name in self.sys_entries("block") {
            let folder = format!("block/{name}");
            let Some(number) = self.sys_number(&format!("{folder}/dev")) else { continue };
            // A loop or RAM device without content.
            if self.sys_text(&format!("{folder}/size")).is_none_or(|size| size == "0") {
                continue;
            }
            let mut names = vec![device_name(&name)];
            let mapped = self.sys_text(&format!("{folder}/dm/name"));
            if let Some(mapped) = &mapped {
                names.push(format!("mapper/{mapped}"));
            }
            let own = self.logical_volume(&name);
            names.extend(own.iter().map(|(group, volume)| format!("{group}/{volume}")));
            let mut groups = self.groups_upon(&folder);
            let mut partitions = Vec::new();
            for part in self.sys_entries(&folder) {
                let below = format!("{folder}/{part}");
                if self.sys_text(&format!("{below}/partition")).is_none() {
                    continue;
                }
                partitions.push(device_name(&part));
                groups.extend(self.groups_upon(&below));
                if let Some(of_part) = self.sys_number(&format!("{below}/dev")) {
                    disks.insert(of_part, number);
                }
            }
            // A part of a logical volume, such as a pool's data, is not a disk of its own volume group.
            groups.retain(|group| own.as_ref().is_none_or(|(of, _)| of != group));
            devices.push(BlockDevice { number, names, partitions, volume_groups: groups.into_iter().collect() });
        }
        devices.sort_unstable_by_key(|device| device.number);
        (devices, disks)
    }

    /// LVM volume groups with logical volumes on a disk or partition.
    fn groups_upon(&self, folder: &str) -> BTreeSet<String> {
        let holders = self.sys_entries(&format!("{folder}/holders"));
        holders.iter().filter_map(|holder| self.logical_volume(holder)).map(|(group, _)| group).collect()
    }

    /// The volume group and the name of a logical volume; `None` for other devices.
    fn logical_volume(&self, device: &str) -> Option<(String, String)> {
        self.sys_text(&format!("block/{device}/dm/uuid"))?.strip_prefix("LVM-")?;
        split_mapped(&self.sys_text(&format!("block/{device}/dm/name"))?)
    }

    fn read_volumes(
        &self,
        devices: &[BlockDevice],
        disks: &BTreeMap<DeviceNumber, DeviceNumber>,
    ) -> Vec<MountedVolume> {
        let text = self.backend.read_once(Area::Proc, "self/mountinfo").unwrap_or_default();
        let mut volumes: Vec<MountedVolume> = mounts::parse(&String::from_utf8_lossy(&text))
            .into_iter()
            .filter_map(|mount| {
                let (pod_uid, name) = volume_at(&mount.point)?;
                let number = DeviceNumber { major: mount.device.0, minor: mount.device.1 };
                let known = |number: DeviceNumber| devices.iter().any(|device| device.number == number);
                let device = disks.get(&number).copied().unwrap_or(number);
                known(device).then(|| MountedVolume { pod_uid: pod_uid.to_owned(), name: name.to_owned(), device })
            })
            .collect();
        volumes.sort_unstable();
        // The same folder may be mounted in several places, and one mount may cover another.
        volumes.dedup();
        volumes
    }

    fn sys_entries(&self, folder: &str) -> Vec<String> {
        self.backend.entries(Area::Sys, folder).unwrap_or_default()
    }

    fn sys_text(&self, file: &str) -> Option<String> {
        let text = self.backend.read_once(Area::Sys, file).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    fn sys_number(&self, file: &str) -> Option<DeviceNumber> {
        self.sys_text(file)?.parse().ok()
    }
}

/// The name of a device: the kernel writes `!` for `/` in sysfs.
fn device_name(folder: &str) -> String {
    folder.replace('!', "/")
}

/// A line of `/proc/partitions`: major, minor, blocks, name.
fn partition(line: &str) -> Option<DeviceNumber> {
    let mut words = line.split_ascii_whitespace();
    let mut number = || u32::try_from(parse::number(words.next()?.as_bytes())?).ok();
    Some(DeviceNumber { major: number()?, minor: number()? })
}

/// Volume group and logical volume of `GROUP-VOLUME`; device mapper doubles each `-` within a name.
fn split_mapped(name: &str) -> Option<(String, String)> {
    let bytes = name.as_bytes();
    let mut place = 0;
    while let Some(&byte) = bytes.get(place) {
        match (byte, bytes.get(place + 1)) {
            (b'-', Some(b'-')) => place += 2,
            (b'-', Some(_)) if place > 0 => {
                let plain = |part: &str| part.replace("--", "-");
                return Some((plain(name.get(..place)?), plain(name.get(place + 1..)?)));
            }
            _ => place += 1,
        }
    }
    None
}

/// UID of the pod and name of the volume for a kubelet's mount point; CSI drivers use a folder `mount` below the volume's.
fn volume_at(point: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = point.split('/').collect();
    match parts.as_slice() {
        [.., "pods", uid, "volumes", _, name] | [.., "pods", uid, "volumes", _, name, "mount"] => Some((uid, name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Spec;

    const PARTITIONS: &str = "major minor  #blocks  name\n\n   8        0   20971520 sda\n   8        1   1048576 sda1\n   8        2   19921920 \
                              sda2\n 253        0   10485760 dm-0\n   7        0          0 loop0\n";

    fn disks() -> Spec {
        let sys = [
            ("block/loop0/dev", "7:0\n"),
            ("block/loop0/size", "0\n"),
            ("block/sda/dev", "8:0\n"),
            ("block/sda/size", "41943040\n"),
            ("block/sda/queue/rotational", "0\n"),
            ("block/sda/sda1/dev", "8:1\n"),
            ("block/sda/sda1/partition", "1\n"),
            ("block/sda/sda2/dev", "8:2\n"),
            ("block/sda/sda2/partition", "2\n"),
            ("block/sda/sda2/holders/dm-0/dev", "253:0\n"),
            ("block/dm-0/dev", "253:0\n"),
            ("block/dm-0/size", "20971520\n"),
            ("block/dm-0/dm/name", "data--fast-logs\n"),
            ("block/dm-0/dm/uuid", "LVM-3gUwl1\n"),
            ("block/cciss!c0d0/dev", "104:0\n"),
            ("block/cciss!c0d0/size", "8\n"),
        ];
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             40 24 253:0 / /var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount rw - ext4 /dev/dm-0 rw\n\
             41 24 253:0 / /host/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-7/mount rw - ext4 /dev/dm-0 rw\n\
             42 24 8:1 / /var/lib/kubelet/pods/u-2/volumes/kubernetes.io~local-volume/local-1 rw - ext4 /dev/sda1 rw\n\
             43 24 0:99 / /var/lib/kubelet/pods/u-2/volumes/kubernetes.io~empty-dir/tmp rw - tmpfs tmpfs rw\n\
             44 24 8:0 / /srv rw - ext4 /dev/sda rw\n";
        let owned = |files: &[(&str, &str)]| {
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
        };
        Spec {
            sys: owned(&sys),
            proc: owned(&[("partitions", PARTITIONS), ("self/mountinfo", mounts)]),
            ..Spec::default()
        }
    }

    #[test]
    fn disks_have_their_names_partitions_and_volume_groups() {
        let mut host = Host::simulated(&disks()).unwrap();
        let (devices, volumes) = host.block_devices(false);
        let shown: Vec<String> = devices
            .iter()
            .map(|device| {
                let BlockDevice { number, names, partitions, volume_groups } = device;
                format!("{number} {} [{}] [{}]", names.join(" "), partitions.join(" "), volume_groups.join(" "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "8:0 sda [sda1 sda2] [data-fast]",
                "104:0 cciss/c0d0 [] []",
                "253:0 dm-0 mapper/data--fast-logs data-fast/logs [] []"
            ]
        );
        let shown: Vec<String> =
            volumes.iter().map(|volume| format!("{} {} {}", volume.pod_uid, volume.name, volume.device)).collect();
        // The volume of a partition is on its disk.
        assert_eq!(shown, ["u-1 pvc-7 253:0", "u-2 local-1 8:0"]);
    }

    #[test]
    fn they_are_read_again_when_there_are_other_disks_or_it_is_asked_for() {
        let mut host = Host::simulated(&disks()).unwrap();
        assert_eq!(host.block_devices(false).1.len(), 2);
        host.simulated_mut().unwrap().set_proc_file("self/mountinfo", "");
        assert_eq!(host.block_devices(false).1.len(), 2, "nothing has changed");
        assert_eq!(host.block_devices(true).1.len(), 0);
        host.simulated_mut().unwrap().set_sys_file("block/sdb/dev", "8:16\n");
        host.simulated_mut().unwrap().set_sys_file("block/sdb/size", "8\n");
        assert_eq!(host.block_devices(false).0.len(), 3);
        host.simulated_mut().unwrap().set_proc_file("partitions", "   8       16          4 sdb\n");
        assert_eq!(host.block_devices(false).0.len(), 4);
        let number = DeviceNumber { major: 8, minor: 16 };
        assert!(host.has_device(number) && !host.has_device(DeviceNumber { major: 8, minor: 0 }));
    }

    #[test]
    fn a_mapped_name_is_split_where_its_dash_is_single() {
        for (name, parts) in [
            ("vg-lv", Some(("vg", "lv"))),
            ("my--vg-my--lv", Some(("my-vg", "my-lv"))),
            ("vg-lv-1", Some(("vg", "lv-1"))),
            ("alone", None),
            ("all--of--it", None),
            ("-x", None),
            ("x-", None),
            ("é-lv", Some(("é", "lv"))),
        ] {
            let split = split_mapped(name);
            assert_eq!(split.as_ref().map(|(group, volume)| (group.as_str(), volume.as_str())), parts, "{name}");
        }
    }

    #[test]
    fn only_what_a_kubelet_mounts_for_a_pod_is_a_volume() {
        for (point, volume) in [
            ("/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc-1/mount", Some(("u", "pvc-1"))),
            ("/pods/u/volumes/p/v", Some(("u", "v"))),
            ("/var/lib/kubelet/pods/u/volumes/p/v/mount/below", None),
            ("/var/lib/kubelet/pods/u/volume-subpaths/v/app/0", None),
            ("/", None),
        ] {
            assert_eq!(volume_at(point), volume, "{point}");
        }
    }
}
