//! Distribution between containers for the profile `responsive`: which containers get the free CPU of the share pool, and which ones give
//! up quota when the pool is overloaded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use qosm_sdk::scale;

use crate::bandwidth::QUOTA_MIN_USEC;
use crate::pool::Pool;
use crate::step::Activity;

/// Minimum cut in percent of a quota, so that an overload does not take tiny amounts from all containers.
const MIN_CUT_PERCENT: u64 = 20;

const USEC: u64 = 1_000_000;

/// A container that needs more quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Raise<Id> {
    pub(crate) id: Id,
    /// How much more, in microseconds per period.
    pub(crate) wanted: u64,
    pub(crate) period_usec: u64,
    /// How long its threads waited, in microseconds.
    pub(crate) throttled_usec: u64,
    /// Its `sharePoolThresholdPercent`.
    pub(crate) threshold_percent: u64,
}

/// Distributes the free CPU of the pool, the longest waiting container first. `given` (in millionths of a CPU) is what was given since the
/// pool was measured; it is increased. Calls `give` with each container and the additional quota.
pub(crate) fn share<Id: Copy>(raises: &[Raise<Id>], pool: &Pool, given: &mut u64, mut give: impl FnMut(Id, u64)) {
    let mut order = queue(raises.iter().map(|raise| (raise.throttled_usec, 0)));
    while let Some(raise) = next(&mut order, raises) {
        let left = pool.free(raise.threshold_percent).saturating_sub(*given);
        let quota = raise.wanted.min(scale(left, raise.period_usec, USEC));
        // A raise below the kernel's smallest quota would have no effect and would change again at once.
        if quota > 0 && quota >= QUOTA_MIN_USEC.min(raise.wanted) {
            *given = given.saturating_add(scale(quota, USEC, raise.period_usec));
            give(raise.id, quota);
        }
    }
}

/// A container whose quota is above its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut<Id> {
    pub(crate) id: Id,
    pub(crate) quota: u64,
    pub(crate) base: u64,
    pub(crate) period_usec: u64,
    pub(crate) activity: Option<Activity>,
    /// Its `sharePoolThresholdPercent`.
    pub(crate) threshold_percent: u64,
}

impl<Id> Cut<Id> {
    /// Sort key: the containers that can give up most come first. Throttled containers come last; the others are sorted by the share of the
    /// quota that they use, in thousandths, the smallest first. A container without measurements may be in need and comes last of those
    /// that were not throttled.
    fn dispensable(&self) -> (u64, u64) {
        match self.activity {
            Some(activity) => {
                let used = scale(activity.usage_usec, self.period_usec, activity.window_usec);
                (u64::from(!activity.is_throttled()), u64::MAX - scale(used, 1_000, self.quota))
            }
            None => (1, 0),
        }
    }
}

/// Takes the pool's excess from the containers that need least. `taken` (in millionths of a CPU) is what was lowered anyway. Calls `take`
/// with each container and the quota to take.
pub(crate) fn collect<Id: Copy>(cuts: &[Cut<Id>], pool: &Pool, taken: u64, mut take: impl FnMut(Id, u64)) {
    if cuts.iter().all(|cut| pool.excess(cut.threshold_percent).is_none()) {
        return;
    }
    let mut order = queue(cuts.iter().map(Cut::dispensable));
    let mut taken = taken;
    while let Some(cut) = next(&mut order, cuts) {
        let Some(excess) = pool.excess(cut.threshold_percent) else { continue };
        // Exactly at the threshold the excess is 0, but one container still makes one step down.
        if taken > 0 && excess <= taken {
            continue;
        }
        let left = scale(excess.saturating_sub(taken), cut.period_usec, USEC);
        let least = scale(cut.quota, MIN_CUT_PERCENT, 100).max(1);
        let quota = left.max(least).min(cut.quota.saturating_sub(cut.base));
        if quota > 0 {
            taken = taken.saturating_add(scale(quota, USEC, cut.period_usec));
            take(cut.id, quota);
        }
    }
}

/// Order of containers: by two numbers, the larger first; ties keep the original order.
type Queue = BinaryHeap<(u64, u64, Reverse<usize>)>;

fn queue(claims: impl Iterator<Item = (u64, u64)>) -> Queue {
    claims.enumerate().map(|(index, (first, second))| (first, second, Reverse(index))).collect()
}

