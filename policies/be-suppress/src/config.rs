//! The policy's configuration and the node's strategy.

use std::fmt;

use cpu_sets::with_names;
use qosm_sdk::shown;
use serde::Deserialize;
use serde_json::Value;

/// 100 percent.
const ALL: i64 = 100;

/// The effective configuration: the policy's own settings, and the node's strategy with all layers merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: Settings,
    /// ConfigMap key `resource-threshold-config`.
    pub strategy: Thresholds,
}

/// How suppression follows the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Profile {
    /// By CPU use and by pressure; if a pool has too few CPUs, all of them are used.
    #[default]
    Responsive,
    /// By CPU use alone and in koordinator's steps, for migration and comparison.
    Koordinator,
}

/// What a strategy without `enable` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Defaults {
    /// Suppression is off until `enable` is `true`.
    #[default]
    Koordinator,
    /// Suppression is on, with the protocol's defaults, unless `enable` is `false`.
    Colocation,
}

/// The policy-level configuration. All fields but `defaults`, `profile` and `be_cpu_manager` apply to the profile `responsive` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// What a strategy without `enable` means.
    pub defaults: Defaults,
    /// How suppression follows the load.
    pub profile: Profile,
    /// Whether CPUs of batch pods are managed by NUMA node, so that nothing is suppressed: koordinator's feature gate `BECPUManager`.
    #[serde(rename = "beCPUManager")]
    pub be_cpu_manager: bool,
    /// Percent of the time in which tasks of a latency-sensitive pod wait for a CPU, from which the pod counts as short of CPU.
    pub ls_stall_percent: u32,
    /// Percent of the time below which the pod counts as calm.
    pub ls_calm_percent: u32,
    /// Seconds of calm after which batch pods get more CPU again.
    pub calm_seconds: u32,
    /// Percent by which the CPU of batch pods shrinks at a time while a latency-sensitive pod is short of CPU.
    pub cut_percent: u32,
    /// Percent of the node's CPU from which the use of batch pods counts as the cause.
    pub be_share_percent: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            defaults: Defaults::Koordinator,
            profile: Profile::Responsive,
            be_cpu_manager: false,
            ls_stall_percent: 10,
            ls_calm_percent: 5,
            calm_seconds: 5,
            cut_percent: 20,
            be_share_percent: 5,
        }
    }
}

/// How batch pods are suppressed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Mode {
    /// By the CPUs that they may run on.
    #[default]
    Cpuset,
    /// By a CFS quota of their tier.
    CfsQuota,
    /// An unknown word; [`Config::check`] refuses it.
    Unknown(String),
}

impl From<String> for Mode {
    fn from(word: String) -> Self {
        match word.as_str() {
            // When layers are merged, an empty word counts as unset.
            "cpuset" | "" => Self::Cpuset,
            "cfsQuota" => Self::CfsQuota,
            _ => Self::Unknown(word),
        }
    }
}

/// The fields of `resource-threshold-config` about CPU suppression; other policies read the others.
///
/// Source: koordinator `apis/slo/v1alpha1/nodeslo_types.go`, `pkg/util/sloconfig/nodeslo_config.go`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Thresholds {
    /// Whether suppression is on; if unset, [`Settings::defaults`] decides.
    pub enable: Option<bool>,
    /// Watermark of the node's CPU use in percent of capacity; 65 if unset.
    #[serde(rename = "cpuSuppressThresholdPercent")]
    pub threshold_percent: Option<i64>,
    /// CPU that batch pods always keep, in percent of capacity; if unset, only the minimum of the mode applies.
    #[serde(rename = "cpuSuppressMinPercent")]
    pub min_percent: Option<i64>,
    /// The mode; `cpuset` if unset.
    #[serde(rename = "cpuSuppressPolicy")]
    pub mode: Option<Mode>,
}

/// Names of the fields of [`Thresholds`].
const FIELDS: [&str; 4] = ["enable", "cpuSuppressThresholdPercent", "cpuSuppressMinPercent", "cpuSuppressPolicy"];

