//! Policies in Rego that do not build, and misbehaving ones: the author sees the position of the error, the operator sees which policy and
//! why, and the node is not changed.

use serde_json::{Value, json};

use crate::programs::{Run, limited, pod};
use crate::projects::Policy;

/// A policy that consists of these rules.
fn policy(rules: &str) -> Policy {
    let (policy, _) = Policy::new("rogue", "rego");
    std::fs::remove_file(policy.path("policy_test.rego")).unwrap();
    let metadata = "# METADATA\n# title: Misbehaves.\n# entrypoint: true\n# custom:\n#   qosm:\n#     name: rogue\n\
                    #     version: 0.1.0\n#     grants: [cpu-bandwidth]\n";
    policy.write("policy.rego", &rules.replace("# METADATA", metadata.trim_end()));
    policy
}

/// A policy with a valid setting on each container, and one more setting.
fn rogue(setting: &str) -> Policy {
    policy(&format!(
        "package qosm\n\n# METADATA\nsettings contains {{\"container\": id, \"knob\": \"cpu.burst\", \"value\": 1000, \"reason\": \
         \"well meant\"}} if some id in ids\n\nids contains container.id if container := input.pods[_].containers[_]\n\n{setting}\n"
    ))
}

fn tried(policy: &Policy) -> Run {
    tried_within(policy, PATIENT_MILLIS)
}

/// More time than any terminating evaluation takes, even on a busy machine.
const PATIENT_MILLIS: u64 = 10_000;

/// Runs the policy with this time limit for an evaluation.
fn tried_within(policy: &Policy, millis: u64) -> Run {
    let facts = json!({
        "pods": [pod("web", &json!({}), &json!([limited("a", "1")]))],
        "policies": [{"name": "rogue", "evaluationMillis": millis}],
    });
    policy.write("node.json", &facts.to_string());
    policy.run(&["run", "--facts", "node.json", "-o", "json"])
}

#[test]
fn what_cannot_be_built_is_reported_by_file_and_line() {
    for (rules, words) in [
        ("package qosm\n\n# METADATA\nsettings contains x if x := 1 +\n", ["policy.rego:12", "rego_parse_error"]),
        ("package qosm\n\n# METADATA\nsettings contains x if x := count(1)\n", ["policy.rego:11", "rego_type_error"]),
        ("package qosm\n\n# METADATA\nsettings contains x if x := y\n", ["policy.rego:11", "rego_unsafe_var_error"]),
        ("package qosm\n\nother := 1\n", ["qosm/settings", "entrypoint"]),
        ("package qosm\n\nsettings := set()\n", ["no policy's bundle", "METADATA"]),
    ] {
        policy(rules).run(&["build"]).says(1, &words);
    }
}

#[test]
fn a_function_that_no_node_answers_is_reported_with_what_to_write() {
    let policy = rogue("settings contains x if x := http.send({\"url\": \"http://x\"}).body");
    let words = ["it calls `http.send`, which is refused", "`input`", "policy.rego:15 calls `http.send`"];
    policy.run(&["build"]).says(1, &words);
    policy.run(&["run"]).says(1, &words);
}

#[test]
fn a_field_that_input_does_not_have_is_a_finding_of_lint_with_file_and_line() {
    let (policy, _) = Policy::new("slip", "rego");
    policy.change("policy.rego", "object.get(input.config,", "object.get(input.configs,");
    policy.run(&["build"]).says(0, &[]);
    let linted = policy.run(&["lint", "-o", "json"]);
    assert_eq!(linted.code, 1, "{linted:#?}");
    let found = linted.json();
    let finding = found["findings"].as_array().unwrap().iter().find(|finding| finding["rule"] == "opa-check");
    let what = finding.and_then(|finding| finding["what"].as_str()).unwrap_or_default();
    assert!(what.starts_with("policy.rego:65: undefined ref: input.configs; there are `bandwidth`"), "{found:#}");
    assert!(what.contains("`config`"), "{found:#}");
    assert!(!policy.path("target/input.schema.json").exists());
}

/// A policy's findings, as `rule: what`.
fn found(policy: &Policy) -> Vec<String> {
    let linted = policy.run(&["lint", "-o", "json"]).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let line = |finding: &Value| format!("{}: {}", text(&finding["rule"]), text(&finding["what"]));
    linted["findings"].as_array().unwrap().iter().map(line).collect()
}

