//! The effects of a policy's settings.

use qosm_engine::{CallError, LogLevel, Rejection, Staged};
use qosm_model::block_io::{DeviceNumber, IoCostQos};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{Migration, NumaId};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::resctrl::{BandwidthShare, CacheShare, ClassName, DomainId, Share, Shares};
use qosm_model::setting::{EventKind, Setting};

use crate::node::{BATCH, CONTAINERS, Tried, WEB, batch, web};
use crate::opa;

const ALL: &str = "cpu-bandwidth, memory-protection, cpuset, page-migration, resctrl-allocation, block-io, pod-event";
/// Returns the settings in its configuration.
const ECHO: &str = "settings contains setting if some setting in input.config.settings";

fn echo() -> Tried {
    Tried::of(&opa::policy(ALL, ECHO))
}

impl Tried {
    fn declare(&mut self, settings: &str) -> Result<Staged, CallError> {
        self.instance.configure(&format!("{{\"settings\": {settings}}}")).unwrap();
        self.evaluate()
    }

    fn declared(&mut self, settings: &str) -> Staged {
        self.declare(settings).unwrap_or_else(|error| panic!("{error}"))
    }
}

fn hold(target: Target, knob: Knob, value: Value) -> Setting {
    Setting::Hold { target, knob, value, reason: "because".into() }
}

const APP: Target = Target::Container(CONTAINERS[0]);

#[test]
fn a_declaration_is_full() {
    let mut tried = echo();
    let app = r#"{"container": "10", "knob": "memory.high", "value": 1073741824, "reason": "because"}"#;
    let pod = r#"{"pod": "1", "knob": "cpu.quota", "value": "max", "reason": "because"}"#;
    let tier = r#"{"tier": "besteffort", "knob": "memory.min", "value": 0, "reason": "because"}"#;
    let node = r#"{"container": "10", "knob": "cpuset.mems", "value": [0, 1], "reason": "because"}"#;
    let staged = tried.declared(&format!("[{app}, {pod}, {tier}, {node}]"));
    let expected = [
        hold(APP, Knob::CpusetMems, Value::Number(3)),
        hold(APP, Knob::MemoryHigh, Value::Number(1 << 30)),
        hold(Target::Pod(WEB), Knob::CfsQuota, Value::Max),
        hold(Target::Tier(Tier::BestEffort), Knob::MemoryMin, Value::Number(0)),
    ];
    assert_eq!(staged.settings.len(), 4);
    assert!(expected.iter().all(|one| staged.settings.contains(one)), "{:?}", staged.settings);
    // Unchanged settings are not staged again, changed ones are, and settings that are gone are released.
    assert_eq!(tried.declared(&format!("[{pod}, {app}, {node}, {tier}]")).settings, []);
    let higher = app.replace("1073741824", "2147483648");
    let staged = tried.declared(&format!("[{higher}, {tier}]"));
    assert_eq!(staged.settings[0], hold(APP, Knob::MemoryHigh, Value::Number(2 << 30)));
    let released: Vec<_> = staged.settings[1..].to_vec();
    assert_eq!(
        released,
        [
            Setting::Release { target: Target::Pod(WEB), knob: Knob::CfsQuota },
            Setting::Release { target: APP, knob: Knob::CpusetMems },
        ]
    );
    let staged = tried.declared("[]");
    assert_eq!(staged.settings.len(), 2, "{:?}", staged.settings);
    assert_eq!(tried.declared("[]").settings, []);
}

#[test]
fn a_pod_that_went_takes_its_settings_with_it() {
    let mut tried = echo();
    let setting = r#"[{"container": "20", "knob": "memory.high", "value": 4096, "reason": "because"}]"#;
    assert_eq!(tried.declared(setting).settings.len(), 1);
    tried.instance.pods(&[], &[BATCH]).unwrap();
    assert_eq!(tried.declared("[]").settings, [], "nothing is left to release");
    let error = tried.declare(setting).unwrap_err();
    assert_eq!(
        error.to_string(),
        "module `tried` was stopped in `evaluate`: settings[0] (memory.high of container 20): it names container number 20, which \
         it was not given"
    );
    assert!(!tried.instance.is_usable());
}

