//! Tests of policies in Rego through the engine's interface to the agent: bundles that `opa` builds from the texts in
//! these tests, and malformed ones made by hand.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod conformance;
mod contract;
mod corpus;
mod hostile;
mod load;
mod node;
mod opa;
mod settings;
