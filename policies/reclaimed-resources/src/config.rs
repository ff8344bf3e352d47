//! What operators can ask of this policy.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::json::{self, Fault};
use crate::layers::Layers;
use crate::strategy::Strategy;

/// What `configure` takes: the policy's own configuration, and the two keys of the cluster's ConfigMap that matter here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: PolicyConfig,
    /// `colocation-config`: the node's strategy, or the cluster's with `nodeConfigs`.
    pub colocation: Map<String, Value>,
    /// `resource-threshold-config` as the node's strategy leaves it: whether BE is suppressed by CFS quota.
    pub threshold: Map<String, Value>,
}

/// Where the resources of a BE pod's containers are read first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceSource {
    /// The pod's specification; the annotation where that has no batch resource.
    #[default]
    Spec,
    /// The annotation `node.koordinator.sh/extended-resource-spec`; the specification where there is none.
    Annotation,
}

/// What a ConfigMap means that says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Defaults {
    /// Nothing is published before `enable` is `true`.
    #[default]
    Koordinator,
    /// The protocol's defaults count, unless `enable` is `false`; suppression, which shares a key with this policy, is taken to be on too.
    Colocation,
}

impl Defaults {
    /// Whether a strategy is on that does not say so.
    fn is_on(self) -> bool {
        self == Self::Colocation
    }

    /// The strategy below all layers.
    pub fn strategy(self) -> Strategy {
        Strategy { enable: self.is_on(), ..Strategy::default() }
    }
}

/// The policy-level configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// What a ConfigMap means that says nothing.
    pub defaults: Defaults,
    /// Whether amounts are published.
    pub publish: bool,
    /// Whether BE pods get their weight, quota and memory limit.
    pub enforce: bool,
    /// Names under which batch CPU is published. Each further name shrinks by what is requested under the others.
    #[serde(rename = "batchCPUNames")]
    pub batch_cpu_names: Vec<String>,
    /// Names of batch memory.
    pub batch_memory_names: Vec<String>,
    /// Names of mid CPU.
    #[serde(rename = "midCPUNames")]
    pub mid_cpu_names: Vec<String>,
    /// Names of mid memory.
    pub mid_memory_names: Vec<String>,
    /// Where the resources of a BE pod's containers are read first.
    pub resource_source: ResourceSource,
    /// Page cache that was used lately counts as used, whatever `metricMemoryCollectPolicy` says, from this share of time on
    /// in which tasks wait for memory, in percent, until it has fallen to half of it; 0 = never.
    pub hot_cache_pressure_percent: u32,
    /// A pod is expected to leave nothing to mid pods before it has been measured so long.
    pub cold_start_seconds: u64,
    /// Peaks count with so many percent on top.
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

/// As many names a resource can have.
const MAX_NAMES: usize = 4;

/// A configuration that has been checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The policy-level configuration.
    pub policy: PolicyConfig,
    /// The strategy by node.
    pub layers: Layers,
    /// Whether the quota of the whole besteffort tier is set by suppression, so that pods have none.
    pub quota_is_the_tiers: bool,
}

impl Config {
    /// Checks what serde cannot.
    ///
    /// # Errors
    ///
    /// A sentence that names the field and the way out.
    pub fn check(&self) -> Result<Settings, String> {
        self.policy.check()?;
        let layers = Layers::read(&self.colocation, &self.policy.defaults.strategy())
            .map_err(|fault| fault.within("colocation-config").to_string())?;
        let quota_is_the_tiers = suppresses_by_quota(&self.threshold, self.policy.defaults);
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
        for (field, names) in [
            ("batchCPUNames", &self.batch_cpu_names),
            ("batchMemoryNames", &self.batch_memory_names),
            ("midCPUNames", &self.mid_cpu_names),
            ("midMemoryNames", &self.mid_memory_names),
        ] {
            let wrong = |what: &str| Err(format!("field `{field}` of the policy's configuration {what}"));
            if names.is_empty() || names.len() > MAX_NAMES {
                return wrong(&format!("has {} names: give 1 to {MAX_NAMES}", names.len()));
            }
            for name in names {
                if let Err(fault) = check_name(name) {
                    return wrong(&format!(
                        "has `{name}`, which {}: give a name such as example.com/batch-cpu",
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

/// Whether a name is one that a node can publish.
fn check_name(name: &str) -> Result<(), Fault> {
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
        Ok(())
    } else {
        Err(Fault::new("", "is no qualified name"))
    }
}

/// Whether `resource-threshold-config` has the besteffort tier's quota set. What is wrong with it is for the policy that
/// suppresses to say.
pub fn suppresses_by_quota(threshold: &Map<String, Value>, defaults: Defaults) -> bool {
    let is_on = json::switch(threshold, "enable").is_ok_and(|enable| enable.unwrap_or(defaults.is_on()));
    let policy = json::field(threshold, "cpuSuppressPolicy").and_then(Value::as_str);
    is_on && policy == Some("cfsQuota")
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
            (r#"{"policy":{"batchMemoryNames":["kubernetes.io/batch-cpu"]}}"#, "which is there before"),
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
            assert_eq!(suppresses_by_quota(&json::parse(json).unwrap(), Defaults::Koordinator), expected, "{json}");
        }
        for (json, expected) in [
            (r#"{"cpuSuppressPolicy":"cfsQuota"}"#, true),
            (r#"{"enable":false,"cpuSuppressPolicy":"cfsQuota"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(suppresses_by_quota(&json::parse(json).unwrap(), Defaults::Colocation), expected, "{json}");
        }
    }
}
