//! The same story where no cgroups can be made: a recorded run, decided anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::workspace::Workspace;

/// Replays the recording that ships with the examples, and says what is to be seen in it.
///
/// # Errors
///
/// When the recording is missing, or `qosm replay` fails.
pub(crate) fn run(workspace: &Workspace, why_not: &str) -> Result<()> {
    let recording = workspace.root().join("examples/demo/recording.jsonl");
    anyhow::ensure!(recording.exists(), "the recorded run {} is missing", recording.display());
    println!(
        "\nThe real demo cannot run here: {why_not}.\n\
         It needs root on a machine whose cgroups may be written to: `sudo {} demo`.\n\n\
         Instead, here is a run that was recorded on such a machine. A web server has a CPU limit and a load that needs\n\
         less than that on average, yet comes unevenly: whenever several visitors meet, the kernel stops the server until\n\
         the next 100 ms begin. That is throttling, and the visitors wait. Half way through the run the pod's annotation\n\
         koordinator.sh/cpuBurst changes from policy `none` to `auto`.\n\n\
         Nothing is read from this machine and nothing written: the module `cpu-burst` sees what it saw then, and decides\n\
         again, now, in its sandbox.\n",
        program().display()
    );
    command::heading("what the module decides");
    command::run(&mut replay(workspace, &recording))?;
    println!(
        "\nWhile the policy was `none` nothing was set: not configured means hands off. With `auto` the module first\n\
         grants CFS burst, so that unused quota is kept for the next moment in which visitors meet, and raises the quota\n\
         while the container is still throttled. Once it is not, the quota goes back towards the limit.\n\n\
         Next:\n  {0} replay --help\n  {0} plan --help       what would be written, for facts in a file\n  {0} doctor            what this machine offers",
        workspace.binary().display()
    );
    Ok(())
}

fn replay(workspace: &Workspace, recording: &Path) -> Command {
    let mut command = Command::new(workspace.binary());
    command
        .arg("replay")
        .arg(recording)
        .args(["--output", "table", "--policy", "cpu-burst", "--module-dir"])
        .arg(workspace.modules());
    command
}

/// This very program: `sudo` keeps no path on which cargo would be found.
fn program() -> PathBuf {
    std::env::current_exe().context("").unwrap_or_else(|_| "target/release/xtask".into())
}
