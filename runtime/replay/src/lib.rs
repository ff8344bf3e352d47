//! Nodes in files: a [`Recording`] is played tick by tick, and a [`Planned`] is what a first evaluation would write.
//!
//! The agent runs on a simulated kernel here, with the policies that the caller loaded; nothing of this machine is touched. The caller
//! decides which policies these are, and how a command line names them.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod plan;
mod recording;

pub use crate::plan::{Planned, RowOrder, on_facts, read_facts};
pub use crate::recording::{Recording, is_usage, of_facts, play, write_line};
