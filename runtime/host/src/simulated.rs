//! A simulated node in memory: cgroup hierarchies that refuse what the kernel refuses and print as the kernel prints.
//! For tests, for trying out a policy, and for replay.
//!
//! ```
//! use qosm_host::{Host, simulated::Spec};
//! use qosm_model::{knob::{Knob, Target, Value}, pod::Tier};
//!
//! let mut host = Host::simulated(&Spec::default())?;
//! host.create("kubepods")?;
//! host.attach(Target::Tier(Tier::Guaranteed), "kubepods")?;
//! assert_eq!(host.read(Target::Tier(Tier::Guaranteed), Knob::CfsQuota)?, Value::Max);
//! # Ok::<(), qosm_host::HostError>(())
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use qosm_model::column::{CpuCounters, MemoryCounters, PressureCounters, Stall};
use qosm_model::node::{GroupCounters, GroupMemory, NodeMemory};
use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, list_text};
use qosm_model::unit::{Bytes, Micros};
use rustix::io::Errno;
use slab::Slab;

use crate::backend::{Access, Area, Backend, FileId, Lowering, SlowWrite, join};
use crate::core_scheduling::helper::Hold;
use crate::core_scheduling::note::Note;
use crate::migration::{Job, Run};
use crate::mounts::{CgroupVersion, Controller, Hierarchy};
use crate::processes::Ending;
use crate::reclaim::Watermarks;
use crate::reclaim::reclaimer::{GroupId, ReclaimReport, Reclaimer};
use crate::{counter_files, parse};

mod block_io;
mod core_scheduling;
mod cpuset;
mod crash;
mod node_knobs;
mod numa;
mod readable;
mod reclaim;
mod resctrl;
mod rules;
mod slow;
mod spec;
mod tree;

pub use core_scheduling::CoreSchedulingKernel;
pub use crash::Crash;
pub use resctrl::{PlayedClass, PlayedResctrl};
pub use spec::{Kernel, Spec, Versions};

use reclaim::Place;
use rules::Rules;
use slow::SlowJob;
use tree::Tree;

/// A write by the host that the simulation accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The cgroup; for a node-wide knob, [`NODE_PATH`](crate::node_knobs::NODE_PATH).
    pub path: String,
    /// Name of the file.
    pub file: String,
    /// The written text.
    pub text: String,
}

struct OpenFile {
    area: Area,
    node: usize,
    inode: u64,
    name: String,
}

pub(crate) use numa::stat as numa_stat_text;

/// The simulated node. Its methods play the part of other programs and of the kernel, unnoticed by the agent; they
/// follow the kernel's rules unless stated otherwise.
pub struct Simulation {
    rules: Rules,
    trees: Vec<Tree>,
    files: Slab<OpenFile>,
    proc: BTreeMap<String, String>,
    sys: BTreeMap<String, String>,
    /// Files in the kubelet's folder.
    kubelet: BTreeMap<String, String>,
    cpus: u32,
    memory: Bytes,
    read_only: bool,
    writes: Vec<Write>,
    recording: bool,
    reclaimer: Reclaimer<Place>,
    now: Micros,
    /// The latest migration of each cgroup.
    migrations: BTreeMap<String, Arc<Run>>,
    pub(crate) resctrl: Box<resctrl::Played>,
    /// Slow writes stay in progress until [`Backend::finished`] takes their steps.
    stalled: bool,
    slow: VecDeque<SlowJob>,
    /// When the process that uses the simulation crashes.
    crash: Option<Crash>,
    /// A file that another writer writes right after the host's next write of it, and the text.
    other_writer: Option<(String, String)>,
    signals: Vec<(u32, Ending)>,
    is_forking: bool,
    cookies: core_scheduling::Cookies,
}

/// `USER_HZ` of the simulation.
const TICKS_PER_SECOND: u64 = 100;

