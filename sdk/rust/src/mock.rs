//! A host for unit tests: a test fills in columns and looks at the leases.
//!
//! Reading order: [`MockHost`], [`Columns`] (the input), [`Value`] and the names of knobs (the result), and [`pod`], [`container`],
//! [`node`], [`cpu`], [`memory`] and [`tick`], which build facts to start from.
//!
//! ```
//! use qosm_sdk::mock::{CPU_QUOTA, MockHost};
//! use qosm_sdk::{Bandwidth, CpuBandwidth, CpuStat, Target};
//!
//! /// What is to be tested takes no more than it uses.
//! fn double(host: &mut (impl CpuStat + CpuBandwidth)) {
//!     for row in host.bandwidth() {
//!         host.set_quota(row.target, row.quota_usec.map(|quota| quota * 2), "twice is better");
//!     }
//! }
//!
//! let app = Target::Container(7);
//! let mut host = MockHost::default();
//! host.columns.bandwidth =
//!     vec![Bandwidth { target: app, quota_usec: Some(50_000), baseline_quota_usec: Some(50_000), period_usec: 100_000 }];
//! double(&mut host);
//! host.assert_held(app, CPU_QUOTA, 100_000);
//! assert_eq!(host.used(), ["cpu-bandwidth", "cpu-stat"]);
//! ```

mod block_io;
mod facts;
mod host;
mod interfaces;
mod knob;
mod node_knobs;
mod requests;
mod staged;
#[cfg(test)]
mod tests;

pub use block_io::{IoChange, IoRemark};
pub use facts::{container, cpu, group_use, memory, node, node_object, pod, pod_object, pressure, tick, topology};
pub use host::MockHost;
pub(crate) use knob::MAX_CPUS;
pub use knob::{
    CORE_GROUP, CPU_BURST, CPU_BVT, CPU_IDLE, CPU_QUOTA, CPU_WEIGHT, CPUSET_CPUS, CPUSET_MEMS, Cpus, MEMORY_KNOBS,
    MEMORY_MAX, Value,
};
pub use staged::{
    ClassChange, Classes, Columns, ConfigKey, Event, EvictionRequest, KeyProblem, Migration, NodeKnobChange,
    NodeRemark, Remark, ResourceChange, Staged,
};

pub use crate::block_io::{IoKnob, IoValue};
pub use crate::kubelet::bandwidth;

/// Maximum length of the bytes that `save_state` accepts.
///
/// ```
/// use qosm_sdk::State;
/// use qosm_sdk::mock::{MockHost, STATE_LIMIT_BYTES};
///
/// assert!(MockHost::default().save_state(&vec![0; STATE_LIMIT_BYTES]).is_ok());
/// assert!(MockHost::default().save_state(&vec![0; STATE_LIMIT_BYTES + 1]).is_err());
/// ```
pub const STATE_LIMIT_BYTES: usize = 65_536;
