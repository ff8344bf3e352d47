//! The policy's configuration.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::json::{self, Fault};
use crate::layers::Layers;
use crate::strategy::Strategy;

/// The effective configuration: the policy's own, and two keys of the cluster's ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: PolicyConfig,
    /// `colocation-config`: the node's strategy, or the cluster's strategy with `nodeConfigs`.
    pub colocation: Map<String, Value>,
    /// The node's strategy of `resource-threshold-config`: whether BE pods are suppressed by CFS quota.
    pub threshold: Map<String, Value>,
}

/// Where the resources of a BE pod's containers are read first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceSource {
    /// The pod's specification; the annotation if the specification has no batch resources.
    #[default]
    Spec,
    /// The annotation `node.koordinator.sh/extended-resource-spec`; the specification if the annotation has no batch resources.
    Annotation,
}

/// What a ConfigMap without `enable` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Defaults {
    /// Nothing is published until `enable` is `true`.
    #[default]
    Koordinator,
    /// Publishing is on, with the protocol's defaults, unless `enable` is `false`. The same applies to suppression
    /// (`resource-threshold-config`).
    Colocation,
}

impl Defaults {
    /// Whether a strategy without `enable` is on.
    fn is_on(self) -> bool {
        self == Self::Colocation
    }

    /// The strategy that all layers are applied to.
    pub fn strategy(self) -> Strategy {
        Strategy { enable: self.is_on(), ..Strategy::default() }
    }
}

/// The policy-level configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// What a ConfigMap without `enable` means.
    pub defaults: Defaults,
    /// Whether amounts are published.
    pub publish: bool,
    /// Whether BE pods get their CPU weight, CFS quota and memory limit.
    pub enforce: bool,
    /// Names under which batch CPU is published. If there are several, each amount shrinks by what pods request under the other names.
    #[serde(rename = "batchCPUNames")]
    pub batch_cpu_names: Vec<String>,
    /// Names under which batch memory is published.
    pub batch_memory_names: Vec<String>,
    /// Names under which mid CPU is published.
    #[serde(rename = "midCPUNames")]
    pub mid_cpu_names: Vec<String>,
    /// Names under which mid memory is published.
    pub mid_memory_names: Vec<String>,
    /// Where the resources of a BE pod's containers are read first.
    pub resource_source: ResourceSource,
    /// Percent of the time in which tasks wait for memory, from which recently used page cache counts as used, whatever
    /// `metricMemoryCollectPolicy` says. It counts until the share has fallen to half of this value; 0 = never.
    pub hot_cache_pressure_percent: u32,
    /// Time in seconds for which a pod has to be measured before it is expected to leave resources to mid pods.
    pub cold_start_seconds: u64,
    /// Percent that is added to peaks.
    pub peak_margin_percent: u32,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            defaults: Defaults::Koordinator,
            publish: true,
            enforce: true,
            batch_cpu_names: one("kubernetes.io/batch-cpu"),
            batch_memory_names: one("kubernetes.io/batch-memory"),
            mid_cpu_names: one("kubernetes.io/mid-cpu"),
            mid_memory_names: one("kubernetes.io/mid-memory"),
            resource_source: ResourceSource::Spec,
            hot_cache_pressure_percent: 10,
            cold_start_seconds: 86_400,
            peak_margin_percent: 10,
        }
    }
}

/// Maximum number of names of a resource.
const MAX_NAMES: usize = 4;

/// A validated configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The policy-level configuration.
    pub policy: PolicyConfig,
    /// The strategies by node.
    pub layers: Layers,
    /// Whether suppression sets the quota of the whole besteffort tier, so that pods get none.
    pub quota_is_the_tiers: bool,
}

impl Config {
    /// Checks what serde does not.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the field and how to fix it.
    pub fn check(&self) -> Result<Settings, String> {
        self.policy.check()?;
        let layers = Layers::read(&self.colocation, &self.policy.defaults.strategy())
            .map_err(|fault| fault.within("colocation-config").to_string())?;
        let suppression = Suppression::read(&self.threshold, Suppression::default());
        let quota_is_the_tiers = suppression.sets_quota(self.policy.defaults);
        Ok(Settings { policy: self.policy.clone(), layers, quota_is_the_tiers })
    }
}

