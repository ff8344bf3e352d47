//! Names that earlier builds used in stores and recordings, and which are still read. In files that operators write they are errors.

use serde_json::Value;

/// Updates an entry of the agent's file: `onFailure: hold` becomes `keep`. Returns whether anything changed.
pub(crate) fn update_entry(entry: &mut Value) -> bool {
    update_hold(entry, "onFailure")
}

/// Updates the specification of a PolicyModule: `failurePolicy: hold` becomes `keep`. Returns whether anything changed.
pub(crate) fn update_policy_module(spec: &mut Value) -> bool {
    update_hold(spec, "failurePolicy")
}

fn update_hold(object: &mut Value, field: &str) -> bool {
    match object.get_mut(field) {
        Some(word) if word == "hold" => {
            *word = "keep".into();
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::config::{AgentConfig, OnFailure};
    use crate::facts::Facts;

    #[test]
    fn the_agents_file_is_refused_with_the_new_word() {
        for (old, new) in [
            (json!({"policies": [{"name": "x", "onFailure": "hold"}]}), "`keep`"),
            (json!({"swaps": {"probationSeconds": 60}}), "`rollbackSeconds`"),
        ] {
            let error = serde_json::from_value::<AgentConfig>(old).unwrap_err().to_string();
            assert!(error.contains(new), "{error}");
        }
    }

    #[test]
    fn a_policy_module_is_refused_with_the_new_word() {
        let object = json!({"metadata": {"name": "x"}, "spec": {"module": "builtin:x", "failurePolicy": "hold"}});
        let problem = qosm_cluster::policy_module_from_value(object, "x.yaml").unwrap_err();
        assert!(problem.message.contains("keep"), "{problem:?}");
    }

    #[test]
    fn a_recording_of_an_earlier_build_is_read() {
        let facts =
            Facts::from_recording(r#"{"policies": [{"name": "a"}, {"name": "b", "onFailure": "hold"}]}"#).unwrap();
        assert_eq!(facts.policies[1].on_failure, OnFailure::Keep);
        let error = Facts::from_recording(r#"{"policies": [{"name": "a", "onFailure": "explode"}]}"#).unwrap_err();
        assert!(error.to_string().contains("line 1 column"), "{error}");
    }
}
