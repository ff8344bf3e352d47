//! Pods and node as other interfaces report them, cached until they change.

use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{Host, Level, NodeAmount, NodeObjectFacts, PodFacts, PodId, PodObjectFacts};

use crate::feature::Resource;
use crate::input::Node;
use crate::pod::{Pod, Requests, requested_as};

/// The cached facts, with the generation of each source; `None` before the first read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pods: BTreeMap<PodId, Known>,
    objects_seen: Option<u64>,
    object: Option<NodeObjectFacts>,
    node: Option<Node>,
    /// Names of the resources that the node offers.
    offered: BTreeSet<String>,
    node_seen: Option<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    facts: PodFacts,
    object: Option<PodObjectFacts>,
    /// The pod without measurements.
    pod: Pod,
    /// Faults of its labels and annotations that were logged.
    faults: Vec<String>,
}

impl Sources {
    pub(crate) fn update(&mut self, upserted: Vec<PodFacts>, removed: &[PodId]) {
        for id in removed {
            self.pods.remove(id);
        }
        for facts in upserted {
            let pod = Pod::new(&facts.uid, &facts.name);
            let before = self.pods.remove(&facts.id);
            let (object, faults) = before.map(|known| (known.object, known.faults)).unwrap_or_default();
            self.pods.insert(facts.id, Known { facts, object, pod, faults });
        }
        self.objects_seen = None;
    }

    /// Reads the sources that have changed. A label or annotation that cannot be read is logged once.
    pub(crate) fn read<H: Host>(&mut self, host: &mut H) {
        let mut is_stale = false;
        let generation = Some(host.node_object_generation());
        if self.node_seen != generation {
            self.node_seen = generation;
            self.object = host.node_object();
            let resources = self.object.iter().flat_map(|object| &object.resources);
            let offered = resources.filter(|amount| amount.allocatable.is_some()).map(|amount| amount.name.clone());
            let offered: BTreeSet<String> = offered.collect();
            if self.offered != offered {
                self.offered = offered;
                self.objects_seen = None;
            }
            is_stale = true;
        }
        let generation = Some(host.pod_objects_generation());
        if self.objects_seen != generation {
            self.objects_seen = generation;
            for object in host.pod_objects() {
                if let Some(known) = self.pods.get_mut(&object.pod) {
                    known.object = Some(object);
                }
            }
            self.pods.values_mut().for_each(|known| known.reread(host, &self.offered));
            is_stale = true;
        }
        if is_stale {
            self.node = self.object.as_ref().map(|object| node(object, &self.pods));
        }
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// The pods, without measurements.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (&PodFacts, &Pod)> {
        self.pods.values().map(|known| (&known.facts, &known.pod))
    }

    /// The id of the pod with this UID.
    pub(crate) fn id(&self, uid: &str) -> Option<PodId> {
        self.pods.values().find(|known| known.facts.uid == uid).map(|known| known.facts.id)
    }
}

impl Known {
    fn reread<H: Host>(&mut self, host: &mut H, offered: &BTreeSet<String>) {
        let facts = &self.facts;
        let object = self.object.as_ref();
        let plain = Pod {
            namespace: facts.namespace.clone(),
            priority: facts.priority,
            class: facts.declared_qos,
            kube_qos: facts.kube_qos,
            is_active: facts.active,
            is_leaving: object.is_some_and(|object| object.deleting),
            is_static: facts.static_pod || object.is_some_and(|object| object.mirror),
            is_of_daemon_set: object.is_some_and(|object| object.owner_kind.as_deref() == Some("DaemonSet")),
            created_at: object.and_then(|object| object.created_at_sec).unwrap_or_default(),
            grace_seconds: object.and_then(|object| object.grace_period_sec),
            requests: Requests::of(&facts.containers, |name| offered.contains(name)),
            ..Pod::new(&facts.uid, &facts.name)
        };
        let labels = facts.labels.iter().cloned().collect();
        let annotations = object.map(|object| object.annotations.iter().cloned().collect()).unwrap_or_default();
        let (pod, faults) = plain.with_marks(&labels, &annotations);
        self.pod = pod;
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        for fault in faults.iter().filter(|fault| !self.faults.contains(fault)) {
            host.log(Level::Warn, &format!("pod {}/{}: {fault}", facts.namespace, facts.name));
        }
        self.faults = faults;
    }
}

