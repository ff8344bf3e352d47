//! What a case file says of a tick: what happens, and what is measured.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::block_io::{BlockDeviceRow, PodVolumeRow};
use super::case::{NodeFacts, PodDescription};
use super::cpu_topology::CpuTopologyRow;
use super::expectation::{EventExpectation, Expectation, RejectionExpectation, RemarkExpectation, StartExpectation};
use super::node_use::{ApplicationRow, GroupRow};
use super::object::{ConfigKeyRow, NodeObjectRow, PodObjectRow};
use super::requests::{EvictionExpectation, EvictionStateRow, ResourceExpectation, ResourceStateRow};
use super::resctrl::{CacheDomainRow, ClassExpectation, ClassStateRow, MemberExpectation, UsageRow};
use crate::counters::{CpuRow, MemoryRow};
use crate::{ContainerId, PressureSample, Stall};

/// One tick.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a pod comes, is throttled, and goes
///     ticks:
///       - {cause: podsChanged, upsert: [{name: default/web, containers: [{name: app}]}]}
///       - {windowMillis: 500, repeat: 3, cpu: {default/web/app: {usageUsec: 250000, nrPeriods: 5, nrThrottled: 5}}}
///       - {cause: podsChanged, remove: [default/web]}
///     ",
/// )?;
/// assert_eq!(case.ticks[1].repeat, Some(3));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TickFacts {
    /// What it shows.
    pub about: String,
    /// Time since the tick before; 1000 when left out.
    pub window_millis: Option<u64>,
    /// `interval` (when left out), `podsChanged`, `configChanged` or `alarm`.
    pub cause: Option<String>,
    /// Triggers that fired; for this tick alone.
    pub alarms: Vec<AlarmRow>,
    /// How often the tick is played; `expect` is what changes from before the first to after the last time. 1 when left out.
    pub repeat: Option<u32>,
    /// New policy-level configuration.
    pub configure: Option<Map<String, Json>>,
    /// Pods that are new or changed.
    pub upsert: Vec<PodDescription>,
    /// Names of pods that are gone.
    pub remove: Vec<String>,
    /// What is new about the node.
    pub node: NodeFacts,
    /// CPU samples by `namespace/pod/container`; stay until they are said anew, `{}` for none.
    pub cpu: Option<BTreeMap<String, CpuRow>>,
    /// Memory samples; stay likewise.
    pub memory: Option<BTreeMap<String, MemoryRow>>,
    /// Pressure samples; stay likewise.
    pub pressure: Option<BTreeMap<String, PressureRow>>,
    /// What groups use: `kubepods`, `burstable`, `besteffort`, `outside`, and pods by `namespace/name`; stay likewise.
    pub groups: Option<BTreeMap<String, GroupRow>>,
    /// What applications beside Kubernetes use, by name; stay likewise.
    pub applications: Option<BTreeMap<String, ApplicationRow>>,
    /// The machine's CPUs; stay likewise.
    pub cpu_topology: Option<CpuTopologyRow>,
    /// CPUs in force, named as targets are in expectations (`tier besteffort`, `pod default/web`, `container default/web/app`); stay likewise.
    pub cpu_sets: Option<BTreeMap<String, Vec<u32>>>,
    /// The NUMA nodes; stay likewise.
    pub numa_nodes: Option<Vec<NumaNodeRow>>,
    /// NUMA samples; stay likewise.
    pub numa: Option<BTreeMap<String, NumaRow>>,
    /// How far migrations are; stay likewise.
    pub migrations: Option<BTreeMap<String, ProgressRow>>,
    /// Caches that can be divided or counted; stay likewise.
    pub cache_domains: Option<Vec<CacheDomainRow>>,
    /// What classes use, by name and domain; stay likewise. A class shows once the policy has defined it.
    pub class_usage: Option<BTreeMap<String, BTreeMap<u32, UsageRow>>>,
    /// What containers use, by name and domain; stay likewise.
    pub container_usage: Option<BTreeMap<String, BTreeMap<u32, UsageRow>>>,
    /// What those use that are in no class, by domain; stay likewise.
    pub rest_usage: Option<BTreeMap<u32, UsageRow>>,
    /// How classes fare; stay likewise.
    pub class_states: Option<BTreeMap<String, ClassStateRow>>,
    /// The Node object; stays likewise. Not known at first.
    pub node_object: Option<NodeObjectRow>,
    /// What Pod objects say, by `namespace/name`; stay likewise. A pod without a row is a bare one that stays.
    pub pod_objects: Option<BTreeMap<String, PodObjectRow>>,
    /// The cluster ConfigMap, by key; stays likewise.
    pub cluster_config: Option<BTreeMap<String, ConfigKeyRow>>,
    /// Whether group identities can be brought into force; stays likewise, and cannot be at first.
    pub group_identity: Option<bool>,
    /// Whether containers can be put into core scheduling groups; stays likewise, and cannot be at first.
    pub core_scheduling: Option<bool>,
    /// What settings of the node's kernel hold without the policy, by the names of knobs; stay likewise. Those that are left out this kernel
    /// does not have.
    pub node_knobs: Option<BTreeMap<String, u64>>,
    /// The block devices of the node; stay likewise.
    pub block_devices: Option<Vec<BlockDeviceRow>>,
    /// Volumes of pods on them; stay likewise.
    pub pod_volumes: Option<Vec<PodVolumeRow>>,
    /// How published resources fare, by name; stay likewise.
    pub resource_states: Option<BTreeMap<String, ResourceStateRow>>,
    /// What became of evictions, by the pod's name; stay likewise.
    pub eviction_states: Option<BTreeMap<String, EvictionStateRow>>,
    /// Rows of the bandwidth column that differ from what is held; for this tick alone.
    pub bandwidth: Vec<BandwidthRow>,
    /// All that changes.
    pub expect: Vec<Expectation>,
    /// Pods that are refused.
    pub rejections: Vec<RejectionExpectation>,
    /// Migrations that are started.
    pub starts: Vec<StartExpectation>,
    /// Containers whose migration is stopped.
    pub stops: Vec<String>,
    /// Classes that are defined, changed or given up.
    pub classes: Vec<ClassExpectation>,
    /// Pods and containers that come into another class, or out of theirs.
    pub members: Vec<MemberExpectation>,
    /// Resources that are published, changed or withdrawn.
    pub published: Vec<ResourceExpectation>,
    /// How long resources hold from now on without a word of the agent; left out where that stays.
    pub stale_after_seconds: Option<u32>,
    /// Pods that are to be evicted, or whose eviction is taken back.
    pub evicted: Vec<EvictionExpectation>,
    /// Events that are emitted, in order.
    pub events: Vec<EventExpectation>,
    /// What is wanted and not done after the tick's last evaluation; not looked at when left out.
    pub remarks: Option<Vec<RemarkExpectation>>,
    /// A part of the error with which a call fails; its settings are dropped.
    pub error: Option<String>,
}

