//! Computes the values to hold on every cgroup of the node from its current pods.
//!
//! There are three levels: a container's values follow from its own resources, a pod's from those of the pod, and a tier's from the sum of
//! its pods. The protection of a cgroup always covers that of its children, since the kernel grants a child no more than its parent has.

mod unmet;

use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{Bound, Container, ContainerState, KubeQos, PodFacts, Protection, Target, Tier};

use crate::config::{Classes, Config, MemoryQos, PolicyConfig};
use crate::formula::{self, High, HighFormula, MAX_BYTES, share, sum, total};
use crate::page_cache::PageCacheLimit;
use crate::protection::GroupProtection;
use crate::reason::{Reason, Size};
use crate::resources::{self, LostUnit, Resources};

pub(crate) use self::unmet::Unmet;

/// The facts about the node that the plan needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeMemory {
    /// `status.allocatable.memory` in bytes; 0 if unknown.
    pub(crate) allocatable: u64,
    /// Page size in bytes.
    pub(crate) page: u64,
}

/// The values of one cgroup, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// The values; never all unset.
    pub(crate) protection: Protection,
    /// The reason for the values.
    pub(crate) reason: String,
}

/// How much every `memory.min` shrinks so that their sum fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shrink {
    /// The sum of all pods' `memory.min`, in bytes.
    pub(crate) total: u128,
    /// The upper bound of the sum, in bytes.
    pub(crate) cap: u64,
}

/// The plan for the whole node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The values by target, in the order tiers, pods, containers.
    pub(crate) settings: BTreeMap<Target, Setting>,
    /// Set if the pods ask for more `memory.min` than allowed.
    pub(crate) shrink: Option<Shrink>,
    /// Implausibly small amounts.
    pub(crate) lost_units: BTreeSet<LostUnit>,
    /// Configured values that have no effect, or less than configured.
    pub(crate) unmet: Vec<Unmet>,
}

impl Plan {
    /// Computes the plan. Pods that have ended or have no configuration do not count.
    pub(crate) fn new<'a>(
        config: &Config,
        node: NodeMemory,
        pods: impl IntoIterator<Item = (&'a PodFacts, &'a MemoryQos)>,
    ) -> Self {
        let mut protections: Vec<PodProtection<'_>> = pods
            .into_iter()
            .filter(|(pod, qos)| pod.active && qos.asks())
            .map(|(pod, qos)| PodProtection::new(pod, qos, &config.policy))
            .collect();

        let total = total(protections.iter().filter_map(|levels| levels.all.min));
        let shrink = min_cap(&config.policy, node)
            .map(|cap| Shrink { total, cap })
            .filter(|shrink| shrink.total > u128::from(shrink.cap));
        for levels in &mut protections {
            levels.settle(shrink);
        }

        let mut settings = BTreeMap::new();
        let tiers = [Tier::Guaranteed, Tier::Burstable, Tier::BestEffort];
        settings.extend(
            tiers.into_iter().map(|tier| (Target::Tier(tier), tier_setting(tier, &protections, &config.classes))),
        );
        for levels in &protections {
            levels.add_settings(&config.policy, node, &mut settings);
        }
        settings.retain(|_, setting| setting.protection != Protection::NONE);
        let lost_units = protections.iter().flat_map(|levels| resources::lost_units(levels.pod)).collect();
        let unmet = protections.iter().flat_map(|levels| levels.unmet(node, shrink)).collect();
        Self { settings, shrink, lost_units, unmet }
    }
}

/// A pod whose settings are being computed.
struct PodProtection<'a> {
    pod: &'a PodFacts,
    qos: &'a MemoryQos,
    resources: Resources,
    all: GroupProtection,
    containers: Vec<ContainerProtection<'a>>,
}

struct ContainerProtection<'a> {
    container: &'a Container,
    resources: Resources,
    levels: GroupProtection,
}

impl<'a> PodProtection<'a> {
    fn new(pod: &'a PodFacts, qos: &'a MemoryQos, policy: &PolicyConfig) -> Self {
        let mut containers: Vec<_> = pod
            .containers
            .iter()
            .filter(|container| container.state == ContainerState::Running)
            .map(|container| {
                let resources = resources::of_container(pod, container);
                ContainerProtection { container, resources, levels: GroupProtection::new(qos, resources, policy) }
            })
            .collect();
        let resources = resources::of_pod(pod);
        // No file accepts more than MAX_BYTES, so a pod cannot give its containers more than that, nor more than it may have itself.
        let most = formula::below_limit(MAX_BYTES, resources.limit, policy.min_below_limit_percent);
        let asked = total(containers.iter().filter_map(|container| container.levels.min));
        for container in &mut containers {
            container.levels.fit(most, asked);
        }
        let mut all = GroupProtection::new(qos, resources, policy);
        all.cover_min(sum(containers.iter().filter_map(|container| container.levels.min)));
        Self { pod, qos, resources, all, containers }
    }

