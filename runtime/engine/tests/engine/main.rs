//! Tests of the engine's interface to the agent, with well-behaved and hostile guests in WebAssembly text.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod block_io;
mod cache;
mod classes;
mod contract;
mod group_identity;
mod guest;
mod hostile;
mod load;
mod node_knobs;
mod objects;
mod requests;
mod tools;
