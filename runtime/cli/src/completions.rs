//! What a shell completes. Its script asks this program, so that pods and policies are those of the agent here.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use qosm_agent::report::{PodReport, PolicyReport};
use qosm_terminal::Answer;
use serde::de::DeserializeOwned;

use crate::args::{ADMIN_SOCKET, Cli};
use crate::client;

/// Set by a shell that asks.
const VARIABLE: &str = "QOSM_COMPLETE";
/// Who presses the tabulator does not wait longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a shell that asks, and ends this process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Prints the script that has a shell ask.
pub(crate) fn print(shell: Shell) -> anyhow::Result<Answer> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string()).context("no script for this shell")?;
    // In memory first: a reader that has seen enough is no failure.
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "qosm", "qosm", "qosm", &mut script)?;
    if shell.name() == "zsh" {
        // Loaded by its name, when the first word is completed, it completes that word, too.
        script.extend_from_slice(b"\nif [ \"$funcstack[1]\" = _qosm ]; then _clap_dynamic_completer_qosm \"$@\"; fi\n");
    }
    qosm_terminal::print::bytes(&script)?;
    Ok(Answer::Good)
}

/// The pods that the agent here knows; none where it does not answer.
pub(crate) fn pods() -> Vec<CompletionCandidate> {
    ask::<PodReport>("/v1/pods").into_iter().map(|pod| CompletionCandidate::new(pod.pod)).collect()
}

/// What lists can be narrowed by: which list it is, is not known while it is typed.
pub(crate) fn names() -> Vec<CompletionCandidate> {
    pods().into_iter().chain(policies()).collect()
}

/// Their namespaces.
pub(crate) fn namespaces() -> Vec<CompletionCandidate> {
    let pods = ask::<PodReport>("/v1/pods");
    let namespaces: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.pod.split('/').next()).collect();
    namespaces.into_iter().map(CompletionCandidate::new).collect()
}

/// The policies of the agent here.
pub(crate) fn policies() -> Vec<CompletionCandidate> {
    ask::<PolicyReport>("/v1/policies").into_iter().map(|policy| CompletionCandidate::new(policy.policy)).collect()
}

fn ask<T: DeserializeOwned>(path: &str) -> Vec<T> {
    // The command line is not taken apart while it is typed.
    let socket = std::env::var_os("QOSM_ADMIN_SOCKET").map_or_else(|| PathBuf::from(ADMIN_SOCKET), PathBuf::from);
    client::get_within(&socket, path, PATIENCE).unwrap_or_default()
}
