//! `qosm diff`: what a shadow would do differently from the active policy.

use std::fmt::Write;

use qosm_agent::report::{AskedReport, DiffReport, VersionReport};
use qosm_terminal::{Answer, print};

use crate::args::{DiffArgs, Output};
use crate::client;
use crate::explain::encode;

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<Answer> {
    let report: DiffReport =
        client::get(&args.socket.admin_socket, &format!("/v1/diff?policy={}", encode(&args.policy)))?;
    match args.output.output {
        Output::Json => print::json(&report)?,
        Output::Table => print::text(&render(&report))?,
    }
    Ok(if report.differences.is_empty() && report.error.is_none() { Answer::Good } else { Answer::Bad })
}

/// The report as text.
fn render(report: &DiffReport) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut text, report);
    text
}

fn write(out: &mut String, report: &DiffReport) -> std::fmt::Result {
    writeln!(out, "shadow {}  {}", version(&report.shadow), report.health)?;
    match &report.active {
        Some(active) => writeln!(out, "active {}", version(active))?,
        None => writeln!(out, "active: no policy of that module; compared with whatever is in force")?,
    }
    if let Some(error) = &report.error {
        writeln!(out, "\nnothing is compared while the shadow does not run: {error}")?;
        if report.health == "parked" {
            writeln!(out, "`qosm policy retry {}` starts it anew", report.shadow.policy)?;
        }
    } else {
        writeln!(out, "\nnow: {} agree, {} differ", knobs(report.agreements), report.differences.len())?;
    }
    if !report.differences.is_empty() {
        let rows = report.differences.iter().map(|row| {
            vec![
                row.subject.clone(),
                row.knob.clone(),
                value(row.active.as_ref()),
                value(row.shadow.as_ref()),
                row.in_force.map_or_else(|| "?".to_owned(), |value| value.to_string()),
                reason(row.active.as_ref()),
                reason(row.shadow.as_ref()),
            ]
        });
        let head = ["subject", "knob", "active", "shadow", "in force", "active because", "shadow because"];
        writeln!(out, "\n{}", print::table(&head, rows).trim_end())?;
    }
    let totals = &report.totals;
    if let Some(since) = &totals.since {
        writeln!(out, "\nsince {since}: {} ticks, {} of them with differences", totals.ticks, totals.differing_ticks)?;
        let rows = totals.knobs.iter().map(|(knob, counts)| {
            let counts = [counts.agreed, counts.differed, counts.only_active, counts.only_shadow];
            std::iter::once(knob.clone()).chain(counts.map(|count| count.to_string())).collect()
        });
        let head = ["knob", "agreed", "differed", "only active", "only shadow"];
        writeln!(out, "{}", print::table(&head, rows).trim_end())?;
    }
    if totals.events_withheld > 0 {
        writeln!(out, "events that were not sent: {}", totals.events_withheld)?;
    }
    if totals.classes_withheld > 0 {
        writeln!(out, "classes of shares, and members of them, that came to nothing: {}", totals.classes_withheld)?;
    }
    if totals.migrations_withheld > 0 {
        writeln!(out, "migrations of pages that did not take place: {}", totals.migrations_withheld)?;
    }
    for resource in totals.resources_withheld.values() {
        writeln!(out, "{resource} is not published: {}", resource.reason)?;
    }
    if totals.evictions_withheld > 0 {
        writeln!(out, "evictions that did not take place: {}", totals.evictions_withheld)?;
        totals.latest_evictions.iter().try_for_each(|eviction| writeln!(out, "    {eviction}"))?;
    }
    let cost = &report.cost;
    let mean = cost.all_evaluations_usec.checked_div(cost.evaluations).unwrap_or_default();
    writeln!(
        out,
        "\ncost: {} evaluations of {mean} µs (the last {} µs), {} failed",
        cost.evaluations, cost.last_evaluation_usec, cost.failures
    )
}

fn knobs(count: u64) -> String {
    if count == 1 { "1 knob".to_owned() } else { format!("{count} knobs") }
}

fn version(version: &VersionReport) -> String {
    if version.module.is_empty() {
        return format!("{}: not loaded", version.policy);
    }
    format!("{}: {} {}", version.policy, version.module, short(&version.digest))
}

/// The part of a digest that `get policies` shows.
pub(crate) fn short(digest: &str) -> String {
    digest.chars().take(19).collect()
}

fn value(asked: Option<&AskedReport>) -> String {
    asked.map_or_else(|| "-".to_owned(), |asked| asked.value.to_string())
}

fn reason(asked: Option<&AskedReport>) -> String {
    asked.map_or_else(|| "-".to_owned(), |asked| asked.reason.clone())
}
