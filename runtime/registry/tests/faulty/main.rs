//! Pulling, verifying and copying from faulty registries. Each test has its own in-process registry that works except for the
//! faults that the test sets. The tests need no other program, and only the loopback network.
//!
//! For each fault, the error is of a kind that its reader can act on and names the reference, no partial artefact is ever
//! returned, and once the fault is gone the same call succeeds.
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
mod folders;
mod layouts;
mod together;
mod transfer;
mod travel;
