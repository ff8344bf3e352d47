//! Caches and memory bandwidth: what policies want of them ([`crate::classes`]) is brought to the kernel, and what it counts is brought
//! to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use qosm_engine::Interface;
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::resctrl::{
    ClassName, ClassOutcome, ClassState, Domain, ResctrlColumn, ResctrlReading, Usage, WantedClass, sum,
};
use qosm_model::unit::Bytes;

use crate::agent::{Agent, Mode};
use crate::classes::{Classes, Place};
use crate::columns::ColumnCost;
use crate::policy::Policy;
use crate::replay::{ClassLine, ResctrlLine, UsageLine};
use crate::report::{ClassDecision, ClassReport, MembershipReport, UsageReport, moment};
use crate::table::{Access, PodEntry};

/// What is known of resctrl.
#[derive(Debug, Default)]
pub(crate) struct Resctrl {
    /// What policies want.
    pub(crate) classes: Classes,
    /// What the host was last asked for, and how that came out.
    kept: Vec<WantedClass>,
    outcomes: Vec<ClassOutcome>,
    counted: Vec<ContainerId>,
    /// Where each container was put.
    placed: BTreeMap<ContainerId, Place>,
    /// Nobody wants anything, and what an earlier agent left is gone.
    is_clean: bool,
    totals: Arc<ResctrlTotals>,
}

/// What was counted since the agent began, and how classes fare. Traffic adds up: policies differ in how often they look.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResctrlTotals {
    domains: Vec<Domain>,
    classes: BTreeMap<Place, Vec<Usage>>,
    containers: BTreeMap<ContainerId, Vec<Usage>>,
    rest: Vec<Usage>,
    states: Vec<(Arc<str>, ClassState)>,
}

impl ResctrlTotals {
    /// What one policy sees that last saw `earlier`, of the containers that are its business.
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

