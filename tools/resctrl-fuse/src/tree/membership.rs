//! The membership of tasks in groups, and the file `tasks`.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::controls::Closid;
use super::groups::{Group, GroupId};
use super::{Tree, Writer};
use crate::kstrto::{int, strim, strsep};
use crate::profile::KernelVersion;
use crate::rmid::Rmid;
use crate::tasks::{Moment, Task, Tid};

/// The class and RMID of a task or group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) closid: Closid,
    pub(crate) rmid: Rmid,
}

/// A task of the last refresh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    started: u64,
    pub(crate) slot: Slot,
}

impl Tree {
    /// Refreshes the list of tasks: new tasks join their creators' groups, ended tasks are dropped. Each operation does
    /// this first; call it more often to reduce the risk that a creator ends unseen.
    pub fn refresh(&mut self) {
        let seen: BTreeMap<Tid, Task> = self.tasks.list().into_iter().map(|task| (task.tid, task)).collect();
        let mut members: BTreeMap<Tid, Member> = BTreeMap::new();
        for (&tid, task) in &seen {
            // Walk from the task up to the first creator with a known slot, and apply its slot to all tasks on the way.
            let mut line = Vec::new();
            let mut next = Some(*task);
            let mut slot = Slot::default();
            while let Some(task) = next {
                let known = members.get(&task.tid).or_else(|| self.members.get(&task.tid));
                if let Some(known) = known.filter(|known| known.started == task.started) {
                    slot = known.slot;
                    line.push(task);
                    break;
                }
                line.push(task);
                // A creator that has ended is still known from the previous refresh.
                if let Some(creator) = task.creator
                    && !seen.contains_key(&creator)
                {
                    slot = self.members.get(&creator).map_or(slot, |member| member.slot);
                }
                // A reused id may form a cycle.
                next = task.creator.and_then(|creator| seen.get(&creator)).copied();
                next = next.filter(|creator| line.iter().all(|one| one.tid != creator.tid));
            }
            for task in line {
                members.entry(task.tid).or_insert(Member { started: task.started, slot });
            }
            debug_assert!(members.contains_key(&tid));
        }
        for tid in self.members.keys().filter(|tid| !members.contains_key(tid)) {
            self.load.forget_task(*tid);
        }
        self.members = members;
    }

    /// Content of `/proc/<tid>/cpu_resctrl_groups` for a task; `None` if the task does not exist.
    ///
    /// Kernel: `proc_resctrl_show`, since 5.7.
    pub fn cpu_resctrl_groups(&mut self, tid: Tid) -> Option<String> {
        self.refresh();
        let slot = self.members.get(&tid)?.slot;
        let control = self.groups.iter().find(|(_, group)| group.parent.is_none() && group.closid == slot.closid);
        let (&id, control) = control?;
        let monitor = self.groups.values().find(|group| group.parent == Some(id) && group.rmid == slot.rmid);
        let slash = if id == GroupId::ROOT { "/" } else { "" };
        Some(format!("res:{slash}{}\nmon:{}\n", control.name, monitor.map_or("", |group| &group.name)))
    }

    /// A group's path relative to the mount point; `""` for the root.
    pub(crate) fn path_of(&self, id: GroupId) -> String {
        let Some(group) = self.groups.get(&id) else { return String::new() };
        match group.parent {
            None => group.name.clone(),
            Some(GroupId::ROOT) => format!("mon_groups/{}", group.name),
            Some(parent) => format!("{}/mon_groups/{}", self.path_of(parent), group.name),
        }
    }

    /// Changes the slot of all tasks whose slot fits.
    pub(crate) fn move_members(&mut self, fits: impl Fn(Slot) -> bool, slot: Slot) {
        for member in self.members.values_mut().filter(|member| fits(member.slot)) {
            member.slot = slot;
        }
    }

    /// Whether the group's `tasks` lists a task with this slot. A control group lists all tasks of its class, including
    /// those of its monitor groups; without allocation it lists none (`is_closid_match`).
    fn lists(&self, group: &Group, slot: Slot) -> bool {
        match group.parent {
            None => self.profile.allocates() && slot.closid == group.closid,
            Some(_) => slot.rmid == group.rmid,
        }
    }

    pub(crate) fn read_tasks(&mut self, id: GroupId) -> Result<Vec<u8>, Errno> {
        self.refresh();
        let group = self.groups.get(&id).ok_or(Errno::NOENT)?;
        let listed = self.members.iter().filter(|(_, member)| self.lists(group, member.slot));
        let text: String = listed.map(|(tid, _)| format!("{}\n", tid.0)).collect();
        let path = self.path_of(id);
        self.tasks.at(Moment::Read(&path));
        Ok(text.into_bytes())
    }

    /// `rdtgroup_tasks_write`
    pub(crate) fn write_tasks(&mut self, id: GroupId, text: &[u8], writer: Writer) -> Result<(), Errno> {
        let path = self.path_of(id);
        self.tasks.at(Moment::Write(&path));
        // First record the groups of existing clones: moving a task must only affect its later clones.
        self.refresh();
        if self.profile.kernel < KernelVersion::TASK_LISTS {
            // These kernels parsed the number before looking up the group.
            let pid = int(strim(text)).ok().filter(|pid| *pid >= 0).ok_or(Errno::INVAL)?;
            self.status.clear();
            return self.move_task(id, pid.unsigned_abs(), writer);
        }
        self.status.clear();
        let mut rest = Some(text);
        while let Some(text) = rest.filter(|text| !matches!(text.first(), None | Some(b'\n'))) {
            let (item, after) = strsep(text, b',');
            rest = after;
            let item = strim(item);
            let Ok(pid) = int(item) else {
                self.status.quote("Task list parsing error pid ", item, "");
                return Err(Errno::INVAL);
            };
            if pid < 0 {
                self.status.line(&format!("Invalid pid {pid}"));
                return Err(Errno::INVAL);
            }
            self.move_task(id, pid.unsigned_abs(), writer)
                .inspect_err(|_| self.status.line(&format!("Error while processing task {pid}")))?;
        }
        Ok(())
    }

    /// `rdtgroup_move_task`
    fn move_task(&mut self, id: GroupId, pid: u32, writer: Writer) -> Result<(), Errno> {
        let tid = if pid == 0 { writer.tid } else { Tid(pid) };
        let group = self.groups.get(&id).ok_or(Errno::NOENT)?;
        let (target, is_monitor) = (group.slot(), group.parent.is_some());
        let credentials = self.members.contains_key(&tid).then(|| self.tasks.credentials(tid)).flatten();
        let (Some(credentials), Some(member)) = (credentials, self.members.get_mut(&tid)) else {
            self.status.line(&format!("No task {pid}"));
            return Err(Errno::SRCH);
        };
        if writer.uid != 0 && writer.uid != credentials.uid && writer.uid != credentials.saved_uid {
            self.status.line(&format!("No permission to move task {}", tid.0));
            return Err(Errno::PERM);
        }
        if is_monitor && member.slot.closid != target.closid {
            self.status.line("Can't move task to different control group");
            return Err(Errno::INVAL);
        }
        member.slot = target;
        Ok(())
    }
}
