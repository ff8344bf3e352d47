//! Properties that hold for any annotation, checked by the fuzz target in `fuzz/` and by this crate's tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::{CompiledProtocol, ConfigMap, Layers};
use crate::pod::{KubeQos, Node, Pod, PodLifecycle};
use crate::protocol::{Preset, Protocol};
use crate::unit::{Bytes, MilliCpu};

const KEY: &str = "example.com/policy";

/// Checks [`Layers::for_pod`] with an annotation: its values fit the schema, each has an origin, and an unusable
/// annotation changes nothing and is reported.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn annotation(text: &str) {
    static LAYERS: LazyLock<[Layers; 2]> = LazyLock::new(|| [true, false].map(layers));
    for layers in &*LAYERS {
        let pod = pod([(KEY.to_owned(), text.to_owned())].into());
        let effective = layers.for_pod(&pod);
        assert_eq!(effective, layers.for_pod(&pod), "read twice");
        assert_eq!(
            layers.protocol.check(&effective.values, &qosm_schema::Budget::of(u64::MAX)),
            [],
            "{:?}",
            effective.values
        );

        let fields: BTreeSet<&str> = effective.values.keys().map(String::as_str).collect();
        let origins: BTreeSet<&str> = effective.origins.keys().filter_map(|path| path.split('.').next()).collect();
        assert_eq!(fields, origins);

        for problem in &effective.problems {
            assert_eq!(problem.object, "pod default/web");
            assert!(problem.field.as_ref().is_some_and(|field| field.starts_with("annotation ")), "{problem}");
            assert!(!problem.message.is_empty());
        }
        let beneath = layers.for_pod(&self::pod(BTreeMap::new()));
        if !effective.is_annotated() && effective.values != beneath.values {
            // The only silent change comes from a word whose preset stands alone and is empty.
            assert!(effective.values.is_empty(), "{:?}", effective.values);
        }
        match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(_) => {}
            Err(_) if text.trim() == "null" => {}
            Err(_) => {
                assert_eq!((&effective.values, &effective.origins), (&beneath.values, &beneath.origins));
                assert!(!effective.problems.is_empty(), "nobody is told");
            }
        }
    }
}

/// Layers of a policy with classes, presets and a ConfigMap, or of a policy without any of them.
fn layers(with_classes: bool) -> Layers {
    let object = |value: Value| value.as_object().cloned().unwrap_or_default();
    let fields = json!({"percent": 40, "limits": {"read": 1, "write": 2}});
    let classes = json!({"lsrClass": fields, "lsClass": fields, "beClass": fields, "systemClass": {}});
    let whole = json!({"type": "integer", "minimum": 0, "maximum": 100});
    let mut protocol = Protocol {
        annotation_keys: vec![KEY.into(), "example.org/policy".into()],
        config_map_key: Some("policy-config".into()),
        class_field: None,
        namespace_list_key: None,
        defaults: object(fields),
        presets: Vec::new(),
        schema: json!({"type": "object", "properties": {
            "policy": {"enum": ["auto", "default", "none", "some"]},
            "percent": whole, "on": {"type": "boolean"}, "enable": {"type": "boolean"},
            "names": {"type": "array", "items": {"type": "string"}},
            "limits": {"type": "object", "properties": {"read": whole, "write": whole}},
        }}),
        node_only_fields: vec!["enable".into()],
    };
    let mut strategy = json!({"clusterStrategy": {"percent": 60}});
    if with_classes {
        protocol.class_field = Some("policy".into());
        protocol.defaults = object(classes.clone());
        protocol.presets = vec![
            Preset { policy: "auto".into(), values: object(classes), alone: false },
            Preset { policy: "none".into(), values: Map::new(), alone: true },
        ];
        strategy = json!({"clusterStrategy": {"lsClass": {"policy": {"enable": true, "percent": 60}}}});
    }
    let map = ConfigMap {
        namespace: Some("kube-system".into()),
        name: "ack-slo-config".into(),
        data: [("policy-config".to_owned(), strategy.to_string())].into(),
    };
    let compiled = CompiledProtocol::compile(protocol).unwrap_or_else(|problem| unreachable!("{problem}"));
    let (layers, problems) = Layers::build(Arc::new(compiled), &[map], &Node::default(), None);
    assert_eq!(problems, []);
    layers
}

fn pod(annotations: BTreeMap<String, String>) -> Pod {
    Pod {
        uid: "1".into(),
        namespace: "default".into(),
        name: "web".into(),
        labels: BTreeMap::new(),
        annotations,
        priority: None,
        kube_qos: KubeQos::Burstable,
        active: true,
        host_pid: false,
        cgroup: None,
        containers: Vec::new(),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_for_any_text(text: String) {
            annotation(&text);
        }

        #[test]
        fn it_holds_for_what_looks_like_an_annotation(
            text in "\\{?(\"(policy|percent|on|enable|names|limits|limits.read|x)\": ?\
                     (\"(auto|none|some|default|)\"|-?[0-9]{1,20}(.5)?|true|null|\\{(\"(read|x)\": ?[0-9]{1,3})?\\}|\\[\"a\"?\\]),?){0,3}\\}?",
        ) {
            annotation(&text);
        }
    }
}
