//! Case files for policies: YAML files with pods and samples as input and the expected settings as output, readable without Rust.
//!
//! The runner plays a [`Case`] to a [`Driver`]. [`Native`] runs a policy's own code; the engine's tests run the component that was built
//! from it, with the same files. The runner takes the host's part: it keeps the leases, and fills the bandwidth column with the quotas that
//! are held, or else their baseline.
//!
//! ```yaml
//! about: a throttled container gets a fifth more
//! config: {profile: koordinator}            # policy level
//! node: {cpus: 16}
//! pods:
//!   - name: default/web
//!     config: {policy: auto}                # the pod's effective configuration; left out = not configured
//!     containers:
//!       - {name: app, cpuLimitMilli: 2000}  # its baseline quota follows from the limit, if `quotaUsec` does not say it
//! ticks:
//!   - node: {cpuUsageUsec: 1000000}         # stays until it is said anew
//!     cpu:
//!       default/web/app: {usageUsec: 1900000, nrPeriods: 10, nrThrottled: 3, throttledUsec: 40000}
//!     expect:                               # all that changes in this tick; nothing else may
//!       - {target: container default/web/app, knob: cpu.quota, value: 240000}
//!       - {target: pod default/web, knob: cpu.quota, value: 240000}
//! ```
//!
//! Caches and memory bandwidth are given by domain. Classes have expectations of their own beside the settings:
//!
//! ```yaml
//! ticks:
//!   - cacheDomains: [{id: 0, ways: 11, cacheBytes: 34603008}]
//!     classUsage: {be: {0: {occupancyBytes: 6291456, totalBytes: 900000000}}}
//!     containerUsage: {default/web/app: {0: {occupancyBytes: 9437184}}}   # what is left out is not counted
//!     restUsage: {0: {totalBytes: 7000000}}
//!     classStates: {be: {inForce: false, why: no class is left}}
//!     nodeObject: {name: edge-7, resources: {cpu: {capacity: 8000, allocatable: 7900}}}
//!     podObjects: {default/web: {ownerKind: DaemonSet}}          # a pod without a row is a bare one that stays
//!     clusterConfig: {colocation-config: {value: {enable: true}}}
//!     classes:
//!       - {class: be, cachePercent: [0, 30], bandwidthPercent: 50, domains: {1: {cachePercent: [0, 10]}}, reason: a part of it}
//!       - {class: ls, undefined: true}
//!     members: [{target: pod default/web, class: be}, {target: pod default/db}]   # without a class: taken out
//! ```
//!
//! So have resources of the node and evictions; their states are given by name:
//!
//! ```yaml
//! ticks:
//!   - resourceStates: {kubernetes.io/batch-cpu: {inForce: true, amount: 12000}}
//!     evictionStates: {batch/job: {outcome: refused, why: a budget allows none, ageMillis: 1500}}
//!     published:
//!       - {name: kubernetes.io/batch-cpu, amount: 12000, zones: {0: 8000, 1: 4000}, reason: a part of it}
//!       - {name: kubernetes.io/batch-memory}                               # without an amount: withdrawn
//!     staleAfterSeconds: 300                                               # where it changes
//!     evicted: [{pod: batch/job, urgency: now, reason: MemoryUsage}, {pod: batch/other}]   # without an urgency: taken back
//! ```
//!
//! A kernel has group identities or core scheduling from the tick on in which the case sets them:
//!
//! ```yaml
//! ticks:
//!   - groupIdentity: true
//!     coreScheduling: false
//!     expect: [{target: pod batch/report, knob: cpu.bvt_warp_ns, value: -1}]
//! ```
//!
//! Settings of the node's kernel are given by their values without the policy. Their expectations have the target `node`:
//!
//! ```yaml
//! ticks:
//!   - nodeKnobs: {vm.min_free_kbytes: 67584, vm.watermark_scale_factor: 10}   # the others this kernel does not have
//!     expect: [{target: node, knob: vm.watermark_scale_factor, value: 150}]
//!     remarks: [{target: node, knob: vm.min_free_kbytes}]
//! ```
//!
//! Block devices and the volumes of pods on them are given in the same way. The knob of a device setting has the device appended, and its
//! value has the format of the kernel's file:
//!
//! ```yaml
//! ticks:
//!   - blockDevices: [{device: '8:16', names: [sdb], partitions: [sdb1], volumeGroups: [data]}]
//!     podVolumes: [{pod: shop/web, name: pvc-1, device: '8:16'}]
//!     expect:
//!       - {target: tier besteffort, knob: 'io.max 8:16', value: rbps=1048576 wbps=max riops=max wiops=120}
//!       - {target: pod shop/web, knob: 'io.weight 8:16', value: 200}
//!       - {target: node, knob: 'io.cost.qos 8:16', value: enable=1 ctrl=auto}
//!     remarks: [{target: pod shop/web, knob: io.max}, {target: node, knob: io.cost.qos}]
//! ```
//!
//! The test of a policy is a single call:
//!
//! ```no_run
//! # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
//! # #[derive(Default)] struct MyPolicy;
//! # impl Policy for MyPolicy {
//! #     type Config = ();
//! #     type PodConfig = NoConfig;
//! #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
//! #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
//! #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
//! # }
//! use qosm_sdk::testing::{Failures, Native, run_folder};
//!
//! fn the_cases_hold() -> Result<(), Failures> {
//!     run_folder(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases"), Native::<MyPolicy>::default)
//! }
//! ```

mod block_io;
mod case;
mod cpu_topology;
mod driver;
mod expectation;
mod fixture;
mod node_knobs;
mod node_use;
mod object;
mod requests;
mod resctrl;
mod run;
#[cfg(test)]
mod tests;
mod tick;

pub use block_io::{BlockDeviceRow, PodVolumeRow};
pub use case::{Case, ContainerFacts, ExtendedResourceFacts, Measure, NodeFacts, PodDescription};
pub use cpu_topology::{CpuManagerWord, CpuPlaceRow, CpuTopologyRow, ExclusiveRow};
pub use driver::{Driver, Native, Outcome};
pub use expectation::{
    EventExpectation, Expectation, Expected, ProblemExpectation, RejectionExpectation, RemarkExpectation,
    StartExpectation,
};
pub use node_use::ApplicationRow;
pub use object::{AmountRow, ConfigKeyRow, NodeObjectRow, PodObjectRow, RestartWord};
pub use requests::{EvictionExpectation, EvictionStateRow, ResourceExpectation, ResourceStateRow};
pub use resctrl::{CacheDomainRow, ClassExpectation, ClassStateRow, MemberExpectation, ShareRow, UsageRow};
pub use run::{CaseError, Failures, is_case_file, run_case, run_folder};
pub use tick::{
    AlarmRow, BandwidthRow, NumaNodeRow, NumaRow, PressureRow, PressureTriggerRow, ProgressRow, Quota, ResourceWord,
    ScopeWord, StallRow, TickFacts, TriggerRow,
};

pub use crate::counters::{CpuRow, GroupMemoryRow, GroupRow, MemoryRow, NodeMemoryRow};
