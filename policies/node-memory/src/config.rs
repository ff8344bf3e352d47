//! The policy's configuration.

use std::fmt;

use qosm_sdk::shown;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Key of the cluster ConfigMap.
pub const CONFIG_MAP_KEY: &str = "system-config";

/// The policy-level configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// Settings that apply where the cluster's key does not set them.
    #[serde(flatten)]
    pub settings: Settings,
    /// When batch pods wait for free memory earlier than others.
    pub watermark_rating: Rating,
}

/// Kernel settings of the node; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    /// `vm.min_free_kbytes`, in hundredths of a percent of memory.
    pub min_free_kbytes_factor: Option<u64>,
    /// `vm.watermark_scale_factor`.
    pub watermark_scale_factor: Option<u64>,
    /// `memcg_reaper/reap_background`.
    #[serde(rename = "memcgReapBackGround")]
    pub memcg_reap_background: Option<u64>,
    /// `kernel.sched_group_identity_enabled`.
    pub sched_group_identity_enabled: Option<u64>,
    /// `kernel.sched_idle_saver_wmark`, in nanoseconds.
    pub sched_idle_saver_wmark: Option<u64>,
    /// `pagecache_limit/enabled`.
    pub page_cache_limit_enabled: Option<u64>,
}

/// When batch pods wait for free memory, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rating {
    /// Whether batch pods wait.
    pub enable: bool,
    /// Position of the batch mark between the kernel's watermarks `min` and `low`, in percent.
    pub be_percent: u64,
    /// Memory pressure, in percent of the time, that counts as reaching the mark while free memory is below `low`.
    pub stall_percent: u64,
    /// Minimum that batch pods keep, in percent of what they used.
    pub least_percent: u64,
}

impl Default for Rating {
    fn default() -> Self {
        Self { enable: false, be_percent: 50, stall_percent: 10, least_percent: 50 }
    }
}

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field as operators write it; empty for the whole strategy.
    pub field: &'static str,
    /// The invalid value.
    pub value: String,
    /// Which values are allowed.
    pub way_out: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; {}", self.field, self.value, self.way_out)
    }
}

impl std::error::Error for ConfigError {}

/// A field and its range.
struct Field {
    name: &'static str,
    least: u64,
    most: u64,
    of: fn(&mut Settings) -> &mut Option<u64>,
}

/// Koordinator: pkg/koordlet/util/system/system_resource.go. The range of `minFreeKbytesFactor` applies to the result, see
/// [`crate::settings`].
const FIELDS: [Field; 6] = [
    Field {
        name: "minFreeKbytesFactor",
        least: 0,
        most: u64::MAX,
        of: |settings| &mut settings.min_free_kbytes_factor,
    },
    Field { name: "watermarkScaleFactor", least: 10, most: 400, of: |settings| &mut settings.watermark_scale_factor },
    Field { name: "memcgReapBackGround", least: 0, most: 1, of: |settings| &mut settings.memcg_reap_background },
    Field {
        name: "schedGroupIdentityEnabled",
        least: 0,
        most: 1,
        of: |settings| &mut settings.sched_group_identity_enabled,
    },
    Field {
        name: "schedIdleSaverWmark",
        least: 0,
        most: i64::MAX.unsigned_abs(),
        of: |settings| &mut settings.sched_idle_saver_wmark,
    },
    Field { name: "pageCacheLimitEnabled", least: 0, most: 1, of: |settings| &mut settings.page_cache_limit_enabled },
];

/// A field of the key that is not supported.
pub(crate) const SCHED_FEATURES: &str = "schedFeatures";

impl Settings {
    /// Reads a node's strategy, a JSON object. A field with an invalid value keeps its value from `last` and is returned as an error; the
    /// other fields are read.
    pub fn read(json: &str, last: &Self) -> (Self, Vec<ConfigError>) {
        let fields: Map<String, Value> = match serde_json::from_str(json) {
            Ok(fields) => fields,
            Err(error) => {
                let way_out = format!("give a JSON object ({error})");
                return (*last, vec![ConfigError { field: "", value: shown(json), way_out }]);
            }
        };
        // Field names match in any letter case, and the last one counts, as in koordinator's decoder.
        let said = |name: &str| {
            let last = fields.iter().rfind(|(field, _)| field.eq_ignore_ascii_case(name));
            last.map(|(_, value)| value).filter(|value| !value.is_null())
        };
        let (mut settings, mut faults) = (Self::default(), Vec::new());
        for Field { name, least, most, of } in &FIELDS {
            let Some(value) = said(name) else { continue };
            *of(&mut settings) = match value.as_u64().filter(|number| (*least..=*most).contains(number)) {
                Some(number) => Some(number),
                None => {
                    let way_out = match *most {
                        u64::MAX => "give a whole number, 0 or more".to_owned(),
                        most => format!("give a whole number, {least} to {most}"),
                    };
                    faults.push(ConfigError { field: name, value: shown(value.to_string()), way_out });
                    *of(&mut last.clone())
                }
            };
        }
        if let Some(value) = said(SCHED_FEATURES).filter(|value| **value != json!({})) {
            let way_out =
                "these lie in debugfs, which an agent does not reach: set them when the node boots".to_owned();
            faults.push(ConfigError { field: SCHED_FEATURES, value: shown(value.to_string()), way_out });
        }
        (settings, faults)
    }

