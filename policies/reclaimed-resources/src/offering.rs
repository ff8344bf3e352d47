//! Computes the amounts that a node offers.

use std::collections::BTreeMap;

use crate::amounts::{Amounts, Resource};
use crate::batch::{Amount, High, HighPod, Terms};
use crate::config::PolicyConfig;
use crate::decimal::Decimal;
use crate::mid::{MidAmount, MidTerms};
use crate::node::{Node, ThirdParty};
use crate::pod::{Pod, requested_elsewhere};
use crate::publish::{Offer, Published};
use crate::strategy::{MemoryView, Strategy};
use crate::usage::peak::{ProdPod, prod_reclaimable};
use crate::usage::tracker::{Averages, Tracker, key};
use crate::zones::{Whole, ZoneAmount, zone_amounts};

const SECOND_USEC: u64 = 1_000_000;

/// The amounts that a publication is computed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// Batch CPU and memory, before third parties' allocations are subtracted.
    pub batch: [Amount; 2],
    /// Mid CPU and memory.
    pub mid: [MidAmount; 2],
    /// Batch CPU and memory by NUMA zone.
    pub zones: Vec<ZoneAmount>,
}

/// The inputs of both formulas.
pub(crate) struct Offering<'w> {
    pub(crate) tracker: &'w Tracker,
    pub(crate) policy: &'w PolicyConfig,
    pub(crate) strategy: &'w Strategy,
    /// Which memory counts as used.
    pub(crate) view: MemoryView,
    pub(crate) node: &'w Node,
    pub(crate) pods: &'w [Pod],
    /// Amounts that pods may not use.
    pub(crate) reserved: Amounts,
    pub(crate) averages: Averages,
    /// The CPU normalisation ratio; `None` if it is not above 1.
    pub(crate) ratio: Option<Decimal>,
}

impl Offering<'_> {
    /// Computes all formulas.
    pub(crate) fn breakdown(&self) -> Breakdown {
        let (batch, zones) = self.batch();
        Breakdown { batch, mid: self.mid(), zones }
    }

    /// The amounts to publish under each name, less the allocations of other schedulers.
    pub(crate) fn published(&self, breakdown: &Breakdown, given: ThirdParty) -> Published {
        let Breakdown { batch, mid, zones } = breakdown;
        let [cpu, memory] = *batch;
        let mut published = Published {
            zones: zones.iter().map(|zone| (zone.id, zone.values())).collect(),
            origin: Some(Amounts::new(cpu.value, memory.value)),
            ..Published::default()
        };
        let policy = self.policy;
        for (amount, names) in batch.iter().zip([&policy.batch_cpu_names, &policy.batch_memory_names]) {
            let ratio = self.ratio.filter(|_| amount.resource == Resource::Cpu);
            let reason = ratio.map_or(amount.to_string(), |ratio| format!("{amount}, times CPU normalisation {ratio}"));
            self.offer(&mut published, amount.resource, names, amount.value, given.batch, &reason);
        }
        for (amount, names) in mid.iter().zip([&policy.mid_cpu_names, &policy.mid_memory_names]) {
            self.offer(&mut published, amount.resource, names, amount.value, given.mid, &amount.to_string());
        }
        published
    }

    /// Adds an amount under each of its names.
    fn offer(
        &self,
        published: &mut Published,
        resource: Resource,
        names: &[String],
        value: u64,
        given: Amounts,
        why: &str,
    ) {
        let given = given.of(resource);
        for (name, other) in requested_elsewhere(self.pods, names) {
            let mut reason = why.to_owned();
            for (amount, what) in [(given, "given away by other schedulers"), (other, "requested under other names")] {
                if amount > 0 {
                    reason.push_str(&format!(", - {} {what}", resource.show(amount.into())));
                }
            }
            let amount = value.saturating_sub(given).saturating_sub(other);
            published.offers.insert(name, Offer { amount, reason });
        }
    }

    fn active(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| pod.is_active)
    }

    /// The pod's request of CPU and memory, plus that of mid resources: mid pods request those instead, but reduce the batch amount the
    /// same way.
    fn request(&self, pod: &Pod) -> Amounts {
        pod.request().plus(pod.extended_request(&self.policy.mid_cpu_names, &self.policy.mid_memory_names))
    }

    fn batch(&self) -> ([Amount; 2], Vec<ZoneAmount>) {
        let high_pod = |pod: &Pod| {
            let request = self.request(pod);
            HighPod {
                request,
                usage: self.tracker.pod_usage(key(&pod.uid), request, self.strategy, self.view),
                is_exclusive: pod.qos == qosm_sdk::QosClass::Lse,
                numa_nodes: pod.numa_nodes.clone(),
            }
        };
        let high_pods: Vec<_> = self.active().filter(|pod| pod.priority.is_high()).map(high_pod).collect();
        let listed: BTreeMap<u64, ()> = self.active().map(|pod| (key(&pod.uid), ())).collect();
        let dangling = self.tracker.dangling(self.view, |pod| listed.contains_key(&pod));
        let mut high = High::default();
        for pod in &high_pods {
            high.add(pod.request, pod.usage, pod.is_exclusive);
        }
        high.add_dangling(dangling);
        let Averages { system, host_prod, host_mid, .. } = self.averages;
        let system = system.plus(host_prod).plus(host_mid);
        let terms = Terms { capacity: self.node.capacity, reserved: self.reserved, system, high };
        let amounts =
            Resource::EACH.map(|resource| Amount::new(resource, self.strategy, &terms).normalized(self.ratio));
        let whole = Whole { reserved: self.reserved, system, dangling, pods: &high_pods };
        (amounts, zone_amounts(self.strategy, &self.node.zones, &whole, self.ratio))
    }

    fn mid(&self) -> [MidAmount; 2] {
        let cold_usec = self.policy.cold_start_seconds.saturating_mul(SECOND_USEC);
        let prod_pod = |pod: &Pod| ProdPod {
            request: pod.request(),
            peak: self.tracker.pod_peak(key(&pod.uid), cold_usec),
            is_exclusive: pod.qos == qosm_sdk::QosClass::Lse,
        };
        let prod: Vec<_> = self.active().filter(|pod| pod.priority.is_prod()).map(prod_pod).collect();
        let terms = MidTerms {
            capacity: self.node.capacity,
            reserved: self.reserved,
            system: self.averages.system.plus(self.averages.host_prod),
            prod_request: prod.iter().map(|pod| pod.request).fold(Amounts::ZERO, Amounts::plus),
            prod_reclaimable: prod_reclaimable(
                self.node.capacity,
                &prod,
                self.tracker.prod.peaks.peak(),
                self.tracker.system.peaks.peak(),
                self.policy.peak_margin_percent,
            ),
            node_used: Some(self.averages.node),
        };
        Resource::EACH.map(|resource| MidAmount::new(resource, self.strategy, &terms))
    }
}
