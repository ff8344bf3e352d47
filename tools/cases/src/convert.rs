//! Conversions between the types of a case, which are the contract's, and those of the engine.

mod block_io;
mod cpu_topology;
mod node_knobs;
mod node_use;
mod object;
mod requests;

use std::sync::Arc;

use qosm_engine::{Cause, Columns, Staged};
use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::column::{
    BandwidthSample, CpuSample, Fields, MemorySample, NodeSample, PressureCounters, PressureSample, Stall,
};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{
    MigrationProgress, MigrationSample, MigrationState, NumaColumn, NumaId, NumaNode, NumaSample, NumaTopology,
    ProcessFailure,
};
use qosm_model::pod::{
    Container, ContainerCgroup, ContainerId, ContainerKind, ContainerState, ExtendedResource, KubeQos, Pod, PodId,
    PodLifecycle, QosClass, Tier,
};
use qosm_model::resctrl::{
    BandwidthShare, CacheShare, ClassState, Domain, DomainId, ResctrlColumn, Share, Shares, Usage,
};
use qosm_model::setting::{EventKind, KeyProblem, Remark, Setting};
use qosm_model::unit::{Bytes, Micros, MilliCpu};
use qosm_sdk::mock;
use qosm_sdk::testing::{CpuRow, MemoryRow, Outcome};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The pod that the engine presents to a module as `facts`.
///
/// # Errors
///
/// If there is no such pod: its labels set another class than `declared_qos`.
pub(crate) fn pod(facts: &qosm_sdk::PodFacts) -> Result<Pod, String> {
    let declared = facts.declared_qos.map(qos_class);
    // Modules see labels but no annotations, so the class is declared in an annotation, which `facts` do not show.
    let class = declared.map(|class| ("koordinator.sh/qosClass".to_owned(), class.as_str().to_owned()));
    let source = facts.static_pod.then(|| ("kubernetes.io/config.source".to_owned(), "file".to_owned()));
    let pod = Pod {
        uid: facts.uid.clone(),
        namespace: facts.namespace.clone(),
        name: facts.name.clone(),
        labels: facts.labels.iter().cloned().collect(),
        annotations: class.into_iter().chain(source).collect(),
        priority: facts.priority,
        kube_qos: kube_qos(facts.kube_qos),
        active: facts.active,
        host_pid: facts.host_pid,
        cgroup: None,
        containers: facts.containers.iter().map(container).collect(),
        cpu_overhead: MilliCpu(facts.cpu_overhead_milli),
        memory_overhead: Bytes(facts.memory_overhead_bytes),
        memory_request: facts.memory_request_bytes.map(Bytes),
        memory_limit: facts.memory_limit_bytes.map(Bytes),
        cpu_limit: facts.cpu_limit_milli.map(MilliCpu),
        cpu_request: None,
        next: None,
        resize: None,
        lifecycle: PodLifecycle::default(),
    };
    if pod.declared_qos() != declared || pod.qos() != qos_class(facts.qos) {
        let said = pod.declared_qos().map_or_else(
            || "remove `declaredQos`".to_owned(),
            |class| format!("set `declaredQos: {}`", class.as_str()),
        );
        return Err(format!("the labels of {} say another QoS class than the case does; {said}", pod.key()));
    }
    Ok(pod)
}

pub(crate) fn container_ids(facts: &qosm_sdk::PodFacts) -> Vec<(ContainerId, Option<u32>)> {
    facts.containers.iter().map(|container| (ContainerId(container.id), container.exclusive_cpus)).collect()
}

pub(crate) fn cause(cause: qosm_sdk::Cause) -> Cause {
    match cause {
        qosm_sdk::Cause::Interval => Cause::Interval,
        qosm_sdk::Cause::PodsChanged => Cause::PodsChanged,
        qosm_sdk::Cause::ConfigChanged => Cause::ConfigChanged,
        qosm_sdk::Cause::Alarm => Cause::Alarm,
    }
}

