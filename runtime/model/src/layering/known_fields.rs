//! Names of fields in Koordinator's keys whose texts go to policies unread, to find misspelt ones. Other names are no error: Koordinator
//! may have added them.

use super::document::Document;
use crate::spelling;

/// Source: Koordinator `apis/slo/v1alpha1/nodeslo_types.go`, `ResourceThresholdStrategy`.
const RESOURCE_THRESHOLD: [&str; 19] = [
    "enable",
    "cpuSuppressThresholdPercent",
    "cpuSuppressMinPercent",
    "cpuSuppressPolicy",
    "cpuEvictBESatisfactionLowerPercent",
    "cpuEvictBESatisfactionUpperPercent",
    "cpuEvictBEUsageThresholdPercent",
    "cpuEvictTimeWindowSeconds",
    "cpuEvictPolicy",
    "cpuEvictThresholdPercent",
    "cpuEvictLowerPercent",
    "memoryEvictThresholdPercent",
    "memoryEvictLowerPercent",
    "evictEnabledPriorityThreshold",
    "cpuAllocatableEvictThresholdPercent",
    "cpuAllocatableEvictLowerPercent",
    "memoryAllocatableEvictThresholdPercent",
    "memoryAllocatableEvictLowerPercent",
    "allocatableEvictPriorityThreshold",
];
/// Source: Koordinator `apis/slo/v1alpha1/nodeslo_types.go`, `SystemStrategy`.
const SYSTEM: [&str; 7] = [
    "minFreeKbytesFactor",
    "watermarkScaleFactor",
    "memcgReapBackGround",
    "schedGroupIdentityEnabled",
    "schedIdleSaverWmark",
    "pageCacheLimitEnabled",
    "schedFeatures",
];
/// Source: Koordinator `apis/configuration/slo_controller_config.go`, `ColocationStrategy`.
const COLOCATION: [&str; 21] = [
    "enable",
    "nodeConfigs",
    "metricAggregateDurationSeconds",
    "metricReportIntervalSeconds",
    "metricAggregatePolicy",
    "metricMemoryCollectPolicy",
    "cpuReclaimThresholdPercent",
    "cpuCalculatePolicy",
    "memoryReclaimThresholdPercent",
    "memoryCalculatePolicy",
    "batchCPUThresholdPercent",
    "batchMemoryThresholdPercent",
    "midCPUThresholdPercent",
    "midMemoryThresholdPercent",
    "midUnallocatedPercent",
    "midReclaimMode",
    "midStaticCPUReservedPercent",
    "midStaticMemoryReservedPercent",
    "degradeTimeMinutes",
    "updateTimeThresholdSeconds",
    "resourceDiffThreshold",
];

/// The field of a strategy with classes that is no class.
const POLICIES: &str = "policies";
/// Fields of a strategy of `resource-qos-config`. Source: Koordinator `apis/slo/v1alpha1/nodeslo_types.go`, `ResourceQOSStrategy`.
pub(super) const CLASSED: [&str; 6] = [POLICIES, "lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot"];
/// Koordinator's and ack-koordinator's fields of a class, one for each feature.
pub(super) const FEATURES: [&str; 6] =
    ["cpuQOS", "memoryQOS", "blkioQOS", "resctrlQOS", "networkQOS", "memoryLocality"];

type Fields = [(String, Document)];

/// The misspelt fields of a key's text: the path of each, and the name that was probably meant.
pub(super) fn misspelt(key: &str, fields: &Fields) -> Vec<(String, &'static str)> {
    let known: &[&'static str] = match key {
        "resource-qos-config" => return strategies(fields).iter().flat_map(|(path, of)| classes(path, of)).collect(),
        "resource-threshold-config" => &RESOURCE_THRESHOLD,
        "system-config" => &SYSTEM,
        "colocation-config" => &COLOCATION,
        _ => return Vec::new(),
    };
    let is_meant = |name: &str, known: &str| {
        name.replace(['-', '_'], "").eq_ignore_ascii_case(known) || spelling::is_slip(name, known)
    };
    let mut found = Vec::new();
    let mut look = |path: &str, fields: &Fields| {
        for (name, _) in fields.iter().filter(|(name, _)| !known.iter().any(|known| known.eq_ignore_ascii_case(name))) {
            if let Some(meant) = known.iter().find(|known| is_meant(name, known)) {
                found.push((format!("{path}{name}"), *meant));
            }
        }
    };
    if key == "colocation-config" {
        look("", fields);
    }
    strategies(fields).iter().for_each(|(path, of)| look(path, of));
    found
}

