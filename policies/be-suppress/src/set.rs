//! Mode `cpuset`: which CPUs batch pods may run on.

use qosm_sdk::QosClass;

use crate::config::Profile;
use crate::input::{Inputs, Kubelet, Node, Pod};
use crate::{Cpu, CpuSet, pick};

/// Minimum number of CPUs of batch pods, if that many are available.
pub const MIN_CPUS: u64 = 2;

/// The CPUs that batch pods may have, by the other pods that use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// CPUs that LSR pods are pinned to.
    pub lsr: Vec<Cpu>,
    /// All other CPUs.
    pub ls: Vec<Cpu>,
}

impl Pools {
    /// Sorts the CPUs. CPUs that the node reserves, that are exclusive to SYSTEM, or that LSE pods are pinned to are left out; with the
    /// profile `responsive` also those that the kubelet gave to containers exclusively. A CPU of two pods belongs to the stricter class.
    pub fn new(cpus: &[Cpu], node: &Node, pods: &[Pod], kubelet: &Kubelet, profile: Profile) -> Self {
        let mut excluded = node.reservation.cpus.union(&node.system.excluded());
        let mut lsr = CpuSet::default();
        for pod in pods.iter().filter(|pod| pod.is_active) {
            match pod.class {
                Some(QosClass::Lse) => excluded.extend(pod.pinned.iter()),
                Some(QosClass::Lsr) => lsr.extend(pod.pinned.iter()),
                _ => {}
            }
        }
        if profile == Profile::Responsive {
            excluded.extend(kubelet.exclusive.iter());
        }
        let mut pools = Self::default();
        for cpu in cpus.iter().filter(|cpu| !excluded.contains(cpu.id)) {
            if lsr.contains(cpu.id) { &mut pools.lsr } else { &mut pools.ls }.push(*cpu);
        }
        pools
    }

    /// The pools of these inputs.
    pub(crate) fn of(inputs: &Inputs, node: &Node, profile: Profile) -> Self {
        Self::new(&inputs.cpus, node, &inputs.pods, &inputs.kubelet, profile)
    }

    /// Number of CPUs in both pools.
    pub fn len(&self) -> usize {
        self.lsr.len() + self.ls.len()
    }

    /// Whether both pools are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All CPUs of both pools, which batch pods may use while nothing is suppressed.
    pub fn whole(&self) -> CpuSet {
        self.lsr.iter().chain(&self.ls).map(|cpu| cpu.id).collect()
    }
}

/// Number of CPUs for this amount of CPU, rounded up; at least [`MIN_CPUS`].
pub fn wanted_cpus(allowed_milli: i64) -> u64 {
    u64::try_from(allowed_milli).unwrap_or(0).div_ceil(1000).max(MIN_CPUS)
}

/// Limits a rise to a tenth of the node's CPUs (rounded up) above `old`. A decrease is not limited.
pub fn stepped_cpus(wanted: u64, old: u64, node_cpus: u64) -> u64 {
    wanted.min(old.saturating_add(node_cpus.div_ceil(10)))
}

/// The chosen CPUs, and the pools they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The CPUs in the order in which they were taken, those of the LSR pool first.
    pub picked: Vec<u32>,
    /// Number of CPUs from the LSR pool.
    pub from_lsr: usize,
    /// Number of CPUs that were wanted.
    pub wanted: u64,
}

impl Choice {
    /// The CPUs as a set.
    pub fn cpus(&self) -> CpuSet {
        self.picked.iter().copied().collect()
    }
}

