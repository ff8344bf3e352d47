//! Record: a running agent writes down what it sees, in the form that [`crate::replay`] plays.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, TrySendError};

use qosm_host::mounts::CgroupVersion;
use qosm_host::{KnobFact, Support};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{MigrationProgress, NumaId, NumaNode, NumaSample, list_text};
use serde_json::json;

use crate::agent::{Agent, Step};
use crate::columns::Readings;
use crate::facts::{
    CgroupFacts, CgroupVersions, DriverName, Facts, HostFacts, KernelName, NumaNodeFacts, NumaNodes, Version, manifest,
};
use crate::policy::{Now, Policy};
use crate::replay::{
    ContainerLine, CpuLine, FailureLine, MemoryLine, MigrationLine, NodeLine, NumaLine, NumaMemoryLine, PodsLine,
    PressureLine, TickLine,
};

/// One recording under way.
#[derive(Debug)]
pub struct Recorder {
    lines: SyncSender<String>,
    earlier: Readings,
    last: Option<Now>,
    pods: BTreeMap<String, serde_json::Value>,
    changed: Option<TickLine>,
}

impl Recorder {
    /// Begins with the facts as they are now. `None` when nobody listens any more.
    pub fn start(agent: &Agent, lines: SyncSender<String>, now: Now) -> Option<Self> {
        let time = jiff::Timestamp::from_millisecond(now.wall.0).ok();
        let pods = manifests(agent);
        let recorder = Self { lines, earlier: Readings::default(), last: None, pods, changed: None };
        recorder.write(&Facts { time, ..facts(agent) }).then_some(recorder)
    }

    /// Hands a line over without ever waiting: the loop has other things to do. A recording with a hole would replay to something
    /// that never was, so one that is not taken in time ends.
    fn write(&self, document: &impl serde::Serialize) -> bool {
        match self.lines.try_send(line(document)) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(_)) => {
                tracing::warn!("a recording ends: whoever takes it does not keep up");
                false
            }
        }
    }

    /// The sources changed: the next line says how. `false` when nobody listens any more.
    pub fn sources(&mut self, agent: &Agent) -> bool {
        let now = manifests(agent);
        let upserted =
            now.iter().filter(|(key, pod)| self.pods.get(*key) != Some(pod)).map(|(_, pod)| pod.clone()).collect();
        let removed = self.pods.keys().filter(|key| !now.contains_key(*key)).cloned().collect();
        self.pods = now;
        self.changed = Some(TickLine {
            pods: Some(PodsLine { upserted, removed }),
            config_maps: Some(config_maps(agent)),
            ..TickLine::default()
        });
        true
    }

    /// Writes one tick down. `false` when nobody listens any more, or not fast enough.
    pub fn step(&mut self, agent: &Agent, step: &Step, now: Now) -> bool {
        // The first step only shows where the counters stood.
        let Some(last) = self.last.replace(now) else {
            self.earlier = step.readings.clone();
            return true;
        };
        let columns = step.readings.since(&self.earlier);
        let mut tick = self.changed.take().unwrap_or_default();
        let window = now.monotonic.0.saturating_sub(last.monotonic.0);
        (tick.window_millis, tick.window_micros) = (window / 1000, window % 1000);
        tick.late_micros = now.late.0;
        tick.alarms = step.alarms.iter().filter_map(|alarm| agent.alarm_line(alarm)).collect();
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
        });
        let mut rows: BTreeMap<u32, ContainerLine> = BTreeMap::new();
        for sample in columns.cpu.iter().flat_map(|column| column.iter()) {
            rows.entry(sample.container.0).or_default().cpu = Some(CpuLine {
                usage_usec: sample.delta.usage.0,
                nr_periods: sample.delta.nr_periods,
                nr_throttled: sample.delta.nr_throttled,
                throttled_usec: sample.delta.throttled.0,
            });
        }
        for sample in columns.memory.iter().flat_map(|column| column.iter()) {
            rows.entry(sample.container.0).or_default().memory = Some(MemoryLine {
                usage_bytes: sample.memory.usage.0,
                anon_bytes: sample.memory.anon.0,
                file_bytes: sample.memory.file.0,
                inactive_file_bytes: sample.memory.inactive_file.0,
                high_events: sample.memory.high_events,
                max_events: sample.memory.max_events,
                oom_kills: sample.memory.oom_kills,
            });
        }
        for sample in columns.pressure.iter().flat_map(|column| column.iter()) {
            rows.entry(sample.container.0).or_default().pressure = Some(PressureLine {
                cpu_some_usec: sample.delta.cpu.some.0,
                cpu_full_usec: sample.delta.cpu.full.0,
                memory_some_usec: sample.delta.memory.some.0,
                memory_full_usec: sample.delta.memory.full.0,
                io_some_usec: sample.delta.io.some.0,
                io_full_usec: sample.delta.io.full.0,
            });
        }
        for sample in step.readings.numa.iter().flat_map(|numa| numa.samples.iter()) {
            rows.entry(sample.container.0).or_default().numa = Some(numa_line(sample));
        }
        for (_, sample) in step.readings.migrations.iter().flat_map(|moves| moves.iter()) {
            rows.entry(sample.container.0).or_default().migration = Some(migration_line(&sample.progress));
        }
        let (line, counted) = agent.resctrl_line(step.readings.resctrl.as_deref(), self.earlier.resctrl.as_deref());
        tick.resctrl = line;
        for (id, usage) in counted {
            rows.entry(id.0).or_default().resctrl = usage;
        }
        for (id, mut row) in rows {
            let Some((entry, place)) = agent.pods.owner(qosm_model::pod::ContainerId(id)) else { continue };
            let Some(container) = entry.given.containers.get(place) else { continue };
            row.pod = entry.given.key();
            row.container.clone_from(&container.name);
            tick.containers.push(row);
        }
        // A policy that did not run in this step read nothing; what it last saw stays what differences are taken from.
        self.earlier = step.readings.carrying(&self.earlier, |id| agent.pods.owner(id).is_some());
        self.write(&tick)
    }
}

