//! Groups: created by `mkdir`, removed by `rmdir`, moved by `rename`.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::controls::Closid;
use super::membership::Slot;
use super::{Mode, Node, Tree, Writer};
use crate::cpumask::CpuMask;
use crate::profile::{Event, KernelVersion};
use crate::rmid::Rmid;

/// Identifies a group during its lifetime; a later group with the same name has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupId(pub(crate) u32);

impl GroupId {
    /// The root group.
    pub(crate) const ROOT: Self = Self(0);
}

/// A control group, or a monitor group of one.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// The control group of a monitor group; `None` for a control group.
    pub(crate) parent: Option<GroupId>,
    pub(crate) closid: Closid,
    pub(crate) rmid: Rmid,
    pub(crate) mode: Mode,
    pub(crate) cpus: CpuMask,
    /// User and group id of its creator.
    pub(crate) owner: (u32, u32),
}

impl Group {
    pub(crate) fn slot(&self) -> Slot {
        Slot { closid: self.closid, rmid: self.rmid }
    }
}

impl Tree {
    /// Creates a control group in the root, or a monitor group in a `mon_groups` directory.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `EINVAL` for a name with a newline, `ENODEV` below `info`, `EPERM` elsewhere, `ENOSPC` without a free
    /// CLOSID, RMID or way, `EBUSY` without a free RMID while some are in limbo.
    pub fn mkdir(&mut self, path: &str, writer: Writer) -> Result<(), Errno> {
        let (directory, name) = self.resolve_parent(path)?;
        self.make(directory, name, writer).map(|_| ())
    }

