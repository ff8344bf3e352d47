//! The lines of a recording: one tick each.

use std::collections::BTreeMap;

use qosm_cluster::node_report::ControllerAnswer;
use qosm_model::column::{CpuCounters, Fields, MemoryCounters, PressureCounters, Stall};
use qosm_model::node::{GroupCounters, NodeMemory};
use qosm_model::numa::MigrationProgress;
use qosm_model::unit::Micros;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::resctrl::{ResctrlLine, UsageLine};
use crate::alarm::line::AlarmLine;
use crate::facts::CgroupFacts;
use crate::facts::block_io::{DeviceFacts, VolumeFacts};

/// One tick. Unknown fields are errors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct TickLine {
    /// Milliseconds since the previous line.
    pub window_millis: u64,
    /// Microseconds in addition to `window_millis`.
    #[serde(skip_serializing_if = "is_zero")]
    pub window_micros: u64,
    /// How many microseconds late the tick came: intervals count from the time for which it was scheduled.
    #[serde(skip_serializing_if = "is_zero")]
    pub late_micros: u64,
    /// Alarms since the previous line. A line with alarms may come between two ticks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmLine>,
    /// What was measured within the window; a container that is not listed has no sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerLine>,
    /// The node within the window; `null` = not known.
    pub node: Option<NodeLine>,
    /// What groups used within the window, and their memory now: `kubepods`, `burstable`, `besteffort`, `outside` (of kubepods: its memory alone,
    /// since its CPU time follows from the node's), and pods by `namespace/name`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<String, GroupCounters>,
    /// The same for applications beside Kubernetes, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub applications: BTreeMap<String, ApplicationLine>,
    /// What the kubelet's file `cpu_manager_state` holds from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_manager_state: Option<Value>,
    /// CPUs that are online from now on, as the kernel lists them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub online_cpus: Option<String>,
    /// CPUs in force from now on: of tiers by name, of pods by `namespace/name`, of containers by `namespace/name/container`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_sets: BTreeMap<String, String>,
    /// Memory on NUMA nodes now, by the node's number; those that are not listed stay as they were.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numa_nodes: BTreeMap<u32, NumaMemoryLine>,
    /// Caches and memory bandwidth: what can be divided, the state of classes, and what was counted within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resctrl: Option<ResctrlLine>,
    /// Pods that came, changed or went before the tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsLine>,
    /// The controller's answer to the node's report. A line without it leaves the answer as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<ControllerAnswer>,
    /// All ConfigMaps from now on, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_maps: Option<Vec<Value>>,
    /// The Node object from now on, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_object: Option<Value>,
    /// The NodeResourceTopology for `nodeObject`; without it the Node has no zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Value>,
    /// Settings of the node's kernel that another program changed before the tick, by names of knobs; `null` = the setting is gone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_knobs: BTreeMap<String, Option<u64>>,
    /// All disks from now on, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_devices: Option<Vec<DeviceFacts>>,
    /// All volumes of pods from now on, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_volumes: Option<Vec<VolumeFacts>>,
    /// What other writers wrote to cgroup files before the tick.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupFacts>,
}

impl Default for TickLine {
    fn default() -> Self {
        Self {
            window_millis: 1000,
            window_micros: 0,
            late_micros: 0,
            alarms: Vec::new(),
            containers: Vec::new(),
            node: None,
            groups: BTreeMap::new(),
            applications: BTreeMap::new(),
            cpu_manager_state: None,
            online_cpus: None,
            cpu_sets: BTreeMap::new(),
            numa_nodes: BTreeMap::new(),
            resctrl: None,
            pods: None,
            controller: None,
            config_maps: None,
            node_object: None,
            topology: None,
            node_knobs: BTreeMap::new(),
            block_devices: None,
            pod_volumes: None,
            cgroups: Vec::new(),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One container's columns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ContainerLine {
    /// `namespace/name`.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// CPU use and throttling within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Fields<CpuCounters>>,
    /// Memory now, and events within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Fields<MemoryCounters>>,
    /// Pressure within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureLine>,
    /// NUMA nodes of its CPUs, its `cpuset.mems` and its pages now. If no container of a line has this, all stay as they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaLine>,
    /// Progress of the migration of its pages. A migration that no line mentions is done at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationLine>,
    /// Its occupancy of caches now, and its memory traffic within the window.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resctrl: Vec<UsageLine>,
}

/// Stall times within the window, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PressureLine {
    /// Some threads waited for a CPU.
    pub cpu_some_usec: u64,
    /// All threads waited for a CPU.
    pub cpu_full_usec: u64,
    /// Some threads waited for memory.
    pub memory_some_usec: u64,
    /// All threads waited for memory.
    pub memory_full_usec: u64,
    /// Some threads waited for input or output.
    pub io_some_usec: u64,
    /// All threads waited for input or output.
    pub io_full_usec: u64,
}

/// What an application beside Kubernetes used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ApplicationLine {
    /// Its cgroup, relative to the root of each hierarchy.
    pub cgroup: String,
    /// The counters of that cgroup.
    #[serde(default)]
    pub used: GroupCounters,
}

