//! Plays a recording tick by tick, and prints the outcomes.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::Path;

use qosm_agent::facts::Facts;
use qosm_agent::replay::{Outcome, Replay, ReplayError, TickLine};
use qosm_agent::{LoadedPolicy, Mode};
use qosm_cluster::Objects;
use qosm_engine::Engine;
use qosm_terminal::{Answer, Output, Usage, document, print};

/// Plays a recording and prints the outcome of each tick. The answer is bad if a policy does not run.
///
/// # Errors
///
/// When standard output cannot be written; [`Usage`] if the recording cannot be read, or a line is invalid.
pub fn play(
    facts: &Facts,
    recording: Recording,
    engine: Engine,
    policies: Vec<LoadedPolicy>,
    output: Output,
) -> anyhow::Result<Answer> {
    let replay = Replay::new(facts, Objects::default(), engine, policies, Mode::Enforce);
    let mut replay = replay.map_err(|error| recording.unfit(error))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut failing = false;
    let mut show = |outcome: &Outcome| -> anyhow::Result<()> {
        failing |= !outcome.failing.is_empty();
        match output {
            Output::Json => write_line(&mut out, outcome)?,
            Output::Table => out.write_all(table(outcome)?.as_bytes())?,
        }
        Ok(())
    };
    show(&replay.open())?;
    recording.play(|line| replay.play(line), show)?;
    out.flush()?;
    Ok(if failing { Answer::Bad } else { Answer::Good })
}

/// Writes a document as one line.
///
/// # Errors
///
/// When it cannot be written.
pub fn write_line(out: &mut impl Write, document: &impl serde::Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, document).map_err(std::io::Error::from)?;
    out.write_all(b"\n")
}

type NumberedLines = Box<dyn Iterator<Item = (usize, std::io::Result<String>)> + Send>;

/// A recording, read as far as its facts.
pub struct Recording {
    shown: String,
    lines: NumberedLines,
}

impl Recording {
    /// Opens a file, or standard input (`-`), and reads the facts.
    ///
    /// # Errors
    ///
    /// [`Usage`] if it cannot be read, is empty, or its first line holds no facts.
    #[expect(clippy::disallowed_methods, reason = "a command reads the file that was typed")]
    pub fn open(path: &Path) -> anyhow::Result<(Facts, Self)> {
        let shown = path.display().to_string();
        let reader: Box<dyn BufRead + Send> = if path.as_os_str() == "-" {
            Box::new(std::io::BufReader::new(std::io::stdin()))
        } else {
            let file = std::fs::File::open(path).map_err(|error| unreadable(&shown, &error))?;
            Box::new(std::io::BufReader::new(file))
        };
        let lines =
            reader.lines().enumerate().filter(|(_, line)| line.as_ref().map_or(true, |text| !text.trim().is_empty()));
        let mut recording = Self { shown, lines: Box::new(lines) };
        let first = recording.lines.next();
        let (number, first) =
            first.ok_or_else(|| Usage(format!("{}: empty; the first line must be the facts", recording.shown)))?;
        let first = first.map_err(|error| unreadable(&recording.shown, &error))?;
        recording.check_object(number, &first)?;
        let facts = Facts::from_recording(&first).map_err(|error| {
            let (field, error) = (document::json_field::<Facts>(&first), document::plain(&error.to_string()));
            recording.wrong(number, &format!("the facts: {field}{error}"))
        })?;
        Ok((facts, recording))
    }

    /// Adds the recording's name to an error in its facts.
    pub fn unfit(&self, error: ReplayError) -> anyhow::Error {
        of_facts(&self.shown, error.into())
    }

    fn wrong(&self, number: usize, error: &dyn std::fmt::Display) -> Usage {
        Usage(format!("{}: line {}: {error}", self.shown, number + 1))
    }

    /// Checks that a line is a JSON object: deserialisation would take the fields of a list by position.
    fn check_object(&self, number: usize, line: &str) -> Result<(), Usage> {
        match line.trim_start().starts_with('[') {
            true => Err(self.wrong(number, &"it is a JSON list; write an object, in braces")),
            false => Ok(()),
        }
    }