    /// These settings; `others` applies where they are unset.
    #[must_use]
    pub fn over(mut self, mut others: Self) -> Self {
        for Field { of, .. } in &FIELDS {
            let beneath = *of(&mut others);
            let own = of(&mut self);
            *own = own.or(beneath);
        }
        self
    }

    /// Whether no setting is configured.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(free: Option<u64>, scale: Option<u64>) -> Settings {
        Settings { min_free_kbytes_factor: free, watermark_scale_factor: scale, ..Settings::default() }
    }

    #[test]
    fn what_cannot_be_stays_as_it_was_and_is_named_and_the_others_go_on() {
        let last = settings(Some(100), Some(99));
        for (json, read, fault) in [
            ("{}", Settings::default(), ""),
            (r#"{"minFreeKbytesFactor": 88, "watermarkScaleFactor": 150}"#, settings(Some(88), Some(150)), ""),
            (r#"{"MINFREEKBYTESFACTOR": 88, "watermarkscalefactor": 10}"#, settings(Some(88), Some(10)), ""),
            (r#"{"minFreeKbytesFactor": null}"#, Settings::default(), ""),
            (r#"{"totalNetworkBandwidth": "10G"}"#, Settings::default(), ""),
            (
                r#"{"minFreeKbytesFactor": 88, "watermarkScaleFactor": 500}"#,
                settings(Some(88), Some(99)),
                "watermarkScaleFactor is 500; give a whole number, 10 to 400",
            ),
            (
                r#"{"watermarkScaleFactor": 5}"#,
                settings(None, Some(99)),
                "watermarkScaleFactor is 5; give a whole number, 10 to 400",
            ),
            (
                r#"{"minFreeKbytesFactor": "1 %"}"#,
                settings(Some(100), None),
                "minFreeKbytesFactor is \"1 %\"; give a whole number, 0 or more",
            ),
            (r#"{"minFreeKbytesFactor": 1e400}"#, last, " is {\"minFreeKbytesFactor\": 1e400}; give a JSON object"),
            (
                r#"{"schedFeatures": {"ID_LOAD_BALANCE": true}}"#,
                Settings::default(),
                "schedFeatures is {\"ID_LOAD_BALANCE\":true}; these lie in debugfs",
            ),
            (r#"{"schedFeatures": {}}"#, Settings::default(), ""),
        ] {
            let (found, faults) = Settings::read(json, &last);
            assert_eq!(found, read, "{json}");
            let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
            assert_eq!(faults.len(), usize::from(!fault.is_empty()), "{json}: {faults:?}");
            assert!(faults.iter().all(|found| found.starts_with(fault)), "{json}: {faults:?}");
        }
    }

    #[test]
    fn the_cluster_counts_before_the_policys_own() {
        let own = settings(Some(50), Some(20));
        assert_eq!(settings(Some(100), None).over(own), settings(Some(100), Some(20)));
        assert!(Settings::default().is_empty() && !own.is_empty());
    }

    #[test]
    fn the_schema_has_the_fields_and_their_ranges() {
        let schema: Value = serde_json::from_str(include_str!("config.schema.json")).unwrap();
        for Field { name, least, most, .. } in FIELDS.iter().filter(|field| field.name != "minFreeKbytesFactor") {
            let field = &schema["properties"][name];
            assert_eq!(field["minimum"].as_u64(), Some(*least), "{name}");
            let bound = (*most != i64::MAX.unsigned_abs()).then_some(*most);
            assert_eq!(field["maximum"].as_u64(), bound, "{name}");
        }
        let rating = &schema["properties"]["watermarkRating"]["properties"];
        let defaults: Map<String, Value> =
            rating.as_object().unwrap().iter().map(|(name, field)| (name.clone(), field["default"].clone())).collect();
        assert_eq!(serde_json::from_value::<Rating>(Value::Object(defaults)).unwrap(), Rating::default());
    }
}