pub(crate) fn alarm(said: &qosm_sdk::Alarm) -> Alarm {
    let trigger = match said.trigger {
        qosm_sdk::Trigger::Throttling => Trigger::Throttling,
        qosm_sdk::Trigger::MemoryEvents => Trigger::MemoryEvents,
        qosm_sdk::Trigger::ContainerStarted => Trigger::ContainerStarted,
        qosm_sdk::Trigger::Pressure(pressure) => Trigger::Pressure(Pressure {
            scope: match pressure.scope {
                qosm_sdk::PressureScope::Node => Scope::Node,
                qosm_sdk::PressureScope::Pod => Scope::Pod,
                qosm_sdk::PressureScope::Container => Scope::Container,
            },
            resource: match pressure.resource {
                qosm_sdk::StalledResource::Cpu => Resource::Cpu,
                qosm_sdk::StalledResource::Memory => Resource::Memory,
                qosm_sdk::StalledResource::Io => Resource::Io,
            },
            full: pressure.full,
            stall: Micros(pressure.stall_usec.into()),
            window: Micros(pressure.window_usec.into()),
        }),
    };
    Alarm { trigger, target: said.target.map(target) }
}

/// The columns of a tick.
///
/// # Errors
///
/// If the case has a counter that no column has.
pub(crate) fn columns(columns: &mock::Columns) -> serde_json::Result<Columns> {
    Ok(Columns {
        node: columns.node.map(node),
        node_memory: columns.node_memory.map(node_use::memory).transpose()?,
        node_pressure: columns.node_pressure.map(node_use::pressure),
        cpu_topology: columns.cpu_topology.as_ref().map(|topology| cpu_topology::topology(topology).into()),
        cpu_sets: Some(columns.cpu_sets.iter().map(cpu_topology::set).collect()),
        groups: Some(columns.groups.iter().map(node_use::group).collect::<Result<_, _>>()?),
        applications: Some(columns.applications.iter().map(node_use::application).collect::<Result<_, _>>()?),
        cpu: Some(columns.cpu.iter().map(cpu).collect::<Result<_, _>>()?),
        bandwidth: Some(columns.bandwidth.iter().map(bandwidth).collect()),
        memory: Some(columns.memory.iter().map(memory).collect::<Result<_, _>>()?),
        pressure: Some(columns.pressure.iter().map(pressure).collect()),
        numa: Some(numa(columns).into()),
        migrations: Some(columns.migrations.iter().map(migration).collect()),
        resctrl: Some(resctrl(columns).into()),
        node_object: columns.node_object.as_ref().map(|node| object::node(node).into()),
        pod_objects: Some(columns.pod_objects.iter().map(object::pod).collect()),
        cluster_config: Some(Arc::new(object::config(&columns.cluster_config))),
        group_identity: Some(support(columns.group_identity, "this kernel has no cpu.bvt_warp_ns")),
        core_scheduling: Some(support(columns.core_scheduling, "this kernel has no core scheduling")),
        node_knobs: Some(node_knobs::samples(columns).into()),
        block_devices: Some(block_io::devices(columns).into()),
        resources: Some(requests::resources(columns).collect()),
        evictions: Some(requests::evictions(columns).collect()),
        alarms: Vec::new(),
    })
}

fn support(is_there: bool, why: &str) -> Result<(), Arc<str>> {
    if is_there { Ok(()) } else { Err(why.into()) }
}

