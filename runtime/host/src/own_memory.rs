//! The memory that this process and its children may still use, according to the limits of its cgroups.

use std::path::{Path, PathBuf};

use qosm_model::unit::Bytes;

use crate::mounts::{self, CgroupVersion, Mount};

/// The memory that is left below the tightest limit of this process; `None` if there is no limit, or it is unknown.
///
/// Page cache counts as available: the kernel reclaims it before it kills a process. `known_limit` is a limit from
/// another source, for containers that see the node's cgroups but not which of them is their own.
///
/// Kernel: Documentation/admin-guide/cgroup-v2.rst ("Memory Interface Files"), Documentation/admin-guide/cgroup-v1/memory.rst.
#[expect(clippy::disallowed_methods, reason = "of this very process, whichever directories it was handed")]
pub fn own_memory_left(known_limit: Option<Bytes>) -> Option<Bytes> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let own = Path::new("/proc/self");
    let mounts = read(&own.join("mountinfo")).map(|text| mounts::parse(&text)).unwrap_or_default();
    let groups = read(&own.join("cgroup")).unwrap_or_default();
    let used = read(&own.join("status")).and_then(|text| resident(&text)).unwrap_or(0);
    let of_groups = directories(&mounts, &groups).into_iter().filter_map(|place| place.left(&read));
    of_groups.chain(known_limit.map(|limit| limit.0.saturating_sub(used))).min().map(Bytes)
}

/// A cgroup directory, and the mount point of its hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    version: CgroupVersion,
    group: PathBuf,
    mount: PathBuf,
}

/// The directories that limit this process's memory, as far as they are mounted.
fn directories(mounts: &[Mount], groups: &str) -> Vec<Place> {
    let of = |wanted: CgroupVersion| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = match wanted {
                CgroupVersion::V1 => controllers.split(',').any(|name| name == "memory"),
                CgroupVersion::V2 => controllers.is_empty(),
            };
            is_it.then_some(path)
        })
    };
    let mut places = Vec::new();
    for mount in mounts {
        let version = match mount.kind.as_str() {
            "cgroup2" => CgroupVersion::V2,
            "cgroup" if mount.options.split(',').any(|option| option == "memory") => CgroupVersion::V1,
            _ => continue,
        };
        // A path outside the mounted part of the tree starts with `/..`; then the process's cgroup has no path below the mount.
        let Some(below) = of(version).and_then(|path| Path::new(path).strip_prefix(&mount.root).ok()) else { continue };
        let point = PathBuf::from(&mount.point);
        places.push(Place { version, group: point.join(below), mount: point });
    }
    places
}

impl Place {
    /// The memory that is left here and in all ancestors.
    fn left(&self, read: &impl Fn(&Path) -> Option<String>) -> Option<u64> {
        let above = self.group.ancestors().take_while(|group| group.starts_with(&self.mount));
        above.filter_map(|group| left(self.version, |file| read(&group.join(file)))).min()
    }
}

/// The memory that is left in one cgroup; `None` if it has no limit.
fn left(version: CgroupVersion, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let (limit, taken) = match version {
        CgroupVersion::V1 => ("memory.limit_in_bytes", &["total_rss", "total_unevictable"][..]),
        CgroupVersion::V2 => ("memory.max", &["anon", "unevictable", "kernel"][..]),
    };
    let limit: u64 = read(limit)?.trim().parse().ok()?;
    // Without a limit, v1 shows the largest number of whole pages.
    if limit >= 1 << 60 {
        return None;
    }
    let stat = read("memory.stat").unwrap_or_default();
    let used = stat.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| taken.contains(name));
    Some(limit.saturating_sub(used.filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).sum()))
}

/// `VmRSS` of `/proc/self/status`, in bytes.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn left_of(mountinfo: &str, groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        let files: HashMap<PathBuf, String> = files.iter().map(|(path, text)| (path.into(), (*text).into())).collect();
        let read = |path: &Path| files.get(path).cloned();
        directories(&mounts::parse(mountinfo), groups).into_iter().filter_map(|place| place.left(&read)).min()
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn on_v2_the_tightest_of_the_group_and_those_above_it_counts() {
        let files = |own: &'static str, above: &'static str| {
            [
                ("/sys/fs/cgroup/system.slice/qosm.service/memory.max", own),
                (
                    "/sys/fs/cgroup/system.slice/qosm.service/memory.stat",
                    "anon 40\nfile 9000\nunevictable 2\nkernel 8\n",
                ),
                ("/sys/fs/cgroup/system.slice/memory.max", above),
                ("/sys/fs/cgroup/system.slice/memory.stat", "anon 700\nfile 1\n"),
            ]
        };
        for (own, above, left) in [
            ("400\n", "max\n", Some(350)),
            ("400\n", "1000\n", Some(300)),
            ("max\n", "max\n", None),
            ("max\n", "800\n", Some(100)),
            ("10\n", "max\n", Some(0)),
        ] {
            assert_eq!(left_of(V2, "0::/system.slice/qosm.service\n", &files(own, above)), left, "{own} {above}");
        }
    }

    #[test]
    fn in_a_container_its_own_group_is_the_root_of_what_it_sees() {
        let files = [("/sys/fs/cgroup/memory.max", "384\n"), ("/sys/fs/cgroup/memory.stat", "anon 84\n")];
        assert_eq!(left_of(V2, "0::/\n", &files), Some(300));
        // The node's tree is mounted over it: the process's place in it is invisible, and the node's root has no limit.
        let nodes = "30 23 0:26 /../../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(left_of(nodes, "0::/\n", &[]), None);
    }

    #[test]
    fn v1_has_a_hierarchy_of_its_own_for_memory() {
        let mounts = "40 30 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 30 0:36 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let groups = "9:cpu:/x\n8:memory:/pod/c\n0::/\n";
        let files = |limit: &'static str| {
            [
                ("/sys/fs/cgroup/memory/pod/c/memory.limit_in_bytes", limit),
                ("/sys/fs/cgroup/memory/pod/c/memory.stat", "cache 900\nrss 1\ntotal_rss 30\ntotal_unevictable 0\n"),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ]
        };
        assert_eq!(left_of(mounts, groups, &files("130\n")), Some(100));
        assert_eq!(left_of(mounts, groups, &files("9223372036854771712\n")), None);
        // Bound into a container, with the container's own group at the top.
        let bound = "41 30 0:36 /pod/c /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let files = [("/sys/fs/cgroup/memory/memory.limit_in_bytes", "130"), ("/sys/fs/cgroup/memory/memory.stat", "")];
        assert_eq!(left_of(bound, groups, &files), Some(130));
    }

    #[test]
    fn a_limit_from_another_source_counts_beside_the_cgroups() {
        assert_eq!(resident("Name:\tqosm\nVmRSS:\t   1024 kB\nThreads:\t3\n"), Some(1 << 20));
        let left = own_memory_left(Some(Bytes(64 << 20)));
        assert!(left.is_some_and(|left| left.0 < 64 << 20), "{left:?}");
    }
}
