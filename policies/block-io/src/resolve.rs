//! Resolves blocks to devices.

use std::collections::BTreeSet;
use std::fmt;

use qosm_sdk::{IoDevice, IoDeviceInfo, IoVolume, PodId};

use crate::config::{Block, Kind};

/// Maximum number of names that a message lists …
const LISTED: usize = 8;
/// … and the maximum length of each, in bytes.
const NAME_BYTES: usize = 64;

/// The devices and volumes of the node.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// Devices of the node.
    pub devices: &'a [IoDeviceInfo],
    /// Volumes of pods on these devices.
    pub volumes: &'a [IoVolume],
}

/// The pod whose annotation contains a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Id of the pod.
    pub pod: PodId,
    /// Whether the annotation names exactly one volume. If the pod has only one volume, the annotation must mean that one.
    pub names_one_volume: bool,
}

/// A resolved device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Device numbers.
    pub device: IoDevice,
    /// Path of the device.
    pub path: String,
    /// How the device was found: empty, or for example ` of volume group data`.
    pub how: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, self.how)
    }
}

/// Why a block has no device, and how to fix it. Formatted only where it is reported.
#[derive(Clone, Copy, Debug)]
pub struct Missing<'a> {
    node: Node<'a>,
    kind: Kind,
    name: &'a str,
    pod: Option<PodId>,
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, kind, name, pod } = *self;
        match kind {
            Kind::Device => {
                let bare = without_dev(name);
                if let Some(disk) = node.devices.iter().find(|info| info.partitions.iter().any(|known| known == bare)) {
                    let disk = path(disk);
                    return write!(
                        f,
                        "/dev/{bare} is a partition, which has no limits of its own: name the disk {disk}"
                    );
                }
                let known = there_are(node.devices.iter().map(path), "block device");
                write!(f, "no device of this node is called {name:?}: {known}")
            }
            Kind::VolumeGroup => {
                let known: BTreeSet<_> = node.devices.iter().flat_map(|info| &info.volume_groups).cloned().collect();
                let known = there_are(known.into_iter(), "volume group");
                write!(f, "no device of this node has data of volume group {name:?}: {known}")
            }
            Kind::PodVolume => {
                let mut known = node.volumes_of(pod).map(|volume| volume.name.clone()).peekable();
                if known.peek().is_none() {
                    return write!(
                        f,
                        "the pod has no volume {name:?} yet that is a file system on a block device of this node: directories of the \
                         node, network file systems and raw block volumes are none"
                    );
                }
                let known = listed(known);
                write!(
                    f,
                    "none of the pod's volumes is called {name:?}; there are {known}. A claim's directory is called like its persistent \
                     volume: name that, as `kubectl get pvc CLAIM -o jsonpath={{.spec.volumeName}}` says it"
                )
            }
        }
    }
}

impl<'a> Node<'a> {
    /// The devices of a block, at least one; `asker` is the pod whose annotation contains it.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is none, and how to fix it.
    pub fn resolve<T>(self, block: &'a Block<T>, asker: Option<Asker>) -> Result<Vec<Found>, Missing<'a>> {
        let name = block.name.as_str();
        let found = match block.kind {
            Kind::Device => self.device(name).into_iter().collect(),
            Kind::VolumeGroup => self.volume_group(name),
            Kind::PodVolume => self.volume(name, asker).into_iter().collect(),
        };
        if found.is_empty() {
            return Err(Missing { node: self, kind: block.kind, name, pod: asker.map(|asker| asker.pod) });
        }
        Ok(found)
    }

    fn device(self, written: &str) -> Option<Found> {
        let name = without_dev(written);
        let info = self.devices.iter().find(|info| info.names.iter().any(|known| known == name))?;
        Some(Found { device: info.device, path: format!("/dev/{name}"), how: String::new() })
    }

    fn volume_group(self, name: &str) -> Vec<Found> {
        let members = self.devices.iter().filter(|info| info.volume_groups.iter().any(|known| known == name));
        let how = format!(" of volume group {name}");
        members.map(|info| Found { device: info.device, path: path(info), how: how.clone() }).collect()
    }

    fn volume(self, name: &str, asker: Option<Asker>) -> Option<Found> {
        let asker = asker?;
        let called = |volume: &IoVolume, why: &str| {
            let how = format!(", volume {}{why}", volume.name);
            Found { device: volume.device, path: self.path_of(volume.device), how }
        };
        if let Some(volume) = self.volumes_of(Some(asker.pod)).find(|volume| volume.name == name) {
            return Some(called(volume, ""));
        }
        // The directory of a claim is named after its persistent volume; only the API server knows which one that is.
        let mut volumes = self.volumes_of(Some(asker.pod));
        let (Some(only), None, true) = (volumes.next(), volumes.next(), asker.names_one_volume) else { return None };
        let why = format!(
            ", the only one of the pod for the only `podvolume` of its annotation: none is called {name:?}, and a claim's directory is \
             called like its persistent volume"
        );
        Some(called(only, &why))
    }

    fn volumes_of(self, pod: Option<PodId>) -> impl Iterator<Item = &'a IoVolume> {
        self.volumes.iter().filter(move |volume| Some(volume.pod) == pod)
    }

