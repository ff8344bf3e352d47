//! `qosm policy annotate`: writes authors, source, licence and the like of a module to the custom sections that Wasm tools share.

use anyhow::Context;
use qosm_model::digest::Digest;
use qosm_terminal::{Answer, Output, Usage, print};
use serde_json::json;
use wasm_metadata::{AddMetadata, AddMetadataField};

use crate::args::AnnotateArgs;

pub(crate) fn run(args: &AnnotateArgs) -> anyhow::Result<Answer> {
    let wasm = std::fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    anyhow::ensure!(
        !wasm.starts_with(b"\x1f\x8b"),
        "{} is a bundle with a policy in Rego: its name and version stand in its METADATA, and a licence in its source",
        args.file.display()
    );
    let mut add = AddMetadata::default();
    add.version = field("--version", args.version.as_deref())?;
    add.description = field("--description", args.description.as_deref())?;
    add.authors = field("--authors", args.authors.as_deref())?;
    add.licenses = field("--licenses", args.licenses.as_deref())?;
    add.source = field("--source", args.source.as_deref())?;
    add.homepage = field("--homepage", args.homepage.as_deref())?;
    add.revision = field("--revision", args.revision.as_deref())?;
    let annotated = add.to_wasm(&wasm).with_context(|| format!("{} is no WebAssembly", args.file.display()))?;
    let to = args.to.as_ref().unwrap_or(&args.file);
    qosm_open_module::write(to, &annotated).with_context(|| format!("cannot write {}", to.display()))?;
    if args.output.output == Output::Json {
        let digest = Digest::of(&annotated).to_string();
        print::json(&json!({"file": to, "digest": digest, "size": annotated.len(), "sizeBefore": wasm.len()}))?;
    } else {
        print::text(&format!("{}: {} bytes, was {}\n", to.display(), annotated.len(), wasm.len()))?;
    }
    Ok(Answer::Good)
}

fn field<T>(flag: &str, said: Option<&str>) -> Result<AddMetadataField<T>, Usage>
where
    T: std::fmt::Debug + Clone + std::str::FromStr,
    T::Err: std::fmt::Display,
{
    match said {
        None => Ok(AddMetadataField::Keep),
        Some("") => Ok(AddMetadataField::Clear),
        Some(text) => text
            .parse()
            .map(AddMetadataField::Set)
            .map_err(|error: T::Err| Usage(format!("{flag} `{text}`: {error:#}"))),
    }
}