    /// Shrinks `memory.min`, and adjusts `memory.low` to the result.
    fn settle(&mut self, shrink: Option<Shrink>) {
        for container in &mut self.containers {
            container.levels.settle(shrink);
        }
        self.all.settle(shrink);
        self.all.cover_low(sum(self.containers.iter().filter_map(|container| container.levels.low)));
    }

    fn add_settings(&self, policy: &PolicyConfig, node: NodeMemory, settings: &mut BTreeMap<Target, Setting>) {
        let page_cache = PageCacheLimit::new(self.qos, self.resources.limit, node.page);
        let mut reason = Reason::default();
        self.all.explain(&mut reason);
        explain_statics(self.qos, &mut reason);
        page_cache.explain(self.qos, self.resources.limit, &mut reason);
        let protection = Protection {
            min_bytes: self.all.min,
            low_bytes: self.all.low,
            page_cache_limit_enable: page_cache.enable,
            page_cache_limit_bytes: page_cache.size,
            page_cache_reclaim_sync: page_cache.sync,
            ..statics(self.qos)
        };
        settings.insert(Target::Pod(self.pod.id), Setting { protection, reason: reason.into_text() });

        for ContainerProtection { container, resources, levels } in &self.containers {
            let mut reason = Reason::default();
            levels.explain(&mut reason);
            let high = Throttled { pod: self.pod, container, resources: *resources, min: levels.min };
            let high = high.bound(self.qos, policy, node, &mut reason);
            explain_statics(self.qos, &mut reason);
            let protection = Protection { min_bytes: levels.min, low_bytes: levels.low, high, ..statics(self.qos) };
            settings.insert(Target::Container(container.id), Setting { protection, reason: reason.into_text() });
        }
    }
}

/// Upper bound of the sum of all `memory.min`, in bytes; `None` = no bound.
fn min_cap(policy: &PolicyConfig, node: NodeMemory) -> Option<u64> {
    (policy.min_total_percent > 0 && node.allocatable > 0)
        .then(|| share(node.allocatable, i64::from(policy.min_total_percent)))
}

/// The values of a tier: the sum of its pods (all pods for the kubepods cgroup), and the OOM switches of the corresponding class.
fn tier_setting(tier: Tier, pods: &[PodProtection<'_>], classes: &Classes) -> Setting {
    let within = || pods.iter().filter(move |levels| tier == Tier::Guaranteed || tier == tier_of(levels.pod));
    let sum = |values: Vec<u64>| (!values.is_empty()).then(|| sum(values));
    let mins: Vec<u64> = within().filter_map(|levels| levels.all.min).collect();
    let lows: Vec<u64> = within().filter_map(|levels| levels.all.low).collect();

    let mut reason = Reason::default();
    for (name, count) in [("min", mins.len()), ("low", lows.len())] {
        match count {
            0 => {}
            1 => reason.add(&format!("{name} of its 1 pod")),
            count => reason.add(&format!("{name} sum of its {count} pods")),
        }
    }
    let (name, class) = match tier {
        Tier::Guaranteed => ("lsrClass", &classes.lsr_class),
        Tier::Burstable => ("lsClass", &classes.ls_class),
        Tier::BestEffort => ("beClass", &classes.be_class),
    };
    let oom = oom(class);
    if oom != Protection::NONE {
        let mut parts = Reason::default();
        explain_oom(class, &mut parts);
        reason.add(&format!("of class {name}: {}", parts.into_text()));
    }
    Setting { protection: Protection { min_bytes: sum(mins), low_bytes: sum(lows), ..oom }, reason: reason.into_text() }
}

fn tier_of(pod: &PodFacts) -> Tier {
    match pod.kube_qos {
        KubeQos::Guaranteed => Tier::Guaranteed,
        KubeQos::Burstable => Tier::Burstable,
        KubeQos::BestEffort => Tier::BestEffort,
    }
}

/// A container whose `memory.high` is being computed.
struct Throttled<'a> {
    pod: &'a PodFacts,
    container: &'a Container,
    resources: Resources,
    min: Option<u64>,
}

