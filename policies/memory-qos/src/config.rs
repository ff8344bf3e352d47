//! The configuration of operators and pods.

use serde::Deserialize;

use crate::formula::HighFormula;

/// The effective configuration: the policy's own, and each class of the node's strategy with all layers merged.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: PolicyConfig,
    /// The effective configuration of each QoS class; the switches of the tiers come from here.
    pub classes: Classes,
}

/// The policy-level configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// The formula for `memory.high`.
    pub high_formula: HighFormula,
    /// Upper bound of the sum of all pods' `memory.min`, in percent of the node's allocatable memory; 0 = no bound. Above it, every
    /// `memory.min` shrinks by the same factor, since a node with everything protected has nothing to reclaim.
    pub min_total_percent: u32,
    /// Minimum distance of `memory.min` below a limit, in percent of the limit; 0 = none. If `memory.min` equals the limit, a container's
    /// own page cache cannot be reclaimed, and the container is killed instead.
    pub min_below_limit_percent: u32,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { high_formula: HighFormula::Current, min_total_percent: 100, min_below_limit_percent: 0 }
    }
}

/// Upper bound of `minTotalPercent`.
pub(crate) const MAX_MIN_TOTAL_PERCENT: u32 = 1000;

/// The effective configuration of each enabled class; all fields of other classes are unset.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Classes {
    /// LSE and LSR; also for the kubepods cgroup.
    pub lsr_class: MemoryQos,
    /// LS; also for the burstable tier.
    pub ls_class: MemoryQos,
    /// BE; also for the besteffort tier.
    pub be_class: MemoryQos,
    /// SYSTEM.
    pub system_class: MemoryQos,
}

/// The memory QoS fields of a pod or a class. Unset fields are left to the kubelet and other policies; set fields, including 0, are held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryQos {
    /// The preset that the values came from; `none` switches memory QoS off for the pod.
    pub policy: Option<String>,
    /// `memory.min` in percent of the request.
    pub min_limit_percent: Option<i64>,
    /// `memory.low` in percent of the request.
    pub low_limit_percent: Option<i64>,
    /// Position of `memory.high` between request and limit, in percent; 0 = unlimited.
    pub throttling_percent: Option<i64>,
    /// `memory.wmark_ratio`.
    pub wmark_ratio: Option<i64>,
    /// `memory.wmark_scale_factor`, in hundredths of a percent despite the name.
    pub wmark_scale_permill: Option<i64>,
    /// `memory.wmark_min_adj`.
    pub wmark_min_adj: Option<i64>,
    /// `memory.use_priority_oom`: 0 or 1.
    pub priority_enable: Option<i64>,
    /// `memory.priority`.
    pub priority: Option<i64>,
    /// `memory.oom.group`: 0 or 1.
    pub oom_kill_group: Option<i64>,
    /// `memory.pagecache_limit.enable`; overrides what follows from the size.
    pub page_cache_enable: Option<bool>,
    /// `memory.pagecache_limit.size` in percent of the pod's limit.
    pub page_cache_limit_percent: Option<i64>,
    /// `memory.pagecache_limit.size` in bytes; takes precedence over the percentage.
    pub page_cache_limit_size: Option<i64>,
    /// `memory.pagecache_limit.sync`.
    pub page_cache_reclaim_sync: Option<bool>,
}

/// A whole-number field and its range.
pub(crate) struct Number {
    /// Name of the field in JSON.
    pub(crate) field: &'static str,
    /// The smallest value.
    pub(crate) least: i64,
    /// The largest value.
    pub(crate) most: i64,
    /// Description of the field in the schema.
    pub(crate) meaning: &'static str,
    read: fn(&MemoryQos) -> Option<i64>,
}

