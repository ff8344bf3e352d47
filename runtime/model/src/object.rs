//! Fields of Kubernetes objects beyond those that every policy gets.

use std::collections::BTreeMap;

use crate::pod::{Node, NodeResource, Pod, PodId, PodLifecycle, is_read};
use crate::unit::{Bytes, MilliCpu};

/// Room for the labels of a pod that policies get, in bytes. Kubernetes bounds only the object.
const LABELS_BYTES: usize = 8 << 10;
/// Room for its annotations. Kubernetes takes 256 KiB, and an instance of 32 MiB has to hold those of all pods.
const ANNOTATIONS_BYTES: usize = 32 << 10;
/// Length to which the value of a known key is cut; policies read less.
const VALUE_BYTES: usize = 16 << 10;
/// Length to which it is cut where there is no room: the key stays, with a value that cannot be read.
const CUT_BYTES: usize = 64;

/// The labels of a pod that policies get: those that qosm knows first, then by key while there is room.
pub fn labels(pod: &Pod) -> BTreeMap<&str, &str> {
    handed(&pod.labels, "label", pod.active, LABELS_BYTES)
}

/// What policies get of labels or annotations, so that no pod's owner fills an instance's memory, and none pushes out a known key with
/// others. Of a pod that has ended, only known keys are left.
fn handed<'a>(
    map: &'a BTreeMap<String, String>,
    kind: &str,
    is_active: bool,
    room: usize,
) -> BTreeMap<&'a str, &'a str> {
    let pairs = map.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let (mut known, others): (Vec<_>, Vec<_>) = pairs.partition(|(key, _)| is_read(kind, key));
    // The shortest first: a long one does not push out others.
    known.sort_by_key(|(_, value)| value.len());
    let mut left = room;
    let mut fits = |key: &str, value: &str| {
        let rest = left.checked_sub(key.len().saturating_add(value.len()));
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let mut handed = BTreeMap::new();
    for (key, value) in known {
        let value = cut(value, VALUE_BYTES);
        handed.insert(key, if fits(key, value) { value } else { cut(value, CUT_BYTES) });
    }
    handed.extend(others.into_iter().filter(|(key, value)| is_active && fits(key, value)));
    handed
}

fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

/// Fields of a Pod object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObject {
    /// The pod.
    pub pod: PodId,
    /// The annotations: those that qosm knows first, then by key up to 32 KiB.
    pub annotations: BTreeMap<String, String>,
    /// The pod-level request.
    pub cpu_request: Option<MilliCpu>,
    /// Creation, deletion and ownership of the pod.
    pub lifecycle: PodLifecycle,
}

impl PodObject {
    /// The fields of a pod.
    pub fn of(id: PodId, pod: &Pod) -> Self {
        let annotations = handed(&pod.annotations, "annotation", pod.active, ANNOTATIONS_BYTES).into_iter();
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
    fn no_owner_of_a_pod_fills_an_instance_or_pushes_out_what_policies_read() {
        const STATUS: &str = "scheduling.koordinator.sh/resource-status";
        const SPEC: &str = "scheduling.koordinator.sh/resource-spec";
        let texts = |lengths: &[(&str, usize)]| -> BTreeMap<String, String> {
            lengths.iter().map(|(key, length)| ((*key).to_owned(), "x".repeat(*length))).collect()
        };
        for (lengths, is_active, expected) in [
            (vec![("a", 4), ("b", 5)], true, vec![("a", 4), ("b", 5)]),
            // What does not fit is left out, and takes no room.
            (vec![("a", 600), ("b", 500), ("c", 8)], true, vec![("b", 500), ("c", 8)]),
            (vec![("a", 590), (STATUS, 200)], true, vec![(STATUS, 200)]),
            (vec![("a", 200), (STATUS, 200)], false, vec![(STATUS, 200)]),
            // A known key without room stays, and cannot be read.
            (vec![(SPEC, 300), (STATUS, 400)], true, vec![(SPEC, 300), (STATUS, 64)]),
        ] {
            let texts = texts(&lengths);
            let found = handed(&texts, "annotation", is_active, 600);
            let found: Vec<_> = found.into_iter().map(|(key, value)| (key, value.len())).collect();
            assert_eq!(found, expected, "{lengths:?}");
        }
        let many: Vec<String> = (0..3000).map(|number| format!("a{number}")).collect();
        let mut many: Vec<(&str, usize)> = many.iter().map(|key| (key.as_str(), 20)).collect();
        many.push((STATUS, 20_000));
        let many = texts(&many);
        let found = handed(&many, "annotation", true, ANNOTATIONS_BYTES);
        assert_eq!(found[STATUS].len(), VALUE_BYTES);
        let size: usize = found.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(size <= ANNOTATIONS_BYTES && found.len() > 100, "{size}");
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
