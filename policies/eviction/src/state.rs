//! State kept between evaluations, and saved across restarts of the module.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decide::Urgency;
use crate::feature::{Feature, Group};
use crate::input::{Inputs, Outcome};
use crate::verdict::Condition;
use crate::window::Window;

/// Layout that this version writes; other layouts are refused.
const VERSION: u32 = 1;
/// Time in microseconds, in addition to its grace period, for which an evicted pod counts as released.
pub const PENDING_USEC: u64 = 60_000_000;
/// Time in microseconds after which a pod whose eviction was refused may be chosen again.
pub const RETRY_USEC: u64 = 60_000_000;
/// Time in microseconds without a shortage after which evictions that were not carried out are withdrawn. Urgent evictions, which the node
/// itself would carry out, are withdrawn as soon as the shortage ends.
pub const CALM_USEC: u64 = 10_000_000;

/// State kept between evaluations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// When the first evaluation took place. Not saved: each start has its own delay.
    #[serde(skip)]
    pub started_at_usec: Option<u64>,
    /// Request, use and limit of batch pods. Not saved: samples from before a gap are meaningless.
    #[serde(skip)]
    pub be: Window<3>,
    /// CPU use of the node. Not saved.
    #[serde(skip)]
    pub cpu: Window<1>,
    /// When a group was last short, or its inputs were missing. Not saved.
    #[serde(skip)]
    pub short_at_usec: BTreeMap<Group, u64>,
    /// When a pod was last evicted, by group.
    pub evicted_at_usec: BTreeMap<Group, u64>,
    /// Pods that were evicted and are still there, by UID.
    pub evicted: BTreeMap<String, Evicted>,
    /// Conditions that were reported as begun and have not ended.
    pub lasting: BTreeSet<Condition>,
    /// The reported text of each feature that an invalid setting switches off. Not saved: each start reports it anew.
    #[serde(skip)]
    pub told: BTreeMap<Feature, String>,
}

/// A pod that was evicted or is leaving by itself, and is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evicted {
    /// The feature that evicted it; `None` if it is being deleted for another reason.
    pub feature: Option<Feature>,
    /// How urgent the eviction is.
    pub urgency: Urgency,
    /// When it was evicted, or when the eviction was accepted or refused.
    pub at_usec: u64,
    /// The grace period in seconds that it got.
    pub grace_seconds: u32,
    /// Whether its eviction was refused or not answered in time.
    pub is_refused: bool,
    /// Whether its eviction was accepted: it cannot be withdrawn any more, and is not repeated.
    #[serde(default)]
    pub is_taken: bool,
}

impl Evicted {
    /// Whether the pod's amounts count as released.
    pub fn is_pending(&self, now_usec: u64) -> bool {
        !self.is_refused && now_usec.saturating_sub(self.at_usec) < self.pending_usec()
    }

    /// Whether the pod may be chosen again.
    pub fn may_retry(&self, now_usec: u64) -> bool {
        self.is_refused && self.feature.is_some() && now_usec.saturating_sub(self.at_usec) >= RETRY_USEC
    }

    /// Whether its eviction was requested and is neither accepted nor refused.
    pub fn is_asked(&self) -> bool {
        self.feature.is_some() && !self.is_refused && !self.is_taken
    }

    fn pending_usec(&self) -> u64 {
        u64::from(self.grace_seconds).saturating_mul(1_000_000).saturating_add(PENDING_USEC)
    }
}

impl State {
    /// Updates the state: forgets pods that are gone and notes those that are leaving. Returns the UIDs of evictions to withdraw.
    pub(crate) fn observe(&mut self, inputs: &Inputs, now_usec: u64) -> Vec<String> {
        self.started_at_usec = Some(self.started_at_usec.unwrap_or(now_usec).min(now_usec));
        for at in self.evicted_at_usec.values_mut().chain(self.evicted.values_mut().map(|evicted| &mut evicted.at_usec))
        {
            // Timestamps in the future come from a clock that restarted; they must not block evictions forever.
            *at = (*at).min(now_usec);
        }
        if !inputs.pods.is_empty() {
            let there: BTreeSet<&str> = inputs.pods.iter().map(|pod| pod.uid.as_str()).collect();
            self.evicted.retain(|uid, _| there.contains(uid.as_str()));
        }
        let taken_back = self.note_outcomes(inputs, now_usec);
        self.note_leaving(inputs, now_usec);
        taken_back
    }

