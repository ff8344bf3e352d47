//! The fixture of a replay: a simulated kernel with the cgroups that a kubelet would have made, which recorded lines change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use qosm_cluster::Objects;
use qosm_host::layout::Driver;
use qosm_host::mounts::CgroupVersion;
use qosm_host::simulated::{CoreSchedulingKernel, Kernel, Simulation, Spec, Versions};
use qosm_host::{Host, HostError, MountedVolume};
use qosm_model::application::{self, Application};
use qosm_model::block_io::BlockDevice;
use qosm_model::column::{CpuCounters, Fields, MemoryCounters, PressureCounters};
use qosm_model::knob::Knob;
use qosm_model::layering::ClusterConfig;
use qosm_model::node::{Group, GroupCounters};
use qosm_model::numa::{MigrationProgress, MigrationState, NumaId, NumaTopology, ProcessFailure, list_text};
use qosm_model::pod::{ContainerState, Pod, Tier};
use qosm_model::problem::Problem;
use qosm_model::unit::{Bytes, Micros};

use crate::applications;
use crate::facts::block_io::{DeviceFacts, VolumeFacts};
use crate::facts::{
    CgroupFacts, CgroupVersions, DriverName, Facts, HostFacts, KernelName, NumaNodeFacts, NumaNodes, Version,
};
use crate::refused_limit;
use crate::replay::line::{MigrationLine, NumaLine, TickLine};
use crate::replay_fixture_error::ReplayFixtureError;

/// The recorded counters, accumulated by cgroup.
#[derive(Debug, Default)]
pub(crate) struct ReplayFixture {
    cpu: BTreeMap<String, CpuCounters>,
    memory: BTreeMap<String, MemoryCounters>,
    pressure: BTreeMap<String, PressureCounters>,
    groups: BTreeMap<String, GroupCounters>,
    node_pressure: PressureCounters,
    busy: Micros,
    /// Volumes of pods, including pods that do not exist yet.
    volumes: Vec<VolumeFacts>,
    /// Limits of pods that the kernel refused, until the replay takes them.
    pub(crate) problems: Vec<Problem>,
}

impl ReplayFixture {
    /// Sets up the host of the facts, with the cgroups of its pods and the contents of their files.
    pub(crate) fn set_up(facts: &Facts, objects: &Objects) -> Result<(Host, Self), ReplayFixtureError> {
        let mut host = Host::simulated(&spec(&facts.host)?)?;
        for file in &facts.host.missing_files {
            if !simulation(&mut host)?.is_known(file) {
                let message = format!("`{file}` is no cgroup file that qosm uses: mend its name, or leave it out");
                return Err(ReplayFixtureError::Field { field: "missingFiles", message });
            }
        }
        for tier in Tier::ALL {
            let path = host.tier_path(tier);
            simulation(&mut host)?.ensure_cgroup(&path).map_err(|source| file_error("tiers", "", "", source))?;
        }
        // The cgroups of applications beside Kubernetes exist before the first line, which has what they used since.
        let node = objects.node.clone().unwrap_or_default();
        let (config, _) = ClusterConfig::read(&objects.config_maps, &node, None);
        let text = config.get(application::KEY).map_or("", |key| &key.text);
        for one in Application::read(text, &node.labels).0 {
            let path = applications::place(&host, &one);
            let made = simulation(&mut host)?.ensure_cgroup(&path);
            made.map_err(|source| file_error(&format!("application {}", one.name), "", "", source))?;
        }
        if let Some(state) = &facts.host.cpu_manager_state {
            simulation(&mut host)?.set_cpu_manager_state(Some(&manager_text(state)?));
        }
        let mut fixture = Self { volumes: facts.host.pod_volumes.clone(), ..Self::default() };
        set_volumes(&mut host, &objects.pods, &fixture.volumes)?;
        set_costs(&mut host, &facts.host.block_devices)?;
        set_node_knobs(&mut host, &facts.host.node_knobs)?;
        fixture.problems = provision(&mut host, &objects.pods)?;
        write_files(&mut host, &objects.pods, &facts.cgroups)?;
        Ok((host, fixture))
    }

