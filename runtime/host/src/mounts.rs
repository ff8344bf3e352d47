//! The mounted cgroup hierarchies, and the version of each controller. Distributions differ: one directory per
//! controller, co-mounted controllers (`cpu,cpuacct`), all on v2, or some of each (hybrid).

use std::fmt;

/// Version of a cgroup hierarchy. Controllers of one machine may have different versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CgroupVersion {
    /// A hierarchy of one or a few controllers.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A controller that the host uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// CFS bandwidth and throttling.
    Cpu,
    /// CPU time usage. On v2 every cgroup has it.
    Cpuacct,
    /// CPUs and NUMA nodes of processes.
    Cpuset,
    /// Memory limits and usage.
    Memory,
    /// Limits and weights of block devices, on v2 only. The controller of v1 has another name and other files.
    Io,
}

impl Controller {
    /// All controllers.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Cpuacct, Self::Cpuset, Self::Memory, Self::Io];

    /// The name in mount options and `cgroup.controllers`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Cpuset => "cpuset",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|controller| controller.as_str() == text)
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The part of the file system that is mounted.
    pub root: String,
    /// The mount point.
    pub point: String,
    /// Type of the file system.
    pub kind: String,
    /// Options of the file system itself; on cgroup v1 the controllers are among them.
    pub options: String,
}

/// Parses `/proc/self/mountinfo`. Malformed lines are skipped.
///
/// Kernel: Documentation/filesystems/proc.rst, section 3.5.
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let device = left.nth(2)?;
    let (major, minor) = device.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let root = unescape(left.next()?);
    let point = unescape(left.next()?);
    let mut right = right.split(' ');
    let kind = right.next()?.to_owned();
    let _source = right.next()?;
    let options = right.next().unwrap_or_default().to_owned();
    Some(Mount { device, root, point, kind, options })
}

/// Decodes spaces, tabs, newlines and backslashes, which the kernel writes as `\` and three octal digits.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(code) => {
                plain.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// One mounted cgroup hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Its version.
    pub version: CgroupVersion,
    /// Its mount point, relative to the cgroup directory of the host; empty for that directory itself.
    pub mount: String,
    /// The visible part of the hierarchy; `/` unless it was mounted from within a container.
    pub root: String,
    /// The controllers of the hierarchy that the host uses.
    pub controllers: Vec<Controller>,
    /// v2: protection also applies to children without protection of their own (`memory_recursiveprot`).
    pub recursive_protection: bool,
}

/// All hierarchies below one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The hierarchies in mount order.
    pub list: Vec<Hierarchy>,
    carrier: [Option<usize>; Controller::ALL.len()],
}

impl Hierarchies {
    /// Finds the hierarchies at or below `prefix`. A v2 hierarchy has no controllers until [`Hierarchies::set_unified`].
    pub fn find(mounts: &[Mount], prefix: &str) -> Self {
        let mut list: Vec<Hierarchy> = Vec::new();
        for mount in mounts {
            let Some(below) = mount.point.strip_prefix(prefix) else { continue };
            let below = match below.strip_prefix('/') {
                Some(below) => below,
                None if below.is_empty() => below,
                None => continue,
            };
            // A mount hides an earlier mount at the same place.
            list.retain(|hierarchy| hierarchy.mount != below);
            let has = |option: &str| mount.options.split(',').any(|word| word == option);
            let version = match mount.kind.as_str() {
                "cgroup" => CgroupVersion::V1,
                "cgroup2" => CgroupVersion::V2,
                _ => continue,
            };
            let controllers = match version {
                CgroupVersion::V1 => {
                    Controller::ALL.into_iter().filter(|controller| has(controller.as_str())).collect()
                }
                CgroupVersion::V2 => Vec::new(),
            };
            if version == CgroupVersion::V1 && controllers.is_empty() {
                continue;
            }
            list.push(Hierarchy {
                version,
                mount: below.to_owned(),
                root: mount.root.clone(),
                controllers,
                recursive_protection: version == CgroupVersion::V2 && has("memory_recursiveprot"),
            });
        }
        let mut found = Self { list, carrier: [None; Controller::ALL.len()] };
        found.assign();
        found
    }

