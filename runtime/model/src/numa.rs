//! NUMA: the nodes of the machine, where the pages of containers lie, and moving them.
//!
//! A "node" in this module is a NUMA node, never the Kubernetes node.

use std::fmt;
use std::sync::Arc;

use crate::pod::ContainerId;
use crate::unit::{Bytes, Micros};

/// The kernel's number of a NUMA node, as in `/sys/devices/system/node/node<N>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NumaId(pub u32);

impl fmt::Display for NumaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its logical CPUs, ascending; empty for a memory expander.
    pub cpus: Vec<u32>,
    /// Memory on it; 0 for a node of CPUs alone.
    pub memory: Bytes,
    /// Unused part of it.
    pub free: Bytes,
    /// Of that, what could be used without swapping: free memory and page cache that was not used lately.
    pub available: Bytes,
    /// Distance to each node of the topology, in its order; 10 is itself (ACPI SLIT).
    pub distances: Vec<u32>,
}

/// All NUMA nodes that are online, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    nodes: Vec<(NumaId, NumaNode)>,
}

impl NumaTopology {
    /// Sorts the nodes by number.
    pub fn new(mut nodes: Vec<(NumaId, NumaNode)>) -> Self {
        nodes.sort_unstable_by_key(|(id, _)| *id);
        Self { nodes }
    }

    /// The nodes in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (NumaId, &NumaNode)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// One node.
    pub fn get(&self, id: NumaId) -> Option<&NumaNode> {
        self.nodes.iter().find(|(other, _)| *other == id).map(|(_, node)| node)
    }

    /// The nodes that have memory.
    pub fn with_memory(&self) -> impl Iterator<Item = (NumaId, &NumaNode)> {
        self.iter().filter(|(_, node)| node.memory.0 > 0)
    }

    /// Whether pages can lie in more than one place at all.
    pub fn is_one_place(&self) -> bool {
        self.with_memory().nth(1).is_none()
    }

    /// Distance between two nodes; the default of a remote one where the firmware has none.
    pub fn distance(&self, from: NumaId, to: NumaId) -> u32 {
        const LOCAL: u32 = 10;
        const REMOTE: u32 = 20;
        let place = self.nodes.iter().position(|(id, _)| *id == to);
        let distance = place.and_then(|place| self.get(from)?.distances.get(place).copied());
        distance.unwrap_or(if from == to { LOCAL } else { REMOTE })
    }

    /// The nodes that have one of these CPUs.
    pub fn of_cpus(&self, cpus: &[u32]) -> Vec<NumaId> {
        self.iter().filter(|(_, node)| node.cpus.iter().any(|cpu| cpus.contains(cpu))).map(|(id, _)| id).collect()
    }

    /// Where a page goes: of `targets` the nearest to the node that it lies on, of equally near ones that with most to give.
    pub fn nearest(&self, from: NumaId, targets: &[NumaId]) -> Option<NumaId> {
        targets
            .iter()
            .copied()
            .min_by_key(|&to| (self.distance(from, to), std::cmp::Reverse(self.get(to).map(|node| node.available)), to))
    }
}

/// Where one container may run, may have memory, and has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaSample {
    /// The container.
    pub container: ContainerId,
    /// Identifies its cgroup among all that had or will have the same name; it outlives the agent.
    pub identity: u64,
    /// Nodes that have one of the CPUs that it may run on.
    pub cpu_nodes: Vec<NumaId>,
    /// Nodes that it may have memory on (`cpuset.mems`).
    pub memory_nodes: Vec<NumaId>,
    /// Pages on each node that holds any.
    pub pages: Vec<(NumaId, u64)>,
}

impl NumaSample {
    /// Pages on nodes whose CPUs it may use, and all others.
    pub fn local_and_remote(&self) -> (u64, u64) {
        self.pages.iter().fold((0, 0), |(local, remote), (id, pages)| {
            if self.cpu_nodes.contains(id) { (local + pages, remote) } else { (local, remote.saturating_add(*pages)) }
        })
    }
}

/// The share of local pages in percent, rounded down; 100 where there are no pages.
pub fn local_percent(local: u64, remote: u64) -> u64 {
    let (local, all) = (u128::from(local), u128::from(local) + u128::from(remote));
    (local * 100).checked_div(all).map_or(100, |percent| u64::try_from(percent).unwrap_or(100))
}

/// What was read of NUMA in one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaColumn {
    /// The machine.
    pub topology: NumaTopology,
    /// The containers, by id.
    pub samples: Vec<NumaSample>,
}

