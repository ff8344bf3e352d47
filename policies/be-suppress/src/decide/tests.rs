//! Whole evaluations with values computed by hand.

use qosm_sdk::{ContainerId, KubeQos, MilliCpu, QosClass};

use super::*;
use crate::config::{Mode, Settings, Thresholds};
use crate::input::{Kubelet, Pod, Pressure, Sample};
use crate::{Reservation, SystemQos};
use cpu_sets::pick::machine;

const CPU: u64 = 1_000_000;
const SECOND: u64 = 1_000_000;
/// A batch pod and its containers.
const BE: PodId = 2;
const CONTAINERS: [ContainerId; 2] = [21, 22];

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

/// Enabled at 65 %, with pods 1 (latency-sensitive) and 2 (batch).
fn config(profile: Profile, mode: Mode) -> Config {
    Config {
        policy: Settings { profile, ..Settings::default() },
        strategy: Thresholds { enable: Some(true), mode: Some(mode), ..Thresholds::default() },
    }
}

/// 16 CPUs, of which a latency-sensitive pod uses 6, a batch pod 3 and the system 1: 3400m are allowed.
fn inputs() -> Inputs {
    let used = |micro_cpu| Sample { micro_cpu, at_usec: 10 * SECOND };
    Inputs {
        node: Some(Node { capacity: MilliCpu(16_000), allocatable: MilliCpu(16_000), ..Node::default() }),
        node_used: Some(used(10 * CPU)),
        pods: vec![
            Pod::new(1),
            Pod {
                class: Some(QosClass::Be),
                kube_qos: KubeQos::BestEffort,
                containers: CONTAINERS.into(),
                ..Pod::new(BE)
            },
        ],
        pods_used: Some(BTreeMap::from([(1, used(6 * CPU)), (BE, used(3 * CPU))])),
        cpus: machine(2, 4, 2),
        in_force: InForce {
            tier_cpus: Some(set("0-15")),
            container_cpus: CONTAINERS.map(|id| (id, set("0-15"))).into(),
            tier_quota: Some(Quota { quota_usec: None, period_usec: 100_000 }),
        },
        ..Inputs::default()
    }
}

/// Sets the use of latency-sensitive pods, in CPUs; the rest stays.
fn with_ls(mut inputs: Inputs, cpus: u64) -> Inputs {
    let sample = |micro_cpu| Sample { micro_cpu, at_usec: 10 * SECOND };
    inputs.node_used = Some(sample((cpus + 4) * CPU));
    inputs.pods_used.as_mut().unwrap().insert(1, sample(cpus * CPU));
    inputs
}

fn at(second: u64) -> u64 {
    (10 + second) * SECOND
}

/// The settings, one line each.
fn held(decisions: &Decisions) -> Vec<String> {
    let line = |(target, setting): &(Target, Setting)| {
        let target = match target {
            Target::Tier(_) => "tier".to_owned(),
            Target::Pod(id) => format!("pod {id}"),
            Target::Container(id) => format!("container {id}"),
        };
        match setting {
            Setting::Cpus(cpus) => format!("{target}: {cpus}"),
            Setting::Quota(quota) => format!("{target}: {quota:?}"),
            other => format!("{target}: {other:?}"),
        }
    };
    decisions.wanted.as_ref().expect("something is decided").iter().map(line).collect()
}

fn once(config: &Config, inputs: &Inputs) -> Decisions {
    tick(&mut State::default(), config, inputs, at(0))
}

#[test]
fn the_chosen_set_goes_to_the_tier_and_what_is_within_follows() {
    for profile in [Profile::Koordinator, Profile::Responsive] {
        let decisions = once(&config(profile, Mode::Cpuset), &inputs());
        // 4 CPUs: one core on each node.
        assert_eq!(held(&decisions), ["tier: 0-1,8-9"], "{profile:?}");
    }
    let decisions = once(&config(Profile::Responsive, Mode::Cpuset), &inputs());
    insta::assert_snapshot!(decisions.verdict, @"65 % of 16000m, less 6000m of latency-sensitive pods and 1000m of the system: 3400m; CPUs 0-1,8-9: 4, 16 before");
}

