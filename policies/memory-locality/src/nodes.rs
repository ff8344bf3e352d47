//! Decides which NUMA nodes a container's pages should leave, and which nodes they should move to.

use qosm_sdk::{NumaNode, NumaSample};

/// The decision for one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing has to be done, for this reason.
    Skip(String),
    /// Nothing can be done, for this reason; its pages count by the nodes of `way`, which has no target.
    Fail { why: String, way: Way },
    /// Its pages are moved this way.
    Go(Way),
}

impl Choice {
    /// The nodes by which the container's pages count; `None` if it is skipped.
    pub(crate) fn way(&self) -> Option<&Way> {
        match self {
            Self::Skip(_) => None,
            Self::Fail { way, .. } | Self::Go(way) => Some(way),
        }
    }
}

/// The source and target nodes of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Nodes with memory that are neither local nor excluded.
    pub(crate) remote: Vec<u32>,
    /// Nodes of the container's CPUs that have memory (or the nearest ones that do) and are not excluded.
    pub(crate) local: Vec<u32>,
    /// The local nodes that the container's `cpuset.mems` allows.
    pub(crate) to: Vec<u32>,
}

/// The reason when no page can be on a wrong node.
pub(crate) const NO_TARGET: &str = "no target numa";

/// Whether at most one node has memory, so that there is no choice.
pub(crate) fn is_one_place(nodes: &[NumaNode]) -> bool {
    nodes.iter().filter(|node| node.memory_bytes > 0).nth(1).is_none()
}

/// Decides for one container.
pub(crate) fn choose(nodes: &[NumaNode], sample: &NumaSample, excluded: &[u32]) -> Choice {
    let local = local(nodes, sample, excluded);
    let remote: Vec<u32> =
        with_memory(nodes).map(|node| node.id).filter(|id| !local.contains(id) && !excluded.contains(id)).collect();
    if remote.is_empty() || local.is_empty() {
        return Choice::Skip(NO_TARGET.into());
    }
    let to: Vec<u32> = local.iter().copied().filter(|id| sample.memory_nodes.contains(id)).collect();
    if to.is_empty() {
        let (named, allowed) = (list(&local), list(&sample.memory_nodes));
        let why = format!("local numa {named} is not among those of cpuset.mems: {allowed}");
        return Choice::Fail { why, way: Way { remote, local, to } };
    }
    Choice::Go(Way { remote, local, to })
}

/// Nodes with memory that have one of the container's CPUs; if none of these has memory, the nearest nodes that do. Excluded nodes are left
/// out: where only they are local, nothing is.
pub(crate) fn local(nodes: &[NumaNode], sample: &NumaSample, excluded: &[u32]) -> Vec<u32> {
    let is_wanted = |id: &u32| !excluded.contains(id);
    let own: Vec<u32> = with_memory(nodes).map(|node| node.id).filter(|id| sample.cpu_nodes.contains(id)).collect();
    if !own.is_empty() {
        return own.into_iter().filter(is_wanted).collect();
    }
    let place = |id: u32| nodes.iter().position(|node| node.id == id);
    let distance = |to: u32| {
        let of_cpus = nodes.iter().filter(|node| sample.cpu_nodes.contains(&node.id));
        of_cpus.filter_map(|node| node.distances.get(place(to)?).copied()).min()
    };
    let others = with_memory(nodes).filter(|node| is_wanted(&node.id));
    let near: Vec<(u32, u32)> = others.filter_map(|node| Some((distance(node.id)?, node.id))).collect();
    let nearest = near.iter().map(|(distance, _)| *distance).min();
    near.into_iter().filter(|(distance, _)| Some(*distance) == nearest).map(|(_, id)| id).collect()
}

fn with_memory(nodes: &[NumaNode]) -> impl Iterator<Item = &NumaNode> {
    nodes.iter().filter(|node| node.memory_bytes > 0)
}

/// Numbers of a container's pages on local and on remote nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) local: u64,
    pub(crate) remote: u64,
}

impl Pages {
    /// The pages of a sample, by the nodes of `way`.
    pub(crate) fn of(sample: &NumaSample, way: &Way) -> Self {
        let on = |nodes: &[u32]| {
            let there = sample.pages.iter().filter(|share| nodes.contains(&share.node));
            there.fold(0_u64, |sum, share| sum.saturating_add(share.pages))
        };
        Self { local: on(&way.local), remote: on(&way.remote) }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self { local: self.local.saturating_add(other.local), remote: self.remote.saturating_add(other.remote) }
    }

    /// Local pages in percent of all pages, rounded down; 100 without pages.
    pub(crate) fn local_percent(self) -> u64 {
        let (local, all) = (u128::from(self.local), u128::from(self.local) + u128::from(self.remote));
        (local * 100).checked_div(all).map_or(100, |percent| u64::try_from(percent).unwrap_or(100))
    }

    /// Whether too few pages are remote for a migration to be worthwhile.
    pub(crate) fn is_local_enough(self, min_remote_percent: u64, min_remote_pages: u64) -> bool {
        let all = u128::from(self.local) + u128::from(self.remote);
        let few = u128::from(self.remote) * 100 < all * u128::from(min_remote_percent);
        self.remote == 0 || few || self.remote < min_remote_pages
    }
}

