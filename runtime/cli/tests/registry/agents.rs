//! An agent with modules from a registry. It manages no pods, so it needs no root: the tests look at the running policies.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::artefacts::{Desk, module};
use crate::env::{Keys, crane, env, qosm, run};
use crate::guest::{self, Evaluation};
use crate::waiting::tell_if_slow;
use crate::{PATIENCE, PAUSE};

/// A running agent. Killed when dropped; its log is printed when the test fails.
struct Agent {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    metrics: String,
}

impl Agent {
    fn start(desk: &Desk, config: &Value) -> Self {
        for folder in ["pods", "state"] {
            fs::create_dir_all(desk.path(folder)).unwrap();
        }
        fs::write(desk.path("agent.json"), config.to_string()).unwrap();
        let (socket, log) = (desk.path("admin.sock"), desk.path("agent.log"));
        // A free port, which the agent binds a moment later.
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut command = qosm();
        command.arg("agent").env("HOME", desk.path("."));
        for (flag, value) in [
            ("--pods", desk.path("pods")),
            ("--state-dir", desk.path("state")),
            ("--admin-socket", socket.clone()),
            ("--agent-config", desk.path("agent.json")),
            ("--metrics-listen", metrics.clone().into()),
            ("--cgroup-root", desk.cgroup_root().into()),
        ] {
            command.arg(flag).arg(value);
        }
        let child = command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        Self { child, socket, log, metrics }
    }

