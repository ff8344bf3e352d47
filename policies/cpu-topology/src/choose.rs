//! Chooses CPUs for a pod that no scheduler has placed: close together, as whole cores or one thread of each core, by the rules of
//! Koordinator's allocator.
//!
//! Source: koordinator `pkg/scheduler/plugins/nodenumaresource/cpu_accumulator.go`. The order of attempts is the same; the choice within a
//! NUMA node or socket is a new implementation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use cpu_sets::{Cpu, CpuSet};

use crate::request::{BindPolicy, Exclusive, NumaPolicy, NumaStrategy, Spec};

/// The CPUs to choose from.
#[derive(Clone, Debug, Default)]
pub struct Ground<'a> {
    /// All online CPUs of the machine.
    pub machine: &'a [Cpu],
    /// CPUs that are neither taken nor kept from pods.
    pub free: CpuSet,
    /// CPUs of other pods with the same exclusive policy, which are avoided where possible.
    pub avoided: CpuSet,
    /// Which NUMA node is tried first.
    pub strategy: NumaStrategy,
}

/// Why no CPUs can be chosen for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Fewer CPUs are free than the pod asks for.
    TooFew {
        /// Number of free CPUs.
        free: usize,
    },
    /// The pod requires whole cores, but its count is not a multiple of a core's threads.
    PartOfACore {
        /// Threads per core.
        threads: usize,
    },
    /// The pod requires whole cores, and too few cores are entirely free.
    TooFewCores,
    /// The pod's NUMA policy allows one NUMA node only (or as few as possible), and none of them has enough free CPUs.
    NumaNodes,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooFew { free } => write!(f, "only {free} CPUs are free"),
            Self::PartOfACore { threads } => {
                write!(f, "FullPCPUs takes whole cores, which have {threads} threads here: ask for a multiple of that")
            }
            Self::TooFewCores => write!(f, "too few whole cores are free"),
            Self::NumaNodes => write!(f, "its NUMA policy asks for fewer NUMA nodes than have enough free CPUs"),
        }
    }
}

/// A group of CPUs that lie close together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Node(u32),
    Socket(u32),
}

/// Chooses `wanted` CPUs.
///
/// # Errors
///
/// Returns the reason if there are not enough CPUs that the pod may have.
pub fn choose(ground: &Ground<'_>, spec: Spec, wanted: usize) -> Result<CpuSet, Refusal> {
    let threads = threads(ground.machine);
    let is_whole = spec.bind != BindPolicy::SpreadByPCpus;
    if is_whole && spec.is_required && !wanted.is_multiple_of(threads) {
        return Err(Refusal::PartOfACore { threads });
    }
    let free: Vec<Cpu> = ground.machine.iter().filter(|cpu| ground.free.contains(cpu.id)).copied().collect();
    if free.len() < wanted {
        return Err(Refusal::TooFew { free: free.len() });
    }
    let apart = apart(&free, ground, spec.exclusive);
    let pools: &[&[Cpu]] = if spec.exclusive == Exclusive::None { &[&free] } else { &[&apart, &free] };
    let may_span = matches!(spec.numa, None | Some(NumaPolicy::BestEffort));
    if ground.strategy == NumaStrategy::DistributeEvenly && may_span {
        for pool in pools {
            let from = if is_whole { in_whole_cores(pool, ground.machine) } else { pool.to_vec() };
            if let Some(even) = evenly(&from, wanted, is_whole, threads) {
                return Ok(even);
            }
        }
    }
    let spans = match spec.numa {
        None | Some(NumaPolicy::BestEffort) => true,
        Some(NumaPolicy::Restricted) => !fits_one_node(ground.machine, wanted),
        Some(NumaPolicy::SingleNumaNode) => false,
    };
    let in_one_place = |whole: bool, spans: bool| {
        let enough =
            |cpus: &[Cpu]| if whole { in_whole_cores(cpus, ground.machine).len() } else { cpus.len() } >= wanted;
        pools.iter().find_map(|pool| best(pool, ground, spans, &enough))
    };
    let is_strict = is_whole && spec.is_required;
    // With a NUMA policy, single threads of one node come before whole cores of several.
    let place = if !is_whole {
        in_one_place(false, spans)
    } else if spec.numa.is_none() {
        in_one_place(true, true)
    } else {
        in_one_place(true, false)
            .or_else(|| in_one_place(false, false).filter(|_| !is_strict))
            .or_else(|| in_one_place(true, true).filter(|_| spans))
    };
    if let Some(place) = place {
        return Ok(take(&place, wanted, is_whole));
    }
    if !spans {
        return Err(Refusal::NumaNodes);
    }
    let large = pools.iter().copied().filter(|pool| pool.len() >= wanted);
    let any = large.clone().next().unwrap_or(&free);
    if !is_whole {
        return Ok(over_places(any, wanted, false));
    }
    let whole = |pool: &[Cpu]| in_whole_cores(pool, ground.machine).len();
    let in_cores = wanted - wanted % threads;
    match large.clone().find(|pool| whole(pool) >= in_cores) {
        Some(pool) => Ok(cores_and_the_rest(pool, ground, in_cores, wanted)),
        None if is_strict => Err(Refusal::TooFewCores),
        None => Ok(cores_and_the_rest(any, ground, whole(any), wanted)),
    }
}

