//! Applications outside Kubernetes, as the cluster's ConfigMap lists them for a node.
//!
//! Koordinator: `apis/configuration/slo_controller_config.go` (`HostApplicationCfg`), `apis/slo/v1alpha1/host_application.go`,
//! `pkg/koordlet/util/host_application.go`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::{Document, take};
use super::rules::hint;
use super::selector::Selector;
use crate::application::Application;
use crate::pod::{QosClass, Tier};

/// Parent cgroups of applications without a cgroup path, by QoS class.
const LATENCY_SENSITIVE: &str = "host-latency-sensitive";
const BEST_EFFORT: &str = "host-best-effort";

/// A wrong field, as path below [`crate::application::KEY`], what is wrong with it and what happens instead.
type Note = (String, String);

/// Fields of an application, and of its `cgroupPath`.
const FIELDS: [&str; 4] = ["name", "qos", "priority", "cgroupPath"];
const PATH_FIELDS: [&str; 3] = ["base", "parentDir", "relativePath"];
/// Koordinator: `apis/extension/priority.go`.
const PRIORITIES: [&str; 4] = ["koord-prod", "koord-mid", "koord-batch", "koord-free"];

impl Application {
    /// The applications of the node with these labels: those of the first entry of `nodeConfigs` whose selector matches
    /// it, else `applications`. An application that cannot be read is left out; the others count.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use qosm_model::application::Application;
    ///
    /// let text = r#"{"applications": [{"name": "nginx", "qos": "LS", "priority": "koord-prod"}]}"#;
    /// let (applications, problems) = Application::read(text, &BTreeMap::new());
    /// assert_eq!(applications[0].cgroup, "host-latency-sensitive/nginx");
    /// assert!(problems.is_empty());
    /// ```
    pub fn read(text: &str, labels: &BTreeMap<String, String>) -> (Vec<Self>, Vec<Note>) {
        let mut notes = Vec::new();
        let mut fields = match Document::parse(text) {
            Ok(Document::Fields(fields)) => fields,
            // The reader of the ConfigMap has already reported a text that cannot be parsed.
            _ => return (Vec::new(), notes),
        };
        let mut chosen = read_list(take(&mut fields, "applications"), "applications", &mut notes);
        let entries = match take(&mut fields, "nodeConfigs") {
            None => Vec::new(),
            Some(Document::Items(entries)) => entries,
            Some(_) => {
                left_out(&mut notes, "nodeConfigs".into(), "it is no list");
                Vec::new()
            }
        };
        let mut is_found = false;
        // All entries are read, so that every node reports a mistake, not only the one that the entry selects.
        for (index, entry) in entries.into_iter().enumerate() {
            let path = format!("nodeConfigs[{index}]");
            let Document::Fields(mut fields) = entry else {
                left_out(&mut notes, path, "it is no object");
                continue;
            };
            let listed = read_list(take(&mut fields, "applications"), &format!("{path}.applications"), &mut notes);
            let Some(selector) = take(&mut fields, "nodeSelector") else {
                left_out(&mut notes, path, "it has no nodeSelector and is therefore for no node");
                continue;
            };
            match Selector::parse(selector) {
                Err(what) => {
                    left_out(&mut notes, format!("{path}.nodeSelector"), &format!("{what}; the entry is skipped"));
                }
                Ok(selector) if !is_found && selector.matches(labels) => (chosen, is_found) = (listed, true),
                Ok(_) => {}
            }
        }
        (chosen, notes)
    }
}

/// Notes what is not read, so that the use of its applications is not told apart.
fn left_out(notes: &mut Vec<Note>, path: String, what: &str) {
    notes.push((path, format!("{what}; what it uses counts as the system's")));
}

fn read_list(list: Option<Document>, path: &str, notes: &mut Vec<Note>) -> Vec<Application> {
    let items = match list {
        None => return Vec::new(),
        Some(Document::Items(items)) => items,
        Some(_) => {
            left_out(notes, path.to_owned(), "it is no list");
            return Vec::new();
        }
    };
    let mut applications: Vec<Application> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut remarks = Vec::new();
        match application(item, &mut remarks) {
            Ok(one) if applications.iter().any(|other| other.name == one.name) => {
                left_out(notes, path, &format!("there is `{}` already; the first counts", one.name));
            }
            Ok(one) => {
                notes.extend(remarks.into_iter().map(|(field, what)| (format!("{path}{field}"), what)));
                applications.push(one);
            }
            Err((field, what)) => left_out(notes, format!("{path}{field}"), &what),
        }
    }
    applications
}

