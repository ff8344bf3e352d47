//! Observe: the machine's CPUs, the CPUs that the kubelet assigned exclusively, and the CPUs that the tier BestEffort may use.

use std::collections::BTreeMap;

use qosm_host::{CpuManagerState, CpuOwner, Host, HostError};
use qosm_model::cpu_topology::{CpuManager, CpuSet, CpuTopology, ExclusiveCpus};
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, KubeQos, Tier};

use crate::cpusets::Cpusets;
use crate::table::{Access, PodTable};

/// The machine's CPUs, and which of them are reserved or exclusive.
pub(crate) fn cpu_topology(host: &mut Host, pods: &PodTable, cpusets: &Cpusets) -> CpuTopology {
    let state = host.cpu_manager_state();
    let (manager, exclusive) = match &state {
        Ok(Some(state)) => (state.manager, given(state, pods)),
        Ok(None) => (CpuManager::Unknown, inferred(pods, cpusets)),
        Err(error) => {
            tracing::debug!(%error, "the state of the kubelet's CPU manager is unknown; exclusive CPUs are inferred from the containers' cpusets");
            (CpuManager::Unknown, inferred(pods, cpusets))
        }
    };
    CpuTopology { cpus: host.cpu_list().to_vec(), manager, reserved: cpusets.reserved().0.to_vec(), exclusive }
}

/// CPUs that the CPU manager assigned, by container. Entries of unknown containers count too.
fn given(state: &CpuManagerState, pods: &PodTable) -> Vec<ExclusiveCpus> {
    let mut named: BTreeMap<(&str, &str), ContainerId> = BTreeMap::new();
    let mut by_runtime: BTreeMap<&str, ContainerId> = BTreeMap::new();
    for entry in pods.iter() {
        for (container, known) in entry.pod.containers.iter().zip(&entry.containers) {
            named.insert((&entry.pod.uid, &container.name), known.id);
            if let Some(id) = container.cgroup.runtime_id() {
                by_runtime.insert(id, known.id);
            }
        }
    }
    let container = |owner: &CpuOwner| match owner {
        CpuOwner::Runtime(id) => by_runtime.get(id.as_str()).copied(),
        CpuOwner::Named { pod_uid, container } => named.get(&(pod_uid.as_str(), container.as_str())).copied(),
    };
    state
        .exclusive
        .iter()
        .map(|(owner, cpus)| ExclusiveCpus { container: container(owner), cpus: cpus.clone() })
        .collect()
}

/// Exclusive CPUs as inferred from the cpusets of containers.
fn inferred(pods: &PodTable, cpusets: &Cpusets) -> Vec<ExclusiveCpus> {
    let known = pods.iter().flat_map(|entry| &entry.containers).filter(|known| known.exclusive_cpus.is_some());
    let row = |id: ContainerId| {
        let cpus = cpusets.of(id)?.to_vec();
        Some(ExclusiveCpus { container: Some(id), cpus })
    };
    known.filter_map(|known| row(known.id)).collect()
}

