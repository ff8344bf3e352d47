use qosm_sdk::QosClass;

use super::*;
use crate::config::{Allocatable, Limit, Satisfaction, Settings, Usage};
use crate::feature::Kind;
use crate::input::Sample;
use crate::marks::Marks;
use crate::order::candidates;
use crate::pod::Requests;

fn checked(feature: Feature) -> crate::config::Checked {
    use crate::config::Checked;
    match feature {
        Feature::BeCpu => Checked::Satisfaction(Satisfaction {
            lower: 40,
            upper: 60,
            usage: 90,
            window_seconds: 1,
            limit: Limit::Real,
        }),
        Feature::CpuAllocatable | Feature::MemoryAllocatable => {
            Checked::Allocatable(Allocatable { threshold: 110, lower: 100, priority: 7_999 })
        }
        _ => Checked::Usage(Usage { threshold: 70, lower: 68, priority: Some(7_999), window_seconds: 1 }),
    }
}

/// A batch pod that all features may evict; `used` and `request` apply to memory and CPU alike.
fn pod(name: &str, priority: i32, used: u64, request: u64) -> Pod {
    Pod {
        priority: Some(priority),
        class: Some(QosClass::Be),
        marks: Marks { is_enabled: true, ..Marks::default() },
        cpu: Some(Sample { amount: used * 1_000, at_usec: 0 }),
        memory: Some(Sample { amount: used, at_usec: 0 }),
        requests: Requests { batch_cpu: request, batch_memory: request, mid_cpu: request, mid_memory: request },
        ..Pod::new(name, name)
    }
}

fn task<'a>(feature: Feature, needed: &[(Resource, u64)], pods: &'a [Pod]) -> Task<'a> {
    let settings = Allocatable { threshold: 110, lower: 100, priority: 7_999 };
    Task {
        feature,
        trigger: Trigger::Requests { exceeded: vec![], settings },
        needed: needed.iter().copied().collect(),
        candidates: candidates(feature, &checked(feature), &Settings::default(), pods, 0),
    }
}

fn run<'a>(tasks: &[Task<'a>], pods: &'a [Pod], pending: &[&str], profile: Profile) -> Outcome<'a> {
    let pending: Vec<&Pod> = pods.iter().filter(|pod| pending.contains(&pod.name.as_str())).collect();
    work(tasks, &pending, &BTreeSet::new(), profile, 0)
}

fn names(outcome: &Outcome) -> Vec<String> {
    outcome.chosen.iter().map(|chosen| format!("{}:{}", chosen.task, chosen.candidate.pod.name)).collect()
}

const BOTH: [Profile; 2] = [Profile::Koordinator, Profile::Responsive];

#[test]
fn a_task_stops_as_soon_as_it_is_covered() {
    let pods = [pod("a", 1, 10, 0), pod("b", 2, 20, 0), pod("c", 3, 30, 0)];
    for (needed, chosen, lacking) in
        [(1, "a", 0), (10, "a", 0), (11, "a b", 0), (30, "a b", 0), (31, "a b c", 0), (61, "a b c", 1)]
    {
        for profile in BOTH {
            let outcome = run(&[task(Feature::BeMemory, &[(Resource::Memory, needed)], &pods)], &pods, &[], profile);
            let names: Vec<_> = outcome.chosen.iter().map(|chosen| chosen.candidate.pod.name.as_str()).collect();
            assert_eq!(names.join(" "), chosen, "{needed}");
            let left = outcome.lacking.get(&0).map_or(0, |lacking| lacking[&Resource::Memory]);
            assert_eq!(left, lacking, "{needed}");
        }
    }
}

#[test]
fn what_one_task_releases_counts_for_the_next() {
    let pods = [pod("a", 1, 10, 5), pod("b", 2, 20, 5), pod("c", 3, 30, 5)];
    let be = |needed| task(Feature::BeMemory, &[(Resource::Memory, needed)], &pods);
    let all = |needed| task(Feature::Memory, &[(Resource::Memory, needed)], &pods);
    for (tasks, chosen) in [
        (vec![be(10), all(10)], vec!["0:a"]),
        (vec![be(10), all(11)], vec!["0:a", "1:b"]),
        (vec![be(30), all(60)], vec!["0:a", "0:b", "1:c"]),
        (vec![all(60), be(30)], vec!["0:a", "0:b", "0:c"]),
        // Used and requested amounts are two kinds.
        (vec![be(10), task(Feature::MemoryAllocatable, &[(Resource::BatchMemory, 10)], &pods)], vec!["0:a", "1:b"]),
        (vec![be(30), task(Feature::MemoryAllocatable, &[(Resource::BatchMemory, 10)], &pods)], vec!["0:a", "0:b"]),
    ] {
        for profile in BOTH {
            assert_eq!(names(&run(&tasks, &pods, &[], profile)), chosen);
        }
    }
}

