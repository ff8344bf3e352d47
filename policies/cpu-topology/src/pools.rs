//! The CPUs that pods share, by NUMA node: one pool for latency-sensitive pods, one for batch pods.
//!
//! Source: koordinator `pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go`.

use std::collections::BTreeMap;

use cpu_sets::{Cpu, CpuSet};

/// CPUs that are not shared, or not by all pods.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// CPUs that the kubelet gave to containers exclusively, if this policy does not place their pods.
    pub by_kubelet: CpuSet,
    /// CPUs of pinned pods that batch pods may use as well (LSR).
    pub shared_with_batch: CpuSet,
    /// CPUs of pinned pods that no other pod may use (LSE).
    pub exclusive: CpuSet,
    /// CPUs that are kept from pods.
    pub reserved: CpuSet,
    /// CPUs that are exclusive to the class SYSTEM.
    pub system: CpuSet,
}

/// The shared CPUs, by NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// For latency-sensitive pods.
    pub ls: BTreeMap<u32, CpuSet>,
    /// For batch pods.
    pub be: BTreeMap<u32, CpuSet>,
}

impl Pools {
    /// Computes the pools of a machine.
    pub fn of(machine: &[Cpu], taken: &Taken) -> Self {
        let nobodys = |cpu: &&Cpu| {
            ![&taken.by_kubelet, &taken.exclusive, &taken.reserved, &taken.system]
                .iter()
                .any(|set| set.contains(cpu.id))
        };
        let mut pools = Self::default();
        for cpu in machine.iter().filter(nobodys) {
            pools.be.entry(cpu.node).or_default().extend([cpu.id]);
            if !taken.shared_with_batch.contains(cpu.id) {
                pools.ls.entry(cpu.node).or_default().extend([cpu.id]);
            }
        }
        pools
    }
}

/// The CPUs of a pool on these NUMA nodes; `None` means on all nodes.
pub fn of_nodes(pool: &BTreeMap<u32, CpuSet>, nodes: Option<&[u32]>) -> CpuSet {
    let is_meant = |node: &u32| nodes.is_none_or(|nodes| nodes.contains(node));
    pool.iter().filter(|(node, _)| is_meant(node)).flat_map(|(_, cpus)| cpus.iter()).collect()
}

#[cfg(test)]
mod tests {
    use cpu_sets::pick::machine;

    use super::*;

    #[test]
    fn batch_pods_run_where_pods_are_pinned_that_share() {
        let set = |text: &str| CpuSet::parse(text).unwrap();
        let taken = Taken {
            by_kubelet: set("0"),
            shared_with_batch: set("2-3"),
            exclusive: set("8-9"),
            reserved: set("1"),
            system: set("15"),
        };
        let pools = Pools::of(&machine(2, 4, 2), &taken);
        let shown = |pool, nodes| of_nodes(pool, nodes).to_string();
        assert_eq!((shown(&pools.ls, None), shown(&pools.be, None)), ("4-7,10-14".into(), "2-7,10-14".into()));
        assert_eq!((shown(&pools.ls, Some(&[0])), shown(&pools.be, Some(&[1]))), ("4-7".into(), "10-14".into()));
        assert_eq!(shown(&pools.ls, Some(&[7])), "");
    }
}
