//! What a shell completes. Its script asks this program, so that pods and policies are those of the agent here.

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

/// What the list that is asked for can be narrowed by.
pub(crate) fn names() -> Vec<CompletionCandidate> {
    // A shell hands the words on behind `--`. What completes a value is not told what stands before it.
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
        // A problem is about something of any kind.
        Some(Noun::Problems) => pods().into_iter().chain(policies()).collect(),
        None => Vec::new(),
    }
}

/// The noun behind `get`: the first word that is one, and no flag's value.
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
