//! Write qosm policies in Rust.
//!
//! A policy is an ordinary type that implements [`Policy`]. The same code runs natively in unit tests, against a [`mock::MockHost`], and
//! ships as a Wasm component. [`export!`] expands to nothing except on `wasm32`.
//!
//! Reading order: [`Policy`] (the trait that you implement), [`Host`] (what a policy can read and stage), [`Pod`] and [`Pods`] (the pods
//! that the host hands over), [`Description`] and [`Protocol`] (how operators configure the policy), [`mod@mock`] (a host for unit tests)
//! and, behind features, `testing` (the runner of case files) and `strategies` (for property tests).
//!
//! [`Rate`], [`RecentRate`], [`Ewma`] and [`scale`] are helpers for common calculations. They use integers only, so the same input gives
//! the same decisions on every machine.
//!
//! An import is a permission, and a component imports only the functions that it calls. A policy that never calls
//! [`CpuBandwidth::set_quota`] neither needs nor can be granted the right to set a quota. For this reason every method is generic over
//! `H: Host`, and there is no `dyn Host`.
//!
//! ```
//! use qosm_sdk::{Description, Host, Pod, PodId, Pods, Policy, Preset, Protocol, Rejection, Target, Tick, percent_of};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! /// Lets every container of a pod save up `percent` of its CPU limit.
//! #[derive(Default)]
//! struct Saver {
//!     pods: Pods<Saving>,
//! }
//!
//! /// What a pod's owner may write. Comments, ranges and types become the schema with which the host checks it.
//! #[derive(Deserialize, JsonSchema)]
//! struct Saving {
//!     /// How much may be saved up, in percent of what the limit allows in a period of 100 ms.
//!     #[schemars(range(max = 100))]
//!     percent: u64,
//! }
//!
//! impl Policy for Saver {
//!     type Config = ();
//!     type PodConfig = Saving;
//!
//!     fn describe() -> Description {
//!         Description::new("saver", "0.1.0", "Lets containers save up CPU time.").protocol(
//!             Protocol::new()
//!                 .annotation("example.org/saver")
//!                 .preset(Preset::new("none", "{}").alone())
//!                 .schema_of::<Saving>(),
//!         )
//!     }
//!
//!     fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<Saving>>, removed: &[PodId]) -> Vec<Rejection> {
//!         self.pods.update(upserted, removed);
//!         Vec::new()
//!     }
//!
//!     fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
//!         for pod in self.pods.iter() {
//!             for container in &pod.containers {
//!                 let target = Target::Container(container.id);
//!                 if let (Some(saving), Some(limit)) = (&pod.config, container.cpu_limit_milli) {
//!                     host.set_burst(target, percent_of(limit * 100, saving.percent), "asked for");
//!                 }
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! qosm_sdk::export!(Saver);
//!
//! // In a test:
//! use qosm_sdk::{Container, PodFacts, Session, mock};
//! let mut host = mock::MockHost::default();
//! let mut saver = Session::<Saver>::default();
//! let pod = PodFacts {
//!     config: r#"{"percent": 50}"#.into(),
//!     containers: vec![Container { cpu_limit_milli: Some(2000), ..mock::container(7, "app") }],
//!     ..mock::pod(1, "default", "web")
//! };
//! saver.pods(&mut host, vec![pod], &[])?;
//! saver.evaluate(&mut host, mock::tick(1_000))?;
//! host.assert_held(Target::Container(7), mock::CPU_BURST, 100_000);
//! # Ok::<(), String>(())
//! ```

#![deny(missing_docs, rustdoc::broken_intra_doc_links)]

