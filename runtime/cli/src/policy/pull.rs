//! `qosm policy pull`: writes an artefact's module to a file.

use std::path::PathBuf;

use anyhow::Context;
use qosm_engine::{Engine, Form};
use qosm_open_module::{compiler, personal_cache};
use qosm_registry::Pulled;
use qosm_terminal::{Answer, block_on, print};
use serde_json::json;

use crate::args::{Output, PullArgs};

pub(crate) fn run(args: &PullArgs) -> anyhow::Result<Answer> {
    let from = qosm_open_module::location(&args.from)?;
    let store = qosm_open_module::store(&args.registry, &[&from])?;
    let also = qosm_open_module::trust(&args.keys)?;
    let pulled =
        block_on(async { Ok(store.pull(&from, also.as_ref(), true, &mut qosm_open_module::Bars::default()).await?) })?;
    let to = match &args.to {
        Some(to) => to.clone(),
        None => {
            let is_bundle = Engine::new()?.inspect(&pulled.module).is_ok_and(|found| found.form == Form::Rego);
            PathBuf::from(format!("{}.{}", name(&pulled)?, if is_bundle { "tar.gz" } else { "wasm" }))
        }
    };
    qosm_open_module::write(&to, &pulled.module).with_context(|| format!("cannot write {}", to.display()))?;
    if args.output.output == Output::Json {
        print::json(&json!({
            "location": pulled.location,
            "digest": pulled.digest.to_string(),
            "file": to,
            "size": pulled.module.len(),
            "trusted": pulled.trusted,
        }))?;
    } else {
        let size = pulled.module.len();
        print::text(&format!(
            "pulled  {}\ndigest  {}\ntrust   {}\nfile    {} ({size} bytes)\n",
            pulled.location,
            pulled.digest,
            pulled.trusted,
            to.display()
        ))?;
    }
    Ok(Answer::Good)
}

fn name(pulled: &Pulled) -> anyhow::Result<String> {
    let engine = Engine::new()?;
    let module = engine.load(&pulled.module, personal_cache().as_ref(), &compiler());
    let description = module.and_then(|module| engine.describe(&module));
    Ok(description.context("the module has no name of its own; name a file with --to")?.name)
}