/// A trigger that fired.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: something fires between two intervals
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - cause: alarm
///         alarms:
///           - {trigger: throttling, target: container default/web/app}
///           - {trigger: {pressure: {scope: node, resource: memory, full: true, stallUsec: 100000}}}
///     ",
/// )?;
/// assert_eq!(case.ticks[0].alarms[0].target.as_deref(), Some("container default/web/app"));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AlarmRow {
    /// Which.
    pub trigger: TriggerRow,
    /// As in [`Expectation::target`]; the node when left out.
    pub target: Option<String>,
}

/// What a policy can ask to be woken by, e.g. `throttling` or `{pressure: {scope: node, resource: memory}}`.
///
/// ```
/// use qosm_sdk::testing::{Case, TriggerRow};
///
/// let case = Case::parse(
///     "
///     about: something fires between two intervals
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - cause: alarm
///         alarms:
///           - {trigger: throttling, target: container default/web/app}
///           - {trigger: {pressure: {scope: node, resource: memory, full: true, stallUsec: 100000}}}
///     ",
/// )?;
/// assert!(matches!(case.ticks[0].alarms[0].trigger, TriggerRow::Throttling));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum TriggerRow {
    /// A container used up its quota.
    Throttling,
    /// Pressure above a threshold.
    Pressure(PressureTriggerRow),
    /// `memory.high`, the limit, or the OOM killer.
    MemoryEvents,
    /// A container's cgroup appeared.
    ContainerStarted,
}