#[test]
fn a_container_that_came_back_is_held_anew() {
    let mut tried = echo();
    let setting = r#"[{"container": "20", "knob": "memory.high", "value": 4096, "reason": "because"}]"#;
    tried.declared(setting);
    tried.instance.pods(&[], &[BATCH]).unwrap();
    tried.tell(&[batch()]).unwrap();
    assert_eq!(tried.declared(setting).settings.len(), 1);
}

#[test]
fn a_reason_that_changes_is_told() {
    let mut tried = echo();
    let setting = r#"[{"container": "20", "knob": "memory.high", "value": 4096, "reason": "because"}]"#;
    tried.declared(setting);
    let staged = tried.declared(&setting.replace("because", "for another reason"));
    assert!(matches!(&staged.settings[..], [Setting::Hold { reason, .. }] if &**reason == "for another reason"));
}

#[test]
fn two_values_for_one_knob_are_refused_and_two_reasons_are_not() {
    let setting = |value: u32, reason: &str| {
        format!(r#"{{"container": "10", "knob": "memory.high", "value": {value}, "reason": "{reason}"}}"#)
    };
    let error = echo().declare(&format!("[{}, {}]", setting(4096, "a"), setting(8192, "a"))).unwrap_err();
    assert!(
        error.to_string().ends_with(
            "settings[1] (memory.high of container 10): another object, settings[0], has another value for it: 4096 there, 8192 here"
        ),
        "{error}"
    );
    let staged = echo().declared(&format!("[{}, {}]", setting(4096, "b"), setting(4096, "a")));
    assert!(matches!(&staged.settings[..], [Setting::Hold { reason, .. }] if &**reason == "a"));
}

#[test]
fn events_lines_and_rejections_are_told_when_they_come_in() {
    let mut tried = echo();
    let event = r#"{"event": "Squeezed", "pod": "1", "type": "Warning", "message": "by 3"}"#;
    let line = r#"{"log": "hello", "level": "warn"}"#;
    let reject = r#"{"reject": "2", "field": "share", "message": "too much"}"#;
    let staged = tried.declared(&format!("[{event}, {line}, {reject}]"));
    assert_eq!((staged.events[0].pod, staged.events[0].kind), (WEB, EventKind::Warning));
    assert_eq!((staged.log[0].level, staged.log[0].message.as_str()), (LogLevel::Warn, "hello"));
    let rejection = Rejection { pod: PodId(2), field: "share".to_owned(), message: "too much".to_owned() };
    assert_eq!(staged.rejections, std::slice::from_ref(&rejection));
    // The same objects, the event with another message.
    let staged = tried.declared(&format!("[{}, {line}, {reject}]", event.replace("by 3", "by 4")));
    assert_eq!((staged.events.len(), staged.log.len(), staged.rejections.len()), (0, 0, 0));
    // A pod that changed is rejected again; another one changes nothing.
    tried.tell(&[batch()]).unwrap();
    assert_eq!(tried.declared(&format!("[{event}, {line}, {reject}]")).rejections, [rejection]);
    tried.tell(&[web()]).unwrap();
    assert_eq!(tried.declared(&format!("[{event}, {line}, {reject}]")).rejections, []);
    // The objects disappear and return.
    tried.declared("[]");
    let staged = tried.declared(&format!("[{event}, {line}]"));
    assert_eq!((staged.events.len(), staged.log.len()), (1, 1));
}

#[test]
fn pages_are_moved_once_and_called_off() {
    let mut tried = echo();
    let migrate = r#"{"migrate": "10", "from": [1], "to": [0], "token": 5, "reason": "far"}"#;
    let expected = |token| {
        Setting::Migrate(Migration {
            container: ContainerId(10),
            from: vec![NumaId(1)],
            to: vec![NumaId(0)],
            token,
            reason: "far".into(),
        })
    };
    assert_eq!(tried.declared(&format!("[{migrate}]")).settings, [expected(5)]);
    assert_eq!(tried.declared(&format!("[{migrate}]")).settings, []);
    assert_eq!(tried.declared(&format!("[{}]", migrate.replace('5', "6"))).settings, [expected(6)]);
    let off = Setting::StopMigration { container: ContainerId(10) };
    assert_eq!(tried.declared("[]").settings, [off]);
    assert_eq!(tried.declared("[]").settings, []);
    let twice = format!("[{migrate}, {}]", migrate.replace('5', "6"));
    let error = tried.declare(&twice).unwrap_err().to_string();
    assert!(error.ends_with("settings[1] (migrate container 10): there is a second one: settings[0]"), "{error}");
}

const BE: &str = r#"{"class": "be", "cache": {"percent": [0, 30]}, "bandwidth": {"percent": 50},
    "domains": {"8": {"cache": {"mask": 3}}}, "reason": "because"}"#;
