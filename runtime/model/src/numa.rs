//! NUMA: the machine's NUMA nodes, the location of containers' pages, and their migration.
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
    /// Memory on the node; 0 if it has only CPUs.
    pub memory: Bytes,
    /// Unused part of it.
    pub free: Bytes,
    /// Memory that can be used without swapping: free memory and page cache that was not used recently.
    pub available: Bytes,
    /// Distance to each node, in the order of the topology; 10 is the node itself (ACPI SLIT).
    pub distances: Vec<u32>,
}

/// All online NUMA nodes, ordered by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaTopology {
    nodes: Vec<(NumaId, NumaNode)>,
}

impl NumaTopology {
    /// A topology of these nodes, which are sorted by number.
    pub fn new(mut nodes: Vec<(NumaId, NumaNode)>) -> Self {
        nodes.sort_unstable_by_key(|(id, _)| *id);
        Self { nodes }
    }

    /// The nodes in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (NumaId, &NumaNode)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// The node with this number.
    pub fn get(&self, id: NumaId) -> Option<&NumaNode> {
        self.nodes.iter().find(|(other, _)| *other == id).map(|(_, node)| node)
    }

    /// The nodes that have memory.
    pub fn with_memory(&self) -> impl Iterator<Item = (NumaId, &NumaNode)> {
        self.iter().filter(|(_, node)| node.memory.0 > 0)
    }

    /// Whether at most one node has memory, so that pages cannot be misplaced.
    pub fn is_one_place(&self) -> bool {
        self.with_memory().nth(1).is_none()
    }

    /// Distance between two nodes; a default of 10 (same node) or 20 if the firmware has none.
    pub fn distance(&self, from: NumaId, to: NumaId) -> u32 {
        const LOCAL: u32 = 10;
        const REMOTE: u32 = 20;
        let place = self.nodes.iter().position(|(id, _)| *id == to);
        let distance = place.and_then(|place| self.get(from)?.distances.get(place).copied());
        distance.unwrap_or(if from == to { LOCAL } else { REMOTE })
    }

    /// The nodes that have at least one of these CPUs.
    pub fn of_cpus(&self, cpus: &[u32]) -> Vec<NumaId> {
        self.iter().filter(|(_, node)| node.cpus.iter().any(|cpu| cpus.contains(cpu))).map(|(id, _)| id).collect()
    }

    /// The target of a page: the node of `targets` that is nearest to the page's node; among equally near ones that with
    /// the most available memory.
    pub fn nearest(&self, from: NumaId, targets: &[NumaId]) -> Option<NumaId> {
        targets
            .iter()
            .copied()
            .min_by_key(|&to| (self.distance(from, to), std::cmp::Reverse(self.get(to).map(|node| node.available)), to))
    }
}

/// Where one container may run, where it may have memory, and where its memory lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaSample {
    /// The container.
    pub container: ContainerId,
    /// Identifies its cgroup among all that ever have the same name; stable across restarts of the agent.
    pub identity: u64,
    /// Nodes with at least one CPU on which the container may run.
    pub cpu_nodes: Vec<NumaId>,
    /// Nodes on which the container may have memory (`cpuset.mems`).
    pub memory_nodes: Vec<NumaId>,
    /// Number of pages on each node that holds any.
    pub pages: Vec<(NumaId, u64)>,
}

impl NumaSample {
    /// Number of pages on nodes whose CPUs the container may use, and on other nodes.
    pub fn local_and_remote(&self) -> (u64, u64) {
        self.pages.iter().fold((0, 0), |(local, remote), (id, pages)| {
            if self.cpu_nodes.contains(id) { (local + pages, remote) } else { (local, remote.saturating_add(*pages)) }
        })
    }
}

/// The share of local pages in percent, rounded down; 100 if there are no pages.
pub fn local_percent(local: u64, remote: u64) -> u64 {
    let (local, all) = (u128::from(local), u128::from(local) + u128::from(remote));
    (local * 100).checked_div(all).map_or(100, |percent| u64::try_from(percent).unwrap_or(100))
}

/// The NUMA measurements of one tick.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaColumn {
    /// The machine's NUMA nodes.
    pub topology: NumaTopology,
    /// The containers, ordered by id.
    pub samples: Vec<NumaSample>,
}

/// A request to move a container's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The container.
    pub container: ContainerId,
    /// Nodes from which pages are moved.
    pub from: Vec<NumaId>,
    /// Nodes to which pages are moved.
    pub to: Vec<NumaId>,
    /// The policy's number for this request, which its progress repeats.
    pub token: u64,
    /// The policy's reason.
    pub reason: Arc<str>,
}

/// The state of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MigrationState {
    /// It waits while another container is migrated.
    #[default]
    Waiting,
    /// Pages are being moved.
    Moving,
    /// It waits until the node's memory pressure ends.
    Paused,
    /// Every page on a wrong node was tried once.
    Done,
    /// No process could be migrated, or the container has none.
    Failed,
    /// It was cancelled.
    Stopped,
}

impl MigrationState {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Waiting, Self::Moving, Self::Paused, Self::Done, Self::Failed, Self::Stopped];

    /// The name of the state in reports.
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

    /// Whether the migration has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Stopped)
    }
}

/// A process whose pages could not be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFailure {
    /// The process's number in the agent's PID namespace.
    pub pid: u32,
    /// The kernel's error, e.g. `No such process`.
    pub error: String,
}

/// Progress of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigrationProgress {
    /// The policy's number of the request.
    pub token: u64,
    /// The state.
    pub state: MigrationState,
    /// Number of processes of the container.
    pub processes: u64,
    /// Number of processes that were processed completely.
    pub processes_done: u64,
    /// Pages on a wrong node when their process was scanned.
    pub pages_found: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Pages that could not be moved, by the kernel's error: `EBUSY`, `EACCES`, `ENOMEM`, …
    pub pages_failed: Vec<(&'static str, u64)>,
    /// Pages that were not tried because the target had no room for them.
    pub pages_without_room: u64,
    /// Processes that could not be migrated.
    pub failures: Vec<ProcessFailure>,
    /// Number of those processes that ended meanwhile.
    pub processes_gone: u64,
    /// Time spent on moving, without the pauses.
    pub busy: Micros,
    /// Why the migration failed or waits; empty otherwise.
    pub why: String,
}

/// Writes CPUs or nodes as the kernel lists them, such as `0-3,8`. The numbers must be ascending.
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
    /// Its progress.
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
