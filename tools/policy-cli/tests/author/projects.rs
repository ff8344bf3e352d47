//! An author's path from a new project to a module that is tested, measured and described, in temporary folders, and the errors on the way.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::programs::{QOSM_POLICY, Run, finish, modules, repository, run};

/// The first line of the template's evaluation.
const EVALUATION: &str = "        for pod in self.pods.iter() {\n";

/// The target directory for policies, kept between runs.
fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("author")
}

/// A policy's project in a temporary folder.
pub(crate) struct Policy {
    _around: tempfile::TempDir,
    folder: PathBuf,
}

impl Policy {
    pub(crate) fn new(name: &str, language: &str) -> (Self, Run) {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join(name);
        let made = run(&["new", name, "--lang", language, "--to", &folder.display().to_string()], "");
        if language == "rust" {
            // Use this workspace's locked crates, which are on this machine; newer ones may not be.
            std::fs::copy(repository("Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        }
        (Self { _around: around, folder }, made)
    }

    /// Runs the binary in the policy's folder, as its author does.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        let mut command = Command::new(QOSM_POLICY);
        command.current_dir(&self.folder).args(args);
        command.env("QOSM_MODULE_DIR", modules()).env("CARGO_TARGET_DIR", target()).env("CARGO_NET_OFFLINE", "true");
        command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-cache")).env("NO_COLOR", "1");
        finish(command, "")
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.folder.join(file), text).unwrap();
    }

    /// Replaces a part of an existing file.
    #[track_caller]
    pub(crate) fn change(&self, file: &str, from: &str, to: &str) {
        let text = self.read(file);
        assert!(text.contains(from), "{file} has no `{from}`");
        self.write(file, &text.replace(from, to));
    }

    fn files(&self) -> Vec<String> {
        fn below(folder: &Path, root: &Path, files: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    below(&path, root, files);
                } else {
                    files.push(path.strip_prefix(root).unwrap().display().to_string());
                }
            }
        }
        let mut files = Vec::new();
        below(&self.folder, &self.folder, &mut files);
        files.sort();
        files
    }
}