impl Thresholds {
    /// The watermark if the strategy sets none.
    pub const DEFAULT_THRESHOLD_PERCENT: i64 = 65;

    /// The watermark in percent of capacity.
    pub fn threshold(&self) -> i64 {
        self.threshold_percent.unwrap_or(Self::DEFAULT_THRESHOLD_PERCENT)
    }

    /// Reads a node's strategy, a JSON object. A field with an invalid value keeps its value from `last` and is returned as an error; the
    /// other fields are read.
    pub fn read(json: &str, last: &Self) -> (Self, Vec<ConfigError>) {
        let fields: serde_json::Map<String, Value> = match serde_json::from_str(json) {
            Ok(fields) => fields,
            Err(error) => {
                return (last.clone(), vec![ConfigError::of("", json, &format!("give a JSON object ({error})"))]);
            }
        };
        // Field names match in any letter case, as in koordinator's decoder.
        let fields = with_names(fields, &FIELDS);
        let mut faults = Vec::new();
        let percent = |field: &'static str, last: Option<i64>, faults: &mut Vec<ConfigError>| match fields.get(field) {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_i64().filter(|value| (0..=ALL).contains(value)) {
                Some(value) => Some(value),
                None => {
                    faults.push(ConfigError::of(field, value, "give a whole number, 0 to 100"));
                    last
                }
            },
        };
        let threshold_percent = percent("cpuSuppressThresholdPercent", last.threshold_percent, &mut faults);
        let min_percent = percent("cpuSuppressMinPercent", last.min_percent, &mut faults);
        let enable = match fields.get("enable") {
            None | Some(Value::Null) => None,
            Some(Value::Bool(enable)) => Some(*enable),
            Some(value) => {
                faults.push(ConfigError::of("enable", value, "write `true` or `false`"));
                last.enable
            }
        };
        let mode = match fields.get("cpuSuppressPolicy") {
            None | Some(Value::Null) => None,
            Some(value) => match value.as_str().map(|word| Mode::from(word.to_owned())) {
                Some(mode @ (Mode::Cpuset | Mode::CfsQuota)) => Some(mode),
                Some(Mode::Unknown(_)) | None => {
                    faults.push(ConfigError::of("cpuSuppressPolicy", value, "write `cpuset` or `cfsQuota`"));
                    last.mode.clone()
                }
            },
        };
        (Self { enable, threshold_percent, min_percent, mode }, faults)
    }

    /// Whether the mode is `cfsQuota`.
    pub fn wants_quota(&self) -> bool {
        self.mode == Some(Mode::CfsQuota)
    }
}

/// A configuration field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field as operators write it.
    pub field: &'static str,
    /// The invalid value.
    pub value: String,
    /// Which values are allowed.
    pub way_out: String,
}

impl ConfigError {
    fn of(field: &'static str, value: impl fmt::Display, way_out: &str) -> Self {
        Self { field, value: shown(value.to_string()), way_out: way_out.to_owned() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}; {}", self.field, self.value, self.way_out)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Whether suppression is on.
    pub fn is_enabled(&self) -> bool {
        self.strategy.enable.unwrap_or(self.policy.defaults == Defaults::Colocation)
    }

    /// Checks ranges, which serde does not.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of its range, with the range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let strategy = &self.strategy;
        for (field, value) in [
            ("cpuSuppressThresholdPercent", strategy.threshold_percent),
            ("cpuSuppressMinPercent", strategy.min_percent),
        ] {
            if let Some(value) = value.filter(|value| !(0..=ALL).contains(value)) {
                return Err(out_of_range(field, value, 0, ALL));
            }
        }
        if let Some(Mode::Unknown(word)) = &strategy.mode {
            let way_out = "write `cpuset` or `cfsQuota`".to_owned();
            return Err(ConfigError { field: "cpuSuppressPolicy", value: format!("`{word}`"), way_out });
        }
        self.policy.check()
    }
}