    /// Sets the controllers of a v2 hierarchy from its `cgroup.controllers`. CPU time needs no controller on v2, so
    /// `cpu` implies `cpuacct` there.
    pub fn set_unified(&mut self, hierarchy: usize, controllers: &str) {
        let v1_accounting = self.list.iter().any(|other| other.controllers.contains(&Controller::Cpuacct));
        let Some(unified) = self.list.get_mut(hierarchy) else { return };
        unified.controllers = controllers.split_ascii_whitespace().filter_map(Controller::parse).collect();
        if !v1_accounting && unified.controllers.contains(&Controller::Cpu) {
            unified.controllers.push(Controller::Cpuacct);
        }
        self.assign();
    }

    fn assign(&mut self) {
        for controller in Controller::ALL {
            self.carrier[slot(controller)] =
                self.list.iter().position(|hierarchy| hierarchy.controllers.contains(&controller));
        }
    }

    /// The hierarchy of a controller; `None` if it is not mounted.
    pub fn of(&self, controller: Controller) -> Option<usize> {
        self.carrier[slot(controller)]
    }

    /// The version of a controller; `None` if it is not mounted.
    pub fn version(&self, controller: Controller) -> Option<CgroupVersion> {
        self.of(controller).map(|hierarchy| self.list[hierarchy].version)
    }

    /// The v2 hierarchy, with or without controllers.
    pub fn unified(&self) -> Option<usize> {
        self.list.iter().position(|hierarchy| hierarchy.version == CgroupVersion::V2)
    }

    /// Whether both versions are mounted.
    pub fn hybrid(&self) -> bool {
        self.unified().is_some() && self.list.iter().any(|hierarchy| hierarchy.version == CgroupVersion::V1)
    }

