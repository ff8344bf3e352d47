//! The checked-in list of all tests. Removing a test shows up in a diff; a test that vanishes without a change of the list fails the run.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{STAGED, program};
use crate::command;
use crate::workspace::Workspace;

/// A line for each test: its program and its name.
const FILE: &str = "runtime/xtask/tests.txt";
/// Maximum number of names that are printed.
const NAMED: usize = 20;

/// Writes the list.
///
/// # Errors
///
/// If tests are not compiled, or the file cannot be written.
pub(super) fn write(workspace: &Workspace) -> Result<()> {
    let tests = there(workspace)?;
    let text: String = tests.iter().map(|test| format!("{test}\n")).collect();
    fs::write(workspace.root().join(FILE), text).with_context(|| format!("{FILE} cannot be written"))?;
    println!("    {FILE}: {} tests", tests.len());
    Ok(())
}

/// Compares the list with the compiled tests.
///
/// # Errors
///
/// If they differ, with the names and the command to run; if tests are not compiled.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    command::heading("the list of tests");
    let there = there(workspace)?;
    let file = workspace.root().join(FILE);
    let text = fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    compare(&text.lines().map(str::to_owned).collect(), &there)
}

fn compare(listed: &BTreeSet<String>, there: &BTreeSet<String>) -> Result<()> {
    if listed == there {
        return Ok(());
    }
    let names = |what: &str, names: Vec<&String>| match names.as_slice() {
        [] => String::new(),
        all => {
            let shown: String = all.iter().take(NAMED).map(|name| format!("\n        {name}")).collect();
            let more = all.len().saturating_sub(NAMED);
            let more = if more > 0 { format!("\n        and {more} more") } else { String::new() };
            format!("\n    {what}:{shown}{more}")
        }
    };
    let gone = names("gone", listed.difference(there).collect());
    let fresh = names("not in the list", there.difference(listed).collect());
    bail!("the tests are not those of {FILE}; if that is meant, run `cargo xtask test --inventory`{gone}{fresh}")
}

fn there(workspace: &Workspace) -> Result<BTreeSet<String>> {
    let mut programs = program::unasked(workspace)?;
    for target in STAGED {
        programs.extend(program::staged(workspace, target)?);
    }
    let mut tests = BTreeSet::new();
    for test in programs {
        let mut list = Command::new(&test.program);
        let listed = command::output(list.args(["--list", "--format", "terse"]).current_dir(&test.folder))?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        tests.extend(names.map(|name| format!("{}: {name}", test.name())));
    }
    Ok(tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vanished_and_what_is_new_is_named() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(compare(&set(&["a: x"]), &set(&["a: x"])).is_ok());
        let error = compare(&set(&["a: x", "a: y"]), &set(&["a: x", "b: z"])).unwrap_err().to_string();
        assert!(error.contains("gone:\n        a: y") && error.contains("not in the list:\n        b: z"), "{error}");
    }
}
