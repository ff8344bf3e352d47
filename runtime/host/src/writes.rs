//! Detects other writers: inotify reports the cgroups in which a knob's file was written, and those that were removed, so that the host
//! need not read the files in each tick. If a directory cannot be watched, [`Host::detects_writes`] returns `false` and the
//! files must be read. After lost events every cgroup counts as written.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};

use qosm_model::knob::Target;
use rustc_hash::FxHashMap;
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::Host;
use crate::backend::{Access, Area, Backend as _, join};
use crate::error::HostError;
use crate::knob_table::TABLE;
use crate::mounts::Controller;
use crate::targets::Attached;

/// A file that counts although it is no knob: quotas depend on it.
const PERIOD: &str = "cpu.cfs_period_us";

/// A write to this file removes controllers from child cgroups, or adds them with each knob at its default.
const CONTROLLERS_BELOW: &str = "cgroup.subtree_control";

/// The inotify watches and their targets.
pub(crate) struct Writes {
    inotify: OwnedFd,
    targets: FxHashMap<i32, Target>,
    watches: FxHashMap<Target, Vec<i32>>,
    /// Attached targets with a directory that cannot be watched.
    unwatched: BTreeSet<Target>,
}

/// Writes since the last call of [`Writes::take`].
#[derive(Debug, Default)]
struct WriteEvents {
    /// Targets with a written knob file.
    written: BTreeSet<Target>,
    /// Directories that were removed, by the target above and their name.
    removed: Vec<(Target, String)>,
    /// Targets whose `cgroup.subtree_control` was written.
    above: BTreeSet<Target>,
    /// Events were lost.
    has_gap: bool,
}

impl Writes {
    fn start() -> io::Result<Self> {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let (targets, watches) = (FxHashMap::default(), FxHashMap::default());
        Ok(Self { inotify, targets, watches, unwatched: BTreeSet::new() })
    }

    fn forget(&mut self, target: Target) {
        self.unwatched.remove(&target);
        for watch in self.watches.remove(&target).unwrap_or_default() {
            // The kernel has removed the watch of a removed directory.
            if self.targets.remove(&watch).is_some() {
                inotify::remove_watch(&self.inotify, watch).ok();
            }
        }
    }

    fn take(&mut self) -> WriteEvents {
        let mut events_seen = WriteEvents::default();
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return events_seen,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                events_seen.has_gap = true;
            } else if event.events().contains(ReadFlags::IGNORED) {
                self.targets.remove(&event.wd());
            } else if let (Some(name), Some(&above)) = (event.file_name(), self.targets.get(&event.wd()))
                && event.events().contains(ReadFlags::DELETE)
            {
                // The kernel reports a removed cgroup to the watch of the one above only.
                events_seen.removed.push((above, name.to_string_lossy().into_owned()));
            } else if let (Some(name), Some(&target)) = (event.file_name(), self.targets.get(&event.wd())) {
                if is_knob(name.to_bytes()) {
                    events_seen.written.insert(target);
                } else if name.to_bytes() == CONTROLLERS_BELOW.as_bytes() {
                    events_seen.above.insert(target);
                }
            }
        }
    }
}

/// Whether a file belongs to a knob. The kernel's own updates of `memory.events` and `cgroup.events` raise the same events.
fn is_knob(name: &[u8]) -> bool {
    name == PERIOD.as_bytes() || TABLE.iter().any(|row| [row.v1, row.v2].iter().any(|file| file.as_bytes() == name))
}

impl Host {
    /// Watches the cgroups of all targets, including those attached later, for writes; [`Host::written_targets`]
    /// returns the written ones. Nothing is watched in the simulation.
    ///
    /// # Errors
    ///
    /// [`HostError::Writes`] if the kernel gives no inotify instance.
    pub fn watch_writes(&mut self) -> Result<(), HostError> {
        if self.simulated_mut().is_none() && self.writes.is_none() {
            self.writes = Some(Writes::start().map_err(HostError::Writes)?);
            let attached: Vec<Target> = self.targets.keys().copied().collect();
            attached.into_iter().for_each(|target| self.watch_target(target));
        }
        Ok(())
    }

