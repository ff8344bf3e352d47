//! Arbitrate: staged settings become leases, and leases become the one value that each knob should have.

use std::collections::BTreeSet;
use std::sync::Arc;

use qosm_engine::{LogLevel, LogLine, Staged};
use qosm_host::Wanted;
use qosm_model::knob::{IDLE_WEIGHT, Knob, Level, Target, Value};
use qosm_model::lease::Lease;
use qosm_model::pod::Tier;
use qosm_model::setting::{EventKind, Setting};

use crate::agent::Agent;
use crate::classes::Unsaid;
use crate::event::{AgentEvent, INVALID};
use crate::policy::Now;

/// What a knob should hold, and on whose word.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) wanted: Wanted,
    /// The policy whose lease wins, or whose lease is being undone.
    pub(crate) policy: Arc<str>,
    pub(crate) reason: Arc<str>,
    /// Nobody holds it any more: the baseline comes back.
    pub(crate) restores: bool,
    /// A guard rail changed the value that the policy asked for.
    pub(crate) guarded: Option<(Value, String)>,
}

impl Agent {
    /// Makes leases of what a policy staged. With `anew` the policy has said all that it wants: the rest is released.
    pub(crate) fn take_staged(
        &mut self,
        place: usize,
        staged: Vec<Staged>,
        anew: bool,
        now: Now,
        events: &mut Vec<AgentEvent>,
    ) {
        let Some(policy) = self.policies.get(place) else { return };
        let holder = policy.holder.clone();
        let mut undeclared: BTreeSet<_> =
            if anew { self.leases.held_by(&holder.policy).collect() } else { BTreeSet::new() };
        let mut unasked = if anew { self.locality.of_policy(&holder.policy) } else { Vec::new() };
        let mut unsaid = if anew { self.resctrl.classes.unsaid(&holder.policy) } else { Unsaid::default() };
        for part in staged {
            log(&holder.policy, &part.log);
            if let Some(state) = part.state {
                self.unsaved.retain(|(name, _)| **name != *holder.policy);
                self.unsaved.push((holder.policy.to_string(), state));
            }
            for setting in part.settings {
                match setting {
                    Setting::Hold { target, knob, value, reason } => {
                        undeclared.remove(&(target, knob));
                        if self.leases.hold(&holder, target, knob, value, reason, now.wall) {
                            self.dirty.insert((target, knob));
                        }
                    }
                    Setting::Release { target, knob } => {
                        if self.leases.release(&holder.policy, target, knob) {
                            self.dirty.insert((target, knob));
                        }
                    }
                    Setting::Migrate(migration) => {
                        unasked.retain(|&container| container != migration.container);
                        self.locality.ask(&holder.policy, migration, now);
                    }
                    Setting::StopMigration { container } => self.locality.stop(&holder.policy, container),
                    Setting::DefineClass { .. }
                    | Setting::UndefineClass { .. }
                    | Setting::AssignClass { .. }
                    | Setting::ReleaseClass { .. } => {
                        self.resctrl.classes.take(&holder, setting, &mut unsaid, now.wall);
                    }
                }
            }
            for rejection in part.rejections {
                let message = format!("{}: {}", rejection.field, rejection.message);
                let event = AgentEvent {
                    pod: self.pods.get(rejection.pod).map(|entry| entry.given.key()).unwrap_or_default(),
                    kind: AgentEvent::kind(EventKind::Warning),
                    reason: INVALID.to_owned(),
                    message,
                    source: holder.policy.to_string(),
                    count: 1,
                    last_millis: now.wall.0,
                    id: Some(rejection.pod),
                };
                self.emit(event, now, events);
            }
            for event in part.events {
                self.emit(
                    AgentEvent {
                        pod: self.pods.get(event.pod).map(|entry| entry.given.key()).unwrap_or_default(),
                        kind: AgentEvent::kind(event.kind),
                        reason: event.reason,
                        message: event.message,
                        source: holder.policy.to_string(),
                        count: 1,
                        last_millis: now.wall.0,
                        id: Some(event.pod),
                    },
                    now,
                    events,
                );
            }
        }
        self.resctrl.classes.give_up(&holder.policy, unsaid);
        for container in unasked {
            self.locality.stop(&holder.policy, container);
        }
        for (target, knob) in undeclared {
            if self.leases.release(&holder.policy, target, knob) {
                self.dirty.insert((target, knob));
            }
        }
    }

    /// Keeps an event, and passes on what was not said before.
    pub(crate) fn emit(&mut self, event: AgentEvent, now: Now, events: &mut Vec<AgentEvent>) {
        if self.events.record(event.clone(), now.wall) {
            self.metrics.event(event.kind);
            if let Some(outbox) = &self.outbox
                && let Some(entry) = event.id.and_then(|id| self.pods.get(id))
                && !outbox.tell(event.addressed_to(&entry.given))
            {
                tracing::debug!(pod = event.pod, reason = event.reason, "too many events wait; not published");
            }
            events.push(event);
        }
    }

