//! Retries failed tests, each alone and in a fresh environment. A test that passes then is *flaky*: it is reported and does not fail the
//! run. This separates failures of a busy machine from real faults, and reports every flaky test.

use std::fmt;
use std::fs;

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use serde::Serialize;

use super::tally::{Failure, Tally};
use super::{Run, Selection, Stage};
use crate::command;

/// Number of retries of a test.
const TRIES: u32 = 2;
/// If more tests than this fail, lack of time is not the cause.
const MOST: usize = 12;
/// Tests in a module of this name are never retried: that the host contains a hostile module must not depend on luck.
const NEVER: &str = "hostile";
/// Stands for the program of tests in Rego. They are never retried either: they depend on nothing but their text.
pub(super) const REGO: &str = "opa test";
/// The list of flaky tests, in the target directory.
const FILE: &str = "flaky.json";

/// A test that failed first and passed on a retry.
#[derive(Debug, Serialize)]
pub(super) struct Flaky {
    /// Number of the try that passed; 2 is the first retry.
    passed_at_try: u32,
    /// The first failure.
    #[serde(flatten)]
    first: Failure,
}

impl fmt::Display for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { stage, program, test, output } = &self.first;
        write!(f, "{stage}, {program}, {test}: passed at try {}, failed first with", self.passed_at_try)?;
        output.lines().try_for_each(|line| write!(f, "\n        {line}"))
    }
}

/// Retries failed tests: runs each stage again with nothing in parallel, without the state of the first run, and with only these tests.
/// Tests that pass are counted as passed, returned, and written to `flaky.json`.
///
/// # Errors
///
/// If this process is asked to end, or the file cannot be written.
pub(super) fn run(run: &Run<'_>, tally: &mut Tally) -> Result<Vec<Flaky>> {
    let mut flaky = Vec::new();
    let (first, never): (Vec<_>, Vec<_>) = std::mem::take(&mut tally.failures).into_iter().partition(may_be_tried);
    tally.failures = never;
    if first.len() > MOST {
        command::heading(&format!("{} tests failed: too many to be tried again", first.len()));
        tally.failures.extend(first);
        return keep(run, flaky);
    }
    for stage in Stage::value_variants() {
        let mut left: Vec<_> = first.iter().filter(|failure| failure.stage == *stage).cloned().collect();
        for turn in 0..TRIES {
            if left.is_empty() {
                break;
            }
            let names: Vec<_> = left.iter().map(|failure| failure.test.as_str()).collect();
            command::heading(&format!("again, try {} of {stage}: {}", turn + 2, names.join(" ")));
            let mut again = Tally::default();
            stage.account(run, &Selection::Again(&left), &mut again)?;
            settle(&mut left, again, turn + 2, tally, &mut flaky);
        }
        tally.failures.extend(left);
    }
    keep(run, flaky)
}

fn may_be_tried(failure: &Failure) -> bool {
    failure.program != REGO && !failure.test.split("::").chain(failure.program.split(' ')).any(|part| part == NEVER)
}

/// Moves the tests that passed at this try from `left` to `flaky`. If a retry does not report all of its tests, the rest counts as failed.
fn settle(left: &mut Vec<Failure>, again: Tally, at: u32, tally: &mut Tally, flaky: &mut Vec<Flaky>) {
    tally.slow.extend(again.slow);
    if again.passed + again.failed != left.len() as u64 || again.failed != again.failures.len() as u64 {
        return;
    }
    let has_failed = |one: &Failure| again.failures.iter().any(|it| it.program == one.program && it.test == one.test);
    let (failed, passed): (Vec<_>, Vec<_>) = std::mem::take(left).into_iter().partition(has_failed);
    *left = failed;
    for first in passed {
        tally.failed -= 1;
        tally.passed += 1;
        flaky.push(Flaky { passed_at_try: at, first });
    }
}

fn keep(run: &Run<'_>, flaky: Vec<Flaky>) -> Result<Vec<Flaky>> {
    let file = run.workspace.target().join(FILE);
    let text = serde_json::to_string_pretty(&flaky).context("the flaky tests are no JSON")?;
    fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(flaky)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(program: &str, test: &str) -> Failure {
        Failure {
            stage: Stage::Kernel,
            program: program.to_owned(),
            test: test.to_owned(),
            output: "waited in vain".to_owned(),
        }
    }

    #[test]
    fn hostile_modules_are_never_tried_again() {
        assert!(may_be_tried(&failure("qosm-engine engine", "calls::one")));
        assert!(!may_be_tried(&failure("qosm-engine engine", "hostile::one")));
        assert!(!may_be_tried(&failure("qosm-engine hostile", "one")));
        assert!(!may_be_tried(&failure(REGO, "data.qosm_test.test_one")));
    }

    #[test]
    fn whoever_passes_is_flaky_and_whoever_fails_again_has_failed() {
        let (a, b) = (failure("p kernel", "a"), failure("p kernel", "b"));
        let mut tally = Tally { passed: 5, failed: 2, ..Tally::default() };
        let (mut left, mut flaky) = (vec![a, b.clone()], Vec::new());
        let again = Tally { passed: 1, failed: 1, failures: vec![b.clone()], ..Tally::default() };
        settle(&mut left, again, 2, &mut tally, &mut flaky);
        assert_eq!((left.as_slice(), tally.passed, tally.failed), ([b.clone()].as_slice(), 6, 1));
        let again = Tally { failed: 1, failures: vec![b.clone()], ..Tally::default() };
        settle(&mut left, again, 3, &mut tally, &mut flaky);
        assert_eq!((left.len(), tally.failed), (1, 1));
        let [one] = flaky.as_slice() else { unreachable!("{flaky:?}") };
        assert_eq!(one.to_string(), "kernel, p kernel, a: passed at try 2, failed first with\n        waited in vain");
    }

    #[test]
    fn a_try_that_does_not_account_for_all_shows_nothing() {
        let mut tally = Tally { failed: 1, ..Tally::default() };
        let (mut left, mut flaky) = (vec![failure("p kernel", "a")], Vec::new());
        for again in
            [Tally::default(), Tally { failed: 1, ..Tally::default() }, Tally { passed: 2, ..Tally::default() }]
        {
            settle(&mut left, again, 2, &mut tally, &mut flaky);
            assert_eq!((left.len(), tally.failed, flaky.len()), (1, 1, 0));
        }
    }
}
