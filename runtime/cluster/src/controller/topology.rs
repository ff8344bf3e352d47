//! NodeResourceTopologies: CPUs and memory of nodes for schedulers that choose CPUs (Koordinator's reads these objects), made of what the
//! agents report.
//!
//! [`Topologies`] decides and does nothing itself, as [`super::colocation`] does; the requests are in [`carry_out`]. An object that another
//! program keeps (koordlet, node-feature-discovery) is left alone: those of the controller have a label of its own. One is removed when its
//! agent no longer reports CPUs, and ends with its Node.
//!
//! Koordinator: pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go, apis/extension/numa_aware.go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use kube::ResourceExt as _;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde_json::{Value, json};

use super::colocation::{AFTER_FAILURE, Attempts};
use super::node_view::NodeView;
use super::{CONTROLLER, NodeTopology};
use crate::kubernetes::{answered, explain};
use crate::node_report::ReportedTopology;
use crate::topology::GROUP;

/// Marks the objects that the controller made.
const LABEL: &str = "qosm.io/node-topology";
/// Whose objects Koordinator's own programs look for.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const CPU_TOPOLOGY: &str = "node.koordinator.sh/cpu-topology";
const CPU_MANAGER: &str = "kubelet.koordinator.sh/cpu-manager-policy";
const CPU_ALLOCS: &str = "node.koordinator.sh/pod-cpu-allocs";
/// What the controller writes of a zone; resources of other names stay.
const RESOURCES: [&str; 2] = ["cpu", "memory"];
/// An object is looked at again after this: somebody may have changed or deleted it.
const LOOK_AGAIN: Duration = Duration::from_secs(300);

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// Find out which nodes have an object of the controller's.
    List,
    /// Make or change one.
    Write { node: String, uid: String, topology: ReportedTopology },
    /// Remove it.
    Remove { node: String },
}

/// How it stands after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// As it is reported.
    AsReported,
    /// Another program keeps it.
    AnOthers,
    /// The API server has no such kind.
    NoSuchKind,
}

/// What became of it.
#[derive(Debug)]
pub(super) enum Done {
    Listed(Result<Vec<String>, String>),
    Written(String, ReportedTopology, Result<Written, String>),
    Removed(String, Result<(), String>),
}

/// All nodes with something to do for them.
#[derive(Debug)]
pub(super) struct Topologies {
    what: NodeTopology,
    nodes: BTreeMap<String, Entry>,
    listing: Attempts,
    is_listed: bool,
    /// Names that the list under way has brought; `None` outside of a list.
    listed_nodes: Option<BTreeSet<String>>,
    listed_reports: Option<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The Node's; `None` = there is none.
    uid: Option<String>,
    reported: Option<ReportedTopology>,
    /// What stands there of the controller's; the default where that is not known.
    written: Option<ReportedTopology>,
    /// Whether another program keeps the object.
    is_anothers: bool,
    again: Duration,
    attempts: Attempts,
}

impl Topologies {
    pub(super) fn new(what: NodeTopology) -> Self {
        Self {
            what,
            nodes: BTreeMap::new(),
            listing: Attempts::default(),
            is_listed: false,
            listed_nodes: None,
            listed_reports: None,
        }
    }

    /// Takes what the watch of Nodes brings.
    pub(super) fn node(&mut self, event: &Event<NodeView>) {
        match event {
            Event::Init => self.listed_nodes = Some(BTreeSet::new()),
            Event::InitApply(node) | Event::Apply(node) => {
                if let Some(listed) = &mut self.listed_nodes {
                    listed.insert(node.name_any());
                }
                self.node_is(&node.name_any(), node.metadata.uid.clone());
            }
            Event::Delete(node) => self.node_is(&node.name_any(), None),
            Event::InitDone => {
                let listed = self.listed_nodes.take().unwrap_or_default();
                self.missing(&listed).iter().for_each(|name| self.node_is(name, None));
            }
        }
    }

