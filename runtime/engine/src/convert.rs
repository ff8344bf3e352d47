//! Conversions between the model's types and the contract's.

pub(crate) mod block_io;
pub(crate) mod cpu_topology;
pub(crate) mod node_knob;
pub(crate) mod node_use;
pub(crate) mod object;
pub(crate) mod resctrl;
pub(crate) mod resource;

use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::column::{BandwidthSample, CpuSample, MemorySample, NodeSample, PressureSample, Stall};
use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{MigrationSample, MigrationState, NumaId, NumaNode, NumaSample};
use qosm_model::object::labels as object_labels;
use qosm_model::pod::{
    Container, ContainerId, ContainerKind, ContainerState, ExtendedResource, KubeQos, Pod, PodId, QosClass, Tier,
};
use qosm_model::unit::{Bytes, Micros, MilliCpu};

use crate::bindings::qosm::policy::{
    cpu_stat, memory_protection, memory_stat, node, numa_stat, page_migration, pressure, types,
};
use crate::error::Rule;
use crate::link::number;

/// A pod as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub struct PodView<'a> {
    /// The id by which targets name the pod.
    pub id: PodId,
    /// The pod.
    pub pod: &'a Pod,
    /// For each of the pod's containers, in the same order: its id, and the number of CPUs that the kubelet reserved
    /// exclusively for it. The policy does not see containers without an entry.
    pub containers: &'a [(ContainerId, Option<u32>)],
    /// The policy's effective configuration for the pod: a JSON object.
    pub config: &'a str,
    /// Whether an annotation of the pod contributes to `config`.
    pub annotated: bool,
}

/// Converts a trigger that a module subscribes to.
pub(crate) fn trigger(raw: types::Trigger) -> Trigger {
    match raw {
        types::Trigger::Throttling => Trigger::Throttling,
        types::Trigger::Pressure(raw) => Trigger::Pressure(Pressure {
            scope: match raw.scope {
                types::PressureScope::Node => Scope::Node,
                types::PressureScope::Pod => Scope::Pod,
                types::PressureScope::Container => Scope::Container,
            },
            resource: match raw.resource {
                types::StalledResource::Cpu => Resource::Cpu,
                types::StalledResource::Memory => Resource::Memory,
                types::StalledResource::Io => Resource::Io,
            },
            full: raw.full,
            stall: Micros(raw.stall_usec.into()),
            window: Micros(raw.window_usec.into()),
        }),
        types::Trigger::MemoryEvents => Trigger::MemoryEvents,
        types::Trigger::ContainerStarted => Trigger::ContainerStarted,
    }
}

/// Converts a trigger that fired.
pub(crate) fn alarm(alarm: &Alarm) -> types::Alarm {
    let micros = |micros: Micros| u32::try_from(micros.0).unwrap_or(u32::MAX);
    let trigger = match alarm.trigger {
        Trigger::Throttling => types::Trigger::Throttling,
        Trigger::Pressure(own) => types::Trigger::Pressure(types::PressureTrigger {
            scope: match own.scope {
                Scope::Node => types::PressureScope::Node,
                Scope::Pod => types::PressureScope::Pod,
                Scope::Container => types::PressureScope::Container,
            },
            resource: match own.resource {
                Resource::Cpu => types::StalledResource::Cpu,
                Resource::Memory => types::StalledResource::Memory,
                Resource::Io => types::StalledResource::Io,
            },
            full: own.full,
            stall_usec: micros(own.stall),
            window_usec: micros(own.window),
        }),
        Trigger::MemoryEvents => types::Trigger::MemoryEvents,
        Trigger::ContainerStarted => types::Trigger::ContainerStarted,
    };
    types::Alarm { trigger, target: alarm.target.and_then(shown) }
}

/// Slices of the pods of one call, kept in memory so that arguments can refer to them.
pub(crate) struct PodParts<'a> {
    labels: Vec<Vec<(&'a str, &'a str)>>,
    resources: Vec<Vec<Vec<types::ExtendedResource<'a>>>>,
}

