//! Apply: verdicts are planned by the host, written down in the journal, and then written to the kernel.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use qosm_host::{Clamp, Executed, HostError, Step as HostStep};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::layering::Effective;
use qosm_model::lease::Timestamp;
use qosm_model::problem::chain;

use crate::agent::{Agent, Mode, Step};
use crate::arbitrate::{Verdict, partner};
use crate::event::AgentEvent;
use crate::held::Held;
use crate::journal::{Entries, Record};
use crate::policy::Now;
use crate::tidy::is_left_by_idle;

/// Refused knobs are looked at again after so many ticks.
const RETRY_TICKS: u64 = 60;
/// State that modules saved is written down at least this often, in ticks; sooner when something else is.
const SAVE_TICKS: u64 = 30;

/// A setting that is not in force.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) wanted: Value,
    pub(crate) policy: Arc<str>,
    pub(crate) why: String,
    /// The host does not have the knob at all.
    pub(crate) unavailable: bool,
    pub(crate) since: Timestamp,
}

impl Agent {
    /// Brings all dirty knobs to what they should hold.
    pub(crate) fn apply(&mut self, now: Now, step: &mut Step) {
        self.take_finished(now, step);
        if self.ticks % RETRY_TICKS == RETRY_TICKS - 1 {
            self.dirty.extend(self.refusals.iter().filter(|(_, r)| !r.unavailable).map(|(&key, _)| key));
        }
        let dirty = self.with_groups();
        let mut verdicts: HashMap<(Target, Knob), Verdict> = HashMap::new();
        let mut wanted = Vec::new();
        for (target, knob) in dirty {
            if let Some(verdict) = self.verdict(target, knob, now)
                && !self.left_to_another(&verdict, now, step)
            {
                wanted.push(verdict.wanted);
                verdicts.insert((target, knob), verdict);
            }
        }
        let plan = if wanted.is_empty() { qosm_host::Plan::default() } else { self.host.plan(&wanted) };
        let clamps: HashMap<_, _> = plan.clamped.iter().map(|clamp| ((clamp.target, clamp.knob), clamp)).collect();
        for (target, knob, error) in plan.refused {
            if let Some(verdict) = verdicts.get(&(target, knob)) {
                self.refused(verdict, error, now, step);
            }
        }
        for (target, knob, value) in plan.unchanged {
            if let Some(verdict) = verdicts.get(&(target, knob)) {
                self.already_so(verdict, value, clamps.get(&(target, knob)).copied(), now);
            }
        }
        if self.mode == Mode::Plan {
            for planned in &plan.steps {
                if let Some(verdict) = verdicts.get(&(planned.target, planned.knob)) {
                    step.decisions.push(self.decision(
                        planned,
                        verdict,
                        clamps.get(&(planned.target, planned.knob)).copied(),
                    ));
                }
            }
            return;
        }
        let is_written_down = self.write_down(&plan.steps, &verdicts, now);
        for planned in &plan.steps {
            // What gives back a baseline is in the journal since it was first held; a journal that fails does not stop that.
            if let Some(verdict) =
                verdicts.get(&(planned.target, planned.knob)).filter(|v| is_written_down || v.restores)
            {
                self.execute(planned, verdict, clamps.get(&(planned.target, planned.knob)).copied(), now, step);
            }
        }
        self.strike_out();
    }

    /// The dirty knobs, with the others of their group: a burst depends on the quota that is in force, and `cpu.idle` takes the
    /// weight away, which nobody need hold for that.
    fn with_groups(&mut self) -> BTreeSet<(Target, Knob)> {
        let mut dirty = std::mem::take(&mut self.dirty);
        let partners: Vec<_> = dirty
            .iter()
            .filter_map(|&(target, knob)| Some((target, partner(knob)?)))
            .filter(|&(target, knob)| self.held.contains_key(&(target, knob)) || self.ruling(target, knob).is_some())
            .collect();
        dirty.extend(partners);
        dirty
    }

