//! Prints a module's identity and the interfaces that it can use, read from its bytes.

use std::collections::BTreeSet;

use anyhow::Context;
use qosm_engine::{Engine, Form, Reach};
use qosm_model::foreign;
use qosm_model::problem::chain;
use qosm_terminal::{Answer, Output, print, schema};
use serde_json::json;

use crate::module::Artefact;
use crate::{compiler, personal_cache};

/// Maximum number of characters of one value.
const MAX_SHOWN: usize = 2_000;

/// Prints a module's description. Returns [`Answer::Bad`] if the module cannot be run.
///
/// # Errors
///
/// If the bytes are not a module, or standard output cannot be written.
pub fn inspect(place: &str, wasm: &[u8], artefact: Option<&Artefact>, output: Output) -> anyhow::Result<Answer> {
    let engine = Engine::new()?;
    let inspection = engine.inspect(wasm).with_context(|| format!("{place} is no policy module"))?;
    let module = engine.load(wasm, personal_cache().as_ref(), &compiler());
    let described = module.and_then(|module| engine.describe(&module));
    let has_protocol = described.as_ref().is_ok_and(|description| description.protocol.is_some());
    let imports: BTreeSet<_> = inspection.imports.iter().copied().collect();
    let reach = &inspection.reach;
    // The needs of a module that cannot be run are unknown.
    let needed = described.as_ref().map(|_| Reach::needed(&imports, reach, has_protocol)).unwrap_or_default();
    // Without a protocol no pod is configured for the module: it acts on any pod, or on none.
    let depends_on_targets = needed.difference(reach).next().is_some();
    let named = inspection.imports.iter().filter(|import| !import.always_granted()).map(ToString::to_string);
    let grants: Vec<_> = named.chain(reach.iter().map(ToString::to_string)).collect();
    // A component cannot declare on which targets it uses its controls.
    let sets_cgroups = imports.iter().any(|import| import.knobs().next().is_some());
    let further: Vec<_> = Reach::ALL
        .into_iter()
        .filter(|further| {
            let may_set = sets_cgroups && inspection.form == Form::Component;
            (may_set || needed.contains(further)) && !reach.contains(further)
        })
        .collect();
    let always: Vec<_> =
        inspection.imports.iter().filter(|import| import.always_granted()).map(ToString::to_string).collect();
    let error = described.as_ref().err().map(|error| chain(error));
    let description = described.ok();
    let protocol = description.as_ref().and_then(|description| description.protocol.as_ref());
    if output == Output::Json {
        print::json(&json!({
            "file": place,
            "artifact": artefact.map(artifact_json),
            "digest": inspection.digest.to_string(),
            "size": inspection.size,
            "form": inspection.form.as_str(),
            "contract": inspection.contract_version,
            "grants": grants,
            "furtherGrants": further.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "alwaysGranted": always,
            "unknownImports": inspection.unknown_imports,
            "name": description.as_ref().map(|d| &d.name),
            "version": description.as_ref().map(|d| &d.version),
            "summary": description.as_ref().map(|d| &d.summary),
            "triggers": description.as_ref().map(|d| d.triggers.iter().map(ToString::to_string).collect::<Vec<_>>()),
            "intervalMillis": description.as_ref().map(|d| d.interval_millis),
            "annotations": protocol.map(|p| &p.annotation_keys),
            "configMapKey": protocol.and_then(|p| p.config_map_key.as_ref()),
            "classField": protocol.and_then(|p| p.class_field.as_ref()),
            "namespaceListKey": protocol.and_then(|p| p.namespace_list_key.as_ref()),
            "schema": protocol.map(|p| &p.schema),
            "configSchema": description.as_ref().and_then(|d| d.config_schema.as_ref()),
            "error": error,
        }))?;
    } else {
        let mut rows = vec![vec![if artefact.is_some() { "artifact" } else { "file" }.to_owned(), place.to_owned()]];
        rows.extend(artefact.into_iter().flat_map(artifact_rows));
        if let Some(description) = &description {
            rows.push(vec!["name".to_owned(), format!("{} {}", description.name, description.version)]);
            rows.push(vec!["summary".to_owned(), description.summary.clone()]);
        }
        rows.push(vec!["module digest".to_owned(), inspection.digest.to_string()]);
        rows.push(vec!["size".to_owned(), format!("{} bytes", inspection.size)]);
        rows.push(match (inspection.form, &inspection.contract_version) {
            (Form::Rego, _) => vec!["written in".to_owned(), "Rego".to_owned()],
            (Form::Component, version) => {
                vec!["contract".to_owned(), version.clone().unwrap_or_else(|| "none".to_owned())]
            }
        });
        rows.push(vec![
            "grants it needs".to_owned(),
            if grants.is_empty() { "none".to_owned() } else { grants.join(", ") },
        ]);
        if !always.is_empty() {
            rows.push(vec!["also uses".to_owned(), always.join(", ")]);
        }
        if !further.is_empty() {
            let shown = |reach: &Reach| match reach {
                Reach::AllPods if depends_on_targets => "all-pods if it acts on pods",
                Reach::Tiers if depends_on_targets => "tiers if it sets knobs of tiers",
                reach => reach.as_str(),
            };
            let further: Vec<_> = further.iter().map(shown).collect();
            let title = if depends_on_targets { "it may need" } else { "to go further" };
            rows.push(vec![title.to_owned(), further.join(", ")]);
        }
        if !inspection.unknown_imports.is_empty() {
            rows.push(vec!["imports that no host has".to_owned(), inspection.unknown_imports.join(", ")]);
        }
        if let Some(description) = &description {
            let interval = match description.interval_millis {
                0 => "when pods or configuration change".to_owned(),
                millis => format!("each {millis} ms, and when pods or configuration change"),
            };
            rows.push(vec!["evaluated".to_owned(), interval]);
            if !description.triggers.is_empty() {
                let triggers: Vec<_> = description.triggers.iter().map(ToString::to_string).collect();
                rows.push(vec!["and at once on".to_owned(), triggers.join("; ")]);
            }
        }
        if let Some(protocol) = protocol {
            rows.push(vec!["annotations".to_owned(), protocol.annotation_keys.join(", ")]);
            if let Some(key) = &protocol.config_map_key {
                let field = protocol.class_field.as_ref().map(|field| format!(", field {field} of each class"));
                rows.push(vec!["ConfigMap key".to_owned(), format!("{key}{}", field.unwrap_or_default())]);
            }
            if let Some(key) = &protocol.namespace_list_key {
                rows.push(vec!["namespace lists".to_owned(), key.clone()]);
            }
        }
        let wide = rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
        // Much of the text comes from a third party.
        let text: String =
            rows.iter().map(|row| format!("{:wide$}  {}\n", row[0], foreign::shown(&row[1], MAX_SHOWN))).collect();
        print::text(&text)?;
        let of_policy = description.as_ref().and_then(|description| description.config_schema.as_ref());
        let tables = [
            ("the policy's own configuration (config of its entry)", of_policy.map(schema::rows)),
            ("each pod's and class's configuration", protocol.map(schema::rows_of)),
        ];
        for (title, rows) in tables {
            let fields = schema::table(rows.unwrap_or_default());
            if !fields.is_empty() {
                print::text(&format!("\n{title}:\n{fields}"))?;
            }
        }
        if let Some(error) = &error {
            eprintln!("error: the module cannot be run: {}", foreign::shown(error, MAX_SHOWN));
        }
    }
    Ok(if error.is_none() { Answer::Good } else { Answer::Bad })
}