fn line(document: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(document).unwrap_or_default();
    text.push('\n');
    text
}

fn numa_line(sample: &NumaSample) -> NumaLine {
    let numbers = |nodes: &[NumaId]| nodes.iter().map(|id| id.0).collect();
    NumaLine {
        cpu_nodes: numbers(&sample.cpu_nodes),
        memory_nodes: numbers(&sample.memory_nodes),
        pages: sample.pages.iter().map(|&(id, pages)| (id.0, pages)).collect(),
    }
}

fn migration_line(progress: &MigrationProgress) -> MigrationLine {
    MigrationLine {
        state: progress.state.as_str().to_owned(),
        processes: progress.processes,
        processes_done: progress.processes_done,
        processes_gone: progress.processes_gone,
        pages_found: progress.pages_found,
        pages_moved: progress.pages_moved,
        pages_failed: progress.pages_failed.iter().map(|&(errno, pages)| (errno.to_owned(), pages)).collect(),
        pages_without_room: progress.pages_without_room,
        failures: progress
            .failures
            .iter()
            .map(|failure| FailureLine { pid: failure.pid, error: failure.error.clone() })
            .collect(),
        why: progress.why.clone(),
    }
}

fn manifests(agent: &Agent) -> BTreeMap<String, serde_json::Value> {
    agent.pods.iter().map(|entry| (entry.given.key(), manifest(&entry.given))).collect()
}

fn config_maps(agent: &Agent) -> Vec<serde_json::Value> {
    let object = |map: &qosm_model::layering::ConfigMap| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": map.namespace, "name": map.name},
            "data": map.data,
        })
    };
    agent.sources.config_maps.iter().map(object).collect()
}

/// The node as a document.
pub fn facts(agent: &Agent) -> Facts {
    let node = &agent.sources.node;
    let allocatable = node.memory_allocatable.map(|bytes| json!({"memory": bytes.0.to_string()}));
    Facts {
        time: None,
        host: host_facts(agent),
        node: Some(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node.name, "labels": node.labels},
            "status": {"allocatable": allocatable.unwrap_or_else(|| json!({}))},
        })),
        // A shadow decides nothing, and whoever replays may not even have its module.
        policies: agent.policies.iter().filter(|policy| policy.mode().is_active()).map(Policy::entry).collect(),
        guard_rails: Some(agent.config.guard_rails.clone()),
        config_maps: config_maps(agent),
        pods: manifests(agent).into_values().collect(),
        cgroups: cgroups(agent),
    }
}

