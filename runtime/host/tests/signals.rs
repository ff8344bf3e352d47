//! Measurements and attachment on simulated nodes, and opening directories with a node's files.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::simulated::{CoreSchedulingKernel, Kernel, Spec, Versions};
use qosm_host::{
    Bandwidth, BurstRule, CgroupVersion, Controller, Directories, Host, HostError, LayoutOptions, Support,
};
use qosm_model::column::{CpuCounters, MemoryCounters, PressureCounters, Stall};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::node::{GroupCounters, GroupMemory, NodeMemory};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::unit::{Bytes, Micros};

const ID: ContainerId = ContainerId(7);
const TARGET: Target = Target::Container(ID);
const PATH: &str = "kubepods/podu/c";

fn every_version() -> Vec<Spec> {
    let memory_only = Versions { memory: CgroupVersion::V2, ..Versions::V1 };
    let cpu_only = Versions { cpu: CgroupVersion::V2, ..Versions::V1 };
    let mut specs = Vec::new();
    for versions in [Versions::V1, Versions::V2, memory_only, cpu_only] {
        for co_mounted in [false, true] {
            for kernel in [Kernel::Mainline, Kernel::Alibaba] {
                let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]);
                specs.push(Spec { versions, co_mounted, kernel, cgroups, ..Spec::default() });
            }
        }
    }
    specs
}

fn attached(spec: &Spec) -> Host {
    let mut host = Host::simulated(spec).unwrap();
    host.attach(TARGET, PATH).unwrap();
    host
}

#[test]
fn reads_counters_in_every_layout() {
    let cpu = CpuCounters { usage: Micros(5_000_001), nr_periods: 100, nr_throttled: 7, throttled: Micros(1234) };
    let memory = MemoryCounters {
        usage: Bytes(1 << 20),
        anon: Bytes(4096),
        file: Bytes(8192),
        inactive_file: Bytes(4096),
        high_events: 0,
        max_events: 3,
        oom_kills: 1,
    };
    for spec in every_version() {
        let mut host = attached(&spec);
        assert_eq!(host.cpu_counters(ID).unwrap(), CpuCounters::default(), "{spec:?}");
        let simulation = host.simulated_mut().unwrap();
        simulation.set_cpu_counters(PATH, cpu).unwrap();
        simulation.set_memory_counters(PATH, memory).unwrap();
        assert_eq!(host.memory_counters(ID).unwrap(), memory, "{spec:?}");
        assert_eq!(host.memory_in_use(ID).unwrap(), (memory.usage, memory.oom_kills), "{spec:?}");
        assert_eq!(host.cpu_counters(ID).unwrap(), cpu, "{spec:?}");
    }
}

#[test]
fn reads_quota_and_period() {
    for spec in every_version() {
        let mut host = attached(&spec);
        assert_eq!(host.bandwidth(TARGET).unwrap(), Bandwidth { quota: None, period: Micros(100_000) });
        let simulation = host.simulated_mut().unwrap();
        if spec.versions.cpu == CgroupVersion::V1 {
            simulation.set_file(PATH, "cpu.cfs_period_us", "50000").unwrap();
            simulation.set_file(PATH, "cpu.cfs_quota_us", "25000").unwrap();
        } else {
            simulation.set_file(PATH, "cpu.max", "25000 50000").unwrap();
        }
        let quota = Some(Micros(25_000));
        assert_eq!(host.bandwidth(TARGET).unwrap(), Bandwidth { quota, period: Micros(50_000) }, "{spec:?}");
        assert_eq!(host.read(TARGET, Knob::CfsQuota).unwrap(), Value::Number(25_000));
    }
}

#[test]
fn reads_pressure_where_there_is_some() {
    let pressure = PressureCounters {
        cpu: Stall { some: Micros(10), full: Micros(0) },
        memory: Stall { some: Micros(20), full: Micros(5) },
        io: Stall { some: Micros(30), full: Micros(6) },
    };
    let v1 = |kernel| Spec {
        versions: Versions::V1,
        kernel,
        cgroups: BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]),
        ..Spec::default()
    };
    for spec in [v1(Kernel::Alibaba), Spec { versions: Versions::V2, ..v1(Kernel::Mainline) }] {
        let mut host = attached(&spec);
        host.simulated_mut().unwrap().set_pressure_counters(PATH, pressure).unwrap();
        assert_eq!(host.pressure_counters(ID).unwrap(), pressure);
    }
    let mut host = attached(&v1(Kernel::Mainline));
    for _ in 0..200 {
        assert!(matches!(host.pressure_counters(ID), Err(HostError::Unsupported { .. })));
    }
    // In systemd's hybrid layout, the v2 tree beside the v1 hierarchies has them.
    let hybrid = Versions { cpuset: CgroupVersion::V2, ..Versions::V1 };
    let mut host = attached(&Spec { versions: hybrid, ..v1(Kernel::Mainline) });
    host.simulated_mut().unwrap().set_pressure_counters(PATH, pressure).unwrap();
    assert_eq!(host.pressure_counters(ID).unwrap(), pressure);
}

