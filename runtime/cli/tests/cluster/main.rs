//! The agent in a real cluster: an API server, its controllers and scheduler, a kubelet and a container runtime, all on this
//! machine, and pods in cgroups that the kubelet made. Needs root and what `cargo xtask cluster up --node` starts; `cargo xtask
//! test --only cluster` sees to both and says by variables where everything is. Without them the tests fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

/// Long enough for a machine that is busy with other things; what happens at all happens much sooner.
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
