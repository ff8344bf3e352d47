//! Policies in Rego: compiled by OPA to a bundle that contains Wasm.

use std::io::Read;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cargo::{self, output};
use crate::error::BuildError;

/// Name of the bundle's manifest.
pub const MANIFEST: &str = ".manifest";

/// The entry point that the host evaluates.
const ENTRYPOINT: &str = "qosm/settings";

/// Maximum size of a manifest in bytes; no policy comes close to it.
const MANIFEST_LIMIT: u64 = 1 << 20;

/// Files in a project's folder that are left out of its bundle: tests, recordings and build output.
const LEFT_OUT: [&str; 4] = ["*_test.rego", "tests", "recordings", "target"];

/// Schema of a policy's input, for OPA's type checker.
const INPUT_SCHEMA: &str = include_str!("../../../sdk/rego/input.schema.json");

/// A policy's project for OPA, with the name and version in its METADATA.
#[derive(Clone, Debug)]
pub struct Opa {
    name: String,
    version: Option<String>,
}

/// The part of a bundle's manifest that describes a policy.
#[derive(Clone, Debug, Deserialize)]
pub struct Manifest {
    /// Entry points and their annotations.
    #[serde(default)]
    pub wasm: Vec<WasmEntry>,
}

/// An entry point of a bundle.
#[derive(Clone, Debug, Deserialize)]
pub struct WasmEntry {
    /// Path of the entry point, e.g. `qosm/settings`.
    pub entrypoint: String,
    /// METADATA of the rule.
    #[serde(default)]
    pub annotations: Vec<Map<String, Value>>,
}

impl Manifest {
    /// `custom.qosm` of the METADATA on the policy's entry point.
    pub fn qosm(&self) -> Option<&Map<String, Value>> {
        let entry = self.wasm.iter().find(|entry| entry.entrypoint == ENTRYPOINT)?;
        entry.annotations.iter().find_map(|annotation| annotation.get("custom")?.get("qosm")?.as_object())
    }
}

/// Reads the manifest of a bundle.
///
/// # Errors
///
/// [`BuildError::Bundle`] if the file is no bundle or has no manifest.
pub fn manifest(bundle: &Path) -> Result<Manifest, BuildError> {
    let wrong = |problem: String| BuildError::Bundle { bundle: bundle.to_path_buf(), problem };
    let file = std::fs::File::open(bundle);
    let file = file.map_err(|source| BuildError::File { path: bundle.to_path_buf(), action: "read", source })?;
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    for entry in archive.entries().map_err(|error| wrong(error.to_string()))? {
        let entry = entry.map_err(|error| wrong(error.to_string()))?;
        let is_manifest = entry.path().is_ok_and(|path| path.strip_prefix("/").unwrap_or(&path) == Path::new(MANIFEST));
        if is_manifest {
            let mut text = String::new();
            entry.take(MANIFEST_LIMIT).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
            return serde_json::from_str(&text).map_err(|error| wrong(format!("{MANIFEST}: {error}")));
        }
    }
    Err(wrong(format!("it has no {MANIFEST}; build it with `opa build -t wasm`")))
}

impl Opa {
    pub(crate) fn open(folder: &Path) -> Result<Self, BuildError> {
        let said = metadata(folder)?;
        let text = |key: &str| said.get(key).and_then(Value::as_str).map(str::to_owned);
        let file_name =
            folder.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        // The name is a part of the built file's path. Loading the bundle refuses other names, by field.
        let name = text("name").filter(|name| is_file_name(name)).or(file_name);
        Ok(Self { name: name.unwrap_or_else(|| "policy".to_owned()), version: text("version") })
    }

    /// The name in METADATA if it is a policy's name, else the folder's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version in METADATA; `None` if there is none.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Runs `opa test` in the policy's folder, with its output on standard error; only tests whose name contains `filter`.
    ///
    /// # Errors
    ///
    /// [`BuildError::Failed`] if a test fails or does not compile.
    pub fn test(&self, folder: &Path, filter: Option<&str>) -> Result<(), BuildError> {
        let mut opa = Command::new("opa");
        // `--bundle` reads the folder as a bundle, so that recordings and cases, which are YAML, are not read as data. The time limit of
        // opa, 5 seconds a test, is too short for thorough ones on a busy machine.
        opa.current_dir(folder).args(["test", "--bundle", "--timeout", "1m", "--ignore", "target", "."]);
        if let Some(filter) = filter {
            opa.arg("--run").arg(escaped(filter));
        }
        cargo::run(&mut opa)
    }