#[test]
fn only_what_is_within_the_tier_is_written() {
    let mut inputs = inputs();
    // Pod 3 is batch by its label, but in the tier Burstable; pod 4 has ended.
    inputs.pods.push(Pod { class: Some(QosClass::Be), containers: vec![31], ..Pod::new(3) });
    inputs.pods.push(Pod { kube_qos: KubeQos::BestEffort, is_active: false, containers: vec![41], ..Pod::new(4) });
    inputs.kubelet.is_static = true;
    let targets: Vec<_> = once(&config(Profile::Responsive, Mode::Cpuset), &inputs)
        .wanted
        .unwrap()
        .into_iter()
        .map(|(target, _)| target)
        .collect();
    assert_eq!(targets, [TIER, Target::Container(21), Target::Container(22)]);
}

#[test]
fn under_the_static_cpu_manager_only_containers_are_narrowed() {
    let mut inputs = inputs();
    inputs.kubelet = Kubelet { is_static: true, exclusive: set("4-5") };
    inputs.node.as_mut().unwrap().reservation = Reservation { cpu_milli: 1_000, cpus: set("15") };
    for (profile, whole, chosen) in [
        // Node 0 has 8 CPUs left, node 1 has 7.
        (Profile::Koordinator, "0-14", "0-1,8-9"),
        // The kubelet's exclusive CPUs are left out, so node 1 is the larger one now.
        (Profile::Responsive, "0-3,6-14", "0-1,8-9"),
    ] {
        let decisions = once(&config(profile, Mode::Cpuset), &inputs);
        let expected = [format!("tier: {whole}"), format!("container 21: {chosen}"), format!("container 22: {chosen}")];
        assert_eq!(held(&decisions), expected, "{profile:?}");
    }
}

#[test]
fn steps_up_start_from_what_batch_pods_have() {
    // 65 % of 16 − 2 − 1: 7400m, 8 CPUs. A tenth of 16 CPUs, rounded up, is 2.
    let calm = with_ls(inputs(), 2);
    for (profile, is_static, tier, container, count) in [
        (Profile::Koordinator, false, "0-1", "0-1", 4),
        (Profile::Responsive, false, "0-1", "0-1", 4),
        (Profile::Koordinator, false, "0-6", "0-6", 8),
        // Koordinator counts the tier, which has all CPUs here, so the step is not bounded.
        (Profile::Koordinator, true, "0-15", "0-1", 8),
        (Profile::Responsive, true, "0-15", "0-1", 4),
    ] {
        let mut inputs = calm.clone();
        inputs.kubelet.is_static = is_static;
        inputs.in_force.tier_cpus = Some(set(tier));
        inputs.in_force.container_cpus = CONTAINERS.map(|id| (id, set(container))).into();
        let mut state = State::default();
        tick(&mut state, &config(profile, Mode::Cpuset), &inputs, at(0));
        assert_eq!(state.chosen.map(|cpus| cpus.len()), Some(count), "{profile:?} {is_static} {tier}");
    }
}

#[test]
fn at_least_two_cpus_remain() {
    let full = with_ls(inputs(), 14);
    for profile in [Profile::Koordinator, Profile::Responsive] {
        assert_eq!(held(&once(&config(profile, Mode::Cpuset), &full))[0], "tier: 0-1");
    }
}

#[test]
fn one_quota_is_for_the_tier_as_a_whole() {
    for profile in [Profile::Koordinator, Profile::Responsive] {
        let decisions = once(&config(profile, Mode::CfsQuota), &inputs());
        assert_eq!(held(&decisions), ["tier: Some(340000)"], "{profile:?}");
    }
    let decisions = once(&config(Profile::Koordinator, Mode::CfsQuota), &inputs());
    insta::assert_snapshot!(decisions.verdict, @"65 % of 16000m, less 6000m of latency-sensitive pods and 1000m of the system: 3400m; CFS quota 340000 us of 100000 us, unlimited before");
}

#[test]
fn a_quota_that_hardly_changes_is_kept() {
    let mut inputs = inputs();
    inputs.in_force.tier_quota = Some(Quota { quota_usec: Some(330_000), period_usec: 100_000 });
    for profile in [Profile::Koordinator, Profile::Responsive] {
        assert_eq!(held(&once(&config(profile, Mode::CfsQuota), &inputs))[0], "tier: Some(330000)", "{profile:?}");
    }
}

