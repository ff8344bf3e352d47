//! Limits of functions: without them each of these calls would run for hours or fill the memory.

use std::time::Duration;

use qosm_rego::{Context, Value, builtin, limit};
use rustix::time::{ClockId, clock_gettime};

/// Maximum CPU time: far more than a call takes, far less than it would take without its limit.
const MAX_DURATION: Duration = Duration::from_millis(250);

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

fn call(name: &str, arguments: &[&str]) -> Result<Option<Value>, String> {
    let arguments: Vec<Value> = arguments.iter().map(|text| Value::parse(text).unwrap()).collect();
    let builtin = builtin(name).unwrap();
    // The fastest of several calls, since a call may take more CPU time on a busy machine.
    let mut quickest = Duration::MAX;
    for _ in 0..10 {
        let begun = cpu_time();
        let given = builtin.call(&arguments, &Context::new(0)).map_err(|error| error.to_string());
        quickest = quickest.min(cpu_time() - begun);
        if quickest < MAX_DURATION {
            return given;
        }
    }
    panic!("{name} took {quickest:?}")
}

#[track_caller]
fn refused(name: &str, arguments: &[&str]) {
    let given = call(name, arguments);
    assert!(given.is_err(), "{name} gave {:?}", given.map(|value| value.map(|value| value.type_name())));
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn array(elements: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", elements.into_iter().collect::<Vec<_>>().join(", "))
}

#[test]
fn texts_do_not_grow_without_bound() {
    refused("sprintf", &[&quoted(&"%1000000d".repeat(1000)), &array((0..1000).map(|n| n.to_string()))]);
    refused("sprintf", &[r#""%*d%*d""#, "[1000000, 1, 1000000, 1]"]);
    refused("sprintf", &[r#""%.1000000f%.1000000f""#, "[0.1, 0.1]"]);
    refused("sprintf", &[r#""""#, &array((0..200_000).map(|n| n.to_string()))]);
    refused("regex.replace", &[&quoted(&"a".repeat(8_000)), r#""a""#, &quoted(&"${0}b".repeat(1000))]);
    refused(
        "json.marshal_with_options",
        &["[[[[1, 2]]]]", &format!("{{\"indent\": {}}}", quoted(&" ".repeat(400_000)))],
    );
    refused("hex.encode", &[&quoted(&"a".repeat(600_000))]);
    refused("urlquery.encode", &[&quoted(&" ".repeat(600_000))]);
    refused("time.format", &[&format!("[0, \"\", {}]", quoted(&"January".repeat(300_000)))]);
    refused("units.parse", &[r#""1e999999""#]);
    refused("units.parse_bytes", &[r#""1e999999""#]);
    refused(
        "yaml.marshal",
        &[&format!("{}{}", "[".repeat(250), "]".repeat(250)).replace("[]", &array((0..60_000).map(|n| n.to_string())))],
    );
}

#[test]
fn collections_do_not_grow_without_bound() {
    refused("numbers.range_step", &["0", "1000000000000", "1"]);
    refused("numbers.range_step", &["0", "1e4000", "1"]);
    refused("net.cidr_expand", &[r#""10.0.0.0/8""#]);
    refused("net.cidr_expand", &[r#""::/0""#]);
    refused("strings.split_n", &[&quoted(&",".repeat(500_000)), r#"",""#, "-1"]);
    refused("indexof_n", &[&quoted(&"a".repeat(500_000)), r#""a""#]);
    let whole = call("net.cidr_expand", &[r#""10.0.0.0/18""#]).unwrap().unwrap();
    assert_eq!(whole.as_set().map(|set| set.len()), Some(16_384));
}

#[test]
fn what_doubles_with_each_step_ends() {
    let doubling = array((0..64).map(|n| format!(r#"{{"op": "copy", "from": "", "path": "/{n}"}}"#)));
    refused("json.patch", &["{}", &doubling]);
    let deepening =
        array((0..1000).map(|_| {
            r#"{"op": "add", "path": "", "value": [1]}, {"op": "copy", "from": "", "path": "/0"}"#.to_owned()
        }));
    assert!(call("json.patch", &["[]", &deepening]).is_ok());
    let mut path = String::new();
    let deeper = array((0..400).map(|_| {
        path.push_str("/a");
        format!(r#"{{"op": "add", "path": "{path}", "value": {{}}}}"#)
    }));
    refused("json.patch", &["{}", &deeper]);

    let layers = (0..30)
        .map(|n| format!("\"{n}\": [\"{}a\", \"{}b\"], \"{n}a\": [\"{}\"], \"{n}b\": [\"{}\"]", n, n, n + 1, n + 1));
    refused("graph.reachable_paths", &[&format!("{{{}}}", layers.collect::<Vec<_>>().join(", ")), r#"["0"]"#]);

    let definitions = (0..40).map(|n| {
        format!(r##""{n}": {{"anyOf": [{{"$ref": "#/definitions/{0}"}}, {{"$ref": "#/definitions/{0}"}}]}}"##, n + 1)
    });
    let definitions = definitions.collect::<Vec<_>>().join(", ");
    let schema =
        format!(r##"{{"$ref": "#/definitions/0", "definitions": {{{definitions}, "40": {{"type": "null"}}}}}}"##);
    refused("json.match_schema", &["{}", &schema]);
    refused("json.match_schema", &["{}", r##"{"$ref": "#"}"##]);
    refused("json.match_schema", &["{}", r#"{"$ref": "http://localhost/x"}"#]);

    let bomb = (0..20).map(|n| match n {
        0 => "a0: &a0 [x, x]\n".to_owned(),
        n => format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1),
    });
    refused("yaml.unmarshal", &[&quoted(&bomb.collect::<String>())]);
    refused("yaml.unmarshal", &[&quoted(&"[".repeat(100_000))]);
}

#[test]
fn searches_end() {
    let text = quoted(&"a".repeat(8_192));
    call("regex.find_n", &[r#""(a*)*b""#, &text, "-1"]).unwrap();
    refused("regex.find_n", &[r#"".*[^A-Za-z]|[a-z]""#, &text, "-1"]);
    refused("regex.replace", &[&text, r#""(.*)(.*)(.*)(.*)(.*)[^a]|(a)""#, r#""$6""#]);
    let text = quoted(&"ab ".repeat(10_000));
    let found = call("regex.find_n", &[r#""[a-z]+""#, &text, "-1"]).unwrap().unwrap();
    assert_eq!(found.as_array().map(<[_]>::len), Some(10_000));
    refused("regex.find_n", &[r#""a""#, &quoted(&"a".repeat(200_000)), "-1"]);
    refused("regex.find_n", &[r#""((a{100}){100}){100}""#, r#""a""#, "1"]);
    refused("regex.find_n", &[&quoted(&"(a|b)*".repeat(1000)), r#""a""#, "1"]);
    refused("regex.find_n", &[&quoted(&"(".repeat(4_000)), r#""a""#, "1"]);
    refused("regex.globs_match", &[&quoted(&"a*".repeat(1_000)), &quoted(&format!("{}b", "a*".repeat(1_000)))]);
    let texts = |letter: char| array((0..3_000).map(|n| format!("\"{letter}{n}\"")));
    refused("strings.any_prefix_match", &[&texts('a'), &texts('b')]);
    let networks = array((0..3_000).map(|n| format!("\"10.{}.{}.0/24\"", n / 250, n % 250)));
    refused("net.cidr_contains_matches", &[&networks, &networks]);
    let numbers = array((0..5_000).map(|n| n.to_string()));
    let found = call("object.subset", &[&numbers, &array((0..4_000).map(|n| (n + 1_500).to_string()))]);
    assert_eq!(found, Ok(Some(Value::from(false))), "elements that differ at once are not looked at twice");
    let ones = |count: usize| std::iter::repeat_n("1".to_owned(), count);
    let almost = array(ones(4_000).chain(["2".to_owned()]));
    refused("object.subset", &[&array(ones(10_000)), &almost]);
}

#[test]
fn a_policy_that_prints_without_end_is_cut_off() {
    let context = Context::new(0);
    let trace = builtin("trace").unwrap();
    for _ in 0..limit::LOG_LINES + 10 {
        trace.call(&[Value::from("é".repeat(limit::LOG_LINE_BYTES))], &context).unwrap();
    }
    let log = context.take_log();
    assert_eq!(log.len(), limit::LOG_LINES + 1);
    assert!(log[0].len() <= limit::LOG_LINE_BYTES);
    assert_eq!(log.last().unwrap(), "(10 more lines)");
    assert!(context.take_log().is_empty());

    let many = Value::parse(&array((0..20).map(|_| "{1, 2, 3, 4, 5, 6, 7, 8}".to_owned()))).unwrap();
    builtin("internal.print").unwrap().call(&[many], &context).unwrap();
    assert!(context.take_log().len() <= limit::LOG_LINES + 1);
}
