//! The simulated kernel's block devices, and its handling of their lines in files.
//!
//! Kernel: `blkg_conf_open_bdev` in block/blk-cgroup.c, `tg_set_limit` and `tg_prfill_limit` in block/blk-throttle.c, `ioc_weight_write`,
//! `ioc_qos_write` and `ioc_cost_model_write` in block/blk-iocost.c.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use qosm_model::block_io::{BlockDevice, DeviceNumber, Hundredths, IoCostModel, IoCostQos, IoLatency, IoLimits};
use rustix::io::Errno;

use super::Simulation;
use super::tree::ROOT;
use crate::block_devices::MountedVolume;
use crate::knob_table::Line;

/// The kernel's default parameters of a device (`autop` of a solid-state disk).
const AUTO_QOS: IoLatency = IoLatency {
    read_permyriad: Hundredths(9500),
    read_latency: 25_000,
    write_permyriad: Hundredths(9500),
    write_latency: 25_000,
    min: Hundredths(100),
    max: Hundredths(1_000_000),
};
const AUTO_MODEL: IoCostModel = IoCostModel {
    read_bps: 488_636_629,
    read_seq_iops: 8932,
    read_rand_iops: 8518,
    write_bps: 427_891_549,
    write_seq_iops: 28_755,
    write_rand_iops: 21_940,
};

/// The new content of a file after a write of one line.
pub(super) fn accept(
    line: Line,
    content: &str,
    text: &str,
    (devices, costs): (&BTreeSet<DeviceNumber>, [&str; 2]),
) -> Result<String, Errno> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().ok_or(Errno::INVAL)?;
    let words: Vec<&str> = words.collect();
    if line == Line::Weight && matches!((first, words.as_slice()), ("default", [_])) || first.parse::<u32>().is_ok() {
        let weight = words.first().copied().unwrap_or(first);
        let weight = weight.parse().ok().filter(|weight| (1..=10_000_u32).contains(weight)).ok_or(Errno::RANGE)?;
        let others = content.lines().filter(|line| !line.starts_with("default")).map(|line| format!("{line}\n"));
        return Ok(std::iter::once(format!("default {weight}\n")).chain(others).collect());
    }
    let device: DeviceNumber = first.parse().map_err(|_| Errno::INVAL)?;
    if !devices.contains(&device) {
        return Err(Errno::NODEV);
    }
    let own = |line: &&str| line.split(' ').next().and_then(|word| word.parse().ok()) == Some(device);
    // `blkg_conf_prep` refuses weights unless the policy is active for the disk; writing the disk's cost activates it.
    if line == Line::Weight && !costs.iter().any(|cost| cost.lines().any(|line| own(&line))) {
        return Err(Errno::OPNOTSUPP);
    }
    let before = content.lines().find(own).and_then(|line| line.split_once(' ')).map(|(_, rest)| rest);
    let after = match line {
        Line::Limits => {
            limits(before, &words)?.filter(|limits| !limits.is_unlimited()).map(|limits| limits.to_string())
        }
        Line::Weight => match words.as_slice() {
            ["default"] => None,
            [weight] => {
                let weight = weight.parse().ok().filter(|weight| (1..=10_000_u32).contains(weight));
                Some(weight.ok_or(Errno::RANGE)?.to_string())
            }
            _ => return Err(Errno::INVAL),
        },
        Line::CostQos => Some(qos(before, &words)?),
        Line::CostModel => Some(model(before, &words)?),
    };
    let mut lines: Vec<String> = content.lines().filter(|line| !own(line)).map(|line| format!("{line}\n")).collect();
    lines.extend(after.map(|rest| format!("{device} {rest}\n")));
    Ok(lines.concat())
}

fn pair<'a>(word: &&'a str) -> Result<(&'a str, &'a str), Errno> {
    word.split_once('=').ok_or(Errno::INVAL)
}

