//! The engine as the agent sees it: guests in WebAssembly text, good ones and hostile ones.

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