impl<'a> PodParts<'a> {
    pub(crate) fn of(views: &[PodView<'a>]) -> Self {
        let labels = |view: &PodView<'a>| object_labels(view.pod).into_iter().collect::<Vec<_>>();
        let resources = |view: &PodView<'a>| {
            view.pod
                .containers
                .iter()
                .map(|own| own.extended_resources.iter().map(extended_resource).collect())
                .collect()
        };
        Self { labels: views.iter().map(labels).collect(), resources: views.iter().map(resources).collect() }
    }

    /// The containers of each pod, in the order of the views passed to [`Self::of`].
    pub(crate) fn containers<'b>(&'b self, views: &[PodView<'b>]) -> Vec<Vec<types::Container<'b>>> {
        let of_pod = |(view, resources): (&PodView<'b>, &'b Vec<Vec<types::ExtendedResource<'a>>>)| {
            let given = view.pod.containers.iter().zip(view.containers).zip(resources);
            given.map(|((own, &(id, exclusive)), resources)| container(own, id, exclusive, resources)).collect()
        };
        views.iter().zip(&self.resources).map(of_pod).collect()
    }

    /// The pods, given what [`Self::containers`] returned.
    pub(crate) fn pods<'b>(
        &'b self,
        views: &[PodView<'b>],
        containers: &'b [Vec<types::Container<'b>>],
    ) -> Vec<types::Pod<'b>> {
        let parts = views.iter().zip(&self.labels).zip(containers);
        parts.map(|((view, labels), containers)| pod(view, labels, containers)).collect()
    }
}

fn pod<'b>(
    view: &PodView<'b>,
    labels: &'b [(&'b str, &'b str)],
    containers: &'b [types::Container<'b>],
) -> types::Pod<'b> {
    let own = view.pod;
    types::Pod {
        id: view.id.0,
        namespace: &own.namespace,
        name: &own.name,
        uid: &own.uid,
        declared_qos: own.declared_qos().map(qos_class),
        qos: qos_class(own.qos()),
        kube_qos: match own.kube_qos {
            KubeQos::Guaranteed => types::KubeQos::Guaranteed,
            KubeQos::Burstable => types::KubeQos::Burstable,
            KubeQos::BestEffort => types::KubeQos::BestEffort,
        },
        priority: own.priority,
        active: own.active,
        host_pid: own.host_pid,
        static_pod: own.is_static(),
        labels,
        containers,
        cpu_overhead_milli: own.cpu_overhead.0,
        memory_overhead_bytes: own.memory_overhead.0,
        memory_request_bytes: own.memory_request.map(bytes),
        memory_limit_bytes: own.memory_limit.map(bytes),
        cpu_limit_milli: own.cpu_limit.map(milli),
        config: view.config,
        annotated: view.annotated,
    }
}

fn container<'b>(
    own: &'b Container,
    id: ContainerId,
    exclusive_cpus: Option<u32>,
    extended_resources: &'b [types::ExtendedResource<'b>],
) -> types::Container<'b> {
    types::Container {
        id: id.0,
        name: &own.name,
        kind: match own.kind {
            ContainerKind::Regular => types::ContainerKind::Regular,
            ContainerKind::Init => types::ContainerKind::Init,
            ContainerKind::Sidecar => types::ContainerKind::Sidecar,
        },
        state: match own.state {
            ContainerState::Waiting => types::ContainerState::Waiting,
            ContainerState::Running => types::ContainerState::Running,
            ContainerState::Terminated => types::ContainerState::Terminated,
        },
        cpu_request_milli: own.cpu_request.map(milli),
        cpu_limit_milli: own.cpu_limit.map(milli),
        memory_request_bytes: own.memory_request.map(bytes),
        memory_limit_bytes: own.memory_limit.map(bytes),
        extended_resources,
        exclusive_cpus,
    }
}