/// The whole-number fields, with the ranges of Koordinator's webhook and CRD.
pub(crate) const NUMBERS: [Number; 11] = [
    Number {
        field: "minLimitPercent",
        least: 0,
        most: 100,
        meaning: "memory.min, in percent of the request",
        read: |qos| qos.min_limit_percent,
    },
    Number {
        field: "lowLimitPercent",
        least: 0,
        most: 100,
        meaning: "memory.low, in percent of the request",
        read: |qos| qos.low_limit_percent,
    },
    Number {
        field: "throttlingPercent",
        least: 0,
        most: 100,
        meaning: "position of memory.high between request and limit, in percent; 0 = unlimited",
        read: |qos| qos.throttling_percent,
    },
    Number {
        field: "wmarkRatio",
        least: 0,
        most: 100,
        meaning: "where background reclaim starts, in percent of the limit; 0 = off",
        read: |qos| qos.wmark_ratio,
    },
    Number {
        field: "wmarkScalePermill",
        least: 1,
        most: 1000,
        meaning: "how far background reclaim goes, in hundredths of a percent of the limit",
        read: |qos| qos.wmark_scale_permill,
    },
    Number {
        field: "wmarkMinAdj",
        least: -25,
        most: 50,
        meaning: "how far the node's watermark shifts for this group, in percent",
        read: |qos| qos.wmark_min_adj,
    },
    Number {
        field: "priorityEnable",
        least: 0,
        most: 1,
        meaning: "whether the OOM killer heeds priorities among the children",
        read: |qos| qos.priority_enable,
    },
    Number {
        field: "priority",
        least: 0,
        most: 12,
        meaning: "OOM priority; the OOM killer chooses groups of higher priority later",
        read: |qos| qos.priority,
    },
    Number {
        field: "oomKillGroup",
        least: 0,
        most: 1,
        meaning: "whether the OOM killer ends all processes of the group or one",
        read: |qos| qos.oom_kill_group,
    },
    Number {
        field: "pageCacheLimitPercent",
        least: 0,
        most: 100,
        meaning: "page cache limit, in percent of the pod's limit",
        read: |qos| qos.page_cache_limit_percent,
    },
    Number {
        field: "pageCacheLimitSize",
        least: i64::MIN,
        most: i64::MAX,
        meaning: "page cache limit in bytes; 0 or less = off; overrides the percentage",
        read: |qos| qos.page_cache_limit_size,
    },
];

/// A value outside the range of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfRange {
    /// The field.
    pub(crate) field: &'static str,
    least: i64,
    most: i64,
    value: i64,
}

impl std::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { field, least, most, value } = self;
        write!(f, "{field} is {value}, which is not within {least} to {most}; set it within that range or leave it out")
    }
}

impl MemoryQos {
    /// Whether any value is to be held.
    pub(crate) fn asks(&self) -> bool {
        self.policy.as_deref() != Some("none") && *self != Self { policy: self.policy.clone(), ..Self::default() }
    }

    /// Checks all whole numbers against their ranges.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of range.
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        let wrong = NUMBERS.iter().find_map(|&Number { field, least, most, read, .. }| {
            let value = read(self)?;
            (!(least..=most).contains(&value)).then_some(OutOfRange { field, least, most, value })
        });
        wrong.map_or(Ok(()), Err)
    }
}

