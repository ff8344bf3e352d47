//! Runs `opa` in the version that `make setup` installs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::GzEncoder;

const VERSION: &str = "1.22.0";

/// The program: from `QOSM_OPA`, else the one that `make setup` put into the cache, else the one on the path.
pub(crate) fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("QOSM_OPA") {
        return named.into();
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    let kept = Path::new(&home).join(format!(".cache/qosm/opa-{VERSION}/bin/opa"));
    if kept.is_file() { kept } else { "opa".into() }
}

/// Runs `opa` and returns its output.
pub(crate) fn run(arguments: &[&str], folder: &Path) -> String {
    let program = program();
    let ran = Command::new(&program).args(arguments).current_dir(folder).output().unwrap_or_else(|error| {
        panic!("{}: {error}; run `cargo xtask setup --for rego`, or name opa {VERSION} in QOSM_OPA", program.display())
    });
    let text = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "opa {}: {}{text}", arguments.join(" "), String::from_utf8_lossy(&ran.stdout));
    String::from_utf8(ran.stdout).unwrap()
}

/// Builds a bundle from these files.
pub(crate) fn build(files: &[(&str, &str)]) -> Vec<u8> {
    build_with(&[], files)
}

/// Like [`build`], with further arguments.
pub(crate) fn build_with(arguments: &[&str], files: &[(&str, &str)]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let names = files.iter().map(|(name, _)| *name);
    let arguments: Vec<_> = ["build", "-t", "wasm", "-o", "bundle.tar.gz"]
        .into_iter()
        .chain(arguments.iter().copied())
        .chain(names)
        .collect();
    run(&arguments, folder.path());
    std::fs::read(folder.path().join("bundle.tar.gz")).unwrap()
}

/// Builds a policy named `tried` with these grants, whose rules begin with `settings`.
pub(crate) fn policy(grants: &str, rules: &str) -> Vec<u8> {
    build(&[("policy.rego", &text(grants, rules))])
}

/// The text of a policy as in [`policy`].
pub(crate) fn text(grants: &str, rules: &str) -> String {
    with_metadata(&format!("grants: [{grants}]"), rules)
}

/// Like [`text`], with other fields than grants.
pub(crate) fn with_metadata(fields: &str, rules: &str) -> String {
    let fields: String = fields.lines().map(|line| format!("#     {line}\n")).collect();
    format!(
        "package qosm\n\nimport rego.v1\n\n# METADATA\n# title: Is tried out.\n# entrypoint: true\n# custom:\n#   qosm:\n\
         #     name: tried\n#     version: 0.1.0\n{fields}{rules}\n"
    )
}

/// An archive of exactly these members.
pub(crate) fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::best()));
    for (name, bytes) in members {
        let mut header = tar::Header::new_gnu();
        // The name is written directly, since the builder refuses some names that a third party might send.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    let mut encoder = builder.into_inner().unwrap();
    encoder.flush().unwrap();
    encoder.finish().unwrap()
}

/// A manifest as `opa` writes it, with the METADATA of a policy named `tried`.
pub(crate) fn manifest() -> String {
    manifest_with(&serde_json::json!({"name": "tried", "version": "0.1.0"}))
}

/// Like [`manifest`], with another `custom.qosm`.
pub(crate) fn manifest_with(qosm: &serde_json::Value) -> String {
    let annotations = serde_json::json!([{"scope": "document", "entrypoint": true, "custom": {"qosm": qosm}}]);
    let module =
        serde_json::json!({"entrypoint": "qosm/settings", "module": "/policy.wasm", "annotations": annotations});
    serde_json::json!({"revision": "", "roots": [""], "wasm": [module], "rego_version": 1}).to_string()
}
