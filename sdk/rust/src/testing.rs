//! Cases for policies: YAML files with pods and samples above and the expected settings beneath, readable without Rust.
//!
//! A [`Case`] is played to a [`Driver`]. [`Native`] drives a policy's own code; the engine's tests drive the component that
//! was built from it, over the same files. The runner plays the host's part: it keeps the leases, and shows quotas that are
//! held, or else their baseline, in the bandwidth column.
//!
//! ```yaml
//! about: a throttled container gets a fifth more
//! config: {profile: koordinator}            # policy level
//! node: {cpus: 16}
//! pods:
//!   - name: default/web
//!     config: {policy: auto}                # the pod's effective configuration; left out = nobody asked
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
//! A policy's test is one call:
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

mod case;
mod driver;
mod expectation;
mod resctrl;
mod run;
mod stage;
#[cfg(test)]
mod tests;
mod tick;

pub use case::{Case, ContainerFacts, ExtendedResourceFacts, Measure, NodeFacts, PodDescription};
pub use driver::{Driver, Native, Outcome};
pub use expectation::{EventExpectation, Expectation, Expected, RejectionExpectation, StartExpectation};
pub use resctrl::{CacheDomainRow, ClassExpectation, ClassStateRow, MemberExpectation, ShareRow, UsageRow};
pub use run::{CaseError, Failures, run_case, run_folder};
pub use tick::{
    AlarmRow, BandwidthRow, CpuRow, MemoryRow, NumaNodeRow, NumaRow, PressureRow, PressureTriggerRow, ProgressRow,
    Quota, ResourceWord, ScopeWord, StallRow, TickFacts, TriggerRow,
};