impl Simulation {
    pub(crate) fn new(spec: &Spec) -> io::Result<Self> {
        let rules = Rules::new(spec);
        let v1 = spec.versions.on(CgroupVersion::V1);
        let v2 = spec.versions.on(CgroupVersion::V2);
        let mut mounts = String::new();
        let mut trees = Vec::new();
        if v1.is_empty() {
            mounts.push_str("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n");
            trees.push(Tree::new(String::new(), CgroupVersion::V2, v2, &rules));
        } else {
            mounts.push_str("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n");
            let mut rest = v1.as_slice();
            while let Some((&first, after)) = rest.split_first() {
                let together =
                    spec.co_mounted && first == Controller::Cpu && after.first() == Some(&Controller::Cpuacct);
                let (these, after) = rest.split_at(if together { 2 } else { 1 });
                rest = after;
                let names: Vec<_> = these.iter().map(|controller| controller.as_str()).collect();
                let name = names.join(",");
                mounts.push_str(&format!("32 31 0:29 / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}\n"));
                trees.push(Tree::new(name, CgroupVersion::V1, these.to_vec(), &rules));
            }
            if !v2.is_empty() {
                mounts.push_str("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
                trees.push(Tree::new("unified".to_owned(), CgroupVersion::V2, v2, &rules));
            }
        }
        let online = |count: u32| if count > 1 { format!("0-{}\n", count - 1) } else { "0\n".to_owned() };
        let mut proc = BTreeMap::from([
            ("self/mountinfo".to_owned(), mounts),
            ("self/status".to_owned(), "Name:\tqosm\nCapEff:\t000001ffffffffff\n".to_owned()),
            ("pressure/cpu".to_owned(), counter_files::pressure_text(Stall::default())),
        ]);
        proc.extend(node_knobs::proc_files(spec));
        proc.insert("partitions".to_owned(), block_io::partitions(&spec.devices));
        proc.extend(spec.proc.clone());
        let mut sys = BTreeMap::from([
            ("devices/system/cpu/online".to_owned(), online(spec.cpus)),
            ("devices/system/cpu/present".to_owned(), online(spec.cpus)),
            ("devices/system/node/online".to_owned(), online(spec.numa_nodes)),
        ]);
        sys.extend(numa::files(spec));
        sys.extend(node_knobs::sys_files(spec));
        sys.extend(block_io::sys_files(&spec.devices));
        sys.extend(spec.sys.clone());
        let mut simulation = Self {
            rules,
            trees,
            files: Slab::new(),
            proc,
            sys,
            kubelet: BTreeMap::new(),
            cpus: spec.cpus,
            memory: spec.memory,
            read_only: spec.read_only,
            writes: Vec::new(),
            recording: false,
            reclaimer: Reclaimer::default(),
            now: Micros(0),
            migrations: BTreeMap::new(),
            resctrl: Box::default(),
            stalled: false,
            slow: VecDeque::new(),
            crash: None,
            other_writer: None,
            signals: Vec::new(),
            is_forking: false,
            cookies: core_scheduling::Cookies::new(spec.core_scheduling),
        };
        if spec.root_delegates {
            for tree in &mut simulation.trees {
                tree.delegate_all(tree::ROOT, &simulation.rules);
            }
        }
        simulation.set_memory_available(spec.memory_available);
        simulation.set_node_cpu_busy(Micros(0));
        for (path, files) in &spec.cgroups {
            simulation.ensure_cgroup(path)?;
            for (file, contents) in files {
                simulation.overwrite(path, file, contents)?;
            }
        }
        Ok(simulation)
    }

    /// Creates a cgroup and its ancestors in all hierarchies, with the kernel's default values.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty path.
    pub fn ensure_cgroup(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() {
            return Err(Errno::INVAL.into());
        }
        for tree in &mut self.trees {
            tree.ensure(path, &self.rules);
        }
        Ok(())
    }

    /// Creates a cgroup and its ancestors in the hierarchy of one controller, like a kubelet on cgroup v1 that has not
    /// created the others yet.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty path, `ENOENT` if no hierarchy has the controller.
    pub fn ensure_cgroup_of(&mut self, controller: Controller, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() {
            return Err(Errno::INVAL.into());
        }
        let mut trees = self.trees.iter_mut();
        let tree = trees.find(|tree| tree.controllers.contains(&controller)).ok_or(Errno::NOENT)?;
        tree.ensure(path, &self.rules);
        Ok(())
    }

    /// Removes a cgroup and all its descendants.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it does not exist.
    pub fn remove_cgroup(&mut self, path: &str) -> io::Result<()> {
        let mut found = false;
        for tree in &mut self.trees {
            found |= tree.remove_all(path.trim_matches('/'));
        }
        if found { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    /// Whether a cgroup exists in any hierarchy.
    pub fn has_cgroup(&self, path: &str) -> bool {
        self.trees.iter().any(|tree| tree.find(path.trim_matches('/')).is_some())
    }

    /// All cgroups of all hierarchies, each once, parents first.
    pub fn cgroups(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.trees.iter().flat_map(Tree::paths).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Writes a file like another process.
    ///
    /// # Errors
    ///
    /// The kernel's error: `ENOENT` without such a cgroup or file, `EINVAL` for a value that the kernel refuses.
    pub fn set_file(&mut self, path: &str, file: &str, contents: &str) -> io::Result<()> {
        let (tree, node) = self.locate(path, file)?;
        self.trees[tree].write(node, file, contents, &self.rules)?;
        self.rules.follow(&mut self.trees[tree], node, file);
        Ok(())
    }

    /// Stores any contents in a file, and creates the file if it does not exist. No rules apply.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn overwrite(&mut self, path: &str, file: &str, contents: &str) -> io::Result<()> {
        let (tree, node) = match self.locate(path, file) {
            Ok(found) => found,
            Err(_) => self.locate_directory(path, file)?,
        };
        let mut text = contents.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        self.trees[tree].put(node, file, text);
        Ok(())
    }

    /// Whether a cgroup has a file of this name.
    pub fn has_file(&self, path: &str, file: &str) -> bool {
        self.locate(path, file).is_ok()
    }

    /// The content of a file.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup or file.
    pub fn read_file(&self, path: &str, file: &str) -> io::Result<String> {
        let (tree, node) = self.locate(path, file)?;
        self.trees[tree].read(node, file).map(str::to_owned)
    }

    /// Sets a cgroup's CPU counters.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn set_cpu_counters(&mut self, path: &str, counters: CpuCounters) -> io::Result<()> {
        let usage_nanos = counters.usage.0.saturating_mul(1000);
        let (tree, node) = self.locate(path, "cpu.stat")?;
        let text = counter_files::cpu_stat(self.trees[tree].version, counters);
        self.trees[tree].put(node, "cpu.stat", text);
        if let Ok((tree, node)) = self.locate(path, "cpuacct.usage") {
            self.trees[tree].put(node, "cpuacct.usage", format!("{usage_nanos}\n"));
        }
        Ok(())
    }

    /// Sets a cgroup's memory counters.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn set_memory_counters(&mut self, path: &str, counters: MemoryCounters) -> io::Result<()> {
        let (tree, node) = self.locate(path, "memory.stat")?;
        for (file, text) in counter_files::memory_files(self.trees[tree].version, counters) {
            self.trees[tree].put(node, file, text);
        }
        Ok(())
    }

    /// Sets the number of pages of a cgroup on each NUMA node. Omitted nodes have none.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn set_numa_pages(&mut self, path: &str, pages: &[(NumaId, u64)]) -> io::Result<()> {
        let (tree, node) = self.locate(path, "memory.numa_stat")?;
        let text = numa::stat(self.trees[tree].version, self.rules.page_size(), self.rules.numa_nodes(), pages);
        self.trees[tree].put(node, "memory.numa_stat", text);
        Ok(())
    }