/// A kubelet creates the directories of a pod one after the other.
#[test]
fn a_directory_that_comes_after_the_others_takes_nothing_from_what_is_read() {
    let hybrid = Versions { cpuset: CgroupVersion::V2, ..Versions::V1 };
    let mut host = Host::simulated(&Spec { versions: hybrid, kernel: Kernel::Mainline, ..Spec::default() }).unwrap();
    for controller in [Controller::Cpu, Controller::Cpuacct, Controller::Memory] {
        host.simulated_mut().unwrap().ensure_cgroup_of(controller, PATH).unwrap();
    }
    host.attach(TARGET, PATH).unwrap();
    assert_eq!(host.group_counters(TARGET).unwrap().cpu_pressure, None);
    host.simulated_mut().unwrap().ensure_cgroup_of(Controller::Cpuset, PATH).unwrap();
    let stall = Stall { some: Micros(10), full: Micros(0) };
    let pressure = PressureCounters { cpu: stall, memory: stall, io: stall };
    host.simulated_mut().unwrap().set_pressure_counters(PATH, pressure).unwrap();
    // The host looks for a missing file again after a while.
    let counters = (0..1000).map(|_| host.group_counters(TARGET).unwrap()).find(|now| now.cpu_pressure.is_some());
    let counters = counters.unwrap();
    assert!(counters.cpu_usage.is_some() && counters.memory.is_some(), "{counters:?}");
}

#[test]
fn reads_the_cpus_of_a_cpuset_and_keeps_no_file() {
    for versions in [Versions::V1, Versions::V2] {
        let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]);
        let mut host = attached(&Spec { versions, cgroups: cgroups.clone(), ..Spec::default() });
        let file = if versions == Versions::V1 { "cpuset.cpus" } else { "cpuset.cpus.effective" };
        host.simulated_mut().unwrap().overwrite(PATH, file, "0-1,3").unwrap();
        assert_eq!(host.cpuset_cpus(TARGET).unwrap(), Some(vec![0, 1, 3]));
        host.simulated_mut().unwrap().overwrite(PATH, file, "7").unwrap();
        assert_eq!(host.cpuset_cpus(TARGET).unwrap(), Some(vec![7]));
        host.simulated_mut().unwrap().overwrite(PATH, file, "\n").unwrap();
        assert_eq!(host.cpuset_cpus(TARGET).unwrap(), None, "it has those of the group above");
        let missing_files = [file.to_owned()].into();
        let mut host = attached(&Spec { versions, missing_files, cgroups, ..Spec::default() });
        assert_eq!(host.cpuset_cpus(TARGET).unwrap(), None);
    }
}

#[test]
fn measures_the_node() {
    let mut host = Host::simulated(&Spec::default()).unwrap();
    host.simulated_mut().unwrap().set_node_cpu_busy(Micros(12_340_000));
    assert_eq!(host.node_cpu_busy(&[]).unwrap(), Micros(12_340_000));
    assert_eq!(host.node_memory().unwrap(), (Bytes(8 << 30), Bytes(6 << 30)));
    host.simulated_mut().unwrap().set_memory_available(Bytes(1 << 30));
    assert_eq!(host.node_memory().unwrap().1, Bytes(1 << 30));
    assert_eq!((host.cpus(), host.page_size()), (4, Bytes(4096)));
}

