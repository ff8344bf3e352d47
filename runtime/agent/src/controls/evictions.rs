//! Evictions: pods that policies want off the node. Each request is checked against the guard rails, written to the journal, then passed to
//! the controller in the node's report. If the controller does not answer in time, or there is none, the agent ends the pod's processes.
//!
//! A request belongs to a pod's UID; the agent makes at most one per UID.

mod rails;
mod request;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_cluster::node_report::{self, EvictionAnswer, MAX_EVICTIONS, ReportedEviction};
use qosm_host::{Ending, Host};
use qosm_model::eviction::{Eviction, EvictionState, Urgency};
use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::pod::PodId;
use qosm_model::problem::chain;
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::columns::Readings;
use crate::controls::control::{Control, ControlDecisions, Rows};
use crate::inputs::Inputs;
use crate::ledger::Notice;
use crate::now::Now;
use crate::policy::Reach;
use crate::replay::line::TickLine;
use crate::report::{EvictionReport, PodReport};
use crate::step::Mode;
use crate::table::{PodEntry, PodTable};

use self::rails::Budget;
use self::request::{Phase, Request, STANDS, elapsed};

/// The journal's key for requests: no policy can have this name.
pub(crate) const JOURNAL_KEY: &str = "/evictions";
/// Reasons of the pod's events, as Koordinator names them.
const SUCCEEDED: &str = "evictPodSuccess";
const FAILED: &str = "evictPodFail";
/// How long a finished eviction stays in reports.
const TOLD: Micros = Micros(600_000_000);
/// Maximum number of requests that are kept. Above it, new requests are dropped.
const KEPT: usize = 1024;
/// Seconds between SIGTERM and SIGKILL for a pod that does not set them: the default of Kubernetes.
const GRACE_SECONDS: u32 = 30;

/// A staged change.
#[derive(Debug)]
enum Staged {
    Ask(Arc<str>, Eviction),
    Withdraw(Arc<str>, PodId),
}

/// Evictions that all policies asked for.
#[derive(Debug, Default)]
pub(crate) struct Evictions {
    staged: Vec<Staged>,
    requests: BTreeMap<String, Request>,
    /// Number of the latest request.
    numbers: u64,
    budget: Budget,
    /// Whether requests of an earlier agent were restored and not yet checked for their age.
    is_restored: bool,
    /// UIDs of requests that are new or changed since decisions were last reported.
    untold: BTreeSet<String>,
    /// Whether requests changed since they were last written to the journal.
    is_unsaved: bool,
    /// Whether the journal failed to record the requests. Then none is carried out.
    is_unrecorded: bool,
}

impl Evictions {
    /// Restores the requests that an earlier agent wrote to the journal.
    pub(crate) fn restore(&mut self, saved: &[u8], now: Now) {
        if !saved.is_empty() {
            stored::restore(self, saved, now);
        }
    }