impl PolicyConfig {
    fn check(&self) -> Result<(), String> {
        for (field, value, most) in [
            ("hotCachePressurePercent", u64::from(self.hot_cache_pressure_percent), 100),
            ("coldStartSeconds", self.cold_start_seconds, 30 * 86_400),
            ("peakMarginPercent", u64::from(self.peak_margin_percent), 1000),
        ] {
            if value > most {
                return Err(format!("field `{field}` of the policy's configuration is {value}: give 0 to {most}"));
            }
        }
        let mut seen: Vec<&String> = Vec::new();
        for (field, names, end) in [
            ("batchCPUNames", &self.batch_cpu_names, "-cpu"),
            ("batchMemoryNames", &self.batch_memory_names, "-memory"),
            ("midCPUNames", &self.mid_cpu_names, "-cpu"),
            ("midMemoryNames", &self.mid_memory_names, "-memory"),
        ] {
            let wrong = |what: &str| Err(format!("field `{field}` of the policy's configuration {what}"));
            if names.is_empty() || names.len() > MAX_NAMES {
                return wrong(&format!("has {} names: give 1 to {MAX_NAMES}", names.len()));
            }
            for name in names {
                if let Err(fault) = check_name(name, end) {
                    return wrong(&format!(
                        "has `{name}`, which {}: give a name such as example.com/batch{end}",
                        fault.message
                    ));
                }
                if seen.contains(&name) {
                    return wrong(&format!("has `{name}`, which is there before: give each name once"));
                }
                seen.push(name);
            }
        }
        Ok(())
    }
}

/// Checks that a node can publish a resource of this name. By the name's end the controller finds the upper bound of the amount.
fn check_name(name: &str, end: &str) -> Result<(), Fault> {
    let is_end = |byte: u8| byte.is_ascii_alphanumeric();
    let is_part = |part: &str, most: usize, more: &[u8]| {
        let bytes = part.as_bytes();
        let is_inner = |byte: &u8| is_end(*byte) || more.contains(byte);
        bytes.len() <= most
            && bytes.iter().all(is_inner)
            && bytes.first().copied().is_some_and(is_end)
            && bytes.last().copied().is_some_and(is_end)
    };
    let Some((domain, own)) = name.split_once('/') else { return Err(Fault::new("", "has no domain")) };
    if is_part(domain, 253, b"-.") && is_part(own, 63, b"-_.") && !domain.bytes().any(|byte| byte.is_ascii_uppercase())
    {
        if own.ends_with(end) { Ok(()) } else { Err(Fault::new("", format!("does not end in {end}"))) }
    } else {
        Err(Fault::new("", "is no qualified name"))
    }
}

/// The fields of `resource-threshold-config` that decide whether suppression sets the besteffort tier's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suppression {
    enable: Option<bool>,
    wants_quota: bool,
}

impl Suppression {
    /// Reads the node's strategy. A field with an invalid value keeps its value from `last`, as in the policy `be-suppress`, which reports
    /// it.
    #[must_use]
    pub fn read(threshold: &Map<String, Value>, last: Self) -> Self {
        let enable = json::switch(threshold, "enable").unwrap_or(last.enable);
        let wants_quota = match json::field(threshold, "cpuSuppressPolicy").map(Value::as_str) {
            None | Some(Some("" | "cpuset")) => false,
            Some(Some("cfsQuota")) => true,
            Some(_) => last.wants_quota,
        };
        Self { enable, wants_quota }
    }

    /// Whether suppression sets the quota of the besteffort tier.
    pub fn sets_quota(self, defaults: Defaults) -> bool {
        self.wants_quota && self.enable.unwrap_or(defaults.is_on())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str) -> Result<Settings, String> {
        serde_json::from_str::<Config>(json).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(check("{}"), Ok(Settings::default()));
        assert!(Settings::default().policy.publish && Settings::default().policy.enforce);
    }