#[test]
fn tiers_and_pods_are_read_with_what_the_kernel_counts_of_them() {
    let memory = GroupMemory { usage: Bytes(1 << 30), active_file: Bytes(1 << 20), inactive_file: Bytes(2 << 20) };
    let counters = GroupCounters {
        cpu_usage: Some(Micros(7_000_000)),
        cpu_throttled: Some(Micros(900_000)),
        cpu_pressure: Some(Stall { some: Micros(50), full: Micros(4) }),
        memory: Some(memory),
        max_events: Some(5),
        oom_kills: Some(1),
    };
    const POD: Target = Target::Pod(PodId(3));
    for spec in every_version() {
        let mut host = Host::simulated(&spec).unwrap();
        host.attach(POD, "kubepods/podu").unwrap();
        let unified = spec.versions.cpuacct == CgroupVersion::V2;
        let has_pressure = spec.versions != Versions::V1 || spec.kernel == Kernel::Alibaba;
        host.simulated_mut().unwrap().set_group_counters("kubepods/podu", counters).unwrap();
        let cpu_pressure = counters.cpu_pressure.filter(|_| unified || has_pressure);
        assert_eq!(host.group_counters(POD).unwrap(), GroupCounters { cpu_pressure, ..counters }, "{spec:?}");
        // Only the unreadable values are missing.
        let without = GroupCounters { memory: None, oom_kills: None, max_events: None, ..counters };
        host.simulated_mut().unwrap().set_group_counters("kubepods/podu", without).unwrap();
        assert_eq!(host.group_counters(POD).unwrap(), GroupCounters { cpu_pressure, ..without }, "{spec:?}");
        host.simulated_mut().unwrap().remove_cgroup("kubepods/podu").unwrap();
        assert!(host.group_counters(POD).unwrap_err().is_gone());
    }
    let mut host = Host::simulated(&Spec::default()).unwrap();
    assert!(matches!(host.group_counters(POD), Err(HostError::NotAttached { .. })));
}

#[test]
fn a_group_without_the_cpu_controller_still_has_its_cpu_time() {
    let cgroups = BTreeMap::from([("kubepods".to_owned(), BTreeMap::new())]);
    let mut host = Host::simulated(&Spec { cgroups, ..Spec::default() }).unwrap();
    let tier = Target::Tier(qosm_model::pod::Tier::Guaranteed);
    host.attach(tier, "kubepods").unwrap();
    host.simulated_mut().unwrap().overwrite("kubepods", "cpu.stat", "usage_usec 17\n").unwrap();
    let counters = host.group_counters(tier).unwrap();
    assert_eq!((counters.cpu_usage, counters.cpu_throttled), (Some(Micros(17)), None));
}

#[test]
fn all_memory_is_that_of_the_hierarchys_root() {
    let memory = GroupMemory { usage: Bytes(3 << 30), active_file: Bytes(1 << 20), inactive_file: Bytes(2 << 20) };
    for versions in [Versions::V1, Versions::V2] {
        let mut host = Host::simulated(&Spec { versions, ..Spec::default() }).unwrap();
        host.simulated_mut().unwrap().set_root_memory(Some(memory));
        assert_eq!(host.root_memory(), Some(memory), "{versions:?}");
        host.simulated_mut().unwrap().set_root_memory(None);
        assert_eq!(host.root_memory(), None, "{versions:?}");
    }
    // Kernel memory counts if the kernel reports it; a root that is an ordinary group to the kernel has its own total.
    let mut host = Host::simulated(&Spec::default()).unwrap();
    let simulation = host.simulated_mut().unwrap();
    simulation.overwrite("", "memory.stat", "anon 10\nfile 20\nkernel 5\ninactive_file 7\nactive_file 9\n").unwrap();
    assert_eq!(host.root_memory().map(|memory| memory.usage), Some(Bytes(35)));
    host.simulated_mut().unwrap().overwrite("", "memory.current", "77").unwrap();
    assert_eq!(host.root_memory().map(|memory| memory.usage), Some(Bytes(77)));
}

