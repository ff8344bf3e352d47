//! The batch resources of a pod's containers, from its specification or from the annotation that a webhook writes.
//!
//! Koordinator: `apis/extension/resource.go`, `apis/extension/deprecated.go`, `pkg/koordlet/runtimehooks/protocol`.

use std::collections::BTreeMap;

use qosm_sdk::ExtendedResource;
use serde_json::{Map, Value};

use crate::config::{PolicyConfig, ResourceSource};
use crate::finding::Finding;
use crate::json::{self, Fault};
use crate::pod::Pod;
use crate::quantity::{Quantity, QuantityError};

/// Annotation with the resources of the containers.
pub(crate) const EXTENDED_RESOURCE_SPEC: &str = "node.koordinator.sh/extended-resource-spec";

/// A memory amount below this is implausible: container runtimes refuse limits below some hundred KiB.
const PLAUSIBLE_BYTES: u64 = 1 << 20;

/// A CPU limit below this is implausible: it is less than the smallest quota of a period of 100 ms. In thousandths of a CPU.
const PLAUSIBLE_MILLI: u64 = 10;

/// Names of batch CPU and batch memory that pods may use, whichever are published.
const BATCH_CPU: [&str; 3] = ["kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu", "alibabacloud.com/reclaimed-cpu"];
const BATCH_MEMORY: [&str; 3] =
    ["kubernetes.io/batch-memory", "koordinator.sh/batch-memory", "alibabacloud.com/reclaimed-memory"];

/// All names of batch resources, the published ones first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceNames {
    pub(crate) cpu: Vec<String>,
    pub(crate) memory: Vec<String>,
}

impl ResourceNames {
    pub(crate) fn new(policy: &PolicyConfig) -> Self {
        let all = |own: &[String], known: [&str; 3]| {
            let mut names = own.to_vec();
            names.extend(known.iter().map(|name| (*name).to_owned()).filter(|name| !own.contains(name)));
            names
        };
        Self { cpu: all(&policy.batch_cpu_names, BATCH_CPU), memory: all(&policy.batch_memory_names, BATCH_MEMORY) }
    }
}

/// Batch resources of a container or a pod. A limit of 0 counts as none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchResources {
    /// Thousandths of a CPU.
    pub(crate) cpu_request: Option<u64>,
    /// Thousandths of a CPU.
    pub(crate) cpu_limit: Option<u64>,
    /// Bytes.
    pub(crate) memory_request: Option<u64>,
    /// Bytes. At least the request: a smaller limit is assumed to have lost its unit.
    pub(crate) memory_limit: Option<u64>,
}

/// Maximum length of the annotation in bytes: a pod's owner may write 256 KiB, which would take the time of an evaluation.
const MAX_BYTES: usize = 8192;

/// Batch resources of a pod's containers, by container name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resources {
    containers: BTreeMap<String, BatchResources>,
    has_any: bool,
    /// Containers with implausible amounts, and what is wrong with them.
    lost_units: Vec<(String, Fault)>,
    /// Whether the resources come from the annotation.
    pub(crate) is_annotated: bool,
}

impl Resources {
    /// Reads the preferred source, or the other one if the preferred has no batch resources.
    pub(crate) fn of(pod: &Pod, source: ResourceSource, names: &ResourceNames, findings: &mut Vec<Finding>) -> Self {
        let annotated = pod.extended_resource_spec.as_deref().and_then(|text| {
            let mut faults = Vec::new();
            let read = Self::parse(text, names, &mut faults).map_err(|fault| faults.push(fault));
            let object = || format!("pod {}, annotation {EXTENDED_RESOURCE_SPEC}", pod.name);
            findings.extend(faults.into_iter().map(|fault| Finding::new(&object(), fault)));
            read.ok()
        });
        let specified = Self::specified(pod, names);
        let annotated = annotated.filter(|resources| resources.has_any);
        let resources = match (source, annotated) {
            (ResourceSource::Annotation, Some(annotated)) => annotated,
            (ResourceSource::Spec, Some(annotated)) if !specified.has_any => annotated,
            _ => specified,
        };
        for (container, fault) in &resources.lost_units {
            findings.push(Finding::new(&format!("pod {}, container {container}", pod.name), fault.clone()));
        }
        resources
    }

    fn specified(pod: &Pod, names: &ResourceNames) -> Self {
        let mut resources = Self::default();
        for container in &pod.containers {
            let (cpu, memory) = (container.extended(&names.cpu), container.extended(&names.memory));
            resources.has_any |= cpu.is_some() || memory.is_some();
            let limit = |resource: Option<&ExtendedResource>| resource.and_then(|resource| resource.limit);
            let request = cpu.and_then(|resource| resource.request);
            let own = BatchResources {
                cpu_request: request,
                cpu_limit: limit(cpu),
                memory_request: memory.and_then(|resource| resource.request),
                memory_limit: limit(memory),
            };
            let name = |resource: Option<&ExtendedResource>| resource.map(|resource| resource.name.clone());
            resources.insert(&container.name, [name(cpu), name(memory)], own);
        }
        resources
    }

