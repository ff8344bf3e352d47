//! Alarms: events between two ticks that cannot wait for the next tick. A thread waits for them and wakes the agent's
//! loop, which then takes the alarms that fired.
//!
//! Pressure alarms come from the kernel's own thresholds, memory events and new cgroups from one inotify instance. The
//! kernel reports no throttling in time: CPU time is sampled every few milliseconds, from the top of the hierarchy.
//! Containers of an idle tier are not sampled ([`sampler`]); the CPU time for sampling is bounded ([`sampling_rate`]).

mod load;
mod sampler;
mod sampling_rate;
mod throttling;
mod watcher;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use qosm_model::alarm::{Alarm, Pressure, Resource, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, Tier};
use rustix::io::Errno;

use crate::Host;
use crate::backend::{Access, Area, Backend as _, join};
use crate::error::{HostError, errno_name};
use crate::mounts::{CgroupVersion, Controller};
use crate::targets::CgroupFile;

use sampler::{SampledContainer, UsageSource};
pub use throttling::Throttleable;
use watcher::{Shared, Ticket, UsageFile, UsageForm};

/// Windows below 2 s need `CAP_SYS_RESOURCE`.
const UNPRIVILEGED_WINDOW_USEC: u64 = 2_000_000;

/// A trigger that fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fired {
    /// The trigger, and its target.
    pub alarm: Alarm,
    /// Whether this is the container's first throttling since it was idle.
    pub after_rest: bool,
}

/// The loop's handle on the alarm thread.
pub(crate) struct Alarms {
    shared: Arc<Shared>,
    watched: BTreeMap<Alarm, Ticket>,
    unwatched: BTreeMap<Alarm, String>,
    /// A container's cgroup has changed since the sampler was last arranged.
    pub(crate) has_moved: bool,
    /// The alarm for a sudden rise of load; `None` if load is not watched.
    load: Option<Alarm>,
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
    /// Starts the alarm thread. The thread calls `wake` when an alarm fires, at most once between two calls of
    /// [`Host::alarms`]; `wake` must not block.
    ///
    /// # Errors
    ///
    /// [`HostError::Alarms`] when the kernel gives no thread, epoll or inotify instance.
    pub fn start_alarms(&mut self, wake: impl Fn() + Send + 'static) -> Result<(), HostError> {
        let shared = Shared::start(Box::new(wake)).map_err(HostError::Alarms)?;
        self.alarms =
            Some(Alarms { shared, watched: BTreeMap::new(), unwatched: BTreeMap::new(), has_moved: true, load: None });
        Ok(())
    }

    /// Whether the alarm thread was started.
    pub fn waits_for_alarms(&self) -> bool {
        self.alarms.is_some()
    }

    /// The alarms that fired since the last call.
    pub fn alarms(&mut self) -> BTreeSet<Fired> {
        self.alarms.as_ref().map(|alarms| alarms.shared.take()).unwrap_or_default()
    }

