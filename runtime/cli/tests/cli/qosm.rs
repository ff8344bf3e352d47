//! Runs the binary and reads its output.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// The binary under test.
pub(crate) const QOSM: &str = env!("CARGO_BIN_EXE_qosm");

/// Folder of the default modules. A test of the product without its modules shows nothing, so they are required.
pub(crate) fn modules() -> &'static Path {
    static MODULES: LazyLock<PathBuf> = LazyLock::new(|| {
        let said = ["QOSM_MODULE_DIR", "QOSM_MODULES"].into_iter().find_map(std::env::var_os).map(PathBuf::from);
        let beside = || Path::new(QOSM).ancestors().nth(2).map(|target| target.join("policies"));
        let folder = said.or_else(beside).unwrap_or_default();
        for name in ["cpu-burst", "memory-qos"] {
            let file = folder.join(format!("{name}.wasm"));
            assert!(file.is_file(), "{} is missing: run `make build`, or `cargo xtask modules`, first", file.display());
        }
        folder
    });
    &MODULES
}

/// A default module's file.
pub(crate) fn module(name: &str) -> String {
    modules().join(format!("{name}.wasm")).display().to_string()
}

/// A file of the repository.
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

/// Runs qosm with these arguments and this standard input. Compiled modules are cached from run to run, as for a user.
pub(crate) fn run(args: &[&str], stdin: &str) -> Run {
    run_with_cache(args, stdin, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli-cache"))
}

/// The same with another cache folder.
pub(crate) fn run_with_cache(args: &[&str], stdin: &str, cache: &Path) -> Run {
    let mut command = Command::new(QOSM);
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
    /// Fails unless the run ended with this code and printed all of these words on standard error.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not said:\n{}", self.stderr);
        }
    }

    /// Fails unless the run succeeded and printed only notes on standard error.
    #[track_caller]
    pub(crate) fn says_only_notes(self) -> Self {
        let are_notes = self.stderr.lines().all(|line| line.starts_with("note: "));
        assert!(self.code == 0 && are_notes, "{self:#?}");
        self
    }

    /// Fails unless the run succeeded and printed nothing on standard error.
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

    /// The knobs that a plan would write.
    #[track_caller]
    pub(crate) fn decisions(&self) -> Value {
        self.json()["decisions"].clone()
    }

    /// The documents on standard output, one per line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|error| unreachable!("{error} in {line}"));
        self.stdout.lines().map(line).collect()
    }

    /// The rows of a plan, each as `container default/web/app cpu.quota 240000`, sorted.
    #[track_caller]
    pub(crate) fn rows(&self) -> Vec<String> {
        report(&self.decisions())
    }
}

/// Plans for a node.
#[track_caller]
pub(crate) fn plan(facts: &Value) -> Run {
    run(&["plan", "--facts", "-", "-o", "json"], &facts.to_string())
}

/// The decisions of each tick, as one list of rows per tick; the first list is that of the facts.
#[track_caller]
pub(crate) fn replay(facts: &Value, ticks: &[Value]) -> Vec<Vec<String>> {
    let played = play(facts, ticks);
    assert_eq!(played.code, 0, "{played:#?}");
    played.lines().iter().map(|line| report(&line["decisions"])).collect()
}

/// Replays a recording; the run may fail.
pub(crate) fn play(facts: &Value, ticks: &[Value]) -> Run {
    play_with(&[], facts, ticks)
}

/// The same with more flags.
pub(crate) fn play_with(flags: &[&str], facts: &Value, ticks: &[Value]) -> Run {
    let lines: String = std::iter::once(facts).chain(ticks).map(|line| format!("{line}\n")).collect();
    run(&[&["replay", "-"], flags].concat(), &lines)
}

/// Rows as text, sorted: the order of writing is tested in the host.
#[track_caller]
pub(crate) fn report(rows: &Value) -> Vec<String> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let mut report: Vec<String> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let subject = match row["level"].as_str() {
                Some("node") => "-".to_owned(),
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

/// The rows about one knob.
pub(crate) fn only(rows: &[String], knob: &str) -> Vec<String> {
    rows.iter().filter(|row| row.split(' ').nth(2) == Some(knob)).cloned().collect()
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

/// The cluster's ConfigMap with one key.
pub(crate) fn cluster_map(key: &str, text: &Value) -> Value {
    json!({
        "metadata": {"namespace": "koordinator-system", "name": "slo-controller-config"},
        "data": {key: bare(text)},
    })
}
