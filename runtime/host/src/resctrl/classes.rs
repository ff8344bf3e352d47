//! Classes on the host: resctrl is detected and mounted when a class or a counted container first needs it.

use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassOutcome, Domain, ResctrlReading, WantedClass};

use super::availability::{Availability, MountOptions, Processor, USUAL_PATH, Vendor, detect, find_mount, mount};
use super::error::ResctrlError;
use super::groups::Groups;
use super::members::Cgroups;
use super::mount::Mount;
use super::reconciler::ClassReconciler;
use crate::backend::AnyBackend;
use crate::{Directories, Host};

/// Number of calls after which resctrl is detected again while nothing needs it.
const CALLS_UNTIL_RETRY: u8 = 16;

/// Number of consecutive failures after which the pause between tries no longer grows.
const MAX_FAILURES: u8 = 5;

/// Configuration of resctrl, and the reconciler once resctrl is mounted.
#[derive(Default)]
pub(crate) struct LazyReconciler {
    at: Option<String>,
    full: Option<u32>,
    reconciler: Option<Box<ClassReconciler>>,
    /// The groups of an earlier process have been removed.
    is_swept: bool,
    /// Why resctrl is unavailable.
    missing: String,
    failures: u8,
    pause: u8,
}

impl Host {
    /// Whether this machine has resctrl. Only reads `/proc`, mounts nothing. A simulated node has no resctrl.
    ///
    /// # Errors
    ///
    /// As [`detect`].
    pub fn resctrl(&self) -> Result<Availability, ResctrlError> {
        match &self.backend {
            AnyBackend::Kernel(kernel) => detect(&kernel.handed_in().proc, self.resctrl_classes.at.as_deref()),
            AnyBackend::Simulated(_) => Ok(Availability::NoHardware { vendor: Vendor::default() }),
        }
    }

    /// Sets the mount point of resctrl; `None` for the machine's own. Only needed for an emulation. Call it before
    /// reconciling any class.
    pub fn use_resctrl_at(&mut self, path: Option<String>) {
        self.resctrl_classes.at = path;
    }

    /// Sets the bandwidth of all cores of a cache together, in MB/s. Processors do not report it; where the unit of
    /// bandwidth is not percent, percentages are computed from it. `None` means 20 000 MB/s on AMD; if resctrl is
    /// mounted with `mba_MBps`, percentages are then unavailable.
    pub fn set_full_bandwidth(&mut self, full: Option<u32>) {
        self.resctrl_classes.full = full;
    }

    /// Reconciles control groups, their schemata, members and monitor groups with the wanted classes, in order of
    /// precedence, and with the containers to count, sorted. Both lists are complete: groups of classes that are no
    /// longer wanted are removed, and their threads go to the root. Returns an outcome for each class, in the same
    /// order.
    ///
    /// The first call with a class or container mounts resctrl, if it is not mounted. Groups of an earlier process are
    /// adopted by name. A class gets a group with its first member. If no CLOSID is left, it shares the group of a
    /// class with equal schemata, or takes that of the last class of lower precedence; else it is not in force, and
    /// each call tries again.
    ///
    /// Schemata that another program changed are written again. Threads that enter a container from outside, as by
    /// `kubectl exec`, are moved by the next call; clones of a container's threads start in its group.
    pub fn reconcile_classes(&mut self, wanted: &[WantedClass], counted: &[ContainerId]) -> Vec<ClassOutcome> {
        if let AnyBackend::Simulated(simulation) = &mut self.backend {
            let path = |&id: &ContainerId| Some((id, self.targets.get(&Target::Container(id))?.path.clone()));
            return simulation.resctrl.reconcile(wanted, counted.iter().filter_map(path).collect());
        }
        let cgroups = Cgroups {
            targets: &self.targets,
            backend: &self.backend,
            hierarchies: &self.hierarchies,
            trees: &self.trees,
        };
        let wants = !wanted.is_empty() || !counted.is_empty();
        if !wants && self.resctrl_classes.is_swept && self.resctrl_classes.reconciler.is_none() {
            return Vec::new();
        }
        let full = self.resctrl_classes.full;
        match self.resctrl_classes.ready(&self.backend, self.file_budget, wants) {
            Ok(Some(reconciler)) => {
                let outcomes = reconciler.reconcile(wanted, counted, full, &cgroups);
                self.resctrl_classes.is_swept = true;
                outcomes
            }
            Ok(None) => {
                self.resctrl_classes.is_swept = true;
                Vec::new()
            }
            Err(why) => {
                let outcome = |_: &WantedClass| ClassOutcome { why: why.clone(), ..ClassOutcome::default() };
                wanted.iter().map(outcome).collect()
            }
        }
    }

