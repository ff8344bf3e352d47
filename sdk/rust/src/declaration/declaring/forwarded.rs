//! Calls that declare nothing go to the node's host unchanged.

use super::Declaring;
use crate::{
    ApplicationUse, Bandwidth, CacheDomain, CacheUsage, ClassSample, ClusterConfig, ContainerId, ContainerUsage,
    CpuSample, CpuSet, CpuStat, CpuTopology, EventKind, GroupUse, Host, Level, Log, MemorySample, MemoryStat,
    MigrationProgress, Node, NodeMemory, NodeObject, NodeObjectFacts, NodePressure, NodeSample, NumaNode, NumaSample,
    NumaStat, PageMigration, PodEvent, PodId, PodObject, PodObjectFacts, Pressure, PressureSample, ResctrlMonitor,
    State, Target, Topology,
};

impl<H: Host + 'static> PageMigration for Declaring<'_, H> {
    fn start_migration(&mut self, container: ContainerId, from: &[u32], to: &[u32], token: u64, reason: &str) {
        self.host.start_migration(container, from, to, token, reason);
    }

    fn stop_migration(&mut self, container: ContainerId) {
        self.host.stop_migration(container);
    }

    fn migrations(&mut self) -> Vec<MigrationProgress> {
        self.host.migrations()
    }
}

impl<H: Host + 'static> Log for Declaring<'_, H> {
    fn log(&mut self, level: Level, message: &str) {
        self.host.log(level, message);
    }

    fn remark(&mut self, target: Target, knob: &str, reason: &str) {
        self.host.remark(target, knob, reason);
    }

    fn problem(&mut self, key: &str, field: &str, message: &str) {
        self.host.problem(key, field, message);
    }
}

impl<H: Host + 'static> State for Declaring<'_, H> {
    fn load_state(&mut self) -> Vec<u8> {
        self.host.load_state()
    }

    fn state_age_usec(&mut self) -> Option<u64> {
        self.host.state_age_usec()
    }

    fn save_state(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.host.save_state(bytes)
    }
}

impl<H: Host + 'static> Node for Declaring<'_, H> {
    fn node(&mut self) -> NodeSample {
        self.host.node()
    }

    fn node_memory(&mut self) -> Option<NodeMemory> {
        self.host.node_memory()
    }

    fn node_pressure(&mut self) -> Option<NodePressure> {
        self.host.node_pressure()
    }

    fn group_use(&mut self) -> Vec<GroupUse> {
        self.host.group_use()
    }

    fn application_use(&mut self) -> Vec<ApplicationUse> {
        self.host.application_use()
    }
}

impl<H: Host + 'static> CpuStat for Declaring<'_, H> {
    fn cpu(&mut self) -> Vec<CpuSample> {
        self.host.cpu()
    }

    fn bandwidth(&mut self) -> Vec<Bandwidth> {
        self.host.bandwidth()
    }

    fn bandwidth_generation(&mut self) -> u64 {
        self.host.bandwidth_generation()
    }
}

impl<H: Host + 'static> MemoryStat for Declaring<'_, H> {
    fn memory(&mut self) -> Vec<MemorySample> {
        self.host.memory()
    }
}

impl<H: Host + 'static> Pressure for Declaring<'_, H> {
    fn pressure(&mut self) -> Vec<PressureSample> {
        self.host.pressure()
    }
}

impl<H: Host + 'static> NumaStat for Declaring<'_, H> {
    fn numa_nodes(&mut self) -> Vec<NumaNode> {
        self.host.numa_nodes()
    }

    fn numa(&mut self) -> Vec<NumaSample> {
        self.host.numa()
    }
}

impl<H: Host + 'static> CpuTopology for Declaring<'_, H> {
    fn cpu_topology(&mut self) -> Topology {
        self.host.cpu_topology()
    }

    fn cpu_topology_generation(&mut self) -> u64 {
        self.host.cpu_topology_generation()
    }

    fn cpu_sets(&mut self) -> Vec<CpuSet> {
        self.host.cpu_sets()
    }
}

impl<H: Host + 'static> ResctrlMonitor for Declaring<'_, H> {
    fn cache_domains(&mut self) -> Vec<CacheDomain> {
        self.host.cache_domains()
    }

    fn class_usage(&mut self) -> Vec<ClassSample> {
        self.host.class_usage()
    }

    fn container_usage(&mut self) -> Vec<ContainerUsage> {
        self.host.container_usage()
    }

    fn rest_usage(&mut self) -> Vec<CacheUsage> {
        self.host.rest_usage()
    }
}

impl<H: Host + 'static> NodeObject for Declaring<'_, H> {
    fn node_object(&mut self) -> Option<NodeObjectFacts> {
        self.host.node_object()
    }

    fn node_object_generation(&mut self) -> u64 {
        self.host.node_object_generation()
    }
}

impl<H: Host + 'static> PodObject for Declaring<'_, H> {
    fn pod_objects(&mut self) -> Vec<PodObjectFacts> {
        self.host.pod_objects()
    }

    fn pod_objects_generation(&mut self) -> u64 {
        self.host.pod_objects_generation()
    }
}

impl<H: Host + 'static> ClusterConfig for Declaring<'_, H> {
    fn config_text(&mut self, key: &str) -> Option<String> {
        self.host.config_text(key)
    }

    fn config_strategy(&mut self, key: &str) -> String {
        self.host.config_strategy(key)
    }

    fn config_generation(&mut self) -> u64 {
        self.host.config_generation()
    }
}

impl<H: Host + 'static> PodEvent for Declaring<'_, H> {
    fn emit(&mut self, pod: PodId, kind: EventKind, reason: &str, message: &str) {
        self.host.emit(pod, kind, reason, message);
    }
}