    fn node_is(&mut self, name: &str, uid: Option<String>) {
        let entry = self.nodes.entry(name.to_owned()).or_default();
        if entry.uid != uid && entry.uid.is_some() {
            // The object went with its Node.
            *entry = Entry { reported: entry.reported.take(), ..Entry::default() };
        }
        entry.uid = uid;
        self.forget_if_empty(name);
    }

    /// Takes what the watch of reports brings.
    pub(super) fn report(&mut self, event: &Event<DynamicObject>) {
        match event {
            Event::Init => self.listed_reports = Some(BTreeSet::new()),
            Event::InitApply(report) | Event::Apply(report) => {
                if let Some(listed) = &mut self.listed_reports {
                    listed.insert(report.name_any());
                }
                self.report_is(&report.name_any(), reported(report));
            }
            Event::Delete(report) => self.report_is(&report.name_any(), None),
            Event::InitDone => {
                let listed = self.listed_reports.take().unwrap_or_default();
                self.missing(&listed).iter().for_each(|name| self.report_is(name, None));
            }
        }
    }

    fn report_is(&mut self, name: &str, reported: Option<ReportedTopology>) {
        let reported = reported.filter(|_| self.what == NodeTopology::Publish);
        self.nodes.entry(name.to_owned()).or_default().reported = reported;
        self.forget_if_empty(name);
    }

    fn missing(&self, listed: &BTreeSet<String>) -> Vec<String> {
        self.nodes.keys().filter(|name| !listed.contains(*name)).cloned().collect()
    }

    fn forget_if_empty(&mut self, name: &str) {
        if self.nodes.get(name).is_some_and(|entry| entry.uid.is_none() && entry.reported.is_none()) {
            self.nodes.remove(name);
        }
    }

    /// What is to be done now.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Job> {
        if !self.is_listed {
            let is_due = self.listing.is_free(now);
            self.listing.is_under_way |= is_due;
            return is_due.then_some(Job::List).into_iter().collect();
        }
        let mut jobs = Vec::new();
        for (node, entry) in &mut self.nodes {
            if entry.attempts.is_free(now)
                && let Some(job) = entry.due(node, now)
            {
                entry.attempts.is_under_way = true;
                jobs.push(job);
            }
        }
        jobs
    }

    /// Takes back a job that was not begun.
    pub(super) fn abandoned(&mut self, job: &Job) {
        match job {
            Job::List => self.listing.is_under_way = false,
            Job::Write { node, .. } | Job::Remove { node } => {
                if let Some(entry) = self.nodes.get_mut(node) {
                    entry.attempts.is_under_way = false;
                }
            }
        }
    }

    /// Takes what became of a job.
    pub(super) fn done(&mut self, done: Done, now: Duration) {
        match done {
            Done::Listed(Ok(nodes)) => {
                self.listing.succeeded();
                self.is_listed = true;
                for node in nodes {
                    if let Some(entry) = self.nodes.get_mut(&node) {
                        entry.written.get_or_insert_default();
                    }
                }
            }
            Done::Listed(Err(error)) => {
                tracing::warn!(error, "NodeResourceTopologies not listed; tried again");
                self.listing.failed(error, AFTER_FAILURE, now);
            }
            Done::Written(node, topology, result) => {
                let Some(entry) = self.nodes.get_mut(&node) else { return };
                match result {
                    Ok(written) => entry.is_written(&node, topology, written, now),
                    Err(error) => {
                        tracing::warn!(node, error, "NodeResourceTopology not written; tried again");
                        entry.attempts.failed(error, AFTER_FAILURE, now);
                    }
                }
            }
            Done::Removed(node, result) => {
                let Some(entry) = self.nodes.get_mut(&node) else { return };
                match result {
                    Ok(()) => {
                        entry.attempts.succeeded();
                        entry.written = None;
                    }
                    Err(error) => {
                        tracing::warn!(node, error, "NodeResourceTopology not removed; tried again");
                        entry.attempts.failed(error, AFTER_FAILURE, now);
                    }
                }
            }
        }
    }
}

