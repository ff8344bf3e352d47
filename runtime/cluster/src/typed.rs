//! Deserializes JSON values into Kubernetes types, with the path of a misfit.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A value with the wrong type.
pub(crate) struct Misfit {
    /// Path of the field; empty for the whole object.
    pub(crate) path: String,
    /// Serde's message.
    pub(crate) message: String,
}

/// Reads an object of API version `v1`, and the paths of the fields that the type does not have.
///
/// # Errors
///
/// The first field that has the wrong type.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<(T, Vec<String>), Misfit> {
    read_as(value, "v1")
}

/// Reads an object of an API version, and the paths of unknown fields. Unknown fields count only in hand-written objects, and not
/// in their status: an API server may be newer than this program.
///
/// # Errors
///
/// The first field that has the wrong type.
pub(crate) fn read_as<T: DeserializeOwned>(mut value: Value, api: &str) -> Result<(T, Vec<String>), Misfit> {
    if let Some(version) = value.get("apiVersion").filter(|version| !version.is_null() && *version != api) {
        return Err(Misfit { path: "apiVersion".into(), message: format!("{version} is not \"{api}\"") });
    }
    // Only Kubernetes' own kinds have quantities; elsewhere `limits` may hold anything.
    if api == "v1" {
        quote_quantities(&mut value);
    }
    let is_servers = is_from_server(&value);
    let mut track = serde_path_to_error::Track::new();
    let mut unknown = Vec::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let read = serde_ignored::deserialize(deserializer, |path| unknown.push(dotted(&path)));
    match read {
        Ok(object) => {
            unknown.retain(|path: &String| !is_servers && !path.starts_with("status."));
            Ok((object, unknown))
        }
        Err(error) => {
            let path = track.path().to_string();
            Err(Misfit { path: if path == "." { String::new() } else { path }, message: error.to_string() })
        }
    }
}

/// Whether an object comes from an API server: only stored objects have a resource version.
fn is_from_server(value: &Value) -> bool {
    let text = |field: &str| value["metadata"][field].as_str().is_some_and(|text| !text.is_empty());
    text("uid") && text("resourceVersion")
}

/// `spec.containers[0].imagee`.
fn dotted(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", dotted(parent)),
        Path::Map { parent, key } => match dotted(parent) {
            above if above.is_empty() => key.clone(),
            above => format!("{above}.{key}"),
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => dotted(parent),
    }
}

/// Turns `cpu: 1` into `cpu: "1"`, as Kubernetes accepts both. Other values are left to the parser of quantities, so that one bad
/// amount does not make the whole object unreadable.
fn quote_quantities(value: &mut Value) {
    const LISTS: [&str; 6] = ["requests", "limits", "overhead", "allocatable", "capacity", "allocatedResources"];
    const SINGLE: [&str; 2] = ["sizeLimit", "divisor"];
    match value {
        Value::Array(items) => items.iter_mut().for_each(quote_quantities),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(amounts) if LISTS.contains(&name.as_str()) => {
                        amounts.retain(|_, amount| !amount.is_null());
                        amounts.values_mut().for_each(quote);
                    }
                    value if SINGLE.contains(&name.as_str()) && !value.is_null() => quote(value),
                    // Labels, annotations and data hold strings, whatever their keys are.
                    _ if matches!(name.as_str(), "labels" | "annotations" | "data") => {}
                    value => quote_quantities(value),
                }
            }
        }
        _ => {}
    }
}

fn quote(amount: &mut Value) {
    if !amount.is_string() {
        *amount = Value::String(amount.to_string());
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_gave_out_has_no_misspelt_fields() {
        let stored = json!({"name": "web", "uid": "u", "resourceVersion": "12"});
        for (metadata, expected) in [
            (json!({"name": "web"}), vec!["spec.hostnam"]),
            // With a UID alone it may be a manifest for a node without a kubelet.
            (json!({"name": "web", "uid": "u"}), vec!["spec.hostnam"]),
            (json!({"name": "web", "uid": "u", "resourceVersion": ""}), vec!["spec.hostnam"]),
            (stored, vec![]),
        ] {
            let pod = json!({
                "metadata": metadata, "spec": {"containers": [], "hostnam": "x"}, "status": {"phase": "Running", "newest": {"a": 1}},
            });
            let Ok((_, unknown)) = read::<Pod>(pod) else { panic!("it is a pod") };
            assert_eq!(unknown, expected, "{metadata}");
        }
    }
}
