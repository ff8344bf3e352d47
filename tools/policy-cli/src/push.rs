//! `qosm policy push`: pushes a module as an artefact.

use std::collections::BTreeMap;

use anyhow::Context;
use jiff::Timestamp;
use qosm_engine::Engine;
use qosm_model::problem::chain;
use qosm_open_module::{Bars, compiler, location, pairs, personal_cache, store};
use qosm_registry::{Artifact, Label, Location};
use qosm_terminal::{Answer, Output, Usage, block_on, print};
use serde_json::json;
use wasm_metadata::Payload;

use crate::args::PushArgs;

pub(crate) fn run(args: &PushArgs) -> anyhow::Result<Answer> {
    let to = location(&args.to)?;
    let wasm = std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let mut label = label(args, &wasm)?;
    label.annotations.extend(pairs(&args.annotations, "--annotation")?);
    let artifact = Artifact::pack(wasm, label)?;
    let store = store(&args.registry, &[&to])?;
    let stored = block_on(async { Ok(store.push(&artifact, &to, &mut Bars::default()).await?) })?;
    let pinned = match to.pinned(stored.digest) {
        Location::Registry(reference) => format!("oci://{reference}"),
        layout => layout.to_string(),
    };
    if args.output.output == Output::Json {
        print::json(&json!({"location": stored.location, "digest": stored.digest.to_string(), "pinned": pinned}))?;
    } else {
        print::text(&format!("pushed  {}\ndigest  {}\npinned  {pinned}\n", stored.location, stored.digest))?;
        if let Location::Registry(reference) = &to {
            let reference = reference.pinned(stored.digest);
            print::text(&format!("to sign it: cosign sign --key cosign.key {reference}\n"))?;
        }
    }
    Ok(Answer::Good)
}

/// The artefact's label: from the module's description, then from its custom sections.
fn label(args: &PushArgs, wasm: &[u8]) -> anyhow::Result<Label> {
    let engine = Engine::new()?;
    let described =
        engine.load(wasm, personal_cache().as_ref(), &compiler()).and_then(|module| engine.describe(&module));
    let stem = || args.file.file_stem().map_or_else(|| "policy".to_owned(), |stem| stem.to_string_lossy().into_owned());
    let mut annotations = sections(wasm);
    let mut say = |key: &str, value: String| annotations.insert(key.to_owned(), value);
    let name = match described {
        Ok(description) => {
            say("org.opencontainers.image.version", description.version);
            if !description.summary.is_empty() {
                say("org.opencontainers.image.description", description.summary);
            }
            description.name
        }
        Err(error) if args.force => {
            eprintln!("warning: this version of qosm could not run it: {}", chain(&error));
            stem()
        }
        Err(error) => {
            return Err(anyhow::Error::from(error).context(format!(
                "{} is not pushed, for it could not be run (--force pushes it all the same)",
                args.file.display()
            )));
        }
    };
    if let Ok(inspection) = engine.inspect(wasm) {
        let imports: Vec<_> = inspection.imports.iter().map(ToString::to_string).collect();
        say("io.qosm.policy.kind", inspection.form.as_str().to_owned());
        say("io.qosm.policy.imports", imports.join(","));
        if let Some(version) = inspection.contract_version {
            say("io.qosm.policy.contract", format!("qosm:policy@{version}"));
        }
    }
    Ok(Label { name, created: created()?, annotations })
}

/// The module's custom sections, under OCI's annotation names.
fn sections(wasm: &[u8]) -> BTreeMap<String, String> {
    let Ok(payload) = Payload::from_binary(wasm) else { return BTreeMap::new() };
    let metadata = payload.metadata();
    let said = [
        ("version", metadata.version.as_ref().map(ToString::to_string)),
        ("description", metadata.description.as_ref().map(ToString::to_string)),
        ("authors", metadata.authors.as_ref().map(ToString::to_string)),
        ("licenses", metadata.licenses.as_ref().map(ToString::to_string)),
        ("source", metadata.source.as_ref().map(ToString::to_string)),
        ("url", metadata.homepage.as_ref().map(ToString::to_string)),
        ("revision", metadata.revision.as_ref().map(ToString::to_string)),
    ];
    said.into_iter().filter_map(|(key, value)| Some((format!("org.opencontainers.image.{key}"), value?))).collect()
}

/// Artefacts built anew from the same source keep their date: <https://reproducible-builds.org/specs/source-date-epoch/>.
fn created() -> Result<String, Usage> {
    let Ok(said) = std::env::var("SOURCE_DATE_EPOCH") else { return Ok(Timestamp::UNIX_EPOCH.to_string()) };
    let seconds = said.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let seconds =
        seconds.ok_or_else(|| Usage(format!("SOURCE_DATE_EPOCH `{said}` is not a number of seconds since 1970")))?;
    Ok(seconds.to_string())
}
