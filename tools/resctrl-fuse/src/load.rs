//! Demands of tasks and groups on caches and memory, and their shares: the model that moves the counters.

use std::collections::BTreeMap;

use crate::tasks::Tid;
use crate::tree::GroupId;
use crate::unit::{Bytes, BytesPerSecond};

/// The demand of a task, or of a group as a whole, on one L3 cache and the memory behind it, without contention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes that it would keep in the cache.
    pub occupancy: Bytes,
    /// Traffic to memory.
    pub bandwidth: BytesPerSecond,
    /// Percentage of the traffic that goes to the memory of its own node, 0 to 100.
    pub local_percent: u8,
}

/// All demands, by the id of their L3 domain.
///
/// The effect of demands: each cache is shared out way by way. In a way that several groups may use, each gets an equal
/// part, and unused parts go to the others; so a group never has more than its ways hold. Memory bandwidth is shared
/// out in the same manner, with each group limited by its MB value. Occupancy moves towards its share at the pace of
/// [`cache_turnover_millis`](crate::Profile::cache_turnover_millis), also downwards; on hardware, lines stay until they
/// are displaced. The CPU that a task runs on is ignored: `cpus` is stored, but has no effect on shares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    tasks: BTreeMap<(Tid, u32), Demand>,
    groups: BTreeMap<(GroupId, u32), Demand>,
}

/// The origin of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Task(Tid),
    Group(GroupId),
}

impl Load {
    pub(crate) fn set(&mut self, source: Source, domain: u32, demand: Demand) {
        let demand = Demand { local_percent: demand.local_percent.min(100), ..demand };
        match source {
            Source::Task(tid) => self.tasks.insert((tid, domain), demand),
            Source::Group(group) => self.groups.insert((group, domain), demand),
        };
    }

    pub(crate) fn forget_group(&mut self, group: GroupId) {
        self.groups.retain(|&(of, _), _| of != group);
    }

    pub(crate) fn forget_task(&mut self, tid: Tid) {
        self.tasks.retain(|&(of, _), _| of != tid);
    }

    /// The demands on one domain.
    pub(crate) fn within(&self, domain: u32) -> impl Iterator<Item = (Source, Demand)> + '_ {
        let tasks = self.tasks.iter().map(|(&(tid, id), &demand)| (Source::Task(tid), id, demand));
        let groups = self.groups.iter().map(|(&(group, id), &demand)| (Source::Group(group), id, demand));
        tasks.chain(groups).filter(move |&(_, id, _)| id == domain).map(|(source, _, demand)| (source, demand))
    }
}

/// A demand on several pools, as a bit mask of their indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) pools: u32,
    pub(crate) wanted: u64,
}

/// Shares out up to 32 pools in rounds: each pool offers equal parts to all remaining demands; a demand with a
/// sufficient offer takes what it needs, evenly from all offering pools, and the next round shares out the rest. When
/// no demand has a sufficient offer, all take everything that they are offered.
pub(crate) fn share_out(pools: &[u64], claims: &[Claim]) -> Vec<u64> {
    let mut left = pools.to_vec();
    let mut given = vec![0u64; claims.len()];
    let mut hungry: Vec<usize> = (0..claims.len()).filter(|&index| claims[index].wanted > 0).collect();
    while !hungry.is_empty() {
        let offers: Vec<u64> = (0u32..)
            .zip(&left)
            .map(|(pool, &rest)| {
                let takers = hungry.iter().filter(|&&index| claims[index].pools & (1 << pool) != 0).count();
                rest / u64::try_from(takers.max(1)).unwrap_or(u64::MAX)
            })
            .collect();
        let offered = |index: usize| -> u64 {
            let pools = claims[index].pools;
            (0u32..).zip(&offers).filter(|(pool, _)| pools & (1 << pool) != 0).map(|(_, &offer)| offer).sum()
        };
        let content: Vec<usize> =
            hungry.iter().copied().filter(|&index| offered(index) >= claims[index].wanted).collect();
        let takers = if content.is_empty() { &hungry } else { &content };
        for &index in takers {
            let (claim, total) = (claims[index], offered(index));
            let mine: Vec<usize> = (0u32..)
                .zip(0..left.len())
                .filter(|(pool, _)| claim.pools & (1 << pool) != 0)
                .map(|(_, at)| at)
                .collect();
            let wanted = claim.wanted.min(total);
            let mut missing = wanted;
            // First evenly, rounded down; then the remainder from any pool that offers it.
            for rounded in [true, false] {
                for &at in &mine {
                    let even =
                        (u128::from(offers[at]) * u128::from(wanted)).checked_div(u128::from(total)).unwrap_or(0);
                    let even = u64::try_from(even).unwrap_or(offers[at]);
                    let part = if rounded { even } else { missing.min(offers[at] - even) };
                    let part = part.min(left[at]);
                    left[at] -= part;
                    given[index] += part;
                    missing -= part;
                }
            }
        }
        if content.is_empty() {
            break;
        }
        hungry.retain(|index| !content.contains(index));
    }
    given
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_one_does_not_want_is_left_to_the_others() {
        for (pools, claims, given) in [
            (&[100][..], &[(1, 80), (1, 80)][..], &[50, 50][..]),
            (&[100], &[(1, 20), (1, 200)], &[20, 80]),
            (&[100, 100], &[(0b01, 200), (0b10, 30)], &[100, 30]),
            (&[100, 100], &[(0b11, 200), (0b10, 200)], &[150, 50]),
            (&[100], &[(0, 10), (1, 0)], &[0, 0]),
            (&[90], &[(1, 100), (1, 100), (1, 100)], &[30, 30, 30]),
            (&[10, 10, 10], &[(0b111, 10)], &[10]),
        ] {
            let claims: Vec<Claim> = claims.iter().map(|&(pools, wanted)| Claim { pools, wanted }).collect();
            assert_eq!(share_out(pools, &claims), given, "{claims:?}");
        }
    }

    proptest! {
        #[test]
        fn no_demand_gets_more_than_it_wants_or_its_pools_hold(
            pools in proptest::collection::vec(0..1u64 << 40, 1..20),
            claims in proptest::collection::vec((any::<u32>(), 0..1u64 << 42), 0..12),
        ) {
            let claims: Vec<Claim> = claims.into_iter().map(|(pools, wanted)| Claim { pools, wanted }).collect();
            let given = share_out(&pools, &claims);
            prop_assert!(given.iter().sum::<u64>() <= pools.iter().sum());
            for (claim, given) in claims.iter().zip(given) {
                let held: u64 = (0..).zip(&pools).filter(|(pool, _)| claim.pools & (1u32 << pool) != 0).map(|(_, &size)| size).sum();
                prop_assert!(given <= claim.wanted && given <= held);
            }
        }
    }
}
