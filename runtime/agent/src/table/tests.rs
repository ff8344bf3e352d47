use std::collections::BTreeMap;

use qosm_model::pod::{Container, ContainerCgroup, ContainerKind, KubeQos, PodLifecycle};
use qosm_model::unit::{Bytes, MilliCpu};

use super::*;

pub(super) fn pod(name: &str, uid: &str) -> Pod {
    Pod {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        priority: None,
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: vec![Container {
            name: "app".to_owned(),
            kind: ContainerKind::Regular,
            state: ContainerState::Running,
            cgroup: ContainerCgroup::Named("app".to_owned()),
            cpu_request: None,
            cpu_limit: None,
            memory_request: None,
            memory_limit: None,
            extended_resources: Vec::new(),
            next: None,
        }],
        cpu_overhead: MilliCpu(0),
        memory_overhead: Bytes(0),
        memory_request: None,
        memory_limit: None,
        cpu_limit: None,
        cpu_request: None,
        next: None,
        resize: None,
        lifecycle: PodLifecycle::default(),
    }
}

fn labelled(name: &str, uid: &str, label: &str) -> Pod {
    let mut pod = pod(name, uid);
    pod.labels.insert("i".to_owned(), label.to_owned());
    pod
}

fn names(pods: &PodTable) -> Vec<String> {
    pods.iter().map(|entry| entry.pod.key()).collect()
}

#[test]
fn of_two_pods_with_one_uid_the_later_is_refused_and_told() {
    let mut pods = PodTable::default();
    let changes = pods.update(vec![pod("victim", "u"), pod("mallory", "u"), pod("other", "o")]);
    assert_eq!(names(&pods), ["default/victim", "default/other"]);
    let reported: Vec<_> = changes.refused.iter().map(|refused| refused.problem().to_string()).collect();
    assert_eq!(
        reported,
        [
            "pod default/mallory: metadata.uid: pod default/victim has the UID u; this pod is left alone, give it a UID of its own"
        ]
    );
}

#[test]
fn the_table_does_not_grow_with_the_changes_of_a_twin() {
    let mut pods = PodTable::default();
    for change in 0..100 {
        let twin = labelled("mallory", "u", &change.to_string());
        pods.update(vec![pod("victim", "u"), twin]);
        assert_eq!(names(&pods), ["default/victim"]);
    }
    assert_eq!((pods.by_uid.len(), pods.owners.len(), pods.next_pod), (1, 1, 1));
}

#[test]
fn another_pod_of_a_uid_inherits_nothing() {
    let mut pods = PodTable::default();
    pods.update(vec![pod("victim", "u")]);
    let before = pods.ids();
    let changes = pods.update(vec![pod("mallory", "u")]);
    assert_eq!(names(&pods), ["default/mallory"]);
    assert_ne!(pods.ids(), before);
    assert_eq!(changes.removed.iter().map(|entry| entry.id).collect::<Vec<_>>(), before);
    assert_eq!(pods.owners.len(), 1);
}