pub(crate) fn outcome(staged: Staged) -> Outcome {
    let rejection = |rejection: qosm_engine::Rejection| qosm_sdk::Rejection {
        pod: rejection.pod.0,
        field: rejection.field,
        message: rejection.message,
    };
    let event = |event: qosm_model::setting::PodEvent| mock::Event {
        pod: event.pod.0,
        kind: match event.kind {
            EventKind::Normal => qosm_sdk::EventKind::Normal,
            EventKind::Warning => qosm_sdk::EventKind::Warning,
        },
        reason: event.reason,
        message: event.message,
    };
    let (mut settings, mut migrations, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut resources, mut evictions) = (Vec::new(), Vec::new());
    let (mut node_knobs, mut io) = (Vec::new(), Vec::new());
    for staged in staged.settings {
        match change(staged) {
            Change::NodeKnob(change) => node_knobs.extend(change),
            Change::Io(change) => io.push(change),
            Change::Setting(setting) => settings.push(setting),
            Change::Migration(migration) => migrations.push(migration),
            Change::Class(change) => classes.push(change),
            Change::Resource(change) => resources.push(change),
            Change::Eviction(request) => evictions.push(request),
        }
    }
    Outcome {
        staged: settings,
        migrations,
        classes,
        resources,
        evictions,
        node_knobs,
        io,
        rejections: staged.rejections.into_iter().map(rejection).collect(),
        events: staged.events.into_iter().map(event).collect(),
        node_remarks: staged.remarks.iter().filter_map(|one| node_knobs::remark(one.knob, &one.reason)).collect(),
        io_remarks: staged.remarks.iter().filter_map(block_io::remark).collect(),
        remarks: staged.remarks.into_iter().filter_map(remark).collect(),
        key_problems: staged.key_problems.into_iter().map(key_problem).collect(),
    }
}

/// `None` for a remark on the node.
fn remark(remark: Remark) -> Option<mock::Remark> {
    Some(mock::Remark {
        target: sdk_target(remark.target)?,
        knob: remark.knob.to_string(),
        reason: remark.reason.to_string(),
    })
}

fn key_problem(KeyProblem { key, field, message }: KeyProblem) -> mock::KeyProblem {
    mock::KeyProblem { key, field, message }
}

/// A staged change, by kind.
enum Change {
    Setting(mock::Staged),
    NodeKnob(Option<mock::NodeKnobChange>),
    Io(mock::IoChange),
    Migration(mock::Migration),
    Class(mock::ClassChange),
    Resource(mock::ResourceChange),
    Eviction(mock::EvictionRequest),
}

fn change(setting: Setting) -> Change {
    match setting {
        Setting::Hold { target, knob, value, reason } => hold(target, knob, value, &reason),
        Setting::Release { target, knob } => match (block_io::change(target, knob, None, ""), sdk_target(target)) {
            (Some(change), _) => Change::Io(change),
            (None, None) => Change::NodeKnob(node_knobs::change(knob, None, "")),
            (None, Some(target)) => {
                let knob = knob.kind_name();
                Change::Setting(mock::Staged { target, knob, value: None, reason: String::new() })
            }
        },
        Setting::Migrate(migration) => {
            let numbers = |nodes: &[NumaId]| nodes.iter().map(|node| node.0).collect();
            Change::Migration(mock::Migration {
                container: migration.container.0,
                way: Some((numbers(&migration.from), numbers(&migration.to))),
                token: migration.token,
                reason: migration.reason.as_ref().into(),
            })
        }
        Setting::StopMigration { container } => {
            Change::Migration(mock::Migration { container: container.0, way: None, token: 0, reason: String::new() })
        }
        Setting::DefineClass { class, shares: Shares { all, domains }, reason } => {
            Change::Class(mock::ClassChange::Define {
                class: class.to_string(),
                share: share(all),
                domains: domains.into_iter().map(|(id, own)| (id.0, share(own))).collect(),
                reason: reason.as_ref().into(),
            })
        }
        Setting::UndefineClass { class } => Change::Class(mock::ClassChange::Undefine { class: class.to_string() }),
        Setting::AssignClass { target, class, reason } => Change::Class(mock::ClassChange::Assign {
            target: member(target),
            class: class.to_string(),
            reason: reason.as_ref().into(),
        }),
        Setting::ReleaseClass { target } => Change::Class(mock::ClassChange::Release { target: member(target) }),
        Setting::Publish { name, offer, reason } => Change::Resource(mock::ResourceChange::Publish {
            name: name.to_string(),
            offer: requests::offer(offer),
            reason: reason.as_ref().into(),
        }),
        Setting::Withdraw { name } => Change::Resource(mock::ResourceChange::Withdraw { name: name.to_string() }),
        Setting::StaleAfter { seconds } => Change::Resource(mock::ResourceChange::StaleAfter { seconds }),
        Setting::Evict(wanted) => Change::Eviction(requests::eviction(wanted)),
        Setting::WithdrawEviction { pod } => Change::Eviction(requests::withdrawal(pod)),
    }
}