#[test]
fn a_full_node_gets_a_quota_although_there_was_none() {
    // 65 % of 16 − 9.3 − 1: 100m. 10000 µs differ from −1 (unlimited) by less than 1 % of the node, so koordinator sets no quota.
    let mut inputs = inputs();
    inputs.pods_used.as_mut().unwrap().insert(1, Sample { micro_cpu: 9_300_000, at_usec: at(0) });
    inputs.node_used = Some(Sample { micro_cpu: 13_300_000, at_usec: at(0) });
    for (profile, held_now) in [(Profile::Koordinator, vec![]), (Profile::Responsive, vec!["tier: Some(10000)"])] {
        let decisions = once(&config(profile, Mode::CfsQuota), &inputs);
        assert_eq!(held(&decisions).first().map(String::as_str), held_now.first().copied(), "{profile:?}");
    }
}

#[test]
fn with_a_quota_others_keep_the_cpus_that_are_theirs_alone() {
    let mut inputs = inputs();
    inputs.node.as_mut().unwrap().system = SystemQos { cpus: set("0-1"), is_exclusive: true };
    inputs.pods[0] = Pod { class: Some(QosClass::Lse), pinned: set("8-11"), ..Pod::new(1) };
    let decisions = once(&config(Profile::Responsive, Mode::CfsQuota), &inputs);
    assert_eq!(held(&decisions), ["tier: 2-7,12-15", "tier: Some(340000)"]);
}

#[test]
fn recovery_is_release() {
    let mut state = State::default();
    let (by_set, by_quota) = (config(Profile::Responsive, Mode::Cpuset), config(Profile::Responsive, Mode::CfsQuota));
    let is_quota = |(_, setting): &(Target, Setting)| matches!(setting, Setting::Quota(_));
    let wanted = tick(&mut state, &by_set, &inputs(), at(0)).wanted.unwrap();
    assert!(!wanted.iter().any(is_quota));
    let wanted = tick(&mut state, &by_quota, &inputs(), at(1)).wanted.unwrap();
    assert!(wanted.iter().all(is_quota));
    let wanted = tick(&mut state, &by_set, &inputs(), at(2)).wanted.unwrap();
    assert!(!wanted.iter().any(is_quota));
    for off in ["{}", r#"{"enable": false, "cpuSuppressPolicy": "cfsQuota"}"#] {
        let off = Config { strategy: serde_json::from_str(off).unwrap(), ..Config::default() };
        let decisions = tick(&mut state, &off, &Inputs::default(), at(3));
        assert_eq!(decisions, Decisions { wanted: Some(vec![]), verdict: Verdict::Off, reports: vec![] });
        assert_eq!(state, State::default());
    }
}

#[test]
fn with_the_be_cpu_manager_nothing_is_suppressed() {
    let mut inputs = inputs();
    inputs.pods.push(Pod { kube_qos: KubeQos::BestEffort, has_numa_nodes: true, containers: vec![31], ..Pod::new(3) });
    inputs.pods.push(Pod { kube_qos: KubeQos::BestEffort, pinned: set("6-7"), containers: vec![41], ..Pod::new(4) });
    inputs.pods.push(Pod { class: Some(QosClass::Lse), pinned: set("8-9"), ..Pod::new(5) });
    inputs.pods_used = None;
    let mut config = config(Profile::Koordinator, Mode::CfsQuota);
    config.policy.be_cpu_manager = true;
    let decisions = once(&config, &inputs);
    let whole = "0-7,10-15";
    assert_eq!(held(&decisions), [format!("tier: {whole}")]);
    insta::assert_snapshot!(decisions.verdict, @"CPUs of batch pods are managed by NUMA node, within 0-7,10-15");
}

