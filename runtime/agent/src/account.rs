//! Account, the part for people: what was decided, what is held and why, what was refused.

use std::collections::{BTreeMap, BTreeSet};

use qosm_host::layout::RuntimeId;
use qosm_host::{Clamp, Step as HostStep};
use qosm_model::knob::{Knob, Level, Target, Value};
use qosm_model::layering::Layer;
use qosm_model::pod::{Container, ContainerCgroup, ContainerState, Pod, PodId};
use qosm_model::problem::Problem;

use crate::agent::Agent;
use crate::arbitrate::Verdict;
use crate::event::{AgentEvent, INVALID};
use crate::hold::HoldSource;
use crate::policy::{Now, Policy};
use crate::report::{
    Adjusted, Decision, Explanation, FieldReport, KnobReport, NewerReport, PodPolicyReport, PodReport, PolicyReport,
    RefusalReport, moment,
};
use crate::table::Access;

/// The health of a policy that has no module.
/// The word for a policy without a module.
pub(crate) fn unloaded_state(is_pending: bool) -> &'static str {
    if is_pending { "fetching" } else { "not-loaded" }
}

pub(crate) struct Subject {
    pub(crate) level: Level,
    tier: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    pub(crate) container: Option<String>,
}

impl Subject {
    pub(crate) fn key(&self) -> String {
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            _ => String::new(),
        }
    }

    pub(crate) fn shown(&self) -> String {
        match (&self.tier, &self.container) {
            (Some(tier), _) => format!("tier {tier}"),
            (None, Some(container)) => format!("{}/{container}", self.key()),
            (None, None) => self.key(),
        }
    }
}

impl Agent {
    pub(crate) fn decision(&self, planned: &HostStep, verdict: &Verdict, clamp: Option<&Clamp>) -> Decision {
        let mut decision = self.decision_of(planned.target, planned.knob, Some(planned.from), planned.to, verdict);
        if let Some(clamp) = clamp {
            decision.adjusted = Some(Adjusted { wanted: clamp.wanted.into(), why: clamp.why.clone() });
        }
        decision
    }

    pub(crate) fn decision_of(
        &self,
        target: Target,
        knob: Knob,
        current: Option<Value>,
        value: Value,
        verdict: &Verdict,
    ) -> Decision {
        let subject = self.subject(target);
        let file = self.host.file(target, knob);
        Decision {
            level: subject.level.as_str().to_owned(),
            tier: subject.tier,
            namespace: subject.namespace,
            pod: subject.pod,
            container: subject.container,
            knob: knob.to_string(),
            file: file.as_ref().map(|file| file.file.to_owned()).unwrap_or_default(),
            path: file.map(|file| file.path).unwrap_or_default(),
            support: if self.host.emulates(knob) { "emulated" } else { "native" }.to_owned(),
            current: current.map(Into::into),
            value: value.into(),
            policy: verdict.policy.to_string(),
            module: self.module_of(&verdict.policy),
            reason: verdict.reason.to_string(),
            adjusted: verdict
                .guarded
                .as_ref()
                .map(|(wanted, why)| Adjusted { wanted: (*wanted).into(), why: why.clone() }),
            error: None,
        }
    }

    pub(crate) fn subject(&self, target: Target) -> Subject {
        let leaving = || {
            self.leaving.iter().find_map(|entry| {
                entry.targets().position(|known| known == target).map(|place| (entry, place.checked_sub(1)))
            })
        };
        let found = match target {
            Target::Tier(tier) => {
                return Subject {
                    level: Level::Tier,
                    tier: Some(tier.to_string()),
                    namespace: None,
                    pod: None,
                    container: None,
                };
            }
            Target::Pod(id) => self.pods.get(id).map(|entry| (entry, None)),
            Target::Container(id) => self.pods.owner(id).map(|(entry, place)| (entry, Some(place))),
        };
        if let Target::Container(id) = target
            && let Some(gone) = self.leaving_containers.iter().find(|gone| gone.id == id)
            && let Some(entry) = self.pods.get(gone.pod)
        {
            return Subject {
                level: Level::Container,
                tier: None,
                namespace: Some(entry.given.namespace.clone()),
                pod: Some(entry.given.name.clone()),
                container: Some(gone.name.clone()),
            };
        }
        let found = found.or_else(leaving);
        Subject {
            level: target.level(),
            tier: None,
            namespace: found.map(|(entry, _)| entry.given.namespace.clone()),
            pod: found.map(|(entry, _)| entry.given.name.clone()),
            container: found.and_then(|(entry, place)| entry.given.containers.get(place?)).map(|c| c.name.clone()),
        }
    }

