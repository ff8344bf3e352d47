//! Record: a running agent writes what it observes, in the format that [`crate::replay`] plays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use qosm_engine::Interface;
use qosm_host::mounts::{CgroupVersion, Controller};
use qosm_host::{Bandwidth, Support, knob_table};
use qosm_model::application::ApplicationSample;
use qosm_model::block_io::{BlockDevice, PodVolume};
use qosm_model::column::Fields;
use qosm_model::cpu_topology::Cpu;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::node::{Group, GroupCounters, GroupSample, NodeMemory};
use qosm_model::numa::{NumaId, NumaNode, NumaSample, list_text};
use qosm_model::pod::{ContainerId, ContainerState, PodId};
use serde_json::json;

use crate::agent::Agent;
use crate::alarm::line::alarm_line;
use crate::columns::Readings;
use crate::facts::block_io::{DeviceFacts, Numbers, VolumeFacts};
use crate::facts::{
    CgroupFacts, CgroupVersions, CpuFacts, DriverName, Facts, HostFacts, KernelName, NumaNodeFacts, NumaNodes, Version,
    manifest, node_manifest, topology_manifest,
};
use crate::now::Now;
use crate::pause;
use crate::policy::Policy;
use crate::replay::line::{ApplicationLine, ContainerLine, NodeLine, NumaLine, NumaMemoryLine, PodsLine, TickLine};
use crate::report::view::View;
use crate::step::Step;
use crate::table::PodEntry;

/// The kubelet's default CFS period, in microseconds, which a replay assumes.
const PERIOD: u64 = 100_000;

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder {
    lines: SyncSender<String>,
    earlier: Readings,
    last: Option<Now>,
    /// Pods as last written, and those that the next line leads to.
    pods: BTreeMap<String, serde_json::Value>,
    next_pods: Option<BTreeMap<String, serde_json::Value>>,
    /// Pods that `qosm pause` pauses, as last written.
    paused: Vec<PodId>,
    node: qosm_model::pod::Node,
    changed: Option<TickLine>,
    /// Cpusets as last written, and how often they had changed by then.
    cpusets: BTreeMap<ContainerId, Arc<[u32]>>,
    cpuset_changes: u64,
    cpus: CpusWritten,
    /// Settings of the node's kernel as last written.
    node_knobs: BTreeMap<String, Option<u64>>,
    devices: DevicesWritten,
}

/// CPUs as last written.
#[derive(Debug, Default)]
struct CpusWritten {
    online: Option<Vec<u32>>,
    manager_state: Option<Vec<u8>>,
    sets: BTreeMap<Target, Vec<u32>>,
}

impl Recorder {
    /// Begins with the current facts. Returns `None` if the client is gone.
    pub fn start(agent: &Agent, lines: SyncSender<String>, now: Now) -> Option<Self> {
        let time = jiff::Timestamp::from_millisecond(now.wall.0).ok();
        let view = &agent.view();
        let pods = manifests(view);
        let mut recorder = Self {
            lines,
            earlier: Readings::default(),
            last: None,
            pods,
            next_pods: None,
            paused: view.pods.paused_by_operator(),
            node: view.sources.node.clone(),
            changed: None,
            cpusets: BTreeMap::new(),
            cpuset_changes: 0,
            // The facts have these CPUs.
            cpus: CpusWritten {
                online: Some(online(&view.host.cpus_now())),
                manager_state: view.host.cpu_manager_text(),
                sets: BTreeMap::new(),
            },
            node_knobs: node_knobs(view),
            devices: DevicesWritten::default(),
        };
        // The facts have these cpusets.
        recorder.changed_cpusets(view);
        recorder.write(&Facts { time, ..view_facts(view) }).then_some(recorder)
    }

