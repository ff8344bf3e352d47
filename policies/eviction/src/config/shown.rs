//! The effective configuration in words, as logged for operators before anything is measured.

use super::{Allocatable, Checked, Config, Field, Limit, Satisfaction, Thresholds, Usage};
use crate::feature::{Feature, Group};

impl Config {
    /// One line for each feature that is switched on, with its effective settings. Invalid settings are reported by the evaluation instead.
    pub fn shown(&self) -> Vec<String> {
        if !self.is_enabled() {
            let is = match &self.strategy.enable {
                Field::Is(_) => "false",
                Field::Unset => "not true",
                Field::Wrong(value) => &format!("{value}, and not true or false"),
            };
            return vec![format!("off: `enable` of resource-threshold-config is {is}")];
        }
        let gates = self.policy.features;
        if gates == super::Gates::default() {
            return vec!["off: `features` of the policy's configuration switches none on".to_owned()];
        }
        Feature::EACH
            .into_iter()
            .filter(|feature| gates.has(*feature))
            .filter_map(|feature| match self.strategy.check(feature) {
                Ok(Some(checked)) => Some(format!("{feature}: {}", settings(feature, &checked))),
                Ok(None) => {
                    let missing = self.strategy.missing(feature);
                    Some(format!("{feature}: off, since resource-threshold-config does not set {missing}"))
                }
                Err(_) => None,
            })
            .collect()
    }
}

impl Thresholds {
    /// What an unconfigured feature lacks.
    fn missing(&self, feature: Feature) -> &'static str {
        let (has_threshold, priority) = match feature {
            Feature::BeCpu | Feature::BeMemory => (false, ""),
            Feature::Cpu => (self.cpu != Field::Unset, "`evictEnabledPriorityThreshold`"),
            // Its threshold has a default.
            Feature::Memory => (true, "`evictEnabledPriorityThreshold`"),
            Feature::CpuAllocatable => (self.cpu_allocatable != Field::Unset, "`allocatableEvictPriorityThreshold`"),
            Feature::MemoryAllocatable => {
                (self.memory_allocatable != Field::Unset, "`allocatableEvictPriorityThreshold`")
            }
        };
        if has_threshold { priority } else { "its thresholds" }
    }
}

fn settings(feature: Feature, checked: &Checked) -> String {
    match checked {
        Checked::Satisfaction(Satisfaction { lower, upper, usage, window_seconds, limit }) => {
            let limit = match limit {
                Limit::Real => "what is in force",
                Limit::Allocatable => "what the node offers",
            };
            format!(
                "batch pods leave where they get at most {lower} % of the CPU that they request, by {limit}, and use {usage} % of it, until \
                 it is {upper} %; it decides on measurements of {window_seconds} s"
            )
        }
        Checked::Usage(Usage { threshold, lower, priority, window_seconds: _ }) => {
            let resource = match feature.group() {
                Group::Cpu => "CPU",
                Group::Memory => "memory",
            };
            let who = match priority {
                Some(priority) => format!("pods up to priority {priority} that allow it"),
                None => "batch pods".to_owned(),
            };
            format!(
                "{who} leave from {threshold} % of the node's {resource} on, down to {lower} %; it decides on measurements"
            )
        }
        Checked::Allocatable(Allocatable { threshold, lower, priority }) => format!(
            "batch and mid pods up to priority {priority} that allow it leave above {threshold} % of what the node offers, down to \
             {lower} %; it decides on requests"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_tells_its_settings_with_their_defaults() {
        for (strategy, features, expected) in [
            ("{}", r#"{"BEMemoryEvict": true}"#, vec!["off: `enable` of resource-threshold-config is not true"]),
            (
                r#"{"enable": 1}"#,
                r#"{"BEMemoryEvict": true}"#,
                vec!["off: `enable` of resource-threshold-config is 1, and not true or false"],
            ),
            (r#"{"enable": true}"#, "{}", vec!["off: `features` of the policy's configuration switches none on"]),
            (
                r#"{"enable": true}"#,
                r#"{"BEMemoryEvict": true, "CPUEvict": true}"#,
                vec![
                    "CPUEvict: off, since resource-threshold-config does not set its thresholds",
                    "BEMemoryEvict: batch pods leave from 70 % of the node's memory on, down to 68 %; it decides on measurements",
                ],
            ),
            (
                r#"{"enable": true, "cpuEvictThresholdPercent": 80, "memoryAllocatableEvictThresholdPercent": 110,
                    "memoryAllocatableEvictLowerPercent": 100}"#,
                r#"{"BECPUEvict": true, "CPUAllocatableEvict": true, "CPUEvict": true, "MemoryAllocatableEvict": true, "MemoryEvict": true}"#,
                vec![
                    "BECPUEvict: off, since resource-threshold-config does not set its thresholds",
                    "CPUAllocatableEvict: off, since resource-threshold-config does not set its thresholds",
                    "CPUEvict: off, since resource-threshold-config does not set `evictEnabledPriorityThreshold`",
                    "MemoryAllocatableEvict: off, since resource-threshold-config does not set `allocatableEvictPriorityThreshold`",
                    "MemoryEvict: off, since resource-threshold-config does not set `evictEnabledPriorityThreshold`",
                ],
            ),
            (
                r#"{"enable": true, "cpuEvictBESatisfactionLowerPercent": 30, "cpuEvictBESatisfactionUpperPercent": 50,
                    "evictEnabledPriorityThreshold": 5999, "cpuEvictThresholdPercent": 80, "memoryEvictThresholdPercent": "x",
                    "allocatableEvictPriorityThreshold": 7999, "memoryAllocatableEvictThresholdPercent": 110,
                    "memoryAllocatableEvictLowerPercent": 100}"#,
                r#"{"BECPUEvict": true, "CPUEvict": true, "BEMemoryEvict": true, "MemoryAllocatableEvict": true}"#,
                vec![
                    "BECPUEvict: batch pods leave where they get at most 30 % of the CPU that they request, by what is in force, and use \
                     90 % of it, until it is 50 %; it decides on measurements of 1 s",
                    "CPUEvict: pods up to priority 5999 that allow it leave from 80 % of the node's CPU on, down to 78 %; it decides on \
                     measurements",
                    "MemoryAllocatableEvict: batch and mid pods up to priority 7999 that allow it leave above 110 % of what the node \
                     offers, down to 100 %; it decides on requests",
                ],
            ),
        ] {
            let json = format!(r#"{{"policy": {{"features": {features}}}, "strategy": {strategy}}}"#);
            let config: Config = serde_json::from_str(&json).unwrap();
            assert_eq!(config.shown(), expected, "{json}");
        }
    }
}
