//! `qosm policy copy`: from one place to another, with the signatures.

use super::progress::Bars;
use super::shelf;
use crate::args::{CopyArgs, Output};
use crate::{Answer, client, print};

pub(crate) fn run(args: &CopyArgs) -> anyhow::Result<Answer> {
    let (from, to) = (shelf::location(&args.from)?, shelf::location(&args.to)?);
    let library = shelf::library(&args.registry, &[&from, &to])?;
    let stored = client::block_on(async { Ok(library.copy(&from, &to, &mut Bars::default()).await?) })?;
    if args.output.output == Output::Json {
        print::json(&stored)?;
    } else {
        let signatures = match stored.signatures {
            0 => "no signature".to_owned(),
            1 => "1 manifest of signatures".to_owned(),
            number => format!("{number} manifests of signatures"),
        };
        print::text(&format!(
            "copied  {from}\nto      {}\ndigest  {}\nwith    {signatures}\n",
            stored.location, stored.digest
        ))?;
    }
    Ok(Answer::Good)
}
