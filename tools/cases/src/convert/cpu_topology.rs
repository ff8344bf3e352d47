//! The machine's CPUs.

use qosm_model::cpu_topology::{Cpu, CpuManager, CpuSet, CpuTopology, ExclusiveCpus};
use qosm_model::pod::ContainerId;

pub(super) fn topology(topology: &qosm_sdk::Topology) -> CpuTopology {
    let cpu = |cpu: &qosm_sdk::Cpu| Cpu {
        id: cpu.id,
        core: cpu.core,
        socket: cpu.socket,
        numa_node: cpu.numa_node,
        online: cpu.online,
    };
    let exclusive = |own: &qosm_sdk::ExclusiveCpus| ExclusiveCpus {
        container: own.container.map(ContainerId),
        cpus: own.cpus.clone(),
    };
    CpuTopology {
        cpus: topology.cpus.iter().map(cpu).collect(),
        manager: match topology.manager {
            qosm_sdk::CpuManager::None => CpuManager::None,
            qosm_sdk::CpuManager::Static => CpuManager::Static,
            qosm_sdk::CpuManager::Unknown => CpuManager::Unknown,
        },
        reserved: topology.reserved.clone(),
        exclusive: topology.exclusive.iter().map(exclusive).collect(),
    }
}

pub(super) fn set(set: &qosm_sdk::CpuSet) -> CpuSet {
    CpuSet { target: super::target(set.target), cpus: set.cpus.clone() }
}
