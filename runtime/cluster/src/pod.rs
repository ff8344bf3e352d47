//! Pods from manifests.
//!
//! Manifests in a folder do not pass an API server, so this module sets its defaults: the namespace, requests from limits, the
//! UID and the QoS class.

mod binding;
mod in_force;
mod lifecycle;
pub(crate) mod mirror;
mod resources;
mod status;

use k8s_openapi::api::core::v1;
use qosm_model::pod::{Container, ContainerKind, Pod, QosClass};
use qosm_model::problem::Problem;
use qosm_model::unit::{Bytes, MilliCpu};
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::binding::Binding;
pub use self::binding::CGROUP_ANNOTATION;
use self::in_force::InForce;
use self::mirror::Mirror;
use self::resources::{Amounts, PodAmounts, Reader};
use self::status::Status;
use crate::object::{KUBERNETES, Read, refused, unknown_fields};

/// The origin of a pod, which decides how far the agent trusts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// A manifest on the node: its author may write the node's cgroups anyway.
    Manifest,
    /// The API server: the pod's author must not reach other pods' cgroups.
    ApiServer,
}

/// Reads a Pod. `origin` names the place for problems, e.g. `web.yaml, document 2`.
///
/// - A missing namespace is `default`. A missing UID is made of namespace and name: the first 16 bytes of the SHA-256 of
///   `qosm/pod/NAMESPACE/NAME`, marked as a UUID of version 8. The UID of a mirror pod that the kubelet made is its
///   `kubernetes.io/config.hash`; such a pod has a Node among its owners and a `kubernetes.io/config.source` other than `api`.
///   [`crate::Kubernetes`] knows the Node's UID and compares it with the owner's.
/// - A pod without `status.phase` is active, and so are its containers without a status: regular ones and sidecars run, init
///   containers have ended.
/// - A missing request equals the limit.
/// - `qosm.io/cgroup` binds containers to cgroups, see [`CGROUP_ANNOTATION`]; in a pod from the API server the annotation is ignored.
///
/// # Errors
///
/// The field that makes the pod unusable: it has the wrong type, or the name is missing or invalid.
pub fn pod_from_value(value: Value, origin: &str, giver: Giver) -> Result<Read<Pod>, Problem> {
    let (read, unknown) = crate::typed::read::<v1::Pod>(value).map_err(|misfit| refused(origin, "Pod", misfit))?;
    let v1::Pod { metadata, spec, status } = read;
    let spec = spec.unwrap_or_default();
    let labels = metadata.labels.unwrap_or_default();
    let annotations = metadata.annotations.unwrap_or_default();

    let non_empty = |text: Option<String>| text.filter(|text| !text.is_empty());
    let name = non_empty(metadata.name).ok_or_else(|| {
        let message = "it is missing; the Pod is not read, write a name (`generateName` is not expanded here)";
        problem(origin, "metadata.name", message)
    })?;
    check_name(origin, "metadata.name", &name)?;
    let namespace = non_empty(metadata.namespace).unwrap_or_else(|| "default".into());
    check_name(origin, "metadata.namespace", &namespace)?;
    let object = format!("pod {namespace}/{name}");
    let mut reader = Reader { object: &object, origin, problems: unknown_fields(KUBERNETES, &object, origin, unknown) };
    let owners = metadata.owner_references.unwrap_or_default();
    let mirror = mirror::hash(&annotations, &owners, spec.node_name.as_deref());
    let lifecycle = lifecycle::read(
        &owners,
        matches!(mirror, Mirror::Of(_)),
        lifecycle::Times {
            created: metadata.creation_timestamp,
            deleted: metadata.deletion_timestamp,
            deletion_grace_seconds: metadata.deletion_grace_period_seconds,
            termination_grace_seconds: spec.termination_grace_period_seconds,
        },
        spec.restart_policy.as_deref(),
        &mut reader,
    );
    let (uid_field, uid) = match mirror {
        Mirror::Of(hash) => ("metadata.annotations", Some(hash.to_owned())),
        Mirror::Untrue(why) => {
            let (field, message) = mirror::refusal(&why);
            reader.report(&field, message);
            ("metadata.uid", non_empty(metadata.uid))
        }
        Mirror::None => ("metadata.uid", non_empty(metadata.uid)),
    };
    let uid = uid.unwrap_or_else(|| made_uid(&namespace, &name));
    check_name(origin, uid_field, &uid)?;
    let given = containers(spec.init_containers.unwrap_or_default(), spec.containers, origin, &mut reader)?;
    let amounts = PodAmounts::read(spec.resources.as_ref(), &given, &mut reader);
    let overhead = reader.list(spec.overhead.as_ref(), "spec.overhead");
    let status = Status::read(status, metadata.generation, &mut reader);
    let kube_qos = status.kube_qos.unwrap_or_else(|| amounts.kube_qos(&given));
    let names = given.iter().map(|container| container.name.as_str());
    let binding = match giver {
        Giver::Manifest => Binding::read(&annotations, names, &mut reader),
        Giver::ApiServer => Binding::refuse(&annotations, &mut reader),
    };
    let pod_resources = amounts.pod.compute();
    let is_allocated_otherwise = |given: &Given| {
        status.told(&given.name).is_some_and(|told| told.is_allocated_otherwise(&given.amounts.compute()))
    };
    let is_resizing = status.resize.is_some()
        || status.is_behind
        || status.told.is_allocated_otherwise(&pod_resources)
        || given.iter().any(is_allocated_otherwise);
    let whole = status.told.in_force(pod_resources, is_resizing);
    let containers: Vec<Container> = given
        .into_iter()
        .map(|Given { name, kind, amounts, .. }| {
            let told = status.told(&name).cloned().unwrap_or_default();
            let InForce { now, next } = told.in_force(amounts.compute(), is_resizing);
            let bound = binding.container(&name);
            let (state, runtime) = status.container(&name, kind, bound.is_some());
            Container {
                state,
                cgroup: bound.unwrap_or(runtime),
                kind,
                cpu_request: now.cpu_request,
                cpu_limit: now.cpu_limit,
                memory_request: now.memory_request,
                memory_limit: now.memory_limit,
                extended_resources: amounts.extended(),
                next,
                name,
            }
        })
        .collect();
    let is_unlike = whole.next.is_some() || containers.iter().any(|container| container.next.is_some());
    let resize = status.resize.or_else(|| is_unlike.then(|| "the kubelet has not carried it out yet".to_owned()));
    let problems = reader.problems;
    let pod = Pod {
        uid,
        namespace,
        name,
        labels,
        annotations,
        priority: spec.priority,
        kube_qos,
        active: status.active,
        host_pid: spec.host_pid.unwrap_or(false),
        cgroup: binding.pod,
        containers,
        cpu_overhead: MilliCpu(overhead.get("cpu").map_or(0, |cpu| cpu.millis())),
        memory_overhead: Bytes(overhead.get("memory").map_or(0, |memory| memory.units())),
        memory_request: whole.now.memory_request,
        memory_limit: whole.now.memory_limit,
        cpu_limit: whole.now.cpu_limit,
        cpu_request: whole.now.cpu_request,
        next: whole.next,
        resize,
        lifecycle,
    };
    let mut read = Read { object: pod, problems };
    check_class(&mut read, origin);
    Ok(read)
}

