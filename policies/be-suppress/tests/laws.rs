//! Properties that hold for all loads and configurations.

use std::collections::BTreeMap;

use be_suppress::config::{Config, Mode, Profile, Settings, Thresholds};
use be_suppress::input::{Controls, HostApp, InForce, Inputs, Kubelet, Node, Pod, Pressure, Quota, Sample};
use be_suppress::set::Pools;
use be_suppress::verdict::{How, Verdict};
use be_suppress::{Cpu, CpuSet, Decisions, Reservation, Setting, State, SystemQos, tick};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use qosm_sdk::{KubeQos, MilliCpu, QosClass, Target, Tier};

const SECOND: u64 = 1_000_000;

fn cpus(of: u32) -> impl Strategy<Value = CpuSet> {
    vec(0..of + 4, 0..12).prop_map(|cpus| cpus.into_iter().collect())
}

fn pod(id: u32, of: u32) -> impl Strategy<Value = Pod> {
    let class = option::of(prop_oneof![
        Just(QosClass::Be),
        Just(QosClass::Ls),
        Just(QosClass::Lsr),
        Just(QosClass::Lse),
        Just(QosClass::System)
    ]);
    let kube_qos =
        prop_oneof![1 => Just(KubeQos::Guaranteed), 1 => Just(KubeQos::Burstable), 2 => Just(KubeQos::BestEffort)];
    let pressure = option::of((0..SECOND, 0..SECOND / 4).prop_map(|(some_usec, throttled_usec)| Pressure {
        some_usec,
        throttled_usec,
        window_usec: SECOND,
    }));
    (
        class,
        kube_qos,
        prop::bool::weighted(0.9),
        option::weighted(0.3, cpus(of)),
        0..3_u32,
        pressure,
        prop::bool::weighted(0.1),
    )
        .prop_map(move |(class, kube_qos, is_active, pinned, containers, pressure, is_alarmed)| Pod {
            class,
            kube_qos,
            is_active,
            pinned: pinned.unwrap_or_default(),
            containers: (0..containers).map(|number| id * 10 + number).collect(),
            pressure,
            is_alarmed,
            ..Pod::new(id)
        })
}

fn inputs() -> impl Strategy<Value = Inputs> {
    (1..3_u32, 1..9_u32, 1..3_u32).prop_flat_map(|(nodes, cores, threads)| {
        let count = nodes * cores * threads;
        let machine: Vec<Cpu> = (0..count)
            .map(|id| Cpu { id, core: id / threads, socket: id / threads / cores, node: id / threads / cores })
            .collect();
        let node = (option::weighted(0.2, cpus(count)), option::weighted(0.2, cpus(count)), any::<bool>(), 0..=20_u64)
            .prop_map(move |(reserved, system, is_exclusive, kept)| {
                let capacity = u64::from(count) * 1_000;
                Node {
                    capacity: MilliCpu(capacity),
                    allocatable: MilliCpu(capacity - capacity * kept / 100),
                    reservation: Reservation { cpu_milli: 0, cpus: reserved.unwrap_or_default() },
                    system: SystemQos { cpus: system.unwrap_or_default(), is_exclusive },
                }
            });
        let pods = (pod(1, count), pod(2, count), pod(3, count)).prop_map(|(one, two, three)| vec![one, two, three]);
        let used = vec(0..u64::from(count) * SECOND, 4);
        let quota = (option::of(2_000..10_000_000_u64), prop_oneof![Just(100_000_u64), Just(10_000)])
            .prop_map(|(quota_usec, period_usec)| Quota { quota_usec, period_usec });
        let kubelet = (any::<bool>(), option::weighted(0.2, cpus(count)))
            .prop_map(|(is_static, exclusive)| Kubelet { is_static, exclusive: exclusive.unwrap_or_default() });
        let controls = (prop::bool::weighted(0.9), prop::bool::weighted(0.9), any::<bool>(), any::<bool>())
            .prop_map(|(cpuset, quota, idle, weight)| Controls { cpuset, quota, idle, weight });
        (Just(machine), node, pods, used, quota, kubelet, controls, 1..=count, any::<bool>()).prop_map(
            |(cpus, node, pods, used, quota, kubelet, controls, old, risen)| {
                let sample = |micro_cpu| Sample { micro_cpu, at_usec: 0 };
                Inputs {
                    node: Some(node),
                    node_used: Some(sample(used[0])),
                    pods_used: Some(BTreeMap::from([
                        (1, sample(used[1])),
                        (2, sample(used[2])),
                        (7, sample(used[3] / 8)),
                    ])),
                    unlisted_used: Some(sample(used[3] / 32)),
                    host_apps: vec![HostApp {
                        class: None,
                        base: be_suppress::input::CgroupBase::Other,
                        used_micro_cpu: Some(used[3] / 16),
                    }],
                    pods,
                    kubelet,
                    in_force: InForce {
                        tier_cpus: Some((0..old).collect()),
                        container_cpus: BTreeMap::new(),
                        tier_quota: Some(quota),
                    },
                    controls,
                    cpus,
                    has_load_risen: risen,
                }
            },
        )
    })
}