#[test]
fn cpus_that_go_offline_are_no_longer_held() {
    for profile in [Profile::Koordinator, Profile::Responsive] {
        let (config, mut state) = (config(profile, Mode::Cpuset), State::default());
        let decisions = tick(&mut state, &config, &inputs(), at(0));
        assert_eq!(held(&decisions), ["tier: 0-1,8-9"], "{profile:?}");
        // The second NUMA node goes offline, before or after the kubelet updates the capacity.
        for (capacity, second) in [(16_000, 1), (8_000, 2)] {
            let capacity = MilliCpu(capacity);
            let mut smaller = with_ls(inputs(), 6);
            smaller.node = Some(Node { capacity, allocatable: capacity, ..Node::default() });
            smaller.cpus.retain(|cpu| cpu.id < 8);
            smaller.in_force.tier_cpus = Some(set("0-1"));
            let decisions = tick(&mut state, &config, &smaller, at(second));
            let wanted = decisions.wanted.expect("something is decided");
            let [(TIER, Setting::Cpus(cpus))] = &wanted[..] else { panic!("{wanted:?}") };
            assert!(cpus.len() >= 2 && cpus.is_subset(&set("0-7")), "{profile:?} {capacity:?}: {cpus}");
        }
    }
}

#[test]
fn a_quota_needs_no_topology() {
    for profile in [Profile::Koordinator, Profile::Responsive] {
        let config = config(profile, Mode::CfsQuota);
        let known = tick(&mut State::default(), &config, &inputs(), at(0));
        let without = Inputs { cpus: Vec::new(), ..inputs() };
        let unknown = tick(&mut State::default(), &config, &without, at(0));
        assert!(unknown.wanted.as_ref().is_some_and(|wanted| !wanted.is_empty()), "{unknown:?}");
        assert_eq!(unknown.wanted, known.wanted, "{profile:?}");
        // Choosing CPUs for batch pods needs the topology.
        let policy = Settings { be_cpu_manager: true, ..config.policy };
        let chosen = tick(&mut State::default(), &Config { policy, ..config }, &without, at(0));
        assert_eq!((chosen.wanted, chosen.verdict), (None, Verdict::Unchanged(Missing::Cpus)));
    }
}

#[test]
fn nothing_is_changed_while_something_is_not_known() {
    let stale = Sample { micro_cpu: CPU, at_usec: at(0) - 2 * SECOND - 1 };
    type Change = fn(&mut Inputs);
    let cases: [(Change, Mode, Missing); 9] = [
        (|inputs| inputs.node = None, Mode::Cpuset, Missing::Node),
        (|inputs| inputs.node.as_mut().unwrap().capacity = MilliCpu(0), Mode::Cpuset, Missing::Node),
        (|inputs| inputs.pods.clear(), Mode::Cpuset, Missing::Pods),
        (|inputs| inputs.pods_used = None, Mode::Cpuset, Missing::PodsUsed),
        (|inputs| inputs.node_used = None, Mode::CfsQuota, Missing::NodeUsed),
        (|inputs| inputs.cpus.clear(), Mode::Cpuset, Missing::Cpus),
        (|inputs| inputs.in_force.tier_cpus = None, Mode::Cpuset, Missing::TierCpus),
        (|inputs| inputs.in_force.tier_quota = None, Mode::CfsQuota, Missing::TierQuota),
        (
            |inputs| inputs.in_force.tier_quota = Some(Quota { quota_usec: None, period_usec: 0 }),
            Mode::CfsQuota,
            Missing::TierQuota,
        ),
    ];
    for (change, mode, missing) in cases {
        for profile in [Profile::Koordinator, Profile::Responsive] {
            let (config, mut state) = (config(profile, mode.clone()), State::default());
            let mut broken = inputs();
            change(&mut broken);
            for has_begun in [true, false] {
                let decisions = tick(&mut state, &config, &broken, at(0));
                assert_eq!((decisions.wanted, decisions.verdict), (None, Verdict::Unchanged(missing)));
                let reports = [Report { condition: Condition::Missing(missing), has_begun: true }];
                assert_eq!(decisions.reports, reports[..usize::from(has_begun)], "told once");
            }
            let decisions = tick(&mut state, &config, &inputs(), at(0));
            assert_eq!(decisions.reports, [Report { condition: Condition::Missing(missing), has_begun: false }]);
        }
    }
    let mut old = inputs();
    old.node_used = Some(stale);
    assert_eq!(once(&config(Profile::Koordinator, Mode::Cpuset), &old).verdict, Verdict::Unchanged(Missing::NodeUsed));
    // A stale sample of a pod is ignored, so its use counts as the system's.
    let mut old = inputs();
    old.pods_used.as_mut().unwrap().insert(1, stale);
    let Verdict::Suppressed { allowed, .. } = once(&config(Profile::Koordinator, Mode::Cpuset), &old).verdict else {
        panic!()
    };
    assert_eq!((allowed.non_be_pods, allowed.system, allowed.milli), (0, 7_000, 3_400));
}

