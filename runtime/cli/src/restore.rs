//! `qosm restore`: restores everything, with or without a running agent.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::journal::{Journal, JournalError};
use qosm_agent::report::ClassReport;
use qosm_agent::restore::{Patience, Removal, Restored, remove_created, restore, would_restore};
use qosm_terminal::{Answer, print};

use crate::args::{Output, RestoreArgs, STATE_DIR};
use crate::{client, host};

/// Timeout of moving processes out of core scheduling groups.
const CORE_GROUPS: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<Answer> {
    let socket = &args.socket.admin_socket;
    let agent = client::listener(socket);
    let is_answered = agent.is_ok();
    if is_answered && args.state_dir.is_none() {
        return through_agent(args);
    }
    let folder = args.state_dir.as_deref().unwrap_or(Path::new(STATE_DIR));
    let state = match Dir::open_ambient_dir(folder, ambient_authority()) {
        Ok(state) => state,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            anyhow::bail!(
                "there is no state folder {}: if an agent ran here, say with --state-dir where it kept its state",
                folder.display()
            );
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot open the state folder {}", folder.display()));
        }
    };
    let boot = std::fs::read_to_string(args.host.proc.join("sys/kernel/random/boot_id"))
        .context("cannot read the ID of this boot")?;
    if !Journal::is_there(&state, boot.trim()) {
        eprintln!(
            "note: {} holds no journal since this boot: no agent that kept its state there has set anything",
            folder.display()
        );
    }
    let journal = match Journal::open(&state, folder, boot.trim()) {
        // The agent at the socket may be another than the one that has the journal open.
        Err(JournalError::InUse { ref path }) if agent.as_ref().is_ok_and(|&agent| has_open(agent, path)) => {
            return through_agent(args);
        }
        journal => journal?,
    };
    if is_answered {
        eprintln!("note: the agent at {} keeps its state elsewhere and runs on", socket.display());
    }
    let mut opened = host::open(&args.host)?;
    let restored = match args.dry_run {
        true => would_restore(&mut opened, &journal)?,
        false => restore(&mut opened, &journal, &Patience::default())?,
    };
    // The groups of the agent that runs on have the same names as those of an earlier one.
    let groups = if is_answered { Vec::new() } else { resctrl_groups(args)? };
    let answer = report(args, &restored, &groups)?;
    report_groups(args, &groups);
    if !args.dry_run {
        opened.finish_core_groups(CORE_GROUPS).map_err(anyhow::Error::msg)?;
        for Removal { cgroup, outcome } in remove_created(&mut host::open(&args.host)?, &journal)? {
            match outcome {
                Ok(()) => eprintln!("removed the cgroup {cgroup}, which qosm had made"),
                Err(error) => eprintln!(
                    "note: {:#}",
                    anyhow::Error::from(error).context(format!("the cgroup {cgroup}, which qosm had made, stays"))
                ),
            }
        }
    }
    if let Some(damaged) = journal.set_aside() {
        eprintln!(
            "error: the journal was damaged and is now {}; knobs that it knew stay as they are",
            damaged.display()
        );
        return Ok(Answer::Bad);
    }
    Ok(answer)
}

/// Whether a process, by its number, has a file open.
fn has_open(process: i32, file: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    let Ok(file) = identity(file) else { return false };
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    descriptors.filter_map(Result::ok).any(|descriptor| identity(&descriptor.path()).is_ok_and(|open| open == file))
}

/// Removes qosm's resctrl groups, or lists them with `--dry-run`.
fn resctrl_groups(args: &RestoreArgs) -> anyhow::Result<Vec<String>> {
    let mut host = host::open(&args.host)?;
    host.use_resctrl_at(args.host.resctrl.as_ref().map(ToString::to_string));
    if args.dry_run { host.class_groups() } else { host.clear_classes() }
        .context("groups of resctrl stay; run this again once the cause is removed")
}

fn report_groups(args: &RestoreArgs, groups: &[String]) {
    for group in groups {
        eprintln!("{} the resctrl group {group}", if args.dry_run { "would remove" } else { "removed" });
    }
}

/// Restores through the running agent, which holds the journal, and then ends.
fn through_agent(args: &RestoreArgs) -> anyhow::Result<Answer> {
    let socket = &args.socket.admin_socket;
    let classes: Vec<ClassReport> = client::get(socket, "/v1/classes")?;
    let mut groups: Vec<String> =
        classes.into_iter().map(|class| class.group).filter(|group| !group.is_empty()).collect();
    groups.sort_unstable();
    groups.dedup();
    let restored: Vec<Restored> = if args.dry_run {
        client::get(socket, "/v1/restore")?
    } else {
        let answer = client::post(socket, "/v1/restore", &serde_json::json!({}))?;
        let restored = serde_json::from_slice(&answer).context("the agent's answer cannot be read")?;
        if args.output.output == Output::Table {
            eprintln!("the agent has restored, and ended");
        }
        restored
    };
    report_groups(args, &groups);
    report(args, &restored, &groups)
}

fn report(args: &RestoreArgs, restored: &[Restored], groups: &[String]) -> anyhow::Result<Answer> {
    if args.output.output == Output::Json {
        print::json(&restored)?;
    } else if restored.is_empty() {
        print::text(if groups.is_empty() { "nothing to restore\n" } else { "no knobs to restore\n" })?;
    } else {
        let rows = restored.iter().map(|row| {
            vec![
                row.cgroup.clone(),
                row.knob.clone(),
                row.value.to_string(),
                row.outcome.to_string(),
                row.why.clone().unwrap_or_default(),
            ]
        });
        print::text(&print::table(&["cgroup", "knob", "value", "outcome", "why"], rows))?;
    }
    let is_left_behind = restored.iter().any(Restored::is_left_behind);
    Ok(if is_left_behind { Answer::Bad } else { Answer::Good })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_that_a_process_has_open_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let [open, closed] = ["open", "closed"].map(|name| folder.path().join(name));
        std::fs::write(&closed, "").unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let kept = std::fs::File::create(&open).unwrap();
        assert!(has_open(own, &open) && !has_open(own, &closed));
        drop(kept);
        assert!(!has_open(own, &open) && !has_open(0, &open));
    }
}
