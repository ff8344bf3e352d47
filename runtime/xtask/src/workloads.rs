//! `bench-workloads`: a latency-sensitive process next to a memory hog, in the VM. The program `overcommit` of the benches measures inside
//! the VM.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::interrupt::Interrupt;
use crate::vm::{self, Share};
use crate::workspace::Workspace;
use crate::{build, command, setup};

/// How to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds that each policy is measured in each round.
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    seconds: u64,
    /// Rounds; in each both policies are measured once.
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: u64,
}

/// Time for booting, compiling the module and pauses, on an emulated processor.
const BESIDE: Duration = Duration::from_secs(10 * 60);

/// Boots the VM and prints the table.
///
/// # Errors
///
/// If something cannot be built, or the VM is not available.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<ExitCode> {
    setup::install(workspace, &[setup::Purpose::Test])?;
    build(workspace)?;
    Ok(ExitCode::from(measure(workspace, args.seconds, args.rounds)?))
}

/// Measures in the VM after everything is built. Returns the program's exit code.
///
/// # Errors
///
/// If the VM is not available.
pub(crate) fn measure(workspace: &Workspace, seconds: u64, rounds: u64) -> Result<u8> {
    command::heading("memory QoS under overcommit, in a VM with cgroup v2");
    let share = |host, guest: &str| Share { host, guest: guest.into() };
    let files = [
        share(workspace.binary(), "/bin/qosm"),
        share(workspace.target().join("release/overcommit"), "/bin/overcommit"),
        share(workspace.modules(), "/policies"),
    ];
    let script = format!("exec /bin/overcommit compare {seconds} {rounds}\n");
    // Twice the expected time: an emulated second may take longer than a second.
    let limit = BESIDE + Duration::from_secs(seconds * rounds * 4);
    vm::script_in_vm(workspace, &files, &script, limit, &Interrupt::listen()?, |line| println!("{line}"))
}