#[test]
fn the_nodes_memory_comes_with_watermarks_that_are_read_again_when_they_can_have_changed() {
    let mut host = Host::simulated(&Spec::default()).unwrap();
    let memory = NodeMemory {
        total: Some(Bytes(8 << 30)),
        free: Bytes(1 << 30),
        available: Bytes(2 << 30),
        active_file: Bytes(3 << 20),
        inactive_file: Bytes(4 << 20),
        ..NodeMemory::default()
    };
    host.simulated_mut().unwrap().set_node_memory(memory);
    assert_eq!(host.node_memory_in_full().unwrap(), memory, "no zoneinfo here");
    for min in [1 << 26, 1 << 27] {
        let mark = |bytes| Some(Bytes(bytes));
        let (min_mark, low_mark, high_mark) = (mark(min), mark(min * 5 / 4), mark(min * 3 / 2));
        let memory = NodeMemory { min_mark, low_mark, high_mark, ..memory };
        host.simulated_mut().unwrap().set_node_memory(memory);
        assert_eq!(host.node_memory_in_full().unwrap(), memory);
    }
    let garbled = Spec { proc: BTreeMap::from([("zoneinfo".to_owned(), "Node x".to_owned())]), ..Spec::default() };
    let mut host = Host::simulated(&garbled).unwrap();
    let memory = host.node_memory_in_full().unwrap();
    assert_eq!((memory.min_mark, memory.low_mark, memory.high_mark), (None, None, None));
}

#[test]
fn the_nodes_pressure_is_read_where_the_kernel_counts_it() {
    let mut host = Host::simulated(&Spec::default()).unwrap();
    let stall = |some, full| Stall { some: Micros(some), full: Micros(full) };
    let counters = PressureCounters { cpu: stall(9, 0), memory: stall(8, 2), io: stall(7, 1) };
    host.simulated_mut().unwrap().set_node_pressure(counters);
    assert_eq!(host.node_pressure(), Some(counters));
    // The file without CONFIG_PSI, and with psi=0.
    for text in ["", "what"] {
        let proc = BTreeMap::from([("pressure/cpu".to_owned(), text.to_owned())]);
        assert_eq!(Host::simulated(&Spec { proc, ..Spec::default() }).unwrap().node_pressure(), None);
    }
}

fn cpus(host: &mut Host) -> Vec<(u32, u32, u32, u32, bool)> {
    host.cpu_list().iter().map(|cpu| (cpu.id, cpu.core, cpu.socket, cpu.numa_node, cpu.online)).collect()
}