    /// Replaces the set of watched alarms; [`Host::unwatched`] names those that cannot be watched. Throttling is
    /// sampled instead: see [`Host::sample_throttling`]. The target of [`Trigger::ContainerStarted`] is the cgroup in
    /// which the cgroups of containers, or pods, appear. Has no effect before [`Host::start_alarms`].
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
            match self.start_watch(&alarms.shared, alarm) {
                Ok(ticket) => drop(alarms.watched.insert(alarm, ticket)),
                Err(why) => drop(alarms.unwatched.insert(alarm, why)),
            }
        }
        self.alarms = Some(alarms);
    }

    /// Raises this alarm when the CPU use of pods outside the tier BestEffort suddenly rises; `None` stops watching.
    /// The thread reads two files fifty times a second.
    pub fn watch_load(&mut self, alarm: Option<Alarm>) {
        let Some(mut alarms) = self.alarms.take() else { return };
        if alarms.load != alarm {
            let all = self.usage_of(Target::Tier(Tier::Guaranteed));
            let batch = self.usage_of(Target::Tier(Tier::BestEffort));
            let cpus = self.cpus();
            let load = alarm.zip(all).map(|(alarm, all)| (alarm, all, batch, cpus));
            // Without the tier's cgroup, `load` stays `None`, so that the next call tries again.
            alarms.load = load.as_ref().map(|(alarm, ..)| *alarm);
            alarms.shared.watch_load(load);
        }
        self.alarms = Some(alarms);
    }

    /// Wanted alarms that cannot be watched, and why.
    pub fn unwatched(&self) -> impl Iterator<Item = (&Alarm, &str)> {
        self.alarms.iter().flat_map(|alarms| &alarms.unwatched).map(|(alarm, why)| (alarm, why.as_str()))
    }

    /// The number of watched alarms.
    pub fn watches(&self) -> usize {
        self.alarms.as_ref().map_or(0, |alarms| alarms.watched.len())
    }

    /// Samples the CPU time of these containers every few milliseconds for throttling, until the next call replaces
    /// them. `unlimited` are containers without a quota, or without a policy that wants the alarm: their CPU time is
    /// subtracted from that of their groups. Containers whose CPU time cannot be read are left out.
    pub fn sample_throttling(&mut self, containers: &[Throttleable], unlimited: &[ContainerId]) {
        let Some(mut alarms) = self.alarms.take() else { return };
        if !std::mem::take(&mut alarms.has_moved) && alarms.shared.set_quotas(containers, unlimited) {
            self.alarms = Some(alarms);
            return;
        }
        let throttleable = containers.iter().map(|&about| (about.container, Some(about)));
        let watched: Vec<SampledContainer> = throttleable
            .chain(unlimited.iter().map(|&container| (container, None)))
            .filter_map(|(container, about)| {
                let path = self.attached_path(Target::Container(container))?.to_owned();
                Some(SampledContainer { container, about, path })
            })
            .collect();
        // v2 counts the CPU time of its root in scheduler ticks: shorter use may not show.
        let takes_root = self.usage_form() == UsageForm::Nanos;
        alarms.shared.sample(watched, takes_root, |source| match source {
            UsageSource::Group(path) => self.group_usage(path),
            UsageSource::Container(container) => self.container_usage(container),
        });
        self.alarms = Some(alarms);
    }

    /// Whether the cgroup of a sampled container was removed since the last call; if so, call
    /// [`Host::sample_throttling`] again.
    pub fn has_lost_samples(&self) -> bool {
        self.alarms.as_ref().is_some_and(|alarms| alarms.shared.has_lost())
    }

    /// The file of a container's CPU time: the same descriptor as for measurements.
    fn container_usage(&mut self, container: ContainerId) -> Option<UsageFile> {
        self.usage_of(Target::Container(container))
    }

    fn usage_of(&mut self, target: Target) -> Option<UsageFile> {
        let is_v2 = |controller| self.hierarchies.version(controller) == Some(CgroupVersion::V2);
        let is_unified = is_v2(Controller::Cpu) && is_v2(Controller::Cpuacct);
        let file = if is_unified { CgroupFile::CpuStat } else { CgroupFile::CpuUsage };
        Some(UsageFile { file: self.shared_file(target, file)?, form: self.usage_form() })
    }

    fn group_usage(&self, path: &str) -> Option<UsageFile> {
        let tree = self.hierarchies.of(Controller::Cpuacct)?;
        let path = join(path, CgroupFile::CpuUsage.name(self.hierarchies.list.get(tree)?.version));
        let file = self.backend.handle(Area::Cgroup(tree), &path, Access::Read).ok()?;
        Some(UsageFile { file: Arc::new(file), form: self.usage_form() })
    }

    fn usage_form(&self) -> UsageForm {
        match self.hierarchies.version(Controller::Cpuacct) {
            Some(CgroupVersion::V1) => UsageForm::Nanos,
            _ => UsageForm::Stat,
        }
    }

    /// The hierarchy of a target's file, and the path in it.
    fn file_of(&self, target: Target, file: CgroupFile) -> Option<(usize, String)> {
        let tree = self.tree_with(file)?;
        let name = file.name(self.hierarchies.list.get(tree)?.version);
        Some((tree, join(self.attached_path(target)?, name)))
    }

    fn start_watch(&self, shared: &Shared, alarm: Alarm) -> Result<Ticket, String> {
        match alarm.trigger {
            Trigger::Throttling => Err("it is sampled, not watched".to_owned()),
            Trigger::Pressure(pressure) => {
                let file = self.pressure_file(&pressure, alarm.target)?;
                shared.add_pressure(file, alarm).map_err(|error| describe(&error))
            }
            Trigger::MemoryEvents => {
                let target = alarm.target.ok_or("the node has no memory events")?;
                if self.hierarchies.version(Controller::Memory) != Some(CgroupVersion::V2) {
                    return Err("memory.events is a file of cgroup v2".to_owned());
                }
                let (tree, path) = self.file_of(target, CgroupFile::MemoryEvents).ok_or("its cgroup is not there")?;
                let file = self.backend.handle(Area::Cgroup(tree), &path, Access::Read);
                file.and_then(|file| shared.add_memory_events(file, alarm)).map_err(|error| describe(&error))
            }
            Trigger::ContainerStarted => {
                let target = alarm.target.ok_or("the node is no cgroup")?;
                let tree = *self.trees.first().ok_or("no hierarchy is mounted")?;
                let path = self.attached_path(target).ok_or("its cgroup is not there")?;
                let directory = self.backend.handle(Area::Cgroup(tree), path, Access::Directory);
                directory.and_then(|file| shared.add_directory(&file, alarm)).map_err(|error| describe(&error))
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
            _ => describe(error),
        }
    }
}

fn describe(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => "ENOSPC: fs.inotify.max_user_watches is used up".to_owned(),
        Some(Errno::MFILE) => "EMFILE: the process has no descriptor left".to_owned(),
        _ => format!("{}: {error}", errno_name(error)),
    }
}