/// The effective configuration with its defaults, as logged for operators before anything is measured.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, strategy } = self;
        if !self.is_enabled() {
            let is = if strategy.enable.is_some() { "false" } else { "not true" };
            return write!(f, "off: `enable` of resource-threshold-config is {is}");
        }
        if policy.be_cpu_manager {
            return f.write_str("off: with beCPUManager the CPUs of batch pods are managed by NUMA node");
        }
        let mode = if strategy.wants_quota() { "cfsQuota" } else { "cpuset" };
        write!(f, "by {mode}: batch pods get what is left below {} % of the node's CPU", strategy.threshold())?;
        if let Some(min) = strategy.min_percent {
            write!(f, ", and {min} % in any case")?;
        }
        match policy.profile {
            Profile::Koordinator => f.write_str("; profile koordinator, by use alone")?,
            Profile::Responsive => write!(
                f,
                "; profile responsive, less by {} % while latency-sensitive pods wait for CPU in {} % of the time",
                policy.cut_percent, policy.ls_stall_percent
            )?,
        }
        f.write_str("; it decides on measurements: nothing is set before CPU use is measured")
    }
}

impl Settings {
    fn check(&self) -> Result<(), ConfigError> {
        for (field, value, min, max) in [
            ("lsStallPercent", self.ls_stall_percent, 1, 100),
            ("lsCalmPercent", self.ls_calm_percent, 0, self.ls_stall_percent),
            ("calmSeconds", self.calm_seconds, 0, 3_600),
            ("cutPercent", self.cut_percent, 1, 90),
            ("beSharePercent", self.be_share_percent, 0, 100),
        ] {
            if !(min..=max).contains(&value) {
                return Err(out_of_range(field, value.into(), min.into(), max.into()));
            }
        }
        Ok(())
    }
}

