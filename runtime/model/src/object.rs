//! Fields of Kubernetes objects beyond those that every policy gets.

use std::collections::BTreeMap;

use crate::pod::{Node, NodeResource, Pod, PodId, PodLifecycle};
use crate::unit::{Bytes, MilliCpu};

/// Fields of a Pod object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodObject {
    /// The pod.
    pub pod: PodId,
    /// All annotations.
    pub annotations: BTreeMap<String, String>,
    /// The pod-level request.
    pub cpu_request: Option<MilliCpu>,
    /// Creation, deletion and ownership of the pod.
    pub lifecycle: PodLifecycle,
}

impl PodObject {
    /// The fields of a pod.
    pub fn of(id: PodId, pod: &Pod) -> Self {
        Self {
            pod: id,
            annotations: pod.annotations.clone(),
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
