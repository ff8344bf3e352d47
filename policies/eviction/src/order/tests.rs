use proptest::prelude::*;
use qosm_sdk::{KubeQos, QosClass};

use super::*;
use crate::config::{Allocatable, Limit, Satisfaction, Usage};
use crate::input::Sample;
use crate::marks::{Allowed, Marks};
use crate::pod::Requests;

const BE_CPU: Checked =
    Checked::Satisfaction(Satisfaction { lower: 40, upper: 60, usage: 90, window_seconds: 1, limit: Limit::Real });
const REQUESTS: Checked = Checked::Allocatable(Allocatable { threshold: 110, lower: 100, priority: 7_999 });

fn usage(priority: Option<i32>) -> Checked {
    Checked::Usage(Usage { threshold: 70, lower: 68, priority, window_seconds: 1 })
}

fn sample(amount: u64) -> Option<Sample> {
    Some(Sample { amount, at_usec: 0 })
}

fn be(name: &str, priority: Option<i32>, used_milli: u64, requested: u64) -> Pod {
    Pod {
        priority,
        class: Some(QosClass::Be),
        kube_qos: KubeQos::BestEffort,
        requests: Requests { batch_cpu: requested, ..Requests::default() },
        cpu: sample(used_milli * 1_000),
        memory: sample(used_milli),
        ..Pod::new(&format!("uid-{name}"), name)
    }
}

/// A pod of this priority with eviction enabled.
fn enabled(name: &str, priority: i32) -> Pod {
    let marks = Marks { is_enabled: true, ..Marks::default() };
    Pod {
        priority: Some(priority),
        marks,
        cpu: sample(1_000_000),
        memory: sample(1_000),
        ..Pod::new(&format!("uid-{name}"), name)
    }
}

fn names(feature: Feature, checked: &Checked, pods: &[Pod]) -> Vec<String> {
    let candidates = candidates(feature, checked, &Settings::default(), pods, 0);
    candidates.into_iter().map(|candidate| candidate.pod.name.clone()).collect()
}

#[test]
fn starving_batch_pods_leave_by_priority_then_by_use_of_their_request() {
    for (pods, order) in [
        (vec![be("a", Some(200), 900, 1_000), be("b", Some(100), 1, 1_000)], "b a"),
        (vec![be("a", Some(100), 500, 1_000), be("b", Some(100), 1_500, 2_000)], "b a"),
        // 1/3 against 333333/1000000: without rounding.
        (vec![be("a", Some(1), 333_333, 1_000_000), be("b", Some(1), 1, 3)], "b a"),
        // An unset priority equals any other, so use decides.
        (vec![be("a", Some(100), 100, 1_000), be("b", None, 200, 1_000)], "b a"),
        (vec![be("a", Some(100), 300, 1_000), be("b", None, 200, 1_000)], "a b"),
        (vec![be("a", None, 100, 1_000), be("b", None, 200, 1_000)], "b a"),
        (
            vec![be("low", Some(1), 100, 1_000), be("high", Some(2), 900, 1_000), be("none", None, 500, 1_000)],
            "none low high",
        ),
        // Without a request the share counts as 0.
        (vec![be("a", Some(1), 900, 0), be("b", Some(1), 1, 1_000)], "b a"),
        (vec![], ""),
    ] {
        assert_eq!(names(Feature::BeCpu, &BE_CPU, &pods).join(" "), order, "{pods:?}");
    }
}

#[test]
fn batch_pods_leave_memory_by_priority_then_by_use_unknown_last() {
    let unknown = |name, priority| Pod { memory: None, ..be(name, priority, 0, 0) };
    for (pods, order) in [
        (vec![be("a", Some(200), 900, 0), be("b", Some(100), 1, 0)], "b a"),
        (vec![be("a", Some(100), 500, 0), be("b", Some(100), 1_500, 0)], "b a"),
        (vec![unknown("a", Some(100)), be("b", Some(100), 1, 0)], "b a"),
        (vec![be("zero", Some(100), 0, 0), be("b", Some(100), 1, 0)], "b zero"),
        // Neither has a known use: the greater name first.
        (vec![unknown("a", Some(100)), unknown("b", Some(100)), be("c", Some(100), 0, 0)], "c b a"),
        (vec![be("a", Some(100), 100, 0), be("b", None, 200, 0)], "b a"),
        (vec![be("a", Some(100), 100, 0), unknown("b", None)], "a b"),
    ] {
        assert_eq!(names(Feature::BeMemory, &usage(None), &pods).join(" "), order, "{pods:?}");
    }
}

