//! Properties of documents of facts and of lines of a recording, checked by the fuzz targets in `fuzz/` and by this crate's own tests. A
//! function panics if its property does not hold: a parsed document, serialized as `record` does, parses to the same.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::facts::{Facts, read_objects};
use crate::replay::line::TickLine;
use crate::replay_fixture::ReplayFixture;

/// Checks a document of facts, and sets up a replay from it.
pub fn facts(json: &[u8]) {
    let Some(facts) = same_again::<Facts>(json) else { return };
    let objects = read_objects(&facts.pods, &facts.config_maps, facts.node.as_ref(), "facts");
    if let Err(error) = ReplayFixture::set_up(&facts, &objects) {
        assert!(!error.to_string().is_empty());
    }
}

/// Checks one line of a replay.
pub fn tick_line(json: &[u8]) {
    let Some(line) = same_again::<TickLine>(json) else { return };
    let pods = line.pods.unwrap_or_default();
    read_objects(&pods.upserted, line.config_maps.as_deref().unwrap_or_default(), None, "line");
}

fn same_again<T: Serialize + DeserializeOwned>(json: &[u8]) -> Option<T> {
    let read: T = serde_json::from_slice(json).ok()?;
    let spelled = |value: &T| serde_json::to_value(value).map_err(|error| error.to_string());
    let written = spelled(&read);
    let again = serde_json::from_slice::<T>(written.as_ref().map_or(String::new(), Value::to_string).as_bytes());
    let again = again.map_err(|error| error.to_string()).and_then(|again| spelled(&again));
    match (&written, &again) {
        // Numbers with a fraction may change in their last digit each time that they are read.
        (Ok(written), Ok(_)) if has_fraction(written) => {}
        _ => assert_eq!(written, again),
    }
    written.is_ok().then_some(read)
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(fields) => fields.values().any(has_fraction),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_hold_for_documents_that_were_cut_off_or_changed() {
        let read_as_facts = br#"{"host": {"cgroup": {"cpu": "v1"}, "driver": "cgroupfs", "kernel": "alibaba", "cpus": 4, "memory": "8Gi"},
            "policies": [{"name": "cpu-burst", "priority": -1, "config": {"share": 0.1}}],
            "guardRails": {"protectedNamespaces": ["kube-system"]},
            "pods": [{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}}],
            "cgroups": [{"tier": "burstable", "files": {"cpu.max": "max 100000"}}]}"#;
        let read_as_line = br#"{"windowMillis": 500, "node": {"cpuUsageUsec": 1}, "containers": [{"pod": "default/web", "container": "app",
            "cpu": {"usageUsec": 18446744073709551615}}], "pods": {"upserted": [{}], "removed": ["a/b"]}}"#;
        assert!(same_again::<Facts>(read_as_facts).is_some());
        assert!(same_again::<TickLine>(read_as_line).is_some());
        for document in [&read_as_facts[..], read_as_line] {
            for place in 0..document.len() {
                for byte in *b"0\" {}[],:" {
                    let mut changed = document.to_vec();
                    changed[place] = byte;
                    facts(&changed);
                    tick_line(&changed);
                }
                facts(&document[..place]);
                tick_line(&document[..place]);
            }
        }
    }
}
