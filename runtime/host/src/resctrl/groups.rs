//! qosm's groups: creates, adopts and removes them, and writes their schemata. Never changes groups of other programs.

use std::collections::BTreeSet;
use std::io;

use cap_std::fs::{Dir, DirBuilder, DirBuilderExt as _, OpenOptions};
use rustix::io::Errno;

use super::availability::{MountOptions, Vendor};
use super::error::{ResctrlError, Status};
use super::group::{Group, GroupName, MONITOR_GROUPS};
use super::info::Info;
use super::schemata::{Absent, Schemata};
use crate::backend::join;
use crate::error::{errno_name, is, is_absent};
use crate::kernel::write_at_once;

/// Directories in the root that are not groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", MONITOR_GROUPS];

/// Maximum length of a write in bytes: the kernel accepts less than a page, and the smallest page has 4096 bytes.
const MAX_WRITE: usize = 4095;

/// resctrl's groups, below its root. All state is in the kernel, so that another process can continue with it.
#[derive(Debug)]
pub struct Groups {
    pub(crate) root: Dir,
    path: String,
    vendor: Vendor,
    options: MountOptions,
    info: Info,
}

/// The existing control groups and monitor groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// qosm's groups, control groups first.
    pub own: Vec<Group>,
    /// Directories of other programs' control groups, without the root.
    pub foreign: Vec<String>,
}

/// Whether a group was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The group is new. A new control group has nearly all ways and all bandwidth.
    New,
    /// The group existed, and keeps its schemata and tasks.
    Existing,
}

/// Whether a group was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// The group was removed; its tasks are in the parent group.
    Removed,
    /// The group did not exist.
    Absent,
}

/// Result of [`Groups::adopt`].
#[derive(Debug, Default)]
pub struct Adopted {
    /// Existing groups that are wanted.
    pub kept: Vec<Group>,
    /// Unneeded groups that were removed.
    pub removed: Vec<Group>,
    /// Unneeded groups that could not be removed.
    pub failed: Vec<(Group, ResctrlError)>,
}

/// Result of [`Groups::apply`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The written values: only those that were different. Empty if nothing was written.
    pub changed: Schemata,
    /// Wanted values of caches or resources that do not exist.
    pub absent: Vec<Absent>,
    /// Values that differ after a write that the kernel accepted: another program may also write them.
    pub differing: Schemata,
    /// All current schemata of the group.
    pub now: Schemata,
}

impl Groups {
    /// Opens resctrl and reads its resources. `path` is the mount point of `root`, for messages; `options` as found by [`super::detect`].
    ///
    /// # Errors
    ///
    /// As [`Info::read`].
    pub fn open(root: Dir, path: &str, vendor: Vendor, options: MountOptions) -> Result<Self, ResctrlError> {
        let info = Info::read(&root, path, vendor, options)?;
        Ok(Self { root, path: path.to_owned(), vendor, options, info })
    }

    /// The resources, as of the last read.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Reads the resources again: caches come and go with their CPUs.
    ///
    /// # Errors
    ///
    /// As [`Info::read`]; then the old information stays.
    pub fn read_info_again(&mut self) -> Result<(), ResctrlError> {
        self.info = Info::read(&self.root, &self.path, self.vendor, self.options)?;
        Ok(())
    }

    /// The existing groups. Monitor groups are only included if they are qosm's, and in the root or in a control group of qosm.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`].
    pub fn present(&self) -> Result<Present, ResctrlError> {
        let mut present = Present::default();
        let mut monitors = self.monitors(None)?;
        for directory in self.directories("")? {
            if NO_GROUPS.contains(&directory.as_str()) {
                continue;
            }
            match GroupName::of_directory(&directory) {
                Some(name) => {
                    monitors.extend(self.monitors(Some(&name))?);
                    present.own.push(Group::Control(name));
                }
                None => present.foreign.push(directory),
            }
        }
        present.own.extend(monitors);
        Ok(present)
    }

    fn monitors(&self, parent: Option<&GroupName>) -> Result<Vec<Group>, ResctrlError> {
        let above = parent.map(GroupName::directory).unwrap_or_default();
        let directories = match self.directories(&join(&above, MONITOR_GROUPS)) {
            // No monitoring on this machine, or the group was just removed.
            Err(ResctrlError::Read { source, .. }) if is_absent(&source) => Vec::new(),
            other => other?,
        };
        let names = directories.iter().filter_map(|directory| GroupName::of_directory(directory));
        Ok(names.map(|name| Group::Monitor { parent: parent.cloned(), name }).collect())
    }

    fn directories(&self, path: &str) -> Result<Vec<String>, ResctrlError> {
        let read = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in self.root.read_dir(if path.is_empty() { "." } else { path })? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        read().map_err(|source| ResctrlError::Read { path: join(&self.path, path), source })
    }

