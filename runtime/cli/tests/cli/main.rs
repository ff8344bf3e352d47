//! The real binary, as a script or a user runs it: plans and replays of nodes in files, against the specifications; its messages
//! for invalid usage. Needs no root and touches no cgroup.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod author;
mod bad_input;
mod block_io;
mod bursts;
mod classes;
mod compare;
mod evictions;
mod example_policies;
mod examples;
mod field;
#[expect(dead_code, reason = "the tests on the kernel use the rest")]
mod guest;
mod identity;
mod layers;
mod limitless;
mod locality;
mod memory;
mod modules;
mod node_memory;
mod other_writers;
mod paths;
mod pinning;
mod qosm;
mod reach;
mod reclaimed;
mod replays;
mod shells;
mod suppress;
mod tier_protection;
mod top;
mod weights;
