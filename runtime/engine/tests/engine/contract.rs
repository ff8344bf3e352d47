//! What a module sees, and the effects of what it asks for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use qosm_engine::{
    CallError, Cause, Columns, Compiler, Engine, EngineError, Export, Grants, InheritedState, Instance, Interface,
    Limits, LogLevel, LogLine, Module, Part, PodView, Rejection, Rule,
};
use qosm_model::column::{
    BandwidthSample, CpuCounters, CpuSample, MemoryCounters, MemorySample, NodeSample, PressureCounters,
    PressureSample, Stall,
};
use qosm_model::cpu_topology::{Cpu, CpuSet, CpuTopology, ExclusiveCpus};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::node::{Group, GroupCounters, GroupMemory, GroupSample, NodeMemory};
use qosm_model::numa::{Migration, NumaColumn, NumaId, NumaSample};
use qosm_model::pod::{
    Container, ContainerCgroup, ContainerId, ContainerKind, ContainerState, KubeQos, Pod, PodId, PodLifecycle, Tier,
};
use qosm_model::resctrl::{ClassState, Domain, DomainId, ResctrlColumn, Usage};
use qosm_model::setting::{EventKind, PodEvent, Setting};
use qosm_model::unit::{Bytes, Micros, MilliCpu};

use crate::guest;

pub(crate) static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::new().unwrap());
static WORKER: LazyLock<Module> = LazyLock::new(|| ENGINE.load(&guest::worker(), None, &Compiler::InProcess).unwrap());

pub(crate) const POD: PodId = PodId(1);
const WEB: Target = Target::Container(ContainerId(10));

pub(crate) fn everything() -> Grants {
    Interface::ALL.into_iter().collect()
}

pub(crate) fn pod(name: &str) -> Pod {
    let container = |name: &str| Container {
        name: name.to_owned(),
        kind: ContainerKind::Regular,
        state: ContainerState::Running,
        cgroup: ContainerCgroup::Unknown,
        cpu_request: Some(MilliCpu(500)),
        cpu_limit: None,
        memory_request: Some(Bytes(1 << 28)),
        memory_limit: Some(Bytes(1 << 30)),
        extended_resources: Vec::new(),
        next: None,
    };
    Pod {
        uid: "uid".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        annotations: BTreeMap::new(),
        priority: Some(-3),
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: vec![container("web"), container("log")],
        cpu_overhead: MilliCpu(0),
        memory_overhead: Bytes(0),
        memory_request: Some(Bytes(1 << 29)),
        memory_limit: None,
        cpu_limit: None,
        cpu_request: None,
        next: None,
        resize: None,
        lifecycle: PodLifecycle::default(),
    }
}

pub(crate) fn view<'a>(pod: &'a Pod, config: &'a str) -> PodView<'a> {
    PodView {
        id: POD,
        pod,
        containers: &[(ContainerId(10), None), (ContainerId(11), Some(2))],
        config,
        annotated: false,
    }
}

pub(crate) fn cpu(containers: impl IntoIterator<Item = u32>) -> Columns {
    let sample = |id| CpuSample {
        container: ContainerId(id),
        delta: CpuCounters { usage: Micros(u64::from(id) * 1000), ..CpuCounters::default() },
    };
    Columns { cpu: Some(containers.into_iter().map(sample).collect()), ..Columns::default() }
}

/// A worker that has the pod `web-1`.
fn worker() -> Instance {
    let mut worker = ENGINE.instantiate(&WORKER, "worker", &everything(), &Limits::default(), Vec::new()).unwrap();
    worker.configure("{}").unwrap();
    worker.pods(&[view(&pod("web-1"), "{}")], &[]).unwrap();
    worker
}

fn run(worker: &mut Instance, task: u64, columns: &Columns) -> Result<qosm_engine::Staged, CallError> {
    worker.evaluate(Micros(task), Cause::Interval, columns)
}