fn configs() -> impl Strategy<Value = Config> {
    let mode = prop_oneof![Just(Mode::Cpuset), Just(Mode::CfsQuota)];
    let profile = prop_oneof![Just(Profile::Responsive), Just(Profile::Koordinator)];
    (profile, mode, 0..=100_i64, option::of(0..=100_i64), prop::bool::weighted(0.1)).prop_map(
        |(profile, mode, threshold, min_percent, be_cpu_manager)| Config {
            policy: Settings { profile, be_cpu_manager, ..Settings::default() },
            strategy: Thresholds {
                enable: Some(true),
                threshold_percent: Some(threshold),
                min_percent,
                mode: Some(mode),
            },
        },
    )
}

fn tier_cpus(wanted: &[(Target, Setting)]) -> Option<CpuSet> {
    wanted.iter().find_map(|(target, setting)| match (target, setting) {
        (Target::Tier(Tier::BestEffort), Setting::Cpus(cpus)) => Some(cpus.clone()),
        _ => None,
    })
}

fn containers_cpus(wanted: &[(Target, Setting)]) -> Vec<CpuSet> {
    let of = |(target, setting): &(Target, Setting)| match (target, setting) {
        (Target::Container(_), Setting::Cpus(cpus)) => Some(cpus.clone()),
        _ => None,
    };
    wanted.iter().filter_map(of).collect()
}

