//! `qosm policy ls`: the versions in a repository, or what the store has.

use qosm_registry::{Location, Reference};
use serde_json::json;

use super::shelf;
use crate::args::{LsArgs, Output};
use crate::print::Usage;
use crate::{Answer, client, print};

pub(crate) fn run(args: &LsArgs) -> anyhow::Result<Answer> {
    let Some(repository) = &args.repository else {
        let names = shelf::library(&args.registry, &[])?.names()?;
        if args.output.output == Output::Json {
            let rows = names.iter().map(|(name, digest)| json!({"artifact": name, "digest": digest.to_string()}));
            print::json(&rows.collect::<Vec<_>>())?;
        } else {
            let rows = names.into_iter().map(|(name, digest)| vec![name, digest.to_string()]);
            print::text(&print::table(&["artifact", "digest"], rows))?;
        }
        return Ok(Answer::Good);
    };
    let repository = Reference::parse_name(repository).map_err(|error| Usage(error.to_string()))?;
    let library = shelf::library(&args.registry, &[&Location::Registry(repository.clone())])?;
    let versions = client::block_on(async { Ok(library.versions(&repository).await?) })?;
    if args.output.output == Output::Json {
        print::json(&versions)?;
    } else {
        print::text(&versions.iter().map(|version| format!("{version}\n")).collect::<String>())?;
    }
    Ok(Answer::Good)
}
