//! The demo without cgroups: replays a recorded run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::command;
use crate::demo::measure::percent;
use crate::workspace::{Workspace, this_program};

/// Sums of the kernel's counters in one half of the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Half {
    ticks: usize,
    periods: u64,
    throttled: u64,
}

/// Replays the recording of the examples, and explains the result.
///
/// # Errors
///
/// If the recording is missing or invalid, or `qosm replay` fails.
pub(crate) fn run(workspace: &Workspace, why_not: &str) -> Result<()> {
    let recording = workspace.root().join("examples/demo/recording.jsonl");
    let text = fs::read_to_string(&recording).with_context(|| format!("{} cannot be read", recording.display()))?;
    let (before, after) = halves(&text).with_context(|| format!("{} is no recording", recording.display()))?;
    println!(
        "\nThis is not the real demo: {why_not}.\n\
         That needs root on a machine whose cgroups may be written to: `sudo {} demo`.\n\n\
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
        "\nWhile the policy was `none` nothing was set: not configured means hands off. With `auto` the module grants CFS\n\
         burst, so that unused quota is kept for the next moment in which visitors meet, and raises the quota while the\n\
         container is throttled all the same. Once it is not, the quota goes back towards the limit.\n"
    );
    println!("  {:<24}{:>14}{:>14}", "", "policy none", "policy auto");
    println!("  {:<24}{:>12} s{:>12} s", "recorded", before.ticks, after.ticks);
    println!("  {:<24}{:>12.1} %{:>12.1} %", "throttled periods", before.percent(), after.percent());
    println!(
        "\nNext:\n  {0} replay --help\n  {0} plan --help   what would be written, for facts in a file\n  \
         {0} doctor   what this machine offers",
        workspace.binary().display()
    );
    Ok(())
}

impl Half {
    fn add(&mut self, tick: &Value) {
        self.ticks += 1;
        for container in tick["containers"].as_array().into_iter().flatten() {
            self.periods += container["cpu"]["nrPeriods"].as_u64().unwrap_or(0);
            self.throttled += container["cpu"]["nrThrottled"].as_u64().unwrap_or(0);
        }
    }

    fn percent(&self) -> f64 {
        percent(self.throttled, self.periods)
    }
}

/// The counters before and after the tick in which the pod changed. That tick belongs to the first half, because it still shows the effect
/// of the old policy.
fn halves(text: &str) -> Result<(Half, Half)> {
    let (mut before, mut after, mut changed) = (Half::default(), Half::default(), false);
    // The first line holds the facts; each other line is a tick.
    for line in text.lines().skip(1) {
        let tick: Value = serde_json::from_str(line)?;
        if changed { &mut after } else { &mut before }.add(&tick);
        changed |= tick.get("pods").is_some();
    }
    anyhow::ensure!(after.ticks > 0, "no pod changes in it");
    Ok((before, after))
}

fn replay(workspace: &Workspace, recording: &Path) -> Command {
    let mut command = Command::new(workspace.binary());
    command.args(["replay", "--output", "table", "--policy", "cpu-burst", "--module-dir"]).arg(workspace.modules());
    command.arg(recording);
    command
}

/// Path of this program: `sudo` sets a `PATH` without cargo.
fn program() -> PathBuf {
    this_program().unwrap_or_else(|_| "target/debug/xtask".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_of_the_change_belongs_to_what_was_before() {
        let tick = |throttled: u64, rest: &str| {
            format!(r#"{{"containers":[{{"cpu":{{"nrPeriods":10,"nrThrottled":{throttled}}}}}]{rest}}}"#)
        };
        let text = ["{}", &tick(4, ""), &tick(3, r#","pods":{"upserted":[]}"#), &tick(0, "")].join("\n");
        let (before, after) = halves(&text).unwrap();
        assert_eq!(before, Half { ticks: 2, periods: 20, throttled: 7 });
        assert_eq!(after, Half { ticks: 1, periods: 10, throttled: 0 });
        assert!(halves("{}\n{}").is_err());
    }
}
