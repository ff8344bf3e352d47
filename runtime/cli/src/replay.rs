//! `qosm replay`: a recording through the policies.

use std::io::{BufRead, Write};

use anyhow::Context;
use qosm_agent::Mode;
use qosm_agent::facts::Facts;
use qosm_agent::replay::{Outcome, Replay, TickLine};
use qosm_cluster::Objects;
use qosm_engine::Engine;

use crate::args::{Output, ReplayArgs};
use crate::print::Usage;
use crate::{Answer, plan};

pub(crate) fn run(args: &ReplayArgs) -> anyhow::Result<Answer> {
    let shown = args.recording.display();
    let reader: Box<dyn BufRead> = if args.recording.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        let file = std::fs::File::open(&args.recording).with_context(|| format!("cannot read {shown}"))?;
        Box::new(std::io::BufReader::new(file))
    };
    let mut lines =
        reader.lines().enumerate().filter(|(_, line)| line.as_ref().map_or(true, |text| !text.trim().is_empty()));
    let wrong = |number: usize, error: &dyn std::fmt::Display| Usage(format!("{shown}: line {}: {error}", number + 1));
    let (number, first) =
        lines.next().ok_or_else(|| Usage(format!("{shown}: empty; the first line must be the facts")))?;
    let facts: Facts = serde_json::from_str(&first.with_context(|| format!("cannot read {shown}"))?)
        .map_err(|error| wrong(number, &format!("the facts: {error}")))?;

    let engine = Engine::new()?;
    let policies = plan::load_entries(&engine, &args.modules, facts.policies.clone())?;
    let mut replay = Replay::new(&facts, Objects::default(), engine, policies, Mode::Enforce)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut failing = false;
    let mut show = |outcome: &Outcome| -> anyhow::Result<()> {
        failing |= !outcome.failing.is_empty();
        match args.output {
            Output::Json => {
                serde_json::to_writer(&mut out, outcome).map_err(std::io::Error::from)?;
                out.write_all(b"\n")?;
            }
            Output::Table => write_table(&mut out, outcome)?,
        }
        Ok(())
    };
    show(&replay.open())?;
    for (number, line) in lines {
        let line = line.with_context(|| format!("cannot read {shown}"))?;
        let tick: TickLine = serde_json::from_str(&line).map_err(|error| wrong(number, &error))?;
        let outcome =
            replay.play(&tick).map_err(|error| wrong(number, &format!("{:#}", anyhow::Error::from(error))))?;
        show(&outcome)?;
    }
    out.flush()?;
    Ok(if failing { Answer::Bad } else { Answer::Good })
}

fn write_table(out: &mut impl Write, outcome: &Outcome) -> std::io::Result<()> {
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
    Ok(())
}