#[test]
fn without_any_cpu_the_last_set_stays_and_a_quota_bounds_it() {
    let mut state = State::default();
    let config = config(Profile::Responsive, Mode::Cpuset);
    tick(&mut state, &config, &inputs(), at(0));
    let mut full = inputs();
    full.pods[0] = Pod { class: Some(QosClass::Lse), pinned: set("0-15"), ..Pod::new(1) };
    full.in_force.tier_cpus = Some(set("0-1,8-9"));
    let decisions = tick(&mut state, &config, &full, at(1));
    assert_eq!(held(&decisions), ["tier: 0-1,8-9", "tier: Some(340000)"]);
    insta::assert_snapshot!(decisions.verdict, @"65 % of 16000m, less 6000m of latency-sensitive pods and 1000m of the system: 3400m; too few CPUs are left for batch pods; they keep 0-1,8-9; CFS quota 340000 us");
    assert_eq!(decisions.reports, [Report { condition: Condition::NoCpus, has_begun: true }]);
    insta::assert_snapshot!(decisions.reports[0].text(&config.policy), @"all CPUs are reserved or belong to others alone: batch pods keep the CPUs that they had and are bounded by a quota; reserve fewer CPUs, or move batch pods away");
    assert_eq!(tick(&mut state, &config, &full, at(1)).reports, [], "told once");
    assert_eq!(
        tick(&mut state, &config, &inputs(), at(2)).reports,
        [Report { condition: Condition::NoCpus, has_begun: false }]
    );
    // Without an earlier set, only the quota is held.
    assert_eq!(held(&once(&config, &full))[0], "tier: Some(340000)");
    // Koordinator divides by zero here; this policy keeps the current state.
    let koordinator = Config { policy: Settings { profile: Profile::Koordinator, ..config.policy }, ..config };
    let kept = once(&koordinator, &full);
    assert_eq!(kept.wanted, Some(vec![]));
    insta::assert_snapshot!(kept.reports[0].text(&koordinator.policy), @"all CPUs are reserved or belong to others alone: batch pods keep the CPUs that they had; reserve fewer CPUs, or move batch pods away");
}

#[test]
fn without_any_cpu_the_last_set_stays_also_by_quota_and_by_numa_node() {
    let by_quota = config(Profile::Responsive, Mode::CfsQuota);
    let mut by_numa_node = config(Profile::Responsive, Mode::Cpuset);
    by_numa_node.policy.be_cpu_manager = true;
    for config in [by_quota, by_numa_node] {
        let mut state = State::default();
        let mut inputs = inputs();
        inputs.pods[0] = Pod { class: Some(QosClass::Lse), pinned: set("0-3"), ..Pod::new(1) };
        let before = tick(&mut state, &config, &inputs, at(0));
        assert_eq!(held(&before)[0], "tier: 4-15", "{config:?}");
        inputs.pods[0].pinned = set("0-15");
        let full = tick(&mut state, &config, &inputs, at(1));
        assert_eq!(held(&full)[0], "tier: 4-15", "{config:?}");
        assert_eq!(full.reports, [Report { condition: Condition::NoCpus, has_begun: true }], "{config:?}");
        inputs.pods[0].pinned = CpuSet::default();
        let free = tick(&mut state, &config, &inputs, at(2));
        assert!(!held(&free).contains(&"tier: 4-15".to_owned()), "{config:?}: {free:?}");
    }
}

#[test]
fn a_pool_that_is_too_small_gives_all_that_it_has() {
    let mut inputs = with_ls(inputs(), 2);
    inputs.node.as_mut().unwrap().reservation = Reservation { cpu_milli: 0, cpus: set("0-2,4-15") };
    let mut state = State::default();
    let decisions = tick(&mut state, &config(Profile::Responsive, Mode::Cpuset), &inputs, at(0));
    assert_eq!(held(&decisions)[0], "tier: 3");
    assert_eq!(decisions.reports, [Report { condition: Condition::FewCpus, has_begun: true }]);
    insta::assert_snapshot!(decisions.verdict, @"65 % of 16000m, less 2000m of latency-sensitive pods and 1000m of the system: 7400m; CPUs 3: 1, 16 before, of 8 that could be used");
    // Koordinator writes nothing in this case.
    let koordinator = config(Profile::Koordinator, Mode::Cpuset);
    let decisions = once(&koordinator, &inputs);
    assert_eq!(decisions.wanted, Some(vec![]));
    insta::assert_snapshot!(decisions.reports[0].text(&koordinator.policy), @"fewer CPUs are left than batch pods are to keep: they keep the CPUs that they had");
}

