//! Two samples of a node, and what happened between them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use qosm_agent::report::{
    ContainerUsage, HeldUsage, NodeUsage, PodUsage, PolicyUsage, QuotaUsage, RefusedUsage, RemarkUsage, ShadowedUsage,
    WireValue,
};
use serde::{Serialize, Serializer};

/// What happened between two consecutive samples.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// When the window ended (RFC 3339).
    pub time: String,
    /// Whether that is a real date. A recording without a time is played from 1970 on, so that its time is the time since its beginning.
    #[serde(skip)]
    pub has_date: bool,
    /// Length of the window, in seconds.
    pub seconds: f64,
    /// CPUs that pods may use.
    pub cpus: u32,
    /// Number of busy CPUs; `None` if it is not known.
    pub busy_cpus: Option<f64>,
    /// The node's memory.
    pub memory_bytes: Option<u64>,
    /// Memory in use; `None` if it is not known.
    pub memory_used_bytes: Option<u64>,
    /// Containers, in the order of their pods' names.
    pub containers: Vec<Row>,
    /// The policies that ran then, and how shadows among them compared.
    #[serde(skip)]
    pub policies: Vec<PolicyUsage>,
}

/// A container in a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `namespace/name`.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The pod's class by which policies choose their settings.
    pub class: String,
    /// Whether its pod is paused: nothing is written to it.
    pub paused: bool,
    /// CPUs used; `None` if the container was not seen before, or its counters restarted.
    pub cpus: Option<f64>,
    /// Its CFS quota; `None` if it is not known.
    pub quota: Option<Quota>,
    /// Periods in which it was throttled, in percent of those that passed; `None` if none passed.
    pub throttled_percent: Option<f64>,
    /// Memory in use.
    pub memory_bytes: Option<u64>,
    /// Its memory limit.
    pub memory_limit_bytes: Option<u64>,
    /// `memory.min`, if it is held.
    pub memory_min_bytes: Option<u64>,
    /// `memory.low`, if it is held.
    pub memory_low_bytes: Option<u64>,
    /// `memory.high`, if it is held.
    pub memory_high_bytes: Option<u64>,
    /// Processes that the OOM killer ended.
    pub oom_kills: u64,
    /// Time in which threads waited; `None` if the kernel does not count it.
    pub pressure: Option<Pressure>,
    /// Pages on the NUMA nodes that it runs on, in percent.
    pub local_percent: Option<u64>,
    /// What is held on the container and on its pod. Consecutive moments share the list as long as it does not change.
    #[serde(serialize_with = "as_list")]
    pub held: Arc<[HeldUsage]>,
    /// Number of entries at the beginning of `held` that are held on the container itself.
    #[serde(skip)]
    pub own_held: usize,
    /// Settings that are not in force, with the reason.
    pub refused: Vec<RefusedUsage>,
    /// What policies wanted and did not do.
    pub remarks: Vec<RemarkUsage>,
    /// The layers that configured each policy for the pod. Shared as `held` is.
    #[serde(skip)]
    pub configured_by: Arc<BTreeMap<String, Vec<String>>>,
    /// What shadows ask for, beside what active policies ask for. Shared as `held` is.
    #[serde(serialize_with = "as_list", skip_serializing_if = "is_empty")]
    pub shadowed: Arc<[ShadowedUsage]>,
}

/// A CFS quota, in CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    /// The quota in force; `None` = unlimited.
    pub cpus: Option<f64>,
    /// The baseline; `None` = unlimited.
    pub baseline_cpus: Option<f64>,
}

/// Time in which at least one thread waited, in percent of the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pressure {
    /// For a CPU.
    pub cpu_percent: f64,
    /// For memory.
    pub memory_percent: f64,
    /// For input or output.
    pub io_percent: f64,
}

