//! What tests came to: counts, and which of them failed with what they said.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Stage;

/// What the tests of all stages came to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Tests that passed, be it at their second or third try.
    pub(super) passed: u64,
    /// Tests that failed, and programs and stages that ended without an account of their tests.
    pub(super) failed: u64,
    /// Tests that were left out.
    pub(super) ignored: u64,
    /// Tests that cannot run here, as they say themselves; libtest counts them as passed.
    pub(super) not_run: u64,
    /// Those of the failed tests that are known by name, in the order in which they ended.
    pub(super) failures: Vec<Failure>,
    /// Waits that were near their bound, as the tests told them.
    pub(super) slow: Vec<String>,
    /// Tests that took long, of the stages that run one at a time.
    #[serde(default)]
    pub(super) long: Vec<Long>,
}

/// A test that took long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Long {
    pub(super) took: Duration,
    stage: Stage,
    test: String,
}

impl std::fmt::Display for Long {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} s, {}, {}", self.took.as_secs(), self.stage, self.test)
    }
}

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    /// Where it stands.
    pub(super) stage: Stage,
    /// The program that it is in, as [`super::TestProgram::name`] has it.
    pub(super) program: String,
    /// Its name in that program.
    pub(super) test: String,
    /// What it printed.
    pub(super) output: String,
}

/// What a test prints, before the rest of the line, when a wait took more than a third of its bound.
const SLOW: &str = "slow: ";
/// Printed by a test that cannot run here, before its name and the reason.
const NOT_RUN: &str = "not run: ";
/// A test that takes as long as this is told at the end of the run, among the longest.
const LONG: Duration = Duration::from_secs(10);
/// A test's output is cut to so many lines, the last ones.
const OUTPUT_LINES: usize = 60;

/// Reads what one test program prints.
#[derive(Debug)]
pub(super) struct Reading {
    tally: Tally,
    stage: Stage,
    program: String,
    /// Name and output of tests whose output was printed.
    outputs: Vec<(String, Vec<String>)>,
    /// The names that stand below the last `failures:`.
    names: Option<Vec<String>>,
    /// How many tests said since the last summary that they cannot run here.
    said_not_run: u64,
    begun: Instant,
    /// When the test before this one ended, since the program began.
    ended: Duration,
    /// The test whose line was begun, and does not say yet how it ended.
    test: Option<String>,
}

impl Reading {
    /// A program that begins.
    pub(super) fn new(stage: Stage, program: &str) -> Self {
        Self {
            tally: Tally::default(),
            stage,
            program: program.to_owned(),
            outputs: Vec::new(),
            names: None,
            said_not_run: 0,
            begun: Instant::now(),
            ended: Duration::ZERO,
            test: None,
        }
    }

    /// Takes in a line of what it prints.
    pub(super) fn line(&mut self, line: &str) {
        self.line_at(line, self.begun.elapsed());
    }

    /// Takes in a line that was printed so long after the program began.
    fn line_at(&mut self, line: &str, at: Duration) {
        self.note_time(line.trim_end(), at);
        if let Some((_, wait)) = line.split_once(SLOW) {
            self.tally.slow.push(format!("{}: {wait}", self.program));
        }
        self.said_not_run += u64::from(line.contains(NOT_RUN));
        if line == "failures:" {
            self.names = Some(Vec::new());
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----")) {
            self.outputs.push((name.to_owned(), Vec::new()));
        } else if let Some(summary) = line.split_once("test result: ").map(|(_, summary)| summary) {
            self.summary(summary);
        } else if let Some(names) = self.names.as_mut()
            && let Some(name) = line.strip_prefix("    ").filter(|name| !name.is_empty() && !name.starts_with(' '))
        {
            names.push(name.to_owned());
        }
        // What looks like a list of names may as well be what a failed test printed.
        if let Some((_, lines)) = self.outputs.last_mut() {
            lines.push(line.to_owned());
            lines.drain(..lines.len().saturating_sub(OUTPUT_LINES));
        }
    }

    /// Takes note of how long the test took that ends with this line. What is printed while a test runs stands between its name and its end.
    fn note_time(&mut self, line: &str, at: Duration) {
        let begun = line.strip_prefix("test ").and_then(|line| line.split_once(" ... "));
        if let Some((name, _)) = begun {
            self.test = Some(name.to_owned());
        }
        let outcome = begun.map_or(line, |(_, outcome)| outcome);
        if line.starts_with("running ") {
            self.ended = at;
        } else if matches!(outcome, "ok" | "FAILED")
            && let Some(test) = self.test.take()
        {
            let took = at.saturating_sub(self.ended);
            self.ended = at;
            if self.stage.is_one_at_a_time() && took >= LONG {
                self.tally.long.push(Long { took, stage: self.stage, test });
            }
        }
    }

