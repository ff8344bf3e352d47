//! The pod's annotation: the highest layer.

use serde_json::Value;

use super::compiled::{CompiledProtocol, LayerFields};
use super::document::{Document, MAX_DEPTH};
use super::rules::Violation;
use super::schema::clip;
use crate::pod::Pod;
use crate::problem::Problem;
use crate::spelling;
use qosm_schema::Budget;

/// Maximum size of an annotation in bytes. Kubernetes allows 256 KiB for all annotations of an object.
const MAX_BYTES: usize = 16 << 10;

/// Reads the first of the protocol's annotations that the pod has; `None` if there is none, or if it cannot be used.
pub(super) fn read<'p>(
    protocol: &'p CompiledProtocol,
    pod: &Pod,
    problems: &mut Vec<Problem>,
    budget: &Budget,
) -> Option<(&'p str, LayerFields)> {
    problems.extend(misspelt(&protocol.protocol().annotation_keys, pod));
    // `null` counts as absent, so it does not hide the other keys.
    let mut present = protocol
        .protocol()
        .annotation_keys
        .iter()
        .filter_map(|key| pod.annotations.get(key).map(|text| (key.as_str(), text.as_str())))
        .filter(|(_, text)| text.trim() != "null");
    let (key, text) = present.next()?;
    for (other, second) in present {
        if !same(text, second) {
            let message =
                format!("ignored: annotation {key} is there too, says something else and comes first; remove one");
            problems.push(problem(pod, other, "", message));
        }
    }
    if text.trim().is_empty() {
        problems.push(refusal(pod, key, "it is empty", "write a JSON object (`{}` sets nothing), or remove it"));
        return None;
    }
    if text.len() > MAX_BYTES {
        let what = format!("it has {} bytes, and {MAX_BYTES} are taken", text.len());
        problems.push(refusal(pod, key, &what, "say less"));
        return None;
    }
    let fields = match Document::parse(text) {
        Ok(deep) if !deep.is_shallow() => {
            let what = format!("it is nested deeper than {MAX_DEPTH} levels");
            problems.push(refusal(pod, key, &what, "say it with fewer braces and brackets"));
            return None;
        }
        Ok(Document::Fields(fields)) => fields,
        Ok(other) => {
            let what = format!("`{}` is not a JSON object", clip(&other.into_value().to_string()));
            problems.push(refusal(pod, key, &what, "write an object in braces"));
            return None;
        }
        Err(error) => {
            problems.push(refusal(pod, key, &format!("it is not JSON ({error})"), "mend it or remove it"));
            return None;
        }
    };
    let (node_only, fields): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(name, _)| protocol.is_node_only(name));
    for (name, value) in node_only {
        if !value.is_null() {
            let message = "ignored: only ConfigMaps can set it, not annotations; the other fields count";
            problems.push(problem(pod, key, &name, message.into()));
        }
    }
    match protocol.read(fields, &|name| !protocol.is_node_only(name), budget) {
        Ok((fields_of_layer, notes)) => {
            problems.extend(notes.into_iter().map(|note| problem(pod, key, &note.path, note.message)));
            Some((key, fields_of_layer))
        }
        Err(violations) => {
            problems.extend(refusals(pod, key, violations));
            None
        }
    }
}

/// Maximum number of misspelt keys of a pod that are named: its owner may write thousands.
const NAMED: usize = 4;

/// Problems for annotations that are probably misspelt keys of the protocol.
fn misspelt(known: &[String], pod: &Pod) -> Vec<Problem> {
    let meant = |key: &str| known.iter().find(|known| spelling::is_nearly(key, known));
    let keys = pod.annotations.keys().filter_map(|key| Some((key, meant(key)?)));
    keys.take(NAMED)
        .map(|(key, meant)| {
            problem(pod, key, "", format!("ignored: keys are compared letter by letter; write {meant}"))
        })
        .collect()
}

/// Problems for an annotation that is refused as a whole, one for each wrong field.
pub(super) fn refusals(pod: &Pod, key: &str, violations: Vec<Violation>) -> impl Iterator<Item = Problem> {
    violations.into_iter().map(move |Violation { path, what, expected }| {
        problem(pod, key, &path, format!("{what}; {REFUSED}; write {expected}"))
    })
}

const REFUSED: &str = "the whole annotation is ignored and the next lower layer counts";

fn refusal(pod: &Pod, key: &str, what: &str, way_out: &str) -> Problem {
    problem(pod, key, "", format!("{what}; {REFUSED}; {way_out}"))
}

fn problem(pod: &Pod, key: &str, path: &str, message: String) -> Problem {
    let field = if path.is_empty() { format!("annotation {key}") } else { format!("annotation {key}: {}", clip(path)) };
    Problem { object: format!("pod {}", pod.key()), field: Some(field), message }
}

fn same(one: &str, other: &str) -> bool {
    if one.len().max(other.len()) > MAX_BYTES {
        return one == other;
    }
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || parse(one).is_some_and(|value| Some(value) == parse(other))
}
