//! The machine's CPUs, and the CPUs that cgroups may use.

use std::collections::BTreeMap;

use qosm_model::cpu_topology::{Cpu, CpuSet, CpuTopology};
use qosm_model::knob::Target;

use super::Id;

#[derive(serde::Serialize)]
pub(super) struct CpuTopologyRow<'a> {
    cpus: Vec<CpuRow>,
    manager: &'static str,
    reserved: &'a [u32],
    exclusive: Vec<ExclusiveRow<'a>>,
    sets: Sets<'a>,
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct CpuRow {
    id: u32,
    core: u32,
    socket: u32,
    numa_node: u32,
    online: bool,
}

#[derive(serde::Serialize)]
struct ExclusiveRow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<Id>,
    cpus: &'a [u32],
}

/// CPU sets of tiers by name, and of pods and containers by id.
#[derive(Default, serde::Serialize)]
struct Sets<'a> {
    tiers: BTreeMap<String, &'a [u32]>,
    pods: BTreeMap<u32, &'a [u32]>,
    containers: BTreeMap<u32, &'a [u32]>,
}

impl<'a> CpuTopologyRow<'a> {
    pub(super) fn of(topology: &'a CpuTopology, of_cgroups: &'a [CpuSet]) -> Self {
        let cpu = |cpu: &Cpu| CpuRow {
            id: cpu.id,
            core: cpu.core,
            socket: cpu.socket,
            numa_node: cpu.numa_node,
            online: cpu.online,
        };
        let mut sets = Sets::default();
        for CpuSet { target, cpus } in of_cgroups {
            match target {
                Target::Node => None,
                Target::Tier(tier) => sets.tiers.insert(tier.to_string(), cpus),
                Target::Pod(pod) => sets.pods.insert(pod.0, cpus),
                Target::Container(container) => sets.containers.insert(container.0, cpus),
            };
        }
        let exclusive = topology
            .exclusive
            .iter()
            .map(|own| ExclusiveRow { container: own.container.map(|container| Id(container.0)), cpus: &own.cpus });
        Self {
            cpus: topology.cpus.iter().map(cpu).collect(),
            manager: topology.manager.as_str(),
            reserved: &topology.reserved,
            exclusive: exclusive.collect(),
            sets,
        }
    }
}
