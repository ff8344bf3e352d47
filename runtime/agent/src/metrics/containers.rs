//! Optional series per container, computed from the usage at a scrape and limited in number.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::Catalogue;
use crate::report::{ContainerUsage, HeldUsage, NodeUsage, WireValue};

/// The printed names of the series, for the test of the documentation.
pub(super) const NAMES: [&str; 8] = [
    "qosm_container_cpu_periods_total",
    "qosm_container_cpu_throttled_periods_total",
    "qosm_container_cpu_quota_cores",
    "qosm_container_cpu_baseline_quota_cores",
    "qosm_container_cpu_bursts_total",
    "qosm_container_cpu_burst_seconds_total",
    "qosm_container_held_bytes",
    "qosm_containers_left_out",
];

/// Labels that differ from those that a scrape adds for the agent's own pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ContainerLabels {
    pod_namespace: String,
    pod_name: String,
    container_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HeldLabels {
    pod_namespace: String,
    pod_name: String,
    container_name: String,
    knob: String,
}

/// The series of one scrape.
#[derive(Default)]
struct Series {
    periods: Family<ContainerLabels, Counter>,
    throttled: Family<ContainerLabels, Counter>,
    quota: Family<ContainerLabels, Gauge<f64, AtomicU64>>,
    baseline: Family<ContainerLabels, Gauge<f64, AtomicU64>>,
    bursts: Family<ContainerLabels, Counter>,
    burst: Family<ContainerLabels, Counter<f64, AtomicU64>>,
    held: Family<HeldLabels, Gauge>,
    left_out: Gauge,
}

/// The series of at most `most` containers, the first by name.
pub(crate) fn text(usage: &NodeUsage, most: usize) -> String {
    let series = Series::default();
    let all = || usage.pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    for (pod, container) in all().take(most) {
        let (namespace, name) = pod.pod.split_once('/').unwrap_or(("", &pod.pod));
        series.add(namespace, name, container);
    }
    series.left_out.set(super::count(all().count().saturating_sub(most)));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode_registry(&mut text, &series.registry());
    text
}

impl Series {
    fn add(&self, namespace: &str, pod: &str, container: &ContainerUsage) {
        let label = ContainerLabels {
            pod_namespace: namespace.to_owned(),
            pod_name: pod.to_owned(),
            container_name: container.container.clone(),
        };
        if let Some(cpu) = &container.cpu {
            self.periods.get_or_create(&label).inc_by(cpu.0.nr_periods);
            self.throttled.get_or_create(&label).inc_by(cpu.0.nr_throttled);
        }
        if let Some(quota) = container.quota {
            let float = |micros: u64| f64::from(u32::try_from(micros).unwrap_or(u32::MAX));
            let cores = |quota_usec: u64| float(quota_usec) / float(quota.period_usec.max(1));
            // Without a limit there is no series, since no number stands for "unlimited".
            for (family, quota_usec) in [(&self.quota, quota.quota_usec), (&self.baseline, quota.baseline_usec)] {
                if let Some(quota_usec) = quota_usec {
                    family.get_or_create(&label).set(cores(quota_usec));
                }
            }
        }
        if let Some(bursts) = container.bursts {
            self.bursts.get_or_create(&label).inc_by(bursts.nr_bursts);
            self.burst.get_or_create(&label).inc_by(micros(bursts.burst_usec));
        }
        let is_bytes = |held: &&HeldUsage| matches!(&*held.knob, "memory.min" | "memory.low" | "memory.high");
        for held in container.held.iter().filter(is_bytes) {
            if let WireValue::Number(bytes) = held.value {
                let ContainerLabels { pod_namespace, pod_name, container_name } = label.clone();
                let label =
                    HeldLabels { pod_namespace, pod_name, container_name, knob: held.knob.clone().into_owned() };
                self.held.get_or_create(&label).set(bytes);
            }
        }
    }

    fn registry(self) -> Registry {
        let mut registry = Registry::with_prefix(Catalogue::PREFIX);
        let mut r =
            |name: &str, help: &str, family: Family<ContainerLabels, Counter>| registry.register(name, help, family);
        r("container_cpu_periods", "CFS periods in which the container was runnable", self.periods);
        r("container_cpu_throttled_periods", "CFS periods in which the container used up its quota", self.throttled);
        r("container_cpu_bursts", "CFS periods in which the container used burst time", self.bursts);
        registry.register("container_cpu_quota_cores", "CFS quota in force, in CPUs; none = unlimited", self.quota);
        registry.register("container_cpu_baseline_quota_cores", "CFS quota without qosm, in CPUs", self.baseline);
        let help = "CPU time that the container used beyond its quota, from burst";
        registry.register_with_unit("container_cpu_burst", help, Unit::Seconds, self.burst);
        registry.register("container_held_bytes", "Value that qosm holds in a memory knob", self.held);
        registry.register("containers_left_out", "Containers without series, since there are too many", self.left_out);
        registry
    }
}

fn micros(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> NodeUsage {
        let container = |name: &str| {
            json!({"container": name,
            "cpu": {"usageUsec": 7, "nrPeriods": 10, "nrThrottled": 3, "throttledUsec": 9},
            "quota": {"quotaUsec": 150_000, "baselineUsec": 100_000, "periodUsec": 100_000},
            "bursts": {"nrBursts": 2, "burstUsec": 30_000},
            "held": [
                {"knob": "memory.min", "value": 1024, "baseline": 0, "policy": "memory-qos", "reason": "", "sinceMillis": 0},
                {"knob": "memory.high", "value": "max", "baseline": 0, "policy": "memory-qos", "reason": "", "sinceMillis": 0},
                {"knob": "cpu.quota", "value": 150_000, "baseline": 0, "policy": "cpu-burst", "reason": "", "sinceMillis": 0},
            ]})
        };
        let pods = json!([
            {"pod": "shop/web", "class": "LS", "containers": [container("app"), {"container": "side"}]},
            {"pod": "shop/zebra", "class": "LS", "containers": [container("app")]},
        ]);
        serde_json::from_value(json!({"time": "", "atUsec": 1, "cpus": 4, "pods": pods})).unwrap()
    }

    #[test]
    fn each_container_has_its_series_and_those_beyond_the_bound_are_counted() {
        insta::assert_snapshot!("containers", text(&node(), 2));
        let none = text(&node(), 0);
        assert!(none.contains("qosm_containers_left_out 3") && !none.contains("shop"), "{none}");
    }

    #[test]
    fn all_names_are_listed() {
        let text = text(&node(), 9);
        let printed = text.lines().filter(|line| !line.starts_with('#'));
        let mut printed: Vec<&str> = printed.map(|line| line.split(['{', ' ']).next().unwrap_or_default()).collect();
        printed.sort_unstable();
        printed.dedup();
        let mut names = NAMES;
        names.sort_unstable();
        assert_eq!(printed, names);
    }
}
