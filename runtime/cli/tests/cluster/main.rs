//! The agent in a real cluster: an API server, its controllers and scheduler, a kubelet and a container runtime, all on this
//! machine, and pods in cgroups that the kubelet made. Needs root and what `cargo xtask cluster up --node` starts; `cargo xtask
//! test --only cluster` provides both, and passes the paths by environment variables. Without them the tests fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

/// Timeout of all waits: long enough for a busy machine; usually waits are much shorter.
const PATIENCE: Duration = Duration::from_secs(270);
const PAUSE: Duration = Duration::from_millis(100);

mod agent;
mod batch_node;
mod node;
#[path = "../registry/env.rs"]
#[expect(dead_code, reason = "the tests of the registries themselves use the rest")]
mod registries;
#[path = "../kernel/waiting.rs"]
mod waiting;

mod alerts;
mod chart;
mod claims;
mod colocation;
mod ended_locally;
mod env;
mod evicted;
mod kills;
mod nri;
mod outages;
mod policies;
mod production;
mod reclaimed;
mod registry;
mod rollouts;
mod rules;
mod suppressed;
mod topologies;
