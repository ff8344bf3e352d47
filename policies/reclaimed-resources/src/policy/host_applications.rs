//! Processes of the node outside of Kubernetes that have a class of their own, as the cluster's ConfigMap names them.

use serde_json::{Map, Value};

use crate::json::{self, Fault};

/// The key of the cluster ConfigMap.
pub(super) const KEY: &str = "host-application-config";

/// Says of host applications that they are not measured apart; `None` where there are none.
pub(super) fn finding(text: &str) -> Option<String> {
    match json::parse(text).and_then(|body| names(&body)) {
        Err(fault) => Some(fault.within(KEY).to_string()),
        Ok(names) if names.is_empty() => None,
        Ok(names) => Some(format!(
            "{KEY}: what {} use counts as the system's; host applications are not measured apart",
            names.join(", ")
        )),
    }
}

fn names(body: &Map<String, Value>) -> Result<Vec<String>, Fault> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |of: &Map<String, Value>| {
        for application in json::list(of, "applications")?.into_iter().flatten() {
            let name = application.as_object().and_then(|fields| json::field(fields, "name")).and_then(Value::as_str);
            let name = name.ok_or_else(|| Fault::new("applications", "has one without a name; give each a name"))?;
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        Ok(())
    };
    add(body)?;
    for entry in json::list(body, "nodeConfigs")?.into_iter().flatten().filter_map(Value::as_object) {
        add(entry)?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_configured_apart_is_said_to_be_the_systems() {
        let counts = "use counts as the system's; host applications are not measured apart";
        for (text, expected) in [
            ("{}", None),
            (r#"{"applications": []}"#, None),
            (
                r#"{"applications": [{"name": "nginx"}], "nodeConfigs": [{"applications": [{"name": "etl"}, {"name": "nginx"}]}]}"#,
                Some(format!("host-application-config: what nginx, etl {counts}")),
            ),
            (
                r#"{"applications": [{}]}"#,
                Some("host-application-config.applications has one without a name; give each a name".to_owned()),
            ),
            (r#"{"nodeConfigs": 1}"#, Some("host-application-config.nodeConfigs is `1`; write a list".to_owned())),
        ] {
            assert_eq!(super::finding(text), expected, "{text}");
        }
        assert!(super::finding("[]").is_some_and(|finding| finding.starts_with("host-application-config ")));
    }
}