    /// What a target is, for a line in the log.
    pub(crate) fn shown(&self, target: Target) -> String {
        self.subject(target).shown()
    }

    fn module_of(&self, policy: &str) -> String {
        self.policies
            .iter()
            .find(|known| **known.name() == *policy)
            .map(|known| format!("{}@{} {}", known.description.name, known.description.version, known.module.digest()))
            .unwrap_or_default()
    }

    /// All knobs that are held.
    pub fn knobs(&self) -> Vec<KnobReport> {
        self.held.keys().map(|&(target, knob)| self.knob_report(target, knob)).collect()
    }

    fn knob_report(&self, target: Target, knob: Knob) -> KnobReport {
        let subject = self.subject(target);
        let held = self.held.get(&(target, knob));
        let stack = self.leases.stack(target, knob);
        let winner = self.ruling(target, knob);
        let beneath = stack.iter().filter(|lease| winner.is_none_or(|winner| !std::ptr::eq(*lease, winner)));
        let on_hold = self.pods.of(target).is_some_and(|entry| entry.access == Access::OnHold);
        let state = match held {
            _ if on_hold => "on-hold",
            Some(held) if held.pending => "pending",
            Some(held) if held.hands_off_until.is_some() => "drifted",
            _ if winner.is_none() => "releasing",
            _ => "held",
        };
        let policy = winner.map(|lease| &lease.holder.policy).or(held.map(|held| &held.policy));
        KnobReport {
            state: state.to_owned(),
            configured_by: policy.map(|policy| self.layers_of(policy, target)).unwrap_or_default(),
            level: subject.level.as_str().to_owned(),
            subject: subject.shown(),
            pod: subject.key(),
            container: subject.container.clone().unwrap_or_default(),
            knob: knob.to_string(),
            path: self.host.file(target, knob).map(|file| file.path).unwrap_or_default(),
            support: if self.host.emulates(knob) { "emulated" } else { "native" }.to_owned(),
            emulation: self.host.emulates(knob).then(|| self.emulation(target, knob)),
            value: held.map_or(Value::Max, |held| held.written).into(),
            baseline: held.map_or(Value::Max, |held| held.baseline).into(),
            policy: policy.map(ToString::to_string).unwrap_or_default(),
            module: policy.map(|policy| self.module_of(policy)).unwrap_or_default(),
            reason: winner.map_or("released: the baseline is to come back", |lease| &lease.reason).to_owned(),
            since: winner.map(|lease| lease.since).or(held.map(|held| held.since)).map(moment).unwrap_or_default(),
            beneath: beneath.map(|lease| (lease.holder.policy.to_string(), lease.value.into())).collect(),
            adjusted: held
                .and_then(|held| held.adjusted.as_ref())
                .map(|(wanted, why)| Adjusted { wanted: (*wanted).into(), why: why.clone() }),
            drift: held.and_then(|held| held.drift.clone()),
            hands_off_until: held.and_then(|held| held.hands_off_until).map(moment),
        }
    }

    /// Who configured a policy for the pod that a target is or belongs to, beside the module itself.
    fn layers_of(&self, policy: &str, target: Target) -> Vec<String> {
        let policy = self.policies.iter().find(|known| **known.name() == *policy);
        let effective = self.pods.of(target).and_then(|entry| policy?.effective.get(&entry.id));
        let layers = effective.into_iter().flat_map(|effective| effective.origins.values());
        let said: BTreeSet<String> =
            layers.filter(|layer| **layer != Layer::BuiltIn).map(ToString::to_string).collect();
        said.into_iter().collect()
    }

