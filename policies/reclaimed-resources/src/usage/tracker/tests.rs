use super::*;

const MINUTE: u64 = 60 * SECOND_USEC;

fn sample(milli: u64, window_usec: u64, bytes: u64) -> Sample {
    Sample { cpu_usec: milli * window_usec / 1000, memory: MemoryUse { without_cache: bytes, ..MemoryUse::default() } }
}

fn pod(uid: &str, priority: PriorityClass, sample: Sample) -> PodUsage {
    PodUsage { uid: uid.into(), priority, sample }
}

/// A node that uses 10 CPUs, 3 of them in a prod pod and 2 in a batch pod.
fn usage(window_usec: u64) -> Usage {
    Usage {
        node: sample(10_000, window_usec, 1000),
        pods: vec![
            pod("prod", PriorityClass::Prod, sample(3000, window_usec, 300)),
            pod("batch", PriorityClass::Batch, sample(2000, window_usec, 200)),
        ],
        ..Usage::default()
    }
}

fn view() -> MemoryView {
    MemoryView::WithoutPageCache
}

fn there(_: u64) -> Option<PriorityClass> {
    Some(PriorityClass::Prod)
}

#[test]
fn the_system_is_what_is_left_of_the_node_unless_it_is_measured() {
    let host = |priority, milli| HostApplication { priority, sample: sample(milli, MINUTE, 10) };
    let applications = vec![
        host(PriorityClass::Prod, 100),
        host(PriorityClass::Mid, 200),
        host(PriorityClass::Batch, 400),
        host(PriorityClass::Prod, 50),
    ];
    for (system, applications, expected) in [
        (None, vec![], (5000, 500)),
        (None, applications.clone(), (4250, 460)),
        (Some(sample(1234, MINUTE, 77)), applications, (1234, 77)),
    ] {
        let has_applications = !applications.is_empty();
        let mut tracker = Tracker::default();
        let usage = Usage { system, host_applications: applications, ..usage(MINUTE) };
        tracker.advance(MINUTE, Some(&usage), view(), there);
        let averages = tracker.averages(&Strategy::default(), view()).unwrap();
        assert_eq!(averages.system, Amounts::new(expected.0, expected.1));
        assert_eq!(averages.node, Amounts::new(10_000, 1000));
        if has_applications {
            assert_eq!((averages.host_prod, averages.host_mid), (Amounts::new(150, 20), Amounts::new(200, 10)));
        }
    }
    let mut tracker = Tracker::default();
    let odd = Usage { node: sample(1000, MINUTE, 100), ..usage(MINUTE) };
    tracker.advance(MINUTE, Some(&odd), view(), there);
    let system = tracker.averages(&Strategy::default(), view()).unwrap().system;
    assert_eq!(system, Amounts::ZERO, "pods that use more than the node leave nothing, not less");
}

#[test]
fn a_pod_counts_with_its_request_until_a_report_has_passed() {
    let strategy = Strategy::default();
    let request = Amounts::new(4000, 250);
    let mut tracker = Tracker::default();
    let known = |tracker: &Tracker| tracker.pod_usage(key("prod"), request, &strategy, view());
    assert_eq!(known(&tracker), None);
    for (windows, expected) in
        [(1, Amounts::new(4000, 300)), (58, Amounts::new(4000, 300)), (1, Amounts::new(3000, 300))]
    {
        for _ in 0..windows {
            tracker.advance(SECOND_USEC, Some(&usage(SECOND_USEC)), view(), there);
        }
        assert_eq!(known(&tracker), Some(expected), "{windows}");
    }
    assert!(tracker.averages(&strategy, view()).is_some());
}

#[test]
fn the_node_is_not_known_before_a_report_has_passed() {
    let strategy = Strategy { report_seconds: 60, ..Strategy::default() };
    let mut tracker = Tracker::default();
    tracker.advance(59 * SECOND_USEC, Some(&usage(59 * SECOND_USEC)), view(), there);
    assert_eq!(tracker.averages(&strategy, view()), None);
    tracker.advance(SECOND_USEC, Some(&usage(SECOND_USEC)), view(), there);
    assert!(tracker.averages(&strategy, view()).is_some());
}

#[test]
fn what_is_neither_listed_nor_measured_is_forgotten() {
    let mut tracker = Tracker::default();
    tracker.advance(MINUTE, Some(&usage(MINUTE)), view(), |_| None);
    assert_eq!(tracker.pods.len(), 2, "dangling, but measured");
    tracker.advance(MINUTE, None, view(), |pod| (pod == key("prod")).then_some(PriorityClass::Prod));
    assert_eq!(tracker.pods.keys().copied().collect::<Vec<_>>(), [key("prod")]);
    tracker.advance(MINUTE, Some(&Usage::default()), view(), |_| None);
    assert_eq!(tracker.pods.len(), 0);
}

