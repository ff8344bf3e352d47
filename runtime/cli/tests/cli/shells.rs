//! Completions in real shells, with a fake agent. Needs Debian's `zsh` and `fish`, which `cargo xtask setup` installs.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::qosm::QOSM;

/// Each shell's program, its flags that exclude the user's own configuration, and the script that requests completions.
const SHELLS: [(&str, &[&str], &str); 3] = [
    ("bash", &["--norc", "--noprofile"], "offered.bash"),
    ("zsh", &["-f"], "offered.zsh"),
    ("fish", &["--no-config"], "offered.fish"),
];

/// Total time of the attempts for one line. A completion waits only briefly for the agent, and a busy machine may answer later.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn shells_offer_verbs_and_what_the_agent_has_of_that_noun() {
    let desk = Desk::new();
    for (line, offered, not_offered) in [
        ("qosm ", &["agent", "explain", "get", "top"][..], &["hold", "compile-module", "shop/web"][..]),
        ("qosm expl", &["explain"], &["get"]),
        ("qosm get ", &["pods", "policies", "knobs"], &["shop/web", "cpu-burst"]),
        ("qosm explain ", &["shop/web", "batch/train"], &["cpu-burst"]),
        ("qosm pause shop/", &["shop/web"], &["batch/train"]),
        ("qosm diff ", &["cpu-burst", "memory-qos"], &["shop/web"]),
        ("qosm get pods ", &["shop/web", "batch/train"], &["cpu-burst"]),
        ("qosm get -o wide policy ", &["cpu-burst", "memory-qos"], &["shop/web"]),
        ("qosm get classes ", &["llc-mba/BE"], &["shop/web", "cpu-burst"]),
        ("qosm get resources ", &["kubernetes.io/batch-cpu"], &["shop/web", "cpu-burst"]),
        ("qosm top --namespace ", &["shop", "batch"], &["shop/web"]),
        ("qosm top --sort ", &["cpu", "throttled", "name"], &["shop/web"]),
    ] {
        for shell in SHELLS {
            let found = desk.ask_until_offered(shell, line, offered);
            let shown = |word: &&&str| found.contains(**word);
            let missing: Vec<_> = offered.iter().filter(|word| !shown(word)).collect();
            let wrong: Vec<_> = not_offered.iter().filter(shown).collect();
            assert!(missing.is_empty() && wrong.is_empty(), "{}: `{line}`: {found:?}", shell.0);
        }
    }
}

/// A folder with `qosm` in it, and a fake agent that answers until the test ends.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(QOSM, folder.path().join("qosm")).unwrap();
        let listener = UnixListener::bind(folder.path().join("qosm.sock")).unwrap();
        std::thread::spawn(move || answer(&listener));
        Self { folder }
    }

    /// The completions that a shell offers for the beginning of a line; repeated while none of these words is among them.
    fn ask_until_offered(&self, shell: (&str, &[&str], &str), line: &str, words: &[&str]) -> BTreeSet<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(shell, line);
            let is_late = Instant::now() >= until;
            match answer {
                Ok(found) if is_late || words.iter().any(|word| found.contains(*word)) => return found,
                // Only flags: the agent's answer came too late.
                Ok(_) => {}
                // A shell without completions prints no list.
                Err(complaint) => assert!(!is_late, "{}: `{line}`: {complaint}", shell.0),
            }
        }
    }

    /// The completions that a shell offers for the beginning of a line, or its error.
    fn ask(&self, (shell, flags, script): (&str, &[&str], &str), line: &str) -> Result<BTreeSet<String>, String> {
        let own = tempfile::tempdir().unwrap();
        let script: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/shells").join(script);
        let search = std::env::var("PATH").unwrap();
        let mut command = Command::new(shell);
        command.args(flags).arg(script).env("LINE", line).env("FOLDER", own.path()).env("HOME", own.path());
        command.env("PATH", format!("{}:{search}", self.folder.path().display())).env("TERM", "dumb");
        command.env("QOSM_ADMIN_SOCKET", self.folder.path().join("qosm.sock"));
        let Ok(output) = command.output() else {
            unreachable!("{shell} is missing: run `cargo xtask setup`, or install {shell}")
        };
        let printed = String::from_utf8(output.stdout).unwrap();
        if !output.status.success() {
            return Err(format!("{printed}{}", String::from_utf8_lossy(&output.stderr)));
        }
        // bash ends a word with the blank that follows it.
        Ok(printed.lines().map(|word| word.trim_end().to_owned()).collect())
    }
}

fn answer(listener: &UnixListener) {
    for stream in listener.incoming() {
        // The client may have given up; the next one is answered anyway.
        let Ok(mut stream) = stream else { continue };
        let mut head = [0; 4096];
        let Ok(length) = stream.read(&mut head) else { continue };
        let head = String::from_utf8_lossy(&head[..length]);
        let body = known(head.split(' ').nth(1).unwrap_or_default()).to_string();
        let length = body.len();
        // The client may be gone.
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    }
}

fn known(path: &str) -> Value {
    let pod = |name: &str| {
        json!({
            "pod": name, "uid": "", "qos": "LS", "qosDeclared": true, "kubeQos": "Burstable", "cgroup": "", "containers": "1/1",
            "held": 0, "refused": 0, "problems": 0
        })
    };
    let policy = |name: &str| {
        json!({
            "policy": name, "mode": "active", "module": name, "digest": "", "health": "running", "priority": 100, "leases": 0,
            "evaluations": 0, "failures": 0, "lastEvaluationUsec": 0
        })
    };
    match path {
        "/v1/pods" => json!([pod("shop/web"), pod("batch/train")]),
        "/v1/policies" => json!([policy("cpu-burst"), policy("memory-qos")]),
        "/v1/classes" => {
            json!([{"policy": "llc-mba", "class": "BE", "shares": "", "inForce": true, "members": [], "reason": "", "since": ""}])
        }
        "/v1/resources" => json!([{
            "name": "kubernetes.io/batch-cpu", "policy": "reclaimed-resources", "amount": 1, "onNode": 1, "inForce": true, "reason": ""
        }]),
        _ => json!([]),
    }
}
