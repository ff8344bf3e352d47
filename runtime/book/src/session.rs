//! Runs the commands of a page and compares their output.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::documents::cache;
use crate::repository::{Programs, Repository};

/// Time limit for a page, longer than any page takes.
const PATIENCE_SECONDS: u32 = 300;

/// A command of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The line of the page on which the command begins, from 1.
    pub(crate) line: usize,
    /// The command.
    pub(crate) command: String,
    /// The output that it has to print; `None` = any.
    pub(crate) expected: Option<String>,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Exit status; `None` if the session ended before this step.
    pub(crate) status: Option<i32>,
    /// Output on both streams.
    pub(crate) printed: String,
}

/// Parses a console block: a command follows `$ ` and continues on lines after `> `; its output is below it.
///
/// # Errors
///
/// The line, from 0, of output without a command before it.
pub(crate) fn steps(first_line: usize, text: &str) -> Result<Vec<Step>, usize> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { line: first_line + number, command: command.to_owned(), expected: Some(String::new()) });
            continue;
        }
        let step = steps.last_mut().ok_or(number)?;
        let expected = step.expected.get_or_insert_default();
        match line.strip_prefix("> ").or_else(|| (line == ">").then_some("")) {
            Some(more) if expected.is_empty() => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            _ => {
                expected.push_str(line);
                expected.push('\n');
            }
        }
    }
    Ok(steps)
}

/// Runs the steps in one shell, in a temporary folder that links to the repository's folders, with the built programs on the `PATH`.
///
/// # Errors
///
/// If the shell cannot be run.
pub(crate) fn play(repository: &Repository, programs: &Programs, steps: &[Step]) -> io::Result<Vec<Outcome>> {
    let place = tempfile::tempdir()?;
    let (home, outcomes, bin) = (place.path().join("home"), place.path().join("outcomes"), place.path().join("bin"));
    for folder in [&home, &outcomes, &bin] {
        fs::create_dir(folder)?;
    }
    let root = repository.root().canonicalize()?;
    for folder in ["benches", "deploy", "docs", "examples", "policies", "sdk"] {
        std::os::unix::fs::symlink(root.join(folder), home.join(folder))?;
    }
    // As in a checkout after `make build`.
    let target = programs.modules.canonicalize()?.parent().map(Path::to_path_buf).unwrap_or_default();
    std::os::unix::fs::symlink(target, home.join("target"))?;
    std::os::unix::fs::symlink(programs.qosm.canonicalize()?, bin.join("qosm"))?;
    let script =
        steps.iter().enumerate().map(|(number, step)| script(&outcomes, number, &step.command)).collect::<String>();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path =
        std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path))).map_err(io::Error::other)?;
    Command::new("timeout")
        .args([&PATIENCE_SECONDS.to_string(), "bash", "-c", &script])
        .current_dir(&home)
        .env("PATH", path)
        .env("HOME", &home)
        .env("QOSM_MODULE_DIR", programs.modules.canonicalize()?)
        .env("XDG_CACHE_HOME", cache())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok((0..steps.len()).map(|number| outcome(&outcomes, number)).collect())
}

fn script(outcomes: &Path, number: usize, command: &str) -> String {
    let outcomes = outcomes.display();
    format!("{{ {command}\n}} >{outcomes}/{number}.out 2>&1\necho $? >{outcomes}/{number}.status\n")
}

fn outcome(outcomes: &Path, number: usize) -> Outcome {
    let read = |what: &str| fs::read(outcomes.join(format!("{number}.{what}"))).ok();
    let printed = read("out").map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let status = read("status").and_then(|bytes| String::from_utf8(bytes).ok()?.trim().parse().ok());
    Outcome { status, printed }
}

/// Whether output matches the expected text, in which `…` stands for any text within a line, and for any lines if it is alone on a line.
pub(crate) fn matches(expected: &str, printed: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    let fits = |expected: &String, printed: &String| fits(expected, printed);
    alike(&lines(expected), &lines(printed), &|line| line.trim() == "…", &fits)
}

fn fits(expected: &str, printed: &str) -> bool {
    let characters = |text: &str| text.chars().collect::<Vec<_>>();
    alike(&characters(expected), &characters(printed), &|&c| c == '…', &|a, b| a == b)
}

/// Whether two sequences match, where some items of the first stand for any number of items of the second. It backtracks only to the last
/// of these items, so the time is at most proportional to the product of both lengths.
fn alike<T>(expected: &[T], printed: &[T], is_any: &dyn Fn(&T) -> bool, fits: &dyn Fn(&T, &T) -> bool) -> bool {
    let (mut e, mut p, mut back) = (0, 0, None);
    while let Some(item) = printed.get(p) {
        match expected.get(e) {
            Some(any) if is_any(any) => {
                back = Some((e, p));
                e += 1;
            }
            Some(wanted) if fits(wanted, item) => (e, p) = (e + 1, p + 1),
            _ => {
                let Some((any, taken)) = back else { return false };
                (e, p) = (any + 1, taken + 1);
                back = Some((any, taken + 1));
            }
        }
    }
    expected.iter().skip(e).all(is_any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_may_be_left_out_but_not_different() {
        for (expected, printed, is_fine) in [
            ("", "", true),
            ("a\n", "a\n", true),
            ("a\n", "b\n", false),
            ("a\n", "", false),
            ("", "a\n", false),
            ("a … c\n", "a b b c\n", true),
            ("a … c\n", "a b\n", false),
            ("a\n…\nd\n", "a\nb\nc\nd\n", true),
            ("a\n…\nd\n", "a\nd\n", true),
            ("…\nd\n", "a\nd\nd\n", true),
            ("a\n…\n", "a\nb\n", true),
            ("a\n…\n", "b\n", false),
        ] {
            assert_eq!(matches(expected, printed), is_fine, "{expected:?} {printed:?}");
        }
    }

    #[test]
    fn a_command_goes_on_until_it_prints() {
        let text = "$ cat <<E\n> x\n> E\nx\n$ true\n";
        let step = |line, command: &str, expected: &str| Step {
            line,
            command: command.into(),
            expected: Some(expected.into()),
        };
        assert_eq!(steps(7, text), Ok(vec![step(7, "cat <<E\nx\nE", "x\n"), step(11, "true", "")]));
        assert_eq!(steps(1, "no command\n"), Err(0));
    }
}
