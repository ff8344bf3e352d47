//! The agent: observe → evaluate → stage → apply → report, one direction, one loop, one writer.
//!
//! [`Agent`] is the loop's body: it gets [`Sources`] and the current time, and runs one [`Agent::step`] after the other; nothing in
//! it reads a clock or blocks. [`service::run`] gives it a clock. Its parts, in the order in which data passes through them:
//! `table` (pods), `observed`, `columns` and `cpusets` (observe), `policies` (evaluate), `ledger` with the [`journal`] and `controls` (stage and
//! apply), `reporting` with [`report`], `metrics` and `event` (report). Each owns its state and takes what it needs as arguments;
//! none gets the whole agent. `ending` comes last.
//!
//! Other crates handle the kernel's rules (`qosm-host`), Wasm (`qosm-engine`) and manifests (`qosm-cluster`).
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod admin;
mod agent;
mod alarm;
mod alarm_queue;
mod applications;
mod backoff;
mod columns;
pub mod compare;
pub mod config;
pub mod confinement;
mod controls;
mod cpusets;
#[cfg(test)]
mod crashes;
mod decision_log;
pub mod ending;
mod event;
pub mod facts;
pub mod fetch;
#[cfg(any(test, fuzzing))]
pub mod fuzz_checks;
mod good_texts;
mod inputs;
pub mod journal;
mod kubelet_memory;
mod ledger;
mod listen;
pub mod load;
mod loaded;
mod metrics;
mod module_log;
pub mod module_reference;
mod now;
pub mod nri;
mod objects;
mod observed;
mod old_names;
mod path;
mod pause;
mod policies;
mod policy;
pub mod policy_set;
mod quotas;
pub mod record;
mod refused_limit;
pub mod replay;
mod replay_fixture;
mod replay_fixture_error;
pub mod report;
mod reporting;
mod request;
pub mod restore;
mod restored;
mod runtime_containers;
mod saved_state;
mod schedule;
pub mod service;
mod shadow;
mod sources;
mod state_file;
mod step;
mod table;

pub use agent::{Agent, AgentOptions, SetUpError};
pub use decision_log::DecisionLog;
pub use event::AgentEvent;
pub use loaded::{Checked, LoadedPolicy};
pub use metrics::Metrics;
pub use now::Now;
pub use policies::ShadowError;
pub use policy::Health;
pub use policy_set::resolved::LoadFailed;
pub use saved_state::SavedState;
pub use sources::Sources;
pub use step::{Mode, Step};
