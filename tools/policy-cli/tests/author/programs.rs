//! Runs the binaries and reads their output.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// The binary under test.
pub(crate) const QOSM_POLICY: &str = env!("CARGO_BIN_EXE_qosm-policy");

/// Path of `qosm`, which plans with an author's module.
pub(crate) fn qosm() -> PathBuf {
    let qosm =
        std::env::var_os("QOSM_BIN").map_or_else(|| Path::new(QOSM_POLICY).with_file_name("qosm"), PathBuf::from);
    assert!(qosm.is_file(), "{} is missing: run `cargo build` first", qosm.display());
    qosm
}

/// The folder of the default modules. Tests without the modules would show nothing, so their absence is a failure.
pub(crate) fn modules() -> &'static Path {
    static MODULES: LazyLock<PathBuf> = LazyLock::new(|| {
        let said = ["QOSM_MODULE_DIR", "QOSM_MODULES"].into_iter().find_map(std::env::var_os).map(PathBuf::from);
        let beside = || Path::new(QOSM_POLICY).ancestors().nth(2).map(|target| target.join("policies"));
        let folder = said.or_else(beside).unwrap_or_default();
        for name in ["cpu-burst", "memory-qos"] {
            let file = folder.join(format!("{name}.wasm"));
            assert!(file.is_file(), "{} is missing: run `cargo xtask modules` first", file.display());
        }
        folder
    });
    &MODULES
}

/// Path of a file in the repository.
pub(crate) fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the binary with these arguments and this standard input. Compiled modules are cached between runs, as on a laptop.
pub(crate) fn run(args: &[&str], stdin: &str) -> Run {
    run_program(Path::new(QOSM_POLICY), args, stdin)
}

/// Runs `qosm` in the same way.
pub(crate) fn run_qosm(args: &[&str], stdin: &str) -> Run {
    run_program(&qosm(), args, stdin)
}

fn run_program(program: &Path, args: &[&str], stdin: &str) -> Run {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-cache");
    let mut command = Command::new(program);
    command.args(args).env("QOSM_MODULE_DIR", modules()).env("XDG_CACHE_HOME", cache).env("NO_COLOR", "1");
    finish(command, stdin)
}

/// Runs the command to its end.
pub(crate) fn finish(mut command: Command, stdin: &str) -> Run {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("qosm starts");
    // A program that refuses its arguments exits without reading.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("qosm prints UTF-8");
    Run {
        code: output.status.code().expect("qosm ends by itself"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

impl Run {
    /// Asserts the exit code, and that standard error contains all of `words`.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not said:\n{}", self.stderr);
        }
    }

    /// Asserts exit code 0 and an empty standard error.
    #[track_caller]
    pub(crate) fn says_nothing_else(self) -> Self {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:#?}");
        self
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| unreachable!("{error} in {self:#?}"))
    }

    /// Standard output as one JSON document for each line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| unreachable!("{error} in {line}"));
        self.stdout.lines().map(line).collect()
    }

    /// The rows of a plan, each as `container default/web/app cpu.quota 240000`, sorted.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<String> {
        report(&self.json()["decisions"])
    }
}

/// Rows as text, sorted: the order of writes is the host's and has its own tests.
#[track_caller]
pub(crate) fn report(rows: &Value) -> Vec<String> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let mut report: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let subject = match row["level"].as_str() {
                Some("tier") => text(row, "tier"),
                Some("pod") => format!("{}/{}", text(row, "namespace"), text(row, "pod")),
                _ => format!("{}/{}/{}", text(row, "namespace"), text(row, "pod"), text(row, "container")),
            };
            format!("{} {subject} {} {}", text(row, "level"), text(row, "knob"), bare(&row["value"]))
        })
        .collect();
    report.sort();
    report
}

/// A JSON value as text, strings without quotes.
pub(crate) fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A pod in `default` with annotations and containers. It has no status, so it counts as running.
pub(crate) fn pod(name: &str, annotations: &Value, containers: &Value) -> Value {
    let texts: serde_json::Map<String, Value> =
        annotations.as_object().unwrap().iter().map(|(key, value)| (key.clone(), bare(value).into())).collect();
    json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "annotations": texts},
        "spec": {"containers": containers},
    })
}

/// A container with requests and limits.
pub(crate) fn container(name: &str, requests: &Value, limits: &Value) -> Value {
    json!({"name": name, "resources": {"requests": requests, "limits": limits}})
}

/// A container with a CPU limit.
pub(crate) fn limited(name: &str, cpu: &str) -> Value {
    container(name, &json!({}), &json!({"cpu": cpu}))
}