    /// Reads the annotation. A negative amount counts as none, and is added to `faults`.
    fn parse(text: &str, names: &ResourceNames, faults: &mut Vec<Fault>) -> Result<Self, Fault> {
        if text.len() > MAX_BYTES {
            return Err(Fault::new("", format!("has {} bytes, and {MAX_BYTES} are read", text.len())));
        }
        let fields = json::parse(text)?;
        let mut resources = Self { is_annotated: true, ..Self::default() };
        for (name, value) in json::object(&fields, "containers")?.into_iter().flatten() {
            let path = format!("containers.{name}");
            let Value::Object(own) = value else {
                return Err(Fault::new(&path, format!("is {}; write an object", json::shown(value))));
            };
            let mut read = |kind: &str, names: &[String]| -> Result<Option<u64>, Fault> {
                let list = json::object(own, kind).map_err(|fault| fault.within(&path))?;
                let Some((resource, value)) = first(list, names) else { return Ok(None) };
                let fault = |message: String| Fault::new(resource, message).within(kind).within(&path);
                match Quantity::read(value) {
                    Ok(quantity) => Ok(Some(quantity.units())),
                    Err(error @ QuantityError::Negative) => {
                        faults.push(fault(format!("is {}, which {error}; it counts as none", json::shown(value))));
                        Ok(None)
                    }
                    Err(error) => Err(fault(format!("is {}, which {error}", json::shown(value)))),
                }
            };
            let (cpu_request, cpu_limit) = (read("requests", &names.cpu)?, read("limits", &names.cpu)?);
            let (memory_request, memory_limit) = (read("requests", &names.memory)?, read("limits", &names.memory)?);
            let all = [cpu_request, cpu_limit, memory_request, memory_limit];
            resources.has_any |= all.iter().any(Option::is_some);
            let known = [names.cpu.first().cloned(), names.memory.first().cloned()];
            resources.insert(name, known, BatchResources { cpu_request, cpu_limit, memory_request, memory_limit });
        }
        Ok(resources)
    }

    /// Adds the resources of a container.
    fn insert(&mut self, container: &str, names: [Option<String>; 2], said: BatchResources) {
        let own = said.without_zeros();
        self.lost_units.extend(own.lost_units(names).map(|fault| (container.to_owned(), fault)));
        let memory_limit = own.memory_limit.map(|limit| limit.max(own.memory_request.unwrap_or(0)));
        self.containers.insert(container.to_owned(), BatchResources { memory_limit, ..own });
    }

    /// Whether the pod has no batch resource at all.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any
    }

    /// The resources of a container; `None` if the annotation does not name it.
    pub(crate) fn of_container(&self, name: &str) -> Option<&BatchResources> {
        self.containers.get(name)
    }

    /// Whether the container counts in the sums of its pod.
    pub(crate) fn counts(&self, name: &str) -> bool {
        self.containers.contains_key(name)
    }
}

impl BatchResources {
    fn without_zeros(self) -> Self {
        let some = |amount: Option<u64>| amount.filter(|amount| *amount > 0);
        Self {
            cpu_request: some(self.cpu_request),
            cpu_limit: some(self.cpu_limit),
            memory_request: some(self.memory_request),
            memory_limit: some(self.memory_limit),
        }
    }

    /// Implausible amounts, with what was probably meant: less memory than any container starts with, or less CPU than the smallest quota.
    fn lost_units(self, [cpu, memory]: [Option<String>; 2]) -> impl Iterator<Item = Fault> {
        let [cpu, memory] = [cpu.unwrap_or_default(), memory.unwrap_or_default()];
        let request = self.memory_request.filter(|_| self.memory_request != self.memory_limit);
        let bytes =
            [("limits", self.memory_limit), ("requests", request)].into_iter().filter_map(move |(kind, bytes)| {
                let bytes = bytes.filter(|bytes| *bytes < PLAUSIBLE_BYTES)?;
                let message = format!("is {bytes}, which is {bytes} bytes; was {bytes}Mi meant?");
                Some(Fault::new(&format!("{kind} {memory}"), message))
            });
        let milli = self.cpu_limit.filter(|milli| *milli < PLAUSIBLE_MILLI).map(|milli| {
            let message = format!("is {milli}, which is {milli} thousandths of a CPU; was {milli}000 meant?");
            Fault::new(&format!("limits {cpu}"), message)
        });
        milli.into_iter().chain(bytes)
    }
}

/// The first of the names that is present, with its amount.
fn first<'l>(list: Option<&'l Map<String, Value>>, names: &'l [String]) -> Option<(&'l String, &'l Value)> {
    let list = list?;
    names.iter().find_map(|name| Some((name, list.get(name)?)))
}
