//! The agent on this machine's own kernel, cgroup v1 or v2: a real process that is really throttled, and everything put back
//! afterwards, whatever happens in between. Needs root. Each test works in cgroups of its own, `/qosm-test-<pid>-<n>`, and takes
//! them away again.
//!
//! `QOSM_BIN` and `QOSM_MODULES` say where binary and modules are, if not where cargo built them: the same program runs in a
//! virtual machine that has nothing but a shell.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

/// Long enough for an emulated machine under load; what happens at all happens much sooner, and a wait ends as soon as it has.
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