/// A threshold of pressure.
///
/// ```
/// use qosm_sdk::testing::{Case, TriggerRow};
///
/// let case = Case::parse(
///     "
///     about: something fires between two intervals
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - cause: alarm
///         alarms:
///           - {trigger: throttling, target: container default/web/app}
///           - {trigger: {pressure: {scope: node, resource: memory, full: true, stallUsec: 100000}}}
///     ",
/// )?;
/// let TriggerRow::Pressure(pressure) = case.ticks[0].alarms[1].trigger else { return Ok(()) };
/// assert_eq!((pressure.full, pressure.stall_usec), (true, Some(100_000)));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PressureTriggerRow {
    /// `node`, `pod` or `container`.
    pub scope: ScopeWord,
    /// `cpu`, `memory` or `io`.
    pub resource: ResourceWord,
    /// Whether all have to wait; any of them when left out.
    #[serde(default)]
    pub full: bool,
    /// Time lost; 150000 when left out.
    pub stall_usec: Option<u32>,
    /// The window; 1000000 when left out.
    pub window_usec: Option<u32>,
}

/// Whose pressure.
///
/// ```
/// use qosm_sdk::testing::{Case, ScopeWord, TriggerRow};
///
/// let case = Case::parse(
///     "
///     about: something fires between two intervals
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - cause: alarm
///         alarms:
///           - {trigger: throttling, target: container default/web/app}
///           - {trigger: {pressure: {scope: node, resource: memory, full: true, stallUsec: 100000}}}
///     ",
/// )?;
/// let TriggerRow::Pressure(pressure) = case.ticks[0].alarms[1].trigger else { return Ok(()) };
/// assert!(matches!(pressure.scope, ScopeWord::Node));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScopeWord {
    /// The node's.
    Node,
    /// A pod's.
    Pod,
    /// A container's.
    Container,
}

/// What there is too little of.
///
/// ```
/// use qosm_sdk::testing::{Case, ResourceWord, TriggerRow};
///
/// let case = Case::parse(
///     "
///     about: something fires between two intervals
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - cause: alarm
///         alarms:
///           - {trigger: throttling, target: container default/web/app}
///           - {trigger: {pressure: {scope: node, resource: memory, full: true, stallUsec: 100000}}}
///     ",
/// )?;
/// let TriggerRow::Pressure(pressure) = case.ticks[0].alarms[1].trigger else { return Ok(()) };
/// assert!(matches!(pressure.resource, ResourceWord::Memory));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceWord {
    /// A CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Input or output.
    Io,
}

/// Pressure of a container or of the node.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: both wait for memory
///     node: {pressure: {memory: {someUsec: 200000, fullUsec: 5000}}}
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - pressure: {default/web/app: {memory: {someUsec: 150000, fullUsec: 20000}}}
///     ",
/// )?;
/// let Some(pressure) = &case.ticks[0].pressure else { return Ok(()) };
/// assert_eq!(pressure["default/web/app"].memory.some_usec, 150_000);
/// assert_eq!(case.node.pressure.map(|pressure| pressure.memory.full_usec), Some(5_000));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PressureRow {
    /// Waiting for a CPU.
    pub cpu: StallRow,
    /// Waiting for memory.
    pub memory: StallRow,
    /// Waiting for input or output.
    pub io: StallRow,
}

impl PressureRow {
    pub(super) fn of(self, container: ContainerId) -> PressureSample {
        let stall = |row: StallRow| Stall { some_usec: row.some_usec, full_usec: row.full_usec };
        PressureSample { container, cpu: stall(self.cpu), memory: stall(self.memory), io: stall(self.io) }
    }
}

/// Time lost.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a sample
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - pressure: {default/web/app: {io: {someUsec: 7}}}
///     ",
/// )?;
/// let Some(pressure) = &case.ticks[0].pressure else { return Ok(()) };
/// assert_eq!(pressure["default/web/app"].io.full_usec, 0);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StallRow {
    /// By some threads.
    pub some_usec: u64,
    /// By all.
    pub full_usec: u64,
}