impl Moment {
    /// What happened between two samples of one node. A container that only the later sample has is listed without differences.
    pub fn between(before: &NodeUsage, now: &NodeUsage) -> Self {
        let window = Duration::from_micros(now.at_usec.saturating_sub(before.at_usec));
        let earlier: HashMap<(&str, &str), &ContainerUsage> = before.pods.iter().flat_map(named).collect();
        let rows = now.pods.iter().flat_map(|pod| {
            let configured_by = Arc::new(pod.configured_by.clone());
            let earlier = &earlier;
            pod.containers.iter().map(move |container| {
                let then = earlier.get(&(pod.pod.as_str(), container.container.as_str())).copied();
                Row { configured_by: Arc::clone(&configured_by), ..Row::between(pod, then, container, window) }
            })
        });
        Self {
            time: now.time.clone(),
            has_date: has_date(now),
            seconds: window.as_secs_f64(),
            cpus: now.cpus,
            busy_cpus: difference(before.cpu_busy_usec, now.cpu_busy_usec).and_then(|used| share(used, window)),
            memory_bytes: now.memory_bytes,
            memory_used_bytes: now
                .memory_bytes
                .zip(now.memory_available_bytes)
                .map(|(all, available)| all.saturating_sub(available))
                // In a recording without this value, all memory is available.
                .filter(|used| *used > 0),
            containers: rows.collect(),
            policies: now.policies.clone(),
        }
    }
}

impl Moment {
    /// Shares the lists that have not changed with the previous moment.
    pub(crate) fn share_with(&mut self, before: &Self) {
        let mut others = before.containers.iter().cycle();
        for row in &mut self.containers {
            let known = others.by_ref().take(before.containers.len());
            let mut same = known.filter(|other| (&other.pod, &other.container) == (&row.pod, &row.container));
            if let Some(other) = same.next() {
                unite(&mut row.held, &other.held);
                unite(&mut row.configured_by, &other.configured_by);
                unite(&mut row.shadowed, &other.shadowed);
            }
        }
    }
}

/// Shares the other value if both are equal.
fn unite<T: PartialEq + ?Sized>(own: &mut Arc<T>, other: &Arc<T>) {
    if own == other {
        *own = Arc::clone(other);
    }
}

/// Whether the time is a real date: without a date, both clocks begin at 0 and go on together.
fn has_date(look: &NodeUsage) -> bool {
    let elapsed_millis = i64::try_from(look.at_usec / 1000).ok();
    look.time.parse::<Timestamp>().is_ok_and(|time| Some(time.as_millisecond()) != elapsed_millis)
}

fn named(pod: &PodUsage) -> impl Iterator<Item = ((&str, &str), &ContainerUsage)> {
    pod.containers.iter().map(|container| ((pod.pod.as_str(), container.container.as_str()), container))
}

impl Row {
    fn between(pod: &PodUsage, then: Option<&ContainerUsage>, now: &ContainerUsage, window: Duration) -> Self {
        let cpu = |of: fn(&qosm_model::column::CpuCounters) -> u64| {
            difference(Some(of(&then?.cpu.as_ref()?.0)), Some(of(&now.cpu.as_ref()?.0)))
        };
        let (periods, throttled) = (cpu(|cpu| cpu.nr_periods), cpu(|cpu| cpu.nr_throttled));
        let held: Arc<[HeldUsage]> = now.held.iter().chain(&pod.held).cloned().collect();
        let own = |knob: &str| match now.held.iter().find(|held| held.knob == knob)?.value {
            WireValue::Number(bytes) => u64::try_from(bytes).ok(),
            _ => None,
        };
        Self {
            pod: pod.pod.clone(),
            container: now.container.clone(),
            class: pod.class.clone(),
            paused: pod.paused,
            cpus: cpu(|cpu| cpu.usage.0).and_then(|used| share(used, window)),
            quota: now.quota.map(Quota::from),
            throttled_percent: periods.zip(throttled).and_then(|(periods, throttled)| percent(throttled, periods)),
            // A running container uses some memory: a recording without that column has 0.
            memory_bytes: now.memory.map(|memory| memory.usage_bytes).filter(|bytes| *bytes > 0),
            memory_limit_bytes: now.memory_limit_bytes,
            memory_min_bytes: own("memory.min"),
            memory_low_bytes: own("memory.low"),
            memory_high_bytes: own("memory.high"),
            oom_kills: difference(
                then.and_then(|then| then.memory.map(|memory| memory.oom_kills)),
                now.memory.map(|memory| memory.oom_kills),
            )
            .unwrap_or(0),
            pressure: then.and_then(|then| then.pressure).zip(now.pressure).and_then(|(then, now)| {
                let waited = |then: u64, now: u64| Some(share(now.checked_sub(then)?, window)? * 100.0);
                Some(Pressure {
                    cpu_percent: waited(then.cpu_some_usec, now.cpu_some_usec)?,
                    memory_percent: waited(then.memory_some_usec, now.memory_some_usec)?,
                    io_percent: waited(then.io_some_usec, now.io_some_usec)?,
                })
            }),
            local_percent: now.local_percent,
            held,
            own_held: now.held.len(),
            refused: now.refused.iter().chain(&pod.refused).cloned().collect(),
            remarks: now.remarks.clone(),
            configured_by: Arc::default(),
            shadowed: now.shadowed.clone().into(),
        }
    }

