//! What the crate gives, held against `opa` itself, against laws and against bounds.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod corpus;
mod limits;
mod opa;
mod table;
mod values;
