//! The node's kernel: cgroup v1 and v2, pressure and `/proc`, over directories that it is handed.
//!
//! [`Host`] finds a pod's cgroups ([`Host::pod_path`]), keeps their files open ([`Host::attach`]), reads measurements, and moves
//! knobs: [`Host::plan`] turns wanted values into steps in an order that the kernel accepts at each of them, and
//! [`Host::execute`] carries one out. It moves pages between NUMA nodes on a thread of its own ([`Host::migrate`]), and waits on
//! another for what cannot wait ([`Host::start_alarms`]). What the host does with a knob stands in [`knob_table`]; the same host runs
//! on a node in memory ([`simulated`]) that refuses what a kernel refuses.
//!
//! Where a kernel lacks background reclaim but has `memory.reclaim`, the host stands in for it: it keeps the watermarks itself and
//! a thread of its own does what the kernel would; [`Host::support`] says so.
//!
//! Parts of caches and of memory bandwidth ([`resctrl`]) are no knobs of cgroups but groups of threads: [`Host::keep_classes`] is handed
//! all classes that are wanted, makes the kernel's groups so, and moves threads; [`Host::read_resctrl`] counts.
//!
//! It never learns who wants a value or why, holds no state that the kernel does not hold too, except these watermarks and what the
//! kernel refused lately, and reads no clock outside of that thread.
//!
//! ```
//! use qosm_host::{Host, Executed, Wanted, simulated::Spec};
//! use qosm_model::{knob::{Knob, Target, Value}, pod::PodId};
//!
//! let mut host = Host::simulated(&Spec::default())?;
//! let pod = Target::Pod(PodId(1));
//! host.create("kubepods/burstable/podu1")?;
//! host.attach(pod, "kubepods/burstable/podu1")?;
//! let plan = host.plan(&[
//!     Wanted { target: pod, knob: Knob::CfsQuota, value: Value::Number(200_000) },
//!     Wanted { target: pod, knob: Knob::CfsBurst, value: Value::Number(2_000_000) },
//! ]);
//! // This kernel wants the burst within the quota, and the quota to be there first.
//! assert_eq!(plan.clamped[0].given, Value::Number(200_000));
//! assert_eq!(plan.steps.iter().map(|step| step.knob).collect::<Vec<_>>(), [Knob::CfsQuota, Knob::CfsBurst]);
//! for step in &plan.steps {
//!     assert_eq!(host.execute(step)?, Executed::Done(Value::Number(200_000)));
//! }
//! # Ok::<(), qosm_host::HostError>(())
//! ```

mod alarm;
mod backend;
mod emulation;
mod error;
mod facts;
mod kernel;
pub mod knob_table;
mod knobs;
pub mod layout;
mod migration;
pub mod mounts;
mod numa;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod parking;
pub mod parse;
mod plan;
mod probe;
mod provision;
mod reclaim;
pub mod resctrl;
mod search;
mod signals;
pub mod simulated;
mod targets;
mod weight;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use cap_std::fs::Dir;
use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use rustc_hash::FxHashMap;

pub use alarm::Throttleable;
pub use error::HostError;
pub use facts::{Capabilities, ControllerFact, HostFacts, KnobFact};
pub use knobs::{Executed, KnobFile, Support};
pub use layout::{Driver, DriverSource, LayoutOptions};
pub use migration::MigrationLimits;
pub use mounts::{CgroupVersion, Controller};
pub use plan::{Clamp, Plan, Step, Wanted};
pub use probe::BurstRule;
pub use reclaim::FreePages;
pub use reclaim::reclaimer::ReclaimReport;
pub use signals::Bandwidth;

use alarm::Alarms;
use backend::{AnyBackend, Area, Backend as _, join};
use emulation::Emulated;
use facts::NodeFacts;
use knobs::PendingWrite;
use migration::Run;
use mounts::Hierarchies;
use parking::Parking;
use probe::Probe;
use search::Misses;
use signals::NodeFiles;
use targets::Attached;

/// All that the host can reach. Nothing else is ever opened.
#[derive(Debug)]
pub struct Directories {
    /// The node's `/sys/fs/cgroup`.
    pub cgroup: Dir,
    /// `/proc`.
    pub proc: Dir,
    /// `/sys`.
    pub sys: Dir,
}

/// Where cgroups are, as names in messages begin.
pub(crate) const CGROUP_DIRECTORY: &str = "/sys/fs/cgroup";

