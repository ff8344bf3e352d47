//! The requests to the API server behind a [`Job`].

use k8s_openapi::api::core::v1;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::api::{Api, ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, Status};
use kube::runtime::events::Recorder;
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::super::CONTROLLER;
use super::super::node_view::NodeView;
use super::publication::PUBLISHED;
use super::{Done, Ended, EvictionRules, Job, Zones};
use crate::kubernetes::events::publish;
use crate::kubernetes::{answered, explain};
use crate::node_report::{NodePolicyReport, ReportedEviction};

/// Lowest priority of system-critical pods: they run the cluster or the node.
const CRITICAL: i32 = 2_000_000_000;
/// Annotation with which the kubelet marks mirror pods.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Reasons of events on pods, named as in koordlet.
const EVICTED: &str = "evictPodSuccess";
const NOT_EVICTED: &str = "evictPodFail";

/// Carries out one job.
pub(in super::super) async fn carry_out(client: Client, recorder: Recorder, rules: EvictionRules, job: Job) -> Done {
    match job {
        Job::Publish { node, patch } => {
            let nodes: Api<NodeView> = Api::all(client);
            let params = PatchParams { field_manager: Some(CONTROLLER.into()), ..PatchParams::default() };
            let written = answered(nodes.patch_status(&node, &params, &Patch::Merge(patch))).await;
            Done::Published(node, written.map(Box::new).map_err(|error| explain(&error)))
        }
        Job::PublishZones { node, zones } => {
            let written = publish_zones(client, &node, &zones).await.map_err(|error| explain(&error));
            Done::PublishedZones(node, zones, written)
        }
        Job::Evict { node, eviction, told } => {
            let ended = evict(&client, &node, &eviction, &rules).await;
            tell(&recorder, &eviction, &ended, told.as_deref()).await;
            Done::Evicted(node, eviction.uid, ended)
        }
        Job::Look { node, eviction } => {
            let pods: Api<v1::Pod> = Api::namespaced(client, &eviction.namespace);
            let is_gone = match answered(pods.get_opt(&eviction.name)).await {
                Ok(pod) => pod.is_none_or(|pod| pod.metadata.uid.as_ref() != Some(&eviction.uid) || has_ended(&pod)),
                Err(_) => false,
            };
            Done::Looked(node, eviction.uid, is_gone)
        }
        Job::Answer { node, answer } => {
            let reports: Api<NodePolicyReport> = Api::all(client);
            let params = PatchParams { field_manager: Some(CONTROLLER.into()), ..PatchParams::default() };
            // All fields, because a merge patch keeps those that it leaves out.
            let patch = json!({"status": {"controller": {
                "at": answer.at, "resources": answer.resources, "evictions": answer.evictions,
            }}});
            let written = answered(reports.patch_status(&node, &params, &Patch::Merge(&patch))).await;
            Done::Answered(node, answer, written.map(drop).map_err(|error| explain(&error)))
        }
    }
}

/// Evicts a pod if its UID matches, it runs on the requesting node, and the rules allow it.
async fn evict(client: &Client, node: &str, asked: &ReportedEviction, rules: &EvictionRules) -> Ended {
    let pods: Api<v1::Pod> = Api::namespaced(client.clone(), &asked.namespace);
    let pod = match answered(pods.get_opt(&asked.name)).await {
        Ok(Some(pod)) => pod,
        Ok(None) => return Ended::Gone("there is no such pod".to_owned()),
        Err(error) => return Ended::Refused(explain(&error)),
    };
    if let Some(ended) = forbids(&pod, node, asked, rules) {
        return ended;
    }
    let eviction = request(asked);
    // Not `Api::evict`: it serializes `delete_options`, a name that the API server ignores, so the UID would not be checked.
    let params = PostParams::default();
    let created = pods.create_subresource::<Eviction, Status>("eviction", &asked.name, &params, &eviction);
    outcome(answered(created).await.and_then(granted), asked)
}

/// Turns a status of failure into an error. For a pod with more than one PodDisruptionBudget the API server refuses the eviction with
/// HTTP 201 and such a status.
fn granted(status: Status) -> Result<(), kube::Error> {
    if status.is_failure() { Err(kube::Error::Api(Box::new(status))) } else { Ok(()) }
}