    /// Errors of OPA's strict checker and of its type checker, which knows the fields of `input`: `FILE:LINE: MESSAGE`.
    pub(crate) fn check(&self, folder: &Path) -> Result<Vec<String>, BuildError> {
        let schema = folder.join("target/input.schema.json");
        let written = std::fs::write(&schema, INPUT_SCHEMA);
        written.map_err(|source| BuildError::File { path: schema.clone(), action: "written", source })?;
        let mut opa = Command::new("opa");
        opa.current_dir(folder).args(["check", "--strict", "--bundle", "--max-errors", "-1", "--format", "json"]);
        opa.args(["--schema", "target/input.schema.json", "--ignore", "target", "."]);
        let checked = output(&mut opa);
        // Only the checker needs the file.
        let _ = std::fs::remove_file(&schema);
        match checked {
            Ok(_) => Ok(Vec::new()),
            Err(BuildError::Refused { said, .. }) => {
                faults(&said).map_err(|source| BuildError::Answer { line: cargo::line(&opa), source })
            }
            Err(other) => Err(other),
        }
    }

    /// Compiles the policy to a bundle.
    ///
    /// # Errors
    ///
    /// [`BuildError::Rego`] with OPA's messages, by file and line.
    pub(crate) fn build(&self, folder: &Path, bundle: &Path) -> Result<(), BuildError> {
        let mut opa = Command::new("opa");
        opa.current_dir(folder).args(["build", "--bundle", "--target", "wasm", "--entrypoint", ENTRYPOINT]);
        opa.args(LEFT_OUT.iter().flat_map(|name| ["--ignore", name]));
        match output(opa.arg("--output").arg(bundle).arg(".")) {
            Ok(_) => {}
            Err(BuildError::Refused { said, status, .. }) => return Err(BuildError::Rego { status, said }),
            Err(other) => return Err(other),
        }
        if manifest(bundle)?.qosm().is_none() {
            return Err(BuildError::Bundle {
                // The name that the bundle would have had.
                bundle: bundle.with_extension("gz"),
                problem: "no rule `settings` has METADATA with both `entrypoint: true` and `custom: {qosm: {name: …, version: …, \
                          grants: […]}}`; those of a package do not travel in a bundle"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// Where the policy's modules call these built-in functions: `FILE:LINE calls NAME`. OPA reports functions that are missing from its
    /// capabilities.
    pub(crate) fn calls(&self, folder: &Path, names: &[&str]) -> Result<Vec<String>, BuildError> {
        let line = "opa capabilities --current".to_owned();
        let known = output(Command::new("opa").args(["capabilities", "--current"]))?;
        let without = without(&known, names).map_err(|source| BuildError::Answer { line, source })?;
        let capabilities = folder.join("target/capabilities.json");
        let written = std::fs::write(&capabilities, without);
        written.map_err(|source| BuildError::File { path: capabilities.clone(), action: "written", source })?;
        let mut opa = Command::new("opa");
        opa.current_dir(folder).args([
            "check",
            "--bundle",
            "--max-errors",
            "-1",
            "--capabilities",
            "target/capabilities.json",
        ]);
        let checked = output(opa.args(LEFT_OUT.iter().flat_map(|name| ["--ignore", name])).arg("."));
        // Only the compiler needs the file.
        let _ = std::fs::remove_file(&capabilities);
        match checked {
            Ok(_) => Ok(Vec::new()),
            Err(BuildError::Refused { said, .. }) => Ok(said.lines().filter_map(call).collect()),
            Err(other) => Err(other),
        }
    }
}

/// OPA's report on a policy, `opa check --format json`.
#[derive(Deserialize)]
struct Checked {
    errors: Vec<Fault>,
}

/// An error in [`Checked`].
#[derive(Deserialize)]
struct Fault {
    message: String,
    location: Option<Location>,
    /// Depends on the error; type errors list the valid fields in `oneOf`.
    details: Option<Value>,
}

/// The place of a [`Fault`].
#[derive(Deserialize)]
struct Location {
    file: String,
    row: u64,
}

/// Converts OPA's report: each error as `FILE:LINE: MESSAGE`.
fn faults(report: &str) -> Result<Vec<String>, serde_json::Error> {
    let told = |Fault { message, location, details }: Fault| {
        let place = location.map(|Location { file, row }| format!("{file}:{row}: ")).unwrap_or_default();
        let fields = details.as_ref().and_then(|details| details.get("oneOf")?.as_array()).into_iter().flatten();
        let fields: Vec<_> = fields.filter_map(Value::as_str).map(|field| format!("`{field}`")).collect();
        let fields = if fields.is_empty() { String::new() } else { format!("; there are {}", fields.join(", ")) };
        format!("{place}{message}{fields}")
    };
    Ok(serde_json::from_str::<Checked>(report)?.errors.into_iter().map(told).collect())
}

/// OPA's capabilities without some built-in functions.
fn without(known: &str, names: &[&str]) -> Result<String, serde_json::Error> {
    let mut known: Map<String, Value> = serde_json::from_str(known)?;
    if let Some(builtins) = known.get_mut("builtins").and_then(Value::as_array_mut) {
        builtins
            .retain(|builtin| builtin.get("name").and_then(Value::as_str).is_none_or(|name| !names.contains(&name)));
    }
    serde_json::to_string(&known)
}

/// Converts OPA's message about an unknown function; `None` for other lines.
fn call(line: &str) -> Option<String> {
    let (place, name) = line.trim().split_once(": rego_type_error: undefined function ")?;
    Some(format!("{place} calls `{name}`"))
}

/// Whether a name from METADATA has only characters of policies' names, and so is no path.
fn is_file_name(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// `custom.qosm`, from wherever the METADATA of a project set it.
fn metadata(folder: &Path) -> Result<Map<String, Value>, BuildError> {
    #[derive(Deserialize)]
    struct Inspected {
        #[serde(default)]
        annotations: Vec<Annotated>,
    }
    #[derive(Deserialize)]
    struct Annotated {
        annotations: Map<String, Value>,
    }
    let mut opa = Command::new("opa");
    opa.current_dir(folder).args(["inspect", "--annotations", "--format", "json", "."]);
    let printed = output(&mut opa)?;
    let inspected: Inspected =
        serde_json::from_str(&printed).map_err(|source| BuildError::Answer { line: cargo::line(&opa), source })?;
    let custom = |annotated: Annotated| {
        annotated.annotations.get("custom").and_then(|custom| custom.get("qosm")?.as_object()).cloned()
    };
    Ok(inspected.annotations.into_iter().find_map(custom).unwrap_or_default())
}

/// Escapes a part of a name for `opa test --run`, which takes a regular expression.
fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_alphanumeric() || c == '_' { vec![c] } else { vec!['\\', c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opa_is_not_told_of_what_is_looked_for() {
        let known = r#"{"builtins": [{"name": "abs"}, {"name": "http.send"}], "features": ["x"]}"#;
        assert_eq!(without(known, &["http.send"]).unwrap(), r#"{"builtins":[{"name":"abs"}],"features":["x"]}"#);
    }

    #[test]
    fn a_call_is_told_by_file_and_line() {
        let said = "policy.rego:7: rego_type_error: undefined function http.send";
        assert_eq!(call(said).as_deref(), Some("policy.rego:7 calls `http.send`"));
        assert_eq!(call("2 errors occurred:"), None);
    }

    #[test]
    fn an_unknown_field_is_told_with_those_that_there_are() {
        let report = r#"{"errors": [
            {"message": "undefined ref: input.configs", "code": "rego_type_error",
             "location": {"file": "policy.rego", "row": 65, "col": 33}, "details": {"pos": 1, "oneOf": ["config", "cpu"]}},
            {"message": "import data.x unused", "code": "rego_compile_error", "location": {"file": "a.rego", "row": 2, "col": 1}}
        ]}"#;
        assert_eq!(
            faults(report).unwrap(),
            [
                "policy.rego:65: undefined ref: input.configs; there are `config`, `cpu`",
                "a.rego:2: import data.x unused"
            ]
        );
        assert!(faults("no such luck").is_err());
    }

    #[test]
    fn a_name_that_is_a_path_is_no_file_name() {
        for (name, is_one) in [
            ("calm-memory", true),
            ("a", true),
            (&"a".repeat(63), true),
            (&"a".repeat(64), false),
            ("", false),
            ("a/b", false),
            ("../../esc", false),
            ("..", false),
            ("/etc", false),
            ("Rogue", false),
        ] {
            assert_eq!(is_file_name(name), is_one, "{name}");
        }
    }

    #[test]
    fn a_filter_is_no_pattern() {
        assert_eq!(escaped("test_a.b"), "test_a\\.b");
    }
}
