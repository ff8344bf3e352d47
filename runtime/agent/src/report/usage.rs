//! What containers use, and the knobs held for them. Counters are running totals: two readings show what happened in between.

mod policies;

use std::borrow::Cow;
use std::collections::BTreeMap;

use qosm_host::{Bandwidth, BurstCounters, Host};
use qosm_model::column::{CpuCounters, Fields};
use qosm_model::knob::{Knob, Level, Target};
use qosm_model::pod::{ContainerId, Tier};
use qosm_model::unit::{Bytes, Micros};
use serde::{Deserialize, Serialize};

use self::policies::Shadowed;
pub use self::policies::{PolicyUsage, ShadowUsage, ShadowedUsage};
use super::inspect::is_above;
use super::knobs::reason_of;
use super::view::View;
use super::{WireValue, moment};
use crate::now::Now;
use crate::replay::PressureLine;
use crate::table::PodEntry;

/// The node and its pods at one moment. Counters count since the container began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUsage {
    /// Time of the reading (RFC 3339).
    pub time: String,
    /// The same on a monotonic clock, in microseconds: for the time between two readings.
    pub at_usec: u64,
    /// Number of CPUs that pods may use.
    pub cpus: u32,
    /// CPU time that these CPUs spent busy, in microseconds; missing if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu_busy_usec: Option<u64>,
    /// The node's memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_bytes: Option<u64>,
    /// `MemAvailable`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_available_bytes: Option<u64>,
    /// Pods that run, in the order of their names.
    pub pods: Vec<PodUsage>,
    /// The policies with a module, shadows among them. An agent that is older than this field sends none.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub policies: Vec<PolicyUsage>,
}

/// A pod.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodUsage {
    /// `namespace/name`.
    pub pod: String,
    /// The QoS class that policies use: LSE, LSR, LS, BE or SYSTEM.
    pub class: String,
    /// Whether the pod is paused: nothing is written to it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub paused: bool,
    /// Its containers with an open cgroup.
    pub containers: Vec<ContainerUsage>,
    /// Knobs held on the pod's own cgroup.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub held: Vec<HeldUsage>,
    /// Settings of the pod's own cgroup that are not in force, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused: Vec<RefusedUsage>,
    /// By active policy, the layers that configured it for this pod, other than its built-in defaults: as
    /// [`super::KnobReport::configured_by`], per policy instead of per knob.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub configured_by: BTreeMap<String, Vec<String>>,
}

/// A container.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerUsage {
    /// Its name.
    pub container: String,
    /// CPU time and throttling.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cpu: Option<Fields<CpuCounters>>,
    /// Bursts; missing where the kernel does not count them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bursts: Option<BurstUsage>,
    /// Memory now, and what the OOM killer did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory: Option<MemoryUsage>,
    /// Time that its threads waited; missing where the kernel does not count that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pressure: Option<PressureLine>,
    /// Its CFS quota.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quota: Option<QuotaUsage>,
    /// Its memory limit as specified.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub memory_limit_bytes: Option<u64>,
    /// Pages on the NUMA nodes that it runs on, in percent; missing where no policy watches that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub local_percent: Option<u64>,
    /// Knobs held on it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub held: Vec<HeldUsage>,
    /// Settings on it that are not in force, and why.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub refused: Vec<RefusedUsage>,
    /// Remarks of policies on it and on the groups that bound it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub remarks: Vec<RemarkUsage>,
    /// What shadows ask for, beside what active policies ask for, on it and on the groups that bound it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shadowed: Vec<ShadowedUsage>,
}

/// Memory of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryUsage {
    /// Memory in use.
    pub usage_bytes: u64,
    /// Number of processes that the OOM killer ended.
    #[serde(default)]
    pub oom_kills: u64,
}

/// CPU time beyond the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BurstUsage {
    /// Number of periods in which saved-up time was used.
    pub nr_bursts: u64,
    /// Saved-up time that was used, in microseconds.
    pub burst_usec: u64,
}

/// A CFS quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaUsage {
    /// Quota in force, in microseconds per period; missing if unlimited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quota_usec: Option<u64>,
    /// Quota without qosm, in microseconds per period; missing if unlimited.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub baseline_usec: Option<u64>,
    /// The period, in microseconds.
    pub period_usec: u64,
}

