//! Shell completions. The shell's script runs this program, so that pods and policies are those of the local agent.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{CommandFactory, ValueEnum};
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use qosm_agent::report::{ClassReport, NodeResourceReport, PodReport, PolicyReport};
use qosm_terminal::Answer;
use serde::de::DeserializeOwned;

use crate::args::{ADMIN_SOCKET, Cli, Noun};
use crate::client;

/// Environment variable that the shell's script sets to request completions.
const VARIABLE: &str = "QOSM_COMPLETE";
/// Timeout of the agent's answer: a user who presses Tab does not wait longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers a request for completions, and then ends this process.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).complete();
}

/// Prints the script that makes a shell request completions.
pub(crate) fn print(shell: Shell) -> anyhow::Result<Answer> {
    let shells = Shells::builtins();
    let shell = shells.completer(&shell.to_string()).context("no script for this shell")?;
    // In memory first: a reader that closes its end early is no failure.
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "qosm", "qosm", "qosm", &mut script)?;
    if shell.name() == "zsh" {
        // If zsh autoloads the script while completing the first word, the script also completes that word.
        script.extend_from_slice(b"\nif [ \"$funcstack[1]\" = _qosm ]; then _clap_dynamic_completer_qosm \"$@\"; fi\n");
    }
    qosm_terminal::print::bytes(&script)?;
    Ok(Answer::Good)
}

/// The pods of the local agent; empty if it does not answer.
pub(crate) fn pods() -> Vec<CompletionCandidate> {
    ask::<PodReport>("/v1/pods").into_iter().map(|pod| CompletionCandidate::new(pod.pod)).collect()
}

/// The names that the requested list can be restricted to.
pub(crate) fn names() -> Vec<CompletionCandidate> {
    // The shell passes the words after `--`. A value's completer does not get the preceding words.
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    match noun(words) {
        Some(Noun::Pods | Noun::Knobs | Noun::Evictions | Noun::Events) => pods(),
        Some(Noun::Policies) => policies(),
        Some(Noun::Classes) => {
            let name = |class: ClassReport| CompletionCandidate::new(format!("{}/{}", class.policy, class.class));
            ask("/v1/classes").into_iter().map(name).collect()
        }
        Some(Noun::Resources) => {
            let name = |resource: NodeResourceReport| CompletionCandidate::new(resource.name);
            ask("/v1/resources").into_iter().map(name).collect()
        }
        // A problem can concern any kind of object.
        Some(Noun::Problems) => pods().into_iter().chain(policies()).collect(),
        None => Vec::new(),
    }
}

/// The noun after `get`: the first word that is a noun and not a flag's value.
fn noun(words: impl Iterator<Item = OsString>) -> Option<Noun> {
    let mut words = words.map(|word| word.to_string_lossy().into_owned()).skip_while(|word| word != "get").skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-n" | "--namespace" | "--policy" | "-o" | "--output" | "--admin-socket" => drop(words.next()),
            _ => {
                if let Ok(noun) = Noun::from_str(&word, false) {
                    return Some(noun);
                }
            }
        }
    }
    None
}

/// The namespaces of the local agent's pods.
pub(crate) fn namespaces() -> Vec<CompletionCandidate> {
    let pods = ask::<PodReport>("/v1/pods");
    let namespaces: BTreeSet<&str> = pods.iter().filter_map(|pod| pod.pod.split('/').next()).collect();
    namespaces.into_iter().map(CompletionCandidate::new).collect()
}

/// The policies of the local agent.
pub(crate) fn policies() -> Vec<CompletionCandidate> {
    ask::<PolicyReport>("/v1/policies").into_iter().map(|policy| CompletionCandidate::new(policy.policy)).collect()
}

fn ask<T: DeserializeOwned>(path: &str) -> Vec<T> {
    // `--admin-socket` is not parsed here: the command line is incomplete.
    let socket = std::env::var_os("QOSM_ADMIN_SOCKET").map_or_else(|| PathBuf::from(ADMIN_SOCKET), PathBuf::from);
    client::get_within(&socket, path, PATIENCE).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noun_is_no_value_of_a_flag() {
        for (line, expected) in [
            ("qosm get pods x", Some("pods")),
            ("qosm get pod", Some("pods")),
            ("qosm get -n pods policy x", Some("policies")),
            ("qosm get --namespace=pods -o json -w knobs", Some("knobs")),
            ("qosm get", None),
            ("qosm get nothing pods", Some("pods")),
            ("qosm explain pods", None),
        ] {
            let noun = noun(line.split(' ').map(OsString::from));
            let noun = noun.and_then(|noun| Some(noun.to_possible_value()?.get_name().to_owned()));
            assert_eq!(noun.as_deref(), expected, "{line}");
        }
    }
}