    /// For each of these containers that an earlier process left in the group of a wanted class: the place of this class among the wanted
    /// ones. The simulation has no earlier process.
    pub fn classes_found(&mut self, wanted: &[WantedClass], containers: &[ContainerId]) -> Vec<(ContainerId, usize)> {
        if matches!(self.backend, AnyBackend::Simulated(_)) {
            return Vec::new();
        }
        let cgroups = Cgroups {
            targets: &self.targets,
            backend: &self.backend,
            hierarchies: &self.hierarchies,
            trees: &self.trees,
        };
        match self.resctrl_classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(reconciler)) => reconciler.found(wanted, containers, &cgroups),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// The online domains; none while resctrl is not mounted.
    pub fn cache_domains(&mut self) -> Vec<Domain> {
        if let AnyBackend::Simulated(simulation) = &self.backend {
            return simulation.resctrl.domains();
        }
        match self.resctrl_classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(reconciler)) => reconciler.domains().to_vec(),
            Ok(None) | Err(_) => Vec::new(),
        }
    }

    /// Counters, with the traffic since the last call: of the classes and containers of the last
    /// [`Host::reconcile_classes`], and of all threads in no class. The first reading of a group has no traffic.
    pub fn read_resctrl(&mut self) -> ResctrlReading {
        if let AnyBackend::Simulated(simulation) = &mut self.backend {
            return simulation.resctrl.read();
        }
        match self.resctrl_classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(reconciler)) => reconciler.read(),
            Ok(None) | Err(_) => ResctrlReading::default(),
        }
    }

    /// Names of all of qosm's groups, including those of an earlier process: the groups that [`Host::clear_classes`]
    /// would remove. Empty if resctrl is not mounted.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`] if the groups cannot be listed.
    pub fn class_groups(&mut self) -> Result<Vec<String>, ResctrlError> {
        match self.resctrl_classes.ready(&self.backend, self.file_budget, false) {
            Ok(Some(reconciler)) => reconciler.present(),
            Ok(None) | Err(_) => Ok(Vec::new()),
        }
    }

    /// Removes all of qosm's groups, including those of an earlier process; threads go to the root. Unmounts resctrl if
    /// [`Host::reconcile_classes`] mounted it and no other program has a group. Returns the names of the removed
    /// groups; none, and no error, if resctrl is not mounted.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`], [`ResctrlError::Unmount`]; [`ResctrlError::Remove`] and [`ResctrlError::ReadOnly`] for
    /// the first group that cannot be removed, after removing the others.
    pub fn clear_classes(&mut self) -> Result<Vec<String>, ResctrlError> {
        let AnyBackend::Kernel(kernel) = &self.backend else { return Ok(Vec::new()) };
        self.resctrl_classes.forget_if_gone();
        let reconciler = match self.resctrl_classes.reconciler.take() {
            Some(reconciler) => Some(reconciler),
            None => self.resctrl_classes.open(kernel.handed_in(), self.file_budget, false)?,
        };
        match reconciler {
            Some(reconciler) => reconciler.clear(),
            None => Ok(Vec::new()),
        }
    }
}

impl LazyReconciler {
    /// The reconciler; `None` if resctrl is not mounted and nothing needs it, an error with the reason if it is unavailable.
    fn ready(
        &mut self,
        backend: &AnyBackend,
        files: usize,
        wants: bool,
    ) -> Result<Option<&mut ClassReconciler>, String> {
        let AnyBackend::Kernel(kernel) = backend else {
            return Err("a simulated node has no resctrl".to_owned());
        };
        self.forget_if_gone();
        if self.reconciler.is_none() {
            // The first need after idle calls is not delayed.
            if self.pause > 0 && (self.failures > 0 || !wants) {
                self.pause -= 1;
                return if wants { Err(self.missing.clone()) } else { Ok(None) };
            }
            match self.open(kernel.handed_in(), files, wants) {
                Ok(Some(reconciler)) => {
                    tracing::info!(path = reconciler.path(), "resctrl found");
                    self.reconciler = Some(reconciler);
                    self.failures = 0;
                }
                Ok(None) if !wants => {
                    self.pause = CALLS_UNTIL_RETRY;
                    return Ok(None);
                }
                Ok(None) => return Err(self.fail(String::new())),
                Err(error) => {
                    let why = error.full_message();
                    return Err(self.fail(why));
                }
            }
        }
        Ok(self.reconciler.as_deref_mut())
    }

    /// Records a failure. After the first one, the next call tries again.
    fn fail(&mut self, why: String) -> String {
        self.pause = (1 << self.failures) - 1;
        self.failures = (self.failures + 1).min(MAX_FAILURES);
        if !why.is_empty() {
            self.missing = why;
        }
        self.missing.clone()
    }

    fn forget_if_gone(&mut self) {
        if self.reconciler.as_ref().is_some_and(|reconciler| !reconciler.is_mounted()) {
            tracing::warn!("resctrl is not mounted any more where it was");
            self.reconciler = None;
            self.pause = 0;
        }
    }

    /// `None` if resctrl is unavailable, with the reason in [`LazyReconciler::missing`].
    fn open(
        &mut self,
        directories: &Directories,
        files: usize,
        may_mount: bool,
    ) -> Result<Option<Box<ClassReconciler>>, ResctrlError> {
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
        let (mount, root) = Mount::open(&path, &directories.sys)?;
        let vendor = if is_emulated { Vendor::of_emulation(&root) } else { Processor::read(&directories.proc)?.vendor };
        let groups = Groups::open(root, &path, vendor, options)?;
        Ok(Some(Box::new(ClassReconciler::new(mount, groups, is_own_mount, files / 4))))
    }
}
