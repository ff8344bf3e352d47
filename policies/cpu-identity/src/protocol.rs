//! The configuration of operators and pods, and the policy's description.

use qosm_sdk::{Description, Protocol, Trigger};

/// Key of the cluster ConfigMap; other policies use its other fields.
pub(crate) const CONFIG_MAP_KEY: &str = "resource-qos-config";

/// Describes the policy. It reads the strategy as a whole, because `cpuPolicy` is a sibling of the classes; the host merges and checks the
/// pods' annotations.
pub(crate) fn description() -> Description {
    Description::new(
        "cpu-identity",
        env!("CARGO_PKG_VERSION"),
        "Runs latency-sensitive threads before those of batch pods: by group identity, else batch runs on CPUs that no other thread needs.",
    )
    .trigger(Trigger::ContainerStarted)
    .config_schema(include_str!("config.schema.json"))
    .protocol(Protocol::new().annotation("koordinator.sh/cpuQOS").schema(include_str!("pod.schema.json")))
}

#[cfg(test)]
mod tests {
    use qosm_sdk::Policy as _;
    use serde_json::Value;

    use crate::CpuIdentity;
    use crate::config::{MAX_IDENTITY, MIN_IDENTITY, Settings};

    #[test]
    fn what_is_described_is_what_is_meant_by_default() {
        let description = CpuIdentity::describe();
        let schema: Value = serde_json::from_str(description.facts().config_schema.as_deref().unwrap()).unwrap();
        let fields = schema["properties"].as_object().unwrap();
        let defaults: serde_json::Map<String, Value> =
            fields.iter().map(|(field, schema)| (field.clone(), schema["default"].clone())).collect();
        assert_eq!(serde_json::from_value::<Settings>(Value::Object(defaults)).unwrap(), Settings::default());
        let schema: Value = serde_json::from_str(&description.facts().protocol.as_ref().unwrap().schema).unwrap();
        let identity = &schema["properties"]["groupIdentity"];
        assert_eq!((&identity["minimum"], &identity["maximum"]), (&MIN_IDENTITY.into(), &MAX_IDENTITY.into()));
    }
}
