use proptest::prelude::*;

use super::*;

fn satisfaction(lower: i64, upper: i64, usage: i64) -> Satisfaction {
    Satisfaction { lower, upper, usage, window_seconds: 1, limit: Limit::Real }
}

fn usage(threshold: i64, lower: i64) -> Usage {
    Usage { threshold, lower, priority: None, window_seconds: 1 }
}

fn allocatable(threshold: i64, lower: i64) -> Allocatable {
    Allocatable { threshold, lower, priority: 7_999 }
}

#[test]
fn starving_by_hand() {
    // Request, use, limit; lower 40 %, upper 60 %, use counts from 90 % on.
    for (request, used, limit, release) in [
        // A ratio of 25 %: 35 % of 8000 are missing.
        (8_000, 2_000, 2_000, Some(2_800)),
        (8_000, 1_800, 2_000, Some(2_800)),
        // 89.95 % of the limit are not 90.
        (8_000, 1_799, 2_000, None),
        // Exactly at the lower percentage.
        (8_000, 3_200, 3_200, Some(1_600)),
        (8_000, 3_201, 3_201, None),
        // With a limit below one CPU, use does not matter.
        (8_000, 0, 999, Some(3_801)),
        (8_000, 0, 1_000, None),
        (8_000, 0, 0, None),
        (0, 5_000, 5_000, None),
        // Only the integer part: 0.6 × 7 − 1 = 3.2.
        (7, 1, 1, Some(3)),
        // 0.6 × 2 − 0.… is less than one.
        (1, 0, 0, None),
    ] {
        assert_eq!(
            starving(&Sums::of([request, used, limit]), &satisfaction(40, 60, 90)),
            release,
            "{request} {used} {limit}"
        );
    }
    // The ratio is already at the upper percentage: nothing to release.
    assert_eq!(starving(&Sums::of([1_000, 600, 600]), &satisfaction(60, 60, 90)), None);
    assert_eq!(starving(&Sums::of([1_000, 0, 600]), &satisfaction(60, 61, 90)), Some(10));
    // With a use threshold of 0 %, use does not matter.
    assert_eq!(starving(&Sums::of([8_000, 0, 2_000]), &satisfaction(40, 60, 0)), Some(2_800));
    // 1000 × (60 % − 40 %), which floating point makes 199.99….
    assert_eq!(starving(&Sums::of([1_000, 400, 400]), &satisfaction(40, 60, 90)), Some(200));
}

#[test]
fn averages_are_exact() {
    let settings = satisfaction(40, 60, 90);
    // 3 samples of together 24000, 6000, 6001: (0.6 × 24000 − 6001) / 3 = 2799.67.
    let average = Sums { sums: [24_000, 6_000, 6_001], count: 3 };
    assert_eq!(starving(&average, &settings), Some(2_799));
    // The average limit is below one CPU although the sum is not.
    let average = Sums { sums: [24_000, 0, 2_999], count: 3 };
    assert_eq!(starving(&average, &settings), Some(3_800));
}

#[test]
fn the_latest_sample_has_to_agree() {
    let settings = satisfaction(40, 60, 90);
    let average = Sums { sums: [24_000, 6_000, 6_000], count: 3 };
    for (latest, release) in [
        // The same request and limit.
        ([8_000, 2_000, 2_000], Some(2_800)),
        ([8_000, 1_000, 2_000], None),
        // The smaller of both: 0.6 × 8000 − 3000, and 0.6 × 8000 − 1000.
        ([8_000, 3_000, 3_000], Some(1_800)),
        ([8_000, 1_000, 1_000], Some(2_800)),
        ([8_000, 4_000, 4_000], None),
        ([0, 0, 2_000], None),
    ] {
        assert_eq!(starving_twice(&average, &Sums::of(latest), &settings), release, "{latest:?}");
    }
    // The average has to exceed the threshold as well.
    let calm = Sums { sums: [24_000, 12_000, 12_000], count: 3 };
    assert_eq!(starving_twice(&calm, &Sums::of([8_000, 2_000, 2_000]), &settings), None);
}

