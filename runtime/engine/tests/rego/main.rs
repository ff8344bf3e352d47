//! Policies in Rego as the agent sees them: bundles that `opa` builds from the text in these tests, and hand-made
//! malformed ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod conformance;
mod contract;
mod corpus;
mod hostile;
mod load;
mod node;
mod opa;
mod settings;
