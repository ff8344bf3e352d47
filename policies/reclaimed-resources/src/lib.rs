//! Reclaimed resources: what high-priority pods have been given and do not use is published as extended resources of the
//! node, and BE pods get the cgroup values that the extended resources which they request mean.
//!
//! [`tick`] is the whole policy: a function of what was measured and of what the objects say, with a [`State`] that outlives a
//! restart by [`saved_state`]. It calls nobody, reads no clock, and knows no kernel: [`ReclaimedResources`] fills [`Inputs`] from columns
//! and declares what [`Decisions`] say.
//!
//! Reading order: [`config`], [`strategy`] and [`layers`] (what can be asked), [`class`], [`pod`] and [`node`] (what objects say),
//! [`batch`], [`zones`] and [`mid`] (how much there is), [`usage`] (what is used, over time), [`publish`] (when it is told),
//! [`enforce`] (what a pod gets).
//!
//! The published amount is an offer to a scheduler, minutes old when it is taken. What keeps latency-sensitive pods safe is
//! suppression and eviction, which do not trust it.
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
mod cpulist;
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
