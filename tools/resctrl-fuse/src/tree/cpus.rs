//! The files `cpus` and `cpus_list`.

use rustix::io::Errno;

use super::node::GroupFile;
use super::{GroupId, Tree};
use crate::cpumask::CpuMask;

impl Tree {
    /// `rdtgroup_cpus_write`
    pub(crate) fn write_cpus(&mut self, id: GroupId, file: GroupFile, text: &[u8]) -> Result<(), Errno> {
        self.status.clear();
        let possible = self.profile.possible_cpus();
        let parsed = match file {
            GroupFile::CpusList => CpuMask::parse_list(text, possible),
            _ => CpuMask::parse_mask(text, possible),
        };
        let cpus = parsed.inspect_err(|_| self.status.line("Bad CPU list/mask"))?;
        if !cpus.without(&self.online).is_empty() {
            self.status.line("Can only assign online CPUs");
            return Err(Errno::INVAL);
        }
        let parent = self.groups.get(&id).ok_or(Errno::NOENT)?.parent;
        match parent {
            Some(parent) => self.give_cpus_to_monitor_group(id, parent, cpus),
            None => self.give_cpus_to_control_group(id, cpus),
        }
    }

    /// `cpus_mon_write`
    fn give_cpus_to_monitor_group(&mut self, id: GroupId, parent: GroupId, cpus: CpuMask) -> Result<(), Errno> {
        let of_parent = &self.groups.get(&parent).ok_or(Errno::NOENT)?.cpus;
        if !cpus.without(of_parent).is_empty() {
            self.status.line("Can only add CPUs to mongroup that belong to parent");
            return Err(Errno::INVAL);
        }
        // The parent keeps these CPUs; its other monitor groups lose them. Dropped CPUs stay with the parent.
        for (&other, group) in &mut self.groups {
            if other == id {
                group.cpus = cpus.clone();
            } else if group.parent == Some(parent) {
                group.cpus = group.cpus.without(&cpus);
            }
        }
        Ok(())
    }

    /// `cpus_ctrl_write`
    fn give_cpus_to_control_group(&mut self, id: GroupId, cpus: CpuMask) -> Result<(), Errno> {
        let before = self.groups.get(&id).ok_or(Errno::NOENT)?.cpus.clone();
        let dropped = before.without(&cpus);
        if id == GroupId::ROOT && !dropped.is_empty() {
            self.status.line("Can't drop CPUs from default group");
            return Err(Errno::INVAL);
        }
        let added = cpus.without(&before);
        for (&other, group) in &mut self.groups {
            if other == id {
                group.cpus = cpus.clone();
            } else if group.parent == Some(id) {
                group.cpus = CpuMask::new();
            } else {
                // Other control groups and their monitor groups lose them.
                group.cpus = group.cpus.without(&added);
            }
        }
        if let Some(root) = self.groups.get_mut(&GroupId::ROOT) {
            root.cpus = root.cpus.union(&dropped);
        }
        Ok(())
    }
}
