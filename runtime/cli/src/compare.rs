//! `qosm replay --against`: plays a recording through two versions of a policy, and prints their differences.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use qosm_agent::LoadedPolicy;
use qosm_agent::compare::{Comparison, ComparisonDifference, ComparisonOutcome, ComparisonSummary, Decided, Sides};
use qosm_agent::config::PolicyConfig;
use qosm_agent::replay::EventLine;
use qosm_agent::report::VersionReport;
use qosm_engine::Engine;
use qosm_replay::{Recording, write_line};
use qosm_terminal::{Answer, Usage, document, print};

use crate::args::{Output, ReplayArgs};
use crate::modules;
use crate::plan::{Loader, load_entries};

pub(crate) fn run(args: &ReplayArgs, against: &str) -> anyhow::Result<Answer> {
    let (facts, recording) = Recording::open(&args.recording)?;
    let engine = Engine::new()?;
    let old = load_entries(&engine, &args.modules, facts.policies.clone())?;
    let (place, other) = other_version(&engine, args, against, &old)?;
    let policy = other.config.name.clone();
    let mut new = old.clone();
    if let Some(slot) = new.get_mut(place) {
        if slot.module.digest() == other.module.digest() && slot.config.config == other.config.config {
            eprintln!(
                "note: both versions of `{policy}` are the same module ({}) with the same configuration; they cannot differ",
                other.module.digest()
            );
        }
        *slot = other;
    }
    let comparison = Comparison::new(&facts, &engine, &policy, old, new);
    let mut comparison = comparison.map_err(|error| recording.unfit(error))?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut table = Table::default();
    let mut show = |outcome: &ComparisonOutcome| -> anyhow::Result<()> {
        match args.output {
            Output::Json => write_line(&mut out, outcome)?,
            Output::Table => {
                let mut rows = String::new();
                table.write(&mut rows, outcome)?;
                out.write_all(print::harmless(&rows).as_bytes())?;
            }
        }
        Ok(())
    };
    show(&comparison.open())?;
    recording.play(|line| comparison.play(line), show)?;
    let summary = comparison.summary();
    match args.output {
        Output::Json => write_line(&mut out, &serde_json::json!({"summary": summary}))?,
        Output::Table => {
            let mut text = String::new();
            write_summary(&mut text, &summary)?;
            out.write_all(print::harmless(&text).as_bytes())?;
        }
    }
    out.flush()?;
    Ok(if summary.same { Answer::Good } else { Answer::Bad })
}

/// The other version of one of the policies: the index of that policy, and the policy to run in its place.
fn other_version(
    engine: &Engine,
    args: &ReplayArgs,
    against: &str,
    old: &[LoadedPolicy],
) -> anyhow::Result<(usize, LoadedPolicy)> {
    let names = || old.iter().map(|policy| policy.config.name.as_str()).collect::<Vec<_>>().join(", ");
    let named = |name: &str| {
        let found = old.iter().position(|policy| policy.config.name == name);
        found
            .ok_or_else(|| Usage(format!("--against {name}: no policy of that name is played; there are: {}", names())))
    };
    let loader = Loader::new(engine, &args.modules)?;
    let (place, file) = match against.split_once('=') {
        Some((name, file)) => (named(name)?, Some(file)),
        None if modules::is_file(against) => {
            let own = loader.load(&PolicyConfig::shadow(against, against))?.description.name;
            let by_name = old.iter().position(|policy| policy.config.name == own);
            let place = by_name.or_else(|| old.iter().position(|policy| policy.description.name == own));
            let place = place.ok_or_else(|| {
                Usage(format!(
                    "--against {against}: the module calls itself `{own}`, and no replayed policy has that name; name the \
                     policy with --against NAME={against}, where NAME is one of: {}",
                    names()
                ))
            })?;
            (place, Some(against))
        }
        None => (named(against)?, None),
    };
    let config = args.against_config.as_deref().map(|json| document::object(json, "--against-config")).transpose()?;
    if file.is_none() && config.is_none() {
        return Err(Usage(format!(
            "--against {against}: that is the same module with the same configuration; name another module's file, or give \
             --against-config"
        ))
        .into());
    }
    let Some(policy) = old.get(place) else { return Err(Usage("there is no policy to play".to_owned()).into()) };
    let mut entry = policy.config.clone();
    entry.config = config.unwrap_or(entry.config);
    entry.module = file.map(str::to_owned).or(entry.module);
    Ok((place, loader.load(&entry)?))
}

/// Subject and knob of a difference.
type Place = (String, String);

