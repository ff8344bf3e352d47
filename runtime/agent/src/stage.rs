//! The stage of a replay: a simulated kernel with the cgroups that a kubelet would have made, played upon by recorded lines.

use std::collections::{BTreeMap, BTreeSet};

use qosm_cluster::Objects;
use qosm_host::layout::Driver;
use qosm_host::mounts::CgroupVersion;
use qosm_host::simulated::{Kernel, Simulation, Spec, Versions};
use qosm_host::{Host, HostError};
use qosm_model::column::{CpuCounters, MemoryCounters, PressureCounters, Stall};
use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, NumaTopology, ProcessFailure, list_text};
use qosm_model::pod::{ContainerState, Pod, Tier};
use qosm_model::unit::{Bytes, Micros};

use crate::facts::{
    CgroupFacts, CgroupVersions, DriverName, Facts, HostFacts, KernelName, NumaNodeFacts, NumaNodes, Version,
};
use crate::replay::{MigrationLine, NumaLine, TickLine};

/// Facts or lines that do not fit the node that they speak of.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// A field of the facts.
    #[error("host.{field}: {message}")]
    Field {
        /// Which one.
        field: &'static str,
        /// What is wrong, and what to write.
        message: String,
    },
    /// A pod, container or tier that is not there.
    #[error("{place}: there is no {what}; known are: {known}")]
    Unknown {
        /// Where it is named.
        place: &'static str,
        /// What is named.
        what: String,
        /// What there is.
        known: String,
    },
    /// A file that cannot be.
    #[error("cgroups: {what}: file {file} cannot hold `{contents}`")]
    File {
        /// Of which cgroup.
        what: String,
        /// Which file.
        file: String,
        /// What it was to hold.
        contents: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The simulation did not start.
    #[error("the host cannot be simulated")]
    Host(#[from] HostError),
}

impl StageError {
    pub(crate) fn unknown_pod(place: &'static str, key: &str, pods: &[Pod]) -> Self {
        let known = pods.iter().map(Pod::key).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        Self::Unknown { place, what: format!("pod `{key}`"), known }
    }

    pub(crate) fn unknown_container(place: &'static str, name: &str, pod: &Pod) -> Self {
        let known = pod.containers.iter().map(|container| container.name.as_str()).collect::<Vec<_>>().join(", ");
        Self::Unknown { place, what: format!("container `{name}` of pod `{}`", pod.key()), known }
    }
}

/// What the recorded counters have come to, by cgroup.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    cpu: BTreeMap<String, CpuCounters>,
    memory: BTreeMap<String, MemoryCounters>,
    pressure: BTreeMap<String, PressureCounters>,
    busy: Micros,
}

impl Stage {
    /// Sets the stage: the host of the facts, the cgroups of its pods, and what the facts say their files hold.
    pub(crate) fn set(facts: &Facts, objects: &Objects) -> Result<(Host, Self), StageError> {
        let mut host = Host::simulated(&spec(&facts.host)?)?;
        for tier in Tier::ALL {
            let path = host.tier_path(tier);
            simulation(&mut host)?.ensure_cgroup(&path).map_err(|source| file_error("tiers", "", "", source))?;
        }
        let stage = Self::default();
        provision(&mut host, &objects.pods)?;
        write_files(&mut host, &objects.pods, &facts.cgroups)?;
        Ok((host, stage))
    }

