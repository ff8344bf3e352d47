//! The host of a component, which calls its imports.

use super::{
    BlockIo, CallHooks, ClusterConfig, CpuBandwidth, CpuIdentity, CpuStat, CpuTopology, CpuWeight, Cpuset, Declare,
    Eviction, Log, MemoryLimit, MemoryProtection, MemoryStat, Node, NodeKnobs, NodeObject, NodeResource, NumaStat,
    PageMigration, PodEvent, PodObject, Pressure, ResctrlAllocation, ResctrlMonitor, State,
};
use crate::bindings::qosm::policy as import;
use crate::{
    ApplicationUse, Bandwidth, CacheDomain, CacheUsage, ClassSample, ClassState, ContainerId, ContainerUsage,
    CpuSample, CpuSet, EventKind, EvictionState, GroupUse, IoCostModel, IoCostQos, IoDevice, IoDeviceInfo, IoLimits,
    IoVolume, Level, MemorySample, MigrationProgress, NodeKnob, NodeKnobState, NodeMemory, NodeObjectFacts,
    NodePressure, NodeSample, NumaNode, NumaSample, Offer, PodId, PodObjectFacts, PressureSample, Protection,
    ResourceState, Share, Target, Topology, Urgency,
};

/// The host that runs the component, reached through its imports.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Granted;

impl CallHooks for Granted {}

impl Declare for Granted {}

impl Log for Granted {
    fn log(&mut self, level: Level, message: &str) {
        import::log::write(level, message);
    }

    fn remark(&mut self, target: Target, knob: &str, reason: &str) {
        import::log::remark(target, knob, reason);
    }

    fn problem(&mut self, key: &str, field: &str, message: &str) {
        import::log::problem(key, field, message);
    }
}

impl State for Granted {
    fn load_state(&mut self) -> Vec<u8> {
        import::state::load()
    }

    fn state_age_usec(&mut self) -> Option<u64> {
        import::state::age_usec()
    }

    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String> {
        import::state::save(bytes)
    }
}

impl Node for Granted {
    fn node(&mut self) -> NodeSample {
        import::node::read()
    }

    fn node_memory(&mut self) -> Option<NodeMemory> {
        import::node::read_memory()
    }

    fn node_pressure(&mut self) -> Option<NodePressure> {
        import::node::read_pressure()
    }

    fn group_use(&mut self) -> Vec<GroupUse> {
        import::node::read_use()
    }

    fn application_use(&mut self) -> Vec<ApplicationUse> {
        import::node::read_applications()
    }
}

impl CpuStat for Granted {
    fn cpu(&mut self) -> Vec<CpuSample> {
        import::cpu_stat::read()
    }

    fn bandwidth(&mut self) -> Vec<Bandwidth> {
        import::cpu_stat::read_bandwidth()
    }

    fn bandwidth_generation(&mut self) -> u64 {
        import::cpu_stat::bandwidth_generation()
    }
}

impl MemoryStat for Granted {
    fn memory(&mut self) -> Vec<MemorySample> {
        import::memory_stat::read()
    }
}

impl Pressure for Granted {
    fn pressure(&mut self) -> Vec<PressureSample> {
        import::pressure::read()
    }
}

impl NumaStat for Granted {
    fn numa_nodes(&mut self) -> Vec<NumaNode> {
        import::numa_stat::read_nodes()
    }

    fn numa(&mut self) -> Vec<NumaSample> {
        import::numa_stat::read()
    }
}

impl CpuTopology for Granted {
    fn cpu_topology(&mut self) -> Topology {
        import::cpu_topology::read()
    }

    fn cpu_topology_generation(&mut self) -> u64 {
        import::cpu_topology::generation()
    }

    fn cpu_sets(&mut self) -> Vec<CpuSet> {
        import::cpu_topology::read_sets()
    }
}

impl PageMigration for Granted {
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str) {
        import::page_migration::start(container, from, to, token, reason);
    }

    fn stop_migration(&mut self, container: ContainerId) {
        import::page_migration::stop(container);
    }

    fn migrations(&mut self) -> Vec<MigrationProgress> {
        import::page_migration::read()
    }
}

impl CpuBandwidth for Granted {
    fn set_quota(&mut self, target: Target, quota_usec: Option<u64>, reason: &str) {
        import::cpu_bandwidth::set_quota(target, quota_usec, reason);
    }