    /// Removes a group and its monitor groups. Its tasks and CPUs go to the root, those of a monitor group to its control group.
    ///
    /// # Errors
    ///
    /// `EPERM` for the root and for other directories; `ENOTDIR`, `ENOENT`.
    pub fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        let node = self.resolve(path)?;
        self.remove(node)
    }

    /// Renames a monitor group, or moves it to another control group.
    ///
    /// # Errors
    ///
    /// `EPERM` for all other renames, and before Linux 6.5; `EEXIST`.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let node = self.resolve(from)?;
        let (directory, name) = self.resolve_parent(to)?;
        self.rename_node(node, directory, name)
    }

    fn resolve_parent<'a>(&self, path: &'a str) -> Result<(Node, &'a str), Errno> {
        let path = path.trim_end_matches('/');
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.resolve(directory)?, name))
    }

    pub(crate) fn make_root(&mut self) {
        let root = Group {
            name: String::new(),
            parent: None,
            closid: Closid::default(),
            rmid: Rmid::default(),
            mode: Mode::Shareable,
            cpus: self.online.clone(),
            owner: (0, 0),
        };
        self.next_group = self.next_group.max(1);
        self.groups.insert(GroupId::ROOT, root);
    }

    /// `rdtgroup_mkdir`
    pub(crate) fn make(&mut self, directory: Node, name: &str, writer: Writer) -> Result<Node, Errno> {
        if !directory.is_directory() {
            return Err(Errno::NOTDIR);
        }
        self.live(directory)?;
        if name.is_empty() || self.lookup(directory, name).is_ok() {
            return Err(Errno::EXIST);
        }
        if name.contains('\n') {
            return Err(Errno::INVAL);
        }
        let monitors = self.profile.monitoring.is_some();
        let is_control = directory == Node::ROOT && self.profile.allocates();
        if !is_control && !monitors {
            return Err(Errno::PERM);
        }
        let parent = directory.group().ok_or(Errno::NODEV)?;
        self.refresh();
        self.status.clear();
        if is_control {
            return self.make_control_group(name, writer);
        }
        if !matches!(directory, Node::MonGroups(_)) || name == "mon_groups" {
            return Err(Errno::PERM);
        }
        let rmid = self.take_rmid()?;
        let parent_group = self.groups.get(&parent).ok_or(Errno::NODEV)?;
        let group = Group {
            name: name.to_owned(),
            parent: Some(parent),
            closid: parent_group.closid,
            rmid,
            mode: Mode::Shareable,
            cpus: CpuMask::new(),
            owner: (writer.uid, writer.gid),
        };
        Ok(self.add(group))
    }

    /// `rdtgroup_mkdir_ctrl_mon`
    fn make_control_group(&mut self, name: &str, writer: Writer) -> Result<Node, Errno> {
        let Some(closid) = self.closids.take() else {
            self.status.line("Out of CLOSIDs");
            return Err(Errno::NOSPC);
        };
        let rmid = match self.take_rmid() {
            Ok(rmid) => rmid,
            Err(errno) => {
                self.closids.give_back(closid);
                return Err(errno);
            }
        };
        if let Err(errno) = self.begin_allocation(closid) {
            self.give_rmid_back(rmid);
            self.closids.give_back(closid);
            return Err(errno);
        }
        Ok(self.add(Group {
            name: name.to_owned(),
            parent: None,
            closid,
            rmid,
            mode: Mode::Shareable,
            cpus: CpuMask::new(),
            owner: (writer.uid, writer.gid),
        }))
    }

    fn add(&mut self, group: Group) -> Node {
        let id = GroupId(self.next_group);
        self.next_group += 1;
        self.groups.insert(id, group);
        Node::Group(id)
    }

    /// Takes an RMID for a new group and resets its byte counters. Without monitoring, all groups share one RMID.
    fn take_rmid(&mut self) -> Result<Rmid, Errno> {
        if self.profile.monitoring.is_none() {
            return Ok(Rmid::default());
        }
        let rmid = self.rmids.take().inspect_err(|_| self.status.line("Out of RMIDs"))?;
        self.begin_counting(rmid);
        Ok(rmid)
    }

    fn give_rmid_back(&mut self, rmid: Rmid) {
        let Some(monitoring) = &self.profile.monitoring else { return };
        // Without an occupancy counter the kernel has no limbo, and frees the RMID at once.
        let counts_lines = monitoring.events.contains(&Event::LlcOccupancy);
        let domains: BTreeSet<u32> = self.monitored_domains().map(|domain| domain.id).collect();
        self.rmids.give_back(rmid, if counts_lines { domains } else { BTreeSet::new() });
    }

    /// `rdtgroup_rmdir`
    pub(crate) fn remove(&mut self, node: Node) -> Result<(), Errno> {
        if !node.is_directory() {
            return Err(Errno::NOTDIR);
        }
        self.live(node)?;
        let id = match node {
            Node::Group(id) if id != GroupId::ROOT => id,
            _ => return Err(Errno::PERM),
        };
        self.refresh();
        let Some(group) = self.groups.remove(&id) else { return Err(Errno::NOENT) };
        let heir = group.parent.unwrap_or(GroupId::ROOT);
        let heir_slot = self.groups.get(&heir).ok_or(Errno::NOENT)?.slot();
        if group.parent.is_some() {
            // Its CPUs also belong to the parent.
            self.move_members(|slot| slot.rmid == group.rmid, heir_slot);
        } else {
            self.move_members(|slot| slot.closid == group.closid, heir_slot);
            self.closids.give_back(group.closid);
            if let Some(root) = self.groups.get_mut(&GroupId::ROOT) {
                root.cpus = root.cpus.union(&group.cpus);
            }
            let children: Vec<GroupId> =
                self.groups.iter().filter(|(_, child)| child.parent == Some(id)).map(|(&child, _)| child).collect();
            for child in children {
                if let Some(child_group) = self.groups.remove(&child) {
                    self.give_rmid_back(child_group.rmid);
                    self.forget(child);
                }
            }
        }
        self.give_rmid_back(group.rmid);
        self.forget(id);
        Ok(())
    }

    /// Drops the data about a group that is stored outside of it.
    fn forget(&mut self, id: GroupId) {
        self.load.forget_group(id);
        self.faults.retain(|&(of, ..), _| of != id);
        self.changed.retain(|node, _| node.group() != Some(id));
    }

    pub(crate) fn remove_all_groups(&mut self) {
        self.refresh();
        for (id, group) in std::mem::take(&mut self.groups) {
            if id != GroupId::ROOT {
                self.give_rmid_back(group.rmid);
            }
            self.forget(id);
        }
        self.move_members(|_| true, Slot::default());
    }

    /// `rdtgroup_rename`
    pub(crate) fn rename_node(&mut self, node: Node, directory: Node, name: &str) -> Result<(), Errno> {
        if self.profile.kernel < KernelVersion::RENAME {
            return Err(Errno::PERM);
        }
        self.live(node)?;
        self.live(directory)?;
        let beside_groups =
            |node: Node| matches!(node, Node::Info | Node::LastCmdStatus | Node::Schema(_) | Node::Monitor);
        if beside_groups(node) || beside_groups(directory) {
            return Err(Errno::NOENT);
        }
        self.refresh();
        self.status.clear();
        if !node.is_directory() || !directory.is_directory() {
            // The only text of the kernel without a newline.
            self.status.word("Source and destination must be directories");
            return Err(Errno::PERM);
        }
        let source = match node {
            Node::Group(id) => self.groups.get(&id).filter(|group| group.parent.is_some()).map(|group| (id, group)),
            _ => None,
        };
        let Some((id, group)) = source else {
            self.status.line("Source must be a MON group");
            return Err(Errno::PERM);
        };
        let parent = match directory {
            Node::MonGroups(parent) if name != "mon_groups" => parent,
            _ => {
                self.status.line("Destination must be a mon_groups subdirectory");
                return Err(Errno::PERM);
            }
        };
        if !group.cpus.is_empty() && group.parent != Some(parent) {
            self.status.line("Cannot move a MON group that monitors CPUs");
            return Err(Errno::PERM);
        }
        if group.parent == Some(parent) && group.name == name {
            return Ok(());
        }
        if self.lookup(directory, name).is_ok() {
            return Err(Errno::EXIST);
        }
        let rmid = group.rmid;
        let closid = self.groups.get(&parent).ok_or(Errno::NOENT)?.closid;
        if let Some(group) = self.groups.get_mut(&id) {
            (group.name, group.parent, group.closid) = (name.to_owned(), Some(parent), closid);
        }
        self.move_members(|slot| slot.rmid == rmid, Slot { closid, rmid });
        Ok(())
    }
}
