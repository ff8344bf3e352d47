//! The artefacts that `make publish` pushes, which are identical to the agent's modules.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use qosm_model::digest::Digest;
use serde_json::{Value, json};

use crate::artefacts::{Desk, module};
use crate::env::{Keys, cosign, env, run};

/// The binary under test.
pub(crate) const QOSM: &str = env!("CARGO_BIN_EXE_qosm");

/// The program behind `cargo xtask`: the one that runs these tests, or the one that was built beside the binary under test.
pub(crate) fn xtask() -> PathBuf {
    let beside = Path::new(QOSM).with_file_name("xtask");
    let xtask = std::env::var_os("QOSM_XTASK").map_or(beside, PathBuf::from);
    assert!(xtask.is_file(), "{} is not built", xtask.display());
    xtask
}

/// The default modules' names, with their digests.
fn modules() -> BTreeMap<String, Digest> {
    let folder = module("cpu-burst").parent().unwrap().to_path_buf();
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let modules = files.filter(|file| file.extension().is_some_and(|extension| extension == "wasm"));
    modules
        .map(|file| (file.file_stem().unwrap().display().to_string(), Digest::of(&fs::read(&file).unwrap())))
        .collect()
}

fn private(keys: &Keys) -> PathBuf {
    Path::new(&keys.public()).with_file_name("cosign.key")
}

/// Runs `make publish REGISTRY=… ARGS="--key …"`. Returns the pushed references, with tag and digest, by module name.
#[track_caller]
fn publish(desk: &Desk, to: &str, key: &Path) -> BTreeMap<String, String> {
    let bin = desk.path("bin");
    fs::create_dir_all(&bin).unwrap();
    // It signs with the cosign on the PATH.
    symlink(cosign().get_program(), bin.join("cosign")).unwrap();
    // A cargo that does not build: everything is built already, and with another date in the environment, the C code would be
    // compiled again, here and at the next build.
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let idle = bin.join("idle-cargo");
    fs::write(&idle, format!("#!/bin/sh\n[ \"$1\" = build ] || exec '{cargo}' \"$@\"\n")).unwrap();
    fs::set_permissions(&idle, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::join_paths(
        [bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut publish = Command::new(xtask());
    publish.args(["publish", "--qosm", QOSM, to, "--key"]).arg(key).arg("--cosign=--allow-http-registry");
    publish.arg(format!("--cosign=--signing-config={}", env().cosign.signing_config.display()));
    publish
        .env("PATH", path.unwrap())
        .env("CARGO", idle)
        .env("COSIGN_PASSWORD", "")
        .env("SOURCE_DATE_EPOCH", "1700000000");
    // The user's own configuration does not count, and is not changed.
    publish.env("QOSM_STORE", desk.path("artifacts")).env("XDG_CONFIG_HOME", desk.path("config"));
    for variable in ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "QOSM_REGISTRIES"] {
        publish.env_remove(variable);
    }
    let said = run(&mut publish).well();
    let pushed = said.lines().map(str::trim).filter(|line| line.starts_with(to) && line.contains("@sha256:"));
    let name = |reference: &str| reference[to.len() + 1..].split(':').next().unwrap().to_owned();
    pushed.map(|reference| (name(reference), reference.to_owned())).collect()
}

#[test]
fn the_default_modules_are_published_signed_with_where_they_came_from_and_the_same_each_time() {
    let (desk, keys, to) = (Desk::new(), Keys::new("release"), format!("{}/published", env().plain.host));
    let published = publish(&desk, &to, &private(&keys));
    let modules = modules();
    assert_eq!(published.keys().collect::<Vec<_>>(), modules.keys().collect::<Vec<_>>());
    for (name, reference) in &published {
        let (tagged, digest) = reference.split_once('@').unwrap();
        let verified = desk.json(&["verify", tagged, "--key", &keys.public()]);
        assert_eq!(verified["digest"], digest, "{verified}");
        assert_eq!(verified["trusted"]["signed"].as_array().map(Vec::len), Some(1), "{verified}");
        keys.verify(&format!("{to}/{name}@{digest}"));
        let stranger = run(&mut desk.policy(&["verify", tagged, "--key", &Keys::new("stranger").public()]));
        assert_eq!(stranger.code, Some(1), "{stranger:#?}");

        // The source of the artefact.
        let report = desk.json(&["inspect", tagged]);
        let annotations = &report["artifact"]["annotations"];
        let annotation =
            |key: &str| annotations[format!("org.opencontainers.image.{key}")].as_str().unwrap_or_default();
        let source = annotation("source");
        assert!(source.starts_with("https://"), "{annotations}");
        assert_eq!(annotation("documentation"), format!("{source}/blob/main/policies/{name}/README.md"));
        let revision = annotation("revision").trim_end_matches("-dirty");
        assert!(revision.len() == 40 && revision.bytes().all(|byte| byte.is_ascii_hexdigit()), "{annotations}");
        assert_eq!((annotation("licenses"), annotation("created")), ("Apache-2.0", "2023-11-14T22:13:20Z"));
        assert_eq!(json!(annotation("version")), report["version"], "{annotations}");

        // The published module, the one beside the binary, and the agent's `builtin:` module have the same bytes.
        let here = desk.json(&["inspect", name]);
        assert!(here["file"].as_str().unwrap().ends_with(&format!("policies/{name}.wasm")), "{here}");
        assert_eq!(
            (&report["digest"], &here["digest"]),
            (&json!(modules[name].to_string()), &report["digest"]),
            "{name}"
        );
        let of = |report: &Value| (report["name"].clone(), report["version"].clone(), report["grants"].clone());
        assert_eq!(of(&here), of(&report));
    }
    assert_eq!(publish(&Desk::new(), &to, &private(&keys)), published, "the same commit comes to the same digests");
}

#[test]
fn modules_that_are_built_elsewhere_are_the_same_to_the_byte() {
    // The program builds into the target directory that contains it.
    let elsewhere = tempfile::tempdir().unwrap();
    let program = elsewhere.path().join("debug/xtask");
    fs::create_dir(elsewhere.path().join("debug")).unwrap();
    fs::copy(xtask(), &program).unwrap();
    run(Command::new(&program).arg("modules").env("CARGO_BUILD_JOBS", "1")).well();
    let here = module("cpu-burst").parent().unwrap().to_path_buf();
    for name in modules().keys() {
        let file = format!("{name}.wasm");
        let built = fs::read(elsewhere.path().join("policies").join(&file)).unwrap();
        assert!(built == fs::read(here.join(&file)).unwrap(), "{file}: another digest at another path");
    }
}