fn host_facts(agent: &Agent) -> HostFacts {
    let facts = agent.host.facts();
    let version = |version: CgroupVersion| match version {
        CgroupVersion::V1 => Version::V1,
        CgroupVersion::V2 => Version::V2,
    };
    let has_watermarks = |fact: &KnobFact| fact.knob == Knob::WmarkRatio && fact.support == Support::Native;
    let alibaba = facts.knobs.iter().any(has_watermarks);
    let lacks_idle = facts
        .knobs
        .iter()
        .any(|fact| fact.knob == Knob::CpuIdle && matches!(fact.support, Support::Unavailable { .. }));
    let lacks_reclaim = !alibaba && !agent.host.emulates(Knob::WmarkRatio);
    let missing = [(lacks_reclaim, "memory.reclaim"), (lacks_idle, "cpu.idle")];
    let missing_files = missing.into_iter().filter(|(lacks, _)| *lacks).map(|(_, file)| file.to_owned()).collect();
    HostFacts {
        cgroup: CgroupVersions::Each(
            facts
                .controllers
                .iter()
                .filter_map(|fact| Some((fact.controller.as_str().to_owned(), version(fact.version?))))
                .collect(),
        ),
        driver: match facts.driver {
            qosm_host::layout::Driver::Systemd => DriverName::Systemd,
            qosm_host::layout::Driver::Cgroupfs => DriverName::Cgroupfs,
        },
        cgroup_root: format!("/{}", facts.cgroup_root),
        kernel: if alibaba { KernelName::Alibaba } else { KernelName::Mainline },
        missing_files,
        extra_files: Vec::new(),
        cpus: facts.cpus,
        memory: facts.memory.0.to_string(),
        page_size: facts.page_size.0,
        numa_nodes: numa_nodes(agent),
    }
}

fn numa_nodes(agent: &Agent) -> NumaNodes {
    let topology = agent.host.numa_topology();
    if topology.iter().nth(1).is_none() {
        return NumaNodes::Alike(1);
    }
    let facts = |(id, node): (NumaId, &NumaNode)| NumaNodeFacts {
        id: id.0,
        cpus: list_text(node.cpus.iter().copied()),
        memory: node.memory.0.to_string(),
        distances: node.distances.clone(),
    };
    NumaNodes::Each(topology.iter().map(facts).collect())
}

/// What knobs held before qosm touched them, where qosm holds them now.
fn cgroups(agent: &Agent) -> Vec<CgroupFacts> {
    let mut rows: BTreeMap<Target, CgroupFacts> = BTreeMap::new();
    for (&(target, knob), held) in agent.held.iter() {
        // What is emulated stands in no file.
        let Some(file) = agent.host.file(target, knob).filter(|_| !agent.host.emulates(knob)) else { continue };
        let row = rows.entry(target).or_insert_with(|| match target {
            Target::Tier(tier) => CgroupFacts { tier: Some(tier.to_string()), ..CgroupFacts::default() },
            Target::Pod(_) | Target::Container(_) => {
                let entry = agent.pods.of(target);
                let container = match target {
                    Target::Container(id) => agent
                        .pods
                        .owner(id)
                        .and_then(|(entry, place)| entry.given.containers.get(place))
                        .map(|container| container.name.clone()),
                    _ => None,
                };
                CgroupFacts { pod: entry.map(|entry| entry.given.key()), container, ..CgroupFacts::default() }
            }
        });
        let mut text = agent.host.encode(target, knob, held.baseline);
        if knob == Knob::CfsQuota && file.file == "cpu.max" {
            let period = agent.quotas.get(target).map_or(100_000, |bandwidth| bandwidth.period.0);
            text = match held.baseline {
                Value::Max | Value::Shares(_) => format!("max {period}"),
                Value::Number(quota) => format!("{quota} {period}"),
            };
        }
        row.files.insert(file.file.to_owned(), text);
    }
    rows.into_values().filter(|row| row.tier.is_some() || row.pod.is_some()).collect()
}
