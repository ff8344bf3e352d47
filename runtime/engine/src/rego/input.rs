//! The `input` document of a policy as JSON, as in `docs/rego.md` and `sdk/rego/input.schema.json`. Unknown values are
//! left out, never `null`.

mod block_io;
mod cpu_topology;
mod node_use;
mod object;
mod requests;
mod resctrl;

use std::collections::BTreeMap;

use qosm_model::alarm::{Alarm, Trigger};
use qosm_model::column::{
    BandwidthSample, CpuCounters, CpuSample, Fields, MemoryCounters, MemorySample, NodeSample, PressureCounters,
    PressureSample,
};
use qosm_model::cpu_topology::CpuTopology;
use qosm_model::knob::Target;
use qosm_model::node::NodeKnobSample;
use qosm_model::numa::{MigrationSample, NumaColumn, NumaSample};
use qosm_model::object::labels;
use qosm_model::pod::{Container, ContainerId, ContainerKind, ContainerState, ExtendedResource, PodId, Tier};
use qosm_model::resctrl::ResctrlColumn;
use qosm_model::unit::Micros;
use serde::ser::{Serialize, Serializer};
use serde_json::error::Result;

use self::cpu_topology::CpuTopologyRow;
use self::node_use::NodeUseRow;
use self::resctrl::ResctrlRow;
use crate::convert::PodView;
use crate::instance::Cause;
use crate::interface::Interface;
use crate::link::Columns;

/// An id of the contract, written as a string because ids are also keys.
#[derive(Clone, Copy)]
struct Id(u32);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A quota in microseconds. No limit is written as `max`, a string, which in Rego is greater than any number.
struct Quota(Option<Micros>);

impl Serialize for Quota {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Some(Micros(micros)) => serializer.serialize_u64(micros),
            None => serializer.serialize_str("max"),
        }
    }
}

/// A column by container.
struct Column<'a, S, R>(&'a [S], fn(&'a S) -> (ContainerId, R));

impl<S, R: Serialize> Serialize for Column<'_, S, R> {
    fn serialize<T: Serializer>(&self, serializer: T) -> std::result::Result<T::Ok, T::Error> {
        serializer.collect_map(self.0.iter().map(|sample| {
            let (container, row) = (self.1)(sample);
            (Id(container.0), row)
        }))
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct PodRow<'a> {
    id: Id,
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    declared_qos: Option<&'static str>,
    qos: &'static str,
    kube_qos: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    active: bool,
    host_pid: bool,
    static_pod: bool,
    labels: BTreeMap<&'a str, &'a str>,
    containers: Vec<ContainerRow<'a>>,
    cpu_overhead_milli: u64,
    memory_overhead_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_request_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_limit_milli: Option<u64>,
    annotated: bool,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerRow<'a> {
    id: Id,
    name: &'a str,
    kind: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_request_milli: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_limit_milli: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_request_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_limit_bytes: Option<u64>,
    extended_resources: Resources<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exclusive_cpus: Option<u32>,
}

struct Resources<'a>(&'a [ExtendedResource]);

impl Serialize for Resources<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let bounds = |own: &ExtendedResource| Bounds { request: own.request, limit: own.limit };
        serializer.collect_map(self.0.iter().map(|own| (&own.name, bounds(own))))
    }
}

#[derive(serde::Serialize)]
struct Bounds {
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// Writes one pod; `config` is the text of a JSON object.
pub(super) fn pod(view: &PodView<'_>, config: &str) -> Result<String> {
    let own = view.pod;
    let containers = own.containers.iter().zip(view.containers);
    let row = PodRow {
        id: Id(view.id.0),
        namespace: &own.namespace,
        name: &own.name,
        uid: &own.uid,
        declared_qos: own.declared_qos().map(|class| class.as_str()),
        qos: own.qos().as_str(),
        kube_qos: own.kube_qos.as_str(),
        priority: own.priority,
        active: own.active,
        host_pid: own.host_pid,
        static_pod: own.is_static(),
        labels: labels(own),
        containers: containers.map(|(own, &(id, exclusive))| container(own, id, exclusive)).collect(),
        cpu_overhead_milli: own.cpu_overhead.0,
        memory_overhead_bytes: own.memory_overhead.0,
        memory_request_bytes: own.memory_request.map(|bytes| bytes.0),
        memory_limit_bytes: own.memory_limit.map(|bytes| bytes.0),
        cpu_limit_milli: own.cpu_limit.map(|milli| milli.0),
        annotated: view.annotated,
    };
    let mut text = serde_json::to_string(&row)?;
    // Spliced in unparsed, so that its numbers do not change.
    text.pop();
    text.push_str(",\"config\":");
    text.push_str(config);
    text.push('}');
    Ok(text)
}

fn container(own: &Container, id: ContainerId, exclusive_cpus: Option<u32>) -> ContainerRow<'_> {
    ContainerRow {
        id: Id(id.0),
        name: &own.name,
        kind: match own.kind {
            ContainerKind::Regular => "regular",
            ContainerKind::Init => "init",
            ContainerKind::Sidecar => "sidecar",
        },
        state: match own.state {
            ContainerState::Waiting => "waiting",
            ContainerState::Running => "running",
            ContainerState::Terminated => "terminated",
        },
        cpu_request_milli: own.cpu_request.map(|milli| milli.0),
        cpu_limit_milli: own.cpu_limit.map(|milli| milli.0),
        memory_request_bytes: own.memory_request.map(|bytes| bytes.0),
        memory_limit_bytes: own.memory_limit.map(|bytes| bytes.0),
        extended_resources: Resources(&own.extended_resources),
        exclusive_cpus,
    }
}

