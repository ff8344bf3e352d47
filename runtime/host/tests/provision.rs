//! The host in place of a kubelet: cgroups of pods, with the limits of their specification, on simulated kernels.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use qosm_host::simulated::{Spec, Versions};
use qosm_host::{Driver, Host, HostError};
use qosm_model::pod::{Container, ContainerCgroup, ContainerKind, ContainerState, KubeQos, Pod, PodLifecycle};
use qosm_model::unit::{Bytes, MilliCpu};

const MIB: u64 = 1 << 20;
const POD: &str = "kubepods/burstable/podu1";

fn node(versions: Versions) -> Host {
    let mut host = Host::simulated(&Spec { versions, driver: Some(Driver::Cgroupfs), ..Spec::default() }).unwrap();
    host.simulated_mut().unwrap().ensure_cgroup("kubepods/burstable").unwrap();
    host
}

fn container(name: &str, cpu: Option<u64>, memory: Option<u64>) -> Container {
    Container {
        name: name.to_owned(),
        kind: ContainerKind::Regular,
        state: ContainerState::Running,
        cgroup: ContainerCgroup::Named(name.to_owned()),
        cpu_request: Some(MilliCpu(250)),
        cpu_limit: cpu.map(MilliCpu),
        memory_request: None,
        memory_limit: memory.map(|mib| Bytes(mib * MIB)),
        extended_resources: Vec::new(),
        next: None,
    }
}

fn pod(containers: Vec<Container>) -> Pod {
    Pod {
        uid: "u1".to_owned(),
        namespace: "default".to_owned(),
        name: "web".to_owned(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        priority: None,
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers,
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

/// CPU weight, quota and memory limit of a group, as in its files.
fn bounds(host: &mut Host, versions: Versions, path: &str) -> [String; 3] {
    let files = if versions == Versions::V1 {
        ["cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes"]
    } else {
        ["cpu.weight", "cpu.max", "memory.max"]
    };
    let simulation = host.simulated_mut().unwrap();
    files.map(|file| simulation.read_file(path, file).unwrap().trim().to_owned())
}

/// KEP-2837.
#[test]
fn a_container_without_a_limit_gets_that_of_its_pod() {
    for (versions, of_pod, app, side) in [
        (Versions::V1, ["2048", "200000", "268435456"], ["2048", "200000", "268435456"], ["256", "50000", "67108864"]),
        (
            Versions::V2,
            ["79", "200000 100000", "268435456"],
            ["79", "200000 100000", "268435456"],
            ["10", "50000 100000", "67108864"],
        ),
    ] {
        let mut host = node(versions);
        let app_of_its_pod = Container { cpu_request: None, ..container("app", None, None) };
        let pod = Pod {
            cpu_request: Some(MilliCpu(2000)),
            cpu_limit: Some(MilliCpu(2000)),
            memory_limit: Some(Bytes(256 * MIB)),
            ..pod(vec![app_of_its_pod, container("side", Some(500), Some(64))])
        };
        assert!(host.provision(&pod).unwrap());
        assert_eq!(bounds(&mut host, versions, POD), of_pod);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/app")), app);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/side")), side);
    }
}

#[test]
fn limits_are_those_that_a_kubelet_writes() {
    for (versions, web, log, both) in [
        (
            Versions::V1,
            ["256", "200000", "268435456"].map(str::to_owned),
            ["256", "50000", "67108864"].map(str::to_owned),
            ["512", "250000", "335544320"].map(str::to_owned),
        ),
        (
            Versions::V2,
            ["10", "200000 100000", "268435456"].map(str::to_owned),
            ["10", "50000 100000", "67108864"].map(str::to_owned),
            ["20", "250000 100000", "335544320"].map(str::to_owned),
        ),
    ] {
        let mut host = node(versions);
        let pod = pod(vec![container("web", Some(2000), Some(256)), container("log", Some(500), Some(64))]);
        assert!(host.provision(&pod).unwrap());
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/web")), web);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/log")), log);
        assert_eq!(bounds(&mut host, versions, POD), both);
        assert!(!host.provision(&pod).unwrap(), "a second time there is nothing to make");
    }
}

#[test]
fn a_pods_limits_have_room_for_init_containers_and_overhead() {
    let init = |cpu, memory| Container { kind: ContainerKind::Init, ..container("init", cpu, memory) };
    let of = |first, own: Option<u64>| Pod {
        cpu_limit: own.map(MilliCpu),
        cpu_overhead: MilliCpu(250),
        memory_overhead: Bytes(64 * MIB),
        ..pod(vec![first, container("web", Some(2000), Some(256))])
    };
    for (pod, quota, memory) in [
        (of(init(Some(3000), Some(1024)), None), "325000", "1140850688"),
        (of(init(Some(1000), Some(128)), None), "225000", "335544320"),
        (of(init(None, Some(1024)), None), "-1", "1140850688"),
        (of(init(None, Some(1024)), Some(2000)), "225000", "1140850688"),
    ] {
        let mut host = node(Versions::V1);
        host.provision(&pod).unwrap();
        assert_eq!(bounds(&mut host, Versions::V1, POD)[1..], [quota, memory], "{pod:?}");
    }
}

