//! The policy's configuration and the node's strategy. An invalid setting switches off its own feature and no other.

mod checked;
mod shown;

use std::fmt;

use qosm_sdk::shown;
use serde::{Deserialize, Deserializer};

pub use self::checked::{Allocatable, Checked, Limit, Satisfaction, Usage};
use crate::feature::Feature;

/// The effective configuration: the policy's own settings, and the node's strategy with all layers merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: Settings,
    /// ConfigMap key `resource-threshold-config`.
    pub strategy: Thresholds,
}

/// How amounts are computed, and whether pressure counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Profile {
    /// Exactly, and by pressure in addition to use.
    #[default]
    Responsive,
    /// In whole percent and by use alone, as koordinator does, for migration and comparison.
    Koordinator,
}

/// What a strategy without `enable` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Defaults {
    /// No pod is evicted until `enable` is `true`.
    #[default]
    Koordinator,
    /// Eviction is on, with the protocol's defaults, unless `enable` is `false`. A feature stays off if its thresholds are unset and have
    /// no defaults.
    Colocation,
}

/// The policy-level configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// What a strategy without `enable` means.
    pub defaults: Defaults,
    /// How amounts are computed, and whether pressure counts.
    pub profile: Profile,
    /// Which features are on.
    pub features: Gates,
    /// Whether pods of DaemonSets may be evicted, although their controller recreates them at once.
    pub daemon_sets: bool,
    /// Upper bound of a pod's own grace period, in seconds.
    pub max_grace_seconds: u32,
    /// Percent of the time in which all tasks of the node wait for memory, from which memory is short. Profile `responsive`.
    pub memory_full_percent: u32,
    /// How far below the threshold pressure starts to count, in percent of capacity. Profile `responsive`.
    pub memory_margin_percent: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            defaults: Defaults::Koordinator,
            profile: Profile::Responsive,
            features: Gates::default(),
            daemon_sets: false,
            max_grace_seconds: 30,
            memory_full_percent: 10,
            memory_margin_percent: 10,
        }
    }
}

/// The feature gates; all are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// [`Feature::BeCpu`].
    #[serde(rename = "BECPUEvict")]
    pub be_cpu: bool,
    /// [`Feature::CpuAllocatable`].
    #[serde(rename = "CPUAllocatableEvict")]
    pub cpu_allocatable: bool,
    /// [`Feature::Cpu`].
    #[serde(rename = "CPUEvict")]
    pub cpu: bool,
    /// [`Feature::BeMemory`].
    #[serde(rename = "BEMemoryEvict")]
    pub be_memory: bool,
    /// [`Feature::MemoryAllocatable`].
    #[serde(rename = "MemoryAllocatableEvict")]
    pub memory_allocatable: bool,
    /// [`Feature::Memory`].
    #[serde(rename = "MemoryEvict")]
    pub memory: bool,
}

impl Gates {
    /// All features on.
    pub const ALL: Self = Self {
        be_cpu: true,
        cpu_allocatable: true,
        cpu: true,
        be_memory: true,
        memory_allocatable: true,
        memory: true,
    };

    /// Whether a feature is on.
    pub fn has(self, feature: Feature) -> bool {
        match feature {
            Feature::BeCpu => self.be_cpu,
            Feature::CpuAllocatable => self.cpu_allocatable,
            Feature::Cpu => self.cpu,
            Feature::BeMemory => self.be_memory,
            Feature::MemoryAllocatable => self.memory_allocatable,
            Feature::Memory => self.memory,
        }
    }
}

/// A field of the strategy. A value of the wrong type is kept as text, so that only the feature that needs it is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Field<T> {
    /// Not set.
    #[default]
    Unset,
    /// Set.
    Is(T),
    /// Set, but of the wrong type; its JSON text.
    Wrong(String),
}

impl<'de> Deserialize<'de> for Field<i64> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Null => Self::Unset,
            value => value.as_i64().map_or_else(|| Self::Wrong(shown(value.to_string())), Self::Is),
        })
    }
}

impl<'de> Deserialize<'de> for Field<bool> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Null => Self::Unset,
            serde_json::Value::Bool(is_on) => Self::Is(is_on),
            value => Self::Wrong(shown(value.to_string())),
        })
    }
}

impl<'de> Deserialize<'de> for Field<String> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Null => Self::Unset,
            // When layers are merged, an empty word counts as unset.
            serde_json::Value::String(word) if word.is_empty() => Self::Unset,
            serde_json::Value::String(word) => Self::Is(word),
            value => Self::Wrong(shown(value.to_string())),
        })
    }
}