fn hold(target: Target, knob: Knob, value: Value, reason: &str) -> Change {
    if let Some(change) = block_io::change(target, knob, Some(value), reason) {
        return Change::Io(change);
    }
    let Some(target) = sdk_target(target) else {
        return Change::NodeKnob(node_knobs::change(knob, Some(value), reason));
    };
    let value = match value {
        Value::Number(number) => Some(mock::Value::Number(number)),
        Value::Shares(shares) => Some(mock::Value::Shares(shares)),
        Value::Cpus(cpus) => Some(mock::Value::Cpus(mock::Cpus::of(&cpus.iter().collect::<Vec<_>>()))),
        Value::Max => Some(mock::Value::Max),
        // These values belong to device knobs, which `block_io::change` has already converted.
        Value::Unset | Value::IoLimits(_) | Value::IoCostQos(_) | Value::IoCostModel(_) => None,
    };
    Change::Setting(mock::Staged { target, knob: knob.kind_name(), value, reason: reason.into() })
}

fn share(share: Share) -> qosm_sdk::Share {
    qosm_sdk::Share {
        cache: share.cache.map(|cache| match cache {
            CacheShare::Percent { start, end } => qosm_sdk::CacheShare::Percent((start, end)),
            CacheShare::Mask(mask) => qosm_sdk::CacheShare::Mask(mask),
        }),
        bandwidth: share.bandwidth.map(|bandwidth| match bandwidth {
            BandwidthShare::Percent(percent) => qosm_sdk::BandwidthShare::Percent(percent),
            BandwidthShare::Megabytes(most) => qosm_sdk::BandwidthShare::Megabytes(most),
        }),
    }
}

fn resctrl(columns: &mock::Columns) -> ResctrlColumn {
    let usages = |usages: &[qosm_sdk::CacheUsage]| -> Vec<Usage> {
        let usage = |usage: &qosm_sdk::CacheUsage| Usage {
            domain: DomainId(usage.domain),
            occupancy: usage.occupancy_bytes.map(Bytes),
            local: usage.local_bytes.map(Bytes),
            total: usage.total_bytes.map(Bytes),
        };
        usages.iter().map(usage).collect()
    };
    let domain = |domain: &qosm_sdk::CacheDomain| Domain {
        id: DomainId(domain.id),
        cache_ways: domain.cache_ways,
        cache: domain.cache_bytes.map(Bytes),
        divides_bandwidth: domain.divides_bandwidth,
    };
    // A name that is not valid for a class cannot be one that the policy defined.
    let classes =
        columns.class_usage.iter().filter_map(|sample| Some((sample.class.parse().ok()?, usages(&sample.usage))));
    let containers = columns.container_usage.iter();
    let states = columns.class_states.iter().filter_map(|state| {
        Some(ClassState { class: state.class.parse().ok()?, in_force: state.in_force, why: state.why.clone() })
    });
    ResctrlColumn {
        domains: columns.cache_domains.iter().map(domain).collect(),
        classes: classes.collect(),
        containers: containers.map(|sample| (ContainerId(sample.container), usages(&sample.usage))).collect(),
        rest: usages(&columns.rest_usage),
        states: states.collect(),
    }
}

fn numa(columns: &mock::Columns) -> NumaColumn {
    let node = |node: &qosm_sdk::NumaNode| {
        let shown = NumaNode {
            cpus: (0..node.cpus).collect(),
            memory: Bytes(node.memory_bytes),
            free: Bytes(node.free_bytes),
            available: Bytes(node.available_bytes),
            distances: node.distances.clone(),
        };
        (NumaId(node.id), shown)
    };
    let ids = |nodes: &[u32]| nodes.iter().copied().map(NumaId).collect();
    let sample = |sample: &qosm_sdk::NumaSample| NumaSample {
        container: ContainerId(sample.container),
        identity: sample.identity,
        cpu_nodes: ids(&sample.cpu_nodes),
        memory_nodes: ids(&sample.memory_nodes),
        pages: sample.pages.iter().map(|share| (NumaId(share.node), share.pages)).collect(),
    };
    NumaColumn {
        topology: NumaTopology::new(columns.numa_nodes.iter().map(node).collect()),
        samples: columns.numa.iter().map(sample).collect(),
    }
}