/// Drops lines that differ between runs or machines.
fn stable(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let is_of_the_build = ["module digest", "size"].iter().any(|row| line.starts_with(row));
        if !is_of_the_build {
            lines.push(line.trim_end());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn a_policy_in_rust_is_made_built_tested_tried_measured_and_described() {
    let (policy, made) = Policy::new("gentle-memory", "rust");
    let files = policy.files();
    for file in ["Cargo.toml", "src/lib.rs", "tests/cases.rs", "sdk/rust/Cargo.toml", "sdk/rust/wit/policy.wit"] {
        assert!(files.iter().any(|known| known == file), "{file} is not among {files:#?}");
    }
    whole_way(&policy, made, "gentle-memory", "rust", "wasm");
}

#[test]
fn a_policy_in_rego_is_made_built_tested_tried_measured_and_described() {
    let (policy, made) = Policy::new("calm-memory", "rego");
    let files = policy.files();
    for file in ["policy.rego", "policy_test.rego", "lib/qosm/pods.rego"] {
        assert!(files.iter().any(|known| known == file), "{file} is not among {files:#?}");
    }
    whole_way(&policy, made, "calm-memory", "rego", "tar.gz");

    let inputs = || policy.files().iter().filter(|file| file.starts_with("inputs/")).count();
    let recorded = policy.run(&["run", "--inputs", "inputs", "--recording", "recordings/node.jsonl"]);
    assert!(recorded.code == 0 && inputs() > 1, "{recorded:#?}");
    let planned = policy.run(&["run", "--inputs", "inputs"]);
    assert_eq!((planned.code, inputs()), (0, 1), "those of the longer run are gone: {planned:#?}");
}

/// All verbs in sequence, in a project as `new` creates it.
fn whole_way(policy: &Policy, made: Run, name: &str, language: &str, extension: &str) {
    let made = made.says_nothing_else();
    for words in [name, &format!("target/{name}.{extension}"), "qosm policy test"] {
        assert!(made.stdout.contains(words), "{words}: {made:#?}");
    }
    // The template's name occurs in the SDK and in this workspace's lock file.
    let others = |file: &&String| file.starts_with("sdk/") || file.starts_with("lib/") || *file == "Cargo.lock";
    for file in policy.files().iter().filter(|file| !others(file)) {
        let text = policy.read(file);
        assert!(!["my-policy", "my_policy", "MyPolicy"].iter().any(|word| text.contains(word)), "{file}: {text}");
    }
    let snapshot = |verb: &str, run: &Run| {
        assert_eq!(run.code, 0, "{run:#?}");
        insta::assert_snapshot!(format!("author_{verb}_{language}"), stable(&run.stdout));
    };

    snapshot("build", &policy.run(&["build"]));
    let file = policy.path(&format!("target/{name}.{extension}"));
    let module = std::fs::read(&file).unwrap();
    assert!(module.len() < 1 << 20, "{} bytes", module.len());

    snapshot("test", &policy.run(&["test"]));
    assert_eq!(std::fs::read(&file).unwrap(), module, "it is built the same again");
    let one = policy.run(&["test", ".", "follows", "-o", "json"]);
    assert_eq!((one.code, one.json()["cases"].as_array().unwrap().len()), (0, 1), "{one:#?}");

    let planned = policy.run(&["run"]);
    snapshot("run", &planned);
    assert!(planned.stderr.contains("is granted what it imports: memory-protection"), "{planned:#?}");
    let played = policy.run(&["run", "--recording", "recordings/node.jsonl", "-o", "json"]);
    assert_eq!(played.code, 0, "{played:#?}");
    assert_eq!(played.lines().len(), policy.read("recordings/node.jsonl").lines().count());

    snapshot("lint", &policy.run(&["lint"]));
    snapshot("doc", &policy.run(&["doc"]));

    let rows = bench(policy, &["bench", "--containers", "10,100", "-o", "json"]);
    let names: Vec<_> =
        rows.iter().map(|row| format!("{} {}", row["policy"].as_str().unwrap(), row["containers"])).collect();
    let policies = [name, "cpu-burst", "memory-locality", "memory-qos"];
    let expected: Vec<_> =
        [10, 100].iter().flat_map(|number| policies.map(|policy| format!("{policy} {number}"))).collect();
    assert_eq!(names, expected);
    for row in &rows {
        assert!(row["fuel"].as_u64().unwrap() > 100 && row["medianMicros"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert!(rows[0]["settings"].as_u64() > Some(0), "{rows:#?}");
    assert!(rows[4]["fuel"].as_u64() > rows[0]["fuel"].as_u64(), "more containers are more work: {rows:#?}");
    // Fuel depends on the module and its input only, so it is the same on each run and each machine.
    let wrong = policy.run(&["bench", "--alone", "--config", r#"{"fatser": true}"#]);
    wrong.says(2, &[&format!("policy {name}: config")]);
    let again = bench(policy, &["bench", "--alone", "--containers", "10", "-o", "json"]);
    assert_eq!(again[0]["fuel"], rows[0]["fuel"]);
}

fn bench(policy: &Policy, args: &[&str]) -> Vec<Value> {
    let benched = policy.run(args);
    assert_eq!(benched.code, 0, "{benched:#?}");
    benched.json().as_array().unwrap().clone()
}

#[test]
fn an_author_sees_where_a_build_went_wrong() {
    let (policy, _) = Policy::new("broken-memory", "rust");
    let whole = policy.read("src/lib.rs");
    policy.change("src/lib.rs", EVALUATION, &format!("        let percent: u64 = \"80\";\n{EVALUATION}"));
    let line = policy.read("src/lib.rs").lines().position(|line| line.contains("\"80\"")).unwrap() + 1;
    policy.run(&["build"]).says(1, &["mismatched types", &format!("src/lib.rs:{line}"), "cargo build", "failed"]);
    assert!(!policy.folder.join("target/broken-memory.wasm").exists());

    policy.write("src/lib.rs", &whole.replace("qosm_sdk::export!(BrokenMemoryPolicy);", ""));
    policy.run(&["build"]).says(1, &["`broken-memory` makes no component", "exports nothing", "qosm_sdk::export!"]);

    let clock = "#[link(wasm_import_module = \"env\")]\n#[allow(unsafe_code)]\nunsafe extern \"C\" {\n    fn now() -> u64;\n}\n";
    let calling = whole.replace(
        EVALUATION,
        &format!("        #[allow(unsafe_code)]\n        let _ = unsafe {{ now() }};\n{EVALUATION}"),
    );
    policy.write(
        "src/lib.rs",
        &calling.replace("/// The policy-level configuration", &format!("{clock}\n/// The policy-level configuration")),
    );
    policy.run(&["build"]).says(1, &["`broken-memory` makes no component", "env"]);

    let large = "#[used]\nstatic LARGE: [u8; 17 << 20] = [7; 17 << 20];\n\n/// The policy-level configuration";
    policy.write("src/lib.rs", &whole.replacen("/// The policy-level configuration", large, 1));
    policy.run(&["build"]).says(1, &["target/broken-memory.wasm", "more than the 16777216 B", "strip"]);
}

#[test]
fn a_case_that_does_not_hold_is_reported_with_its_difference() {
    let (policy, _) = Policy::new("wrong-memory", "rust");
    policy.change("tests/cases/follows-the-limit.yaml", "value: 858993459", "value: 858993460");
    policy.write("tests/cases/no-case.yaml", "about: [");
    let tested = policy.run(&["test"]);
    tested.says(1, &["cargo test", "failed"]);
    for words in [
        "FAILED  follows-the-limit",
        "- container default/web/app memory.high = 858993460",
        "+ container default/web/app memory.high = 858993459",
        "FAILED  no-case",
        "ok      leaves-small-containers-alone",
        "4 cases: 2 hold, 2 do not",
    ] {
        assert!(tested.stdout.contains(words), "{words}: {tested:#?}");
    }
    policy.run(&["lint"]).says(1, &[]);
}

#[test]
fn a_name_may_be_one_that_the_template_uses() {
    let folder = tempfile::tempdir().unwrap();
    for (name, own) in [("policy", "PolicyPolicy"), ("config", "ConfigPolicy"), ("keep-policy", "KeepPolicy")] {
        let to = folder.path().join(name);
        run(&["new", name, "--lang", "rust", "--to", &to.display().to_string()], "").says(0, &[]);
        let text = std::fs::read_to_string(to.join("src/lib.rs")).unwrap();
        assert!(text.contains(&format!("pub struct {own} {{")), "{name}: {text}");
    }
}

#[test]
fn a_name_that_is_none_is_refused_by_its_character() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("x").display().to_string();
    for (name, words) in [
        ("My_Policy", "`M`, character 1"),
        ("a--", "ends with a dash"),
        ("self", "a word of Rust's"),
        ("serde", "a crate that the project uses"),
    ] {
        run(&["new", name, "--lang", "rust", "--to", &to], "").says(2, &[name, words]);
    }
    run(&["new", "mine", "--lang", "cobol"], "").says(2, &["cobol", "rust", "rego"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_place_where_something_is_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(folder.path().join("full")).unwrap();
    std::fs::write(folder.path().join("full/mine.txt"), "mine").unwrap();
    std::fs::write(folder.path().join("file"), "mine").unwrap();
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let new = |to: &str| run(&["new", "mine", "--lang", "rust", "--to", &path(to)], "");
    new("full").says(2, &["full is not empty", "nothing was made", "--to"]);
    new("file").says(2, &["file is a file", "nothing was made"]);
    new("file/below").says(1, &["file/below", "Not a directory"]);
    run(&["new", "mine", "--lang", "rust", "--to", &path("new"), "--sdk", "/nowhere"], "")
        .says(2, &["--sdk", "/nowhere"]);
    new("empty").says_nothing_else();
    // As `--to .` in a new folder.
    std::fs::create_dir(folder.path().join("here")).unwrap();
    new("here/.").says_nothing_else();
    assert!(folder.path().join("here/Cargo.toml").exists());
    let mut left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["empty", "file", "full", "here"], "nothing is left beside");
    let in_it = |name: &str| std::fs::read_dir(folder.path().join(name)).unwrap().count();
    assert_eq!(in_it("here"), in_it("empty"));
    assert_eq!(std::fs::read_dir(folder.path().join("full")).unwrap().count(), 1);
}

#[test]
fn the_sdk_may_lie_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("mine");
    let made = run(
        &["new", "mine", "--lang", "rust", "--to", &to.display().to_string(), "--sdk", &repository("sdk/rust")],
        "",
    );
    made.says_nothing_else();
    let manifest = std::fs::read_to_string(to.join("Cargo.toml")).unwrap();
    let sdk = Path::new(&repository("sdk/rust")).canonicalize().unwrap().display().to_string();
    assert_eq!(manifest.matches(&format!("path = \"{sdk}\"")).count(), 2, "{manifest}");
    assert!(!to.join("sdk").exists());
}

#[test]
fn a_folder_without_a_policy_is_refused_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    run(&["build", &path], "").says(1, &[&path, "qosm policy new"]);
    run(&["test", "cpu-burst"], "").says(2, &["--cases"]);
    run(&["run", "cpu-burst"], "").says(2, &["--facts", "--recording"]);
}

#[test]
fn a_tool_that_is_missing_is_named_with_its_command() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"mine\"\n").unwrap();
    let without_tools = |args: &[&str]| {
        let mut command = Command::new(QOSM_POLICY);
        command
            .args(args)
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", "/nowhere")
            .env("QOSM_MODULE_DIR", modules());
        finish(command, "")
    };
    without_tools(&["build"]).says(1, &["`cargo` is not there", "https://rustup.rs"]);
    std::fs::remove_file(folder.path().join("Cargo.toml")).unwrap();
    std::fs::write(folder.path().join("policy.rego"), "package qosm\n").unwrap();
    without_tools(&["build"]).says(1, &["`opa` is not there", "go install github.com/open-policy-agent/opa@"]);
}

#[test]
fn default_modules_pass_their_cases_and_have_few_findings() {
    for name in [
        "be-suppress",
        "block-io",
        "cpu-burst",
        "cpu-identity",
        "cpu-topology",
        "eviction",
        "llc-mba",
        "memory-locality",
        "memory-qos",
        "node-memory",
    ] {
        let cases = repository(&format!("policies/{name}/tests/cases"));
        let tested = run(&["test", name, "--cases", &cases], "").says_nothing_else();
        assert!(tested.stdout.contains(" 0 do not"), "{tested:#?}");
        let linted = run(&["lint", name, "--cases", &cases, "-o", "json"], "");
        let findings = linted.json()["findings"].as_array().unwrap().clone();
        let serious: Vec<_> = findings.iter().filter(|finding| finding["level"] != "hint").collect();
        assert_eq!(serious, Vec::<&Value>::new(), "{name}");
        let described = run(&["doc", name], "").says_nothing_else();
        assert!(described.stdout.contains("## What it may touch"), "{described:#?}");
    }
}

#[test]
fn lint_finds_what_will_trouble_others() {
    let (policy, _) = Policy::new("careless-memory", "rust");
    policy.change("src/lib.rs", "example.com/careless-memory", "careless-memory");
    policy.change(
        "src/lib.rs",
        "Description::new(\"careless-memory\", env!(\"CARGO_PKG_VERSION\")",
        "Description::new(\"memory-qos\", \"0.2.0\"",
    );
    policy.change("src/lib.rs", ".config::<Config>()", ".config::<Config>().interval_millis(20)");
    policy.change("src/lib.rs", "    /// `memory.high` of each container, in percent of its memory limit.\n", "");
    policy.change(
        "src/lib.rs",
        "host.protect(target, &wanted, &reason);",
        "host.protect(target, &wanted, \"\");\n                        let _ = reason;",
    );
    // It reads the node only if the operator configures it, which no case does.
    let looks = "        if self.config.least_limit_mib == 77 && host.node().cpus == 3 {\n            return Ok(());\n        }";
    policy.change("src/lib.rs", EVALUATION, &format!("{looks}\n{EVALUATION}"));
    let linted = policy.run(&["lint", "-o", "json"]);
    assert_eq!(linted.code, 1, "{linted:#?}");
    let found = linted.json();
    let mut rules: Vec<_> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["level"] == "warning")
        .map(|finding| finding["rule"].as_str().unwrap())
        .collect();
    rules.dedup();
    assert_eq!(
        rules,
        [
            "annotation-prefix",
            "name-of-a-default-module",
            "no-reason",
            "short-interval",
            "two-versions",
            "undescribed-field",
            "unneeded-grant"
        ],
        "{found:#}"
    );
    let report = found.to_string();
    for words in ["grant `node`", "memory.high of a container is set without a reason", "each 20 ms", "`percent`"] {
        assert!(report.contains(words), "{words}: {found:#}");
    }
    std::fs::remove_dir_all(policy.folder.join("tests/cases")).unwrap();
    let without = policy.run(&["lint"]);
    assert!(without.stdout.contains("no-cases"), "{without:#?}");
}

#[test]
fn a_module_that_does_not_load_is_an_error_of_lint() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core.wasm");
    std::fs::write(&file, b"\0asm\x01\0\0\0").unwrap();
    let linted = run(&["lint", &file.display().to_string(), "-o", "json"], "");
    assert_eq!((linted.code, &linted.json()["findings"][0]["level"]), (1, &json!("error")), "{linted:#?}");
}
