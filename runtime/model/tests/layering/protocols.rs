//! Valid and invalid protocols, and protocols of other shapes than those of the default modules.

use super::*;

fn effective(text: &str) -> (Value, Vec<String>) {
    let effective = built(foreign(), &[]).for_pod(&annotated("example.com/io", text));
    (Value::Object(effective.values), texts(&effective.problems))
}

#[test]
fn objects_are_merged_to_any_depth_and_lists_replaced() {
    let config = r#"{"clusterStrategy": {"limits": {"read": {"iops": 5}}, "devices": [{"name": "a"}, {"name": "b"}]}}"#;
    let layers = built(foreign(), &[ack("io-config", config)]);
    let effective = layers.for_pod(&annotated(
        "example.com/io",
        r#"{"limits": {"READ": {"bps": 7, "iops": null}}, "devices": [{"name": "c"}]}"#,
    ));
    assert_eq!(effective.problems, []);
    assert_eq!(
        Value::Object(effective.values.clone()),
        json!({"weight": 1, "devices": [{"name": "c"}], "limits": {"read": {"bps": 7, "iops": 5}, "write": {"bps": 20}}})
    );
    insta::assert_snapshot!(origins(&effective), @r"
    devices <- annotation example.com/io
    limits.read.bps <- annotation example.com/io
    limits.read.iops <- ConfigMap kube-system/ack-slo-config: clusterStrategy
    limits.write.bps <- built-in default
    weight <- built-in default
    ");
}

#[test]
fn a_word_that_the_schema_does_not_show_is_only_what_it_stands_for() {
    assert_eq!(effective(r#"{"policy": "fast", "ratio": 1.5}"#), (json!({"weight": 9, "ratio": 1.5}), vec![]));
    let (values, problems) = effective(r#"{"policy": "slow"}"#);
    assert_eq!(values["weight"], 1);
    insta::assert_snapshot!(problems.join("\n"), @r#"pod default/web: annotation example.com/io: policy: `"slow"` is not a word that is known here; it counts as `default`; write one of `default`, `fast`"#);
}

#[test]
fn nested_mistakes_are_named_by_their_whole_path() {
    for (text, part) in [
        (r#"{"limits": {"read": {"bps": 1.0}}}"#, "limits.read.bps: 1.0 is not a whole number"),
        (r#"{"limits": {"read": {"bps": "1"}}}"#, "limits.read.bps: `\"1\"` is not a whole number"),
        (
            r#"{"limits": {"raed": {"bps": 1}}}"#,
            "limits.raed: unknown field, ignored; the other fields count; did you mean `read`?",
        ),
        (r#"{"limits": 5}"#, "limits: 5 is not a JSON object"),
        (r#"{"devices": [{"name": "a"}, {"share": 1}]}"#, "devices[1]: "),
        (r#"{"devices": [{"name": "a", "share": 1.0}]}"#, "devices[0].share: 1.0 is not a whole number"),
        (r#"{"tags": {"a": 5}}"#, "tags.a: 5 is not a string"),
        (r#"{"boost": -1}"#, "boost: -1 does not fit"),
        (r#"{"boost": 1.0}"#, "boost: 1.0 is not a whole number"),
        (r#"{"weight": 0}"#, "weight: 0 is not above 0"),
        (r#"{"extra": 1}"#, "extra: unknown field"),
    ] {
        let (values, problems) = effective(text);
        assert_eq!(values, Value::Object(foreign().defaults), "{text}");
        assert!(problems.len() == 1 && problems[0].contains(part), "{text}: {problems:?}");
    }
}

#[test]
fn open_objects_take_any_field() {
    let (values, problems) = effective(r#"{"tags": {"Any": "thing", "gone": null}, "boost": 3}"#);
    assert_eq!((&values["tags"], &values["boost"], problems), (&json!({"Any": "thing"}), &json!(3), vec![]));
}

#[test]
fn layers_that_fit_alone_but_not_together_are_refused() {
    let mut protocol = foreign();
    protocol.schema["dependentSchemas"] = json!({"boost": {"properties": {"ratio": {"maximum": 2}}}});
    let config = ack("io-config", r#"{"clusterStrategy": {"ratio": 3.5}}"#);
    let effective = built(protocol, &[config]).for_pod(&annotated("example.com/io", r#"{"boost": 1}"#));
    assert_eq!(effective.values.get("boost"), None);
    insta::assert_snapshot!(texts(&effective.problems).join("\n"), @"pod default/web: annotation example.com/io: ratio: 3.5 is above 2; the whole annotation is ignored and the next lower layer counts; write a number");
}

#[test]
fn an_effective_configuration_that_no_pod_can_have_is_refused_by_its_first_field() {
    let refusal = |protocol: Protocol, config: Value| compiled(protocol).refusal(&object(config));
    assert_eq!(refusal(burst(), json!({"policy": "auto", "cpuBurstPercent": 1})), None);
    assert_eq!(refusal(burst(), json!({"cpuburstpercent": 1})), None);
    assert_eq!(refusal(foreign(), json!({"tags": {"any": "thing"}})), None, "`weight` may be in another layer");
    let why = refusal(burst(), json!({"cpuBurstPercent": 0}));
    assert_eq!(why.as_deref(), Some("cpuBurstPercent: 0 is below 1; write a whole number from 1 to 10000"));
    let why = refusal(burst(), json!({"cpuBurstPercnt": 1}));
    assert_eq!(why.as_deref(), Some("`cpuBurstPercnt` is not in the schema; did you mean `cpuBurstPercent`?"));
}

#[test]
fn descriptions_that_contradict_themselves_are_refused() {
    fn refused(change: impl FnOnce(&mut Protocol), base: Protocol) -> String {
        let mut protocol = base;
        change(&mut protocol);
        CompiledProtocol::compile(protocol).err().map(|problem| problem.to_string()).unwrap_or_default()
    }
    let messages = [
        refused(|protocol| protocol.schema = json!({"type": "object"}), burst()),
        refused(|protocol| protocol.schema = json!({"properties": {"a": {"type": "whole"}}}), burst()),
        refused(
            |protocol| protocol.schema = json!({"properties": {"a": {"$ref": "https://example.com/schema"}}}),
            burst(),
        ),
        refused(|protocol| protocol.defaults = object(json!({"cpuBurstPercent": 0})), burst()),
        refused(|protocol| protocol.defaults = object(json!({"burst": 1})), burst()),
        refused(|protocol| protocol.defaults = object(json!({"lsClas": {}})), memory()),
        refused(|protocol| protocol.defaults = object(json!({"lsClass": {"wmarkRatio": 101}})), memory()),
        refused(|protocol| protocol.presets[0].values = object(json!({"beClass": {"colour": 1}})), memory()),
        refused(|protocol| protocol.presets[0].policy = "default".into(), memory()),
        refused(|protocol| protocol.presets[0].policy = "none".into(), memory()),
        refused(|protocol| protocol.presets[0].policy = "fast".into(), memory()),
        refused(|protocol| protocol.schema["properties"]["policy"] = json!({"enum": ["on"]}), burst()),
        refused(|protocol| protocol.annotation_keys.push(String::new()), burst()),
    ];
    insta::assert_snapshot!(messages.join("\n"), @r#"
    protocol: schema: it is not an object with `properties`; mend the description of the module
    protocol: schema: it is no JSON schema: "whole" is not valid under any of the schemas listed in the 'anyOf' keyword; mend the description of the module
    protocol: schema: `$ref` "https://example.com/schema" names no part of the schema; write `#/$defs/NAME`; mend the description of the module
    protocol: defaults: cpuBurstPercent: 0 is below 1; mend the description of the module
    protocol: defaults: `burst` is not in the schema; mend the description of the module
    protocol: defaults: `lsClas` is not one of `lsrClass`, `lsClass`, `beClass`, `systemClass`; mend the description of the module
    protocol: defaults: lsClass.wmarkRatio: 101 is above 100; mend the description of the module
    protocol: presets: auto: `beClass.colour` is not in the schema; mend the description of the module
    protocol: presets: default: `default` means that nothing is said and cannot stand for values; mend the description of the module
    protocol: presets: none: the word is described twice; mend the description of the module
    protocol: schema: the schema's `policy` does not take the word `fast`: `"fast"` is not known here; mend the description of the module
    protocol: defaults: policy: `"none"` is not known here; mend the description of the module
    protocol: annotation-keys: one of them is empty; mend the description of the module
    "#);
}