fn migration(progress: &qosm_sdk::MigrationProgress) -> MigrationSample {
    // The model holds errno names as `&'static str`.
    const ERRORS: [&str; 3] = ["EBUSY", "EACCES", "ENOMEM"];
    let failed =
        |(errno, pages): &(String, u64)| (ERRORS.into_iter().find(|known| known == errno).unwrap_or("EIO"), *pages);
    MigrationSample {
        container: ContainerId(progress.container),
        progress: MigrationProgress {
            token: progress.token,
            state: match progress.state {
                qosm_sdk::MigrationState::Waiting => MigrationState::Waiting,
                qosm_sdk::MigrationState::Moving => MigrationState::Moving,
                qosm_sdk::MigrationState::Paused => MigrationState::Paused,
                qosm_sdk::MigrationState::Done => MigrationState::Done,
                qosm_sdk::MigrationState::Failed => MigrationState::Failed,
                qosm_sdk::MigrationState::Stopped => MigrationState::Stopped,
            },
            pages_found: progress.pages_found,
            pages_moved: progress.pages_moved,
            pages_failed: progress.pages_failed.iter().map(failed).collect(),
            pages_without_room: progress.pages_without_room,
            failures: progress
                .failures
                .iter()
                .map(|failure| ProcessFailure { pid: failure.pid, error: failure.error.clone() })
                .collect(),
            why: progress.why.clone(),
            ..MigrationProgress::default()
        },
    }
}

/// The node and tiers cannot be members of a class; the engine refuses them.
fn member(target: Target) -> qosm_sdk::Target {
    sdk_target(target).unwrap_or(qosm_sdk::Target::Tier(qosm_sdk::Tier::Guaranteed))
}

/// `None` for the node, which the contract has no target for.
fn sdk_target(target: Target) -> Option<qosm_sdk::Target> {
    Some(match target {
        Target::Node => return None,
        Target::Tier(Tier::Guaranteed) => qosm_sdk::Target::Tier(qosm_sdk::Tier::Guaranteed),
        Target::Tier(Tier::Burstable) => qosm_sdk::Target::Tier(qosm_sdk::Tier::Burstable),
        Target::Tier(Tier::BestEffort) => qosm_sdk::Target::Tier(qosm_sdk::Tier::BestEffort),
        Target::Pod(PodId(id)) => qosm_sdk::Target::Pod(id),
        Target::Container(ContainerId(id)) => qosm_sdk::Target::Container(id),
    })
}

fn target(target: qosm_sdk::Target) -> Target {
    match target {
        qosm_sdk::Target::Tier(qosm_sdk::Tier::Guaranteed) => Target::Tier(Tier::Guaranteed),
        qosm_sdk::Target::Tier(qosm_sdk::Tier::Burstable) => Target::Tier(Tier::Burstable),
        qosm_sdk::Target::Tier(qosm_sdk::Tier::BestEffort) => Target::Tier(Tier::BestEffort),
        qosm_sdk::Target::Pod(id) => Target::Pod(PodId(id)),
        qosm_sdk::Target::Container(id) => Target::Container(ContainerId(id)),
    }
}

fn qos_class(class: qosm_sdk::QosClass) -> QosClass {
    match class {
        qosm_sdk::QosClass::Lse => QosClass::Lse,
        qosm_sdk::QosClass::Lsr => QosClass::Lsr,
        qosm_sdk::QosClass::Ls => QosClass::Ls,
        qosm_sdk::QosClass::Be => QosClass::Be,
        qosm_sdk::QosClass::System => QosClass::System,
    }
}