fn extended_resource(own: &ExtendedResource) -> types::ExtendedResource<'_> {
    types::ExtendedResource { name: &own.name, request: own.request, limit: own.limit }
}

fn qos_class(class: QosClass) -> types::QosClass {
    match class {
        QosClass::Lse => types::QosClass::Lse,
        QosClass::Lsr => types::QosClass::Lsr,
        QosClass::Ls => types::QosClass::Ls,
        QosClass::Be => types::QosClass::Be,
        QosClass::System => types::QosClass::System,
    }
}

fn bytes(Bytes(bytes): Bytes) -> u64 {
    bytes
}

fn milli(MilliCpu(milli): MilliCpu) -> u64 {
    milli
}

fn micros(Micros(micros): Micros) -> u64 {
    micros
}

pub(crate) fn target(target: types::Target) -> Target {
    match target {
        types::Target::Tier(tier) => Target::Tier(match tier {
            types::Tier::Guaranteed => Tier::Guaranteed,
            types::Tier::Burstable => Tier::Burstable,
            types::Tier::BestEffort => Tier::BestEffort,
        }),
        types::Target::Pod(id) => Target::Pod(PodId(id)),
        types::Target::Container(id) => Target::Container(ContainerId(id)),
    }
}

fn tier(tier: Tier) -> types::Tier {
    match tier {
        Tier::Guaranteed => types::Tier::Guaranteed,
        Tier::Burstable => types::Tier::Burstable,
        Tier::BestEffort => types::Tier::BestEffort,
    }
}

/// Converts a target; `None` for the node, which has no row in any column.
fn shown(target: Target) -> Option<types::Target> {
    Some(match target {
        Target::Node => return None,
        Target::Tier(shown) => types::Target::Tier(tier(shown)),
        Target::Pod(PodId(id)) => types::Target::Pod(id),
        Target::Container(ContainerId(id)) => types::Target::Container(id),
    })
}

pub(crate) fn node(sample: &NodeSample) -> node::Sample {
    node::Sample {
        cpus: sample.cpus,
        memory_capacity_bytes: sample.memory_capacity.0,
        memory_allocatable_bytes: sample.memory_allocatable.0,
        page_size_bytes: sample.page_size.0,
        cpu_usage_usec: sample.cpu_usage.map(micros),
        memory_available_bytes: sample.memory_available.map(bytes),
    }
}

pub(crate) fn cpu(sample: &CpuSample) -> cpu_stat::Sample {
    cpu_stat::Sample {
        container: sample.container.0,
        usage_usec: sample.delta.usage.0,
        nr_periods: sample.delta.nr_periods,
        nr_throttled: sample.delta.nr_throttled,
        throttled_usec: sample.delta.throttled.0,
    }
}

pub(crate) fn bandwidth(sample: &BandwidthSample) -> Option<cpu_stat::Bandwidth> {
    Some(cpu_stat::Bandwidth {
        target: shown(sample.target)?,
        quota_usec: sample.quota.map(micros),
        baseline_quota_usec: sample.baseline_quota.map(micros),
        period_usec: sample.period.0,
    })
}

pub(crate) fn memory(sample: &MemorySample) -> memory_stat::Sample {
    memory_stat::Sample {
        container: sample.container.0,
        usage_bytes: sample.memory.usage.0,
        anon_bytes: sample.memory.anon.0,
        file_bytes: sample.memory.file.0,
        inactive_file_bytes: sample.memory.inactive_file.0,
        high_events: sample.memory.high_events,
        max_events: sample.memory.max_events,
        oom_kills: sample.memory.oom_kills,
    }
}

pub(crate) fn pressure(sample: &PressureSample) -> pressure::Sample {
    let stall = |stall: Stall| pressure::Stall { some_usec: stall.some.0, full_usec: stall.full.0 };
    pressure::Sample {
        container: sample.container.0,
        cpu: stall(sample.delta.cpu),
        memory: stall(sample.delta.memory),
        io: stall(sample.delta.io),
    }
}

