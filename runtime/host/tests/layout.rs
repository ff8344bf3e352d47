//! Finding cgroups on simulated nodes: drivers, nested roots, runtimes, and cgroups in unusual places.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use qosm_host::simulated::{Spec, Versions};
use qosm_host::{Driver, DriverSource, Host, HostError};
use qosm_model::knob::Target;
use qosm_model::pod::{
    Container, ContainerCgroup, ContainerKind, ContainerState, KubeQos, Pod, PodId, PodLifecycle, Tier,
};
use qosm_model::unit::MilliCpu;

const UID: &str = "6553a60b-2b97-442a-b6da-a5704d81dd98";
const SLICE: &str = "kubepods-besteffort-pod6553a60b_2b97_442a_b6da_a5704d81dd98.slice";

fn node(paths: &[&str]) -> Host {
    node_with(Spec::default(), paths)
}

fn node_with(spec: Spec, paths: &[&str]) -> Host {
    let cgroups = paths.iter().map(|&path| (path.to_owned(), BTreeMap::new())).collect();
    Host::simulated(&Spec { cgroups, ..spec }).unwrap()
}

fn pod(uid: &str, kube_qos: KubeQos) -> Pod {
    Pod {
        uid: uid.to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        priority: None,
        kube_qos,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: Vec::new(),
        cpu_overhead: MilliCpu(0),
        memory_overhead: qosm_model::unit::Bytes(0),
        memory_request: None,
        memory_limit: None,
        cpu_limit: None,
        cpu_request: None,
        next: None,
        resize: None,
        lifecycle: PodLifecycle::default(),
    }
}

fn container(cgroup: ContainerCgroup) -> Container {
    Container {
        name: "main".to_owned(),
        kind: ContainerKind::Regular,
        state: ContainerState::Running,
        cgroup,
        cpu_request: None,
        cpu_limit: None,
        memory_request: None,
        memory_limit: None,
        extended_resources: Vec::new(),
        next: None,
    }
}

fn running(id: &str) -> Container {
    container(ContainerCgroup::Runtime(id.to_owned()))
}

#[test]
fn finds_the_driver_by_its_directories() {
    for (paths, driver, source) in [
        (vec!["kubepods.slice"], Driver::Systemd, DriverSource::Directory),
        (vec!["kubepods"], Driver::Cgroupfs, DriverSource::Directory),
        (vec![], Driver::Cgroupfs, DriverSource::Assumed),
        (vec!["kubepods.slice", "kubepods/burstable/podu1"], Driver::Cgroupfs, DriverSource::Pods),
        (vec!["kubepods.slice/kubepods-poduid1.slice", "kubepods"], Driver::Systemd, DriverSource::Pods),
    ] {
        let facts = node(&paths).facts();
        assert_eq!((facts.driver, facts.driver_source), (driver, source), "{paths:?}");
    }
    let given = node_with(Spec { driver: Some(Driver::Cgroupfs), ..Spec::default() }, &["kubepods.slice"]).facts();
    assert_eq!(
        given.driver_source,
        DriverSource::Directory,
        "nothing is where the operator said, so what is there counts"
    );
    let given = node_with(Spec { driver: Some(Driver::Cgroupfs), ..Spec::default() }, &[]).facts();
    assert_eq!((given.driver, given.driver_source), (Driver::Cgroupfs, DriverSource::Given));
}

#[test]
fn names_tiers() {
    let systemd = node(&["kubepods.slice"]);
    let plain = node(&["kubepods"]);
    for (tier, slice, directory) in [
        (Tier::Guaranteed, "kubepods.slice", "kubepods"),
        (Tier::Burstable, "kubepods.slice/kubepods-burstable.slice", "kubepods/burstable"),
        (Tier::BestEffort, "kubepods.slice/kubepods-besteffort.slice", "kubepods/besteffort"),
    ] {
        assert_eq!(systemd.tier_path(tier), slice);
        assert_eq!(plain.tier_path(tier), directory);
    }
}

