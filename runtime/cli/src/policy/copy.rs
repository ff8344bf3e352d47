//! `qosm policy copy`: copies an artefact with its signatures.

use qosm_terminal::{Answer, block_on, print};

use crate::args::{CopyArgs, Output};

pub(crate) fn run(args: &CopyArgs) -> anyhow::Result<Answer> {
    let (from, to) = (qosm_open_module::location(&args.from)?, qosm_open_module::location(&args.to)?);
    let store = qosm_open_module::store(&args.registry, &[&from, &to])?;
    let stored = block_on(async { Ok(store.copy(&from, &to, &mut qosm_open_module::Bars::default()).await?) })?;
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