/// Chooses CPUs: from the LSR pool its proportional share, rounded down, and the rest from the other pool. A pool that has fewer CPUs than
/// its share gives none with `koordinator`. With `responsive` it gives all that it has, so the choice is empty only if both pools are.
///
/// Source: koordinator `pkg/koordlet/qosmanager/plugins/cpusuppress/cpu_suppress.go`.
pub fn choose(pools: &Pools, wanted: u64, profile: Profile) -> Choice {
    let all = pools.len();
    if all == 0 {
        return Choice { wanted, ..Choice::default() };
    }
    let mut count = usize::try_from(wanted).unwrap_or(usize::MAX);
    if profile == Profile::Responsive {
        // If `count` does not exceed the CPUs in both pools, no share exceeds its pool.
        count = count.clamp(1, all);
    }
    let share = qosm_sdk::scale(number(count), number(pools.lsr.len()), number(all));
    let from_lsr = usize::try_from(share).unwrap_or(usize::MAX);
    let take = |pool: &[Cpu], count: usize| if count > pool.len() { Vec::new() } else { pick(pool, count) };
    let mut picked = take(&pools.lsr, from_lsr);
    let from_lsr = picked.len();
    picked.extend(take(&pools.ls, count.saturating_sub(usize::try_from(share).unwrap_or(usize::MAX))));
    Choice { picked, from_lsr, wanted }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Reservation, SystemQos};
    use cpu_sets::pick::machine;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).unwrap()
    }

    fn pinned(id: u32, class: Option<QosClass>, cpus: &str) -> Pod {
        Pod { class, pinned: set(cpus), ..Pod::new(id) }
    }

    fn ids(pool: &[Cpu]) -> String {
        pool.iter().map(|cpu| cpu.id).collect::<CpuSet>().to_string()
    }

    #[test]
    fn counts_by_hand() {
        for (allowed, cpus) in [
            (i64::MIN, 2),
            (-1, 2),
            (0, 2),
            (1, 2),
            (2_000, 2),
            (2_001, 3),
            (3_000, 3),
            (10_600, 11),
            (i64::MAX, 9_223_372_036_854_776),
        ] {
            assert_eq!(wanted_cpus(allowed), cpus, "{allowed}");
        }
    }

    #[test]
    fn steps_up_are_a_tenth_of_the_node_and_steps_down_are_free() {
        for (wanted, old, node, stepped) in [
            (11, 2, 32, 6), // a tenth of 32, rounded up: 4
            (6, 2, 32, 6),
            (5, 2, 32, 5),
            (2, 30, 32, 2),
            (9, 2, 10, 3),
            (9, 2, 11, 4),
            (9, 2, 1, 3),
            (9, 0, 16, 2),
            (2, 2, 0, 2),
        ] {
            assert_eq!(stepped_cpus(wanted, old, node), stepped, "{wanted} {old} {node}");
        }
    }

    #[test]
    fn cpus_are_left_out_by_reservation_system_and_lse() {
        let cpus = machine(1, 8, 2);
        let node = |reserved: &str, system: &str, is_exclusive| Node {
            reservation: Reservation { cpus: set(reserved), ..Reservation::default() },
            system: SystemQos { cpus: set(system), is_exclusive },
            ..Node::default()
        };
        let kubelet = Kubelet { is_static: true, exclusive: set("12-13") };
        let pods = [
            pinned(1, Some(QosClass::Lse), "4-5"),
            pinned(2, Some(QosClass::Lsr), "6-7"),
            pinned(3, Some(QosClass::Ls), "8"),
            pinned(4, None, "9"),
            Pod { is_active: false, ..pinned(5, Some(QosClass::Lse), "14-15") },
        ];
        for (node, pods, profile, lsr, ls) in [
            (node("", "", true), &pods[..0], Profile::Koordinator, "", "0-15"),
            (node("0-1", "", true), &pods[..0], Profile::Koordinator, "", "2-15"),
            (node("", "2-3", true), &pods[..0], Profile::Koordinator, "", "0-1,4-15"),
            (node("", "2-3", false), &pods[..0], Profile::Koordinator, "", "0-15"),
            (node("0-1", "2-3", true), &pods[..], Profile::Koordinator, "6-7", "8-15"),
            (node("0-1", "2-3", true), &pods[..], Profile::Responsive, "6-7", "8-11,14-15"),
        ] {
            let pools = Pools::new(&cpus, &node, pods, &kubelet, profile);
            assert_eq!((ids(&pools.lsr).as_str(), ids(&pools.ls).as_str()), (lsr, ls), "{profile:?}");
        }
        // The stricter class takes precedence, in either order of pods.
        let both = [pinned(1, Some(QosClass::Lsr), "0-1"), pinned(2, Some(QosClass::Lse), "1-2")];
        let reverse = [both[1].clone(), both[0].clone()];
        for pods in [both, reverse] {
            let pools = Pools::new(&cpus[..4], &Node::default(), &pods, &Kubelet::default(), Profile::Koordinator);
            assert_eq!((ids(&pools.lsr).as_str(), ids(&pools.ls).as_str()), ("0", "3"));
        }
    }

    #[test]
    fn pools_give_by_their_shares() {
        // LSR has 4 of 16 CPUs.
        let cpus = machine(1, 8, 2);
        let pools = Pools { lsr: cpus[..4].to_vec(), ls: cpus[4..].to_vec() };
        for (wanted, from_lsr, picked) in
            [(2, 0, "4-5"), (3, 0, "4-6"), (4, 1, "0,4-6"), (8, 2, "0-1,4-9"), (11, 2, "0-1,4-12"), (16, 4, "0-15")]
        {
            for profile in [Profile::Koordinator, Profile::Responsive] {
                let choice = choose(&pools, wanted, profile);
                assert_eq!(
                    (choice.from_lsr, choice.cpus().to_string().as_str()),
                    (from_lsr, picked),
                    "{wanted} {profile:?}"
                );
            }
        }
    }

    #[test]
    fn a_pool_that_is_too_small_gives_none_or_all() {
        let cpus = machine(1, 8, 2);
        let few = |count: usize| Pools { ls: cpus[..count].to_vec(), ..Pools::default() };
        for (pools, wanted, koordinator, responsive) in [
            (few(1), 2, "", "0"),
            (few(3), 4, "", "0-2"),
            (few(4), 4, "0-3", "0-3"),
            (few(0), 2, "", ""),
            // 24 CPUs of 16: the shares are 6 of LSR's 4 and 18 of the other 12.
            (Pools { lsr: cpus[..4].to_vec(), ls: cpus[4..].to_vec() }, 24, "", "0-15"),
            // 17 CPUs of 16: the shares are 4 of LSR's 4 and 13 of the other 12.
            (Pools { lsr: cpus[..4].to_vec(), ls: cpus[4..].to_vec() }, 17, "0-3", "0-15"),
            (Pools { lsr: cpus[..1].to_vec(), ls: Vec::new() }, 2, "", "0"),
        ] {
            for (profile, expected) in [(Profile::Koordinator, koordinator), (Profile::Responsive, responsive)] {
                assert_eq!(choose(&pools, wanted, profile).cpus().to_string(), expected, "{wanted} {profile:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_choice_is_within_the_pools_and_as_large_as_it_can_be(nodes in 1..4_u32, cores in 1..6_u32, lsr in 0..20_usize, wanted in 0..60_u64) {
            let cpus = machine(nodes, cores, 2);
            let lsr = lsr.min(cpus.len());
            let pools = Pools { lsr: cpus[..lsr].to_vec(), ls: cpus[lsr..].to_vec() };
            for profile in [Profile::Koordinator, Profile::Responsive] {
                let choice = choose(&pools, wanted, profile);
                prop_assert!(choice.cpus().is_subset(&pools.whole()));
                prop_assert_eq!(choice.cpus().len(), choice.picked.len());
                if profile == Profile::Responsive {
                    prop_assert_eq!(number(choice.picked.len()), wanted.clamp(1, number(cpus.len())));
                } else {
                    prop_assert!(number(choice.picked.len()) <= wanted);
                }
            }
        }
    }
}
