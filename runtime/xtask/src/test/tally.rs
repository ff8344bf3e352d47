//! Results of tests: counts, and the failed tests with their output.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Stage;

/// The results of all stages.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Tests that passed, including those that passed on a retry.
    pub(super) passed: u64,
    /// Tests that failed, and programs and stages that ended without reporting their tests.
    pub(super) failed: u64,
    /// Tests that were ignored.
    pub(super) ignored: u64,
    /// Tests that reported that they cannot run here; libtest counts them as passed.
    pub(super) not_run: u64,
    /// The failed tests that are known by name, in the order in which they ended.
    pub(super) failures: Vec<Failure>,
    /// Waits that came near their time limit, as the tests reported them.
    pub(super) slow: Vec<String>,
    /// Tests that took long, in stages that run one test at a time.
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
    /// The stage of the test.
    pub(super) stage: Stage,
    /// The test's program, by [`super::TestProgram::name`].
    pub(super) program: String,
    /// Name of the test in that program.
    pub(super) test: String,
    /// Output of the test.
    pub(super) output: String,
}

/// Printed by a test, before the rest of the line, when a wait took more than a third of its limit.
const SLOW: &str = "slow: ";
/// Printed by a test that cannot run here, before its name and the reason.
const NOT_RUN: &str = "not run: ";
/// Tests that take at least this long are reported at the end of the run, among the longest.
const LONG: Duration = Duration::from_secs(10);
/// Maximum number of lines of a test's output; the last ones are kept.
const OUTPUT_LINES: usize = 60;

/// Parses the output of a test program.
#[derive(Debug)]
pub(super) struct Reading {
    tally: Tally,
    stage: Stage,
    program: String,
    /// Name and output of tests whose output was printed.
    outputs: Vec<(String, Vec<String>)>,
    /// The names below the last `failures:`.
    names: Option<Vec<String>>,
    /// Number of tests since the last summary that reported that they cannot run here.
    said_not_run: u64,
    begun: Instant,
    /// When the previous test ended, measured from the start of the program.
    ended: Duration,
    /// The test whose line has begun without a result yet.
    test: Option<String>,
}

impl Reading {
    /// Begins with a program's output.
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

    /// Parses a line of output.
    pub(super) fn line(&mut self, line: &str) {
        self.line_at(line, self.begun.elapsed());
    }

    /// Parses a line that was printed at this time after the start of the program.
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
        // A line that looks like a name in a list may also be output of a failed test.
        if let Some((_, lines)) = self.outputs.last_mut() {
            lines.push(line.to_owned());
            lines.drain(..lines.len().saturating_sub(OUTPUT_LINES));
        }
    }

    /// Records the duration of the test that ends with this line. Output of a running test is between its name and its result.
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

    /// Adds libtest's summary, and the failed tests that it lists.
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

    /// Ends with the program, and returns its results. A program that failed without a failure in its summary counts as one failure: it
    /// crashed, hung or did not compile.
    pub(super) fn end(mut self, good: bool) -> Tally {
        if !good && self.tally.failed == 0 {
            self.tally.failed += 1;
        }
        self.tally
    }
}

impl Tally {
    /// Adds the results of another part of the run.
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.not_run += other.not_run;
        self.failures.extend(other.failures);
        self.slow.extend(other.slow);
        self.long.extend(other.long);
    }

    /// Whether every test passed; an ignored test does not count as passed.
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
        // If tests run one at a time, the reason is in the line that names the test; otherwise in a line of its own.
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