impl Entry {
    fn due(&self, node: &str, now: Duration) -> Option<Job> {
        match (&self.uid, &self.reported) {
            (Some(uid), Some(reported)) => {
                let is_same = self.written.as_ref() == Some(reported) || self.is_anothers;
                let job = || Job::Write { node: node.to_owned(), uid: uid.clone(), topology: reported.clone() };
                (!is_same || now >= self.again).then(job)
            }
            (Some(_), None) => self.written.as_ref().map(|_| Job::Remove { node: node.to_owned() }),
            (None, _) => None,
        }
    }

    fn is_written(&mut self, node: &str, topology: ReportedTopology, written: Written, now: Duration) {
        self.attempts.succeeded();
        self.again = now + LOOK_AGAIN;
        let is_anothers = written != Written::AsReported;
        if is_anothers && !self.is_anothers {
            let why = match written {
                Written::NoSuchKind => "this cluster has no NodeResourceTopology (CRD of topology.node.k8s.io)",
                Written::AnOthers | Written::AsReported => "another program keeps the node's",
            };
            tracing::info!(node, why, "NodeResourceTopology not written");
        }
        self.is_anothers = is_anothers;
        self.written = (!is_anothers).then_some(topology);
    }
}

/// What a report says of CPUs. One that cannot be read says nothing.
fn reported(report: &DynamicObject) -> Option<ReportedTopology> {
    let topology = report.data.get("status")?.get("topology").filter(|topology| !topology.is_null())?;
    ReportedTopology::deserialize(topology)
        .inspect_err(|error| {
            tracing::warn!(node = report.name_any(), %error, "report cannot be read; its CPUs are left out");
        })
        .ok()
}

/// Does one job.
pub(super) async fn carry_out(client: Client, job: Job) -> Done {
    let kind = GroupVersionKind::gvk(GROUP, "v1alpha1", "NodeResourceTopology");
    let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
    let topologies: Api<DynamicObject> = Api::all_with(client, &resource);
    match job {
        Job::List => {
            let own = ListParams::default().labels(LABEL);
            let listed = match answered(topologies.list_metadata(&own)).await {
                Ok(list) => Ok(list.items.iter().map(kube::ResourceExt::name_any).collect()),
                Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Vec::new()),
                Err(error) => Err(explain(&error)),
            };
            Done::Listed(listed)
        }
        Job::Write { node, uid, topology } => {
            let written = match object(&node, &uid, &topology) {
                Ok(made) => write(&topologies, &node, &made).await.map_err(|error| explain(&error)),
                Err(error) => Err(error),
            };
            Done::Written(node, topology, written)
        }
        Job::Remove { node } => {
            let removed = remove(&topologies, &node).await.map_err(|error| explain(&error));
            Done::Removed(node, removed)
        }
    }
}

async fn write(topologies: &Api<DynamicObject>, node: &str, made: &Value) -> Result<Written, kube::Error> {
    let there = match answered(topologies.get(node)).await {
        Ok(there) => there,
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            let params = PostParams { field_manager: Some(CONTROLLER.into()), ..PostParams::default() };
            let made = serde_json::from_value(made.clone()).map_err(kube::Error::SerdeError)?;
            return match answered(topologies.create(&params, &made)).await {
                Ok(_) => Ok(Written::AsReported),
                Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Written::NoSuchKind),
                Err(error) => Err(error),
            };
        }
        Err(error) => return Err(error),
    };
    if !is_own(&there) {
        return Ok(Written::AnOthers);
    }
    if let Some(patch) = change(&there, made) {
        let params = PatchParams { field_manager: Some(CONTROLLER.into()), ..PatchParams::default() };
        answered(topologies.patch(node, &params, &Patch::Merge(patch))).await?;
    }
    Ok(Written::AsReported)
}

