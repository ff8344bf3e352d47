use super::*;

fn block<T>(name: &str, asks: T) -> Block<T> {
    Block { kind: Kind::Device, name: name.into(), asks }
}

fn reads(bps: u64) -> Share {
    Share { limits: IoLimits { read_bps: Some(bps), ..IoLimits::NONE }, weight: None }
}

fn of_be(blocks: &str) -> String {
    format!(r#"{{"beClass": {{"blkioQOS": {{"enable": true, "blocks": [{blocks}]}}}}}}"#)
}

fn of_root(io: &str) -> String {
    let block = format!(r#"{{"name": "/dev/sda", "type": "device", "ioCfg": {io}}}"#);
    format!(r#"{{"cgroupRoot": {{"blkioQOS": {{"enable": true, "blocks": [{block}]}}}}}}"#)
}

fn read(json: &str, last: &Strategy) -> (Strategy, Vec<String>) {
    let (strategy, faults) = Strategy::read(json, last);
    (strategy, faults.into_iter().map(|(_, fault)| fault.to_string()).collect())
}

#[test]
fn blocks_are_read_with_names_in_any_letter_case() {
    let json = r#"{"BECLASS": {"blkioqos": {"Enable": true, "blocks": [
        {"name": " /dev/sda ", "type": "device", "iocfg": {"readIOPS": 1024, "writeiops": 512, "readBPS": 0, "WRITEBPS": 2, "ioWeightPercent": 40}},
        {"name": "data", "type": "volumegroup", "ioCfg": null},
        {"name": "/dev/sdb", "type": "device", "ioCfg": {"readBPS": null, "ioWeightPercent": 100, "writeIOPS": 4294967295}}]}},
        "cgroupRoot": {"blkioQOS": {"enable": false, "blocks": 7}}, "lsClass": {"blkioQOS": {"enable": true, "blocks": []}}}"#;
    let (strategy, faults) = read(json, &Strategy::default());
    assert_eq!(faults, [""; 0]);
    let limits = IoLimits { write_bps: Some(2), read_iops: Some(1024), write_iops: Some(512), ..IoLimits::NONE };
    let data = Block { kind: Kind::VolumeGroup, ..block("data", Share::NONE) };
    let be = vec![block("/dev/sda", Share { limits, weight: Some(40) }), data, block("/dev/sdb", Share::NONE)];
    assert_eq!(strategy, Strategy { be: Some(be), root: Some(Vec::new()) });
}

