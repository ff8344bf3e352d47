//! `qosm policy sbom`: the components of a module, as CycloneDX.

use qosm_model::digest::Digest;
use qosm_open_module::module;
use qosm_terminal::{Answer, print};
use serde_json::{Value, json};
use wasm_metadata::{Metadata, Payload};

use crate::args::SbomArgs;

pub(crate) fn run(args: &SbomArgs) -> anyhow::Result<Answer> {
    let (place, wasm, _) = module(&args.module, args.module_dir.as_deref(), &args.registry)?;
    anyhow::ensure!(
        !wasm.starts_with(b"\x1f\x8b"),
        "{place} is a bundle with a policy in Rego: it is made of what `tar tzf` lists, and of nothing else"
    );
    let payload = Payload::from_binary(&wasm)?;
    print::json(&document(&place, Digest::of(&wasm), &payload))?;
    Ok(Answer::Good)
}

/// CycloneDX 1.6. The document depends on the module only: it has no timestamp and no random serial number.
fn document(place: &str, digest: Digest, payload: &Payload) -> Value {
    let outer = payload.metadata();
    let mut inner = Vec::new();
    collect(payload, &mut inner);
    let name = inner.iter().find_map(|metadata| metadata.name.clone()).unwrap_or_else(|| place.to_owned());
    let mut tools: Vec<Value> = Vec::new();
    let mut components: Vec<Value> = Vec::new();
    for metadata in &inner {
        for (field, values) in metadata.producers.iter().flat_map(|producers| producers.iter()) {
            for (tool, version) in values.iter() {
                let kind = if field == "language" { "platform" } else { "application" };
                tools.push(json!({"type": kind, "name": tool, "version": version, "description": field}));
            }
        }
        for package in metadata.dependencies.iter().flat_map(|dependencies| &dependencies.version_info().packages) {
            let (name, version) = (&package.name, package.version.to_string());
            components.push(json!({
                "type": "library",
                "name": name,
                "version": version,
                "purl": format!("pkg:cargo/{name}@{version}"),
            }));
        }
    }
    for list in [&mut tools, &mut components] {
        list.sort_by_key(ToString::to_string);
        list.dedup();
    }
    let mut component = json!({
        "type": "application",
        "bom-ref": digest.to_string(),
        "name": name,
        "hashes": [{"alg": "SHA-256", "content": digest.hex()}],
    });
    let said = [
        ("version", outer.version.as_ref().map(|version| json!(version.to_string()))),
        ("description", outer.description.as_ref().map(|text| json!(text.to_string()))),
        ("licenses", outer.licenses.as_ref().map(|text| json!([{"expression": text.to_string()}]))),
        ("externalReferences", outer.source.as_ref().map(|url| json!([{"type": "vcs", "url": url.to_string()}]))),
    ];
    if let Some(fields) = component.as_object_mut() {
        fields.extend(said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component, "tools": {"components": tools}},
        "components": components,
    })
}

fn collect<'a>(payload: &'a Payload, into: &mut Vec<&'a Metadata>) {
    into.push(payload.metadata());
    if let Payload::Component { children, .. } = payload {
        children.iter().for_each(|child| collect(child, into));
    }
}