    /// With what was counted since.
    fn and(&self, wanted: &[WantedClass], reading: ResctrlReading) -> Self {
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

/// Occupancy as it is now; traffic since `then`, and none where nothing was seen then.
fn differences(now: &[Usage], then: Option<&Vec<Usage>>) -> Vec<Usage> {
    let minus = |now: Option<Bytes>, then: Option<Bytes>| {
        now.map(|now| Bytes(now.0.saturating_sub(then.map_or(0, |then| then.0))))
    };
    let row = |now: &Usage| match then.and_then(|then| on(then, now)) {
        Some(then) => Usage { local: minus(now.local, then.local), total: minus(now.total, then.total), ..*now },
        None => Usage { local: None, total: None, ..*now },
    };
    now.iter().map(row).collect()
}

impl Agent {
    /// What a recording says of a step: how classes fare after it, and what was counted before since `earlier`.
    pub(crate) fn resctrl_line(
        &self,
        now: Option<&ResctrlTotals>,
        earlier: Option<&ResctrlTotals>,
    ) -> (Option<ResctrlLine>, Vec<(ContainerId, Vec<UsageLine>)>) {
        let usage = |place: &Place| {
            let counted = now.and_then(|now| now.classes.get(place)).map(Vec::as_slice).unwrap_or_default();
            differences(counted, earlier.and_then(|earlier| earlier.classes.get(place)))
        };
        let mut states = self.class_states();
        // One that was given up in this step had been counted before.
        for place in now.iter().flat_map(|now| now.classes.keys()) {
            if !states.iter().any(|(policy, state)| (policy, &state.class) == (&place.0, &place.1)) {
                let state = ClassState { class: place.1.clone(), in_force: true, why: String::new() };
                states.push((Arc::clone(&place.0), state));
            }
        }
        let line = ResctrlLine {
            domains: self.resctrl.totals.domains.iter().map(Into::into).collect(),
            classes: (states.iter())
                .map(|(policy, state)| {
                    ClassLine::new(policy, state, &usage(&(Arc::clone(policy), state.class.clone())))
                })
                .collect(),
            rest: now
                .map(|now| {
                    differences(&now.rest, earlier.map(|earlier| &earlier.rest)).iter().map(Into::into).collect()
                })
                .unwrap_or_default(),
        };
        let container = |(&id, counted): (&ContainerId, &Vec<Usage>)| {
            let then = earlier.and_then(|earlier| earlier.containers.get(&id));
            (id, differences(counted, then).iter().map(Into::into).collect())
        };
        let containers = now.iter().flat_map(|now| &now.containers).map(container).collect();
        ((line != ResctrlLine::default()).then_some(line), containers)
    }

    /// How all classes fare.
    fn class_states(&self) -> Vec<(Arc<str>, ClassState)> {
        let state = |(class, outcome): (&WantedClass, &ClassOutcome)| {
            let (class, policy) = (class.class.clone(), Arc::clone(&class.policy));
            (policy, ClassState { class, in_force: outcome.in_force, why: outcome.why.clone() })
        };
        self.resctrl.kept.iter().zip(&self.resctrl.outcomes).map(state).collect()
    }

    /// The containers that are to be counted: those of pods that are configured for a policy which asks who uses what.
    fn counted(&self) -> Vec<ContainerId> {
        let readers: Vec<&Policy> =
            self.policies.iter().filter(|policy| policy.imports(Interface::ResctrlMonitor)).collect();
        if readers.is_empty() {
            return Vec::new();
        }
        let is_asked = |entry: &&PodEntry| {
            entry.given.active && entry.access == Access::Open && readers.iter().any(|policy| policy.is_asked(entry.id))
        };
        let entries = self.pods.iter().filter(is_asked);
        let open = entries.flat_map(|entry| entry.containers.iter().filter(|container| container.attached));
        let mut containers: Vec<_> = open.map(|container| container.id).collect();
        containers.sort_unstable();
        containers
    }

    /// Brings the kernel in line with what policies want of classes. Returns what changed.
    pub(crate) fn apply_classes(&mut self) -> Vec<ClassDecision> {
        // Until every policy has had its say, what an earlier agent arranged stays.
        if !self.settled {
            return Vec::new();
        }
        let counted = self.counted();
        if self.resctrl.classes.is_empty() && counted.is_empty() && self.resctrl.is_clean {
            return Vec::new();
        }
        let wanted = self.resctrl.classes.arrange(&self.pods, &self.resctrl.placed);
        let mut decisions = self.class_changes(&wanted);
        if self.mode == Mode::Plan {
            self.resctrl.kept = wanted;
            return decisions;
        }
        let outcomes = self.host.keep_classes(&wanted, &counted);
        self.resctrl.is_clean = wanted.is_empty() && counted.is_empty();
        self.tell_of_classes(&wanted, &outcomes);
        for decision in &mut decisions {
            let is_it =
                |class: &WantedClass| *class.policy == *decision.policy && class.class.as_str() == decision.class;
            let outcome = wanted.iter().position(is_it).and_then(|place| outcomes.get(place));
            decision.error = outcome.map(|outcome| outcome.why.clone()).filter(|why| !why.is_empty());
        }
        let place = |class: &WantedClass| (Arc::clone(&class.policy), class.class.clone());
        self.resctrl.placed =
            wanted.iter().flat_map(|class| class.members.iter().map(move |&id| (id, place(class)))).collect();
        self.metrics.classes(&outcomes);
        (self.resctrl.kept, self.resctrl.outcomes, self.resctrl.counted) = (wanted, outcomes, counted);
        decisions
    }

    fn class_changes(&self, wanted: &[WantedClass]) -> Vec<ClassDecision> {
        let known = |class: &WantedClass, among: &[WantedClass]| {
            among.iter().find(|other| other.policy == class.policy && other.class == class.class).cloned()
        };
        let mut decisions = Vec::new();
        for class in wanted {
            let before = known(class, &self.resctrl.kept);
            if before.as_ref() == Some(class) {
                continue;
            }
            decisions.push(ClassDecision {
                policy: class.policy.to_string(),
                class: class.class.to_string(),
                shares: Some(class.shares.to_string()),
                members: self.names(&class.members),
                reason: self.reason_of(class).to_string(),
                error: None,
            });
        }
        for class in self.resctrl.kept.iter().filter(|class| known(class, wanted).is_none()) {
            decisions.push(ClassDecision {
                policy: class.policy.to_string(),
                class: class.class.to_string(),
                shares: None,
                members: Vec::new(),
                reason: String::new(),
                error: None,
            });
        }
        decisions
    }

    fn reason_of(&self, class: &WantedClass) -> Arc<str> {
        let wishes = self.resctrl.classes.iter().find(|wishes| wishes.holder.policy == class.policy);
        wishes.and_then(|wishes| wishes.class(&class.class)).map(|known| Arc::clone(&known.reason)).unwrap_or_default()
    }

    /// Says once what does not come out as it was wanted, and that it does again.
    fn tell_of_classes(&self, wanted: &[WantedClass], outcomes: &[ClassOutcome]) {
        for (class, outcome) in wanted.iter().zip(outcomes) {
            let is_it = |known: &WantedClass| known.policy == class.policy && known.class == class.class;
            let before = self.resctrl.kept.iter().position(is_it).and_then(|place| self.resctrl.outcomes.get(place));
            let (policy, name, group) = (&class.policy, &class.class, &outcome.group);
            match before {
                Some(before) if before.in_force == outcome.in_force && before.why == outcome.why => {}
                _ if !outcome.why.is_empty() => {
                    tracing::warn!(%policy, class = %name, in_force = outcome.in_force, why = outcome.why, "class not as it was wanted");
                }
                _ => tracing::info!(%policy, class = %name, group, shares = %class.shares, "class in force"),
            }
        }
    }

    /// Reads what was counted, if a policy is to see it, and how classes fare.
    pub(crate) fn read_resctrl(&mut self, is_counted: bool, costs: &mut Vec<ColumnCost>) -> Arc<ResctrlTotals> {
        let start = Instant::now();
        let mut totals = if is_counted && !self.resctrl.is_clean {
            let reading = self.host.read_resctrl();
            self.resctrl.totals.and(&self.resctrl.kept, reading)
        } else {
            (*self.resctrl.totals).clone()
        };
        if is_counted {
            totals.domains = self.host.cache_domains();
            costs.push(ColumnCost { column: Interface::ResctrlMonitor, seconds: start.elapsed().as_secs_f64() });
        }
        totals.states = self.class_states();
        self.resctrl.totals = Arc::new(totals);
        Arc::clone(&self.resctrl.totals)
    }

    /// Removes all groups of qosm's at the end, but for those that pods on hold are in.
    pub(crate) fn clear_classes(&mut self) {
        if self.mode == Mode::Plan {
            return;
        }
        let on_hold = |id: &ContainerId| self.pods.owner(*id).is_some_and(|(entry, _)| entry.access == Access::OnHold);
        let mut left = self.resctrl.kept.clone();
        left.iter_mut().for_each(|class| class.members.retain(on_hold));
        left.retain(|class| !class.members.is_empty());
        if !left.is_empty() {
            let pods = self.names(&left.iter().flat_map(|class| class.members.clone()).collect::<Vec<_>>());
            tracing::warn!(pods = pods.join(", "), "on hold: left in their classes; `qosm restore` takes them out");
            self.host.keep_classes(&left, &[]);
            return;
        }
        match self.host.clear_classes() {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => tracing::info!(groups = removed.join(", "), "resctrl groups removed"),
            Err(error) => {
                tracing::error!(error = qosm_model::problem::chain(&error), "resctrl groups cannot be removed");
            }
        }
        let classes = std::mem::take(&mut self.resctrl.classes);
        self.resctrl = Resctrl { classes, ..Resctrl::default() };
    }

    /// `namespace/name/container` of each.
    fn names(&self, containers: &[ContainerId]) -> Vec<String> {
        let name = |&id: &ContainerId| {
            let (entry, place) = self.pods.owner(id)?;
            Some(format!("{}/{}", entry.given.key(), entry.given.containers.get(place)?.name))
        };
        containers.iter().filter_map(name).collect()
    }

    /// All classes, in the order in which a processor that has too few serves them.
    pub fn class_reports(&self) -> Vec<ClassReport> {
        let none = ClassOutcome::default();
        let kept = self.resctrl.kept.iter().enumerate();
        kept.map(|(place, class)| self.class_report(class, self.resctrl.outcomes.get(place).unwrap_or(&none))).collect()
    }

    fn class_report(&self, class: &WantedClass, outcome: &ClassOutcome) -> ClassReport {
        let wishes = self.resctrl.classes.iter().find(|wishes| wishes.holder.policy == class.policy);
        let known = wishes.and_then(|wishes| wishes.class(&class.class));
        let place = (Arc::clone(&class.policy), class.class.clone());
        ClassReport {
            policy: class.policy.to_string(),
            class: class.class.to_string(),
            shares: class.shares.to_string(),
            in_force: outcome.in_force,
            why: outcome.why.clone(),
            group: outcome.group.clone(),
            schemata: outcome.schemata.clone(),
            members: self.names(&class.members),
            usage: self.resctrl.totals.classes.get(&place).map(|usages| usage_reports(usages)).unwrap_or_default(),
            reason: known.map(|known| known.reason.to_string()).unwrap_or_default(),
            since: known.map(|known| moment(known.since)).unwrap_or_default(),
        }
    }

    /// The classes that a pod's containers are in.
    pub(crate) fn membership_reports(&self, pod: PodId) -> Vec<MembershipReport> {
        let Some(entry) = self.pods.get(pod) else { return Vec::new() };
        let report = |(place, container): (usize, &crate::table::ContainerEntry)| {
            let kept = self.resctrl.kept.iter().position(|class| class.members.contains(&container.id))?;
            let (class, outcome) = (self.resctrl.kept.get(kept)?, self.resctrl.outcomes.get(kept)?);
            let member = self.resctrl.classes.member(pod, container.id).map(|(_, member)| member);
            Some(MembershipReport {
                container: entry.given.containers.get(place)?.name.clone(),
                reason: member.map(|member| member.reason.to_string()).unwrap_or_default(),
                since: member.map(|member| moment(member.since)).unwrap_or_default(),
                class: ClassReport {
                    members: Vec::new(),
                    usage: self
                        .resctrl
                        .totals
                        .containers
                        .get(&container.id)
                        .map(|u| usage_reports(u))
                        .unwrap_or_default(),
                    ..self.class_report(class, outcome)
                },
            })
        };
        entry.containers.iter().enumerate().filter_map(report).collect()
    }
}

fn usage_reports(usages: &[Usage]) -> Vec<UsageReport> {
    let report = |usage: &Usage| UsageReport {
        domain: usage.domain.0,
        occupancy_bytes: usage.occupancy.map(|bytes| bytes.0),
        total_bytes: usage.total.map(|bytes| bytes.0),
    };
    usages.iter().map(report).collect()
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