#[test]
fn sees_kubepods_that_come_after_the_agent() {
    let mut host = node(&[]);
    assert_eq!(host.tier_path(Tier::Burstable), "kubepods/burstable");
    host.simulated_mut().unwrap().ensure_cgroup("kubepods.slice").unwrap();
    assert_eq!(host.tier_path(Tier::Burstable), "kubepods.slice/kubepods-burstable.slice");
}

#[test]
fn finds_pods_where_the_kubelet_puts_them() {
    let path = format!("kubepods.slice/kubepods-besteffort.slice/{SLICE}");
    assert_eq!(node(&[&path]).pod_path(&pod(UID, KubeQos::BestEffort)), path);
    // Not created yet: the usual path.
    assert_eq!(node(&["kubepods.slice"]).pod_path(&pod(UID, KubeQos::BestEffort)), path);
    assert_eq!(node(&["kubepods"]).pod_path(&pod("uid1", KubeQos::Guaranteed)), "kubepods/poduid1");
}

#[test]
fn finds_pods_under_the_other_driver_and_elsewhere() {
    let stale = "kubepods.slice/kubepods-podold.slice";
    let path = format!("kubepods/burstable/pod{UID}");
    let host = node_with(Spec { driver: Some(Driver::Systemd), ..Spec::default() }, &[stale, &path]);
    assert_eq!(host.pod_path(&pod(UID, KubeQos::Burstable)), path);
    // The tier in the manifest differs from the tier in which the kubelet created the cgroup.
    assert_eq!(host.pod_path(&pod(UID, KubeQos::Guaranteed)), path);
    let nested = "machine.slice/node-1/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podabc_1.slice";
    assert_eq!(node(&["kubepods", nested]).pod_path(&pod("abc-1", KubeQos::Burstable)), nested);
}

#[test]
fn finds_nested_roots_configured_or_not() {
    let path = format!("kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-{SLICE}");
    let reported = Spec { cgroup_root: "/kubelet".to_owned(), ..Spec::default() };
    for spec in [reported, Spec::default()] {
        let host = node_with(spec, &[&path]);
        assert_eq!(host.pod_path(&pod(UID, KubeQos::BestEffort)), path);
        assert_eq!(host.tier_path(Tier::Guaranteed), "kubelet.slice/kubelet-kubepods.slice");
        assert_eq!(host.facts().driver, Driver::Systemd);
    }
    let host = node(&["kubelet/kubepods/besteffort"]);
    assert_eq!(host.pod_path(&pod("u", KubeQos::BestEffort)), "kubelet/kubepods/besteffort/podu");
}

#[test]
fn obeys_a_binding() {
    let bound = Pod { cgroup: Some("/system.slice/web.service/".to_owned()), ..pod(UID, KubeQos::Burstable) };
    let host = node(&["system.slice/web.service/worker"]);
    assert_eq!(host.pod_path(&bound), "system.slice/web.service");
    let path = |cgroup| host.container_path(&bound, &container(cgroup));
    assert_eq!(path(ContainerCgroup::Named("worker".into())).unwrap().unwrap(), "system.slice/web.service/worker");
    assert_eq!(path(ContainerCgroup::Named("other".into())).unwrap(), None);
    let absolute = ContainerCgroup::Bound("/system.slice/web.service/worker".into());
    assert_eq!(path(absolute).unwrap().unwrap(), "system.slice/web.service/worker");
    assert_eq!(path(ContainerCgroup::Bound("system.slice/web.service/gone".into())).unwrap(), None);
    assert!(matches!(path(ContainerCgroup::Bound("elsewhere".into())), Err(HostError::NotOwn { .. })));
    assert!(matches!(path(ContainerCgroup::Bound("../..".into())), Err(HostError::Path { .. })));
    assert!(matches!(path(ContainerCgroup::Bound("/".into())), Err(HostError::Path { .. })));
}

