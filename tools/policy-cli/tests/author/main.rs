//! The real binary, as an author runs it: from nothing to a module that is tested, measured and described; what is reported of policies
//! that go wrong. Needs no root and touches no cgroup; needs Rust for Wasm, `opa`, and `qosm` itself.
//!
//! `QOSM_BIN` says where `qosm` is, if not beside the binary under test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod misbehaving;
mod programs;
mod projects;
mod rego;
mod typed;
