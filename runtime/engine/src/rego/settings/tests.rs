use super::*;

const ALL: [Interface; 10] = [
    Interface::CpuIdentity,
    Interface::NodeKnobs,
    Interface::CpuWeight,
    Interface::MemoryLimit,
    Interface::CpuBandwidth,
    Interface::MemoryProtection,
    Interface::Cpuset,
    Interface::PageMigration,
    Interface::ResctrlAllocation,
    Interface::PodEvent,
];

fn read_text(text: &str) -> Result<Vec<Declared>, String> {
    let document = Rego::parse(text).map_err(|error| error.to_string())?;
    read(&document, &ALL.into_iter().collect(), 10).map_err(|rule| rule.to_string())
}

fn value_of(knob: &str, value: &str) -> Result<Value, String> {
    let text = format!(r#"[{{"container": "7", "knob": "{knob}", "value": {value}, "reason": "because"}}]"#);
    match read_text(&text)?.as_slice() {
        [Declared::Hold { target: Target::Container(ContainerId(7)), value, .. }] => Ok(*value),
        other => Err(format!("{other:?}")),
    }
}

#[test]
fn values_are_what_the_knob_takes() {
    for (knob, value, expected) in [
        ("cpu.quota", "150000", Ok(Value::Number(150_000))),
        ("cpu.quota", "150000.0", Ok(Value::Number(150_000))),
        ("cpu.quota", "1.5e5", Ok(Value::Number(150_000))),
        ("cpu.quota", "\"max\"", Ok(Value::Max)),
        ("memory.high", "\"max\"", Ok(Value::Max)),
        ("memory.low", "9223372036854775807", Ok(Value::Number(i64::MAX))),
        ("memory.high", "7e18", Ok(Value::Number(7_000_000_000_000_000_000))),
        ("memory.wmark_min_adj", "-25", Ok(Value::Number(-25))),
        ("memory.oom.group", "true", Ok(Value::Number(1))),
        ("memory.oom.group", "0", Ok(Value::Number(0))),
        ("cpuset.mems", "[0, 3]", Ok(Value::Number(0b1001))),
        ("cpuset.mems", "{1}", Ok(Value::Number(0b10))),
        ("cpuset.cpus", "[0, 70]", Ok(Value::Cpus(CpuSet::of(&[0, 70]).unwrap()))),
        ("cpuset.cpus", "{3}", Ok(Value::Cpus(CpuSet::of(&[3]).unwrap()))),
        ("memory.max", "\"max\"", Ok(Value::Max)),
        ("memory.max", "4096", Ok(Value::Number(4096))),
        ("cpu.weight", r#"{"shares": 2}"#, Ok(Value::Shares(2))),
        ("cpu.bvt_warp_ns", "-1", Ok(Value::Number(-1))),
        ("cpu.bvt_warp_ns", "3", Err("value: 3 is not within -1 and 2")),
        ("core_sched.group", "9007199254740991", Ok(Value::Number(9_007_199_254_740_991))),
        ("core_sched.group", "-1", Err("value: -1 is not within 0 and 9007199254740991")),
        ("cpu.bvt_warp_ns", "true", Err("value: it is true, and should be a whole number")),
        ("cpu.weight", r#"{"shares": 262145}"#, Err("shares: 262145 is not within 2 and 262144")),
        ("cpu.weight", r#"{"shares": 2, "x": 1}"#, Err("`x` is not a field of it; there are `shares`")),
        ("cpuset.cpus", "[]", Err("value: it is an array, and should be a list of CPUs, at least one")),
        ("cpuset.cpus", "[1024]", Err("value: 1024 is not within 0 and 1023")),
        ("cpuset.cpus", "\"0-3\"", Err("value: it is `0-3`, and should be an array or set of CPUs")),
        ("memory.max", "-1", Err("value: -1 is not within 0 and 9223372036854775807")),
        ("cpu.quota", "150000.5", Err("value: 150000.5 is not a whole number; round it with `floor`")),
        ("cpu.quota", "-1", Err("value: -1 is not within 0 and 9223372036854775807")),
        ("memory.low", "9223372036854775808", Err("value: 9223372036854775808 is not within 0")),
        ("memory.low", "1e400", Err("value: 1e400 is not within 0")),
        ("cpu.burst", "\"max\"", Err("value: it is `max`, and should be a whole number")),
        ("cpu.quota", "null", Err("value: it is null, and should be a whole number, or `max`")),
        ("memory.high", "\"Max\"", Err("value: it is `Max`, and should be a whole number, or `max`")),
        (
            "cpu.weight",
            r#"{"share": 100}"#,
            Err("value: it is an object, and should be a whole number, or `{\"shares\": n}`"),
        ),
        ("memory.oom.group", "2", Err("value: 2 is not within 0 and 1")),
        ("memory.priority", "true", Err("value: it is true, and should be a whole number")),
        ("cpuset.mems", "[]", Err("value: it is an array, and should be a list of NUMA nodes")),
        ("cpuset.mems", "[63]", Err("value: 63 is not within 0 and 62")),
        ("cpuset.mems", "1", Err("value: it is 1, and should be an array or set of NUMA nodes")),
        (
            "memory.hihg",
            "1",
            Err("knob: there is no knob `memory.hihg`; did you mean `memory.high`? There are `cpu.quota`"),
        ),
        ("cpu.magic", "1", Err("knob: there is no knob `cpu.magic`; there are `cpu.quota`")),
    ] {
        match (value_of(knob, value), expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, expected) => panic!("{knob} {value}: {found:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn a_flaw_names_the_object_and_the_field() {
    for (text, expected) in [
        ("1", "its settings are of type number, not a set or an array"),
        ("[1]", "settings[0]: it is no object but of type number"),
        ("[{}]", "settings[0]: it has none of the fields `knob`, `event`"),
        (r#"[{"log": "x", "state": {}}]"#, "settings[0] (log): it has both `log` and `state`; make two"),
        (r#"[{"log": "x"}, {"log": "x", "colour": 1}]"#, "settings[1] (log): `colour` is not a field of it; there are"),
        (r#"[{"log": 1}]"#, "settings[0] (log): log: it is 1, and should be a string"),
        (r#"[{"log": "x", "level": "loud"}]"#, "level: it is `loud`, and should be one of `debug`, `info`, `warn`"),
        (
            r#"[{"knob": "cpu.quota", "value": 1, "reason": "x"}]"#,
            "settings[0] (`cpu.quota`): it names no target; a setting is for one",
        ),
        (
            r#"[{"knob": "cpu.quota", "pod": "1", "container": "2", "value": 1, "reason": "x"}]"#,
            "(`cpu.quota` of container `2`): it names several targets",
        ),
        (r#"[{"knob": "cpu.quota", "pod": "1", "value": 1}]"#, "(`cpu.quota` of pod `1`): `reason` is missing"),
        (
            r#"[{"knob": "cpu.quota", "pod": "1", "value": 1, "reason": ""}]"#,
            "reason: it is empty, and should be why the policy does it",
        ),
        (
            r#"[{"knob": "cpu.quota", "pod": 1, "value": 1, "reason": "x"}]"#,
            "(`cpu.quota` of pod 1): pod: it is 1, and should be the `id` of a pod",
        ),
        (
            r#"[{"knob": "cpu.quota", "pod": "01", "value": 1, "reason": "x"}]"#,
            "pod: it is `01`, and should be the `id`",
        ),
        (
            r#"[{"knob": "cpu.quota", "tier": "best", "value": 1, "reason": "x"}]"#,
            "tier: it is `best`, and should be one of `kubepods`, `burstable`, `besteffort`",
        ),
        (
            r#"[{"knob": "cpuset.mems", "pod": "1", "value": [0], "reason": "x"}]"#,
            "(`cpuset.mems` of pod `1`): only a container has this knob",
        ),
        (r#"[{"state": []}]"#, "settings[0] (state): state: it is an array, and should be an object"),
        (r#"[{"event": "X", "pod": "1"}]"#, "settings[0] (event `X` of pod `1`): `message` is missing"),
        (
            r#"[{"migrate": "1", "from": [0], "to": [1], "token": -1, "reason": "x"}]"#,
            "settings[0] (migrate `1`): token: -1 is not within 0",
        ),
        (
            r#"[{"class": "a/b", "reason": "x"}]"#,
            "settings[0] (class `a/b`): class: it is `a/b`, and should be the name of a class: 1 to 63 letters",
        ),
        (r#"[{"class": "be", "cache": {"percent": [0, 30]}}]"#, "settings[0] (class `be`): `reason` is missing"),
        (
            r#"[{"class": "be", "pod": "1", "reason": "x"}]"#,
            "(class `be` of pod `1`): `pod` is not a field of it; there are `class`, `cache`, `bandwidth`, `domains`, `reason`",
        ),
        (r#"[{"class": "be", "assign": "be"}]"#, "it has both `class` and `assign`; make two objects of it"),
        (
            r#"[{"assign": "be", "tier": "kubepods", "reason": "x"}]"#,
            "(class `be` of tier `kubepods`): `tier` is not a field of it; there are `assign`, `container`, `pod`, `reason`",
        ),
        (
            r#"[{"assign": "be", "reason": "x"}]"#,
            "settings[0] (class `be`): it names no target; a class is given to one `container` or `pod`",
        ),
        (
            r#"[{"assign": "be", "pod": "1", "container": "7", "reason": "x"}]"#,
            "it names several targets; a class is given to one `container` or `pod`",
        ),
        (
            r#"[{"assign": 1, "pod": "1", "reason": "x"}]"#,
            "(class 1 of pod `1`): assign: it is 1, and should be a string",
        ),
    ] {
        let error = read_text(text).unwrap_err();
        assert!(error.contains(expected), "{error}\n  should contain {expected}");
    }
}

#[test]
fn an_impossible_share_is_reported_with_its_place() {
    for (fields, expected) in [
        (r#""cache": 30"#, "settings[0] (class `be`): cache: it is no object but of type number"),
        (r#""cache": {}"#, "cache: it has 0 of the fields `percent`, `mask`; write one of them"),
        (r#""cache": {"percent": [0, 30], "mask": 7}"#, "cache: it has 2 of the fields `percent`, `mask`; write one"),
        (r#""cache": {"ways": 3}"#, "cache: `ways` is not a field of it; there are `percent`, `mask`"),
        (r#""cache": {"percent": 30}"#, "cache: percent: it is 30, and should be an array of two numbers"),
        (
            r#""cache": {"percent": [0, 30, 60]}"#,
            "cache: percent: it is an array, and should be an array of two numbers",
        ),
        (r#""cache": {"percent": {0, 30}}"#, "cache: percent: it is a set, and should be an array of two numbers"),
        (r#""cache": {"percent": [0, "30"]}"#, "cache: percent: it is an array, and should be an array of two numbers"),
        (r#""cache": {"percent": [0, 101]}"#, "cache: percent: 101 is not within 0 and 100"),
        (r#""cache": {"percent": [0, 30.5]}"#, "cache: percent: 30.5 is not a whole number; round it with"),
        (
            r#""cache": {"percent": [60, 30]}"#,
            "cache: percent: the range of ways 60 to 30 % is none: give a start below the end",
        ),
        (r#""cache": {"mask": 0}"#, "cache: mask: 0 is not within 1 and 9223372036854775807"),
        (r#""cache": {"mask": "7ff"}"#, "cache: mask: it is `7ff`, and should be a whole number"),
        (r#""bandwidth": 50"#, "bandwidth: it is no object but of type number"),
        (r#""bandwidth": {"percent": 0}"#, "bandwidth: percent: 0 is not within 1 and 100"),
        (
            r#""bandwidth": {"megabytes": 4294967296}"#,
            "bandwidth: megabytes: 4294967296 is not within 1 and 4294967295",
        ),
        (r#""domains": [1]"#, "domains: it is an array, and should be an object by domain"),
        (r#""domains": {"zero": {}}"#, "domains: it is by `zero`, and should be by the `id` of a domain"),
        (r#""domains": {"08": {}}"#, "domains: it is by `08`, and should be by the `id` of a domain"),
        (r#""domains": {"8": 30}"#, "domains[8]: it is no object but of type number"),
        (
            r#""domains": {"8": {"domains": {}}}"#,
            "domains[8]: `domains` is not a field of it; there are `cache`, `bandwidth`",
        ),
        (
            r#""domains": {"8": {"bandwidth": {"percent": 101}}}"#,
            "settings[0] (class `be`): domains[8]: bandwidth: percent: 101 is not within 1 and 100",
        ),
    ] {
        let error = read_text(&format!(r#"[{{"class": "be", {fields}, "reason": "x"}}]"#)).unwrap_err();
        assert!(error.contains(expected), "{error}\n  should contain {expected}");
    }
}

#[test]
fn a_class_is_read_with_its_shares() {
    let read = |fields: &str| {
        let text = format!(r#"[{{"class": "be", {fields} "reason": "x"}}]"#);
        match read_text(&text).unwrap().remove(0) {
            Declared::Class { shares, .. } => shares,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(""), Shares::default(), "all of it, counted apart");
    let shares = read(
        r#""cache": {"percent": [0, 30.0]}, "bandwidth": {"megabytes": 5000},
           "domains": {"0": {"cache": {"mask": 3}}, 8: {"bandwidth": {"percent": 50}}},"#,
    );
    assert_eq!(shares.all.to_string(), "ways 0-30 %, 5000 MB/s");
    let domains: Vec<_> = shares.domains.iter().map(|(id, own)| format!("{}: {own}", id.0)).collect();
    assert_eq!(domains, ["0: ways 3", "8: all ways, 50 % of the memory bandwidth"]);
}

#[test]
fn knobs_and_classes_name_their_targets() {
    for (text, expected) in [
        (r#"{"class": "be", "reason": "x"}"#, "class be"),
        (r#"{"assign": "be", "pod": "1", "reason": "x"}"#, "class be of pod 1"),
        (r#"{"assign": "be", "container": "7", "reason": "x"}"#, "class be of container 7"),
        (r#"{"knob": "cpu.quota", "container": "7", "value": 1, "reason": "x"}"#, "cpu.quota of container 7"),
    ] {
        assert_eq!(read_text(&format!("[{text}]")).unwrap()[0].about(), expected);
    }
}

#[test]
fn a_problem_is_about_a_field_of_a_key() {
    let text = r#"[{"problem": "colocation-config", "field": "enable", "message": "it is 1; write true or false"}]"#;
    let read = read_text(text).unwrap().remove(0);
    assert_eq!(read.about(), "problem colocation-config");
    let Declared::KeyProblem(KeyProblem { key, field, message }) = read else { panic!("{read:?}") };
    assert_eq!([key, field, message], ["colocation-config", "enable", "it is 1; write true or false"]);
    for flawed in [
        r#"[{"problem": "", "field": "enable", "message": "x"}]"#,
        r#"[{"problem": "colocation-config", "message": "x"}]"#,
        r#"[{"problem": "colocation-config", "field": "", "message": ""}]"#,
    ] {
        assert!(read_text(flawed).is_err(), "{flawed}");
    }
}

#[test]
fn a_setting_of_the_node_names_no_target() {
    let text = r#"[{"knob": "vm.watermark_scale_factor", "value": 150, "reason": "colocation"},
        {"remark": "vm.min_free_kbytes", "reason": "it waits for free memory"},
        {"knob": "memcg_reaper.reap_background", "value": true, "reason": "x"}]"#;
    let read = read_text(text).unwrap();
    let value = |knob, number| (Target::Node, knob, Value::Number(number));
    let held: Vec<_> = read
        .iter()
        .filter_map(|one| match one {
            Declared::Hold { target, knob, value, .. } => Some((*target, *knob, *value)),
            _ => None,
        })
        .collect();
    assert_eq!(held, [value(Knob::WatermarkScaleFactor, 150), value(Knob::MemcgReaper, 1)]);
    assert!(matches!(&read[1], Declared::Remark { target: Target::Node, .. }));
    let error = read_text(r#"[{"knob": "vm.min_free_kbytes", "pod": "1", "value": 1, "reason": "x"}]"#).unwrap_err();
    assert!(error.contains("it names a `pod`, and the knob is the node's own: leave `pod` out"), "{error}");
    let error = read_text(r#"[{"knob": "memory.low", "value": 1, "reason": "x"}]"#).unwrap_err();
    assert!(error.contains("memory.low"), "{error}");
}

#[test]
fn a_grant_that_is_not_declared_is_named() {
    let document = Rego::parse(r#"{{"event": "X", "pod": "1", "message": "x"}}"#).unwrap();
    let error = read(&document, &BTreeSet::new(), 10).unwrap_err();
    assert_eq!(
        error.to_string(),
        "settings[0] (event `X` of pod `1`): it needs the grant `pod-event`; add it to `custom.qosm.grants` in the policy's \
         METADATA"
    );
    for text in [r#"[{"class": "be", "reason": "x"}]"#, r#"[{"assign": "be", "pod": "1", "reason": "x"}]"#] {
        let error = read(&Rego::parse(text).unwrap(), &BTreeSet::new(), 10).unwrap_err().to_string();
        assert!(error.contains("it needs the grant `resctrl-allocation`; add it to `custom.qosm.grants`"), "{error}");
    }
}

#[test]
fn every_kind_is_read() {
    let text = r#"{
        {"log": "hello"}, {"reject": "1", "field": "x", "message": "y"}, {"state": {"a": 1.50}},
        {"event": "Slow", "pod": "1", "type": "Warning", "message": "m"},
        {"migrate": "7", "from": {0}, "to": [1, 2], "token": 5, "reason": "far"},
        {"tier": "kubepods", "knob": "memory.min", "value": 4096, "reason": "sum"}
    }"#;
    let read = read_text(text).unwrap();
    assert!(read.contains(&Declared::State(r#"{"a":1.50}"#.to_owned())));
    assert!(read.contains(&Declared::Migrate {
        container: ContainerId(7),
        from: vec![0],
        to: vec![1, 2],
        token: 5,
        reason: "far".to_owned()
    }));
    assert_eq!(read.len(), 6);
    assert!(read.iter().any(|one| one.about() == "memory.min of tier kubepods"));
}
