//! What a policy can read and stage: one trait for each interface of the contract, and [`Host`], which combines them.
//!
//! A policy's entry points take `H: Host`. Its own functions should take only the traits that they use, e.g. `&mut impl CpuBandwidth`.

mod controls;
#[cfg(target_arch = "wasm32")]
mod granted;
mod signals;

pub use self::controls::{
    BlockIo, CpuBandwidth, CpuIdentity, CpuWeight, Cpuset, Eviction, MemoryLimit, MemoryProtection, NodeKnobs,
    NodeResource, PageMigration, ResctrlAllocation,
};
#[cfg(target_arch = "wasm32")]
pub use self::granted::Granted;
pub use self::signals::{
    ClusterConfig, CpuStat, CpuTopology, MemoryStat, Node, NodeObject, NumaStat, PodObject, Pressure, ResctrlMonitor,
};
use crate::{EventKind, Level, PodFacts, PodId, Target};

/// Log lines, remarks and problems for the operator. Always granted. The host drops and counts lines beyond its limit.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{Level, Log, Target};
///
/// let mut host = MockHost::default();
/// host.log(Level::Info, "3 quotas raised");
/// assert_eq!(host.log, [(Level::Info, "3 quotas raised".to_owned())]);
/// host.remark(Target::Container(7), "cpu.quota", "not raised: the node is busy");
/// assert_eq!(host.remarks[0].reason, "not raised: the node is busy");
/// host.problem("system-config", "minFreeKbytesFactor", "it is 0; give 1 to 400. Until then it stays as it was");
/// assert_eq!(host.key_problems[0].field, "minFreeKbytesFactor");
/// ```
pub trait Log {
    /// Writes one log line.
    fn log(&mut self, level: Level, message: &str);

    /// Reports that the policy wanted to set a knob, named as in plans (`cpu.quota`, `memory.low`), but did not, and why. A remark lasts
    /// until the next evaluation, which has to repeat it while it still applies. The operator sees it beside the values that are held.
    /// Since contract 0.1.3.
    fn remark(&mut self, target: Target, knob: &str, reason: &str);

    /// Reports that a part of the cluster's configuration does not count as it is written: a key of the cluster ConfigMap, the path of the
    /// field within it (empty for the whole key), and what is wrong, what counts instead and what to write. A problem lasts until the next
    /// evaluation, which has to repeat it while it still applies. The operator sees it among the problems of configuration. Since contract
    /// 0.1.3.
    fn problem(&mut self, key: &str, field: &str, message: &str);
}

/// State of at most 64 KiB that survives a restart of the agent and is inherited by a new version of the policy. Always granted.
///
/// ```
/// use qosm_sdk::State;
/// use qosm_sdk::mock::MockHost;
///
/// let mut host = MockHost::default();
/// assert!(host.load_state().is_empty(), "nothing was saved yet");
/// host.save_state(b"what the next instance should know")?;
/// host.commit();
/// assert_eq!(host.load_state(), b"what the next instance should know");
/// // A minute before this instance began.
/// host.state_age_usec = Some(60_000_000);
/// assert_eq!(host.state_age_usec(), Some(60_000_000));
/// # Ok::<(), String>(())
/// ```
pub trait State {
    /// The bytes that were saved last; empty before the first save.
    fn load_state(&mut self) -> Vec<u8>;

    /// Age, in microseconds, of the state that this instance started with: the time from its last save to the start of the instance,
    /// including the time during which no agent ran. `None` if there was no state or its age is unknown. Changes to the system clock do not
    /// affect it. Since contract 0.1.3.
    fn state_age_usec(&mut self) -> Option<u64>;

    /// Replaces the saved bytes when the call returns normally.
    ///
    /// # Errors
    ///
    /// If `bytes` is longer than 65536 bytes; the bytes saved before stay.
    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// Kubernetes events on a pod, for the pod's owner.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{EventKind, PodEvent};
///
/// let mut host = MockHost::default();
/// host.emit(1, EventKind::Warning, "NoMemoryLimit", "memory.high needs a memory limit; set resources.limits.memory");
/// assert_eq!(host.events.len(), 1);
/// ```
pub trait PodEvent {
    /// Records an event on a pod. `reason` is one word in camel case.
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str);
}