    /// What the host does in the kernel's place, told once a target.
    fn emulation(&self, target: Target, knob: Knob) -> String {
        let how = "qosm reclaims through memory.reclaim";
        if knob != Knob::WmarkRatio {
            return how.to_owned();
        }
        let Some(report) = self.host.reclaim_report(target) else { return how.to_owned() };
        let Some((high, low)) = report.levels else {
            return format!("{how}; without a limit there is nothing to relate the ratio to");
        };
        let mut told = format!(
            "{how} from {high} down to {low}; {} rounds, {} reclaimed, {} times all there was",
            report.rounds, report.reclaimed, report.exhausted
        );
        if let Some(trouble) = report.trouble {
            told.push_str("; the kernel answers ");
            told.push_str(trouble);
        }
        told
    }

    fn refusal_reports(&self, wanted: impl Fn(Target) -> bool) -> Vec<RefusalReport> {
        self.refusals
            .iter()
            .filter(|((target, _), _)| wanted(*target))
            .map(|(&(target, knob), refusal)| {
                let subject = self.subject(target);
                RefusalReport {
                    subject: subject.shown(),
                    pod: subject.key(),
                    knob: knob.to_string(),
                    wanted: refusal.wanted.into(),
                    policy: refusal.policy.to_string(),
                    kind: if refusal.unavailable { "unavailable" } else { "refused" }.to_owned(),
                    why: refusal.why.clone(),
                    since: moment(refusal.since),
                }
            })
            .collect()
    }

    /// All settings that are not in force.
    pub fn refusals(&self) -> Vec<RefusalReport> {
        self.refusal_reports(|_| true)
    }

    /// Pods that get nothing although somebody may expect it, and why: for a plan, which shows what is written only.
    pub fn notes(&self, now: Now) -> Vec<String> {
        let mut notes = Vec::new();
        for entry in self.pods.iter().filter(|entry| entry.given.active) {
            let key = entry.given.key();
            if let Some(hold) = self.holds.get(&entry.id).filter(|hold| hold.holds_at(now.wall)) {
                let until = hold.until.map(|until| format!(" until {}", moment(until))).unwrap_or_default();
                notes.push(format!("{key} is on hold{until}: nothing is written to it"));
            } else if entry.access == Access::Protected {
                notes.push(format!("{key} is in a protected namespace: nothing is written to it"));
            } else if !entry.attached {
                notes.push(format!("{key} has no cgroup yet: nothing can be planned for it"));
            } else {
                let waiting = entry
                    .given
                    .containers
                    .iter()
                    .zip(&entry.containers)
                    .filter(|(given, container)| given.state == ContainerState::Running && !container.attached);
                for (container, _) in waiting {
                    notes.push(format!("{key}/{} has no cgroup yet: nothing can be planned for it", container.name));
                }
            }
        }
        notes
    }

    /// All pods.
    pub fn pod_reports(&self, now: Now) -> Vec<PodReport> {
        self.pods.ids().into_iter().filter_map(|id| self.pod_report(id, now)).collect()
    }

    fn pod_report(&self, id: PodId, now: Now) -> Option<PodReport> {
        let entry = self.pods.get(id)?;
        let belongs = |target: Target| self.pods.of(target).is_some_and(|owner| owner.id == id);
        let hold = self.holds.get(&id).filter(|hold| hold.holds_at(now.wall)).map(|hold| {
            let by = match hold.source {
                HoldSource::Annotation => "annotation",
                HoldSource::Operator => "operator",
            };
            match hold.until {
                Some(until) => format!("by {by} until {}", moment(until)),
                None => format!("by {by}"),
            }
        });
        let protected =
            || (entry.access == Access::Protected).then(|| "by the guard rail protectedNamespaces".to_owned());
        let hold = hold.or_else(protected);
        Some(PodReport {
            pod: entry.given.key(),
            uid: entry.given.uid.clone(),
            qos: entry.given.qos().as_str().to_owned(),
            qos_declared: entry.given.declared_qos().is_some(),
            kube_qos: entry.given.kube_qos.as_str().to_owned(),
            cgroup: self.host.attached_path(Target::Pod(id)).unwrap_or_default().to_owned(),
            containers: format!(
                "{}/{}",
                entry.containers.iter().filter(|container| container.attached).count(),
                entry.containers.len()
            ),
            held: self.held.keys().filter(|(target, _)| belongs(*target)).count(),
            refused: self.refusals.keys().filter(|(target, _)| belongs(*target)).count(),
            problems: self.problems_of(&entry.given.key()).count()
                + self
                    .policies
                    .iter()
                    .filter(|policy| policy.mode().is_active() && policy.rejections.contains_key(&id))
                    .count(),
            locality: self.locality_reports(id),
            classes: self.membership_reports(id),
            hold,
        })
    }

