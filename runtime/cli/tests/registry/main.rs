//! The agent's binary beside real container registries on this machine: without and with a password, with TLS, and with the
//! referrers API, filled by common tools. Needs what `cargo xtask registry up` starts; `cargo xtask test --only registry`
//! provides it, and passes its paths by an environment variable. Without it the tests fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

/// Timeout of all waits: long enough for a machine under load.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(20);

mod env;
#[path = "../cli/guest.rs"]
#[expect(dead_code, reason = "what sets weights is tested elsewhere")]
mod guest;
#[path = "../kernel/waiting.rs"]
mod waiting;

mod agents;
mod answers;
mod artefacts;
mod image;
mod publish;
mod pulls;
mod signatures;
mod wkg;