fn hold(target: Target, knob: Knob, value: Value) -> Setting {
    Setting::Hold { target, knob, value, reason: "because".into() }
}

#[test]
fn a_module_describes_itself_without_any_grant() {
    let description = ENGINE.describe(&WORKER).unwrap();
    assert_eq!((description.name.as_str(), description.version.as_str()), ("worker", "0.1.0"));
    assert_eq!(description.interval_millis, 1000);
    let protocol = description.protocol.unwrap();
    assert_eq!(protocol.config_map_key.as_deref(), Some("worker-config"));
    assert!(protocol.defaults.is_empty());
}

#[test]
fn a_missing_grant_is_named() {
    let grants: Grants = Interface::ALL.into_iter().filter(|&one| one != Interface::CpuBandwidth).collect();
    let error = ENGINE.instantiate(&WORKER, "worker", &grants, &Limits::default(), Vec::new()).unwrap_err();
    assert!(matches!(&error, EngineError::NotGranted { missing, .. } if *missing == [Interface::CpuBandwidth]));
    assert_eq!(
        error.to_string(),
        "policy `worker` imports `cpu-bandwidth`, which is not granted; add `cpu-bandwidth` to its grants, or list all that it \
         imports with `qosm policy inspect`"
    );
}

#[test]
fn a_column_becomes_settings() {
    let mut worker = worker();
    let staged = run(&mut worker, 1, &cpu([10, 11])).unwrap();
    let quota = |id, usec| hold(Target::Container(ContainerId(id)), Knob::CfsQuota, Value::Number(usec));
    assert_eq!(staged.settings, [quota(10, 10_000), quota(11, 11_000)]);
    let empty = run(&mut worker, 1, &Columns::default()).unwrap();
    assert!(empty.settings.is_empty(), "columns are not kept from one evaluation to the next");
}

