//! Conversion of the machine's CPUs to the contract's types.

use qosm_model::cpu_topology::{Cpu, CpuManager, CpuSet, CpuTopology, ExclusiveCpus};

use crate::bindings::qosm::policy::cpu_topology;

pub(crate) fn topology(topology: &CpuTopology) -> cpu_topology::Topology {
    let cpu = |cpu: &Cpu| cpu_topology::Cpu {
        id: cpu.id,
        core: cpu.core,
        socket: cpu.socket,
        numa_node: cpu.numa_node,
        online: cpu.online,
    };
    let exclusive = |own: &ExclusiveCpus| cpu_topology::Exclusive {
        container: own.container.map(|container| container.0),
        cpus: own.cpus.clone(),
    };
    cpu_topology::Topology {
        cpus: topology.cpus.iter().map(cpu).collect(),
        manager: match topology.manager {
            CpuManager::None => cpu_topology::Manager::None,
            CpuManager::Static => cpu_topology::Manager::Static,
            CpuManager::Unknown => cpu_topology::Manager::Unknown,
        },
        reserved: topology.reserved.clone(),
        exclusive: topology.exclusive.iter().map(exclusive).collect(),
    }
}

pub(crate) fn set(set: &CpuSet) -> Option<cpu_topology::CpuSet> {
    Some(cpu_topology::CpuSet { target: super::shown(set.target)?, cpus: set.cpus.clone() })
}