    /// Plays one line: pods' cgroups come and go, counters move, other writers write.
    pub(crate) fn play(&mut self, host: &mut Host, pods: &[Pod], line: &TickLine) -> Result<(), StageError> {
        provision(host, pods)?;
        write_files(host, pods, &line.cgroups)?;
        let mut listed = BTreeSet::new();
        self.play_numa(host, pods, line)?;
        if let Some(resctrl) = &line.resctrl {
            let played = resctrl.played();
            let played = played.map_err(|error| StageError::Field { field: "resctrl", message: error.to_string() })?;
            simulation(host)?.play_resctrl(&played);
        }
        for row in &line.containers {
            let path = path_of(host, pods, &row.pod, Some(&row.container), "containers")?;
            if !row.resctrl.is_empty() {
                let usages: Vec<_> = row.resctrl.iter().map(Into::into).collect();
                simulation(host)?.play_resctrl_of(&path, &usages);
            }
            if let Some(cpu) = row.cpu {
                let total = self.cpu.entry(path.clone()).or_default();
                total.usage.0 = total.usage.0.saturating_add(cpu.usage_usec);
                total.nr_periods = total.nr_periods.saturating_add(cpu.nr_periods);
                total.nr_throttled = total.nr_throttled.saturating_add(cpu.nr_throttled);
                total.throttled.0 = total.throttled.0.saturating_add(cpu.throttled_usec);
                listed.insert(path.clone());
            }
            if let Some(memory) = row.memory {
                let total = self.memory.entry(path.clone()).or_default();
                *total = MemoryCounters {
                    usage: Bytes(memory.usage_bytes),
                    anon: Bytes(memory.anon_bytes),
                    file: Bytes(memory.file_bytes),
                    inactive_file: Bytes(memory.inactive_file_bytes),
                    high_events: total.high_events.saturating_add(memory.high_events),
                    max_events: total.max_events.saturating_add(memory.max_events),
                    oom_kills: total.oom_kills.saturating_add(memory.oom_kills),
                };
            }
            if let Some(pressure) = row.pressure {
                let total = self.pressure.entry(path).or_default();
                let add = |stall: &mut Stall, some: u64, full: u64| {
                    stall.some.0 = stall.some.0.saturating_add(some);
                    stall.full.0 = stall.full.0.saturating_add(full);
                };
                add(&mut total.cpu, pressure.cpu_some_usec, pressure.cpu_full_usec);
                add(&mut total.memory, pressure.memory_some_usec, pressure.memory_full_usec);
                add(&mut total.io, pressure.io_some_usec, pressure.io_full_usec);
            }
        }
        let all = container_paths(host, pods);
        let simulation = simulation(host)?;
        for path in all {
            if listed.contains(&path) {
                let counters = self.cpu.get(&path).copied().unwrap_or_default();
                simulation
                    .set_cpu_counters(&path, counters)
                    .map_err(|source| file_error(&path, "cpu.stat", "", source))?;
            } else {
                // No sample: the file cannot be read at this tick.
                simulation
                    .overwrite(&path, "cpu.stat", "")
                    .map_err(|source| file_error(&path, "cpu.stat", "", source))?;
            }
            if let Some(&counters) = self.memory.get(&path) {
                simulation
                    .set_memory_counters(&path, counters)
                    .map_err(|source| file_error(&path, "memory.stat", "", source))?;
            }
            if let Some(&counters) = self.pressure.get(&path) {
                // A kernel without pressure files has no such column: the policies see none.
                simulation.set_pressure_counters(&path, counters).ok();
            }
        }
        match line.node.and_then(|node| node.cpu_usage_usec) {
            Some(usage) => {
                self.busy.0 = self.busy.0.saturating_add(usage);
                simulation.set_node_cpu_busy(self.busy);
            }
            None => simulation.hide_node_cpu_busy(),
        }
        if let Some(available) = line.node.and_then(|node| node.memory_available_bytes) {
            simulation.set_memory_available(Bytes(available));
        }
        Ok(())
    }
}

impl Stage {
    /// NUMA: memory on the nodes, where containers run and have memory, and how far their migrations are.
    fn play_numa(&self, host: &mut Host, pods: &[Pod], line: &TickLine) -> Result<(), StageError> {
        let topology = host.numa_topology();
        for (&id, memory) in &line.numa_nodes {
            let node = topology.get(NumaId(id)).ok_or_else(|| unknown_numa("numaNodes", id, &topology))?;
            let (free, available) = (Bytes(memory.free_bytes), Bytes(memory.available_bytes));
            simulation(host)?.set_numa_memory(NumaId(id), node.memory, free, available);
        }
        let mut listed = BTreeSet::new();
        for row in &line.containers {
            if row.numa.is_none() && row.migration.is_none() {
                continue;
            }
            let path = path_of(host, pods, &row.pod, Some(&row.container), "containers")?;
            let simulation = simulation(host)?;
            if let Some(numa) = &row.numa {
                set_numa(simulation, &path, &topology, numa)?;
                listed.insert(path.clone());
            }
            if let Some(migration) = &row.migration {
                simulation.set_migration(&path, progress(migration)?);
            }
        }
        if !listed.is_empty() {
            for path in container_paths(host, pods).iter().filter(|path| !listed.contains(*path)) {
                simulation(host)?.hide_numa_pages(path);
            }
        }
        Ok(())
    }
}

