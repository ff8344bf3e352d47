//! The agent: observe → evaluate → arbitrate → apply → account, one direction, one loop, one writer.
//!
//! [`Agent`] is the loop's body: it is handed [`Sources`] and moments, and does one [`Agent::step`] after the other; nothing in
//! it asks a clock or waits. [`service::run`] gives it a clock. Its parts, in the order in which data passes through them:
//! `table` and `columns` (observe), `policy` (evaluate), `arbitrate`, `apply` with the [`journal`], then `account`, `metrics`,
//! `event` and [`record`] (account); `locality` moves pages, `resctrl` divides caches and memory bandwidth among `classes`;
//! [`report`] is what they say on the wire. [`drift`](crate) watches other writers; `tidy` takes over and gives back.
//!
//! What it leaves to others: the kernel's rules (`qosm-host`), Wasm (`qosm-engine`), manifests (`qosm-cluster`).

mod account;
pub mod admin;
mod agent;
mod alarm;
mod announce;
mod apply;
mod arbitrate;
mod classes;
mod columns;
pub mod config;
mod diff;
mod drift;
mod enlist;
mod event;
pub mod facts;
pub mod fetch;
mod held;
mod hold;
pub mod journal;
pub mod load;
mod locality;
mod made;
mod metrics;
pub mod module_reference;
mod node_report;
mod observe;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod pace;
mod policy;
pub mod record;
pub mod replay;
pub mod report;
mod resctrl;
pub mod restore;
pub mod roster;
pub mod service;
mod shadow;
mod sources;
mod stage;
mod table;
mod tidy;
mod trial;
pub mod versus;

pub use agent::{Agent, Mode, Parts, SetUpError, Step, Unloaded};
pub use event::AgentEvent;
pub use metrics::Metrics;
pub use policy::{Health, LoadedPolicy, Now};
pub use shadow::ShadowError;
pub use sources::Sources;
