//! Members of resctrl's groups: cgroups of containers, whose threads are in a control group and possibly in a monitor group.

use cap_std::fs::Dir;
use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use rustc_hash::FxHashMap;

use super::counter_delta::CounterDelta;
use super::group::{Group, GroupName};
use super::tasks::ContainerCgroup;
use crate::backend::{Access, AnyBackend, Area, Backend as _};
use crate::mounts::{CgroupVersion, Hierarchies};
use crate::targets::Attached;

/// Access to the cgroups of containers.
pub(crate) struct Cgroups<'a> {
    pub(crate) targets: &'a FxHashMap<Target, Box<Attached>>,
    pub(crate) backend: &'a AnyBackend,
    pub(crate) hierarchies: &'a Hierarchies,
    pub(crate) trees: &'a [usize],
}

/// A cgroup that is not open yet.
pub(crate) struct Found<'a> {
    tree: usize,
    inode: u64,
    path: &'a str,
}

impl Cgroups<'_> {
    /// The cgroup of an attached container, in the first hierarchy that has it. All hierarchies have the same threads.
    pub(crate) fn find(&self, container: ContainerId) -> Option<Found<'_>> {
        let attached = self.targets.get(&Target::Container(container))?;
        let inodes = self.trees.iter().map(|&tree| (tree, attached.inode(tree)));
        let (tree, inode) = inodes.into_iter().find(|&(_, inode)| inode != 0)?;
        Some(Found { tree, inode, path: &attached.path })
    }

    /// Opens the cgroup. `None` if it has been removed meanwhile.
    pub(crate) fn open(&self, found: &Found<'_>) -> Option<Member> {
        let version = self.hierarchies.list.get(found.tree)?.version;
        let directory = self.backend.handle(Area::Cgroup(found.tree), found.path, Access::Directory).ok()?;
        Some(Member {
            inode: found.inode,
            directory: Dir::from_std_file(directory),
            version,
            path: found.path.to_owned(),
            class: None,
            is_counted: false,
            control: None,
            monitor: None,
            settled: None,
            checks: u8::try_from(found.inode % u64::from(CHECKS_UNTIL_COMPARED)).unwrap_or(0),
            unmoved: UnmovedThreads::default(),
            counters: CounterDelta::default(),
        })
    }
}

/// Number of checks of a container after which its group's threads are compared again, even if its own threads did not
/// change: another program may have moved them.
const CHECKS_UNTIL_COMPARED: u8 = 16;

/// A container that is in a class or counted.
#[derive(Debug)]
pub(crate) struct Member {
    inode: u64,
    directory: Dir,
    version: CgroupVersion,
    path: String,
    /// Index of the wanted class that the container belongs to; set on each call.
    pub(crate) class: Option<usize>,
    /// Whether to count the container; set on each call.
    pub(crate) is_counted: bool,
    /// The control group that its threads are in; `None` for the root.
    pub(crate) control: Option<GroupName>,
    /// The monitor group that its threads are in.
    pub(crate) monitor: Option<Group>,
    /// Fingerprint of the threads when all of them were last in place.
    settled: Option<u64>,
    checks: u8,
    /// Threads that could not be moved the last time.
    pub(crate) unmoved: UnmovedThreads,
    pub(crate) counters: CounterDelta,
}

/// Threads that could not be moved into their group.
#[derive(Debug, Default)]
pub(crate) struct UnmovedThreads {
    /// Number of threads that are invisible in this PID namespace, and so cannot be moved.
    pub(crate) out_of_sight: usize,
    /// Number of threads that stay in other programs' groups.
    pub(crate) foreign: usize,
    /// Number of threads that the kernel refused to move.
    pub(crate) refused: usize,
    /// The error for the first refused thread, or for all.
    pub(crate) error: Option<String>,
}

impl Member {
    pub(crate) fn is_at(&self, found: &Found<'_>) -> bool {
        self.inode == found.inode && self.path == found.path
    }

    pub(crate) fn cgroup(&self) -> ContainerCgroup<'_> {
        ContainerCgroup { directory: &self.directory, version: self.version, path: &self.path }
    }

    /// Records that its threads may be in any group.
    pub(crate) fn mark_unsettled(&mut self) {
        self.settled = None;
    }

    /// Fingerprint of the threads, if they have changed or it is time to compare them with the group; pass it to
    /// [`Member::settle`]. `None` otherwise.
    pub(crate) fn changed_threads(&mut self) -> Option<u64> {
        let now = self.cgroup().fingerprint().unwrap_or_default();
        self.checks = self.checks.wrapping_add(1) % CHECKS_UNTIL_COMPARED;
        (self.settled != Some(now) || self.checks == 0).then_some(now)
    }

    pub(crate) fn settle(&mut self, seen: u64) {
        self.settled = Some(seen);
    }

    /// Name of its monitor group: the last part of its cgroup's path, and the cgroup's inode, which makes it unique.
    /// The next agent finds the group by this name.
    pub(crate) fn monitor_name(&self) -> GroupName {
        const MAX_LENGTH: usize = 200;
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let last: String = last.chars().take(MAX_LENGTH).collect();
        GroupName::made_of(&format!("{last}.{}", self.inode))
    }
}
