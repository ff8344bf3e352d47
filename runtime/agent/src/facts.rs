//! Facts: the state of a node in a file. `plan` evaluates this document, `replay` starts from it, and a recording begins with it.
//! Pods, ConfigMaps and the node are ordinary Kubernetes objects.

pub mod block_io;
mod objects;

use std::collections::BTreeMap;
use std::fmt;

use qosm_cluster::{Objects, parse_objects};
use qosm_model::pod::{ContainerCgroup, ContainerKind, ContainerState, Moment, Pod, Resources};
use qosm_model::unit::{Bytes, MilliCpu};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use self::block_io::{DeviceFacts, VolumeFacts};
use self::objects::write_lifecycle;
pub use self::objects::{node_manifest, topology_manifest};
use crate::config::{GuardRails, PolicyConfig};
use crate::old_names;

/// The document. Unknown fields are errors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Facts {
    /// Time of the document (RFC 3339), by which pauses end. Without it, a replay begins in 1970, and a plan uses the current time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<jiff::Timestamp>,
    /// The machine and its kernel.
    pub host: HostFacts,
    /// A `kind: Node` object, or the fields of one that matter: `metadata.name`, `metadata.labels`, `metadata.annotations`,
    /// `status.capacity`, `status.allocatable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Value>,
    /// A `kind: NodeResourceTopology` object: the NUMA zones of the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Value>,
    /// Whether an API server and a controller carry out requests to the cluster; if not, the node acts alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub api_server: bool,
    /// The policies to run; empty = all default policies with their default configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyConfig>,
    /// The operator's bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard_rails: Option<GuardRails>,
    /// ConfigMap objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<Value>,
    /// Pod objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Value>,
    /// Cgroup files whose contents differ from what a kubelet would have written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupFacts>,
}

impl Facts {
    /// The Node and its NUMA zones, if they are given.
    pub(crate) fn node_objects(&self) -> impl Iterator<Item = &Value> {
        self.node.iter().chain(&self.topology)
    }

    /// Reads the first line of a recording, including recordings of earlier builds.
    ///
    /// # Errors
    ///
    /// When the line is not a document of facts.
    pub fn from_recording(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line).or_else(|error| {
            let mut facts: Value = serde_json::from_str(line)?;
            let policies = facts.get_mut("policies").and_then(Value::as_array_mut);
            let updated =
                policies.into_iter().flatten().filter_map(|entry| old_names::update_entry(entry).then_some(())).count();
            if updated > 0 { serde_json::from_value(facts) } else { Err(error) }
        })
    }
}

/// One version for all controllers, or one for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CgroupVersions {
    /// The same version for all controllers.
    All(Version),
    /// By controller: `cpu`, `cpuacct`, `cpuset`, `memory`; v2 for those that are missing.
    Each(BTreeMap<String, Version>),
}

/// Implemented by hand, since serde's error for an untagged enum does not name the expected values.
impl<'de> Deserialize<'de> for CgroupVersions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = CgroupVersions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`v1`, `v2`, or a version for each of cpu, cpuacct, cpuset and memory")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<CgroupVersions, E> {
                match text {
                    "v1" => Ok(CgroupVersions::All(Version::V1)),
                    "v2" => Ok(CgroupVersions::All(Version::V2)),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CgroupVersions, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(map)).map(CgroupVersions::Each)
            }
        }
        deserializer.deserialize_any(Written)
    }
}

/// A cgroup version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Version 1.
    V1,
    /// Version 2.
    V2,
}

/// A cgroup driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriverName {
    /// systemd slices and scopes.
    Systemd,
    /// Plain directories.
    Cgroupfs,
}

/// The kind of kernel, by which its knobs and their rules differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelName {
    /// A mainline kernel.
    Mainline,
    /// Alibaba Cloud Linux or Anolis.
    Alibaba,
}

/// The machine and its kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct HostFacts {
    /// `v1`, `v2`, or a version for each controller.
    pub cgroup: CgroupVersions,
    /// `systemd` or `cgroupfs`.
    pub driver: DriverName,
    /// The kubelet's `cgroupRoot`.
    pub cgroup_root: String,
    /// `mainline` or `alibaba`.
    pub kernel: KernelName,
    /// The kernel's release, as `uname -r` prints it; `None` = one without known faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
    /// Files that this kernel lacks, by name.
    pub missing_files: Vec<String>,
    /// Files that this kernel has in addition to those of `kernel`, by name.
    pub extra_files: Vec<String>,
    /// Logical CPUs.
    pub cpus: u32,
    /// Physical memory, as a Kubernetes quantity.
    pub memory: String,
    /// Size of a memory page in bytes.
    pub page_size: u64,
    /// NUMA nodes: how many there are, or a list of them.
    #[serde(skip_serializing_if = "NumaNodes::is_one")]
    pub numa_nodes: NumaNodes,
    /// Cores and sockets of the CPUs; empty = one socket with a core for each CPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpu_topology: Vec<CpuFacts>,
    /// What the kubelet's file `cpu_manager_state` holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_manager_state: Option<serde_json::Value>,
    /// Settings of the node's kernel, by names of knobs, in the units of the knobs; `null` = this kernel has no such setting. A setting
    /// that is left out has the kernel's default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_knobs: BTreeMap<String, Option<u64>>,
    /// Disks and other block devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub block_devices: Vec<DeviceFacts>,
    /// Volumes of pods on these devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_volumes: Vec<VolumeFacts>,
    /// Whether containers can be put into core scheduling groups.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub core_scheduling: bool,
}