async fn remove(topologies: &Api<DynamicObject>, node: &str) -> Result<(), kube::Error> {
    let gone = |error| match error {
        kube::Error::Api(answer) if answer.code == 404 => Ok(()),
        other => Err(other),
    };
    let there = match answered(topologies.get(node)).await {
        Ok(there) => there,
        Err(error) => return gone(error),
    };
    if !is_own(&there) {
        return Ok(());
    }
    // Not one that another program has made in its place meanwhile.
    let preconditions = Preconditions { uid: there.uid(), resource_version: there.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    answered(topologies.delete(node, &params)).await.map(drop).or_else(gone)
}

fn is_own(there: &DynamicObject) -> bool {
    there.labels().contains_key(LABEL)
}

/// The object of a node.
fn object(node: &str, uid: &str, topology: &ReportedTopology) -> Result<Value, String> {
    let cpus = topology.cpus()?;
    let detail: Vec<Value> = (cpus.iter())
        .map(|cpu| json!({"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.numa_node}))
        .collect();
    let mut manager = json!({"policy": topology.cpu_manager, "reservedCPUs": topology.reserved});
    if topology.cpu_manager == "unknown" {
        manager["policy"] = json!("");
    }
    let allocs: Vec<Value> = (topology.exclusive.iter())
        .map(|pod| {
            json!({"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "cpuset": pod.cpus, "managedByKubelet": true})
        })
        .collect();
    let zones: Vec<Value> = (topology.numa_nodes.iter())
        .map(|numa| {
            let count = cpus.iter().filter(|cpu| cpu.numa_node == numa.id).count();
            let [cpu, memory] = RESOURCES;
            let amounts = [amount(cpu, &count.to_string()), amount(memory, &numa.memory_bytes.to_string())];
            json!({"name": format!("node-{}", numa.id), "type": "Node", "resources": amounts})
        })
        .collect();
    Ok(json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "labels": {LABEL: "", MANAGED_BY: "Koordinator"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
            "annotations": {
                CPU_TOPOLOGY: json!({"detail": detail}).to_string(),
                CPU_MANAGER: manager.to_string(),
                CPU_ALLOCS: Value::from(allocs).to_string(),
            },
        },
        "topologyPolicies": ["None"],
        "zones": zones,
    }))
}

fn amount(name: &str, amount: &str) -> Value {
    json!({"name": name, "capacity": amount, "allocatable": amount, "available": amount})
}

/// What of an object that is there has to become another; `None` = nothing. Resources of other names stay in their zones.
fn change(there: &DynamicObject, made: &Value) -> Option<Value> {
    let before = there.data.get("zones").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut zones = made["zones"].as_array().cloned().unwrap_or_default();
    for zone in &mut zones {
        let Some(old) = before.iter().find(|old| old["name"] == zone["name"]) else { continue };
        let is_others = |resource: &&Value| !RESOURCES.iter().any(|name| resource["name"] == *name);
        let others = old["resources"].as_array().into_iter().flatten().filter(is_others).cloned();
        if let Some(resources) = zone["resources"].as_array_mut() {
            resources.extend(others);
        }
    }
    let metadata = &made["metadata"];
    let has = |there: &BTreeMap<String, String>, wanted: &Value| {
        wanted
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| there.get(key).map(String::as_str) == value.as_str())
    };
    let owners = serde_json::to_value(there.owner_references()).unwrap_or_default();
    if same_zones(&before, &zones)
        && has(there.annotations(), &metadata["annotations"])
        && has(there.labels(), &metadata["labels"])
        && owners == metadata["ownerReferences"]
    {
        return None;
    }
    Some(json!({
        "metadata": {
            "resourceVersion": there.resource_version(), "labels": metadata["labels"], "annotations": metadata["annotations"],
            "ownerReferences": metadata["ownerReferences"],
        },
        "zones": zones,
    }))
}

/// Whether zones are the same, whatever order their resources stand in.
fn same_zones(one: &[Value], other: &[Value]) -> bool {
    let sorted = |zones: &[Value]| {
        let mut zones = zones.to_vec();
        for zone in &mut zones {
            if let Some(resources) = zone["resources"].as_array_mut() {
                resources.sort_by_key(|resource| resource["name"].to_string());
            }
        }
        zones
    };
    sorted(one) == sorted(other)
}

#[cfg(test)]
mod tests;