/// The largest number of threads that a core of the machine has; at least 1.
pub fn threads(machine: &[Cpu]) -> usize {
    cores(machine).values().map(Vec::len).max().unwrap_or(1).max(1)
}

fn cores(cpus: &[Cpu]) -> BTreeMap<(u32, u32, u32), Vec<Cpu>> {
    let mut cores: BTreeMap<_, Vec<Cpu>> = BTreeMap::new();
    for cpu in cpus {
        cores.entry((cpu.socket, cpu.node, cpu.core)).or_default().push(*cpu);
    }
    cores
}

/// The CPUs whose core is complete, that is, all of its threads are in `cpus`.
fn in_whole_cores(cpus: &[Cpu], machine: &[Cpu]) -> Vec<Cpu> {
    let all = cores(machine);
    let whole =
        cores(cpus).into_iter().filter(|(core, threads)| all.get(core).is_some_and(|all| all.len() == threads.len()));
    whole.flat_map(|(_, threads)| threads).collect()
}

/// The free CPUs that share no core (or NUMA node, depending on `exclusive`) with an avoided CPU.
fn apart(free: &[Cpu], ground: &Ground<'_>, exclusive: Exclusive) -> Vec<Cpu> {
    let place = |cpu: &Cpu| match exclusive {
        Exclusive::None => None,
        Exclusive::PCpuLevel => Some((cpu.node, cpu.socket, Some(cpu.core))),
        Exclusive::NumaNodeLevel => Some((cpu.node, 0, None)),
    };
    let avoided: BTreeSet<_> =
        ground.machine.iter().filter(|cpu| ground.avoided.contains(cpu.id)).filter_map(place).collect();
    free.iter().filter(|cpu| place(cpu).is_none_or(|place| !avoided.contains(&place))).copied().collect()
}

/// The free CPUs of the first NUMA node that has enough of them, or else (if the pod may have CPUs of several nodes) of the first socket.
fn best(pool: &[Cpu], ground: &Ground<'_>, spans: bool, enough: &dyn Fn(&[Cpu]) -> bool) -> Option<Vec<Cpu>> {
    let node = |cpu: &Cpu| Place::Node(cpu.node);
    let socket = |cpu: &Cpu| Place::Socket(cpu.socket);
    let kinds: &[&dyn Fn(&Cpu) -> Place] = if spans { &[&node, &socket] } else { &[&node] };
    kinds.iter().find_map(|kind| {
        let mut places: BTreeMap<Place, Vec<Cpu>> = BTreeMap::new();
        for cpu in pool {
            places.entry(kind(cpu)).or_default().push(*cpu);
        }
        let free_on_socket = |cpus: &[Cpu]| {
            let socket = cpus.first().map(|cpu| cpu.socket);
            pool.iter().filter(|cpu| Some(cpu.socket) == socket).count()
        };
        let mut fitting: Vec<(Place, Vec<Cpu>)> = places.into_iter().filter(|(_, cpus)| enough(cpus)).collect();
        fitting.sort_by_key(|(place, cpus)| (cpus.len(), free_on_socket(cpus), *place));
        match ground.strategy {
            NumaStrategy::LeastAllocated => {
                fitting.sort_by_key(|(place, cpus)| (Reverse(cpus.len()), Reverse(free_on_socket(cpus)), *place));
            }
            NumaStrategy::MostAllocated | NumaStrategy::DistributeEvenly => {}
        }
        fitting.into_iter().next().map(|(_, cpus)| cpus)
    })
}