fn unknown_numa(place: &'static str, id: u32, topology: &NumaTopology) -> StageError {
    let known = list_text(topology.iter().map(|(id, _)| id.0));
    StageError::Unknown { place, what: format!("NUMA node {id}"), known }
}

fn set_numa(
    simulation: &mut Simulation,
    path: &str,
    topology: &NumaTopology,
    numa: &NumaLine,
) -> Result<(), StageError> {
    let named = numa.cpu_nodes.iter().chain(&numa.memory_nodes).chain(numa.pages.keys());
    if let Some(&unknown) = named.into_iter().find(|&&id| topology.get(NumaId(id)).is_none()) {
        return Err(unknown_numa("containers: numa", unknown, topology));
    }
    let pages: Vec<_> = numa.pages.iter().map(|(&id, &pages)| (NumaId(id), pages)).collect();
    simulation.set_numa_pages(path, &pages).map_err(|source| file_error(path, "memory.numa_stat", "", source))?;
    let is_named = |id: NumaId| numa.cpu_nodes.is_empty() || numa.cpu_nodes.contains(&id.0);
    let mut cpus: Vec<u32> =
        topology.iter().filter(|(id, _)| is_named(*id)).flat_map(|(_, node)| node.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    let mems: Vec<u32> = if numa.memory_nodes.is_empty() {
        topology.with_memory().map(|(id, _)| id.0).collect()
    } else {
        numa.memory_nodes.clone()
    };
    for (effective, own, list) in
        [("cpuset.cpus.effective", "cpuset.cpus", cpus), ("cpuset.mems.effective", "cpuset.mems", mems)]
    {
        // v1 has no file of what is in force.
        let file = if simulation.has_file(path, effective) { effective } else { own };
        let text = list_text(list);
        simulation.overwrite(path, file, &text).map_err(|source| file_error(path, file, &text, source))?;
    }
    Ok(())
}

fn progress(line: &MigrationLine) -> Result<MigrationProgress, StageError> {
    let state = MigrationState::ALL.into_iter().find(|state| state.as_str() == line.state);
    let state = state.ok_or_else(|| StageError::Unknown {
        place: "containers: migration.state",
        what: format!("state `{}`", line.state),
        known: MigrationState::ALL.map(MigrationState::as_str).join(", "),
    })?;
    Ok(MigrationProgress {
        token: 0,
        state,
        processes: line.processes,
        processes_done: line.processes_done,
        processes_gone: line.processes_gone,
        pages_found: line.pages_found,
        pages_moved: line.pages_moved,
        pages_failed: line.pages_failed.iter().map(|(errno, &pages)| (known_errno(errno), pages)).collect(),
        pages_without_room: line.pages_without_room,
        failures: line
            .failures
            .iter()
            .map(|failure| ProcessFailure { pid: failure.pid, error: failure.error.clone() })
            .collect(),
        busy: Micros(0),
        why: line.why.clone(),
    })
}

/// What move_pages(2) says of a page.
fn known_errno(text: &str) -> &'static str {
    const NAMES: [&str; 8] = ["EACCES", "EBUSY", "EFAULT", "EINVAL", "EIO", "ENODEV", "ENOENT", "ENOMEM"];
    NAMES.into_iter().find(|name| *name == text).unwrap_or("other")
}

fn file_error(what: &str, file: &str, contents: &str, source: std::io::Error) -> StageError {
    StageError::File { what: what.to_owned(), file: file.to_owned(), contents: contents.to_owned(), source }
}

fn simulation(host: &mut Host) -> Result<&mut Simulation, StageError> {
    host.simulated_mut().ok_or(StageError::Field { field: "cgroup", message: "this host is not simulated".to_owned() })
}