/// Position of a CPU: core and socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CpuFacts {
    /// The kernel's number of the CPU.
    pub id: u32,
    /// Its core: the same for hyper-threads of one core, and unique within the socket.
    pub core: u32,
    /// Its socket.
    #[serde(default)]
    pub socket: u32,
    /// Whether it is offline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offline: bool,
}

/// The NUMA nodes of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum NumaNodes {
    /// This number of nodes, with equal shares of CPUs and memory, and all equally far from each other.
    Alike(u32),
    /// The listed nodes.
    Each(Vec<NumaNodeFacts>),
}

impl NumaNodes {
    fn is_one(&self) -> bool {
        *self == Self::Alike(1)
    }
}

impl<'de> Deserialize<'de> for NumaNodes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = NumaNodes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of NUMA nodes, or a list of them")
            }

            fn visit_u64<E: serde::de::Error>(self, count: u64) -> Result<NumaNodes, E> {
                let count = u32::try_from(count).ok().filter(|count| (1..=1024).contains(count));
                count.map(NumaNodes::Alike).ok_or_else(|| E::custom("numaNodes: a machine has 1 to 1024 NUMA nodes"))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<NumaNodes, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(NumaNodes::Each)
            }
        }
        deserializer.deserialize_any(Written)
    }
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NumaNodeFacts {
    /// The kernel's number of it.
    pub id: u32,
    /// Its CPUs as the kernel lists them, e.g. `0-15`; empty for a memory expander.
    #[serde(default)]
    pub cpus: String,
    /// Its memory, as a Kubernetes quantity; 0 for a node of CPUs alone.
    pub memory: String,
    /// Free memory, as a quantity; half of the memory where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<String>,
    /// Memory that could be used without swapping, as a quantity; `free` where it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<String>,
    /// Distances to the nodes of the list, in its order; 10 is itself. Empty = all others are equally far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<u32>,
}

impl Default for HostFacts {
    fn default() -> Self {
        Self {
            cgroup: CgroupVersions::All(Version::V2),
            driver: DriverName::Systemd,
            cgroup_root: "/".to_owned(),
            kernel: KernelName::Mainline,
            kernel_release: None,
            missing_files: Vec::new(),
            extra_files: Vec::new(),
            cpus: 8,
            memory: "32Gi".to_owned(),
            page_size: 4096,
            numa_nodes: NumaNodes::Alike(1),
            cpu_topology: Vec::new(),
            cpu_manager_state: None,
            node_knobs: BTreeMap::new(),
            block_devices: Vec::new(),
            pod_volumes: Vec::new(),
            core_scheduling: false,
        }
    }
}

/// What the files of one cgroup hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct CgroupFacts {
    /// `kubepods`, `burstable` or `besteffort`: a tier's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// `namespace/name`: a pod's group, or (with `container`) a container's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// File name to contents.
    pub files: BTreeMap<String, String>,
}

/// Reads the Kubernetes objects of a document. `node` holds the Node, and other objects that name their kind.
pub fn read_objects<'a>(
    pods: &'a [Value],
    config_maps: &'a [Value],
    node: impl IntoIterator<Item = &'a Value>,
    origin: &str,
) -> Objects {
    let of_kind = |kind: &str, object: &Value| {
        let mut object = object.clone();
        if let Value::Object(fields) = &mut object {
            fields.entry("kind").or_insert_with(|| kind.into());
            if fields.get("kind").is_none_or(|kind| kind != "NodeResourceTopology") {
                fields.entry("apiVersion").or_insert_with(|| "v1".into());
            }
        }
        object
    };
    let items: Vec<Value> = pods
        .iter()
        .map(|pod| of_kind("Pod", pod))
        .chain(config_maps.iter().map(|map| of_kind("ConfigMap", map)))
        .chain(node.into_iter().map(|node| of_kind("Node", node)))
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    parse_objects(&list.to_string(), origin)
}