    fn path_of(self, device: IoDevice) -> String {
        let info = self.devices.iter().find(|info| info.device == device);
        info.map_or_else(|| format!("device {device}"), path)
    }
}

/// The name of a device within `/dev`.
fn without_dev(written: &str) -> &str {
    written.strip_prefix("/dev/").unwrap_or(written)
}

/// The path of a device as people write it; `dm-0` would not help them.
fn path(info: &IoDeviceInfo) -> String {
    let name = info.names.iter().find(|name| name.starts_with("mapper/")).or_else(|| info.names.first());
    name.map_or_else(|| format!("device {}", info.device), |name| format!("/dev/{name}"))
}

fn there_are(names: impl Iterator<Item = String>, kind: &str) -> String {
    let mut names = names.peekable();
    match names.peek() {
        Some(_) => format!("there are {}", listed(names)),
        None => format!("there is no {kind}"),
    }
}

fn listed(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<_> = names.map(|name| clip(name, NAME_BYTES)).collect();
    let left_out = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    let listed = names.join(", ");
    if left_out > 0 { format!("{listed} and {left_out} more") } else { listed }
}

/// Cuts a text, which may be of any length.
fn clip(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Share;

    fn disk(minor: u32, name: &str) -> IoDeviceInfo {
        IoDeviceInfo {
            device: IoDevice { major: 8, minor },
            names: vec![name.into()],
            partitions: vec![format!("{name}1")],
            volume_groups: Vec::new(),
        }
    }

    fn devices() -> Vec<IoDeviceInfo> {
        let logical = IoDeviceInfo {
            device: IoDevice { major: 253, minor: 0 },
            names: vec!["dm-0".into(), "mapper/data-logs".into(), "data/logs".into()],
            partitions: Vec::new(),
            volume_groups: Vec::new(),
        };
        let of_group = |info| IoDeviceInfo { volume_groups: vec!["data".into()], ..info };
        vec![disk(0, "sda"), of_group(disk(16, "sdb")), of_group(disk(32, "sdc")), logical]
    }

    fn volume(pod: PodId, name: &str, minor: u32) -> IoVolume {
        IoVolume { pod, name: name.into(), device: IoDevice { major: 253, minor } }
    }

    fn resolve(kind: Kind, name: &str, volumes: &[IoVolume]) -> Result<Vec<String>, String> {
        resolve_for(Asker { pod: 1, names_one_volume: true }, kind, name, volumes)
    }

    fn resolve_for(asker: Asker, kind: Kind, name: &str, volumes: &[IoVolume]) -> Result<Vec<String>, String> {
        let node = Node { devices: &devices(), volumes };
        let block = Block { kind, name: name.into(), asks: Share::NONE };
        let found = node.resolve(&block, Some(asker)).map_err(|why| why.to_string())?;
        Ok(found.into_iter().map(|found| format!("{} {found}", found.device)).collect())
    }

    #[test]
    fn a_device_goes_by_each_of_its_names() {
        for (name, found) in [
            ("/dev/sda", "8:0 /dev/sda"),
            ("sda", "8:0 /dev/sda"),
            ("/dev/mapper/data-logs", "253:0 /dev/mapper/data-logs"),
            ("data/logs", "253:0 /dev/data/logs"),
            ("dm-0", "253:0 /dev/dm-0"),
        ] {
            assert_eq!(resolve(Kind::Device, name, &[]), Ok(vec![found.to_owned()]), "{name}");
        }
    }

    #[test]
    fn a_partition_is_refused_with_its_disk_and_an_unknown_name_with_those_there_are() {
        assert_eq!(
            resolve(Kind::Device, "/dev/sdb1", &[]).unwrap_err(),
            "/dev/sdb1 is a partition, which has no limits of its own: name the disk /dev/sdb"
        );
        assert_eq!(
            resolve(Kind::Device, "/dev/sdq", &[]).unwrap_err(),
            "no device of this node is called \"/dev/sdq\": there are /dev/sda, /dev/sdb, /dev/sdc, /dev/mapper/data-logs"
        );
        let many: Vec<_> = (0..11).map(|minor| disk(minor, &format!("vd{minor}"))).collect();
        let node = Node { devices: &many, volumes: &[] };
        let wanted = Block { kind: Kind::Device, name: "sda".into(), asks: Share::NONE };
        let why = node.resolve(&wanted, None).unwrap_err().to_string();
        assert!(why.ends_with("/dev/vd6, /dev/vd7 and 3 more"), "{why}");
        let why = Node { devices: &[], volumes: &[] }.resolve(&wanted, None).unwrap_err().to_string();
        assert_eq!(why, "no device of this node is called \"sda\": there is no block device");
    }

    #[test]
    fn a_volume_group_is_all_devices_with_data_of_it() {
        let found = ["8:16 /dev/sdb of volume group data", "8:32 /dev/sdc of volume group data"];
        assert_eq!(resolve(Kind::VolumeGroup, "data", &[]), Ok(found.map(str::to_owned).to_vec()));
        assert_eq!(
            resolve(Kind::VolumeGroup, "logs", &[]).unwrap_err(),
            "no device of this node has data of volume group \"logs\": there are data"
        );
    }

    #[test]
    fn a_volume_goes_by_its_directory_or_is_the_only_one_that_is_asked_for() {
        let volumes = [volume(1, "pvc-1", 0), volume(2, "pvc-2", 1)];
        let named = "253:0 /dev/mapper/data-logs, volume pvc-1";
        assert_eq!(resolve(Kind::PodVolume, "pvc-1", &volumes), Ok(vec![named.to_owned()]));
        let only = format!(
            "{named}, the only one of the pod for the only `podvolume` of its annotation: none is called \"html\", and a claim's directory \
             is called like its persistent volume"
        );
        assert_eq!(resolve(Kind::PodVolume, "html", &volumes), Ok(vec![only]));
        let several = Asker { pod: 1, names_one_volume: false };
        let why = resolve_for(several, Kind::PodVolume, "html", &volumes).unwrap_err();
        assert!(why.starts_with("none of the pod's volumes is called \"html\"; there are pvc-1. A claim's"), "{why}");
        assert_eq!(resolve_for(several, Kind::PodVolume, "pvc-1", &volumes), Ok(vec![named.to_owned()]));
        let why = resolve(Kind::PodVolume, "html", &volumes[1..]).unwrap_err();
        assert!(why.starts_with("the pod has no volume \"html\" yet"), "{why}");
        let volumes = [volume(1, "pvc-1", 0), volume(1, "pvc-3", 9)];
        assert_eq!(resolve(Kind::PodVolume, "pvc-3", &volumes).unwrap(), ["253:9 device 253:9, volume pvc-3"]);
        let why = resolve(Kind::PodVolume, "html", &volumes).unwrap_err();
        assert!(why.contains("\"html\"; there are pvc-1, pvc-3. A claim's directory"), "{why}");
        assert!(why.ends_with("`kubectl get pvc CLAIM -o jsonpath={.spec.volumeName}` says it"), "{why}");
    }
}
