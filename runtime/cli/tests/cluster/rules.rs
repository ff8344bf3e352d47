//! The chart's permissions: exactly those that the agent and the controller use.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::agent::{Agent, Controller, Module, NAMESPACE, USER, rendered, root};
use crate::node::{NODE, Pod, audit, busy, kubectl, said, verbs_of};
use crate::waiting::wait_until;

/// The requests of an agent.
const EXPECTED: [&str; 12] = [
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

#[test]
fn agent_and_controller_use_the_verbs_that_they_have_and_no_others() {
    // An API server that has just started refuses every user for a moment: only events of this test count.
    let begun = jiff::Timestamp::now();
    let module = Module::apply("cpu-burst", &serde_json::json!({"module": "builtin:cpu-burst"}));
    let (mut agent, controller) = (Agent::start(), Controller::start());
    let wrong = serde_json::json!({"annotations": {"koordinator.sh/cpuBurst": "{"}});
    let _pod = Pod::create_with("qosm-verbs", &wrong, &busy("100m"));
    // If the report existed already, this agent did not create it.
    let seldom = ["create nodepolicyreports", "get nodes"];
    wait_until("every verb was used", || {
        let verbs = verbs_of(USER);
        EXPECTED.iter().all(|verb| seldom.contains(verb) || verbs.contains(*verb))
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
    // Agents of other tests may have had several events of a kind, and read their DaemonSet. This cluster has no
    // NodeResourceTopologies.
    let also = [
        "get daemonsets",
        "get namespaces",
        "patch events",
        "list noderesourcetopologies",
        "watch noderesourcetopologies",
    ];
    assert_eq!(granted("qosm-agent"), EXPECTED.iter().chain(&also).map(|verb| (*verb).to_owned()).collect());
    let used = verbs_of(USER);
    let more: Vec<_> =
        used.iter().filter(|verb| !EXPECTED.contains(&verb.as_str()) && !also.contains(&verb.as_str())).collect();
    assert!(more.is_empty(), "{more:?}");
}

/// The permissions in the chart's roles: each verb with its resource.
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
    // Kinds of Kubernetes operators that are not installed here.
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
fn the_agent_cannot_look_into_processes_and_who_can_has_neither_network_nor_token() {
    let chart = root().join("deploy/helm/qosm");
    let off = chart.join("ci/locality-off-values.yaml");
    let daemon_set = |objects: &[Value], component: &str| {
        let is_wanted = |object: &&Value| {
            object["kind"] == "DaemonSet" && object["metadata"]["labels"]["app.kubernetes.io/component"] == component
        };
        objects.iter().find(is_wanted).map(|object| object["spec"]["template"]["spec"].clone())
    };
    let container = |pod: &Value| pod["containers"][0].clone();
    let added = |pod: &Value| container(pod)["securityContext"]["capabilities"]["add"].clone();
    let has_flag = |pod: &Value, flag: &str| {
        container(pod)["args"].as_array().unwrap().iter().any(|argument| argument.as_str().unwrap().starts_with(flag))
    };
    let default = rendered(&[]);
    let agent = daemon_set(&default, "agent").unwrap();
    assert_eq!(agent["hostPID"], Value::Null);
    assert_eq!(added(&agent), serde_json::json!(["SETGID", "SETUID"]));
    assert_eq!(container(&agent)["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container(&agent)["securityContext"]["appArmorProfile"], Value::Null);
    assert!(has_flag(&agent, "--page-mover=/run/qosm/page-mover/"));

    let mover = daemon_set(&default, "page-mover").unwrap();
    assert_eq!((&mover["hostPID"], &mover["automountServiceAccountToken"]), (&true.into(), &false.into()));
    assert_eq!(added(&mover), serde_json::json!(["DAC_READ_SEARCH", "SYS_NICE", "SYS_PTRACE"]));
    let mounts = container(&mover)["volumeMounts"].as_array().unwrap().clone();
    let writable: Vec<_> = mounts.iter().filter(|mount| mount["readOnly"] != true).collect();
    assert_eq!(writable.len(), 1, "{writable:?}");
    assert_eq!(writable[0]["mountPath"], "/run/qosm/page-mover");
    let policy = default.iter().find(|object| {
        object["kind"] == "NetworkPolicy" && object["metadata"]["labels"]["app.kubernetes.io/component"] == "page-mover"
    });
    let policy = &policy.unwrap()["spec"];
    assert_eq!(policy["policyTypes"], serde_json::json!(["Ingress", "Egress"]));
    assert_eq!((&policy["ingress"], &policy["egress"]), (&Value::Null, &Value::Null));

    let without = rendered(&["--values", off.to_str().unwrap()]);
    assert_eq!(daemon_set(&without, "page-mover"), None);
    assert!(!has_flag(&daemon_set(&without, "agent").unwrap(), "--page-mover"));

    // The page mover is also there for core scheduling alone, and may write to cgroups.
    let cores = rendered(&["--values", off.to_str().unwrap(), "--set", "agent.hostAccess.coreScheduling=always"]);
    let mover = daemon_set(&cores, "page-mover").unwrap();
    assert_eq!(added(&mover), serde_json::json!(["DAC_READ_SEARCH", "SYS_NICE", "SYS_PTRACE"]));
    let mounts = container(&mover)["volumeMounts"].as_array().unwrap().clone();
    let cgroups = mounts.iter().find(|mount| mount["mountPath"] == "/sys/fs/cgroup").unwrap();
    assert_eq!(cgroups["readOnly"], Value::Null);
    assert!(has_flag(&daemon_set(&cores, "agent").unwrap(), "--page-mover=/run/qosm/page-mover/"));

    // Paths that are mounted for modules are readable, and the given values are kept.
    let everything = rendered(&["--values", chart.join("ci/everything-values.yaml").to_str().unwrap()]);
    let file = everything.iter().find_map(|object| object["data"]["agent.yaml"].as_str()).unwrap();
    let confinement = &documents(file)[0]["confinement"];
    assert_eq!(confinement["mode"], "require");
    // Only the node's memory settings are mounted, and only if requested.
    let sysctl = |objects: &[Value]| {
        let agent = daemon_set(objects, "agent").unwrap();
        let mounts = container(&agent)["volumeMounts"].as_array().unwrap().clone();
        let paths = mounts.iter().map(|mount| mount["mountPath"].as_str().unwrap().to_owned());
        paths.filter(|path| path.contains("proc/sys")).collect::<Vec<_>>()
    };
    assert_eq!(sysctl(&everything), ["/host/proc/sys/vm"]);
    assert!(sysctl(&default).is_empty());
    // Pods' volumes propagate into the agent's container, if the kubelet's folder is mounted at all.
    let kubelet = |objects: &[Value]| {
        let agent = daemon_set(objects, "agent").unwrap();
        let mounts = container(&agent)["volumeMounts"].as_array().unwrap().clone();
        mounts.into_iter().find(|mount| mount["name"] == "kubelet").map(|mount| mount["mountPropagation"].clone())
    };
    assert_eq!(kubelet(&everything), Some("HostToContainer".into()));
    assert_eq!(kubelet(&default), None);
    let mounted = "agent.hostAccess.kubeletRoot=/var/lib/kubelet";
    assert_eq!(kubelet(&rendered(&["--set", mounted])), Some(Value::Null));
    assert_eq!(confinement["readPaths"], serde_json::json!(["/opt/policies", "/var/lib/qosm-modules"]));
    assert_eq!(confinement["capabilities"], serde_json::json!(["DAC_OVERRIDE", "SYS_RESOURCE"]));
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
fn names_that_consist_of_digits_stay_texts() {
    let chart = root().join("deploy/helm/qosm");
    let output = Command::new(said("QOSM_HELM"))
        .args(["template", "123", "--namespace", "456", "--values"])
        .arg(chart.join("ci/everything-values.yaml"))
        .args(["--set-string", "fullnameOverride=789"])
        .arg(&chart)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for object in documents(&String::from_utf8(output.stdout).unwrap()) {
        let json = object.to_string();
        let number = ["\":123", "\":456", "\":789", "[456]"].into_iter().find(|number| json.contains(number));
        assert_eq!(number, None, "{json}");
    }
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