    /// Number of tag lookups without a new digest, from the metrics.
    fn unchanged(&self) -> u32 {
        let mut text = String::new();
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: qosm\r\nConnection: close\r\n\r\n").unwrap();
        stream.read_to_string(&mut text).unwrap();
        let row = r#"qosm_module_pulls_total{result="unchanged"} "#;
        text.lines().find_map(|line| line.strip_prefix(row)).map_or(0, |count| count.trim().parse().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = qosm();
        command.args(args).arg("--admin-socket").arg(&self.socket);
        command
    }

    fn policy(&self, name: &str) -> Value {
        let ran = run(&mut self.command(&["get", "policies", "-o", "json"]));
        let all: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let named = all.as_array().into_iter().flatten().find(|policy| policy["policy"] == name);
        named.cloned().unwrap_or_default()
    }

    #[track_caller]
    fn wait(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && begun.elapsed() < PATIENCE, "waited for {what}: {ended:?}");
            std::thread::sleep(PAUSE);
        }
        tell_if_slow(what, begun.elapsed());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            eprintln!("--- the agent said:\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

fn entry(module: &str) -> Value {
    let grants = ["node", "cpu-stat", "cpu-bandwidth", "memory-protection"];
    json!({"name": "burst", "module": module, "grants": grants})
}

#[test]
fn a_module_comes_from_the_registry_is_swapped_by_hand_and_outlives_the_registry() {
    let (desk, keys, host) = (Desk::new(), Keys::new("agent"), &env().plain.host);
    let digest = desk.push(&module("cpu-burst"), &format!("{host}/agent/burst:1"));
    let unsigned = desk.push(&module("memory-qos"), &format!("{host}/agent/burst:2"));
    keys.sign(&format!("{host}/agent/burst@{digest}"), true, &[]);
    let rules = json!([{"pattern": format!("{host}/agent/*"), "keys": [{"name": "release", "path": keys.public()}]}]);
    let config = json!({
        "policies": [entry(&format!("oci://{host}/agent/burst@{digest}"))],
        "registries": {"verification": rules},
    });
    let mut agent = Agent::start(&desk, &config);
    agent.wait("the module", |agent| agent.policy("burst")["health"] == "running");
    let report = agent.policy("burst");
    assert_eq!((&report["artifact"], &report["trusted"]), (&json!(digest), &json!("signed by release")), "{report}");
    assert_eq!(report["reference"], format!("oci://{host}/agent/burst@{digest}"));

    // An unsigned module is refused, and the running one continues.
    let swap = |agent: &Agent, to: &str| run(&mut agent.command(&["policy", "swap", "burst", to, "--timeout", "60"]));
    let refused = swap(&agent, &format!("oci://{host}/agent/burst@{unsigned}"));
    assert!(refused.code == Some(1), "{refused:#?}");
    assert!(refused.stderr.contains("no signature"), "{refused:#?}");
    assert_eq!(agent.policy("burst")["artifact"], json!(digest));
    keys.sign(&format!("{host}/agent/burst@{unsigned}"), false, &[]);
    let swapped = swap(&agent, &format!("oci://{host}/agent/burst:2"));
    assert_eq!(swapped.code, Some(0), "{swapped:#?}");
    assert_eq!(agent.policy("burst")["artifact"], json!(unsigned));
    run(&mut agent.command(&["policy", "swap", "burst", "--back"])).well();
    assert_eq!(agent.policy("burst")["artifact"], json!(digest));
    drop(agent);

    // Without the registry, the module in the store runs, and is verified again.
    let rules = json!([{"pattern": format!("{host}/agent/*"), "keys": [{"name": "release", "path": keys.public()}]}]);
    let offline = json!({
        "policies": [entry(&format!("oci://{host}/agent/burst@{digest}"))],
        "registries": {"verification": rules, "hosts": [{"registry": host, "mirrors": ["127.0.0.1:1"]}]},
    });
    let mut agent = Agent::start(&desk, &offline);
    agent.wait("the stored module", |agent| agent.policy("burst")["health"] == "running");
    drop(agent);

    // The signing key is no longer trusted.
    let other = Keys::new("other");
    let rules = json!([{"pattern": format!("{host}/agent/*"), "keys": [{"name": "new", "path": other.public()}]}]);
    let config = json!({
        "policies": [entry(&format!("oci://{host}/agent/burst@{digest}"))], "registries": {"verification": rules},
    });
    fs::remove_file(desk.path("state/swaps.json")).ok();
    let mut agent = Agent::start(&desk, &config);
    agent.wait("the refusal", |agent| {
        agent.policy("burst")["error"].as_str().is_some_and(|error| error.contains("not trusted"))
    });
}

#[test]
fn a_tag_that_is_polled_is_followed() {
    let (desk, host) = (Desk::new(), &env().plain.host);
    let first = desk.push(&module("cpu-burst"), &format!("{host}/tags/burst:stable"));
    let mut polled = entry(&format!("oci://{host}/tags/burst:stable"));
    polled["pollSeconds"] = json!(10);
    // A short rollback window, so that the module has proven itself when the agent ends.
    let config = json!({"policies": [polled], "swaps": {"rollbackSeconds": 2}});
    let mut agent = Agent::start(&desk, &config);
    agent.wait("the first version", |agent| agent.policy("burst")["artifact"] == json!(first));
    let idle = guest::write(&desk.path("."), "idle", Evaluation::Idles);
    let second = desk.push(&idle, &format!("{host}/tags/burst:next"));
    run(crane().args(["copy", "--insecure", &format!("{host}/tags/burst:next"), &format!("{host}/tags/burst:stable")]))
        .well();
    agent.wait("the second version", |agent| agent.policy("burst")["artifact"] == json!(second));

    // A failing version is tried once, however often the tag is looked up.
    let mut report = String::new();
    for (name, evaluation) in [("trapping", Evaluation::TrapsFrom(1)), ("looping", Evaluation::Loops)] {
        let bad = guest::write(&desk.path("."), name, evaluation);
        desk.push(&bad, &format!("{host}/tags/burst:stable"));
        let why = |agent: &Agent| agent.policy("burst")["pendingUpdate"]["why"].as_str().unwrap_or_default().to_owned();
        let refused = std::cell::RefCell::new(String::new());
        // One response, because between two the agent may try the next version.
        agent.wait("another version to be refused", |agent| {
            let now = why(agent);
            let is_refused = now.contains("first evaluation, which") && now.contains("failed") && now != report;
            if is_refused {
                *refused.borrow_mut() = now;
            }
            is_refused
        });
        report = refused.into_inner();
    }
    let before = agent.unchanged();
    agent.wait("the tag to be looked up again", |agent| agent.unchanged() > before);
    let policy = agent.policy("burst");
    assert_eq!((&policy["artifact"], &policy["health"]), (&json!(second), &json!("running")), "{policy}");
    assert_eq!(policy["pendingUpdate"]["why"], json!(report), "{policy}");
    drop(agent);

    // The tag refers to the failed version now, in the registry and here.
    let mut agent = Agent::start(&desk, &config);
    agent.wait("the last good one", |agent| {
        agent.policy("burst")["health"] == "running" && agent.policy("burst")["artifact"] == json!(second)
    });
}