#[test]
fn the_limit_is_the_real_one_or_what_is_offered() {
    for (limit, allocatable, milli) in [
        (Limit::Real, Some(9_000), 4_000),
        (Limit::Real, None, 4_000),
        (Limit::Allocatable, Some(9_000), 9_000),
        (Limit::Allocatable, Some(0), 1),
        (Limit::Allocatable, Some(-1), 0),
        (Limit::Allocatable, None, 0),
    ] {
        assert_eq!(limit_of(limit, 4_000, allocatable), milli, "{limit:?} {allocatable:?}");
    }
}

#[test]
fn the_nodes_use_by_hand() {
    for (used, capacity, settings, koordinator, responsive) in [
        // 80 % of 10 CPUs.
        (8_000, 10_000, usage(80, 60), Some(2_000), Some(2_000)),
        (7_999, 10_000, usage(80, 60), None, None),
        // 94.99 %: whole percent are 94, exactly 949.9 of 1000 are 9499.
        (9_499, 10_000, usage(95, 93), None, None),
        (9_499, 10_000, usage(94, 92), Some(200), Some(299)),
        (10_000, 10_000, usage(80, 78), Some(2_200), Some(2_200)),
        (12_000, 10_000, usage(80, 78), Some(4_200), Some(4_200)),
        (0, 10_000, usage(1, -1), None, None),
        (100, 10_000, usage(1, -1), Some(200), Some(200)),
        // Arithmetic only; the configuration check refuses these settings.
        (0, 10_000, usage(0, 0), Some(0), Some(0)),
        (8_000, 10_000, usage(80, 80), Some(0), Some(0)),
        (7_000, 10_000, usage(60, 80), Some(0), Some(0)),
        (5, 0, usage(0, -2), None, None),
        // Bytes: 70.5 % of 1 GiB.
        (756_986_019, 1 << 30, usage(70, 68), Some(21_474_836), Some(26_841_578)),
        (1 << 62, 1 << 62, usage(70, 68), Some(1_475_739_525_896_764_129), Some(1_475_739_525_896_764_129)),
    ] {
        for (profile, release) in [(Profile::Koordinator, koordinator), (Profile::Responsive, responsive)] {
            assert_eq!(
                usage_release(used, 1, capacity, &settings, profile),
                release,
                "{used} of {capacity} {settings:?}"
            );
        }
    }
    // An average of three: 7999, 8000 and 8002 of 10000.
    assert_eq!(usage_release(24_001, 3, 10_000, &usage(80, 60), Profile::Responsive), Some(2_000));
    assert_eq!(usage_release(23_999, 3, 10_000, &usage(80, 60), Profile::Responsive), None);
}

#[test]
fn requests_by_hand() {
    for (requested, offered, settings, release) in [
        (10_000, None, allocatable(110, 100), Some(10_000)),
        (10_000, Some(0), allocatable(110, 100), Some(10_000)),
        (10_000, Some(-5), allocatable(110, 100), Some(10_000)),
        (0, None, allocatable(110, 100), None),
        (0, Some(100), allocatable(0, -1), None),
        // 110 % are not more than 110 %.
        (11_000, Some(10_000), allocatable(110, 100), None),
        (11_001, Some(10_000), allocatable(110, 100), Some(1_001)),
        (20_000, Some(10_000), allocatable(110, 100), Some(10_000)),
        (20_000, Some(10_000), allocatable(110, 50), Some(15_000)),
        (20_000, Some(10_000), allocatable(100, 0), Some(20_000)),
        // 7 − 0.5 × 3 = 5.5: the integer part.
        (7, Some(3), allocatable(100, 50), Some(5)),
        (u64::MAX, Some(i64::MAX), allocatable(110, 100), Some(9_223_372_036_854_775_808)),
    ] {
        assert_eq!(requests_release(requested, offered, &settings), release, "{requested} of {offered:?}");
    }
}

