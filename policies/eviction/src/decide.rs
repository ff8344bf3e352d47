//! One evaluation: inputs in, pods to evict out. No clock, no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{Checked, Config, Settings};
use crate::feature::{Feature, Group};
use crate::input::{INTERVAL_USEC, Inputs, Outcome};
use crate::pod::Pod;
use crate::round::{Chosen, Task, work};
use crate::state::{Evicted, State};
use crate::task::{self, Demand};
use crate::trigger::Shortage;
use crate::verdict::{Condition, MESSAGE_PREFIX, Report, Why, begun};

/// How urgently a pod is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Urgency {
    /// Through the eviction API, with budgets and a grace period.
    Soon,
    /// At once, if necessary by the node itself: memory is about to run out.
    Now,
}

/// A pod to evict.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// UID of the pod, so that no other pod of the same name is meant.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The feature that chose the pod; of an escalated eviction, the feature that chose it first.
    pub feature: Feature,
    /// How urgent the eviction is.
    pub urgency: Urgency,
    /// Grace period in seconds: the pod's own, bounded by the configuration; 0 if it cannot wait.
    pub grace_seconds: u32,
    /// The reason.
    pub cause: Cause,
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// It was chosen in this evaluation.
    Chosen(Why),
    /// It was chosen earlier and is still running, but memory cannot wait for its grace period any longer.
    Escalated(Shortage),
}

impl Eviction {
    /// Message of the pod's event, also passed to the host with the eviction.
    pub fn message(&self) -> String {
        format!("{MESSAGE_PREFIX}{}, kill pod: {}: {}", self.feature, self.name, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen(why) => why.fmt(f),
            Self::Escalated(shortage) => write!(f, "{shortage}, and the pod, evicted earlier, is still there"),
        }
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// Pods to evict, in the order in which they were chosen. Each eviction is reported once.
    pub evictions: Vec<Eviction>,
    /// UIDs of pods whose eviction is withdrawn, so that it is not carried out later.
    pub withdrawals: Vec<String>,
    /// Conditions that began or ended; each is reported once.
    pub reports: Vec<Report>,
}

/// Evaluates the inputs. `config` must have been checked; `now_usec` is a clock that does not go back while the agent runs.
pub fn tick(state: &mut State, config: &Config, inputs: &Inputs, now_usec: u64) -> Decisions {
    let mut round =
        Round { config, inputs, now_usec, lasting: BTreeMap::new(), evictions: Vec::new(), withdrawals: Vec::new() };
    if config.is_enabled() {
        round.withdrawals = state.observe(inputs, now_usec);
        round.run(state);
    } else {
        // No knob is held, so nothing has to be restored; evictions that were not carried out are withdrawn.
        state.started_at_usec.get_or_insert(now_usec);
        round.withdrawals = state.reset();
    }
    let known = std::mem::take(&mut state.lasting);
    let mut reports: Vec<Report> = known
        .iter()
        .filter(|condition| !round.lasting.contains_key(condition))
        .map(|condition| Report::ended(condition, inputs))
        .collect();
    // Another invalid setting of a feature is the same condition with another text.
    let invalid = |(condition, report): (&Condition, &Report)| match condition {
        Condition::Config(feature) => Some((*feature, report.text.clone())),
        _ => None,
    };
    let told = std::mem::replace(&mut state.told, round.lasting.iter().filter_map(invalid).collect());
    let is_told = |condition: &Condition, report: &Report| match condition {
        Condition::Config(feature) => told.get(feature) == Some(&report.text),
        _ => known.contains(condition),
    };
    let begun = round.lasting.iter().filter(|(condition, report)| !is_told(condition, report));
    reports.extend(begun.map(|(_, report)| report.clone()));
    state.lasting = round.lasting.into_keys().collect();
    // A pod that is chosen again in the same evaluation stays evicted.
    let is_evicted = |uid: &String| round.evictions.iter().any(|eviction| eviction.uid == *uid);
    round.withdrawals.retain(|uid| !is_evicted(uid));
    Decisions { evictions: round.evictions, withdrawals: round.withdrawals, reports }
}

/// State of an evaluation in progress.
struct Round<'a> {
    config: &'a Config,
    inputs: &'a Inputs,
    now_usec: u64,
    lasting: BTreeMap<Condition, Report>,
    evictions: Vec<Eviction>,
    withdrawals: Vec<String>,
}