#[test]
fn what_cannot_be_written_falls_back() {
    let none = Controls { cpuset: false, quota: false, idle: false, weight: false };
    for (mode, controls, first, condition) in [
        (Mode::Cpuset, Controls::default(), Some("tier: 0-1,8-9"), None),
        (
            Mode::Cpuset,
            Controls { quota: true, idle: true, ..none },
            Some("tier: Some(340000)"),
            Some(Condition::NoCpuset),
        ),
        (
            Mode::CfsQuota,
            Controls { cpuset: true, idle: true, ..none },
            Some("tier: 0-1,8-9"),
            Some(Condition::NoQuota),
        ),
        (Mode::CfsQuota, Controls { quota: true, ..none }, Some("tier: Some(340000)"), None),
        (Mode::Cpuset, Controls { idle: true, weight: true, ..none }, Some("tier: Idle"), Some(Condition::NoControl)),
        (Mode::CfsQuota, Controls { idle: true, ..none }, Some("tier: Idle"), Some(Condition::NoControl)),
        (Mode::Cpuset, Controls { weight: true, ..none }, Some("tier: Weight(1)"), Some(Condition::NoControl)),
        (Mode::Cpuset, none, None, Some(Condition::NoControl)),
    ] {
        for profile in [Profile::Koordinator, Profile::Responsive] {
            let inputs = Inputs { controls, ..inputs() };
            let decisions = once(&config(profile, mode.clone()), &inputs);
            assert_eq!(held(&decisions).first().map(String::as_str), first, "{mode:?} {controls:?}");
            let expected: Vec<_> =
                condition.map(|condition| Report { condition, has_begun: true }).into_iter().collect();
            assert_eq!(decisions.reports, expected, "{mode:?} {controls:?}");
        }
    }
}

fn pressed(mut inputs: Inputs, some_usec: u64) -> Inputs {
    inputs.pods[0].pressure = Some(Pressure { some_usec, throttled_usec: 0, window_usec: SECOND });
    inputs
}

#[test]
fn latency_sensitive_pods_that_wait_take_from_batch_pods() {
    let config_set = config(Profile::Responsive, Mode::Cpuset);
    // 8 CPUs are allowed, and batch pods have 8.
    let mut inputs = pressed(with_ls(inputs(), 2), 300_000);
    inputs.in_force.tier_cpus = Some(set("0-7"));
    let mut state = State::default();
    let decisions = tick(&mut state, &config_set, &inputs, at(0));
    // A fifth less: 6400m, which is 7 CPUs.
    assert_eq!(state.chosen.as_ref().map(CpuSet::len), Some(7));
    insta::assert_snapshot!(decisions.verdict, @"65 % of 16000m, less 2000m of latency-sensitive pods and 1000m of the system: 7400m; less than now, since pod 1 waited for a CPU 300 ms of 1000 ms; CPUs 0-3,8-10: 7, 8 before, of 8 that could be used");
    // The next cut follows half a second later at the earliest.
    inputs.in_force.tier_cpus = state.chosen.clone();
    tick(&mut state, &config_set, &inputs, at(0) + 400_000);
    assert_eq!(state.chosen.as_ref().map(CpuSet::len), Some(7));
    tick(&mut state, &config_set, &inputs, at(0) + 500_000);
    assert_eq!(state.chosen.as_ref().map(CpuSet::len), Some(6));

    // The same with a quota.
    inputs.in_force.tier_quota = Some(Quota { quota_usec: Some(740_000), period_usec: 100_000 });
    let decisions = once(&config(Profile::Responsive, Mode::CfsQuota), &inputs);
    assert_eq!(held(&decisions)[0], "tier: Some(592000)");

    // Koordinator ignores pressure.
    inputs.in_force.tier_cpus = Some(set("0-7"));
    assert_eq!(
        once(&config(Profile::Koordinator, Mode::Cpuset), &inputs),
        once(&config(Profile::Koordinator, Mode::Cpuset), &pressed(inputs.clone(), 0))
    );
}