fn out_of_range(field: &'static str, value: i64, min: i64, max: i64) -> ConfigError {
    ConfigError { field, value: value.to_string(), way_out: format!("give {min} to {max}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy(json: &str) -> Config {
        Config { strategy: serde_json::from_str(json).unwrap(), ..Config::default() }
    }

    #[test]
    fn what_is_not_said_has_the_defaults_of_the_protocol() {
        for (json, enabled, threshold, min, quota) in [
            ("{}", false, 65, None, false),
            (
                r#"{"enable": null, "cpuSuppressThresholdPercent": null, "cpuSuppressPolicy": null}"#,
                false,
                65,
                None,
                false,
            ),
            (r#"{"enable": true}"#, true, 65, None, false),
            (r#"{"enable": false, "cpuSuppressPolicy": "cfsQuota"}"#, false, 65, None, true),
            (
                r#"{"enable": true, "cpuSuppressThresholdPercent": 0, "cpuSuppressMinPercent": 0}"#,
                true,
                0,
                Some(0),
                false,
            ),
            (r#"{"cpuSuppressThresholdPercent": 100, "cpuSuppressMinPercent": 100}"#, false, 100, Some(100), false),
            (r#"{"cpuSuppressPolicy": ""}"#, false, 65, None, false),
            (r#"{"cpuSuppressPolicy": "cpuset"}"#, false, 65, None, false),
            // Other policies use fields of the same key.
            (r#"{"memoryEvictThresholdPercent": "of no concern here"}"#, false, 65, None, false),
        ] {
            let config = strategy(json);
            assert_eq!(config.check(), Ok(()), "{json}");
            let strategy = &config.strategy;
            let said = (config.is_enabled(), strategy.threshold(), strategy.min_percent, strategy.wants_quota());
            assert_eq!(said, (enabled, threshold, min, quota), "{json}");
        }
    }

    #[test]
    fn with_the_defaults_of_colocation_a_strategy_counts_that_says_nothing_of_it() {
        for (defaults, json, expected) in [
            ("koordinator", "{}", false),
            ("koordinator", r#"{"enable": true}"#, true),
            ("colocation", "{}", true),
            ("colocation", r#"{"enable": null, "cpuSuppressPolicy": "cfsQuota"}"#, true),
            ("colocation", r#"{"enable": true}"#, true),
            ("colocation", r#"{"enable": false}"#, false),
        ] {
            let policy = serde_json::from_str(&format!(r#"{{"defaults": "{defaults}"}}"#)).unwrap();
            let config = Config { policy, ..strategy(json) };
            assert_eq!(config.is_enabled(), expected, "{defaults} {json}");
            assert_eq!(!config.to_string().starts_with("off: "), expected, "{config}");
        }
    }

    #[test]
    fn what_is_configured_is_told_with_its_defaults() {
        let decides = "; it decides on measurements: nothing is set before CPU use is measured";
        let responsive =
            "; profile responsive, less by 20 % while latency-sensitive pods wait for CPU in 10 % of the time";
        for (strategy, policy, expected) in [
            ("{}", "{}", "off: `enable` of resource-threshold-config is not true".to_owned()),
            (
                r#"{"enable": false}"#,
                r#"{"defaults": "colocation"}"#,
                "off: `enable` of resource-threshold-config is false".to_owned(),
            ),
            (
                "{}",
                r#"{"defaults": "colocation"}"#,
                format!("by cpuset: batch pods get what is left below 65 % of the node's CPU{responsive}{decides}"),
            ),
            (
                r#"{"enable": true}"#,
                "{}",
                format!("by cpuset: batch pods get what is left below 65 % of the node's CPU{responsive}{decides}"),
            ),
            (
                r#"{"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 50, "cpuSuppressMinPercent": 10}"#,
                r#"{"profile": "koordinator"}"#,
                format!(
                    "by cfsQuota: batch pods get what is left below 50 % of the node's CPU, and 10 % in any case; \
                     profile koordinator, by use alone{decides}"
                ),
            ),
            (
                r#"{"enable": true}"#,
                r#"{"beCPUManager": true}"#,
                "off: with beCPUManager the CPUs of batch pods are managed by NUMA node".to_owned(),
            ),
        ] {
            let config = Config {
                strategy: serde_json::from_str(strategy).unwrap(),
                policy: serde_json::from_str(policy).unwrap(),
            };
            assert_eq!(config.to_string(), expected);
        }
    }

    #[test]
    fn a_field_out_of_range_is_named_with_the_way_out() {
        for (json, error) in [
            (r#"{"cpuSuppressThresholdPercent": -1}"#, "cpuSuppressThresholdPercent is -1; give 0 to 100"),
            (r#"{"cpuSuppressThresholdPercent": 101}"#, "cpuSuppressThresholdPercent is 101; give 0 to 100"),
            (r#"{"cpuSuppressMinPercent": -5}"#, "cpuSuppressMinPercent is -5; give 0 to 100"),
            (
                r#"{"cpuSuppressMinPercent": 9223372036854775807}"#,
                "cpuSuppressMinPercent is 9223372036854775807; give 0 to 100",
            ),
            (r#"{"cpuSuppressPolicy": "quota"}"#, "cpuSuppressPolicy is `quota`; write `cpuset` or `cfsQuota`"),
            (r#"{"cpuSuppressPolicy": "CPUSet"}"#, "cpuSuppressPolicy is `CPUSet`; write `cpuset` or `cfsQuota`"),
        ] {
            assert_eq!(strategy(json).check().unwrap_err().to_string(), error, "{json}");
        }
        for (json, error) in [
            (r#"{"lsStallPercent": 0}"#, "lsStallPercent is 0; give 1 to 100"),
            (r#"{"lsStallPercent": 4}"#, "lsCalmPercent is 5; give 0 to 4"),
            (r#"{"calmSeconds": 3601}"#, "calmSeconds is 3601; give 0 to 3600"),
            (r#"{"cutPercent": 0}"#, "cutPercent is 0; give 1 to 90"),
            (r#"{"beSharePercent": 101}"#, "beSharePercent is 101; give 0 to 100"),
        ] {
            let config = Config { policy: serde_json::from_str(json).unwrap(), ..Config::default() };
            assert_eq!(config.check().unwrap_err().to_string(), error, "{json}");
        }
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn names_are_known_in_any_letter_case() {
        let json = r#"{"Enable": true, "CPUSUPPRESSTHRESHOLDPERCENT": 50, "cpusuppressminpercent": 7, "cpuSuppressPOLICY": "cfsQuota",
            "cpuSuppressMinPercent": 10}"#;
        let (strategy, faults) = Thresholds::read(json, &Thresholds::default());
        let said = (strategy.enable, strategy.threshold_percent, strategy.min_percent, strategy.wants_quota());
        assert_eq!((said, faults), ((Some(true), Some(50), Some(10), true), vec![]));
    }

    #[test]
    fn a_wrong_field_stays_as_it_was_and_the_others_go_on() {
        let last = Thresholds {
            enable: Some(true),
            threshold_percent: Some(70),
            min_percent: Some(10),
            mode: Some(Mode::CfsQuota),
        };
        let good = r#""enable": true, "cpuSuppressThresholdPercent": 50"#;
        for (json, read, fault) in [
            (format!("{{{good}}}"), (Some(true), Some(50), None, false), ""),
            (format!("{{{good}, \"memoryEvictThresholdPercent\": \"x\"}}"), (Some(true), Some(50), None, false), ""),
            (
                format!("{{{good}, \"cpuSuppressMinPercent\": 101}}"),
                (Some(true), Some(50), Some(10), false),
                "cpuSuppressMinPercent is 101; give a whole number, 0 to 100",
            ),
            (
                format!("{{{good}, \"cpuSuppressPolicy\": \"quota\"}}"),
                (Some(true), Some(50), None, true),
                "cpuSuppressPolicy is \"quota\"; write `cpuset` or `cfsQuota`",
            ),
            (
                r#"{"enable": "yes", "cpuSuppressThresholdPercent": 50}"#.into(),
                (Some(true), Some(50), None, false),
                "enable is \"yes\"; write `true` or `false`",
            ),
            (
                r#"{"enable": null, "cpuSuppressThresholdPercent": 65.5}"#.into(),
                (None, Some(70), None, false),
                "cpuSuppressThresholdPercent is 65.5; give a whole number, 0 to 100",
            ),
            (
                r#"{"cpuSuppressThresholdPercent": -1}"#.into(),
                (None, Some(70), None, false),
                "cpuSuppressThresholdPercent is -1; give a whole number, 0 to 100",
            ),
        ] {
            let (strategy, faults) = Thresholds::read(&json, &last);
            let said = (strategy.enable, strategy.threshold_percent, strategy.min_percent, strategy.wants_quota());
            let fault = if fault.is_empty() { vec![] } else { vec![fault.to_owned()] };
            assert_eq!((said, faults.iter().map(ToString::to_string).collect()), (read, fault), "{json}");
        }
        // Text that is not a JSON object changes nothing.
        for json in ["", "[]", r#"{"cpuSuppressThresholdPercent": 1e400}"#] {
            let (strategy, faults) = Thresholds::read(json, &last);
            assert_eq!((strategy, faults.len()), (last.clone(), 1), "{json}");
        }
    }

    #[test]
    fn what_is_no_whole_number_is_no_configuration() {
        for json in [
            r#"{"cpuSuppressThresholdPercent": 1e400}"#,
            r#"{"cpuSuppressThresholdPercent": 65.5}"#,
            r#"{"cpuSuppressThresholdPercent": "65"}"#,
            r#"{"cpuSuppressThresholdPercent": NaN}"#,
            r#"{"cpuSuppressThresholdPercent": 9223372036854775808}"#,
            r#"{"enable": "true"}"#,
            r#"{"cpuSuppressPolicy": 1}"#,
        ] {
            assert!(serde_json::from_str::<Thresholds>(json).is_err(), "{json}");
        }
        for json in [r#"{"lsStallPercent": -1}"#, r#"{"profile": "fast"}"#, r#"{"cutpercent": 3}"#] {
            assert!(serde_json::from_str::<Settings>(json).is_err(), "{json}");
        }
        let profile: Settings = serde_json::from_str(r#"{"profile": "koordinator", "beCPUManager": true}"#).unwrap();
        assert_eq!((profile.profile, profile.be_cpu_manager), (Profile::Koordinator, true));
    }
}