    /// Makes a cgroup's NUMA pages unreadable, until they are set again.
    pub fn hide_numa_pages(&mut self, path: &str) {
        if let Ok((tree, node)) = self.locate(path, "memory.numa_stat") {
            self.trees[tree].put(node, "memory.numa_stat", String::new());
        }
    }

    /// The `meminfo` of a NUMA node with these sizes; `available` is the memory available without swapping.
    pub fn numa_meminfo(id: NumaId, total: Bytes, free: Bytes, available: Bytes) -> String {
        numa::meminfo(id.0, total, free, available)
    }

    /// Sets total, free and available memory of a NUMA node.
    pub fn set_numa_memory(&mut self, id: NumaId, total: Bytes, free: Bytes, available: Bytes) {
        let text = numa::meminfo(id.0, total, free, available);
        self.sys.insert(format!("devices/system/node/node{id}/meminfo"), text);
    }

    /// Sets the progress of a cgroup's requested migration; its token stays. Has no effect without a requested
    /// migration. By default a migration is done at once.
    pub fn set_migration(&mut self, path: &str, progress: MigrationProgress) {
        if let Some(run) = self.migrations.get(path.trim_matches('/')) {
            run.update(|known| *known = MigrationProgress { token: known.token, ..progress });
        }
    }

    /// Sets a cgroup's pressure, if the kernel has files for it.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup or files.
    pub fn set_pressure_counters(&mut self, path: &str, counters: PressureCounters) -> io::Result<()> {
        let PressureCounters { cpu, memory, io } = counters;
        for (file, stall) in [("cpu.pressure", cpu), ("memory.pressure", memory), ("io.pressure", io)] {
            let (tree, node) = self.locate(path, file)?;
            self.trees[tree].put(node, file, counter_files::pressure_text(stall));
        }
        Ok(())
    }