impl Throttled<'_> {
    fn bound(&self, qos: &MemoryQos, policy: &PolicyConfig, node: NodeMemory, reason: &mut Reason) -> Option<Bound> {
        let percent = qos.throttling_percent?;
        let (base, base_name) = self.base(node);
        // Without a limit and without the node's memory, any bound would be arbitrary.
        if base == 0 && percent != 0 {
            return None;
        }
        let Resources { request, .. } = self.resources;
        let wanted = formula::high(policy.high_formula, request, base, percent, node.page);
        let at_least = formula::high_at_least(wanted, self.needed(policy.high_formula), node.page);
        let high = formula::high_over_min(Some(at_least), self.min)?;
        let raised = match high {
            High::Bytes(_) if high == wanted => "",
            High::Bytes(_) if high != at_least => ", raised to min",
            High::Bytes(bytes) if bytes == node.page.max(1) => ", raised to one page",
            High::Bytes(_) => ", raised to what is requested",
            High::Unlimited => "",
        };
        let base = Size::from(base);
        match (percent, policy.high_formula) {
            (0, _) => reason.add("high unlimited, throttling 0 %"),
            (_, HighFormula::Current) => {
                let request = Size::from(request);
                reason
                    .add(&format!("high {percent} % of the way from request {request} to {base_name} {base}{raised}"));
            }
            (_, HighFormula::Legacy) => reason.add(&format!("high {percent} % of {base_name} {base}{raised}")),
        }
        Some(match high {
            High::Unlimited => Bound::Unlimited,
            High::Bytes(bytes) => Bound::Bytes(bytes),
        })
    }

    /// The upper bound of the container's memory and its name: its own limit, else its pod's, else the node's allocatable memory.
    fn base(&self, node: NodeMemory) -> (u64, &'static str) {
        match self.resources.limit {
            Some(limit) if resources::has_limit(self.pod, self.container) => (limit, "limit"),
            Some(limit) => (limit, "pod limit"),
            None => (node.allocatable, "node allocatable"),
        }
    }

    /// The minimum of `memory.high`. A limit below the request, or an amount that no container can run in, must have lost its unit, so the
    /// request counts; a container without a request may count on the rest of its pod's request.
    fn needed(&self, formula: HighFormula) -> u64 {
        let Resources { request, limit } = self.resources;
        let is_lost = |bytes: u64| resources::lacks_unit(bytes) || bytes < request;
        match formula {
            _ if resources::lacks_unit(request) || limit.is_some_and(is_lost) => request,
            HighFormula::Current => resources::left_of_pod_request(self.pod, self.container),
            HighFormula::Legacy => 0,
        }
    }
}

/// The values that go unchanged into the files of a pod and its containers.
fn statics(qos: &MemoryQos) -> Protection {
    Protection {
        wmark_ratio_percent: qos.wmark_ratio.and_then(|percent| u32::try_from(percent).ok()),
        wmark_scale_permyriad: qos.wmark_scale_permill.and_then(|scale| u32::try_from(scale).ok()),
        wmark_min_adj_percent: qos.wmark_min_adj.and_then(|percent| i32::try_from(percent).ok()),
        ..oom(qos)
    }
}

fn explain_statics(qos: &MemoryQos, reason: &mut Reason) {
    if let Some(percent) = qos.wmark_ratio {
        reason.add(&format!("wmark ratio {percent} %"));
    }
    if let Some(scale) = qos.wmark_scale_permill {
        reason.add(&format!("wmark scale {scale}"));
    }
    if let Some(percent) = qos.wmark_min_adj {
        reason.add(&format!("wmark min adj {percent} %"));
    }
    explain_oom(qos, reason);
}

/// The values for the OOM killer.
fn oom(qos: &MemoryQos) -> Protection {
    Protection {
        oom_priority: qos.priority.and_then(|priority| u32::try_from(priority).ok()),
        use_oom_priority: qos.priority_enable.map(|enable| enable != 0),
        oom_group: qos.oom_kill_group.map(|group| group != 0),
        ..Protection::NONE
    }
}

fn explain_oom(qos: &MemoryQos, reason: &mut Reason) {
    if let Some(priority) = qos.priority {
        reason.add(&format!("OOM priority {priority}"));
    }
    if let Some(enable) = qos.priority_enable {
        reason.add(if enable == 0 { "OOM priorities off" } else { "OOM priorities on" });
    }
    if let Some(group) = qos.oom_kill_group {
        reason.add(if group == 0 { "OOM group off" } else { "OOM group on" });
    }
}

#[cfg(test)]
mod tests;
