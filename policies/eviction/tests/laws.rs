//! Properties that hold for all loads and configurations.

#![expect(clippy::expect_used, reason = "a test that fails its expectation should say so at once")]

use std::collections::{BTreeMap, BTreeSet};

use eviction::config::{Config, Gates, Profile, Settings};
use eviction::input::{BeCpu, Inputs, Memory, Node, Outcome, Pressure, Sample};
use eviction::marks::{Allowed, Marks};
use eviction::pod::{MemoryEvents, Pod, Requests};
use eviction::{Cause, Decisions, Feature, Group, Resource, State, Urgency, tick};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use qosm_sdk::{KubeQos, QosClass};

const SECOND: u64 = 1_000_000;
const PODS: usize = 6;

fn pod(number: usize) -> impl Strategy<Value = Pod> {
    let class = option::of(prop_oneof![3 => Just(QosClass::Be), 1 => Just(QosClass::Ls)]);
    let priority = option::of(prop_oneof![
        4 => 5_000..6_000_i32, 1 => 7_000..8_000_i32, 1 => 9_000..9_999_i32, 1 => Just(2_000_000_000)
    ]);
    let allowed = prop_oneof![
        3 => Just(Allowed::All),
        1 => Just(Allowed::Only(vec![])),
        1 => Just(Allowed::Only(vec![Feature::Memory, Feature::BeCpu])),
    ];
    let marks = (prop::bool::weighted(0.8), allowed, -1..2_i32, option::of(0..3_i64)).prop_map(
        |(is_enabled, allowed, eviction_priority, sub_priority)| Marks {
            is_enabled,
            allowed,
            eviction_priority,
            sub_priority,
            class: None,
        },
    );
    let sample = |most: u64| {
        option::weighted(0.9, 0..most).prop_map(|amount| amount.map(|amount| Sample { amount, at_usec: 0 }))
    };
    let requests = (0..4_000_u64, 0..4_000_u64, 0..4_000_u64, 0..4_000_u64).prop_map(
        |(batch_cpu, batch_memory, mid_cpu, mid_memory)| Requests { batch_cpu, batch_memory, mid_cpu, mid_memory },
    );
    let flags =
        (prop::bool::weighted(0.9), prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    let events =
        option::weighted(0.2, (0..2_u64, 0..2_u64).prop_map(|(max, oom_kills)| MemoryEvents { max, oom_kills }));
    (
        class,
        priority,
        marks,
        sample(4_000_000),
        sample(4_000),
        requests,
        flags,
        (0..3_i64, option::of(0..100_u32), events),
    )
        .prop_map(
            move |(
                class,
                priority,
                marks,
                cpu,
                memory,
                requests,
                flags,
                (created_at, grace_seconds, memory_events),
            )| Pod {
                class,
                priority,
                marks,
                cpu,
                memory,
                requests,
                created_at,
                grace_seconds,
                memory_events,
                is_active: flags.0,
                is_static: flags.1,
                is_of_daemon_set: flags.2,
                is_leaving: flags.3,
                kube_qos: if class == Some(QosClass::Be) { KubeQos::BestEffort } else { KubeQos::Burstable },
                ..Pod::new(&format!("uid-{number}"), &format!("pod-{number}"))
            },
        )
}

fn inputs() -> impl Strategy<Value = Inputs> {
    let pods = (0..PODS).map(pod).collect::<Vec<_>>();
    let memory = (0..=10_000_u64, option::of(0..1_000_000_u64), any::<bool>(), option::weighted(0.2, 0..3_000_u64))
        .prop_map(|(available_bytes, full, is_alarmed, low_mark_bytes)| Memory {
            total_bytes: 10_000,
            available_bytes,
            free_bytes: None,
            low_mark_bytes,
            pressure: full.map(|full_usec| Pressure { full_usec, window_usec: SECOND }),
            is_alarmed,
            at_usec: 0,
        });
    let be = (0..10_000_u64, 0..10_000_u64, 0..10_000_u64).prop_map(|(request_milli, used_milli, real_limit_milli)| {
        BeCpu { request_milli, used_milli, real_limit_milli, at_usec: 0 }
    });
    let resource = prop_oneof![
        Just(Resource::BatchCpu),
        Just(Resource::MidCpu),
        Just(Resource::BatchMemory),
        Just(Resource::MidMemory)
    ];
    let node = proptest::collection::btree_map(resource, -1..10_000_i64, 0..4).prop_map(|allocatable| Node {
        cpu_capacity_milli: 10_000,
        memory_capacity_bytes: 10_000,
        allocatable,
    });
    let outcomes = proptest::collection::btree_map(
        0..PODS,
        prop_oneof![
            Just(Outcome::Pending),
            Just(Outcome::Accepted),
            Just(Outcome::Refused { why: "no".into(), at_usec: u64::MAX })
        ],
        0..2,
    );
    let cpu = 0..10_000_000_u64;
    (
        option::weighted(0.95, node),
        pods,
        option::weighted(0.9, be),
        option::weighted(0.9, cpu),
        option::weighted(0.95, memory),
        outcomes,
    )
        .prop_map(|(node, pods, be, cpu, memory, outcomes)| Inputs {
            node,
            pods,
            be,
            cpu: cpu.map(|amount| Sample { amount, at_usec: 0 }),
            memory,
            outcomes: outcomes.into_iter().map(|(number, outcome)| (format!("uid-{number}"), outcome)).collect(),
        })
}

/// The same inputs measured at `now`, without the pods in `gone`.
fn moved(mut inputs: Inputs, now: u64, gone: &BTreeSet<String>) -> Inputs {
    let samples = inputs.pods.iter_mut().flat_map(|pod| pod.cpu.iter_mut().chain(pod.memory.iter_mut()));
    samples.for_each(|sample| sample.at_usec = now);
    inputs.cpu.iter_mut().for_each(|sample| sample.at_usec = now);
    inputs.be.iter_mut().for_each(|be| be.at_usec = now);
    inputs.memory.iter_mut().for_each(|memory| memory.at_usec = now);
    inputs.pods.retain(|pod| !gone.contains(&pod.uid));
    inputs
}

fn configs() -> impl Strategy<Value = Config> {
    let gates = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(be_cpu, cpu_allocatable, cpu, be_memory, memory_allocatable, memory)| Gates {
            be_cpu,
            cpu_allocatable,
            cpu,
            be_memory,
            memory_allocatable,
            memory,
        },
    );
    let profile = prop_oneof![2 => Just(Profile::Responsive), 1 => Just(Profile::Koordinator)];
    (gates, profile, any::<bool>(), 1..=100_i64, 1..=100_i64, 5_000..8_000_i64, 1..10_i64).prop_map(
        |(features, profile, daemon_sets, cpu, memory, priority, window)| {
            let strategy = serde_json::json!({
                "enable": true,
                "cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 90, "cpuEvictTimeWindowSeconds": window,
                "cpuEvictThresholdPercent": cpu, "memoryEvictThresholdPercent": memory, "evictEnabledPriorityThreshold": priority,
                "cpuAllocatableEvictThresholdPercent": 100, "cpuAllocatableEvictLowerPercent": 80,
                "memoryAllocatableEvictThresholdPercent": 100, "memoryAllocatableEvictLowerPercent": 80,
                "allocatableEvictPriorityThreshold": priority,
            });
            let policy = Settings { profile, features, daemon_sets, ..Settings::default() };
            Config { policy, strategy: serde_json::from_value(strategy).expect("it fits") }
        },
    )
}

