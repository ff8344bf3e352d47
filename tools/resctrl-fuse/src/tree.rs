//! The tree: the state behind a mounted resctrl, and the operations on its paths.

mod advance;
mod attributes;
mod controls;
mod cpus;
mod groups;
mod hotplug;
mod info;
mod membership;
mod mode;
mod monitoring;
mod node;
mod schemata;

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::io::Errno;

pub use attributes::{Attributes, Entry};
pub(crate) use groups::GroupId;
pub use mode::Mode;
pub use monitoring::CounterFault;
pub(crate) use node::Node;

use crate::cpumask::CpuMask;
use crate::kstrto::c_string;
use crate::load::Load;
use crate::profile::{MountOptions, Profile, ProfileError, RemovedFiles};
use crate::rmid::{Rmid, Rmids};
use crate::status::LastCmdStatus;
use crate::tasks::{Tasks, Tid};
use crate::unit::Bytes;
use controls::{Closids, Controls, Schema};
use groups::Group;
use membership::Member;
use monitoring::Counter;
use node::{GroupFile, MonitorFile};

/// Maximum length of a write: a page (`atomic_write_len` of kernfs).
const PAGE: usize = 4096;

/// The calling thread and its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The calling thread, which `0` in `tasks` refers to.
    pub tid: Tid,
    /// Its effective user, who owns the groups that it creates.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

impl Writer {
    /// Root, as the first thread.
    pub const ROOT: Self = Self { tid: Tid(1), uid: 0, gid: 0 };
}

/// An emulated, freshly mounted `/sys/fs/resctrl`: all operations by path, without I/O of its own.
///
/// Paths are relative to the mount point: `""`, `schemata`, `be/mon_groups/m1/tasks`. Errors are the kernel's errno.
/// The tree does not check permissions to open a file; the mount does (`default_permissions`), with
/// [`Tree::attributes`]. The clock stands still until [`Tree::advance`].
pub struct Tree {
    profile: Profile,
    schemas: Vec<Schema>,
    controls: Controls,
    closids: Closids,
    rmids: Rmids,
    groups: BTreeMap<GroupId, Group>,
    next_group: u32,
    online: CpuMask,
    members: BTreeMap<Tid, Member>,
    tasks: Box<dyn Tasks>,
    status: LastCmdStatus,
    max_threshold_occupancy: Bytes,
    load: Load,
    counters: BTreeMap<(Rmid, u32), Counter>,
    faults: BTreeMap<(GroupId, u32, crate::Event), CounterFault>,
    changed: BTreeMap<Node, Attributes>,
    clock: Duration,
    mounted: bool,
}

impl Tree {
    /// Mounts resctrl on a machine. The only group is the root, which has all CPUs and all tasks.
    ///
    /// # Errors
    ///
    /// The profile's first problem; [`ProfileError::errno`] is the error that `mount` would return.
    pub fn new(profile: Profile, tasks: impl Tasks + 'static) -> Result<Self, ProfileError> {
        profile.check()?;
        let schemas = controls::schemas(&profile);
        let online = profile.cpus();
        let num_rmids = profile.monitoring.as_ref().map_or(0, |monitoring| monitoring.num_rmids);
        let mut tree = Self {
            closids: Closids::new(&schemas),
            controls: Controls::default(),
            rmids: Rmids::new(num_rmids),
            groups: BTreeMap::new(),
            next_group: GroupId::ROOT.0,
            members: BTreeMap::new(),
            tasks: Box::new(tasks),
            status: LastCmdStatus::default(),
            max_threshold_occupancy: monitoring::default_threshold(&profile),
            load: Load::default(),
            counters: BTreeMap::new(),
            faults: BTreeMap::new(),
            changed: BTreeMap::new(),
            clock: Duration::ZERO,
            mounted: false,
            profile,
            schemas,
            online,
        };
        tree.make_root();
        Ok(tree)
    }

    /// The machine and its mount options.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Unmounts and mounts again: removes every group, moves all tasks and CPUs to the root, and resets all controls.
    /// RMIDs that were in use stay in limbo as after `rmdir`.
    ///
    /// # Errors
    ///
    /// An option whose feature is missing; then the old mount stays.
    pub fn remount(&mut self, options: MountOptions) -> Result<(), ProfileError> {
        self.profile.check_mount(options)?;
        self.remove_all_groups();
        self.profile.mount = options;
        self.schemas = controls::schemas(&self.profile);
        self.closids = Closids::new(&self.schemas);
        self.controls = Controls::default();
        self.load = Load::default();
        self.faults.clear();
        self.changed.clear();
        self.status.clear();
        self.make_root();
        Ok(())
    }

