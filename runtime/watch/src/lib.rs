//! A node moment by moment: what containers used between two samples, what is held for them and why, and the screens that show it.
//!
//! A running agent and a recording that is played give the same data ([`qosm_agent::report::NodeUsage`]), so that both are shown in one
//! way. Reading order: [`moment`] (two samples, and what happened between them), [`table`] (which rows, in which order, in which
//! columns), [`screen`] (what is drawn, and what a key does). Nothing here opens a file or reads a clock.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod amount;
mod detail;
pub mod history;
pub mod moment;
pub mod page;
pub mod screen;
pub mod table;

pub use amount::{age, bytes};
