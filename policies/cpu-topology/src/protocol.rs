//! The policy's description.

use qosm_sdk::{Description, Trigger};

/// Describes the policy. Pods are configured by Koordinator's annotations, which its scheduler also writes and which are not objects of
/// this policy; the strategy comes from the node's labels. So the policy declares no protocol.
pub(crate) fn description() -> Description {
    Description::new(
        "cpu-topology",
        env!("CARGO_PKG_VERSION"),
        "Runs pods on the CPUs that a scheduler or this node chose for them, and all others on the rest.",
    )
    .interval_millis(3_000)
    .trigger(Trigger::ContainerStarted)
    .config_schema(include_str!("config.schema.json"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use crate::config::Settings;

    #[test]
    fn what_is_described_is_what_is_meant_by_default() {
        let description = super::description();
        let schema: Value = serde_json::from_str(description.facts().config_schema.as_deref().unwrap()).unwrap();
        let fields = schema["properties"].as_object().unwrap();
        let defaults: Map<String, Value> =
            fields.iter().map(|(field, schema)| (field.clone(), schema["default"].clone())).collect();
        assert_eq!(serde_json::from_value::<Settings>(Value::Object(defaults)).unwrap(), Settings::default());
    }
}