impl<'a> Round<'a> {
    fn run(&mut self, state: &mut State) {
        let mut features: Vec<(Feature, Checked)> = Vec::new();
        for (feature, checked) in self.config.features() {
            match checked {
                Ok(checked) => features.push((feature, checked)),
                Err(error) => {
                    let condition = Condition::Config(feature);
                    let report = begun(&condition, Some(&error), "", self.inputs);
                    self.lasting.insert(condition, report);
                }
            }
        }
        task::sample(state, &features, self.inputs, self.now_usec);
        for group in [Group::Cpu, Group::Memory] {
            let of_group = features.iter().filter(|(feature, _)| feature.group() == group);
            let tasks: Vec<Task<'a>> =
                of_group.filter_map(|(feature, checked)| self.task(state, *feature, *checked)).collect();
            let is_missing =
                |condition: &Condition| matches!(condition, Condition::Missing(feature) if feature.group() == group);
            let is_short = !tasks.is_empty() || self.lasting.keys().any(is_missing);
            self.withdrawals.extend(state.calm(group, is_short, self.inputs, self.now_usec));
            self.escalate(state, &tasks);
            if state.is_ready(group, group.cool_down_usec(), self.now_usec) {
                self.work(state, group, &tasks);
                continue;
            }
            let is_of_group =
                |condition: &Condition| matches!(condition, Condition::NotEnough(feature) if feature.group() == group);
            self.keep(state, is_of_group);
            if state.is_ready(group, INTERVAL_USEC, self.now_usec) {
                // Urgent evictions skip the cool-down; they wait one interval, so that the effect of the last eviction shows.
                let urgent: Vec<Task<'a>> = tasks.into_iter().filter(|task| task.shortage().is_some()).collect();
                self.work(state, group, &urgent);
            }
        }
        self.tell_of_stragglers(state);
    }