#[test]
fn one_unlimited_container_leaves_its_pod_unlimited() {
    let mut host = node(Versions::V2);
    host.provision(&pod(vec![container("web", Some(2000), None), container("log", None, Some(64))])).unwrap();
    assert_eq!(bounds(&mut host, Versions::V2, POD)[1..], ["max 100000", "max"]);
}

#[test]
fn a_limit_too_small_for_the_kernel_becomes_its_smallest_quota() {
    let mut host = node(Versions::V1);
    host.provision(&pod(vec![container("web", Some(1), None)])).unwrap();
    assert_eq!(bounds(&mut host, Versions::V1, &format!("{POD}/web"))[1], "1000");
}

#[test]
fn a_limit_that_the_kernel_refuses_does_not_keep_the_others_away() {
    let too_many = Some(1_073_741_824_000);
    for (versions, unlimited, [small, large]) in
        [(Versions::V1, "-1", ["50000", "100000"]), (Versions::V2, "max 100000", ["50000 100000", "100000 100000"])]
    {
        let mut host = node(versions);
        let refused = pod(vec![container("web", too_many, Some(256)), container("log", Some(500), Some(64))]);
        assert!(matches!(host.provision(&refused), Err(HostError::Bound { .. })));
        assert_eq!(bounds(&mut host, versions, POD)[1..], [unlimited, "335544320"]);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/web"))[1..], [unlimited, "268435456"]);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/log"))[1..], [small, "67108864"]);
        assert!(!host.provision(&refused).unwrap(), "a second time there is nothing to make");

        let resized = pod(vec![container("web", too_many, Some(512)), container("log", Some(1000), Some(128))]);
        assert!(matches!(host.resize(&resized), Err(HostError::Bound { .. })));
        assert_eq!(bounds(&mut host, versions, POD)[1..], [unlimited, "671088640"]);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/web"))[1..], [unlimited, "536870912"]);
        assert_eq!(bounds(&mut host, versions, &format!("{POD}/log"))[1..], [large, "134217728"]);
    }
}

/// On v1 a container may never exceed its pod, whichever is written first.
#[test]
fn a_resize_arrives_whichever_way_it_goes() {
    let ways = [(2000, 4000), (4000, 1000), (1000, 1000)];
    for versions in [Versions::V1, Versions::V2] {
        for (web, log) in [(0, 1), (1, 0)] {
            let mut host = node(versions);
            let cpus = |step: usize| {
                let of = |place: usize| if place == 0 { ways[step].0 } else { ways[step].1 };
                pod(vec![container("web", Some(of(web)), None), container("log", Some(of(log)), None)])
            };
            host.provision(&cpus(0)).unwrap();
            for step in [1, 2, 0] {
                let pod = cpus(step);
                host.resize(&pod).unwrap();
                let quota = |milli: u64| {
                    let quota = (milli * 100).to_string();
                    if versions == Versions::V1 { quota } else { format!("{quota} 100000") }
                };
                let limits = pod.containers.iter().map(|container| container.cpu_limit.unwrap().0);
                for (container, milli) in pod.containers.iter().zip(limits.clone()) {
                    let path = format!("{POD}/{}", container.name);
                    assert_eq!(bounds(&mut host, versions, &path)[1], quota(milli), "{path}");
                }
                assert_eq!(bounds(&mut host, versions, POD)[1], quota(limits.sum()));
            }
        }
    }
}

#[test]
fn what_was_made_is_removed_and_no_more() {
    let mut host = node(Versions::V2);
    let pod = pod(vec![container("web", Some(1000), None)]);
    host.provision(&pod).unwrap();
    host.deprovision(&pod).unwrap();
    assert!(!host.simulated_mut().unwrap().has_cgroup(POD));
    assert!(host.simulated_mut().unwrap().has_cgroup("kubepods/burstable"));
}

#[test]
fn groups_of_a_pod_that_has_ended_are_not_made() {
    let mut host = node(Versions::V2);
    let ended = Pod { active: false, ..pod(vec![container("web", Some(1000), None)]) };
    assert!(!host.provision(&ended).unwrap());
    assert!(!host.simulated_mut().unwrap().has_cgroup(POD));
}
