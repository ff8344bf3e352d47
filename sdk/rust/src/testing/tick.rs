//! Ticks of a case file: events, samples and expectations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::block_io::{BlockDeviceRow, PodVolumeRow};
use super::case::{NodeFacts, PodDescription};
use super::cpu_topology::CpuTopologyRow;
use super::expectation::{
    EventExpectation, Expectation, ProblemExpectation, RejectionExpectation, RemarkExpectation, StartExpectation,
};
use super::node_use::ApplicationRow;
use super::object::{ConfigKeyRow, NodeObjectRow, PodObjectRow};
use super::requests::{EvictionExpectation, EvictionStateRow, ResourceExpectation, ResourceStateRow};
use super::resctrl::{CacheDomainRow, ClassExpectation, ClassStateRow, MemberExpectation, UsageRow};
use crate::counters::{CpuRow, GroupRow, MemoryRow};
use crate::{ContainerId, PressureSample, Stall};

/// One tick. Rows that are "kept" stay in force until a later tick gives new ones, `{}` or `[]` for none.
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
    /// What the tick shows, in one sentence.
    pub about: String,
    /// Time since the previous tick; 1000 by default.
    pub window_millis: Option<u64>,
    /// `interval` (the default), `podsChanged`, `configChanged` or `alarm`.
    pub cause: Option<String>,
    /// Triggers that fired; for this tick only.
    pub alarms: Vec<AlarmRow>,
    /// How often the tick is played; 1 by default. `expect` lists what changes from before the first to after the last time.
    pub repeat: Option<u32>,
    /// New policy-level configuration.
    pub configure: Option<Map<String, Json>>,
    /// Pods that are new or changed.
    pub upsert: Vec<PodDescription>,
    /// Names of removed pods.
    pub remove: Vec<String>,
    /// Changed facts about the node.
    pub node: NodeFacts,
    /// CPU samples by `namespace/pod/container`; kept.
    pub cpu: Option<BTreeMap<String, CpuRow>>,
    /// Memory samples by `namespace/pod/container`; kept.
    pub memory: Option<BTreeMap<String, MemoryRow>>,
    /// Pressure samples by `namespace/pod/container`; kept.
    pub pressure: Option<BTreeMap<String, PressureRow>>,
    /// Use by groups: `kubepods`, `burstable`, `besteffort`, `outside`, and pods by `namespace/name`; kept.
    pub groups: Option<BTreeMap<String, GroupRow>>,
    /// Use by applications outside Kubernetes, by name; kept.
    pub applications: Option<BTreeMap<String, ApplicationRow>>,
    /// The machine's CPUs; kept.
    pub cpu_topology: Option<CpuTopologyRow>,
    /// CPUs in force, by target as in expectations (`tier besteffort`, `pod default/web`, `container default/web/app`); kept.
    pub cpu_sets: Option<BTreeMap<String, Vec<u32>>>,
    /// The NUMA nodes; kept.
    pub numa_nodes: Option<Vec<NumaNodeRow>>,
    /// NUMA samples by `namespace/pod/container`; kept.
    pub numa: Option<BTreeMap<String, NumaRow>>,
    /// Progress of migrations by `namespace/pod/container`; kept.
    pub migrations: Option<BTreeMap<String, ProgressRow>>,
    /// Caches and the memory bandwidth behind them; kept.
    pub cache_domains: Option<Vec<CacheDomainRow>>,
    /// Use by classes, by name and domain; kept. A class appears once the policy has defined it.
    pub class_usage: Option<BTreeMap<String, BTreeMap<u32, UsageRow>>>,
    /// Use by containers, by `namespace/pod/container` and domain; kept.
    pub container_usage: Option<BTreeMap<String, BTreeMap<u32, UsageRow>>>,
    /// Use by everything that is in no class, by domain; kept.
    pub rest_usage: Option<BTreeMap<u32, UsageRow>>,
    /// States of classes, by name; kept.
    pub class_states: Option<BTreeMap<String, ClassStateRow>>,
    /// The Node object; kept. Initially unknown.
    pub node_object: Option<NodeObjectRow>,
    /// Pod objects by `namespace/name`; kept. A pod without a row has no owner and is not being deleted.
    pub pod_objects: Option<BTreeMap<String, PodObjectRow>>,
    /// The cluster ConfigMap, by key; kept.
    pub cluster_config: Option<BTreeMap<String, ConfigKeyRow>>,
    /// Whether group identities can take effect; kept. Initially no.
    pub group_identity: Option<bool>,
    /// Whether containers can join core scheduling groups; kept. Initially no.
    pub core_scheduling: Option<bool>,
    /// Values of the node's kernel settings without the policy, by name of the knob; kept. This kernel does not have the settings that are
    /// left out.
    pub node_knobs: Option<BTreeMap<String, u64>>,
    /// The block devices of the node; kept.
    pub block_devices: Option<Vec<BlockDeviceRow>>,
    /// Volumes of pods on block devices; kept.
    pub pod_volumes: Option<Vec<PodVolumeRow>>,
    /// States of published resources, by name; kept.
    pub resource_states: Option<BTreeMap<String, ResourceStateRow>>,
    /// States of evictions, by `namespace/name` of the pod; kept.
    pub eviction_states: Option<BTreeMap<String, EvictionStateRow>>,
    /// Rows of the bandwidth column that differ from the leases; for this tick only.
    pub bandwidth: Vec<BandwidthRow>,
    /// All leases that change.
    pub expect: Vec<Expectation>,
    /// Pods whose configuration the policy rejects.
    pub rejections: Vec<RejectionExpectation>,
    /// Migrations that are started.
    pub starts: Vec<StartExpectation>,
    /// Containers whose migration is stopped.
    pub stops: Vec<String>,
    /// Classes that are defined, changed or given up.
    pub classes: Vec<ClassExpectation>,
    /// Pods and containers whose class changes.
    pub members: Vec<MemberExpectation>,
    /// Resources that are published, changed or withdrawn.
    pub published: Vec<ResourceExpectation>,
    /// New time, in seconds, that resources stay valid without a sign of life from the agent; left out if it does not change.
    pub stale_after_seconds: Option<u32>,
    /// Pods whose eviction is requested or withdrawn.
    pub evicted: Vec<EvictionExpectation>,
    /// Events that are emitted, in order.
    pub events: Vec<EventExpectation>,
    /// Remarks of the tick's last evaluation; not compared when left out.
    pub remarks: Option<Vec<RemarkExpectation>>,
    /// Reports of the tick's last evaluation on the cluster's configuration; not compared when left out.
    pub problems: Option<Vec<ProblemExpectation>>,
    /// A part of the error with which a call fails. The settings of that call are dropped.
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
    /// The trigger.
    pub trigger: TriggerRow,
    /// The target, as in [`Expectation::target`]; the node when left out.
    pub target: Option<String>,
}

