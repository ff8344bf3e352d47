//! The policy's description.

use qosm_sdk::{Description, Trigger};

use crate::pressure::EARLY_TICK;

/// Key of the cluster ConfigMap; the policy `eviction` uses its other fields.
pub(crate) const CONFIG_MAP_KEY: &str = "resource-threshold-config";

/// Describes the policy. Pods have nothing to configure (the strategy belongs to the node), so it declares no protocol.
pub(crate) fn description() -> Description {
    Description::new(
        "be-suppress",
        env!("CARGO_PKG_VERSION"),
        "Holds batch pods to the CPUs that latency-sensitive pods leave, by cpuset or CFS quota of their tier.",
    )
    .interval_millis(1_000)
    .trigger(Trigger::Pressure(EARLY_TICK))
    .config_schema(include_str!("config.schema.json"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::BeSuppress;
    use crate::config::Settings;
    use qosm_sdk::Policy as _;

    #[test]
    fn what_is_described_is_what_is_meant_by_default() {
        let description = BeSuppress::describe();
        let schema: Value = serde_json::from_str(description.facts().config_schema.as_deref().unwrap()).unwrap();
        let fields = schema["properties"].as_object().unwrap();
        let defaults: serde_json::Map<String, Value> =
            fields.iter().map(|(field, schema)| (field.clone(), schema["default"].clone())).collect();
        assert_eq!(serde_json::from_value::<Settings>(Value::Object(defaults)).unwrap(), Settings::default());
    }
}
