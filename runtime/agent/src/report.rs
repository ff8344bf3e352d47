//! Account, the part for people: what was decided, what is held and why, what was refused. Wire types of `-o json`; their field
//! names are stable.

use std::collections::BTreeMap;

use jiff::Timestamp;
use qosm_host::layout::RuntimeId;
use qosm_host::{Clamp, Step as HostStep};
use qosm_model::knob::{Knob, Level, Target, Value};
use qosm_model::lease;
use qosm_model::pod::{Container, ContainerCgroup, Pod, PodId};
use qosm_model::problem::Problem;
use serde::{Deserialize, Serialize};

use crate::agent::Agent;
use crate::arbitrate::Verdict;
use crate::event::AgentEvent;
use crate::hold::HoldSource;
use crate::policy::{Health, Now};

/// A knob's value on the wire: a number, or the string `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WireValue {
    /// A number in the knob's own unit.
    Number(i64),
    /// No bound.
    Max(MaxWord),
}

/// The word `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MaxWord {
    /// The word.
    #[serde(rename = "max")]
    Max,
}

impl From<Value> for WireValue {
    fn from(value: Value) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Max => Self::Max(MaxWord::Max),
        }
    }
}

impl std::fmt::Display for WireValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Max(_) => f.write_str("max"),
        }
    }
}

/// One knob that is, or would be, written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `tier`, `pod` or `container`.
    pub level: String,
    /// `kubepods`, `burstable` or `besteffort`; `None` below the tiers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tier: Option<String>,
    /// The pod's namespace; `None` for a tier.
    pub namespace: Option<String>,
    /// The pod's name; `None` for a tier.
    pub pod: Option<String>,
    /// The container's name; `None` for tiers and pods.
    pub container: Option<String>,
    /// The knob.
    pub knob: String,
    /// The file's name.
    pub file: String,
    /// The file's full path.
    pub path: String,
    /// What it holds; `None` where it could not be read.
    pub current: Option<WireValue>,
    /// What it is to hold.
    pub value: WireValue,
    /// The policy whose lease it is, or was.
    pub policy: String,
    /// That policy's module and digest.
    pub module: String,
    /// Why.
    pub reason: String,
    /// What the policy asked for, where a kernel rule or a guard rail changed it, and why.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adjusted: Option<Adjusted>,
    /// Why it was not written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

/// A value that is not the one that the policy asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adjusted {
    /// What it asked for.
    pub wanted: WireValue,
    /// Why it got something else.
    pub why: String,
}

impl Decision {
    /// `namespace/name`, or nothing for a tier.
    pub fn pod_key(&self) -> String {
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            _ => String::new(),
        }
    }

    /// What it is about, for people.
    pub fn subject(&self) -> String {
        match (&self.tier, &self.container) {
            (Some(tier), _) => format!("tier {tier}"),
            (None, Some(container)) => format!("{}/{container}", self.pod_key()),
            (None, None) => self.pod_key(),
        }
    }
}

/// One held knob.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnobReport {
    /// `tier`, `pod` or `container`.
    pub level: String,
    /// What it is about: a tier, a pod, or a pod's container.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier.
    pub pod: String,
    /// The container; empty above.
    pub container: String,
    /// The knob.
    pub knob: String,
    /// The file's full path.
    pub path: String,
    /// What the kernel showed last.
    pub value: WireValue,
    /// What another writer last put there.
    pub baseline: WireValue,
    /// The policy whose lease wins; empty while a release is under way.
    pub policy: String,
    /// That policy's module and digest.
    pub module: String,
    /// The policy's stated reason.
    pub reason: String,
    /// Since when this value is wanted (RFC 3339).
    pub since: String,
    /// Leases beneath the winning one: policy and value.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub beneath: Vec<(String, WireValue)>,
    /// What the policy asked for, where it got something else.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub adjusted: Option<Adjusted>,
    /// What another writer did to it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drift: Option<String>,
    /// Until when it is left alone because of that (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hands_off_until: Option<String>,
}

/// One setting that is not in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalReport {
    /// What it is about.
    pub subject: String,
    /// The pod, `namespace/name`; empty for a tier.
    pub pod: String,
    /// The knob.
    pub knob: String,
    /// What was wanted.
    pub wanted: WireValue,
    /// By which policy.
    pub policy: String,
    /// `refused` by the kernel or a guard rail, or `unavailable` on this host.
    pub kind: String,
    /// Why.
    pub why: String,
    /// Since when (RFC 3339).
    pub since: String,
}

