//! Verbs for policy authors run in another program, `qosm-policy`, so that the daemon links none of the authors' tools.
//!
//! This process is replaced by that program, which gets the arguments, standard input and output, and signals, and sets the exit code.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use clap::{Command as Parser, CommandFactory as _};
use qosm_terminal::Answer;

use crate::args::Cli;

/// Name of that program.
const PROGRAM: &str = "qosm-policy";

/// The program is not installed.
#[derive(Debug, thiserror::Error)]
#[error(
    "`qosm {verb}` is run by the program `{PROGRAM}`, which is neither beside {} nor on the PATH\n  \
     help: put it there: `make build` makes target/release/{PROGRAM}, and `cargo install --git {} {PROGRAM}` installs it; the container \
     image has none, since no node needs it", beside.display(), env!("CARGO_PKG_REPOSITORY")
)]
struct NotInstalled {
    verb: String,
    beside: PathBuf,
}

/// Runs `qosm policy VERB …` as `qosm-policy VERB …`.
pub(crate) fn policy() -> anyhow::Result<Answer> {
    become_it("policy", std::env::args_os().skip(2).collect())
}

/// Runs `qosm resctrl emulate …` and `qosm demo resctrl …` as `qosm-policy` with the same words.
pub(crate) fn emulation() -> anyhow::Result<Answer> {
    become_it("", std::env::args_os().skip(1).collect())
}

/// Handles `qosm help policy VERB` and the like if only the other program knows the verb's flags; `None` for other commands.
pub(crate) fn help(arguments: &[OsString]) -> Option<anyhow::Result<Answer>> {
    let words: Vec<&str> = arguments.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let verb = match words[..] {
        ["help", group, verb] | [group, "help", verb] => [group, verb],
        _ => return None,
    };
    if !is_authors(verb) {
        return None;
    }
    let [group, verb] = verb;
    Some(match group {
        "policy" => become_it("policy", [verb, "--help"].map(OsString::from).into()),
        _ => become_it("", [group, verb, "--help"].map(OsString::from).into()),
    })
}

/// Whether the other program runs a verb.
fn is_authors([group, verb]: [&str; 2]) -> bool {
    let program = Cli::command();
    let found = program.find_subcommand(group).and_then(|group| group.find_subcommand(verb));
    found.is_some_and(Parser::is_disable_help_flag_set)
}

/// Replaces this process. Returns only on failure.
fn become_it(group: &str, arguments: Vec<OsString>) -> anyhow::Result<Answer> {
    let this = std::env::current_exe().context("the kernel does not say where this program is")?;
    let name = format!("qosm {group}");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = find(&this.with_file_name(PROGRAM), &path).ok_or_else(|| {
        let words = std::iter::once(group).chain(arguments.iter().filter_map(|word| word.to_str()));
        let verb: Vec<&str> = words.filter(|word| !word.is_empty()).take(2).collect();
        NotInstalled { verb: verb.join(" "), beside: this.clone() }
    })?;
    // `arg0` makes its help show the typed command; `QOSM_BIN` makes it start this program.
    let error = Command::new(&program).arg0(name.trim_end()).args(arguments).env("QOSM_BIN", &this).exec();
    Err(anyhow::Error::new(error).context(format!("cannot start {}", program.display())))
}

/// Finds the program beside this one, else on the PATH. Relative entries of the PATH are skipped: they depend on the working
/// directory, and root runs this.
fn find(beside: &std::path::Path, path: &OsStr) -> Option<PathBuf> {
    let on_path = std::env::split_paths(path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(PROGRAM));
    std::iter::once(beside.to_path_buf()).chain(on_path).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_that_is_handed_on_is_told_from_those_that_are_not() {
        let handed = |group: &str| -> Vec<String> {
            let program = Cli::command();
            let verbs = program.find_subcommand(group).unwrap().get_subcommands();
            verbs.map(|verb| verb.get_name().to_owned()).filter(|verb| is_authors([group, verb])).collect()
        };
        let policy = ["new", "build", "test", "run", "bench", "doc", "lint", "push", "annotate", "sbom"];
        assert_eq!(handed("policy"), policy);
        for verb in policy {
            assert!(crate::args::BY_AUTHORS.contains(verb), "the help of `qosm policy` does not list {verb}");
        }
        assert_eq!((handed("demo"), handed("resctrl")), (vec!["resctrl".to_owned()], vec!["emulate".to_owned()]));
    }

    #[test]
    fn the_program_beside_this_one_counts_before_the_path_and_relative_folders_never() {
        let folder = tempfile::tempdir().unwrap();
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        for made in [&here, &there] {
            std::fs::create_dir(made).unwrap();
        }
        let beside = here.join(PROGRAM);
        let path = std::env::join_paths([PathBuf::from("there"), PathBuf::new(), there.clone()]).unwrap();
        assert_eq!(find(&beside, &path), None);
        std::fs::write(there.join(PROGRAM), "").unwrap();
        assert_eq!(find(&beside, &path), Some(there.join(PROGRAM)));
        std::fs::create_dir(&beside).unwrap();
        assert_eq!(find(&beside, &path), Some(there.join(PROGRAM)), "a folder is no program");
        std::fs::remove_dir(&beside).unwrap();
        std::fs::write(&beside, "").unwrap();
        assert_eq!(find(&beside, &path), Some(beside));
    }
}