    fn set_burst(&mut self, target: Target, burst_usec: u64, reason: &str) {
        import::cpu_bandwidth::set_burst(target, burst_usec, reason);
    }

    fn release_quota(&mut self, target: Target) {
        import::cpu_bandwidth::release_quota(target);
    }

    fn release_burst(&mut self, target: Target) {
        import::cpu_bandwidth::release_burst(target);
    }
}

impl CpuWeight for Granted {
    fn set_weight(&mut self, target: Target, weight: u32, reason: &str) {
        import::cpu_weight::set_weight(target, weight, reason);
    }

    fn release_weight(&mut self, target: Target) {
        import::cpu_weight::release_weight(target);
    }

    fn set_shares(&mut self, target: Target, shares: u32, reason: &str) {
        import::cpu_weight::set_shares(target, shares, reason);
    }

    fn set_idle(&mut self, container: ContainerId, idle: bool, reason: &str) {
        import::cpu_weight::set_idle(container, idle, reason);
    }

    fn release_idle(&mut self, container: ContainerId) {
        import::cpu_weight::release_idle(container);
    }
}

impl CpuIdentity for Granted {
    fn identity_support(&mut self) -> Result<(), String> {
        import::cpu_identity::read_support()
    }

    fn set_identity(&mut self, target: Target, identity: i8, reason: &str) {
        import::cpu_identity::set_identity(target, identity, reason);
    }

    fn release_identity(&mut self, target: Target) {
        import::cpu_identity::release_identity(target);
    }

    fn core_scheduling_support(&mut self) -> Result<(), String> {
        import::cpu_identity::read_core_scheduling()
    }

    fn set_core_group(&mut self, container: ContainerId, group: u64, reason: &str) {
        import::cpu_identity::set_core_group(container, group, reason);
    }

    fn release_core_group(&mut self, container: ContainerId) {
        import::cpu_identity::release_core_group(container);
    }
}

impl MemoryProtection for Granted {
    fn protect(&mut self, target: Target, protection: &Protection, reason: &str) {
        import::memory_protection::set(target, *protection, reason);
    }

    fn release_protection(&mut self, target: Target) {
        import::memory_protection::release(target);
    }
}

impl Cpuset for Granted {
    fn set_memory_nodes(&mut self, container: ContainerId, nodes: &[u32], reason: &str) {
        import::cpuset::set_memory_nodes(container, nodes, reason);
    }

    fn release_memory_nodes(&mut self, container: ContainerId) {
        import::cpuset::release_memory_nodes(container);
    }

    fn set_cpus(&mut self, target: Target, cpus: &[u32], reason: &str) {
        import::cpuset::set_cpus(target, cpus, reason);
    }

    fn release_cpus(&mut self, target: Target) {
        import::cpuset::release_cpus(target);
    }
}

impl MemoryLimit for Granted {
    fn set_memory_limit(&mut self, target: Target, bytes: Option<u64>, reason: &str) {
        import::memory_limit::set(target, bytes, reason);
    }

    fn release_memory_limit(&mut self, target: Target) {
        import::memory_limit::release(target);
    }
}

impl NodeKnobs for Granted {
    fn set_node_knob(&mut self, knob: NodeKnob, value: u64, reason: &str) {
        import::node_knobs::set(knob, value, reason);
    }

    fn release_node_knob(&mut self, knob: NodeKnob) {
        import::node_knobs::release(knob);
    }

    fn node_knobs(&mut self) -> Vec<NodeKnobState> {
        import::node_knobs::read()
    }

    fn remark_node_knob(&mut self, knob: NodeKnob, reason: &str) {
        import::node_knobs::remark(knob, reason);
    }
}

impl BlockIo for Granted {
    fn block_devices(&mut self) -> Vec<IoDeviceInfo> {
        import::block_io::read_devices()
    }

    fn pod_volumes(&mut self) -> Vec<IoVolume> {
        import::block_io::read_volumes()
    }

    fn set_io_max(&mut self, target: Target, device: IoDevice, limits: &IoLimits, reason: &str) {
        import::block_io::set_max(target, device, *limits, reason);
    }

