use super::*;

fn thresholds(json: &str) -> Thresholds {
    serde_json::from_str(json).unwrap()
}

fn usage(threshold: i64, lower: i64, priority: Option<i32>) -> Checked {
    Checked::Usage(Usage { threshold, lower, priority, window_seconds: 1 })
}

#[test]
fn what_is_not_said_leaves_a_feature_off_or_has_a_default() {
    let satisfaction = Satisfaction { lower: 40, upper: 60, usage: 90, window_seconds: 1, limit: Limit::Real };
    let allocatable = |threshold, lower, priority| Checked::Allocatable(Allocatable { threshold, lower, priority });
    for (feature, json, checked) in [
        (Feature::BeCpu, "{}", None),
        (
            Feature::BeCpu,
            r#"{"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60}"#,
            Some(Checked::Satisfaction(satisfaction)),
        ),
        (
            Feature::BeCpu,
            r#"{"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 60,
                "cpuEvictBEUsageThresholdPercent": 0, "cpuEvictTimeWindowSeconds": 60, "cpuEvictPolicy": "evictByAllocatable"}"#,
            Some(Checked::Satisfaction(Satisfaction {
                lower: 60,
                upper: 60,
                usage: 0,
                window_seconds: 60,
                limit: Limit::Allocatable,
            })),
        ),
        (
            Feature::BeCpu,
            r#"{"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60, "cpuEvictPolicy": "evictByRealLimit"}"#,
            Some(Checked::Satisfaction(satisfaction)),
        ),
        (Feature::Cpu, "{}", None),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 80}"#, None),
        (Feature::Cpu, r#"{"evictEnabledPriorityThreshold": 5999}"#, None),
        (
            Feature::Cpu,
            r#"{"cpuEvictThresholdPercent": 80, "evictEnabledPriorityThreshold": 5999}"#,
            Some(usage(80, 78, Some(5999))),
        ),
        (
            Feature::Cpu,
            r#"{"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 60, "evictEnabledPriorityThreshold": -5, "cpuEvictTimeWindowSeconds": 30}"#,
            Some(Checked::Usage(Usage { threshold: 80, lower: 60, priority: Some(-5), window_seconds: 30 })),
        ),
        (Feature::BeMemory, "{}", Some(usage(70, 68, None))),
        (Feature::BeMemory, r#"{"memoryEvictThresholdPercent": null}"#, Some(usage(70, 68, None))),
        (Feature::BeMemory, r#"{"memoryEvictThresholdPercent": 0}"#, Some(usage(0, -2, None))),
        (Feature::BeMemory, r#"{"memoryEvictLowerPercent": 50}"#, Some(usage(70, 50, None))),
        (Feature::Memory, "{}", None),
        (Feature::Memory, r#"{"evictEnabledPriorityThreshold": 5999}"#, Some(usage(70, 68, Some(5999)))),
        (
            Feature::Memory,
            r#"{"evictEnabledPriorityThreshold": 0, "memoryEvictThresholdPercent": 90}"#,
            Some(usage(90, 88, Some(0))),
        ),
        (Feature::CpuAllocatable, "{}", None),
        (
            Feature::CpuAllocatable,
            r#"{"cpuAllocatableEvictThresholdPercent": 110, "cpuAllocatableEvictLowerPercent": 100}"#,
            None,
        ),
        (
            Feature::CpuAllocatable,
            r#"{"cpuAllocatableEvictThresholdPercent": 110, "cpuAllocatableEvictLowerPercent": 100, "allocatableEvictPriorityThreshold": 7999}"#,
            Some(allocatable(110, 100, 7999)),
        ),
        (
            Feature::MemoryAllocatable,
            r#"{"memoryAllocatableEvictThresholdPercent": 1, "memoryAllocatableEvictLowerPercent": 0, "allocatableEvictPriorityThreshold": 5999}"#,
            Some(allocatable(1, 0, 5999)),
        ),
    ] {
        assert_eq!(thresholds(json).check(feature), Ok(checked), "{feature} {json}");
    }
}

#[test]
fn a_field_that_cannot_be_is_named_with_the_way_out() {
    let satisfied = |rest: &str| {
        format!(r#"{{"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 60, {rest}}}"#)
    };
    for (feature, json, message) in [
        (Feature::BeCpu, r#"{"cpuEvictBESatisfactionLowerPercent": 40}"#.into(), "cpuEvictBESatisfactionUpperPercent is missing; give it beside cpuEvictBESatisfactionLowerPercent"),
        (Feature::BeCpu, r#"{"cpuEvictBESatisfactionUpperPercent": 40}"#.into(), "cpuEvictBESatisfactionLowerPercent is missing; give it beside cpuEvictBESatisfactionUpperPercent"),
        (Feature::BeCpu, r#"{"cpuEvictBESatisfactionLowerPercent": 0, "cpuEvictBESatisfactionUpperPercent": 60}"#.into(), "cpuEvictBESatisfactionLowerPercent is 0; give 1 to 60"),
        (Feature::BeCpu, r#"{"cpuEvictBESatisfactionLowerPercent": 61, "cpuEvictBESatisfactionUpperPercent": 80}"#.into(), "cpuEvictBESatisfactionLowerPercent is 61; give 1 to 60"),
        (Feature::BeCpu, r#"{"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 100}"#.into(), "cpuEvictBESatisfactionUpperPercent is 100; give 1 to 99"),
        (Feature::BeCpu, r#"{"cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 39}"#.into(), "cpuEvictBESatisfactionUpperPercent is 39; give at least cpuEvictBESatisfactionLowerPercent, which is 40"),
        (Feature::BeCpu, satisfied(r#""cpuEvictBEUsageThresholdPercent": 101"#), "cpuEvictBEUsageThresholdPercent is 101; give 0 to 100"),
        (Feature::BeCpu, satisfied(r#""cpuEvictTimeWindowSeconds": 0"#), "cpuEvictTimeWindowSeconds is 0; give 1 or more"),
        (Feature::BeCpu, satisfied(r#""cpuEvictTimeWindowSeconds": -9223372036854775808"#), "cpuEvictTimeWindowSeconds is -9223372036854775808; give 1 or more"),
        (Feature::BeCpu, satisfied(r#""cpuEvictPolicy": "byLimit""#), "cpuEvictPolicy is `byLimit`; write `evictByRealLimit` or `evictByAllocatable`"),
        (Feature::BeCpu, satisfied(r#""cpuEvictPolicy": 1"#), "cpuEvictPolicy is `1`; write `evictByRealLimit` or `evictByAllocatable`"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": -1}"#.into(), "cpuEvictThresholdPercent is -1; give 0 or more"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": "80"}"#.into(), r#"cpuEvictThresholdPercent is "80"; write a whole number, without quotes"#),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 80.5}"#.into(), "cpuEvictThresholdPercent is 80.5; write a whole number, without quotes"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 18446744073709551615}"#.into(), "cpuEvictThresholdPercent is 18446744073709551615; write a whole number, without quotes"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 1e300}"#.into(), "cpuEvictThresholdPercent is 1e+300; write a whole number, without quotes"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 80}"#.into(), "cpuEvictLowerPercent is 80; give less than cpuEvictThresholdPercent, which is 80"),
        (Feature::Cpu, r#"{"cpuEvictLowerPercent": 80}"#.into(), "cpuEvictThresholdPercent is missing; give it beside cpuEvictLowerPercent"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 80, "evictEnabledPriorityThreshold": 2147483648}"#.into(), "evictEnabledPriorityThreshold is 2147483648; give a priority, -2147483648 to 2147483647"),
        (Feature::BeMemory, r#"{"memoryEvictThresholdPercent": -1}"#.into(), "memoryEvictThresholdPercent is -1; give 0 or more"),
        (Feature::BeMemory, r#"{"memoryEvictLowerPercent": 70}"#.into(), "memoryEvictLowerPercent is 70; give less than memoryEvictThresholdPercent, which is 70"),
        (Feature::BeMemory, r#"{"memoryEvictLowerPercent": -5}"#.into(), "memoryEvictLowerPercent is -5; give 0 or more"),
        (Feature::Cpu, r#"{"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": -1}"#.into(), "cpuEvictLowerPercent is -1; give 0 or more"),
        (Feature::Memory, r#"{"evictEnabledPriorityThreshold": true}"#.into(), "evictEnabledPriorityThreshold is true; write a whole number, without quotes"),
        (Feature::CpuAllocatable, r#"{"cpuAllocatableEvictThresholdPercent": 110}"#.into(), "cpuAllocatableEvictLowerPercent is missing; give it beside cpuAllocatableEvictThresholdPercent"),
        (Feature::MemoryAllocatable, r#"{"memoryAllocatableEvictLowerPercent": 100}"#.into(), "memoryAllocatableEvictThresholdPercent is missing; give it beside memoryAllocatableEvictLowerPercent"),
        (Feature::MemoryAllocatable, r#"{"memoryAllocatableEvictThresholdPercent": 100, "memoryAllocatableEvictLowerPercent": -1}"#.into(), "memoryAllocatableEvictLowerPercent is -1; give 0 or more"),
        (Feature::MemoryAllocatable, r#"{"memoryAllocatableEvictThresholdPercent": 100, "memoryAllocatableEvictLowerPercent": 100}"#.into(), "memoryAllocatableEvictLowerPercent is 100; give less than memoryAllocatableEvictThresholdPercent, which is 100"),
        (Feature::CpuAllocatable, r#"{"cpuAllocatableEvictThresholdPercent": 110, "cpuAllocatableEvictLowerPercent": 100, "allocatableEvictPriorityThreshold": 8000}"#.into(), "allocatableEvictPriorityThreshold is 8000; give at most 7999: pods of koord-prod are never evicted for what is requested"),
    ] {
        assert_eq!(thresholds(&json).check(feature).unwrap_err().to_string(), message, "{json}");
    }
}

#[test]
fn a_wrong_field_switches_only_its_own_feature_off() {
    let json = r#"{"policy": {"features": {"BECPUEvict": true, "CPUEvict": true, "BEMemoryEvict": true, "MemoryEvict": true}}, "strategy": {
        "enable": true, "cpuEvictThresholdPercent": "80", "evictEnabledPriorityThreshold": 5999, "memoryEvictThresholdPercent": 90,
        "cpuEvictBESatisfactionLowerPercent": 99, "cpuEvictBESatisfactionUpperPercent": 60}}"#;
    let config: Config = serde_json::from_str(json).unwrap();
    let features: Vec<_> = config.features().map(|(feature, checked)| (feature.name(), checked.is_ok())).collect();
    assert_eq!(features, [("BECPUEvict", false), ("CPUEvict", false), ("BEMemoryEvict", true), ("MemoryEvict", true)]);
}

#[test]
fn all_features_are_off_unless_their_gate_and_the_strategy_are_on() {
    let on = r#"{"evictEnabledPriorityThreshold": 5999, "cpuEvictThresholdPercent": 80"#;
    for (gates, enable, count) in [
        ("{}", r#", "enable": true}"#, 0),
        (r#"{"CPUEvict": true}"#, "}", 0),
        (r#"{"CPUEvict": true}"#, r#", "enable": false}"#, 0),
        (r#"{"CPUEvict": true}"#, r#", "enable": true}"#, 1),
        (r#"{"CPUEvict": true, "MemoryEvict": true, "BECPUEvict": true}"#, r#", "enable": true}"#, 2),
    ] {
        let config: Config =
            serde_json::from_str(&format!(r#"{{"policy": {{"features": {gates}}}, "strategy": {on}{enable}}}"#))
                .unwrap();
        assert_eq!(config.features().count(), count, "{gates} {enable}");
    }
}

#[test]
fn settings_of_the_policy_are_checked() {
    for (json, message) in [
        (r#"{"maxGraceSeconds": 3601}"#, "maxGraceSeconds is 3601; give 0 to 3600"),
        (r#"{"memoryFullPercent": 0}"#, "memoryFullPercent is 0; give 1 to 100"),
        (r#"{"memoryMarginPercent": 101}"#, "memoryMarginPercent is 101; give 0 to 100"),
    ] {
        let config = Config { policy: serde_json::from_str(json).unwrap(), ..Config::default() };
        assert_eq!(config.check().unwrap_err().to_string(), message);
    }
    assert_eq!(Config::default().check(), Ok(()));
    for json in [
        r#"{"features": {"CPUEvicts": true}}"#,
        r#"{"speed": 3}"#,
        r#"{"profile": "fast"}"#,
        r#"{"memoryFullPercent": 1e400}"#,
        r#"{"maxGraceSeconds": -1}"#,
    ] {
        assert!(serde_json::from_str::<Settings>(json).is_err(), "{json}");
    }
    // Text that is not JSON is refused.
    for json in [r#"{"cpuEvictThresholdPercent": 1e400}"#, r#"{"cpuEvictThresholdPercent": NaN}"#] {
        assert!(serde_json::from_str::<Thresholds>(json).is_err(), "{json}");
    }
}

#[test]
fn names_of_fields_are_known_in_any_letter_case() {
    let said = |name: &str| if name == "enable" { "true".to_owned() } else { name.len().to_string() };
    let object = |spelled: fn(&str) -> String| {
        let fields = FIELDS.map(|name| format!("\"{}\": {}", spelled(name), said(name)));
        format!("{{{}}}", fields.join(","))
    };
    let exact: Thresholds = serde_json::from_str(&object(str::to_owned)).unwrap();
    for spelled in [str::to_ascii_uppercase, str::to_ascii_lowercase] {
        assert_eq!(Thresholds::read(&object(spelled)).unwrap(), exact);
    }
    // Each name in `FIELDS` sets a field.
    for name in FIELDS {
        let one = format!("{{\"{}\": {}}}", name.to_ascii_uppercase(), said(name));
        assert_ne!(Thresholds::read(&one).unwrap(), Thresholds::default(), "{name}");
    }
    let both = Thresholds::read(r#"{"CPUEVICTLOWERPERCENT": 1, "cpuEvictLowerPercent": 2}"#).unwrap();
    assert_eq!(both.cpu_lower, Field::Is(2));
    assert!(Thresholds::read("[]").is_err());
    assert_eq!(Thresholds::read(r#"{"Enable": 1}"#).unwrap().enable, Field::Wrong("1".to_owned()));
}
