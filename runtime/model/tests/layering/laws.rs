//! Properties that hold for any layers, and for generated texts.

use proptest::prelude::*;

use super::*;

/// A valid layer with some fields of the foreign protocol.
fn layer() -> impl Strategy<Value = Value> {
    let limit = || proptest::option::of((proptest::option::of(0..3i64), proptest::option::of(0..3i64)));
    (
        proptest::option::of(1..4i64),
        limit(),
        limit(),
        proptest::option::of(proptest::collection::vec("[ab]", 0..3)),
        proptest::option::of(proptest::collection::btree_map("[ab]", "[cd]", 0..3)),
    )
        .prop_map(|(weight, read, write, devices, tags)| {
            let limit =
                |limit: Option<(Option<i64>, Option<i64>)>| limit.map(|(bps, iops)| json!({"bps": bps, "iops": iops}));
            json!({
                "weight": weight,
                "limits": {"read": limit(read), "write": limit(write)},
                "devices": devices.map(|names| names.into_iter().map(|name| json!({"name": name})).collect::<Vec<_>>()),
                "tags": tags,
            })
        })
}

/// The merge rule in its simplest form.
fn merged(low: &Value, high: &Value) -> Value {
    match (low, high) {
        (_, Value::Null) => low.clone(),
        (Value::Object(low), Value::Object(high)) => {
            let mut sum = low.clone();
            for (name, high) in high {
                let value = merged(low.get(name).unwrap_or(&Value::Null), high);
                if !value.is_null() {
                    sum.insert(name.clone(), value);
                }
            }
            Value::Object(sum)
        }
        (_, Value::Object(_)) => merged(&json!({}), high),
        _ => high.clone(),
    }
}

fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if path.is_empty() || !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

/// The effective configuration of a cluster, a node and an annotation layer.
fn effective(cluster: &Value, node: &Value, annotation: &Value) -> Effective {
    let mut strategy = object(node.clone());
    strategy.insert("nodeSelector".into(), json!({}));
    let config = json!({"clusterStrategy": cluster, "nodeStrategies": [strategy]}).to_string();
    built(foreign(), &[ack("io-config", &config)]).for_pod(&annotated("example.com/io", &annotation.to_string()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn layers_are_merged_by_the_rule(cluster in layer(), node in layer(), annotation in layer()) {
        let effective = effective(&cluster, &node, &annotation);
        prop_assert_eq!(&effective.problems, &vec![]);
        let beneath = merged(&merged(&Value::Object(foreign().defaults), &cluster), &node);
        prop_assert_eq!(Value::Object(effective.values), merged(&beneath, &annotation));
    }

    #[test]
    fn saying_it_again_changes_nothing(cluster in layer(), annotation in layer()) {
        let once = effective(&cluster, &json!({}), &annotation);
        let twice = effective(&cluster, &cluster, &annotation);
        prop_assert_eq!(&once.values, &twice.values);
        let above = effective(&cluster, &annotation, &annotation);
        prop_assert_eq!(&once.values, &above.values);
    }

    #[test]
    fn every_leaf_has_an_origin_and_nothing_else_has(cluster in layer(), node in layer(), annotation in layer()) {
        let effective = effective(&cluster, &node, &annotation);
        let mut found = Vec::new();
        leaves(&Value::Object(effective.values), "", &mut found);
        found.sort();
        prop_assert_eq!(found, effective.origins.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn an_annotation_of_any_text_leaves_valid_values(text in any::<String>()) {
        let effective = built(burst(), &[]).for_pod(&annotated("koordinator.sh/cpuBurst", &text));
        prop_assert_eq!(effective.values.len(), 5);
    }

    #[test]
    fn an_annotation_of_any_json_leaves_valid_values(field in "(policy|cpuBurstPercent|[a-zA-Z.]{0,12})", value in json_value()) {
        let text = json!({field: value}).to_string();
        for (protocol, key) in [(burst(), "koordinator.sh/cpuBurst"), (memory(), "koordinator.sh/memoryQOS"), (foreign(), "example.com/io")] {
            let schema = protocol.schema.clone();
            let effective = built(protocol, &[]).for_pod(&annotated(key, &text));
            let mut values = effective.values;
            values.insert("weight".into(), json!(1));
            prop_assert!(jsonschema::is_valid(&schema, &Value::Object(values.clone())), "{values:?}");
        }
    }

    #[test]
    fn no_text_of_a_configmap_panics(text in any::<String>(), value in json_value()) {
        for text in [text, value.to_string(), json!({"clusterStrategy": value}).to_string(), json!({"nodeStrategies": [value]}).to_string()] {
            for protocol in [burst(), memory(), foreign()] {
                let keys = [protocol.config_map_key.clone(), protocol.namespace_list_key.clone()];
                let (annotation, schema) = (protocol.annotation_keys[0].clone(), protocol.schema.clone());
                let data: Vec<_> = keys.iter().flatten().map(|key| (key.as_str(), text.as_str())).collect();
                let maps = [map("kube-system/ack-slo-config", &data), map("kube-system/ack-slo-pod-config", &data)];
                let (layers, _) = build(protocol, &maps);
                let mut values = layers.for_pod(&annotated(&annotation, &text)).values;
                values.entry("weight").or_insert(json!(1));
                prop_assert!(jsonschema::is_valid(&schema, &Value::Object(values.clone())), "{values:?}");
            }
        }
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(
                "(nodeSelector|matchLabels|lsClass|memoryQOS|enable|policy|[a-z]{1,4})",
                inner,
                0..4
            )
            .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}