/// A request to move a container's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The container.
    pub container: ContainerId,
    /// From these nodes.
    pub from: Vec<NumaId>,
    /// To these.
    pub to: Vec<NumaId>,
    /// The policy's own number of this request; progress carries it.
    pub token: u64,
    /// Why, in the policy's words.
    pub reason: Arc<str>,
}

/// Where a migration stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MigrationState {
    /// Another container's is under way.
    #[default]
    Waiting,
    /// Pages are being moved.
    Moving,
    /// It waits for the memory pressure of the node to cease.
    Paused,
    /// Every page that was in the wrong place was tried once.
    Done,
    /// No process could be worked on, or there was none.
    Failed,
    /// It was called off.
    Stopped,
}

impl MigrationState {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Waiting, Self::Moving, Self::Paused, Self::Done, Self::Failed, Self::Stopped];

    /// The word for it in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Moving => "moving",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// Whether nothing more will happen.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}

/// A process whose pages could not be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFailure {
    /// The process, as the agent's PID namespace numbers it.
    pub pid: u32,
    /// The kernel's error, e.g. `No such process`.
    pub error: String,
}

/// How far a migration has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationProgress {
    /// Number of the request.
    pub token: u64,
    /// Where it stands.
    pub state: MigrationState,
    /// Processes that there were.
    pub processes: u64,
    /// Those of them that were worked on to the end.
    pub processes_done: u64,
    /// Pages that lay on the wrong node when the process was scanned.
    pub pages_found: u64,
    /// Pages that lie on the right node now.
    pub pages_moved: u64,
    /// Pages that stay, by the kernel's error: `EBUSY`, `EACCES`, `ENOMEM`, …
    pub pages_failed: Vec<(&'static str, u64)>,
    /// Pages that were not tried because the target had no room for them.
    pub pages_without_room: u64,
    /// Processes that could not be worked on.
    pub failures: Vec<ProcessFailure>,
    /// How many of those processes ended meanwhile.
    pub processes_gone: u64,
    /// Time spent on moving, without the pauses.
    pub busy: Micros,
    /// Why it failed, or waits; empty otherwise.
    pub why: String,
}

/// CPUs or nodes as the kernel lists them, such as `0-3,8`; ascending numbers are asked for.
pub fn list_text(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let words = ranges.into_iter().map(
        |(first, last)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        },
    );
    words.collect::<Vec<_>>().join(",")
}

/// A container's migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationSample {
    /// The container.
    pub container: ContainerId,
    /// How far it has come.
    pub progress: MigrationProgress,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> NumaTopology {
        let node = |cpus: &[u32], available: u64, distances: &[u32]| NumaNode {
            cpus: cpus.to_vec(),
            memory: Bytes(1 << 30),
            available: Bytes(available),
            distances: distances.to_vec(),
            ..NumaNode::default()
        };
        NumaTopology::new(vec![
            (NumaId(4), node(&[], 9, &[20, 17, 10])),
            (NumaId(0), node(&[0, 1], 5, &[10, 20, 20])),
            (NumaId(1), node(&[2, 3], 7, &[20, 10, 17])),
        ])
    }

    #[test]
    fn a_page_goes_to_the_nearest_node_and_among_equals_where_most_is_to_be_had() {
        for (from, targets, expected) in [
            (4, &[0, 1][..], Some(1)),
            (0, &[1, 4][..], Some(4)),
            (1, &[0][..], Some(0)),
            (9, &[0, 1][..], Some(1)),
            (0, &[][..], None),
        ] {
            let targets: Vec<_> = targets.iter().map(|&id| NumaId(id)).collect();
            assert_eq!(topology().nearest(NumaId(from), &targets), expected.map(NumaId), "{from} {targets:?}");
        }
    }

    #[test]
    fn nodes_are_those_of_the_cpus() {
        assert_eq!(topology().of_cpus(&[1, 2]), [NumaId(0), NumaId(1)]);
        assert_eq!(topology().of_cpus(&[3, 9]), [NumaId(1)]);
        assert_eq!(topology().of_cpus(&[]), []);
    }

    #[test]
    fn lists_are_written_as_the_kernel_writes_them() {
        for (numbers, text) in [
            (&[][..], ""),
            (&[3], "3"),
            (&[0, 1], "0-1"),
            (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8"),
            (&[u32::MAX], "4294967295"),
        ] {
            assert_eq!(list_text(numbers.iter().copied()), text);
        }
    }

    #[test]
    fn the_local_share_is_rounded_down() {
        for (local, remote, percent) in [(0, 0, 100), (1, 0, 100), (0, 1, 0), (995, 5, 99), (43, 57, 43), (1, 2, 33)] {
            assert_eq!(local_percent(local, remote), percent, "{local} {remote}");
        }
        assert_eq!(local_percent(u64::MAX, u64::MAX), 50);
    }
}