    /// Sets the contents of a file below `/proc`.
    pub fn set_proc_file(&mut self, file: &str, contents: &str) {
        self.proc.insert(file.to_owned(), contents.to_owned());
    }

    /// Sets the contents of a file below `/sys`.
    pub fn set_sys_file(&mut self, file: &str, contents: &str) {
        self.sys.insert(file.to_owned(), contents.to_owned());
    }

    /// Sets the CPU time that all CPUs together were busy since boot, in steps of 10 ms like `/proc/stat`.
    pub fn set_node_cpu_busy(&mut self, busy: Micros) {
        let ticks = busy.0 / (1_000_000 / TICKS_PER_SECOND);
        let mut text = format!("cpu  {ticks} 0 0 1000 0 0 0 0 0 0\n");
        for cpu in 0..self.cpus {
            text.push_str(&format!("cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n"));
        }
        self.proc.insert("stat".to_owned(), text);
    }

    /// Makes the node's CPU time unreadable, until it is set again.
    pub fn hide_node_cpu_busy(&mut self) {
        self.proc.insert("stat".to_owned(), String::new());
    }

    /// Sets `MemAvailable`, all of it as free memory.
    pub fn set_memory_available(&mut self, available: Bytes) {
        self.set_node_memory(NodeMemory { free: available, available, ..NodeMemory::default() });
    }

    /// Sets the node's memory, and the kernel's watermarks if all are known; the total does not change.
    pub fn set_node_memory(&mut self, memory: NodeMemory) {
        self.proc.insert("meminfo".to_owned(), parse::meminfo_text(self.memory, memory));
        let (Some(min), Some(low), Some(high)) = (memory.min_mark, memory.low_mark, memory.high_mark) else { return };
        let pages = |bytes: Bytes| bytes.0 / self.rules.page_size();
        let text = format!(
            "Node 0, zone   Normal\n  pages free     0\n        min      {}\n        low      {}\n        high     {}\n",
            pages(min),
            pages(low),
            pages(high)
        );
        self.proc.insert("zoneinfo".to_owned(), text);
    }

    /// Sets the online CPUs.
    pub fn set_online_cpus(&mut self, cpus: &[u32]) {
        self.sys.insert("devices/system/cpu/online".to_owned(), format!("{}\n", list_text(cpus.iter().copied())));
    }

    /// Sets core and socket of a CPU.
    pub fn set_cpu_place(&mut self, cpu: u32, core: u32, socket: u32) {
        for (file, number) in [("core_id", core), ("physical_package_id", socket)] {
            self.sys.insert(format!("devices/system/cpu/cpu{cpu}/topology/{file}"), format!("{number}\n"));
        }
    }

    /// Sets the content of the kubelet's `cpu_manager_state`; `None` removes the file.
    pub fn set_cpu_manager_state(&mut self, text: Option<&str>) {
        self.kubelet = text.map(|text| ("cpu_manager_state".to_owned(), text.to_owned())).into_iter().collect();
    }

    /// Sets the node's pressure.
    pub fn set_node_pressure(&mut self, counters: PressureCounters) {
        let PressureCounters { cpu, memory, io } = counters;
        for (file, stall) in [("cpu", cpu), ("memory", memory), ("io", io)] {
            self.proc.insert(format!("pressure/{file}"), counter_files::pressure_text(stall));
        }
    }

