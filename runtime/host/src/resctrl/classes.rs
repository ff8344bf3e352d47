//! Classes of the host: resctrl is looked for, and mounted, when somebody wants something of it.

use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassOutcome, Domain, ResctrlReading, WantedClass};

use super::availability::{Availability, MountOptions, Processor, USUAL_PATH, Vendor, detect, find_mount, mount};
use super::error::ResctrlError;
use super::groups::Groups;
use super::kept::Kept;
use super::members::Cgroups;
use super::place::Place;
use crate::backend::AnyBackend;
use crate::{Directories, Host};

/// Calls until it is looked again for what nobody asks for.
const CALLS_UNTIL_RETRY: u8 = 16;

/// Failures in a row after which the pause between two tries grows no more.
const MOST_FAILURES: u8 = 5;

/// What is wanted of resctrl, and what there is.
#[derive(Default)]
pub(crate) struct Classes {
    at: Option<String>,
    full: Option<u32>,
    kept: Option<Box<Kept>>,
    /// What an earlier process left has been removed.
    is_swept: bool,
    /// Why there is none.
    missing: String,
    failures: u8,
    pause: u8,
}

impl Host {
    /// Whether and how this machine has resctrl. Reads `/proc` only, mounts nothing. A simulated node has none.
    ///
    /// # Errors
    ///
    /// As of [`detect`].
    pub fn resctrl(&self) -> Result<Availability, ResctrlError> {
        match &self.backend {
            AnyBackend::Kernel(kernel) => detect(&kernel.handed_in().proc, self.classes.at.as_deref()),
            AnyBackend::Simulated(_) => Ok(Availability::NoHardware { vendor: Vendor::default() }),
        }
    }

    /// Where resctrl is, if not where this machine has it; `None` = there. Only an emulation has to be named. To be called before
    /// anything is kept.
    pub fn use_resctrl_at(&mut self, path: Option<String>) {
        self.classes.at = path;
    }

    /// The bandwidth in MB/s that the cores of one cache have together. No processor tells it; where bandwidth is not counted in percent,
    /// percent are reckoned from it. `None` = 20 000 MB/s on AMD; where resctrl is mounted with `mba_MBps` percent cannot be had then.
    pub fn set_full_bandwidth(&mut self, full: Option<u32>) {
        self.classes.full = full;
    }

    /// Brings control groups, their schemata, members and monitor groups in line with what is wanted: classes in order of precedence, and
    /// the containers that are to be counted, sorted. Both are all that is wanted: what was wanted before and is no longer is removed, and
    /// its threads go to the root. Returns an outcome for each class, in their order.
    ///
    /// The first time with something wanted mounts resctrl, if it is not. What an earlier process left is taken over by name. A class has a
    /// group from its first member on. Where no CLOSID is left for it, it shares the group of a class with the same schemata, as long as
    /// they are the same, or takes that of the last class behind it; else it is not in force, which is tried again each time.
    ///
    /// Schemata that somebody else changed are written again. Threads that come into a container from outside, as by `kubectl exec`, are
    /// moved with the next call; what a container's threads clone is in its group by itself.
    pub fn keep_classes(&mut self, wanted: &[WantedClass], counted: &[ContainerId]) -> Vec<ClassOutcome> {
        if let AnyBackend::Simulated(simulation) = &mut self.backend {
            let path = |&id: &ContainerId| Some((id, self.targets.get(&Target::Container(id))?.path.clone()));
            return simulation.resctrl.keep(wanted, counted.iter().filter_map(path).collect());
        }
        let cgroups = Cgroups {
            targets: &self.targets,
            backend: &self.backend,
            hierarchies: &self.hierarchies,
            trees: &self.trees,
        };
        let wants = !wanted.is_empty() || !counted.is_empty();
        if !wants && self.classes.is_swept && self.classes.kept.is_none() {
            return Vec::new();
        }
        let full = self.classes.full;
        match self.classes.ready(&self.backend, self.file_budget, wants) {
            Ok(Some(kept)) => {
                let outcomes = kept.keep(wanted, counted, full, &cgroups);
                self.classes.is_swept = true;
                outcomes
            }
            Ok(None) => {
                self.classes.is_swept = true;
                Vec::new()
            }
            Err(why) => {
                let outcome = |_: &WantedClass| ClassOutcome { why: why.clone(), ..ClassOutcome::default() };
                wanted.iter().map(outcome).collect()
            }
        }
    }

