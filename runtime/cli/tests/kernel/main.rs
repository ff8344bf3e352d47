//! The agent on this machine's own kernel, cgroup v1 or v2: a real process that is really throttled, and everything is restored
//! afterwards, whatever happens in between. Needs root. Each test works in its own cgroups, `/qosm-test-<pid>-<n>`, and removes them.
//!
//! `QOSM_BIN` and `QOSM_MODULES` are the paths of binary and modules if cargo did not build them: the same program runs in a
//! virtual machine that has only a shell.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

/// Timeout of all waits: long enough for an emulated machine under load; usually waits are much shorter.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(20);

mod agent;
mod cgroups;
#[path = "../cli/guest.rs"]
mod guest;
mod node;
mod waiting;
mod watch;

mod alarms;
mod block_io;
mod bursts;
mod confinement;
mod crashes;
mod drift;
mod failures;
mod inputs;
mod journal;
mod kills;
mod lifecycle;
mod locality;
mod node_memory;
mod nri;
mod pauses;
mod pinning;
mod policy_modules;
mod protection;
mod recording;
mod rego;
mod resctrl;
mod shadows;
mod swaps;
mod weights;