fn fits_one_node(machine: &[Cpu], wanted: usize) -> bool {
    let mut nodes: BTreeMap<u32, usize> = BTreeMap::new();
    for cpu in machine {
        *nodes.entry(cpu.node).or_default() += 1;
    }
    nodes.values().any(|cpus| *cpus >= wanted)
}

/// Takes `wanted` CPUs of one place, which has at least as many. Cores with the most free threads come first: all threads of a core, or one
/// thread of each core before the second of any. The remainder comes from the core with the fewest free threads that has enough, so that
/// other cores stay whole.
fn take(from: &[Cpu], wanted: usize, is_whole: bool) -> CpuSet {
    let mut cores: Vec<Vec<Cpu>> = cores(from).into_values().collect();
    for core in &mut cores {
        core.sort_unstable_by_key(|cpu| cpu.id);
    }
    cores.sort_by_key(|core| (Reverse(core.len()), core.first().map(|cpu| cpu.id)));
    let mut taken: Vec<u32> = Vec::with_capacity(wanted);
    if is_whole {
        let mut left: Vec<&Vec<Cpu>> = Vec::new();
        for core in &cores {
            if taken.len() + core.len() <= wanted {
                taken.extend(core.iter().map(|cpu| cpu.id));
            } else {
                left.push(core);
            }
        }
        left.sort_by_key(|core| (core.len() < wanted - taken.len(), core.len(), core.first().map(|cpu| cpu.id)));
        let rest = left.into_iter().flatten().map(|cpu| cpu.id).take(wanted - taken.len());
        taken.extend(rest.collect::<Vec<_>>());
    } else {
        let most = cores.first().map_or(0, Vec::len);
        let by_thread = (0..most).flat_map(|thread| cores.iter().filter_map(move |core| core.get(thread)));
        taken.extend(by_thread.map(|cpu| cpu.id).take(wanted));
    }
    taken.into_iter().collect()
}

/// Takes CPUs of several sockets, the largest first; the remainder comes from the smallest socket that has enough.
fn over_places(from: &[Cpu], wanted: usize, is_whole: bool) -> CpuSet {
    let mut sockets: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
    for cpu in from {
        sockets.entry(cpu.socket).or_default().push(*cpu);
    }
    let mut sockets: Vec<Vec<Cpu>> = sockets.into_values().collect();
    sockets.sort_by_key(|cpus| (Reverse(cpus.len()), cpus.first().map(|cpu| cpu.id)));
    let mut chosen = CpuSet::default();
    while chosen.len() < wanted && !sockets.is_empty() {
        let left = wanted - chosen.len();
        // Sockets are sorted by size, so the last one that has enough is the smallest.
        let place = sockets.iter().rposition(|cpus| cpus.len() >= left).unwrap_or(0);
        let cpus = sockets.remove(place);
        chosen.extend(take(&cpus, left.min(cpus.len()), is_whole).iter());
    }
    chosen
}

/// Takes `in_cores` CPUs as whole cores of several sockets, and the rest of `wanted` one thread of a core at a time: on the sockets with the
/// most CPUs taken, and there from cores that are already split.
fn cores_and_the_rest(pool: &[Cpu], ground: &Ground<'_>, in_cores: usize, wanted: usize) -> CpuSet {
    let mut chosen = over_places(&in_whole_cores(pool, ground.machine), in_cores, true);
    let rest: Vec<Cpu> = pool.iter().filter(|cpu| !chosen.contains(cpu.id)).copied().collect();
    let taken_on =
        |socket: u32| ground.machine.iter().filter(|cpu| cpu.socket == socket && chosen.contains(cpu.id)).count();
    let free_of = |is_there: &dyn Fn(&Cpu) -> bool| {
        let free = rest.iter().filter(|cpu| is_there(cpu)).count();
        if ground.strategy == NumaStrategy::LeastAllocated { rest.len() - free } else { free }
    };
    let mut cores: Vec<((u32, u32, u32), Vec<Cpu>)> = cores(&rest).into_iter().collect();
    cores.sort_by_cached_key(|((socket, node, core), threads)| {
        let (on_socket, on_node) = (free_of(&|cpu| cpu.socket == *socket), free_of(&|cpu| cpu.node == *node));
        (Reverse(taken_on(*socket)), on_socket, on_node, threads.len(), *socket, *node, *core)
    });
    let most = cores.iter().map(|(_, threads)| threads.len()).max().unwrap_or(0);
    let by_thread = (0..most).flat_map(|thread| cores.iter().filter_map(move |(_, threads)| threads.get(thread)));
    let rest: Vec<u32> = by_thread.map(|cpu| cpu.id).take(wanted - chosen.len()).collect();
    chosen.extend(rest);
    chosen
}