/// The CPUs in force for the tiers, and for pods and containers of the tier BestEffort that are not protected: no policy sets those. Adds containers whose cgroup is gone to `gone`.
pub(crate) fn cpu_sets(
    host: &mut Host,
    groups: &[Target],
    pods: &PodTable,
    gone: &mut Vec<ContainerId>,
) -> Vec<CpuSet> {
    let is_batch = |target: &&Target| {
        let entry = match target {
            Target::Tier(_) => return true,
            Target::Node => return false,
            Target::Pod(id) => pods.get(*id),
            Target::Container(id) => pods.owner(*id).map(|(entry, _)| entry),
        };
        entry.is_some_and(|entry| entry.pod.kube_qos == KubeQos::BestEffort && entry.access != Access::Protected)
    };
    let mut sets = Vec::new();
    let tiers = Tier::ALL.map(Target::Tier);
    for &target in tiers.iter().chain(groups.iter().filter(is_batch)) {
        match (host.cpus_of_group(target), target) {
            (Ok(Some(cpus)), _) => sets.push(CpuSet { target, cpus }),
            (Err(HostError::Gone { .. }), Target::Container(id)) => gone.push(id),
            (Ok(None) | Err(HostError::NotAttached { .. } | HostError::Gone { .. }), _) => {}
            (Err(error), _) => tracing::debug!(?target, %error, "the CPUs in force cannot be read"),
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use qosm_engine::Engine;
    use qosm_model::pod::PodId;
    use serde_json::{Value, json};

    use super::*;
    use crate::facts::Facts;
    use crate::replay::Replay;
    use crate::step::Mode;

    fn pod(name: &str, qos: &str, cpus: &str) -> Value {
        let amounts = if qos == "BestEffort" { json!({}) } else { json!({"cpu": cpus, "memory": "1Gi"}) };
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("u-{name}")},
            "spec": {"containers": [{"name": "app", "resources": {"requests": amounts, "limits": amounts}}]},
            "status": {"phase": "Running", "qosClass": qos},
        })
    }

    fn node(facts: &Value) -> Replay {
        let facts: Facts = serde_json::from_value(facts.clone()).unwrap();
        let mut replay =
            Replay::new(&facts, Default::default(), Engine::new().unwrap(), Vec::new(), Mode::Plan).unwrap();
        replay.open();
        replay
    }

    fn topology(replay: &mut Replay) -> CpuTopology {
        let (host, pods, cpusets) = replay.agent.cpu_parts();
        cpu_topology(host, pods, cpusets)
    }

    #[test]
    fn what_the_kubelet_gave_away_is_named_by_container() {
        let mut replay = node(&json!({
            "host": {"cpus": 4, "cpuManagerState": {
                "policyName": "static", "defaultCpuSet": "0", "entries": {"u-pinned": {"app": "2-3"}, "u-gone": {"app": "1"}},
            }},
            "pods": [pod("pinned", "Guaranteed", "2")],
        }));
        let topology = topology(&mut replay);
        assert_eq!((topology.manager, topology.cpus.len()), (CpuManager::Static, 4));
        let rows: Vec<_> = topology.exclusive.iter().map(|own| (own.container, own.cpus.as_slice())).collect();
        assert_eq!(rows, [(None, &[1][..]), (Some(ContainerId(1)), &[2, 3])]);
    }

    #[test]
    fn without_the_kubelets_state_cpusets_tell_what_is_exclusive() {
        let file = "cpuset.cpus.effective";
        let mut replay = node(&json!({
            "host": {"cpus": 8},
            "pods": [pod("pinned", "Guaranteed", "2"), pod("web", "Burstable", "1500m")],
            "cgroups": [{"pod": "default/pinned", "container": "app", "files": {file: "2-3"}}],
        }));
        let topology = topology(&mut replay);
        assert_eq!(topology.manager, CpuManager::Unknown);
        assert_eq!(topology.exclusive, [ExclusiveCpus { container: Some(ContainerId(1)), cpus: vec![2, 3] }]);
    }

    #[test]
    fn sets_are_those_of_tiers_and_of_batch_pods_with_their_containers() {
        for version in ["v1", "v2"] {
            let file = if version == "v1" { "cpuset.cpus" } else { "cpuset.cpus.effective" };
            let set = |cpus: &str| json!({file: cpus});
            let mut replay = node(&json!({
                "host": {"cgroup": version, "cpus": 4},
                "pods": [pod("job", "BestEffort", ""), pod("web", "Burstable", "1500m")],
                "cgroups": [
                    {"tier": "kubepods", "files": set("0-3")}, {"tier": "burstable", "files": set("0-3")},
                    {"tier": "besteffort", "files": set("0-1")}, {"pod": "default/job", "files": set("0-1")},
                    {"pod": "default/job", "container": "app", "files": set("1")},
                ],
            }));
            let groups = replay.agent.pods().standing().groups.clone();
            let (host, pods, _) = replay.agent.cpu_parts();
            let sets = cpu_sets(host, &groups, pods, &mut Vec::new());
            let rows: Vec<_> = sets.iter().map(|set| (set.target, set.cpus.as_slice())).collect();
            let all = &[0, 1, 2, 3][..];
            let expected = [
                (Target::Tier(Tier::Guaranteed), all),
                (Target::Tier(Tier::Burstable), all),
                (Target::Tier(Tier::BestEffort), &[0, 1]),
                (Target::Pod(PodId(1)), &[0, 1]),
                (Target::Container(ContainerId(1)), &[1]),
            ];
            assert_eq!(rows, expected, "{version}");
        }
    }
}
