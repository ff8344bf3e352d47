//! PolicyModules whose modules come from a registry.

use std::process::Command;

use serde_json::{Value, json};

use crate::agent::{Agent, Module};
use crate::node::{NODE, Pod, busy, get, kubectl};
use crate::policies::{annotated, modules};
use crate::registries::{Keys, env, qosm, run};
use crate::waiting::wait_until;

/// Pushes a module. Returns the reference with the digest.
fn push(file: &str, name: &str) -> String {
    let repository = format!("{}/{name}", env().plain.host);
    let printed = run(qosm().args(["policy", "push", file, &format!("{repository}:1"), "-o", "json"])).well();
    let report: Value = serde_json::from_str(&printed).unwrap();
    format!("{repository}@{}", report["digest"].as_str().unwrap())
}

/// The bundle of a Rego example.
fn bundle() -> String {
    crate::node::said("QOSM_BUNDLES").join("rego-batch-namespaces.tar.gz").display().to_string()
}

#[test]
fn a_policy_in_rego_is_pulled_put_into_the_shadow_and_taken_away() {
    let spec = |reference: &str| {
        json!({
            "module": format!("oci://{reference}"),
            "grants": ["node", "cpu-weight", "memory-protection", "all-pods"],
            "config": {"batch": [{"namespaces": ["default"]}]},
        })
    };
    let reference = push(&bundle(), "cluster/batch");
    let pod = Pod::create("qosm-rego", &busy("200m"));
    let group = pod.cgroup("app");
    let (weight_before, idle_before) = (group.pod_weight(), group.is_idle());
    let module = Module::apply("batch-namespaces", &spec(&reference));
    let agent = Agent::start();
    let gives_way = || group.pod_weight() < weight_before && group.is_idle() != Some(false);
    wait_until("the pod gives way", gives_way);
    let policy = || get(&["nodepolicyreport", NODE])["status"]["policies"][0].clone();
    wait_until("the report tells which artefact runs", || {
        policy()["artifact"] == json!(reference.rsplit_once('@').unwrap().1)
    });
    wait_until("kubectl describe tells what was done", || {
        kubectl(&["describe", "pod", "qosm-rego"]).contains("batch work gets little of a busy CPU")
    });

    module.change(&json!({"mode": "shadow"}));
    wait_until("a shadow gives it back", || group.pod_weight() == weight_before && group.is_idle() == idle_before);
    module.change(&json!({"mode": "enforce"}));
    wait_until("it gives way again", gives_way);
    module.change(&json!({"config": {"batch": [{"namespace": "default"}]}}));
    wait_until("a field that it does not have is reported", || {
        agent.ask(&["get", "policies", "-o", "json"]).is_ok_and(|report| report.contains("config: batch"))
    });
    assert!(gives_way(), "what runs goes on");
    drop(module);
    wait_until("without the module everything is as it was", || {
        group.pod_weight() == weight_before && group.is_idle() == idle_before
    });
}

#[test]
fn a_policy_module_is_pulled_verified_and_swapped_and_an_unsigned_one_is_reported() {
    let keys = Keys::new("cluster");
    let folder = tempfile::tempdir().unwrap();
    let (default, other) = (modules().join("cpu-burst.wasm"), folder.path().join("other.wasm"));
    let mut annotate = Command::new(env!("CARGO_BIN_EXE_qosm"));
    annotate.args(["policy", "annotate"]).arg(&default).arg("--to").arg(&other).args(["--description", "another"]);
    run(&mut annotate).well();
    let signed = push(&default.display().to_string(), "cluster/signed");
    let unsigned = push(&other.display().to_string(), "cluster/unsigned");
    keys.sign(&signed, true, &[]);

    let spec = json!({
        "module": format!("oci://{signed}"),
        "grants": ["node", "cpu-stat", "cpu-bandwidth"],
        "verification": {"keys": [{"name": "release", "pem": std::fs::read_to_string(keys.public()).unwrap()}]},
    });
    let module = Module::apply("cpu-burst", &spec);
    let _agent = Agent::start();
    let pod = Pod::create_with("qosm-registry", &annotated("cpuBurstOnly"), &busy("200m"));
    let group = pod.cgroup("app");
    wait_until("the container may burst", || group.burst() == 20_000);
    let policy = || get(&["nodepolicyreport", NODE])["status"]["policies"][0].clone();
    let digest_of = |reference: &str| json!(reference.rsplit_once('@').unwrap().1);
    wait_until("the report tells what runs and why it is believed", || {
        policy()["artifact"] == digest_of(&signed) && policy()["trusted"] == "signed by release"
    });

    module.change(&json!({"module": format!("oci://{unsigned}")}));
    wait_until("the missing signature is reported", || {
        policy()["error"].as_str().is_some_and(|error| error.contains("no signature"))
    });
    assert_eq!((policy()["artifact"].clone(), group.burst()), (digest_of(&signed), 20_000), "what runs goes on");

    keys.sign(&unsigned, false, &[]);
    wait_until("what was signed meanwhile takes the place", || {
        policy()["artifact"] == digest_of(&unsigned) && policy()["error"].is_null()
    });
    assert_eq!(group.burst(), 20_000);
    drop(module);
    wait_until("without the module everything is as it was", || group.burst() == 0);
}
