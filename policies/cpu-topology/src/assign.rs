//! Assigns CPUs to each pod: the first rule that matches decides.
//!
//! Source: koordinator `pkg/koordlet/runtimehooks/hooks/cpuset/rule.go`.

use std::collections::BTreeMap;
use std::fmt;

use cpu_sets::CpuSet;
use qosm_sdk::{CpuManager, KubeQos, PodId, QosClass};

use crate::placement::Pin;
use crate::pools::{Pools, of_nodes};

/// The facts about a pod that decide its CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// The QoS class that the pod declares.
    pub class: Option<QosClass>,
    /// Whether the pod is BestEffort (no requests and no limits).
    pub is_best_effort: bool,
    /// NUMA nodes that the scheduler chose for the pod; empty if it chose none.
    pub nodes: Vec<u32>,
    /// Whether the kubelet gave exclusive CPUs to one of the pod's containers.
    pub is_the_kubelets: bool,
}

impl Pod {
    /// A pod of this class and Kubernetes QoS, without NUMA nodes or CPUs of the kubelet.
    pub fn new(class: Option<QosClass>, kube_qos: KubeQos) -> Self {
        Self { class, is_best_effort: kube_qos == KubeQos::BestEffort, ..Self::default() }
    }

    /// Whether the pod's class is BE.
    pub fn is_batch(&self) -> bool {
        self.class == Some(QosClass::Be)
    }
}

/// The facts about the node that apply to all pods.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// CPUs that are online.
    pub online: CpuSet,
    /// CPUs that pods share.
    pub pools: Pools,
    /// CPUs of the class SYSTEM; empty if there are none.
    pub system: CpuSet,
    /// Policy of the kubelet's CPU manager; `None` if unknown.
    pub manager: Option<Manager>,
    /// Whether this policy places batch pods on the CPUs of the NUMA nodes that the scheduler chose for them.
    pub be_cpu_manager: bool,
    /// Whether pods that are not pinned are restricted to the shared CPUs.
    pub holds_pools: bool,
}

/// Policy of the kubelet's CPU manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// The kubelet does not assign CPUs.
    None,
    /// The kubelet assigns exclusive CPUs to containers.
    Static,
}

impl Manager {
    /// Converts the host's value; `None` if the host does not know the policy.
    pub fn of(manager: CpuManager) -> Option<Self> {
        match manager {
            CpuManager::None => Some(Self::None),
            CpuManager::Static => Some(Self::Static),
            CpuManager::Unknown => None,
        }
    }
}

/// The CPUs that a pod's containers run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// CPUs that the pod is pinned to.
    Pinned(CpuSet),
    /// A share of the node's CPUs.
    Shared(CpuSet, Share),
    /// A share without any CPU left: the pod keeps the CPUs that it has.
    Nothing(Share),
    /// This policy sets no CPUs for the pod.
    Left,
}

/// A share of the node's CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// CPUs of the class SYSTEM.
    System,
    /// Shared CPUs of latency-sensitive pods, on these NUMA nodes; empty means on all.
    LatencySensitive(Vec<u32>),
    /// Shared CPUs of batch pods, on these NUMA nodes.
    Batch(Vec<u32>),
    /// Online CPUs among those that the scheduler chose.
    Given,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = |f: &mut fmt::Formatter<'_>, nodes: &[u32]| match nodes {
            [] => Ok(()),
            nodes => {
                let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
                write!(f, " of NUMA node {}", list.join(" and "))
            }
        };
        match self {
            Self::System => f.write_str("CPUs of the class SYSTEM"),
            Self::Given => f.write_str("CPUs of the scheduler's choice that are online"),
            Self::LatencySensitive(on) => {
                f.write_str("shared CPUs of latency-sensitive pods").and_then(|()| nodes(f, on))
            }
            Self::Batch(on) => f.write_str("shared CPUs of batch pods").and_then(|()| nodes(f, on)),
        }
    }
}

