//! Compares the crate's results with `opa`, and checks its properties and limits.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod corpus;
mod limits;
mod opa;
mod table;
mod values;
