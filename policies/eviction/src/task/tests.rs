use qosm_sdk::QosClass;

use super::*;
use crate::config::Profile;
use crate::input::{BeCpu, Pressure, Sample};
use crate::marks::Marks;
use crate::pod::{MemoryEvents, Requests};

const SECOND: u64 = 1_000_000;
const GIB: u64 = 1 << 30;

fn node() -> Node {
    Node { cpu_capacity_milli: 10_000, memory_capacity_bytes: 100 * GIB, ..Node::default() }
}

fn inputs() -> Inputs {
    Inputs { node: Some(node()), pods: vec![Pod::new("uid", "pod")], ..Inputs::default() }
}

fn usage(threshold: i64, lower: i64, window_seconds: u64) -> Usage {
    Usage { threshold, lower, priority: Some(5_999), window_seconds }
}

fn asked(
    state: &State,
    feature: Feature,
    checked: &Checked,
    policy: &Settings,
    inputs: &Inputs,
    now: u64,
) -> Result<Vec<u64>, &'static str> {
    match demand(state, feature, checked, policy, inputs, now) {
        Demand::Nothing => Ok(vec![]),
        Demand::Missing(what) => Err(what),
        Demand::Release(_, needed) => Ok(needed.into_values().collect()),
    }
}

#[test]
fn satisfaction_needs_a_third_of_its_window_and_the_latest_sample() {
    let settings = Satisfaction { lower: 40, upper: 60, usage: 90, window_seconds: 9, limit: Limit::Real };
    let checked = Checked::Satisfaction(settings);
    let features = [(Feature::BeCpu, checked)];
    let be = |limit, at_usec| BeCpu { request_milli: 8_000, used_milli: limit, real_limit_milli: limit, at_usec };
    let mut state = State::default();
    let mut seen = Vec::new();
    for (second, limit) in [(0, 2_000), (1, 2_000), (2, 2_000), (3, 3_000), (4, 6_000), (5, 1_000)] {
        let inputs = Inputs { be: Some(be(limit, second * SECOND)), ..inputs() };
        sample(&mut state, &features, &inputs, second * SECOND);
        seen.push(asked(&state, Feature::BeCpu, &checked, &Settings::default(), &inputs, second * SECOND).unwrap());
    }
    let expected: [&[u64]; 6] = [
        &[],
        &[],
        // Three samples of nine seconds: 60 % of 8000 − 2000.
        &[2_800],
        // Average 2250, latest 3000: the smaller of 2550 and 1800.
        &[1_800],
        // The latest sample is below the threshold.
        &[],
        // Average 16000 / 6: 4800 − 2666.67; latest 3800.
        &[2_133],
    ];
    assert_eq!(seen, expected);
    let old = Inputs { be: Some(be(2_000, 0)), ..inputs() };
    assert_eq!(
        asked(&state, Feature::BeCpu, &checked, &Settings::default(), &old, 2 * SECOND + 1),
        Err("the CPU of batch pods is not measured, or too long ago")
    );
}

#[test]
fn satisfaction_by_what_is_offered() {
    let settings = Satisfaction { lower: 40, upper: 60, usage: 90, window_seconds: 1, limit: Limit::Allocatable };
    let checked = Checked::Satisfaction(settings);
    for (offered, asks) in [
        (Some(2_000), vec![2_800]),
        (Some(4_000), vec![]),
        // Nothing offered counts as a limit of 1: 4800 − 1.
        (Some(0), vec![4_799]),
        (Some(-1), vec![]),
        (None, vec![]),
    ] {
        let mut inputs = Inputs {
            be: Some(BeCpu { request_milli: 8_000, used_milli: 4_000, real_limit_milli: 16_000, at_usec: 0 }),
            ..inputs()
        };
        inputs.node.as_mut().unwrap().allocatable =
            offered.map(|amount| (Resource::BatchCpu, amount)).into_iter().collect();
        let mut state = State::default();
        sample(&mut state, &[(Feature::BeCpu, checked)], &inputs, 0);
        assert_eq!(asked(&state, Feature::BeCpu, &checked, &Settings::default(), &inputs, 0), Ok(asks), "{offered:?}");
    }
}