#[test]
fn what_is_not_enabled_is_nothing_and_what_is_not_said_leaves_room_for_the_policys_own() {
    for (json, be) in [
        ("{}", None),
        (r#"{"beClass": null}"#, None),
        (r#"{"beClass": {"blkioQOS": null, "cpuQOS": {"enable": true}}}"#, None),
        (r#"{"beClass": {"blkioQOS": {"blocks": [3]}}}"#, None),
        (r#"{"beClass": {"blkioQOS": {"enable": null}}}"#, None),
        (r#"{"beClass": {"blkioQOS": {"enable": false, "blocks": [3]}}}"#, Some(Vec::new())),
        (r#"{"beClass": {"blkioQOS": {"enable": true}}}"#, Some(Vec::new())),
    ] {
        let last = Strategy { be: Some(vec![block("sda", reads(7))]), root: None };
        assert_eq!(read(json, &last), (Strategy { be, root: None }, Vec::new()), "{json}");
    }
}

#[test]
fn what_cannot_be_stays_as_it_was_and_is_named_and_the_others_go_on() {
    let (last, _) = read(&of_be(r#"{"name": "sda", "type": "device", "ioCfg": {"readBPS": 7}}"#), &Strategy::default());
    let kept = last.be.clone();
    let sdb = r#"{"name": "sdb", "type": "device", "ioCfg": {"readBPS": 9}}"#;
    let block_of = |rest: &str| of_be(&format!(r#"{{{rest}}}, {sdb}"#));
    let at = "beClass.blkioQOS.blocks";
    for (json, be, fault) in [
        ("3".to_owned(), kept.clone(), "the strategy is 3; give a JSON object".to_owned()),
        (r#"{"beClass": 3}"#.to_owned(), kept.clone(), "beClass is 3; give an object, or leave it out".to_owned()),
        (
            r#"{"beClass": {"blkioQOS": {"enable": "on"}}}"#.to_owned(),
            kept.clone(),
            "beClass.blkioQOS.enable is \"on\"; write `true` or `false`".to_owned(),
        ),
        (
            r#"{"beClass": {"blkioQOS": {"enable": true, "blocks": {}}}}"#.to_owned(),
            kept,
            format!("{at} is {{}}; give a list of blocks"),
        ),
        (of_be(&format!("4, {sdb}")), Some(vec![block("sdb", reads(9))]), format!("{at}[0] is 4; give an object")),
        (
            block_of(r#""name": "sda", "type": "floppy""#),
            Some(vec![block("sdb", reads(9))]),
            format!("{at}[0].type is \"floppy\"; write `device`, `volumegroup` or `podvolume`"),
        ),
        (
            block_of(r#""name": "sda""#),
            Some(vec![block("sdb", reads(9))]),
            format!("{at}[0].type is missing; write `device`, `volumegroup` or `podvolume`"),
        ),
        (
            block_of(r#""name": "html", "type": "podvolume""#),
            Some(vec![block("sdb", reads(9))]),
            format!("{at}[0].type is \"podvolume\"; volumes are of one pod: write it into the pod's annotation"),
        ),
        (
            block_of(r#""type": "device""#),
            Some(vec![block("sdb", reads(9))]),
            format!("{at}[0].name is missing; give a device, e.g. \"/dev/sda\""),
        ),
        (
            block_of(r#""type": "volumegroup", "name": " ""#),
            Some(vec![block("sdb", reads(9))]),
            format!("{at}[0].name is \" \"; give the name of an LVM volume group"),
        ),
        (
            block_of(r#""name": "sda", "type": "device", "ioCfg": {"readBPS": 1}"#),
            Some(vec![block("sda", reads(7)), block("sdb", reads(9))]),
            format!("{at}[0].ioCfg.readBPS is 1; give 0 for no limit, or 2 to 9223372036854775807"),
        ),
        (
            block_of(r#""name": "sda", "type": "device", "ioCfg": {"readBPS": 8, "writeBPS": 9223372036854775808}"#),
            Some(vec![block("sda", reads(8)), block("sdb", reads(9))]),
            format!("{at}[0].ioCfg.writeBPS is 9223372036854775808; give 0 for no limit, or 2 to 9223372036854775807"),
        ),
        (
            block_of(r#""name": "sda", "type": "device", "ioCfg": {"readBPS": 8, "ioWeightPercent": 101}"#),
            Some(vec![block("sda", reads(8)), block("sdb", reads(9))]),
            format!("{at}[0].ioCfg.ioWeightPercent is 101; give a whole number, 1 to 100"),
        ),
        (
            block_of(r#""name": "sda", "type": "device", "ioCfg": {"readBPS": 8, "readLatency": 10}"#),
            Some(vec![block("sda", reads(8)), block("sdb", reads(9))]),
            format!("{at}[0].ioCfg.readLatency is 10; it is of a device: write it into cgroupRoot.blkioQOS"),
        ),
    ] {
        let (strategy, faults) = read(&json, &last);
        assert_eq!(strategy.be, be, "{json}");
        assert!(faults.len() == 1 && faults[0].starts_with(&fault), "{json}: {faults:?}");
    }
}

#[test]
fn fields_that_nobody_reads_are_named_and_the_others_count() {
    let at = "beClass.blkioQOS";
    let sda = |block: &str| of_be(&format!(r#"{{"name": "sda", "type": "device", {block}}}"#));
    let shares = "the fields are readBPS, writeBPS, readIOPS, writeIOPS, ioWeightPercent";
    for (json, be, said) in [
        (
            sda(r#""ioCfg": {"readBPS": 9, "readBPSs": 9, "none": null}"#),
            reads(9),
            format!("{at}.blocks[0].ioCfg.readBPSs is unknown and ignored; {shares}"),
        ),
        (
            sda(r#""ioConfig": {"readBPS": 9}"#),
            Share::NONE,
            format!("{at}.blocks[0].ioConfig is unknown and ignored; the fields are type, name, ioCfg"),
        ),
    ] {
        let (strategy, faults) = read(&json, &Strategy::default());
        assert_eq!((strategy.be, faults), (Some(vec![block("sda", be)]), vec![said]), "{json}");
    }
    let json = r#"{"beClass": {"blkioQOS": {"enable": true, "block": []}}}"#;
    let said = format!("{at}.block is unknown and ignored; the fields are enable, blocks");
    assert_eq!(read(json, &Strategy::default()), (Strategy { be: Some(vec![]), root: None }, vec![said]));
    let (_, faults) = read(&of_root(r#"{"readLatencies": 1}"#), &Strategy::default());
    assert!(faults.len() == 1 && faults[0].contains("the fields are readLatency, "), "{faults:?}");
}

#[test]
fn limits_are_whole_numbers_of_63_bits_but_1() {
    for (number, is_one) in [
        ("0", true),
        ("1", false),
        ("2", true),
        ("9223372036854775807", true),
        ("9223372036854775808", false),
        ("-1", false),
        ("2.0", false),
        ("\"2\"", false),
        ("true", false),
    ] {
        let json = of_be(&format!(r#"{{"name": "sda", "type": "device", "ioCfg": {{"writeBPS": {number}}}}}"#));
        assert_eq!(read(&json, &Strategy::default()).1.is_empty(), is_one, "{number}");
    }
}

#[test]
fn classes_of_latency_sensitive_pods_are_refused_by_name() {
    for (class, place) in [("lsrClass", Place::Kubepods), ("lsClass", Place::Burstable), ("systemClass", Place::Node)] {
        let json = format!(r#"{{"{class}": {{"blkioQOS": {{"enable": true, "blocks": [{{"name": "sda"}}]}}}}}}"#);
        let (strategy, faults) = Strategy::read(&json, &Strategy::default());
        assert_eq!(strategy, Strategy::default());
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].0, place);
        let said = faults[0].1.to_string();
        assert!(said.starts_with(&format!("{class}.blkioQOS is enabled; limits are of batch")), "{said}");
        assert!(said.contains("the annotation koordinator.sh/blkioQOS"), "{said}");
        let off = json.replace("true", "false");
        assert_eq!(read(&off, &Strategy::default()).1, [""; 0]);
    }
}

#[test]
fn devices_have_latencies_and_a_model_of_six_numbers_or_none() {
    let own = Cost::default();
    let of = |io: &str, last: Cost| {
        let last = Strategy { be: None, root: Some(vec![block("/dev/sda", last)]) };
        let (strategy, faults) = read(&of_root(io), &last);
        (strategy.root.unwrap()[0].asks, faults)
    };
    assert_eq!(of("{}", own), (own, vec![]));
    let io = r#"{"readLatency": 1000, "writeLatency": 2000, "readLatencyPercent": 90, "writeLatencyPercent": 0}"#;
    let latency = IoLatency {
        read_permyriad: 9_000,
        read_latency_usec: 1_000,
        write_permyriad: 0,
        write_latency_usec: 2_000,
        ..own.latency
    };
    let asked = Cost { latency, model: None };
    assert_eq!(of(io, own), (asked, vec![]));
    // The previous values stay, not the defaults.
    let wrong =
        r#"{"readLatency": 0, "writeLatency": 4294967296, "readLatencyPercent": 101, "writeLatencyPercent": "95"}"#;
    let (cost, faults) = of(wrong, asked);
    assert_eq!(cost, asked);
    assert_eq!(faults.len(), 4, "{faults:?}");
    assert!(
        faults[0].ends_with("blocks[0].ioCfg.readLatency is 0; give a whole number, 1 to 4294967295"),
        "{faults:?}"
    );

    let numbers = r#""modelReadBPS": 1, "modelReadSeqIOPS": 2, "modelReadRandIOPS": 3, "modelWriteBPS": 4, "modelWriteSeqIOPS": 5"#;
    let model = IoCostModel {
        read_bps: 1,
        read_seq_iops: 2,
        read_rand_iops: 3,
        write_bps: 4,
        write_seq_iops: 5,
        write_rand_iops: 6,
    };
    let with_model = Cost { model: Some(model), ..own };
    let all = format!(r#"{{"enableUserModel": true, {numbers}, "modelWriteRandIOPS": 6}}"#);
    assert_eq!(of(&all, own), (with_model, vec![]));
    assert_eq!(of(&all.replace("true", "false"), with_model), (own, vec![]));
    let (cost, faults) = of(&all.replace(": 1,", ": 9223372036854775807,"), own);
    assert_eq!((cost.model.map(|model| model.read_bps), faults), (Some(u64::MAX >> 1), vec![]));
    for (json, fault) in [
        (
            all.replace(": 3", ": 0"),
            "modelReadRandIOPS is 0; with enableUserModel give all six numbers, each 1 to 9223372036854775807",
        ),
        (
            all.replace(": 1,", ": 9223372036854775808,"),
            "modelReadBPS is 9223372036854775808; with enableUserModel give all six numbers, each 1 to 9223372036854775807",
        ),
        (
            all.replace(": 4", ": 18446744073709551615"),
            "modelWriteBPS is 18446744073709551615; with enableUserModel give all six numbers, each 1 to 9223372036854775807",
        ),
        (
            format!(r#"{{"enableUserModel": true, {numbers}}}"#),
            "modelWriteRandIOPS is missing; with enableUserModel give all six numbers, each 1 to 9223372036854775807",
        ),
        (all.replace("true", "1"), "enableUserModel is 1; write `true` or `false`"),
    ] {
        for last in [own, with_model] {
            let (cost, faults) = of(&json, last);
            assert_eq!(cost, last, "{json}");
            assert_eq!(faults, [format!("cgroupRoot.blkioQOS.blocks[0].ioCfg.{fault}")]);
        }
    }
    let (_, faults) = of(r#"{"readBPS": 7}"#, own);
    assert!(faults[0].contains("readBPS is 7; it is of processes: write it into beClass.blkioQOS"), "{faults:?}");
}

#[test]
fn of_one_list_64_blocks_count_and_a_few_fields_are_named() {
    let device = |number: usize| format!(r#"{{"name": "sd{number}", "type": "device", "ioCfg": {{"readBPS": 9}}}}"#);
    let list = |count| (0..count).map(device).collect::<Vec<_>>().join(", ");
    let (strategy, faults) = read(&of_be(&list(64)), &Strategy::default());
    assert_eq!((strategy.be.unwrap().len(), faults), (64, vec![]));
    let (strategy, faults) = read(&of_be(&list(66)), &Strategy::default());
    let be = strategy.be.unwrap();
    assert_eq!((be.len(), be[63].name.as_str()), (64, "sd63"));
    let at = "beClass.blkioQOS.blocks";
    assert_eq!(faults, [format!("{at} is a list of 64 blocks and 2 more, which do not count; give at most 64")]);

    let (_, faults) = read(&of_be("4, 4, 4, 4"), &Strategy::default());
    assert_eq!(faults.len(), 4, "{faults:?}");
    let (_, faults) = read(&of_be("4, 4, 4, 4, 4, 4"), &Strategy::default());
    assert_eq!(faults.len(), 5, "{faults:?}");
    assert_eq!(faults[3], format!("{at}[3] is 4; give an object"));
    let rest = "wrong in these and 2 more fields; those are named when these are mended";
    assert_eq!(faults[4], format!("{at} is {rest}"));
}

#[test]
fn a_pod_names_one_volume_if_exactly_one_block_is_of_any() {
    let volume = r#"{"name": "html", "TYPE": "podvolume"}"#;
    let device = r#"{"name": "sda", "type": "device"}"#;
    for (blocks, is_one) in [
        (String::new(), false),
        (format!("{device}, 4, {{}}"), false),
        (format!("{device}, {volume}"), true),
        (format!("{volume}, {volume}"), false),
        // The second block is invalid, but still refers to another volume.
        (format!(r#"{volume}, {{"name": 7, "type": "podvolume"}}"#), false),
        (format!("{volume}, {}, {volume}", [device; 64].join(", ")), false),
    ] {
        let config: PodConfig = serde_json::from_str(&format!(r#"{{"blocks": [{blocks}]}}"#)).unwrap();
        assert_eq!(config.names_one_volume(), is_one, "{blocks}");
    }
}

#[test]
fn a_long_value_is_shown_in_part() {
    let name = "é".repeat(200);
    let json = of_be(&format!(r#"{{"name": "{name}", "type": "device"}}"#));
    let (_, faults) = read(&json, &Strategy::default());
    assert!(faults.len() == 1 && faults[0].len() < 300 && faults[0].contains('…'), "{faults:?}");
}

fn sorted(mut fields: Vec<&'static str>) -> Vec<&'static str> {
    fields.sort_unstable();
    fields
}

#[test]
fn the_schemas_have_the_fields_that_are_read() {
    let parsed = |text| serde_json::from_str::<Value>(text).unwrap();
    let (own, pod) = (parsed(include_str!("../config.schema.json")), parsed(include_str!("../pod.schema.json")));
    let fields = |blocks: &Value| {
        let fields = blocks["items"]["properties"]["ioCfg"]["properties"].as_object().unwrap();
        let mut fields: Vec<_> = fields.keys().cloned().collect();
        fields.sort();
        fields
    };
    let shares = sorted(read::OF_SHARES.to_vec());
    assert_eq!(fields(&pod["properties"]["blocks"]), shares);
    assert_eq!(fields(&own["properties"][OWN_BE]), shares);
    for list in [OWN_BE, OWN_ROOT] {
        assert_eq!(own["properties"][list]["maxItems"], read::BLOCKS);
    }
    let model = &own["properties"][OWN_ROOT]["items"]["properties"]["ioCfg"]["properties"];
    assert!(read::OF_MODEL.iter().all(|name| model[name]["maximum"] == u64::MAX >> 1), "{model}");
    // With `maxItems`, the host would refuse the whole list if it is too long.
    assert_eq!(pod["properties"]["blocks"].get("maxItems"), None);
    assert_eq!(fields(&own["properties"][OWN_ROOT]), sorted([&read::OF_DEVICES[..], &read::OF_MODEL].concat()));
    let defaults = own["properties"].as_object().unwrap().iter();
    let defaults: Map<_, _> = defaults.map(|(name, field)| (name.clone(), field["default"].clone())).collect();
    assert_eq!(serde_json::from_value::<Config>(Value::Object(defaults)).unwrap(), Config::default());
}