    /// Requests in the form of the journal; `None` if they have not changed.
    pub(crate) fn unsaved(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.is_unsaved).then(|| stored::saved(self))
    }

    /// Sets whether the journal recorded the requests. A request that is not in the journal is not carried out.
    pub(crate) fn set_recorded(&mut self, is_recorded: bool) {
        self.is_unrecorded = !is_recorded;
        self.is_unsaved |= !is_recorded;
    }

    /// Drops requests of an earlier agent that are too old to carry out. Age is measured by the wall clock,
    /// since no agent ran meanwhile; if the clock was set back, a request stands for as long as a new one.
    fn lapse_old(&mut self, now: Now) {
        let is_old = |request: &Request| {
            let millis = u64::try_from(now.wall.0.saturating_sub(request.asked.0)).unwrap_or(0);
            millis >= STANDS.0 / 1_000
        };
        for request in self.requests.values_mut().filter(|request| is_old(request)) {
            request.is_dropped = true;
            if request.phase.is_open() {
                request.enter(Phase::Lapsed, format!("{}; it lapsed while no agent ran", request.why), now);
            }
        }
    }

    /// Takes staged requests, and moves all requests to the phase that guard rails, budget and the controller's answers allow.
    pub(crate) fn judge(&mut self, inputs: &Inputs<'_>) {
        if std::mem::take(&mut self.is_restored) {
            self.lapse_old(inputs.now);
        }
        for staged in std::mem::take(&mut self.staged) {
            match staged {
                Staged::Ask(policy, wanted) => self.ask(policy, wanted, inputs),
                Staged::Withdraw(policy, pod) => {
                    if let Some(entry) = inputs.pods.get(pod) {
                        self.withdraw(&policy, &entry.pod.uid.clone());
                    }
                }
            }
        }
        let by_uid: BTreeMap<&str, &PodEntry> = if self.requests.is_empty() {
            BTreeMap::new()
        } else {
            inputs.pods.iter().map(|e| (&*e.pod.uid, e)).collect()
        };
        let Self { requests, budget, untold, is_unsaved, .. } = self;
        // The budget goes to urgent requests, then to older ones: policies choose pods from low priority up.
        let mut in_order: Vec<_> = requests.iter_mut().collect();
        in_order.sort_by_key(|(_, request)| (std::cmp::Reverse(request.urgency), request.number));
        for (uid, request) in in_order {
            let Some(entry) = by_uid.get(uid.as_str()).filter(|entry| entry.pod.active) else {
                // A pod that ended by itself has no processes left, so it counts as gone.
                if !matches!(request.phase, Phase::Killed | Phase::Gone) {
                    request.enter(Phase::Gone, "the pod is gone".to_owned(), inputs.now);
                    untold.insert(uid.clone());
                    *is_unsaved = true;
                }
                continue;
            };
            let before = (request.phase, request.why.clone());
            request.go_on(entry, budget, inputs, answer(inputs, uid));
            if before != (request.phase, request.why.clone()) {
                untold.insert(uid.clone());
                *is_unsaved = true;
            }
        }
        requests.retain(|uid, request| {
            // A request is kept as long as its pod exists, so that the pod is not evicted twice.
            by_uid.contains_key(uid.as_str()) || elapsed(request.since, inputs.now) < TOLD
        });
    }

    fn ask(&mut self, policy: Arc<str>, wanted: Eviction, inputs: &Inputs<'_>) {
        let Some(entry) = inputs.pods.get(wanted.pod) else { return };
        let uid = entry.pod.uid.clone();
        if let Some(known) = self.requests.get_mut(&uid).filter(|known| !known.phase.is_over()) {
            if !known.policies.contains(&policy) {
                known.policies.push(policy);
            }
            if wanted.urgency > known.urgency {
                (known.urgency, known.grace_period) = (wanted.urgency, wanted.grace_period);
                (known.reason, known.message) = (wanted.reason, wanted.message);
                // The time that an urgent request may wait begins now.
                known.asked_at = inputs.now.monotonic;
                self.is_unsaved = true;
            }
            return;
        }
        if self.requests.len() >= KEPT {
            tracing::warn!(%policy, pod = entry.pod.key(), kept = KEPT, "too many evictions are under way; the request is dropped");
            return;
        }
        self.numbers += 1;
        let request = Request {
            policies: vec![policy],
            namespace: entry.pod.namespace.clone(),
            name: entry.pod.name.clone(),
            number: self.numbers,
            urgency: wanted.urgency,
            grace_period: wanted.grace_period,
            reason: wanted.reason,
            message: wanted.message,
            asked: inputs.now.wall,
            asked_at: inputs.now.monotonic,
            phase: Phase::Barred,
            since: inputs.now.monotonic,
            is_dropped: false,
            why: String::new(),
        };
        self.requests.insert(uid.clone(), request);
        self.untold.insert(uid);
        self.is_unsaved = true;
    }

    /// Withdraws a policy's request. It stays if another policy made it too, and what is done is not undone.
    fn withdraw(&mut self, policy: &str, uid: &str) {
        let Some(request) = self.requests.get_mut(uid) else { return };
        request.policies.retain(|own| **own != *policy);
        if request.policies.is_empty() {
            if request.phase.is_open() || request.phase.is_over() {
                self.requests.remove(uid);
            }
            self.is_unsaved = true;
        }
    }

    /// Requests for the node's report: urgent ones first, then the oldest.
    pub(crate) fn reported(&self) -> Vec<ReportedEviction> {
        if self.is_unrecorded || self.is_restored {
            return Vec::new();
        }
        let mut asked: Vec<_> = self.requests.iter().filter(|(_, request)| request.is_asked()).collect();
        asked.sort_by_key(|(_, request)| (std::cmp::Reverse(request.urgency), request.number));
        let reported = |(uid, request): (&String, &Request)| ReportedEviction {
            uid: uid.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            policy: request.policy(),
            urgency: match request.urgency {
                Urgency::Soon => node_report::Urgency::Soon,
                Urgency::Now => node_report::Urgency::Now,
            },
            grace_period_seconds: request.grace_period,
            reason: request.reason.clone(),
            message: request.message.clone(),
            requested_at: jiff::Timestamp::from_millisecond(request.asked.0)
                .ok()
                .map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time),
        };
        asked.into_iter().take(MAX_EVICTIONS).map(reported).collect()
    }

    /// State of each policy's requests.
    pub(crate) fn states(&self, now: Now) -> Arc<[(Arc<str>, EvictionState)]> {
        let states = self.requests.iter().flat_map(|(uid, request)| {
            let state = EvictionState {
                uid: uid.clone(),
                outcome: request.phase.outcome(),
                why: request.why.clone(),
                age: elapsed(request.since, now),
            };
            request.policies.iter().map(move |policy| (Arc::clone(policy), state.clone()))
        });
        states.collect()
    }

    /// Reports for `qosm get evictions`.
    pub(crate) fn reports(&self) -> Vec<EvictionReport> {
        let mut requests: Vec<_> = self.requests.iter().collect();
        requests.sort_by_key(|(uid, request)| (request.asked, *uid));
        requests.into_iter().map(|(uid, request)| request.report(uid)).collect()
    }

    /// Ends pods locally that the controller does not evict in time.
    fn end_locally(&mut self, host: &mut Host, inputs: &Inputs<'_>, notices: &mut Vec<Notice>) {
        if inputs.mode == Mode::Plan || self.is_unrecorded {
            return;
        }
        let Self { requests, untold, is_unsaved, .. } = self;
        let mut by_uid: BTreeMap<&str, &PodEntry> = BTreeMap::new();
        for (uid, request) in requests.iter_mut().filter(|(_, request)| request.is_due(inputs)) {
            if by_uid.is_empty() {
                by_uid = inputs.pods.iter().map(|entry| (&*entry.pod.uid, entry)).collect();
            }
            let Some(entry) = by_uid.get(uid.as_str()) else { continue };
            // A request that was let through may be forbidden by now. Processes that were sent SIGTERM are killed all the same.
            let barred = request.barred(entry, inputs).filter(|_| request.phase == Phase::Pending);
            if let Some(why) = barred {
                request.enter(Phase::Barred, why, inputs.now);
                untold.insert(uid.clone());
                *is_unsaved = true;
                continue;
            }
            let grace = match (request.phase, request.urgency) {
                (Phase::Ending { .. }, _) => 0,
                (_, Urgency::Now) => request.grace_period.unwrap_or(0),
                (_, Urgency::Soon) => {
                    request.grace_period.or(entry.pod.lifecycle.grace_period).unwrap_or(GRACE_SECONDS)
                }
            };
            let grace = grace.min(inputs.config.guard_rails.evictions.max_local_grace_seconds);
            let mut ending = if grace > 0 { Ending::Terminate } else { Ending::Kill };
            let mut ended = end_pod(host, entry, ending);
            if ending == Ending::Terminate && ended.is_err() {
                // Processes that cannot be sent SIGTERM may still be killed through the cgroup.
                ending = Ending::Kill;
                ended = end_pod(host, entry, ending);
            }
            let (pod, reason) = (entry.pod.key(), &request.reason);
            match ended {
                Ok(processes) => {
                    let (phase, done) = if ending == Ending::Terminate {
                        let wait = Micros(u64::from(grace) * 1_000_000);
                        let kill_at = Micros(inputs.now.monotonic.0.saturating_add(wait.0));
                        (
                            Phase::Ending { kill_at },
                            format!("its processes were asked to end, and are ended in {grace} s"),
                        )
                    } else {
                        (Phase::Killed, "its processes were ended on the node".to_owned())
                    };
                    tracing::warn!(pod, policy = request.policy(), processes, reason, "{done}");
                    let is_first = !matches!(request.phase, Phase::Ending { .. });
                    request.enter(phase, done, inputs.now);
                    if is_first {
                        inputs.metrics.eviction("killed");
                        notices.push(request.notice(entry, SUCCEEDED));
                    }
                }
                Err(error) => {
                    let why = format!("its processes cannot be ended on the node: {error}");
                    if request.why != why {
                        tracing::error!(
                            pod,
                            policy = request.policy(),
                            error,
                            "the processes of a pod to evict cannot be ended"
                        );
                        inputs.metrics.eviction("failed");
                        request.why = why;
                        notices.push(request.notice(entry, FAILED));
                    }
                }
            }
            untold.insert(uid.clone());
            *is_unsaved = true;
        }
    }
}