proptest! {
    #[test]
    fn sets_are_never_empty_and_never_beyond_what_is_batchs(config in configs(), inputs in inputs()) {
        let wanted = tick(&mut State::default(), &config, &inputs, 0).wanted.unwrap();
        let pools = Pools::new(&inputs.cpus, inputs.node.as_ref().unwrap(), &inputs.pods, &inputs.kubelet, config.policy.profile);
        for (_, setting) in &wanted {
            if let Setting::Cpus(cpus) = setting {
                prop_assert!(!cpus.is_empty() && cpus.is_subset(&pools.whole()), "{cpus} of {}", pools.whole());
            }
        }
        // The set of a child is within its parent's.
        let tier = tier_cpus(&wanted);
        for cpus in containers_cpus(&wanted) {
            prop_assert!(cpus.is_subset(tier.as_ref().unwrap()));
        }
    }

    #[test]
    fn each_cgroup_is_told_each_thing_once_and_only_those_of_the_tier(config in configs(), inputs in inputs()) {
        let wanted = tick(&mut State::default(), &config, &inputs, 0).wanted.unwrap();
        let inside = |target: &Target| match target {
            Target::Tier(tier) => *tier == Tier::BestEffort,
            Target::Pod(id) => inputs.pods.iter().any(|pod| pod.id == *id && pod.is_in_tier()),
            Target::Container(id) => inputs.pods.iter().any(|pod| pod.is_in_tier() && pod.containers.contains(id)),
        };
        let mut told: Vec<_> = wanted.iter().map(|(target, setting)| (*target, std::mem::discriminant(setting))).collect();
        prop_assert!(told.iter().all(|(target, _)| inside(target)));
        let count = told.len();
        told.sort_by_key(|(target, _)| *target);
        told.dedup();
        prop_assert_eq!(told.len(), count);
    }

    #[test]
    fn quotas_hold_for_the_tier_as_a_whole(config in configs(), inputs in inputs()) {
        let wanted = tick(&mut State::default(), &config, &inputs, 0).wanted.unwrap();
        for (target, setting) in &wanted {
            if let Setting::Quota(quota) = setting {
                prop_assert_eq!(quota.is_some(), matches!(target, Target::Tier(_)));
                prop_assert!(quota.is_none_or(|quota| quota >= 1_000));
            }
        }
    }

    #[test]
    fn whatever_is_in_force_steps_up_are_bounded(config in configs(), inputs in inputs()) {
        let mut state = State::default();
        let Decisions { wanted, verdict, .. } = tick(&mut state, &config, &inputs, 0);
        let wanted = wanted.unwrap();
        if let Verdict::Suppressed { how: How::Cpus { cpus: chosen, .. }, .. } = &verdict {
            let (old, all) = (inputs.in_force.tier_cpus.as_ref().unwrap().len(), inputs.cpus.len());
            // Batch pods keep two CPUs in any case.
            prop_assert!(chosen.len() <= (old + all.div_ceil(10)).max(2));
        }
        let quota = wanted.iter().find_map(|(target, setting)| match (target, setting) {
            (Target::Tier(_), Setting::Quota(quota)) => *quota,
            _ => None,
        });
        let now = inputs.in_force.tier_quota.unwrap();
        if let (Some(new), Some(old)) = (quota, now.quota_usec) {
            let period = if config.policy.profile == Profile::Koordinator { 100_000 } else { now.period_usec };
            prop_assert!(new <= old + u64::try_from(inputs.cpus.len()).unwrap() * period / 10);
        }
    }

    #[test]
    fn pressure_only_takes(config in configs(), inputs in inputs(), later in 0..3 * SECOND) {
        let mut calm = inputs.clone();
        for pod in &mut calm.pods {
            (pod.pressure, pod.is_alarmed) = (None, false);
        }
        let amount = |inputs: &Inputs| {
            let mut state = State::default();
            let wanted = tick(&mut state, &config, inputs, later.min(SECOND)).wanted.unwrap();
            let quota = wanted.iter().find_map(|(target, setting)| match (target, setting) {
                (Target::Tier(_), Setting::Quota(quota)) => *quota,
                _ => None,
            });
            (state.chosen.map(|cpus| cpus.len()), quota)
        };
        let ((cpus, quota), (calm_cpus, calm_quota)) = (amount(&inputs), amount(&calm));
        prop_assert!(cpus <= calm_cpus);
        prop_assert!(quota <= calm_quota);
    }

    #[test]
    fn the_same_inputs_give_the_same_decisions(config in configs(), inputs in inputs()) {
        let first = tick(&mut State::default(), &config, &inputs, 0);
        prop_assert_eq!(&first, &tick(&mut State::default(), &config, &inputs, 0));
        // The order of CPUs in the input does not matter.
        let mut shuffled = inputs.clone();
        shuffled.cpus.reverse();
        let second = tick(&mut State::default(), &config, &shuffled, 0);
        prop_assert_eq!(tier_cpus(first.wanted.as_ref().unwrap()), tier_cpus(second.wanted.as_ref().unwrap()));
    }

    #[test]
    fn a_restart_in_between_changes_nothing(config in configs(), history in vec(inputs(), 1..6)) {
        let (mut lasting, mut restarted) = (State::default(), State::default());
        for (mut inputs, second) in history.into_iter().zip(0_u64..) {
            let now = second * SECOND;
            for sample in inputs.pods_used.as_mut().unwrap().values_mut().chain(inputs.node_used.as_mut()) {
                sample.at_usec = now;
            }
            let expected = tick(&mut lasting, &config, &inputs, now);
            restarted = State::restore(&restarted.save()).unwrap();
            prop_assert_eq!(tick(&mut restarted, &config, &inputs, now), expected);
        }
    }

    #[test]
    fn switching_off_releases_everything(config in configs(), inputs in inputs()) {
        let mut state = State::default();
        tick(&mut state, &config, &inputs, 0);
        let off = Config { strategy: Thresholds { enable: Some(false), ..config.strategy.clone() }, ..config };
        prop_assert_eq!(tick(&mut state, &off, &inputs, 1).wanted, Some(vec![]));
        prop_assert_eq!(state, State::default());
    }
}