    /// Passes a line to the client without blocking the loop. A recording with a gap would replay to something that never happened, so the
    /// recording ends if the client does not keep up.
    fn write(&self, document: &impl serde::Serialize) -> bool {
        match self.lines.try_send(line(document)) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(_)) => {
                tracing::warn!("a recording ends: its client does not keep up");
                false
            }
        }
    }

    /// Adds a change of the sources to the next line.
    pub fn sources(&mut self, agent: &Agent) {
        let view = &agent.view();
        let now = manifests(view);
        let upserted =
            now.iter().filter(|(key, pod)| self.pods.get(*key) != Some(pod)).map(|(_, pod)| pod.clone()).collect();
        let removed = self.pods.keys().filter(|key| !now.contains_key(*key)).cloned().collect();
        self.next_pods = Some(now);
        self.paused = view.pods.paused_by_operator();
        let node = &view.sources.node;
        // A change that is not in any line yet is written now.
        let is_unwritten = self.changed.take().is_some_and(|line| line.node_object.is_some());
        let is_news = is_unwritten || self.node != *node;
        self.node.clone_from(node);
        self.changed = Some(TickLine {
            node_object: is_news.then(|| node_manifest(node)),
            topology: is_news.then(|| topology_manifest(node)).flatten(),
            pods: Some(PodsLine { upserted, removed }),
            config_maps: Some(config_maps(view)),
            ..TickLine::default()
        });
    }

    /// Containers whose cpusets differ from the previous line.
    fn changed_cpusets(&mut self, view: &View<'_>) -> Vec<CgroupFacts> {
        let changes = view.cpusets.changes();
        let Some(file) =
            view.host.cpuset_file().filter(|_| std::mem::replace(&mut self.cpuset_changes, changes) != changes)
        else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        let mut known = BTreeMap::new();
        for container in view.pods.open_containers() {
            let Some(cpus) = view.cpusets.of(container) else { continue };
            let before = self.cpusets.get(&container).map(Arc::as_ref);
            // A new container has all CPUs.
            let is_same = before.map_or_else(|| view.host.has_cpus(cpus.len()), |before| *before == **cpus);
            if !is_same && let Some(mut row) = row_of(view, Target::Container(container)) {
                row.files.insert(file.to_owned(), list_text(cpus.iter().copied()));
                rows.push(row);
            }
            known.insert(container, Arc::clone(cpus));
        }
        self.cpusets = known;
        rows
    }

    /// Writes the line of one tick. Returns `false` if the client is gone or too slow.
    pub fn step(&mut self, agent: &Agent, step: &Step, now: Now) -> bool {
        let view = &agent.view();
        // The first step only gives the counters to begin with.
        let Some(last) = self.last.replace(now) else {
            self.earlier = step.readings.clone();
            return true;
        };
        let cpusets = self.changed_cpusets(view);
        if self.paused != view.pods.paused_by_operator() {
            self.sources(agent);
        }
        let columns = step.readings.since(&self.earlier);
        let mut tick = self.changed.take().unwrap_or_default();
        self.pods = self.next_pods.take().unwrap_or_else(|| std::mem::take(&mut self.pods));
        let window = now.monotonic.0.saturating_sub(last.monotonic.0);
        (tick.window_millis, tick.window_micros) = (window / 1000, window % 1000);
        tick.late_micros = now.late.0;
        tick.cgroups = cpusets;
        let node_knobs = node_knobs(view);
        let is_other = |(name, value): &(&String, &Option<u64>)| self.node_knobs.get(*name) != Some(*value);
        tick.node_knobs = node_knobs.iter().filter(is_other).map(|(name, value)| (name.clone(), *value)).collect();
        self.node_knobs = node_knobs;
        self.devices.write(view, &step.readings, &mut tick);
        tick.alarms = step.alarms.iter().filter_map(|fired| alarm_line(view.pods, fired)).collect();
        if let Some(numa) = &step.readings.numa {
            let memory =
                |node: &NumaNode| NumaMemoryLine { free_bytes: node.free.0, available_bytes: node.available.0 };
            if !numa.topology.is_one_place() {
                tick.numa_nodes = numa.topology.iter().map(|(id, node)| (id.0, memory(node))).collect();
            }
        }
        tick.node = columns.node.map(|node| NodeLine {
            cpu_usage_usec: node.cpu_usage.map(|usage| usage.0),
            memory_available_bytes: node.memory_available.map(|bytes| bytes.0),
            memory: columns.node_memory.map(|memory| NodeMemory { total: None, ..memory }),
            pressure: columns.node_pressure.map(Into::into),
        });
        self.cpus.write(view, &step.readings, &mut tick);
        tick.groups = groups(view, columns.groups.as_deref().unwrap_or_default());
        tick.applications = applications(view, columns.applications.as_deref().unwrap_or_default());
        let mut rows: BTreeMap<u32, ContainerLine> = BTreeMap::new();
        for sample in columns.cpu.iter().flat_map(|column| column.iter()) {
            rows.entry(sample.container.0).or_default().cpu = Some(Fields(sample.delta));
        }
        for sample in columns.memory.iter().flat_map(|column| column.iter()) {
            rows.entry(sample.container.0).or_default().memory = Some(Fields(sample.memory));
        }
        for sample in columns.pressure.iter().flat_map(|column| column.iter()) {
            rows.entry(sample.container.0).or_default().pressure = Some(sample.delta.into());
        }
        for sample in step.readings.numa.iter().flat_map(|numa| numa.samples.iter()) {
            rows.entry(sample.container.0).or_default().numa = Some(numa_line(sample));
        }
        view.controls.replay_line(&step.readings, &self.earlier, &mut tick, &mut rows);
        for (id, mut row) in rows {
            // The cgroup of a container that has just ended may still exist; a replay has none.
            let Some((pod, container)) = running(view, ContainerId(id)) else { continue };
            (row.pod, row.container) = (pod, container);
            tick.containers.push(row);
        }
        // Columns that no policy read in this step keep their earlier readings, from which the next differences are taken.
        self.earlier = step.readings.carrying(&self.earlier, |id| view.pods.owner(id).is_some());
        self.write(&tick)
    }
}

/// Disks and volumes as last written.
#[derive(Debug, Default)]
struct DevicesWritten {
    devices: Vec<DeviceFacts>,
    volumes: Vec<VolumeFacts>,
}