    /// Creates a group; an existing one is not changed.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Closids`], [`ResctrlError::Rmids`] and [`ResctrlError::Ways`] if there are too many groups,
    /// [`ResctrlError::Gone`] for a monitor group whose control group does not exist, [`ResctrlError::ReadOnly`],
    /// [`ResctrlError::Make`].
    pub fn create(&self, group: &Group) -> Result<Created, ResctrlError> {
        let mut options = DirBuilder::new();
        // The kernel adopts the mode, and a daemon may have any umask.
        options.mode(0o755);
        match self.root.create_dir_with(group.directory(), &options) {
            Ok(()) => Ok(Created::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Created::Existing),
            Err(error) => Err(self.cannot_make(group, error)),
        }
    }

    fn cannot_make(&self, group: &Group, source: io::Error) -> ResctrlError {
        // Read the status before any other call to resctrl, which would replace it.
        let status = self.status();
        let path = self.absolute(&group.directory());
        let monitoring = self.info.monitoring.as_ref();
        let rmids = || monitoring.map_or(0, |monitoring| monitoring.num_rmids);
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC) => {
                let holders = self.control_groups();
                // Kernels before 4.14 have no text.
                let are_all_held = || self.info.closids().is_some_and(|limit| holders.len() + 1 >= as_usize(limit));
                if status.starts_with("Out of CLOSIDs") || status.text().is_none() && are_all_held() {
                    ResctrlError::Closids { path, limit: self.info.closids().unwrap_or(0), holders, source }
                } else if status.starts_with("Out of RMIDs") || status.text().is_none() && monitoring.is_some() {
                    ResctrlError::Rmids { path, limit: rmids(), in_limbo: false, source }
                } else if status.starts_with("No space on") {
                    ResctrlError::Ways { path, status, source }
                } else {
                    ResctrlError::Make { path, errno: errno_name(&source), status, source }
                }
            }
            Some(Errno::BUSY) if monitoring.is_some() => {
                ResctrlError::Rmids { path, limit: rmids(), in_limbo: true, source }
            }
            Some(Errno::NOENT | Errno::NODEV) => ResctrlError::Gone { path: self.absolute(&group.parent_directory()) },
            Some(Errno::ROFS) => ResctrlError::ReadOnly { path },
            _ => ResctrlError::Make { path, errno: errno_name(&source), status, source },
        }
    }

    fn control_groups(&self) -> Vec<String> {
        let directories = self.directories("").unwrap_or_default();
        directories.into_iter().filter(|name| !NO_GROUPS.contains(&name.as_str())).collect()
    }

    /// Directories of other programs' control groups, without the root.
    pub(crate) fn foreign(&self) -> Result<Vec<String>, ResctrlError> {
        let is_foreign = |name: &String| !NO_GROUPS.contains(&name.as_str()) && GroupName::of_directory(name).is_none();
        Ok(self.directories("")?.into_iter().filter(is_foreign).collect())
    }

    /// Removes a group: moves its tasks to the root, or from a monitor group to its control group, and then removes its
    /// directory. A missing group is no error. Monitor groups are removed with their control group.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Remove`], [`ResctrlError::ReadOnly`], [`ResctrlError::Remains`] if the group still exists afterwards.
    pub fn remove(&self, group: &Group) -> Result<Removed, ResctrlError> {
        // Threads that cannot be moved individually, since they are invisible or the kernel refuses, are moved by the
        // kernel when the directory is removed.
        if let Err(ResctrlError::Gone { .. }) = self.empty(group) {
            return Ok(Removed::Absent);
        }
        let (directory, path) = (group.directory(), self.absolute(&group.directory()));
        match self.root.remove_dir(&directory) {
            Ok(()) => {}
            Err(source) if is_absent(&source) => return Ok(Removed::Absent),
            Err(source) if is(&source, Errno::ROFS) => return Err(ResctrlError::ReadOnly { path }),
            Err(source) => {
                let status = self.status();
                return Err(ResctrlError::Remove { path, errno: errno_name(&source), status, source });
            }
        }
        match self.root.symlink_metadata(&directory) {
            Ok(_) => Err(ResctrlError::Remains { path }),
            Err(_) => Ok(Removed::Removed),
        }
    }

    /// Moves a monitor group with its threads and counters into another control group. Returns `false` if the kernel
    /// refuses: it supports this since Linux 6.5, and not for groups that have CPUs.
    pub(crate) fn move_monitor(&self, from: &Group, to: &Group) -> bool {
        self.root.rename(from.directory(), &self.root, to.directory()).is_ok()
    }

    /// Whether another program has a group, including monitor groups in the root.
    pub(crate) fn has_foreign(&self) -> Result<bool, ResctrlError> {
        let monitors = match self.directories(MONITOR_GROUPS) {
            Err(ResctrlError::Read { source, .. }) if is_absent(&source) => Vec::new(),
            other => other?,
        };
        let is_foreign = |directory: &String| GroupName::of_directory(directory).is_none();
        Ok(!self.present()?.foreign.is_empty() || monitors.iter().any(is_foreign))
    }

    /// Takes over the groups of an earlier process: wanted groups stay as they are, others of qosm are removed. With an
    /// empty list, all of qosm's groups are removed.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`]; groups that cannot be removed are in [`Adopted::failed`].
    pub fn adopt(&self, wanted: &[Group]) -> Result<Adopted, ResctrlError> {
        let wanted: BTreeSet<&Group> = wanted.iter().collect();
        let mut adopted = Adopted::default();
        for group in self.present()?.own {
            if wanted.contains(&group) {
                adopted.kept.push(group);
                continue;
            }
            match self.remove(&group) {
                Ok(Removed::Removed) => adopted.removed.push(group),
                // A monitor group that was removed with its control group.
                Ok(Removed::Absent) => {}
                Err(error) => adopted.failed.push((group, error)),
            }
        }
        Ok(adopted)
    }

    /// The schemata of a control group; `None` for the root, which has all resources that no group has exclusively.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`], [`ResctrlError::Read`], [`ResctrlError::Schemata`].
    pub fn schemata(&self, group: Option<&GroupName>) -> Result<Schemata, ResctrlError> {
        let file = join(&group.map(GroupName::directory).unwrap_or_default(), "schemata");
        let text = self.read(&file)?;
        text.parse().map_err(|source| ResctrlError::Schemata { path: self.absolute(&file), source })
    }

    /// Writes the wanted part of a control group's schemata: other values stay, and equal values are not written. The
    /// write takes effect as a whole or not at all, unless it is longer than a page. The root has no [`GroupName`], so
    /// it is never written.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Refused`] with the kernel's explanation, [`ResctrlError::Gone`], [`ResctrlError::ReadOnly`], and
    /// the errors of [`Groups::schemata`].
    pub fn apply(&self, group: &GroupName, wanted: &Schemata) -> Result<Written, ResctrlError> {
        let wanted = self.info.accepted(wanted);
        let now = self.schemata(Some(group))?;
        let difference = wanted.difference(&now);
        let mut written =
            Written { changed: difference.changed, absent: difference.absent, differing: Schemata::new(), now };
        if !written.changed.is_empty() {
            let file = join(&group.directory(), "schemata");
            for text in written.changed.writes(MAX_WRITE) {
                self.write(&file, &text)?;
            }
            // Read the actual values, which may differ from the written ones.
            written.now = self.schemata(Some(group))?;
            written.differing = written.changed.difference(&written.now).changed;
        }
        Ok(written)
    }

    pub(crate) fn absolute(&self, path: &str) -> String {
        if path.is_empty() { self.path.clone() } else { join(&self.path, path) }
    }

    /// Reads a file of a group.
    pub(crate) fn read(&self, file: &str) -> Result<String, ResctrlError> {
        match self.root.read(file) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(source) => Err(self.unreadable(file, source)),
        }
    }

    pub(crate) fn unreadable(&self, file: &str, source: io::Error) -> ResctrlError {
        if is_absent(&source) { self.gone(file) } else { ResctrlError::Read { path: self.absolute(file), source } }
    }

    fn gone(&self, file: &str) -> ResctrlError {
        let group = file.rsplit_once('/').map_or("", |(group, _)| group);
        ResctrlError::Gone { path: self.absolute(group) }
    }

    pub(crate) fn open_to_write(&self, file: &str) -> Result<std::fs::File, ResctrlError> {
        match self.root.open_with(file, OpenOptions::new().write(true)) {
            Ok(opened) => Ok(opened.into_std()),
            Err(source) if is_absent(&source) => Err(self.gone(file)),
            Err(source) => Err(self.refused(file, "", source)),
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), ResctrlError> {
        write_at_once(&self.open_to_write(file)?, text.as_bytes()).map_err(|source| self.refused(file, text, source))
    }

    /// The error for a write that failed just now.
    pub(crate) fn refused(&self, file: &str, value: &str, source: io::Error) -> ResctrlError {
        let status = self.status();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NODEV) => self.gone(file),
            Some(Errno::ROFS) => ResctrlError::ReadOnly { path: self.absolute(file) },
            _ => {
                let value = value.trim_ascii_end().replace('\n', "; ");
                ResctrlError::Refused { path: self.absolute(file), value, errno: errno_name(&source), status, source }
            }
        }
    }

    fn status(&self) -> Status {
        self.root.read("info/last_cmd_status").map(|text| Status::read(&text)).unwrap_or_default()
    }
}

fn as_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