    /// The domains that are online; none while resctrl is not there or not mounted.
    pub fn cache_domains(&mut self) -> Vec<Domain> {
        if let AnyBackend::Simulated(simulation) = &self.backend {
            return simulation.resctrl.domains();
        }
        match self.classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(kept)) => kept.domains().to_vec(),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// Counters, with the traffic since the last call: of the classes and containers of the last [`Host::keep_classes`], and of all that is
    /// in no class. The first reading of a group has no traffic.
    pub fn read_resctrl(&mut self) -> ResctrlReading {
        if let AnyBackend::Simulated(simulation) = &mut self.backend {
            return simulation.resctrl.read();
        }
        match self.classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(kept)) => kept.read(),
            Ok(None) | Err(_) => ResctrlReading::default(),
        }
    }

    /// Names every group of qosm's, also those that an earlier process left: what [`Host::clear_classes`] would remove. None where resctrl is
    /// not mounted.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`] for what cannot be listed.
    pub fn class_groups(&mut self) -> Result<Vec<String>, ResctrlError> {
        match self.classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(kept)) => kept.present(),
            Ok(None) | Err(_) => Ok(Vec::new()),
        }
    }

    /// Removes every group of qosm's, also those that an earlier process left; threads go to the root. Unmounts resctrl if it was mounted
    /// by [`Host::keep_classes`] and nobody else has a group. Names what was removed: nothing, and without an error, where resctrl is not
    /// mounted.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`], [`ResctrlError::Unmount`]; [`ResctrlError::Remove`] and [`ResctrlError::ReadOnly`] for the first group that
    /// cannot be removed, while the others are.
    pub fn clear_classes(&mut self) -> Result<Vec<String>, ResctrlError> {
        let AnyBackend::Kernel(kernel) = &self.backend else { return Ok(Vec::new()) };
        self.classes.forget_if_gone();
        let kept = match self.classes.kept.take() {
            Some(kept) => Some(kept),
            None => self.classes.open(kernel.handed_in(), self.file_budget, false)?,
        };
        match kept {
            Some(kept) => kept.clear(),
            None => Ok(Vec::new()),
        }
    }
}

impl Classes {
    /// `None` where it is not mounted and nobody wants it to be, else why it cannot be had.
    fn ready(&mut self, backend: &AnyBackend, files: usize, wants: bool) -> Result<Option<&mut Kept>, String> {
        let AnyBackend::Kernel(kernel) = backend else {
            return Err("a simulated node has no resctrl".to_owned());
        };
        self.forget_if_gone();
        if self.kept.is_none() {
            // What nobody wanted until now is looked for at once.
            if self.pause > 0 && (self.failures > 0 || !wants) {
                self.pause -= 1;
                return if wants { Err(self.missing.clone()) } else { Ok(None) };
            }
            match self.open(kernel.handed_in(), files, wants) {
                Ok(Some(kept)) => {
                    tracing::info!(path = kept.path(), "resctrl found");
                    self.kept = Some(kept);
                    self.failures = 0;
                }
                Ok(None) if !wants => {
                    self.pause = CALLS_UNTIL_RETRY;
                    return Ok(None);
                }
                Ok(None) => return Err(self.fail(String::new())),
                Err(error) => {
                    let why = error.told();
                    return Err(self.fail(why));
                }
            }
        }
        Ok(self.kept.as_deref_mut())
    }

    /// The first try after a failure is the next call.
    fn fail(&mut self, why: String) -> String {
        self.pause = (1 << self.failures) - 1;
        self.failures = (self.failures + 1).min(MOST_FAILURES);
        if !why.is_empty() {
            self.missing = why;
        }
        self.missing.clone()
    }

    fn forget_if_gone(&mut self) {
        if self.kept.as_ref().is_some_and(|kept| !kept.is_there()) {
            tracing::warn!("resctrl is not mounted any more where it was");
            self.kept = None;
            self.pause = 0;
        }
    }

    /// `None` where it cannot be had, for the reason that is then [`Classes::missing`].
    fn open(
        &mut self,
        directories: &Directories,
        files: usize,
        may_mount: bool,
    ) -> Result<Option<Box<Kept>>, ResctrlError> {
        let found = if may_mount {
            detect(&directories.proc, self.at.as_deref())?
        } else {
            match find_mount(&directories.proc, self.at.as_deref())? {
                Some(found) => found,
                None => return Ok(None),
            }
        };
        let (path, options, is_emulated, is_own_mount) = match found {
            Availability::Mounted { path, options, is_emulated } => (path, options, is_emulated, false),
            Availability::NotMounted { path } if path == USUAL_PATH && may_mount => {
                drop(mount(&directories.sys)?);
                tracing::info!(path, "resctrl mounted");
                (path, MountOptions::default(), false, true)
            }
            missing => {
                self.missing = format!("resctrl is {missing}");
                return Ok(None);
            }
        };
        let (place, root) = Place::open(&path, &directories.sys)?;
        let vendor = if is_emulated { Vendor::of_emulation(&root) } else { Processor::read(&directories.proc)?.vendor };
        let groups = Groups::open(root, &path, vendor, options)?;
        Ok(Some(Box::new(Kept::new(place, groups, is_own_mount, files / 4))))
    }
}