/// The strategies of a key's text, each with the path of its fields.
fn strategies(fields: &Fields) -> Vec<(String, &Fields)> {
    let mut found = Vec::new();
    for (name, value) in fields {
        match value {
            Document::Fields(strategy) if name.eq_ignore_ascii_case("clusterStrategy") => {
                found.push(("clusterStrategy.".to_owned(), strategy.as_slice()));
            }
            Document::Items(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    if let Document::Fields(strategy) = entry {
                        found.push((format!("{name}[{index}]."), strategy.as_slice()));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The misspelt classes of a strategy, and the misspelt features of its classes.
fn classes(path: &str, strategy: &Fields) -> Vec<(String, &'static str)> {
    let at = |path: &str, found: Vec<(&str, &'static str)>| -> Vec<(String, &'static str)> {
        found.into_iter().map(|(name, meant)| (format!("{path}{name}"), meant)).collect()
    };
    let mut found = at(path, nearly(strategy, &CLASSED));
    for (class, value) in strategy {
        let is_class = !is_same(POLICIES, class) && CLASSED.iter().any(|known| is_same(known, class));
        if let (Document::Fields(features), true) = (value, is_class) {
            found.extend(at(&format!("{path}{class}."), nearly(features, &FEATURES)));
        }
    }
    found
}

/// Fields whose names are close to a known one. Other unknown fields may be those of a newer version; `null` counts as absent.
pub(super) fn nearly<'f>(fields: &'f Fields, known: &[&'static str]) -> Vec<(&'f str, &'static str)> {
    let others =
        fields.iter().filter(|(name, value)| !value.is_null() && !known.iter().any(|known| is_same(known, name)));
    others.filter_map(|(name, _)| Some((name.as_str(), spelling::nearest(name, known.iter().copied())?))).collect()
}

fn is_same(known: &str, name: &str) -> bool {
    known.eq_ignore_ascii_case(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_that_a_policy_reads_is_known() {
        for source in [
            include_str!("../../../../policies/be-suppress/src/config.rs"),
            include_str!("../../../../policies/eviction/src/config.rs"),
        ] {
            let (_, fields) = source.split_once("const FIELDS: ").unwrap();
            let (fields, _) = fields.split_once("];").unwrap();
            let names: Vec<_> = fields.split('"').skip(1).step_by(2).collect();
            assert!(names.len() > 3, "{names:?}");
            assert!(names.iter().all(|name| RESOURCE_THRESHOLD.contains(name)), "{names:?}");
        }
    }

    #[test]
    fn classes_and_features_are_known() {
        let text = r#"{"clusterStrategy": {"policies": {"cpuQOSs": 1}, "beClas": {"x": 1}, "beClass": {"blkioQSO": {}, "ofAnotherVersion": 1, "cpuQos": {}}},
                       "nodeStrategies": [{"name": "n", "nodeSelector": {}, "LSClass": {"memoryQSO": {}, "resctrlQSO": null}}]}"#;
        let Ok(Document::Fields(fields)) = Document::parse(text) else { panic!("{text} is no object") };
        let expected = [
            ("clusterStrategy.beClas", "beClass"),
            ("clusterStrategy.beClass.blkioQSO", "blkioQOS"),
            ("nodeStrategies[0].LSClass.memoryQSO", "memoryQOS"),
        ];
        let expected = expected.map(|(path, meant)| (path.to_owned(), meant));
        assert_eq!(misspelt("resource-qos-config", &fields), expected);
    }

    #[test]
    fn short_names_and_separators_can_be_misspelt_too() {
        for (written, meant) in [
            ("enabled", Some("enable")),
            ("enabel", Some("enable")),
            ("cpu_suppress_policy", Some("cpuSuppressPolicy")),
            ("Enable", None),
            ("name", None),
            ("nodeSelector", None),
        ] {
            let text = format!(r#"{{"clusterStrategy": {{"{written}": 1}}}}"#);
            let Ok(Document::Fields(fields)) = Document::parse(&text) else { panic!("{text} is no object") };
            let expected = meant.map(|meant| (format!("clusterStrategy.{written}"), meant));
            assert_eq!(misspelt("resource-threshold-config", &fields), Vec::from_iter(expected), "{written}");
        }
    }
}