    /// Whether every write to a knob of an attached target is detected.
    pub fn detects_writes(&self) -> bool {
        self.writes.as_ref().is_some_and(|writes| writes.unwatched.is_empty())
    }

    /// Begins a tick: files that are read in consecutive ticks stay open, and files that were not read for a while are closed.
    pub fn begin_tick(&mut self) {
        self.tick = self.tick.saturating_add(1);
        self.close_idle_files();
    }

    /// The targets in whose cgroups the agent or other programs may have written a knob since the last call. Cgroups
    /// that cannot be watched are not reported.
    pub fn written_targets(&mut self) -> BTreeSet<Target> {
        let Some(writes) = &mut self.writes else { return BTreeSet::new() };
        let WriteEvents { mut written, removed, above, has_gap } = writes.take();
        if has_gap {
            written.extend(self.targets.keys());
        }
        // Another directory may have taken the place of a removed one, in which nothing is set.
        for (above, name) in removed {
            let path = self.attached_path(above).map(|above| join(above, &name));
            written.extend(path.and_then(|path| self.attached_at(&path)));
        }
        for path in above.into_iter().filter_map(|target| self.attached_path(target).map(str::to_owned)) {
            let is_below = |attached: &Attached| attached.path.rsplit_once('/').is_some_and(|(above, _)| above == path);
            written.extend(self.targets.iter().filter(|(_, attached)| is_below(attached)).map(|(&target, _)| target));
        }
        if self.detects_writes() {
            for target in &written {
                if let Some(attached) = self.targets.get_mut(target) {
                    attached.period = None;
                }
            }
        } else {
            self.targets.values_mut().for_each(|attached| attached.period = None);
        }
        written
    }

    /// Watches a target's directories, one in each hierarchy that has knobs.
    pub(crate) fn watch_target(&mut self, target: Target) {
        let Some(attached) = self.targets.get(&target) else { return };
        let trees = self.hierarchies.carrying(&[Controller::Cpu, Controller::Memory, Controller::Cpuset]);
        let there: Vec<_> = trees.into_iter().filter(|&tree| attached.inode(tree) != 0).collect();
        let path = attached.path.clone();
        let Some(writes) = &mut self.writes else { return };
        writes.forget(target);
        for tree in there {
            let watched = self.backend.handle(Area::Cgroup(tree), &path, Access::Directory).and_then(|directory| {
                // inotify takes paths only; this is the path of the open directory.
                let name = format!("/proc/self/fd/{}", directory.as_raw_fd());
                Ok(inotify::add_watch(
                    &writes.inotify,
                    name,
                    WatchFlags::MODIFY | WatchFlags::DELETE | WatchFlags::ONLYDIR,
                )?)
            });
            match watched {
                Ok(watch) => {
                    writes.targets.insert(watch, target);
                    writes.watches.entry(target).or_default().push(watch);
                }
                Err(error) => {
                    if writes.unwatched.is_empty() {
                        tracing::info!(cgroup = path, %error, "writes of other programs are polled for, since a cgroup cannot be watched");
                    }
                    writes.unwatched.insert(target);
                }
            }
        }
    }

    pub(crate) fn unwatch_target(&mut self, target: Target) {
        if let Some(writes) = &mut self.writes {
            writes.forget(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_files_count_and_the_kernels_own_do_not() {
        for name in ["cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.high", "cpuset.mems", "cpu.weight"] {
            assert!(is_knob(name.as_bytes()), "{name}");
        }
        for name in ["memory.events", "cgroup.events", "cgroup.procs", "tasks", "cpu.stat", "memory.current"] {
            assert!(!is_knob(name.as_bytes()), "{name}");
        }
    }
}