/// Prints one row when a difference begins, changes or ends, because repeating a lasting difference would fill pages.
#[derive(Default)]
struct Table {
    standing: BTreeMap<Place, ComparisonDifference>,
    failing: BTreeMap<(&'static str, String), String>,
}

impl Table {
    fn write(&mut self, out: &mut String, outcome: &ComparisonOutcome) -> fmt::Result {
        let at = format!("{:>5} {:>6}.{:03}s ", outcome.tick, outcome.time_millis / 1000, outcome.time_millis % 1000);
        let now: BTreeMap<Place, ComparisonDifference> =
            outcome.differences.iter().map(|row| ((row.subject.clone(), row.knob.clone()), row.clone())).collect();
        for (subject, knob) in self.standing.keys().filter(|place| !now.contains_key(*place)) {
            writeln!(out, "{at} {subject} {knob}  no longer differs")?;
        }
        for row in &outcome.differences {
            let known = self.standing.get(&(row.subject.clone(), row.knob.clone()));
            if known.is_none_or(|known| !shows_the_same(known, row)) {
                writeln!(out, "{at} {} {}  {}", row.subject, row.knob, sides(row))?;
            }
        }
        self.standing = now;
        for (side, requests) in outcome.requests.iter().flat_map(|sides| [("old", &sides.old), ("new", &sides.new)]) {
            for request in requests {
                writeln!(out, "{at} by the {side} version alone: {request}")?;
            }
        }
        if let Some(events) = &outcome.events {
            for (side, events) in [("old", &events.old), ("new", &events.new)] {
                for EventLine { pod, reason, message, .. } in events {
                    writeln!(out, "{at} event by the {side} version alone: {pod} {reason}: {message}")?;
                }
            }
        }
        let mut failing = BTreeMap::new();
        for (side, policies) in outcome.failing.iter().flat_map(|sides| [("old", &sides.old), ("new", &sides.new)]) {
            failing.extend(policies.iter().map(|(policy, error)| ((side, policy.clone()), error.clone())));
        }
        for ((side, policy), error) in &failing {
            if self.failing.get(&(*side, policy.clone())) != Some(error) {
                writeln!(out, "{at} the {side} side's policy {policy} does not run: {error}")?;
            }
        }
        self.failing = failing;
        Ok(())
    }
}

fn shows_the_same(known: &ComparisonDifference, row: &ComparisonDifference) -> bool {
    let value = |side: &Option<Decided>| side.as_ref().map(|decided| (decided.value, decided.refused.is_some()));
    value(&known.old) == value(&row.old) && value(&known.new) == value(&row.new)
}

/// Both values and their reasons; a common reason is shown once.
fn sides(row: &ComparisonDifference) -> String {
    let value = |side: &Option<Decided>| match side {
        None => "hands off".to_owned(),
        Some(Decided { value, refused: None, .. }) => value.to_string(),
        Some(Decided { value, refused: Some(why), .. }) => format!("{value} (REFUSED: {why})"),
    };
    let why = match (&row.old, &row.new) {
        (Some(old), Some(new)) if old.reason != new.reason => format!("old: {}; new: {}", old.reason, new.reason),
        (Some(side), _) | (None, Some(side)) => side.reason.clone(),
        (None, None) => String::new(),
    };
    format!("old {}, new {}  {why}", value(&row.old), value(&row.new))
}

fn write_summary(out: &mut String, summary: &ComparisonSummary) -> fmt::Result {
    let version = |version: &VersionReport| format!("{} {} {}", version.policy, version.module, version.digest);
    writeln!(out, "\nold  {}\nnew  {}", version(&summary.versions.old), version(&summary.versions.new))?;
    match summary.first_difference {
        Some(first) => {
            writeln!(out, "{} ticks, {} of them differ, tick {first} first", summary.ticks, summary.differing_ticks)?;
        }
        None => writeln!(out, "{} ticks, none of them differs", summary.ticks)?,
    }
    let Sides { old, new } = summary.requests;
    let sides = [
        ("old", summary.failures.old, old, summary.events.old),
        ("new", summary.failures.new, new, summary.events.new),
    ];
    for (side, failures, requests, events) in sides {
        if failures > 0 {
            writeln!(out, "{side}: {failures} evaluations failed")?;
        }
        if requests > 0 {
            writeln!(
                out,
                "{side}: {requests} resources, evictions, migrations and classes that the other does not ask for"
            )?;
        }
        if events > 0 {
            writeln!(out, "{side}: {events} events that the other does not send")?;
        }
    }
    if !summary.knobs.is_empty() {
        let rows = summary.knobs.iter().map(|(knob, counts)| {
            let counts = [counts.agreed, counts.differed, counts.only_old, counts.only_new];
            std::iter::once((*knob).to_owned()).chain(counts.map(|count| count.to_string())).collect()
        });
        write!(out, "\n{}", print::table(&["knob", "agreed", "differed", "only old", "only new"], rows))?;
    }
    Ok(())
}