/// A field of a pod's effective configuration, and which layer said it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FieldReport {
    /// Dotted path.
    pub field: String,
    /// Its value.
    pub value: serde_json::Value,
    /// The layer.
    pub layer: String,
}

/// A pod's configuration for one policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodPolicyReport {
    /// The policy.
    pub policy: String,
    /// Its effective configuration.
    pub fields: Vec<FieldReport>,
    /// Why the module turned the pod down.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected: Option<String>,
    /// What is wrong with what was written for it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

/// One pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// `namespace/name`.
    pub pod: String,
    /// The UID that its cgroup is named after.
    pub uid: String,
    /// The class that policies go by.
    pub qos: String,
    /// Whether the pod declares it.
    pub qos_declared: bool,
    /// Kubernetes' QoS.
    pub kube_qos: String,
    /// The pod's cgroup; empty while it is not there.
    pub cgroup: String,
    /// Containers with an open cgroup, of all.
    pub containers: String,
    /// Knobs held on the pod and its containers.
    pub held: usize,
    /// Settings that are not in force.
    pub refused: usize,
    /// Problems with what was written for the pod.
    pub problems: usize,
    /// Whether and until when it is on hold.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hold: Option<String>,
}

/// All about one pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The pod.
    pub pod: PodReport,
    /// Its configuration, policy by policy.
    pub policies: Vec<PodPolicyReport>,
    /// What is held.
    pub knobs: Vec<KnobReport>,
    /// What is not in force.
    pub refused: Vec<RefusalReport>,
    /// What its owner was told.
    pub events: Vec<serde_json::Value>,
}

/// One policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// Its name.
    pub policy: String,
    /// Name and version that the module gives itself.
    pub module: String,
    /// Its digest.
    pub digest: String,
    /// `running`, `backing-off`, `parked` or `not-loaded`.
    pub health: String,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Weight of its leases.
    pub priority: i32,
    /// Knobs that it holds.
    pub leases: usize,
    /// Evaluations so far.
    pub evaluations: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How long the last one took, in microseconds.
    pub last_evaluation_usec: u64,
    /// What is wrong with its ConfigMaps.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub problems: Vec<String>,
}

/// A moment for people and scripts.
pub fn moment(at: lease::Timestamp) -> String {
    Timestamp::from_millisecond(at.0).map(|at| at.to_string()).unwrap_or_else(|_| at.0.to_string())
}

struct Subject {
    level: Level,
    tier: Option<String>,
    namespace: Option<String>,
    pod: Option<String>,
    container: Option<String>,
}

impl Subject {
    fn key(&self) -> String {
        match (&self.namespace, &self.pod) {
            (Some(namespace), Some(pod)) => format!("{namespace}/{pod}"),
            _ => String::new(),
        }
    }

