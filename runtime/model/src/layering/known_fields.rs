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

/// The misspelt fields of a key's text: the path of each, and the name that was probably meant.
pub(super) fn misspelt(key: &str, fields: &[(String, Document)]) -> Vec<(String, &'static str)> {
    let known: &[&'static str] = match key {
        "resource-threshold-config" => &RESOURCE_THRESHOLD,
        "system-config" => &SYSTEM,
        "colocation-config" => &COLOCATION,
        _ => return Vec::new(),
    };
    let is_meant = |name: &str, known: &str| {
        name.replace(['-', '_'], "").eq_ignore_ascii_case(known) || spelling::is_slip(name, known)
    };
    let mut found = Vec::new();
    let mut look = |path: &str, fields: &[(String, Document)]| {
        for (name, _) in fields.iter().filter(|(name, _)| !known.iter().any(|known| known.eq_ignore_ascii_case(name))) {
            if let Some(meant) = known.iter().find(|known| is_meant(name, known)) {
                found.push((format!("{path}{name}"), *meant));
            }
        }
    };
    if key == "colocation-config" {
        look("", fields);
    }
    for (name, value) in fields {
        match value {
            Document::Fields(strategy) if name.eq_ignore_ascii_case("clusterStrategy") => {
                look("clusterStrategy.", strategy)
            }
            Document::Items(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    if let Document::Fields(strategy) = entry {
                        look(&format!("{name}[{index}]."), strategy);
                    }
                }
            }
            _ => {}
        }
    }
    found
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