    /// Notes pods that are leaving, including those whose eviction was refused or withdrawn: their amounts are released without another
    /// eviction.
    fn note_leaving(&mut self, inputs: &Inputs, now_usec: u64) {
        for pod in inputs.pods.iter().filter(|pod| pod.is_leaving) {
            let known = self.evicted.get(&pod.uid).filter(|evicted| !evicted.is_refused);
            if known.is_none() {
                let grace_seconds = pod.grace();
                let leaving = Evicted {
                    feature: None,
                    urgency: Urgency::Soon,
                    at_usec: now_usec,
                    grace_seconds,
                    is_refused: false,
                    is_taken: true,
                };
                self.evicted.insert(pod.uid.clone(), leaving);
            }
        }
    }

    /// Notes the outcomes of evictions. Those that were refused or not answered in time are withdrawn; their UIDs are returned. If all
    /// evictions of a group's last round were refused, its cool-down ends.
    fn note_outcomes(&mut self, inputs: &Inputs, now_usec: u64) -> Vec<String> {
        let is_refused = |uid: &String, evicted: &Evicted| match inputs.outcomes.get(uid) {
            Some(Outcome::Refused { at_usec, .. }) => *at_usec >= evicted.at_usec,
            Some(Outcome::Accepted) => false,
            // The eviction was not answered in all that time.
            Some(Outcome::Pending) | None => evicted.is_asked() && !evicted.is_pending(now_usec),
        };
        for group in [Group::Cpu, Group::Memory] {
            let Some(at) = self.evicted_at_usec.get(&group).copied() else { continue };
            let is_of_group = |evicted: &Evicted| evicted.feature.is_some_and(|feature| feature.group() == group);
            let is_of_round = |evicted: &Evicted| evicted.at_usec == at && is_of_group(evicted) && !evicted.is_refused;
            let mut of_round = self.evicted.iter().filter(|(_, evicted)| is_of_round(evicted)).peekable();
            if of_round.peek().is_some() && of_round.all(|(uid, evicted)| is_refused(uid, evicted)) {
                self.evicted_at_usec.remove(&group);
            }
        }
        let mut refused = Vec::new();
        for (uid, evicted) in self.evicted.iter_mut().filter(|(_, evicted)| evicted.is_asked()) {
            if inputs.outcomes.get(uid) == Some(&Outcome::Accepted) {
                (evicted.is_taken, evicted.at_usec) = (true, now_usec);
            } else if is_refused(uid, evicted) {
                (evicted.is_refused, evicted.at_usec) = (true, now_usec);
                refused.push(uid.clone());
            }
        }
        refused
    }

    /// Withdraws evictions that were not carried out and that the node does not need any more. Returns their UIDs.
    pub(crate) fn calm(&mut self, group: Group, is_short: bool, inputs: &Inputs, now_usec: u64) -> Vec<String> {
        let short_at = self.short_at_usec.entry(group).or_insert(now_usec);
        if is_short || now_usec < *short_at {
            *short_at = now_usec;
        }
        let calm_usec = now_usec.saturating_sub(*short_at);
        let is_over = |evicted: &Evicted| {
            let is_of_group = evicted.feature.is_some_and(|feature| feature.group() == group);
            let is_calm = calm_usec >= CALM_USEC || !is_short && evicted.urgency == Urgency::Now;
            is_of_group && is_calm && evicted.is_asked()
        };
        let over = self.evicted.iter().filter(|(_, evicted)| is_over(evicted)).map(|(uid, _)| uid.clone());
        let over: Vec<String> = over.collect();
        for uid in &over {
            self.evicted.remove(uid);
        }
        self.note_leaving(inputs, now_usec);
        over
    }

    /// Whether a pod of the group may be evicted now: the cool-down since its last eviction and the delay at the start have passed.
    pub(crate) fn is_ready(&self, group: Group, cool_down_usec: u64, now_usec: u64) -> bool {
        let since = |at: Option<u64>| at.map_or(u64::MAX, |at| now_usec.saturating_sub(at));
        since(self.started_at_usec) >= group.start_delay_usec()
            && since(self.evicted_at_usec.get(&group).copied()) >= cool_down_usec
    }