impl DevicesWritten {
    /// Writes what has changed since the previous line; nothing if no policy reads disks and volumes.
    fn write(&mut self, view: &View<'_>, readings: &Readings, tick: &mut TickLine) {
        let Some(read) = &readings.block_devices else { return };
        let devices: Vec<DeviceFacts> = read.devices.iter().map(|device| device_facts(view, device)).collect();
        if self.devices != devices {
            self.devices.clone_from(&devices);
            tick.block_devices = Some(devices);
        }
        let volume = |volume: &PodVolume| {
            let pod = view.pods.get(volume.pod).filter(|entry| entry.pod.active)?.pod.key();
            Some(VolumeFacts { pod, name: volume.name.clone(), device: Numbers(volume.device) })
        };
        let volumes: Vec<VolumeFacts> = read.volumes.iter().filter_map(volume).collect();
        if self.volumes != volumes {
            self.volumes.clone_from(&volumes);
            tick.pod_volumes = Some(volumes);
        }
    }
}

/// A disk, with its values in the cost files without qosm.
fn device_facts(view: &View<'_>, device: &BlockDevice) -> DeviceFacts {
    let cost = |knob: Knob| {
        let held = view.ledger.held().get(&(Target::Node, knob)).map(|held| held.baseline);
        let value = held.or_else(|| view.host.device_cost(knob)).filter(|value| *value != Value::Unset)?;
        Some(value.to_string())
    };
    let [cost_qos, cost_model] = Knob::costs_of(device.number).map(cost);
    DeviceFacts { cost_qos, cost_model, ..device.into() }
}

fn online(cpus: &[Cpu]) -> Vec<u32> {
    cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect()
}

impl CpusWritten {
    /// Writes what has changed since the previous line.
    fn write(&mut self, view: &View<'_>, readings: &Readings, tick: &mut TickLine) {
        let Some(topology) = &readings.cpu_topology else { return };
        let online = online(&topology.cpus);
        let is_other = self.online.replace(online.clone()).is_some_and(|before| before != online);
        tick.online_cpus = is_other.then(|| list_text(online));
        let state = view.host.cpu_manager_text();
        if state.is_some() && state != self.manager_state {
            tick.cpu_manager_state = manager_state(state.as_deref());
        }
        self.manager_state = state;
        // CPU sets that result from qosm's own settings result from them in a replay too.
        if view.ledger.held().keys().any(|&(_, knob)| knob_table::row(knob).is_cpu_list()) {
            return;
        }
        for set in readings.cpu_sets.iter().flat_map(|sets| sets.iter()) {
            let before = self.sets.insert(set.target, set.cpus.clone());
            let is_same = before.map_or_else(|| view.host.has_cpus(set.cpus.len()), |before| before == set.cpus);
            let name = match set.target {
                Target::Node => None,
                Target::Tier(tier) => Some(tier.to_string()),
                Target::Pod(id) => view.pods.get(id).filter(|entry| entry.pod.active).map(|entry| entry.pod.key()),
                Target::Container(id) => running(view, id).map(|(pod, container)| format!("{pod}/{container}")),
            };
            if let Some(name) = name.filter(|_| !is_same) {
                tick.cpu_sets.insert(name, list_text(set.cpus.iter().copied()));
            }
        }
    }
}

fn line(document: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(document).unwrap_or_default();
    text.push('\n');
    text
}

/// What groups used, by name, without pods that have just ended: a replay has no group of them.
fn groups(view: &View<'_>, samples: &[GroupSample]) -> BTreeMap<String, GroupCounters> {
    let name = |group: Group| match group {
        Group::Tier(tier) => Some(tier.to_string()),
        Group::Pod(pod) => Some(view.pods.get(pod).filter(|entry| entry.pod.active)?.pod.key()),
        Group::Outside => Some(Group::OUTSIDE.to_owned()),
    };
    samples.iter().filter_map(|sample| Some((name(sample.group)?, sample.used))).collect()
}

/// What applications used, by name.
fn applications(view: &View<'_>, samples: &[ApplicationSample]) -> BTreeMap<String, ApplicationLine> {
    let line = |sample: &ApplicationSample| {
        let cgroup = crate::applications::place(view.host, &sample.application);
        (sample.application.name.clone(), ApplicationLine { cgroup, used: sample.used })
    };
    samples.iter().map(line).collect()
}

fn numa_line(sample: &NumaSample) -> NumaLine {
    let numbers = |nodes: &[NumaId]| nodes.iter().map(|id| id.0).collect();
    NumaLine {
        cpu_nodes: numbers(&sample.cpu_nodes),
        memory_nodes: numbers(&sample.memory_nodes),
        pages: sample.pages.iter().map(|&(id, pages)| (id.0, pages)).collect(),
    }
}

/// All pods. A pause by `qosm pause` stands in the annotation while it lasts: a replay knows no operators.
fn manifests(view: &View<'_>) -> BTreeMap<String, serde_json::Value> {
    let paused = view.pods.paused_by_operator();
    let of = |entry: &PodEntry| {
        let mut manifest = manifest(&entry.pod);
        if paused.contains(&entry.id) {
            manifest["metadata"]["annotations"][pause::ANNOTATION] = json!("true");
        }
        (entry.pod.key(), manifest)
    };
    view.pods.iter().map(of).collect()
}

fn config_maps(view: &View<'_>) -> Vec<serde_json::Value> {
    let object = |map: &qosm_model::layering::ConfigMap| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": map.namespace, "name": map.name},
            "data": map.data,
        })
    };
    view.sources.config_maps.iter().map(object).collect()
}

/// The current facts of the node.
pub fn facts(agent: &Agent) -> Facts {
    view_facts(&agent.view())
}

