//! Classes of shares: which changes are staged, and which are not.

use std::fmt::Write as _;

use qosm_engine::{
    CallError, Cause, Columns, Compiler, EngineError, Grants, Instance, Interface, Limits, Rule, Staged,
};
use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::resctrl::{BandwidthShare, CacheShare, ClassName, DomainId, Share, Shares};
use qosm_model::setting::Setting;
use qosm_model::unit::Micros;

use crate::contract::{ENGINE, POD, everything, pod, view};
use crate::guest;

const WEB: Target = Target::Container(ContainerId(10));
const LOG: Target = Target::Container(ContainerId(11));
const ALL: Target = Target::Pod(POD);

/// One call of `resctrl-allocation`.
enum Call<'a> {
    Define(&'a str, Share, &'a [(u32, Share)]),
    /// Classes named 0, 1, 2, and so on.
    DefineMany(usize),
    Undefine(&'a str),
    Assign(Target, &'a str),
    Release(Target),
    /// The evaluation ends with an error.
    Refuse,
}

/// A guest that takes the number of an evaluation from its window and makes the calls of that evaluation.
fn guest(evaluations: &[&[Call<'_>]]) -> Vec<u8> {
    let mut texts = String::from("because");
    let mut fields = String::new();
    for (name, signature) in [
        ("define", "i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32"),
        ("undefine", "i32 i32"),
        ("assign", "i32 i32 i32 i32 i32 i32"),
        ("release", "i32 i32"),
    ] {
        let import = "qosm:policy/resctrl-allocation@0.1.0";
        writeln!(fields, "(import \"{import}\" \"{name}\" (func ${name} (param {signature})))").unwrap();
    }
    // `result::err` with an empty text.
    fields.push_str("(data (i32.const 12288) \"\\01\")\n");
    let mut body = String::new();
    for (number, calls) in (1..).zip(evaluations) {
        writeln!(body, "(if (i64.eq (local.get 0) (i64.const {number})) (then").unwrap();
        for call in *calls {
            let mut text = |text: &str| {
                let at = 4096 + texts.len();
                texts.push_str(text);
                format!("(i32.const {at}) (i32.const {})", text.len())
            };
            let reason = "(i32.const 4096) (i32.const 7)";
            match call {
                Call::Define(class, share, domains) => {
                    let at = 16_384;
                    for (index, (domain, own)) in (0..).zip(*domains) {
                        element(&mut body, at + index * 48, *domain, own);
                    }
                    let (class, count) = (text(class), domains.len());
                    let lists = format!("(i32.const {at}) (i32.const {count})");
                    writeln!(body, "(call $define {class} {} {lists} {reason})", flat(share)).unwrap();
                }
                Call::DefineMany(count) => {
                    for index in 0..*count {
                        let class = text(&index.to_string());
                        let share = flat(&Share::default());
                        writeln!(body, "(call $define {class} {share} (i32.const 0) (i32.const 0) {reason})").unwrap();
                    }
                }
                Call::Undefine(class) => writeln!(body, "(call $undefine {})", text(class)).unwrap(),
                Call::Assign(targets, class) => {
                    writeln!(body, "(call $assign {} {} {reason})", target(*targets), text(class)).unwrap();
                }
                Call::Release(targets) => writeln!(body, "(call $release {})", target(*targets)).unwrap(),
                Call::Refuse => body.push_str("(return (i32.const 12288))\n"),
            }
        }
        body.push_str("))\n");
    }
    assert!(texts.len() < 8192, "the texts lie beneath the error");
    writeln!(fields, "(data (i32.const 4096) \"{}\")", texts.replace('\n', "\\n")).unwrap();
    writeln!(fields, "(func $evaluate (param i64 i32 i32 i32) (result i32)\n{body}(i32.const 16))").unwrap();
    guest::component(&fields)
}

/// A share as arguments.
fn flat(share: &Share) -> String {
    let cache = match share.cache {
        None => "(i32.const 0) (i32.const 0) (i64.const 0) (i32.const 0)".to_owned(),
        Some(CacheShare::Percent { start, end }) => {
            format!("(i32.const 1) (i32.const 0) (i64.const {start}) (i32.const {end})")
        }
        Some(CacheShare::Mask(mask)) => format!("(i32.const 1) (i32.const 1) (i64.const {mask}) (i32.const 0)"),
    };
    let (text, case, most) = bandwidth(share);
    format!("{cache} (i32.const {text}) (i32.const {case}) (i32.const {most})")
}

fn bandwidth(share: &Share) -> (u32, u32, u32) {
    match share.bandwidth {
        None => (0, 0, 0),
        Some(BandwidthShare::Percent(percent)) => (1, 0, percent),
        Some(BandwidthShare::Megabytes(most)) => (1, 1, most),
    }
}

/// Writes an element of the list of domains.
fn element(body: &mut String, at: u32, domain: u32, share: &Share) {
    let mut store = |offset: u32, value: u32| {
        writeln!(body, "(i32.store (i32.const {}) (i32.const {value}))", at + offset).unwrap();
    };
    store(0, domain);
    match share.cache {
        None => store(8, 0),
        Some(CacheShare::Percent { start, end }) => {
            store(8, 1);
            store(16, 0);
            store(24, start);
            store(28, end);
        }
        Some(CacheShare::Mask(mask)) => {
            store(8, 1);
            store(16, 1);
            store(24, u32::try_from(mask & 0xffff_ffff).unwrap());
            store(28, u32::try_from(mask >> 32).unwrap());
        }
    }
    let (text, case, most) = bandwidth(share);
    store(32, text);
    store(36, case);
    store(40, most);
}

fn target(target: Target) -> String {
    let (case, id) = match target {
        Target::Node => panic!("the contract has no name for it"),
        Target::Tier(tier) => (0, u32::try_from(Tier::ALL.iter().position(|one| *one == tier).unwrap()).unwrap()),
        Target::Pod(PodId(id)) => (1, id),
        Target::Container(ContainerId(id)) => (2, id),
    };
    format!("(i32.const {case}) (i32.const {id})")
}

/// An instance that has the pod `web-1`, and the number of its next evaluation.
struct Tried(Instance, u64);

impl Tried {
    fn of(evaluations: &[&[Call<'_>]]) -> Self {
        let module = ENGINE.load(&guest(evaluations), None, &Compiler::InProcess).unwrap();
        let mut instance = ENGINE.instantiate(&module, "tried", &everything(), &Limits::default(), Vec::new()).unwrap();
        instance.configure("{}").unwrap();
        instance.pods(&[view(&pod("web-1"), "{}")], &[]).unwrap();
        Self(instance, 0)
    }

    fn next(&mut self) -> Result<Staged, CallError> {
        self.1 += 1;
        self.0.evaluate(Micros(self.1), Cause::Interval, &Columns::default())
    }

    fn settings(&mut self) -> Vec<Setting> {
        self.next().unwrap().settings
    }

    fn rule(&mut self) -> Rule {
        match self.next().unwrap_err() {
            CallError::Broke(breach) => breach.rule,
            other => panic!("{other}"),
        }
    }
}

fn name(class: &str) -> ClassName {
    class.parse().unwrap()
}

fn define(class: &str, all: Share, domains: &[(u32, Share)]) -> Setting {
    let domains = domains.iter().map(|&(id, share)| (DomainId(id), share)).collect();
    Setting::DefineClass { class: name(class), shares: Shares { all, domains }, reason: "because".into() }
}

fn assign(target: Target, class: &str) -> Setting {
    Setting::AssignClass { target, class: name(class), reason: "because".into() }
}

fn cache(start: u32, end: u32) -> Share {
    Share { cache: Some(CacheShare::Percent { start, end }), bandwidth: None }
}

#[test]
fn classes_and_members_are_staged_in_order() {
    let wide = Share { cache: Some(CacheShare::Mask(1 << 40)), bandwidth: Some(BandwidthShare::Megabytes(5000)) };
    let slow = Share { cache: None, bandwidth: Some(BandwidthShare::Percent(50)) };
    let mut tried = Tried::of(&[
        &[
            Call::Define("be", cache(0, 30), &[(0, slow), (8, wide), (3, cache(10, 20))]),
            Call::Define("ls", Share::default(), &[]),
            Call::Assign(ALL, "be"),
            Call::Assign(WEB, "ls"),
        ],
        &[Call::Define("be", slow, &[]), Call::Assign(WEB, "be"), Call::Release(ALL), Call::Undefine("ls")],
        &[],
    ]);
    let defined = define("be", cache(0, 30), &[(0, slow), (3, cache(10, 20)), (8, wide)]);
    let all = [defined, define("ls", Share::default(), &[]), assign(ALL, "be"), assign(WEB, "ls")];
    assert_eq!(tried.settings(), all);
    assert_eq!(
        tried.settings(),
        [
            define("be", slow, &[]),
            assign(WEB, "be"),
            Setting::ReleaseClass { target: ALL },
            Setting::UndefineClass { class: name("ls") }
        ]
    );
    assert_eq!(tried.settings(), [], "what is not said stays");
}

#[test]
fn of_a_domain_that_is_listed_twice_the_last_counts() {
    let domains = [(8, cache(0, 30)), (8, cache(0, 60))];
    let mut tried = Tried::of(&[&[Call::Define("be", Share::default(), &domains)]]);
    assert_eq!(tried.settings(), [define("be", Share::default(), &domains[1..])]);
}

#[test]
fn what_the_instance_does_not_have_is_not_given_up() {
    let mut tried = Tried::of(&[
        &[Call::Undefine("be"), Call::Release(WEB), Call::Release(Target::Tier(Tier::Burstable))],
        &[Call::Define("be", Share::default(), &[]), Call::Assign(WEB, "be")],
        &[Call::Undefine("be"), Call::Release(WEB), Call::Undefine("be")],
    ]);
    assert_eq!(tried.settings(), []);
    assert_eq!(tried.settings().len(), 2);
    assert_eq!(tried.settings(), [Setting::UndefineClass { class: name("be") }], "its members went with it");
}

#[test]
fn a_class_is_defined_before_its_members_are_assigned() {
    let mut tried = Tried::of(&[&[Call::Define("be", Share::default(), &[]), Call::Assign(WEB, "ls")]]);
    assert_eq!(
        tried.next().unwrap_err().to_string(),
        "module `tried` was stopped in `evaluate`: it puts container number 10 into class `ls`, which it has not defined; each instance defines a class before it assigns members to it"
    );
    let gone = [Call::Define("be", Share::default(), &[]), Call::Undefine("be"), Call::Assign(WEB, "be")];
    assert!(matches!(Tried::of(&[&gone]).rule(), Rule::UnknownClass { target: WEB, .. }));
}

#[test]
fn a_fresh_instance_has_none_of_the_classes_of_the_one_before() {
    let evaluations: &[&[Call<'_>]] =
        &[&[Call::Define("be", Share::default(), &[]), Call::Assign(WEB, "be")], &[Call::Assign(LOG, "be")]];
    let mut first = Tried::of(evaluations);
    assert_eq!(first.settings().len(), 2);
    assert_eq!(first.settings(), [assign(LOG, "be")]);
    let mut second = Tried::of(evaluations);
    second.1 = 1;
    assert!(matches!(second.rule(), Rule::UnknownClass { target: LOG, .. }));
}

#[test]
fn an_error_discards_what_was_said_of_classes() {
    let mut tried = Tried::of(&[
        &[Call::Define("be", cache(0, 30), &[]), Call::Assign(WEB, "be")],
        &[Call::Undefine("be"), Call::Define("ls", Share::default(), &[]), Call::Assign(ALL, "ls"), Call::Refuse],
        &[Call::Assign(ALL, "be"), Call::Release(WEB), Call::Undefine("ls")],
    ]);
    assert_eq!(tried.settings().len(), 2);
    assert_eq!(tried.next().unwrap_err().outcome(), "refused");
    assert_eq!(tried.settings(), [assign(ALL, "be"), Setting::ReleaseClass { target: WEB }]);
}

#[test]
fn a_pod_that_goes_leaves_its_class() {
    let mut tried = Tried::of(&[
        &[Call::Define("be", Share::default(), &[]), Call::Assign(ALL, "be"), Call::Assign(WEB, "be")],
        &[Call::Release(ALL), Call::Release(WEB)],
        &[Call::Assign(ALL, "be")],
        &[Call::Assign(WEB, "be")],
    ]);
    assert_eq!(tried.settings().len(), 3);
    tried.0.pods(&[], &[POD]).unwrap();
    tried.0.pods(&[view(&pod("web-1"), "{}")], &[]).unwrap();
    assert_eq!(tried.settings(), [], "there is nothing left to release");
    assert_eq!(tried.settings(), [assign(ALL, "be")], "the class is still there");
    tried.0.pods(&[], &[POD]).unwrap();
    assert!(matches!(tried.rule(), Rule::UnknownTarget { target: WEB }));
}

#[test]
fn what_cannot_be_is_told_with_the_way_out() {
    let share = |share| Call::Define("be", share, &[]);
    let mask = Share { cache: Some(CacheShare::Mask(0)), bandwidth: None };
    let bandwidth = |percent| Share { cache: None, bandwidth: Some(BandwidthShare::Percent(percent)) };
    let domains = [(0, Share::default()), (8, cache(30, 30))];
    let tier = Target::Tier(Tier::BestEffort);
    let many: Vec<_> = (0..257).map(|id| (id, Share::default())).collect();
    for (call, expected) in [
        (
            share(cache(60, 30)),
            "its share for class `be`: the range of ways 60 to 30 % is none: give a start below the end",
        ),
        (share(cache(0, 101)), "its share for class `be`: the range of ways 0 to 101 % is none"),
        (share(mask), "its share for class `be`: a mask of no ways is none: set at least one bit"),
        (share(bandwidth(0)), "its share for class `be`: 0 % of the memory bandwidth cannot be had: give 1 to 100"),
        (
            Call::Define("be", Share::default(), &domains),
            "its share for class `be` on domain 8: the range of ways 30 to 30 %",
        ),
        (Call::Define("be", Share::default(), &many), "its class `be` has shares of its own on more than 256 domains"),
        (
            Call::Define("a/b", Share::default(), &[]),
            "it names a class: `a/b` is not the name of a class: give 1 to 63 letters",
        ),
        (Call::Undefine(""), "it names a class: `` is not the name of a class"),
        (Call::Assign(WEB, "a\nb"), "it names a class: `a b` is not the name of a class"),
        (
            Call::Assign(tier, "be"),
            "it puts the tier `besteffort` into a class; only pods and containers can be in one",
        ),
        (Call::Assign(Target::Pod(PodId(7)), "be"), "it names pod number 7, which it was not given"),
        (Call::Release(Target::Container(ContainerId(7))), "it names container number 7, which it was not given"),
        (Call::DefineMany(257), "its class `256` is one more than the 256 that it may have"),
    ] {
        let mut tried = Tried::of(&[&[call]]);
        let error = tried.next().unwrap_err();
        assert_eq!(error.outcome(), "rule");
        assert!(error.to_string().contains(expected), "{error}\n  should contain {expected}");
        assert!(!tried.0.is_usable());
    }
}

#[test]
fn as_many_classes_as_may_be_can_be_changed() {
    let mut tried = Tried::of(&[&[Call::DefineMany(256)], &[Call::DefineMany(256)]]);
    assert_eq!(tried.settings().len(), 256);
    assert_eq!(tried.settings().len(), 256);
}

#[test]
fn a_module_that_divides_caches_needs_the_grant() {
    let module = ENGINE.load(&guest(&[&[Call::Undefine("be")]]), None, &Compiler::InProcess).unwrap();
    assert_eq!(module.imports().iter().copied().collect::<Vec<_>>(), [Interface::ResctrlAllocation]);
    let grants: Grants = Interface::ALL.into_iter().filter(|&one| one != Interface::ResctrlAllocation).collect();
    let error = ENGINE.instantiate(&module, "tried", &grants, &Limits::default(), Vec::new()).unwrap_err();
    assert!(matches!(&error, EngineError::NotGranted { missing, .. } if *missing == [Interface::ResctrlAllocation]));
    assert_eq!(
        error.to_string(),
        "policy `tried` imports `resctrl-allocation`, which is not granted; add `resctrl-allocation` to its grants, or list all \
         that it imports with `qosm policy inspect`"
    );
}