/// A NUMA node.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: two NUMA nodes
///     ticks:
///       - numaNodes: [{id: 0}, {id: 1, cpus: 0}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].numa_nodes.as_ref().map(Vec::len), Some(2));
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NumaNodeRow {
    /// Its number.
    pub id: u32,
    /// How many CPUs it has; 2 when left out.
    pub cpus: Option<u32>,
    /// Memory on it; 16 GiB when left out.
    pub memory_bytes: Option<u64>,
    /// Of that, what could be used; half of it when left out.
    pub available_bytes: Option<u64>,
    /// Distances; 10 to itself and 20 to all others when left out.
    #[serde(default)]
    pub distances: Vec<u32>,
}

/// A NUMA sample.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a sample
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - numa: {default/web/app: {cpuNodes: [1], pages: {0: 57000, 1: 43000}}}
///     ",
/// )?;
/// let Some(numa) = &case.ticks[0].numa else { return Ok(()) };
/// assert_eq!(numa["default/web/app"].pages[&0], 57_000);
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NumaRow {
    /// What tells this life of the container from others; follows from the container when left out.
    pub identity: Option<u64>,
    /// Nodes of its CPUs.
    pub cpu_nodes: Vec<u32>,
    /// Nodes of its memory; all when left out.
    pub memory_nodes: Option<Vec<u32>>,
    /// Pages by node.
    pub pages: BTreeMap<u32, u64>,
}

/// How far a migration is.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: a sample
///     pods: [{name: default/web, containers: [{name: app}]}]
///     ticks:
///       - migrations: {default/web/app: {state: moving, pagesFound: 57000, pagesMoved: 20000}}
///     ",
/// )?;
/// let Some(migrations) = &case.ticks[0].migrations else { return Ok(()) };
/// assert_eq!(migrations["default/web/app"].state, "moving");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgressRow {
    /// `waiting`, `moving`, `paused`, `done`, `failed` or `stopped`.
    pub state: String,
    /// The number that it was started with; the latest of the container when left out.
    pub token: Option<u64>,
    /// Pages in the wrong place.
    #[serde(default)]
    pub pages_found: u64,
    /// Pages that were moved.
    #[serde(default)]
    pub pages_moved: u64,
    /// Pages that stay, by error.
    #[serde(default)]
    pub pages_failed: BTreeMap<String, u64>,
    /// Pages for which there was no room.
    #[serde(default)]
    pub pages_without_room: u64,
    /// Processes that failed: number and error.
    #[serde(default)]
    pub failures: BTreeMap<u32, String>,
    /// Why it failed or waits.
    #[serde(default)]
    pub why: String,
}

/// A quota that is not what is held.
///
/// ```
/// use qosm_sdk::testing::Case;
///
/// let case = Case::parse(
///     "
///     about: another program wrote the quota
///     ticks:
///       - bandwidth: [{target: container default/web/app, quotaUsec: 70000}]
///     ",
/// )?;
/// assert_eq!(case.ticks[0].bandwidth[0].target, "container default/web/app");
/// # Ok::<(), qosm_sdk::testing::CaseError>(())
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BandwidthRow {
    /// As in [`Expectation::target`].
    pub target: String,
    /// The quota in force; `unreadable` takes the row out.
    pub quota_usec: Quota,
}

/// A quota: a number, `max`, or `unreadable`.
///
/// ```
/// use qosm_sdk::testing::Quota;
///
/// assert_eq!(Quota::try_from(serde_json::json!(50_000)), Ok(Quota::Micros(50_000)));
/// assert_eq!(Quota::try_from(serde_json::json!("max")), Ok(Quota::Max));
/// assert!(Quota::try_from(serde_json::json!("much")).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Json")]
pub enum Quota {
    /// So many microseconds each period.
    Micros(u64),
    /// Unlimited.
    Max,
    /// The file cannot be read.
    Unreadable,
}

impl TryFrom<Json> for Quota {
    type Error = String;

    fn try_from(json: Json) -> Result<Self, String> {
        match (&json, json.as_u64()) {
            (_, Some(micros)) => Ok(Self::Micros(micros)),
            (Json::String(word), _) if word == "max" => Ok(Self::Max),
            (Json::String(word), _) if word == "unreadable" => Ok(Self::Unreadable),
            _ => Err(format!("{json} is no quota: give microseconds, `max` or `unreadable`")),
        }
    }
}
