//! The operator's entry for a policy: configuration of the policy as a whole, without layers.

use qosm_schema::Budget;
use serde_json::{Map, Value};

use super::rules::{Lacking, Rules};
use crate::problem::Problem;

/// Checks a schema of the operator's entry before any entry is configured; [`check_config`] reports the same errors.
///
/// # Errors
///
/// Why the schema cannot be used.
pub fn check_config_schema(schema: &Value) -> Result<(), String> {
    Rules::compile(schema.clone()).map(drop)
}

/// Budget of steps for checking an operator's entry against the module's schema.
const STEPS: u64 = 200_000;

/// Checks an operator's entry for a policy against the schema in its module's description; `None` if the module takes no
/// configuration.
///
/// ```
/// use qosm_model::layering::check_config;
/// use serde_json::{Map, json};
///
/// let schema = json!({"properties": {"profile": {"enum": ["responsive", "koordinator"]}}});
/// let config = Map::from_iter([("profile".into(), json!("fast"))]);
/// let problems = check_config("cpu-burst", Some(&schema), &config);
/// assert_eq!(
///     problems[0].to_string(),
///     "policy cpu-burst: config: profile: `\"fast\"` is not known here; write one of `responsive`, `koordinator`"
/// );
/// ```
///
/// Returns a problem for each wrong field, with the valid values; none if the entry is valid. An invalid schema is
/// reported as a problem of the module.
pub fn check_config(policy: &str, schema: Option<&Value>, config: &Map<String, Value>) -> Vec<Problem> {
    let problem = |field: &str, message: String| {
        let field = if field.is_empty() { "config".to_owned() } else { format!("config: {field}") };
        Problem { object: format!("policy {policy}"), field: Some(field), message }
    };
    let Some(schema) = schema else {
        let is_configured = !config.is_empty();
        return is_configured
            .then(|| problem("", "its module takes no configuration; take it away".into()))
            .into_iter()
            .collect();
    };
    let rules = match Rules::compile(schema.clone()) {
        Ok(rules) => rules,
        Err(message) => {
            return vec![problem("", format!("the module's schema: {message}; mend the description of the module"))];
        }
    };
    let violations = rules.violations(config, Lacking::IsMissing, &Budget::of(STEPS)).into_iter();
    violations.map(|wrong| problem(&wrong.path, format!("{}; write {}", wrong.what, wrong.expected))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(schema: Value, config: Value) -> Vec<String> {
        let Value::Object(config) = config else { panic!("{config} is no object") };
        let schema = (!schema.is_null()).then_some(schema);
        check_config("p", schema.as_ref(), &config).iter().map(ToString::to_string).collect()
    }

    /// A schema as derived from a Rust enum with documented variants.
    fn schema() -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["nodes"],
            "properties": {
                "profile": {"oneOf": [
                    {"type": "string", "const": "byNeed", "description": "By need."},
                    {"type": "string", "const": "stepwise", "description": "By a fifth."},
                ]},
                "percent": {"type": "integer", "format": "uint32", "minimum": 1, "maximum": 100},
                "nodes": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "inner": {"type": "object", "additionalProperties": false, "properties": {"on": {"type": "boolean"}}},
                "least": {"type": ["integer", "null"], "minimum": 0},
            },
        })
    }

    #[test]
    fn what_fits_is_no_problem() {
        for config in [
            json!({"nodes": []}),
            json!({"nodes": [0, 7], "profile": "stepwise", "percent": 100, "inner": {"on": true}, "least": null}),
        ] {
            assert_eq!(messages(schema(), config), <[&str; 0]>::default());
        }
        assert_eq!(
            messages(json!({}), json!({"any": 1})),
            <[&str; 0]>::default(),
            "a schema that says nothing takes all"
        );
        assert_eq!(messages(Value::Null, json!({})), <[&str; 0]>::default());
    }

    #[test]
    fn each_wrong_field_is_named_with_what_to_write() {
        for (config, problem) in [
            (json!({}), "policy p: config: nodes: it is missing; write a list"),
            (
                json!({"nodes": [], "profile": "fast"}),
                "policy p: config: profile: `\"fast\"` is not known here; write one of `byNeed`, `stepwise`",
            ),
            (
                json!({"nodes": [], "profile": "byneed"}),
                "policy p: config: profile: `\"byneed\"` is not known here, did you mean `byNeed`; write one of `byNeed`, `stepwise`",
            ),
            (
                json!({"nodes": [], "percent": 101}),
                "policy p: config: percent: 101 is above 100; write a whole number from 1 to 100",
            ),
            (
                json!({"nodes": [], "percent": 5.5}),
                "policy p: config: percent: 5.5 is not a whole number; write a whole number from 1 to 100",
            ),
            (
                json!({"nodes": [], "percent": "5"}),
                "policy p: config: percent: `\"5\"` is not a whole number; write a whole number from 1 to 100",
            ),
            (json!({"nodes": [1, -1]}), "policy p: config: nodes[1]: -1 is below 0; write a whole number, at least 0"),
            (
                json!({"nodes": [], "percnet": 5}),
                "policy p: config: percnet: there is no such field; write `percent`, if that is meant",
            ),
            (
                json!({"nodes": [], "inner": {"off": true}}),
                "policy p: config: inner.off: there is no such field; write only on",
            ),
            (
                json!({"nodes": [], "speed": 5}),
                "policy p: config: speed: there is no such field; write only inner, least, nodes, percent, profile",
            ),
        ] {
            assert_eq!(messages(schema(), config), [problem]);
        }
        assert_eq!(messages(schema(), json!({"profile": 1, "percent": 0})).len(), 3, "all at once");
    }

    #[test]
    fn a_policy_that_takes_nothing_is_given_nothing() {
        assert_eq!(
            messages(Value::Null, json!({"a": 1})),
            ["policy p: config: its module takes no configuration; take it away"]
        );
    }

    #[test]
    fn an_invalid_schema_is_the_modules_fault() {
        let messages = messages(json!({"type": 7}), json!({}));
        assert!(messages[0].contains("the module's schema: it is no JSON schema: "), "{messages:?}");
    }
}