/// The eviction request. With a grace period of 0 the API server would delete the pod while its processes still run, and a new
/// pod of the same name could start beside them: so the grace period is at least 1 s, whatever the report says.
fn request(asked: &ReportedEviction) -> Eviction {
    Eviction {
        metadata: ObjectMeta { name: Some(asked.name.clone()), ..ObjectMeta::default() },
        delete_options: Some(DeleteOptions {
            grace_period_seconds: asked.grace_period_seconds.map(|seconds| i64::from(seconds.max(1))),
            preconditions: Some(Preconditions { uid: Some(asked.uid.clone()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    }
}

/// Translates the API server's response to an eviction.
fn outcome(answer: Result<(), kube::Error>, asked: &ReportedEviction) -> Ended {
    match answer {
        Ok(()) => Ended::Accepted(String::new()),
        Err(kube::Error::Api(status)) => match status.code {
            404 => Ended::Gone("there is no such pod".to_owned()),
            // The UID precondition failed: another pod has the name now.
            409 => Ended::Gone(format!("the pod of that name is another: {}", status.message)),
            429 => Ended::Refused(format!("a PodDisruptionBudget forbids it for now: {}", status.message)),
            _ => Ended::Refused(explain(&kube::Error::Api(status))),
        },
        // The eviction may have been accepted: the next attempt finds a pod that is being deleted, or none.
        Err(error) => Ended::Refused(format!("{} ({})", explain(&error), asked.uid)),
    }
}

/// The outcome without a request: the pod must not be evicted, or is gone or terminating already. `None` if it may be evicted.
fn forbids(pod: &v1::Pod, node: &str, asked: &ReportedEviction, rules: &EvictionRules) -> Option<Ended> {
    let spec = pod.spec.as_ref();
    let annotations = pod.annotations();
    let stands_on = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let for_good = |why: String| Some(Ended::RefusedForGood(why));
    // First, because a mirror pod's UID differs from that of the kubelet's pod.
    if annotations.contains_key(MIRROR) {
        return for_good("it is a static pod: its kubelet would start it again".to_owned());
    }
    if pod.metadata.uid.as_ref() != Some(&asked.uid) {
        return Some(Ended::Gone("the pod of that name is another one now".to_owned()));
    }
    if stands_on != node {
        let place = if stands_on.is_empty() { "no node" } else { stands_on };
        return for_good(format!("it stands on {place}, and {node} may not ask for it"));
    }
    if rules.protected_namespaces.contains(&asked.namespace) {
        return for_good(format!("no pod of namespace {} is evicted: it is protected", asked.namespace));
    }
    let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
    if priority >= CRITICAL {
        return for_good(format!("its priority is {priority}: pods from {CRITICAL} on are never evicted"));
    }
    if !rules.daemon_set_pods && pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet") {
        let way_out = "the chart's value colocation.evictions.daemonSetPods allows it";
        return for_good(format!("it belongs to a DaemonSet and would come back at once; {way_out}"));
    }
    if has_ended(pod) {
        return Some(Ended::Gone("it has ended already".to_owned()));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Ended::Accepted("it was being deleted already".to_owned()));
    }
    None
}

fn has_ended(pod: &v1::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Publishes an event for the pod's owner. A refusal is not published twice.
async fn tell(recorder: &Recorder, asked: &ReportedEviction, ended: &Ended, told: Option<&str>) {
    let Some((reason, message)) = news(asked, ended, told) else { return };
    let pod = v1::ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        namespace: Some(asked.namespace.clone()),
        name: Some(asked.name.clone()),
        uid: Some(asked.uid.clone()),
        ..v1::ObjectReference::default()
    };
    let source = format!("policy {}", asked.policy);
    if let Err(error) = publish(recorder, &pod, true, reason, &message, &source).await {
        tracing::warn!(pod = asked.name, reason, error = explain(&error), "event not published");
    }
}

/// Reason and message of the event; `None` if there is no event. The policy's message comes first: koordlet's events begin with it, too.
fn news(asked: &ReportedEviction, ended: &Ended, told: Option<&str>) -> Option<(&'static str, String)> {
    match ended {
        Ended::Accepted(why) if why.is_empty() => Some((EVICTED, asked.message.clone())),
        // Another client deleted the pod, or it is gone.
        Ended::Accepted(_) | Ended::Gone(_) => None,
        Ended::Refused(why) | Ended::RefusedForGood(why) => {
            (told != Some(why.as_str())).then(|| (NOT_EVICTED, format!("{}; {why}", asked.message)))
        }
    }
}

/// Writes shares into the zones of the node's NodeResourceTopology. Does nothing if the kind or the object does
/// not exist: it never creates one.
async fn publish_zones(client: Client, node: &str, zones: &Zones) -> Result<(), kube::Error> {
    let kind = GroupVersionKind::gvk("topology.node.k8s.io", "v1alpha1", "NodeResourceTopology");
    let resource = ApiResource::from_gvk_with_plural(&kind, "noderesourcetopologies");
    let topologies: Api<DynamicObject> = Api::all_with(client, &resource);
    let topology = match answered(topologies.get(node)).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => return Ok(()),
        answer => answer?,
    };
    let Some(patch) = zones_patch(&topology, zones) else { return Ok(()) };
    let params = PatchParams { field_manager: Some(CONTROLLER.into()), ..PatchParams::default() };
    answered(topologies.patch(node, &params, &Patch::Merge(patch))).await.map(drop)
}

/// A merge patch of the zones `node-0`, `node-1`, … with the shares. Shares that were written before and are no longer wanted
/// become 0, as with koord-manager. `None` if nothing changes.
fn zones_patch(topology: &DynamicObject, wanted: &Zones) -> Option<Value> {
    let before = topology.data.get("zones").and_then(Value::as_array).cloned().unwrap_or_default();
    let annotation = topology.annotations().get(PUBLISHED).map_or("", String::as_str);
    let managed: Vec<&str> = annotation.split(',').filter(|name| name.contains('/')).collect();
    let mut zones = before.clone();
    for zone in &mut zones {
        let number = zone.get("name").and_then(Value::as_str).and_then(|name| name.strip_prefix("node-")?.parse().ok());
        let Some(number): Option<u32> = number else { continue };
        let Some(zone) = zone.as_object_mut() else { continue };
        if !zone.contains_key("resources") && !wanted.values().any(|shares| shares.contains_key(&number)) {
            continue;
        }
        let resources = zone.entry("resources").or_insert_with(|| json!([]));
        let Some(resources) = resources.as_array_mut() else { continue };
        let name_of = |resource: &Value| resource.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let share_of = |name: &str| wanted.get(name).and_then(|shares| shares.get(&number)).copied();
        let is_there = |resource: &&mut Value| managed.contains(&name_of(resource).as_str());
        for there in resources.iter_mut().filter(is_there) {
            set_share(there, share_of(&name_of(there)).unwrap_or(0));
        }
        for (name, share) in wanted.keys().filter_map(|name| Some((name, share_of(name)?))) {
            match resources.iter_mut().find(|resource| name_of(resource) == *name) {
                Some(there) => set_share(there, share),
                None => {
                    let mut new = json!({"name": name});
                    set_share(&mut new, share);
                    resources.push(new);
                }
            }
        }
    }
    let names = wanted.keys().cloned().collect::<Vec<_>>().join(",");
    if zones == before && names == annotation {
        return None;
    }
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), topology.resource_version().into());
    let marked = if names.is_empty() { Value::Null } else { names.into() };
    metadata.insert("annotations".to_owned(), json!({PUBLISHED: marked}));
    Some(json!({"metadata": metadata, "zones": zones}))
}

/// Sets all three amounts of a zone's resource to the share.
fn set_share(resource: &mut Value, share: u64) {
    if let Some(fields) = resource.as_object_mut() {
        for field in ["capacity", "allocatable", "available"] {
            fields.insert(field.to_owned(), share.to_string().into());
        }
    }
}

#[cfg(test)]
mod tests;