/// Ends the processes of a pod's containers, or those of the pod's cgroup if no container is attached.
fn end_pod(host: &mut Host, entry: &PodEntry, ending: Ending) -> Result<usize, String> {
    let containers = entry.containers.iter().filter(|container| container.attached);
    let mut targets: Vec<_> = containers.map(|container| Target::Container(container.id)).collect();
    if targets.is_empty() {
        targets.push(Target::Pod(entry.id));
    }
    let mut processes = 0_usize;
    let mut errors = Vec::new();
    for target in targets {
        match host.end_processes(target, ending) {
            Ok(ended) => processes = processes.saturating_add(ended),
            // The container has ended meanwhile.
            Err(qosm_host::HostError::Gone { .. }) => {}
            Err(error) => errors.push(chain(&error)),
        }
    }
    if errors.is_empty() { Ok(processes) } else { Err(errors.join("; ")) }
}

fn answer<'a>(inputs: &Inputs<'a>, uid: &str) -> Option<&'a EvictionAnswer> {
    inputs.answer?.evictions.iter().find(|answer| answer.uid == uid)
}

impl Control for Evictions {
    fn begin_staging(&mut self, _: &str, _: bool) {}

    // Whether the policy may evict the pod is checked with the other guard rails, so that the policy reads the reason.
    fn acts_on(&self, _: &Setting) -> Option<(Target, &'static str)> {
        None
    }