    /// `namespace/pod/container`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.pod, self.container)
    }

    /// What is held, and whether it is held on the container itself (else on its pod).
    pub(crate) fn held_where(&self) -> impl Iterator<Item = (&HeldUsage, bool)> {
        self.held.iter().enumerate().map(|(place, held)| (held, place < self.own_held))
    }

    /// The setting that was decided last; of several at once the container's own comes before its pod's.
    pub fn last_decision(&self) -> Option<&HeldUsage> {
        self.held.iter().rev().max_by_key(|held| held.since_millis)
    }
}

impl From<QuotaUsage> for Quota {
    fn from(quota: QuotaUsage) -> Self {
        let cpus = |usec: Option<u64>| usec.map(|usec| ratio(usec, quota.period_usec.max(1)));
        Self { cpus: cpus(quota.quota_usec), baseline_cpus: cpus(quota.baseline_usec) }
    }
}

fn as_list<T: Serialize, S: Serializer>(list: &Arc<[T]>, serializer: S) -> Result<S::Ok, S::Error> {
    list.as_ref().serialize(serializer)
}

fn is_empty<T>(list: &Arc<[T]>) -> bool {
    list.is_empty()
}

/// The increase of a counter; `None` if a value is missing, or the counter restarted.
fn difference(then: Option<u64>, now: Option<u64>) -> Option<u64> {
    now?.checked_sub(then?)
}

/// Time used within a window, as a share of the window.
fn share(usec: u64, window: Duration) -> Option<f64> {
    let window = u64::try_from(window.as_micros()).ok().filter(|window| *window > 0)?;
    Some(ratio(usec, window))
}

fn percent(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| ratio(part, all) * 100.0)
}