#[test]
fn cpus_are_listed_with_core_socket_and_numa_node() {
    let mut host = Host::simulated(&Spec { cpus: 8, numa_nodes: 2, ..Spec::default() }).unwrap();
    // Two sockets with two cores each: the kernel numbers cores within a socket, and lists second threads last.
    for cpu in 0..8 {
        host.simulated_mut().unwrap().set_cpu_place(cpu, [0, 7][cpu as usize % 2], cpu / 2 % 2);
    }
    let expected = [
        (0, 0, 0, 0, true),
        (1, 1, 0, 0, true),
        (2, 2, 1, 0, true),
        (3, 3, 1, 0, true),
        (4, 0, 0, 1, true),
        (5, 1, 0, 1, true),
        (6, 2, 1, 1, true),
        (7, 3, 1, 1, true),
    ];
    assert_eq!(cpus(&mut host), expected);
    assert_eq!(host.cpus_now(), *host.cpu_list());
    // An offline CPU keeps its position and its core number.
    host.simulated_mut().unwrap().set_online_cpus(&[0, 2, 3, 4, 6, 7]);
    let mut offline = expected;
    (offline[1].4, offline[5].4) = (false, false);
    assert_eq!(cpus(&mut host), offline);
    host.simulated_mut().unwrap().set_online_cpus(&[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(cpus(&mut host), expected);
}

#[test]
fn a_kernel_that_tells_no_cores_has_one_for_each_cpu() {
    let mut host = Host::simulated(&Spec { cpus: 3, ..Spec::default() }).unwrap();
    assert_eq!(cpus(&mut host), [(0, 0, 0, 0, true), (1, 1, 0, 0, true), (2, 2, 0, 0, true)]);
    // A CPU that was never online has its own core.
    let mut host = Host::simulated(&Spec { cpus: 3, ..Spec::default() }).unwrap();
    host.simulated_mut().unwrap().set_online_cpus(&[0, 2]);
    assert_eq!(cpus(&mut host), [(0, 0, 0, 0, true), (1, 2, 0, 0, false), (2, 1, 0, 0, true)]);
}

#[test]
fn the_kubelets_state_is_read_where_there_is_one_and_again_when_it_changes() {
    let mut host = Host::simulated(&Spec::default()).unwrap();
    assert_eq!(host.cpu_manager_state().unwrap(), None);
    let mut state = |text: &str| {
        host.simulated_mut().unwrap().set_cpu_manager_state(Some(text));
        host.cpu_manager_state().map(|state| state.map(|state| state.exclusive.len()))
    };
    assert_eq!(state(r#"{"policyName":"static","entries":{"u":{"a":"1"}}}"#).unwrap(), Some(1));
    assert_eq!(state(r#"{"policyName":"static","entries":{}}"#).unwrap(), Some(0));
    let error = state("{}").unwrap_err().to_string();
    assert!(error.contains("cpu_manager_state") && error.contains("policyName"), "{error}");
}

#[test]
fn the_cpus_in_force_are_those_of_the_group_or_of_the_next_above_it() {
    for (versions, file) in [(Versions::V1, "cpuset.cpus"), (Versions::V2, "cpuset.cpus.effective")] {
        let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]);
        let mut host = attached(&Spec { versions, cgroups, ..Spec::default() });
        host.simulated_mut().unwrap().overwrite(PATH, file, "1").unwrap();
        assert_eq!(host.cpus_of_group(TARGET).unwrap(), Some(vec![1]), "{versions:?}");
        host.simulated_mut().unwrap().overwrite("kubepods", file, "0-2").unwrap();
        for path in ["kubepods/podu", PATH] {
            host.simulated_mut().unwrap().overwrite(path, file, "").unwrap();
        }
        // v1 without effective lists (before Linux 3.17) gives no CPUs for a group with an empty list.
        let above = (versions == Versions::V2).then(|| vec![0, 1, 2]);
        assert_eq!(host.cpus_of_group(TARGET).unwrap(), above, "{versions:?}");
    }
}

#[test]
fn a_removed_cgroup_is_gone_and_a_new_one_of_its_name_is_another() {
    for spec in every_version() {
        let mut host = attached(&spec);
        let identity = host.identity(TARGET).unwrap();
        host.cpu_counters(ID).unwrap();
        host.simulated_mut().unwrap().remove_cgroup(PATH).unwrap();
        assert!(host.cpu_counters(ID).unwrap_err().is_gone());
        host.simulated_mut().unwrap().ensure_cgroup(PATH).unwrap();
        assert!(host.cpu_counters(ID).unwrap_err().is_gone());
        // Files that were never opened before cannot be read or written either.
        assert!(host.read(TARGET, Knob::CfsBurst).unwrap_err().is_gone());
        let step = qosm_host::Step { target: TARGET, knob: Knob::CfsQuota, from: Value::Max, to: Value::Number(5000) };
        assert!(host.execute(&step).unwrap_err().is_gone());
        host.attach(TARGET, PATH).unwrap();
        assert_ne!(host.identity(TARGET).unwrap(), identity);
        host.cpu_counters(ID).unwrap();
    }
}

#[test]
fn attaches_what_is_there_and_nothing_else() {
    let mut host = Host::simulated(&Spec::default()).unwrap();
    assert!(host.attach(TARGET, PATH).unwrap_err().is_gone());
    for path in ["", "/", "a/../b", "./a"] {
        assert!(matches!(host.attach(TARGET, path), Err(HostError::Path { .. })), "{path}");
        assert!(matches!(host.create(path), Err(HostError::Path { .. })), "{path}");
    }
    assert!(matches!(host.cpu_counters(ID), Err(HostError::NotAttached { .. })));
    host.create(PATH).unwrap();
    host.attach(TARGET, &format!("/{PATH}/")).unwrap();
    assert_eq!(host.attached_path(TARGET), Some(PATH));
    let identity = host.identity(TARGET);
    host.attach(TARGET, PATH).unwrap();
    assert_eq!(host.identity(TARGET), identity);
    host.create(PATH).unwrap();
    assert_eq!(host.identity(TARGET), identity);
    let refused = host.remove("kubepods/podu").unwrap_err();
    assert!(matches!(refused, HostError::Remove { .. }), "{refused}");
    host.remove(PATH).unwrap();
    host.remove(PATH).unwrap();
    assert!(host.cpu_counters(ID).unwrap_err().is_gone());
    host.detach(TARGET);
    host.detach(TARGET);
    assert_eq!(host.attached_path(TARGET), None);
}

#[test]
fn names_what_a_file_should_have_held() {
    let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::from([("cpu.max".to_owned(), "rubbish".to_owned())]))]);
    let mut host = attached(&Spec { cgroups, ..Spec::default() });
    let error = host.read(TARGET, Knob::CfsQuota).unwrap_err();
    assert_eq!(error.to_string(), "/sys/fs/cgroup/kubepods/podu/c/cpu.max does not hold cpu.quota: `rubbish`");
    assert!(matches!(host.bandwidth(TARGET), Err(HostError::Parse { .. })));
    // A v2 cgroup without the cpu controller.
    host.simulated_mut().unwrap().overwrite(PATH, "cpu.stat", "usage_usec 5\n").unwrap();
    assert!(matches!(host.cpu_counters(ID), Err(HostError::Parse { .. })));
}

#[test]
fn reads_files_larger_than_its_buffer() {
    let mut host = attached(&every_version()[0]);
    let long =
        format!("{}total_cache 1\ntotal_rss 2\ntotal_inactive_file 3\n", "padding_of_this_file 1\n".repeat(1000));
    host.simulated_mut().unwrap().overwrite(PATH, "memory.stat", &long).unwrap();
    assert_eq!(host.memory_counters(ID).unwrap().anon, Bytes(2));
}

#[test]
fn reports_facts() {
    let spec = Spec { versions: Versions::V1, co_mounted: true, numa_nodes: 2, cpus: 16, ..Spec::default() };
    let facts = Host::simulated(&spec).unwrap().facts();
    assert_eq!(facts.controllers[0].mount.as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!(facts.controllers[1].mount.as_deref(), Some("/sys/fs/cgroup/cpu,cpuacct"));
    assert_eq!((facts.cpus, facts.numa_nodes, facts.psi, facts.resctrl), (16, 2, true, false));
    assert_eq!(facts.burst_rule, BurstRule::BurstWithinQuota);
    assert_eq!(facts.unprobed, None);
    let support = |knob| facts.knobs.iter().find(|fact| fact.knob == knob).map(|fact| &fact.support).unwrap();
    assert_eq!(support(Knob::CfsQuota), &Support::Native);
    let Support::Unavailable { why } = support(Knob::MemoryHigh) else { unreachable!("mainline v1 has none") };
    assert!(why.contains("memory.high") && why.contains("cgroup v2"), "{why}");

    let sys = BTreeMap::from([("kernel/sched_ext/state".to_owned(), "enabled\n".to_owned())]);
    let core_scheduling = CoreSchedulingKernel::Works;
    let spec = Spec { kernel: Kernel::Alibaba, sys, core_scheduling, ..Spec::default() };
    let facts = Host::simulated(&spec).unwrap().facts();
    assert_eq!((facts.burst_rule, facts.sched_ext.as_deref()), (BurstRule::Unbounded, Some("enabled")));
    let missing: Vec<_> =
        facts.knobs.iter().filter(|fact| fact.support != Support::Native).map(|fact| fact.knob).collect();
    assert_eq!(missing, [Knob::CoreGroup], "its switch is off, as the kernel has it");
    assert!(facts.recursive_protection && facts.capabilities.sys_resource);
    assert_eq!(facts.burst_switch, None);
    for (text, switch) in [("0\n", false), ("1\n", true)] {
        let proc = BTreeMap::from([("sys/kernel/sched_cfs_bw_burst_enabled".to_owned(), text.to_owned())]);
        let spec = Spec { kernel: Kernel::Alibaba, proc, ..Spec::default() };
        assert_eq!(Host::simulated(&spec).unwrap().facts().burst_switch, Some(switch));
    }
}

/// On cgroup v1, cpusets have their own hierarchy, in which kubepods may be missing.
#[test]
fn finds_the_memory_nodes_of_cpusets_wherever_the_controller_is() {
    for spec in every_version() {
        for cgroups in [BTreeMap::new(), spec.cgroups.clone()] {
            let facts = Host::simulated(&Spec { cgroups, ..spec.clone() }).unwrap().facts();
            let mems = facts.knobs.iter().find(|fact| fact.knob == Knob::CpusetMems).map(|fact| &fact.support);
            assert_eq!(mems, Some(&Support::Native), "{spec:?}");
        }
    }
}

#[test]
fn leaves_no_scratch_cgroup_behind_and_sweeps_old_ones() {
    for versions in [Versions::V1, Versions::V2] {
        let cgroups = BTreeMap::from([("qosm-probe-4711".to_owned(), BTreeMap::new())]);
        let mut host = Host::simulated(&Spec { versions, cgroups, ..Spec::default() }).unwrap();
        let simulation = host.simulated_mut().unwrap();
        assert!(simulation.cgroups().is_empty(), "{:?}", simulation.cgroups());
    }
}

#[test]
fn tries_the_kernel_again_once_controllers_are_handed_down() {
    let mut host = Host::simulated(&Spec { root_delegates: false, ..Spec::default() }).unwrap();
    assert_eq!(host.facts().burst_rule, BurstRule::Unknown);
    host.create(PATH).unwrap();
    assert_eq!(host.facts().burst_rule, BurstRule::BurstWithinQuota);
    host.attach(TARGET, PATH).unwrap();
    assert_eq!(host.read(TARGET, Knob::MemoryHigh).unwrap(), Value::Max);
    let simulation = host.simulated_mut().unwrap();
    assert_eq!(simulation.read_file("kubepods", "cgroup.subtree_control").unwrap(), "cpu cpuset memory io\n");
    assert_eq!(simulation.cgroups(), ["kubepods", "kubepods/podu", "kubepods/podu/c"]);
}

#[test]
fn names_files_as_they_are_on_the_node() {
    for (versions, co_mounted, path) in [
        (Versions::V1, false, "/sys/fs/cgroup/cpu/kubepods/podu/c/cpu.cfs_quota_us"),
        (Versions::V1, true, "/sys/fs/cgroup/cpu,cpuacct/kubepods/podu/c/cpu.cfs_quota_us"),
        (Versions::V2, false, "/sys/fs/cgroup/kubepods/podu/c/cpu.max"),
    ] {
        let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]);
        let host = attached(&Spec { versions, co_mounted, cgroups, ..Spec::default() });
        let file = host.file(TARGET, Knob::CfsQuota).unwrap();
        assert_eq!(file.path, path);
        assert!(file.path.ends_with(file.file));
        assert_eq!(host.file(Target::Pod(PodId(1)), Knob::CfsQuota), None);
    }
}

