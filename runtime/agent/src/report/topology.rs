//! The node's CPUs and memory in the node's report, for schedulers.

use std::collections::BTreeMap;

use qosm_cluster::node_report::{MAX_EXCLUSIVE, MAX_ZONES, ReportedExclusiveCpus, ReportedNumaNode, ReportedTopology};
use qosm_host::Host;
use qosm_model::cpu_topology::{CpuManager, CpuTopology};
use qosm_model::numa::list_text;
use qosm_model::pod::{Pod, QosClass};

use crate::reporting::Reporting;
use crate::table::PodTable;

/// Annotation with what Koordinator's scheduler gave a pod.
const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";
/// Annotation by which a pod asks the node for CPUs.
const CPUSET_SCHEDULER: &str = "cpuset-scheduler";

impl Reporting {
    /// Updates what the node's report says of CPUs to what policies last saw.
    pub(crate) fn note_cpus(&mut self, host: &Host, pods: &PodTable, seen: &CpuTopology) {
        if self.topology.as_ref().is_none_or(|(before, _)| before != seen) {
            self.topology = Some((seen.clone(), reported(host, pods, seen)));
        }
    }
}

fn reported(host: &Host, pods: &PodTable, seen: &CpuTopology) -> ReportedTopology {
    let numa = host.numa_topology();
    let numa_nodes =
        numa.iter().take(MAX_ZONES).map(|(id, node)| ReportedNumaNode::of(id.0, node.memory.0, &seen.cpus));
    ReportedTopology {
        numa_nodes: numa_nodes.collect(),
        cpu_manager: seen.manager.as_str().to_owned(),
        reserved: list_text(seen.reserved.iter().copied()),
        exclusive: exclusive(pods, seen),
    }
}

/// Pods with CPUs that the kubelet gave away and no scheduler or policy places. If the kubelet's state cannot be read, cpusets show
/// these, except for pods that policies may have pinned.
fn exclusive(pods: &PodTable, seen: &CpuTopology) -> Vec<ReportedExclusiveCpus> {
    let mut of_pods: BTreeMap<(&str, &str, &str), Vec<u32>> = BTreeMap::new();
    for given in &seen.exclusive {
        if let Some((entry, _)) = given.container.and_then(|container| pods.owner(container))
            && is_kubelets(&entry.pod, seen.manager)
        {
            let pod = (entry.pod.namespace.as_str(), entry.pod.name.as_str(), entry.pod.uid.as_str());
            of_pods.entry(pod).or_default().extend(&given.cpus);
        }
    }
    let row = |((namespace, name, uid), mut cpus): ((&str, &str, &str), Vec<u32>)| {
        cpus.sort_unstable();
        cpus.dedup();
        ReportedExclusiveCpus {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            cpus: list_text(cpus),
        }
    };
    of_pods.into_iter().map(row).take(MAX_EXCLUSIVE).collect()
}

/// Whether a pod runs on CPUs that the kubelet gave it: it does unless a scheduler pinned it. If the kubelet's state cannot be read, a
/// policy may have set the CPUs of pods with a class.
fn is_kubelets(pod: &Pod, manager: CpuManager) -> bool {
    let is_given = pod.annotations.get(RESOURCE_STATUS).is_some_and(|status| has_cpuset(status));
    let class = pod.declared_qos();
    let may_be_placed = matches!(class, Some(QosClass::Lse | QosClass::Lsr | QosClass::Ls | QosClass::Be))
        || pod.annotations.contains_key(CPUSET_SCHEDULER);
    !is_given && (manager == CpuManager::Static || !may_be_placed)
}

fn has_cpuset(status: &str) -> bool {
    let status: Option<serde_json::Value> = serde_json::from_str(status).ok();
    status.is_some_and(|status| status["cpuset"].as_str().is_some_and(|cpus| !cpus.is_empty()))
}

#[cfg(test)]
mod tests {
    use qosm_engine::Engine;
    use serde_json::{Value, json};

    use super::*;
    use crate::columns::cpu_topology;
    use crate::facts::Facts;
    use crate::replay::Replay;
    use crate::step::Mode;

    /// What is reported of a node of two NUMA nodes with this state of the kubelet's CPU manager.
    fn reported_with(state: &Value) -> ReportedTopology {
        reported_of(state, &json!({}), &json!({}))
    }

    fn reported_of(state: &Value, annotations: &Value, labels: &Value) -> ReportedTopology {
        let amounts = json!({"cpu": "2", "memory": "1Gi"});
        let facts: Facts = serde_json::from_value(json!({
            "host": {"cpus": 8, "memory": "32Gi", "numaNodes": 2, "cpuManagerState": state},
            "pods": [{
                "metadata": {
                    "name": "db", "namespace": "default", "uid": "u-db", "annotations": annotations, "labels": labels,
                },
                "spec": {"containers": [
                    {"name": "app", "resources": {"requests": amounts, "limits": amounts}},
                    {"name": "log", "resources": {"requests": amounts, "limits": amounts}},
                ]},
                "status": {"phase": "Running", "qosClass": "Guaranteed"},
            }],
        }))
        .unwrap();
        let mut replay =
            Replay::new(&facts, Default::default(), Engine::new().unwrap(), Vec::new(), Mode::Plan).unwrap();
        replay.open();
        let (host, pods, cpusets) = replay.agent.cpu_parts();
        let seen = cpu_topology(host, pods, cpusets);
        reported(host, pods, &seen)
    }

    #[test]
    fn a_pod_has_one_row_whatever_number_of_containers_has_cpus() {
        let found = reported_with(&json!({
            "policyName": "static", "defaultCpuSet": "0", "entries": {"u-db": {"app": "2-3", "log": "6-7"}, "u-gone": {"app": "1"}},
        }));
        let rows: Vec<_> =
            found.exclusive.iter().map(|pod| (pod.name.as_str(), pod.uid.as_str(), pod.cpus.as_str())).collect();
        assert_eq!((found.cpu_manager.as_str(), rows), ("static", vec![("db", "u-db", "2-3,6-7")]));
        let nodes: Vec<_> = found.numa_nodes.iter().map(|node| (node.id, node.memory_bytes)).collect();
        assert_eq!(nodes, [(0, 16 << 30), (1, 16 << 30)]);
        assert_eq!(found.cpus().unwrap().iter().map(|cpu| cpu.id).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn cpus_of_pods_that_a_scheduler_pinned_are_not_the_kubelets() {
        let state =
            json!({"policyName": "static", "defaultCpuSet": "0", "entries": {"u-db": {"app": "2-3", "log": "3-4"}}});
        let status = |cpus: &str| json!({RESOURCE_STATUS: json!({"cpuset": cpus}).to_string()});
        let class = |class: &str| json!({"koordinator.sh/qosClass": class});
        for (annotations, labels, cpus) in [
            (json!({}), json!({}), Some("2-4")),
            (status(""), class("LSR"), Some("2-4")),
            (status("2-3"), json!({}), None),
            (json!({}), class("LS"), Some("2-4")),
            (json!({}), class("BE"), Some("2-4")),
        ] {
            let found = reported_of(&state, &annotations, &labels);
            let found = found.exclusive.first().map(|pod| pod.cpus.as_str());
            assert_eq!(found, cpus, "{annotations} {labels}");
        }
    }

    #[test]
    fn where_the_kubelet_gives_no_cpus_away_nobody_has_any() {
        let found = reported_with(&json!({"policyName": "none", "defaultCpuSet": ""}));
        assert_eq!((found.cpu_manager.as_str(), found.exclusive), ("none", Vec::new()));
    }
}
