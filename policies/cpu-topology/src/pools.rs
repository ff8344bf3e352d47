//! The CPUs that pods share: those of latency-sensitive pods, and those of batch pods, by NUMA node.
//!
//! Source: koordinator `pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go`.

use std::collections::BTreeMap;

use cpu_sets::{Cpu, CpuSet};

/// What is taken from the CPUs that pods share.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// CPUs that the kubelet gave to containers alone, of pods that this policy does not place.
    pub by_kubelet: CpuSet,
    /// CPUs of pods that are pinned and let batch pods run on them (LSR).
    pub shared_with_batch: CpuSet,
    /// CPUs of pods that share them with nobody (LSE).
    pub exclusive: CpuSet,
    /// CPUs that are kept from pods.
    pub reserved: CpuSet,
    /// CPUs that the class SYSTEM has for itself.
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
    /// Those of a machine.
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

/// All CPUs of a pool, or those of some NUMA nodes.
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
