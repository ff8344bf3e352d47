//! Chooses CPUs of a pool: spread over NUMA nodes, whole cores first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::set::CpuSet;

/// A logical CPU that is online. Source: `/sys/devices/system/cpu/cpu<N>/topology`, `/sys/devices/system/node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu {
    /// The kernel's number of the CPU.
    pub id: u32,
    /// Core of the CPU; SMT siblings have the same one. Unique within a socket and NUMA node.
    pub core: u32,
    /// Socket of the CPU.
    pub socket: u32,
    /// NUMA node of the CPU.
    pub node: u32,
}

/// CPUs of one NUMA node and socket.
#[derive(Debug)]
struct Bucket {
    /// All CPUs of the bucket, sorted by core and id.
    cpus: Vec<Cpu>,
    /// Pairs of SMT siblings that have not been taken.
    pairs: VecDeque<(u32, u32)>,
}

/// Chooses `wanted` CPUs of a pool, in the order in which they are taken; all of them if the pool has fewer.
///
/// CPUs are put into buckets by NUMA node and socket, the largest bucket first, then that with the smallest CPU id. Round
/// robin over the buckets, sibling pairs are taken while more than one CPU is wanted; then, from the bucket after the last
/// one used, single CPUs in the order of cores. After a round without any pair, single CPUs begin with the first bucket.
///
/// Source: koordinator `pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go`. Unlike there, the pair of numbers is
/// the key of a bucket, so that two places never share one.
pub fn pick(pool: &[Cpu], wanted: usize) -> Vec<u32> {
    let mut buckets = buckets(pool);
    let mut left = wanted.min(buckets.iter().map(|bucket| bucket.cpus.len()).sum());
    let mut picked = Vec::with_capacity(left);
    let mut taken = BTreeSet::new();
    let mut at = 0;

    let mut left_a_round_ago = None;
    while left > 1 {
        if at == 0 && left_a_round_ago.replace(left) == Some(left) {
            break;
        }
        if let Some((first, second)) = buckets[at].pairs.pop_front() {
            picked.extend([first, second]);
            taken.extend([first, second]);
            left -= 2;
        }
        at = (at + 1) % buckets.len();
    }
    while left > 0 {
        // Each round takes at least one CPU, since `left` does not exceed the CPUs in the buckets.
        if let Some(cpu) = buckets[at].cpus.iter().find(|cpu| !taken.contains(&cpu.id)) {
            picked.push(cpu.id);
            taken.insert(cpu.id);
            left -= 1;
        }
        at = (at + 1) % buckets.len();
    }
    picked
}

/// The buckets of a pool, in the order in which they are visited. A CPU that is listed twice counts once.
fn buckets(pool: &[Cpu]) -> Vec<Bucket> {
    let mut places: BTreeMap<(u32, u32), Vec<Cpu>> = BTreeMap::new();
    let mut seen = CpuSet::default();
    for cpu in pool {
        if !seen.contains(cpu.id) {
            seen.extend([cpu.id]);
            places.entry((cpu.node, cpu.socket)).or_default().push(*cpu);
        }
    }
    let mut buckets: Vec<Bucket> = places
        .into_values()
        .map(|mut cpus| {
            cpus.sort_unstable_by_key(|cpu| (cpu.core, cpu.id));
            Bucket { pairs: pairs(&cpus), cpus }
        })
        .collect();
    buckets.sort_unstable_by_key(|bucket| (Reverse(bucket.cpus.len()), bucket.cpus.first().map(|cpu| cpu.id)));
    buckets
}

/// Pairs of adjacent CPUs of the same core; each CPU is in at most one pair.
fn pairs(cpus: &[Cpu]) -> VecDeque<(u32, u32)> {
    let mut pairs = VecDeque::new();
    let mut rest = cpus;
    while let [first, others @ ..] = rest {
        rest = match others {
            [second, others @ ..] if second.core == first.core => {
                pairs.push_back((first.id, second.id));
                others
            }
            _ => others,
        };
    }
    pairs
}