fn next<'a, T>(queue: &mut Queue, all: &'a [T]) -> Option<&'a T> {
    queue.pop().and_then(|(.., Reverse(index))| all.get(index))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 200_000;

    fn throttled(nr_throttled: u64, throttled_usec: u64) -> Activity {
        Activity { window_usec: USEC, usage_usec: 1_500_000, nr_periods: 10, nr_throttled, throttled_usec }
    }

    fn calm(usage_usec: u64) -> Activity {
        Activity { window_usec: USEC, usage_usec, nr_periods: 10, ..Activity::default() }
    }

    fn pool(free: u64) -> Pool {
        // The threshold is half of 100 CPUs; below 45 CPUs the node is idle.
        Pool { size: 100 * USEC, average: Some(50 * USEC - free), latest: Some(50 * USEC - free) }
    }

    fn raise(id: usize, wanted: u64, throttled_usec: u64) -> Raise<usize> {
        Raise { id, wanted, period_usec: 100_000, throttled_usec, threshold_percent: 50 }
    }

    fn shared(raises: &[Raise<usize>], pool: &Pool) -> Vec<(usize, u64)> {
        let mut given = Vec::new();
        share(raises, pool, &mut 0, |id, quota| given.push((id, quota)));
        given
    }

    #[test]
    fn who_waited_longest_is_served_first_and_no_more_than_is_free_is_given() {
        // 6 CPUs are free: 600 ms per period of 100 ms.
        let raises = [raise(1, 400_000, 10), raise(2, 300_000, 30), raise(3, 50_000, 5), raise(4, 250_000, 10)];
        assert_eq!(shared(&raises, &pool(6 * USEC)), [(2, 300_000), (1, 300_000)]);
    }

    #[test]
    fn a_node_that_is_not_idle_gives_nothing() {
        assert_eq!(shared(&[raise(1, 400_000, 10)], &pool(5 * USEC)), []);
        assert_eq!(shared(&[raise(1, 400_000, 10)], &Pool { average: None, ..pool(9 * USEC) }), []);
    }

    fn cut(id: usize, quota: u64, activity: Option<Activity>) -> Cut<usize> {
        Cut { id, quota, base: BASE, period_usec: 100_000, activity, threshold_percent: 50 }
    }

    fn collected(cuts: &[Cut<usize>], excess: u64, lowered: u64) -> Vec<(usize, u64)> {
        let usage = Some(50 * USEC + excess);
        let pool = Pool { size: 100 * USEC, average: usage, latest: usage };
        let mut taken = Vec::new();
        collect(cuts, &pool, lowered, |id, quota| taken.push((id, quota)));
        taken
    }

    #[test]
    fn who_needs_least_gives_first_and_no_more_than_the_excess() {
        let all = || {
            [
                cut(1, 600_000, Some(throttled(3, 1_000))),
                cut(2, 600_000, Some(calm(5_000_000))),
                cut(3, 600_000, Some(calm(1_000_000))),
                cut(4, 200_000, Some(calm(0))),
                cut(5, 600_000, None),
            ]
        };
        for (excess, taken) in [
            (0, vec![(3, 120_000)]),
            (USEC, vec![(3, 120_000)]),
            (3 * USEC, vec![(3, 300_000)]),
            (5 * USEC, vec![(3, 400_000), (2, 120_000)]),
            (90 * USEC, vec![(3, 400_000), (2, 400_000), (5, 400_000), (1, 400_000)]),
        ] {
            assert_eq!(collected(&all(), excess, 0), taken, "{excess}");
        }
        assert_eq!(collected(&all(), 3 * USEC, 3 * USEC), [], "what was lowered anyway counts");
    }

    fn any_activity() -> impl Strategy<Value = Option<Activity>> {
        proptest::option::of((0..1_u64 << 40, 0..1_u64 << 40, 0..100_u64, 0..100_u64, 0..1_u64 << 40).prop_map(
            |(window_usec, usage_usec, nr_periods, nr_throttled, throttled_usec)| Activity {
                window_usec,
                usage_usec,
                nr_periods,
                nr_throttled,
                throttled_usec,
            },
        ))
    }

    proptest! {
        #[test]
        fn never_more_is_given_than_is_free(
            wants in proptest::collection::vec((0_u64..1 << 40, any::<u64>(), 1_000_u64..1 << 30), 0..20),
            free in 0_u64..50 * USEC,
        ) {
            let raises: Vec<_> = wants
                .iter()
                .enumerate()
                .map(|(id, (wanted, waited, period_usec))| Raise { period_usec: *period_usec, ..raise(id, *wanted, *waited) })
                .collect();
            let given: u128 = shared(&raises, &pool(free))
                .iter()
                .map(|(id, quota)| u128::from(*quota) * u128::from(USEC) / u128::from(wants[*id].2))
                .sum();
            prop_assert!(given <= u128::from(free));
        }

        #[test]
        fn no_container_is_cut_below_the_base(
            quotas in proptest::collection::vec((BASE..1 << 40, any_activity()), 0..20), excess in 0_u64..1 << 40,
        ) {
            let cuts: Vec<_> =
                quotas.iter().enumerate().map(|(id, (quota, activity))| cut(id, *quota, *activity)).collect();
            for (id, less) in collected(&cuts, excess, 0) {
                prop_assert!(quotas[id].0 - less >= BASE);
            }
        }
    }
}
