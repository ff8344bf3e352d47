//! A misbehaving policy: the operator sees which policy and why, and the node is not changed, not even by what the evaluation set before.

use std::sync::LazyLock;

use serde_json::json;

use crate::programs::{Run, limited, pod, run, run_qosm};
use crate::projects::Policy;

/// A policy in Rust that holds a burst on each container, and then misbehaves as its configuration says.
const SOURCE: &str = r#"//! It misbehaves.
use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Target, Tick};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

qosm_sdk::export!(Rogue);

/// What it does.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Config {
    does: String,
}

/// It.
#[derive(Debug, Default)]
pub struct Rogue {
    does: String,
    pods: Vec<Pod<NoConfig>>,
}

impl Policy for Rogue {
    type Config = Config;
    type PodConfig = NoConfig;

    fn describe() -> Description {
        Description::new("rogue", "0.1.0", "Misbehaves.").config::<Config>()
    }

    fn configure<H: Host>(&mut self, _: &mut H, config: Config) -> Result<(), String> {
        self.does = config.does;
        Ok(())
    }

    fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> {
        self.pods = upserted;
        Vec::new()
    }

    fn evaluate<H: Host>(&mut self, host: &mut H, _: Tick) -> Result<(), String> {
        let containers: Vec<_> = self.pods.iter().flat_map(|pod| &pod.containers).map(|one| one.id).collect();
        for &container in &containers {
            host.set_burst(Target::Container(container), 1000, "well meant");
        }
        let first = Target::Container(containers.first().copied().unwrap_or_default());
        match self.does.as_str() {
            "forges" => host.set_burst(Target::Container(4711), 1, "not mine"),
            "forges-a-pod" => host.set_quota(Target::Pod(4711), None, "not mine"),
            "overflows" => host.set_quota(first, Some(u64::MAX), "more than there is"),
            "hoards" => {
                let mut heap: Vec<Vec<u8>> = Vec::new();
                loop {
                    heap.push(vec![1; 1 << 20]);
                    if heap.len() > 4000 {
                        break;
                    }
                }
                return Err(format!("{} MiB", heap.len()));
            }
            "loops" => loop {
                std::hint::black_box(0);
            },
            "panics" => panic!("it was meant to"),
            "refuses" => return Err("not today".into()),
            _ => {}
        }
        Ok(())
    }
}
"#;

static ROGUE: LazyLock<String> = LazyLock::new(|| {
    let (policy, _) = Policy::new("rogue", "rust");
    policy.write("src/lib.rs", SOURCE);
    std::fs::remove_file(policy.path("tests/cases.rs")).unwrap();
    let built = policy.run(&["build"]);
    assert_eq!(built.code, 0, "{built:#?}");
    let kept = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("rogue.wasm");
    std::fs::copy(policy.path("target/rogue.wasm"), &kept).unwrap();
    kept.display().to_string()
});

fn facts() -> String {
    facts_with(&json!([]))
}

fn facts_with(policies: &serde_json::Value) -> String {
    json!({"pods": [pod("web", &json!({}), &json!([limited("a", "1")]))], "policies": policies}).to_string()
}

fn rogue(does: &str) -> Run {
    let config = json!({"does": does}).to_string();
    // A terminating evaluation gets enough time even on a busy machine.
    let millis = if does == "loops" { 50 } else { 10_000 };
    let facts = facts_with(&json!([{"name": "rogue", "evaluationMillis": millis}]));
    run(&["run", &ROGUE, "--facts", "-", "--config", &config, "-o", "json"], &facts)
}

#[test]
fn a_policy_that_behaves_sets_what_it_means_to() {
    assert_eq!(rogue("nothing").rows(), ["container default/web/a cpu.burst 1000"]);
}

#[test]
fn whatever_a_policy_does_wrong_is_reported_with_its_name_and_writes_nothing() {
    for (does, why) in [
        ("forges", "it names container number 4711, which it was not given"),
        ("forges-a-pod", "it names pod number 4711, which it was not given"),
        ("overflows", "18446744073709551615, which no cgroup file can hold"),
        ("hoards", "of memory and may have 33554432 B"),
        ("loops", "it had used up its 50ms"),
        ("panics", "trapped in `evaluate`"),
        ("refuses", "not today"),
    ] {
        let tried = rogue(does);
        tried.says(1, &["policy `rogue` does not run", "`evaluate`", why]);
        assert_eq!(tried.rows(), <[String; 0]>::default(), "{does}: {tried:#?}");
    }
}

#[test]
fn a_panic_is_logged_with_its_place_and_its_words() {
    let line = SOURCE.lines().position(|line| line.contains("it was meant to")).unwrap() + 1;
    let tried = rogue("panics");
    assert!(tried.stderr.contains(&format!("panicked at src/lib.rs:{line}: it was meant to")), "{tried:#?}");
}

#[test]
fn what_is_not_granted_is_reported_and_not_reached() {
    let rogue = format!("rogue={}", *ROGUE);
    let planned = run_qosm(&["plan", "--facts", "-", "--policy", &rogue, "-o", "json"], &facts());
    planned.says(1, &["`rogue`", "imports `cpu-bandwidth`", "not granted", "add `cpu-bandwidth` to its grants"]);
    assert_eq!(planned.rows(), <[String; 0]>::default());
    let granted = ["plan", "--facts", "-", "--policy", &rogue, "--grant", "rogue=cpu-bandwidth,all-pods", "-o", "json"];
    assert_eq!(run_qosm(&granted, &facts()).rows(), ["container default/web/a cpu.burst 1000"]);
}

#[test]
fn the_other_policies_go_on() {
    let rogue = format!("rogue={}", *ROGUE);
    let web =
        pod("web", &json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#}), &json!([limited("a", "1")]));
    let mut args = vec!["plan", "--facts", "-", "--policy", "cpu-burst", "-o", "json", "--policy", &rogue];
    args.extend(["--grant", "rogue=cpu-bandwidth,all-pods", "--policy-config", r#"rogue={"does":"loops"}"#]);
    let planned = run_qosm(&args, &json!({"pods": [web]}).to_string());
    planned.says(1, &["policy `rogue` does not run"]);
    assert_eq!(planned.rows(), ["container default/web/a cpu.burst 100000", "pod default/web cpu.burst 100000"]);
    assert!(!planned.json()["decisions"].to_string().contains("rogue"), "{planned:#?}");
}