    /// Plays the ticks, and passes each outcome to `show`.
    ///
    /// # Errors
    ///
    /// When `show` fails; [`Usage`] if it cannot be read, and with the line's number if the line is no tick, or cannot be played.
    pub fn play<T>(
        mut self,
        mut play: impl FnMut(&TickLine) -> Result<T, ReplayError>,
        mut show: impl FnMut(&T) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        while let Some((number, line)) = self.lines.next() {
            let line = line.map_err(|error| unreadable(&self.shown, &error))?;
            self.check_object(number, &line)?;
            let tick: TickLine = serde_json::from_str(&line).map_err(|error| {
                let (field, error) = (document::json_field::<TickLine>(&line), document::plain(&error.to_string()));
                self.wrong(number, &format!("{field}{error}"))
            })?;
            let outcome =
                play(&tick).map_err(|error| self.wrong(number, &format!("{:#}", anyhow::Error::from(error))))?;
            show(&outcome)?;
        }
        Ok(())
    }
}

fn unreadable(shown: &str, error: &std::io::Error) -> Usage {
    Usage(format!("cannot read {shown}: {error}"))
}

/// The rows of one tick, without the characters that a terminal interprets.
fn table(outcome: &Outcome) -> Result<String, std::fmt::Error> {
    let mut out = String::new();
    let seconds = outcome.time_millis / 1000;
    let millis = outcome.time_millis % 1000;
    let rows =
        outcome.decisions.iter().map(|decision| (decision, "")).chain(outcome.refused.iter().map(|d| (d, "REFUSED ")));
    for (decision, mark) in rows {
        writeln!(
            out,
            "{:>5} {seconds:>6}.{millis:03}s  {mark}{} {} {} -> {}  [{}] {}{}",
            outcome.tick,
            decision.subject(),
            decision.knob,
            decision.current.map_or_else(|| "?".to_owned(), |value| value.to_string()),
            decision.value,
            decision.policy,
            decision.reason,
            decision.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default(),
        )?;
    }
    for migration in &outcome.migrations {
        let error = migration.error.as_ref().map(|error| format!(": not moved, {error}")).unwrap_or_default();
        writeln!(
            out,
            "{:>5} {seconds:>6}.{millis:03}s  {migration}  [{}] {}{error}",
            outcome.tick, migration.policy, migration.reason
        )?;
    }
    for class in &outcome.classes {
        let error = class.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
        writeln!(
            out,
            "{:>5} {seconds:>6}.{millis:03}s  {class}  [{}] {}{error}",
            outcome.tick, class.policy, class.reason
        )?;
    }
    for resource in &outcome.resources {
        writeln!(
            out,
            "{:>5} {seconds:>6}.{millis:03}s  {resource}  [{}] {}",
            outcome.tick, resource.policy, resource.reason
        )?;
    }
    for eviction in &outcome.evictions {
        writeln!(
            out,
            "{:>5} {seconds:>6}.{millis:03}s  {eviction}  [{}] {}: {}",
            outcome.tick, eviction.reason, eviction.message, eviction.why
        )?;
    }
    for decision in &outcome.shadows {
        writeln!(out, "{:>5} {seconds:>6}.{millis:03}s  {decision}", outcome.tick)?;
    }
    for event in &outcome.events {
        writeln!(
            out,
            "{:>5} {seconds:>6}.{millis:03}s  event {} {}: {}",
            outcome.tick, event.pod, event.reason, event.message
        )?;
    }
    for problem in &outcome.problems {
        writeln!(out, "{:>5} {seconds:>6}.{millis:03}s  problem {problem}", outcome.tick)?;
    }
    for (policy, error) in &outcome.failing {
        writeln!(out, "{:>5} {seconds:>6}.{millis:03}s  policy {policy} does not run: {error}", outcome.tick)?;
    }
    Ok(print::harmless(&out).into_owned())
}

/// Adds the file whose facts describe no node that can be simulated.
pub fn of_facts(shown: &str, error: anyhow::Error) -> anyhow::Error {
    if is_usage(&error) { error.context(format!("cannot simulate the node of {shown}")) } else { error }
}

/// Whether an error lies in the recording or the facts, so that it counts as wrong usage of the command.
pub fn is_usage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ReplayError::Fixture(_)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_table_has_nothing_that_a_terminal_acts_on() {
        let outcome = Outcome {
            tick: 1,
            time_millis: 1500,
            decisions: Vec::new(),
            refused: Vec::new(),
            migrations: Vec::new(),
            classes: Vec::new(),
            resources: Vec::new(),
            evictions: Vec::new(),
            shadows: Vec::new(),
            events: Vec::new(),
            problems: vec!["\u{1b}[2Jgone\u{7}".to_owned()],
            failing: BTreeMap::from([("mine".to_owned(), "\u{9b}2J".to_owned())]),
        };
        assert_eq!(
            table(&outcome).unwrap(),
            "    1      1.500s  problem \\u{1b}[2Jgone\\u{7}\n    1      1.500s  policy mine does not run: \\u{9b}2J\n"
        );
    }
}