    #[test]
    fn with_the_defaults_of_colocation_a_strategy_counts_that_says_nothing_of_it() {
        for (defaults, colocation, expected) in [
            ("koordinator", "{}", false),
            ("koordinator", r#"{"enable":true}"#, true),
            ("colocation", "{}", true),
            ("colocation", r#"{"enable":null,"cpuReclaimThresholdPercent":80}"#, true),
            ("colocation", r#"{"enable":false}"#, false),
        ] {
            let settings =
                check(&format!(r#"{{"policy":{{"defaults":"{defaults}"}},"colocation":{colocation}}}"#)).unwrap();
            let (strategy, _) = settings.layers.effective(&Default::default(), &Default::default());
            assert_eq!(strategy.enable, expected, "{defaults} {colocation}");
        }
    }

    #[test]
    fn ack_names_can_be_published_beside_or_instead() {
        for names in [
            r#"["kubernetes.io/batch-cpu", "alibabacloud.com/reclaimed-cpu"]"#,
            r#"["alibabacloud.com/reclaimed-cpu"]"#,
            r#"["koordinator.sh/batch-cpu"]"#,
        ] {
            let settings = check(&format!(r#"{{"policy":{{"batchCPUNames":{names}}}}}"#)).unwrap();
            let expected: Vec<String> = serde_json::from_str(names).unwrap();
            assert_eq!(settings.policy.batch_cpu_names, expected);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (json, shown) in [
            (r#"{"policy":{"publsh":true}}"#, "unknown field `publsh`"),
            (
                r#"{"policy":{"hotCachePressurePercent":101}}"#,
                "field `hotCachePressurePercent` of the policy's configuration is 101",
            ),
            (r#"{"policy":{"coldStartSeconds":2592001}}"#, "field `coldStartSeconds`"),
            (r#"{"policy":{"peakMarginPercent":1001}}"#, "field `peakMarginPercent`"),
            (r#"{"policy":{"batchCPUNames":[]}}"#, "field `batchCPUNames` of the policy's configuration has 0 names"),
            (r#"{"policy":{"batchCPUNames":["cpu"]}}"#, "has `cpu`, which has no domain"),
            (
                r#"{"policy":{"midMemoryNames":["a/b/c"]}}"#,
                "field `midMemoryNames` of the policy's configuration has `a/b/c`",
            ),
            (r#"{"policy":{"midCPUNames":["/cpu"]}}"#, "is no qualified name"),
            (r#"{"policy":{"midCPUNames":["Example.com/cpu"]}}"#, "is no qualified name"),
            (r#"{"policy":{"midCPUNames":["example.com/-cpu"]}}"#, "is no qualified name"),
            (r#"{"policy":{"midMemoryNames":["kubernetes.io/batch-memory"]}}"#, "which is there before"),
            (
                r#"{"policy":{"batchMemoryNames":["example.com/batch-cpu"]}}"#,
                "has `example.com/batch-cpu`, which does not end in -memory: give a name such as example.com/batch-memory",
            ),
            (r#"{"policy":{"midCPUNames":["example.com/scratch"]}}"#, "which does not end in -cpu"),
            (r#"{"policy":{"resourceSource":"both"}}"#, "unknown variant `both`"),
            (
                r#"{"colocation":{"degradeTimeMinutes":0}}"#,
                "colocation-config.degradeTimeMinutes is `0`; set a whole number from 1 to 1440",
            ),
            (r#"{"colocation":{"resourceDiffThreshold":1e400}}"#, "number out of range"),
        ] {
            let error = check(json).unwrap_err();
            assert!(error.contains(shown), "{json}: {error}");
        }
    }

    fn read(json: &str, last: Suppression) -> Suppression {
        Suppression::read(&json::parse(json).unwrap(), last)
    }

    #[test]
    fn the_tier_has_the_quota_while_be_is_suppressed_by_it() {
        for (json, expected) in [
            (r#"{"enable":true,"cpuSuppressPolicy":"cfsQuota"}"#, true),
            (r#"{"enable":false,"cpuSuppressPolicy":"cfsQuota"}"#, false),
            (r#"{"cpuSuppressPolicy":"cfsQuota"}"#, false),
            (r#"{"enable":true,"cpuSuppressPolicy":"cpuset"}"#, false),
            (r#"{"enable":true}"#, false),
            (r#"{"enable":"yes","cpuSuppressPolicy":"cfsQuota"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(read(json, Suppression::default()).sets_quota(Defaults::Koordinator), expected, "{json}");
        }
        for (json, expected) in [
            (r#"{"cpuSuppressPolicy":"cfsQuota"}"#, true),
            (r#"{"enable":false,"cpuSuppressPolicy":"cfsQuota"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(read(json, Suppression::default()).sets_quota(Defaults::Colocation), expected, "{json}");
        }
    }

    #[test]
    fn an_invalid_field_of_suppression_stays_as_it_was() {
        let last = read(r#"{"enable":true,"cpuSuppressPolicy":"cfsQuota"}"#, Suppression::default());
        for (json, expected) in [
            (r#"{"enable":true,"cpuSuppressPolicy":"cfsQuotas"}"#, true),
            (r#"{"enable":true,"cpuSuppressPolicy":3}"#, true),
            (r#"{"enable":"yes","cpuSuppressPolicy":"cfsQuota"}"#, true),
            (r#"{"enable":"yes","cpuSuppressPolicy":"cpuset"}"#, false),
            (r#"{"enable":false,"cpuSuppressPolicy":"cfsQuotas"}"#, false),
            (r#"{"enable":true,"cpuSuppressPolicy":""}"#, false),
            (r#"{"enable":true,"cpuSuppressPolicy":null}"#, false),
            ("{}", false),
        ] {
            assert_eq!(read(json, last).sets_quota(Defaults::Koordinator), expected, "{json}");
        }
    }
}