    /// A knob that nobody holds any more, but that shows neither our value nor the baseline, is somebody else's by now.
    fn left_to_another(&mut self, verdict: &Verdict, now: Now, step: &mut Step) -> bool {
        if !verdict.restores {
            return false;
        }
        let key = (verdict.wanted.target, verdict.wanted.knob);
        let Some(held) = self.held.get(&key) else { return false };
        match self.host.read(key.0, key.1) {
            Ok(found)
                if found != held.written && found != held.baseline && !is_left_by_idle(key.1, held.written, found) =>
            {
                let message = format!("{} holds {found}, which is not qosm's; it is left as it is", key.1);
                let cgroup = held.cgroup.clone();
                self.held.remove(&key);
                self.struck.push((key.1, cgroup));
                self.tell_pod(key.0, "KnobLeftAsFound", message, now, step);
                true
            }
            Err(HostError::Gone { .. }) => {
                self.target_gone(key.0);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Records what is about to be written. `false` if that failed: then nothing may be written.
    fn write_down(&mut self, steps: &[HostStep], verdicts: &HashMap<(Target, Knob), Verdict>, now: Now) -> bool {
        let Some(journal) = &self.journal else { return true };
        let mut entries = Entries { drop: std::mem::take(&mut self.struck), ..Entries::default() };
        for planned in steps {
            let key = (planned.target, planned.knob);
            let held = self.held.get(&key);
            let Some(cgroup) = self.host.attached_path(planned.target) else { continue };
            entries.put.push(Record {
                cgroup: cgroup.to_owned(),
                identity: self.host.identity(planned.target).unwrap_or(0),
                level: planned.target.level(),
                knob: planned.knob,
                baseline: held.map_or(planned.from, |held| held.baseline),
                previous: planned.from,
                written: planned.to,
                policy: verdicts.get(&key).map(|verdict| verdict.policy.to_string()).unwrap_or_default(),
                since: held.map_or(now.wall, |held| held.since),
            });
        }
        if !entries.put.is_empty() || self.ticks % SAVE_TICKS == SAVE_TICKS - 1 {
            entries.state = std::mem::take(&mut self.unsaved);
        }
        if entries.is_empty() {
            return true;
        }
        match journal.commit(&entries) {
            Ok(()) => {
                if self.journal_error.take().is_some() {
                    tracing::info!("journal works again");
                }
                true
            }
            Err(error) => {
                let error = chain(&error);
                if self.journal_error.is_none() {
                    tracing::error!(error, "nothing is written to the kernel until the journal works again");
                }
                self.metrics.journal_failure();
                self.struck = entries.drop;
                self.unsaved.extend(entries.state);
                self.dirty.extend(steps.iter().map(|planned| (planned.target, planned.knob)));
                self.journal_error = Some(error);
                false
            }
        }
    }

    /// Strikes out what was restored, or never written.
    fn strike_out(&mut self) {
        if self.struck.is_empty() {
            return;
        }
        let Some(journal) = &self.journal else {
            self.struck.clear();
            return;
        };
        let entries = Entries { drop: std::mem::take(&mut self.struck), ..Entries::default() };
        if let Err(error) = journal.commit(&entries) {
            tracing::error!(error = chain(&error), "restored knobs could not be struck out of the journal");
            self.journal_error = Some(chain(&error));
            self.struck = entries.drop;
        }
    }

    fn execute(&mut self, planned: &HostStep, verdict: &Verdict, clamp: Option<&Clamp>, now: Now, step: &mut Step) {
        let key = (planned.target, planned.knob);
        let outcome = self.host.execute(planned);
        let (shown, pending) = match outcome {
            Ok(Executed::Done(shown)) => (shown, false),
            Ok(Executed::Pending) => (planned.to, true),
            Err(HostError::Gone { .. }) => return self.target_gone(planned.target),
            Err(error) => {
                if !self.held.contains_key(&key)
                    && let Some(cgroup) = self.host.attached_path(planned.target)
                {
                    self.struck.push((planned.knob, cgroup.to_owned()));
                }
                return self.refused(verdict, error, now, step);
            }
        };
        let decision = self.decision(planned, verdict, clamp);
        tracing::info!(
            policy = %verdict.policy,
            pod = decision.pod_key(),
            container = decision.container.as_deref().unwrap_or(""),
            knob = %planned.knob,
            from = %planned.from,
            to = %shown,
            reason = %verdict.reason,
            "setting applied"
        );
        self.metrics.write(planned.knob, &verdict.policy);
        step.decisions.push(decision);
        self.refusals.remove(&key);
        if verdict.restores && !pending {
            if let Some(held) = self.held.remove(&key) {
                self.struck.push((planned.knob, held.cgroup));
            }
        } else {
            self.hold_knob(verdict, planned.from, shown, pending, clamp, now);
            if planned.knob == Knob::MemoryHigh && !pending {
                self.has_arrived(key);
            }
        }
        if matches!(planned.knob, Knob::CfsQuota) {
            self.quotas.refresh(&mut self.host, planned.target);
        }
        if planned.knob == Knob::CpuIdle {
            self.follow_idle(planned.target);
        }
    }

    /// `cpu.idle` was written, and with it the weight became another: by our hand, not by somebody else's.
    fn follow_idle(&mut self, target: Target) {
        if let Some(held) = self.held.get_mut(&(target, Knob::CpuWeight))
            && let Ok(found) = self.host.read(target, Knob::CpuWeight)
        {
            held.written = found;
        }
    }

    fn hold_knob(
        &mut self,
        verdict: &Verdict,
        from: Value,
        shown: Value,
        pending: bool,
        clamp: Option<&Clamp>,
        now: Now,
    ) {
        let key = (verdict.wanted.target, verdict.wanted.knob);
        let adjusted = verdict.guarded.clone().or_else(|| clamp.map(|clamp| (clamp.wanted, clamp.why.clone())));
        let cgroup = self.host.attached_path(key.0).unwrap_or_default().to_owned();
        let held = self.held.get_or_insert_with(key, || Held {
            baseline: from,
            written: shown,
            cgroup,
            policy: Arc::clone(&verdict.policy),
            since: now.wall,
            pending,
            hands_off_until: None,
            drift: None,
            rewrites: VecDeque::new(),
            adjusted: None,
        });
        held.written = shown;
        held.pending = pending;
        held.policy = Arc::clone(&verdict.policy);
        held.adjusted = adjusted;
    }

    /// The knob holds what it should, without anybody having to write.
    fn already_so(&mut self, verdict: &Verdict, value: Value, clamp: Option<&Clamp>, now: Now) {
        let key = (verdict.wanted.target, verdict.wanted.knob);
        self.refusals.remove(&key);
        if verdict.restores {
            if let Some(held) = self.held.remove(&key) {
                self.struck.push((key.1, held.cgroup));
            }
        } else {
            self.hold_knob(verdict, value, value, false, clamp, now);
        }
    }

    fn refused(&mut self, verdict: &Verdict, error: HostError, now: Now, step: &mut Step) {
        let (target, knob) = (verdict.wanted.target, verdict.wanted.knob);
        if matches!(error, HostError::Gone { .. }) {
            return self.target_gone(target);
        }
        let unavailable = matches!(error, HostError::Unsupported { .. });
        let why = chain(&error);
        self.metrics.refusal(knob, if unavailable { "unavailable" } else { error.errno_name() });
        let mut decision = self.decision_of(target, knob, None, verdict.wanted.value, verdict);
        decision.error = Some(why.clone());
        if unavailable {
            decision.support = "unavailable".to_owned();
        }
        step.refused.push(decision);
        let news = self.note_refusal(
            target,
            knob,
            verdict.wanted.value,
            Arc::clone(&verdict.policy),
            why.clone(),
            unavailable,
            now,
        );
        if news && !unavailable {
            let subject = self.shown(target);
            tracing::warn!(policy = %verdict.policy, subject, knob = %knob, error = why, "setting refused");
        }
        // What a node does not have is told to those who asked for it by name; to all pods of a class it is told by the node's report.
        if news && (!unavailable || self.is_annotated(target, &verdict.policy)) {
            self.tell_pod(target, "KnobRefused", why, now, step);
        }
    }

    /// Whether a pod asks for a policy by an annotation of its own.
    fn is_annotated(&self, target: Target, policy: &str) -> bool {
        let Some(entry) = self.pods.of(target) else { return false };
        let policy = self.policies.iter().find(|known| **known.name() == *policy && known.mode().is_active());
        policy.and_then(|policy| policy.effective.get(&entry.id)).is_some_and(Effective::is_annotated)
    }

    /// Remembers why a setting is not in force. `true` if that was not known.
    #[expect(clippy::too_many_arguments, reason = "the fields of one record, each of its own type")]
    pub(crate) fn note_refusal(
        &mut self,
        target: Target,
        knob: Knob,
        wanted: Value,
        policy: Arc<str>,
        why: String,
        unavailable: bool,
        now: Now,
    ) -> bool {
        let known = self.refusals.get(&(target, knob));
        let news = known.is_none_or(|known| known.why != why);
        let since = known.filter(|_| !news).map_or(now.wall, |known| known.since);
        self.refusals.insert((target, knob), Refusal { wanted, policy, why, unavailable, since });
        news
    }

    /// Collects slow writes that have ended since.
    fn take_finished(&mut self, now: Now, step: &mut Step) {
        for (target, knob, result) in self.host.finished() {
            let key = (target, knob);
            let Some(held) = self.held.get_mut(&key) else { continue };
            held.pending = false;
            match result {
                Ok(shown) => {
                    held.written = shown;
                    self.has_arrived(key);
                }
                Err(HostError::Gone { .. }) => {
                    self.target_gone(target);
                    continue;
                }
                Err(error) => {
                    let (policy, wanted) = (Arc::clone(&held.policy), held.written);
                    let why = chain(&error);
                    self.metrics.refusal(knob, error.errno_name());
                    self.note_refusal(target, knob, wanted, policy, why.clone(), false, now);
                    self.tell_pod(target, "KnobRefused", why, now, step);
                }
            }
            // Meanwhile the lease may have changed, or gone.
            self.dirty.insert(key);
        }
    }

    /// A bound that comes down in steps is where it was to be: what lies above it from now on is somebody else's, and the journal
    /// says so. That this cannot be written down costs no more than a knob that is restored over another's word.
    fn has_arrived(&self, (target, knob): (Target, Knob)) {
        let (Some(journal), Some(held)) = (&self.journal, self.held.get(&(target, knob))) else { return };
        let record = Record {
            cgroup: held.cgroup.clone(),
            identity: self.host.identity(target).unwrap_or(0),
            level: target.level(),
            knob,
            baseline: held.baseline,
            previous: held.written,
            written: held.written,
            policy: held.policy.to_string(),
            since: held.since,
        };
        if let Err(error) = journal.commit(&Entries { put: vec![record], ..Entries::default() }) {
            tracing::warn!(error = chain(&error), "the journal does not say that memory.high has come down");
        }
    }

    /// Tells the owner of the pod that a target is or belongs to.
    pub(crate) fn tell_pod(&mut self, target: Target, reason: &str, message: String, now: Now, step: &mut Step) {
        let Some(entry) = self.pods.of(target) else { return };
        let event = AgentEvent {
            pod: entry.given.key(),
            kind: "Warning",
            reason: reason.to_owned(),
            message,
            source: "agent".to_owned(),
            count: 1,
            last_millis: now.wall.0,
            id: Some(entry.id),
        };
        self.emit(event, now, &mut step.events);
    }

    /// A cgroup turned out to be gone while it was being written.
    pub(crate) fn target_gone(&mut self, target: Target) {
        match target {
            Target::Container(container) => self.container_gone(container),
            Target::Pod(pod) => {
                self.drop_target(target);
                if let Some(entry) = self.pods.get_mut(pod) {
                    entry.attached = false;
                }
            }
            Target::Tier(_) => self.drop_target(target),
        }
    }
}
