//! The messages of the protocol, as far as the plug-in reads and writes them: `proto/api.proto`, package `nri.pkg.api.v1alpha1`. Fields
//! that are not declared here are skipped.

use std::collections::HashMap;

use prost::Message;

pub(crate) const PLUGIN_SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
pub(crate) const RUNTIME_SERVICE: &str = "nri.pkg.api.v1alpha1.Runtime";

/// The numbers of `enum Event`.
pub(crate) mod event {
    pub(crate) const RUN_POD_SANDBOX: i32 = 1;
    pub(crate) const CREATE_CONTAINER: i32 = 4;
    pub(crate) const POST_CREATE_CONTAINER: i32 = 5;
    pub(crate) const START_CONTAINER: i32 = 6;
    pub(crate) const POST_UPDATE_CONTAINER: i32 = 9;
    pub(crate) const STOP_CONTAINER: i32 = 10;
    pub(crate) const REMOVE_CONTAINER: i32 = 11;
}

/// The number of `ContainerState.CONTAINER_RUNNING`.
pub(crate) const CONTAINER_RUNNING: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RegisterPluginRequest {
    #[prost(string, tag = "1")]
    pub(crate) plugin_name: String,
    #[prost(string, tag = "2")]
    pub(crate) plugin_idx: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConfigureRequest {
    #[prost(string, tag = "2")]
    pub(crate) runtime_name: String,
    #[prost(string, tag = "3")]
    pub(crate) runtime_version: String,
    #[prost(string, tag = "6")]
    pub(crate) nri_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ConfigureResponse {
    #[prost(int32, tag = "2")]
    pub(crate) events: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SynchronizeRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pods: Vec<PodSandbox>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) containers: Vec<Container>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SynchronizeResponse {
    #[prost(bool, tag = "2")]
    pub(crate) more: bool,
}

/// Create, PostCreate, Start, PostStart, Update, PostUpdate, Stop and Remove of containers: each has a request of its own, which begins
/// with these fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ContainerRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "2")]
    pub(crate) container: Option<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StateChangeEvent {
    #[prost(int32, tag = "1")]
    pub(crate) event: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "3")]
    pub(crate) container: Option<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) uid: String,
    #[prost(string, tag = "4")]
    pub(crate) namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_sandbox_id: String,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(int32, tag = "4")]
    pub(crate) state: i32,
    #[prost(message, optional, tag = "11")]
    pub(crate) linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LinuxContainer {
    #[prost(message, optional, tag = "3")]
    pub(crate) resources: Option<LinuxResources>,
    #[prost(string, tag = "5")]
    pub(crate) cgroups_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LinuxResources {
    #[prost(message, optional, tag = "1")]
    pub(crate) memory: Option<LinuxMemory>,
    #[prost(message, optional, tag = "2")]
    pub(crate) cpu: Option<LinuxCPU>,
    #[prost(message, optional, tag = "5")]
    pub(crate) rdt_class: Option<OptionalString>,
    #[prost(map = "string, string", tag = "6")]
    pub(crate) unified: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LinuxMemory {
    #[prost(message, optional, tag = "1")]
    pub(crate) limit: Option<OptionalInt64>,
    #[prost(message, optional, tag = "2")]
    pub(crate) reservation: Option<OptionalInt64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LinuxCPU {
    #[prost(message, optional, tag = "1")]
    pub(crate) shares: Option<OptionalUInt64>,
    #[prost(message, optional, tag = "2")]
    pub(crate) quota: Option<OptionalInt64>,
    #[prost(message, optional, tag = "3")]
    pub(crate) period: Option<OptionalUInt64>,
    #[prost(string, tag = "6")]
    pub(crate) cpus: String,
    #[prost(string, tag = "7")]
    pub(crate) mems: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OptionalString {
    #[prost(string, tag = "1")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OptionalInt64 {
    #[prost(int64, tag = "1")]
    pub(crate) value: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct OptionalUInt64 {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use regex::Regex;

    use super::*;

    /// The fields of each message: number to type and name.
    type Messages = BTreeMap<String, BTreeMap<u32, (String, String)>>;

    fn published() -> Messages {
        let text = include_str!("../proto/api.proto");
        let field = Regex::new(r"^\s*(repeated )?(map<[^>]+>|\w+)\s+(\w+)\s*=\s*(\d+);").unwrap();
        let mut messages = Messages::new();
        let mut current = None;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("message ") {
                current = Some(name.trim_end_matches('}').trim_end_matches('{').trim().to_owned());
            } else if line.starts_with('}') {
                current = None;
            } else if let (Some(message), Some(found)) = (&current, field.captures(line)) {
                let kind = format!("{}{}", found.get(1).map_or("", |found| found.as_str()), found[2].replace(' ', ""));
                let number = found[4].parse().unwrap();
                messages.entry(message.clone()).or_default().insert(number, (kind, found[3].to_lowercase()));
            }
        }
        messages
    }

    fn declared() -> Messages {
        let text = include_str!("messages.rs");
        let text = text.split("#[cfg(test)]").next().unwrap();
        let attribute = Regex::new(r#"#\[prost\((.*), tag = "(\d+)"\)\]"#).unwrap();
        let field = Regex::new(r"pub\(crate\) (\w+): (?:Option<|Vec<)?(\w+)").unwrap();
        let mut messages = Messages::new();
        let (mut current, mut pending) = (String::new(), None);
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("pub(crate) struct ") {
                current = name.trim_end_matches(" {").to_owned();
            } else if let Some(found) = attribute.captures(line) {
                pending = Some((found[1].to_owned(), found[2].parse::<u32>().unwrap()));
            } else if let (Some((kind, number)), Some(found)) = (pending.take(), field.captures(line)) {
                let kind = match kind.as_str() {
                    "message, optional" => found[2].to_owned(),
                    "message, repeated" => format!("repeated {}", &found[2]),
                    "map = \"string, string\"" => "map<string,string>".to_owned(),
                    plain => plain.to_owned(),
                };
                messages.entry(current.clone()).or_default().insert(number, (kind, found[1].to_owned()));
            }
        }
        messages
    }

    #[test]
    fn each_field_is_the_published_one() {
        let (published, declared) = (published(), declared());
        let of_requests = ["Create", "PostCreate", "Start", "PostStart", "Update", "PostUpdate", "Stop", "Remove"];
        let mut compared = 0;
        for (message, fields) in &declared {
            let names: Vec<String> = match message.as_str() {
                "ContainerRequest" => of_requests.iter().map(|verb| format!("{verb}ContainerRequest")).collect(),
                name => vec![name.to_owned()],
            };
            for name in names {
                let known = published.get(&name).unwrap_or_else(|| panic!("{name} is not published"));
                for (number, (kind, field)) in fields {
                    let (published_kind, published_field) = &known[number];
                    assert_eq!(published_field, field, "{name} {number}");
                    // An enumeration travels as int32.
                    let is_enum = ["Event", "ContainerState"].contains(&published_kind.as_str()) && kind == "int32";
                    assert!(is_enum || published_kind == kind, "{name}.{field}: {kind}, published {published_kind}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 50, "{compared}");
    }

    #[test]
    fn each_number_is_the_published_one() {
        let text = include_str!("../proto/api.proto");
        for (name, number) in [
            ("RUN_POD_SANDBOX", event::RUN_POD_SANDBOX),
            ("POST_UPDATE_CONTAINER", event::POST_UPDATE_CONTAINER),
            ("CREATE_CONTAINER", event::CREATE_CONTAINER),
            ("POST_CREATE_CONTAINER", event::POST_CREATE_CONTAINER),
            ("START_CONTAINER", event::START_CONTAINER),
            ("STOP_CONTAINER", event::STOP_CONTAINER),
            ("REMOVE_CONTAINER", event::REMOVE_CONTAINER),
            ("CONTAINER_RUNNING", CONTAINER_RUNNING),
        ] {
            let line = format!("  {name} = {number};");
            assert!(text.lines().any(|known| known.starts_with(&line)), "{line}");
        }
        assert!(text.contains("package nri.pkg.api.v1alpha1;"));
    }
}