/// Decides which CPUs a pod's containers run on.
pub fn assign(pod: &Pod, pin: Option<&Pin>, node: &Node) -> Assigned {
    match pin {
        Some(Pin::Given(cpus)) => {
            let online: CpuSet = cpus.iter().filter(|cpu| node.online.contains(*cpu)).collect();
            return if online.is_empty() { Assigned::Nothing(Share::Given) } else { Assigned::Pinned(online) };
        }
        Some(Pin::Chosen(cpus)) => return Assigned::Pinned(cpus.clone()),
        Some(Pin::None(_)) | None => {}
    }
    let share = match pod.class {
        // The kubelet rewrites its choice every ten seconds, so this policy does not compete with it.
        _ if pod.is_the_kubelets => return Assigned::Left,
        _ if !pod.nodes.is_empty() && pod.is_batch() => {
            if !node.be_cpu_manager {
                return Assigned::Left;
            }
            Share::Batch(pod.nodes.clone())
        }
        _ if !pod.nodes.is_empty() => Share::LatencySensitive(pod.nodes.clone()),
        _ if !node.holds_pools => return Assigned::Left,
        Some(QosClass::System) if !node.system.is_empty() => Share::System,
        Some(QosClass::Ls) => Share::LatencySensitive(Vec::new()),
        _ if pod.is_best_effort || pod.is_batch() => return Assigned::Left,
        // Under the static policy, the kubelet writes the cpusets of these pods; if its state file cannot be read, the policy is unknown.
        _ if node.manager != Some(Manager::None) => return Assigned::Left,
        _ => Share::LatencySensitive(Vec::new()),
    };
    let cpus = match &share {
        Share::System => node.system.iter().filter(|cpu| node.online.contains(*cpu)).collect(),
        Share::LatencySensitive(nodes) => of_nodes(&node.pools.ls, some(nodes)),
        Share::Batch(nodes) => of_nodes(&node.pools.be, some(nodes)),
        Share::Given => CpuSet::default(),
    };
    if cpus.is_empty() {
        return Assigned::Nothing(share);
    }
    // The share is the whole node, so there is nothing to hold.
    if cpus == node.online { Assigned::Left } else { Assigned::Shared(cpus, share) }
}

fn some(nodes: &[u32]) -> Option<&[u32]> {
    Some(nodes).filter(|nodes| !nodes.is_empty())
}

/// CPUs of pinned pods: first those that batch pods may use as well (LSR), then those that no other pod may use (LSE).
pub fn pinned(pods: &BTreeMap<PodId, Pod>, pins: &BTreeMap<PodId, Pin>) -> (CpuSet, CpuSet) {
    let (mut shared, mut exclusive) = (CpuSet::default(), CpuSet::default());
    for (id, pin) in pins {
        let Some(cpus) = pin.cpus() else { continue };
        let is_alone = pods.get(id).is_some_and(|pod| pod.class == Some(QosClass::Lse));
        if is_alone { &mut exclusive } else { &mut shared }.extend(cpus.iter());
    }
    (shared, exclusive)
}

#[cfg(test)]
mod tests {
    use cpu_sets::pick::machine;

    use super::*;
    use crate::pools::Taken;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    /// Pools of CPUs 0-7 on node 0 and 8-15 on node 1, less the `reserved` ones.
    fn node(manager: Manager, reserved: &str) -> Node {
        let cpus = machine(2, 4, 2);
        Node {
            online: cpus.iter().map(|cpu| cpu.id).collect(),
            pools: Pools::of(&cpus, &Taken { reserved: set(reserved), ..Taken::default() }),
            system: CpuSet::default(),
            manager: Some(manager),
            be_cpu_manager: true,
            holds_pools: true,
        }
    }