fn limits(before: Option<&str>, words: &[&str]) -> Result<Option<IoLimits>, Errno> {
    let mut limits: IoLimits = before.and_then(|line| line.parse().ok()).unwrap_or_default();
    for word in words {
        let (name, value) = pair(word)?;
        let limit = match value {
            "max" => None,
            number => Some(number.parse::<u64>().map_err(|_| Errno::INVAL)?),
        };
        match limit {
            Some(0) => return Err(Errno::RANGE),
            Some(1) => return Err(Errno::INVAL),
            _ => {}
        }
        let requests = limit.filter(|limit| *limit < u32::MAX.into());
        match name {
            "rbps" => limits.read_bps = limit,
            "wbps" => limits.write_bps = limit,
            "riops" => limits.read_iops = requests,
            "wiops" => limits.write_iops = requests,
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(Some(limits))
}

/// Whether the parameters are the user's after a write: naming one of them chooses all.
fn is_user(words: &[&str], before: Option<&str>, params: &[&str]) -> bool {
    let mut is_user = before.is_some_and(|line| line.contains("ctrl=user"));
    for word in words {
        match word.split_once('=') {
            Some(("ctrl", how)) => is_user = how == "user",
            Some((name, _)) if params.contains(&name) => is_user = true,
            _ => {}
        }
    }
    is_user
}

fn get<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// The words of a line, replaced by the written ones.
fn merged(before: &str, words: &[&str], names: &[&str]) -> Result<Vec<String>, Errno> {
    for word in words {
        let (name, _) = pair(word)?;
        if !names.contains(&name) {
            return Err(Errno::INVAL);
        }
    }
    let said = |name: &&str| {
        let new = words.iter().rev().find_map(|word| word.strip_prefix(*name)?.strip_prefix('='));
        new.or_else(|| get(before, name)).map(|value| format!("{name}={value}"))
    };
    Ok(names.iter().filter_map(said).collect())
}

const QOS: [&str; 8] = ["enable", "ctrl", "rpct", "rlat", "wpct", "wlat", "min", "max"];
const MODEL: [&str; 8] = ["ctrl", "model", "rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"];

fn qos(before: Option<&str>, words: &[&str]) -> Result<String, Errno> {
    let auto = IoCostQos { is_enabled: false, latency: Some(AUTO_QOS) }.to_string();
    let is_user = is_user(words, before, &QOS[2..]);
    let base = before.filter(|line| is_user && line.contains("ctrl=user")).unwrap_or(&auto);
    let enabled = before.and_then(|line| get(line, "enable")).unwrap_or("0");
    let base = base.replace("enable=0", &format!("enable={enabled}"));
    let line = merged(&base, words, &QOS)?.join(" ").replace("ctrl=auto", "ctrl=user");
    let qos: IoCostQos = line.parse().map_err(|_| Errno::INVAL)?;
    let latency = qos.latency.ok_or(Errno::INVAL)?;
    if latency.min > latency.max
        || latency.read_permyriad > Hundredths(10_000)
        || latency.write_permyriad > Hundredths(10_000)
    {
        return Err(Errno::INVAL);
    }
    Ok(if is_user { qos.to_string() } else { qos.to_string().replace("ctrl=user", "ctrl=auto") })
}

fn model(before: Option<&str>, words: &[&str]) -> Result<String, Errno> {
    let is_user = is_user(words, before, &MODEL[2..]);
    let auto = AUTO_MODEL.to_string();
    let base = before.filter(|line| is_user && line.contains("ctrl=user")).unwrap_or(&auto);
    let line = merged(base, words, &MODEL)?.join(" ").replace("ctrl=auto", "ctrl=user");
    let model: IoCostModel = line.parse().map_err(|_| Errno::INVAL)?;
    Ok(if is_user { model.to_string() } else { model.to_string().replace("ctrl=user", "ctrl=auto") })
}

/// `/proc/partitions` with these disks.
pub(super) fn partitions(devices: &[BlockDevice]) -> String {
    let line = |device: &BlockDevice| {
        let DeviceNumber { major, minor } = device.number;
        format!("{major:4} {minor:8} {:>10} {}\n", 1 << 20, device.names.first().map_or("", String::as_str))
    };
    let lines: String = devices.iter().map(line).collect();
    format!("major minor  #blocks  name\n\n{lines}")
}

/// `/sys/block` with these disks.
pub(super) fn sys_files(devices: &[BlockDevice]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for device in devices {
        let Some(name) = device.names.first() else { continue };
        let folder = format!("block/{}", name.replace('/', "!"));
        let mut put = |file: &str, text: String| drop(files.insert(format!("{folder}/{file}"), text));
        put("dev", format!("{}\n", device.number));
        put("size", "2097152\n".to_owned());
        for (place, partition) in device.partitions.iter().enumerate() {
            put(&format!("{}/partition", partition.replace('/', "!")), format!("{}\n", place + 1));
        }
        for group in &device.volume_groups {
            put(&format!("holders/simulated-{group}/dev"), "0:0\n".to_owned());
        }
        if let Some(mapped) = device.names.iter().find_map(|name| name.strip_prefix("mapper/")) {
            put("dm/name", format!("{mapped}\n"));
            let is_logical = device.names.iter().any(|name| !name.starts_with("mapper/") && name.contains('/'));
            put("dm/uuid", if is_logical { "LVM-simulated\n" } else { "CRYPT-simulated\n" }.to_owned());
        }
        // The devices on top of it: a logical volume of each group.
        for group in &device.volume_groups {
            let holder = format!("block/simulated-{group}");
            files.insert(format!("{holder}/dm/name"), format!("{}-simulated\n", group.replace('-', "--")));
            files.insert(format!("{holder}/dm/uuid"), "LVM-simulated\n".to_owned());
        }
    }
    files
}

impl Simulation {
    /// Sets the existing disks, and returns the new ones. The settings of removed disks are lost.
    pub fn set_devices(&mut self, devices: &[BlockDevice]) -> Vec<DeviceNumber> {
        let (new, gone) = self.rules.set_devices(devices.iter().map(|device| device.number).collect());
        for device in gone {
            for tree in &mut self.trees {
                tree.drop_lines(&format!("{device} "));
            }
        }
        self.sys.retain(|file, _| !file.starts_with("block/"));
        self.sys.extend(sys_files(devices));
        self.proc.insert("partitions".to_owned(), partitions(devices));
        new
    }

    /// Writes a line of `io.cost.qos` or `io.cost.model`, like udev when a disk appears.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` on cgroup v1, and the kernel's errors.
    pub fn set_device_cost(&mut self, file: &str, device: DeviceNumber, line: &str) -> io::Result<()> {
        let tree = self.trees.iter_mut().find(|tree| tree.has(ROOT, file)).ok_or(Errno::OPNOTSUPP)?;
        tree.write(ROOT, file, &format!("{device} {line}"), &self.rules)
    }

    /// Sets the mounted volumes of pods.
    pub fn set_volumes(&mut self, volumes: &[MountedVolume]) {
        const FOLDER: &str = "/var/lib/kubelet/pods/";
        let mounts = self.proc.entry("self/mountinfo".to_owned()).or_default();
        let others = mounts.lines().filter(|line| !line.contains(FOLDER)).map(|line| format!("{line}\n"));
        let mounted = volumes.iter().map(|MountedVolume { pod_uid, name, device }| {
            format!("99 24 {device} / {FOLDER}{pod_uid}/volumes/kubernetes.io~csi/{name}/mount rw - ext4 /dev/block/{device} rw\n")
        });
        *mounts = others.chain(mounted).collect();
    }
}