fn spec(facts: &HostFacts) -> Result<Spec, StageError> {
    let version = |version: Version| match version {
        Version::V1 => CgroupVersion::V1,
        Version::V2 => CgroupVersion::V2,
    };
    let versions = match &facts.cgroup {
        CgroupVersions::All(all) => Versions::all(version(*all)),
        CgroupVersions::Each(each) => {
            let mut versions = Versions::V2;
            for (controller, at) in each {
                let slot = match controller.as_str() {
                    "cpu" => &mut versions.cpu,
                    "cpuacct" => &mut versions.cpuacct,
                    "cpuset" => &mut versions.cpuset,
                    "memory" => &mut versions.memory,
                    other => {
                        return Err(StageError::Field {
                            field: "cgroup",
                            message: format!(
                                "`{other}` is no controller of qosm; there are cpu, cpuacct, cpuset, memory"
                            ),
                        });
                    }
                };
                *slot = version(*at);
            }
            versions
        }
    };
    let numa = numa_spec(&facts.numa_nodes)?;
    let memory = qosm_cluster::parse_bytes(&facts.memory)
        .map_err(|error| StageError::Field { field: "memory", message: error.to_string() })?;
    if facts.cpus == 0 {
        return Err(StageError::Field { field: "cpus", message: "a node has at least one CPU".to_owned() });
    }
    if facts.page_size == 0 || !facts.page_size.is_power_of_two() {
        return Err(StageError::Field {
            field: "pageSize",
            message: "must be a power of two, such as 4096".to_owned(),
        });
    }
    Ok(Spec {
        versions,
        driver: Some(match facts.driver {
            DriverName::Systemd => Driver::Systemd,
            DriverName::Cgroupfs => Driver::Cgroupfs,
        }),
        cgroup_root: facts.cgroup_root.clone(),
        kernel: match facts.kernel {
            KernelName::Mainline => Kernel::Mainline,
            KernelName::Alibaba => Kernel::Alibaba,
        },
        extra_files: facts.extra_files.iter().map(|file| (file.clone(), "0\n".to_owned())).collect(),
        missing_files: facts.missing_files.iter().cloned().collect(),
        cpus: facts.cpus,
        memory,
        memory_available: memory,
        page_size: Bytes(facts.page_size),
        numa_nodes: numa.count,
        sys: numa.files,
        ..Spec::default()
    })
}

struct NumaSpec {
    count: u32,
    /// Below `/sys`.
    files: BTreeMap<String, String>,
}

fn numa_spec(nodes: &NumaNodes) -> Result<NumaSpec, StageError> {
    let wrong = |message: String| StageError::Field { field: "numaNodes", message };
    let list = match nodes {
        NumaNodes::Alike(count) => return Ok(NumaSpec { count: *count, files: BTreeMap::new() }),
        NumaNodes::Each(list) => list,
    };
    let last = list.iter().map(|node| node.id).max().ok_or_else(|| wrong("a machine has at least one".to_owned()))?;
    if last >= MOST_NUMA_NODES {
        return Err(wrong(format!("{last} is no number of a NUMA node: there are 0 to {}", MOST_NUMA_NODES - 1)));
    }
    let mut files = BTreeMap::new();
    let mut with_memory = Vec::new();
    for node in list {
        let memory = qosm_cluster::parse_bytes(&node.memory).map_err(|error| wrong(error.to_string()))?;
        if memory > Bytes(0) {
            with_memory.push(node.id);
        }
        if !(node.distances.is_empty() || node.distances.len() == list.len()) {
            return Err(wrong(format!(
                "node {} has {} distances to {} nodes",
                node.id,
                node.distances.len(),
                list.len()
            )));
        }
        let far = |other: &NumaNodeFacts| if other.id == node.id { 10 } else { 20 };
        let distances = if node.distances.is_empty() { list.iter().map(far).collect() } else { node.distances.clone() };
        let distances: Vec<String> = distances.iter().map(u32::to_string).collect();
        let place = format!("devices/system/node/node{}", node.id);
        files.insert(format!("{place}/cpulist"), format!("{}\n", node.cpus));
        files.insert(format!("{place}/distance"), format!("{}\n", distances.join(" ")));
        files.insert(format!("{place}/meminfo"), Simulation::numa_meminfo(NumaId(node.id), memory));
    }
    let listed = |mut ids: Vec<u32>| {
        ids.sort_unstable();
        ids.dedup();
        format!("{}\n", list_text(ids))
    };
    files.insert("devices/system/node/online".to_owned(), listed(list.iter().map(|node| node.id).collect()));
    files.insert("devices/system/node/has_memory".to_owned(), listed(with_memory));
    Ok(NumaSpec { count: last + 1, files })
}