#[test]
fn dangling_use_counts_by_the_class_that_was_last_known() {
    let mut tracker = Tracker::default();
    tracker.advance(MINUTE, Some(&usage(MINUTE)), view(), |_| None);
    assert_eq!(tracker.dangling(view(), |_| false), Amounts::new(3000, 300), "batch does not count");
    assert_eq!(tracker.dangling(view(), |pod| pod == key("prod")), Amounts::ZERO);
    for (class, expected) in [
        (PriorityClass::Mid, Amounts::new(1000, 5)),
        (PriorityClass::None, Amounts::new(1000, 5)),
        (PriorityClass::Free, Amounts::ZERO),
    ] {
        let mut tracker = Tracker::default();
        let usage = Usage { pods: vec![pod("gone", class, sample(1000, MINUTE, 5))], ..Usage::default() };
        tracker.advance(MINUTE, Some(&usage), view(), |_| None);
        assert_eq!(tracker.dangling(view(), |_| false), expected, "{class:?}");
    }
}

#[test]
fn the_age_of_the_metrics_grows_while_nothing_is_measured() {
    let mut tracker = Tracker::default();
    tracker.advance(MINUTE, None, view(), there);
    assert_eq!(tracker.age_usec(), None);
    tracker.advance(MINUTE, Some(&usage(MINUTE)), view(), there);
    assert_eq!(tracker.age_usec(), Some(0));
    tracker.advance(3 * MINUTE, None, view(), there);
    assert_eq!(tracker.age_usec(), Some(3 * MINUTE));
    tracker.advance(0, Some(&usage(1)), view(), there);
    assert_eq!(tracker.age_usec(), Some(3 * MINUTE), "a window without length measures nothing");
}

#[test]
fn peaks_need_time_and_come_from_whole_slots() {
    let mut tracker = Tracker::default();
    for _ in 0..120 {
        tracker.advance(MINUTE, Some(&usage(MINUTE)), view(), there);
    }
    assert_eq!(tracker.pod_peak(key("prod"), 121 * MINUTE), None, "cold");
    let peak = tracker.pod_peak(key("prod"), 120 * MINUTE).unwrap();
    assert!(peak.cpu_milli >= 3000 && peak.cpu_milli <= 3000 + 3000 / 16, "{peak:?}");
    assert!(peak.memory_bytes >= 300 && peak.memory_bytes <= 300 + 300 / 16, "{peak:?}");
    // Both pods count as prod here, whatever their class was when they were measured.
    let prod = tracker.prod.peaks.peak().unwrap();
    assert!(prod.cpu_milli >= 5000 && prod.cpu_milli <= 5000 + 5000 / 16, "{prod:?}");
    let system = tracker.system.peaks.peak().unwrap();
    assert!(system.cpu_milli >= 5000 && system.cpu_milli <= 5000 + 5000 / 16, "{system:?}");
}

#[test]
fn stalls_are_averaged_like_use() {
    let mut tracker = Tracker::default();
    assert_eq!(tracker.memory_stalled_permille(), None);
    for (stalled, permille) in [(MINUTE / 10, 100), (0, 50), (2 * MINUTE, 367)] {
        let usage = Usage { memory_stalled_usec: Some(stalled), ..usage(MINUTE) };
        tracker.advance(MINUTE, Some(&usage), view(), there);
        assert_eq!(tracker.memory_stalled_permille(), Some(permille));
    }
}

#[test]
fn another_window_keeps_what_is_known() {
    let mut tracker = Tracker::default();
    for _ in 0..10 {
        tracker.advance(MINUTE, Some(&usage(MINUTE)), view(), there);
    }
    let strategy = Strategy { aggregate_seconds: 600, aggregate_durations: vec![3600], ..Strategy::default() };
    tracker.reconfigure(&strategy);
    let used = tracker.pod_usage(key("prod"), Amounts::ZERO, &strategy, view());
    assert_eq!(used, Some(Amounts::new(3000, 300)));
    // Of the node's mean one slot of 30 s is kept, so it is known again after the rest of a report interval.
    assert_eq!(tracker.averages(&strategy, view()), None);
    tracker.advance(MINUTE / 2, Some(&usage(MINUTE / 2)), view(), there);
    assert!(tracker.averages(&strategy, view()).is_some());
    let same = tracker.clone();
    tracker.reconfigure(&strategy);
    assert_eq!(tracker, same);
}