    /// What a knob should hold now; `None` = it is nobody's and was nobody's, or it must not be touched.
    pub(crate) fn verdict(&mut self, target: Target, knob: Knob, now: Now) -> Option<Verdict> {
        self.host.attached_path(target)?;
        let hands_off = |knob: Knob| {
            let held = self.held.get(&(target, knob));
            held.is_some_and(|held| held.pending || held.hands_off_until.is_some_and(|until| now.wall < until))
        };
        // Writing one of the two replaces the other: who is left alone with one is left alone with both.
        if hands_off(knob) || partner(knob).filter(|_| is_weight(knob)).is_some_and(hands_off) {
            return None;
        }
        let pod = self.pods.of(target);
        if pod.is_some_and(|entry| self.holds.get(&entry.id).is_some_and(|hold| hold.holds_at(now.wall))) {
            return None;
        }
        if let Some(entry) = pod
            && self.config.guard_rails.protected_namespaces.contains(&entry.given.namespace)
        {
            let why = format!("namespace {} is protected by the guard rails", entry.given.namespace);
            if let Some(lease) = self.leases.effective(target, knob) {
                let (policy, value) = (Arc::clone(&lease.holder.policy), lease.value);
                self.note_refusal(target, knob, value, policy, why, false, now);
            }
            return None;
        }
        if knob == Knob::CpuWeight
            && let Some(idle) = self.idling(target)
        {
            let waiting = self.leases.effective(target, knob);
            let why = || format!("it waits while {} holds cpu.idle", idle.holder.policy);
            return Some(Verdict {
                wanted: Wanted { target, knob, value: IDLE_WEIGHT },
                policy: Arc::clone(&idle.holder.policy),
                reason: Arc::clone(&idle.reason),
                restores: false,
                guarded: waiting.map(|lease| (lease.value, why())),
            });
        }
        if let Some(lease) = self.leases.effective(target, knob) {
            let (value, guarded) = self.guarded(target, knob, lease.value);
            return Some(Verdict {
                wanted: Wanted { target, knob, value },
                policy: Arc::clone(&lease.holder.policy),
                reason: Arc::clone(&lease.reason),
                restores: false,
                guarded,
            });
        }
        self.refusals.remove(&(target, knob));
        let held = self.held.get(&(target, knob))?;
        Some(Verdict {
            wanted: Wanted { target, knob, value: held.baseline },
            policy: Arc::clone(&held.policy),
            reason: "released: the baseline comes back".into(),
            restores: true,
            guarded: None,
        })
    }

    /// The lease by which a container is idle, and has no weight of its own.
    fn idling(&self, target: Target) -> Option<&Lease> {
        let idle = self.leases.effective(target, Knob::CpuIdle)?;
        (target.level() == Level::Container && idle.value == Value::Number(1)).then_some(idle)
    }

    /// The lease by which a knob is what it is; `None` = the baseline is in force, or is to come back.
    pub(crate) fn ruling(&self, target: Target, knob: Knob) -> Option<&Lease> {
        let idle = if knob == Knob::CpuWeight { self.idling(target) } else { None };
        idle.or_else(|| self.leases.effective(target, knob))
    }

    /// Holds a value within the operator's bounds.
    fn guarded(&self, target: Target, knob: Knob, value: Value) -> (Value, Option<(Value, String)>) {
        let rails = &self.config.guard_rails;
        let bound = match (knob, target) {
            (Knob::CfsQuota, Target::Container(_)) => rails.max_quota_percent.and_then(|percent| {
                let baseline = match self.held.get(&(target, knob)) {
                    Some(held) => held.baseline,
                    None => self.quotas.get(target)?.quota.map_or(Value::Max, |q| Value::Number(number(q.0))),
                };
                let Value::Number(baseline) = baseline else { return None };
                let bound = i128::from(baseline) * i128::from(percent) / 100;
                Some((bound, format!("maxQuotaPercent {percent} of the baseline {baseline}")))
            }),
            (Knob::MemoryMin, Target::Tier(Tier::Guaranteed)) => self.memory_capacity.map(|capacity| {
                let percent = rails.max_memory_min_percent;
                let bound = i128::from(capacity.0) * i128::from(percent) / 100;
                (bound, format!("maxMemoryMinPercent {percent} of the node's {capacity}"))
            }),
            _ => None,
        };
        match (bound, value) {
            (Some((bound, why)), Value::Number(wanted)) if i128::from(wanted) > bound => {
                (Value::Number(i64::try_from(bound).unwrap_or(i64::MAX)), Some((value, why)))
            }
            (Some((bound, why)), Value::Max) => {
                (Value::Number(i64::try_from(bound).unwrap_or(i64::MAX)), Some((value, why)))
            }
            _ => (value, None),
        }
    }
}

/// The knob that depends on this one, and this one on it, on one cgroup: a burst on the quota, a weight on `cpu.idle`.
pub(crate) fn partner(knob: Knob) -> Option<Knob> {
    match knob {
        Knob::CfsQuota => Some(Knob::CfsBurst),
        Knob::CfsBurst => Some(Knob::CfsQuota),
        Knob::CpuWeight => Some(Knob::CpuIdle),
        Knob::CpuIdle => Some(Knob::CpuWeight),
        _ => None,
    }
}

/// Whether a knob is the weight, or replaces it.
pub(crate) fn is_weight(knob: Knob) -> bool {
    matches!(knob, Knob::CpuWeight | Knob::CpuIdle)
}

/// Passes on what a module has to say to those who run it.
pub(crate) fn log(policy: &str, lines: &[LogLine]) {
    for line in lines {
        match line.level {
            LogLevel::Debug => tracing::debug!(policy, message = line.message, "module log"),
            LogLevel::Info => tracing::info!(policy, message = line.message, "module log"),
            LogLevel::Warn => tracing::warn!(policy, message = line.message, "module log"),
        }
    }
}

pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
