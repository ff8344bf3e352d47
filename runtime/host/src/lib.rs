//! Access to the node's kernel: cgroup v1 and v2, pressure and `/proc`, through directories that the caller passes in.
//!
//! [`Host`] finds a pod's cgroups ([`Host::pod_path`]), keeps their files open ([`Host::attach`]), reads measurements,
//! and sets knobs: [`Host::plan`] turns wanted values into steps in an order that the kernel accepts at each of them,
//! and [`Host::execute`] carries one out. It moves pages between NUMA nodes on a thread of its own ([`Host::migrate`]),
//! and waits for alarms on another ([`Host::start_alarms`]). [`knob_table`] describes what the host does with a knob;
//! the same host runs on a simulated node ([`simulated`]) that refuses what a kernel refuses.
//!
//! Where a kernel lacks background reclaim but has `memory.reclaim`, the host emulates it: it stores the watermarks and
//! reclaims on a thread of its own; [`Host::support`] then returns `Emulated`.
//!
//! Shares of caches and of memory bandwidth ([`resctrl`]) belong to groups of threads instead of cgroups:
//! [`Host::reconcile_classes`] takes all wanted classes, reconciles the kernel's groups with them, and moves threads;
//! [`Host::read_resctrl`] reads the counters.
//!
//! The host does not know policies or reasons, holds no state beside the kernel's except these watermarks and recent
//! refusals, and reads clocks only on its own threads.
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
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod alarm;
mod backend;
mod block_devices;
mod core_scheduling;
mod counter_files;
mod cpu_limit;
mod cpu_topology;
mod error;
mod facts;
mod family;
#[cfg(any(test, fuzzing))]
pub mod fuzz_checks;
mod group_identity;
mod kernel;
pub mod knob_table;
mod knobs;
pub mod layout;
mod lock;
mod migration;
pub mod mounts;
pub mod node_knobs;
mod node_use;
mod numa;
mod own_memory;
mod ownership;
pub mod parse;
mod plan;
mod probe;
mod processes;
mod provision;
mod reclaim;
pub mod resctrl;
mod resident;
mod search;
mod signals;
pub mod simulated;
mod software_watermarks;
mod targets;
mod weight;
mod write_backoff;
mod writes;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use cap_std::fs::Dir;
use qosm_model::knob::Target;
use qosm_model::pod::ContainerId;
use rustc_hash::FxHashMap;

pub use alarm::{Fired, Throttleable};
pub use block_devices::MountedVolume;
pub use core_scheduling::{CoreGroupProblem, CoreGroupReport, CoreScheduling, schedules_by_cores};
pub use counter_files::BurstCounters;
pub use cpu_topology::{CpuManagerState, CpuOwner};
pub use error::HostError;
pub use facts::{Capabilities, ControllerFact, HostFacts, KnobFact};
pub use family::Relative;
pub use knobs::{Executed, KnobFile, Support};
pub use layout::{Driver, DriverSource, LayoutOptions};
pub use lock::RootLock;
pub use migration::{MigrationLimits, MoverAddress, MoverConfinement, MoverState, send_mover_exit};
pub use mounts::{CgroupVersion, Controller};
pub use own_memory::own_memory_left;
pub use plan::{Baselines, Clamp, Plan, Step, Wanted};
pub use probe::BurstRule;
pub use processes::Ending;
pub use reclaim::FreePages;
pub use reclaim::reclaimer::ReclaimReport;
pub use resident::{Released, release_unused_memory};
pub use signals::{Bandwidth, OwnUse};

use alarm::Alarms;
use backend::{AnyBackend, Area, Backend as _, join};
use block_devices::KnownDevices;
use cpu_topology::KnownCpus;
use facts::NodeFacts;
use knobs::PendingWrite;
use migration::Run;
use mounts::Hierarchies;
use probe::Probe;
use search::NegativeCache;
use signals::NodeFiles;
use software_watermarks::SoftwareWatermarks;
use targets::Attached;
use write_backoff::WriteBackoff;
use writes::Writes;

