//! `qosm policy doc`: prints the reference of a module as Markdown.

use std::fmt::Write as _;

use qosm_engine::{Engine, Interface, Module, Reach};
use qosm_model::protocol::{Description, Protocol};
use qosm_terminal::{Answer, print, schema};
use serde_json::{Map, Value};

use crate::args::DocArgs;
use crate::bench::sample_config;
use crate::subject::Subject;

pub(crate) fn run(args: &DocArgs) -> anyhow::Result<Answer> {
    let subject = Subject::open(&args.subject)?;
    let engine = Engine::new()?;
    let (module, description) = subject.load(&engine)?;
    let mut text = String::new();
    // Writing to a `String` does not fail.
    let _ = reference(&mut text, &module, &description);
    print::text(&text)?;
    Ok(Answer::Good)
}

fn reference(out: &mut String, module: &Module, description: &Description) -> std::fmt::Result {
    let Description { name, version, summary, protocol, config_schema, interval_millis, triggers } = description;
    writeln!(out, "# {name} {version}\n\n{summary}\n")?;
    let mut occasions = vec!["when pods or its configuration change".to_owned()];
    if *interval_millis > 0 {
        occasions.insert(0, format!("each {interval_millis} ms"));
    }
    occasions.extend(triggers.iter().map(|trigger| format!("at once on {trigger}")));
    writeln!(out, "It is evaluated {}.", occasions.join(", "))?;
    grants(out, module, description)?;
    if let Some(protocol) = protocol {
        asking(out, protocol)?;
    }
    writeln!(out, "\n## Its own configuration\n")?;
    match config_schema.as_ref().map(schema::rows).filter(|rows| !rows.is_empty()) {
        Some(rows) => {
            writeln!(out, "`config` of its PolicyModule, or of its entry in the agent's file.\n")?;
            fields(out, rows)?;
        }
        None => writeln!(out, "It takes none.")?,
    }
    running(out, module, description)
}

/// The section about grants.
fn grants(out: &mut String, module: &Module, description: &Description) -> std::fmt::Result {
    let (free, granted): (Vec<Interface>, Vec<Interface>) =
        module.imports().iter().copied().partition(|import| import.always_granted());
    writeln!(out, "\n## What it may touch\n")?;
    let reach = module.needed_reach(description);
    if granted.is_empty() && reach.is_empty() {
        writeln!(out, "Nothing: it needs no grant.")?;
    } else {
        let row = |interface: &Interface| {
            let knobs: Vec<_> = interface.knobs().map(|knob| format!("`{knob}`")).collect();
            vec![format!("`{interface}`"), interface.meaning().to_owned(), knobs.join(", ")]
        };
        let further =
            |reach: &Reach| vec![format!("`{reach}`"), format!("goes further: {}", reach.meaning()), String::new()];
        let rows = granted.iter().map(row).chain(reach.iter().map(further)).collect();
        table(out, &["grant", "with it the policy", "knobs"], rows)?;
    }
    if !free.is_empty() {
        let free: Vec<_> = free.iter().map(|interface| format!("`{interface}` ({})", interface.meaning())).collect();
        writeln!(out, "\nBeside that it uses what needs no grant: {}.", free.join(", "))?;
    }
    Ok(())
}

/// The section about the configuration by pods and operators.
fn asking(out: &mut String, protocol: &Protocol) -> std::fmt::Result {
    writeln!(out, "\n## How to ask for it\n")?;
    for key in &protocol.annotation_keys {
        writeln!(out, "- a pod's annotation `{key}`: a JSON object with the fields below")?;
    }
    match (&protocol.config_map_key, &protocol.class_field) {
        (Some(key), Some(field)) => {
            writeln!(out, "- the cluster's ConfigMap, key `{key}`: these fields as `{field}` of each QoS class")?;
        }
        (Some(key), None) => {
            writeln!(out, "- the cluster's ConfigMap, key `{key}`: these fields in `clusterStrategy`")?
        }
        (None, _) => {}
    }
    if let Some(key) = &protocol.namespace_list_key {
        writeln!(out, "- lists of namespaces: key `{key}`")?;
    }
    let rows = schema::rows_of(protocol);
    if !rows.is_empty() {
        writeln!(out)?;
        fields(out, rows)?;
    }
    if !protocol.node_only_fields.is_empty() {
        let fields: Vec<_> = protocol.node_only_fields.iter().map(|field| format!("`{field}`")).collect();
        writeln!(out, "\nOnly operators set {}.", fields.join(", "))?;
    }
    if !protocol.defaults.is_empty() {
        writeln!(out, "\nUnless it is said otherwise: `{}`.", object(&protocol.defaults))?;
    }
    if !protocol.presets.is_empty() {
        writeln!(out)?;
        let row = |preset: &qosm_model::protocol::Preset| {
            let beside = if preset.alone { "ignored" } else { "count" };
            vec![format!("`{}`", preset.policy), format!("`{}`", object(&preset.values)), beside.to_owned()]
        };
        table(out, &["`policy`", "stands for", "fields beside it"], protocol.presets.iter().map(row).collect())?;
    }
    Ok(())
}

/// The section with the agent's configuration of the policy.
fn running(out: &mut String, module: &Module, description: &Description) -> std::fmt::Result {
    let imports = module.imports().iter().filter(|import| !import.always_granted()).map(ToString::to_string);
    let grants: Vec<_> = imports.chain(module.needed_reach(description).iter().map(ToString::to_string)).collect();
    let Description { name, version, config_schema, .. } = description;
    writeln!(
        out,
        "\n## To run it\n\n```yaml\napiVersion: qosm.io/v1alpha1\nkind: PolicyModule\nmetadata: {{name: {name}}}\nspec:"
    )?;
    writeln!(out, "  module: oci://REGISTRY/{name}:{version}\n  grants: [{}]", grants.join(", "))?;
    if let Some(schema) = config_schema.as_ref().filter(|schema| !schema::rows(schema).is_empty()) {
        writeln!(out, "  config: {}", object(&sample_config::required(schema)))?;
    }
    writeln!(out, "```")
}

/// A table of the fields of a configuration.
fn fields(out: &mut String, mut rows: Vec<Vec<String>>) -> std::fmt::Result {
    for row in &mut rows {
        for cell in row.iter_mut().take(1) {
            *cell = format!("`{cell}`");
        }
    }
    table(out, &schema::HEAD, rows)
}

fn object(fields: &Map<String, Value>) -> String {
    Value::Object(fields.clone()).to_string()
}

fn table(out: &mut String, head: &[&str], rows: Vec<Vec<String>>) -> std::fmt::Result {
    writeln!(out, "| {} |", head.join(" | "))?;
    writeln!(out, "|{}", " --- |".repeat(head.len()))?;
    for row in rows {
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}