#[test]
fn a_pod_counts_once_for_each_kind_by_the_largest_value() {
    // BECPUEvict and CPUAllocatableEvict both count the requested batch CPU.
    let pods = [pod("a", 5_500, 7, 5), pod("b", 5_501, 7, 5)];
    let tasks = [
        task(Feature::BeCpu, &[(Resource::BatchCpu, 5)], &pods),
        task(Feature::CpuAllocatable, &[(Resource::BatchCpu, 6)], &pods),
        task(Feature::Cpu, &[(Resource::Cpu, 7)], &pods),
    ];
    assert_eq!(
        freed(&tasks, &pods[0], 0),
        Amounts::from([((Kind::Request, Resource::BatchCpu), 5), ((Kind::Used, Resource::Cpu), 7)])
    );
    for profile in BOTH {
        let outcome = run(&tasks, &pods, &[], profile);
        assert_eq!(names(&outcome), ["0:a", "1:b"]);
        assert_eq!(
            outcome.released,
            Amounts::from([((Kind::Request, Resource::BatchCpu), 10), ((Kind::Used, Resource::Cpu), 14)])
        );
        assert_eq!(outcome.lacking, BTreeMap::new());
    }
}

#[test]
fn pods_evicted_before_count_first_and_are_not_chosen_again() {
    let pods = [pod("a", 1, 10, 0), pod("b", 2, 20, 0), pod("c", 3, 30, 0)];
    for (pending, needed, chosen) in [
        (vec!["a"], 10, vec![]),
        (vec!["a"], 11, vec!["0:b"]),
        // A pod counts even if it is the last candidate.
        (vec!["c"], 30, vec![]),
        (vec!["c"], 35, vec!["0:a"]),
        (vec!["a", "b", "c"], 100, vec![]),
    ] {
        for profile in BOTH {
            let outcome =
                run(&[task(Feature::BeMemory, &[(Resource::Memory, needed)], &pods)], &pods, &pending, profile);
            assert_eq!(names(&outcome), chosen, "{pending:?} {needed}");
        }
    }
    // The amounts of a barred pod do not count.
    let tasks = [task(Feature::BeMemory, &[(Resource::Memory, 10)], &pods)];
    let outcome = work(&tasks, &[], &BTreeSet::from(["a"]), Profile::Responsive, 0);
    assert_eq!(names(&outcome), ["0:b"]);
}

#[test]
fn who_releases_nothing_of_what_is_lacking_stays() {
    // Batch requests exceed the threshold, mid requests do not; the mid pod would come first.
    let mid = Pod { priority: Some(7_500), class: None, ..pod("mid", 0, 1, 9) };
    let mut first = mid.clone();
    first.marks.eviction_priority = -1;
    let pods = [first, pod("batch", 5_500, 1, 9)];
    let tasks = [task(Feature::CpuAllocatable, &[(Resource::BatchCpu, 5)], &pods)];
    assert_eq!(names(&run(&tasks, &pods, &[], Profile::Responsive)), ["0:batch"]);
    assert_eq!(names(&run(&tasks, &pods, &[], Profile::Koordinator)), ["0:mid", "0:batch"]);
    // A pod that uses nothing is not evicted either.
    let pods = [pod("idle", 1, 0, 0), pod("busy", 2, 5, 0)];
    let tasks = [task(Feature::BeMemory, &[(Resource::Memory, 9)], &pods)];
    assert_eq!(names(&run(&tasks, &pods, &[], Profile::Responsive)), ["0:busy"]);
    assert_eq!(names(&run(&tasks, &pods, &[], Profile::Koordinator)), ["0:idle", "0:busy"]);
}

#[test]
fn of_pods_that_are_not_measured_one_leaves_at_a_time() {
    let unknown = |name| Pod { memory: None, ..pod(name, 5, 0, 0) };
    let pods = [unknown("a"), unknown("b"), pod("known", 5, 5, 0)];
    let tasks = [task(Feature::BeMemory, &[(Resource::Memory, 9)], &pods)];
    let outcome = run(&tasks, &pods, &[], Profile::Responsive);
    assert_eq!(names(&outcome), ["0:known", "0:b"]);
    assert_eq!(outcome.lacking[&0][&Resource::Memory], 4);
    assert_eq!(names(&run(&tasks, &pods, &[], Profile::Koordinator)), ["0:known", "0:b", "0:a"]);
}

#[test]
fn several_resources_are_all_covered() {
    let mid = Pod { priority: Some(7_500), class: None, ..pod("mid", 0, 1, 9) };
    let pods = [pod("b1", 5_500, 1, 9), pod("b2", 5_501, 1, 9), mid];
    let tasks = [task(Feature::CpuAllocatable, &[(Resource::BatchCpu, 5), (Resource::MidCpu, 20)], &pods)];
    let outcome = run(&tasks, &pods, &[], Profile::Responsive);
    assert_eq!(names(&outcome), ["0:b1", "0:mid"]);
    assert_eq!(outcome.lacking[&0], BTreeMap::from([(Resource::MidCpu, 11)]));
    // Koordinator goes on with the next candidate.
    assert_eq!(names(&run(&tasks, &pods, &[], Profile::Koordinator)), ["0:b1", "0:b2", "0:mid"]);
    // Positions and lacking amounts are reported.
    assert_eq!(outcome.chosen.iter().map(|chosen| chosen.place).collect::<Vec<_>>(), [1, 3]);
    assert_eq!(outcome.chosen[0].lacking, BTreeMap::from([(Resource::MidCpu, 20)]));
}