    /// Sets the counters of a tier or pod; values that are `None` become unreadable.
    ///
    /// # Errors
    ///
    /// `ENOENT` without such a cgroup.
    pub fn set_group_counters(&mut self, path: &str, counters: GroupCounters) -> io::Result<()> {
        for (file, text) in counter_files::group_files(counters) {
            let Ok((tree, node)) = self.locate(path, file) else { continue };
            let text = text.of(self.trees[tree].version);
            self.trees[tree].put(node, file, text);
        }
        if self.has_cgroup(path) { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    /// Sets the memory of the hierarchy's root, that is, of all processes.
    pub fn set_root_memory(&mut self, memory: Option<GroupMemory>) {
        for tree in self.trees.iter_mut().filter(|tree| tree.controllers.contains(&Controller::Memory)) {
            for (file, text) in counter_files::root_memory_files(tree.version, memory) {
                tree.put(tree::ROOT, file, text);
            }
        }
    }

    /// Makes all mounts read-only, or writable again.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
    }

    /// Makes a file refuse every write with `EINVAL`, or accept writes again.
    pub fn set_refusing(&mut self, file: &str, refusing: bool) {
        self.rules.set_refusing(file, refusing);
    }

    /// Makes another writer write this text right after the host's next write of a file with this name, before the host reads it back.
    pub fn write_after_next(&mut self, file: &str, text: &str) {
        self.other_writer = Some((file.to_owned(), text.to_owned()));
    }

    /// Starts recording the host's accepted writes; see [`Simulation::take_writes`].
    pub fn record_writes(&mut self) {
        self.recording = true;
    }

    /// Makes each process that ends leave a child.
    pub fn set_forking(&mut self, forking: bool) {
        self.is_forking = forking;
    }

    /// The signals that the host sent to processes since the last call.
    pub fn take_signals(&mut self) -> Vec<(u32, Ending)> {
        std::mem::take(&mut self.signals)
    }

    /// The host's accepted writes since the last call; empty unless recording was started.
    pub fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }

    fn locate(&self, path: &str, file: &str) -> io::Result<(usize, usize)> {
        let path = path.trim_matches('/');
        self.trees
            .iter()
            .enumerate()
            .find_map(|(place, tree)| tree.find(path).filter(|&node| tree.has(node, file)).map(|node| (place, node)))
            .ok_or_else(|| Errno::NOENT.into())
    }

    /// The hierarchy that a file belongs to by its name, otherwise the first one that has the directory.
    fn locate_directory(&self, path: &str, file: &str) -> io::Result<(usize, usize)> {
        let path = path.trim_matches('/');
        let of = file.split('.').next().and_then(Controller::parse);
        let carries = |tree: &&Tree| of.is_some_and(|controller| tree.controllers.contains(&controller));
        let chosen = self.trees.iter().position(|tree| carries(&tree)).unwrap_or(0);
        let node = self.trees.get(chosen).and_then(|tree| tree.find(path)).ok_or(Errno::NOENT)?;
        Ok((chosen, node))
    }

    fn tree(&self, place: usize) -> io::Result<&Tree> {
        self.trees.get(place).ok_or_else(|| Errno::NOENT.into())
    }

    fn plain(&self, area: Area) -> &BTreeMap<String, String> {
        match area {
            Area::Proc => &self.proc,
            Area::Kubelet => &self.kubelet,
            Area::Cgroup(_) | Area::Sys => &self.sys,
        }
    }
}

fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn copy(text: &str, buffer: &mut [u8]) -> usize {
    let length = text.len().min(buffer.len());
    buffer[..length].copy_from_slice(&text.as_bytes()[..length]);
    length
}

impl Backend for Simulation {
    fn cgroup_device(&self) -> Option<(u32, u32)> {
        None
    }

    fn bind(&mut self, hierarchies: &[Hierarchy]) -> io::Result<()> {
        let mut order = Vec::new();
        for hierarchy in hierarchies {
            let place = self.trees.iter().position(|tree| tree.mount == hierarchy.mount).ok_or(Errno::NOENT)?;
            order.push(self.trees.remove(place));
        }
        self.trees = order;
        Ok(())
    }

    fn read_once(&self, area: Area, path: &str) -> io::Result<Vec<u8>> {
        let text = match area {
            Area::Cgroup(place) => {
                let (directory, file) = split(path);
                let tree = self.tree(place)?;
                tree.read(tree.find(directory).ok_or(Errno::NOENT)?, file)?
            }
            Area::Proc | Area::Sys | Area::Kubelet => self.plain(area).get(path).ok_or(Errno::NOENT)?,
        };
        Ok(text.as_bytes().to_vec())
    }

    fn directories(&self, area: Area, path: &str) -> io::Result<Vec<String>> {
        let Area::Cgroup(place) = area else { return Ok(Vec::new()) };
        let tree = self.tree(place)?;
        Ok(tree.children(tree.find(path).ok_or(Errno::NOENT)?))
    }