/// A directory tree with the files of a node that opening requires.
fn fixture(mountinfo: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Directories) {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("proc/self/mountinfo", mountinfo);
    put("proc/meminfo", "MemTotal: 1024 kB\nMemAvailable: 512 kB\n");
    put("sys/devices/system/cpu/online", "0-7\n");
    for (path, text) in files {
        put(&format!("cgroup/{path}"), text);
    }
    let open = |path: &Path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let cgroup = open(&root.path().join("cgroup"));
    let directories = Directories {
        cgroup,
        proc: open(&root.path().join("proc")),
        sys: open(&root.path().join("sys")),
        kubelet: None,
        sysctl: None,
    };
    (root, directories)
}

#[test]
fn opens_a_node_over_directories() {
    let mountinfo = "\
25 17 0:99999 / /sys/fs/cgroup ro shared:8 - tmpfs tmpfs ro,mode=755
28 25 0:99998 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory
29 25 0:99997 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct
";
    let directory = "cpu,cpuacct/kubepods/podu";
    let files = [
        (format!("{directory}/cpu.cfs_quota_us"), "-1\n"),
        (format!("{directory}/cpu.cfs_period_us"), "100000\n"),
        (format!("{directory}/cpu.stat"), "nr_periods 4\nnr_throttled 2\nthrottled_time 3000\n"),
        (format!("{directory}/cpuacct.usage"), "5000\n"),
        ("memory/memory.stat".to_owned(), ""),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let (_root, directories) = fixture(mountinfo, &files);
    let mut host = Host::open(directories, &LayoutOptions::default()).unwrap();
    assert_eq!(host.cpus(), 8);
    assert_eq!(
        host.facts().controllers.iter().find(|fact| fact.controller == Controller::Cpuset).unwrap().version,
        None
    );
    host.attach(TARGET, "kubepods/podu").unwrap();
    let counters = CpuCounters { usage: Micros(5), nr_periods: 4, nr_throttled: 2, throttled: Micros(3) };
    assert_eq!(host.cpu_counters(ID).unwrap(), counters);
    assert_eq!(host.bandwidth(TARGET).unwrap(), Bandwidth { quota: None, period: Micros(100_000) });
    assert_eq!(host.cpuset_cpus(TARGET).unwrap(), None);
    assert_eq!(host.node_memory().unwrap(), (Bytes(1 << 20), Bytes(512 << 10)));
    assert!(matches!(host.memory_counters(ID), Err(HostError::Unsupported { .. })));
}

#[test]
fn says_where_it_looked_when_there_is_no_cgroup_hierarchy() {
    let (_root, directories) = fixture("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n", &[("x", "")]);
    let Err(error) = Host::open(directories, &LayoutOptions::default()) else { unreachable!("nothing is mounted") };
    assert!(error.to_string().contains("/sys/fs/cgroup"), "{error}");
}

#[test]
fn says_where_memory_lies_and_where_it_may() {
    use qosm_model::numa::{NumaId, NumaSample};

    for versions in [Versions::V1, Versions::V2] {
        let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]);
        let mut host = attached(&Spec { versions, numa_nodes: 2, cgroups, ..Spec::default() });
        let topology = host.numa_topology();
        let nodes: Vec<_> = topology.iter().map(|(id, node)| (id.0, node.cpus.clone(), node.memory.0)).collect();
        assert_eq!(nodes, [(0, vec![0, 1], 4 << 30), (1, vec![2, 3], 4 << 30)], "{versions:?}");
        assert_eq!(topology.distance(NumaId(0), NumaId(1)), 20);
        let simulation = host.simulated_mut().unwrap();
        simulation.set_numa_pages(PATH, &[(NumaId(0), 700), (NumaId(1), 300)]).unwrap();
        let file = if versions == Versions::V1 { "cpuset.cpus" } else { "cpuset.cpus.effective" };
        simulation.overwrite(PATH, file, "2-3").unwrap();
        let identity = host.identity(TARGET).unwrap();
        let both = vec![NumaId(0), NumaId(1)];
        let expected = NumaSample {
            container: ID,
            identity,
            cpu_nodes: vec![NumaId(1)],
            memory_nodes: both,
            pages: vec![(NumaId(0), 700), (NumaId(1), 300)],
        };
        assert_eq!(host.numa_sample(ID, &topology).unwrap(), expected, "{versions:?}");
        assert_eq!(expected.local_and_remote(), (300, 700));
        host.simulated_mut().unwrap().overwrite(PATH, "memory.numa_stat", "nonsense").unwrap();
        assert!(matches!(host.numa_sample(ID, &topology), Err(HostError::Parse { .. })), "{versions:?}");
    }
}

