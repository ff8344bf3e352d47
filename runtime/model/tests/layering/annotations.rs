//! Annotations that are used, and annotations that are refused.

use super::*;

const MEMORY: &str = "koordinator.sh/memoryQOS";
const BURST: &str = "koordinator.sh/cpuBurst";

fn enabled() -> Layers {
    built(
        memory(),
        &[ack(
            "resource-qos-config",
            r#"{"clusterStrategy":{"lsClass":{"memoryQOS":{"enable":true,"lowLimitPercent":7}}}}"#,
        )],
    )
}

/// Checks the result of an annotation for a class with 95 % and `low` 7 %.
fn check(text: &str, expected: Value, problems: &[&str]) {
    let effective = enabled().for_pod(&annotated(MEMORY, text));
    let mut values =
        object(json!({"wmarkRatio": 95, "wmarkScalePermill": 20, "wmarkMinAdj": -25, "lowLimitPercent": 7}));
    match expected {
        Value::Object(changed) => values.extend(changed),
        _ => values.clear(),
    }
    assert_eq!(effective.values, values, "{text}");
    let messages = texts(&effective.problems);
    assert_eq!(messages.len(), problems.len(), "{text}: {messages:?}");
    for (problem, part) in messages.iter().zip(problems) {
        assert!(problem.starts_with("pod default/web: annotation koordinator.sh/memoryQOS"), "{problem}");
        assert!(problem.contains(part), "{text}: {problem}");
    }
}

