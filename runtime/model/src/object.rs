//! Fields of Kubernetes objects beyond those that every policy gets.

use std::collections::BTreeMap;

use crate::pod::{Node, NodeResource, Pod, PodId, PodLifecycle};
use crate::unit::{Bytes, MilliCpu};

/// Maximum length of an annotation that policies get, in bytes.
const ANNOTATION_BYTES: usize = 16 << 10;
/// Maximum length of all annotations of a pod that policies get, in bytes. Kubernetes takes 256 KiB, which the memory of an instance would
/// not hold of a hundred pods.
const ANNOTATIONS_BYTES: usize = 64 << 10;

/// Maximum length of all labels of a pod that policies get, in bytes. Kubernetes bounds only the object.
const LABELS_BYTES: usize = 16 << 10;

/// The labels of a pod that policies get, by key, up to 16 KiB: an instance's memory has to hold those of all pods.
pub fn labels(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    bounded(&pod.labels, LABELS_BYTES, LABELS_BYTES)
}

/// Entries with a value of at most `each` bytes, by key, up to `all` bytes.
fn bounded(map: &BTreeMap<String, String>, each: usize, all: usize) -> impl Iterator<Item = (&str, &str)> {
    let mut left = all;
    map.iter().map(|(key, value)| (key.as_str(), value.as_str())).filter(move |(key, value)| {
        let rest = left.checked_sub(key.len().saturating_add(value.len())).filter(|_| value.len() <= each);
        left = rest.unwrap_or(left);
        rest.is_some()
    })
}

/// Fields of a Pod object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObject {
    /// The pod.
    pub pod: PodId,
    /// The annotations of at most 16 KiB, by key, up to 64 KiB.
    pub annotations: BTreeMap<String, String>,
    /// The pod-level request.
    pub cpu_request: Option<MilliCpu>,
    /// Creation, deletion and ownership of the pod.
    pub lifecycle: PodLifecycle,
}

impl PodObject {
    /// The fields of a pod.
    pub fn of(id: PodId, pod: &Pod) -> Self {
        let annotations = bounded(&pod.annotations, ANNOTATION_BYTES, ANNOTATIONS_BYTES);
        Self {
            pod: id,
            annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            cpu_request: pod.cpu_request,
            lifecycle: pod.lifecycle.clone(),
        }
    }
}

/// The node as policies see it: CPU and memory missing in the object come from the machine, and without a reservation all
/// of it is allocatable. `memory` is `None` if the machine does not report it.
pub fn completed(node: &Node, cpus: u32, memory: Option<Bytes>) -> Node {
    let mut node = node.clone();
    let cpu = Some(i64::from(cpus).saturating_mul(1000));
    let memory = memory.map(|bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX));
    for (name, amount) in [("cpu", cpu), ("memory", memory)] {
        let place = node.resources.binary_search_by(|resource| resource.name.as_str().cmp(name));
        let place = place.unwrap_or_else(|place| {
            node.resources.insert(place, NodeResource { name: name.to_owned(), ..NodeResource::default() });
            place
        });
        if let Some(resource) = node.resources.get_mut(place) {
            resource.capacity = resource.capacity.or(amount);
            resource.allocatable = resource.allocatable.or(resource.capacity);
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_policies_get_of_a_pods_texts_is_bounded() {
        let texts = |lengths: &[(&str, usize)]| -> BTreeMap<String, String> {
            lengths.iter().map(|(key, length)| ((*key).to_owned(), "x".repeat(*length))).collect()
        };
        let left = |lengths: &[(&str, usize)]| {
            bounded(&texts(lengths), 10, 20).map(|(key, _)| key.to_owned()).collect::<Vec<_>>().join("")
        };
        assert_eq!(left(&[("a", 4), ("b", 5)]), "ab");
        assert_eq!(left(&[("a", 11), ("b", 10), ("c", 8)]), "bc", "a long one is left out, and takes no room");
        assert_eq!(left(&[("a", 10), ("b", 9), ("c", 0)]), "ac", "so is one that does not fit");
    }

    #[test]
    fn a_node_without_amounts_has_what_the_machine_has() {
        let resource =
            |name: &str, capacity, allocatable| NodeResource { name: name.to_owned(), capacity, allocatable };
        let machine = [resource("cpu", Some(8_000), Some(8_000)), resource("memory", Some(4096), Some(4096))];
        for (said, expected) in [
            (vec![], machine.to_vec()),
            (
                vec![resource("cpu", Some(4_000), Some(3_900)), resource("memory", None, Some(2048))],
                vec![resource("cpu", Some(4_000), Some(3_900)), resource("memory", Some(4096), Some(2048))],
            ),
            (
                vec![resource("a", None, Some(1)), resource("cpu", Some(2_000), None), resource("z", Some(5), None)],
                vec![
                    resource("a", None, Some(1)),
                    resource("cpu", Some(2_000), Some(2_000)),
                    resource("memory", Some(4096), Some(4096)),
                    resource("z", Some(5), None),
                ],
            ),
        ] {
            let node = Node { resources: said, ..Node::default() };
            assert_eq!(completed(&node, 8, Some(Bytes(4096))).resources, expected);
        }
    }
}