    fn release_io_max(&mut self, target: Target, device: IoDevice) {
        import::block_io::release_max(target, device);
    }

    fn set_io_weight(&mut self, target: Target, device: IoDevice, weight: u32, reason: &str) {
        import::block_io::set_weight(target, device, weight, reason);
    }

    fn release_io_weight(&mut self, target: Target, device: IoDevice) {
        import::block_io::release_weight(target, device);
    }

    fn set_io_cost_qos(&mut self, device: IoDevice, qos: &IoCostQos, reason: &str) {
        import::block_io::set_cost_qos(device, *qos, reason);
    }

    fn release_io_cost_qos(&mut self, device: IoDevice) {
        import::block_io::release_cost_qos(device);
    }

    fn set_io_cost_model(&mut self, device: IoDevice, model: &IoCostModel, reason: &str) {
        import::block_io::set_cost_model(device, *model, reason);
    }

    fn release_io_cost_model(&mut self, device: IoDevice) {
        import::block_io::release_cost_model(device);
    }

    fn remark_io_cost(&mut self, reason: &str) {
        import::block_io::remark_cost(reason);
    }
}

impl ResctrlMonitor for Granted {
    fn cache_domains(&mut self) -> Vec<CacheDomain> {
        import::resctrl_monitor::read_domains()
    }

    fn class_usage(&mut self) -> Vec<ClassSample> {
        import::resctrl_monitor::read_classes()
    }

    fn container_usage(&mut self) -> Vec<ContainerUsage> {
        import::resctrl_monitor::read_containers()
    }

    fn rest_usage(&mut self) -> Vec<CacheUsage> {
        import::resctrl_monitor::read_rest()
    }
}

impl NodeObject for Granted {
    fn node_object(&mut self) -> Option<NodeObjectFacts> {
        import::node_object::read()
    }

    fn node_object_generation(&mut self) -> u64 {
        import::node_object::generation()
    }
}

impl PodObject for Granted {
    fn pod_objects(&mut self) -> Vec<PodObjectFacts> {
        import::pod_object::read()
    }

    fn pod_objects_generation(&mut self) -> u64 {
        import::pod_object::generation()
    }
}

impl ClusterConfig for Granted {
    fn config_text(&mut self, key: &str) -> Option<String> {
        import::cluster_config::read(key)
    }

    fn config_strategy(&mut self, key: &str) -> String {
        import::cluster_config::strategy(key)
    }

    fn config_generation(&mut self) -> u64 {
        import::cluster_config::generation()
    }
}

impl ResctrlAllocation for Granted {
    fn define_class(&mut self, class: &str, share: &Share, domains: &[(u32, Share)], reason: &str) {
        import::resctrl_allocation::define(class, *share, domains, reason);
    }

    fn undefine_class(&mut self, class: &str) {
        import::resctrl_allocation::undefine(class);
    }

    fn assign_class(&mut self, target: Target, class: &str, reason: &str) {
        import::resctrl_allocation::assign(target, class, reason);
    }

    fn release_class(&mut self, target: Target) {
        import::resctrl_allocation::release(target);
    }

    fn class_states(&mut self) -> Vec<ClassState> {
        import::resctrl_allocation::read_states()
    }
}

impl NodeResource for Granted {
    fn publish(&mut self, name: &str, offer: &Offer, reason: &str) {
        import::node_resource::publish(name, offer, reason);
    }

    fn withdraw(&mut self, name: &str) {
        import::node_resource::withdraw(name);
    }

    fn stale_after(&mut self, seconds: u32) {
        import::node_resource::stale_after(seconds);
    }

    fn resource_states(&mut self) -> Vec<ResourceState> {
        import::node_resource::read_states()
    }
}

impl Eviction for Granted {
    fn evict(&mut self, pod: PodId, urgency: Urgency, grace_period_sec: Option<u32>, reason: &str, message: &str) {
        import::eviction::evict(pod, urgency, grace_period_sec, reason, message);
    }

    fn withdraw_eviction(&mut self, pod: PodId) {
        import::eviction::withdraw(pod);
    }

    fn evictions(&mut self) -> Vec<EvictionState> {
        import::eviction::read_evictions()
    }
}

impl PodEvent for Granted {
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
        import::pod_event::emit(pod, kind, reason, message);
    }
}