    fn shown(&self) -> String {
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

    fn subject(&self, target: Target) -> Subject {
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
        let found = found.or_else(leaving);
        Subject {
            level: target.level(),
            tier: None,
            namespace: found.map(|(entry, _)| entry.given.namespace.clone()),
            pod: found.map(|(entry, _)| entry.given.name.clone()),
            container: found.and_then(|(entry, place)| entry.given.containers.get(place?)).map(|c| c.name.clone()),
        }
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
        let winner = stack.first();
        KnobReport {
            level: subject.level.as_str().to_owned(),
            subject: subject.shown(),
            pod: subject.key(),
            container: subject.container.clone().unwrap_or_default(),
            knob: knob.to_string(),
            path: self.host.file(target, knob).map(|file| file.path).unwrap_or_default(),
            value: held.map_or(Value::Max, |held| held.written).into(),
            baseline: held.map_or(Value::Max, |held| held.baseline).into(),
            policy: winner.map(|lease| lease.holder.policy.to_string()).unwrap_or_default(),
            module: winner.map(|lease| self.module_of(&lease.holder.policy)).unwrap_or_default(),
            reason: winner.map(|lease| lease.reason.to_string()).unwrap_or_default(),
            since: winner.map(|lease| lease.since).or(held.map(|held| held.since)).map(moment).unwrap_or_default(),
            beneath: stack.iter().skip(1).map(|lease| (lease.holder.policy.to_string(), lease.value.into())).collect(),
            adjusted: held
                .and_then(|held| held.adjusted.as_ref())
                .map(|(wanted, why)| Adjusted { wanted: (*wanted).into(), why: why.clone() }),
            drift: held.and_then(|held| held.drift.clone()),
            hands_off_until: held.and_then(|held| held.hands_off_until).map(moment),
        }
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
            problems: self
                .policies
                .iter()
                .map(|policy| {
                    policy.effective.get(&id).map_or(0, |effective| effective.problems.len())
                        + usize::from(policy.rejections.contains_key(&id))
                })
                .sum(),
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
            policies: self.policies.iter().map(|policy| self.pod_policy(policy, id)).collect(),
            knobs: self
                .held
                .keys()
                .filter(|(target, _)| belongs(*target))
                .map(|&(target, knob)| self.knob_report(target, knob))
                .collect(),
            refused: self.refusal_reports(belongs),
            events: self
                .events
                .iter()
                .filter(|event| event.pod == key)
                .filter_map(|event| serde_json::to_value(event).ok())
                .collect(),
        })
    }

    fn pod_policy(&self, policy: &crate::policy::Policy, id: PodId) -> PodPolicyReport {
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
        PodPolicyReport {
            policy: policy.name().to_string(),
            fields,
            rejected: policy.rejections.get(&id).map(|(field, message)| format!("{field}: {message}")),
            problems: effective.map(|e| e.problems.iter().map(ToString::to_string).collect()).unwrap_or_default(),
        }
    }

    /// All policies.
    pub fn policy_reports(&self) -> Vec<PolicyReport> {
        self.policies
            .iter()
            .map(|policy| {
                let (health, error) = match &policy.health {
                    Health::Running => ("running", None),
                    Health::BackingOff { error, .. } => ("backing-off", Some(error.clone())),
                    Health::Parked { error } => ("parked", Some(error.clone())),
                };
                PolicyReport {
                    policy: policy.name().to_string(),
                    module: format!("{}@{}", policy.description.name, policy.description.version),
                    digest: policy.module.digest().to_string(),
                    health: health.to_owned(),
                    error,
                    priority: policy.holder.priority.0,
                    leases: self.leases.held_by(policy.name()).count(),
                    evaluations: policy.evaluations,
                    failures: policy.failures,
                    last_evaluation_usec: micros(policy.last_evaluation_seconds),
                    problems: policy.problems.iter().map(ToString::to_string).collect(),
                }
            })
            .chain(self.unloaded.iter().map(|policy| PolicyReport {
                policy: policy.policy.clone(),
                module: String::new(),
                digest: String::new(),
                health: "not-loaded".to_owned(),
                error: Some(policy.error.clone()),
                priority: 0,
                leases: 0,
                evaluations: 0,
                failures: 0,
                last_evaluation_usec: 0,
                problems: Vec::new(),
            }))
            .collect()
    }

    /// All that is wrong with what somebody wrote, and is not about one pod.
    pub fn problems(&self) -> Vec<String> {
        self.problems.iter().map(ToString::to_string).collect()
    }

    /// All events that are kept.
    pub fn event_reports(&self) -> Vec<AgentEvent> {
        self.events.iter().cloned().collect()
    }

    /// Tells what is wrong with what was written: once when it begins, and once when it is mended.
    pub(crate) fn collect_problems(&mut self, now: Now) {
        let mut problems: std::collections::BTreeSet<_> = self.sources.problems.iter().cloned().collect();
        for policy in &self.policies {
            problems.extend(policy.problems.iter().cloned());
        }
        let mut of_pods = Vec::new();
        for entry in self.pods.iter() {
            let held = crate::hold::Hold::from_annotation(&entry.given).1;
            let of_policies = self.policies.iter().filter_map(|policy| policy.effective.get(&entry.id));
            let nameless = entry.given.containers.iter().filter_map(|container| nameless(&entry.given, container));
            for problem in
                of_policies.flat_map(|effective| effective.problems.iter().cloned()).chain(held).chain(nameless)
            {
                of_pods.push((Target::Pod(entry.id), problem));
            }
        }
        let mut step = crate::agent::Step::default();
        for (target, problem) in of_pods {
            if !self.problems.contains(&problem) {
                self.tell_pod(target, "InvalidConfiguration", problem.to_string(), now, &mut step);
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
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}