    /// Adds libtest's summary, and the tests that it says have failed.
    fn summary(&mut self, summary: &str) {
        let Some((_, counts)) = summary.split_once(". ") else { return };
        let names = self.names.take().unwrap_or_default();
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => {
                    let not_run = std::mem::take(&mut self.said_not_run).min(number);
                    self.tally.passed += number - not_run;
                    self.tally.not_run += not_run;
                }
                "failed" => self.tally.failed += number,
                "ignored" => self.tally.ignored += number,
                _ => {}
            }
        }
        let outputs = std::mem::take(&mut self.outputs);
        for name in names {
            let output = outputs.iter().find(|(of, _)| *of == name);
            let output = output.map(|(_, lines)| lines.join("\n")).unwrap_or_default();
            let (stage, program) = (self.stage, self.program.clone());
            self.tally.failures.push(Failure { stage, program, test: name, output });
        }
    }

    /// The program has ended; what it came to. One that ended badly without saying so in its summary counts as one failure: it crashed,
    /// hung or did not compile.
    pub(super) fn end(mut self, good: bool) -> Tally {
        if !good && self.tally.failed == 0 {
            self.tally.failed += 1;
        }
        self.tally
    }
}

impl Tally {
    /// Adds the counts of another part of the run.
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.not_run += other.not_run;
        self.failures.extend(other.failures);
        self.slow.extend(other.slow);
        self.long.extend(other.long);
    }

    /// Whether every test has passed. An ignored one shows nothing.
    pub(super) fn is_good(&self) -> bool {
        self.failed == 0 && self.ignored == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, good: bool) -> Tally {
        let mut reading = Reading::new(Stage::Kernel, "qosm kernel");
        text.lines().for_each(|line| reading.line(line));
        reading.end(good)
    }

    #[test]
    fn tests_that_take_long_are_known() {
        let mut reading = Reading::new(Stage::Cluster, "qosm cluster");
        let lines = [
            (8, "running 3 tests"),
            (21, "test a::b ... ok"),
            (22, "test a::c ... ok"),
            (40, "test a::d ... slow: 5 s of 9 for it"),
            (52, "FAILED"),
        ];
        lines.iter().for_each(|(at, line)| reading.line_at(line, Duration::from_secs(*at)));
        let long: Vec<_> = reading.end(false).long.iter().map(Long::to_string).collect();
        assert_eq!(long, ["13 s, cluster, a::b", "30 s, cluster, a::d"]);
    }

    #[test]
    fn summaries_add_up_whatever_stands_around_them() {
        let tally = read(
            "running 3 tests\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s\n\
             noise test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.2s",
            false,
        );
        assert_eq!(tally, Tally { passed: 4, failed: 2, ignored: 1, ..Tally::default() });
        assert!(!tally.is_good());
    }

    #[test]
    fn what_cannot_run_here_has_not_passed() {
        // One test at a time stands in the line that names it, several stand in lines of their own.
        let tally = read(
            "test numa ... not run: numa, for it takes two NUMA nodes\nok\nnot run: fuse, for it takes /dev/fuse\n\
             test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            true,
        );
        assert_eq!(tally, Tally { passed: 3, not_run: 2, ..Tally::default() });
    }

    #[test]
    fn a_program_that_crashed_counts_as_one_failure_that_has_no_name() {
        let tally = read("running 3 tests\ntest a ... ok\n", false);
        assert_eq!((tally.failed, tally.failures.len()), (1, 0));
        let tally = read("test result: ok. 3 passed; 0 failed; 0 ignored", true);
        assert_eq!((tally.passed, tally.failed), (3, 0));
    }

    #[test]
    fn failed_tests_are_known_by_name_with_what_they_said() {
        let tally = read(
            "test a::b ... ok\ntest a::c ... slow: 70 s of 180 for the quota\nFAILED\n\nfailures:\n\n\
             ---- a::c stdout ----\n\nthread 'a::c' panicked at a.rs:3:5:\nwaited in vain\nfailures:\n    no::name\n\n\
             ---- a::d stdout ----\nError: x\n\n\nfailures:\n    a::c\n    a::d\n\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n",
            false,
        );
        let names: Vec<_> = tally.failures.iter().map(|failure| failure.test.as_str()).collect();
        assert_eq!(names, ["a::c", "a::d"]);
        assert!(tally.failures[0].output.contains("waited in vain"), "{tally:?}");
        assert!(tally.failures[1].output.contains("Error: x"), "{tally:?}");
        assert_eq!(tally.failed, 2);
        assert_eq!(tally.slow, ["qosm kernel: 70 s of 180 for the quota"]);
    }
}
