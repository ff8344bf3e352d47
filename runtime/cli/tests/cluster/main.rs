//! The agent in a real cluster: an API server, its controllers and scheduler, a kubelet and a container runtime, all on this
//! machine, and pods in cgroups that the kubelet made. Needs root and what `cargo xtask cluster up --node` starts; `cargo xtask
//! test --only cluster` sees to both and says by variables where everything is. Without them the tests fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod node;

mod bed;
mod chart;
mod policies;
mod rules;
