//! Keeps new pages local: a container whose pages were moved is bound to its local nodes (`cpuset.mems`) as long as they have memory
//! available. A bound that fills up ends in reclaim and the OOM killer, so it is released long before.

use std::collections::BTreeMap;

use qosm_sdk::{ContainerId, Cpuset, NumaNode};

use crate::nodes::list;
use crate::protocol::Settings;

/// The containers of one pod that are bound to NUMA nodes, with these nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keep {
    bound: BTreeMap<ContainerId, Vec<u32>>,
}

/// Nodes with this number or a higher one cannot be bound to.
const NODES: u32 = 63;

impl Keep {
    /// Whether no container is bound.
    pub(crate) fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// Drops containers that are gone; their cgroups, and so the bounds, are gone as well.
    pub(crate) fn retain(&mut self, is_there: impl Fn(ContainerId) -> bool) {
        self.bound.retain(|&container, _| is_there(container));
    }

    /// Releases containers whose local nodes have changed; `local` returns the current ones. Returns whether there were any: `cpuset.mems`
    /// as last read still shows the nodes that they were bound to.
    pub(crate) fn follow(&mut self, local: impl Fn(ContainerId) -> Option<Vec<u32>>) -> bool {
        let before = self.bound.len();
        self.bound.retain(|&container, nodes| local(container).is_none_or(|now| now == *nodes));
        self.bound.len() < before
    }

    /// Releases containers whose nodes have little memory available.
    pub(crate) fn make_room(&mut self, nodes: &[NumaNode], settings: &Settings) {
        let least = settings.keep_local_reserve_percent.saturating_mul(10);
        self.bound.retain(|_, bound| permille(nodes, bound) >= least);
    }

    /// Binds a container to its local nodes if they have plenty of memory available.
    pub(crate) fn bind(&mut self, container: ContainerId, local: &[u32], nodes: &[NumaNode], settings: &Settings) {
        let plenty = permille(nodes, local) > settings.keep_local_reserve_percent.saturating_mul(15);
        if plenty && local.iter().all(|&id| id < NODES) {
            self.bound.entry(container).or_insert_with(|| local.to_vec());
        }
    }

    /// Releases all containers.
    pub(crate) fn release(&mut self) {
        self.bound.clear();
    }

    /// Declares the nodes of each bound container.
    pub(crate) fn declare(&self, host: &mut impl Cpuset) {
        for (&container, nodes) in &self.bound {
            let reason = format!("its pages are on its local numa {}, and new ones are to stay there", list(nodes));
            host.set_memory_nodes(container, nodes, &reason);
        }
    }
}

/// Available memory of some nodes, in thousandths of their memory.
fn permille(nodes: &[NumaNode], of: &[u32]) -> u64 {
    let there = || nodes.iter().filter(|node| of.contains(&node.id));
    let sum = |of: fn(&NumaNode) -> u64| there().fold(0_u128, |sum, node| sum + u128::from(of(node)));
    let share = (sum(|node| node.available_bytes) * 1000).checked_div(sum(|node| node.memory_bytes));
    share.and_then(|share| u64::try_from(share).ok()).unwrap_or(0)
}
