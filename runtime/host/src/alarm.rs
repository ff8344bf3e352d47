//! Alarms: what happens between two ticks and cannot wait for the next. A thread waits for it, wakes the loop, and is asked what
//! it was.
//!
//! Pressure comes from the kernel's own thresholds, memory events and new cgroups from one inotify instance. Throttling has no
//! such source: the containers that could be throttled soon are looked at every few milliseconds, and nobody is looked at on a
//! node whose containers are idle.

mod throttling;
mod watcher;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use qosm_model::alarm::{Alarm, Pressure, Resource, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use rustix::io::Errno;

use crate::Host;
use crate::backend::{Access, Area, Backend as _, join};
use crate::error::{HostError, errno_name};
use crate::mounts::{CgroupVersion, Controller};
use crate::targets::CgroupFile;

pub use throttling::Throttleable;
use throttling::{Sampled, UsageFile};
use watcher::{Shared, Ticket};

/// Windows below this need `CAP_SYS_RESOURCE`.
const UNPRIVILEGED_WINDOW_USEC: u64 = 2_000_000;

/// The loop's end of the thread.
pub(crate) struct Alarms {
    shared: Arc<Shared>,
    watched: BTreeMap<Alarm, Ticket>,
    unwatched: BTreeMap<Alarm, String>,
}

impl Drop for Alarms {
    fn drop(&mut self) {
        self.shared.end();
    }
}

fn throttled(container: ContainerId) -> Alarm {
    Alarm { trigger: Trigger::Throttling, target: Some(Target::Container(container)) }
}

impl Host {
    /// Starts the thread. `wake` is called on it when something fired, once until [`Host::alarms`] is asked; it must not wait.
    ///
    /// # Errors
    ///
    /// [`HostError::Alarms`] when the kernel gives no thread, epoll or inotify instance.
    pub fn start_alarms(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), HostError> {
        let shared = Shared::start(Box::new(wake)).map_err(HostError::Alarms)?;
        self.alarms = Some(Alarms { shared, watched: BTreeMap::new(), unwatched: BTreeMap::new() });
        Ok(())
    }

    /// Whether the thread runs.
    pub fn waits_for_alarms(&self) -> bool {
        self.alarms.is_some()
    }

    /// What fired since it was asked last.
    pub fn alarms(&mut self) -> BTreeSet<Alarm> {
        self.alarms.as_ref().map(|alarms| alarms.shared.take()).unwrap_or_default()
    }

    /// Watches just these from now on; [`Host::unwatched`] tells which of them cannot be. Throttling is none of them: see
    /// [`Host::sample_throttling`]. A target of [`Trigger::ContainerStarted`] is the cgroup in which containers, or pods, appear.
    /// Without [`Host::start_alarms`] nothing is watched.
    pub fn watch(&mut self, wanted: &BTreeSet<Alarm>) {
        let Some(mut alarms) = self.alarms.take() else { return };
        alarms.watched.retain(|alarm, ticket| {
            let stays = wanted.contains(alarm);
            if !stays {
                alarms.shared.remove(*ticket);
            }
            stays
        });
        alarms.unwatched.clear();
        for &alarm in wanted {
            if alarms.watched.contains_key(&alarm) {
                continue;
            }
            match self.begin(&alarms.shared, alarm) {
                Ok(ticket) => drop(alarms.watched.insert(alarm, ticket)),
                Err(why) => drop(alarms.unwatched.insert(alarm, why)),
            }
        }
        self.alarms = Some(alarms);
    }

    /// What was asked for and cannot be watched, and why.
    pub fn unwatched(&self) -> impl Iterator<Item = (&Alarm, &str)> {
        self.alarms.iter().flat_map(|alarms| &alarms.unwatched).map(|(alarm, why)| (alarm, why.as_str()))
    }

    /// How many watches there are.
    pub fn watches(&self) -> usize {
        self.alarms.as_ref().map_or(0, |alarms| alarms.watched.len())
    }

    /// Looks at just these containers, every few milliseconds, whether they are being throttled. Those whose CPU time cannot be
    /// read are left out.
    pub fn sample_throttling(&mut self, containers: &[Throttleable]) {
        let Some(alarms) = self.alarms.take() else { return };
        alarms.shared.sample(containers, |about| {
            let (file, form) = self.usage_file(about.container)?;
            Some(Sampled::new(about, file, form))
        });
        self.alarms = Some(alarms);
    }

