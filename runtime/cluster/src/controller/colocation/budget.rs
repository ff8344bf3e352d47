//! Eviction budgets per minute: for each node, for each namespace, and for the fleet.

use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of evictions within a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerMinute {
    /// Of pods on one node.
    pub node: u32,
    /// Of pods in one namespace.
    pub namespace: u32,
    /// Of all pods of the cluster.
    pub fleet: u32,
}

const MINUTE: Duration = Duration::from_secs(60);

/// The evictions of the last minute.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The oldest first.
    spent: VecDeque<Spent>,
}

#[derive(Debug)]
struct Spent {
    at: Duration,
    uid: String,
    node: String,
    namespace: String,
}

/// An eviction that has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exceeded {
    pub(super) until: Duration,
    /// The budget is 0, so waiting does not help.
    pub(super) is_for_good: bool,
    pub(super) message: String,
}

impl Budget {
    /// Takes one eviction from all three budgets, or from none of them.
    ///
    /// # Errors
    ///
    /// [`Exceeded`] names the spent budget, and when it has room again.
    pub(super) fn take(
        &mut self,
        (uid, node, namespace): (&str, &str, &str),
        bounds: PerMinute,
        now: Duration,
    ) -> Result<(), Exceeded> {
        self.drop_old(now);
        let checks = [
            ("on this node (colocation.evictions.perMinute.node)", bounds.node, Some(node), None),
            ("in this namespace (colocation.evictions.perMinute.namespace)", bounds.namespace, None, Some(namespace)),
            ("in the cluster (colocation.evictions.perMinute.fleet)", bounds.fleet, None, None),
        ];
        for (place, bound, node, namespace) in checks {
            let counts = |spent: &&Spent| {
                node.is_none_or(|node| spent.node == node)
                    && namespace.is_none_or(|namespace| spent.namespace == namespace)
            };
            let mut within = self.spent.iter().filter(counts);
            let number = within.clone().count();
            if number >= usize::try_from(bound).unwrap_or(usize::MAX) {
                let until = within.next().map_or(now, |oldest| oldest.at) + MINUTE;
                let is_for_good = bound == 0;
                let message = if is_for_good {
                    format!("no pod is evicted {place}: the budget is 0")
                } else {
                    format!("no more than {bound} evictions a minute {place}; it waits for its turn")
                };
                return Err(Exceeded { until, is_for_good, message });
            }
        }
        self.spent.push_back(Spent { at: now, uid: uid.into(), node: node.into(), namespace: namespace.into() });
        Ok(())
    }

    /// Returns the budget of the latest eviction of a pod, which did not happen. An earlier one may have.
    pub(super) fn give_back(&mut self, uid: &str) {
        if let Some(place) = self.spent.iter().rposition(|spent| spent.uid == uid) {
            self.spent.remove(place);
        }
    }

    /// Counts an eviction by the controller that acted before this one.
    pub(super) fn note(&mut self, (uid, node, namespace): (&str, &str, &str), at: Duration, now: Duration) {
        self.drop_old(now);
        let place = self.spent.partition_point(|spent| spent.at <= at);
        self.spent.insert(place, Spent { at, uid: uid.into(), node: node.into(), namespace: namespace.into() });
    }

    /// Drops what no longer counts. A controller that stands by takes nothing, and notes all evictions.
    fn drop_old(&mut self, now: Duration) {
        while self.spent.front().is_some_and(|spent| spent.at + MINUTE <= now) {
            self.spent.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: PerMinute = PerMinute { node: 2, namespace: 3, fleet: 4 };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_budget_bounds_by_itself_and_names_its_value() {
        let mut budget = Budget::default();
        for (uid, node, namespace, now, refused) in [
            ("a", "n1", "x", 100, None),
            ("b", "n1", "x", 110, None),
            ("c", "n1", "y", 120, Some(("perMinute.node", 160))),
            ("c", "n2", "x", 120, None),
            ("d", "n3", "x", 121, Some(("perMinute.namespace", 160))),
            ("d", "n3", "y", 122, None),
            ("e", "n4", "z", 123, Some(("perMinute.fleet", 160))),
            ("e", "n4", "z", 159, Some(("perMinute.fleet", 160))),
            ("e", "n4", "z", 160, None),
            ("f", "n4", "z", 160, Some(("perMinute.fleet", 170))),
        ] {
            let answer = budget.take((uid, node, namespace), BOUNDS, at(now));
            let told = answer.as_ref().err().map(|exceeded| (exceeded.message.clone(), exceeded.until.as_secs()));
            match (refused, told) {
                (None, None) => {}
                (Some((value, until)), Some((message, told))) => {
                    assert!(message.contains(value) && told == until, "{uid} at {now}: {message} until {told}");
                }
                other => unreachable!("{uid} at {now}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_did_not_happen_is_given_back_and_what_another_did_counts() {
        let mut budget = Budget::default();
        let bounds = PerMinute { node: 1, ..BOUNDS };
        assert!(budget.take(("a", "n", "x"), bounds, at(100)).is_ok());
        budget.give_back("a");
        assert!(budget.take(("b", "n", "x"), bounds, at(101)).is_ok());
        // An earlier eviction of the same pod happened.
        let twice = PerMinute { node: 2, ..BOUNDS };
        assert!(budget.take(("b", "n", "x"), twice, at(102)).is_ok());
        budget.give_back("b");
        assert!(budget.take(("b", "n", "x"), bounds, at(103)).is_err());
        budget.note(("c", "m", "x"), at(80), at(103));
        assert_eq!(budget.take(("d", "m", "x"), bounds, at(102)).unwrap_err().until, at(140));
        assert!(budget.take(("d", "m", "x"), bounds, at(140)).is_ok());
    }

    #[test]
    fn a_controller_that_stands_by_keeps_the_last_minute_only() {
        let mut budget = Budget::default();
        for second in 100..1000 {
            budget.note(("a", "n", "x"), at(second), at(second));
        }
        assert_eq!(budget.spent.len(), 60);
    }

    #[test]
    fn a_budget_of_none_forbids_all() {
        let bounds = PerMinute { node: 0, ..BOUNDS };
        let exceeded = Budget::default().take(("a", "n", "x"), bounds, at(5)).unwrap_err();
        assert_eq!((exceeded.until, exceeded.is_for_good), (at(65), true));
        assert!(exceeded.message.contains("perMinute.node"), "{}", exceeded.message);
    }
}
