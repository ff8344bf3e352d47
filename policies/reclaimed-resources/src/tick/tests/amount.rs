//! Tests of the published amounts.

use super::*;

#[test]
fn each_pod_counts_by_its_priority_class_and_what_is_known_of_it() {
    use PriorityClass::{Batch, Free, Mid, None, Prod};
    // Without pods: 100 - 20 - 7 = 73 CPUs, 100 - 10 - 12 = 78 GiB.
    let used = Some((3000, 3 * GIB));
    let ended = |pod: Pod| Pod { is_active: false, ..pod };
    let best_effort = |pod: Pod| Pod { declared_qos: Some(QosClass::Be), qos: QosClass::Be, ..pod };
    let exclusive = |pod: Pod| Pod { declared_qos: Some(QosClass::Lse), qos: QosClass::Lse, ..pod };
    let asks = || requesting("p", 8000, 2 * GIB);
    for (what, pod, used, cpu, memory) in [
        ("prod", of_class(Prod, asks()), used, 70_000, 75 * GIB),
        ("none", of_class(None, asks()), used, 70_000, 75 * GIB),
        ("mid", of_class(Mid, asks()), used, 70_000, 75 * GIB),
        ("batch", of_class(Batch, asks()), used, 73_000, 78 * GIB),
        ("free", of_class(Free, asks()), used, 73_000, 78 * GIB),
        ("BE of class mid", of_class(Mid, best_effort(asks())), used, 70_000, 75 * GIB),
        ("LS of class batch", of_class(Batch, asks()), used, 73_000, 78 * GIB),
        ("without metric", of_class(Prod, asks()), Option::None, 65_000, 76 * GIB),
        ("batch without metric", of_class(Batch, asks()), Option::None, 73_000, 78 * GIB),
        ("LSE", exclusive(of_class(Prod, asks())), used, 65_000, 75 * GIB),
        ("LSE without metric", exclusive(of_class(Prod, asks())), Option::None, 65_000, 76 * GIB),
        ("ended", ended(of_class(Prod, asks())), Option::None, 73_000, 78 * GIB),
        ("ended, but still measured", ended(of_class(Prod, asks())), used, 70_000, 75 * GIB),
        ("ended batch, but still measured", ended(of_class(Batch, asks())), used, 73_000, 78 * GIB),
    ] {
        let mut run = Run::enabled();
        run.add(pod, used);
        assert_eq!(batch(&run.minute()), (Some(cpu), Some(memory)), "{what}");
    }
}

#[test]
fn a_node_that_shrinks_offers_less_at_once() {
    let mut run = Run::enabled();
    run.add(of_class(PriorityClass::Prod, requesting("p", 3000, GIB)), Some((3000, 3 * GIB)));
    // 80 % of the CPU less 7 CPUs of the system and 3 of the pod; 90 % of the memory less 12 GiB and 3.
    for (size, cpu, memory) in [(100, 70_000, 75 * GIB), (50, 30_000, 30 * GIB), (20, 6_000, 3 * GIB), (10, 0, 0)] {
        let capacity = Amounts::new(size * 1000, size * GIB);
        (run.node().capacity, run.node().allocatable) = (capacity, capacity);
        let decisions = run.minute();
        assert_eq!(batch(&decisions), (Some(cpu), Some(memory)), "{size}");
        assert!(decisions.publication.due.is_some(), "{size}");
    }
}

#[test]
fn what_is_measured_of_no_listed_pod_counts_by_its_class() {
    for (priority, cpu) in [
        (PriorityClass::Prod, 69_000),
        (PriorityClass::Mid, 69_000),
        (PriorityClass::None, 69_000),
        (PriorityClass::Batch, 73_000),
        (PriorityClass::Free, 73_000),
    ] {
        let mut run = Run::enabled();
        run.usage().pods.push(PodUsage { uid: "gone".into(), priority, sample: sample(4000, GIB) });
        assert_eq!(batch(&run.minute()).0, Some(cpu), "{priority:?}");
        run.usage().pods.clear();
        assert_eq!(batch(&run.minute()).0, Some(cpu), "still within the window");
        for _ in 0..6 {
            run.minute();
        }
        assert_eq!(batch(&run.minute()).0, Some(73_000), "gone with its last measurement");
    }
}