/// A held knob in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldUsage {
    /// The knob.
    pub knob: Cow<'static, str>,
    /// What the kernel showed last.
    pub value: WireValue,
    /// Value that another program last wrote; restored in the end.
    pub baseline: WireValue,
    /// The policy whose lease wins.
    pub policy: String,
    /// That policy's stated reason.
    pub reason: String,
    /// Since when this value is wanted, in milliseconds since the epoch.
    pub since_millis: i64,
}

/// A setting that is not in force, in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedUsage {
    /// The knob.
    pub knob: Cow<'static, str>,
    /// Value that the policy wanted.
    pub wanted: WireValue,
    /// The policy that wanted it.
    pub policy: String,
    /// Why it is not in force.
    pub why: String,
}

/// A remark of a policy, in short: what it wanted and did not do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemarkUsage {
    /// The knob.
    pub knob: String,
    /// Level of the knob: `container`, or `pod` or `tier` for a group that bounds it. Left out for `container`, the usual case.
    #[serde(skip_serializing_if = "is_container", default = "container")]
    pub level: Cow<'static, str>,
    /// The policy that wanted it.
    pub policy: String,
    /// Why not, in the policy's words.
    pub why: String,
}

fn container() -> Cow<'static, str> {
    Level::Container.as_str().into()
}

fn is_container(level: &str) -> bool {
    level == Level::Container.as_str()
}

/// Counters of one container, read now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    cpu: Option<CpuCounters>,
    bursts: Option<BurstCounters>,
    memory: Option<MemoryUsage>,
    pressure: Option<PressureLine>,
    bandwidth: Option<Bandwidth>,
}

impl Counted {
    /// Reads the counters that can be read; a container that is gone has none.
    pub(crate) fn read(host: &mut Host, id: ContainerId) -> Self {
        let (cpu, bursts) = host.cpu_and_burst_counters(id).map_or((None, None), |(cpu, bursts)| (Some(cpu), bursts));
        Self {
            cpu,
            bursts,
            memory: host
                .memory_in_use(id)
                .ok()
                .map(|(Bytes(usage_bytes), oom_kills)| MemoryUsage { usage_bytes, oom_kills }),
            pressure: host.pressure_counters(id).ok().map(Into::into),
            bandwidth: host.bandwidth(Target::Container(id)).ok(),
        }
    }
}

/// The node's counters, read now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountedNode {
    cpu_busy_usec: Option<u64>,
    memory: Option<(u64, u64)>,
}

impl CountedNode {
    pub(crate) fn read(host: &mut Host, reserved: &[u32]) -> Self {
        Self {
            cpu_busy_usec: host.node_cpu_busy(reserved).ok().map(|busy| busy.0),
            memory: host.node_memory().ok().map(|(all, available)| (all.0, available.0)),
        }
    }
}

/// The name of a knob. Only knobs of devices, which are few, need a new string.
fn name(knob: Knob) -> Cow<'static, str> {
    if knob == knob.kind() { knob.kind_name().into() } else { knob.to_string().into() }
}