pub(crate) fn numa_node((id, node): (NumaId, &NumaNode)) -> numa_stat::NumaNode {
    numa_stat::NumaNode {
        id: id.0,
        cpus: u32::try_from(node.cpus.len()).unwrap_or(u32::MAX),
        memory_bytes: node.memory.0,
        free_bytes: node.free.0,
        available_bytes: node.available.0,
        distances: node.distances.clone(),
    }
}

pub(crate) fn numa(sample: &NumaSample) -> numa_stat::Sample {
    let numbers = |nodes: &[NumaId]| nodes.iter().map(|node| node.0).collect();
    numa_stat::Sample {
        container: sample.container.0,
        identity: sample.identity,
        cpu_nodes: numbers(&sample.cpu_nodes),
        memory_nodes: numbers(&sample.memory_nodes),
        pages: sample.pages.iter().map(|&(node, pages)| numa_stat::Share { node: node.0, pages }).collect(),
    }
}

pub(crate) fn migration(sample: &MigrationSample) -> page_migration::Progress {
    let progress = &sample.progress;
    let failure = |failure: &qosm_model::numa::ProcessFailure| page_migration::ProcessFailure {
        pid: failure.pid,
        error: failure.error.clone(),
    };
    page_migration::Progress {
        container: sample.container.0,
        token: progress.token,
        state: match progress.state {
            MigrationState::Waiting => page_migration::State::Waiting,
            MigrationState::Moving => page_migration::State::Moving,
            MigrationState::Paused => page_migration::State::Paused,
            MigrationState::Done => page_migration::State::Done,
            MigrationState::Failed => page_migration::State::Failed,
            MigrationState::Stopped => page_migration::State::Stopped,
        },
        pages_found: progress.pages_found,
        pages_moved: progress.pages_moved,
        pages_failed: progress.pages_failed.iter().map(|&(errno, pages)| (errno.to_owned(), pages)).collect(),
        pages_without_room: progress.pages_without_room,
        failures: progress.failures.iter().map(failure).collect(),
        why: progress.why.clone(),
    }
}

/// A protection that sets no knob.
pub(crate) const NOTHING_PROTECTED: memory_protection::Protection = memory_protection::Protection {
    min_bytes: None,
    low_bytes: None,
    high: None,
    wmark_ratio_percent: None,
    wmark_scale_permyriad: None,
    wmark_min_adj_percent: None,
    oom_priority: None,
    use_oom_priority: None,
    oom_group: None,
    page_cache_limit_enable: None,
    page_cache_limit_bytes: None,
    page_cache_reclaim_sync: None,
};

/// Every knob of a protection with its value; `None` for a knob that the module does not set.
pub(crate) fn protection(wanted: &memory_protection::Protection) -> Result<[(Knob, Option<Value>); 12], Rule> {
    let size = |what, size: Option<u64>| size.map(|size| number(what, size)).transpose();
    let small = |number: Option<u32>| number.map(|number| Value::Number(number.into()));
    let switch = |on: Option<bool>| on.map(|on| Value::Number(on.into()));
    let bound = |bound| match bound {
        memory_protection::Bound::Unlimited => Value::Max,
        // A size beyond `i64::MAX` means no bound.
        memory_protection::Bound::Bytes(bytes) => i64::try_from(bytes).map_or(Value::Max, Value::Number),
    };
    Ok([
        (Knob::MemoryMin, size("memory.min", wanted.min_bytes)?),
        (Knob::MemoryLow, size("memory.low", wanted.low_bytes)?),
        (Knob::MemoryHigh, wanted.high.map(bound)),
        (Knob::WmarkRatio, small(wanted.wmark_ratio_percent)),
        (Knob::WmarkScale, small(wanted.wmark_scale_permyriad)),
        (Knob::WmarkMinAdj, wanted.wmark_min_adj_percent.map(|percent| Value::Number(percent.into()))),
        (Knob::OomPriority, small(wanted.oom_priority)),
        (Knob::UseOomPriority, switch(wanted.use_oom_priority)),
        (Knob::OomGroup, switch(wanted.oom_group)),
        (Knob::PageCacheLimitEnable, switch(wanted.page_cache_limit_enable)),
        (Knob::PageCacheLimitSize, size("memory.pagecache_limit.size", wanted.page_cache_limit_bytes)?),
        (Knob::PageCacheReclaimSync, switch(wanted.page_cache_reclaim_sync)),
    ])
}