/// The node's kernel. One at a time should write; it is handed around by `&mut`.
pub struct Host {
    pub(crate) backend: AnyBackend,
    pub(crate) hierarchies: Hierarchies,
    /// Hierarchies that carry a controller, the one with the CPU controller first.
    pub(crate) trees: Vec<usize>,
    pub(crate) layout: Layout,
    pub(crate) node: NodeFacts,
    pub(crate) probe: Probe,
    /// Looked up at each read, so the table is kept small, with what is large elsewhere. The keys are ids that the agent gave out
    /// itself: nobody can make them collide.
    pub(crate) targets: FxHashMap<Target, Box<Attached>>,
    pub(crate) by_path: HashMap<String, Target>,
    pub(crate) kept_files: usize,
    pub(crate) file_budget: usize,
    pub(crate) buffer: Vec<u8>,
    pub(crate) node_files: NodeFiles,
    pub(crate) parking: Parking,
    pub(crate) pending: HashMap<u64, PendingWrite>,
    pub(crate) next_ticket: u64,
    pub(crate) emulated: HashMap<Target, Emulated>,
    pub(crate) misses: Misses,
    pub(crate) migrations: BTreeMap<ContainerId, Arc<Run>>,
    pub(crate) migration_limits: MigrationLimits,
    pub(crate) alarms: Option<Alarms>,
    pub(crate) classes: resctrl::Classes,
}

/// The layout that was found at the start.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) driver: Driver,
    pub(crate) source: DriverSource,
    /// `cgroupRoot` without slashes around it.
    pub(crate) root: String,
    pub(crate) kubepods: String,
    /// The root was given: cgroups are not looked for outside of it.
    pub(crate) confined: bool,
}

impl Host {
    /// Opens the node: finds the hierarchies and the layout, and tries the kernel's rules out in a scratch cgroup that it removes.
    ///
    /// # Errors
    ///
    /// [`HostError::Read`] for `/proc/self/mountinfo` or a hierarchy's directory, [`HostError::NoHierarchy`] if neither `cpu` nor
    /// `memory` is mounted. That no scratch cgroup can be made is no error; [`HostFacts::unprobed`] tells.
    pub fn open(directories: Directories, options: &LayoutOptions) -> Result<Self, HostError> {
        Self::build(AnyBackend::Kernel(kernel::Kernel::new(directories)), options)
    }

    /// A node in memory.
    ///
    /// # Errors
    ///
    /// [`HostError::Make`] for a cgroup that cannot be.
    pub fn simulated(spec: &simulated::Spec) -> Result<Self, HostError> {
        let simulation = simulated::Simulation::new(spec)
            .map_err(|source| HostError::Make { path: CGROUP_DIRECTORY.to_owned(), source })?;
        let options =
            LayoutOptions { driver: spec.driver, cgroup_root: spec.cgroup_root.clone(), kubelet_config: None };
        Self::build(AnyBackend::Simulated(simulation), &options)
    }

    /// The simulated node, to do to it what others would; `None` on a real one.
    pub fn simulated_mut(&mut self) -> Option<&mut simulated::Simulation> {
        match &mut self.backend {
            AnyBackend::Simulated(simulation) => Some(simulation),
            AnyBackend::Kernel(_) => None,
        }
    }

    fn build(mut backend: AnyBackend, options: &LayoutOptions) -> Result<Self, HostError> {
        let mountinfo = backend
            .read_once(Area::Proc, "self/mountinfo")
            .map_err(|source| HostError::Read { path: "/proc/self/mountinfo".to_owned(), source })?;
        let mounts = mounts::parse(&String::from_utf8_lossy(&mountinfo));
        let prefix = mounts::prefix(&mounts, backend.cgroup_device());
        let mut hierarchies = Hierarchies::find(&mounts, &prefix);
        backend.bind(&hierarchies.list).map_err(|source| HostError::Read { path: prefix.clone(), source })?;
        if let Some(unified) = hierarchies.unified() {
            let path = "cgroup.controllers";
            let text = backend
                .read_once(Area::Cgroup(unified), path)
                .map_err(|source| HostError::Read { path: format!("{prefix}/{path}"), source })?;
            hierarchies.set_unified(unified, &String::from_utf8_lossy(&text));
        }
        let mut trees = hierarchies.carrying(&Controller::ALL);
        trees.sort_by_key(|&tree| (hierarchies.of(Controller::Cpu) != Some(tree), tree));
        if hierarchies.carrying(&[Controller::Cpu, Controller::Memory]).is_empty() {
            return Err(HostError::NoHierarchy { prefix });
        }
        let node = NodeFacts::read(&backend, &mounts);
        let file_budget = backend.file_budget();
        let layout = Layout {
            driver: Driver::Cgroupfs,
            source: DriverSource::Assumed,
            root: options.root(),
            kubepods: String::new(),
            confined: false,
        };
        let mut host = Self {
            backend,
            hierarchies,
            trees,
            layout,
            node,
            probe: Probe::default(),
            targets: FxHashMap::default(),
            by_path: HashMap::new(),
            kept_files: 0,
            file_budget,
            buffer: vec![0; 4096],
            node_files: NodeFiles::default(),
            parking: Parking::default(),
            pending: HashMap::new(),
            next_ticket: 0,
            emulated: HashMap::new(),
            misses: Misses::default(),
            migrations: BTreeMap::new(),
            migration_limits: MigrationLimits::default(),
            alarms: None,
            classes: resctrl::Classes::default(),
        };
        host.find_layout(options);
        host.probe_kernel();
        Ok(host)
    }

