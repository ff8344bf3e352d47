//! The policy's description.

use qosm_sdk::Description;

use crate::EARLY_TICKS;

/// Key of the cluster ConfigMap; the policy `be-suppress` uses its other fields.
pub(crate) const CONFIG_MAP_KEY: &str = "resource-threshold-config";

/// Describes the policy. The strategy belongs to the node, and pods are configured by labels and plain annotations, so the policy declares
/// no protocol for pods.
pub(crate) fn description() -> Description {
    let description = Description::new(
        "eviction",
        env!("CARGO_PKG_VERSION"),
        "Chooses the pods to evict from a node that runs short of CPU or memory.",
    );
    EARLY_TICKS
        .into_iter()
        .fold(description, Description::trigger)
        .interval_millis(1_000)
        .config_schema(include_str!("config.schema.json"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use crate::config::{Config, Settings};
    use crate::feature::Feature;

    #[test]
    fn what_is_described_is_what_is_meant_by_default() {
        let description = super::description();
        let schema: Value = serde_json::from_str(description.facts().config_schema.as_deref().unwrap()).unwrap();
        let fields = schema["properties"].as_object().unwrap();
        let defaults: Map<String, Value> =
            fields.iter().map(|(field, schema)| (field.clone(), schema["default"].clone())).collect();
        let policy: Settings = serde_json::from_value(Value::Object(defaults)).unwrap();
        assert_eq!(policy, Settings::default());
        assert_eq!(Config { policy, ..Config::default() }.check(), Ok(()));
        let features = fields["features"]["properties"].as_object().unwrap();
        let mut names = Feature::EACH.map(Feature::name);
        names.sort_unstable();
        assert_eq!(features.keys().collect::<Vec<_>>(), names);
        assert_eq!(description.facts().triggers, crate::EARLY_TICKS);
    }
}