#[test]
fn a_good_annotation_is_put_on_top() {
    check(r#"{"lowLimitPercent": 50}"#, json!({"lowLimitPercent": 50}), &[]);
    check(
        r#" { "minLimitPercent" : 1 , "pageCacheEnable" : false } "#,
        json!({"minLimitPercent": 1, "pageCacheEnable": false}),
        &[],
    );
    check(
        r#"{"pageCacheLimitSize": 9223372036854775807}"#,
        json!({"pageCacheLimitSize": 9223372036854775807_i64}),
        &[],
    );
}

#[test]
fn explicit_zero_and_false_are_kept() {
    check(r#"{"lowLimitPercent": 0, "wmarkRatio": 0}"#, json!({"lowLimitPercent": 0, "wmarkRatio": 0}), &[]);
}

#[test]
fn null_counts_as_absent() {
    for text in ["null", "{}", r#"{"lowLimitPercent": null}"#, r#"{"unheardOf": null}"#, r#"{"policy": null}"#] {
        check(text, json!({}), &[]);
    }
    check(r#"{"lowLimitPercent": 3, "lowLimitPercent": null}"#, json!({}), &[]);
}

#[test]
fn a_null_under_one_key_does_not_hide_the_other() {
    let (first, second) = (MEMORY, "alibabacloud.com/memoryQOS");
    for (nothing, text) in [(first, second), (second, first)] {
        let mut pod = annotated(text, r#"{"lowLimitPercent": 50}"#);
        pod.annotations.insert(nothing.to_owned(), " null\n".to_owned());
        let effective = enabled().for_pod(&pod);
        assert_eq!(
            (&effective.values["lowLimitPercent"], texts(&effective.problems)),
            (&json!(50), vec![]),
            "{nothing}"
        );
    }
}

#[test]
fn names_are_taken_in_any_letter_case_and_the_last_wins() {
    check(r#"{"lowlimitpercent": 50}"#, json!({"lowLimitPercent": 50}), &[]);
    check(r#"{"LOWLIMITPERCENT": 50, "lowLimitPercent": 60}"#, json!({"lowLimitPercent": 60}), &[]);
    check(r#"{"lowLimitPercent": 60, "LOWLIMITPERCENT": 50}"#, json!({"lowLimitPercent": 50}), &[]);
    check(r#"{"lowLimitPercent": 60, "lowLimitPercent": 50}"#, json!({"lowLimitPercent": 50}), &[]);
    check(r#"{"Policy": "default", "wmarkratio": 1}"#, json!({"wmarkRatio": 1}), &[]);
}

#[test]
fn what_cannot_be_used_voids_the_whole_annotation() {
    for (text, part) in [
        ("", "it is empty"),
        ("  ", "it is empty"),
        ("{", "it is not JSON"),
        (r#"{"lowLimitPercent": 50"#, "it is not JSON"),
        (r#"{"lowLimitPercent": 50} trailing"#, "it is not JSON"),
        (r#"{'lowLimitPercent': 50}"#, "it is not JSON"),
        ("auto", "it is not JSON"),
        (r#""auto""#, "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ("5", "`5` is not a JSON object"),
        (r#"{"lowLimitPercent": "50"}"#, r#"lowLimitPercent: `"50"` is not a whole number"#),
        (r#"{"lowLimitPercent": 50.5}"#, "lowLimitPercent: 50.5 is not a whole number"),
        (r#"{"lowLimitPercent": 50.0}"#, "lowLimitPercent: 50.0 is not a whole number"),
        (r#"{"lowLimitPercent": 5e1}"#, "lowLimitPercent: 50.0 is not a whole number"),
        (r#"{"lowLimitPercent": true}"#, "lowLimitPercent: true is not a whole number"),
        (r#"{"lowLimitPercent": [50]}"#, "lowLimitPercent: `[50]` is not a whole number"),
        (r#"{"lowLimitPercent": {}}"#, "lowLimitPercent: `{}` is not a whole number"),
        (r#"{"lowLimitPercent": 101}"#, "lowLimitPercent: 101 is above 100"),
        (r#"{"lowLimitPercent": -1}"#, "lowLimitPercent: -1 is below 0"),
        (r#"{"wmarkScalePermill": 0}"#, "wmarkScalePermill: 0 is below 1"),
        (r#"{"pageCacheEnable": 1}"#, "pageCacheEnable: 1 is not true or false"),
        (r#"{"pageCacheEnable": "true"}"#, "is not true or false"),
        (r#"{"pageCacheLimitSize": 9223372036854775808}"#, "9223372036854775808 is above 9223372036854775807"),
        (r#"{"pageCacheLimitSize": 1e30}"#, "is above 9223372036854775807"),
        (r#"{"pageCacheLimitSize": -99999999999999999999}"#, "is below -9223372036854775808"),
        (r#"{"policy": 1}"#, "policy: 1 is not known here"),
    ] {
        check(text, json!({}), &[part]);
        let rest = r#"{"wmarkRatio": 1, "#;
        if let Some(fields) = text.strip_prefix('{').filter(|fields| fields.ends_with('}')) {
            check(&format!("{rest}{fields}"), json!({}), &[part]);
        }
    }
}

#[test]
fn all_wrong_fields_are_named_at_once() {
    check(
        r#"{"lowLimitPercent": 101, "wmarkRatio": "1"}"#,
        json!({}),
        &["lowLimitPercent: 101", "wmarkRatio: `\"1\"`"],
    );
}

#[test]
fn an_unknown_field_is_reported_and_the_rest_applies() {
    check(r#"{"lowLimitPercen": 5, "wmarkRatio": 1}"#, json!({"wmarkRatio": 1}), &["did you mean `lowLimitPercent`?"]);
    check(r#"{"colour": {"a": [1]}, "wmarkRatio": 1}"#, json!({"wmarkRatio": 1}), &["colour: unknown field, ignored"]);
}

/// As in Koordinator's agent: an unknown word counts as absent for memory QoS, and as `none` for CPU Burst.
#[test]
fn an_unknown_word_is_reported_and_switches_nothing_on() {
    check(
        r#"{"policy": "Auto", "wmarkRatio": 1}"#,
        json!({"wmarkRatio": 1}),
        &["policy: `\"Auto\"` is not known here, did you mean `auto`; it counts as `default`; write one of"],
    );
    let maps = [ack("cpu-burst-config", r#"{"clusterStrategy": {"policy": "auto"}}"#)];
    for word in ["off", "Auto", "default"] {
        let text = format!(r#"{{"policy": "{word}", "cpuBurstPercent": 500}}"#);
        let effective = built(burst(), &maps).for_pod(&annotated(BURST, &text));
        assert_eq!((&effective.values["policy"], &effective.values["cpuBurstPercent"]), (&json!("none"), &json!(500)));
        let messages = texts(&effective.problems).join("\n");
        assert!(messages.contains("it counts as `none`; write one of `none`, `cpuBurstOnly`"), "{messages}");
    }
    let effective = built(burst(), &maps).for_pod(&annotated(BURST, r#"{"policy": ""}"#));
    assert_eq!((&effective.values["policy"], effective.problems.len()), (&json!("auto"), 0));
}

#[test]
fn node_only_fields_are_reported_and_ignored() {
    check(r#"{"enable": false, "wmarkRatio": 1}"#, json!({"wmarkRatio": 1}), &["enable: ignored: only ConfigMaps"]);
    check(r#"{"Enable": "nonsense"}"#, json!({}), &["Enable: ignored: only ConfigMaps"]);
    let layers = built(burst(), &[]);
    let effective = layers.for_pod(&annotated(BURST, r#"{"policy": "auto", "sharePoolThresholdPercent": 1000}"#));
    assert_eq!(effective.values["policy"], "auto");
    assert_eq!(effective.values["sharePoolThresholdPercent"], 50);
    insta::assert_snapshot!(texts(&effective.problems).join("\n"), @"pod default/web: annotation koordinator.sh/cpuBurst: sharePoolThresholdPercent: ignored: only ConfigMaps can set it, not annotations; the other fields count");
    for written in ["quotas", "sharePoolThreshold"] {
        let problems = layers.for_pod(&annotated(BURST, &json!({written: 1}).to_string())).problems;
        let [problem] = texts(&problems).try_into().unwrap_or_else(|problems| panic!("{problems:?}"));
        let hint = "unknown field, ignored; the other fields count; known here: cfsQuotaBurstPercent, ";
        assert!(problem.contains(hint) && !problem.contains("sharePoolThresholdPercent"), "{problem}");
    }
}

#[test]
fn problems_say_what_is_wrong_what_is_done_and_what_to_write() {
    let messages = |protocol: Protocol, key: &str, text: &str| {
        texts(&built(protocol, &[]).for_pod(&annotated(key, text)).problems).join("\n")
    };
    insta::assert_snapshot!(messages(burst(), BURST, r#"{"cpuBurstPercent": 20000}"#), @"pod default/web: annotation koordinator.sh/cpuBurst: cpuBurstPercent: 20000 is above 10000; the whole annotation is ignored and the next lower layer counts; write a whole number from 1 to 10000");
    insta::assert_snapshot!(messages(burst(), BURST, r#"{"cfsQuotaBurstPercent": 99}"#), @"pod default/web: annotation koordinator.sh/cpuBurst: cfsQuotaBurstPercent: 99 is below 100; the whole annotation is ignored and the next lower layer counts; write a whole number, at least 100");
    insta::assert_snapshot!(messages(burst(), BURST, r#"{"policy": "Auto"}"#), @r#"pod default/web: annotation koordinator.sh/cpuBurst: policy: `"Auto"` is not known here, did you mean `auto`; it counts as `none`; write one of `none`, `cpuBurstOnly`, `cfsQuotaBurstOnly`, `auto`"#);
    insta::assert_snapshot!(messages(burst(), BURST, r#"{"burstPercent": 5}"#), @"pod default/web: annotation koordinator.sh/cpuBurst: burstPercent: unknown field, ignored; the other fields count; did you mean `cpuBurstPercent`?");
    insta::assert_snapshot!(messages(burst(), BURST, ""), @"pod default/web: annotation koordinator.sh/cpuBurst: it is empty; the whole annotation is ignored and the next lower layer counts; write a JSON object (`{}` sets nothing), or remove it");
    insta::assert_snapshot!(messages(burst(), BURST, "{"), @"pod default/web: annotation koordinator.sh/cpuBurst: it is not JSON (EOF while parsing an object at line 1 column 1); the whole annotation is ignored and the next lower layer counts; mend it or remove it");
}

#[test]
fn the_first_key_wins_and_a_different_second_one_is_reported() {
    let both = |first: &str, second: &str| {
        let mut pod = annotated("koordinator.sh/cpuBurst", first);
        pod.annotations.insert("alibabacloud.com/cpuBurst".into(), second.into());
        built(burst(), &[]).for_pod(&pod)
    };
    let effective = both(r#"{"policy":"auto"}"#, r#"{"policy":"cpuBurstOnly"}"#);
    assert_eq!(effective.values["policy"], "auto");
    insta::assert_snapshot!(texts(&effective.problems).join("\n"), @"pod default/web: annotation alibabacloud.com/cpuBurst: ignored: annotation koordinator.sh/cpuBurst is there too, says something else and comes first; remove one");
    assert_eq!(both(r#"{"policy":"auto"}"#, r#" {"policy" : "auto"}"#).problems, []);
    // The first key wins even if its text cannot be used, so that a typing error does not change which key counts.
    let effective = both(r#"{"policy":"#, r#"{"policy":"auto"}"#);
    assert_eq!(effective.values["policy"], "none");
    assert_eq!(effective.problems.len(), 2);
}

#[test]
fn the_older_key_counts_alone() {
    let effective = built(burst(), &[]).for_pod(&annotated("alibabacloud.com/cpuBurst", r#"{"policy":"auto"}"#));
    assert_eq!(effective.values["policy"], "auto");
    assert_eq!(effective.origins["policy"].to_string(), "annotation alibabacloud.com/cpuBurst");
    assert_eq!(effective.problems, []);
}

#[test]
fn without_an_annotation_there_is_no_problem() {
    let effective = built(burst(), &[]).for_pod(&annotated("koordinator.sh/cpuQOS", "{"));
    assert_eq!(effective.problems, []);
    assert_eq!(Value::Object(effective.values), Value::Object(burst().defaults));
}
