//! What the chart allows: no less than the agent and the controller use, and no more.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::agent::{Agent, Controller, Module, NAMESPACE, USER, rendered, root};
use crate::node::{NODE, Pod, audit, busy, kubectl, said, verbs_of};
use crate::waiting::wait_until;

#[test]
fn agent_and_controller_use_the_verbs_that_they_have_and_no_others() {
    // An API server that has just been started refuses everybody for a moment: what other tests did to it is not asked here.
    let begun = jiff::Timestamp::now();
    let module = Module::apply("cpu-burst", &serde_json::json!({"module": "builtin:cpu-burst"}));
    let (mut agent, controller) = (Agent::start(), Controller::start());
    let wrong = serde_json::json!({"annotations": {"koordinator.sh/cpuBurst": "{"}});
    let _pod = Pod::create_with("qosm-verbs", &wrong, &busy("100m"));
    wait_until("an event and a report were written", || {
        let verbs = verbs_of(USER);
        verbs.contains("create events") && verbs.contains("patch nodepolicyreports/status")
    });
    wait_until("the module's status was written", || module.get()["status"]["updated"] == 1);
    agent.end();
    drop(controller);
    let forbidden: Vec<_> = audit()
        .into_iter()
        .filter(|event| {
            let user = event["user"]["username"].as_str().unwrap_or_default();
            let at = event["requestReceivedTimestamp"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
            user.starts_with(&format!("system:serviceaccount:{NAMESPACE}:"))
                && event["responseStatus"]["code"] == 403
                && at.is_none_or(|at| at > begun)
        })
        .collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    let expected = [
        "create events",
        "create nodepolicyreports",
        "get nodes",
        "list configmaps",
        "list nodes",
        "list pods",
        "list policymodules",
        "patch nodepolicyreports/status",
        "watch configmaps",
        "watch nodes",
        "watch pods",
        "watch policymodules",
    ];
    // Agents of other tests may have had more than one event of a kind, and asked for their DaemonSet.
    let also = ["get daemonsets", "get namespaces", "patch events"];
    assert_eq!(granted("qosm-agent"), expected.iter().chain(&also).map(|verb| (*verb).to_owned()).collect());
    let used = verbs_of(USER);
    let more: Vec<_> =
        used.iter().filter(|verb| !expected.contains(&verb.as_str()) && !also.contains(&verb.as_str())).collect();
    assert!(more.is_empty(), "{more:?}");
    let without: BTreeSet<_> = expected.iter().filter(|verb| !used.contains(**verb)).collect();
    // A report that was there already was not created by this agent.
    assert!(without.iter().all(|verb| ["create nodepolicyreports", "get nodes"].contains(verb)), "{without:?}");
}

/// What the chart's roles allow: each verb with its resource.
fn granted(account: &str) -> BTreeSet<String> {
    let words = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    rendered(&[])
        .iter()
        .filter(|object| matches!(object["kind"].as_str(), Some("ClusterRole" | "Role")))
        .filter(|object| object["metadata"]["name"].as_str().unwrap().starts_with(account))
        .flat_map(|object| object["rules"].as_array().unwrap().clone())
        .flat_map(|rule| {
            let verbs = words(&rule["verbs"]);
            words(&rule["resources"])
                .into_iter()
                .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| format!("{verb} {resource}")))
        })
        .collect()
}

#[test]
fn an_agent_cannot_write_another_nodes_report() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = crate::agent::kubeconfig(folder.path(), "qosm-agent");
    let report = |node: &str| {
        let object = serde_json::json!({"apiVersion": "qosm.io/v1alpha1", "kind": "NodePolicyReport",
            "metadata": {"name": node}, "spec": {"node": node}});
        let file = folder.path().join("report.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let output = Command::new(said("QOSM_KUBECTL"))
            .args(["create", "--dry-run=server", "--filename"])
            .arg(file)
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    wait_until("the admission policy is in force", || {
        report("another").contains("may not write the report of another")
    });
    let own = report(NODE);
    assert!(own.contains("created") || own.contains("AlreadyExists") || own.contains("already exists"), "{own}");
}

#[test]
fn the_api_server_takes_everything_that_the_chart_renders() {
    let values = root().join("deploy/helm/qosm/ci");
    let mut files: Vec<_> = std::fs::read_dir(values)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    // Kinds of operators that are not installed here.
    let foreign = ["PodMonitor", "PrometheusRule", "GrafanaDashboard"];
    let mut all = vec![rendered(&[])];
    all.extend(files.iter().map(|file| rendered(&["--values", file.to_str().unwrap()])));
    for objects in all {
        assert!(objects.iter().any(|object| object["kind"] == "DaemonSet"));
        for object in objects.iter().filter(|object| !foreign.contains(&object["kind"].as_str().unwrap())) {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), object.to_string()).unwrap();
            let path = file.path().to_str().unwrap();
            kubectl(&[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--dry-run=server",
                "--validate=strict",
                "--filename",
                path,
            ]);
        }
    }
}

#[test]
fn helm_finds_no_fault_with_the_chart() {
    let chart = root().join("deploy/helm/qosm");
    let lint = |more: &[&str]| {
        let output =
            Command::new(said("QOSM_HELM")).args(["lint", "--strict"]).arg(&chart).args(more).output().unwrap();
        assert!(
            output.status.success(),
            "{more:?}: {}",
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
        );
    };
    lint(&[]);
    for entry in std::fs::read_dir(chart.join("ci")).unwrap() {
        let file = entry.unwrap().path();
        if file.is_file() {
            lint(&["--values", file.to_str().unwrap()]);
        }
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    let chart = root().join("deploy/helm/qosm");
    let mut refused = 0;
    for entry in std::fs::read_dir(chart.join("ci/refused")).unwrap() {
        let file = entry.unwrap().path();
        let output = Command::new(said("QOSM_HELM"))
            .args(["template", "qosm"])
            .arg(&chart)
            .arg("--values")
            .arg(&file)
            .output()
            .unwrap();
        assert!(!output.status.success(), "{} is taken", file.display());
        refused += 1;
    }
    assert!(refused >= 15, "{refused}");
}

#[test]
fn committed_manifests_and_crds_are_those_of_this_version() {
    let crds = Command::new(env!("CARGO_BIN_EXE_qosm")).arg("crds").output().unwrap();
    let printed = documents(&String::from_utf8(crds.stdout).unwrap());
    let mut committed = Vec::new();
    for name in ["policymodules", "nodepolicyreports"] {
        let path = root().join(format!("deploy/helm/qosm/crds/{name}.yaml"));
        committed.extend(documents(&std::fs::read_to_string(path).unwrap()));
    }
    assert_eq!(printed, committed, "run `make manifests`");
    let plain = documents(&std::fs::read_to_string(root().join("deploy/manifests/qosm.yaml")).unwrap());
    let now = rendered(&[]);
    let head = documents(&std::fs::read_to_string(root().join("deploy/manifests/head.yaml")).unwrap());
    let expected: Vec<&Value> = head.iter().chain(&now).collect();
    let named = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    let missing: Vec<_> =
        expected.iter().filter(|object| !plain.contains(object)).map(|object| named(object)).collect();
    let left_over: Vec<_> = plain.iter().filter(|object| !expected.contains(object)).map(named).collect();
    assert!(missing.is_empty() && left_over.is_empty(), "run `make manifests`: {missing:?} {left_over:?}");
}

fn documents(text: &str) -> Vec<Value> {
    text.split("\n---")
        .map(|document| document.trim_start_matches("---"))
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        .filter(Value::is_object)
        .collect()
}
