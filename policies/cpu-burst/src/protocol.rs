//! The configuration of operators and pods, and the policy's description.

use qosm_sdk::{Description, Protocol, Trigger};
use serde::Deserialize;

/// Describes the policy.
pub(crate) fn description() -> Description {
    Description::new(
        "cpu-burst",
        env!("CARGO_PKG_VERSION"),
        "Lets containers save up unused CPU time and raises the CFS quota of throttled ones while the node has room.",
    )
    .interval_millis(1_000)
    .trigger(Trigger::Throttling)
    .config_schema(include_str!("protocol/config.schema.json"))
    .protocol(
        Protocol::new()
            .annotation("koordinator.sh/cpuBurst")
            .annotation("alibabacloud.com/cpuBurst")
            .config_map_key("cpu-burst-config")
            .namespace_list_key("cpu-burst")
            .defaults(include_str!("protocol/defaults.json"))
            .schema(include_str!("protocol/pod.schema.json"))
            .node_only_field("sharePoolThresholdPercent"),
    )
}

/// Which of the two mechanisms a pod uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Mode {
    /// Both.
    #[serde(rename = "auto")]
    Auto,
    /// CFS burst alone.
    #[serde(rename = "cpuBurstOnly")]
    Burst,
    /// The quota loop alone.
    #[serde(rename = "cfsQuotaBurstOnly")]
    Quota,
    /// Neither. Also the meaning of an unknown word, should one get past the schema.
    #[default]
    #[serde(rename = "none", other)]
    None,
}

impl Mode {
    /// Whether CFS burst is on.
    pub(crate) fn has_burst(self) -> bool {
        matches!(self, Self::Burst | Self::Auto)
    }

    /// Whether the quota loop is on.
    pub(crate) fn has_loop(self) -> bool {
        matches!(self, Self::Quota | Self::Auto)
    }
}

/// A pod's effective configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    pub(crate) policy: Mode,
    /// Size of the CFS burst, in percent of the CPU limit.
    pub(crate) cpu_burst_percent: i64,
    /// Ceiling of the quota loop, in percent of the base quota.
    pub(crate) cfs_quota_burst_percent: i64,
    /// Length of the limiter's bucket in seconds; negative = no limiter.
    pub(crate) cfs_quota_burst_period_seconds: i64,
    /// Use of the share pool from which the node is overloaded, in percent.
    pub(crate) share_pool_threshold_percent: u32,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self {
            policy: Mode::None,
            cpu_burst_percent: 1_000,
            cfs_quota_burst_percent: 300,
            cfs_quota_burst_period_seconds: -1,
            share_pool_threshold_percent: 50,
        }
    }
}

/// How the quota loop steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Profile {
    /// By need: raises as large as the shortage, decay when calm; on overload, the containers that need least give up quota.
    #[default]
    Responsive,
    /// By a fifth, as Koordinator does, for migration and comparison.
    Koordinator,
}

/// The policy-level configuration. All fields but `profile` apply to the profile `responsive` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    pub(crate) profile: Profile,
    /// Smallest raise, in percent of the quota in force.
    pub(crate) min_raise_percent: u32,
    /// Raise of a container that has just used up its quota, in percent of that quota; 0 = no raise before the next step.
    pub(crate) alarm_raise_percent: u32,
    /// Percent by which a quota is lowered at a time.
    pub(crate) lower_percent: u32,
    /// Distance of a raised quota above the use, in percent of the use.
    pub(crate) headroom_percent: u32,
    /// Steps without throttling after which a quota is lowered.
    pub(crate) calm_windows: u32,
    /// Maximum of `calm_windows` for a container that was throttled again each time its quota was lowered.
    pub(crate) calm_windows_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::Responsive,
            min_raise_percent: 20,
            alarm_raise_percent: 50,
            lower_percent: 20,
            headroom_percent: 25,
            calm_windows: 5,
            calm_windows_max: 80,
        }
    }
}

impl Config {
    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// Returns a message that names the field and its range.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (field, value, min, max) in [
            ("minRaisePercent", self.min_raise_percent, 1, 900),
            ("alarmRaisePercent", self.alarm_raise_percent, 0, 900),
            ("lowerPercent", self.lower_percent, 1, 100),
            ("headroomPercent", self.headroom_percent, 0, 1_000),
            ("calmWindows", self.calm_windows, 1, 3_600),
            ("calmWindowsMax", self.calm_windows_max, self.calm_windows, 86_400),
        ] {
            if value < min || value > max {
                return Err(format!("field `{field}` of the policy's configuration is {value}: give {min} to {max}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{Policy, Session, mock::MockHost};
    use serde_json::Value;

    use super::*;
    use crate::CpuBurst;

    fn json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_is_described_is_what_is_meant_by_default() {
        let description = CpuBurst::describe();
        let protocol = description.facts().protocol.clone().unwrap();
        let defaults: PodConfig = serde_json::from_str(&protocol.defaults).unwrap();
        assert_eq!(defaults, PodConfig::default());

        let fields = json(&protocol.schema)["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let defaults = json(&protocol.defaults).as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(fields, defaults);
        assert!(protocol.node_only_fields.iter().all(|field| fields.contains(field)));

        let schema = json(description.facts().config_schema.as_deref().unwrap());
        let defaults: serde_json::Map<String, Value> = schema["properties"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(field, schema)| (field.clone(), schema["default"].clone()))
            .collect();
        assert_eq!(serde_json::from_value::<Config>(Value::Object(defaults)).unwrap(), Config::default());
    }

    #[test]
    fn a_word_that_is_no_policy_means_none() {
        for (word, mode) in [
            ("none", Mode::None),
            ("auto", Mode::Auto),
            ("cpuBurstOnly", Mode::Burst),
            ("cfsQuotaBurstOnly", Mode::Quota),
            ("Auto", Mode::None),
            ("", Mode::None),
        ] {
            let config: PodConfig = serde_json::from_value(serde_json::json!({ "policy": word })).unwrap();
            assert_eq!(config.policy, mode, "{word:?}");
        }
    }

    #[test]
    fn a_tunable_out_of_range_is_refused_by_name() {
        for (config, field) in [
            (r#"{"lowerPercent": 0}"#, "lowerPercent"),
            (r#"{"calmWindows": 90}"#, "calmWindowsMax"),
            (r#"{"minRaisePercent": 901}"#, "minRaisePercent"),
            (r#"{"profile": "fast"}"#, "profile"),
            (r#"{"speed": 3}"#, "speed"),
        ] {
            let error = Session::<CpuBurst>::default().configure(&mut MockHost::default(), config).unwrap_err();
            assert!(error.contains(&format!("field `{field}`")), "{config}: {error}");
        }
    }
}