/// Joins the texts of all pods to an array.
pub(super) fn pods<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut array = String::from("[");
    for (index, text) in texts.into_iter().enumerate() {
        if index > 0 {
            array.push(',');
        }
        array.push_str(text);
    }
    array.push(']');
    array
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct BandwidthRow {
    quota_usec: Quota,
    baseline_quota_usec: Quota,
    period_usec: u64,
}

impl BandwidthRow {
    fn of(sample: &BandwidthSample) -> Self {
        Self {
            quota_usec: Quota(sample.quota),
            baseline_quota_usec: Quota(sample.baseline_quota),
            period_usec: sample.period.0,
        }
    }
}

struct Quotas<'a>(&'a [BandwidthSample], fn(Target) -> Option<u32>);

impl Serialize for Quotas<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.0.iter().filter_map(|sample| Some((Id((self.1)(sample.target)?), BandwidthRow::of(sample)))),
        )
    }
}

struct TierQuotas<'a>(&'a [BandwidthSample]);

impl Serialize for TierQuotas<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().filter_map(|sample| match sample.target {
            Target::Tier(tier) => Some((Word(tier), BandwidthRow::of(sample))),
            Target::Node | Target::Pod(_) | Target::Container(_) => None,
        }))
    }
}

#[derive(serde::Serialize)]
struct Bandwidth<'a> {
    containers: Quotas<'a>,
    pods: Quotas<'a>,
    tiers: TierQuotas<'a>,
}

/// The column of quotas.
pub(super) fn bandwidth(samples: &[BandwidthSample]) -> Result<String> {
    let of_container = |target| if let Target::Container(ContainerId(id)) = target { Some(id) } else { None };
    let of_pod = |target| if let Target::Pod(PodId(id)) = target { Some(id) } else { None };
    serde_json::to_string(&Bandwidth {
        containers: Quotas(samples, of_container),
        pods: Quotas(samples, of_pod),
        tiers: TierQuotas(samples),
    })
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Tick<'a> {
    window_usec: u64,
    elapsed_usec: u64,
    cause: &'static str,
    alarms: Vec<AlarmRow<'a>>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct AlarmRow<'a> {
    trigger: TriggerRow<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Id>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<Word<Tier>>,
}

/// A value that is written as a string by its `Display`.
struct Word<T>(T);

impl<T: std::fmt::Display> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum TriggerRow<'a> {
    Throttling,
    Pressure { scope: &'a str, resource: &'a str, full: bool, stall_usec: u64, window_usec: u64 },
    MemoryEvents,
    ContainerStarted,
}

fn alarm(alarm: &Alarm) -> AlarmRow<'static> {
    let trigger = match alarm.trigger {
        Trigger::Throttling => TriggerRow::Throttling,
        Trigger::Pressure(own) => TriggerRow::Pressure {
            scope: own.scope.as_str(),
            resource: own.resource.as_str(),
            full: own.full,
            stall_usec: own.stall.0,
            window_usec: own.window.0,
        },
        Trigger::MemoryEvents => TriggerRow::MemoryEvents,
        Trigger::ContainerStarted => TriggerRow::ContainerStarted,
    };
    let (mut container, mut pod, mut tier) = (None, None, None);
    match alarm.target {
        Some(Target::Container(ContainerId(id))) => container = Some(Id(id)),
        Some(Target::Pod(PodId(id))) => pod = Some(Id(id)),
        Some(Target::Tier(own)) => tier = Some(Word(own)),
        Some(Target::Node) | None => {}
    }
    AlarmRow { trigger, container, pod, tier }
}