fn kube_qos(qos: qosm_sdk::KubeQos) -> KubeQos {
    match qos {
        qosm_sdk::KubeQos::Guaranteed => KubeQos::Guaranteed,
        qosm_sdk::KubeQos::Burstable => KubeQos::Burstable,
        qosm_sdk::KubeQos::BestEffort => KubeQos::BestEffort,
    }
}

fn container(facts: &qosm_sdk::Container) -> Container {
    Container {
        name: facts.name.clone(),
        kind: match facts.kind {
            qosm_sdk::ContainerKind::Regular => ContainerKind::Regular,
            qosm_sdk::ContainerKind::Init => ContainerKind::Init,
            qosm_sdk::ContainerKind::Sidecar => ContainerKind::Sidecar,
        },
        state: match facts.state {
            qosm_sdk::ContainerState::Waiting => ContainerState::Waiting,
            qosm_sdk::ContainerState::Running => ContainerState::Running,
            qosm_sdk::ContainerState::Terminated => ContainerState::Terminated,
        },
        cgroup: ContainerCgroup::Unknown,
        cpu_request: facts.cpu_request_milli.map(MilliCpu),
        cpu_limit: facts.cpu_limit_milli.map(MilliCpu),
        memory_request: facts.memory_request_bytes.map(Bytes),
        memory_limit: facts.memory_limit_bytes.map(Bytes),
        extended_resources: facts
            .extended_resources
            .iter()
            .map(|resource| ExtendedResource {
                name: resource.name.clone(),
                request: resource.request,
                limit: resource.limit,
            })
            .collect(),
        next: None,
    }
}

fn node(sample: qosm_sdk::NodeSample) -> NodeSample {
    NodeSample {
        cpus: sample.cpus,
        memory_capacity: Bytes(sample.memory_capacity_bytes),
        memory_allocatable: Bytes(sample.memory_allocatable_bytes),
        page_size: Bytes(sample.page_size_bytes),
        cpu_usage: sample.cpu_usage_usec.map(Micros),
        memory_available: sample.memory_available_bytes.map(Bytes),
    }
}

/// Converts a row to the model's type by the names of the fields, which are the same in a case as in a column.
fn same_fields<T: DeserializeOwned>(row: impl Serialize) -> serde_json::Result<T> {
    serde_json::from_value(serde_json::to_value(row)?)
}

fn cpu(sample: &qosm_sdk::CpuSample) -> serde_json::Result<CpuSample> {
    let Fields(delta) = same_fields(CpuRow::from(*sample))?;
    Ok(CpuSample { container: ContainerId(sample.container), delta })
}

fn bandwidth(sample: &qosm_sdk::Bandwidth) -> BandwidthSample {
    BandwidthSample {
        target: target(sample.target),
        quota: sample.quota_usec.map(Micros),
        baseline_quota: sample.baseline_quota_usec.map(Micros),
        period: Micros(sample.period_usec),
    }
}

fn memory(sample: &qosm_sdk::MemorySample) -> serde_json::Result<MemorySample> {
    let Fields(memory) = same_fields(MemoryRow::from(*sample))?;
    Ok(MemorySample { container: ContainerId(sample.container), memory })
}

fn pressure(sample: &qosm_sdk::PressureSample) -> PressureSample {
    let stall = |stall: qosm_sdk::Stall| Stall { some: Micros(stall.some_usec), full: Micros(stall.full_usec) };
    PressureSample {
        container: ContainerId(sample.container),
        delta: PressureCounters { cpu: stall(sample.cpu), memory: stall(sample.memory), io: stall(sample.io) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_declares_another_class_is_answered_with_the_field_to_set() {
        let labels = vec![("koordinator.sh/qosClass".to_owned(), "BE".to_owned())];
        let facts = qosm_sdk::PodFacts { labels, ..mock::pod(1, "default", "web") };
        let expected = "the labels of default/web say another QoS class than the case does; set `declaredQos: BE`";
        assert_eq!(pod(&facts).unwrap_err(), expected);
    }
}