/// A container of the specification.
struct Given {
    name: String,
    kind: ContainerKind,
    amounts: Amounts,
}

/// Init containers and sidecars first, then regular ones.
fn containers(
    init: Vec<v1::Container>,
    regular: Vec<v1::Container>,
    origin: &str,
    reader: &mut Reader<'_>,
) -> Result<Vec<Given>, Problem> {
    let mut given: Vec<Given> = Vec::new();
    if regular.is_empty() {
        reader.report(
            "spec.containers",
            "there are none, and Kubernetes wants at least one; nothing but the pod itself counts".into(),
        );
    }
    for (list, is_init, containers) in [("spec.initContainers", true, init), ("spec.containers", false, regular)] {
        for (index, container) in containers.into_iter().enumerate() {
            let path = format!("{list}[{index}]");
            if container.name.is_empty() {
                return Err(problem(
                    origin,
                    &format!("{path}.name"),
                    "it is missing; the Pod is not read, write a name",
                ));
            }
            check_name(origin, &format!("{path}.name"), &container.name)?;
            let amounts = Amounts::read(container.resources.as_ref(), &format!("{path}.resources"), reader);
            if given.iter().any(|other| other.name == container.name) {
                let message =
                    format!("another container is called `{}` already; this one is ignored, rename it", container.name);
                reader.report(&format!("{path}.name"), message);
                continue;
            }
            let kind = match (is_init, container.restart_policy.as_deref()) {
                (false, _) => ContainerKind::Regular,
                (true, Some("Always")) => ContainerKind::Sidecar,
                (true, None | Some("" | "OnFailure" | "Never")) => ContainerKind::Init,
                (true, Some(word)) => {
                    let message = format!(
                        "{} is no restart policy; it counts as an init container that runs to its end, write `Always` for a sidecar",
                        Value::from(word)
                    );
                    reader.report(&format!("{path}.restartPolicy"), message);
                    ContainerKind::Init
                }
            };
            given.push(Given { name: container.name, kind, amounts });
        }
    }
    Ok(given)
}

fn check_name(origin: &str, field: &str, name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    let message = "it is no name; the Pod is not read, write letters, digits, `-`, `_` and `.`, at most 253 of them";
    Err(problem(origin, field, message))
}

/// Whether a text may be part of paths and messages; every valid Kubernetes name passes.
pub(crate) fn is_name(name: &str) -> bool {
    const MAX_LENGTH: usize = 253;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    name.len() <= MAX_LENGTH && name.bytes().all(fits) && name.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// Maximum number of misspelt keys of a kind that are named: a pod's owner may write thousands.
const NAMED: usize = 4;

fn check_class(read: &mut Read<Pod>, origin: &str) {
    let object = format!("pod {}", read.object.key());
    for (written, meant) in read.object.misspelt_keys().into_iter().take(NAMED) {
        let message = format!("ignored: keys are compared letter by letter; write {meant} (in {origin})");
        read.problems.push(Problem { object: object.clone(), field: Some(written), message });
    }
    for (written, meant) in read.object.slips().into_iter().take(NAMED) {
        let message = format!("ignored: qosm does not read this key; did you mean `qosm.io/{meant}`? (in {origin})");
        read.problems.push(Problem { object: object.clone(), field: Some(format!("annotation {written}")), message });
    }
    if let Some((place, word)) = read.object.qos_word()
        && QosClass::parse(word).is_none()
    {
        let message = format!(
            "{} is no QoS class; the pod counts as having none, write one of LSE, LSR, LS, BE, SYSTEM (in {origin})",
            Value::from(word)
        );
        read.problems.push(Problem { object, field: Some(place.into()), message });
    }
}

fn made_uid(namespace: &str, name: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(format!("qosm/pod/{namespace}/{name}")).into();
    let mut bytes: Vec<u8> = digest.into_iter().take(16).collect();
    // RFC 9562, section 5.8: version 8 is for custom UUIDs.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn problem(origin: &str, field: &str, message: &str) -> Problem {
    Problem { object: origin.into(), field: Some(field.into()), message: message.into() }
}
