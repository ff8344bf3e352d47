//! What every other room of qosm talks about: pods, QoS classes, units, knobs, leases, columns and effective configuration.
//!
//! Plain data and pure functions: no I/O, no clock, no Wasm, no Kubernetes types. Reading order: [`pod`] (who runs here),
//! [`knob`] (what can be turned), [`setting`] (what a policy asks for), [`lease`] (who holds what), [`column`](mod@column) (what is
//! measured), [`alarm`] (what wakes a policy), [`numa`] (where memory lies, and moving it), [`protocol`] and [`layering`] (how
//! annotations and ConfigMaps become one configuration for each pod).
//!
//! ```
//! use qosm_model::{knob::{Knob, Target, Value}, lease::{Leases, Holder, Priority, Timestamp}, pod::ContainerId};
//!
//! let mut leases = Leases::default();
//! let target = Target::Container(ContainerId(7));
//! let holder = Holder { policy: "cpu-burst".into(), priority: Priority(100) };
//! leases.hold(&holder, target, Knob::CfsQuota, Value::Number(240_000), "throttled".into(), Timestamp(0));
//! assert_eq!(leases.effective(target, Knob::CfsQuota).map(|lease| lease.value), Some(Value::Number(240_000)));
//! leases.release(&holder.policy, target, Knob::CfsQuota);
//! assert!(leases.effective(target, Knob::CfsQuota).is_none());
//! ```

pub mod alarm;
pub mod column;
pub mod digest;
pub mod knob;
pub mod layering;
pub mod lease;
pub mod numa;
pub mod pod;
pub mod problem;
pub mod protocol;
pub mod resctrl;
pub mod setting;
pub mod unit;