#[test]
fn system_reservation_and_host_applications_are_taken_off() {
    let host = |priority, milli| HostApplication { priority, sample: sample(milli, 0) };
    for (reservation, allocatable, hosts, cpu) in [
        (None, 100_000, vec![], 73_000),
        (None, 95_000, vec![], 73_000),
        (None, 90_000, vec![], 70_000),
        (Some(r#"{"resources":{"cpu":"9"}}"#), 95_000, vec![], 71_000),
        (Some(r#"{"resources":{"cpu":"9"},"reservedCPUs":"0-7"}"#), 95_000, vec![], 72_000),
        (Some(r#"{"reservedCPUs":"0-9","applyPolicy":"ReservedCPUsOnly"}"#), 100_000, vec![], 70_000),
        (None, 100_000, vec![host(PriorityClass::Prod, 1000), host(PriorityClass::Mid, 2000)], 70_000),
        (None, 100_000, vec![host(PriorityClass::Batch, 1000), host(PriorityClass::Free, 2000)], 73_000),
        (None, 91_000, vec![host(PriorityClass::Prod, 1000)], 71_000),
    ] {
        let mut run = Run::enabled();
        run.node().allocatable.cpu_milli = allocatable;
        if let Some(text) = reservation {
            run.annotate(RESERVATION_ANNOTATION, text);
        }
        run.usage().host_applications = hosts.clone();
        assert_eq!(batch(&run.minute()).0, Some(cpu), "{reservation:?} {allocatable} {hosts:?}");
    }
}

#[test]
fn policies_thresholds_and_labels_reach_the_formula() {
    let policy = |fields: &str| format!(r#"{{"colocation":{{"enable":true,{fields}}}}}"#);
    let margins = r#""cpuReclaimThresholdPercent":80,"memoryReclaimThresholdPercent":90"#;
    // One pod that requests 30 CPUs and 20 GiB, and uses 3 CPUs and 30 GiB.
    for (fields, cpu, memory) in [
        (margins.to_owned(), 70_000, 48 * GIB),
        (format!(r#"{margins},"cpuCalculatePolicy":"maxUsageRequest""#), 43_000, 48 * GIB),
        (format!(r#"{margins},"memoryCalculatePolicy":"request""#), 70_000, 70 * GIB),
        (format!(r#"{margins},"memoryCalculatePolicy":"maxUsageRequest""#), 70_000, 48 * GIB),
        (format!(r#"{margins},"batchCPUThresholdPercent":50,"batchMemoryThresholdPercent":40"#), 50_000, 40 * GIB),
    ] {
        let mut run = Run::new(&policy(&fields));
        run.add(requesting("p", 30_000, 20 * GIB), Some((3000, 30 * GIB)));
        assert_eq!(batch(&run.minute()), (Some(cpu), Some(memory)), "{fields}");
    }
    let mut run = Run::enabled();
    run.node().labels.insert("node.koordinator.sh/cpu-reclaim-ratio".into(), "1.1".into());
    run.annotate(
        "node.koordinator.sh/colocation-strategy",
        r#"{"cpuReclaimThresholdPercent":50,"memoryReclaimThresholdPercent":100}"#,
    );
    assert_eq!(batch(&run.minute()), (Some(103_000), Some(88 * GIB)));
}

#[test]
fn a_fresh_pod_is_visible_under_every_policy() {
    for policy in ["usage", "maxUsageRequest"] {
        let config = format!(
            r#"{{"colocation":{{"enable":true,"cpuReclaimThresholdPercent":80,"cpuCalculatePolicy":"{policy}"}}}}"#
        );
        let mut run = Run::new(&config);
        run.minute();
        run.add(requesting("fresh", 20_000, 0), None);
        assert_eq!(batch(&run.minute()).0, Some(53_000), "{policy}");
    }
}

#[test]
fn a_mid_pod_takes_what_it_requests_of_mid_resources() {
    let mut app = container("app", ContainerKind::Regular, 0, 0);
    app.extended =
        vec![extended(MID_CPU, Some(5000), Some(5000)), extended("kubernetes.io/mid-memory", Some(GIB), Some(GIB))];
    let mut run = Run::enabled();
    run.add(of_class(PriorityClass::Mid, pod("mid", vec![app])), None);
    assert_eq!(batch(&run.minute()), (Some(68_000), Some(77 * GIB)));
}

#[test]
fn allocations_of_third_parties_come_off_and_the_origin_is_kept() {
    let given = |cpu: &str| {
        format!(
            r#"{{"allocations":[{{"name":"yarn","priority":"koord-batch","resources":{{"{CPU}":"{cpu}","{MEMORY}":"8Gi"}}}}]}}"#
        )
    };
    let mut run = Run::enabled();
    run.annotate(THIRD_PARTY_ANNOTATION, &given("10k"));
    let first = run.minute();
    assert_eq!(batch(&first), (Some(63_000), Some(70 * GIB)));
    assert_eq!(first.publication.published.origin, Some(Amounts::new(73_000, 78 * GIB)));
    let reason = &first.publication.published.offers[CPU].reason;
    assert!(reason.ends_with(", - 10000m given away by other schedulers"), "{reason}");

    run.annotate(THIRD_PARTY_ANNOTATION, "{");
    let broken = run.minute();
    assert_eq!(batch(&broken), (Some(63_000), Some(70 * GIB)), "what was given away last still is");
    assert!(broken.findings[0].to_string().starts_with(THIRD_PARTY_ANNOTATION), "{:?}", broken.findings);

    run.annotate(THIRD_PARTY_ANNOTATION, &given("100k"));
    assert_eq!(batch(&run.minute()).0, Some(0), "never below 0");

    let mut never = Run::enabled();
    never.annotate(THIRD_PARTY_ANNOTATION, "{");
    let seen = never.minute();
    assert_eq!(batch(&seen), (None, None));
    assert_eq!(seen.publication.status.to_string(), "withdrawn: nobody knows what other schedulers have given away");
    never.node().annotations.clear();
    assert_eq!(batch(&never.minute()).0, Some(73_000));
}

#[test]
fn further_names_share_one_amount() {
    let config = r#"{"policy":{"batchCPUNames":["kubernetes.io/batch-cpu","alibabacloud.com/reclaimed-cpu"],
        "batchMemoryNames":["alibabacloud.com/reclaimed-memory"]},
        "colocation":{"enable":true,"cpuReclaimThresholdPercent":80,"memoryReclaimThresholdPercent":90}}"#;
    let mut run = Run::new(config);
    let mut old = container("old", ContainerKind::Regular, 0, 0);
    old.extended = vec![extended("alibabacloud.com/reclaimed-cpu", Some(3000), Some(3000))];
    let mut new = container("new", ContainerKind::Regular, 0, 0);
    new.extended = vec![extended(CPU, Some(5000), Some(5000))];
    run.add(of_class(PriorityClass::Batch, pod("be", vec![old, new])), None);
    let seen = run.minute();
    assert_eq!(amount(&seen, CPU), Some(70_000));
    assert_eq!(amount(&seen, "alibabacloud.com/reclaimed-cpu"), Some(68_000));
    assert_eq!((amount(&seen, MEMORY), amount(&seen, "alibabacloud.com/reclaimed-memory")), (None, Some(78 * GIB)));
    let reason = &seen.publication.published.offers[CPU].reason;
    assert!(reason.ends_with(", - 3000m requested under other names"), "{reason}");
    // Pods request it under both names, so each scheduler sees the same 65 CPUs left.
    run.settings = settings(r#"{"colocation":{"enable":true,"cpuReclaimThresholdPercent":80}}"#);
    let fewer = run.minute();
    assert_eq!(fewer.publication.due, Some(Due::Appears { name: MEMORY.into() }));
    assert_eq!(amount(&fewer, "alibabacloud.com/reclaimed-cpu"), None, "a name that is configured no more goes");
}

#[test]
fn a_faster_cpu_offers_more_and_its_quotas_are_shorter() {
    let mut app = container("app", ContainerKind::Regular, 0, 0);
    app.extended = vec![extended(CPU, Some(1200), Some(1200))];
    let be = Pod { declared_qos: Some(QosClass::Be), ..of_class(PriorityClass::Batch, pod("be", vec![app])) };
    let mut run = Run::enabled();
    run.annotate(RATIO_ANNOTATION, "1.20");
    run.add(be, None);
    let seen = run.minute();
    assert_eq!(batch(&seen), (Some(87_600), Some(78 * GIB)));
    assert_eq!(seen.settings.unwrap()[0].quota_usec, Some(100_000));
    assert!(seen.publication.published.offers[CPU].reason.ends_with(", times CPU normalisation 1.2"));
    for (ratio, quota) in [("1.205", 100_000), ("1.25", 96_000), ("1", 120_000), ("oops", 120_000)] {
        run.annotate(RATIO_ANNOTATION, ratio);
        assert_eq!(run.minute().settings.unwrap()[0].quota_usec, Some(quota), "{ratio}");
    }
}

#[test]
fn zones_are_published_beside_the_node() {
    let mut run = Run::enabled();
    let zone = |id| Zone { id, allocatable: Amounts::new(50_000, 50 * GIB) };
    run.node().zones = vec![zone(0), zone(1)];
    run.add(Pod { numa_nodes: vec![1], ..requesting("p", 0, 0) }, Some((10_000, 4 * GIB)));
    let seen = run.minute();
    // 50 - 10 - 3.5 CPUs, less 10 in zone 1; 50 - 5 - 6 GiB, less 4.
    let expected = BTreeMap::from([(0, Amounts::new(36_500, 39 * GIB)), (1, Amounts::new(26_500, 35 * GIB))]);
    assert_eq!(seen.publication.published.zones, expected);
    let breakdown = seen.publication.breakdown.unwrap();
    assert_eq!(breakdown.batch.map(|amount| amount.value), [63_000, 74 * GIB]);
    assert_eq!(breakdown.zones.iter().map(|zone| zone.id).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn hot_page_cache_counts_while_tasks_wait_for_memory() {
    let mut run = Run::enabled();
    let memory = MemoryUse { without_cache: 10 * GIB, hot_cache: 20 * GIB, cold_cache: 30 * GIB };
    let system = Sample { cpu_usec: 0, memory };
    // 90 GiB less the used memory. Stalls are averaged over five minutes, so each step lasts ten.
    for (stalled_percent, gib) in
        [(None, 80), (Some(9), 80), (Some(10), 60), (Some(6), 60), (Some(5), 80), (Some(9), 80)]
    {
        for _ in 0..10 {
            *run.usage() = Usage {
                system: Some(system),
                memory_stalled_usec: stalled_percent.map(|percent| percent * MINUTE / 100),
                ..Usage::default()
            };
            run.minute();
        }
        assert_eq!(batch(&run.minute()).1, Some(gib * GIB), "{stalled_percent:?}");
    }
    for (view, gib) in [("usageWithHotPageCache", 60), ("usageWithPageCache", 30)] {
        let config = format!(
            r#"{{"colocation":{{"enable":true,"memoryReclaimThresholdPercent":90,"metricMemoryCollectPolicy":"{view}"}}}}"#
        );
        let mut run = Run::new(&config);
        run.usage().system = Some(system);
        assert_eq!(batch(&run.minute()).1, Some(gib * GIB), "{view}");
    }
}

#[test]
fn mid_is_what_prod_is_expected_to_leave() {
    let config = r#"{"policy":{"coldStartSeconds":600,"peakMarginPercent":0},
        "colocation":{"enable":true,"midUnallocatedPercent":10}}"#;
    let mut run = Run::new(config);
    run.usage().node = sample(17_000, 20 * GIB);
    run.add(requesting("prod", 40_000, 40 * GIB), Some((10_000, 8 * GIB)));
    // Unallocated: 100 - 7 - 40 CPUs, of which a tenth. Until the cold start is over, prod leaves nothing.
    assert_eq!(amount(&run.minute(), MID_CPU), Some(5300));
    for _ in 0..20 {
        run.minute();
    }
    let mid = amount(&run.minute(), MID_CPU).unwrap();
    // 40 - 10 by pod, 40 - (10 + 7) together; peaks are up to a sixteenth above.
    assert!((5300 + 23_000 - 17_000 / 16..=5300 + 23_000).contains(&mid), "{mid}");
    run.settings =
        settings(r#"{"colocation":{"enable":true,"midReclaimMode":"static","midStaticCPUReservedPercent":25}}"#);
    assert_eq!(amount(&run.minute(), MID_CPU), Some(25_000));
}

#[test]
fn what_prod_has_not_been_given_counts_for_mid() {
    use PriorityClass::{Batch, Mid, Prod};
    let host = |priority| vec![HostApplication { priority, sample: sample(1000, 0) }];
    let none = PriorityClass::None;
    // All of 100 CPUs less 7 of the system; the pod requests 40.
    for (class, is_active, hosts, allocatable, expected) in [
        (Prod, true, vec![], 100_000, 53_000),
        (none, true, vec![], 100_000, 53_000),
        (Mid, true, vec![], 100_000, 93_000),
        (Batch, true, vec![], 100_000, 93_000),
        (Prod, false, vec![], 100_000, 93_000),
        (Batch, true, host(Prod), 100_000, 92_000),
        (Batch, true, host(Mid), 100_000, 93_000),
        (Batch, true, host(Prod), 90_000, 90_000),
    ] {
        let mut run = Run::new(r#"{"colocation":{"enable":true,"midUnallocatedPercent":100}}"#);
        run.node().allocatable.cpu_milli = allocatable;
        run.usage().host_applications = hosts.clone();
        run.add(Pod { is_active, ..of_class(class, requesting("p", 40_000, 0)) }, Some((1000, 0)));
        assert_eq!(amount(&run.minute(), MID_CPU), Some(expected), "{class:?} {is_active} {hosts:?} {allocatable}");
    }
}

#[test]
fn a_reservation_that_becomes_unreadable_is_not_given_away() {
    let mut run = Run::enabled();
    run.annotate(RESERVATION_ANNOTATION, r#"{"resources":{"cpu":"30"}}"#);
    assert_eq!(batch(&run.minute()).0, Some(50_000));
    run.annotate(RESERVATION_ANNOTATION, r#"{"resources":{"cpu":"30 CPUs"}}"#);
    let seen = run.minute();
    assert_eq!((batch(&seen).0, seen.findings.len()), (Some(50_000), 1));
    run.node().annotations.remove(RESERVATION_ANNOTATION);
    assert_eq!(batch(&run.minute()).0, Some(73_000));
}