#[doc(hidden)]
pub mod bindings;
mod block_io;
mod core_group;
mod counters;
mod declaration;
mod describe;
mod effective;
mod ewma;
mod host;
mod kubelet;
pub mod mock;
#[cfg(any(test, target_arch = "wasm32"))]
mod panic;
mod pod;
mod pods;
mod policy;
mod rate;
mod scale;
mod schema;
mod session;
mod shown;
#[cfg(feature = "proptest")]
pub mod strategies;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use self::panic::report_panics;
/// ```
/// use qosm_sdk::Rejection;
///
/// let rejection = Rejection {
///     pod: 1,
///     field: "percent".into(),
///     message: "no container has a memory limit; set resources.limits.memory".into(),
/// };
/// assert_eq!(rejection.pod, 1);
/// ```
#[doc(inline)]
pub use bindings::exports::qosm::policy::lifecycle::Rejection;
/// ```
/// use qosm_sdk::IoCostModel;
///
/// let model = IoCostModel {
///     read_bps: 500 << 20, read_seq_iops: 90_000, read_rand_iops: 80_000, write_bps: 400 << 20, write_seq_iops: 70_000,
///     write_rand_iops: 60_000,
/// };
/// assert!(model.to_string().starts_with("ctrl=user model=linear rbps=524288000 "));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::CostModel as IoCostModel;
/// ```
/// use qosm_sdk::IoCostQos;
///
/// assert_eq!(IoCostQos { enabled: true, latency: None }.to_string(), "enable=1 ctrl=auto");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::CostQos as IoCostQos;
/// ```
/// use qosm_sdk::IoDevice;
///
/// let disk = IoDevice { major: 8, minor: 16 };
/// assert_eq!(disk.to_string(), "8:16");
/// assert_eq!("8:16".parse(), Ok(disk));
/// assert!("sdb".parse::<IoDevice>().is_err());
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::Device as IoDevice;
/// ```
/// use qosm_sdk::{IoDevice, IoDeviceInfo};
///
/// let disk = IoDeviceInfo {
///     device: IoDevice { major: 8, minor: 16 },
///     names: vec!["sdb".into()],
///     partitions: vec!["sdb1".into()],
///     volume_groups: vec!["data".into()],
/// };
/// assert!(disk.names.iter().any(|name| name == "sdb"));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::DeviceInfo as IoDeviceInfo;
/// ```
/// use qosm_sdk::{IoCostQos, IoLatency};
///
/// let latency = IoLatency {
///     read_permyriad: 9_500, read_latency_usec: 3_000, write_permyriad: 9_500, write_latency_usec: 3_000, min: 100, max: 1_000_000,
/// };
/// let qos = IoCostQos { enabled: true, latency: Some(latency) };
/// assert_eq!(
///     qos.to_string(),
///     "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=10000.00"
/// );
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::Latency as IoLatency;
/// ```
/// use qosm_sdk::IoLimits;
///
/// let limits = IoLimits { read_bps: Some(1_048_576), write_iops: Some(120), ..IoLimits::NONE };
/// assert_eq!(limits.to_string(), "rbps=1048576 wbps=max riops=max wiops=120");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::Limits as IoLimits;
/// ```
/// use qosm_sdk::{IoDevice, IoVolume};
///
/// let volume = IoVolume { pod: 1, name: "pvc-1".into(), device: IoDevice { major: 8, minor: 16 } };
/// assert_eq!(volume.device.to_string(), "8:16");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::block_io::Volume as IoVolume;
/// ```
/// use qosm_sdk::{Bandwidth, Target};
///
/// let row = Bandwidth {
///     target: Target::Container(7), quota_usec: Some(75_000), baseline_quota_usec: Some(50_000), period_usec: 100_000,
/// };
/// assert!(row.quota_usec > row.baseline_quota_usec, "a policy raised it");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_stat::Bandwidth;
/// ```
/// use qosm_sdk::{CpuSample, MilliCpu, Rate, mock};
///
/// let sample = CpuSample { usage_usec: 480_000, ..mock::cpu(7) };
/// assert_eq!(Rate::of(sample.usage_usec, 1_000_000).map(Rate::cpu), Some(MilliCpu(480)));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_stat::Sample as CpuSample;
/// ```
/// let cpu = qosm_sdk::Cpu { id: 5, core: 1, socket: 0, numa_node: 0, online: true };
/// assert_ne!(cpu.id, cpu.core, "its core's second thread");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_topology::Cpu;
/// ```
/// use qosm_sdk::{CpuSet, Target, Tier};
///
/// let batch = CpuSet { target: Target::Tier(Tier::BestEffort), cpus: vec![0, 1] };
/// assert_eq!(batch.cpus.len(), 2);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_topology::CpuSet;
/// ```
/// assert_eq!(qosm_sdk::ExclusiveCpus { container: None, cpus: vec![3] }.cpus, [3]);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_topology::Exclusive as ExclusiveCpus;
/// ```
/// assert_ne!(qosm_sdk::CpuManager::Static, qosm_sdk::CpuManager::Unknown);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_topology::Manager as CpuManager;
/// ```
/// use qosm_sdk::{Topology, mock};
///
/// let machine = Topology { reserved: vec![0], ..mock::topology(4) };
/// let free = machine.cpus.iter().filter(|cpu| cpu.online && !machine.reserved.contains(&cpu.id));
/// assert_eq!(free.count(), 3);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::cpu_topology::Topology;
/// Outcome of an eviction.
///
/// ```
/// use qosm_sdk::EvictionOutcome;
///
/// let is_leaving = |outcome| matches!(outcome, EvictionOutcome::Accepted | EvictionOutcome::Killed | EvictionOutcome::Gone);
/// assert!(is_leaving(EvictionOutcome::Accepted) && !is_leaving(EvictionOutcome::Refused));
/// ```
pub use bindings::qosm::policy::eviction::Outcome as EvictionOutcome;
/// State of one eviction request.
///
/// ```
/// use qosm_sdk::{EvictionOutcome, EvictionState};
///
/// let outcome = EvictionOutcome::Pending;
/// let state = EvictionState { pod_uid: "7f0c".into(), outcome, why: String::new(), age_msec: 500 };
/// assert!(state.age_msec < 1_000);
/// ```
pub use bindings::qosm::policy::eviction::State as EvictionState;
/// How long an eviction can wait.
///
/// ```
/// assert!(qosm_sdk::Urgency::Now > qosm_sdk::Urgency::Soon);
/// ```
pub use bindings::qosm::policy::eviction::Urgency;
/// ```
/// assert!(qosm_sdk::Level::Debug < qosm_sdk::Level::Warn);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::log::Level;
/// ```
/// assert_ne!(qosm_sdk::Bound::Unlimited, qosm_sdk::Bound::Bytes(u64::MAX));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::memory_protection::Bound;
/// ```
/// use qosm_sdk::{Bound, Protection};
///
/// let wanted = Protection { high: Some(Bound::Bytes(800 << 20)), ..Protection::NONE };
/// assert_eq!(wanted.min_bytes, None, "left to other policies and the kubelet");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::memory_protection::Protection;
/// ```
/// use qosm_sdk::{MemorySample, mock};
///
/// let sample = MemorySample { usage_bytes: 3 << 20, inactive_file_bytes: 1 << 19, ..mock::memory(7) };
/// let working_set = sample.usage_bytes - sample.inactive_file_bytes;
/// assert_eq!(working_set, 5 << 19);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::memory_stat::Sample as MemorySample;
/// ```
/// use qosm_sdk::{ApplicationUse, QosClass};
///
/// let nginx = ApplicationUse {
///     name: "nginx".into(),
///     qos: Some(QosClass::Ls),
///     priority: Some("koord-prod".into()),
///     tier: None,
///     cpu_usage_usec: Some(300_000),
///     memory: None,
/// };
/// assert!(nginx.tier.is_none(), "its cgroup is outside of all pods'");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::ApplicationUse;
/// ```
/// use qosm_sdk::{Group, Tier};
///
/// assert_ne!(Group::Tier(Tier::Guaranteed), Group::Outside);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::Group;
/// ```
/// use qosm_sdk::GroupMemory;
///
/// let memory = GroupMemory { usage_bytes: 5 << 30, active_file_bytes: 1 << 30, inactive_file_bytes: 2 << 30 };
/// assert_eq!(memory.usage_bytes - memory.inactive_file_bytes, 3 << 30, "its working set");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::GroupMemory;
/// ```
/// use qosm_sdk::{Group, GroupUse, mock};
///
/// let outside = GroupUse { cpu_usage_usec: Some(300_000), ..mock::group_use(Group::Outside) };
/// assert_eq!(outside.oom_kills, None, "nobody counts them there");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::GroupUse;
/// ```
/// use qosm_sdk::NodeMemory;
///
/// let memory = NodeMemory {
///     total_bytes: 32 << 30, free_bytes: 1 << 28, available_bytes: 9 << 30, active_file_bytes: 4 << 30,
///     inactive_file_bytes: 5 << 30, min_mark_bytes: Some(1 << 26), low_mark_bytes: Some(1 << 29), high_mark_bytes: Some(3 << 28),
/// };
/// assert!(memory.low_mark_bytes.is_some_and(|low| memory.free_bytes < low), "the kernel reclaims");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::Memory as NodeMemory;
/// ```
/// use qosm_sdk::{NodePressure, NodeStall};
///
/// let calm = NodeStall { some_usec: 0, full_usec: 0 };
/// let pressure = NodePressure { cpu: calm, memory: NodeStall { some_usec: 100_000, full_usec: 20_000 }, io: calm };
/// assert!(pressure.memory.full_usec > 0);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::NodePressure;
/// ```
/// use qosm_sdk::{NodeSample, Rate, mock};
///
/// let node = NodeSample { cpu_usage_usec: Some(6_000_000), ..mock::node(8, 32 << 30) };
/// let used = node.cpu_usage_usec.and_then(|used| Rate::of(used, 1_000_000));
/// assert_eq!(used.map(|used| used.cpu().0), Some(6_000));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::Sample as NodeSample;
/// ```
/// assert_eq!(qosm_sdk::NodeStall { some_usec: 7, full_usec: 5 }.full_usec, 5);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node::Stall as NodeStall;
/// ```
/// use qosm_sdk::NodeKnob;
///
/// assert!(NodeKnob::ALL.contains(&NodeKnob::MinFreeKbytes));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node_knobs::Knob as NodeKnob;
/// ```
/// use qosm_sdk::{NodeKnob, NodeKnobState};
///
/// let state = NodeKnobState { knob: NodeKnob::MemcgReaper, value: None, baseline: None };
/// assert_eq!(state.value, None, "this kernel does not have it");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node_knobs::State as NodeKnobState;
/// ```
/// use qosm_sdk::mock;
///
/// let node = mock::node_object("edge-7", 8, 32 << 30);
/// let cpu = node.resources.iter().find(|amount| amount.name == "cpu");
/// assert_eq!(cpu.and_then(|cpu| cpu.allocatable), Some(8_000), "thousandths of a CPU");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node_object::Amount as NodeAmount;
/// ```
/// let node = qosm_sdk::mock::node_object("edge-7", 8, 32 << 30);
/// assert_eq!((node.name.as_str(), node.labels.len()), ("edge-7", 0));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node_object::Object as NodeObjectFacts;
/// ```
/// let zone = qosm_sdk::NodeZone { id: 1, resources: Vec::new() };
/// assert_eq!(zone.id, 1);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::node_object::Zone as NodeZone;
/// The amount of a node resource that a policy publishes.
///
/// ```
/// let offer = qosm_sdk::Offer { amount: 12_000, zones: Vec::new(), origin: Some(14_000) };
/// assert!(offer.origin.is_some_and(|origin| origin > offer.amount), "another scheduler has given some away");
/// ```
pub use bindings::qosm::policy::node_resource::Offer;
/// Whether a published resource is in force on the Node, and why not.
///
/// ```
/// let why = "the operator does not allow this name";
/// let state = qosm_sdk::ResourceState { name: "example.com/gpu".into(), amount: 0, in_force: false, why: why.into() };
/// assert!(!state.in_force);
/// ```
pub use bindings::qosm::policy::node_resource::State as ResourceState;
/// The share of a resource that belongs to one NUMA node.
///
/// ```
/// assert_eq!(qosm_sdk::ZoneShare { zone: 1, amount: 4_000 }.amount, 4_000);
/// ```
pub use bindings::qosm::policy::node_resource::ZoneShare;
/// ```
/// let expander = qosm_sdk::NumaNode {
///     id: 2, cpus: 0, memory_bytes: 1 << 36, free_bytes: 0, available_bytes: 1 << 35, distances: vec![17, 17, 10],
/// };
/// assert_eq!(expander.cpus, 0, "memory without a CPU");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::numa_stat::NumaNode;
/// ```
/// use qosm_sdk::{NumaSample, NumaShare};
///
/// let sample = NumaSample {
///     container: 7, identity: 1, cpu_nodes: vec![1], memory_nodes: vec![0, 1], pages: vec![NumaShare { node: 0, pages: 57_000 }],
/// };
/// let remote = sample.pages.iter().filter(|share| !sample.cpu_nodes.contains(&share.node));
/// assert_eq!(remote.map(|share| share.pages).sum::<u64>(), 57_000);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::numa_stat::Sample as NumaSample;
/// ```
/// assert_eq!(qosm_sdk::NumaShare { node: 0, pages: 57_000 }.pages * 4096, 233_472_000);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::numa_stat::Share as NumaShare;
/// ```
/// let failure = qosm_sdk::ProcessFailure { pid: 4711, error: "No such process".into() };
/// assert_eq!(failure.pid, 4711);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::page_migration::ProcessFailure;
/// ```
/// use qosm_sdk::{MigrationProgress, MigrationState};
///
/// let progress = MigrationProgress {
///     container: 7, token: 1, state: MigrationState::Done, pages_found: 57_000, pages_moved: 56_900,
///     pages_failed: vec![("EBUSY".into(), 100)], pages_without_room: 0, failures: vec![], why: String::new(),
/// };
/// assert_eq!(progress.pages_found - progress.pages_moved, 100);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::page_migration::Progress as MigrationProgress;
/// ```
/// use qosm_sdk::MigrationState;
///
/// let is_under_way = |state| matches!(state, MigrationState::Waiting | MigrationState::Moving | MigrationState::Paused);
/// assert!(is_under_way(MigrationState::Paused) && !is_under_way(MigrationState::Failed));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::page_migration::State as MigrationState;
/// ```
/// assert_ne!(qosm_sdk::EventKind::Normal, qosm_sdk::EventKind::Warning);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::pod_event::Kind as EventKind;
/// ```
/// use qosm_sdk::{PodObjectFacts, mock};
///
/// let daemon = PodObjectFacts { owner_kind: Some("DaemonSet".into()), ..mock::pod_object(1) };
/// assert!(!daemon.deleting && !daemon.mirror);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::pod_object::Object as PodObjectFacts;
/// ```
/// assert_eq!(qosm_sdk::mock::pod_object(1).restart_policy, qosm_sdk::RestartPolicy::Always);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::pod_object::RestartPolicy;
/// ```
/// use qosm_sdk::{PressureSample, Stall, mock};
///
/// let sample = PressureSample { cpu: Stall { some_usec: 300_000, full_usec: 0 }, ..mock::pressure(7) };
/// assert!(sample.cpu.some_usec > 250_000, "a quarter of a second lost");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::pressure::Sample as PressureSample;
/// ```
/// assert_eq!(qosm_sdk::Stall { some_usec: 150_000, full_usec: 20_000 }.full_usec, 20_000);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::pressure::Stall;
/// A part of the memory bandwidth: a percentage, or megabytes per second.
///
/// ```
/// assert_ne!(qosm_sdk::BandwidthShare::Percent(50), qosm_sdk::BandwidthShare::Megabytes(4_000));
/// ```
pub use bindings::qosm::policy::resctrl_allocation::BandwidthShare;
/// A part of a cache's ways: a range in percent, or a bit mask.
///
/// ```
/// assert_ne!(qosm_sdk::CacheShare::Percent((0, 30)), qosm_sdk::CacheShare::Mask(0b111));
/// ```
pub use bindings::qosm::policy::resctrl_allocation::CacheShare;
/// Whether a class is in force, and why not.
///
/// ```
/// let state = qosm_sdk::ClassState { class: "be".into(), in_force: false, why: "this machine has no resctrl".into() };
/// assert!(!state.in_force);
/// ```
pub use bindings::qosm::policy::resctrl_allocation::ClassState;
/// What a class may use: on all domains, where `None` = everything, or on a single domain, where `None` = as on all domains.
///
/// ```
/// use qosm_sdk::{BandwidthShare, CacheShare, Share};
///
/// let least = Share { cache: Some(CacheShare::Percent((0, 10))), bandwidth: Some(BandwidthShare::Percent(10)) };
/// assert!(least.cache.is_some());
/// ```
pub use bindings::qosm::policy::resctrl_allocation::Share;
/// Cache and memory bandwidth use of one class that this policy defined.
///
/// ```
/// let sample = qosm_sdk::ClassSample { class: "be".into(), usage: Vec::new() };
/// assert!(sample.usage.is_empty());
/// ```
pub use bindings::qosm::policy::resctrl_monitor::ClassSample;
/// Cache and memory bandwidth use of one container.
///
/// ```
/// let sample = qosm_sdk::ContainerUsage { container: 7, usage: Vec::new() };
/// assert_eq!(sample.container, 7);
/// ```
pub use bindings::qosm::policy::resctrl_monitor::ContainerSample as ContainerUsage;
/// One last-level cache and the memory bandwidth behind it.
///
/// ```
/// let domain = qosm_sdk::CacheDomain { id: 0, cache_ways: 11, cache_bytes: Some(33 << 20), divides_bandwidth: true };
/// assert_eq!(domain.cache_bytes.map(|bytes| bytes / u64::from(domain.cache_ways)), Some(3 << 20));
/// ```
pub use bindings::qosm::policy::resctrl_monitor::Domain as CacheDomain;
/// Cache and memory bandwidth use on one domain.
///
/// ```
/// let usage = qosm_sdk::CacheUsage { domain: 0, occupancy_bytes: Some(2 << 20), local_bytes: None, total_bytes: None };
/// assert!(usage.total_bytes.is_none(), "not counted here");
/// ```
pub use bindings::qosm::policy::resctrl_monitor::Usage as CacheUsage;
/// ```
/// use qosm_sdk::{Alarm, Target, Trigger};
///
/// let alarm = Alarm { trigger: Trigger::Throttling, target: Some(Target::Container(7)) };
/// assert_eq!(alarm.target, Some(Target::Container(7)), "it has just used up its quota");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Alarm;
/// ```
/// use qosm_sdk::{Cause, mock};
///
/// let is_hurried = |cause| cause == Cause::Alarm;
/// assert!(!is_hurried(mock::tick(1_000).cause));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Cause;
/// ```
/// use qosm_sdk::{Container, mock};
///
/// let app = Container { cpu_limit_milli: Some(500), ..mock::container(7, "app") };
/// assert_eq!(app.cpu_limit_milli, Some(500));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Container;
/// ```
/// let id: qosm_sdk::ContainerId = qosm_sdk::mock::container(7, "app").id;
/// assert_eq!(id, 7);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::ContainerId;
/// ```
/// assert_eq!(qosm_sdk::mock::container(7, "app").kind, qosm_sdk::ContainerKind::Regular);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::ContainerKind;
/// ```
/// assert_eq!(qosm_sdk::mock::container(7, "app").state, qosm_sdk::ContainerState::Running);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::ContainerState;
/// ```
/// let batch = qosm_sdk::ExtendedResource {
///     name: "kubernetes.io/batch-memory".into(), request: Some(4 << 30), limit: Some(4 << 30),
/// };
/// assert_eq!(batch.request, batch.limit);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::ExtendedResource;
/// ```
/// assert_eq!(qosm_sdk::mock::pod(1, "default", "web").kube_qos, qosm_sdk::KubeQos::Burstable);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::KubeQos;
/// ```
/// use qosm_sdk::{PodFacts, QosClass, mock};
///
/// let report = PodFacts { declared_qos: Some(QosClass::Be), qos: QosClass::Be, ..mock::pod(1, "batch", "report") };
/// assert!(report.active && report.containers.is_empty());
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Pod as PodFacts;
/// ```
/// let id: qosm_sdk::PodId = qosm_sdk::mock::pod(1, "default", "web").id;
/// assert_eq!(id, 1);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::PodId;
/// ```
/// assert_ne!(qosm_sdk::PressureScope::Node, qosm_sdk::PressureScope::Pod);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::PressureScope;
/// ```
/// use qosm_sdk::{Description, PressureScope, PressureTrigger, StalledResource, Trigger};
///
/// let trigger = PressureTrigger {
///     scope: PressureScope::Node, resource: StalledResource::Memory, full: false, stall_usec: 150_000, window_usec: 1_000_000,
/// };
/// Description::new("early-bird", "0.1.0", "Acts before memory runs out.").trigger(Trigger::Pressure(trigger));
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::PressureTrigger;
/// ```
/// assert_eq!(qosm_sdk::mock::pod(1, "default", "web").qos, qosm_sdk::QosClass::Ls);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::QosClass;
/// ```
/// assert_ne!(qosm_sdk::StalledResource::Cpu, qosm_sdk::StalledResource::Io);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::StalledResource;
/// ```
/// use qosm_sdk::{Target, Tier};
///
/// let targets = [Target::Tier(Tier::Burstable), Target::Pod(1), Target::Container(7)];
/// assert!(targets.is_sorted(), "tiers, pods, containers: from the root to the leaves");
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Target;
/// ```
/// use qosm_sdk::{Tick, mock};
///
/// let tick = Tick { alarms: Vec::new(), ..mock::tick(500) };
/// assert_eq!(tick.window_usec, 500_000);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Tick;
/// ```
/// assert_ne!(qosm_sdk::Tier::Burstable, qosm_sdk::Tier::BestEffort);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Tier;
/// ```
/// use qosm_sdk::{Description, Trigger};
///
/// Description::new("prompt", "0.1.0", "Acts when containers start.").trigger(Trigger::ContainerStarted);
/// ```
#[doc(inline)]
pub use bindings::qosm::policy::types::Trigger;
pub use core_group::core_group;
pub use describe::{Description, Preset, Protocol};
pub use ewma::Ewma;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub use host::Granted;
pub use host::{
    BlockIo, ClusterConfig, CpuBandwidth, CpuIdentity, CpuStat, CpuTopology, CpuWeight, Cpuset, Declare, Eviction,
    Host, Log, MemoryLimit, MemoryProtection, MemoryStat, Node, NodeKnobs, NodeObject, NodeResource, NumaStat,
    PageMigration, PodEvent, PodObject, Pressure, ResctrlAllocation, ResctrlMonitor, State,
};
pub use pod::{NoConfig, Pod};
pub use pods::Pods;
pub use policy::Policy;
pub use rate::{MilliCpu, Rate, RecentRate};
pub use scale::{percent_of, scale};
pub use schema::schema_of;
/// The crate that derives JSON schemas from types, in the version that [`Description::config`] takes.
///
/// ```
/// use qosm_sdk::schemars;
///
/// assert!(schemars::schema_for!(u8).get("maximum").is_some());
/// ```
pub use schemars;
pub use session::Session;
pub use shown::shown;