/// Writes a pod as a manifest from which the same pod is read again.
pub fn manifest(pod: &Pod) -> Value {
    let mut annotations = pod.annotations.clone();
    // An annotation that was ignored when the pod was read must not take effect when the manifest is read again.
    annotations.remove(qosm_cluster::CGROUP_ANNOTATION);
    let mut bound = Map::new();
    if let Some(cgroup) = &pod.cgroup {
        bound.insert(String::new(), cgroup.clone().into());
    }
    for container in &pod.containers {
        if let ContainerCgroup::Bound(path) = &container.cgroup {
            bound.insert(container.name.clone(), path.clone().into());
        }
    }
    if !bound.is_empty() {
        annotations.insert(qosm_cluster::CGROUP_ANNOTATION.to_owned(), Value::Object(bound).to_string());
    }
    let of = |wanted: fn(ContainerKind) -> bool| -> Vec<Value> {
        pod.containers.iter().filter(|container| wanted(container.kind)).map(spec_of).collect()
    };
    let statuses = |wanted: fn(ContainerKind) -> bool| -> Vec<Value> {
        pod.containers
            .iter()
            .filter(|container| wanted(container.kind))
            .filter_map(|container| {
                let state = match container.state {
                    ContainerState::Waiting => "waiting",
                    ContainerState::Running => "running",
                    ContainerState::Terminated => "terminated",
                };
                let mut status = match &container.cgroup {
                    ContainerCgroup::Runtime(id) => {
                        json!({"name": container.name, "containerID": id, "state": {state: {}}})
                    }
                    ContainerCgroup::Unknown => json!({"name": container.name, "state": {state: {}}}),
                    ContainerCgroup::Bound(_) if container.next.is_some() => {
                        json!({"name": container.name, "state": {state: {}}})
                    }
                    ContainerCgroup::Bound(_) | ContainerCgroup::Named(_) => return None,
                };
                if container.next.is_some() {
                    status["resources"] = requirements(&container.resources(Moment::Now));
                }
                Some(status)
            })
            .collect()
    };
    let regular = |kind| kind == ContainerKind::Regular;
    let initial = |kind| kind != ContainerKind::Regular;
    let mut status = Map::new();
    status.insert("phase".to_owned(), if pod.active { "Running" } else { "Succeeded" }.into());
    status.insert("qosClass".to_owned(), pod.kube_qos.as_str().into());
    for (key, list) in [("containerStatuses", statuses(regular)), ("initContainerStatuses", statuses(initial))] {
        if !list.is_empty() {
            status.insert(key.to_owned(), list.into());
        }
    }
    let mut spec = Map::new();
    spec.insert("containers".to_owned(), of(regular).into());
    let init = of(initial);
    if !init.is_empty() {
        spec.insert("initContainers".to_owned(), init.into());
    }
    if pod.host_pid {
        spec.insert("hostPID".to_owned(), true.into());
    }
    if let Some(priority) = pod.priority {
        spec.insert("priority".to_owned(), priority.into());
    }
    let overhead = amounts([
        ("cpu", (pod.cpu_overhead.0 > 0).then(|| format!("{}m", pod.cpu_overhead.0))),
        ("memory", (pod.memory_overhead.0 > 0).then(|| pod.memory_overhead.0.to_string())),
    ]);
    if !overhead.is_empty() {
        spec.insert("overhead".to_owned(), overhead.into());
    }
    let specified = pod.resources(Moment::Next);
    if specified != Resources::default() {
        spec.insert("resources".to_owned(), requirements(&specified));
    }
    if pod.next.is_some() {
        status.insert("resources".to_owned(), requirements(&pod.resources(Moment::Now)));
    }
    if let Some(resize) = &pod.resize {
        status.insert("resize".to_owned(), resize.clone().into());
    }
    let mut metadata = Map::new();
    for (field, value) in [
        ("namespace", json!(pod.namespace)),
        ("name", json!(pod.name)),
        ("uid", json!(pod.uid)),
        ("labels", json!(pod.labels)),
        ("annotations", json!(annotations)),
    ] {
        metadata.insert(field.to_owned(), value);
    }
    write_lifecycle(&pod.lifecycle, &mut metadata, &mut spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
}

fn amounts<const N: usize>(amounts: [(&str, Option<String>); N]) -> Map<String, Value> {
    amounts.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?.into()))).collect()
}

fn requirements(resources: &Resources) -> Value {
    let list = |cpu: Option<MilliCpu>, memory: Option<Bytes>| {
        amounts([
            ("cpu", cpu.map(|milli| format!("{}m", milli.0))),
            ("memory", memory.map(|bytes| bytes.0.to_string())),
        ])
    };
    json!({
        "requests": list(resources.cpu_request, resources.memory_request),
        "limits": list(resources.cpu_limit, resources.memory_limit),
    })
}

fn spec_of(container: &qosm_model::pod::Container) -> Value {
    let mut resources = requirements(&container.resources(Moment::Next));
    for resource in &container.extended_resources {
        for (list, amount) in [("requests", resource.request), ("limits", resource.limit)] {
            if let Some(amount) = amount {
                resources[list][&resource.name] = amount.to_string().into();
            }
        }
    }
    let mut spec = Map::new();
    spec.insert("name".to_owned(), container.name.clone().into());
    spec.insert("resources".to_owned(), resources);
    if container.kind == ContainerKind::Sidecar {
        spec.insert("restartPolicy".to_owned(), "Always".into());
    }
    Value::Object(spec)
}