/// The fields of `resource-threshold-config` about eviction; other policies read the others.
///
/// Source: koordinator `apis/slo/v1alpha1/nodeslo_types.go`, `pkg/util/sloconfig/nodeslo_config.go`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the fields are those of the protocol")]
pub struct Thresholds {
    pub enable: Field<bool>,
    #[serde(rename = "cpuEvictBESatisfactionLowerPercent")]
    pub satisfaction_lower: Field<i64>,
    #[serde(rename = "cpuEvictBESatisfactionUpperPercent")]
    pub satisfaction_upper: Field<i64>,
    #[serde(rename = "cpuEvictBEUsageThresholdPercent")]
    pub be_usage: Field<i64>,
    #[serde(rename = "cpuEvictTimeWindowSeconds")]
    pub window_seconds: Field<i64>,
    #[serde(rename = "cpuEvictPolicy")]
    pub cpu_policy: Field<String>,
    #[serde(rename = "cpuEvictThresholdPercent")]
    pub cpu: Field<i64>,
    #[serde(rename = "cpuEvictLowerPercent")]
    pub cpu_lower: Field<i64>,
    #[serde(rename = "memoryEvictThresholdPercent")]
    pub memory: Field<i64>,
    #[serde(rename = "memoryEvictLowerPercent")]
    pub memory_lower: Field<i64>,
    #[serde(rename = "evictEnabledPriorityThreshold")]
    pub priority: Field<i64>,
    #[serde(rename = "cpuAllocatableEvictThresholdPercent")]
    pub cpu_allocatable: Field<i64>,
    #[serde(rename = "cpuAllocatableEvictLowerPercent")]
    pub cpu_allocatable_lower: Field<i64>,
    #[serde(rename = "memoryAllocatableEvictThresholdPercent")]
    pub memory_allocatable: Field<i64>,
    #[serde(rename = "memoryAllocatableEvictLowerPercent")]
    pub memory_allocatable_lower: Field<i64>,
    #[serde(rename = "allocatableEvictPriorityThreshold")]
    pub allocatable_priority: Field<i64>,
}

/// Names of the fields of [`Thresholds`].
const FIELDS: [&str; 16] = [
    "enable",
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

impl Thresholds {
    /// Reads a node's strategy, a JSON object. Field names match in any letter case, as in koordinator's decoder. Of several spellings of a
    /// name, which the host leaves in no strategy, the exact one takes precedence.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a JSON object.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(json)?;
        for name in FIELDS.into_iter().filter(|name| !fields.contains_key(*name)).collect::<Vec<_>>() {
            let other = fields.keys().rfind(|key| key.eq_ignore_ascii_case(name)).cloned();
            if let Some(value) = other.and_then(|key| fields.remove(&key)) {
                fields.insert(name.to_owned(), value);
            }
        }
        serde_json::from_value(fields.into())
    }
}

/// An invalid field, which switches its feature off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the field as operators write it.
    pub field: &'static str,
    /// What is wrong with it.
    pub fault: String,
    /// Which values are allowed.
    pub way_out: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}; {}", self.field, self.fault, self.way_out)
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Checks the policy-level settings. [`Thresholds::check`] checks the strategy, feature by feature.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of its range, with the range.
    pub fn check(&self) -> Result<(), ConfigError> {
        for (field, value, min, max) in [
            ("maxGraceSeconds", self.policy.max_grace_seconds, 0, 3_600),
            ("memoryFullPercent", self.policy.memory_full_percent, 1, 100),
            ("memoryMarginPercent", self.policy.memory_margin_percent, 0, 100),
        ] {
            if !(min..=max).contains(&value) {
                return Err(error(field, format!("is {value}"), format!("give {min} to {max}")));
            }
        }
        Ok(())
    }

    /// Whether eviction is on. Where `enable` has the wrong type it is off, since that may have been meant.
    pub fn is_enabled(&self) -> bool {
        match self.strategy.enable {
            Field::Is(is_on) => is_on,
            Field::Unset => self.policy.defaults == Defaults::Colocation,
            Field::Wrong(_) => false,
        }
    }

    /// The settings of each feature that is on and configured. Features whose gate is off are not checked.
    pub fn features(&self) -> impl Iterator<Item = (Feature, Result<Checked, ConfigError>)> + '_ {
        let is_enabled = self.is_enabled();
        Feature::EACH
            .into_iter()
            .filter(move |feature| is_enabled && self.policy.features.has(*feature))
            .filter_map(|feature| Some((feature, self.strategy.check(feature).transpose()?)))
    }
}

fn error(field: &'static str, fault: String, way_out: String) -> ConfigError {
    ConfigError { field, fault, way_out }
}

#[cfg(test)]
mod tests;
