//! Running the binaries, and reading what they print.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// The binary under test.
pub(crate) const QOSM_POLICY: &str = env!("CARGO_BIN_EXE_qosm-policy");

/// The program of the node, which plans with an author's module.
pub(crate) fn qosm() -> PathBuf {
    let qosm =
        std::env::var_os("QOSM_BIN").map_or_else(|| Path::new(QOSM_POLICY).with_file_name("qosm"), PathBuf::from);
    assert!(
        qosm.is_file(),
        "{} is missing: run `make build`, or `cargo build --release -p qosm`, first",
        qosm.display()
    );
    qosm
}

/// Where the default modules are. A test of the product without its modules shows nothing, so there is no way around them.
pub(crate) fn modules() -> &'static Path {
    static MODULES: LazyLock<PathBuf> = LazyLock::new(|| {
        let said = ["QOSM_MODULE_DIR", "QOSM_MODULES"].into_iter().find_map(std::env::var_os).map(PathBuf::from);
        let beside = || Path::new(QOSM_POLICY).ancestors().nth(2).map(|target| target.join("policies"));
        let folder = said.or_else(beside).unwrap_or_default();
        for name in ["cpu-burst", "memory-qos"] {
            let file = folder.join(format!("{name}.wasm"));
            assert!(file.is_file(), "{} is missing: run `make build`, or `cargo xtask modules`, first", file.display());
        }
        folder
    });
    &MODULES
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).display().to_string()
}

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs with these arguments and this on standard input. Compiled modules are kept from run to run, as on a laptop.
pub(crate) fn run(args: &[&str], stdin: &str) -> Run {
    run_program(Path::new(QOSM_POLICY), args, stdin)
}

/// The same with `qosm`.
pub(crate) fn run_qosm(args: &[&str], stdin: &str) -> Run {
    run_program(&qosm(), args, stdin)
}

fn run_program(program: &Path, args: &[&str], stdin: &str) -> Run {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-cache");
    let mut command = Command::new(program);
    command.args(args).env("QOSM_MODULE_DIR", modules()).env("XDG_CACHE_HOME", cache).env("NO_COLOR", "1");
    finish(command, stdin)
}

/// Runs to the end.
pub(crate) fn finish(mut command: Command, stdin: &str) -> Run {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("qosm starts");
    // A run that refuses its arguments ends without reading.
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
    /// Fails unless it ended with that code and said all of this on standard error.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not said:\n{}", self.stderr);
        }
    }

    /// Fails unless all went well and nothing had to be said.
    #[track_caller]
    pub(crate) fn says_nothing_else(self) -> Self {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:#?}");
        self
    }

    /// The document on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| unreachable!("{error} in {self:#?}"))
    }

    /// One document a line.
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

/// Rows as text, sorted: in which order they are written is the host's business and tested there.
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

/// A number or a word, without quotes.
pub(crate) fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A pod in `default` with annotations and containers; without a status, so it runs.
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
