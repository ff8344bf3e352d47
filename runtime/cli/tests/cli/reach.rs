//! Which pods a policy may act on, and whose knobs it may take.

use serde_json::{Value, json};

use crate::guest::{self, Evaluation};
use crate::qosm::{container, plan, pod, run};

fn heavy(folder: &std::path::Path, grants: &Value) -> Value {
    let module = guest::write(folder, "heavy", Evaluation::Weighs { weight: Some(250), idle: None });
    json!({
        "host": {"cgroup": "v2", "driver": "cgroupfs", "cpus": 8},
        "policies": [{"name": "heavy", "module": module, "grants": grants}],
        "pods": [pod("web", &json!({}), &json!([container("a", &json!({"cpu": "100m"}), &json!({}))]))],
    })
}

#[test]
fn a_pod_that_is_not_configured_for_a_policy_is_left_alone_and_the_way_out_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let planned = plan(&heavy(folder.path(), &json!(["cpu-weight"])));
    assert_eq!(planned.rows(), [""; 0]);
    planned.says(
        1,
        &["not possible: cpu.weight of default/web/a (250), wanted by heavy: default/web is not configured for policy `heavy`; \
           configure it, or add `all-pods` to the grants"],
    );
    let planned = plan(&heavy(folder.path(), &json!(["cpu-weight", "all-pods"]))).says_nothing_else();
    assert_eq!(planned.rows(), ["container default/web/a cpu.weight 250"]);
}

#[test]
fn what_a_module_without_pod_configuration_needs_depends_on_its_targets() {
    let folder = tempfile::tempdir().unwrap();
    let module = guest::write(folder.path(), "heavy", Evaluation::Weighs { weight: Some(250), idle: None });
    let inspected = run(&["policy", "inspect", &module.display().to_string(), "-o", "json"], "").json();
    assert_eq!(inspected["grants"], json!(["cpu-weight"]), "{inspected}");
    assert_eq!(inspected["furtherGrants"], json!(["tiers", "all-pods"]), "{inspected}");
    // It sets knobs of the node and of tiers.
    let table = run(&["policy", "inspect", "node-memory"], "").says_nothing_else().stdout;
    for row in [
        "grants it needs  node, cluster-config, memory-protection, node-knobs\n",
        "it may need      tiers if it sets knobs of tiers, all-pods if it acts on pods\n",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
    let inspected = run(&["policy", "inspect", "memory-qos", "-o", "json"], "").json();
    assert_eq!(inspected["furtherGrants"], json!(["tiers", "all-pods"]), "{inspected}");
}

fn protected(pods: &[Value]) -> Value {
    json!({
        "host": {"cgroup": "v2", "driver": "cgroupfs"},
        "node": {"metadata": {"name": "n"}, "status": {"allocatable": {"memory": "30Gi"}}},
        "policies": [{"name": "memory-qos"}],
        "pods": pods,
    })
}

fn web() -> Value {
    let annotations = json!({"koordinator.sh/memoryQOS": r#"{"minLimitPercent":50}"#});
    pod("web", &annotations, &json!([container("a", &json!({"memory": "1Gi"}), &json!({}))]))
}

#[test]
fn tiers_are_a_grant_of_their_own() {
    let mut facts = protected(&[web()]);
    let rows = plan(&facts).says_nothing_else().rows();
    assert!(rows.iter().any(|row| row.starts_with("tier burstable memory.min")), "the default module has it: {rows:?}");
    facts["policies"][0]["grants"] = json!(["node", "memory-protection"]);
    let planned = plan(&facts);
    assert_eq!(
        planned.rows(),
        ["container default/web/a memory.min 536870912", "pod default/web memory.min 536870912"]
    );
    planned.says(
        1,
        &["not possible: memory.min of tier", "policy `memory-qos` may not set tiers; add `tiers` to its grants"],
    );
}

#[test]
fn protection_comes_into_force_above_protected_pods() {
    let mut dns = web();
    dns["metadata"]["namespace"] = "kube-system".into();
    dns["metadata"]["name"] = "dns".into();
    dns["metadata"]["uid"] = "dns".into();
    let planned = plan(&protected(&[web(), dns]));
    planned.says(0, &["note: kube-system/dns is in a protected namespace"]);
    assert_eq!(
        planned.rows(),
        [
            "container default/web/a memory.min 536870912",
            "pod default/web memory.min 536870912",
            "tier burstable memory.min 536870912",
            "tier kubepods memory.min 536870912",
        ]
    );
}
