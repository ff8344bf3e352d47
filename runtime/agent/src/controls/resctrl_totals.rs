//! Counters of resctrl since the agent started. Traffic is summed up, because policies read it at different intervals.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_model::pod::ContainerId;
use qosm_model::resctrl::{ClassName, ClassState, Domain, ResctrlColumn, ResctrlReading, Usage, WantedClass, sum};
use qosm_model::unit::Bytes;

/// A policy and its class.
pub(crate) type Place = (Arc<str>, ClassName);

/// Counters since the agent started, and the state of classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResctrlTotals {
    pub(crate) domains: Vec<Domain>,
    pub(crate) classes: BTreeMap<Place, Vec<Usage>>,
    pub(crate) containers: BTreeMap<ContainerId, Vec<Usage>>,
    pub(crate) rest: Vec<Usage>,
    pub(crate) states: Vec<(Arc<str>, ClassState)>,
}

impl ResctrlTotals {
    /// The column for a policy that last read `earlier`, with the containers for which `is_asked` returns `true`.
    pub(crate) fn since(
        &self,
        earlier: Option<&Self>,
        policy: &str,
        is_asked: impl Fn(ContainerId) -> bool,
    ) -> ResctrlColumn {
        let place = |class: &ClassName| (Arc::from(policy), class.clone());
        let classes = self.states.iter().filter(|(of, state)| **of == *policy && state.in_force);
        ResctrlColumn {
            domains: self.domains.clone(),
            classes: classes
                .filter_map(|(_, state)| {
                    let place = place(&state.class);
                    let now = self.classes.get(&place)?;
                    let then = earlier.and_then(|earlier| earlier.classes.get(&place));
                    Some((state.class.clone(), differences(now, then)))
                })
                .collect(),
            containers: self
                .containers
                .iter()
                .filter(|(id, _)| is_asked(**id))
                .map(|(&id, now)| (id, differences(now, earlier.and_then(|earlier| earlier.containers.get(&id)))))
                .collect(),
            rest: differences(&self.rest, earlier.map(|earlier| &earlier.rest)),
            states: self.states.iter().filter(|(of, _)| **of == *policy).map(|(_, state)| state.clone()).collect(),
        }
    }

    /// These totals plus a new reading.
    pub(crate) fn and(&self, wanted: &[WantedClass], reading: ResctrlReading) -> Self {
        let place = |class: &WantedClass| (Arc::clone(&class.policy), class.class.clone());
        let classes = wanted.iter().zip(&reading.classes).map(|(class, more)| {
            let place = place(class);
            let all = sum(self.classes.get(&place).map_or(&[], Vec::as_slice), more);
            (place, all)
        });
        Self {
            classes: classes.collect(),
            containers: (reading.containers.iter())
                .map(|(id, more)| (*id, sum(self.containers.get(id).map_or(&[], Vec::as_slice), more)))
                .collect(),
            rest: sum(&self.rest, &reading.rest),
            ..Self::default()
        }
    }
}

fn on(usages: &[Usage], domain: &Usage) -> Option<Usage> {
    usages.iter().find(|usage| usage.domain == domain.domain).copied()
}

/// Occupancy as it is now, and traffic since `then`; traffic is `None` for domains that `then` does not have.
pub(crate) fn differences(now: &[Usage], then: Option<&Vec<Usage>>) -> Vec<Usage> {
    let minus = |now: Option<Bytes>, then: Option<Bytes>| {
        now.map(|now| Bytes(now.0.saturating_sub(then.map_or(0, |then| then.0))))
    };
    let row = |now: &Usage| match then.and_then(|then| on(then, now)) {
        Some(then) => Usage { local: minus(now.local, then.local), total: minus(now.total, then.total), ..*now },
        None => Usage { local: None, total: None, ..*now },
    };
    now.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use qosm_model::resctrl::DomainId;

    use super::*;

    fn usage(occupancy: u64, total: Option<u64>) -> Usage {
        Usage { domain: DomainId(0), occupancy: Some(Bytes(occupancy)), local: None, total: total.map(Bytes) }
    }

    fn wanted() -> Vec<WantedClass> {
        let class = "be".parse().unwrap();
        vec![WantedClass { policy: "llc".into(), class, shares: Arc::default(), members: vec![ContainerId(1)] }]
    }

    fn reading(total: Option<u64>) -> ResctrlReading {
        let row = vec![usage(5, total)];
        ResctrlReading { classes: vec![row.clone()], containers: vec![(ContainerId(1), row.clone())], rest: row }
    }

    #[test]
    fn each_policy_sees_the_traffic_since_it_last_looked() {
        let wanted = wanted();
        let with_state = |mut totals: ResctrlTotals| {
            let state = ClassState { class: "be".parse().unwrap(), in_force: true, why: String::new() };
            totals.states = vec![("llc".into(), state)];
            totals
        };
        let first = with_state(ResctrlTotals::default().and(&wanted, reading(None)));
        let second = with_state(first.and(&wanted, reading(Some(7))));
        let third = with_state(second.and(&wanted, reading(Some(30))));
        let total = |now: &ResctrlTotals, then: Option<&ResctrlTotals>| {
            let column = now.since(then, "llc", |_| true);
            let of = |usages: &[Usage]| usages[0].total.map(|bytes| bytes.0);
            (of(&column.classes[0].1), of(&column.containers[0].1), of(&column.rest))
        };
        assert_eq!(total(&third, None), (None, None, None), "nothing to take a difference from");
        assert_eq!(total(&third, Some(&second)), (Some(30), Some(30), Some(30)));
        assert_eq!(total(&third, Some(&first)), (Some(37), Some(37), Some(37)), "who looks seldom misses nothing");
        let column = third.since(Some(&second), "other", |_| false);
        assert!(column.classes.is_empty() && column.containers.is_empty(), "none of its business: {column:?}");
    }
}