#[test]
fn a_machine_of_one_node_is_one_place() {
    let host = attached(&Spec {
        cgroups: BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]),
        // The host reads none of it.
        sys: BTreeMap::from([("devices/system/node/node0/meminfo".to_owned(), "nonsense".to_owned())]),
        ..Spec::default()
    });
    assert!(host.numa_topology().is_one_place());
}

#[test]
fn pages_move_and_the_progress_is_told() {
    use qosm_model::numa::{Migration, MigrationState, NumaId};

    let cgroups = BTreeMap::from([(PATH.to_owned(), BTreeMap::new())]);
    let mut host = attached(&Spec { numa_nodes: 2, cgroups, ..Spec::default() });
    host.simulated_mut().unwrap().set_numa_pages(PATH, &[(NumaId(0), 700), (NumaId(1), 300)]).unwrap();
    let migration =
        Migration { container: ID, from: vec![NumaId(0)], to: vec![NumaId(1)], token: 5, reason: "asked".into() };
    host.migrate(&migration).unwrap();
    let reported = host.migrations();
    assert_eq!((reported[0].container, reported[0].progress.token), (ID, 5));
    assert_eq!((reported[0].progress.state, reported[0].progress.pages_moved), (MigrationState::Done, 700));
    let topology = host.numa_topology();
    assert_eq!(host.numa_sample(ID, &topology).unwrap().pages, [(NumaId(0), 0), (NumaId(1), 1000)]);
    host.detach(TARGET);
    assert_eq!(host.migrations(), []);
    assert!(matches!(host.migrate(&migration), Err(HostError::NotAttached { .. })));
}

#[test]
fn a_cgroup_that_is_made_beside_others_leaves_what_they_used_as_it_is() {
    for spec in every_version() {
        let mut host = attached(&spec);
        let used = GroupCounters { cpu_usage: Some(Micros(70)), ..GroupCounters::default() };
        let simulation = host.simulated_mut().unwrap();
        simulation.set_group_counters(PATH, used).unwrap();
        simulation.ensure_cgroup("kubepods/podv").unwrap();
        simulation.ensure_cgroup("beside").unwrap();
        assert_eq!(host.group_counters(TARGET).unwrap().cpu_usage, used.cpu_usage, "{spec:?}");
    }
}
