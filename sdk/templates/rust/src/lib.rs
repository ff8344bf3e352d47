//! Slows containers down before they reach their memory limit: `memory.high` at a percentage of it.
//!
//! Above `memory.high` the kernel reclaims a container's memory and makes it wait, instead of ending it at the limit.
//!
//! A pod's owner enables it with the annotation `example.com/my-policy`, an operator for many pods with the key
//! `my-policy-config` of the cluster's ConfigMap. Other pods are left alone.

use qosm_sdk::{
    Bound, Container, Description, Host, Pod, PodId, Pods, Policy, Preset, Protection, Protocol, Rejection, Target,
    Tick, percent_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

qosm_sdk::export!(MyPolicy);

/// The policy-level configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Containers with a memory limit below this, in MiB, are left alone.
    #[schemars(range(max = 1048576))]
    pub least_limit_mib: u64,
}

/// The configuration of a pod. The doc comments and ranges become the schema with which the host checks annotations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    /// `memory.high` of each container, in percent of its memory limit.
    #[schemars(range(min = 1, max = 100))]
    pub percent: u64,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self { percent: 80 }
    }
}

/// The policy and its configuration.
#[derive(Debug, Default)]
pub struct MyPolicy {
    config: Config,
    pods: Pods<PodConfig>,
}

impl Policy for MyPolicy {
    type Config = Config;
    type PodConfig = PodConfig;

    fn describe() -> Description {
        Description::new("my-policy", env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"))
            .config::<Config>()
            .protocol(
                Protocol::new()
                    .annotation("example.com/my-policy")
                    .config_map_key("my-policy-config")
                    .preset(Preset::new("auto", r#"{"percent": 80}"#))
                    .preset(Preset::new("none", "{}").alone())
                    .schema_of::<PodConfig>(),
            )
    }

    fn configure<H: Host>(&mut self, _: &mut H, config: Config) -> Result<(), String> {
        self.config = config;
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<PodConfig>>, removed: &[PodId]) -> Vec<Rejection> {
        let rejections = upserted.iter().filter_map(unusable).collect();
        self.pods.update(upserted, removed);
        rejections
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        for pod in self.pods.iter() {
            for container in &pod.containers {
                let target = Target::Container(container.id);
                // What an evaluation does not set is released, so there is no other branch.
                if let Some((high, reason)) = self.high(pod, container) {
                    let wanted = Protection { high: Some(Bound::Bytes(high)), ..Protection::NONE };
                    host.protect(target, &wanted, &reason);
                }
            }
        }
        Ok(())
    }
}

impl MyPolicy {
    /// The value of `memory.high` of a container, and the reason; `None` = the policy leaves the container alone.
    fn high(&self, pod: &Pod<PodConfig>, container: &Container) -> Option<(u64, String)> {
        let percent = pod.config.as_ref()?.percent;
        let limit = container.memory_limit_bytes.filter(|limit| limit >> 20 >= self.config.least_limit_mib)?;
        Some((percent_of(limit, percent), format!("{percent} % of the memory limit")))
    }
}

/// Rejects a pod whose configuration cannot take effect, with a message to its owner.
fn unusable(pod: &Pod<PodConfig>) -> Option<Rejection> {
    let has_limit = pod.containers.iter().any(|container| container.memory_limit_bytes.is_some());
    (pod.config.is_some() && !has_limit).then(|| Rejection {
        pod: pod.id,
        field: "percent".into(),
        message: "no container of the pod has a memory limit; set resources.limits.memory".into(),
    })
}

#[cfg(test)]
mod tests {
    use qosm_sdk::mock::{self, MockHost, Value};
    use qosm_sdk::{PodFacts, Session};

    use super::*;

    const APP: Target = Target::Container(7);

    fn web(config: &str, limit: Option<u64>) -> PodFacts {
        let app = Container { memory_limit_bytes: limit, ..mock::container(7, "app") };
        PodFacts { config: config.into(), containers: vec![app], ..mock::pod(1, "default", "web") }
    }

    /// The value that is held on the container with this configuration.
    fn high(config: &str, pod: PodFacts) -> Result<Option<Value>, String> {
        let mut host = MockHost::default();
        let mut policy = Session::<MyPolicy>::default();
        policy.configure(&mut host, config)?;
        policy.pods(&mut host, vec![pod], &[])?;
        policy.evaluate(&mut host, mock::tick(0))?;
        host.commit();
        Ok(host.held(APP, "memory.high"))
    }

    #[test]
    fn memory_high_is_so_much_of_the_limit() -> Result<(), String> {
        for (config, limit, held) in [
            (r#"{"percent": 50}"#, Some(1 << 30), Some(Value::Number(1 << 29))),
            (r#"{"percent": 1}"#, Some(0), Some(Value::Number(0))),
            (r#"{"percent": 50}"#, None, None),
            ("{}", Some(1 << 30), None),
        ] {
            assert_eq!(high("{}", web(config, limit))?, held, "{config} of {limit:?}");
        }
        Ok(())
    }

    #[test]
    fn small_containers_are_left_alone_if_the_operator_says_so() -> Result<(), String> {
        let asked = r#"{"percent": 50}"#;
        assert_eq!(high(r#"{"leastLimitMib": 64}"#, web(asked, Some(63 << 20)))?, None);
        assert!(high(r#"{"leastLimitMib": 64}"#, web(asked, Some(64 << 20)))?.is_some());
        Ok(())
    }
}