#[test]
fn the_nodes_cpu_is_an_average_that_still_holds() {
    let checked = Checked::Usage(usage(80, 60, 3));
    let koordinator = Settings { profile: Profile::Koordinator, ..Settings::default() };
    let mut state = State::default();
    let mut seen = Vec::new();
    for (second, milli) in [(0, 8_000), (1, 7_000), (2, 9_999), (3, 9_000), (4, 5_000)] {
        let cpu = Some(Sample { amount: milli * 1_000, at_usec: second * SECOND });
        let inputs = Inputs { cpu, ..inputs() };
        sample(&mut state, &[(Feature::Cpu, checked)], &inputs, second * SECOND);
        let ask = |policy: &Settings| asked(&state, Feature::Cpu, &checked, policy, &inputs, second * SECOND).unwrap();
        seen.push((ask(&koordinator), ask(&Settings::default())));
    }
    let expected = [
        (vec![2_000], vec![2_000]),
        (vec![], vec![]),
        // (8000 + 7000 + 9999) / 3 = 8333: 83 %, and exactly 2333 above 6000.
        (vec![2_300], vec![2_333]),
        // (7000 + 9999 + 9000) / 3 = 8666.33, latest 9000.
        (vec![2_600], vec![2_666]),
        // The average is 7999.67.
        (vec![], vec![]),
    ];
    assert_eq!(seen, expected);
    // Average 9366, latest sample 8100: the smaller amount counts; koordinator uses the average.
    let mut state = State::default();
    for (second, milli) in [(0, 10_000), (1, 10_000), (2, 8_100)] {
        state.cpu.add([milli * 1_000], second * SECOND, 3);
    }
    let inputs_now = Inputs { cpu: Some(Sample { amount: 8_100_000, at_usec: 2 * SECOND }), ..inputs() };
    let ask = |policy: &Settings| asked(&state, Feature::Cpu, &checked, policy, &inputs_now, 2 * SECOND);
    assert_eq!((ask(&koordinator), ask(&Settings::default())), (Ok(vec![3_300]), Ok(vec![2_100])));
    // Average above the threshold, latest sample below: koordinator still acts, although the shortage is over.
    let mut state = State::default();
    for (second, milli) in [(0, 10_000), (1, 10_000), (2, 5_000)] {
        state.cpu.add([milli * 1_000], second * SECOND, 3);
    }
    let inputs = Inputs { cpu: Some(Sample { amount: 5_000_000, at_usec: 2 * SECOND }), ..inputs() };
    assert_eq!(asked(&state, Feature::Cpu, &checked, &koordinator, &inputs, 2 * SECOND), Ok(vec![2_300]));
    assert_eq!(asked(&state, Feature::Cpu, &checked, &Settings::default(), &inputs, 2 * SECOND), Ok(vec![]));
}

fn memory(available_gib: u64) -> Memory {
    Memory { total_bytes: 100 * GIB, available_bytes: available_gib * GIB, ..Memory::default() }
}

#[test]
fn memory_by_its_level() {
    for (available, asks) in [(31, vec![]), (30, vec![2 * GIB]), (10, vec![22 * GIB]), (100, vec![])] {
        let inputs = Inputs { memory: Some(memory(available)), ..inputs() };
        for feature in [Feature::BeMemory, Feature::Memory] {
            for profile in [Profile::Koordinator, Profile::Responsive] {
                let policy = Settings { profile, ..Settings::default() };
                let asked = asked(&State::default(), feature, &Checked::Usage(usage(70, 68, 1)), &policy, &inputs, 0);
                assert_eq!(asked, Ok(asks.clone()), "{available} {feature} {profile:?}");
            }
        }
    }
}

#[test]
fn pressure_the_oom_killer_and_the_kernels_marks_come_before_the_level() {
    let stalled = |full_usec| Some(Pressure { full_usec, window_usec: SECOND });
    let killed = |max| vec![Pod { memory_events: Some(MemoryEvents { max, oom_kills: 3 }), ..Pod::new("uid", "pod") }];
    let calm = vec![Pod::new("uid", "pod")];
    // Threshold 70 %, lower 68 %; pressure counts from 60 % on.
    for (case, memory, pods, shortage, asks) in [
        ("calm", memory(35), &calm, None, vec![]),
        (
            "pressure near the threshold",
            Memory { pressure: stalled(100_000), ..memory(35) },
            &calm,
            Some(Shortage::Pressure { full_usec: 100_000, window_usec: SECOND }),
            vec![2 * GIB],
        ),
        ("less pressure", Memory { pressure: stalled(99_999), ..memory(35) }, &calm, None, vec![]),
        (
            "at the margin",
            Memory { pressure: stalled(100_000), ..memory(40) },
            &calm,
            Some(Shortage::Pressure { full_usec: 100_000, window_usec: SECOND }),
            vec![2 * GIB],
        ),
        ("some pod's own limit", Memory { pressure: stalled(900_000), ..memory(41) }, &calm, None, vec![]),
        (
            "the trigger",
            Memory { is_alarmed: true, ..memory(35) },
            &calm,
            Some(Shortage::Pressure { full_usec: 0, window_usec: 0 }),
            vec![2 * GIB],
        ),
        ("the trigger, far off", Memory { is_alarmed: true, ..memory(50) }, &calm, None, vec![]),
        (
            "above the threshold too",
            Memory { pressure: stalled(500_000), ..memory(20) },
            &calm,
            Some(Shortage::Pressure { full_usec: 500_000, window_usec: SECOND }),
            vec![12 * GIB],
        ),
        ("the OOM killer", memory(35), &killed(0), Some(Shortage::OomKills(3)), vec![2 * GIB]),
        ("the OOM killer at a pod's own limit", memory(35), &killed(1), None, vec![]),
        ("the OOM killer, far off", memory(50), &killed(0), None, vec![]),
        (
            "the kernel's mark",
            Memory { low_mark_bytes: Some(5 * GIB), ..memory(5) },
            &calm,
            Some(Shortage::Marks { available: 5 * GIB, low: 5 * GIB }),
            vec![27 * GIB],
        ),
        ("above the kernel's mark", Memory { low_mark_bytes: Some(5 * GIB), ..memory(36) }, &calm, None, vec![]),
    ] {
        let inputs = Inputs { memory: Some(memory), pods: pods.clone(), ..inputs() };
        let checked = Checked::Usage(usage(70, 68, 1));
        let demand = demand(&State::default(), Feature::BeMemory, &checked, &Settings::default(), &inputs, 0);
        match demand {
            Demand::Release(Trigger::Usage { shortage: found, .. }, needed) => {
                assert_eq!((found, needed.into_values().collect::<Vec<_>>()), (shortage, asks), "{case}");
            }
            Demand::Nothing => assert_eq!((None, vec![]), (shortage, asks), "{case}"),
            other => panic!("{case}: {other:?}"),
        }
        // Koordinator considers the level alone.
        let koordinator = Settings { profile: Profile::Koordinator, ..Settings::default() };
        let by_level = asked(&State::default(), Feature::BeMemory, &checked, &koordinator, &inputs, 0).unwrap();
        assert_eq!(by_level.is_empty(), memory.available_bytes > 30 * GIB, "{case}");
    }
}