/// Capacity and offered resources of the node. A resource with several names is published under each of them less what pods request under
/// the others, so that is added again. If the sums differ, the smallest counts: an amount is cut off at 0.
fn node(object: &NodeObjectFacts, pods: &BTreeMap<PodId, Known>) -> Node {
    let amount = |name: &str| object.resources.iter().find(|amount| amount.name == name);
    let capacity = |name: &str| {
        let of = |amount: &NodeAmount| u64::try_from(amount.capacity.or(amount.allocatable)?).ok();
        amount(name).and_then(of).unwrap_or_default()
    };
    let active = || pods.values().filter(|known| known.facts.active);
    let elsewhere = |resource: Resource, name: &str| {
        let of = |known: &Known| {
            known.pod.requests.amount(resource).saturating_sub(requested_as(&known.facts.containers, name))
        };
        let sum = active().map(of).fold(0_u64, u64::saturating_add);
        i64::try_from(sum).unwrap_or(i64::MAX)
    };
    let whole = |resource: Resource| {
        let published = |name: &&str| Some(amount(name)?.allocatable?.saturating_add(elsewhere(resource, name)));
        Some((resource, resource.names().iter().filter_map(published).min()?))
    };
    let offered = [Resource::BatchCpu, Resource::BatchMemory, Resource::MidCpu, Resource::MidMemory];
    let allocatable = offered.into_iter().filter_map(whole);
    Node {
        cpu_capacity_milli: capacity("cpu"),
        memory_capacity_bytes: capacity("memory"),
        allocatable: allocatable.collect(),
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::Container;
    use qosm_sdk::mock::{self, MockHost};

    use super::*;

    #[test]
    fn what_pods_say_is_read_when_it_changes_and_told_once() {
        let mut host = MockHost::default();
        let mut sources = Sources::default();
        let mut facts = mock::pod(1, "batch", "report");
        facts.labels = vec![("koordinator.sh/eviction-enabled".into(), "yes".into())];
        let object = PodObjectFacts {
            annotations: vec![("koordinator.sh/eviction-priority".into(), "1e400".into())],
            owner_kind: Some("DaemonSet".into()),
            deleting: true,
            grace_period_sec: Some(7),
            ..mock::pod_object(1)
        };
        host.columns.pod_objects = vec![object];
        sources.update(vec![facts.clone()], &[]);
        sources.read(&mut host);
        let (_, pod) = sources.pods().next().unwrap();
        assert!(pod.is_leaving && pod.is_of_daemon_set && !pod.marks.is_enabled);
        assert_eq!((pod.grace_seconds, pod.marks.eviction_priority), (Some(7), 0));
        let told = |host: &mut MockHost| std::mem::take(&mut host.log).len();
        assert_eq!(told(&mut host), 2);
        // Nothing has changed.
        sources.read(&mut host);
        sources.update(vec![facts.clone()], &[]);
        sources.read(&mut host);
        assert_eq!(told(&mut host), 0);
        facts.labels[0].1 = "true".into();
        sources.update(vec![facts], &[]);
        sources.read(&mut host);
        assert_eq!(told(&mut host), 0);
        assert!(sources.pods().next().unwrap().1.marks.is_enabled);
        assert_eq!(sources.id(&mock::pod(1, "batch", "report").uid), Some(1));
        sources.update(Vec::new(), &[1]);
        assert_eq!(sources.pods().count(), 0);
    }

    #[test]
    fn a_node_offers_the_same_amount_under_each_of_its_names() {
        let amount =
            |name: &str, allocatable| NodeAmount { name: name.into(), capacity: None, allocatable: Some(allocatable) };
        let mut object = mock::node_object("edge-7", 8, 16 << 30);
        object.resources.push(amount("alibabacloud.com/reclaimed-cpu", 5));
        assert_eq!(node(&object, &BTreeMap::new()).allocatable, [(Resource::BatchCpu, 5)].into());
        object.resources.push(amount("kubernetes.io/batch-cpu", -1));
        object.resources.push(amount("kubernetes.io/mid-memory", 0));
        let known = node(&object, &BTreeMap::new());
        assert_eq!(known.allocatable, [(Resource::BatchCpu, -1), (Resource::MidMemory, 0)].into());
        assert_eq!((known.cpu_capacity_milli, known.memory_capacity_bytes), (8_000, 16 << 30));
    }

    #[test]
    fn what_pods_request_under_another_name_is_part_of_what_the_node_offers() {
        let (current, older) = ("kubernetes.io/batch-cpu", "alibabacloud.com/reclaimed-cpu");
        let pod = |id, name: &str, request| {
            let extended = qosm_sdk::ExtendedResource { name: name.into(), request: Some(request), limit: None };
            let container = Container { extended_resources: vec![extended], ..mock::container(id, "job") };
            PodFacts { containers: vec![container], ..mock::pod(id, "batch", &format!("job-{id}")) }
        };
        // The node has 10 CPUs for batch pods. Four are requested under one name and five under the other.
        for (published, requested, whole) in [
            (&[(current, 5_000), (older, 6_000)][..], [4_000, 5_000], 10_000),
            // All are requested under the other name.
            (&[(current, 0), (older, 10_000)], [0, 10_000], 10_000),
            // It shrank to less than is requested under either name: at most five are left.
            (&[(current, 0), (older, 0)], [5_000, 5_000], 5_000),
            (&[(current, 0), (older, 0)], [9_000, 0], 0),
            // Requests under a name that the node does not offer do not count.
            (&[(current, 6_000)], [4_000, 5_000], 6_000),
        ] {
            let mut host = MockHost::default();
            let mut object = mock::node_object("edge-7", 16, 16 << 30);
            for (name, allocatable) in published {
                object.resources.push(NodeAmount {
                    name: (*name).into(),
                    capacity: None,
                    allocatable: Some(*allocatable),
                });
            }
            host.columns.node_object = Some(object);
            let mut sources = Sources::default();
            sources.update(vec![pod(1, current, requested[0]), pod(2, older, requested[1])], &[]);
            sources.read(&mut host);
            let node = sources.node().unwrap();
            assert_eq!(node.allocatable[&Resource::BatchCpu], whole, "{published:?} {requested:?}");
        }
    }
}
