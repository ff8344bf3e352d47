//! How operators speak to the policy.

use qosm_sdk::{Description, Trigger};
use serde_json::Value;

use crate::config::with_names;
use crate::pressure::EARLY_TICK;

/// Key of the cluster ConfigMap. Its other fields are about eviction.
pub(crate) const CONFIG_MAP_KEY: &str = "resource-threshold-config";

/// Key of the cluster ConfigMap that names processes of the node outside Kubernetes.
pub(crate) const HOST_APPLICATIONS_KEY: &str = "host-application-config";

/// Says of host applications that they are not measured apart; `None` where there are none.
pub(crate) fn host_applications(text: &str) -> Option<String> {
    let wrong = |what: &str| Some(format!("{HOST_APPLICATIONS_KEY}: {what}"));
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return wrong("write a JSON object") };
    let fields = with_names(fields, &["applications", "nodeConfigs"]);
    let mut names: Vec<&str> = Vec::new();
    let of_nodes = match fields.get("nodeConfigs") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(entries)) => entries.iter().map(|entry| entry.get("applications")).collect(),
        Some(_) => return wrong("nodeConfigs: write a list"),
    };
    for list in [fields.get("applications")].into_iter().chain(of_nodes) {
        match list {
            None | Some(Value::Null) => {}
            Some(Value::Array(applications)) => {
                for application in applications {
                    let name = application.get("name").and_then(Value::as_str);
                    let Some(name) = name else { return wrong("applications: give each a name") };
                    names.push(name);
                }
            }
            Some(_) => return wrong("applications: write a list"),
        }
    }
    names.dedup();
    let names = names.join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "{HOST_APPLICATIONS_KEY}: what {names} use counts as the system's; host applications are not measured apart"
        )
    })
}

/// What the policy calls itself. It takes no configuration from pods, so it has no protocol: a strategy is the node's.
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
    fn host_applications_are_named_as_the_systems() {
        let told = "host-application-config: what nginx, etcd use counts as the system's; host applications are not measured apart";
        for (text, expected) in [
            ("{}", None),
            (r#"{"applications": [], "nodeConfigs": null}"#, None),
            (r#"{"applications": [{"name": "nginx", "qos": "LS"}, {"name": "etcd"}]}"#, Some(told)),
            (
                r#"{"Applications": [{"name": "nginx"}], "nodeConfigs": [{}, {"applications": [{"name": "etcd"}]}]}"#,
                Some(told),
            ),
            (r#"{"applications": {}}"#, Some("host-application-config: applications: write a list")),
            (r#"{"applications": [{"qos": "LS"}]}"#, Some("host-application-config: applications: give each a name")),
            (r#"{"nodeConfigs": 1}"#, Some("host-application-config: nodeConfigs: write a list")),
            ("[]", Some("host-application-config: write a JSON object")),
        ] {
            assert_eq!(super::host_applications(text).as_deref(), expected, "{text}");
        }
    }

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