#[test]
fn requests_are_added_up_by_class() {
    let marks = Marks { is_enabled: true, ..Marks::default() };
    let of = |uid: &str, priority, batch_cpu, mid_cpu| Pod {
        priority: Some(priority),
        requests: Requests { batch_cpu, mid_cpu, batch_memory: batch_cpu * 10, mid_memory: 0 },
        marks: marks.clone(),
        ..Pod::new(uid, uid)
    };
    // The sum counts all pods of the class up to the priority, whether they may be evicted or not.
    let pods = vec![
        of("a", 5_500, 8_000, 0),
        Pod { marks: Marks::default(), ..of("b", 5_500, 4_000, 0) },
        of("mid", 7_500, 0, 500),
        of("above", 5_999, 1_000, 0),
        Pod { is_active: false, ..of("ended", 5_500, 9_000, 0) },
        Pod { class: Some(QosClass::Ls), ..of("prod", 9_500, 9_000, 0) },
    ];
    for (offered, priority, cpu, memory) in [
        (
            vec![(Resource::BatchCpu, 10_000), (Resource::MidCpu, 1_000), (Resource::BatchMemory, 200_000)],
            7_999,
            vec![3_000],
            vec![],
        ),
        (vec![(Resource::BatchCpu, 10_000)], 7_999, vec![3_000, 500], vec![130_000]),
        (vec![(Resource::BatchCpu, 11_819), (Resource::MidCpu, 500)], 7_999, vec![], vec![130_000]),
        (vec![(Resource::BatchCpu, 11_818), (Resource::MidCpu, 500)], 7_999, vec![1_182], vec![130_000]),
        (vec![(Resource::BatchCpu, 10_000)], 5_500, vec![], vec![120_000]),
        (vec![], 5_500, vec![12_000], vec![120_000]),
    ] {
        let mut inputs = Inputs { pods: pods.clone(), ..inputs() };
        inputs.node.as_mut().unwrap().allocatable = offered.iter().copied().collect();
        // With 120 %, 12000 of 10000 do not exceed the threshold.
        let threshold = if priority == 5_500 { 120 } else { 110 };
        let checked = Checked::Allocatable(Allocatable { threshold, lower: 100, priority });
        let ask = |feature| asked(&State::default(), feature, &checked, &Settings::default(), &inputs, 0).unwrap();
        assert_eq!(
            (ask(Feature::CpuAllocatable), ask(Feature::MemoryAllocatable)),
            (cpu, memory),
            "{offered:?} {priority}"
        );
    }
}

#[test]
fn what_is_not_known_is_named() {
    let (cpu, memory_settings) = (Checked::Usage(usage(80, 60, 1)), Checked::Usage(usage(70, 68, 1)));
    let old = Some(Sample { amount: 9_000_000, at_usec: 0 });
    for (feature, checked, inputs, missing) in [
        (Feature::Cpu, cpu, Inputs { node: None, ..inputs() }, "the node is not known"),
        (Feature::Cpu, cpu, Inputs { pods: vec![], ..inputs() }, "the node's pods are not known"),
        (Feature::Cpu, cpu, inputs(), "the CPU use of the node is not measured, or too long ago"),
        (
            Feature::Cpu,
            cpu,
            Inputs { cpu: old, ..inputs() },
            "the CPU use of the node is not measured, or too long ago",
        ),
        (Feature::Cpu, cpu, Inputs { node: Some(Node::default()), ..inputs() }, "the node's CPU capacity is not known"),
        (
            Feature::BeMemory,
            memory_settings,
            Inputs { node: Some(Node::default()), ..inputs() },
            "the node's memory capacity is not known",
        ),
        (
            Feature::Memory,
            memory_settings,
            Inputs { memory: Some(memory(1)), ..inputs() },
            "the memory of the node is not measured, or too long ago",
        ),
    ] {
        let asked = asked(&State::default(), feature, &checked, &Settings::default(), &inputs, 3 * SECOND);
        assert_eq!(asked, Err(missing), "{feature}");
    }
}