/// Directories that the host can access. The host opens nothing else.
#[derive(Debug)]
pub struct Directories {
    /// The node's `/sys/fs/cgroup`.
    pub cgroup: Dir,
    /// `/proc`.
    pub proc: Dir,
    /// `/sys`.
    pub sys: Dir,
    /// The kubelet's folder (`--root-dir`), for the state of its CPU manager; `None` if the host does not read that state.
    pub kubelet: Option<Dir>,
    /// Directory through which `/proc/sys`, or a part of it, is writable; `None` to use `proc`. A container's `/proc/sys` is read-only.
    pub sysctl: Option<Dir>,
}

/// The mount point of cgroups, as it appears in messages.
pub(crate) const CGROUP_DIRECTORY: &str = "/sys/fs/cgroup";

/// The node's kernel. Only one `Host` should write to a node.
pub struct Host {
    pub(crate) backend: AnyBackend,
    pub(crate) hierarchies: Hierarchies,
    /// Hierarchies that carry a controller, the one with the CPU controller first.
    pub(crate) trees: Vec<usize>,
    pub(crate) layout: Layout,
    pub(crate) node: NodeFacts,
    pub(crate) probe: Probe,
    /// Read on every access, so the table stays small and large values are boxed. The agent assigns the ids that are
    /// the keys, so collisions cannot be forced.
    pub(crate) targets: FxHashMap<Target, Box<Attached>>,
    pub(crate) by_path: HashMap<String, Target>,
    /// Hierarchy and inode of every attached directory.
    pub(crate) by_inode: HashMap<(usize, u64), Target>,
    /// Counts ticks; see [`Host::begin_tick`].
    pub(crate) tick: u32,
    pub(crate) open_file_count: usize,
    pub(crate) file_budget: usize,
    pub(crate) buffer: Vec<u8>,
    pub(crate) node_files: NodeFiles,
    pub(crate) known_cpus: KnownCpus,
    pub(crate) known_devices: KnownDevices,
    pub(crate) write_backoff: WriteBackoff,
    pub(crate) pending: HashMap<u64, PendingWrite>,
    pub(crate) next_ticket: u64,
    pub(crate) software_watermarks: HashMap<Target, SoftwareWatermarks>,
    pub(crate) negative_cache: NegativeCache,
    /// Cgroups of containers, by the container IDs of the pod status.
    pub(crate) named_cgroups: HashMap<String, String>,
    pub(crate) migrations: BTreeMap<ContainerId, Arc<Run>>,
    pub(crate) migration_limits: MigrationLimits,
    pub(crate) alarms: Option<Alarms>,
    pub(crate) writes: Option<Writes>,
    pub(crate) resctrl_classes: resctrl::LazyReconciler,
    pub(crate) core_groups: core_scheduling::CoreGroups,
}

/// The cgroup layout that the host found at the start.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) driver: Driver,
    pub(crate) source: DriverSource,
    /// `cgroupRoot` without leading and trailing slashes.
    pub(crate) root: String,
    pub(crate) kubepods: String,
    /// `cgroupRoot` is configured: the host does not search cgroups outside of it.
    pub(crate) confined: bool,
}

impl Host {
    /// Opens the node: finds the hierarchies and the layout, and probes the kernel's rules in a scratch cgroup that it removes.
    ///
    /// # Errors
    ///
    /// [`HostError::Read`] for `/proc/self/mountinfo` or a hierarchy's directory, [`HostError::NoHierarchy`] if neither
    /// `cpu` nor `memory` is mounted. Failing to create the scratch cgroup is no error; see [`HostFacts::unprobed`].
    pub fn open(directories: Directories, options: &LayoutOptions) -> Result<Self, HostError> {
        let mut host = Self::build(AnyBackend::Kernel(kernel::Kernel::new(directories)), options)?;
        host.probe_kernel();
        Ok(host)
    }

    /// Opens the node without probing, for callers that write no knob: nothing is written, and knobs that only a probe
    /// can detect count as unknown.
    ///
    /// # Errors
    ///
    /// As [`Host::open`].
    pub fn open_read_only(directories: Directories, options: &LayoutOptions) -> Result<Self, HostError> {
        Self::build(AnyBackend::Kernel(kernel::Kernel::new(directories)), options)
    }