    /// The task of a feature; `None` if nothing has to be released or an input is missing.
    fn task(&mut self, state: &State, feature: Feature, checked: Checked) -> Option<Task<'a>> {
        let demand = task::demand(state, feature, &checked, &self.config.policy, self.inputs, self.now_usec);
        match demand {
            Demand::Nothing => None,
            Demand::Missing(what) => {
                self.note(Condition::Missing(feature), what);
                None
            }
            Demand::Release(trigger, needed) => {
                let candidates =
                    crate::order::candidates(feature, &checked, &self.config.policy, &self.inputs.pods, self.now_usec);
                Some(Task { feature, trigger, needed, candidates })
            }
        }
    }

    fn work(&mut self, state: &mut State, group: Group, tasks: &[Task<'a>]) {
        if tasks.is_empty() {
            return;
        }
        let (now, known) = (self.now_usec, &state.evicted);
        let is = |test: fn(&Evicted, u64) -> bool| {
            move |pod: &&'a Pod| known.get(&pod.uid).is_some_and(|evicted| test(evicted, now))
        };
        let active = || self.inputs.pods.iter().filter(|pod| pod.is_active);
        let pending: Vec<&Pod> = active().filter(is(Evicted::is_pending)).collect();
        let barred: BTreeSet<&str> = active()
            .filter(is(|evicted, now| !evicted.is_pending(now) && !evicted.may_retry(now)))
            .map(|pod| pod.uid.as_str())
            .collect();
        let outcome = work(tasks, &pending, &barred, self.config.policy.profile, now);
        for (number, lacking) in &outcome.lacking {
            let amounts: Vec<_> = lacking
                .iter()
                .map(|(resource, amount)| format!("{} of {}", resource.show(*amount), resource.name()))
                .collect();
            if let Some(task) = tasks.get(*number) {
                self.note(Condition::NotEnough(task.feature), &amounts.join(", "));
            }
        }
        for chosen in outcome.chosen {
            if let Some(task) = tasks.get(chosen.task) {
                let eviction = eviction(task, chosen, &self.config.policy);
                let Eviction { feature, urgency, grace_seconds, .. } = eviction;
                let evicted = Evicted {
                    feature: Some(feature),
                    urgency,
                    at_usec: now,
                    grace_seconds,
                    is_refused: false,
                    is_taken: false,
                };
                state.evicted.insert(eviction.uid.clone(), evicted);
                state.evicted_at_usec.insert(group, now);
                self.evictions.push(eviction);
            }
        }
    }

    /// While memory cannot wait, evictions that were `Soon` become `Now`. These pods are not new victims, so no cool-down applies.
    fn escalate(&mut self, state: &mut State, tasks: &[Task<'a>]) {
        let shortage = tasks.iter().find_map(Task::shortage);
        let Some(shortage) = shortage else { return };
        let has_memory = |pod: &&'a Pod| pod.memory.is_none_or(|memory| memory.amount > 0);
        let may_leave = |pod: &&'a Pod| pod.is_active && !pod.is_protected(self.config.policy.daemon_sets);
        for pod in self.inputs.pods.iter().filter(has_memory).filter(may_leave) {
            let Some(evicted) = state.evicted.get_mut(&pod.uid) else { continue };
            let is_waited_for =
                !evicted.is_refused && evicted.urgency == Urgency::Soon && evicted.at_usec < self.now_usec;
            let Some(feature) = evicted.feature.filter(|_| is_waited_for) else { continue };
            *evicted = Evicted { urgency: Urgency::Now, at_usec: self.now_usec, grace_seconds: 0, ..*evicted };
            self.evictions.push(Eviction {
                uid: pod.uid.clone(),
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                feature,
                urgency: Urgency::Now,
                grace_seconds: 0,
                cause: Cause::Escalated(shortage),
            });
        }
    }

    /// Reports evicted pods whose eviction was refused or that have not left in time.
    fn tell_of_stragglers(&mut self, state: &State) {
        for (uid, evicted) in state.evicted.iter().filter(|(_, evicted)| evicted.feature.is_some()) {
            if evicted.is_refused {
                let why = match self.inputs.outcomes.get(uid) {
                    Some(Outcome::Refused { why, .. }) => why.as_str(),
                    Some(Outcome::Pending | Outcome::Accepted) | None => "nobody answered in time",
                };
                self.note(Condition::Refused(uid.clone()), why);
            } else if !evicted.is_pending(self.now_usec) {
                self.note(Condition::Overdue(uid.clone()), "");
            }
        }
    }

    fn note(&mut self, condition: Condition, detail: &str) {
        let report = begun(&condition, None, detail, self.inputs);
        self.lasting.insert(condition, report);
    }

    /// Carries over conditions that were not evaluated this time.
    fn keep(&mut self, state: &State, is_kept: impl Fn(&Condition) -> bool) {
        for condition in state.lasting.iter().filter(|condition| is_kept(condition)) {
            self.note(condition.clone(), "");
        }
    }
}

fn eviction(task: &Task, chosen: Chosen, policy: &Settings) -> Eviction {
    let pod = chosen.candidate.pod;
    let (urgency, grace_seconds) = if task.shortage().is_some() {
        (Urgency::Now, 0)
    } else {
        (Urgency::Soon, pod.grace().min(policy.max_grace_seconds))
    };
    let why = Why {
        trigger: task.trigger.clone(),
        place: chosen.place,
        candidates: task.candidates.len(),
        rank: chosen.candidate.rank,
        freed: chosen.freed,
        lacking: chosen.lacking,
    };
    Eviction {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        feature: task.feature,
        urgency,
        grace_seconds,
        cause: Cause::Chosen(why),
    }
}

#[cfg(test)]
mod tests;
