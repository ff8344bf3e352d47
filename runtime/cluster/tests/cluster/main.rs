//! Reading manifests, and watching a folder of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bindings;
mod documents;
mod folder;
mod pods;
mod quantities;
mod resources;

use qosm_cluster::{Objects, parse_objects};
use qosm_model::pod::Pod;
use qosm_model::problem::Problem;

/// Reads one text with the origin `web.yaml`.
fn read(text: &str) -> Objects {
    parse_objects(text, "web.yaml")
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn messages(objects: &Objects) -> String {
    texts(&objects.problems).join("\n")
}

/// The one pod of a text without problems.
fn pod(text: &str) -> Pod {
    let objects = read(text);
    assert_eq!(messages(&objects), "", "{text}");
    assert_eq!(objects.pods.len(), 1, "{text}");
    objects.pods.into_iter().next().unwrap()
}

/// The manifest of a pod with this `spec`, and with `rest` at the top level.
fn with_spec(spec: &str, rest: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: shop, uid: uid1}}\nspec: {spec}\n{rest}\n")
}
