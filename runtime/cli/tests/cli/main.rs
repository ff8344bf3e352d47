//! The real binary, as a script or a person runs it: plans and replays of nodes that stand in files, against the
//! specifications; what it says when it is asked wrongly. Needs no root and touches no cgroup.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod author;
mod bad_input;
mod bursts;
mod classes;
mod example_policies;
mod examples;
mod guest;
mod layers;
mod locality;
mod memory;
mod misbehaving;
mod modules;
mod other_writers;
mod paths;
mod qosm;
mod rego;
mod replays;
mod versus;
mod weights;