    fn shown(pod: &Pod, pin: Option<&Pin>, node: &Node) -> String {
        match assign(pod, pin, node) {
            Assigned::Pinned(cpus) => format!("pinned {cpus}"),
            Assigned::Shared(cpus, share) => format!("{cpus}: {share}"),
            Assigned::Nothing(share) => format!("nothing: {share}"),
            Assigned::Left => "left".to_owned(),
        }
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let burstable = |class| Pod::new(class, KubeQos::Burstable);
        let on = |class, nodes: &[u32]| Pod { nodes: nodes.to_vec(), ..burstable(class) };
        let (none, fixed) = (node(Manager::None, "0"), node(Manager::Static, "0"));
        let given = Pin::Given(set("4-5"));
        for (pod, pin, node, expected) in [
            (burstable(Some(QosClass::Be)), Some(&given), &none, "pinned 4-5"),
            (on(Some(QosClass::Ls), &[0]), None, &none, "1-7: shared CPUs of latency-sensitive pods of NUMA node 0"),
            (on(None, &[1, 0]), None, &none, "1-15: shared CPUs of latency-sensitive pods of NUMA node 1 and 0"),
            (on(Some(QosClass::Be), &[1]), None, &none, "8-15: shared CPUs of batch pods of NUMA node 1"),
            (burstable(Some(QosClass::Ls)), None, &none, "1-15: shared CPUs of latency-sensitive pods"),
            (burstable(Some(QosClass::Ls)), None, &fixed, "1-15: shared CPUs of latency-sensitive pods"),
            (burstable(Some(QosClass::Be)), None, &none, "left"),
            (Pod::new(None, KubeQos::BestEffort), None, &none, "left"),
            (burstable(None), None, &fixed, "left"),
            (burstable(None), None, &none, "1-15: shared CPUs of latency-sensitive pods"),
            // If no CPUs are configured for the class SYSTEM, its pods share CPUs as others do.
            (burstable(Some(QosClass::System)), None, &none, "1-15: shared CPUs of latency-sensitive pods"),
            (Pod { is_the_kubelets: true, ..burstable(Some(QosClass::Ls)) }, None, &fixed, "left"),
            (Pod { is_the_kubelets: true, ..on(None, &[1]) }, None, &fixed, "left"),
            (Pod { is_the_kubelets: true, ..on(None, &[1]) }, Some(&given), &fixed, "pinned 4-5"),
        ] {
            assert_eq!(shown(&pod, pin, node), expected, "{pod:?}");
        }
    }

    #[test]
    fn what_holds_nothing_back_is_left() {
        let pod = Pod::new(Some(QosClass::Ls), KubeQos::Burstable);
        assert_eq!(shown(&pod, None, &node(Manager::None, "")), "left", "all CPUs are shared");
        let off = Node { holds_pools: false, ..node(Manager::None, "0") };
        assert_eq!(shown(&pod, None, &off), "left");
        let bound = Pod { nodes: vec![0], ..pod.clone() };
        assert_eq!(shown(&bound, None, &off), "1-7: shared CPUs of latency-sensitive pods of NUMA node 0");
        let unknown = Node { manager: None, ..node(Manager::None, "0") };
        assert_eq!(shown(&Pod::new(None, KubeQos::Burstable), None, &unknown), "left");
        let batch = Pod { nodes: vec![0], ..Pod::new(Some(QosClass::Be), KubeQos::BestEffort) };
        assert_eq!(shown(&batch, None, &Node { be_cpu_manager: false, ..node(Manager::None, "") }), "left");
    }

    #[test]
    fn a_pool_without_cpus_is_no_set() {
        let node = Node { system: set("40"), ..node(Manager::None, "0-7") };
        let ls = Pod { nodes: vec![0], ..Pod::new(Some(QosClass::Ls), KubeQos::Burstable) };
        assert_eq!(shown(&ls, None, &node), "nothing: shared CPUs of latency-sensitive pods of NUMA node 0");
        let system = Pod::new(Some(QosClass::System), KubeQos::Burstable);
        assert_eq!(shown(&system, None, &node), "nothing: CPUs of the class SYSTEM");
        let given = Pin::Given(set("40-41"));
        assert_eq!(shown(&system, Some(&given), &node), "nothing: CPUs of the scheduler's choice that are online");
        let partly = Pin::Given(set("14-41"));
        assert_eq!(shown(&system, Some(&partly), &node), "pinned 14-15");
    }

    #[test]
    fn lse_shares_its_cpus_with_nobody() {
        let pods = [(1, QosClass::Lse), (2, QosClass::Lsr)]
            .map(|(id, class)| (id, Pod::new(Some(class), KubeQos::Guaranteed)));
        let pins = BTreeMap::from([(1, Pin::Given(set("0-1"))), (2, Pin::Chosen(set("2"))), (3, Pin::Given(set("3")))]);
        assert_eq!(pinned(&pods.into(), &pins), (set("2-3"), set("0-1")));
    }
}