    /// Plays one line: makes the cgroups of new pods, updates the counters, and writes what other writers wrote.
    pub(crate) fn play(&mut self, host: &mut Host, pods: &[Pod], line: &TickLine) -> Result<(), ReplayFixtureError> {
        self.problems = provision(host, pods)?;
        write_files(host, pods, &line.cgroups)?;
        set_node_knobs(host, &line.node_knobs)?;
        if let Some(devices) = &line.block_devices {
            set_devices(host, devices)?;
        }
        if let Some(volumes) = &line.pod_volumes {
            self.volumes.clone_from(volumes);
        }
        set_volumes(host, pods, &self.volumes)?;
        let mut listed = BTreeSet::new();
        self.play_numa(host, pods, line)?;
        if let Some(resctrl) = &line.resctrl {
            let played = resctrl.played();
            let played =
                played.map_err(|error| ReplayFixtureError::Field { field: "resctrl", message: error.to_string() })?;
            simulation(host)?.play_resctrl(&played);
        }
        for row in &line.containers {
            let path = path_of(host, pods, &row.pod, Some(&row.container), "containers")?;
            if !row.resctrl.is_empty() {
                let usages: Vec<_> = row.resctrl.iter().map(Into::into).collect();
                simulation(host)?.play_resctrl_of(&path, &usages);
            }
            if let Some(Fields(cpu)) = row.cpu {
                let total = self.cpu.entry(path.clone()).or_default();
                *total = cpu.on_top_of(*total);
                listed.insert(path.clone());
            }
            if let Some(Fields(memory)) = row.memory {
                let total = self.memory.entry(path.clone()).or_default();
                *total = memory.on_top_of(*total);
            }
            if let Some(pressure) = row.pressure {
                let total = self.pressure.entry(path).or_default();
                *total = PressureCounters::from(pressure).on_top_of(*total);
            }
        }
        play_cpus(host, pods, line)?;
        self.play_groups(host, pods, line)?;
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
        if let Some(memory) = line.node.and_then(|node| node.memory) {
            simulation.set_node_memory(memory);
        }
        if let Some(pressure) = line.node.and_then(|node| node.pressure) {
            self.node_pressure = PressureCounters::from(pressure).on_top_of(self.node_pressure);
            simulation.set_node_pressure(self.node_pressure);
        }
        Ok(())
    }

    /// Plays the usage of tiers, pods, applications and all else. Groups that the line does not have stay as they were.
    fn play_groups(&mut self, host: &mut Host, pods: &[Pod], line: &TickLine) -> Result<(), ReplayFixtureError> {
        for (name, &row) in line.groups.iter().filter(|(name, _)| *name != Group::OUTSIDE) {
            let tier = Tier::ALL.into_iter().find(|tier| tier.to_string() == *name);
            let path = match tier {
                Some(tier) => host.tier_path(tier),
                None => path_of(host, pods, name, None, "groups")?,
            };
            let total = self.groups.entry(path.clone()).or_default();
            *total = row.on_top_of(*total);
            simulation(host)?
                .set_group_counters(&path, *total)
                .map_err(|source| file_error(name, "cpu.stat", "", source))?;
        }
        for (name, row) in &line.applications {
            let total = self.groups.entry(row.cgroup.clone()).or_default();
            *total = row.used.on_top_of(*total);
            let simulation = simulation(host)?;
            let error = |source| file_error(&format!("application {name}"), "cpu.stat", "", source);
            simulation.ensure_cgroup(&row.cgroup).map_err(error)?;
            simulation.set_group_counters(&row.cgroup, *total).map_err(error)?;
        }
        let memory = |name: &str| line.groups.get(name)?.memory;
        if let Some(outside) = memory(Group::OUTSIDE) {
            // The root's memory is what is outside plus that of all pods.
            let pods = memory(&Tier::Guaranteed.to_string()).unwrap_or_default();
            simulation(host)?.set_root_memory(Some(outside.with(pods)));
        } else if line.groups.contains_key(Group::OUTSIDE) {
            simulation(host)?.set_root_memory(None);
        }
        Ok(())
    }
}

