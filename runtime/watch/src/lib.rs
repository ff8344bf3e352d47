//! A node moment by moment: what containers used between two looks, what is held for them and why, and the screens that show it.
//!
//! A running agent and a recording that is played say the same ([`qosm_agent::report::NodeUsage`]), so that both are looked at in one
//! way. Reading order: [`moment`] (two looks, and what happened between them), [`table`] (which rows, in which order, in which
//! columns), [`screen`] (what is drawn, and what a key does). Nothing here opens a file or asks a clock.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod amount;
mod detail;
pub mod history;
pub mod moment;
pub mod page;
pub mod screen;
pub mod table;

pub use amount::{age, bytes};
