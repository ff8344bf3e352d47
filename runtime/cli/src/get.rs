//! `qosm get`: lists of what a running agent knows.

mod listing;
mod tables;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use qosm_agent::admin::Knobs;
use qosm_terminal::{Answer, Usage, print};
use serde_json::Value;

use crate::args::{GetArgs, GetOutput, Noun};
use crate::client;
use crate::get::listing::{Listing, Wanted};

/// Interval between two requests of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Columns that change without news: a row is printed again only if another column changed.
const RESTLESS: [&str; 3] = ["age", "last", "evaluations"];

pub(crate) fn run(args: &GetArgs) -> anyhow::Result<Answer> {
    if args.watch {
        let format = match args.output {
            GetOutput::Json => "json",
            GetOutput::Yaml => "yaml",
            GetOutput::Table | GetOutput::Wide => return watch(args),
        };
        return Err(Usage(format!("--watch prints tables: leave out `-o {format}`")).into());
    }
    let listing = list(args)?;
    match args.output {
        GetOutput::Json => print::json(&listing.document)?,
        GetOutput::Yaml => print::text(&serde_saphyr::to_string(&listing.document)?)?,
        GetOutput::Table | GetOutput::Wide => print::text(&listing.text())?,
    }
    Ok(Answer::Good)
}

/// Prints the list, and then each new or changed row, until interrupted.
fn watch(args: &GetArgs) -> anyhow::Result<Answer> {
    let mut listing = list(args)?;
    print::text(&listing.text())?;
    loop {
        std::thread::sleep(WATCH_INTERVAL);
        let now = list(args)?;
        print::text(&news(&listing, &now))?;
        listing = now;
    }
}

/// The rows that are new or have changed, and the text below the list if it has changed; empty if there are none.
fn news(before: &Listing, now: &Listing) -> String {
    let known: BTreeSet<Vec<&String>> = before.rows.iter().map(|row| before.lasting(row, &RESTLESS)).collect();
    let is_new = |row: &&Vec<String>| !known.contains(&now.lasting(row, &RESTLESS));
    let rows: Vec<_> = now.rows.iter().filter(is_new).cloned().collect();
    let head = if rows.is_empty() { Vec::new() } else { now.head.clone() };
    let more = if now.more == before.more { String::new() } else { now.more.clone() };
    Listing { head, rows, more, document: Value::Null }.text()
}

fn list(args: &GetArgs) -> anyhow::Result<Listing> {
    let socket: &Path = &args.socket.admin_socket;
    let wanted = Wanted {
        names: &args.names,
        namespace: args.namespace.as_deref(),
        policy: args.policy.as_deref(),
        is_wide: args.output == GetOutput::Wide,
        now: jiff::Timestamp::now(),
    };
    match args.noun {
        Noun::Pods => tables::pods(client::get(socket, "/v1/pods")?, &wanted),
        Noun::Policies => tables::policies(client::get(socket, "/v1/policies")?, &wanted),
        Noun::Knobs => tables::knobs(client::get::<Knobs>(socket, "/v1/knobs")?, &wanted),
        Noun::Classes => tables::classes(client::get(socket, "/v1/classes")?, &wanted),
        Noun::Resources => tables::resources(client::get(socket, "/v1/resources")?, &wanted),
        Noun::Evictions => tables::evictions(client::get(socket, "/v1/evictions")?, &wanted),
        Noun::Events => tables::events(client::get::<Vec<Value>>(socket, "/v1/events")?, &wanted),
        Noun::Problems => tables::problems(client::get(socket, "/v1/problems")?, &wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(age: &str, value: &str, more: &str) -> Listing {
        let row = |subject: &str, value: &str| vec![subject.to_owned(), value.to_owned(), age.to_owned()];
        Listing {
            head: vec!["subject", "value", "age"],
            rows: vec![row("web", value), row("db", "1")],
            more: more.to_owned(),
            document: Value::Null,
        }
    }

    #[test]
    fn a_watch_prints_what_changes_and_no_row_that_only_grows_older() {
        let before = listing("1s", "10", "");
        assert_eq!(news(&before, &listing("2s", "10", "")), "");
        assert_eq!(news(&before, &listing("2s", "10", "\nnot in force: db\n")), "\nnot in force: db\n");
        let changed = news(&before, &listing("2s", "30", ""));
        assert!(changed.contains("web") && changed.contains("30") && !changed.contains("db"), "{changed}");
        let problems = |problem: &str| Listing { rows: vec![vec![problem.to_owned()]], ..Listing::default() };
        assert_eq!(news(&problems("one"), &problems("one")), "");
        assert_eq!(news(&problems("one"), &problems("two")), "two\n");
    }
}