/// Keeps settings as they are. Each evaluation declares all settings and classes that the policy wants: the [`Session`](crate::Session)
/// calls the host only for those that differ from the previous evaluation, and releases those that are no longer declared. An evaluation
/// that has too little data to decide keeps the existing ones.
///
/// ```
/// use qosm_sdk::{
///     Bandwidth, CpuBandwidth, Declare, Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Target, Tick, mock,
/// };
///
/// #[derive(Default)]
/// struct Mine;
///
/// impl Policy for Mine {
///     type Config = ();
///     type PodConfig = NoConfig;
///     // …
/// #   fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #   fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
///     fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
///         let rows = host.bandwidth();
///         if rows.is_empty() {
///             host.keep_all();
///         }
///         for row in rows {
///             match row.quota_usec {
///                 Some(quota) => host.set_burst(row.target, quota, "as much as the quota"),
///                 None => host.keep(row.target),
///             }
///         }
///         Ok(())
///     }
/// }
///
/// let mut host = mock::MockHost::default();
/// let mut session = Session::<Mine>::default();
/// session.pods(&mut host, vec![mock::pod(1, "default", "web")], &[])?;
/// for quota_usec in [Some(50_000), None] {
///     let baseline_quota_usec = Some(50_000);
///     host.columns.bandwidth =
///         vec![Bandwidth { target: Target::Pod(1), quota_usec, baseline_quota_usec, period_usec: 100_000 }];
///     session.evaluate(&mut host, mock::tick(1_000))?;
///     host.assert_held(Target::Pod(1), mock::CPU_BURST, 50_000);
/// }
/// host.columns.bandwidth.clear();
/// session.evaluate(&mut host, mock::tick(1_000))?;
/// host.assert_held(Target::Pod(1), mock::CPU_BURST, 50_000);
/// # Ok::<(), String>(())
/// ```
pub trait Declare {
    /// Keeps the settings of one cgroup, and its class membership, as the previous evaluation declared them. Settings and releases after
    /// this call still take effect.
    fn keep(&mut self, target: Target) {
        let _ = target;
    }

    /// Keeps everything: all settings, classes and members.
    fn keep_all(&mut self) {}
}

/// Hooks that a [`Session`](crate::Session) calls on test hosts. The host on a node needs none of them, so all do nothing by default.
#[doc(hidden)]
pub trait CallHooks {
    /// A call of the policy begins. Columns can be read in evaluations only.
    fn begin(&mut self, is_evaluation: bool) {
        let _ = is_evaluation;
    }

    /// The host hands over new or changed pods, and the ids of removed ones.
    fn give(&mut self, upserted: &[PodFacts], removed: &[PodId]) {
        let _ = (upserted, removed);
    }

    /// The first evaluation of an instance succeeded: the host releases what an earlier instance held and this one did not declare.
    fn release_undeclared(&mut self) {}

    /// The policy's call ended with this result. After an error, the host keeps nothing that the call staged.
    ///
    /// # Errors
    ///
    /// The first rule that the policy broke in this call, else the policy's own error.
    fn end<T>(&mut self, result: Result<T, String>) -> Result<T, String> {
        result
    }
}

/// All interfaces of the contract. A component imports only the functions that the policy calls.
///
/// ```
/// use qosm_sdk::mock::MockHost;
/// use qosm_sdk::{CpuBandwidth, CpuStat, Host, Target};
///
/// /// An entry point has all of it, ...
/// fn evaluate(host: &mut impl Host) {
///     lift(host);
/// }
///
/// /// ... and what it calls takes what it needs.
/// fn lift(host: &mut (impl CpuStat + CpuBandwidth)) {
///     for sample in host.cpu().into_iter().filter(|sample| sample.nr_throttled > 0) {
///         host.set_quota(Target::Container(sample.container), None, "it is throttled");
///     }
/// }
///
/// evaluate(&mut MockHost::default());
/// ```
pub trait Host:
    CallHooks
    + Declare
    + Log
    + State
    + Node
    + CpuStat
    + MemoryStat
    + Pressure
    + NumaStat
    + CpuTopology
    + CpuBandwidth
    + CpuWeight
    + CpuIdentity
    + MemoryProtection
    + Cpuset
    + MemoryLimit
    + NodeKnobs
    + BlockIo
    + PageMigration
    + ResctrlMonitor
    + NodeObject
    + PodObject
    + ClusterConfig
    + ResctrlAllocation
    + NodeResource
    + Eviction
    + PodEvent
{
}

impl<T> Host for T where
    T: CallHooks
        + Declare
        + Log
        + State
        + Node
        + CpuStat
        + MemoryStat
        + Pressure
        + NumaStat
        + CpuTopology
        + CpuBandwidth
        + CpuWeight
        + CpuIdentity
        + MemoryProtection
        + Cpuset
        + MemoryLimit
        + NodeKnobs
        + BlockIo
        + PageMigration
        + ResctrlMonitor
        + NodeObject
        + PodObject
        + ClusterConfig
        + ResctrlAllocation
        + NodeResource
        + Eviction
        + PodEvent
{
}