    fn stage(&mut self, holder: &Holder, setting: Setting, _: Timestamp) -> Option<Setting> {
        let policy = Arc::clone(&holder.policy);
        match setting {
            Setting::Evict(wanted) => self.staged.push(Staged::Ask(policy, wanted)),
            Setting::WithdrawEviction { pod } => self.staged.push(Staged::Withdraw(policy, pod)),
            other => return Some(other),
        }
        None
    }

    fn end_staging(&mut self, _: &str) {}

    fn release(&mut self, policy: &str) {
        let asked = self.requests.iter().filter(|(_, request)| request.policies.iter().any(|own| **own == *policy));
        let asked: Vec<_> = asked.map(|(uid, _)| uid.clone()).collect();
        asked.iter().for_each(|uid| self.withdraw(policy, uid));
    }

    fn release_beyond(&mut self, _: &str, _: &Reach<'_>) {}

    fn forget(&mut self, _: Target) {}

    fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>, _: bool, out: &mut ControlDecisions) {
        self.end_locally(host, inputs, &mut out.notices);
        for uid in std::mem::take(&mut self.untold) {
            let Some(request) = self.requests.get(&uid) else { continue };
            let decision = request.decision();
            let (pod, policy, outcome) = (&decision.pod, &decision.policy, &decision.outcome);
            tracing::info!(pod, policy, outcome, why = decision.why, reason = decision.reason, "eviction");
            if request.phase != Phase::Killed && !matches!(request.phase, Phase::Ending { .. }) {
                inputs.metrics.eviction(request.phase.outcome().as_str());
            }
            out.evictions.push(decision);
        }
    }

    fn end(&mut self, _: &mut Host, _: &Inputs<'_>) -> Option<String> {
        None
    }

    fn report(&self, _: &Host, pods: &PodTable, pod: PodId, report: &mut PodReport) {
        let uid = pods.get(pod).map(|entry| entry.pod.uid.as_str());
        report.eviction = uid.and_then(|uid| Some(self.requests.get(uid)?.report(uid)));
    }

    fn replay_line(&self, now: &Readings, earlier: &Readings, tick: &mut TickLine, _: &mut Rows) {
        tick.controller = now.answer.as_deref().filter(|_| now.answer != earlier.answer).cloned();
    }
}