/// An event that can trigger an evaluation, e.g. `throttling` or `{pressure: {scope: node, resource: memory}}`.
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
    /// Pressure rose above a threshold.
    Pressure(PressureTriggerRow),
    /// A container exceeded `memory.high`, hit its limit, or the OOM killer ended a process.
    MemoryEvents,
    /// The cgroup of a container appeared.
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
    /// Whether all tasks have to stall at once; any of them by default.
    #[serde(default)]
    pub full: bool,
    /// Stall time in microseconds; 150000 by default.
    pub stall_usec: Option<u32>,
    /// The window in microseconds; 1000000 by default.
    pub window_usec: Option<u32>,
}

/// The scope of a pressure trigger.
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
    /// The whole node.
    Node,
    /// Each pod that is configured for the policy.
    Pod,
    /// Each container of those pods.
    Container,
}

/// The resource that tasks wait for.
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
    /// CPU time.
    Cpu,
    /// Memory.
    Memory,
    /// Input or output.
    Io,
}

/// Pressure of a container or of the node, as stall times.
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

/// Stall times for one resource, in microseconds.
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
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StallRow {
    /// Time in which at least one thread waited.
    pub some_usec: u64,
    /// Time in which all threads waited at once.
    pub full_usec: u64,
}

/// A NUMA node in a case file.
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
    /// Number of the node.
    pub id: u32,
    /// Number of its CPUs; 2 by default.
    pub cpus: Option<u32>,
    /// Memory of the node; 16 GiB by default.
    pub memory_bytes: Option<u64>,
    /// Memory that is available on it; by default half of `memory_bytes`.
    pub available_bytes: Option<u64>,
    /// Distances to all nodes; by default 10 to itself and 20 to others.
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
    /// Number that identifies this instance of the container; by default derived from the container.
    pub identity: Option<u64>,
    /// Nodes of the CPUs on which the container may run.
    pub cpu_nodes: Vec<u32>,
    /// Nodes on which the container may have memory; by default all.
    pub memory_nodes: Option<Vec<u32>>,
    /// Number of pages by node.
    pub pages: BTreeMap<u32, u64>,
}

/// Progress of a migration.
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
    /// The token of the migration; by default that of the container's latest.
    pub token: Option<u64>,
    /// Pages found in the wrong place.
    #[serde(default)]
    pub pages_found: u64,
    /// Pages that were moved.
    #[serde(default)]
    pub pages_moved: u64,
    /// Number of pages that could not be moved, by error.
    #[serde(default)]
    pub pages_failed: BTreeMap<String, u64>,
    /// Pages that were not tried because the destination has no room.
    #[serde(default)]
    pub pages_without_room: u64,
    /// Errors of processes that could not be worked on, by process ID.
    #[serde(default)]
    pub failures: BTreeMap<u32, String>,
    /// Why the migration failed or waits.
    #[serde(default)]
    pub why: String,
}

/// A row of the bandwidth column whose quota differs from the lease.
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
    /// The target, as in [`Expectation::target`].
    pub target: String,
    /// The quota in force; `unreadable` removes the row.
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
    /// Microseconds per period.
    Micros(u64),
    /// Unlimited.
    Max,
    /// The file is unreadable, so the row is missing.
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