    /// All about the pod `namespace/name` (or just the name, where only one pod has it).
    pub fn explain(&self, pod: &str, now: Now) -> Option<Explanation> {
        let mut matching = self.pods.iter().filter(|entry| entry.given.key() == pod || entry.given.name == pod);
        let entry = matching.next()?;
        if matching.next().is_some() && !pod.contains('/') {
            return None;
        }
        let id = entry.id;
        let key = entry.given.key();
        let belongs = |target: Target| self.pods.of(target).is_some_and(|owner| owner.id == id);
        Some(Explanation {
            pod: self.pod_report(id, now)?,
            policies: (self.policies.iter().map(|policy| pod_policy(policy, id)))
                .chain(self.unloaded.iter().map(|policy| PodPolicyReport {
                    policy: policy.policy.clone(),
                    mode: policy.mode.as_str().to_owned(),
                    health: unloaded_state(policy.is_pending).to_owned(),
                    error: Some(policy.error.clone()),
                    ..PodPolicyReport::default()
                }))
                .collect(),
            knobs: self
                .held
                .keys()
                .filter(|(target, _)| belongs(*target))
                .map(|&(target, knob)| self.knob_report(target, knob))
                .collect(),
            refused: self.refusal_reports(belongs),
            problems: self.problems_of(&key).map(ToString::to_string).collect(),
            events: self
                .events
                .iter()
                .filter(|event| event.pod == key)
                .filter_map(|event| serde_json::to_value(event).ok())
                .collect(),
        })
    }

    /// All policies.
    pub fn policy_reports(&self) -> Vec<PolicyReport> {
        self.policies
            .iter()
            .map(|policy| PolicyReport {
                policy: policy.name().to_string(),
                mode: policy.mode().as_str().to_owned(),
                module: format!("{}@{}", policy.description.name, policy.description.version),
                digest: policy.module.digest().to_string(),
                reference: policy.origin.reference.to_string(),
                artifact: policy.origin.artifact.as_ref().map(|(digest, _)| digest.to_string()),
                trusted: policy.origin.artifact.as_ref().map(|(_, trusted)| trusted.to_string()),
                roster: self.roster,
                newer: policy.newer.as_ref().map(|newer| NewerReport {
                    module: newer.module.clone(),
                    pending: newer.is_pending,
                    why: newer.why.clone(),
                }),
                health: policy.health.as_str().to_owned(),
                error: policy.health.error().map(str::to_owned).or_else(|| policy.not_taken()),
                priority: policy.holder.priority.0,
                leases: policy.count(&self.leases),
                evaluations: policy.evaluations,
                failures: policy.failures,
                last_evaluation_usec: micros(policy.last_evaluation_seconds),
                triggers: self.trigger_reports(policy),
                problems: policy.problems.iter().map(ToString::to_string).collect(),
            })
            .chain(self.unloaded.iter().map(|policy| PolicyReport {
                policy: policy.policy.clone(),
                mode: policy.mode.as_str().to_owned(),
                module: String::new(),
                digest: String::new(),
                reference: String::new(),
                artifact: None,
                trusted: None,
                newer: None,
                roster: self.roster,
                health: unloaded_state(policy.is_pending).to_owned(),
                error: Some(policy.error.clone()),
                priority: 0,
                leases: 0,
                evaluations: 0,
                failures: 0,
                last_evaluation_usec: 0,
                triggers: Vec::new(),
                problems: Vec::new(),
            }))
            .collect()
    }

    /// All that is wrong with what somebody wrote, and is not about one pod.
    pub fn problems(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }

    /// What is wrong with what was written for one pod: its manifest, its annotations, or a layer above them.
    fn problems_of<'a>(&'a self, pod: &'a str) -> impl Iterator<Item = &'a Problem> {
        self.problems.iter().filter(move |problem| is_about(problem, pod))
    }

    /// All events that are kept.
    pub fn event_reports(&self) -> Vec<AgentEvent> {
        self.events.iter().cloned().collect()
    }