/// A history: the inputs of each evaluation, the time until the next one, and how many pods leave after it.
fn histories() -> impl Strategy<Value = Vec<(Inputs, u64, usize)>> {
    vec((inputs(), 100_000..30 * SECOND, 0..PODS), 1..12)
}

/// Plays a history; `each` gets the state before and after each evaluation.
fn play(
    config: &Config,
    history: Vec<(Inputs, u64, usize)>,
    mut each: impl FnMut(&State, &Inputs, u64, &Decisions, &State),
) {
    let (mut state, mut now, mut gone) = (State::default(), 0, BTreeSet::new());
    for (inputs, step, leaving) in history {
        now += step;
        let inputs = moved(inputs, now, &gone);
        let before = state.clone();
        let decisions = tick(&mut state, config, &inputs, now);
        each(&before, &inputs, now, &decisions, &state);
        gone = state.evicted.keys().take(leaving).cloned().collect();
    }
}

proptest! {
    #[test]
    fn only_pods_that_may_be_evicted_are_evicted(config in configs(), history in histories()) {
        play(&config, history, |_, inputs, _, decisions, _| {
            for eviction in &decisions.evictions {
                let pod = inputs.pods.iter().find(|pod| pod.uid == eviction.uid).expect("it is there");
                assert!(pod.is_active && !pod.is_static && pod.priority != Some(2_000_000_000));
                assert!(config.policy.features.has(eviction.feature));
                assert_eq!((&pod.name, &pod.namespace), (&eviction.name, &eviction.namespace));
                if matches!(eviction.cause, Cause::Chosen(_)) {
                    assert!(!pod.is_leaving && (!pod.is_of_daemon_set || config.policy.daemon_sets));
                    assert!(pod.marks.allowed.has(eviction.feature));
                    assert!(pod.is_be() || !matches!(eviction.feature, Feature::BeCpu | Feature::BeMemory));
                    assert!(pod.marks.is_enabled || matches!(eviction.feature, Feature::BeCpu | Feature::BeMemory));
                }
                assert!(eviction.message().starts_with(&format!("trigger by koordlet feature {}, kill pod: {}", eviction.feature, eviction.name)));
            }
        });
    }

    #[test]
    fn nobody_is_told_twice_while_he_counts_as_released(config in configs(), history in histories()) {
        play(&config, history, |before, _, now, decisions, _| {
            let uids: BTreeSet<&str> = decisions.evictions.iter().map(|eviction| eviction.uid.as_str()).collect();
            assert_eq!(uids.len(), decisions.evictions.len(), "each once in an evaluation");
            for eviction in &decisions.evictions {
                let known = before.evicted.get(&eviction.uid);
                match &eviction.cause {
                    // An eviction that one group no longer needs and that was not carried out may be chosen by the other group.
                    Cause::Chosen(_) => assert!(known.is_none_or(|known| {
                        let is_others = known.feature.is_some_and(|feature| feature.group() != eviction.feature.group());
                        !known.is_pending(now) || known.is_refused || is_others && known.is_asked()
                    })),
                    Cause::Escalated(_) => {
                        assert!(known.is_some_and(|known| known.urgency == Urgency::Soon && !known.is_refused));
                        assert_eq!((eviction.urgency, eviction.grace_seconds), (Urgency::Now, 0));
                    }
                }
            }
        });
    }

    #[test]
    fn cool_downs_hold(config in configs(), mut history in histories()) {
        // A round that was refused as a whole ends its cool-down, so the test removes all outcomes.
        history.iter_mut().for_each(|(inputs, _, _)| inputs.outcomes.clear());
        let mut last: BTreeMap<Group, u64> = BTreeMap::new();
        play(&config, history, |_, _, now, decisions, after| {
            for eviction in decisions.evictions.iter().filter(|eviction| matches!(eviction.cause, Cause::Chosen(_))) {
                let group = eviction.feature.group();
                if let Some(at) = last.get(&group).filter(|at| **at < now) {
                    // If one eviction of a round is urgent, the whole round is.
                    let is_urgent = decisions.evictions.iter().any(|other| other.urgency == Urgency::Now);
                    assert!(now - at >= if is_urgent { SECOND } else { group.cool_down_usec() });
                }
                if group == Group::Cpu {
                    assert!(now - after.started_at_usec.expect("it has started") >= group.start_delay_usec());
                }
                last.insert(group, now);
            }
        });
    }

    #[test]
    fn no_more_leave_than_are_needed(config in configs(), inputs in inputs()) {
        let mut state = State { started_at_usec: Some(0), ..State::default() };
        let inputs = moved(inputs, 30 * SECOND, &BTreeSet::new());
        let decisions = tick(&mut state, &config, &inputs, 30 * SECOND);
        let mut by_feature: BTreeMap<Feature, Vec<&Cause>> = BTreeMap::new();
        for eviction in &decisions.evictions {
            by_feature.entry(eviction.feature).or_default().push(&eviction.cause);
        }
        for causes in by_feature.values() {
            // After each pod but the last, something is still lacking.
            for cause in &causes[..causes.len() - 1] {
                if let Cause::Chosen(why) = cause {
                    prop_assert!(!why.lacking.is_empty());
                }
            }
            let places: Vec<_> = causes.iter().map(|cause| if let Cause::Chosen(why) = cause { why.place } else { 0 }).collect();
            prop_assert!(places.is_sorted(), "in order: {:?}", places);
        }
    }

    #[test]
    fn decisions_do_not_depend_on_the_order_of_the_pods(config in configs(), inputs in inputs(), seed in any::<u64>()) {
        let inputs = moved(inputs, 30 * SECOND, &BTreeSet::new());
        let mut shuffled = inputs.clone();
        shuffled.pods.sort_by_key(|pod| pod.uid.bytes().map(u64::from).sum::<u64>().wrapping_mul(seed | 1));
        let decide = |inputs: &Inputs| tick(&mut State { started_at_usec: Some(0), ..State::default() }, &config, inputs, 30 * SECOND);
        prop_assert_eq!(decide(&inputs), decide(&shuffled));
    }

    #[test]
    fn nothing_is_remembered_of_pods_that_are_gone(config in configs(), history in histories()) {
        play(&config, history, |_, inputs, now, _, after| {
            let there: BTreeSet<&str> = inputs.pods.iter().map(|pod| pod.uid.as_str()).collect();
            assert!(inputs.pods.is_empty() || after.evicted.keys().all(|uid| there.contains(uid.as_str())));
            assert!(after.evicted.values().all(|evicted| evicted.at_usec <= now));
            assert_eq!(State::restore(&after.save()).map(|state| state.evicted), Ok(after.evicted.clone()));
        });
    }

    #[test]
    fn without_pressure_and_below_all_thresholds_nobody_leaves(inputs in inputs(), config in configs()) {
        let mut calm = moved(inputs, 30 * SECOND, &BTreeSet::new());
        calm.be = None;
        calm.cpu = Some(Sample { amount: 0, at_usec: 30 * SECOND });
        calm.memory = Some(Memory { total_bytes: 10_000, available_bytes: 10_000, at_usec: 30 * SECOND, ..Memory::default() });
        calm.pods.iter_mut().for_each(|pod| pod.memory_events = None);
        let all = [Resource::BatchCpu, Resource::MidCpu, Resource::BatchMemory, Resource::MidMemory];
        calm.node = Some(Node { cpu_capacity_milli: 10_000, memory_capacity_bytes: 10_000, allocatable: all.map(|resource| (resource, i64::MAX)).into() });
        let decisions = tick(&mut State { started_at_usec: Some(0), ..State::default() }, &config, &calm, 30 * SECOND);
        prop_assert_eq!(decisions.evictions, vec![]);
    }
}