/// The same number of CPUs from each NUMA node; `None` if that is not possible.
fn evenly(pool: &[Cpu], wanted: usize, is_whole: bool, threads: usize) -> Option<CpuSet> {
    let mut nodes: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
    for cpu in pool {
        nodes.entry(cpu.node).or_default().push(*cpu);
    }
    let each = wanted / nodes.len().max(1);
    let is_even = each * nodes.len() == wanted && each > 0 && (!is_whole || each.is_multiple_of(threads));
    if !is_even || nodes.values().any(|cpus| cpus.len() < each) {
        return None;
    }
    Some(nodes.values().flat_map(|cpus| take(cpus, each, is_whole).iter().collect::<Vec<_>>()).collect())
}

#[cfg(test)]
mod tests {
    use cpu_sets::pick::machine;
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    /// The machine has two NUMA nodes with four cores of two threads: CPUs 0-7 and 8-15.
    fn chosen(taken: &str, spec: Spec, wanted: usize) -> Result<String, Refusal> {
        let machine = machine(2, 4, 2);
        let all: CpuSet = machine.iter().map(|cpu| cpu.id).collect();
        let ground = Ground { machine: &machine, free: all.difference(&set(taken)), ..Ground::default() };
        choose(&ground, spec, wanted).map(|cpus| cpus.to_string())
    }

    const FULL: Spec = Spec { bind: BindPolicy::FullPCpus, is_required: false, exclusive: Exclusive::None, numa: None };
    const SPREAD: Spec = Spec { bind: BindPolicy::SpreadByPCpus, ..FULL };

    #[test]
    fn whole_cores_of_the_fullest_node_that_has_enough() {
        for (taken, wanted, cpus) in [
            ("", 4, "0-3"),
            ("0-3", 4, "4-7"),
            ("0-1", 4, "2-5"),
            // Node 0 has only two whole cores left and the pod needs three, so node 1 is chosen.
            ("0-3", 6, "8-13"),
            // Without whole cores, single threads.
            ("0,2,4,6,8-15", 2, "1,3"),
            // An odd count takes a thread of a core that is already split, so that other cores stay whole.
            ("0", 3, "2-3,1"),
            ("", 16, "0-15"),
            // Whole cores of both nodes come before single threads of one.
            ("2,4,6,10-15", 4, "0-1,8-9"),
            // Where whole cores do not suffice, the rest is beside them.
            ("2,4,6,10,12,14", 5, "0-1,8-9,3"),
            ("1,3,5,7,10,12-15", 3, "8-9,11"),
            // More CPUs than a node has: whole sockets first, then the rest.
            ("", 10, "0-9"),
        ] {
            let cpus = set(cpus).to_string();
            assert_eq!(chosen(taken, FULL, wanted), Ok(cpus), "{wanted} without {taken}");
        }
        assert_eq!(chosen("0-9", FULL, 8), Err(Refusal::TooFew { free: 6 }));
    }

    #[test]
    fn with_a_numa_policy_one_node_comes_before_whole_cores_of_several() {
        let taken = "0,2,4,6,10-15";
        assert_eq!(chosen(taken, FULL, 4), Ok(set("1,3,8-9").to_string()));
        let best_effort = Spec { numa: Some(NumaPolicy::BestEffort), ..FULL };
        assert_eq!(chosen(taken, best_effort, 4), Ok(set("1,3,5,7").to_string()));
        assert_eq!(chosen(taken, best_effort, 6), Ok(set("1,3,5,7-9").to_string()));
    }

    #[test]
    fn one_thread_of_each_core_before_the_second_of_any() {
        for (taken, wanted, cpus) in
            [("", 4, "0,2,4,6"), ("", 6, "0-3,4,6"), ("0-3", 4, "4-7"), ("0-5", 4, "8,10,12,14")]
        {
            assert_eq!(chosen(taken, SPREAD, wanted), Ok(set(cpus).to_string()), "{wanted} without {taken}");
        }
    }