/// A machine with `nodes` NUMA nodes of one socket each, `cores` cores per node and `threads` threads per core; siblings have adjacent ids.
/// For tests.
pub fn machine(nodes: u32, cores: u32, threads: u32) -> Vec<Cpu> {
    let each = |id: u32| {
        let (core, node) = (id / threads, id / threads / cores);
        Cpu { id, core, socket: node, node }
    };
    (0..nodes * cores * threads).map(each).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpu(id: u32, core: u32, socket: u32, node: u32) -> Cpu {
        Cpu { id, core, socket, node }
    }

    #[test]
    fn whole_cores_round_robin_then_single_cpus() {
        let two_by_two = machine(2, 2, 2); // node 0: 0-1 2-3, node 1: 4-5 6-7
        for (wanted, picked) in [
            (0, vec![]),
            (1, vec![0]),
            (2, vec![0, 1]),
            // One pair from the first node, the single CPU from the bucket after it.
            (3, vec![0, 1, 4]),
            (4, vec![0, 1, 4, 5]),
            (5, vec![0, 1, 4, 5, 2]),
            (6, vec![0, 1, 4, 5, 2, 3]),
            (7, vec![0, 1, 4, 5, 2, 3, 6]),
            (8, vec![0, 1, 4, 5, 2, 3, 6, 7]),
            (9, vec![0, 1, 4, 5, 2, 3, 6, 7]),
        ] {
            assert_eq!(pick(&two_by_two, wanted), picked, "{wanted}");
        }
    }

    #[test]
    fn the_largest_bucket_comes_first_then_the_smallest_id() {
        let uneven =
            [cpu(0, 0, 0, 0), cpu(1, 0, 0, 0), cpu(2, 1, 1, 1), cpu(3, 1, 1, 1), cpu(4, 2, 1, 1), cpu(5, 2, 1, 1)];
        assert_eq!(pick(&uneven, 4), [2, 3, 0, 1]);
        assert_eq!(pick(&uneven, 3), [2, 3, 0]);
        assert_eq!(pick(&uneven, 6), [2, 3, 0, 1, 4, 5]);
    }

    #[test]
    fn without_siblings_single_cpus_go_round_robin() {
        let no_smt = machine(2, 3, 1);
        assert_eq!(pick(&no_smt, 4), [0, 3, 1, 4]);
        // Only halves of cores are left on node 0; node 1 has a pair.
        let halves = [cpu(0, 0, 0, 0), cpu(2, 1, 0, 0), cpu(4, 2, 1, 1), cpu(5, 2, 1, 1)];
        assert_eq!(pick(&halves, 2), [4, 5]);
        // After a round without any pair, the first bucket is next.
        assert_eq!(pick(&halves, 3), [4, 5, 0]);
        assert_eq!(pick(&halves, 4), [4, 5, 0, 2]);
    }

    #[test]
    fn four_threads_of_a_core_are_two_pairs_and_three_are_one() {
        assert_eq!(pick(&machine(1, 1, 4), 4), [0, 1, 2, 3]);
        assert_eq!(pick(&machine(1, 2, 4), 3), [0, 1, 2]);
        assert_eq!(pick(&machine(1, 2, 3), 4), [0, 1, 3, 4]);
        assert_eq!(pick(&machine(1, 2, 3), 5), [0, 1, 3, 4, 2]);
    }

    #[test]
    fn siblings_need_not_be_neighbours_by_id() {
        // Ids as most x86 machines number them: siblings are half the number of CPUs apart.
        let apart =
            [cpu(0, 0, 0, 0), cpu(1, 1, 0, 0), cpu(2, 2, 0, 0), cpu(3, 0, 0, 0), cpu(4, 1, 0, 0), cpu(5, 2, 0, 0)];
        assert_eq!(pick(&apart, 4), [0, 3, 1, 4]);
    }

    #[test]
    fn two_sockets_in_one_node_and_two_nodes_in_one_socket_are_buckets_of_their_own() {
        // (node + 2) × (socket + 1) is 4 for both places, so koordinator puts them into one bucket.
        let colliding = [cpu(0, 0, 0, 2), cpu(1, 0, 1, 0)];
        assert_eq!(pick(&colliding, 1), [0]);
        assert_eq!(pick(&colliding, 2), [0, 1]);
        let pairs = [cpu(0, 0, 0, 4), cpu(1, 0, 0, 4), cpu(2, 0, 1, 0), cpu(3, 0, 1, 0)];
        assert_eq!(pick(&pairs, 3), [0, 1, 2]);
        // Two sockets in one NUMA node, each with a core 0 whose CPU ids are not adjacent: a pair never spans sockets.
        let sockets = [cpu(0, 0, 0, 0), cpu(2, 0, 0, 0), cpu(1, 0, 1, 0), cpu(3, 0, 1, 0)];
        assert_eq!(pick(&sockets, 4), [0, 2, 1, 3]);
        // The same for two NUMA nodes in one socket.
        let nodes = [cpu(0, 0, 0, 0), cpu(2, 0, 0, 0), cpu(1, 0, 0, 1), cpu(3, 0, 0, 1)];
        assert_eq!(pick(&nodes, 4), [0, 2, 1, 3]);
        // Equal core numbers on two sockets are not siblings.
        assert_eq!(pick(&[cpu(0, 0, 0, 0), cpu(1, 0, 1, 0)], 2), [0, 1]);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(pick(&[], 3), [0_u32; 0]);
    }

    proptest! {
        #[test]
        fn as_many_as_are_wanted_or_there_and_none_twice(
            cpus in proptest::collection::vec((0..40_u32, 0..8_u32, 0..3_u32, 0..3_u32), 0..40), wanted in 0..50_usize,
        ) {
            let pool: Vec<_> = cpus.into_iter().map(|(id, core, socket, node)| cpu(id, core, socket, node)).collect();
            let ids: CpuSet = pool.iter().map(|cpu| cpu.id).collect();
            let picked = pick(&pool, wanted);
            let set: CpuSet = picked.iter().copied().collect();
            prop_assert_eq!(picked.len(), wanted.min(ids.len()));
            prop_assert_eq!(set.len(), picked.len());
            prop_assert!(set.is_subset(&ids));
        }

        #[test]
        fn more_is_a_superset_by_pairs(nodes in 1..4_u32, cores in 1..6_u32, pairs in 0..12_usize) {
            let machine = machine(nodes, cores, 2);
            let (less, more) = (pick(&machine, 2 * pairs), pick(&machine, 2 * pairs + 2));
            prop_assert!(more.starts_with(&less));
        }

        #[test]
        fn the_order_of_the_pool_does_not_matter(mut pool in Just(machine(2, 4, 2)).prop_shuffle(), wanted in 0..17_usize) {
            let shuffled = pick(&pool, wanted);
            pool.sort_unstable();
            prop_assert_eq!(shuffled, pick(&pool, wanted));
        }
    }
}