/// The parts of the input that belong to one evaluation, which [`evaluation`] puts together.
pub(super) struct Evaluation<'a> {
    pub(super) window: Micros,
    pub(super) elapsed: Micros,
    pub(super) cause: Cause,
    pub(super) columns: &'a Columns,
    pub(super) node: Option<&'a NodeSample>,
    /// The text of a JSON object.
    pub(super) config: &'a str,
    /// The text of a JSON object.
    pub(super) state: &'a str,
    /// Time between the saving of the state and the instance's start; only at the first evaluation.
    pub(super) state_age: Option<Micros>,
    /// The pods that the policy was given.
    pub(super) pods: &'a BTreeMap<PodId, String>,
}

#[derive(serde::Serialize)]
struct NodeRow<'a> {
    #[serde(flatten)]
    sample: NodeSample,
    #[serde(flatten)]
    used: NodeUseRow<'a>,
}

#[derive(serde::Serialize)]
struct NumaRow<'a> {
    nodes: Vec<NumaNodeRow<'a>>,
    containers: Column<'a, NumaSample, NumaContainerRow>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct NumaNodeRow<'a> {
    id: u32,
    cpus: usize,
    memory_bytes: u64,
    free_bytes: u64,
    available_bytes: u64,
    distances: &'a [u32],
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct NumaContainerRow {
    /// A string, since a float cannot represent 64 bits.
    identity: Word<u64>,
    cpu_nodes: Vec<u32>,
    memory_nodes: Vec<u32>,
    pages: Vec<Share>,
}

#[derive(serde::Serialize)]
struct Share {
    node: u32,
    pages: u64,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct MigrationRow<'a> {
    token: u64,
    state: &'static str,
    pages_found: u64,
    pages_moved: u64,
    pages_failed: BTreeMap<&'static str, u64>,
    pages_without_room: u64,
    failures: Vec<FailureRow<'a>>,
    why: &'a str,
}

#[derive(serde::Serialize)]
struct FailureRow<'a> {
    pid: u32,
    error: &'a str,
}

/// Whether the kernel supports a feature, and if not, why.
#[derive(serde::Serialize)]
struct SupportRow<'a> {
    supported: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

impl<'a> SupportRow<'a> {
    fn new(support: std::result::Result<(), &'a str>) -> Self {
        Self { supported: support.is_ok(), why: support.err() }
    }
}

#[derive(serde::Serialize)]
struct NodeKnobRow {
    value: u64,
    baseline: u64,
}

/// The node's settings by name, without those that the kernel lacks.
fn node_knobs(samples: &[NodeKnobSample]) -> BTreeMap<&'static str, NodeKnobRow> {
    let row = |sample: &NodeKnobSample| {
        (sample.knob.kind_name(), NodeKnobRow { value: sample.value, baseline: sample.baseline })
    };
    samples.iter().map(row).collect()
}

/// Writes the evaluation's own part of the input: everything but pods and quotas, which outlast an evaluation. Columns
/// that the policy does not declare are left out.
pub(super) fn evaluation(
    text: &mut String,
    declares: impl Fn(Interface) -> bool,
    evaluation: &Evaluation<'_>,
) -> Result<()> {
    let columns = evaluation.columns;
    let tick = Tick {
        window_usec: evaluation.window.0,
        elapsed_usec: evaluation.elapsed.0,
        cause: match evaluation.cause {
            Cause::Interval => "interval",
            Cause::PodsChanged => "podsChanged",
            Cause::ConfigChanged => "configChanged",
            Cause::Alarm => "alarm",
        },
        alarms: columns.alarms.iter().map(alarm).collect(),
    };
    let mut object = Object { text };
    object.text.clear();
    object.text.push('{');
    object.add("tick", &tick)?;
    object.splice("config", evaluation.config);
    object.splice("state", evaluation.state);
    if let Some(age) = evaluation.state_age {
        object.add("stateAgeUsec", &age.0)?;
    }
    if let Some(sample) = evaluation.node.filter(|_| declares(Interface::Node)) {
        object.add("node", &node(sample, columns))?;
    }
    if declares(Interface::CpuStat) {
        object.add("cpu", &Column(columns.cpu.as_deref().unwrap_or_default(), cpu))?;
    }
    if declares(Interface::MemoryStat) {
        object.add("memory", &Column(columns.memory.as_deref().unwrap_or_default(), memory))?;
    }
    if declares(Interface::Pressure) {
        object.add("pressure", &Column(columns.pressure.as_deref().unwrap_or_default(), pressure))?;
    }
    if declares(Interface::NumaStat) {
        let nothing = NumaColumn::default();
        object.add("numa", &numa(columns.numa.as_deref().unwrap_or(&nothing)))?;
    }
    if declares(Interface::PageMigration) {
        object.add("migrations", &Column(columns.migrations.as_deref().unwrap_or_default(), migration))?;
    }
    if declares(Interface::CpuTopology) {
        let nothing = CpuTopology::default();
        let topology = columns.cpu_topology.as_deref().unwrap_or(&nothing);
        object.add("cpuTopology", &CpuTopologyRow::of(topology, columns.cpu_sets.as_deref().unwrap_or_default()))?;
    }
    let nothing = ResctrlColumn::default();
    if let Some(row) = ResctrlRow::of(columns.resctrl.as_deref().unwrap_or(&nothing), &declares) {
        object.add("resctrl", &row)?;
    }
    if let Some(node) = columns.node_object.as_deref().filter(|_| declares(Interface::NodeObject)) {
        object.add("nodeObject", &self::object::node(node))?;
    }
    if declares(Interface::PodObject) {
        object.add("podObjects", &self::object::PodObjects(columns.pod_objects.as_deref().unwrap_or_default()))?;
    }
    if declares(Interface::ClusterConfig) {
        object.key("clusterConfig");
        self::object::config(object.text, columns.cluster_config.as_deref())?;
    }
    if declares(Interface::CpuIdentity) {
        object.add("groupIdentity", &SupportRow::new(columns.identity_support()))?;
        object.add("coreScheduling", &SupportRow::new(columns.core_scheduling_support()))?;
    }
    if declares(Interface::NodeKnobs) {
        object.add("nodeKnobs", &node_knobs(columns.node_knobs.as_deref().unwrap_or_default()))?;
    }
    if declares(Interface::BlockIo) {
        let column = columns.block_devices.as_deref();
        let devices = column.map(|column| &*column.devices).unwrap_or_default();
        object.add("blockDevices", &block_io::devices(devices))?;
        let volumes = column.map(|column| &*column.volumes).unwrap_or_default();
        object.add("podVolumes", &block_io::volumes(volumes, |pod| evaluation.pods.contains_key(&pod)))?;
    }
    if declares(Interface::NodeResource) {
        object.add("resources", &requests::resources(columns.resources.as_deref().unwrap_or_default()))?;
    }
    if declares(Interface::Eviction) {
        object.add("evictions", &requests::evictions(columns.evictions.as_deref().unwrap_or_default()))?;
    }
    object.text.push('}');
    Ok(())
}