    fn entries(&self, area: Area, path: &str) -> io::Result<Vec<String>> {
        let below = join(path, "");
        let names = self.plain(area).keys().filter_map(|file| file.strip_prefix(&below)?.split('/').next());
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        if names.is_empty() { Err(Errno::NOENT.into()) } else { Ok(names.into_iter().collect()) }
    }

    fn inode(&self, area: Area, path: &str) -> io::Result<u64> {
        match area {
            Area::Cgroup(place) => {
                let tree = self.tree(place)?;
                Ok(tree.inode(tree.find(path).ok_or(Errno::NOENT)?))
            }
            Area::Proc | Area::Sys | Area::Kubelet => {
                let below = join(path, "");
                let found = self.plain(area).keys().any(|file| file.starts_with(&below));
                if found { Ok(1) } else { Err(Errno::NOENT.into()) }
            }
        }
    }

    fn is_linked(&self, _area: Area, _path: &str) -> bool {
        false
    }

    fn make(&mut self, area: Area, path: &str) -> io::Result<()> {
        if self.read_only {
            return Err(Errno::ROFS.into());
        }
        let Area::Cgroup(place) = area else { return Err(Errno::PERM.into()) };
        self.trees.get_mut(place).ok_or(Errno::NOENT)?.make(path, &self.rules)
    }

    fn remove(&mut self, area: Area, path: &str) -> io::Result<()> {
        if self.read_only {
            return Err(Errno::ROFS.into());
        }
        let Area::Cgroup(place) = area else { return Err(Errno::PERM.into()) };
        self.trees.get_mut(place).ok_or(Errno::NOENT)?.remove(path)
    }

    fn open(&mut self, area: Area, path: &str) -> io::Result<FileId> {
        let open = match area {
            Area::Cgroup(place) => {
                let (directory, name) = split(path);
                let tree = self.tree(place)?;
                let node = tree.find(directory).filter(|&node| tree.has(node, name)).ok_or(Errno::NOENT)?;
                OpenFile { area, node, inode: tree.inode(node), name: name.to_owned() }
            }
            Area::Proc | Area::Sys | Area::Kubelet if self.plain(area).contains_key(path) => {
                OpenFile { area, node: 0, inode: 0, name: path.to_owned() }
            }
            Area::Proc | Area::Sys | Area::Kubelet => return Err(Errno::NOENT.into()),
        };
        FileId::of(self.files.insert(open)).ok_or(Errno::MFILE.into())
    }

    fn share(&self, _: FileId) -> Option<Arc<std::fs::File>> {
        None
    }

    fn close(&mut self, file: FileId) {
        self.files.try_remove(file.place());
    }

    fn read(&mut self, file: FileId, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(open) = self.files.get(file.place()) else { return Err(Errno::BADF.into()) };
        let text = match open.area {
            Area::Cgroup(place) => {
                let tree = self.tree(place)?;
                if !tree.lives(open.node, open.inode) {
                    return Err(Errno::NODEV.into());
                }
                tree.read(open.node, &open.name)?
            }
            Area::Proc | Area::Sys | Area::Kubelet => self.plain(open.area).get(&open.name).ok_or(Errno::NODEV)?,
        };
        Ok(copy(text, buffer))
    }

    fn write(&mut self, area: Area, path: &str, text: &str) -> io::Result<()> {
        let Area::Cgroup(place) = area else { return self.write_node_knob(area, path, text) };
        let (directory, file) = split(path);
        let takes_identity = if file == rules::BVT { self.check_identity(text) } else { Ok(()) };
        let tree = self.trees.get_mut(place).ok_or(Errno::NOENT)?;
        let node = tree.find(directory).ok_or(Errno::NOENT)?;
        if self.read_only {
            return Err(Errno::ROFS.into());
        }
        takes_identity?;
        if self.crash.as_ref().is_some_and(|crash| !crash.step()) {
            return Ok(());
        }
        tree.write(node, file, text, &self.rules)?;
        self.rules.follow(tree, node, file);
        if file == rules::KILL {
            tree.kill(node);
        }
        if let Some((_, text)) = self.other_writer.take_if(|(of, _)| of == file) {
            tree.write(node, file, &text, &self.rules)?;
        }
        if self.recording {
            self.writes.push(Write { path: directory.to_owned(), file: file.to_owned(), text: text.to_owned() });
        }
        Ok(())
    }

