use qosm_sdk::{ContainerKind, QosClass};

use super::*;
use crate::class::PriorityClass;
use crate::config::Config;
use crate::node::{RATIO_ANNOTATION, RESERVATION_ANNOTATION, THIRD_PARTY_ANNOTATION, Zone};
use crate::pod::tests::{container, extended, pod};
use crate::saved_state;
use crate::usage::tracker::{HostApplication, PodUsage};
use crate::usage::{MemoryUse, Sample};

const MINUTE: u64 = 60 * SECOND_USEC;
const GIB: u64 = 1 << 30;
const CPU: &str = "kubernetes.io/batch-cpu";
const MEMORY: &str = "kubernetes.io/batch-memory";
const MID_CPU: &str = "kubernetes.io/mid-cpu";

/// A policy with its state and inputs.
struct Run {
    settings: Settings,
    state: State,
    inputs: Inputs,
}

impl Run {
    /// A node of 100 CPUs and 100 GiB, of which the system uses 7 CPUs and 12 GiB.
    fn new(config: &str) -> Self {
        let capacity = Amounts::new(100_000, 100 * GIB);
        let node = Node { capacity, allocatable: capacity, ..Node::default() };
        let inputs = Inputs {
            node: Some(node),
            pods: Some(Vec::new()),
            usage: Some(Usage { system: Some(sample(7000, 12 * GIB)), ..Usage::default() }),
        };
        Self { settings: settings(config), state: State::default(), inputs }
    }

    /// Publishing enabled, with margins of 20 % of the CPU and 10 % of the memory.
    fn enabled() -> Self {
        Self::new(
            r#"{"colocation":{"enable":true,"cpuReclaimThresholdPercent":80,"memoryReclaimThresholdPercent":90}}"#,
        )
    }

    fn add(&mut self, pod: Pod, used: Option<(u64, u64)>) -> &mut Self {
        if let Some((milli, bytes)) = used {
            let (uid, priority) = (pod.uid.clone(), pod.priority);
            self.usage().pods.push(PodUsage { uid, priority, sample: sample(milli, bytes) });
        }
        self.inputs.pods.as_mut().unwrap().push(pod);
        self
    }

    fn node(&mut self) -> &mut Node {
        self.inputs.node.as_mut().unwrap()
    }

    fn usage(&mut self) -> &mut Usage {
        self.inputs.usage.as_mut().unwrap()
    }

    fn annotate(&mut self, name: &str, text: &str) {
        self.node().annotations.insert(name.into(), text.into());
    }

    fn step(&mut self, window_usec: u64) -> Decisions {
        tick(&mut self.state, &self.settings, &self.inputs, Now { window_usec })
    }

    /// One minute; what is published appears on the node.
    fn minute(&mut self) -> Decisions {
        let decisions = self.step(MINUTE);
        if let Some(node) = self.inputs.node.as_mut().filter(|_| decisions.publication.due.is_some()) {
            let offers = &decisions.publication.published.offers;
            node.extended = offers.iter().map(|(name, offer)| (name.clone(), offer.amount)).collect();
        }
        decisions
    }
}

fn settings(config: &str) -> Settings {
    serde_json::from_str::<Config>(config).unwrap().check().unwrap()
}

/// The use within a minute.
fn sample(milli: u64, bytes: u64) -> Sample {
    Sample { cpu_usec: milli * MINUTE / 1000, memory: MemoryUse { without_cache: bytes, ..MemoryUse::default() } }
}

fn requesting(uid: &str, cpu: u64, memory: u64) -> Pod {
    pod(uid, vec![container("app", ContainerKind::Regular, cpu, memory)])
}

fn of_class(priority: PriorityClass, pod: Pod) -> Pod {
    Pod { priority, ..pod }
}

fn amount(decisions: &Decisions, name: &str) -> Option<u64> {
    decisions.publication.published.offers.get(name).map(|offer| offer.amount)
}

fn batch(decisions: &Decisions) -> (Option<u64>, Option<u64>) {
    (amount(decisions, CPU), amount(decisions, MEMORY))
}

mod amount;
mod lifecycle;
