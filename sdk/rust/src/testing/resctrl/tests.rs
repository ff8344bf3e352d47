//! Rows of caches and classes, with a policy that puts each configured pod into a class of the share that it asks for.

use serde::Deserialize;

use crate::testing::{Case, CaseError, Native, run_case};
use crate::{CacheShare, Description, EventKind, Host, Pod, PodId, Policy, Rejection, Share, Target, Tick};

#[derive(Default)]
struct Divider {
    pods: Vec<Pod<Asked>>,
}

#[derive(Deserialize)]
struct Asked {
    percent: u32,
}

impl Policy for Divider {
    type Config = ();
    type PodConfig = Asked;

    fn describe() -> Description {
        Description::new("divider", "0.1.0", "For these tests.")
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<Asked>>, removed: &[PodId]) -> Vec<Rejection> {
        self.pods.retain(|pod| !removed.contains(&pod.id) && upserted.iter().all(|new| new.id != pod.id));
        self.pods.extend(upserted);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        let seen = [host.class_usage().len(), host.container_usage().len(), host.rest_usage().len()];
        let states = host.class_states();
        for pod in &self.pods {
            if states.iter().any(|state| !state.in_force) {
                host.emit(pod.id, EventKind::Warning, "Lost", &format!("{} {seen:?}", states[0].why));
            }
            if let Some(asked) = &pod.config {
                let class = format!("p{}", asked.percent);
                let share = |end| Share { cache: Some(CacheShare::Percent((0, end))), bandwidth: None };
                let domains: Vec<_> = host.cache_domains().iter().skip(1).map(|domain| (domain.id, share(1))).collect();
                host.define_class(&class, &share(asked.percent), &domains, &format!("{} are asked for", asked.percent));
                host.assign_class(Target::Pod(pod.id), &class, "it asked");
            }
        }
        Ok(())
    }
}

fn web(ticks: &str) -> Result<(), CaseError> {
    let case = format!(
        "
about: a case
pods:
  - {{name: default/web, config: {{percent: 30}}, containers: [{{name: app}}]}}
{ticks}"
    );
    run_case(&Case::parse(&case)?, &mut Native::<Divider>::default())
}

const DEFINED: &str = "classes: [{class: p30, cachePercent: [0, 30]}]";
const MEMBER: &str = "members: [{target: pod default/web, class: p30}]";

#[test]
fn classes_and_members_that_change_have_to_be_expected_and_only_those() {
    web(&format!("ticks: [{{{DEFINED}, {MEMBER}}}, {{repeat: 3}}]")).unwrap();
    let error = web(&format!("ticks: [{{{MEMBER}}}]")).unwrap_err().to_string();
    assert!(error.ends_with("\n    + class p30: ways 0-30 %"), "{error}");
    let error = web(&format!("ticks: [{{{DEFINED}}}]")).unwrap_err().to_string();
    assert!(error.ends_with("\n    + pod default/web in class p30"), "{error}");
    let error = web(&format!("ticks: [{{{DEFINED}, {MEMBER}}}, {{{MEMBER}}}]")).unwrap_err().to_string();
    assert!(error.ends_with("\n    - pod default/web in class p30"), "{error}");
    let wider = "classes: [{class: p30, cachePercent: [0, 40]}]";
    let error = web(&format!("ticks: [{{{wider}, {MEMBER}}}]")).unwrap_err().to_string();
    assert!(error.contains("- class p30: ways 0-40 %") && error.contains("+ class p30: ways 0-30 %"), "{error}");
}

#[test]
fn domains_that_differ_are_part_of_a_class() {
    let domains = "cacheDomains: [{id: 0}, {id: 8, ways: 0}]";
    let classes = "classes: [{class: p30, cachePercent: [0, 30], domains: {8: {cachePercent: [0, 1]}}}]";
    web(&format!("ticks: [{{{domains}, {classes}, {MEMBER}}}]")).unwrap();
    let error = web(&format!("ticks: [{{{domains}, {DEFINED}, {MEMBER}}}]")).unwrap_err().to_string();
    assert!(error.ends_with("+ class p30: ways 0-30 %; on domain 8 ways 0-1 %"), "{error}");
}

#[test]
fn of_a_reason_a_part_is_enough() {
    let because = |part: &str| {
        let class = format!("classes: [{{class: p30, cachePercent: [0, 30], reason: {part}}}]");
        web(&format!("ticks: [{{{class}, {MEMBER}}}]"))
    };
    because("asked").unwrap();
    let error = because("whim").unwrap_err().to_string();
    assert!(error.contains(r#"- class p30: ways 0-30 % because "whim""#), "{error}");
    assert!(error.contains(r#"+ class p30: ways 0-30 % because "30 are asked for""#), "{error}");
}

#[test]
fn a_class_and_a_member_that_are_given_up_show_but_a_pod_that_vanishes_does_not() {
    let silent = "upsert: [{name: default/web, containers: [{name: app}]}]";
    let gone = "classes: [{class: p30, undefined: true}], members: [{target: pod default/web}]";
    web(&format!("ticks: [{{{DEFINED}, {MEMBER}}}, {{{silent}, {gone}}}]")).unwrap();
    web(&format!(
        "ticks: [{{{DEFINED}, {MEMBER}}}, {{remove: [default/web], classes: [{{class: p30, undefined: true}}]}}]"
    ))
    .unwrap();
}

#[test]
fn a_class_shows_once_it_is_defined() {
    let counted = "cacheDomains: [{id: 0}], classUsage: {p30: {0: {totalBytes: 7}}}, \
        containerUsage: {default/web/app: {0: {occupancyBytes: 7}}}, restUsage: {0: {localBytes: 7}}, \
        classStates: {p30: {inForce: false, why: full}}";
    let told = r#"events: [{pod: default/web, reason: Lost, message: "full [1, 1, 1]"}]"#;
    web(&format!("ticks: [{{{counted}, {DEFINED}, {MEMBER}}}, {{{told}}}]")).unwrap();
}

#[test]
fn slips_in_a_case_are_named() {
    let domains = "cacheDomains: [{id: 0}]";
    for (ticks, message) in [
        (
            format!("{domains}, containerUsage: {{default/web/ap: {{0: {{}}}}}}"),
            "tick 1: there is no container `default/web/ap`",
        ),
        (format!("{domains}, restUsage: {{1: {{}}}}"), "tick 1: there is no cache domain 1"),
        (format!("{domains}, classUsage: {{p30: {{3: {{}}}}}}"), "tick 1: there is no cache domain 3"),
        (format!("{DEFINED}, {MEMBER}, classUsage: {{p3: {{}}}}"), "tick 1: class `p3` was never defined"),
        (
            format!("{DEFINED}, {MEMBER}, classStates: {{be: {{inForce: true}}}}"),
            "tick 1: class `be` was never defined",
        ),
    ] {
        assert_eq!(web(&format!("ticks: [{{{ticks}}}]")).unwrap_err().to_string(), message);
    }
    for ticks in [
        "cacheDomains: [{id: 0, size: 7}]",
        "classUsage: {p30: {0: {totalByte: 7}}}",
        "classStates: {p30: {why: full}}",
        "classes: [{class: p30, cachePercent: 30}]",
        "classes: [{clas: p30}]",
        "members: [{target: pod default/web, class: p30, reasons: it asked}]",
    ] {
        assert!(matches!(web(&format!("ticks: [{{{ticks}}}]")), Err(CaseError::Malformed(_))), "{ticks}");
    }
}
