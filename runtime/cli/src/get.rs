//! `qosm get`: lists of what a running agent knows.

mod listing;
mod tables;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use qosm_agent::admin::Knobs;
use qosm_terminal::{Answer, print};
use serde_json::Value;

use crate::args::{GetArgs, GetOutput, Noun};
use crate::client;
use crate::get::listing::{Listing, Wanted};

/// Interval between two requests of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &GetArgs) -> anyhow::Result<Answer> {
    if args.watch {
        return watch(args);
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
        let before: BTreeSet<Vec<String>> = std::mem::take(&mut listing.rows).into_iter().collect();
        std::thread::sleep(WATCH_INTERVAL);
        listing = list(args)?;
        let news = listing.rows.iter().filter(|row| !before.contains(*row)).cloned();
        let news = Listing { rows: news.collect(), more: String::new(), ..listing.clone() };
        if !news.rows.is_empty() {
            print::text(&news.text())?;
        }
    }
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