impl View<'_> {
    /// The node's usage, with counters that were read before.
    pub(crate) fn usage(
        &self,
        node: CountedNode,
        counted: &BTreeMap<ContainerId, Counted>,
        reserved: usize,
        now: Now,
    ) -> NodeUsage {
        let shadowed = self.shadowed();
        let mut pods: Vec<PodUsage> = self
            .pods
            .iter()
            .filter(|entry| entry.pod.active)
            .map(|entry| self.pod_usage(entry, counted, &shadowed, now))
            .collect();
        pods.sort_by(|one, other| one.pod.cmp(&other.pod));
        NodeUsage {
            time: moment(now.wall),
            at_usec: now.monotonic.0,
            cpus: self.host.cpus().saturating_sub(u32::try_from(reserved).unwrap_or(u32::MAX)),
            cpu_busy_usec: node.cpu_busy_usec,
            memory_bytes: node.memory.map(|(all, _)| all),
            memory_available_bytes: node.memory.map(|(_, available)| available),
            pods,
            policies: self.policy_usage(),
        }
    }

    fn pod_usage(
        &self,
        entry: &PodEntry,
        counted: &BTreeMap<ContainerId, Counted>,
        shadowed: &Shadowed,
        now: Now,
    ) -> PodUsage {
        let own = Target::Pod(entry.id);
        let tier = entry.pod.kube_qos.tier();
        let bounding = || Tier::ALL.into_iter().filter(move |&above| is_above(above, tier)).map(Target::Tier);
        // A bound of a pod or a tier bounds each container in it.
        let bounds = |of: Target, container: Target| match of {
            Target::Container(_) => of == container,
            Target::Pod(_) => of == own,
            Target::Tier(above) => is_above(above, tier),
            Target::Node => false,
        };
        let containers = entry.pod.containers.iter().zip(&entry.containers).filter(|(_, place)| place.attached);
        PodUsage {
            pod: entry.pod.key(),
            class: entry.pod.qos().as_str().to_owned(),
            paused: self.pods.pause(entry.id, now.wall).is_some(),
            containers: containers
                .map(|(given, place)| {
                    let target = Target::Container(place.id);
                    let counted = counted.get(&place.id).copied().unwrap_or_default();
                    ContainerUsage {
                        container: given.name.clone(),
                        cpu: counted.cpu.map(Fields),
                        bursts: counted.bursts.map(|BurstCounters { nr_bursts, burst: Micros(burst_usec) }| {
                            BurstUsage { nr_bursts, burst_usec }
                        }),
                        memory: counted.memory,
                        pressure: counted.pressure,
                        quota: counted.bandwidth.map(|now| self.quota_usage(target, now)),
                        memory_limit_bytes: given.memory_limit.map(|limit| limit.0),
                        local_percent: self.controls.local_percent(place.id),
                        held: self.held_usage(target),
                        refused: self.refused_usage(target),
                        remarks: self.remark_usage(|of| bounds(of, target)),
                        shadowed: bounding()
                            .chain([own, target])
                            .filter_map(|of| shadowed.get(&of))
                            .flatten()
                            .cloned()
                            .collect(),
                    }
                })
                .collect(),
            held: self.held_usage(own),
            refused: self.refused_usage(own),
            configured_by: self.configured_by(entry.id),
        }
    }

    fn quota_usage(&self, target: Target, now: Bandwidth) -> QuotaUsage {
        let baseline = match self.ledger.held().get(&(target, Bandwidth::KNOB)).map(|held| held.baseline) {
            None => now.quota.map(|quota| quota.0),
            Some(held) => held.number().and_then(|number| u64::try_from(number).ok()),
        };
        QuotaUsage { quota_usec: now.quota.map(|quota| quota.0), baseline_usec: baseline, period_usec: now.period.0 }
    }

    fn held_usage(&self, target: Target) -> Vec<HeldUsage> {
        let shown = |knob: Knob| {
            let held = self.ledger.held().get(&(target, knob))?;
            let winner = self.ledger.ruling(self.pods, target, knob);
            let since = winner.map_or(held.since, |lease| lease.since);
            Some(HeldUsage {
                knob: name(knob),
                value: held.written.into(),
                baseline: held.baseline.into(),
                policy: winner.map_or(&held.policy, |lease| &lease.holder.policy).to_string(),
                reason: reason_of(winner, Some(held)).to_owned(),
                since_millis: since.0,
            })
        };
        self.ledger.held().of(target).filter_map(shown).collect()
    }

    fn remark_usage(&self, wanted: impl Fn(Target) -> bool) -> Vec<RemarkUsage> {
        let mut remarks = Vec::new();
        for policy in self.policies.active() {
            let of_policy = policy.remarks.iter().filter(|remark| wanted(remark.target));
            remarks.extend(of_policy.map(|remark| RemarkUsage {
                knob: remark.knob.to_string(),
                level: remark.target.level().as_str().into(),
                policy: policy.name().to_string(),
                why: remark.reason.to_string(),
            }));
        }
        remarks
    }

    fn refused_usage(&self, target: Target) -> Vec<RefusedUsage> {
        let from = (target, Knob::ALL[0]);
        let own = self.ledger.refusals().range(from..).take_while(|((of, _), _)| *of == target);
        own.map(|((_, knob), refusal)| RefusedUsage {
            knob: name(*knob),
            wanted: refusal.wanted.into(),
            policy: refusal.policy.to_string(),
            // Without the cgroup, which the report names already: each container that needs a missing feature reports it.
            why: match &refusal.lacking {
                Some(lacking) => format!("not on this node: {lacking}"),
                None => refusal.why.clone(),
            },
        })
        .collect()
    }
}
