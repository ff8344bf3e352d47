//! Test programs in a guest: what its script prints before and after each of them, and how that is counted.

use super::tally::{Reading, Tally};
use super::{Selection, Stage};

/// What the guest prints before each run of a program, before the program's name.
const BEGINS: &str = "qosm-test: begin ";
/// What it prints after one, before how it ended.
const ENDED: &str = "qosm-test: ended ";
const GOOD: &str = "well";

/// The lines of a guest's script that run what is selected of a program, one test at a time, even after a failure.
pub(super) fn lines(stage: Stage, selection: &Selection<'_>, name: &str, program: &str) -> String {
    selection.runs(stage, name).iter().map(|args| run(name, program, args)).collect()
}

/// The lines that run a program with these arguments.
pub(super) fn run(name: &str, program: &str, args: &[String]) -> String {
    let args: String = args.iter().map(|arg| format!(" '{}'", arg.replace('\'', ""))).collect();
    format!(
        "echo '{BEGINS}{name}'\nif {program} --test-threads=1{args}; then echo '{ENDED}{GOOD}'; else echo '{ENDED}bad'; fi\n"
    )
}

/// Reads a guest's console.
pub(super) struct Console<'a> {
    stage: Stage,
    tally: &'a mut Tally,
    current: Option<Reading>,
}

impl<'a> Console<'a> {
    pub(super) fn new(stage: Stage, tally: &'a mut Tally) -> Self {
        Self { stage, tally, current: None }
    }

    /// Counts what a line reports, and prints it.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix(BEGINS) {
            self.current = Some(Reading::new(self.stage, name.trim()));
        } else if let Some(end) = line.strip_prefix(ENDED) {
            // A console's line ends in CR LF.
            let is_good = end.trim() == GOOD;
            self.tally.add(self.current.take().map(|reading| reading.end(is_good)).unwrap_or_default());
        } else if let Some(reading) = &mut self.current {
            reading.line(line);
        }
        println!("{line}");
    }

    /// The guest is down. A program that has begun and not ended took it along: `true`.
    pub(super) fn end(&mut self) -> bool {
        let unended = self.current.is_some();
        self.tally.add(self.current.take().map(|reading| reading.end(false)).unwrap_or_default());
        unended
    }

    pub(super) fn has_failures(&self) -> bool {
        self.tally.failed > 0
    }
}