/// Exports a [`Policy`] as the crate's component. Call it once, in the root of a `cdylib`; on other targets than `wasm32` it expands to
/// nothing.
///
/// ```
/// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
/// #[derive(Default)]
/// struct Mine;
///
/// impl Policy for Mine {
///     type Config = ();
///     type PodConfig = NoConfig;
///     // …
/// #   fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #   fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #   fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// }
///
/// qosm_sdk::export!(Mine);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::exports::qosm::policy::lifecycle as contract;

            // The runtime discards the instance as a whole and the session is never dropped, so `ManuallyDrop` leaves that code out.
            ::std::thread_local! {
                static SESSION: ::std::cell::RefCell<
                    ::std::option::Option<::std::mem::ManuallyDrop<$crate::Session<$policy>>>,
                > = const { ::std::cell::RefCell::new(::std::option::Option::None) };
            }

            fn with<T>(call: impl ::std::ops::FnOnce(&mut $crate::Session<$policy>) -> T) -> T {
                SESSION.with_borrow_mut(|session| call(session.get_or_insert_default()))
            }

            struct Component;

            impl contract::Guest for Component {
                fn describe() -> contract::Description {
                    <$policy as $crate::Policy>::describe().into()
                }

                fn configure(config: ::std::string::String) -> ::std::result::Result<(), ::std::string::String> {
                    // Not earlier: `describe` must not call any import.
                    $crate::report_panics();
                    with(|session| session.configure(&mut $crate::Granted, &config))
                }

                fn pods(
                    upserted: ::std::vec::Vec<contract::Pod>,
                    removed: ::std::vec::Vec<contract::PodId>,
                ) -> ::std::result::Result<::std::vec::Vec<contract::Rejection>, ::std::string::String> {
                    with(|session| session.pods(&mut $crate::Granted, upserted, &removed))
                }

                fn evaluate(tick: contract::Tick) -> ::std::result::Result<(), ::std::string::String> {
                    with(|session| session.evaluate(&mut $crate::Granted, tick))
                }
            }

    $crate::bindings::export!(Component with_types_in $crate::bindings);
        };
    };
}