    /// The content of a file.
    ///
    /// # Errors
    ///
    /// `ENOENT`, `ENOTDIR` for a path that does not exist, `EISDIR` for a directory.
    pub fn read(&mut self, path: &str) -> Result<Vec<u8>, Errno> {
        let node = self.resolve(path)?;
        self.read_node(node)
    }

    /// Writes to a file like one call of `write`, and returns the number of accepted bytes, which is all of them.
    ///
    /// # Errors
    ///
    /// The kernel's errors, many of which `info/last_cmd_status` explains. `E2BIG` for more than a page.
    pub fn write(&mut self, path: &str, bytes: &[u8], writer: Writer) -> Result<usize, Errno> {
        let node = self.resolve(path)?;
        self.write_node(node, bytes, writer)
    }

    pub(crate) fn read_node(&mut self, node: Node) -> Result<Vec<u8>, Errno> {
        self.live(node)?;
        match node {
            Node::GroupFile(id, file) => {
                let group = self.groups.get(&id).ok_or(Errno::NOENT)?;
                match file {
                    GroupFile::Tasks => self.read_tasks(id),
                    GroupFile::Cpus => Ok(line(&group.cpus.to_mask(self.profile.possible_cpus()))),
                    GroupFile::CpusList => Ok(line(&group.cpus)),
                    GroupFile::Schemata => Ok(self.schemata(group)),
                    GroupFile::Size => Ok(self.size(group)),
                    GroupFile::Mode => Ok(line(&group.mode)),
                    GroupFile::CtrlHwId => Ok(line(&group.closid.0)),
                    GroupFile::MonHwId => Ok(line(&group.rmid.0)),
                }
            }
            Node::Counter(id, domain, node, event) => Ok(self.read_counter(id, domain, node, event)),
            Node::LastCmdStatus => Ok(self.status.show()),
            Node::SchemaFile(schema, file) => self.read_schema_file(schema, file),
            Node::MonitorFile(file) => self.read_monitor_file(file),
            _ => Err(Errno::ISDIR),
        }
    }

    pub(crate) fn write_node(&mut self, node: Node, bytes: &[u8], writer: Writer) -> Result<usize, Errno> {
        if bytes.len() > PAGE {
            return Err(Errno::TOOBIG);
        }
        match node {
            Node::GroupFile(id, GroupFile::Schemata) => {
                let text = ended_line(bytes)?;
                self.live(node)?;
                self.write_schemata(id, text)
            }
            Node::GroupFile(id, GroupFile::Mode) => {
                let text = ended_line(bytes)?;
                self.live(node)?;
                self.write_mode(id, text)
            }
            Node::GroupFile(id, GroupFile::Tasks) => {
                self.live(node)?;
                self.write_tasks(id, c_string(bytes), writer)
            }
            Node::GroupFile(id, file @ (GroupFile::Cpus | GroupFile::CpusList)) => {
                self.live(node)?;
                self.write_cpus(id, file, c_string(bytes))
            }
            Node::MonitorFile(MonitorFile::MaxThresholdOccupancy) => self.write_threshold(c_string(bytes)),
            node if node.is_directory() => Err(Errno::ISDIR),
            // Opening such a file for writing already fails, even for root.
            _ => Err(Errno::INVAL),
        }?;
        Ok(bytes.len())
    }

    /// Checks that the object of a descriptor still exists.
    pub(crate) fn live(&self, node: Node) -> Result<(), Errno> {
        if self.exists(node) {
            return Ok(());
        }
        Err(match self.profile.removed_files {
            RemovedFiles::Enoent => Errno::NOENT,
            RemovedFiles::Enodev => Errno::NODEV,
        })
    }

    /// Marks the tree as mounted; returns `false` if it already was.
    pub(crate) fn claim_mount(&mut self) -> bool {
        !std::mem::replace(&mut self.mounted, true)
    }

    /// Marks the tree as not mounted, and removes all groups.
    pub(crate) fn release_mount(&mut self) {
        self.mounted = false;
        // The same options were accepted before.
        let _ = self.remount(self.profile.mount);
    }
}

/// A file with one line.
fn line(value: &impl std::fmt::Display) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

/// The written text without the newline, which is required at its end.
fn ended_line(bytes: &[u8]) -> Result<&[u8], Errno> {
    bytes.strip_suffix(b"\n").map(c_string).ok_or(Errno::INVAL)
}