#[test]
fn triggers_say_by_how_much() {
    let release = Trigger::Satisfaction {
        request: 8_000,
        used: 1_900,
        limit: 2_001,
        settings: satisfaction(40, 60, 90),
        release: 2_799,
    };
    insta::assert_snapshot!(release, @"batch pods get 2001m (1900m used) of 8000m requested, 25.01 % <= 40 %; 2799m are missing to 60 %");
    let settings = usage(95, 93);
    let cpu = |used| Trigger::Usage {
        resource: Resource::Cpu,
        used,
        capacity: 10_000,
        settings,
        release: 200,
        shortage: None,
    };
    insta::assert_snapshot!(cpu(9_500), @"the node uses 95 % of its CPU, >= 95 %; to release: 200m");
    insta::assert_snapshot!(cpu(9_999), @"the node uses 99.99 % of its CPU, >= 95 %; to release: 200m");
    let memory = |shortage| Trigger::Usage {
        resource: Resource::Memory,
        used: 9 << 30,
        capacity: 10 << 30,
        settings,
        release: 1 << 30,
        shortage: Some(shortage),
    };
    insta::assert_snapshot!(memory(Shortage::Pressure { full_usec: 250_000, window_usec: 1_000_000 }), @"the node uses 90 % of its memory, < 95 %, and all tasks waited for memory 250 ms of 1000 ms; to release: 1Gi");
    insta::assert_snapshot!(memory(Shortage::Pressure { full_usec: 0, window_usec: 0 }), @"the node uses 90 % of its memory, < 95 %, and all tasks wait for memory; to release: 1Gi");
    insta::assert_snapshot!(memory(Shortage::OomKills(2)), @"the node uses 90 % of its memory, < 95 %, and the OOM killer ended 2 processes; to release: 1Gi");
    insta::assert_snapshot!(memory(Shortage::Marks { available: 64 << 20, low: 96 << 20 }), @"the node uses 90 % of its memory, < 95 %, and 64Mi are available, no more than the kernel's mark of 96Mi; to release: 1Gi");
    let requests = Trigger::Requests {
        exceeded: vec![
            Exceeded { resource: Resource::BatchCpu, requested: 12_000, allocatable: Some(10_000), release: 2_000 },
            Exceeded { resource: Resource::MidCpu, requested: 500, allocatable: None, release: 500 },
        ],
        settings: allocatable(110, 100),
    };
    insta::assert_snapshot!(requests, @"12000m of kubernetes.io/batch-cpu are requested, 120 % of what is offered, > 110 %; to release: 2000m; 500m of kubernetes.io/mid-cpu are requested, and none is offered; to release: 500m");
}

proptest! {
    #[test]
    fn no_number_makes_it_panic(amounts: [u64; 3], count in 1..u64::MAX, used: u128, capacity: u64, threshold: i64, lower: i64, offered: Option<i64>) {
        let sums = Sums { sums: amounts.map(|amount| u128::from(amount) * 3), count };
        let _ = starving(&sums, &satisfaction(lower, threshold, lower));
        let _ = starving_twice(&sums, &Sums::of(amounts), &satisfaction(lower, threshold, lower));
        for profile in [Profile::Koordinator, Profile::Responsive] {
            let _ = usage_release(used, count, capacity, &usage(threshold, lower), profile);
        }
        let _ = requests_release(amounts[0], offered, &allocatable(threshold, lower));
    }

    #[test]
    fn nobody_has_to_release_more_than_there_is(
        request in 1..1_000_000_u64, used: u32, limit: u32, capacity in 1..1_000_000_u64, percent in 0..=100_i64, below in 1..50_i64,
    ) {
        if let Some(release) = starving(&Sums::of([request, used.into(), limit.into()]), &satisfaction(percent.clamp(1, 60), percent.clamp(60, 99), 90)) {
            prop_assert!(release <= request);
        }
        let lower = (percent - below).max(0);
        let used = u64::from(used) % (capacity * 2);
        for profile in [Profile::Koordinator, Profile::Responsive] {
            if let Some(release) = usage_release(used.into(), 1, capacity, &usage(percent.max(1), lower), profile) {
                prop_assert!(release <= used);
                // After the release the node is at the lower percentage: exactly, or up to a percent above it.
                let left = u128::from(used - release) * 100;
                let most = u128::from(capacity) * u128::try_from(lower + 1).unwrap() + 200;
                prop_assert!(left <= most, "{left} of {most}");
            }
        }
        if let Some(release) = requests_release(request, Some(i64::try_from(capacity).unwrap()), &allocatable(percent.max(1), lower)) {
            prop_assert!(release <= request);
        }
    }
}