#[test]
fn pressure_does_not_take_the_operators_floor_nor_the_last_two_cpus() {
    let mut config = config(Profile::Responsive, Mode::Cpuset);
    let mut inputs = pressed(with_ls(inputs(), 2), 900_000);
    for (min_percent, count) in [(Some(40), 7), (None, 2)] {
        config.strategy.min_percent = min_percent;
        let mut state = State::default();
        inputs.in_force.tier_cpus = Some(set("0-7"));
        for second in 0..10 {
            tick(&mut state, &config, &inputs, at(second) - at(0) + 10 * SECOND);
            inputs.in_force.tier_cpus = state.chosen.clone();
            for sample in inputs.pods_used.as_mut().unwrap().values_mut().chain(inputs.node_used.as_mut()) {
                sample.at_usec = at(second + 1);
            }
        }
        // 40 % of 16000m are 6400m.
        assert_eq!(state.chosen.map(|cpus| cpus.len()), Some(count), "{min_percent:?}");
    }
}

#[test]
fn rises_come_a_second_apart_however_often_it_is_asked() {
    let config = config(Profile::Responsive, Mode::Cpuset);
    let mut state = State::default();
    let mut inputs = with_ls(inputs(), 2);
    inputs.in_force.tier_cpus = Some(set("0-1"));
    let counts: Vec<_> = [0, 100_000, 500_000, 899_999, 950_000, 1_000_000, 2_000_000]
        .into_iter()
        .map(|after| {
            tick(&mut state, &config, &inputs, at(0) + after);
            inputs.in_force.tier_cpus = state.chosen.clone();
            state.chosen.as_ref().map_or(0, CpuSet::len)
        })
        .collect();
    assert_eq!(counts, [4, 4, 4, 4, 6, 6, 8]);
}

#[test]
fn where_the_tier_keeps_its_cpus_for_a_protected_pod_its_other_pods_count() {
    for (profile, counts) in [(Profile::Responsive, [7, 6, 5, 2, 4]), (Profile::Koordinator, [8, 8, 8, 2, 4])] {
        let config = config(profile, Mode::Cpuset);
        let mut state = State { chosen: Some(set("0-7")), ..State::default() };
        let mut found = Vec::new();
        for (second, pressure, used) in
            [(0, 300_000, 2), (1, 300_000, 2), (2, 300_000, 2), (3, 300_000, 14), (20, 0, 2)]
        {
            let mut inputs = pressed(with_ls(inputs(), used), pressure);
            for sample in inputs.pods_used.as_mut().unwrap().values_mut().chain(inputs.node_used.as_mut()) {
                sample.at_usec = at(second);
            }
            inputs.in_force.tier_cpus = Some(set("0-15"));
            inputs.in_force.container_cpus = CONTAINERS.map(|id| (id, state.chosen.clone().unwrap())).into();
            tick(&mut state, &config, &inputs, at(second));
            found.push(state.chosen.as_ref().map_or(0, CpuSet::len));
        }
        assert_eq!(found, counts, "{profile:?}");
    }
}

#[test]
fn a_clock_that_began_anew_does_not_stop_rises() {
    let config = config(Profile::Responsive, Mode::Cpuset);
    // State of a restarted agent: all timestamps lie in the future of the new clock.
    let later = Some(1_000 * SECOND);
    let mut state = State { risen_at_usec: later, cut_at_usec: later, pressed_at_usec: later, ..State::default() };
    let mut inputs = with_ls(inputs(), 2);
    inputs.in_force.tier_cpus = Some(set("0-1"));
    let mut counts = Vec::new();
    for second in 0..=5 {
        for sample in inputs.pods_used.as_mut().unwrap().values_mut().chain(inputs.node_used.as_mut()) {
            sample.at_usec = at(second);
        }
        tick(&mut state, &config, &inputs, at(second));
        counts.push(state.chosen.as_ref().map_or(0, CpuSet::len));
    }
    // After five seconds of calm, batch pods get two more CPUs.
    assert_eq!(counts, [2, 2, 2, 2, 2, 4]);
}
