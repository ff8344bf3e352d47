//! Pulling, verifying and copying while registries misbehave: each test has a registry of its own, within this process,
//! that works except for the faults that the test sets. No program and no network but the loopback is needed.
//!
//! What is asked of each fault: the error is of the kind that its reader can act on and names the reference, nothing half-fetched is
//! ever served, and once the registry is mended the same call succeeds.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod artefact;
mod fault;
mod node;
mod registry;

mod answers;
mod belief;
mod credentials;
mod disk;
mod elsewhere;
mod layouts;
mod together;
mod transfer;
mod travel;
