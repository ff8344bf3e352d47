//! Lints of a module's description.

use serde_json::Value;

use super::{Finding, Level, Looked};

/// A shorter interval takes most of a small node's CPU, and kernel counters show little over shorter windows.
const MIN_INTERVAL_MILLIS: u32 = 100;

/// Domains that are reserved for Kubernetes.
const RESERVED: [&str; 2] = ["kubernetes.io", "k8s.io"];

pub(super) fn look(looked: &Looked<'_>) -> Vec<Finding> {
    let description = looked.description;
    let mut findings = Vec::new();
    if description.summary.trim().is_empty() {
        findings.push(Finding::new(
            Level::Warning,
            "no-summary",
            "it does not say what it is for",
            "say it in one sentence in `describe`; `qosm policy inspect` shows it",
        ));
    }
    if (1..MIN_INTERVAL_MILLIS).contains(&description.interval_millis) {
        findings.push(Finding::new(
            Level::Warning,
            "short-interval",
            format!("it wants to be evaluated each {} ms", description.interval_millis),
            format!(
                "ask for {MIN_INTERVAL_MILLIS} ms or more, and for a trigger where something has to be answered at once"
            ),
        ));
    }
    if let Some(protocol) = &description.protocol {
        findings.extend(protocol.annotation_keys.iter().filter_map(|key| prefix(key)));
        findings.extend(undescribed("each pod's", &protocol.schema));
        if protocol.schema.get("properties").is_none() {
            findings.push(Finding::new(
                Level::Warning,
                "no-schema",
                "its protocol has no schema: no field of an annotation can be checked, and nothing reports a wrong one",
                "derive it from the type that `PodConfig` is (`schema_of`), or list the fields in `protocol.schema`",
            ));
        }
    }
    // Without a schema the host accepts no configuration.
    if let Some(schema) = &description.config_schema {
        findings.extend(undescribed("its own", schema));
    }
    findings
}

/// Checks that the key of an annotation has a domain as its prefix.
fn prefix(key: &str) -> Option<Finding> {
    let help = "put a domain of yours before it, as in `example.com/my-policy`";
    let Some((prefix, _)) = key.split_once('/') else {
        let what = format!("the annotation `{key}` has no prefix, and another program may use it too");
        return Some(Finding::new(Level::Warning, "annotation-prefix", what, help));
    };
    let is_reserved = |reserved: &str| prefix == reserved || prefix.ends_with(&format!(".{reserved}"));
    RESERVED.into_iter().find(|reserved| is_reserved(reserved)).map(|reserved| {
        let what = format!("the annotation `{key}` has a prefix below {reserved}, which is Kubernetes' own");
        Finding::new(Level::Warning, "annotation-prefix", what, help)
    })
}

/// Fields without a description in a schema.
fn undescribed(whose: &str, schema: &Value) -> Vec<Finding> {
    let rows = qosm_terminal::schema::rows(schema);
    let silent = rows.into_iter().filter(|row| row.get(3).is_some_and(String::is_empty));
    let finding = |row: Vec<String>| {
        Finding::new(
            Level::Warning,
            "undescribed-field",
            format!("the field `{}` of {whose} configuration is not described", row.first().map_or("", String::as_str)),
            "in Rust write a doc comment on the field, else a `description` in the schema",
        )
    };
    silent.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prefix_is_ones_own() {
        for (key, is_fine) in [
            ("example.com/my-policy", true),
            ("koordinator.sh/cpuBurst", true),
            ("notk8s.io/x", true),
            ("my-policy", false),
            ("kubernetes.io/x", false),
            ("node.alpha.kubernetes.io/x", false),
            ("scheduling.k8s.io/x", false),
        ] {
            assert_eq!(prefix(key).is_none(), is_fine, "{key}");
        }
    }

    #[test]
    fn each_field_without_a_meaning_is_told() {
        let schema = json!({"properties": {
            "told": {"type": "integer", "description": "so many"},
            "untold": {"type": "integer"},
        }});
        let findings = undescribed("its own", &schema);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].what.contains("`untold`"), "{findings:?}");
    }
}
