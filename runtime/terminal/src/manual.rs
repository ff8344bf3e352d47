//! Documentation of a program's verbs: pages for `man`, and a page for the book. Both are generated from clap's
//! definitions, as help is.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;

use crate::{Answer, print};

/// Maximum number of characters in a line of help.
const WIDTH: usize = 120;

/// Arguments of the verb `manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Folder for manual pages, one for each verb. Default: print a reference in Markdown.
    #[arg(long, value_name = "DIR")]
    pub pages: Option<PathBuf>,
}

/// Runs the verb `manual`. Its output does not depend on this machine.
///
/// # Errors
///
/// If the folder or standard output cannot be written.
pub fn run(program: Command, args: &ManualArgs) -> anyhow::Result<Answer> {
    match &args.pages {
        Some(folder) => pages(program, folder)?,
        None => print::text(&markdown(program))?,
    }
    Ok(Answer::Good)
}

/// Writes one page for each verb, `qosm.1`, `qosm-top.1` and so on, to a folder, which is created.
#[expect(clippy::disallowed_methods, reason = "the folder is one that a person named")]
fn pages(program: Command, folder: &Path) -> anyhow::Result<()> {
    let cannot = || format!("manual pages cannot be written to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    let mut program = everywhere_the_same(program);
    program.build();
    page(&program, folder).with_context(cannot)
}

fn page(command: &Command, folder: &Path) -> std::io::Result<()> {
    Man::new(command.clone()).generate_to(folder)?;
    command.get_subcommands().filter(is_documented).try_for_each(|verb| page(verb, folder))
}

/// The help of the program and of each verb, under headings.
fn markdown(program: Command) -> String {
    let mut program = everywhere_the_same(program);
    program.build();
    let name = program.get_name().to_owned();
    let mut text = format!("# The commands of `{name}`\n");
    section(&mut program, &name, &mut text);
    text
}

fn section(command: &mut Command, name: &str, text: &mut String) {
    text.push_str(&format!("\n## `{name}`\n\n```text\n{}\n```\n", command.render_long_help().to_string().trim_end()));
    for verb in command.get_subcommands_mut().filter(|verb| is_documented(&&**verb)) {
        let name = format!("{name} {}", verb.get_name());
        section(verb, &name, text);
    }
}

/// Whether a verb is documented: not verbs that programs start, nor those whose flags belong to another program.
fn is_documented(verb: &&Command) -> bool {
    !verb.is_hide_set() && !verb.is_disable_help_flag_set()
}

/// Makes the help independent of the user's environment and terminal.
fn everywhere_the_same(command: Command) -> Command {
    command
        .term_width(WIDTH)
        .disable_help_subcommand(true)
        .mut_args(|arg| arg.hide_env_values(true))
        .mut_subcommands(everywhere_the_same)
}

#[cfg(test)]
mod tests {
    use clap::{Arg, CommandFactory, Parser, Subcommand};

    use super::*;

    #[derive(Parser)]
    #[command(name = "tool", version = "1.2.3", about = "Does things.", after_help = "Exit codes: 0 done.")]
    struct Tool {
        #[command(subcommand)]
        _verb: Verb,
    }

    #[derive(Subcommand)]
    enum Verb {
        /// Looks.
        #[command(after_help = "Example:\n  tool look web")]
        Look {
            /// At what.
            _name: String,
            /// Where.
            #[arg(long, env = "PATH", value_name = "DIR")]
            _at: Option<String>,
        },
        #[command(hide = true)]
        Relay,
        #[command(disable_help_flag = true)]
        Elsewhere,
    }

    #[test]
    fn the_reference_has_the_help_of_each_verb_and_nothing_of_this_machine() {
        insta::assert_snapshot!("reference", markdown(Tool::command()));
    }

    #[test]
    fn each_verb_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let args = ManualArgs { pages: Some(folder.path().join("man1")) };
        run(Tool::command(), &args).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path().join("man1")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["tool-look.1", "tool.1"]);
        let page = std::fs::read_to_string(folder.path().join("man1/tool-look.1")).unwrap();
        assert!(page.contains("tool look web") && page.contains("PATH") && !page.contains("/usr/bin"), "{page}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let args = ManualArgs { pages: Some("/proc/none/man1".into()) };
        let error = run(Command::new("tool").arg(Arg::new("name")), &args).unwrap_err();
        assert!(error.to_string().contains("/proc/none/man1"), "{error}");
    }
}
