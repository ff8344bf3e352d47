//! A node's CPUs and memory in its report. The controller makes a NodeResourceTopology from them, for schedulers that choose CPUs.

use std::collections::BTreeMap;

use qosm_model::cpu_topology::Cpu;
use qosm_model::cpus::CpuSet;
use qosm_model::numa::list_text;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of pods with exclusive CPUs in a report.
pub const MAX_EXCLUSIVE: usize = 256;

/// The node's CPUs and memory by NUMA node, and the CPUs that the kubelet has assigned exclusively.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedTopology {
    /// NUMA nodes, by number.
    #[schemars(length(max = 64))]
    pub numa_nodes: Vec<ReportedNumaNode>,
    /// The policy of the kubelet's CPU manager, `none` or `static`; `unknown` if the agent cannot see it.
    pub cpu_manager: String,
    /// CPUs that no pod may use, as a list in the kernel's format: `0-1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reserved: String,
    /// Pods with CPUs that the kubelet assigned exclusively to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub exclusive: Vec<ReportedExclusiveCpus>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedNumaNode {
    /// Number of the NUMA node.
    pub id: u32,
    /// Memory of the NUMA node, in bytes.
    pub memory_bytes: u64,
    /// Online CPUs of the NUMA node.
    pub cores: Vec<ReportedCores>,
}

/// Cores of one socket with the same number of hardware threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedCores {
    /// Number of the socket.
    pub socket: u32,
    /// Logical CPUs as lists in the kernel's format: the first thread of each core, then the second of each in the same order:
    /// `["0-31", "64-95"]`.
    pub threads: Vec<String>,
}

/// A pod with exclusive CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedExclusiveCpus {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// UID of the pod.
    pub uid: String,
    /// Exclusive CPUs, as a list in the kernel's format.
    pub cpus: String,
}

impl ReportedNumaNode {
    /// The NUMA node with this number, and those of `cpus` that are on it and online.
    pub fn of(id: u32, memory_bytes: u64, cpus: &[Cpu]) -> Self {
        let mut cores: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for cpu in cpus.iter().filter(|cpu| cpu.online && cpu.numa_node == id) {
            cores.entry((cpu.socket, cpu.core)).or_default().push(cpu.id);
        }
        let mut cores: Vec<(u32, Vec<u32>)> = cores.into_iter().map(|((socket, _), cpus)| (socket, cpus)).collect();
        cores.iter_mut().for_each(|(_, threads)| threads.sort_unstable());
        cores.sort_by_key(|(socket, threads)| (*socket, threads.len(), threads.first().copied()));
        let mut groups: Vec<(u32, Vec<Vec<u32>>)> = Vec::new();
        for (socket, threads) in cores {
            // CPU lists are ascending: a core starts a new group unless each of its threads comes after those of the cores before it.
            let follows = |(of, lists): &&mut (u32, Vec<Vec<u32>>)| {
                *of == socket
                    && lists.len() == threads.len()
                    && lists.iter().zip(&threads).all(|(list, thread)| list.last() < Some(thread))
            };
            match groups.last_mut().filter(follows) {
                Some((_, lists)) => lists.iter_mut().zip(threads).for_each(|(list, thread)| list.push(thread)),
                None => groups.push((socket, threads.into_iter().map(|thread| vec![thread]).collect())),
            }
        }
        let cores = groups
            .into_iter()
            .map(|(socket, lists)| ReportedCores { socket, threads: lists.into_iter().map(list_text).collect() });
        Self { id, memory_bytes, cores: cores.collect() }
    }
}