impl ReplayFixture {
    /// Plays NUMA: memory on the nodes, where containers run and have memory, and the progress of their migrations.
    fn play_numa(&self, host: &mut Host, pods: &[Pod], line: &TickLine) -> Result<(), ReplayFixtureError> {
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

fn list_of(text: &str) -> Option<Vec<u32>> {
    qosm_host::parse::numa::list(text.as_bytes())
}

fn unknown_numa(place: &'static str, id: u32, topology: &NumaTopology) -> ReplayFixtureError {
    let known = list_text(topology.iter().map(|(id, _)| id.0));
    ReplayFixtureError::Unknown { place, what: format!("NUMA node {id}"), known }
}

fn set_numa(
    simulation: &mut Simulation,
    path: &str,
    topology: &NumaTopology,
    numa: &NumaLine,
) -> Result<(), ReplayFixtureError> {
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
        // cgroup v1 has no file with the effective list.
        let file = if simulation.has_file(path, effective) { effective } else { own };
        // A cpuset with a part of just these nodes' CPUs stays: the facts or another line have set it.
        if own == "cpuset.cpus"
            && let Some(cpus) = simulation.read_file(path, file).ok().and_then(|text| list_of(&text))
            && !cpus.is_empty()
            && topology.of_cpus(&cpus) == topology.of_cpus(&list)
        {
            continue;
        }
        let text = list_text(list);
        simulation.overwrite(path, file, &text).map_err(|source| file_error(path, file, &text, source))?;
    }
    Ok(())
}

fn progress(line: &MigrationLine) -> Result<MigrationProgress, ReplayFixtureError> {
    let state = MigrationState::ALL.into_iter().find(|state| state.as_str() == line.state);
    let state = state.ok_or_else(|| ReplayFixtureError::Unknown {
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

/// The name of an error that move_pages(2) reports for a page; `other` if it is unknown.
fn known_errno(text: &str) -> &'static str {
    const NAMES: [&str; 8] = ["EACCES", "EBUSY", "EFAULT", "EINVAL", "EIO", "ENODEV", "ENOENT", "ENOMEM"];
    NAMES.into_iter().find(|name| *name == text).unwrap_or("other")
}

fn file_error(what: &str, file: &str, contents: &str, source: std::io::Error) -> ReplayFixtureError {
    ReplayFixtureError::File { what: what.to_owned(), file: file.to_owned(), contents: contents.to_owned(), source }
}

fn simulation(host: &mut Host) -> Result<&mut Simulation, ReplayFixtureError> {
    host.simulated_mut()
        .ok_or(ReplayFixtureError::Field { field: "cgroup", message: "this host is not simulated".to_owned() })
}

fn spec(facts: &HostFacts) -> Result<Spec, ReplayFixtureError> {
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
                        return Err(ReplayFixtureError::Field {
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
    let mut numa = numa_spec(facts)?;
    numa.files.extend(cpu_files(facts)?);
    let memory = qosm_cluster::parse_bytes(&facts.memory).map_err(|error| ReplayFixtureError::Field {
        field: "memory",
        message: format!("`{}`: {error}", facts.memory),
    })?;
    if facts.cpus == 0 {
        return Err(ReplayFixtureError::Field { field: "cpus", message: "a node has at least one CPU".to_owned() });
    }
    if facts.page_size == 0 || !facts.page_size.is_power_of_two() {
        return Err(ReplayFixtureError::Field {
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
        devices: facts.block_devices.iter().map(Into::into).collect(),
        core_scheduling: match facts.core_scheduling {
            true => CoreSchedulingKernel::Works,
            false => CoreSchedulingKernel::Missing,
        },
        proc: facts
            .kernel_release
            .iter()
            .map(|release| ("sys/kernel/osrelease".to_owned(), format!("{release}\n")))
            .collect(),
        ..Spec::default()
    })
}

/// Sets settings of the node's kernel, as they are before qosm, or as another program has written them.
fn set_node_knobs(host: &mut Host, settings: &BTreeMap<String, Option<u64>>) -> Result<(), ReplayFixtureError> {
    for (name, value) in settings {
        let knob = name.parse().ok().filter(|knob: &Knob| Knob::OF_NODE.contains(knob));
        let knob = knob.ok_or_else(|| ReplayFixtureError::Unknown {
            place: "nodeKnobs",
            what: format!("setting `{name}`"),
            known: Knob::OF_NODE.map(Knob::kind_name).join(", "),
        })?;
        let value = value.map(|value| i64::try_from(value).unwrap_or(i64::MAX));
        simulation(host)?.set_node_knob(knob, value);
    }
    Ok(())
}

fn set_devices(host: &mut Host, devices: &[DeviceFacts]) -> Result<(), ReplayFixtureError> {
    let disks: Vec<BlockDevice> = devices.iter().map(Into::into).collect();
    let new = simulation(host)?.set_devices(&disks);
    // The costs of a device that was there before may be qosm's by now.
    set_costs(host, devices.iter().filter(|device| new.contains(&device.device.0)))
}

/// Sets the cost files as they are before qosm.
fn set_costs<'a>(
    host: &mut Host,
    devices: impl IntoIterator<Item = &'a DeviceFacts>,
) -> Result<(), ReplayFixtureError> {
    for DeviceFacts { device, cost_qos, cost_model, .. } in devices {
        for (file, line) in [("io.cost.qos", cost_qos), ("io.cost.model", cost_model)] {
            let Some(line) = line else { continue };
            simulation(host)?
                .set_device_cost(file, device.0, line)
                .map_err(|source| file_error("blockDevices", file, line, source))?;
        }
    }
    Ok(())
}

/// Mounts the volumes of existing pods; other volumes come with their pods.
fn set_volumes(host: &mut Host, pods: &[Pod], volumes: &[VolumeFacts]) -> Result<(), ReplayFixtureError> {
    let mounted = |volume: &VolumeFacts| {
        let pod = pods.iter().find(|pod| pod.key() == volume.pod)?;
        Some(MountedVolume { pod_uid: pod.uid.clone(), name: volume.name.clone(), device: volume.device.0 })
    };
    let mounted: Vec<MountedVolume> = volumes.iter().filter_map(mounted).collect();
    simulation(host)?.set_volumes(&mounted);
    Ok(())
}

/// The text of the kubelet's file with this state.
fn manager_text(state: &serde_json::Value) -> Result<String, ReplayFixtureError> {
    if state.is_object() {
        return Ok(state.to_string());
    }
    let message = format!("`{state}` is no JSON object; write what the kubelet's file holds, without quotes around it");
    Err(ReplayFixtureError::Field { field: "cpuManagerState", message })
}

/// Plays which CPUs are online, the state of the kubelet's CPU manager, and the CPUs in force.
fn play_cpus(host: &mut Host, pods: &[Pod], line: &TickLine) -> Result<(), ReplayFixtureError> {
    if let Some(state) = &line.cpu_manager_state {
        simulation(host)?.set_cpu_manager_state(Some(&manager_text(state)?));
    }
    let list = |field: &'static str, text: &str| {
        let message = || format!("`{text}` is no list of CPUs, such as 0-3,8");
        let cpus = list_of(text).filter(|cpus| !cpus.is_empty());
        cpus.ok_or_else(|| ReplayFixtureError::Field { field, message: message() })
    };
    if let Some(online) = &line.online_cpus {
        simulation(host)?.set_online_cpus(&list("onlineCpus", online)?);
    }
    for (name, text) in &line.cpu_sets {
        list("cpuSets", text)?;
        let tier = Tier::ALL.into_iter().find(|tier| tier.to_string() == *name);
        let path = match (tier, name.match_indices('/').nth(1)) {
            (Some(tier), _) => host.tier_path(tier),
            (None, Some((at, _))) => path_of(host, pods, &name[..at], name.get(at + 1..), "cpuSets")?,
            (None, None) => path_of(host, pods, name, None, "cpuSets")?,
        };
        // Without the controller there is no file for it.
        let Some(file) = host.cpuset_file() else { continue };
        let simulation = simulation(host)?;
        let made = if simulation.has_file(&path, file) { Ok(()) } else { simulation.ensure_cgroup(&path) };
        made.and_then(|()| simulation.overwrite(&path, file, text))
            .map_err(|source| file_error(name, file, text, source))?;
    }
    Ok(())
}

/// Cores and sockets, as files below `/sys`.
fn cpu_files(facts: &HostFacts) -> Result<BTreeMap<String, String>, ReplayFixtureError> {
    let mut files = BTreeMap::new();
    if facts.cpu_topology.is_empty() {
        return Ok(files);
    }
    let online: Vec<u32> = facts.cpu_topology.iter().filter(|cpu| !cpu.offline).map(|cpu| cpu.id).collect();
    if u32::try_from(online.len()).ok() != Some(facts.cpus) {
        let message =
            format!("{} of these CPUs are online, but `cpus` is {}: make them agree", online.len(), facts.cpus);
        return Err(ReplayFixtureError::Field { field: "cpuTopology", message });
    }
    let listed = |mut ids: Vec<u32>| {
        ids.sort_unstable();
        format!("{}\n", list_text(ids))
    };
    let present = facts.cpu_topology.iter().map(|cpu| cpu.id).collect();
    files.insert("devices/system/cpu/present".to_owned(), listed(present));
    files.insert("devices/system/cpu/online".to_owned(), listed(online));
    for cpu in &facts.cpu_topology {
        for (file, number) in [("core_id", cpu.core), ("physical_package_id", cpu.socket)] {
            files.insert(format!("devices/system/cpu/cpu{}/topology/{file}", cpu.id), format!("{number}\n"));
        }
    }
    Ok(files)
}

struct NumaSpec {
    count: u32,
    /// Contents of files, by path below `/sys`.
    files: BTreeMap<String, String>,
}

fn numa_spec(facts: &HostFacts) -> Result<NumaSpec, ReplayFixtureError> {
    let wrong = |message: String| ReplayFixtureError::Field { field: "numaNodes", message };
    let list = match &facts.numa_nodes {
        NumaNodes::Alike(count) => return Ok(NumaSpec { count: *count, files: BTreeMap::new() }),
        NumaNodes::Each(list) => list,
    };
    let last = list.iter().map(|node| node.id).max().ok_or_else(|| wrong("a machine has at least one".to_owned()))?;
    if last >= MAX_NUMA_NODES {
        return Err(wrong(format!("{last} is no number of a NUMA node: there are 0 to {}", MAX_NUMA_NODES - 1)));
    }
    check_numa_cpus(facts, list).map_err(wrong)?;
    let mut files = BTreeMap::new();
    let mut with_memory = Vec::new();
    for node in list {
        let bytes = |text: &str| qosm_cluster::parse_bytes(text).map_err(|error| wrong(format!("`{text}`: {error}")));
        let memory = bytes(&node.memory)?;
        let free = node.free.as_deref().map(bytes).transpose()?.unwrap_or(Bytes(memory.0 / 2));
        let available = node.available.as_deref().map(bytes).transpose()?.unwrap_or(free);
        for (word, part) in [("free", free), ("available", available)] {
            if part > memory {
                return Err(wrong(format!("node {} has {word} {}, more than its memory", node.id, part.0)));
            }
        }
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
        files.insert(format!("{place}/meminfo"), Simulation::numa_meminfo(NumaId(node.id), memory, free, available));
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

/// Checks that each node is there once, and each of their CPUs on one node.
///
/// # Errors
///
/// Which node or CPU is not.
fn check_numa_cpus(facts: &HostFacts, nodes: &[NumaNodeFacts]) -> Result<(), String> {
    let has_cpu = |cpu: u32| match facts.cpu_topology.as_slice() {
        [] => cpu < facts.cpus,
        listed => listed.iter().any(|known| known.id == cpu),
    };
    let mut node_of = BTreeMap::new();
    for (place, NumaNodeFacts { id, cpus, .. }) in nodes.iter().enumerate() {
        if nodes.iter().take(place).any(|before| before.id == *id) {
            return Err(format!("node {id} is there twice: give each node a number of its own"));
        }
        let listed = list_of(cpus).ok_or_else(|| format!("node {id}: `{cpus}` is no list of CPUs, such as 0-3,8"))?;
        for cpu in listed {
            if !has_cpu(cpu) {
                return Err(format!("node {id} has CPU {cpu}, which the host does not have (`cpus`, `cpuTopology`)"));
            }
            if let Some(other) = node_of.insert(cpu, *id) {
                return Err(format!("CPU {cpu} is on the nodes {other} and {id}: a CPU is on one node"));
            }
        }
    }
    Ok(())
}

/// The most that a kernel is built for (`CONFIG_NODES_SHIFT` 10).
const MAX_NUMA_NODES: u32 = 1024;

/// Makes what a kubelet would have made for the active pods. Returns the limits that the kernel refuses; their cgroups do not have them.
fn provision(host: &mut Host, pods: &[Pod]) -> Result<Vec<Problem>, ReplayFixtureError> {
    let mut problems = Vec::new();
    for pod in pods.iter().filter(|pod| pod.active) {
        // A container of an unknown runtime has no cgroup; its pod has one, and so have the other containers.
        let mut known = pod.clone();
        for (container, given) in known.containers.iter_mut().zip(&pod.containers) {
            if matches!(host.container_path(pod, given), Err(HostError::ContainerId { .. })) {
                container.state = ContainerState::Waiting;
            }
        }
        if let Err(source) = host.provision(&known) {
            let Some(problem) = refused_limit::problem(pod, &source) else {
                return Err(ReplayFixtureError::Provision { pod: pod.key(), source: Box::new(source) });
            };
            problems.push(problem);
        }
    }
    if host.numa_topology().is_one_place() {
        return Ok(problems);
    }
    // A kubelet enables the controller `cpuset` too, and on v1 makes the groups of its hierarchy.
    for path in container_paths(host, pods) {
        let simulation = simulation(host)?;
        if !simulation.has_file(&path, "cpuset.mems") {
            simulation.ensure_cgroup(&path).map_err(|source| file_error(&path, "cpuset.mems", "", source))?;
        }
    }
    Ok(problems)
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
) -> Result<String, ReplayFixtureError> {
    let Some(pod) = pods.iter().find(|pod| pod.key() == key) else {
        return Err(ReplayFixtureError::unknown_pod(place, key, pods));
    };
    if !pod.active {
        let (what, why) = (format!("pod `{key}`"), "has ended (`status.phase`)");
        return Err(ReplayFixtureError::NoCgroup {
            place,
            what,
            why,
            way_out: "say of it only until the tick in which it ends",
        });
    }
    let Some(name) = container else { return Ok(host.pod_path(pod)) };
    let Some(found) = pod.containers.iter().find(|container| container.name == name) else {
        return Err(ReplayFixtureError::unknown_container(place, name, pod));
    };
    let path = host.container_path(pod, found).ok().flatten();
    path.filter(|_| found.state == ContainerState::Running).ok_or_else(|| {
        let (why, way_out) = match found.state {
            ContainerState::Waiting => ("waits to be started", "say of it only from the tick on in which it runs"),
            ContainerState::Terminated => ("has ended", "say of it only until the tick in which it ends"),
            ContainerState::Running => ("has an id of no known runtime", "give it an id such as containerd://ID"),
        };
        ReplayFixtureError::NoCgroup { place, what: format!("container `{name}` of pod `{key}`"), why, way_out }
    })
}

fn write_files(host: &mut Host, pods: &[Pod], cgroups: &[CgroupFacts]) -> Result<(), ReplayFixtureError> {
    for row in cgroups {
        let (path, what) = match (&row.tier, &row.pod) {
            (Some(tier), None) => {
                let found = Tier::ALL.into_iter().find(|known| known.to_string() == *tier);
                let found = found.ok_or_else(|| ReplayFixtureError::Unknown {
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
                return Err(ReplayFixtureError::Unknown {
                    place: "cgroups",
                    what: "cgroup of an entry without (or with both) `tier` and `pod`".to_owned(),
                    known: "either `tier`, or `pod` with or without `container`".to_owned(),
                });
            }
        };
        for (file, contents) in &row.files {
            // A kubelet enables the controller `cpuset` too.
            if file.starts_with("cpuset.") && !simulation(host)?.has_file(&path, file) {
                simulation(host)?.ensure_cgroup(&path).map_err(|source| file_error(&what, file, contents, source))?;
            }
            if !simulation(host)?.has_file(&path, file) {
                return Err(ReplayFixtureError::Field {
                    field: "extraFiles",
                    message: format!(
                        "cgroups speak of a file `{file}` of {what}, which the kernel of these facts does not have; \
                         mend its name, or list it here"
                    ),
                });
            }
            let simulation = simulation(host)?;
            if !simulation.is_readable(file, contents) {
                let now = simulation.read_file(&path, file).unwrap_or_default();
                let printed = format!("no kernel prints this there; now it is `{}`", now.trim_end());
                return Err(file_error(&what, file, contents, io::Error::new(io::ErrorKind::InvalidData, printed)));
            }
            simulation.overwrite(&path, file, contents).map_err(|source| file_error(&what, file, contents, source))?;
        }
    }
    Ok(())
}
