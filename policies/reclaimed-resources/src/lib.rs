//! Reclaimed resources: resources that high-priority pods have been given but do not use are published as extended resources of the node,
//! and BE pods get the cgroup values that correspond to the extended resources they request.
//!
//! [`tick`] is the whole policy: a function of measurements and objects, with a [`State`] that survives a restart through [`saved_state`].
//! It makes no calls, reads no clock and does not depend on a kernel: [`ReclaimedResources`] fills [`Inputs`] from columns and declares the
//! [`Decisions`].
//!
//! Reading order: [`config`], [`strategy`] and [`layers`] (configuration), [`class`], [`pod`] and [`node`] (objects), [`batch`], [`zones`]
//! and [`mid`] (formulas), [`usage`] (use over time), [`publish`] (when to publish), [`enforce`] (cgroup values of a pod).
//!
//! The published amount is an offer to a scheduler that may be minutes old when a pod takes it. Suppression and eviction, which do not rely
//! on it, keep latency-sensitive pods safe.
//!
//! ```
//! use reclaimed_resources::amounts::Amounts;
//! use reclaimed_resources::config::Config;
//! use reclaimed_resources::node::Node;
//! use reclaimed_resources::usage::Sample;
//! use reclaimed_resources::usage::tracker::Usage;
//! use reclaimed_resources::{Inputs, Now, State, tick};
//!
//! let config: Config = serde_json::from_str(r#"{"colocation": {"enable": true, "cpuReclaimThresholdPercent": 80}}"#)?;
//! let settings = config.check()?;
//! let capacity = Amounts::new(16_000, 64 << 30);
//! let inputs = Inputs {
//!     node: Some(Node { capacity, allocatable: capacity, ..Node::default() }),
//!     pods: Some(Vec::new()),
//!     // One minute in which the system used 2 CPUs.
//!     usage: Some(Usage { node: Sample { cpu_usec: 120_000_000, ..Sample::default() }, ..Usage::default() }),
//! };
//! let decisions = tick(&mut State::default(), &settings, &inputs, Now { window_usec: 60_000_000 });
//! let cpu = &decisions.publication.published.offers["kubernetes.io/batch-cpu"];
//! assert_eq!(cpu.amount, 10_800);
//! assert_eq!(cpu.reason, "capacity 16000m - margin 3200m - system 2000m - high-priority use 0m");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod amounts;
pub mod batch;
pub mod class;
pub mod config;
pub mod decimal;
mod duration;
pub mod enforce;
mod extended_resources;
pub mod finding;
pub mod json;
pub mod layers;
pub mod mid;
pub mod node;
mod offering;
pub mod pod;
mod policy;
pub mod publish;
pub mod quantity;
pub mod saved_state;
mod selector;
mod state;
pub mod strategy;
mod tick;
pub mod usage;
pub mod zones;

pub use crate::offering::Breakdown;
pub use crate::policy::ReclaimedResources;
pub use crate::state::State;
pub use crate::tick::{Decisions, Inputs, Missing, Now, Publication, Status, Withdrawal, tick};