/// An object whose text is being written.
struct Object<'a> {
    text: &'a mut String,
}

impl Object<'_> {
    fn splice(&mut self, key: &str, value: &str) {
        self.key(key);
        self.text.push_str(value);
    }

    fn add(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        self.key(key);
        self.text.push_str(&serde_json::to_string(value)?);
        Ok(())
    }

    fn key(&mut self, key: &str) {
        if !self.text.ends_with('{') {
            self.text.push(',');
        }
        self.text.push('"');
        self.text.push_str(key);
        self.text.push_str("\":");
    }
}

fn node<'a>(sample: &NodeSample, columns: &'a Columns) -> NodeRow<'a> {
    NodeRow { sample: *sample, used: NodeUseRow::of(columns) }
}

fn cpu(sample: &CpuSample) -> (ContainerId, Fields<CpuCounters>) {
    (sample.container, Fields(sample.delta))
}

fn memory(sample: &MemorySample) -> (ContainerId, Fields<MemoryCounters>) {
    (sample.container, Fields(sample.memory))
}

fn pressure(sample: &PressureSample) -> (ContainerId, PressureCounters) {
    (sample.container, sample.delta)
}

fn numa(column: &NumaColumn) -> NumaRow<'_> {
    let nodes = column.topology.iter().map(|(id, node)| NumaNodeRow {
        id: id.0,
        cpus: node.cpus.len(),
        memory_bytes: node.memory.0,
        free_bytes: node.free.0,
        available_bytes: node.available.0,
        distances: &node.distances,
    });
    NumaRow { nodes: nodes.collect(), containers: Column(&column.samples, numa_container) }
}

fn numa_container(sample: &NumaSample) -> (ContainerId, NumaContainerRow) {
    let row = NumaContainerRow {
        identity: Word(sample.identity),
        cpu_nodes: sample.cpu_nodes.iter().map(|node| node.0).collect(),
        memory_nodes: sample.memory_nodes.iter().map(|node| node.0).collect(),
        pages: sample.pages.iter().map(|&(node, pages)| Share { node: node.0, pages }).collect(),
    };
    (sample.container, row)
}

fn migration(sample: &MigrationSample) -> (ContainerId, MigrationRow<'_>) {
    let own = &sample.progress;
    let row = MigrationRow {
        token: own.token,
        state: own.state.as_str(),
        pages_found: own.pages_found,
        pages_moved: own.pages_moved,
        pages_failed: own.pages_failed.iter().copied().collect(),
        pages_without_room: own.pages_without_room,
        failures: own.failures.iter().map(|failure| FailureRow { pid: failure.pid, error: &failure.error }).collect(),
        why: &own.why,
    };
    (sample.container, row)
}
