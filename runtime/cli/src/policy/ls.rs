//! `qosm policy ls`: the versions in a repository, or the artefacts in the local store.

use qosm_registry::{Location, Reference};
use qosm_terminal::{Answer, Usage, block_on, print};
use serde_json::json;

use crate::args::{LsArgs, Output};

pub(crate) fn run(args: &LsArgs) -> anyhow::Result<Answer> {
    let Some(repository) = &args.repository else {
        let names = qosm_open_module::store(&args.registry, &[])?.names()?;
        if args.output.output == Output::Json {
            let rows = names.iter().map(|(name, digest)| json!({"artifact": name, "digest": digest.to_string()}));
            print::json(&rows.collect::<Vec<_>>())?;
        } else {
            let rows = names.into_iter().map(|(name, digest)| vec![name, digest.to_string()]);
            print::text(&print::table(&["artifact", "digest"], rows))?;
        }
        return Ok(Answer::Good);
    };
    let repository = if repository.starts_with("oci-layout:") {
        qosm_open_module::location(repository)?
    } else {
        Location::Registry(Reference::parse_name(repository).map_err(|error| Usage(error.to_string()))?)
    };
    let store = qosm_open_module::store(&args.registry, &[&repository])?;
    let versions = block_on(async { Ok(store.versions(&repository).await?) })?;
    if args.output.output == Output::Json {
        print::json(&versions)?;
    } else {
        print::text(&versions.iter().map(|version| format!("{version}\n")).collect::<String>())?;
    }
    Ok(Answer::Good)
}