#[test]
fn finds_containers_of_every_runtime() {
    let above = format!("kubepods.slice/kubepods-besteffort.slice/{SLICE}");
    for (id, name) in [
        ("containerd://X", "cri-containerd-X.scope"),
        ("docker://X", "docker-X.scope"),
        ("cri-o://X", "crio-X.scope"),
        ("pouch://X", "pouch-X.scope"),
    ] {
        let path = format!("{above}/{name}");
        let host = node(&[&path, &format!("{path}/container")]);
        assert_eq!(host.container_path(&pod(UID, KubeQos::BestEffort), &running(id)).unwrap(), Some(path), "{id}");
        let plain = format!("kubepods/besteffort/pod{UID}/X");
        let host = node(&[&plain]);
        assert_eq!(host.container_path(&pod(UID, KubeQos::BestEffort), &running(id)).unwrap(), Some(plain), "{id}");
    }
    let crio = format!("kubepods/pod{UID}/crio-X");
    let sandbox = format!("kubepods/pod{UID}/crio-conmon-X");
    let host = node(&[&crio, &sandbox]);
    assert_eq!(host.container_path(&pod(UID, KubeQos::Guaranteed), &running("cri-o://X")).unwrap(), Some(crio));
}

/// CRI-O, `internal/config/cgmgr/{systemd,cgroupfs}_linux.go`: a scope for each container and for each of their
/// monitors, and a group without processes for the sandbox, which is left out; crun puts the processes into a child
/// `container` of the scope.
#[test]
fn a_pod_of_cri_o_has_its_containers_and_none_of_its_monitors() {
    let above = format!("kubepods.slice/kubepods-besteffort.slice/{SLICE}");
    for (driver, parent, suffix) in
        [("systemd", above.as_str(), ".scope"), ("cgroupfs", &format!("kubepods/besteffort/pod{UID}"), "")]
    {
        let group = |name: &str| format!("{parent}/{name}{suffix}");
        let (app, monitor) = (group("crio-0123abc"), group("crio-conmon-0123abc"));
        let sandbox = format!("{parent}/crio-9876fed");
        let others = [sandbox, group("crio-conmon-9876fed"), format!("{app}/container")];
        let paths: Vec<&str> = [&app, &monitor].into_iter().chain(&others).map(String::as_str).collect();
        let host = node(&paths);
        let found = host.container_path(&pod(UID, KubeQos::BestEffort), &running("cri-o://0123abc")).unwrap();
        assert_eq!(found.as_deref(), Some(app.as_str()), "{driver}");
        // A monitor outlives its container, but does not count as the container.
        let host = node(&[monitor.as_str(), &others[0], &others[1]]);
        let found = host.container_path(&pod(UID, KubeQos::BestEffort), &running("cri-o://0123abc")).unwrap();
        assert_eq!(found, None, "{driver}");
    }
}

#[test]
fn finds_containers_outside_their_pod() {
    for path in [
        "system.slice/containerd.service/kubepods-burstable-podu.slice:cri-containerd:0123abc",
        "kubepods/burstable/podu/deeper/0123abc",
        "kubepods/burstable/podu/cri-containerd-0123abc.scope",
    ] {
        let host = node(&["kubepods/burstable/podu", path]);
        let found = host.container_path(&pod("u", KubeQos::Burstable), &running("containerd://0123abc")).unwrap();
        assert_eq!(found.as_deref(), Some(path));
    }
}

#[test]
fn distinguishes_a_missing_container_from_an_invalid_id() {
    let mut host = node(&["kubepods/podu"]);
    let web = pod("u", KubeQos::Guaranteed);
    assert_eq!(host.container_path(&web, &container(ContainerCgroup::Unknown)).unwrap(), None);
    for id in ["crio://X", "X", "containerd://", "containerd://../.."] {
        let error = host.container_path(&web, &running(id)).unwrap_err();
        assert!(matches!(error, HostError::ContainerId { .. }), "{id}: {error}");
    }
    let late = running("containerd://late");
    for _ in 0..40 {
        assert_eq!(host.container_path(&web, &late).unwrap(), None);
    }
    // Searches are spaced out by now, but the usual path is always checked.
    host.simulated_mut().unwrap().ensure_cgroup("kubepods/podu/late").unwrap();
    assert_eq!(host.container_path(&web, &late).unwrap().unwrap(), "kubepods/podu/late");
}