fn artifact_json(artefact: &Artefact) -> serde_json::Value {
    let Artefact { info, verification } = artefact;
    json!({
        "digest": info.digest.to_string(),
        "size": info.module.1,
        "annotations": info.annotations,
        "config": info.config,
        "signatures": info.signatures,
        "verification": verification,
        "movedTo": info.moved.map(|digest| digest.to_string()),
    })
}

fn artifact_rows(artefact: &Artefact) -> Vec<Vec<String>> {
    let Artefact { info, verification } = artefact;
    let mut rows = vec![vec!["digest".to_owned(), info.digest.to_string()]];
    if let Some(moved) = info.moved {
        rows.push(vec!["its tag now".to_owned(), moved.to_string()]);
    }
    let trust = match (&verification.trusted, &verification.refused) {
        (Some(trusted), _) => trusted.to_string(),
        (None, refused) => format!("refused: {}", refused.as_deref().unwrap_or("nothing vouches for it")),
    };
    rows.push(vec!["signatures".to_owned(), format!("{} ({trust})", info.signatures)]);
    for key in ["licenses", "source", "revision", "authors", "url", "created"] {
        if let Some(value) = info.annotations.get(&format!("org.opencontainers.image.{key}")) {
            rows.push(vec![key.to_owned(), value.clone()]);
        }
    }
    rows
}