/// A field of text; empty counts as absent.
fn text(fields: &mut Vec<(String, Document)>, name: &str) -> Result<Option<String>, Note> {
    match take(fields, name) {
        None => Ok(None),
        Some(Document::Scalar(Value::String(text))) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(_) => Err((format!(".{name}"), "it is no text".into())),
    }
}

/// Notes fields that do not exist.
fn note_unknown(fields: &[(String, Document)], above: &str, known: &[&str], remarks: &mut Vec<Note>) {
    for (name, _) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let message = format!("unknown field, ignored; the other fields count; {}", hint(name, known));
        remarks.push((format!("{above}.{name}"), message));
    }
}

/// Reads an application, with remarks on fields that do not prevent its use.
fn application(document: Document, remarks: &mut Vec<Note>) -> Result<Application, Note> {
    let Document::Fields(mut fields) = document else { return Err((String::new(), "it is no object".into())) };
    let Some(name) = text(&mut fields, "name")? else {
        return Err((String::new(), "it has no name; give each application one".into()));
    };
    let qos = match text(&mut fields, "qos")? {
        None => None,
        Some(word) => {
            let what = || format!("`{word}` is no class of service; there are LSE, LSR, LS, BE and SYSTEM");
            Some(QosClass::parse(&word).ok_or_else(|| (".qos".to_owned(), what()))?)
        }
    };
    let priority = text(&mut fields, "priority")?;
    if let Some(word) = priority.as_ref().filter(|word| !PRIORITIES.contains(&word.as_str())) {
        let known = PRIORITIES.join(", ");
        let message = format!("`{word}` is no priority class and counts as none; there are {known}");
        remarks.push((".priority".to_owned(), message));
    }
    let (tier, cgroup) = match take(&mut fields, "cgroupPath") {
        None => (None, usual_cgroup(qos, &name)),
        Some(Document::Fields(mut path)) => {
            let tier = match text(&mut path, "base")?.as_deref() {
                None | Some("CgroupRoot") => None,
                Some("Kubepods") => Some(Tier::Guaranteed),
                Some("KubepodsBurstable") => Some(Tier::Burstable),
                Some("KubepodsBesteffort") => Some(Tier::BestEffort),
                Some(other) => {
                    let known = "CgroupRoot, Kubepods, KubepodsBurstable and KubepodsBesteffort";
                    return Err((".cgroupPath.base".into(), format!("`{other}` is no base; there are {known}")));
                }
            };
            let parts = [text(&mut path, "parentDir")?, text(&mut path, "relativePath")?];
            note_unknown(&path, ".cgroupPath", &PATH_FIELDS, remarks);
            (tier, parts.into_iter().flatten().collect::<Vec<_>>().join("/"))
        }
        Some(_) => return Err((".cgroupPath".into(), "it is no object".into())),
    };
    note_unknown(&fields, "", &FIELDS, remarks);
    let cgroup = inside(&cgroup).map_err(|what| (".cgroupPath".to_owned(), what))?;
    Ok(Application { name, qos, priority, tier, cgroup })
}

fn usual_cgroup(qos: Option<QosClass>, name: &str) -> String {
    match qos {
        Some(QosClass::Lse | QosClass::Lsr | QosClass::Ls) => format!("{LATENCY_SENSITIVE}/{name}"),
        Some(QosClass::Be) => format!("{BEST_EFFORT}/{name}"),
        Some(QosClass::System) | None => name.to_owned(),
    }
}