    /// Tells what is wrong with what was written: once when it begins, and once when it is mended.
    pub(crate) fn collect_problems(&mut self, now: Now) {
        let mut problems: std::collections::BTreeSet<_> =
            self.sources.problems.iter().chain(&self.sources.troubles).chain(&self.roster_problems).cloned().collect();
        // What a shadow cannot make sense of is told with the shadow (`get policies`, `explain`): for pods' owners it is not there.
        let active = || self.policies.iter().filter(|policy| policy.mode().is_active());
        for policy in active() {
            problems.extend(policy.problems.iter().cloned());
        }
        let mut of_pods = Vec::new();
        for entry in self.pods.iter() {
            let held = crate::hold::Hold::from_annotation(&entry.given).1;
            let of_policies = active().filter_map(|policy| policy.effective.get(&entry.id));
            let key = (!self.sources.problems.is_empty()).then(|| entry.given.key());
            let written = key
                .iter()
                .flat_map(|key| self.sources.problems.iter().filter(move |problem| is_about(problem, key)).cloned());
            let nameless = entry.given.containers.iter().filter_map(|container| nameless(&entry.given, container));
            for problem in of_policies
                .flat_map(|effective| effective.problems.iter().cloned())
                .chain(held)
                .chain(written)
                .chain(nameless)
            {
                of_pods.push((Target::Pod(entry.id), problem));
            }
        }
        let mut step = crate::agent::Step::default();
        for (target, problem) in of_pods {
            if !self.problems.contains(&problem) {
                self.tell_pod(target, INVALID, problem.to_string(), now, &mut step);
            }
            problems.insert(problem);
        }
        for problem in problems.difference(&self.problems) {
            tracing::warn!(%problem, "problem with what was written");
        }
        for problem in self.problems.difference(&problems) {
            tracing::info!(%problem, "problem mended");
        }
        self.metrics.problems(problems.len());
        self.problems = problems;
    }
}

fn pod_policy(policy: &Policy, id: PodId) -> PodPolicyReport {
    let effective = policy.effective.get(&id);
    let origins: BTreeMap<_, _> = effective.map(|e| e.origins.clone()).unwrap_or_default();
    let fields = origins
        .into_iter()
        .map(|(field, layer)| FieldReport {
            value: effective.and_then(|e| at(&e.values, &field)).unwrap_or_default(),
            field,
            layer: layer.to_string(),
        })
        .collect();
    let origin = &policy.origin;
    let artifact = origin.artifact.as_ref().map(|(digest, trusted)| {
        let reference = origin.reference.to_string();
        let pinned = if reference.contains("@sha256:") { String::new() } else { format!(", {digest}") };
        format!("{reference}{pinned} ({trusted})")
    });
    PodPolicyReport {
        artifact,
        policy: policy.name().to_string(),
        mode: policy.mode().as_str().to_owned(),
        health: policy.health.as_str().to_owned(),
        error: policy.health.error().map(str::to_owned),
        fields,
        rejected: policy.rejections.get(&id).map(|(field, message)| format!("{field}: {message}")),
        problems: effective.map(|e| e.problems.iter().map(ToString::to_string).collect()).unwrap_or_default(),
    }
}

/// Whether a problem is about the pod `namespace/name`.
fn is_about(problem: &Problem, pod: &str) -> bool {
    let mut words = problem.object.split(' ');
    words.next().is_some_and(|kind| kind.eq_ignore_ascii_case("pod")) && words.next() == Some(pod)
}

/// A container whose ID does not tell where its cgroup is.
fn nameless(pod: &Pod, container: &Container) -> Option<Problem> {
    let ContainerCgroup::Runtime(id) = &container.cgroup else { return None };
    let why = RuntimeId::parse(id).err()?;
    Some(Problem {
        object: format!("pod {}", pod.key()),
        field: Some(format!("containerID of container {}", container.name)),
        message: format!(
            "`{id}` does not tell where its cgroup is: {why}; nothing is written to it, the rest of the pod counts"
        ),
    })
}

fn at(values: &serde_json::Map<String, serde_json::Value>, path: &str) -> Option<serde_json::Value> {
    let mut parts = path.split('.');
    let mut value = values.get(parts.next()?)?;
    for part in parts {
        value = value.get(part)?;
    }
    Some(value.clone())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a duration in seconds is small and positive"
)]
pub(crate) fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
