//! Modules: inspected, compiled in a child, cached.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::qosm::{QOSM, Run, finish, module, modules, repository, run, run_with_cache};

fn compile(input: &str) -> Run {
    let mut command = Command::new(QOSM);
    command.arg("compile-module");
    finish(command, input)
}

#[test]
fn inspect_shows_what_a_module_may_touch() {
    let inspected = run(&["policy", "inspect", "cpu-burst", "-o", "json"], "").says_nothing_else().json();
    assert_eq!(inspected["grants"], json!(["node", "cpu-stat", "cpu-bandwidth"]), "{inspected}");
    assert_eq!(inspected["unknownImports"], json!([]), "{inspected}");
    assert_eq!((&inspected["name"], &inspected["contract"]), (&json!("cpu-burst"), &json!("0.1.3")), "{inspected}");
    assert_eq!(inspected["annotations"][0], "koordinator.sh/cpuBurst", "{inspected}");
    assert_eq!(inspected["configMapKey"], "cpu-burst-config", "{inspected}");
    let bytes = fs::read(module("cpu-burst")).unwrap();
    assert_eq!(inspected["size"], bytes.len(), "{inspected}");
    assert!(inspected["digest"].as_str().unwrap().starts_with("sha256:"), "{inspected}");

    let inspected = run(&["policy", "inspect", &module("memory-qos"), "-o", "json"], "").says_nothing_else().json();
    let grants: BTreeSet<&str> =
        inspected["grants"].as_array().unwrap().iter().filter_map(|grant| grant.as_str()).collect();
    assert_eq!(grants, ["memory-protection", "node"].into(), "{inspected}");
    let table = run(&["policy", "inspect", "memory-qos"], "").says_nothing_else().stdout;
    for word in ["memory-protection", "resource-qos-config", "koordinator.sh/memoryQOS", "sha256:"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let table = run(&["policy", "inspect", "cpu-burst"], "").says_nothing_else().stdout;
    for (field, default) in [("cfsQuotaBurstPercent", "300"), ("cpuBurstPercent", "1000"), ("policy", "\"none\"")] {
        let row = table.lines().find(|line| line.starts_with(&format!("{field} "))).unwrap_or_default();
        assert!(row.contains(&format!("  {default}  ")), "{field}: {table}");
    }
}

#[test]
fn what_is_no_module_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut truncated = fs::read(module("cpu-burst")).unwrap();
    truncated.truncate(truncated.len() / 2);
    for (name, bytes) in [
        ("garbage", b"not wasm at all".to_vec()),
        ("empty", Vec::new()),
        ("core", b"\0asm\x01\0\0\0".to_vec()),
        ("component", b"\0asm\x0d\0\x01\0".to_vec()),
        ("truncated", truncated),
    ] {
        let file = folder.path().join(format!("{name}.wasm"));
        fs::write(&file, bytes).unwrap();
        let path = file.display().to_string();
        let inspected = run(&["policy", "inspect", &path], "");
        assert_eq!(inspected.code, 1, "{name}: {inspected:#?}");
        assert!(
            inspected.stderr.contains(&path) || inspected.stderr.contains("cannot be run"),
            "{name}: {inspected:#?}"
        );
        let planned = run(&["plan", "--facts", "-", "--policy", &format!("odd={path}")], "{}");
        planned.says(1, &["odd", &path]);
    }
}

#[test]
fn the_compiler_says_what_is_wrong_with_its_input() {
    for input in ["", "not wasm at all", "\0asm\u{1}\0\0\0nothing of a module"] {
        let compiled = compile(input);
        assert_ne!(compiled.code, 0, "{input:?}: {compiled:#?}");
        assert!(compiled.stdout.is_empty() && !compiled.stderr.trim().is_empty(), "{input:?}: {compiled:#?}");
    }
}

/// Children of a process, by their command lines.
fn children(parent: u32) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name is in parentheses and may contain anything; the state and the parent follow it.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        if after.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()) == Some(parent) {
            lines.push(fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "));
        }
    }
    lines
}

#[test]
fn a_module_is_compiled_in_a_child() {
    let cache = tempfile::tempdir().unwrap();
    let mut planning = Command::new(QOSM)
        .args(["plan", "--facts", &repository("examples/plan/node.yaml"), "--policy", "cpu-burst"])
        .env("QOSM_MODULE_DIR", modules())
        .env("XDG_CACHE_HOME", cache.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = BTreeSet::new();
    while planning.try_wait().unwrap().is_none() {
        seen.extend(children(planning.id()));
    }
    assert!(seen.iter().any(|line| line.trim_end().ends_with("compile-module")), "{seen:?}");
}

/// The files of compiled modules.
fn compiled(cache: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cache.join("qosm/modules/compiled")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_compiled_module_that_was_damaged_is_compiled_again() {
    let cache = tempfile::tempdir().unwrap();
    let plan = || run_with_cache(&["plan", "--facts", "-", "--policy", "cpu-burst"], "{}", cache.path());
    let first = plan();
    assert_eq!(first.code, 0, "{first:#?}");
    let files = compiled(cache.path());
    assert_eq!(files.len(), 1, "{files:?}");
    let whole = fs::read(&files[0]).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    for damaged in [whole[..whole.len() / 2].to_vec(), flipped, Vec::new(), b"not compiled".to_vec()] {
        fs::remove_file(&files[0]).unwrap();
        fs::write(&files[0], &damaged).unwrap();
        let again = plan();
        assert_eq!((again.code, &again.stdout), (0, &first.stdout), "{again:#?}");
        assert_eq!(compiled(cache.path()), files);
        assert_eq!(fs::read(&files[0]).unwrap().len(), whole.len(), "it is whole again");
    }
}

#[test]
fn without_a_place_to_keep_them_modules_are_compiled_each_time() {
    let mut command = Command::new(QOSM);
    command.args(["plan", "--facts", "-", "--policy", "cpu-burst"]).env_clear().env("QOSM_MODULE_DIR", modules());
    let planned = finish(command, "{}");
    assert_eq!(planned.code, 0, "{planned:#?}");
    let unusable = run_with_cache(&["plan", "--facts", "-", "--policy", "cpu-burst"], "{}", Path::new("/dev/null"));
    assert_eq!(unusable.code, 0, "{unusable:#?}");
}