const LS: &str = r#"{"class": "ls", "reason": "because"}"#;

fn class(name: &str) -> ClassName {
    name.parse().unwrap()
}

fn be() -> Setting {
    let all =
        Share { cache: Some(CacheShare::Percent { start: 0, end: 30 }), bandwidth: Some(BandwidthShare::Percent(50)) };
    let domains = [(DomainId(8), Share { cache: Some(CacheShare::Mask(3)), bandwidth: None })].into();
    Setting::DefineClass { class: class("be"), shares: Shares { all, domains }, reason: "because".into() }
}

fn ls() -> Setting {
    Setting::DefineClass { class: class("ls"), shares: Shares::default(), reason: "because".into() }
}

/// An object that assigns a target to a class.
fn put(targets: &str, name: &str) -> String {
    format!(r#"{{"assign": "{name}", {targets}, "reason": "because"}}"#)
}

fn assign(target: Target, name: &str) -> Setting {
    Setting::AssignClass { target, class: class(name), reason: "because".into() }
}

#[test]
fn classes_are_declared_and_what_changes_is_staged() {
    let mut tried = echo();
    let (pod, app) = (put(r#""pod": "1""#, "be"), put(r#""container": "10""#, "ls"));
    // The order of the document does not matter: classes are staged before their members.
    let staged = tried.declared(&format!("[{app}, {pod}, {LS}, {BE}]"));
    assert_eq!(staged.settings.len(), 4);
    let (classes, members) = staged.settings.split_at(2);
    assert!(classes.contains(&be()) && classes.contains(&ls()), "{classes:?}");
    let expected = [assign(Target::Pod(WEB), "be"), assign(APP, "ls")];
    assert!(expected.iter().all(|one| members.contains(one)), "{members:?}");
    assert_eq!(tried.declared(&format!("[{BE}, {LS}, {pod}, {app}]")).settings, [], "what stays is not said again");
    // One class changes, one member is added, one is released.
    let wider = BE.replace("[0, 30]", "[0, 40]");
    let log = put(r#""container": "11""#, "be");
    let staged = tried.declared(&format!("[{wider}, {LS}, {pod}, {log}]"));
    assert_eq!(staged.settings.len(), 3, "{:?}", staged.settings);
    assert!(matches!(&staged.settings[0], Setting::DefineClass { shares, .. } if shares != &Shares::default()));
    assert_eq!(staged.settings[1], assign(Target::Container(CONTAINERS[1]), "be"));
    assert_eq!(staged.settings[2], Setting::ReleaseClass { target: APP });
    // A removed class removes its members without settings of their own.
    let staged = tried.declared(&format!("[{LS}, {}]", put(r#""pod": "1""#, "ls")));
    let gone = Setting::UndefineClass { class: class("be") };
    assert_eq!(staged.settings, [gone, assign(Target::Pod(WEB), "ls")]);
    assert_eq!(tried.declared("[]").settings, [Setting::UndefineClass { class: class("ls") }]);
    assert_eq!(tried.declared("[]").settings, []);
}

#[test]
fn a_reason_of_a_class_that_changes_is_told() {
    let mut tried = echo();
    let member = put(r#""container": "20""#, "ls");
    tried.declared(&format!("[{LS}, {member}]"));
    let staged = tried.declared(&format!("[{}, {member}]", LS.replace("because", "for another")));
    assert!(matches!(&staged.settings[..], [Setting::DefineClass { reason, .. }] if &**reason == "for another"));
    let staged =
        tried.declared(&format!("[{}, {}]", LS.replace("because", "for another"), member.replace("because", "x")));
    assert!(matches!(&staged.settings[..], [Setting::AssignClass { reason, .. }] if &**reason == "x"));
}

#[test]
fn a_container_that_came_back_is_put_into_its_class_anew() {
    let mut tried = echo();
    let settings = format!("[{LS}, {}]", put(r#""container": "20""#, "ls"));
    assert_eq!(tried.declared(&settings).settings.len(), 2);
    tried.instance.pods(&[], &[BATCH]).unwrap();
    assert_eq!(tried.declared(&format!("[{LS}]")).settings, [], "nobody is left to release");
    tried.tell(&[batch()]).unwrap();
    assert_eq!(tried.declared(&settings).settings, [assign(Target::Container(CONTAINERS[2]), "ls")]);
}

#[test]
fn all_classes_can_be_exchanged_at_once() {
    let mut tried = echo();
    let classes = |prefix: &str| {
        let one = |index| format!(r#"{{"class": "{prefix}{index}", "reason": "because"}}"#);
        format!("[{}]", (0..256).map(one).collect::<Vec<_>>().join(", "))
    };
    assert_eq!(tried.declared(&classes("a")).settings.len(), 256);
    assert_eq!(tried.declared(&classes("b")).settings.len(), 512);
    let one_more = classes("b").replacen('[', r#"[{"class": "c", "reason": "because"}, "#, 1);
    let error = tried.declare(&one_more).unwrap_err().to_string();
    assert!(error.contains("is one more than the 256 that it may have"), "{error}");
}

#[test]
fn errors_of_classes_name_their_place() {
    let member = put(r#""pod": "1""#, "be");
    let many: Vec<_> = (0..257).map(|id| format!("\"{id}\": {{}}")).collect();
    let wide = format!(r#"{{"class": "be", "domains": {{{}}}, "reason": "x"}}"#, many.join(", "));
    for (settings, expected) in [
        (
            format!("[{LS}, {member}]"),
            "settings[0] (class be of pod 1): assign: no object defines class `be`; add one with `\"class\": \"be\"`",
        ),
        (
            format!("[{BE}, {}]", put(r#""pod": "9""#, "be")),
            "settings[0] (class be of pod 9): it names pod number 9, which it was not given",
        ),
        (
            format!("[{BE}, {LS}, {member}, {}]", put(r#""pod": "1""#, "ls")),
            "settings[1] (class ls of pod 1): another object, settings[0], has another value for it: be there, ls here",
        ),
        (
            format!("[{BE}, {}]", BE.replace("50", "60")),
            "settings[1] (class be): another object, settings[0], has another value for it: ways 0-30 %, 50 % of the memory \
             bandwidth; on domain 8: ways 3, 50 % of the memory bandwidth there, ways 0-30 %, 60 % of",
        ),
        (
            format!("[{}]", BE.replace("[0, 30]", "[30, 0]")),
            "settings[0] (class `be`): cache: percent: the range of ways 30 to 0 % is none: give a start below the end",
        ),
        (
            format!("[{}]", BE.replace(r#""mask": 3"#, r#""mask": 1.5"#)),
            "settings[0] (class `be`): domains[8]: cache: mask: 1.5 is not a whole number; round it with",
        ),
        (format!("[{wide}]"), "settings[0] (class be): its class `be` has shares of its own on more than 256 domains"),
    ] {
        let mut tried = echo();
        let error = tried.declare(&settings).unwrap_err();
        assert_eq!(error.outcome(), "rule", "{error}");
        assert!(error.to_string().contains(expected), "{error}\n  should contain {expected}");
    }
    let twice = format!("[{BE}, {}, {member}, {}]", BE.replace("because", "why"), member.replace("because", "why"));
    assert_eq!(echo().declared(&twice).settings, [be(), assign(Target::Pod(WEB), "be")], "the first reason counts");
}

#[test]
fn the_ids_of_domains_need_not_be_made_texts() {
    let rules = "settings contains {\"class\": \"be\", \"reason\": \"because\", \"domains\": domains}\n\n\
                 domains := {domain.id: {\"cache\": {\"percent\": [0, 30]}} | some domain in input.resctrl.domains; domain.cacheWays > 0}";
    let staged = Tried::of(&opa::policy("resctrl-monitor, resctrl-allocation", rules)).evaluated();
    let share = Share { cache: Some(CacheShare::Percent { start: 0, end: 30 }), bandwidth: None };
    let shares = Shares { all: Share::default(), domains: [(DomainId(0), share)].into() };
    let expected = Setting::DefineClass { class: class("be"), shares, reason: "because".into() };
    assert_eq!(staged.settings, [expected]);
}

#[test]
fn knobs_of_two_devices_are_two_and_what_is_not_declared_is_given_up() {
    let weight = |device: &str, weight: u32| {
        format!(r#"{{"pod": "1", "knob": "io.weight", "device": "{device}", "value": {weight}, "reason": "because"}}"#)
    };
    let model = r#"{"knob": "io.cost.qos", "device": "8:16", "value": {"enable": true}, "reason": "because"}"#;
    let device = |minor| DeviceNumber { major: 8, minor };
    let mut tried = echo();
    // The order of a set is not defined here, so sort.
    let sorted = |mut staged: Staged| {
        staged.settings.sort_by_key(|setting| format!("{setting:?}"));
        staged.settings
    };
    let staged = tried.declared(&format!("[{}, {}, {model}]", weight("8:16", 100), weight("8:32", 200)));
    let qos = Value::IoCostQos(IoCostQos { is_enabled: true, latency: None });
    assert_eq!(
        sorted(staged),
        [
            hold(Target::Node, Knob::IoCostQos(device(16)), qos),
            hold(Target::Pod(WEB), Knob::IoWeight(device(16)), Value::Number(100)),
            hold(Target::Pod(WEB), Knob::IoWeight(device(32)), Value::Number(200)),
        ]
    );
    let staged = tried.declared(&format!("[{}]", weight("8:16", 100)));
    assert_eq!(
        sorted(staged),
        [
            Setting::Release { target: Target::Node, knob: Knob::IoCostQos(device(16)) },
            Setting::Release { target: Target::Pod(WEB), knob: Knob::IoWeight(device(32)) },
        ]
    );
    let error = tried.declare(&format!("[{}, {}]", weight("8:16", 100), weight("8:16", 200))).unwrap_err().to_string();
    assert!(
        error.contains("settings[1] (io.weight 8:16 of pod 1): another object, settings[0], has another"),
        "{error}"
    );
}

#[test]
fn knobs_of_devices_are_what_the_schema_says() {
    let schema = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rego/settings.schema.json"));
    let schema: serde_json::Value = serde_json::from_str(&schema.unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let max = r#"{"tier": "besteffort", "knob": "io.max", "device": "8:16", "value": {"rbps": 1048576, "wiops": "max"}, "reason": "because"}"#;
    let weight = r#"{"pod": "1", "knob": "io.weight", "device": "8:16", "value": 200, "reason": "because"}"#;
    let qos = r#"{"knob": "io.cost.qos", "device": "8:16", "value": {"enable": true, "rpct": 95.5, "rlat": 3000, "wpct": 95, "wlat": 3000, "min": 50, "max": 150.0}, "reason": "because"}"#;
    let model = r#"{"knob": "io.cost.model", "device": "8:16", "value": {"rbps": 1, "rseqiops": 2, "rrandiops": 3, "wbps": 4, "wseqiops": 5, "wrandiops": 6}, "reason": "because"}"#;
    for (one, good) in [
        (max.to_owned(), true),
        (max.replace("1048576", "1"), false),
        (max.replace("\"device\": \"8:16\", ", ""), false),
        (max.replace("8:16", "sdb"), false),
        (max.replace("\"tier\": \"besteffort\", ", ""), false),
        (max.replace("\"rbps\": 1048576, \"wiops\": \"max\"", ""), false),
        (max.replace("rbps", "bps"), false),
        (weight.to_owned(), true),
        (weight.replace("200", "0"), false),
        (weight.replace("200", "10001"), false),
        (qos.to_owned(), true),
        (qos.replace("true", "1"), true),
        (qos.replace(r#", "rpct": 95.5, "rlat": 3000, "wpct": 95, "wlat": 3000, "min": 50, "max": 150.0"#, ""), true),
        (qos.replace(r#", "max": 150.0"#, ""), false),
        (qos.replace("95.5", "100.5"), false),
        (qos.replacen('{', "{\"pod\": \"1\", ", 1), false),
        (model.to_owned(), true),
        (model.replace("\"wbps\": 4", "\"wbps\": 0"), false),
        (model.replace(", \"wrandiops\": 6", ""), false),
        (r#"{"remark": "io.max", "pod": "1", "device": "8:16", "reason": "because"}"#.to_owned(), true),
        (r#"{"remark": "io.cost.qos", "reason": "because"}"#.to_owned(), true),
        (r#"{"remark": "io.cost.qos", "pod": "1", "reason": "because"}"#.to_owned(), false),
    ] {
        let settings = serde_json::from_str(&format!("[{one}]")).unwrap();
        assert_eq!(validator.is_valid(&settings), good, "{one}");
        assert_eq!(echo().declare(&format!("[{one}]")).is_ok(), good, "{one}");
    }
}

#[test]
fn the_settings_that_are_read_are_what_their_schema_says() {
    let schema = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/rego/settings.schema.json"));
    let schema: serde_json::Value = serde_json::from_str(&schema.unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let member = put(r#""container": "10""#, "be");
    for (one, good) in [
        (BE.to_owned(), true),
        (LS.to_owned(), true),
        (member.clone(), true),
        (BE.replace("\"percent\": 50", "\"megabytes\": 5000"), true),
        (BE.replace("[0, 30]", "[0]"), false),
        (BE.replace("[0, 30]", "[0, 101]"), false),
        (BE.replace("\"percent\": 50", "\"percent\": 0"), false),
        (BE.replace("\"percent\": 50", ""), false),
        (BE.replace("\"8\"", "\"08\""), false),
        (BE.replace("\"mask\": 3", "\"mask\": 0"), false),
        (LS.replace("\"ls\"", "\"l/s\""), false),
        (LS.replace(", \"reason\": \"because\"", ""), false),
        (member.replace("container", "tier"), false),
        (member.replacen('{', "{\"pod\": \"1\", ", 1), false),
    ] {
        let settings = serde_json::from_str(&format!("[{LS}, {BE}, {one}]")).unwrap();
        assert_eq!(validator.is_valid(&settings), good, "{one}");
        let document = if one.contains("\"assign\"") { format!("[{BE}, {one}]") } else { format!("[{one}]") };
        assert_eq!(echo().declare(&document).is_ok(), good, "{one}");
    }
}

#[test]
fn a_rule_that_components_keep_holds_here_too() {
    for (settings, expected) in [
        (
            r#"[{"pod": "9", "knob": "cpu.quota", "value": 1, "reason": "x"}]"#.to_owned(),
            "settings[0] (cpu.quota of pod 9): it names pod number 9, which it was not given",
        ),
        (
            r#"[{"event": "not camel", "pod": "1", "message": "x"}]"#.to_owned(),
            "settings[0] (event not camel of pod 1): `not camel` is not the reason of an event",
        ),
        (
            r#"[{"state": {"a": 1}}, {"state": {"a": 2}}]"#.to_owned(),
            "settings[1] (state): there is a second one: settings[0]",
        ),
        (
            format!(r#"[{{"state": {{"a": "{}"}}}}]"#, "x".repeat(70_000)),
            "settings[0] (state): state: 70008 B are more than the 65536 B that are kept",
        ),
        (
            r#"[{"pod": "1", "knob": "cpu.quota", "value": 150000.5, "reason": "x"}]"#.to_owned(),
            "settings[0] (`cpu.quota` of pod `1`): value: 150000.5 is not a whole number; round it with",
        ),
    ] {
        let mut tried = echo();
        let error = tried.declare(&settings).unwrap_err();
        assert_eq!(error.outcome(), "rule", "{error}");
        assert!(error.to_string().contains(expected), "{error}\n  should contain {expected}");
        assert!(!tried.instance.is_usable());
    }
}

#[test]
fn a_setting_needs_its_grant_though_the_operator_gave_more() {
    let mut tried = Tried::of(&opa::policy("cpu-stat", ECHO));
    let error = tried.declare(r#"[{"pod": "1", "knob": "cpu.quota", "value": 1, "reason": "x"}]"#).unwrap_err();
    assert!(
        error.to_string().contains("it needs the grant `cpu-bandwidth`; add it to `custom.qosm.grants`"),
        "{error}"
    );
}

#[test]
fn settings_may_be_an_array_and_must_be_there() {
    let array = opa::policy("", "settings := [{\"log\": \"b\"}, {\"log\": \"a\"}]");
    let lines: Vec<_> = Tried::of(&array).evaluated().log.into_iter().map(|line| line.message).collect();
    assert_eq!(lines, ["b", "a"], "an array has an order of its own");
    let undefined = opa::policy("", "settings := [] if input.tick.windowUsec > 99999999999");
    let error = Tried::of(&undefined).evaluate().unwrap_err().to_string();
    assert!(error.contains("its `settings` are undefined, neither a set nor an array; write it as"), "{error}");
    let object = opa::policy("", "settings := {\"log\": \"x\"}");
    let error = Tried::of(&object).evaluate().unwrap_err().to_string();
    assert!(error.contains("its settings are of type object, not a set or an array"), "{error}");
}

#[test]
fn a_failing_function_leaves_its_expression_undefined_and_is_reported() {
    let rules = "settings contains {\"log\": \"before\"}\n\n\
                 settings contains {\"log\": line} if {\n\tsome text in [\"7\", \"x\", \"y\", \"8\", \"z\", \"w\", \"v\"]\n\t\
                 line := sprintf(\"%d %v\", [time.parse_rfc3339_ns(text), 1])\n}\n\n\
                 settings contains {\"log\": \"after\"}";
    let mut tried = Tried::of(&opa::policy("", rules));
    let staged = tried.evaluated();
    let lines: Vec<_> = staged.log.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(&lines[..2], ["after", "before"]);
    assert_eq!(lines.len(), 6, "three failures and how many more: {lines:?}");
    assert!(lines[2].starts_with("time.parse_rfc3339_ns: "), "{lines:?}");
    assert_eq!(lines[5], "4 more built-in functions failed");
    assert!(staged.log[2..].iter().all(|line| line.level == LogLevel::Warn));
    assert!(tried.evaluated().log.is_empty(), "and not again while it lasts");
}

#[test]
fn a_text_with_leading_zeros_is_a_number_and_one_without_digits_is_quoted() {
    let rules = "settings contains {\"log\": sprintf(\"%d\", [to_number(input.config.text)])}\n\n\
                 settings contains {\"container\": \"10\", \"knob\": \"cpu.quota\", \"value\": to_number(input.config.text), \
                 \"reason\": \"because\"}";
    let mut tried = Tried::of(&opa::policy("cpu-bandwidth", rules));
    tried.instance.configure(r#"{"text": "05000"}"#).unwrap();
    let staged = tried.evaluated();
    assert_eq!(staged.settings, [hold(APP, Knob::CfsQuota, Value::Number(5000))]);
    assert_eq!(staged.log.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["5000"]);
    for text in ["-", ".", "1e", "1e+"] {
        let mut tried = Tried::of(&opa::policy("cpu-bandwidth", rules));
        tried.instance.configure(&format!("{{\"text\": \"{text}\"}}")).unwrap();
        let error = tried.evaluate().unwrap_err().to_string();
        assert!(error.contains(&format!("its result cannot be read: `{text}` is not a number")), "{error}");
        assert!(error.contains("`regex.match` before `to_number`"), "{error}");
    }
}

#[test]
fn two_values_for_one_rule_end_the_evaluation_with_file_and_line() {
    let rules = "settings contains {\"log\": x}\n\nx := \"a\" if input.tick.windowUsec > 0\n\nx := \"b\" if input.tick.windowUsec > 1";
    let mut tried = Tried::of(&opa::policy("", rules));
    let error = tried.evaluate().unwrap_err();
    assert_eq!(error.outcome(), "trap");
    let text = error.to_string();
    assert!(text.contains("policy.rego:1") && text.contains("conflict"), "{text}");
}