/// NUMA nodes as a knob's bit mask.
pub(crate) fn node_mask(nodes: &[u32]) -> Result<Value, Rule> {
    const BITS: u32 = 63;
    if nodes.is_empty() {
        return Err(Rule::OutOfRange { what: "number of NUMA nodes", value: 0 });
    }
    let mask = nodes.iter().try_fold(0_i64, |mask, &node| {
        let fits = node < BITS;
        if fits { Ok(mask | 1 << node) } else { Err(Rule::OutOfRange { what: "NUMA node", value: node.into() }) }
    });
    mask.map(Value::Number)
}

/// CPUs as a knob's value.
pub(crate) fn cpu_set(cpus: &[u32]) -> Result<Value, Rule> {
    if cpus.is_empty() {
        return Err(Rule::OutOfRange { what: "number of CPUs", value: 0 });
    }
    CpuSet::of(cpus).map(Value::Cpus).map_err(|error| Rule::OutOfRange { what: "CPU", value: error.0.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::qosm::policy::memory_protection::Bound;

    #[test]
    fn cpus_are_a_set() {
        assert_eq!(cpu_set(&[3, 0, 1023, 3]), Ok(Value::Cpus(CpuSet::of(&[0, 3, 1023]).unwrap())));
        for (cpus, what, value) in [(&[][..], "number of CPUs", 0), (&[1, 1024], "CPU", 1024)] {
            assert_eq!(cpu_set(cpus), Err(Rule::OutOfRange { what, value }), "{cpus:?}");
        }
    }

    #[test]
    fn numa_nodes_are_bits() {
        assert_eq!(node_mask(&[0, 3]), Ok(Value::Number(0b1001)));
        assert_eq!(node_mask(&[62, 62]), Ok(Value::Number(1 << 62)));
        for (nodes, value) in [(&[][..], 0), (&[63], 63), (&[1, u32::MAX], u64::from(u32::MAX))] {
            assert!(
                matches!(node_mask(nodes), Err(Rule::OutOfRange { value: found, .. }) if found == value),
                "{nodes:?}"
            );
        }
    }

    #[test]
    fn numbers_beyond_the_kernels_are_no_bound_or_a_broken_rule() {
        let high = |high| {
            let wanted = memory_protection::Protection { high: Some(high), ..NOTHING_PROTECTED };
            protection(&wanted).map(|knobs| knobs[2])
        };
        assert_eq!(high(Bound::Unlimited), Ok((Knob::MemoryHigh, Some(Value::Max))));
        assert_eq!(high(Bound::Bytes(u64::MAX)), Ok((Knob::MemoryHigh, Some(Value::Max))));
        assert_eq!(high(Bound::Bytes(4096)), Ok((Knob::MemoryHigh, Some(Value::Number(4096)))));
        let min = memory_protection::Protection { min_bytes: Some(1 << 63), ..NOTHING_PROTECTED };
        assert_eq!(protection(&min), Err(Rule::OutOfRange { what: "memory.min", value: 1 << 63 }));
    }

    #[test]
    fn a_protection_names_each_memory_knob_once() {
        let knobs = protection(&NOTHING_PROTECTED).map(|knobs| knobs.map(|(knob, _)| knob));
        let memory: Vec<_> = crate::Interface::MemoryProtection.knobs().collect();
        assert_eq!(knobs.map(|knobs| knobs.to_vec()), Ok(memory));
    }
}
