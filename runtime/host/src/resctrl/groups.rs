//! Groups of qosm's: created, adopted, given schemata, removed. Groups of other programs are not changed.

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

/// Directories in the root that are no groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", MONITOR_GROUPS];

/// The kernel takes no more than a page in one write; the smallest has this many bytes.
const MAX_WRITE: usize = 4095;

/// resctrl's groups, below its root. It holds nothing that the kernel does not hold too, so another process can go on with it.
#[derive(Debug)]
pub struct Groups {
    pub(crate) root: Dir,
    path: String,
    vendor: Vendor,
    options: MountOptions,
    info: Info,
}

/// The control groups and monitor groups that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Those of qosm's, control groups first.
    pub own: Vec<Group>,
    /// Directories of others' control groups, the root's not among them.
    pub foreign: Vec<String>,
}

/// Whether a group had to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was not there before. A new control group has nearly all ways and all bandwidth.
    New,
    /// It was there, with the schemata and tasks that it has.
    Existing,
}

/// Whether a group was there to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It was; its tasks are in the group above.
    Removed,
    /// It was not.
    Absent,
}

/// What became of the groups that were found.
#[derive(Debug, Default)]
pub struct Adopted {
    /// Wanted, and there already.
    pub kept: Vec<Group>,
    /// Unneeded groups that were removed.
    pub removed: Vec<Group>,
    /// Unneeded groups that could not be removed.
    pub failed: Vec<(Group, ResctrlError)>,
}

/// What became of wanted schemata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// What was written: only what was different. Empty = nothing was.
    pub changed: Schemata,
    /// What is wanted of caches or resources that are not there.
    pub absent: Vec<Absent>,
    /// Values that differ after a write that the kernel accepted: another program may write them, too.
    pub differing: Schemata,
    /// All that the group has now.
    pub now: Schemata,
}

impl Groups {
    /// Reads what there is to divide. `path` is where `root` is mounted, for messages; `options` as [`super::detect`] found them.
    ///
    /// # Errors
    ///
    /// As of [`Info::read`].
    pub fn open(root: Dir, path: &str, vendor: Vendor, options: MountOptions) -> Result<Self, ResctrlError> {
        let info = Info::read(&root, path, vendor, options)?;
        Ok(Self { root, path: path.to_owned(), vendor, options, info })
    }

    /// What there is to divide, as it was when it was read.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Reads it again: caches come and go with their CPUs.
    ///
    /// # Errors
    ///
    /// As of [`Info::read`]; then what was known stays.
    pub fn read_info_again(&mut self) -> Result<(), ResctrlError> {
        self.info = Info::read(&self.root, &self.path, self.vendor, self.options)?;
        Ok(())
    }

    /// The groups that there are. Of monitor groups only qosm's, and only in the root and in control groups of qosm's.
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
            // No monitoring here, or the group has just gone.
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

    /// Makes a group, or leaves the one that is there as it is.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Closids`], [`ResctrlError::Rmids`] and [`ResctrlError::Ways`] where there are too many groups,
    /// [`ResctrlError::Gone`] for a monitor group whose control group is not there, [`ResctrlError::ReadOnly`],
    /// [`ResctrlError::Make`].
    pub fn create(&self, group: &Group) -> Result<Created, ResctrlError> {
        let mut options = DirBuilder::new();
        // The kernel takes the mode over, and a daemon's umask may be anything.
        options.mode(0o755);
        match self.root.create_dir_with(group.directory(), &options) {
            Ok(()) => Ok(Created::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Created::Existing),
            Err(error) => Err(self.cannot_make(group, error)),
        }
    }

    fn cannot_make(&self, group: &Group, source: io::Error) -> ResctrlError {
        // Must precede any other call to resctrl, whose status it would read instead.
        let status = self.status();
        let path = self.absolute(&group.directory());
        let monitoring = self.info.monitoring.as_ref();
        let rmids = || monitoring.map_or(0, |monitoring| monitoring.num_rmids);
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC) => {
                let holders = self.control_groups();
                // Kernels before 4.14 give no text.
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

    /// Removes a group: its tasks go to the root, or out of a monitor group to its control group, then its directory is
    /// removed. A missing one is no error. Monitor groups are removed with their control group.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Remove`], [`ResctrlError::ReadOnly`], [`ResctrlError::Remains`] if it is there even so.
    pub fn remove(&self, group: &Group) -> Result<Removed, ResctrlError> {
        // Threads that cannot be moved one by one, being invisible or forbidden, are moved by the kernel with the
        // directory.
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

    /// Moves a monitor group with its threads and counters into another control group. `false` where that cannot be: kernels move
    /// groups from Linux 6.5 on, and none that has CPUs.
    pub(crate) fn move_monitor(&self, from: &Group, to: &Group) -> bool {
        self.root.rename(from.directory(), &self.root, to.directory()).is_ok()
    }

    /// Whether another program has a group here, even a monitor group.
    pub(crate) fn has_foreign(&self) -> Result<bool, ResctrlError> {
        let monitors = match self.directories(MONITOR_GROUPS) {
            Err(ResctrlError::Read { source, .. }) if is_absent(&source) => Vec::new(),
            other => other?,
        };
        let is_foreign = |directory: &String| GroupName::of_directory(directory).is_none();
        Ok(!self.present()?.foreign.is_empty() || monitors.iter().any(is_foreign))
    }

    /// Takes over what an earlier process left: groups that are wanted stay as they are, others of qosm's are removed. With
    /// nothing wanted nothing of qosm's remains.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`]; a group that cannot be removed is among [`Adopted::failed`].
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
                // A monitor group, gone with its control group.
                Ok(Removed::Absent) => {}
                Err(error) => adopted.failed.push((group, error)),
            }
        }
        Ok(adopted)
    }

    /// The schemata of a control group; `None` = the root, which has everything that no group has exclusively.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Gone`], [`ResctrlError::Read`], [`ResctrlError::Schemata`].
    pub fn schemata(&self, group: Option<&GroupName>) -> Result<Schemata, ResctrlError> {
        let file = join(&group.map(GroupName::directory).unwrap_or_default(), "schemata");
        let text = self.read(&file)?;
        text.parse().map_err(|source| ResctrlError::Schemata { path: self.absolute(&file), source })
    }

    /// Writes the wanted part of a control group's schemata: other values stay, and equal ones are not written. The
    /// write takes effect as a whole or not at all, unless it is longer than a page. The root has no name, so that it
    /// is never written.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Refused`] with the kernel's explanation, [`ResctrlError::Gone`], [`ResctrlError::ReadOnly`], and
    /// as of [`Groups::schemata`].
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
            // What it holds now, not what the kernel agreed to.
            written.now = self.schemata(Some(group))?;
            written.differing = written.changed.difference(&written.now).changed;
        }
        Ok(written)
    }

    pub(crate) fn absolute(&self, path: &str) -> String {
        if path.is_empty() { self.path.clone() } else { join(&self.path, path) }
    }

    /// A file of a group.
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