/// A path below its base, without empty parts.
fn inside(path: &str) -> Result<String, String> {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.is_empty() {
        return Err("it names no cgroup of its own; say parentDir and relativePath".into());
    }
    if parts.contains(&"..") {
        return Err(format!("`{path}` leads out of its base"));
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value, pool: &str) -> (Vec<Application>, Vec<Note>) {
        Application::read(&config.to_string(), &BTreeMap::from([("pool".to_owned(), pool.to_owned())]))
    }

    #[test]
    fn a_cgroup_follows_from_class_and_name_or_is_said() {
        let at = |base: &str| json!({"base": base, "parentDir": "/etc/", "relativePath": "x//y/"});
        for (fields, tier, cgroup) in [
            (json!({"name": "n"}), None, "n"),
            (json!({"name": "n", "qos": "SYSTEM"}), None, "n"),
            (json!({"name": "n", "qos": "LSR"}), None, "host-latency-sensitive/n"),
            (json!({"name": "n", "qos": "BE"}), None, "host-best-effort/n"),
            (json!({"name": "n", "qos": "BE", "cgroupPath": {"relativePath": "own"}}), None, "own"),
            (json!({"name": "n", "cgroupPath": at("CgroupRoot")}), None, "etc/x/y"),
            (json!({"name": "n", "cgroupPath": at("Kubepods")}), Some(Tier::Guaranteed), "etc/x/y"),
            (json!({"name": "n", "cgroupPath": at("KubepodsBurstable")}), Some(Tier::Burstable), "etc/x/y"),
            (json!({"name": "n", "cgroupPath": at("KubepodsBesteffort")}), Some(Tier::BestEffort), "etc/x/y"),
        ] {
            let (applications, notes) = read(&json!({"applications": [fields]}), "");
            assert_eq!((applications[0].tier, applications[0].cgroup.as_str()), (tier, cgroup), "{fields}: {notes:?}");
        }
    }

    #[test]
    fn the_first_entry_for_the_node_takes_the_place_of_all() {
        let one = |name: &str| json!([{"name": name}]);
        let entry = |pool: &str, name: &str| json!({"nodeSelector": {"matchLabels": {"pool": pool}}, "applications": one(name)});
        let config = json!({
            "applications": one("every"),
            "nodeConfigs": [{"applications": one("nobodys")}, entry("a", "first"), entry("a", "second"), entry("b", "other")],
        });
        for (pool, expected) in [("a", "first"), ("b", "other"), ("c", "every")] {
            let (applications, notes) = read(&config, pool);
            assert_eq!(applications.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [expected]);
            assert_eq!(notes.len(), 1, "the entry without a selector is told: {notes:?}");
        }
    }

    #[test]
    fn unknown_fields_and_words_are_remarks_on_an_application_that_counts() {
        for (fields, path, said) in [
            (json!({"name": "n", "qosClass": "LS"}), ".qosClass", "unknown field"),
            (
                json!({"name": "n", "cgroupPath": {"relativPath": "x", "parentDir": "y"}}),
                ".cgroupPath.relativPath",
                "`relativePath`",
            ),
            (json!({"name": "n", "priority": "koord-prd"}), ".priority", "`koord-prd` is no priority class"),
        ] {
            let (applications, notes) = read(&json!({"applications": [fields]}), "");
            assert_eq!((applications.len(), notes.len()), (1, 1), "{fields}: {notes:?}");
            let (place, message) = &notes[0];
            assert_eq!(*place, format!("applications[0]{path}"));
            assert!(message.contains(said) && !message.contains("the system's"), "{message}");
        }
        let good = json!({"name": "n", "priority": "koord-free", "qos": null, "colour": null});
        assert_eq!(read(&json!({"applications": [good]}), "").1, []);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_others_count() {
        let good = json!({"name": "good"});
        for (bad, path) in [
            (json!(1), "applications[0]"),
            (json!({}), "applications[0]"),
            (json!({"name": "good"}), "applications[1]"),
            (json!({"name": 5}), "applications[0].name"),
            (json!({"name": "x", "qos": "ls"}), "applications[0].qos"),
            (json!({"name": "x", "cgroupPath": 1}), "applications[0].cgroupPath"),
            (json!({"name": "x", "cgroupPath": {"base": "kubepods"}}), "applications[0].cgroupPath.base"),
            (json!({"name": "x", "cgroupPath": {"base": "Kubepods"}}), "applications[0].cgroupPath"),
            (json!({"name": "x", "cgroupPath": {"relativePath": "a/../../b"}}), "applications[0].cgroupPath"),
            (json!({"name": "..", "qos": "BE"}), "applications[0].cgroupPath"),
        ] {
            let (applications, notes) = read(&json!({"applications": [bad, good]}), "");
            assert_eq!(applications.len(), 1, "{bad}");
            assert_eq!(notes.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), [path], "{bad}: {notes:?}");
        }
        assert_eq!(read(&json!({"applications": 1, "nodeConfigs": {}}), "").1.len(), 2);
    }
}
