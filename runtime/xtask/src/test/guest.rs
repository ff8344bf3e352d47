//! Test programs in a guest: the lines that the guest's script prints before and after each program, and counting their results.

use super::tally::{Reading, Tally};
use super::{Selection, Stage};

/// Printed by the guest before each run of a program, followed by the program's name.
const BEGINS: &str = "qosm-test: begin ";
/// Printed by the guest after each run of a program, followed by its result.
const ENDED: &str = "qosm-test: ended ";
const GOOD: &str = "well";

/// Lines of a guest's script that run the selected tests of a program one at a time. They continue after a failure.
pub(super) fn lines(stage: Stage, selection: &Selection<'_>, name: &str, program: &str) -> String {
    selection.runs(stage, name).iter().map(|args| run(name, program, args)).collect()
}

/// Lines of a guest's script that run a program with these arguments.
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

    /// Counts the results in a line, and prints it.
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

    /// Called when the guest is down. Returns whether a program had begun and not ended.
    pub(super) fn end(&mut self) -> bool {
        let unended = self.current.is_some();
        self.tally.add(self.current.take().map(|reading| reading.end(false)).unwrap_or_default());
        unended
    }

    pub(super) fn has_failures(&self) -> bool {
        self.tally.failed > 0
    }
}