impl ReportedTopology {
    /// The CPUs by id. Cores get new numbers, unique in the machine.
    ///
    /// # Errors
    ///
    /// The inconsistency, and the field.
    pub fn cpus(&self) -> Result<Vec<Cpu>, String> {
        let mut cpus: BTreeMap<u32, Cpu> = BTreeMap::new();
        let mut core = 0;
        for (numa, node) in self.numa_nodes.iter().enumerate() {
            for (place, group) in node.cores.iter().enumerate() {
                let at = || format!("topology.numaNodes[{numa}].cores[{place}].threads");
                let lists: Vec<Vec<u32>> = (group.threads.iter())
                    .map(|text| text.parse::<CpuSet>().map(|set| set.iter().collect()))
                    .collect::<Result<_, _>>()
                    .map_err(|error| format!("{}: {error}", at()))?;
                let of_each = lists.first().map_or(0, Vec::len);
                if lists.iter().any(|list| list.len() != of_each) {
                    return Err(format!("{}: the lists have not as many CPUs each", at()));
                }
                for (thread, id) in lists.iter().flat_map(|list| list.iter().enumerate()) {
                    let thread = u32::try_from(thread).unwrap_or(u32::MAX);
                    let cpu =
                        Cpu { id: *id, core: core + thread, socket: group.socket, numa_node: node.id, online: true };
                    if cpus.insert(*id, cpu).is_some() {
                        return Err(format!("{}: CPU {id} is there more than once", at()));
                    }
                }
                core += u32::try_from(of_each).unwrap_or(u32::MAX);
            }
        }
        Ok(cpus.into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu(id: u32, core: u32, socket: u32, numa_node: u32) -> Cpu {
        Cpu { id, core, socket, numa_node, online: true }
    }

    fn threads(node: &ReportedNumaNode) -> Vec<(u32, Vec<&str>)> {
        node.cores.iter().map(|group| (group.socket, group.threads.iter().map(String::as_str).collect())).collect()
    }

    #[test]
    fn cores_with_as_many_threads_are_one_line() {
        // Two sockets with two cores of two threads each, as Linux numbers them: second threads come last.
        let cpus: Vec<Cpu> = (0..8).map(|id| cpu(id, id % 4, id % 4 / 2, id % 4 / 2)).collect();
        let [first, second] = [0, 1].map(|id| ReportedNumaNode::of(id, 1 << 30, &cpus));
        assert_eq!(threads(&first), [(0, vec!["0-1", "4-5"])]);
        assert_eq!(threads(&second), [(1, vec!["2-3", "6-7"])]);
        let topology = ReportedTopology { numa_nodes: vec![first, second], ..ReportedTopology::default() };
        assert_eq!(topology.cpus().unwrap(), cpus);
    }

    #[test]
    fn a_core_with_fewer_threads_stands_for_itself() {
        let mut cpus = [cpu(0, 0, 0, 0), cpu(1, 0, 0, 0), cpu(2, 1, 0, 0), cpu(3, 1, 0, 0)];
        assert_eq!(threads(&ReportedNumaNode::of(0, 0, &cpus)), [(0, vec!["0,2", "1,3"])]);
        cpus[3].online = false;
        assert_eq!(threads(&ReportedNumaNode::of(0, 0, &cpus)), [(0, vec!["2"]), (0, vec!["0", "1"])]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let of = |threads: &[&str]| {
            let threads = threads.iter().map(ToString::to_string).collect();
            let cores = vec![ReportedCores { socket: 0, threads }];
            let node = ReportedNumaNode { id: 0, memory_bytes: 0, cores };
            ReportedTopology { numa_nodes: vec![node], ..ReportedTopology::default() }.cpus().unwrap_err()
        };
        assert!(of(&["0-4294967295"]).starts_with("topology.numaNodes[0].cores[0].threads: `0-4294967295` is no list"));
        assert!(of(&["0-3", "4-5"]).ends_with("the lists have not as many CPUs each"));
        assert!(of(&["0-3", "3-6"]).ends_with("CPU 3 is there more than once"));
    }

    proptest! {
        #[test]
        fn who_is_on_a_core_with_whom_is_kept(
            cores in proptest::collection::vec((0..3_u32, 0..3_u32, 1..4_usize), 1..40), order in any::<u64>(),
        ) {
            // CPUs of any order over cores of any shape.
            let total: usize = cores.iter().map(|(.., threads)| *threads).sum();
            let mut ids: Vec<u32> = (0..u32::try_from(total).unwrap()).collect();
            ids.sort_by_key(|id| (u64::from(*id) + 1).wrapping_mul(order | 1) >> 7);
            let mut ids = ids.into_iter();
            let mut cpus = Vec::new();
            for (core, (socket, numa_node, threads)) in cores.iter().enumerate() {
                let core = u32::try_from(core).unwrap();
                cpus.extend(ids.by_ref().take(*threads).map(|id| cpu(id, core, *socket, *numa_node)));
            }
            cpus.sort_by_key(|cpu| cpu.id);
            let numa_nodes = (0..3).map(|id| ReportedNumaNode::of(id, 0, &cpus)).collect();
            let read = ReportedTopology { numa_nodes, ..ReportedTopology::default() }.cpus().unwrap();
            prop_assert_eq!(read.len(), cpus.len());
            for (one, other) in read.iter().zip(&cpus) {
                prop_assert_eq!((one.id, one.socket, one.numa_node), (other.id, other.socket, other.numa_node));
                let mates = |all: &[Cpu], of: u32| -> Vec<u32> {
                    all.iter().filter(|cpu| cpu.core == of).map(|cpu| cpu.id).collect()
                };
                prop_assert_eq!(mates(&read, one.core), mates(&cpus, other.core));
            }
        }
    }
}
