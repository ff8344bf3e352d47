//! Pods and policies, for people: what is decided, held and refused, and why.

use std::collections::BTreeMap;

use qosm_model::alarm::{Alarm, Trigger};
use qosm_model::knob::Target;
use qosm_model::pod::{PodId, Tier};

use crate::now::Now;
use crate::pause::PauseSource;
use crate::policy::Policy;
use crate::report::view::View;
use crate::report::{
    Explanation, FieldReport, PendingUpdateReport, PodPolicyReport, PodReport, PolicyReport, TriggerReport, moment,
    resize,
};
use crate::reporting::Reporting;
use crate::table::{Access, WITHOUT_CGROUP, is_without_cgroup};

/// The state of a policy without a module.
pub(crate) fn not_loaded_state(is_pending: bool) -> &'static str {
    if is_pending { "fetching" } else { "not-loaded" }
}

impl View<'_> {
    /// Pods that get no settings, and why, and what the last evaluations logged: for a plan, which otherwise shows only writes.
    pub(crate) fn notes(&self, now: Now) -> Vec<String> {
        let mut notes = Vec::new();
        for entry in self.pods.iter().filter(|entry| entry.pod.active) {
            let key = entry.pod.key();
            if let Some(pause) = self.pods.pause(entry.id, now.wall) {
                let until = pause.until.map(|until| format!(" until {}", moment(until))).unwrap_or_default();
                notes.push(format!("{key} is paused{until}: nothing is written to it"));
            } else if entry.access == Access::Protected {
                notes.push(format!("{key} is in a protected namespace: nothing is written to it"));
            } else if !entry.attached {
                notes.push(format!("{key} has no cgroup yet: nothing can be planned for it"));
            } else {
                let waiting = entry
                    .pod
                    .containers
                    .iter()
                    .zip(&entry.containers)
                    .filter(|(given, container)| is_without_cgroup(given) && !container.attached);
                for (container, _) in waiting {
                    notes.push(format!("{key}/{} {WITHOUT_CGROUP}", container.name));
                }
            }
        }
        for policy in self.policies.iter() {
            // Those of active policies are problems of the node.
            let of_shadow = self.objects.key_problems(policy).filter(|_| !policy.mode().is_active());
            notes.extend(of_shadow.map(|problem| format!("shadow {}: {problem}", policy.name())));
            notes.extend(policy.module_log.latest().iter().map(|line| format!("{}: {line}", policy.name())));
        }
        notes
    }

    /// All policies.
    pub(crate) fn policy_reports(&self) -> Vec<PolicyReport> {
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
                policy_set: self.policies.set_number(),
                pending_update: policy.pending_update.as_ref().map(|pending_update| PendingUpdateReport {
                    module: pending_update.module.clone(),
                    pending: pending_update.is_pending,
                    why: pending_update.why.clone(),
                }),
                health: policy.health.as_str().to_owned(),
                error: policy.health.error().map(str::to_owned).or_else(|| policy.not_taken()),
                priority: policy.holder.priority.0,
                leases: policy.count(self.ledger.leases()),
                evaluations: policy.evaluations,
                failures: policy.failures,
                last_evaluation_usec: micros(policy.last_evaluation_seconds),
                triggers: self.trigger_reports(policy),
                problems: policy
                    .problems
                    .iter()
                    .map(ToString::to_string)
                    .chain(self.objects.key_problems(policy).map(|problem| problem.to_string()))
                    .collect(),
            })
            .chain(self.policies.load_failed().iter().map(|policy| PolicyReport {
                policy: policy.policy.clone(),
                mode: policy.mode.as_str().to_owned(),
                module: String::new(),
                digest: String::new(),
                reference: String::new(),
                artifact: None,
                trusted: None,
                pending_update: None,
                policy_set: self.policies.set_number(),
                health: not_loaded_state(policy.is_pending).to_owned(),
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

    /// The triggers of a policy, and why they cannot be watched here.
    fn trigger_reports(&self, policy: &Policy) -> Vec<TriggerReport> {
        let report = |trigger: &Trigger| TriggerReport {
            trigger: trigger.to_string(),
            missing: self
                .host
                .unwatched()
                .find(|(alarm, _)| alarm.trigger == *trigger && self.is_watched_for(policy, alarm))
                .map(|(_, why)| why.to_owned()),
        };
        policy.triggers().iter().map(report).collect()
    }

    fn is_watched_for(&self, policy: &Policy, alarm: &Alarm) -> bool {
        let pod: Option<PodId> = alarm.target.and_then(|target| self.pods.of(target)).map(|entry| entry.id);
        pod.is_none_or(|pod| policy.is_asked(pod))
    }
}

impl Reporting {
    /// All pods.
    pub(crate) fn pod_reports(&self, view: &View<'_>, now: Now) -> Vec<PodReport> {
        view.pods.ids().into_iter().filter_map(|id| self.pod_report(view, id, now)).collect()
    }

    fn pod_report(&self, view: &View<'_>, id: PodId, now: Now) -> Option<PodReport> {
        let entry = view.pods.get(id)?;
        let belongs = |target: Target| view.pods.of(target).is_some_and(|owner| owner.id == id);
        let paused = view.pods.pause(id, now.wall).map(|pause| {
            let by = match pause.source {
                PauseSource::Annotation => "annotation",
                PauseSource::Operator => "operator",
            };
            match pause.until {
                Some(until) => format!("by {by} until {}", moment(until)),
                None => format!("by {by}"),
            }
        });
        let protected =
            || (entry.access == Access::Protected).then(|| "by the guard rail protectedNamespaces".to_owned());
        let paused = paused.or_else(protected);
        let mut report = PodReport {
            pod: entry.pod.key(),
            uid: entry.pod.uid.clone(),
            qos: entry.pod.qos().as_str().to_owned(),
            qos_declared: entry.pod.declared_qos().is_some(),
            kube_qos: entry.pod.kube_qos.as_str().to_owned(),
            cgroup: view.host.attached_path(Target::Pod(id)).unwrap_or_default().to_owned(),
            containers: format!(
                "{}/{}",
                entry.containers.iter().filter(|container| container.attached).count(),
                entry.containers.len()
            ),
            held: view.ledger.held().keys().filter(|(target, _)| belongs(*target)).count(),
            refused: view.ledger.refusals().keys().filter(|(target, _)| belongs(*target)).count()
                + view.ledger.denied(belongs).len(),
            remarks: view
                .policies
                .active()
                .flat_map(|policy| &policy.remarks)
                .filter(|remark| is_about(remark.target, entry.pod.kube_qos.tier(), &belongs))
                .count(),
            problems: self.problems_of(&entry.pod.key()).count()
                + view
                    .policies
                    .iter()
                    .filter(|policy| policy.mode().is_active() && policy.rejections.contains_key(&id))
                    .count(),
            eviction: None,
            locality: Vec::new(),
            classes: Vec::new(),
            paused,
            high_baselines: view.ledger.high_baselines(view.host, view.pods, entry),
            resize: resize::lines(&entry.pod),
        };
        view.controls.report(view.host, view.pods, id, &mut report);
        Some(report)
    }

    /// Everything about the pod `namespace/name` (or just the name, if only one pod has it); `None` if no pod or several match.
    pub(crate) fn explain(&self, view: &View<'_>, pod: &str, now: Now) -> Option<Explanation> {
        let mut matching = view.pods.iter().filter(|entry| entry.pod.key() == pod || entry.pod.name == pod);
        let entry = matching.next()?;
        if matching.next().is_some() && !pod.contains('/') {
            return None;
        }
        let id = entry.id;
        let key = entry.pod.key();
        let belongs = |target: Target| view.pods.of(target).is_some_and(|owner| owner.id == id);
        Some(Explanation {
            pod: self.pod_report(view, id, now)?,
            policies: (view.policies.iter().map(|policy| pod_policy(policy, id)))
                .chain(view.policies.load_failed().iter().map(|policy| PodPolicyReport {
                    policy: policy.policy.clone(),
                    mode: policy.mode.as_str().to_owned(),
                    health: not_loaded_state(policy.is_pending).to_owned(),
                    error: Some(policy.error.clone()),
                    ..PodPolicyReport::default()
                }))
                .collect(),
            knobs: view
                .ledger
                .held()
                .keys()
                .filter(|(target, _)| belongs(*target))
                .map(|&(target, knob)| view.knob_report(target, knob))
                .collect(),
            refused: view.refusal_reports(belongs),
            remarks: view.remarks(|target| is_about(target, entry.pod.kube_qos.tier(), &belongs)),
            problems: self.problems_of(&key).map(ToString::to_string).collect(),
            events: self
                .events
                .iter()
                .filter(|event| event.pod == key)
                .filter_map(|event| serde_json::to_value(event).ok())
                .collect(),
        })
    }
}

/// Whether `tier` is `other`, or the group of all tiers.
pub(super) fn is_above(tier: Tier, other: Tier) -> bool {
    tier == other || tier == Tier::Guaranteed
}

/// Whether a target concerns a pod of `tier`: what bounds the tier bounds the pod.
fn is_about(target: Target, tier: Tier, belongs: &impl Fn(Target) -> bool) -> bool {
    match target {
        Target::Node => false,
        Target::Tier(of) => is_above(of, tier),
        Target::Pod(_) | Target::Container(_) => belongs(target),
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
        acts_on_all_pods: policy.acts_on_all_pods(),
        rejected: policy.rejections.get(&id).map(|(field, message)| format!("{field}: {message}")),
        problems: effective.map(|e| e.problems.iter().map(ToString::to_string).collect()).unwrap_or_default(),
    }
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