    /// Resets everything but the time of the start. Returns the UIDs of evictions that were not carried out.
    pub(crate) fn reset(&mut self) -> Vec<String> {
        let asked = self.evicted.iter().filter(|(_, evicted)| evicted.is_asked()).map(|(uid, _)| uid.clone()).collect();
        *self = Self { started_at_usec: self.started_at_usec, ..Self::default() };
        asked
    }

    /// Whether there is nothing to save.
    pub fn is_empty(&self) -> bool {
        self.evicted.is_empty() && self.evicted_at_usec.is_empty() && self.lasting.is_empty()
    }

    /// Serializes the state.
    pub fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&Saved { version: VERSION, state: self }).unwrap_or_default()
    }

    /// Reads what [`State::save`] wrote; empty bytes give a fresh state.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be read or have another layout. Start with a fresh state then: at worst, pods are evicted a second time,
    /// which does no harm.
    pub fn restore(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let saved: Saved<Self> =
            serde_json::from_slice(bytes).map_err(|error| format!("the saved state cannot be read: {error}"))?;
        match saved.version {
            VERSION => Ok(saved.state),
            version => Err(format!("the saved state is of layout {version}, this version reads {VERSION}")),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Saved<T> {
    version: u32,
    state: T,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pod::Pod;

    const SECOND: u64 = 1_000_000;

    fn evicted(at_usec: u64) -> Evicted {
        Evicted {
            feature: Some(Feature::Cpu),
            urgency: Urgency::Soon,
            at_usec,
            grace_seconds: 30,
            is_refused: false,
            is_taken: false,
        }
    }

    #[test]
    fn an_evicted_pod_counts_for_its_grace_period_and_a_minute() {
        let refused = Evicted { is_refused: true, ..evicted(0) };
        let leaving = Evicted { feature: None, ..evicted(0) };
        for (evicted, second, is_pending, may_retry) in [
            (evicted(0), 0, true, false),
            (evicted(0), 89, true, false),
            (evicted(0), 90, false, false),
            // The eviction was accepted, so it is not repeated.
            (evicted(0), 10_000, false, false),
            (refused, 0, false, false),
            (refused, 59, false, false),
            (refused, 60, false, true),
            (leaving, 89, true, false),
            (leaving, 90, false, false),
            // The pod is leaving, so it does not need to be evicted.
            (leaving, 10_000, false, false),
        ] {
            let now = second * SECOND;
            assert_eq!(
                (evicted.is_pending(now), evicted.may_retry(now)),
                (is_pending, may_retry),
                "{evicted:?} {second}"
            );
        }
    }

    #[test]
    fn cool_downs_and_the_start() {
        let mut state = State { started_at_usec: Some(0), ..State::default() };
        for (second, cpu, memory) in [(0, false, true), (19, false, true), (20, true, true)] {
            let ready =
                [Group::Cpu, Group::Memory].map(|group| state.is_ready(group, group.cool_down_usec(), second * SECOND));
            assert_eq!(ready, [cpu, memory], "{second}");
        }
        state.evicted_at_usec = [(Group::Cpu, 100 * SECOND), (Group::Memory, 100 * SECOND)].into();
        for (second, cpu, memory) in
            [(100, false, false), (103, false, false), (104, false, true), (119, false, true), (120, true, true)]
        {
            let ready =
                [Group::Cpu, Group::Memory].map(|group| state.is_ready(group, group.cool_down_usec(), second * SECOND));
            assert_eq!(ready, [cpu, memory], "{second}");
        }
    }

    #[test]
    fn pods_that_are_gone_are_forgotten_and_those_that_leave_are_known() {
        let mut state =
            State { evicted: [("gone".into(), evicted(0)), ("there".into(), evicted(0))].into(), ..State::default() };
        let leaving = Pod { is_leaving: true, grace_seconds: Some(600), ..Pod::new("leaving", "p") };
        let inputs = Inputs { pods: vec![Pod::new("there", "p"), leaving], ..Inputs::default() };
        // Without any pod, the pods are unknown.
        state.observe(&Inputs::default(), SECOND);
        assert_eq!(state.evicted.len(), 2);
        state.observe(&inputs, SECOND);
        assert_eq!(state.evicted.keys().collect::<Vec<_>>(), ["leaving", "there"]);
        let leaving = state.evicted["leaving"];
        assert_eq!((leaving.feature, leaving.at_usec, leaving.grace_seconds), (None, SECOND, 600));
        // Noted once.
        state.observe(&inputs, 9 * SECOND);
        assert_eq!(state.evicted["leaving"].at_usec, SECOND);
    }

    #[test]
    fn a_pod_that_leaves_is_known_whatever_becomes_of_its_eviction() {
        let pods = vec![Pod { is_leaving: true, ..Pod::new("a", "a") }];
        for (what, outcome, now) in [
            ("it is not needed any more", Outcome::Pending, 5 * CALM_USEC),
            ("nobody answered", Outcome::Pending, 10_000 * SECOND),
            ("it was refused", Outcome::Refused { why: "budget".into(), at_usec: SECOND }, SECOND),
        ] {
            let outcomes = [("a".to_owned(), outcome)].into();
            let inputs = Inputs { pods: pods.clone(), outcomes, ..Inputs::default() };
            let short_at_usec = [(Group::Cpu, 0)].into();
            let mut state = State { evicted: [("a".into(), evicted(0))].into(), short_at_usec, ..State::default() };
            let taken_back = [state.observe(&inputs, now), state.calm(Group::Cpu, false, &inputs, now)].concat();
            assert_eq!(taken_back, ["a"], "{what}");
            let known = state.evicted["a"];
            assert!(known.is_pending(now) && !known.may_retry(now), "{what}: {known:?}");
        }
    }

    #[test]
    fn a_round_that_was_refused_starts_no_cool_down() {
        let refuse = |uids: &[&str]| Inputs {
            pods: vec![Pod::new("a", "a"), Pod::new("b", "b")],
            outcomes: uids
                .iter()
                .map(|uid| ((*uid).to_owned(), Outcome::Refused { why: "budget".into(), at_usec: 51 * SECOND }))
                .collect(),
            ..Inputs::default()
        };
        for (refused, is_ready) in [(&["a", "b"][..], true), (&["a"], false), (&[], false)] {
            let mut state = State {
                evicted: [("a".into(), evicted(50 * SECOND)), ("b".into(), evicted(50 * SECOND))].into(),
                evicted_at_usec: [(Group::Cpu, 50 * SECOND)].into(),
                started_at_usec: Some(0),
                ..State::default()
            };
            state.observe(&refuse(refused), 51 * SECOND);
            assert_eq!(state.is_ready(Group::Cpu, 20 * SECOND, 51 * SECOND), is_ready, "{refused:?}");
            assert_eq!(state.evicted["a"].is_refused, refused.contains(&"a"));
            // A repeated refusal does not restart the time.
            state.observe(&refuse(refused), 99 * SECOND);
            if refused.contains(&"a") {
                assert_eq!(state.evicted["a"].at_usec, 51 * SECOND);
            }
        }
    }

    #[test]
    fn what_was_refused_before_says_nothing_about_a_later_eviction() {
        for (at_usec, is_refused) in [(49, false), (50, true), (51, true)] {
            let mut state = State { evicted: [("a".into(), evicted(50))].into(), ..State::default() };
            let outcomes = [("a".to_owned(), Outcome::Refused { why: "budget".into(), at_usec })].into();
            state.observe(&Inputs { pods: vec![Pod::new("a", "a")], outcomes, ..Inputs::default() }, 60);
            assert_eq!(state.evicted["a"].is_refused, is_refused, "{at_usec}");
        }
    }

    #[test]
    fn what_is_saved_is_what_is_restored() {
        let state = State {
            evicted_at_usec: [(Group::Cpu, 7)].into(),
            evicted: [("uid".into(), evicted(7))].into(),
            lasting: [Condition::Config(Feature::Cpu), Condition::NotEnough(Feature::Memory)].into(),
            ..State::default()
        };
        assert_eq!(State::restore(&state.save()), Ok(state));
        assert_eq!(State::restore(&[]), Ok(State::default()));
        let error = State::restore(br#"{"version": 7, "state": {"evictedAtUsec": {}, "evicted": {}, "lasting": []}}"#)
            .unwrap_err();
        insta::assert_snapshot!(error, @"the saved state is of layout 7, this version reads 1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = State::restore(&bytes);
        }
    }
}