    #[test]
    fn what_must_be_is_refused_where_it_cannot() {
        let required = Spec { is_required: true, ..FULL };
        assert_eq!(chosen("", required, 3), Err(Refusal::PartOfACore { threads: 2 }));
        assert_eq!(chosen("0,2,4,6,8,10,12", required, 4), Err(Refusal::TooFewCores));
        assert_eq!(chosen("0,2,4,6,8,10,12", required, 2), Ok("14-15".to_owned()));
        let single = Spec { numa: Some(NumaPolicy::SingleNumaNode), ..FULL };
        assert_eq!(chosen("0-3,8-11", single, 6), Err(Refusal::NumaNodes));
        let restricted = Spec { numa: Some(NumaPolicy::Restricted), ..FULL };
        assert_eq!(chosen("0-3,8-11", restricted, 6), Err(Refusal::NumaNodes));
        // No single node of this machine has 12 CPUs, so the pod may use two.
        assert_eq!(chosen("", restricted, 12), Ok("0-11".to_owned()));
    }

    #[test]
    fn who_is_avoided_is_avoided_where_that_can_be() {
        let machine = machine(2, 4, 2);
        let ground = |avoided: &str, free: &str| Ground {
            machine: &machine,
            free: set(free),
            avoided: set(avoided),
            strategy: NumaStrategy::MostAllocated,
        };
        let level = |exclusive| Spec { exclusive, ..SPREAD };
        let on = |avoided: &str, free: &str, exclusive, wanted| {
            choose(&ground(avoided, free), level(exclusive), wanted).unwrap().to_string()
        };
        assert_eq!(on("0", "1-15", Exclusive::PCpuLevel, 2), "2,4");
        assert_eq!(on("0", "1-15", Exclusive::NumaNodeLevel, 2), "8,10");
        assert_eq!(on("0,8", "1-7", Exclusive::NumaNodeLevel, 2), "2,4", "there is no other");
    }

    #[test]
    fn the_nodes_strategy_says_which_comes_first() {
        let machine = machine(2, 4, 2);
        let on = |strategy, spec, wanted| {
            let ground = Ground { machine: &machine, free: set("2-15"), avoided: CpuSet::default(), strategy };
            choose(&ground, spec, wanted).unwrap().to_string()
        };
        assert_eq!(on(NumaStrategy::MostAllocated, FULL, 2), "2-3");
        assert_eq!(on(NumaStrategy::LeastAllocated, FULL, 2), "8-9");
        assert_eq!(on(NumaStrategy::DistributeEvenly, FULL, 4), "2-3,8-9");
        assert_eq!(on(NumaStrategy::DistributeEvenly, FULL, 2), "2-3", "half a core each would be none");
    }

    proptest! {
        #[test]
        fn as_many_as_are_wanted_all_of_them_free(
            free in proptest::collection::btree_set(0..16_u32, 0..16), wanted in 1..17_usize, spread: bool, required: bool,
            exclusive in 0..3_u8, numa in 0..3_u8, strategy in 0..3_u8,
        ) {
            let machine = machine(2, 4, 2);
            let spec = Spec {
                bind: if spread { BindPolicy::SpreadByPCpus } else { BindPolicy::FullPCpus },
                is_required: required,
                exclusive: [Exclusive::None, Exclusive::PCpuLevel, Exclusive::NumaNodeLevel][usize::from(exclusive)],
                numa: Some([NumaPolicy::BestEffort, NumaPolicy::Restricted, NumaPolicy::SingleNumaNode][usize::from(numa)]),
            };
            let strategy = [NumaStrategy::MostAllocated, NumaStrategy::LeastAllocated, NumaStrategy::DistributeEvenly][usize::from(strategy)];
            let free: CpuSet = free.into_iter().collect();
            let ground = Ground { machine: &machine, free: free.clone(), avoided: set("0,8"), strategy };
            match choose(&ground, spec, wanted) {
                Ok(cpus) => {
                    prop_assert_eq!(cpus.len(), wanted);
                    prop_assert!(cpus.is_subset(&free));
                    let nodes: BTreeSet<u32> = cpus.iter().map(|cpu| cpu / 8).collect();
                    prop_assert!(numa != 2 || nodes.len() == 1);
                    let is_whole = |cpu: u32| cpus.contains(cpu ^ 1);
                    prop_assert!(spread || !required || cpus.iter().all(is_whole));
                }
                Err(Refusal::TooFew { free: number }) => prop_assert!(number == free.len() && number < wanted),
                Err(_) => prop_assert!(required || numa > 0),
            }
        }
    }
}