    /// Opens a simulated node in memory.
    ///
    /// # Errors
    ///
    /// [`HostError::Make`] for a cgroup that cannot be created.
    pub fn simulated(spec: &simulated::Spec) -> Result<Self, HostError> {
        let simulation = simulated::Simulation::new(spec)
            .map_err(|source| HostError::Make { path: CGROUP_DIRECTORY.to_owned(), source })?;
        let options = LayoutOptions { driver: spec.driver, cgroup_root: spec.cgroup_root.clone() };
        let mut host = Self::build(AnyBackend::Simulated(Box::new(simulation)), &options)?;
        host.probe_kernel();
        Ok(host)
    }

    /// The simulation, to play the part of other programs and the kernel; `None` on a real node.
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
            by_inode: HashMap::new(),
            tick: targets::FIRST_TICK,
            open_file_count: 0,
            file_budget,
            buffer: vec![0; 4096],
            node_files: NodeFiles::default(),
            known_cpus: KnownCpus::default(),
            known_devices: KnownDevices::default(),
            write_backoff: WriteBackoff::default(),
            pending: HashMap::new(),
            next_ticket: 0,
            software_watermarks: HashMap::new(),
            negative_cache: NegativeCache::default(),
            named_cgroups: HashMap::new(),
            migrations: BTreeMap::new(),
            migration_limits: MigrationLimits::default(),
            alarms: None,
            writes: None,
            resctrl_classes: resctrl::LazyReconciler::default(),
            core_groups: core_scheduling::CoreGroups::default(),
        };
        host.find_layout(options);
        Ok(host)
    }

    /// Creates a cgroup and its ancestors in every hierarchy with `cpu`, `cpuacct` or `memory`. On v2 the `cpu` and
    /// `memory` controllers are enabled in each ancestor, and `io` in each ancestor except the root if the kernel
    /// accepts it. An existing cgroup is not changed.
    ///
    /// # Errors
    ///
    /// [`HostError::Path`] for an invalid path, [`HostError::ReadOnly`], [`HostError::Make`] with the kernel's error;
    /// cgroups created before the error stay.
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
        // On v2, creating the first cgroup may enable the controllers that the scratch cgroup lacked.
        if !self.probe.is_settled() {
            self.probe_kernel();
        }
        Ok(())
    }

    /// Removes a cgroup from the hierarchies in which [`Host::create`] creates it. A missing cgroup is no error.
    ///
    /// # Errors
    ///
    /// [`HostError::Remove`] with the first refusal, e.g. `EBUSY` while the cgroup has processes or children.
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

    /// Hierarchies in which [`Host::create`] creates cgroups.
    pub(crate) fn made_in(&self) -> Vec<usize> {
        let made = [Controller::Cpu, Controller::Cpuacct, Controller::Memory, Controller::Cpuset];
        self.hierarchies.carrying(if self.is_simulated() { &made } else { &made[..3] })
    }

    fn delegate(&mut self, tree: usize, path: &str) -> Result<(), HostError> {
        let read = |name| self.backend.read_once(Area::Cgroup(tree), &join(path, name)).unwrap_or_default();
        let (available, enabled) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
        let has = |list: &[u8], name: &str| {
            list.split(u8::is_ascii_whitespace).any(|controller| controller == name.as_bytes())
        };
        let file = join(path, "cgroup.subtree_control");
        // The simulation enables `cpuset` like a kubelet; on a real host without a kubelet, that is left to other
        // programs. `io` is only enabled below the root: whether the root enables it is up to the host.
        let is_simulated = self.is_simulated();
        let is_handed = |name: &str| match name {
            "cpuset" => is_simulated,
            "io" => is_simulated || !path.is_empty(),
            _ => true,
        };
        for name in ["cpu", "memory", "cpuset", "io"].into_iter().filter(|name| is_handed(name)) {
            if has(&available, name) && !has(&enabled, name) {
                match self.backend.write(Area::Cgroup(tree), &file, &format!("+{name}")) {
                    // A later write of an `io` knob reports what is missing; other knobs do not need `io`.
                    Err(source) if name != "io" => {
                        return Err(self.cannot_make(self.directory_path(tree, &file), source));
                    }
                    Ok(()) | Err(_) => {}
                }
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

    /// The absolute path of a directory or file in a hierarchy, as on the node itself.
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
