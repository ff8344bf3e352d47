//! Mirror pods: the API server's copies of static pods, which the kubelet runs from its own manifests.
//!
//! Kubernetes: `pkg/kubelet/pod/mirror_client.go` (the annotations and the owner), `pkg/kubelet/types/pod_update.go` (the sources).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

const MIRROR: &str = "kubernetes.io/config.mirror";
const HASH: &str = "kubernetes.io/config.hash";
const SOURCE: &str = "kubernetes.io/config.source";

/// Whether a pod is a mirror.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mirror<'a> {
    /// The pod has no mirror annotation.
    None,
    /// The mirror of the static pod with this hash, after which the kubelet names the cgroup.
    Of(&'a str),
    /// The pod has the annotation, but the kubelet did not create it, for this reason.
    Untrue(String),
}

/// Whether a pod is a mirror, and the hash of its static pod.
///
/// The kubelet makes its Node the owner of each mirror, and records the source of the manifest. Any client that may create pods
/// can write the annotations.
pub(super) fn hash<'a>(
    annotations: &'a BTreeMap<String, String>,
    owners: &[OwnerReference],
    node: Option<&str>,
) -> Mirror<'a> {
    let Some(mirror) = annotations.get(MIRROR) else { return Mirror::None };
    let untrue = Mirror::Untrue;
    match annotations.get(SOURCE).map(String::as_str) {
        None | Some("") => return untrue(format!("annotation {SOURCE} is missing")),
        Some("api") => return untrue(format!("annotation {SOURCE} is `api`")),
        Some(_) => {}
    }
    match owners.iter().find(is_node) {
        None => return untrue("no Node is among its ownerReferences".to_owned()),
        Some(owner) if node.is_some_and(|node| node != owner.name) => {
            return untrue(format!("the Node `{}` that owns it is not the one that it runs on", owner.name));
        }
        Some(_) => {}
    }
    Mirror::Of(annotations.get(HASH).unwrap_or(mirror))
}

/// The UID of the Node that owns an object.
pub(crate) fn node_owner(owners: &[OwnerReference]) -> Option<&str> {
    owners.iter().find(is_node).map(|owner| owner.uid.as_str())
}

/// Why a mirror whose owner has the UID `owner` is not the kubelet's, on the Node with the UID `node`; `None` if it is.
///
/// The kubelet writes the UID of its own Node object. A Node that is deleted and registers again has another UID; the kubelet
/// then recreates its mirrors.
pub(crate) fn misfit(owner: Option<&str>, node: &str) -> Option<String> {
    (owner != Some(node))
        .then(|| format!("the UID of the Node that owns it, {}, is not that of this node", owner.unwrap_or("none")))
}

/// Field and message for a mirror that the kubelet did not create.
pub(crate) fn refusal(why: &str) -> (String, String) {
    let message = format!(
        "the kubelet did not make this mirror: {why}; the pod's own UID counts, leave annotations of the kubelet to the kubelet"
    );
    (format!("annotation {MIRROR}"), message)
}

fn is_node(owner: &&OwnerReference) -> bool {
    owner.kind == "Node" && owner.api_version == "v1"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(kind: &str, name: &str) -> OwnerReference {
        OwnerReference { api_version: "v1".into(), kind: kind.into(), name: name.into(), ..OwnerReference::default() }
    }

    fn annotations(source: Option<&str>) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::from([(MIRROR.into(), "hash".into()), (HASH.into(), "hash".into())]);
        annotations.extend(source.map(|source| (SOURCE.to_owned(), source.to_owned())));
        annotations
    }

    #[test]
    fn a_hash_counts_only_in_what_the_kubelet_made() {
        for (source, owners, node, is_mirror) in [
            (Some("file"), vec![owner("Node", "n1")], Some("n1"), true),
            (Some("http"), vec![owner("Node", "n1")], None, true),
            (Some("file"), vec![owner("ReplicaSet", "web"), owner("Node", "n1")], Some("n1"), true),
            (None, vec![owner("Node", "n1")], Some("n1"), false),
            (Some(""), vec![owner("Node", "n1")], Some("n1"), false),
            (Some("api"), vec![owner("Node", "n1")], Some("n1"), false),
            (Some("file"), vec![], Some("n1"), false),
            (Some("file"), vec![owner("ReplicaSet", "n1")], Some("n1"), false),
            (Some("file"), vec![owner("Node", "n2")], Some("n1"), false),
        ] {
            let annotations = annotations(source);
            let read = hash(&annotations, &owners, node);
            assert_eq!(read == Mirror::Of("hash"), is_mirror, "{source:?} {owners:?} {node:?}");
            assert_eq!(matches!(read, Mirror::Untrue(_)), !is_mirror, "{source:?} {owners:?} {node:?}");
        }
        assert_eq!(hash(&BTreeMap::from([(HASH.to_owned(), "hash".to_owned())]), &[], None), Mirror::None);
    }

    #[test]
    fn the_owner_of_a_mirror_is_the_node_object_that_is_there_now() {
        let with_uid = |owner: OwnerReference, uid: &str| OwnerReference { uid: uid.into(), ..owner };
        for (owners, node, fits) in [
            (vec![with_uid(owner("Node", "n1"), "u1")], "u1", true),
            (vec![with_uid(owner("ReplicaSet", "web"), "u2"), with_uid(owner("Node", "n1"), "u1")], "u1", true),
            (vec![with_uid(owner("Node", "n1"), "u2")], "u1", false),
            (vec![owner("Node", "n1")], "u1", false),
            (vec![with_uid(owner("ReplicaSet", "n1"), "u1")], "u1", false),
            (vec![], "u1", false),
        ] {
            assert_eq!(misfit(node_owner(&owners), node).is_none(), fits, "{owners:?} {node}");
        }
    }
}