#[test]
fn others_leave_by_three_priorities_then_by_amount() {
    let with = |name, eviction, priority, sub, milli: u64| Pod {
        marks: Marks { is_enabled: true, eviction_priority: eviction, sub_priority: sub, ..Marks::default() },
        cpu: sample(milli * 1_000),
        memory: sample(milli),
        ..enabled(name, priority)
    };
    for (pods, order) in [
        (vec![with("a", 0, 100, None, 1), with("b", -1, 5_000, None, 1)], "b a"),
        (vec![with("a", 0, 200, None, 9), with("b", 0, 100, None, 1)], "b a"),
        (vec![with("a", 0, 100, Some(2), 9), with("b", 0, 100, Some(1), 1)], "b a"),
        // Without the label, `spec.priority` counts.
        (vec![with("a", 0, 100, None, 9), with("b", 0, 100, Some(99), 1), with("c", 0, 100, Some(101), 99)], "b a c"),
        (vec![with("a", 0, 100, None, 1), with("b", 0, 100, None, 2)], "b a"),
    ] {
        for feature in [Feature::Cpu, Feature::Memory] {
            assert_eq!(names(feature, &usage(Some(5_999)), &pods).join(" "), order, "{feature} {pods:?}");
        }
    }
}

#[test]
fn requests_are_the_amount_of_the_allocatable_features() {
    let of = |name, priority, requests| Pod { requests, cpu: None, memory: None, ..enabled(name, priority) };
    let requests =
        |batch_cpu, batch_memory, mid_cpu, mid_memory| Requests { batch_cpu, batch_memory, mid_cpu, mid_memory };
    let pods = [
        of("small", 5_500, requests(1_000, 9, 0, 0)),
        of("large", 5_500, requests(2_000, 1, 0, 0)),
        of("mid", 7_500, requests(0, 0, 5_000, 5)),
        // Neither batch nor mid, or above the priority.
        of("prod", 9_000, requests(9, 9, 9, 9)),
        of("free", 3_500, requests(9, 9, 9, 9)),
    ];
    assert_eq!(names(Feature::CpuAllocatable, &REQUESTS, &pods).join(" "), "large small mid");
    assert_eq!(names(Feature::MemoryAllocatable, &REQUESTS, &pods).join(" "), "small large mid");
    let batch_only = Checked::Allocatable(Allocatable { threshold: 110, lower: 100, priority: 5_999 });
    assert_eq!(names(Feature::CpuAllocatable, &batch_only, &pods).join(" "), "large small");
}

#[test]
fn only_candidates_are_considered() {
    let forbid = |pod: Pod| Pod { marks: Marks { allowed: Allowed::Only(vec![]), ..pod.marks.clone() }, ..pod };
    let only =
        |pod: Pod, feature| Pod { marks: Marks { allowed: Allowed::Only(vec![feature]), ..pod.marks.clone() }, ..pod };
    let batch = || be("p", Some(100), 1, 1);
    let other = || enabled("p", 100);
    let cases: Vec<(Feature, Pod, bool)> = vec![
        (Feature::BeCpu, batch(), true),
        (Feature::BeCpu, other(), false),
        // Batch pods are recognised by their class alone; the label that enables eviction is not required.
        (Feature::BeCpu, Pod { class: None, ..batch() }, false),
        (Feature::BeMemory, batch(), true),
        (Feature::BeMemory, Pod { memory: None, ..batch() }, true),
        (Feature::BeCpu, Pod { cpu: None, ..batch() }, true),
        (Feature::BeMemory, forbid(batch()), false),
        (Feature::BeMemory, only(batch(), Feature::BeMemory), true),
        (Feature::BeMemory, only(batch(), Feature::Memory), false),
        (Feature::BeMemory, Pod { is_active: false, ..batch() }, false),
        (Feature::BeMemory, Pod { is_static: true, ..batch() }, false),
        (Feature::BeMemory, Pod { priority: Some(2_000_000_000), ..batch() }, false),
        (Feature::BeMemory, Pod { is_of_daemon_set: true, ..batch() }, false),
        (Feature::Cpu, other(), true),
        (Feature::Cpu, batch(), false),
        (Feature::Cpu, enabled("p", 5_999), true),
        (Feature::Cpu, enabled("p", 6_000), false),
        (Feature::Cpu, Pod { is_active: false, ..other() }, false),
        (Feature::Cpu, Pod { cpu: None, ..other() }, false),
        (Feature::Cpu, Pod { memory: None, ..other() }, true),
        (Feature::Memory, Pod { memory: None, ..other() }, false),
        (Feature::Memory, forbid(other()), false),
        (Feature::Memory, only(other(), Feature::Memory), true),
        // A priority of 0 or none means the default of the class: 9500 for a Burstable pod.
        (Feature::Memory, Pod { priority: Some(0), ..other() }, false),
        (Feature::Memory, Pod { priority: None, class: Some(QosClass::Be), ..other() }, true),
    ];
    for (feature, pod, is_candidate) in cases {
        assert_eq!(
            names(feature, &usage(Some(5_999)), std::slice::from_ref(&pod)).len(),
            usize::from(is_candidate),
            "{feature} {pod:?}"
        );
    }
    // A stale sample counts as not measured.
    let old = [other()];
    assert_eq!(candidates(Feature::Cpu, &usage(Some(5_999)), &Settings::default(), &old, 2_000_001), []);
}