impl Config {
    /// Checks what serde does not.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the field, and the class if it belongs to one.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (field, value, most) in [
            ("minTotalPercent", self.policy.min_total_percent, MAX_MIN_TOTAL_PERCENT),
            ("minBelowLimitPercent", self.policy.min_below_limit_percent, 100),
        ] {
            if value > most {
                return Err(format!("{field} is {value}, which is not within 0 to {most}"));
            }
        }
        for (name, class) in [
            ("lsrClass", &self.classes.lsr_class),
            ("lsClass", &self.classes.ls_class),
            ("beClass", &self.classes.be_class),
            ("systemClass", &self.classes.system_class),
        ] {
            class.check().map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qos(json: &str) -> MemoryQos {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn nothing_is_asked_by_nothing_or_by_none() {
        for json in ["{}", r#"{"policy":"none"}"#, r#"{"policy":"none","minLimitPercent":100}"#, r#"{"policy":"auto"}"#]
        {
            assert!(!qos(json).asks(), "{json}");
        }
        for json in [r#"{"minLimitPercent":0}"#, r#"{"policy":"auto","wmarkRatio":95}"#, r#"{"pageCacheEnable":false}"#]
        {
            assert!(qos(json).asks(), "{json}");
        }
    }

    #[test]
    fn unset_null_and_zero_differ_as_the_protocol_says() {
        let unset = qos(r#"{"minLimitPercent":null,"enable":true}"#);
        assert_eq!(unset, MemoryQos::default());
        assert_eq!(qos(r#"{"minLimitPercent":0}"#).min_limit_percent, Some(0));
    }

    #[test]
    fn a_wrong_type_is_an_error() {
        for json in
            [r#"{"wmarkRatio":"95"}"#, r#"{"wmarkRatio":95.5}"#, r#"{"wmarkRatio":95.0}"#, r#"{"pageCacheEnable":1}"#]
        {
            assert!(serde_json::from_str::<MemoryQos>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn the_field_that_is_out_of_range_is_named() {
        for (json, field) in [
            (r#"{"minLimitPercent":101}"#, "minLimitPercent"),
            (r#"{"lowLimitPercent":-1}"#, "lowLimitPercent"),
            (r#"{"throttlingPercent":101}"#, "throttlingPercent"),
            (r#"{"wmarkRatio":101}"#, "wmarkRatio"),
            (r#"{"wmarkScalePermill":0}"#, "wmarkScalePermill"),
            (r#"{"wmarkScalePermill":1001}"#, "wmarkScalePermill"),
            (r#"{"wmarkMinAdj":-26}"#, "wmarkMinAdj"),
            (r#"{"wmarkMinAdj":51}"#, "wmarkMinAdj"),
            (r#"{"priorityEnable":2}"#, "priorityEnable"),
            (r#"{"priority":13}"#, "priority"),
            (r#"{"oomKillGroup":2}"#, "oomKillGroup"),
            (r#"{"pageCacheLimitPercent":101}"#, "pageCacheLimitPercent"),
        ] {
            assert_eq!(qos(json).check().unwrap_err().field, field, "{json}");
        }
        for json in [
            r#"{"minLimitPercent":100,"wmarkScalePermill":1000,"wmarkMinAdj":-25,"priority":12}"#,
            r#"{"pageCacheLimitSize":-1}"#,
            r#"{"pageCacheLimitSize":9223372036854775807}"#,
        ] {
            assert_eq!(qos(json).check(), Ok(()), "{json}");
        }
    }

    #[test]
    fn the_policy_configuration_has_defaults_and_bounds() {
        let config: Config = serde_json::from_str("{}").unwrap();
        assert_eq!(config.policy, PolicyConfig::default());
        assert_eq!(config.check(), Ok(()));
        let config: Config = serde_json::from_str(
            r#"{"policy":{"highFormula":"legacy","minTotalPercent":0},"classes":{"beClass":{"priority":13}}}"#,
        )
        .unwrap();
        assert_eq!(config.policy.high_formula, HighFormula::Legacy);
        assert_eq!(
            config.check().unwrap_err(),
            "beClass: priority is 13, which is not within 0 to 12; set it within that range or leave it out"
        );
        for bad in [r#"{"policy":{"highFormla":"legacy"}}"#, r#"{"policy":{"highFormula":"old"}}"#] {
            assert!(serde_json::from_str::<Config>(bad).is_err(), "{bad}");
        }
        let config: Config = serde_json::from_str(r#"{"policy":{"minBelowLimitPercent":101}}"#).unwrap();
        assert_eq!(config.check().unwrap_err(), "minBelowLimitPercent is 101, which is not within 0 to 100");
    }
}
