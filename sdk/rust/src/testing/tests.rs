//! The runner, with a policy that holds what its configuration says.

use serde::Deserialize;

use super::*;
use crate::{Description, EventKind, Host, Pod, PodId, Policy, Rejection, Target, Tick};

/// Holds `quota` on every container of a pod, and fails if configured to.
#[derive(Default)]
struct Obedient {
    fail: bool,
    pods: Vec<Pod<Asked>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Orders {
    fail: bool,
}

#[derive(Deserialize)]
struct Asked {
    quota: u64,
}

impl Policy for Obedient {
    type Config = Orders;
    type PodConfig = Asked;

    fn describe() -> Description {
        Description::new("obedient", "0.1.0", "For these tests.")
    }

    fn configure<H: Host>(&mut self, _: &mut H, orders: Orders) -> Result<(), String> {
        self.fail = orders.fail;
        Ok(())
    }

    fn pods<H: Host>(&mut self, host: &mut H, upserted: Vec<Pod<Asked>>, removed: &[PodId]) -> Vec<Rejection> {
        for pod in upserted.iter().filter(|pod| pod.labels.iter().any(|(name, _)| name == "loud")) {
            host.emit(pod.id, EventKind::Normal, "Seen", "it was seen");
        }
        self.pods.retain(|pod| !removed.contains(&pod.id) && upserted.iter().all(|new| new.id != pod.id));
        self.pods.extend(upserted);
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        let rows = host.bandwidth();
        for pod in &self.pods {
            for container in &pod.containers {
                let target = Target::Container(container.id);
                match (&pod.config, rows.iter().any(|row| row.target == target)) {
                    (Some(asked), true) => host.set_quota(target, Some(asked.quota), "asked for"),
                    _ => host.release_quota(target),
                }
            }
        }
        if self.fail { Err("was told to fail".into()) } else { Ok(()) }
    }
}

fn check(yaml: &str) -> Result<(), CaseError> {
    run_case(&Case::parse(yaml)?, &mut Native::<Obedient>::default())
}

const WEB: &str = "
about: a case
pods:
  - {name: default/web, config: {quota: 5000}, containers: [{name: app}]}
";

fn web(ticks: &str) -> Result<(), CaseError> {
    check(&format!("{WEB}{ticks}"))
}

const HELD: &str = "expect: [{target: container default/web/app, knob: cpu.quota, value: 5000}]";

#[test]
fn what_changes_has_to_be_expected_and_only_that() {
    web(&format!("ticks: [{{{HELD}}}, {{repeat: 3}}]")).unwrap();
    web(&format!("ticks: [{{repeat: 3, {HELD}}}]")).unwrap();

    let error = web("ticks: [{about: nothing}]").unwrap_err();
    let expected = "tick 1 (nothing): not as expected (- missing, + unexpected):\n    + container default/web/app cpu.quota = 5000";
    assert_eq!(error.to_string(), expected);

    let error = web(&format!("ticks: [{{{HELD}}}, {{{HELD}}}]")).unwrap_err();
    assert!(error.to_string().ends_with("\n    - container default/web/app cpu.quota = 5000"), "{error}");
}

#[test]
fn a_case_that_shows_nothing_or_speaks_twice_is_named() {
    let pods = |pods: &str| format!("{{about: x, pods: [{pods}], ticks: [{{}}]}}");
    for (case, problem) in [
        (
            "{about: x, ticks: []}".to_owned(),
            "ticks: there is none, so that nothing is shown; write at least `ticks: [{}]`",
        ),
        ("{about: x, ticks: [{repeat: 0}]}".to_owned(), "tick 1: repeat: 0 is not from 1 to 86400"),
        ("{about: x, ticks: [{repeat: 86401}]}".to_owned(), "tick 1: repeat: 86401 is not from 1 to 86400"),
        (pods("{name: a/b}, {name: a/b}"), "start: pod a/b is there twice"),
        (pods("{name: a/b, containers: [{name: c}, {name: c}]}"), "start: container c of pod a/b is there twice"),
    ] {
        assert_eq!(check(&case).unwrap_err().to_string(), problem, "{case}");
    }
}

#[test]
fn a_release_shows_but_what_vanishes_does_not() {
    let upsert = "upsert: [{name: default/web, containers: [{name: app}]}]";
    let released = "expect: [{target: container default/web/app, knob: cpu.quota, value: released}]";
    web(&format!("ticks: [{{{HELD}}}, {{{upsert}, {released}}}]")).unwrap();
    web(&format!("ticks: [{{{HELD}}}, {{remove: [default/web]}}]")).unwrap();
    let restart = "upsert: [{name: default/web, config: {quota: 5000}, containers: [{name: app, restarts: 1}]}]";
    web(&format!("ticks: [{{{HELD}}}, {{{restart}, {HELD}}}]")).unwrap();
}

#[test]
fn a_call_that_fails_leaves_nothing_behind() {
    web("ticks: [{configure: {fail: true}, error: told to fail}]").unwrap();
    let error = web("ticks: [{configure: {fail: true}}]").unwrap_err();
    assert_eq!(error.to_string(), "tick 1: expected that all goes well, but was told to fail");
    let error = web(&format!("ticks: [{{error: boom, {HELD}}}]")).unwrap_err();
    assert_eq!(error.to_string(), "tick 1: expected an error that says `boom`, but all went well");
}

#[test]
fn refusals_and_events_have_to_be_expected() {
    let refused = "upsert: [{name: default/web, config: {quota: much}, containers: [{name: app}]}]";
    web(&format!("ticks: [{{{refused}, rejections: [{{pod: default/web, field: quota}}]}}]")).unwrap();
    assert!(web(&format!("ticks: [{{{refused}}}]")).is_err());

    let loud = "upsert: [{name: default/loud, labels: {loud: yes}}]";
    web(&format!("ticks: [{{{loud}, {HELD}, events: [{{pod: default/loud, reason: Seen}}]}}]")).unwrap();
    let error = web(&format!("ticks: [{{{loud}, {HELD}}}]")).unwrap_err();
    assert!(error.to_string().ends_with("+ event Seen on default/loud"), "{error}");
}

#[test]
fn an_unreadable_quota_has_no_row() {
    web("ticks: [{bandwidth: [{target: container default/web/app, quotaUsec: unreadable}]}]").unwrap();
}

#[test]
fn slips_in_a_case_are_named() {
    for (ticks, message) in [
        ("ticks: [{cpu: {default/web/ap: {usageUsec: 1}}}]", "tick 1: there is no container `default/web/ap`"),
        ("ticks: [{remove: [default/wep]}]", "tick 1: there is no pod `default/wep`"),
        ("ticks: [{cause: whim}]", "tick 1: `whim` is no cause"),
        ("ticks: [{bandwidth: [{target: pod a/b, quotaUsec: 1}]}]", "tick 1: `pod a/b` has no row"),
        ("ticks: [{upsert: [{name: web}]}]", "tick 1: `web` is no namespace/name"),
        ("ticks: [{upsert: [{name: a/b, declaredQos: ls}]}]", "tick 1: `ls` is no QoS class"),
    ] {
        assert_eq!(web(ticks).unwrap_err().to_string(), message);
    }
    for ticks in ["ticks: [{wait: 3}]", "ticks: [{expect: [{target: a, knob: b, value: 1.5}]}]", "tick: []"] {
        assert!(matches!(web(ticks), Err(CaseError::Malformed(_))), "{ticks}");
    }
}

/// `docs/cases.md` lists these fields and defaults.
#[test]
fn rows_of_a_tick_have_defaults_except_for_required_fields() {
    for (row, field) in [
        ("numaNodes: [{}]", "id"),
        ("numa: {default/web/app: {pages: {0: 1}}}", "cpuNodes"),
        ("numa: {default/web/app: {cpuNodes: [0]}}", "pages"),
        ("migrations: {default/web/app: {}}", "state"),
        ("cacheDomains: [{}]", "id"),
        ("classStates: {be: {}}", "inForce"),
        ("resourceStates: {example.com/gpu: {}}", "inForce"),
        ("evictionStates: {default/web: {}}", "outcome"),
        ("cpuTopology: {cpus: [{}]}", "id"),
        ("blockDevices: [{}]", "device"),
        ("podVolumes: [{pod: default/web, name: data}]", "device"),
    ] {
        let error = web(&format!("ticks: [{{{row}}}]")).unwrap_err().to_string();
        assert!(error.contains(&format!("missing field `{field}`")), "{row}: {error}");
    }

    let tick = "{numaNodes: [{id: 0}, {id: 1}], cacheDomains: [{id: 0}], groups: {outside: {memory: {}}}}";
    let case = Case::parse(&format!("{WEB}ticks: [{tick}]")).unwrap();
    let mut stage = fixture::CaseFixture::default();
    stage.upsert(&case.pods, "here").unwrap();
    stage.samples(&case.ticks[0]);
    let columns = stage.columns(&[], "here").unwrap();
    let node = &columns.numa_nodes[0];
    assert_eq!((node.cpus, node.memory_bytes, node.free_bytes, node.available_bytes), (2, 16 << 30, 8 << 30, 8 << 30));
    assert_eq!(node.distances, [10, 20]);
    let domain = &columns.cache_domains[0];
    assert_eq!((domain.cache_ways, domain.cache_bytes, domain.divides_bandwidth), (10, Some(20 << 20), true));
    assert_eq!(columns.groups[0].memory.as_ref().map(|memory| memory.usage_bytes), Some(0));
    assert_eq!(columns.groups[0].cpu_usage_usec, None);
    let object = &columns.pod_objects[0];
    assert_eq!((object.grace_period_sec, object.deleting, object.mirror), (Some(30), false, false));
}

#[test]
fn a_field_twice_and_two_cases_in_a_file_are_errors_in_words_of_cases() {
    for (text, expected) in [
        ("about: x\npods: []\nticks: []\npods: []\n", "`pods` occurs twice"),
        ("about: x\nticks: []\n---\nabout: y\nticks: []\n", "a file has one case; put the next into its own"),
    ] {
        let error = Case::parse(text).unwrap_err().to_string();
        assert!(error.starts_with("is no case: error: line 4 column 1: ") && error.contains(expected), "{error}");
        assert!(!error.contains("Options") && !error.contains("from_str"), "{error}");
    }
}

#[test]
fn a_value_that_is_none_of_its_field_is_answered_with_what_to_write() {
    for (text, expected) in [
        ("{about: , ticks: []}", "it has no value; write a text"),
        ("{about: x, pods: [{name: a/b, active: maybe}], ticks: []}", "write `true` or `false`"),
        ("{about: x, ticks: [{windowMillis: -1}]}", "write a whole number, 0 or more"),
        ("{about: x, pods: [{name: a/b, priority: high}], ticks: []}", "write a whole number"),
    ] {
        let error = Case::parse(text).unwrap_err().to_string();
        let (first, _) = error.split_once('\n').unwrap();
        assert!(first.ends_with(expected), "{error}");
    }
}

#[test]
fn a_baseline_follows_from_limits_as_a_kubelet_would_have_it() {
    let case = Case::parse(
        "
about: limits
pods:
  - name: a/summed
    cpuOverheadMilli: 250
    containers:
      - {name: init, kind: init, cpuLimitMilli: 9000, state: terminated}
      - {name: side, kind: sidecar, cpuLimitMilli: 500}
      - {name: app, cpuLimitMilli: 2000}
  - {name: a/free, containers: [{name: app, cpuLimitMilli: 2000}, {name: other}]}
  - {name: a/own, cpuLimitMilli: 1000, periodUsec: 50000, containers: [{name: app, quotaUsec: max}]}
ticks: []
",
    )
    .unwrap();
    let mut stage = fixture::CaseFixture::default();
    stage.upsert(&case.pods, "here").unwrap();
    let rows = stage.columns(&[], "here").unwrap().bandwidth;
    let rows: Vec<_> =
        rows.iter().map(|row| (stage.target_name(row.target), row.quota_usec, row.period_usec)).collect();
    let expected = [
        ("tier besteffort", None, 100_000),
        ("pod a/free", None, 100_000),
        ("container a/free/app", Some(200_000), 100_000),
        ("container a/free/other", None, 100_000),
        ("pod a/own", Some(50_000), 50_000),
        ("container a/own/app", None, 50_000),
        ("pod a/summed", Some(925_000), 100_000),
        ("container a/summed/side", Some(50_000), 100_000),
        ("container a/summed/app", Some(200_000), 100_000),
    ];
    assert_eq!(rows, expected.map(|(name, quota, period)| (name.to_owned(), quota, period)));
}

#[test]
fn both_endings_of_yaml_are_cases() {
    for (name, expected) in [
        ("a.yaml", true),
        ("a.yml", true),
        ("a.YAML", false),
        ("a.json", false),
        ("yaml", false),
        ("a.yaml.orig", false),
    ] {
        assert_eq!(is_case_file(std::path::Path::new(name)), expected, "{name}");
    }
}

#[test]
fn a_folder_without_cases_is_an_error() {
    let nowhere = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testing");
    assert!(run_folder(nowhere, Native::<Obedient>::default).is_err());
}