/// The NUMA nodes where a container runs, may have memory, and has memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NumaLine {
    /// NUMA nodes of the CPUs that it may run on; empty = all.
    pub cpu_nodes: Vec<u32>,
    /// NUMA nodes that it may have memory on; empty = all.
    pub memory_nodes: Vec<u32>,
    /// Pages by NUMA node.
    pub pages: BTreeMap<u32, u64>,
}

/// Progress of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct MigrationLine {
    /// `waiting`, `moving`, `paused`, `done`, `failed` or `stopped`.
    pub state: String,
    /// Number of processes of the container.
    pub processes: u64,
    /// Number of processes whose migration is done.
    pub processes_done: u64,
    /// Number of processes that ended meanwhile.
    pub processes_gone: u64,
    /// Pages that were found in the wrong place.
    pub pages_found: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Pages that could not be moved, by error.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pages_failed: BTreeMap<String, u64>,
    /// Pages that were not tried, because the target has no room.
    pub pages_without_room: u64,
    /// Processes whose pages could not be moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureLine>,
    /// Why it failed or waits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A process whose pages could not be moved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FailureLine {
    /// Its process ID.
    pub pid: u32,
    /// The error of the kernel.
    pub error: String,
}

/// Memory on a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NumaMemoryLine {
    /// Free memory.
    pub free_bytes: u64,
    /// Memory that could be used without swapping.
    pub available_bytes: u64,
}

/// The node's columns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NodeLine {
    /// CPU time that all CPUs spent busy within the window.
    pub cpu_usage_usec: Option<u64>,
    /// `MemAvailable` now.
    pub memory_available_bytes: Option<u64>,
    /// Details of its memory now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<NodeMemory>,
    /// Pressure within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureLine>,
}

/// Changed pods.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PodsLine {
    /// New or changed ones, as Pod objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upserted: Vec<Value>,
    /// Pods that are gone: `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

impl From<PressureCounters> for PressureLine {
    fn from(delta: PressureCounters) -> Self {
        Self {
            cpu_some_usec: delta.cpu.some.0,
            cpu_full_usec: delta.cpu.full.0,
            memory_some_usec: delta.memory.some.0,
            memory_full_usec: delta.memory.full.0,
            io_some_usec: delta.io.some.0,
            io_full_usec: delta.io.full.0,
        }
    }
}

impl From<PressureLine> for PressureCounters {
    fn from(line: PressureLine) -> Self {
        let stall = |some, full| Stall { some: Micros(some), full: Micros(full) };
        Self {
            cpu: stall(line.cpu_some_usec, line.cpu_full_usec),
            memory: stall(line.memory_some_usec, line.memory_full_usec),
            io: stall(line.io_some_usec, line.io_full_usec),
        }
    }
}

impl From<&MigrationProgress> for MigrationLine {
    fn from(progress: &MigrationProgress) -> Self {
        MigrationLine {
            state: progress.state.as_str().to_owned(),
            processes: progress.processes,
            processes_done: progress.processes_done,
            processes_gone: progress.processes_gone,
            pages_found: progress.pages_found,
            pages_moved: progress.pages_moved,
            pages_failed: progress.pages_failed.iter().map(|&(errno, pages)| (errno.to_owned(), pages)).collect(),
            pages_without_room: progress.pages_without_room,
            failures: progress
                .failures
                .iter()
                .map(|failure| FailureLine { pid: failure.pid, error: failure.error.clone() })
                .collect(),
            why: progress.why.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::facts::block_io::{DeviceFacts, VolumeFacts};
    use crate::facts::{CpuFacts, Facts, HostFacts, NumaNodeFacts};

    /// The fields of a type that denies unknown ones.
    fn fields<T: DeserializeOwned>() -> Vec<String> {
        let error = serde_json::from_str::<T>(r#"{"?": 0}"#).err().unwrap().to_string();
        let names: Vec<String> = error.split('`').skip(3).step_by(2).map(str::to_owned).collect();
        assert!(names.len() > 1, "{error}");
        names
    }

    #[test]
    fn each_field_is_documented() {
        let (facts, ticks) = (
            include_str!("../../../../examples/plan/README.md"),
            include_str!("../../../../examples/replay/README.md"),
        );
        let of_facts = [
            fields::<Facts>(),
            fields::<HostFacts>(),
            fields::<CpuFacts>(),
            fields::<NumaNodeFacts>(),
            fields::<DeviceFacts>(),
            fields::<VolumeFacts>(),
            fields::<CgroupFacts>(),
        ];
        let of_ticks = [
            fields::<TickLine>(),
            fields::<ContainerLine>(),
            fields::<PressureLine>(),
            fields::<ApplicationLine>(),
            fields::<NumaLine>(),
            fields::<MigrationLine>(),
            fields::<NumaMemoryLine>(),
            fields::<NodeLine>(),
            fields::<PodsLine>(),
            fields::<GroupCounters>(),
        ];
        for (document, names) in [(facts, of_facts.concat()), (ticks, of_ticks.concat())] {
            let missing: Vec<_> = names.iter().filter(|name| !document.contains(name.as_str())).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }
}
