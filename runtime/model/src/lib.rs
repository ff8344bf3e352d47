//! The types that all crates of qosm share: pods, QoS classes, units, knobs, leases, columns and effective configuration.
//!
//! Plain data and pure functions: no I/O, no clock, no Wasm, no Kubernetes types. Reading order: [`pod`] (pods and
//! containers), [`knob`] (what can be set), [`setting`] (a policy's requests), [`lease`] (holders of knobs and their
//! priorities), [`cpus`] (sets of CPUs), [`cpu_topology`] (the machine's CPUs), [`column`](mod@column) (measurements),
//! [`node`] (the node and the groups above containers), [`block_io`] (devices and their limits), [`alarm`] (triggers of a
//! policy), [`numa`] (memory by NUMA node, and its migration), [`object`] (further fields of Kubernetes objects),
//! [`protocol`] and [`layering`] (how annotations and ConfigMaps become one configuration for each pod), [`foreign`]
//! (third-party text in messages).
//!
//! ```
//! use qosm_model::{knob::{Knob, Target, Value}, lease::{Leases, Holder, Priority, Timestamp}, pod::ContainerId};
//!
//! let mut leases = Leases::default();
//! let target = Target::Container(ContainerId(7));
//! let holder = Holder { policy: "cpu-burst".into(), priority: Priority(100) };
//! leases.acquire(&holder, target, Knob::CfsQuota, Value::Number(240_000), "throttled".into(), Timestamp(0));
//! assert_eq!(leases.effective(target, Knob::CfsQuota).map(|lease| lease.value), Some(Value::Number(240_000)));
//! leases.release(&holder.policy, target, Knob::CfsQuota);
//! assert!(leases.effective(target, Knob::CfsQuota).is_none());
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod alarm;
pub mod application;
pub mod block_io;
pub mod column;
pub mod cpu_topology;
pub mod cpus;
pub mod digest;
pub mod eviction;
pub mod foreign;
pub mod knob;
pub mod layering;
pub mod lease;
pub mod namespace;
pub mod node;
pub mod node_resource;
pub mod numa;
pub mod object;
pub mod pod;
pub mod problem;
pub mod protocol;
pub mod resctrl;
pub mod setting;
pub mod spelling;
pub mod unit;