/// Without the grant, no node does what the policy asks for.
#[test]
fn a_setting_that_the_grants_do_not_reach_is_a_finding_of_lint() {
    let tier = "settings contains {\"tier\": \"burstable\", \"knob\": \"cpu.burst\", \"value\": 1, \"reason\": \"no\"}";
    let of_tier = rogue(tier);
    of_tier.write(
        "tests/cases/tier.yaml",
        "{about: a tier, pods: [{name: default/web, containers: [{name: app}]}], ticks: [{}]}",
    );
    let (of_pods, _) = Policy::new("slip", "rego");
    of_pods.change(
        "policy.rego",
        "some pod in pods.configured\n\tpercent := pod.config.percent\n",
        "some pod in pods.active\n\tpercent := object.get(pod.config, \"percent\", 50)\n",
    );
    let (evicting, _) = Policy::new("slip", "rego");
    evicting.change("policy.rego", "grants: [memory-protection]", "grants: [memory-protection, eviction]");
    let eviction =
        "settings contains {\"evict\": pod.id, \"reason\": \"Full\", \"message\": \"full\"} if some pod in pods.active";
    evicting.change("policy.rego", "has_limit(pod) if", &format!("{eviction}\n\nhas_limit(pod) if"));
    evicting.write(
        "tests/cases/eviction.yaml",
        "{about: an eviction, pods: [{name: default/web, containers: [{name: app}]}], ticks: [{}]}",
    );
    for (policy, grants, granted, what) in [
        (
            evicting,
            "[memory-protection, eviction]",
            "[memory-protection, eviction, all-pods]",
            "an eviction of a pod that is not configured for the policy is requested, and the grants lack `all-pods`",
        ),
        (
            of_tier,
            "[cpu-bandwidth]",
            "[cpu-bandwidth, tiers]",
            "cpu.burst of a tier is set, and the grants lack `tiers`",
        ),
        (
            of_pods,
            "[memory-protection]",
            "[memory-protection, all-pods]",
            "memory.high of a container that is not configured for the policy is set, and the grants lack `all-pods`",
        ),
    ] {
        let lacking = || -> Vec<String> {
            found(&policy).into_iter().filter(|line| line.starts_with("missing-grant: ")).collect()
        };
        let lines = lacking();
        assert!(!lines.is_empty() && lines.iter().all(|line| line.ends_with(what)), "{lines:#?}");
        policy.change("policy.rego", &format!("grants: {grants}"), &format!("grants: {granted}"));
        assert_eq!(lacking(), [""; 0]);
    }
}

/// The host refuses every configuration of a policy without a schema.
#[test]
fn lint_asks_for_no_schema_of_a_policy_without_a_configuration() {
    let found = found(&rogue(""));
    assert!(!found.is_empty() && found.iter().all(|line| !line.starts_with("no-schema")), "{found:?}");
}

#[test]
fn wrong_metadata_are_reported_by_field() {
    for (from, to, words) in [
        ("version: 0.1.0", "version: one", "version"),
        ("grants: [cpu-bandwidth]", "grants: [cpu]", "`cpu`"),
        ("grants: [cpu-bandwidth]", "grant: [cpu-bandwidth]", "grant"),
        ("name: rogue", "name: Rogue", "name"),
    ] {
        let policy = rogue("");
        policy.change("policy.rego", from, to);
        policy.run(&["build"]).says(1, &[words]);
    }
}

#[test]
fn a_name_that_is_a_path_is_refused_and_leaves_nothing_outside_of_target() {
    for name in ["../../escaped", "a/b"] {
        let policy = rogue("");
        policy.change("policy.rego", "name: rogue", &format!("name: {name}"));
        for verb in ["build", "test", "lint"] {
            assert_eq!(policy.run(&[verb]).code, 1, "{verb}");
        }
        policy.run(&["build"]).says(1, &["name", name]);
        assert!(policy.path("target/rogue.tar.gz").is_file(), "the folder's name stands for it");
        let mut around: Vec<_> =
            std::fs::read_dir(policy.path("..")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        around.sort();
        assert_eq!(around, ["rogue"], "{name}");
    }
}

#[test]
fn a_policy_that_behaves_sets_what_it_means_to() {
    assert_eq!(tried(&rogue("")).rows(), ["container default/web/a cpu.burst 1000"]);
}

#[test]
fn whatever_a_policy_does_wrong_is_reported_with_its_name_and_writes_nothing() {
    let knob = |target: &str, knob: &str, value: &str| {
        format!("settings contains {{{target}, \"knob\": \"{knob}\", \"value\": {value}, \"reason\": \"no\"}}")
    };
    let somewhere = "\"container\": \"4711\"";
    let here = "\"tier\": \"burstable\"";
    for (setting, why) in [
        (knob(somewhere, "cpu.burst", "1"), "4711"),
        (knob("\"pod\": \"4711\"", "cpu.quota", "\"max\""), "4711"),
        (knob(here, "memory.high", "1"), "memory-protection"),
        (knob(here, "cpu.speed", "1"), "cpu.speed"),
        (knob(here, "cpu.burst", "-1"), "-1"),
        (knob(here, "cpu.burst", "0.5"), "0.5"),
        (knob(here, "cpu.burst", "99999999999999999999"), "99999999999999999999"),
        (knob(here, "cpu.burst", "\"NaN\""), "NaN"),
        ("settings contains {\"sets\": 1}".to_owned(), "it has none of the fields `knob`"),
    ] {
        is_refused(&tried(&rogue(&setting)), why);
    }
    // A billion steps without a result.
    let endless = "settings contains {\"log\": \"x\"} if {\n\tsome a in numbers.range(1, 1000)\n\tsome b in numbers.range(1, 1000)\n\t\
                   some c in numbers.range(1, 1000)\n\ta + b + c == 0\n}";
    is_refused(&tried_within(&rogue(endless), 50), "it had used up its 50ms");
}

#[track_caller]
fn is_refused(tried: &Run, why: &str) {
    tried.says(1, &["policy `rogue` does not run", "`evaluate`", why]);
    assert_eq!(tried.rows(), <[String; 0]>::default(), "{why}: {tried:#?}");
}

#[test]
fn a_division_by_zero_is_no_setting_and_no_failure() {
    let tried = tried(&rogue(
        "settings contains {\"tier\": \"burstable\", \"knob\": \"cpu.burst\", \"value\": 1 / (count(input.pods) - 1), \"reason\": \"no\"}",
    ));
    assert_eq!(
        (tried.code, tried.rows()),
        (0, vec!["container default/web/a cpu.burst 1000".to_owned()]),
        "{tried:#?}"
    );
}