/// For display: the precision that is lost above 2^53 is not visible.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use qosm_agent::report::NodeUsage;
    use serde_json::json;

    use super::*;

    /// A node after `seconds` seconds: `web` is throttled in half of its periods, `batch` uses what it gets.
    pub(crate) fn node(seconds: u64) -> NodeUsage {
        let usec = seconds * 1_000_000;
        serde_json::from_value(json!({
            "time": "2026-11-26T08:00:00Z", "atUsec": usec, "cpus": 8, "cpuBusyUsec": usec * 5,
            "memoryBytes": 16_u64 << 30, "memoryAvailableBytes": 6_u64 << 30,
            "policies": [
                {"policy": "cpu-burst", "module": "cpu-burst@1.0.0", "digest": "sha256:01"},
                {"policy": "memory-qos", "module": "memory-qos@1.0.0", "digest": "sha256:02"},
                {"policy": "next", "module": "cpu-burst@2.0.0", "digest": "sha256:03",
                 "shadow": {"of": "cpu-burst", "agreeing": 1, "differing": 1, "ticks": 7, "differingTicks": 5}}
            ],
            "pods": [
                {"pod": "default/batch", "class": "BE", "containers": [{
                    "container": "job", "cpu": {"usageUsec": usec * 3, "nrPeriods": 0},
                    "memory": {"usageBytes": 4_u64 << 30}, "quota": {"periodUsec": 100_000}
                }]},
                {"pod": "shop/web", "class": "LS",
                 "configuredBy": {"cpu-burst": ["annotation koordinator.sh/cpuBurst", "the cluster's"]},
                 "containers": [{
                    "container": "app",
                    "cpu": {"usageUsec": usec * 3 / 2, "nrPeriods": seconds * 10, "nrThrottled": seconds * 5},
                    "memory": {"usageBytes": 900_u64 << 20},
                    "pressure": {"cpuSomeUsec": usec / 4, "memorySomeUsec": usec / 50, "ioSomeUsec": 0},
                    "quota": {"quotaUsec": 150_000, "baselineUsec": 100_000, "periodUsec": 100_000},
                    "memoryLimitBytes": 1_u64 << 30, "localPercent": 98,
                    "held": [
                        {"knob": "cpu.quota", "value": 150_000, "baseline": 100_000, "policy": "cpu-burst",
                         "reason": "throttled in 50 % of 10 periods", "sinceMillis": 1_764_144_000_000_i64},
                        {"knob": "memory.low", "value": 536_870_912, "baseline": 0, "policy": "memory-qos",
                         "reason": "low 100 % of request 512 MiB", "sinceMillis": 1_764_143_000_000_i64}
                    ],
                    "refused": [{"knob": "memory.high", "wanted": 1000, "policy": "memory-qos", "why": "below what is in use"}],
                    "remarks": [{"knob": "cpu.quota", "policy": "cpu-burst",
                                 "why": "throttled in 50 % of the periods and not raised: its allowance is used up"}],
                    "shadowed": [
                        {"policy": "next", "knob": "cpu.burst", "kind": "agrees", "active": 7, "wanted": 7},
                        {"policy": "next", "knob": "cpu.quota", "kind": "differs", "inForce": 150_000,
                         "active": 150_000, "wanted": 200_000, "reason": "throttled at all"}
                    ]
                }]}
            ]
        }))
        .unwrap()
    }

    pub(crate) fn moment() -> Moment {
        Moment::between(&node(10), &node(12))
    }

    #[test]
    fn what_happened_is_the_difference_of_two_looks() {
        let Moment { seconds, busy_cpus, memory_used_bytes, containers, .. } = moment();
        assert_eq!((seconds, busy_cpus, memory_used_bytes), (2.0, Some(5.0), Some(10 << 30)));
        let web = &containers[1];
        assert_eq!((web.cpus, web.throttled_percent), (Some(1.5), Some(50.0)));
        assert_eq!(web.quota, Some(Quota { cpus: Some(1.5), baseline_cpus: Some(1.0) }));
        assert_eq!(web.pressure, Some(Pressure { cpu_percent: 25.0, memory_percent: 2.0, io_percent: 0.0 }));
        assert_eq!(web.memory_low_bytes, Some(512 << 20));
        assert_eq!(web.last_decision().map(|held| held.policy.as_str()), Some("cpu-burst"));
        let batch = &containers[0];
        assert_eq!((batch.throttled_percent, batch.pressure), (None, None), "no period passed, and nothing counts");
        assert_eq!(batch.quota, Some(Quota { cpus: None, baseline_cpus: None }));
    }

    #[test]
    fn a_container_that_began_anew_has_no_difference() {
        let began_anew = Moment::between(&node(12), &NodeUsage { at_usec: 13_000_000, ..node(1) });
        assert!(began_anew.containers.iter().all(|row| row.cpus.is_none() && row.throttled_percent.is_none()));
        let is_new = Moment::between(&NodeUsage::default(), &node(1));
        assert!(is_new.containers.iter().all(|row| row.cpus.is_none() && row.memory_bytes.is_some()));
        assert_eq!(Moment::between(&node(1), &node(1)).containers[1].cpus, None, "no time passed");
    }
}