fn view_facts(view: &View<'_>) -> Facts {
    Facts {
        time: None,
        host: host_facts(view),
        node: Some(node_manifest(&view.sources.node)),
        topology: topology_manifest(&view.sources.node),
        api_server: view.has_api_server,
        // A shadow decides nothing, and its module may be missing where the recording is replayed.
        policies: view.policies.active().map(Policy::entry).collect(),
        guard_rails: Some(view.config.guard_rails.clone()),
        config_maps: config_maps(view),
        pods: manifests(view).into_values().collect(),
        cgroups: cgroups(view),
    }
}

fn host_facts(view: &View<'_>) -> HostFacts {
    let facts = view.host.facts();
    let version = |version: CgroupVersion| match version {
        CgroupVersion::V1 => Version::V1,
        CgroupVersion::V2 => Version::V2,
    };
    let alibaba = facts.has_watermarks();
    let lacks_reclaim = !alibaba && !view.host.reclaims_in_software();
    let of_cpu = facts.controllers.iter().find(|fact| fact.controller == Controller::Cpu);
    let burst = match of_cpu.and_then(|fact| fact.version) {
        Some(CgroupVersion::V1) => "cpu.cfs_burst_us",
        _ => "cpu.max.burst",
    };
    let missing = [
        (lacks_reclaim, "memory.reclaim"),
        (facts.lacks_burst(), burst),
        (facts.lacks_idle(), "cpu.idle"),
        (alibaba && facts.lacks_identities(), "cpu.bvt_warp_ns"),
    ];
    let missing_files = missing.into_iter().filter(|(lacks, _)| *lacks).map(|(_, file)| file.to_owned()).collect();
    HostFacts {
        cgroup: CgroupVersions::Each(
            facts
                .controllers
                .iter()
                // The version of `io` follows from the other controllers.
                .filter(|fact| fact.controller != Controller::Io)
                .filter_map(|fact| Some((fact.controller.as_str().to_owned(), version(fact.version?))))
                .collect(),
        ),
        driver: match facts.driver {
            qosm_host::layout::Driver::Systemd => DriverName::Systemd,
            qosm_host::layout::Driver::Cgroupfs => DriverName::Cgroupfs,
        },
        cgroup_root: format!("/{}", facts.cgroup_root),
        kernel: if alibaba { KernelName::Alibaba } else { KernelName::Mainline },
        // Only where it matters, so that recordings of one node are the same on the next kernel.
        kernel_release: facts.kernel_release.filter(|_| facts.memory_high_livelocks),
        missing_files,
        extra_files: Vec::new(),
        cpus: u32::try_from(online(&view.host.cpus_now()).len()).unwrap_or(facts.cpus),
        memory: facts.memory.0.to_string(),
        page_size: facts.page_size.0,
        numa_nodes: numa_nodes(view),
        cpu_topology: cpu_topology(view),
        cpu_manager_state: manager_state(view.host.cpu_manager_text().as_deref()),
        node_knobs: node_knobs(view),
        block_devices: Vec::new(),
        pod_volumes: Vec::new(),
        core_scheduling: view.host.core_group_support() == Support::Native,
    }
}

/// Settings of the node's kernel without qosm: of a held knob the baseline, or the value that another program has written since.
/// Empty if no policy imports them.
fn node_knobs(view: &View<'_>) -> BTreeMap<String, Option<u64>> {
    if !view.policies.iter().any(|policy| policy.imports(Interface::NodeKnobs)) {
        return BTreeMap::new();
    }
    let found = view.host.node_knobs();
    let others = |knob: Knob| {
        let found = found.iter().find(|(of, _)| *of == knob).map(|(_, value)| *value)?;
        let held = view.ledger.held().get(&(Target::Node, knob));
        let value = held.map_or(found, |held| if found == held.written { held.baseline } else { found });
        let is_anothers = held.is_some_and(|held| held.hands_off_until.is_some());
        u64::try_from(if is_anothers { found } else { value }.number()?).ok()
    };
    Knob::OF_NODE.into_iter().map(|knob| (knob.to_string(), others(knob))).collect()
}

/// Cores and sockets; empty if there is one socket with a core for each CPU.
fn cpu_topology(view: &View<'_>) -> Vec<CpuFacts> {
    let cpus = view.host.cpus_now();
    let is_plain = |(place, cpu): (usize, &Cpu)| {
        cpu.online && cpu.socket == 0 && u32::try_from(place).is_ok_and(|place| (place, place) == (cpu.id, cpu.core))
    };
    if cpus.iter().enumerate().all(is_plain) {
        return Vec::new();
    }
    let facts = |cpu: &Cpu| CpuFacts { id: cpu.id, core: cpu.core, socket: cpu.socket, offline: !cpu.online };
    cpus.iter().map(facts).collect()
}

/// The kubelet's file `cpu_manager_state`; `None` if it is no JSON object.
fn manager_state(text: Option<&[u8]>) -> Option<serde_json::Value> {
    serde_json::from_slice(text?).ok().filter(serde_json::Value::is_object)
}