#[test]
fn finds_one_node_under_every_version() {
    for versions in [Versions::V1, Versions::V2] {
        for co_mounted in [false, true] {
            let host = node_with(Spec { versions, co_mounted, ..Spec::default() }, &["kubepods/podu/X"]);
            let web = pod("u", KubeQos::Guaranteed);
            assert_eq!(host.container_path(&web, &running("docker://X")).unwrap().unwrap(), "kubepods/podu/X");
        }
    }
}

#[test]
fn a_containers_id_does_not_lead_out_of_its_pod() {
    let victim = format!("kubepods/burstable/pod{UID}");
    let cgroup = format!("{victim}/X");
    let host = node(&[&cgroup, "kubepods/burstable/podmallory"]);
    let stolen = running("containerd://X");
    let found = host.container_path(&pod("mallory", KubeQos::Burstable), &stolen);
    assert!(matches!(&found, Err(HostError::NotOwn { path, .. }) if *path == cgroup), "{found:?}");
    assert_eq!(host.container_path(&pod(UID, KubeQos::Burstable), &stolen).unwrap().unwrap(), cgroup);
    // The same where a runtime puts its scopes outside of the pods.
    let scope = "system.slice/containerd.service/kubepods-burstable-podu.slice:cri-containerd:0a";
    let host = node(&[scope, "kubepods/burstable/podmallory"]);
    let found = host.container_path(&pod("mallory", KubeQos::Burstable), &running("containerd://0a"));
    assert!(matches!(found, Err(HostError::NotOwn { .. })), "{found:?}");
}

#[test]
fn a_binding_lies_below_the_root_that_was_named() {
    let confined = Spec { cgroup_root: "/mine".to_owned(), ..Spec::default() };
    let host = node_with(confined, &["mine/kubepods/burstable", "mine/web/app", "other/web/app"]);
    let bound = |path: &str| Pod { cgroup: Some(path.to_owned()), ..pod(UID, KubeQos::Burstable) };
    assert!(host.check_binding(&bound("mine/web")).is_ok());
    for path in ["other/web", "mine", "mine/kubepods", "mine/kubepods/burstable", "mine/kubepods/burstable/podother"] {
        assert!(matches!(host.check_binding(&bound(path)), Err(HostError::NotOwn { .. })), "{path}");
    }
    assert!(host.check_binding(&bound(&format!("mine/kubepods/burstable/pod{UID}"))).is_ok(), "its own");
    let container = container(ContainerCgroup::Bound("other/web/app".into()));
    let found = host.container_path(&pod(UID, KubeQos::Burstable), &container);
    assert!(matches!(found, Err(HostError::NotOwn { .. })), "{found:?}");
}

#[test]
fn a_cgroup_has_one_owner() {
    let mut host = node(&["kubepods/burstable/poda", "kubepods/burstable/podb"]);
    let (one, other) = (Target::Pod(PodId(1)), Target::Pod(PodId(2)));
    host.attach(one, "kubepods/burstable/poda").unwrap();
    host.attach(one, "/kubepods/burstable/poda/").unwrap();
    let taken = host.attach(other, "kubepods/burstable/poda");
    assert!(matches!(taken, Err(HostError::Taken { by, .. }) if by == one), "{taken:?}");
    host.attach(other, "kubepods/burstable/podb").unwrap();
    host.detach(one);
    host.attach(other, "kubepods/burstable/poda").unwrap();
    host.attach(one, "kubepods/burstable/podb").unwrap();
}