#[test]
fn a_pod_arrives_with_its_containers_and_configuration() {
    let mut worker = ENGINE.instantiate(&WORKER, "worker", &everything(), &Limits::default(), Vec::new()).unwrap();
    let staged = worker.pods(&[view(&pod("four"), r#"{"policy":"auto"}"#)], &[]).unwrap();
    assert_eq!(staged.settings, [hold(WEB, Knob::CfsQuota, Value::Number(1 << 30))]);
    assert_eq!(staged.log, [LogLine { level: LogLevel::Info, message: r#"{"policy":"auto"}"#.to_owned() }]);
    let rejection = Rejection { pod: POD, field: "field".to_owned(), message: "too often".to_owned() };
    assert_eq!(staged.rejections, [rejection]);
}

#[test]
fn a_protection_is_held_and_released_field_by_field() {
    let mut worker = worker();
    let pod = Target::Pod(POD);
    let staged = run(&mut worker, 2, &Columns::default()).unwrap();
    assert_eq!(
        staged.settings,
        [
            hold(pod, Knob::MemoryMin, Value::Number(1 << 29)),
            hold(pod, Knob::MemoryHigh, Value::Max),
            hold(pod, Knob::OomGroup, Value::Number(1)),
        ]
    );
    let staged = run(&mut worker, 3, &Columns::default()).unwrap();
    let released = [Knob::MemoryMin, Knob::MemoryHigh, Knob::OomGroup];
    assert_eq!(staged.settings, released.map(|knob| Setting::Release { target: pod, knob }));
    assert!(run(&mut worker, 3, &Columns::default()).unwrap().settings.is_empty());
}

#[test]
fn a_tier_can_be_named_and_what_was_set_is_released() {
    let tier = Target::Tier(Tier::Burstable);
    let staged = run(&mut worker(), 9, &Columns::default()).unwrap();
    assert_eq!(
        staged.settings,
        [
            hold(tier, Knob::CfsQuota, Value::Number(5000)),
            hold(tier, Knob::CfsBurst, Value::Number(6000)),
            Setting::Release { target: tier, knob: Knob::CfsQuota },
            Setting::Release { target: tier, knob: Knob::CfsBurst },
        ]
    );
}

#[test]
fn a_weight_and_idle_are_held_and_released() {
    let mut worker = worker();
    let tier = Target::Tier(Tier::BestEffort);
    let staged = run(&mut worker, 17, &Columns::default()).unwrap();
    let held = [hold(tier, Knob::CpuWeight, Value::Number(1)), hold(WEB, Knob::CpuIdle, Value::Number(1))];
    assert_eq!(staged.settings, held);
    let staged = run(&mut worker, 18, &Columns::default()).unwrap();
    let released = [(tier, Knob::CpuWeight), (WEB, Knob::CpuIdle)];
    assert_eq!(staged.settings, released.map(|(target, knob)| Setting::Release { target, knob }));
    worker.pods(&[], &[POD]).unwrap();
    let error = run(&mut worker, 17, &Columns::default()).unwrap_err();
    assert!(matches!(error, CallError::Broke(breach) if matches!(breach.rule, Rule::UnknownTarget { .. })));
}

#[test]
fn cpus_limits_and_shares_are_held_and_released() {
    let mut worker = worker();
    let (pod, tier) = (Target::Pod(POD), Target::Tier(Tier::BestEffort));
    let staged = run(&mut worker, 30, &Columns::default()).unwrap();
    let cpus = qosm_model::cpus::CpuSet::of(&[3, 70]).unwrap();
    assert_eq!(
        staged.settings,
        [
            hold(pod, Knob::CpusetCpus, Value::Cpus(cpus)),
            hold(pod, Knob::MemoryMax, Value::Number(4096)),
            hold(tier, Knob::CpuWeight, Value::Shares(2)),
        ]
    );
    let staged = run(&mut worker, 31, &Columns::default()).unwrap();
    assert_eq!(
        staged.settings,
        [
            hold(pod, Knob::MemoryMax, Value::Max),
            Setting::Release { target: pod, knob: Knob::CpusetCpus },
            Setting::Release { target: tier, knob: Knob::CpuWeight },
        ]
    );
}

#[test]
fn no_limit_in_the_bandwidth_column_is_no_limit_in_a_setting() {
    let sample = |target, baseline_quota| BandwidthSample {
        target,
        quota: Some(Micros(1)),
        baseline_quota,
        period: Micros(100_000),
    };
    let bandwidth = [sample(Target::Pod(POD), None), sample(WEB, Some(Micros(50_000)))];
    let columns = Columns { bandwidth: Some(bandwidth.into_iter().collect()), ..Columns::default() };
    let staged = run(&mut worker(), 13, &columns).unwrap();
    let quotas = [(Target::Pod(POD), Value::Max), (WEB, Value::Number(50_000))];
    assert_eq!(staged.settings, quotas.map(|(target, value)| hold(target, Knob::CfsQuota, value)));
}

#[test]
fn memory_and_pressure_arrive() {
    let memory = MemorySample {
        container: ContainerId(10),
        memory: MemoryCounters { usage: Bytes(1 << 40), oom_kills: 3, ..MemoryCounters::default() },
    };
    let io = Stall { some: Micros(7), full: Micros(40) };
    let delta = PressureCounters { io, ..PressureCounters::default() };
    let columns = Columns {
        memory: Some([memory].into_iter().collect()),
        pressure: Some([PressureSample { container: ContainerId(10), delta }].into_iter().collect()),
        ..Columns::default()
    };
    let staged = run(&mut worker(), 14, &columns).unwrap();
    assert_eq!(staged.settings, [hold(WEB, Knob::CfsQuota, Value::Number(43))]);
}

#[test]
fn memory_locality_arrives_and_becomes_a_migration() {
    let id = ContainerId(10);
    let sample = NumaSample {
        container: id,
        identity: 1 << 40,
        cpu_nodes: vec![NumaId(1), NumaId(3)],
        memory_nodes: vec![NumaId(0)],
        pages: vec![(NumaId(0), 7)],
    };
    let column = NumaColumn { samples: vec![sample], ..NumaColumn::default() };
    let columns = Columns { numa: Some(column.into()), ..Columns::default() };
    let mut worker = worker();
    let migration = Migration {
        container: id,
        from: vec![NumaId(0)],
        to: vec![NumaId(1), NumaId(3)],
        token: 1 << 40,
        reason: "because".into(),
    };
    assert_eq!(run(&mut worker, 15, &columns).unwrap().settings, [Setting::Migrate(migration)]);
    assert_eq!(run(&mut worker, 16, &columns).unwrap().settings, [Setting::StopMigration { container: id }]);
    worker.pods(&[], &[POD]).unwrap();
    let error = run(&mut worker, 15, &columns).unwrap_err();
    assert!(matches!(error, CallError::Broke(breach) if matches!(breach.rule, Rule::UnknownTarget { .. })));
}

#[test]
fn caches_and_memory_bandwidth_arrive() {
    let usage = |domain, bytes: u64| Usage {
        domain: DomainId(domain),
        occupancy: Some(Bytes(bytes)),
        local: Some(Bytes(bytes * 10)),
        total: Some(Bytes(bytes * 100)),
    };
    let nothing = Usage { domain: DomainId(8), occupancy: None, local: None, total: None };
    let domain = Domain { id: DomainId(0), cache_ways: 11, cache: Some(Bytes(1 << 40)), divides_bandwidth: true };
    let class = "be".parse().unwrap();
    let why = "the processor has no class left".to_owned();
    let column = ResctrlColumn {
        domains: vec![domain],
        classes: vec![("be".parse().unwrap(), vec![usage(0, 3), nothing])],
        containers: vec![(ContainerId(10), vec![usage(0, 5), nothing])],
        rest: vec![usage(0, 7)],
        states: vec![ClassState { class, in_force: false, why: why.clone() }],
    };
    let columns = Columns { resctrl: Some(column.into()), ..Columns::default() };
    let mut worker = worker();
    let sum = (1 << 40) + 3 + 500 + 70;
    assert_eq!(run(&mut worker, 19, &columns).unwrap().settings, [hold(WEB, Knob::CfsQuota, Value::Number(sum))]);
    assert_eq!(run(&mut worker, 20, &columns).unwrap().log, [LogLine { level: LogLevel::Warn, message: why }]);
}

#[test]
fn what_the_node_its_tiers_and_its_pods_use_arrives() {
    let memory = GroupMemory { usage: Bytes(500), ..GroupMemory::default() };
    let used = GroupCounters {
        cpu_usage: Some(Micros(30)),
        cpu_pressure: Some(Stall { some: Micros(9_000_000), full: Micros(7) }),
        memory: Some(memory),
        oom_kills: Some(2),
        ..GroupCounters::default()
    };
    let stall = Stall { some: Micros(60_000), full: Micros(9_000_000) };
    let columns = Columns {
        node_memory: Some(NodeMemory {
            available: Bytes(1 << 40),
            min_mark: Some(Bytes(1 << 30)),
            ..NodeMemory::default()
        }),
        node_pressure: Some(PressureCounters { memory: stall, ..PressureCounters::default() }),
        groups: Some([GroupSample { group: Group::Pod(POD), used }].into()),
        ..Columns::default()
    };
    let sum = (1 << 40) + (1 << 30) + 60_000 + 500 + 30 + 7 + 2;
    assert_eq!(run(&mut worker(), 21, &columns).unwrap().settings, [hold(WEB, Knob::CfsQuota, Value::Number(sum))]);
}

#[test]
fn the_machines_cpus_arrive_and_are_told_when_they_change() {
    let cpu = |id| Cpu { id, core: id * 3, socket: 0, numa_node: id * 7, online: true };
    let exclusive = |cpu| vec![ExclusiveCpus { container: Some(ContainerId(10)), cpus: vec![cpu] }];
    let topology = CpuTopology { cpus: vec![cpu(0), cpu(1)], exclusive: exclusive(20), ..CpuTopology::default() };
    let sets = [CpuSet { target: Target::Tier(Tier::BestEffort), cpus: vec![5] }];
    let columns = |topology: &CpuTopology| Columns {
        cpu_topology: Some(topology.clone().into()),
        cpu_sets: Some(sets.clone().into()),
        ..Columns::default()
    };
    let mut worker = worker();
    let changed = CpuTopology { exclusive: exclusive(21), ..topology.clone() };
    for (topology, sum) in [(&topology, 135), (&topology, 135), (&changed, 236), (&topology, 335)] {
        let settings = run(&mut worker, 22, &columns(topology)).unwrap().settings;
        assert_eq!(settings, [hold(WEB, Knob::CfsQuota, Value::Number(sum))]);
    }
}

#[test]
fn a_part_of_a_signal_is_read_for_those_that_call_for_it() {
    assert!(Part::ALL.into_iter().all(|part| WORKER.reads(part)));
    for (interface, function) in [
        ("node", "read-memory"),
        ("node", "read-pressure"),
        ("node", "read-use"),
        ("node", "read-applications"),
        ("node", "read"),
        ("cpu-topology", "read-sets"),
        ("cpu-topology", "read"),
    ] {
        let import = format!("(import \"qosm:policy/{interface}@0.1.0\" \"{function}\" (func (param i32)))");
        let module = ENGINE.load(&guest::component(&import), None, &Compiler::InProcess).unwrap();
        assert!(module.imports().contains(&interface.parse().unwrap()));
        let read: Vec<_> = Part::ALL.into_iter().filter(|&part| module.reads(part)).map(Part::function).collect();
        assert_eq!(read, if function == "read" { vec![] } else { vec![function] });
    }
}

#[test]
fn the_node_is_remembered_but_never_invented() {
    let mut worker = worker();
    let node = NodeSample { memory_capacity: Bytes(1 << 35), ..NodeSample::default() };
    let columns = Columns { node: Some(node), ..Columns::default() };
    let expected = [hold(Target::Pod(POD), Knob::CfsQuota, Value::Number(1 << 35))];
    assert_eq!(run(&mut worker, 8, &columns).unwrap().settings, expected);
    assert_eq!(run(&mut worker, 8, &Columns::default()).unwrap().settings, expected);

    let error = run(&mut self::worker(), 8, &Columns::default()).unwrap_err();
    assert!(matches!(error, CallError::Broke(breach) if breach.rule == Rule::NothingMeasured));
}

#[test]
fn state_outlives_the_instance() {
    let limits = Limits::default();
    let mut first = ENGINE.instantiate(&WORKER, "worker", &everything(), &limits, vec![41]).unwrap();
    assert_eq!(run(&mut first, 4, &Columns::default()).unwrap().state, Some(vec![42]));
    assert_eq!(run(&mut first, 5, &Columns::default()).unwrap().state, None);
    assert_eq!(run(&mut first, 4, &Columns::default()).unwrap().state, Some(vec![43]));
}

#[test]
fn the_age_of_inherited_state_is_told_where_it_is_known() {
    let text = r#"
        (import "qosm:policy/state@0.1.0" "age-usec" (func $age (param i32)))
        (import "qosm:policy/state@0.1.0" "save" (func $save (param i32 i32 i32)))
        (func $evaluate (param i64 i32 i32 i32) (result i32)
            (call $age (i32.const 4200))
            (call $save (i32.const 4200) (i32.const 16) (i32.const 4400))
            (i32.const 16))"#;
    let module = ENGINE.load(&guest::component(text), None, &Compiler::InProcess).unwrap();
    for age in [None, Some(0), Some(u64::MAX)] {
        let inherited = InheritedState { bytes: vec![1], age: age.map(Micros) };
        let mut instance = ENGINE.instantiate(&module, "aged", &everything(), &Limits::default(), inherited).unwrap();
        instance.configure("{}").unwrap();
        for _ in 0..2 {
            let saved = instance.evaluate(Micros(0), Cause::Interval, &Columns::default()).unwrap().state.unwrap();
            let told = (saved[0] == 1).then(|| u64::from_le_bytes(saved[8..16].try_into().unwrap()));
            assert_eq!(told, age, "what is saved meanwhile does not change it");
        }
    }
}

#[test]
fn lines_and_events_are_handed_on() {
    let mut worker = worker();
    let line = |level, message: &str| LogLine { level, message: message.to_owned() };
    let staged = run(&mut worker, 5, &Columns::default()).unwrap();
    assert_eq!(staged.log, [line(LogLevel::Debug, "first line"), line(LogLevel::Warn, "too often")]);
    let event = PodEvent {
        pod: POD,
        kind: EventKind::Warning,
        reason: "Throttled".to_owned(),
        message: "too often".to_owned(),
    };
    assert_eq!(run(&mut worker, 10, &Columns::default()).unwrap().events, [event]);
}

#[test]
fn an_error_discards_the_evaluation_and_keeps_the_instance() {
    let mut worker = worker();
    let error = run(&mut worker, 6, &Columns::default()).unwrap_err();
    assert_eq!(error.to_string(), "module `worker` refused in `evaluate`: not today");
    assert!(worker.is_usable());
    assert_eq!(worker.take_log().0.len(), 1, "why is worth knowing");
    assert!(run(&mut worker, 5, &Columns::default()).unwrap().settings.is_empty());
}

#[test]
fn a_trap_discards_the_evaluation_and_ends_the_instance() {
    let mut worker = worker();
    let error = run(&mut worker, 7, &Columns::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "module `worker` trapped in `evaluate`: wasm trap: wasm `unreachable` instruction executed, in `evaluate`"
    );
    assert!(!worker.is_usable());
    let spent = worker.configure("{}").unwrap_err();
    assert!(matches!(spent, CallError::Spent { export: Export::Configure, .. }));
}

#[test]
fn a_wrong_configuration_is_refused_in_the_modules_words() {
    let mut worker = worker();
    let error = worker.configure(r#"{"mode":"\u001b[31mred"}"#).unwrap_err();
    assert_eq!(error.to_string(), r#"module `worker` refused in `configure`: {"mode":"\u001b[31mred"}"#);
    let error = worker.configure("\u{1b}[31mred").unwrap_err();
    assert_eq!(error.to_string(), "module `worker` refused in `configure`:  [31mred");
    assert!(worker.is_usable());
}

#[test]
fn what_is_gone_cannot_be_named_and_is_not_released() {
    let mut worker = worker();
    worker.pods(&[], &[POD]).unwrap();
    let error = run(&mut worker, 12, &Columns::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "module `worker` was stopped in `evaluate`: it names container number 10, which it was not given"
    );
}

#[test]
fn a_restarted_container_is_another_one() {
    let mut worker = worker();
    let web = pod("web-1");
    let again = [(ContainerId(20), None), (ContainerId(11), None)];
    worker.pods(&[PodView { containers: &again, ..view(&web, "{}") }], &[]).unwrap();
    assert_eq!(run(&mut worker, 1, &cpu([20, 11])).unwrap().settings.len(), 2);
    assert!(run(&mut worker, 1, &cpu([10])).is_err());
}

#[test]
fn three_hundred_containers_are_one_call() {
    let mut worker = worker();
    let mut web = pod("web-1");
    web.containers = (0..300).map(|_| web.containers.first().unwrap().clone()).collect();
    let ids: Vec<_> = (100..400).map(|id| (ContainerId(id), None)).collect();
    worker.pods(&[PodView { containers: &ids, ..view(&web, "{}") }], &[]).unwrap();
    assert_eq!(run(&mut worker, 1, &cpu(100..400)).unwrap().settings.len(), 300);
}