fn numa_nodes(view: &View<'_>) -> NumaNodes {
    let topology = view.host.numa_topology();
    if topology.iter().nth(1).is_none() {
        return NumaNodes::Alike(1);
    }
    let facts = |(id, node): (NumaId, &NumaNode)| NumaNodeFacts {
        id: id.0,
        cpus: list_text(node.cpus.iter().copied()),
        memory: node.memory.0.to_string(),
        free: Some(node.free.0.to_string()),
        available: Some(node.available.0.to_string()),
        distances: node.distances.clone(),
    };
    NumaNodes::Each(topology.iter().map(facts).collect())
}

/// The baselines of held knobs, and the CPUs and memory of containers where these differ from what a kubelet would have set.
fn cgroups(view: &View<'_>) -> Vec<CgroupFacts> {
    let mut rows: BTreeMap<Target, CgroupFacts> = BTreeMap::new();
    let topology = view.host.numa_topology();
    for container in view.pods.open_containers() {
        let mut files = view.host.placement_files(container, &topology);
        if topology.is_one_place() && view.cpusets.of(container).is_none_or(|cpus| view.host.has_cpus(cpus.len())) {
            files.clear();
        }
        let Some(mut row) = row_of(view, Target::Container(container)).filter(|_| !files.is_empty()) else { continue };
        row.files.extend(files.into_iter().map(|(file, text)| (file.to_owned(), text)));
        rows.insert(Target::Container(container), row);
    }
    for (&(target, knob), held) in view.ledger.held().iter() {
        // Emulated knobs have no file.
        let is_file = knob_table::row(knob).has_file() && !view.host.emulates(knob);
        let Some(file) = view.host.file(target, knob).filter(|_| is_file) else { continue };
        let Some(row) = row_of(view, target) else { continue };
        let row = rows.entry(target).or_insert(row);
        let text = view.host.encode(target, knob, held.baseline);
        if knob_table::row(knob).is_quota() {
            let bandwidth = view.ledger.quotas().get(target);
            row.files.extend(bandwidth_files(view, target, held.baseline, bandwidth));
        } else if knob.device().is_none() {
            row.files.insert(file.file.to_owned(), text);
        } else if held.baseline != Value::Unset {
            // One file has all devices.
            let lines = row.files.entry(file.file.to_owned()).or_default();
            lines.push_str(&text);
            lines.push('\n');
        }
    }
    // A replay sets the limits of pods over the kubelet's default.
    for (target, bandwidth) in view.ledger.quotas().iter().filter(|(_, bandwidth)| bandwidth.period.0 != PERIOD) {
        let Some(row) = row_of(view, target) else { continue };
        let row = rows.entry(target).or_insert(row);
        let quota = bandwidth.quota.and_then(|quota| i64::try_from(quota.0).ok()).map_or(Value::Max, Value::Number);
        let held = view.ledger.held().get(&(target, Bandwidth::KNOB));
        let baseline = held.map_or(quota, |held| held.baseline);
        row.files.extend(bandwidth_files(view, target, baseline, Some(bandwidth)));
    }
    rows.into_values().collect()
}

/// The files of a CFS quota and its period. Cgroup v2 has both in one file.
fn bandwidth_files(
    view: &View<'_>,
    target: Target,
    quota: Value,
    bandwidth: Option<Bandwidth>,
) -> Vec<(String, String)> {
    let Some(file) = view.host.file(target, Bandwidth::KNOB) else { return Vec::new() };
    let period = bandwidth.map_or(PERIOD, |bandwidth| bandwidth.period.0);
    let text = view.host.encode(target, Bandwidth::KNOB, quota);
    match file.file {
        "cpu.max" => vec![("cpu.max".to_owned(), format!("{} {period}", text.split(' ').next().unwrap_or(&text)))],
        file if period == PERIOD => vec![(file.to_owned(), text)],
        file => vec![("cpu.cfs_period_us".to_owned(), period.to_string()), (file.to_owned(), text)],
    }
}

/// A cgroup by its names; `None` for the node, and for a pod or container that no longer runs, since a replay does not have it.
fn row_of(view: &View<'_>, target: Target) -> Option<CgroupFacts> {
    match target {
        Target::Node => None,
        Target::Tier(tier) => Some(CgroupFacts { tier: Some(tier.to_string()), ..CgroupFacts::default() }),
        Target::Pod(id) => {
            let entry = view.pods.get(id).filter(|entry| entry.pod.active)?;
            Some(CgroupFacts { pod: Some(entry.pod.key()), ..CgroupFacts::default() })
        }
        Target::Container(id) => {
            let (pod, container) = running(view, id)?;
            Some(CgroupFacts { pod: Some(pod), container: Some(container), ..CgroupFacts::default() })
        }
    }
}