/// As many as the kernel is built for (`CONFIG_NODES_SHIFT` 10).
const MOST_NUMA_NODES: u32 = 1024;

/// Makes what a kubelet would have made, and removes the groups of pods that are gone.
fn provision(host: &mut Host, pods: &[Pod]) -> Result<(), StageError> {
    for pod in pods.iter().filter(|pod| pod.active) {
        // A container whose runtime nobody knows has no cgroup; its pod has one, and so have the other containers.
        let mut known = pod.clone();
        for (container, given) in known.containers.iter_mut().zip(&pod.containers) {
            if matches!(host.container_path(pod, given), Err(HostError::ContainerId { .. })) {
                container.state = ContainerState::Waiting;
            }
        }
        host.provision(&known)?;
    }
    if host.numa_topology().is_one_place() {
        return Ok(());
    }
    // A kubelet hands the controller `cpuset` down too, and on v1 makes the groups of its hierarchy.
    for path in container_paths(host, pods) {
        let simulation = simulation(host)?;
        if !simulation.has_file(&path, "cpuset.mems") {
            simulation.ensure_cgroup(&path).map_err(|source| file_error(&path, "cpuset.mems", "", source))?;
        }
    }
    Ok(())
}

fn container_paths(host: &Host, pods: &[Pod]) -> Vec<String> {
    pods.iter()
        .filter(|pod| pod.active)
        .flat_map(|pod| {
            pod.containers
                .iter()
                .filter(|container| container.state == ContainerState::Running)
                .filter_map(|container| host.container_path(pod, container).ok().flatten())
        })
        .collect()
}

fn path_of(
    host: &Host,
    pods: &[Pod],
    key: &str,
    container: Option<&str>,
    place: &'static str,
) -> Result<String, StageError> {
    let Some(pod) = pods.iter().find(|pod| pod.key() == key) else {
        return Err(StageError::unknown_pod(place, key, pods));
    };
    let Some(name) = container else { return Ok(host.pod_path(pod)) };
    let found = pod.containers.iter().find(|container| container.name == name);
    let path = found.and_then(|container| host.container_path(pod, container).ok().flatten());
    path.ok_or_else(|| StageError::Unknown {
        place,
        what: format!("running container `{name}` in pod `{key}`"),
        known: pod.containers.iter().map(|container| container.name.clone()).collect::<Vec<_>>().join(", "),
    })
}

fn write_files(host: &mut Host, pods: &[Pod], cgroups: &[CgroupFacts]) -> Result<(), StageError> {
    for row in cgroups {
        let (path, what) = match (&row.tier, &row.pod) {
            (Some(tier), None) => {
                let found = Tier::ALL.into_iter().find(|known| known.to_string() == *tier);
                let found = found.ok_or_else(|| StageError::Unknown {
                    place: "cgroups",
                    what: format!("tier `{tier}`"),
                    known: Tier::ALL.map(|tier| tier.to_string()).join(", "),
                })?;
                (host.tier_path(found), format!("tier {tier}"))
            }
            (None, Some(pod)) => {
                let path = path_of(host, pods, pod, row.container.as_deref(), "cgroups")?;
                (path, format!("{pod}{}", row.container.as_ref().map(|name| format!("/{name}")).unwrap_or_default()))
            }
            _ => {
                return Err(StageError::Unknown {
                    place: "cgroups",
                    what: "cgroup of an entry without (or with both) `tier` and `pod`".to_owned(),
                    known: "either `tier`, or `pod` with or without `container`".to_owned(),
                });
            }
        };
        for (file, contents) in &row.files {
            if !simulation(host)?.has_file(&path, file) {
                return Err(StageError::Field {
                    field: "extraFiles",
                    message: format!(
                        "cgroups speak of a file `{file}` of {what}, which the kernel of these facts does not have; \
                         mend its name, or list it here"
                    ),
                });
            }
            simulation(host)?
                .overwrite(&path, file, contents)
                .map_err(|source| file_error(&what, file, contents, source))?;
        }
    }
    Ok(())
}