    fn write_slow(
        &mut self,
        area: Area,
        path: &str,
        text: &str,
        lowering: Option<Lowering>,
        ticket: u64,
    ) -> io::Result<SlowWrite> {
        if self.stalled {
            return self.queue(area, path, text, lowering.as_ref(), ticket);
        }
        match lowering {
            Some(lowering) => self.lower(area, path, lowering)?,
            None => self.write(area, path, text)?,
        }
        Ok(SlowWrite::Done)
    }

    fn finished(&mut self) -> Vec<(u64, io::Result<()>)> {
        self.take_slow_step()
    }

    /// Nothing in a simulation can be waited for.
    fn handle(&self, _: Area, _: &str, _: Access) -> io::Result<std::fs::File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Moves all pages on the source nodes at once, without checking the container's cpuset.
    fn migrate(&mut self, job: Job, run: Arc<Run>) -> io::Result<()> {
        let file = "memory.numa_stat";
        let (tree, node) = self.locate(&job.cgroup, file)?;
        let version = self.trees[tree].version;
        let text = self.trees[tree].read(node, file)?.to_owned();
        let mut pages = parse::numa::numa_stat(version, self.rules.page_size(), text.as_bytes()).ok_or(Errno::INVAL)?;
        let mut moved = 0_u64;
        for &from in &job.from {
            let Some(to) = job.topology.nearest(from, &job.to) else { continue };
            let taken = pages.iter_mut().find(|(id, _)| *id == from).map_or(0, |(_, pages)| std::mem::take(pages));
            moved += taken;
            if let Some((_, there)) = pages.iter_mut().find(|(id, _)| *id == to) {
                *there += taken;
            }
        }
        self.set_numa_pages(&job.cgroup, &pages)?;
        self.migrations.insert(job.cgroup, Arc::clone(&run));
        run.update(|progress| {
            progress.state = MigrationState::Done;
            (progress.processes, progress.processes_done) = (1, 1);
            (progress.pages_found, progress.pages_moved) = (moved, moved);
        });
        Ok(())
    }

    fn set_watermarks(&mut self, area: Area, path: &str, group: GroupId, watermarks: Watermarks) -> io::Result<()> {
        let place = self.place(area, path)?;
        let now = self.now;
        self.reclaimer.set(group, watermarks, place, now);
        Ok(())
    }

    fn remove_watermarks(&mut self, group: GroupId) {
        self.reclaimer.release(group);
    }

    fn reclaim_report(&self, group: GroupId) -> Option<ReclaimReport> {
        self.reclaimer.report(group)
    }

    fn page_size(&self) -> u64 {
        self.rules.page_size()
    }

    fn ticks_per_second(&self) -> u64 {
        TICKS_PER_SECOND
    }

    fn signal(&mut self, area: Area, cgroup: &str, pid: u32, ending: Ending) -> io::Result<()> {
        let Area::Cgroup(place) = area else { return Err(Errno::ACCESS.into()) };
        self.signals.push((pid, ending));
        let tree = self.trees.get_mut(place).ok_or(Errno::NOENT)?;
        let node = tree.find(cgroup).ok_or(Errno::NOENT)?;
        // `SIGTERM` does not force a process to end.
        if ending == Ending::Kill {
            let left = tree.read(node, rules::PROCS)?.lines().filter(|line| line.trim() != pid.to_string());
            let mut left: String = left.map(|line| format!("{line}\n")).collect();
            if self.is_forking {
                left = format!("{left}{}\n", pid.saturating_add(1));
            }
            tree.put(node, rules::PROCS, left);
        }
        Ok(())
    }

    fn note(&self, area: Area, path: &str, note: Note) -> io::Result<Option<String>> {
        self.read_note(area, path, note)
    }

    fn set_note(&mut self, area: Area, path: &str, note: Note, text: Option<&str>) -> io::Result<()> {
        self.write_note(area, path, note, text)
    }

    fn cookie_of(&self, pid: u32) -> io::Result<u64> {
        self.read_cookie(pid)
    }

    fn hold_cookie(&mut self, hold: Hold) -> io::Result<u64> {
        self.hold(hold)
    }

    fn push_cookie(&mut self, pid: u32) -> io::Result<()> {
        self.push(pid)
    }

    fn drop_cookie(&mut self) {
        self.stop_holding();
    }

    fn file_budget(&self) -> usize {
        usize::MAX
    }

    fn pid(&self) -> u32 {
        1
    }
}
