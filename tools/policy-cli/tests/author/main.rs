//! Runs the real binary as an author does, from a new project to a module that is tested, measured and described, and checks the errors of
//! faulty policies. Needs no root and changes no cgroup; needs Rust for Wasm, `opa`, and `qosm` itself.
//!
//! `QOSM_BIN` overrides the path of `qosm`, by default next to the binary under test.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod misbehaving;
mod programs;
mod projects;
mod rego;
mod typed;