#[test]
fn ties_are_settled_by_age_then_by_uid() {
    let aged = |name, created_at| Pod { created_at, ..be(name, Some(1), 5, 10) };
    let pods = [aged("old", 1), aged("b", 7), aged("a", 7)];
    for feature in [Feature::BeCpu, Feature::BeMemory] {
        assert_eq!(names(feature, &usage(None), &pods).join(" "), "a b old", "{feature}");
    }
}

#[test]
fn a_rank_says_what_it_is_by() {
    let pods = [be("a", None, 900, 1_000), be("b", Some(5_500), 100, 1_000)];
    let ranks = |feature, checked| {
        candidates(feature, checked, &Settings::default(), &pods, 0)
            .iter()
            .map(|candidate| candidate.rank.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ranks(Feature::BeCpu, &BE_CPU),
        ["no priority, uses 900m of 1000m requested", "priority 5500, uses 100m of 1000m requested"]
    );
    assert_eq!(ranks(Feature::BeMemory, &usage(None)), ["no priority, uses 900", "priority 5500, uses 100"]);
    let pods = [enabled("a", 5_500)];
    let rank = candidates(Feature::Cpu, &usage(Some(5_999)), &Settings::default(), &pods, 0)[0].rank;
    assert_eq!(rank.to_string(), "eviction priority 0, priority 5500/5500, uses 1000m");
}

pub(crate) fn any_pod(number: usize) -> impl Strategy<Value = Pod> {
    let class = proptest::option::of(prop_oneof![3 => Just(QosClass::Be), 1 => Just(QosClass::Ls)]);
    let priority = proptest::option::of(prop_oneof![
        0..3_i32,
        5_498..5_502_i32,
        7_500..7_502_i32,
        1_999_999_999..2_000_000_001_i32
    ]);
    let amount = || {
        proptest::option::weighted(0.8, 0..4_u64).prop_map(|amount| amount.and_then(|amount| sample(amount * 1_000)))
    };
    let marks = (any::<bool>(), -1..2_i32, proptest::option::of(0..3_i64)).prop_map(
        |(is_enabled, eviction_priority, sub_priority)| Marks {
            is_enabled,
            eviction_priority,
            sub_priority,
            ..Marks::default()
        },
    );
    let requests =
        (0..3_u64, 0..3_u64, 0..3_u64, 0..3_u64).prop_map(|(batch_cpu, batch_memory, mid_cpu, mid_memory)| Requests {
            batch_cpu,
            batch_memory,
            mid_cpu,
            mid_memory,
        });
    (
        class,
        priority,
        amount(),
        amount(),
        marks,
        requests,
        0..3_i64,
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.1),
    )
        .prop_map(move |(class, priority, cpu, memory, marks, requests, created_at, is_active, is_static)| Pod {
            class,
            priority,
            cpu,
            memory,
            marks,
            requests,
            created_at,
            is_active,
            is_static,
            kube_qos: if class == Some(QosClass::Be) { KubeQos::BestEffort } else { KubeQos::Burstable },
            ..Pod::new(&format!("uid-{number}"), &format!("pod-{}", number % 3))
        })
}

fn any_pods() -> impl Strategy<Value = Vec<Pod>> {
    (0..9_usize).prop_flat_map(|count| (0..count).map(any_pod).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn the_order_does_not_depend_on_the_order_of_the_pods((pods, shuffled) in any_pods().prop_flat_map(|pods| (Just(pods.clone()), Just(pods).prop_shuffle()))) {
        for (feature, checked) in [
            (Feature::BeCpu, BE_CPU), (Feature::BeMemory, usage(None)), (Feature::Cpu, usage(Some(7_999))),
            (Feature::Memory, usage(Some(7_999))), (Feature::CpuAllocatable, REQUESTS), (Feature::MemoryAllocatable, REQUESTS),
        ] {
            let uids = |pods: &[Pod]| {
                let all = candidates(feature, &checked, &Settings::default(), pods, 0);
                all.into_iter().map(|candidate| candidate.pod.uid.clone()).collect::<Vec<_>>()
            };
            prop_assert_eq!(uids(&pods), uids(&shuffled), "{}", feature);
        }
    }

    #[test]
    fn a_lower_priority_that_is_said_never_comes_after_a_higher_one(pods in any_pods()) {
        for (feature, checked) in [(Feature::BeCpu, BE_CPU), (Feature::BeMemory, usage(None))] {
            let order = candidates(feature, &checked, &Settings::default(), &pods, 0);
            let said: Vec<_> = order.iter().filter_map(|candidate| candidate.pod.priority).collect();
            prop_assert!(said.is_sorted(), "{:?}", said);
        }
    }
}