    /// The hierarchies with any of these controllers, each once.
    pub fn carrying(&self, controllers: &[Controller]) -> Vec<usize> {
        let mut found: Vec<usize> = controllers.iter().filter_map(|&controller| self.of(controller)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

fn slot(controller: Controller) -> usize {
    match controller {
        Controller::Cpu => 0,
        Controller::Cpuacct => 1,
        Controller::Cpuset => 2,
        Controller::Memory => 3,
        Controller::Io => 4,
    }
}

/// The mount point of the file system with this device, which is the prefix of the mount points of the hierarchies in
/// it. `/sys/fs/cgroup` if that is one of several mount points, or if the device is unknown.
pub(crate) fn prefix(mounts: &[Mount], device: Option<(u32, u32)>) -> String {
    const USUAL: &str = "/sys/fs/cgroup";
    let all = || mounts.iter().filter(|mount| Some(mount.device) == device);
    // On v2, the container's part of the hierarchy and the node's whole hierarchy may both be mounted, with the same device.
    let whole = all().any(|mount| mount.root == "/");
    let mut candidates = all().filter(|mount| !whole || mount.root == "/").map(|mount| mount.point.as_str());
    match candidates.next() {
        Some(first) if first != USUAL && !candidates.any(|point| point == USUAL) => first.to_owned(),
        _ => USUAL.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // One directory per controller, and an empty v2 tree beside them.
    const SEPARATE: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    // CentOS 7, Alibaba Cloud Linux 2.
    const CO_MOUNTED: &str = "\
25 17 0:21 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:8 - tmpfs tmpfs ro,mode=755
26 25 0:22 / /sys/fs/cgroup/systemd rw,nosuid,nodev,noexec,relatime shared:9 - cgroup cgroup rw,xattr,release_agent=/usr/lib/systemd/systemd-cgroups-agent,name=systemd
28 25 0:24 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:10 - cgroup cgroup rw,memory
29 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,cpu,cpuacct
30 25 0:26 / /sys/fs/cgroup/cpuset rw,nosuid,nodev,noexec,relatime shared:12 - cgroup cgroup rw,cpuset
31 25 0:27 / /sys/fs/cgroup/net_cls,net_prio rw,nosuid,nodev,noexec,relatime shared:13 - cgroup cgroup rw,net_cls,net_prio
";
    // Recent Fedora, Ubuntu, Debian.
    const UNIFIED: &str = "\
24 1 0:22 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";
    // `cgroup_no_v1=memory` moves the memory controller to v2.
    const MIXED: &str = "\
25 17 0:21 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:8 - tmpfs tmpfs ro,mode=755
27 25 0:23 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
29 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:11 - cgroup cgroup rw,cpu,cpuacct
";

    fn check(text: &str, unified: Option<&str>, expected: [(Controller, Option<(CgroupVersion, &str)>); 4]) {
        let mounts = parse(text);
        let mut found = Hierarchies::find(&mounts, "/sys/fs/cgroup");
        if let (Some(place), Some(controllers)) = (found.unified(), unified) {
            found.set_unified(place, controllers);
        }
        for (controller, carrier) in expected {
            let got = found.of(controller).map(|place| (found.list[place].version, found.list[place].mount.as_str()));
            assert_eq!(got, carrier, "{controller}");
        }
    }

    #[test]
    fn reads_real_mount_tables() {
        use CgroupVersion::{V1, V2};
        use Controller::{Cpu, Cpuacct, Cpuset, Memory};
        check(
            SEPARATE,
            Some("hugetlb\n"),
            [
                (Cpu, Some((V1, "cpu"))),
                (Cpuacct, Some((V1, "cpuacct"))),
                (Cpuset, Some((V1, "cpuset"))),
                (Memory, Some((V1, "memory"))),
            ],
        );
        check(
            CO_MOUNTED,
            None,
            [
                (Cpu, Some((V1, "cpu,cpuacct"))),
                (Cpuacct, Some((V1, "cpu,cpuacct"))),
                (Cpuset, Some((V1, "cpuset"))),
                (Memory, Some((V1, "memory"))),
            ],
        );
        check(
            UNIFIED,
            Some("cpuset cpu io memory hugetlb pids\n"),
            [(Cpu, Some((V2, ""))), (Cpuacct, Some((V2, ""))), (Cpuset, Some((V2, ""))), (Memory, Some((V2, "")))],
        );
        check(
            MIXED,
            Some("memory pids\n"),
            [
                (Cpu, Some((V1, "cpu,cpuacct"))),
                (Cpuacct, Some((V1, "cpu,cpuacct"))),
                (Cpuset, None),
                (Memory, Some((V2, "unified"))),
            ],
        );
    }

    #[test]
    fn knows_hybrid_and_recursive_protection() {
        for (text, hybrid, recursive) in
            [(SEPARATE, true, false), (CO_MOUNTED, false, false), (UNIFIED, false, true), (MIXED, true, false)]
        {
            let found = Hierarchies::find(&parse(text), "/sys/fs/cgroup");
            assert_eq!(found.hybrid(), hybrid);
            assert_eq!(found.list.iter().any(|hierarchy| hierarchy.recursive_protection), recursive);
        }
    }

    #[test]
    fn finds_the_prefix_by_the_device() {
        let text = SEPARATE.replace("/sys/fs/cgroup", "/host\\040cgroup");
        let mounts = parse(&text);
        assert_eq!(prefix(&mounts, Some((0, 28))), "/host cgroup");
        assert_eq!(prefix(&mounts, None), "/sys/fs/cgroup");
        let found = Hierarchies::find(&mounts, "/host cgroup");
        assert_eq!(found.of(Controller::Memory).map(|place| found.list[place].mount.as_str()), Some("memory"));
    }

    #[test]
    fn prefers_the_whole_hierarchy_to_a_containers_part_of_it() {
        let text = "\
40 30 0:26 /../../kubepods.slice/x.scope /sys/fs/cgroup ro - cgroup2 cgroup rw
41 30 0:26 / /host/sys/fs/cgroup rw - cgroup2 cgroup rw
";
        assert_eq!(prefix(&parse(text), Some((0, 26))), "/host/sys/fs/cgroup");
    }

    #[test]
    fn sees_the_upper_of_two_mounts_at_one_place() {
        let text = format!("{UNIFIED}50 30 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n");
        assert!(Hierarchies::find(&parse(&text), "/sys/fs/cgroup").list.is_empty());
    }

    proptest! {
        #[test]
        fn survives_any_text(text: String) {
            let mounts = parse(&text);
            let _ = Hierarchies::find(&mounts, "/");
        }

        #[test]
        fn survives_any_line(point in "[/a-z0-9\\\\]{0,20}", options in "[a-z,=]{0,20}") {
            let mounts = parse(&format!("1 2 0:3 / {point} rw - cgroup cgroup {options}"));
            let _ = Hierarchies::find(&mounts, "/");
        }
    }
}