    /// Makes a cgroup, and those above it, in every hierarchy with `cpu`, `cpuacct` or `memory`. On v2 the `cpu` and `memory`
    /// controllers are turned on in each cgroup above it. One that exists is left as it is.
    ///
    /// # Errors
    ///
    /// [`HostError::Path`] for a path that leads nowhere, [`HostError::ReadOnly`], [`HostError::Make`] with what the kernel said;
    /// what was made until then stays.
    pub fn create(&mut self, path: &str) -> Result<(), HostError> {
        let path = targets::clean(path)?;
        for tree in self.made_in() {
            let unified = self.hierarchies.list[tree].version == CgroupVersion::V2;
            let mut above = String::new();
            for part in path.split('/') {
                if unified {
                    self.delegate(tree, &above)?;
                }
                above = join(&above, part);
                match self.backend.make(Area::Cgroup(tree), &above) {
                    Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(source) => return Err(self.cannot_make(self.directory_path(tree, &above), source)),
                    Ok(()) => {}
                }
            }
        }
        // On v2 the first cgroup may be what turns the controllers on that the scratch cgroup lacked.
        if !self.probe.is_settled() {
            self.probe_kernel();
        }
        Ok(())
    }

    /// Removes a cgroup from the hierarchies in which [`Host::create`] makes it. None there is no error.
    ///
    /// # Errors
    ///
    /// [`HostError::Remove`] with the first refusal, e.g. `EBUSY` while it has processes or cgroups below it.
    pub fn remove(&mut self, path: &str) -> Result<(), HostError> {
        let path = targets::clean(path)?;
        let mut refusal = Ok(());
        for tree in self.made_in() {
            match self.backend.remove(Area::Cgroup(tree), &path) {
                Err(source) if !error::is_absent(&source) && refusal.is_ok() => {
                    refusal = Err(HostError::Remove { path: self.directory_path(tree, &path), source });
                }
                _ => {}
            }
        }
        refusal
    }

    fn made_in(&self) -> Vec<usize> {
        self.hierarchies.carrying(&[Controller::Cpu, Controller::Cpuacct, Controller::Memory])
    }

    fn delegate(&mut self, tree: usize, path: &str) -> Result<(), HostError> {
        let read = |name| self.backend.read_once(Area::Cgroup(tree), &join(path, name)).unwrap_or_default();
        let (available, enabled) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
        let has = |list: &[u8], name: &str| {
            list.split(u8::is_ascii_whitespace).any(|controller| controller == name.as_bytes())
        };
        let file = join(path, "cgroup.subtree_control");
        for name in ["cpu", "memory"] {
            if has(&available, name) && !has(&enabled, name) {
                self.backend
                    .write(Area::Cgroup(tree), &file, &format!("+{name}"))
                    .map_err(|source| self.cannot_make(self.directory_path(tree, &file), source))?;
            }
        }
        Ok(())
    }

    fn cannot_make(&self, path: String, source: io::Error) -> HostError {
        if error::is(&source, rustix::io::Errno::ROFS) {
            HostError::ReadOnly { path }
        } else {
            HostError::Make { path, source }
        }
    }

    /// The absolute name of a directory or file in a hierarchy, as on the node itself.
    pub(crate) fn directory_path(&self, tree: usize, path: &str) -> String {
        let mount = self.hierarchies.list.get(tree).map_or("", |hierarchy| hierarchy.mount.as_str());
        let mut absolute = CGROUP_DIRECTORY.to_owned();
        for part in [mount, path] {
            if !part.is_empty() {
                absolute.push('/');
                absolute.push_str(part);
            }
        }
        absolute
    }
}
