//! Reads YAML and JSON with the parsers that they are written for.

use std::path::Path;

use qosm_agent::config::AgentConfig;
use qosm_agent::facts::Facts;
use qosm_agent::replay::TickLine;
use qosm_registry::RegistrySettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::annotation::Document;
use crate::repository::{Programs, Repository};

/// Kinds of objects that other programs read; only their `kind` and name are checked.
const OTHERS: [&str; 8] =
    ["Namespace", "ResourceQuota", "PrometheusRule", "PodMonitor", "Secret", "Deployment", "ServiceAccount", "Service"];

/// Reads a document.
///
/// # Errors
///
/// The parser's error.
pub(crate) fn check(repository: &Repository, programs: &Programs, kind: &Document, text: &str) -> Result<(), String> {
    match kind {
        Document::Agent => agent(&read(text)?),
        Document::Registries => read::<RegistrySettings>(text)?.check().map_err(|error| error.to_string()),
        Document::Manifest => manifest(repository, programs, text),
        Document::PodMetadata => {
            let mut pod = read::<Map<String, Value>>(text)?;
            let metadata = pod.get_mut("metadata").and_then(Value::as_object_mut).ok_or("it has no `metadata`")?;
            metadata.entry("name").or_insert_with(|| json!("web"));
            pods(programs, Value::Object(pod))
        }
        Document::Annotation(key) => {
            read::<Value>(text)?;
            pods(programs, json!({"metadata": {"name": "web", "annotations": {key: text}}}))
        }
        Document::Key(key) => {
            read::<Value>(text)?;
            let metadata = json!({"namespace": "koordinator-system", "name": "slo-controller-config"});
            planned(programs, &json!({"kind": "ConfigMap", "metadata": metadata, "data": {key: text}}).to_string(), &[])
        }
        Document::Config(policy) => {
            let config = serde_json::to_string(&read::<Value>(text)?).map_err(|error| error.to_string())?;
            let (name, config) = (policy.as_str(), format!("{policy}={config}"));
            planned(programs, "", &["--policy", name, "--policy-config", &config])
        }
        Document::Values => values(repository, read(text)?),
        Document::Facts => read::<Facts>(text).map(drop),
        Document::Tick => read::<TickLine>(text).map(drop),
        Document::Any => read::<Value>(text).map(drop),
    }
}

/// Checks the agent's configuration file.
fn agent(config: &AgentConfig) -> Result<(), String> {
    for entry in &config.policies {
        entry.granted().map_err(|error| error.to_string())?;
    }
    config.registries.check().map_err(|error| error.to_string())
}

/// Checks Kubernetes objects: those of qosm by the agent's parsers and their CRDs, pods and ConfigMaps with `qosm plan`.
fn manifest(repository: &Repository, programs: &Programs, text: &str) -> Result<(), String> {
    let (mut ours, mut is_empty) = (String::new(), true);
    for document in text.split("\n---\n") {
        let object = read::<Value>(document)?;
        let kind = object.get("kind").and_then(Value::as_str).ok_or("an object without `kind`")?;
        is_empty = false;
        match kind {
            "PolicyModule" => {
                let problems = qosm_cluster::parse_objects(document, "this block").problems;
                if let Some(problem) = problems.first() {
                    return Err(problem.to_string());
                }
                let crd = read::<Value>(
                    &repository.text("deploy/helm/qosm/crds/policymodules.yaml").map_err(|error| error.to_string())?,
                )?;
                let schema = crd.pointer("/spec/versions/0/schema/openAPIV3Schema").ok_or("the CRD has no schema")?;
                valid(schema, &object)?;
            }
            "Pod" | "ConfigMap" | "Node" => ours.push_str(&format!("---\n{document}\n")),
            kind if OTHERS.contains(&kind) => {
                object.pointer("/metadata/name").ok_or_else(|| format!("a {kind} without `metadata.name`"))?;
            }
            kind => {
                return Err(format!("kind {kind} is not one that this test knows; add it to `OTHERS` if it is right"));
            }
        }
    }
    if is_empty {
        return Err("there is no object in it".to_owned());
    }
    if ours.is_empty() { Ok(()) } else { planned(programs, &ours, &[]) }
}

fn pods(programs: &Programs, mut pod: Value) -> Result<(), String> {
    let fields = pod.as_object_mut().ok_or("it is no object")?;
    fields.insert("kind".into(), json!("Pod"));
    let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}});
    fields.entry("spec").or_insert_with(|| json!({"containers": [{"name": "app", "resources": resources}]}));
    planned(programs, &pod.to_string(), &[])
}

/// Runs `qosm plan` on the manifests and a synthetic node. Its complaints are the error.
fn planned(programs: &Programs, manifests: &str, arguments: &[&str]) -> Result<(), String> {
    let run = || -> std::io::Result<std::process::Output> {
        let folder = tempfile::tempdir()?;
        let (facts, objects) = (folder.path().join("facts.json"), folder.path().join("objects.yaml"));
        std::fs::write(&facts, r#"{"host": {"cpus": 8, "memory": "32Gi", "numaNodes": 2}}"#)?;
        std::fs::write(&objects, manifests)?;
        let mut plan = std::process::Command::new(&programs.qosm);
        plan.arg("plan").arg("--facts").arg(&facts).arg("--pods").arg(&objects).args(arguments);
        plan.env("QOSM_MODULE_DIR", &programs.modules).env("XDG_CACHE_HOME", cache()).env("NO_COLOR", "1");
        plan.output()
    };
    let output = run().map_err(|error| format!("`qosm plan` cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The folder in which compiled modules are cached between tests.
pub(crate) fn cache() -> std::path::PathBuf {
    let here = std::env::current_exe().ok();
    here.as_deref().and_then(Path::parent).map_or_else(std::env::temp_dir, Path::to_path_buf).join("book-cache")
}

/// Checks the chart's values with these overrides.
///
/// # Errors
///
/// The first value that the schema refuses.
pub(crate) fn values(repository: &Repository, overrides: Value) -> Result<(), String> {
    let text = |path| repository.text(path).map_err(|error| error.to_string());
    let mut values: Value = read(&text("deploy/helm/qosm/values.yaml")?)?;
    merge(&mut values, overrides);
    valid(&read(&text("deploy/helm/qosm/values.schema.json")?)?, &values)
}

/// Merges one document over another: objects key by key, other values as a whole.
pub(crate) fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

fn valid(schema: &Value, document: &Value) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| format!("the schema itself: {error}"))?;
    match validator.iter_errors(document).next() {
        Some(error) => Err(format!("{}: {error}", error.instance_path())),
        None => Ok(()),
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}