    fn usage_file(&self, container: ContainerId) -> Option<(File, UsageFile)> {
        let (tree, path) = self.file_of(Target::Container(container), CgroupFile::CpuUsage)?;
        let file = self.backend.handle(Area::Cgroup(tree), &path, Access::Read).ok()?;
        let unified = self.hierarchies.list.get(tree).is_some_and(|tree| tree.version == CgroupVersion::V2);
        Some((file, if unified { UsageFile::Stat } else { UsageFile::Nanos }))
    }

    /// A target's file: its hierarchy, and the path there.
    fn file_of(&self, target: Target, file: CgroupFile) -> Option<(usize, String)> {
        let tree = self.hierarchies.of(file.controller())?;
        let name = file.name(self.hierarchies.list.get(tree)?.version);
        Some((tree, join(self.attached_path(target)?, name)))
    }

    fn begin(&self, shared: &Shared, alarm: Alarm) -> Result<Ticket, String> {
        match alarm.trigger {
            Trigger::Throttling => Err("it is looked for, not watched".to_owned()),
            Trigger::Pressure(pressure) => {
                let file = self.pressure_file(&pressure, alarm.target)?;
                shared.add_pressure(file, alarm).map_err(|error| told(&error))
            }
            Trigger::MemoryEvents => {
                let target = alarm.target.ok_or("the node has no memory events")?;
                if self.hierarchies.version(Controller::Memory) != Some(CgroupVersion::V2) {
                    return Err("memory.events is a file of cgroup v2".to_owned());
                }
                let (tree, path) = self.file_of(target, CgroupFile::MemoryEvents).ok_or("its cgroup is not there")?;
                let file = self.backend.handle(Area::Cgroup(tree), &path, Access::Read);
                file.and_then(|file| shared.add_memory_events(file, alarm)).map_err(|error| told(&error))
            }
            Trigger::ContainerStarted => {
                let target = alarm.target.ok_or("the node is no cgroup")?;
                let tree = *self.trees.first().ok_or("no hierarchy is mounted")?;
                let path = self.attached_path(target).ok_or("its cgroup is not there")?;
                let directory = self.backend.handle(Area::Cgroup(tree), path, Access::Directory);
                directory.and_then(|file| shared.add_directory(&file, alarm)).map_err(|error| told(&error))
            }
        }
    }

    /// Opens a pressure file and writes the threshold to it.
    fn pressure_file(&self, pressure: &Pressure, target: Option<Target>) -> Result<File, String> {
        let opened = match target {
            None => {
                let path = format!("pressure/{}", pressure.resource.as_str());
                self.backend.handle(Area::Proc, &path, Access::ReadWrite)
            }
            Some(target) => {
                let file = match pressure.resource {
                    Resource::Cpu => CgroupFile::CpuPressure,
                    Resource::Memory => CgroupFile::MemoryPressure,
                    Resource::Io => CgroupFile::IoPressure,
                };
                let Some(unified) = self.hierarchies.unified() else {
                    return Err("pressure of cgroups needs cgroup v2".to_owned());
                };
                let path = self.attached_path(target).ok_or("its cgroup is not there")?;
                let path = join(path, file.name(CgroupVersion::V2));
                self.backend.handle(Area::Cgroup(unified), &path, Access::ReadWrite)
            }
        };
        let file = opened.map_err(|error| self.why_no_pressure(&error, pressure))?;
        let kind = if pressure.full { "full" } else { "some" };
        let threshold = format!("{kind} {} {}\0", pressure.stall.0, pressure.window.0);
        match rustix::io::write(&file, threshold.as_bytes()) {
            Ok(_) => Ok(file),
            Err(errno) => Err(self.why_no_pressure(&errno.into(), pressure)),
        }
    }

    fn why_no_pressure(&self, error: &io::Error, pressure: &Pressure) -> String {
        if !self.node.psi {
            return "the kernel accounts no pressure: boot with psi=1".to_owned();
        }
        let unprivileged = pressure.window.0 < UNPRIVILEGED_WINDOW_USEC && !self.node.capabilities.sys_resource;
        match Errno::from_io_error(error) {
            Some(Errno::INVAL | Errno::PERM | Errno::ACCESS) if unprivileged => {
                "a window below 2 s needs CAP_SYS_RESOURCE".to_owned()
            }
            Some(Errno::OPNOTSUPP) => "pressure is turned off for this cgroup (cgroup.pressure)".to_owned(),
            Some(Errno::NOENT) => "there is no pressure file in its cgroup".to_owned(),
            _ => told(error),
        }
    }
}

fn told(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => "ENOSPC: fs.inotify.max_user_watches is used up".to_owned(),
        Some(Errno::MFILE) => "EMFILE: the process has no descriptor left".to_owned(),
        _ => format!("{}: {error}", errno_name(error)),
    }
}
