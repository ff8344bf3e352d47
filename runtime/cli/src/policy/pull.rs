//! `qosm policy pull`: an artefact's module as a file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use qosm_engine::{Engine, Form};
use qosm_registry::Pulled;
use serde_json::json;

use super::progress::Bars;
use super::shelf;
use crate::args::{Output, PullArgs};
use crate::{Answer, client, modules, print};

pub(crate) fn run(args: &PullArgs) -> anyhow::Result<Answer> {
    let from = shelf::location(&args.from)?;
    let library = shelf::library(&args.registry, &[&from])?;
    let also = shelf::trust(&args.keys)?;
    let pulled = client::block_on(async { Ok(library.pull(&from, also.as_ref(), true, &mut Bars::default()).await?) })?;
    let to = match &args.to {
        Some(to) => to.clone(),
        None => {
            let is_bundle = Engine::new()?.inspect(&pulled.module).is_ok_and(|found| found.form == Form::Rego);
            PathBuf::from(format!("{}.{}", name(&pulled)?, if is_bundle { "tar.gz" } else { "wasm" }))
        }
    };
    write(&to, &pulled.module).with_context(|| format!("cannot write {}", to.display()))?;
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
    let module = engine.load(&pulled.module, modules::personal_cache().as_ref(), &modules::compiler()?);
    let description = module.and_then(|module| engine.describe(&module));
    Ok(description.context("it says no name of its own; name a file with --to")?.name)
}

/// In one piece, or not at all.
pub(super) fn write(to: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), permissions)?;
    file.persist(to)?;
    Ok(())
}