/// The names of a container and its pod, if it runs.
fn running(view: &View<'_>, id: ContainerId) -> Option<(String, String)> {
    let (entry, place) = view.pods.owner(id)?;
    let container = entry.pod.containers.get(place)?;
    let runs = entry.pod.active && container.state == ContainerState::Running;
    runs.then(|| (entry.pod.key(), container.name.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use qosm_engine::Engine;
    use qosm_model::unit::Micros;

    use super::*;
    use crate::replay::Replay;
    use crate::step::Mode;

    fn pod(name: &str, phase: &str) -> serde_json::Value {
        let amounts = json!({"cpu": "2", "memory": "1Gi"});
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}")},
            "spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]},
            "status": {"phase": phase, "qosClass": "Guaranteed"},
        })
    }

    fn node(facts: &serde_json::Value) -> Replay {
        let facts: Facts = serde_json::from_value(facts.clone()).unwrap();
        let mut replay =
            Replay::new(&facts, Default::default(), Engine::new().unwrap(), Vec::new(), Mode::Plan).unwrap();
        replay.open();
        replay
    }

    fn files(container: &CgroupFacts) -> Vec<(&str, &str)> {
        container.files.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect()
    }

    #[test]
    fn facts_hold_where_a_container_runs_and_has_its_memory() {
        let v1 = [
            ("cpuset.cpus", "2-3"),
            ("cpuset.mems", "0-1"),
            (
                "memory.numa_stat",
                "total=100 N0=60 N1=40\nfile=0 N0=0 N1=0\nanon=100 N0=60 N1=40\nhierarchical_total=100 N0=60 N1=40\n",
            ),
        ];
        let v2 = [
            ("cpuset.cpus.effective", "2-3"),
            ("cpuset.mems.effective", "0-1"),
            ("memory.numa_stat", "anon N0=245760 N1=163840\nfile N0=0 N1=0\n"),
        ];
        for (version, expected) in [("v1", v1), ("v2", v2)] {
            let given: BTreeMap<_, _> = expected.into_iter().collect();
            let facts = json!({
                "host": {"cgroup": version, "cpus": 4, "numaNodes": [
                    {"id": 0, "cpus": "0-1", "memory": "4Gi", "free": "1Gi", "available": "2Gi"},
                    {"id": 1, "cpus": "2-3", "memory": "4Gi", "free": "3Gi", "available": "3Gi"},
                ]},
                "pods": [pod("redis", "Running")],
                "cgroups": [{"pod": "default/redis", "container": "app", "files": given}],
            });
            let recorded = super::facts(node(&facts).agent());
            assert_eq!(recorded.cgroups.iter().map(files).collect::<Vec<_>>(), [expected], "{version}");
            let NumaNodes::Each(numa) = &recorded.host.numa_nodes else { panic!("{:?}", recorded.host.numa_nodes) };
            let free: Vec<_> = numa.iter().map(|node| (node.free.as_deref(), node.available.as_deref())).collect();
            assert_eq!(free[0], (Some("1073741824"), Some("2147483648")));
            // Facts that are recorded from these facts are the same.
            let again = super::facts(node(&serde_json::to_value(&recorded).unwrap()).agent());
            assert_eq!(again.cgroups, recorded.cgroups);
            assert_eq!(again.host.numa_nodes, recorded.host.numa_nodes);
        }
    }

    #[test]
    fn on_one_numa_node_facts_hold_cpusets_that_say_something() {
        let facts = json!({
            "host": {"cpus": 4},
            "pods": [pod("pinned", "Running"), pod("web", "Running"), pod("job", "Succeeded")],
            "cgroups": [{"pod": "default/pinned", "container": "app", "files": {"cpuset.cpus.effective": "1,3"}}],
        });
        let recorded = super::facts(node(&facts).agent());
        let rows: Vec<_> = recorded.cgroups.iter().map(|row| (row.pod.as_deref(), files(row))).collect();
        assert_eq!(rows, [(Some("default/pinned"), vec![("cpuset.cpus.effective", "1,3")])]);
    }

    fn lines(received: &Receiver<String>) -> Vec<serde_json::Value> {
        received.try_iter().map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    #[test]
    fn a_cpuset_that_changes_stands_in_the_line_of_that_tick() {
        let mut live = node(&json!({"host": {"cpus": 4}, "pods": [pod("pinned", "Running")]}));
        let (sender, received) = sync_channel(10);
        let mut recorder = Recorder::start(live.agent(), sender, Now::default()).unwrap();
        let file = "cpuset.cpus.effective";
        for (second, cpus) in [(1, "0-3"), (2, "0-3"), (3, "1,3"), (4, "1,3"), (5, "0-3")] {
            let path = live.agent.view().host.attached_path(Target::Container(ContainerId(1))).unwrap().to_owned();
            live.agent.host_mut().simulated_mut().unwrap().overwrite(&path, file, cpus).unwrap();
            let now = Now { monotonic: Micros(second * 1_000_000), ..Now::default() };
            let step = live.agent.step(now);
            assert!(recorder.step(&live.agent, &step, now));
        }
        let recorded = lines(&received);
        let row = |cpus: &str| json!([{"pod": "default/pinned", "container": "app", "files": {file: cpus}}]);
        let cgroups: Vec<_> = recorded[1..].iter().map(|line| line["cgroups"].clone()).collect();
        assert_eq!(cgroups, [json!(null), row("1,3"), json!(null), row("0-3")]);
    }

    #[test]
    fn pods_that_come_and_go_between_two_lines_stand_in_the_next() {
        let mut live = node(&json!({"host": {"cpus": 4}, "pods": [pod("web", "Running"), pod("old", "Running")]}));
        let (sender, received) = sync_channel(10);
        let mut recorder = Recorder::start(live.agent(), sender, Now::default()).unwrap();
        let now = |second: u64| Now { monotonic: Micros(second * 1_000_000), ..Now::default() };
        let line = |live: &mut Replay, recorder: &mut Recorder, second| {
            let step = live.agent.step(now(second));
            assert!(recorder.step(&live.agent, &step, now(second)));
        };
        line(&mut live, &mut recorder, 1);
        for pods in [vec!["web", "new", "short"], vec!["web", "new"], vec!["web", "new", "last"]] {
            let pods: Vec<_> = pods.into_iter().map(|name| pod(name, "Running")).collect();
            let objects = crate::facts::read_objects(&pods, &[], None, "pods");
            live.agent.update(crate::sources::Sources::from(objects), now(1));
            recorder.sources(&live.agent);
        }
        line(&mut live, &mut recorder, 2);
        line(&mut live, &mut recorder, 3);
        let recorded = lines(&received);
        let names = |of: &str| -> Vec<_> {
            recorded[1]["pods"][of].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].clone()).collect()
        };
        assert_eq!(
            (names("upserted"), &recorded[1]["pods"]["removed"]),
            (vec![json!("last"), json!("new")], &json!(["default/old"]))
        );
        assert_eq!(recorded[2]["pods"], json!(null));
    }

    #[test]
    fn a_pause_by_an_operator_is_recorded_and_ends_when_it_ends() {
        let mut live = node(&json!({"host": {"cpus": 4}, "pods": [pod("web", "Running")]}));
        let (sender, received) = sync_channel(10);
        let mut recorder = Recorder::start(live.agent(), sender, Now::default()).unwrap();
        let now = |second: u64| Now {
            monotonic: Micros(second * 1_000_000),
            wall: qosm_model::lease::Timestamp(i64::try_from(second).unwrap() * 1000),
            ..Now::default()
        };
        for second in 1..6 {
            if second == 3 {
                let until = Some(qosm_model::lease::Timestamp(4500));
                live.agent.set_pause("default/web", Some(until), now(2)).unwrap();
            }
            let step = live.agent.step(now(second));
            assert!(recorder.step(&live.agent, &step, now(second)));
        }
        let paused = |line: &serde_json::Value| {
            let pods = line["pods"]["upserted"].as_array()?;
            Some(pods.iter().map(|pod| pod["metadata"]["annotations"]["qosm.io/paused"].clone()).collect::<Vec<_>>())
        };
        let recorded: Vec<_> = lines(&received)[1..].iter().map(paused).collect();
        assert_eq!(recorded, [None, Some(vec![json!("true")]), None, Some(vec![json!(null)])]);
    }

    #[test]
    fn facts_hold_cfs_periods_that_are_not_the_default() {
        for (version, own) in [
            ("v1", json!({"cpu.cfs_period_us": "50000", "cpu.cfs_quota_us": "25000"})),
            ("v2", json!({"cpu.max": "25000 50000"})),
        ] {
            let facts = json!({
                "host": {"cgroup": version, "cpus": 4}, "pods": [pod("web", "Running"), pod("other", "Running")],
                "cgroups": [{"pod": "default/web", "container": "app", "files": own}],
            });
            let mut live = node(&facts);
            live.agent.step(Now::default());
            let recorded = super::facts(live.agent());
            let rows: Vec<_> = recorded.cgroups.iter().map(|row| serde_json::to_value(&row.files).unwrap()).collect();
            assert_eq!(rows, [own], "{version}");
        }
    }

    #[test]
    fn facts_name_files_that_the_kernel_lacks() {
        for (version, burst) in [("v1", "cpu.cfs_burst_us"), ("v2", "cpu.max.burst")] {
            let missing = json!([burst, "cpu.idle"]);
            let facts = json!({"host": {"cgroup": version, "cpus": 4, "missingFiles": missing}, "pods": [pod("web", "Running")]});
            let recorded = serde_json::to_value(super::facts(node(&facts).agent())).unwrap();
            let names = recorded["host"]["missingFiles"].as_array().unwrap();
            assert!(names.contains(&json!(burst)) && names.contains(&json!("cpu.idle")), "{version}: {names:?}");
        }
    }

    /// Reads all of the node's signals.
    fn readings(agent: &mut Agent) -> Readings {
        let groups = agent.pods().standing().groups.clone();
        let (host, mut costs) = (agent.host_mut(), Vec::new());
        let wanted = |column| column == qosm_engine::Interface::Node;
        let mut readings = crate::columns::read(host, &[], (&[], 0), &wanted, None, &mut Vec::new(), &mut costs);
        readings.read_node(host, &qosm_engine::Part::ALL, &groups, &mut costs);
        readings
    }

    #[test]
    fn what_the_node_and_its_groups_use_is_played_as_it_was_recorded() {
        let memory = |usage: u64| json!({"usageBytes": usage, "activeFileBytes": 4096, "inactiveFileBytes": 8192});
        for version in ["v1", "v2"] {
            let mut live = node(&json!({"host": {"cgroup": version, "cpus": 4}, "pods": [pod("web", "Running")]}));
            let (sender, received) = sync_channel(10);
            let mut recorder = Recorder::start(live.agent(), sender, Now::default()).unwrap();
            let now = |second: u64| Now { monotonic: Micros(second * 1_000_000), ..Now::default() };
            let mut web = json!({
                "cpuUsageUsec": 300_000, "cpuThrottledUsec": 50_000, "memory": memory(1 << 20), "maxEvents": 2, "oomKills": 1,
            });
            if version == "v2" {
                web["cpuPressure"] = json!({"someUsec": 9, "fullUsec": 4});
            }
            let mut all = web.clone();
            all["cpuUsageUsec"] = json!(400_000);
            let line = json!({
                "node": {
                    "cpuUsageUsec": 500_000, "memoryAvailableBytes": 1 << 30,
                    "memory": {
                        "freeBytes": 1 << 29, "availableBytes": 1 << 30, "activeFileBytes": 4096, "inactiveFileBytes": 8192,
                        "minMarkBytes": 1 << 20, "lowMarkBytes": 2 << 20, "highMarkBytes": 3 << 20,
                    },
                    "pressure": {
                        "cpuSomeUsec": 1, "cpuFullUsec": 2, "memorySomeUsec": 3, "memoryFullUsec": 4, "ioSomeUsec": 5, "ioFullUsec": 6,
                    },
                },
                "groups": {
                    "kubepods": all, "default/web": web, "burstable": {"cpuUsageUsec": 0}, "besteffort": {},
                    "outside": {"cpuUsageUsec": 100_000, "memory": memory(5 << 20)},
                },
            });
            for second in 1..=4 {
                live.play(&serde_json::from_value(line.clone()).unwrap()).unwrap();
                let step = Step { readings: readings(&mut live.agent), ..Step::default() };
                assert!(recorder.step(&live.agent, &step, now(second)));
            }
            let recorded = lines(&received);
            assert_eq!(recorded.len(), 4);
            for again in &recorded[1..] {
                assert_eq!((&again["node"], &again["groups"]), (&line["node"], &line["groups"]), "{version}");
            }
        }
    }

    #[test]
    fn a_line_about_a_group_that_is_not_there_is_refused() {
        let mut live = node(&json!({"host": {"cpus": 4}, "pods": [pod("web", "Running")]}));
        let line = serde_json::from_value(json!({"groups": {"default/other": {}}})).unwrap();
        let error = live.play(&line).unwrap_err().to_string();
        assert!(error.contains("groups") && error.contains("default/other"), "{error}");
    }

    #[test]
    fn cpus_are_played_as_they_were_recorded() {
        let cpu = |id: u32, offline: bool| {
            let mut cpu = json!({"id": id, "core": id % 2, "socket": id / 4});
            if offline {
                cpu["offline"] = json!(true);
            }
            cpu
        };
        let state = |cpus: &str| json!({"policyName": "static", "entries": {"u-pinned": {"app": cpus}}});
        let facts = json!({
            "host": {
                "cpus": 7, "cpuTopology": (0..8).map(|id| cpu(id, id == 7)).collect::<Vec<_>>(), "cpuManagerState": state("2-3"),
            },
            "pods": [pod("pinned", "Running")],
        });
        let mut live = node(&facts);
        let recorded = super::facts(live.agent());
        assert_eq!(serde_json::to_value(&recorded.host).unwrap()["cpuManagerState"], state("2-3"));
        let again = super::facts(node(&serde_json::to_value(&recorded).unwrap()).agent());
        assert_eq!(again.host.cpu_topology, recorded.host.cpu_topology);
        assert_eq!(recorded.host.cpu_topology.iter().filter(|cpu| cpu.offline).count(), 1);

        let (sender, received) = sync_channel(10);
        let mut recorder = Recorder::start(live.agent(), sender, Now::default()).unwrap();
        let played = [
            json!({}),
            json!({"onlineCpus": "0-7"}),
            json!({"cpuManagerState": state("2-4"), "cpuSets": {"besteffort": "0-1"}}),
            json!({}),
        ];
        for (second, line) in played.iter().enumerate() {
            live.play(&serde_json::from_value(line.clone()).unwrap()).unwrap();
            let groups = live.agent.pods().standing().groups.clone();
            let (host, pods, cpusets) = live.agent.cpu_parts();
            let readings = Readings {
                cpu_topology: Some(crate::columns::cpu_topology(host, pods, cpusets).into()),
                cpu_sets: Some(crate::columns::cpu_sets(host, &groups, pods, &mut Vec::new()).into()),
                ..Readings::default()
            };
            let step = Step { readings, ..Step::default() };
            let now = Now { monotonic: Micros((second as u64 + 1) * 1_000_000), ..Now::default() };
            assert!(recorder.step(&live.agent, &step, now));
        }
        let lines = lines(&received);
        let written: Vec<_> = lines.iter().map(|line| json!([line["onlineCpus"], line["cpuManagerState"]])).collect();
        assert_eq!(written[1..], [json!(["0-7", null]), json!([null, state("2-4")]), json!([null, null])]);
        assert_eq!(lines[2]["cpuSets"]["besteffort"], "0-1");
    }

    #[test]
    fn cpus_that_cannot_be_are_refused_with_the_field() {
        let mut live = node(&json!({"host": {"cpus": 4}, "pods": [pod("web", "Running")]}));
        for (line, part) in [
            (json!({"onlineCpus": "x"}), "onlineCpus"),
            (json!({"cpuSets": {"besteffort": ""}}), "cpuSets"),
            (json!({"cpuSets": {"default/other": "0"}}), "default/other"),
        ] {
            let error = live.play(&serde_json::from_value(line).unwrap()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
