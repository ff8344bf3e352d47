//! What becomes of what a policy answers.

use qosm_engine::{CallError, LogLevel, Rejection, Staged};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{Migration, NumaId};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::setting::{EventKind, Setting};

use crate::node::{BATCH, CONTAINERS, Tried, WEB, batch, web};
use crate::opa;

const ALL: &str = "cpu-bandwidth, memory-protection, cpuset, page-migration, pod-event";
/// Answers what its configuration says.
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
    // What stays is not said again, what changes is, what is gone is released.
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
    // They stay, the event with other words.
    let staged = tried.declared(&format!("[{}, {line}, {reject}]", event.replace("by 3", "by 4")));
    assert_eq!((staged.events.len(), staged.log.len(), staged.rejections.len()), (0, 0, 0));
    // A pod that changed is turned down anew; another one changes nothing.
    tried.tell(&[batch()]).unwrap();
    assert_eq!(tried.declared(&format!("[{event}, {line}, {reject}]")).rejections, [rejection]);
    tried.tell(&[web()]).unwrap();
    assert_eq!(tried.declared(&format!("[{event}, {line}, {reject}]")).rejections, []);
    // They go and come again.
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

#[test]
fn a_rule_that_components_keep_holds_here_too() {
    let long = "x".repeat(5000);
    for (settings, expected) in [
        (
            r#"[{"pod": "9", "knob": "cpu.quota", "value": 1, "reason": "x"}]"#.to_owned(),
            "settings[0] (cpu.quota of pod 9): it names pod number 9, which it was not given",
        ),
        (
            format!(r#"[{{"pod": "1", "knob": "cpu.quota", "value": 1, "reason": "{long}"}}]"#),
            "settings[0] (cpu.quota of pod 1): its reason has 5000 B, and 4096 B are allowed",
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
fn a_function_that_fails_leaves_its_expression_undefined_and_is_told() {
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
fn two_values_for_one_rule_end_the_evaluation_with_file_and_line() {
    let rules = "settings contains {\"log\": x}\n\nx := \"a\" if input.tick.windowUsec > 0\n\nx := \"b\" if input.tick.windowUsec > 1";
    let mut tried = Tried::of(&opa::policy("", rules));
    let error = tried.evaluate().unwrap_err();
    assert_eq!(error.outcome(), "trap");
    let text = error.to_string();
    assert!(text.contains("policy.rego:1") && text.contains("conflict"), "{text}");
}
