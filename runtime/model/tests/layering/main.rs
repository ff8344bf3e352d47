//! Effective configuration: valid annotations and ConfigMaps, merged layers, and refusals.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod annotations;
mod bounds;
mod config_maps;
mod laws;
mod namespaces;
mod nodes;
mod precedence;
mod protocols;

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_model::layering::{CompiledProtocol, ConfigMap, Effective, Layers};
use qosm_model::pod::{KubeQos, Node, Pod, PodLifecycle};
use qosm_model::problem::Problem;
use qosm_model::protocol::{Preset, Protocol};
use qosm_model::unit::{Bytes, MilliCpu};
use serde_json::{Map, Value, json};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

fn whole(least: i64, most: i64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// Memory QoS: classes, presets, namespace lists.
fn memory() -> Protocol {
    let classes = json!({
        "lsrClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25},
        "lsClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25},
        "beClass": {"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": 50},
        "systemClass": {},
    });
    Protocol {
        annotation_keys: vec!["koordinator.sh/memoryQOS".into(), "alibabacloud.com/memoryQOS".into()],
        config_map_key: Some("resource-qos-config".into()),
        class_field: Some("memoryQOS".into()),
        namespace_list_key: Some("memory-qos".into()),
        defaults: object(classes.clone()),
        presets: vec![
            Preset { policy: "auto".into(), values: object(classes), alone: false },
            Preset { policy: "none".into(), values: Map::new(), alone: true },
        ],
        schema: json!({"type": "object", "properties": {
            "policy": {"enum": ["auto", "default", "none"]},
            "minLimitPercent": whole(0, 100), "lowLimitPercent": whole(0, 100), "throttlingPercent": whole(0, 100),
            "wmarkRatio": whole(0, 100), "wmarkScalePermill": whole(1, 1000), "wmarkMinAdj": whole(-25, 50),
            "pageCacheEnable": {"type": "boolean"}, "pageCacheLimitSize": {"type": "integer"},
        }}),
        node_only_fields: vec!["enable".into()],
    }
}

/// CPU Burst: one strategy, no presets.
fn burst() -> Protocol {
    Protocol {
        annotation_keys: vec!["koordinator.sh/cpuBurst".into(), "alibabacloud.com/cpuBurst".into()],
        config_map_key: Some("cpu-burst-config".into()),
        class_field: None,
        namespace_list_key: Some("cpu-burst".into()),
        defaults: object(json!({
            "policy": "none", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300, "cfsQuotaBurstPeriodSeconds": -1,
            "sharePoolThresholdPercent": 50,
        })),
        presets: vec![],
        schema: json!({"type": "object", "properties": {
            "policy": {"enum": ["none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"]},
            "cpuBurstPercent": whole(1, 10000),
            "cfsQuotaBurstPercent": {"type": "integer", "minimum": 100},
            "cfsQuotaBurstPeriodSeconds": {"type": "integer", "minimum": -1},
            "sharePoolThresholdPercent": whole(0, 100),
        }}),
        node_only_fields: vec!["sharePoolThresholdPercent".into()],
    }
}

/// A protocol of another author: nested objects, lists, words that the schema does not list.
fn foreign() -> Protocol {
    Protocol {
        annotation_keys: vec!["example.com/io".into()],
        config_map_key: Some("io-config".into()),
        class_field: None,
        namespace_list_key: None,
        defaults: object(json!({"weight": 1, "limits": {"read": {"bps": 10, "iops": 1}, "write": {"bps": 20}}})),
        presets: vec![Preset { policy: "fast".into(), values: object(json!({"weight": 9})), alone: false }],
        schema: json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["weight"],
            "properties": {
                "weight": {"type": "integer", "exclusiveMinimum": 0},
                "devices": {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {
                    "name": {"type": "string"}, "share": {"type": "integer"}}}},
                "limits": {"$ref": "#/$defs/Limits"},
                "ratio": {"type": "number"},
                "tags": {"type": "object", "additionalProperties": {"type": "string"}},
                "boost": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
            },
            "$defs": {
                "Limits": {"type": "object", "properties": {
                    "read": {"$ref": "#/$defs/Limit"}, "write": {"$ref": "#/$defs/Limit"}}},
                "Limit": {"type": "object", "properties": {"bps": {"type": "integer"}, "iops": {"type": "integer"}}},
            },
        }),
        node_only_fields: vec![],
    }
}

fn compiled(protocol: Protocol) -> Arc<CompiledProtocol> {
    Arc::new(CompiledProtocol::compile(protocol).unwrap())
}

fn map(key: &str, data: &[(&str, &str)]) -> ConfigMap {
    let (namespace, name) = match key.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, key),
    };
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    ConfigMap { namespace, name: name.to_owned(), data }
}

/// The product's ConfigMap with one key.
fn ack(key: &str, text: &str) -> ConfigMap {
    map("kube-system/ack-slo-config", &[(key, text)])
}

fn build(protocol: Protocol, maps: &[ConfigMap]) -> (Layers, Vec<String>) {
    let (layers, problems) = Layers::build(compiled(protocol), maps, &Node::default(), None);
    (layers, texts(&problems))
}

/// Layers of ConfigMaps without problems.
fn built(protocol: Protocol, maps: &[ConfigMap]) -> Layers {
    let (layers, problems) = build(protocol, maps);
    assert_eq!(problems, Vec::<String>::new());
    layers
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

fn pod() -> Pod {
    Pod {
        uid: "uid1".into(),
        namespace: "default".into(),
        name: "web".into(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        priority: None,
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: vec![],
        cpu_overhead: MilliCpu(0),
        memory_overhead: Bytes(0),
        memory_request: None,
        memory_limit: None,
        cpu_limit: None,
        cpu_request: None,
        next: None,
        resize: None,
        lifecycle: PodLifecycle::default(),
    }
}

fn annotated(key: &str, text: &str) -> Pod {
    Pod { annotations: [(key.to_owned(), text.to_owned())].into(), ..pod() }
}

fn origins(effective: &Effective) -> String {
    effective.origins.iter().map(|(field, layer)| format!("{field} <- {layer}\n")).collect()
}