/// A list of nodes for messages.
pub(crate) fn list(nodes: &[u32]) -> String {
    let words: Vec<String> = nodes.iter().map(u32::to_string).collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use qosm_sdk::NumaShare;

    use super::*;

    /// Nodes from (CPUs, GiB of memory) and distances.
    fn nodes(rows: &[(u32, u64)], distances: &[&[u32]]) -> Vec<NumaNode> {
        let node = |(id, &(cpus, gib)): (u32, &(u32, u64))| NumaNode {
            id,
            cpus,
            memory_bytes: gib << 30,
            free_bytes: gib << 29,
            available_bytes: gib << 29,
            distances: distances.get(usize::try_from(id).unwrap_or(0)).map(|row| row.to_vec()).unwrap_or_default(),
        };
        (0..).zip(rows).map(node).collect()
    }

    fn sample(cpu_nodes: &[u32], memory_nodes: &[u32], pages: &[(u32, u64)]) -> NumaSample {
        NumaSample {
            container: 1,
            identity: 1,
            cpu_nodes: cpu_nodes.to_vec(),
            memory_nodes: memory_nodes.to_vec(),
            pages: pages.iter().map(|&(node, pages)| NumaShare { node, pages }).collect(),
        }
    }

    fn go(remote: &[u32], local: &[u32], to: &[u32]) -> Choice {
        Choice::Go(Way { remote: remote.to_vec(), local: local.to_vec(), to: to.to_vec() })
    }

    #[test]
    fn nodes_are_chosen_by_cpus_memory_and_cpuset() {
        let two = nodes(&[(2, 1), (2, 1)], &[&[10, 20], &[20, 10]]);
        // A memory expander in addition to two ordinary nodes.
        let expander = nodes(&[(2, 1), (2, 1), (0, 4)], &[&[10, 20, 25], &[20, 10, 25], &[25, 25, 10]]);
        // Node 0 has CPUs only; node 2 is nearer to it than node 1.
        let hollow = nodes(&[(2, 0), (2, 1), (2, 1)], &[&[10, 30, 15], &[30, 10, 20], &[15, 20, 10]]);
        let skip = || Choice::Skip(NO_TARGET.into());
        for (what, nodes, cpus, mems, excluded, expected) in [
            ("pinned", &two, &[1][..], &[0, 1][..], &[][..], go(&[0], &[1], &[1])),
            ("on all nodes", &two, &[0, 1], &[0, 1], &[], skip()),
            (
                "its memory is bound elsewhere",
                &two,
                &[1],
                &[0],
                &[],
                Choice::Fail {
                    why: "local numa 1 is not among those of cpuset.mems: 0".into(),
                    way: Way { remote: vec![0], local: vec![1], to: Vec::new() },
                },
            ),
            ("one node", &nodes(&[(2, 1)], &[&[10]]), &[0], &[0], &[], skip()),
            ("expander", &expander, &[0, 1], &[0, 1, 2], &[], go(&[2], &[0, 1], &[0, 1])),
            ("expander, left alone", &expander, &[0, 1], &[0, 1, 2], &[2], skip()),
            ("one of two may have memory", &expander, &[0, 1], &[1, 2], &[], go(&[2], &[0, 1], &[1])),
            ("CPUs without memory", &hollow, &[0], &[1, 2], &[], go(&[1], &[2], &[2])),
            ("CPUs without memory, near what is left alone", &hollow, &[0], &[1, 2], &[2], skip()),
            ("on a node that is left alone", &two, &[1], &[0, 1], &[1], skip()),
            ("no CPUs known", &two, &[], &[0, 1], &[], skip()),
        ] {
            assert_eq!(choose(nodes, &sample(cpus, mems, &[]), excluded), expected, "{what}");
        }
    }

    #[test]
    fn pages_count_as_local_by_node() {
        let Choice::Go(way) = choose(&nodes(&[(2, 1), (2, 1), (0, 1)], &[]), &sample(&[1], &[0, 1, 2], &[]), &[2])
        else {
            unreachable!("there is a way");
        };
        let pages = Pages::of(&sample(&[1], &[0, 1, 2], &[(0, 570), (1, 430), (2, 99)]), &way);
        assert_eq!(pages, Pages { local: 430, remote: 570 });
        assert_eq!(pages.local_percent(), 43);
        assert_eq!(Pages::default().local_percent(), 100);
    }

    #[test]
    fn a_little_is_not_worth_it() {
        for (local, remote, enough) in [
            (100_000, 0, true),
            (10_000_000, 90_000, true),
            (0, 16_383, true),
            (0, 16_384, false),
            (100_000, 20_000, false),
        ] {
            assert_eq!(Pages { local, remote }.is_local_enough(1, 16_384), enough, "{local} {remote}");
        }
        assert!(Pages { local: 0, remote: 0 }.is_local_enough(0, 0));
        assert!(!Pages { local: 1_000_000, remote: 1 }.is_local_enough(0, 0));
    }
}
