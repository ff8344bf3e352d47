//! The examples that ship with qosm: a new user tries them first.

use std::process::Command;

use serde_json::Value;

use crate::qosm::{QOSM, Run, bare, finish, only, report, repository, run};

/// Removes digests, which change with every build of a module.
fn without_digests(text: &str) -> String {
    let mut parts = text.split("sha256:");
    let mut redacted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_hexdigit());
        assert_eq!(part.len() - rest.len(), 64, "a digest has 64 digits");
        redacted.push_str("sha256:…");
        redacted.push_str(rest);
    }
    redacted
}

fn node(output: &str) -> Run {
    run(&["plan", "--facts", &repository("examples/plan/node.yaml"), "-o", output], "")
}

#[test]
fn the_plan_for_scripts() {
    let plan = node("json");
    assert_eq!(plan.code, 0, "{plan:#?}");
    insta::assert_snapshot!("plan_json", without_digests(&plan.stdout));
}

#[test]
fn the_plan_for_eyes() {
    let plan = node("table");
    assert_eq!(plan.code, 0, "{plan:#?}");
    insta::assert_snapshot!("plan_table", plan.stdout);
    assert_eq!(plan.stderr, "", "what this kernel lacks is emulated");
}

/// The numbers are computed by hand from the specifications: LS with `minLimitPercent` 50 of 1 GiB and `throttlingPercent` 80
/// between 1 and 2 GiB; `auto` with 1000 % of two CPUs, which a mainline kernel accepts up to the quota.
#[test]
fn the_plan_holds_the_specified_numbers() {
    let rows = node("json").rows();
    assert_eq!(
        rows,
        [
            "container batch/report/job memory.wmark_min_adj 50",
            "container batch/report/job memory.wmark_ratio 95",
            "container batch/report/job memory.wmark_scale_factor 20",
            "container default/web/nginx cpu.burst 200000",
            "container default/web/nginx memory.high 1932734464",
            "container default/web/nginx memory.min 536870912",
            "container default/web/nginx memory.wmark_min_adj -25",
            "container default/web/nginx memory.wmark_ratio 95",
            "container default/web/nginx memory.wmark_scale_factor 20",
            "pod batch/report memory.wmark_min_adj 50",
            "pod batch/report memory.wmark_ratio 95",
            "pod batch/report memory.wmark_scale_factor 20",
            "pod default/web cpu.burst 200000",
            "pod default/web memory.min 536870912",
            "pod default/web memory.wmark_min_adj -25",
            "pod default/web memory.wmark_ratio 95",
            "pod default/web memory.wmark_scale_factor 20",
            "tier burstable memory.min 536870912",
            "tier kubepods memory.min 536870912",
        ]
    );
}

#[test]
fn the_replay_climbs_and_comes_down_as_specified() {
    let played = run(&["replay", &repository("examples/replay/burst.jsonl")], "");
    assert_eq!((played.code, played.stderr.as_str()), (0, ""), "{played:#?}");
    let quotas: Vec<String> = played
        .lines()
        .iter()
        .flat_map(|tick| only(&report(&tick["decisions"]), "cpu.quota"))
        .filter_map(|row| row.strip_prefix("container default/web/nginx cpu.quota ").map(str::to_owned))
        .collect();
    let climb = ["240000", "288000", "345600", "414720", "497664", "597196", "600000"];
    let descent = ["480000", "384000", "307200", "245760"];
    assert_eq!(quotas, [&climb[..], &descent[..]].concat());
}

#[test]
fn a_replay_gives_the_same_bytes_each_time() {
    for output in ["json", "table"] {
        let once = || run(&["replay", &repository("examples/replay/burst.jsonl"), "-o", output], "").stdout;
        let first = once();
        assert!(first.lines().count() > 10, "{first}");
        assert_eq!(once(), first);
    }
}

/// The manifests for hosts without a kubelet must be readable, too; here they are planned, and the agent's own tests run similar ones.
#[test]
fn the_standalone_manifests_are_sound() {
    let facts = r#"{"host": {"driver": "cgroupfs"}}"#;
    let pods = repository("examples/standalone/pods");
    let config = repository("examples/standalone/slo.yaml");
    let plan = run(&["plan", "--facts", "-", "--pods", &pods, "--config", &config, "-o", "json"], facts);
    assert_eq!(plan.code, 0, "{plan:#?}");
    assert!(!plan.rows().is_empty());
}

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in [
        &["agent"][..],
        &["plan"],
        &["replay"],
        &["record"],
        &["get"],
        &["explain"],
        &["pause"],
        &["resume"],
        &["restore"],
        &["policy", "inspect"],
        &["policy", "swap"],
        &["completions"],
    ] {
        let help = run(&[command, &["--help"]].concat(), "");
        assert_eq!(help.code, 0, "{command:?}");
        assert!(help.stdout.contains("Example"), "{command:?}: {}", help.stdout);
    }
    let help = run(&["--help"], "");
    assert!(help.stdout.contains("Exit codes: 0"), "{}", help.stdout);
    for hidden in ["compile-module", "hold"] {
        assert!(!help.stdout.lines().any(|line| line.trim_start().starts_with(hidden)), "{hidden} is not for people");
    }
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let completions = run(&["completions", shell], "").says_nothing_else();
        assert!(completions.stdout.contains("QOSM_COMPLETE"), "{shell}: {completions:#?}");
    }
    let completed = |words: &[&str]| {
        let mut qosm = Command::new(QOSM);
        qosm.arg("--").arg("qosm").args(words);
        qosm.env("QOSM_COMPLETE", "bash").env("QOSM_ADMIN_SOCKET", "/nowhere/qosm.sock");
        // As in the script for bash, which counts the program's name.
        qosm.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("_CLAP_IFS", "\n");
        finish(qosm, "").says_nothing_else().stdout
    };
    let verbs = completed(&[""]);
    for verb in ["plan", "replay", "restore", "explain"] {
        assert!(verbs.lines().any(|line| line == verb), "{verb}: {verbs}");
    }
    // Without an agent, no names are offered.
    assert_eq!(completed(&["get", "pods", "-n", ""]), "");
}

#[test]
fn doctor_shows_what_the_host_offers() {
    let doctor = run(&["doctor", "-o", "json"], "");
    assert_eq!(doctor.code, 0, "{doctor:#?}");
    let Value::Object(facts) = doctor.json() else { unreachable!("{doctor:#?}") };
    let text = bare(&Value::Object(facts));
    for what in ["cpu.quota", "memory.high", "cgroup"] {
        assert!(text.contains(what), "{what}: {text}");
    }
}

#[test]
fn doctor_tells_how_the_kubelet_is_configured() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().display().to_string();
    let doctor = |more: &[&str], input: &str| run(&[&["doctor", "--kubelet-root", &dir], more].concat(), input);
    // A missing configuration is a line of the output, not a failure.
    let unknown = doctor(&[], "");
    assert_eq!(unknown.code, 0, "{unknown:#?}");
    assert!(unknown.stdout.contains("\nkubelet ") && unknown.stdout.contains(&dir), "{unknown:#?}");
    // So is a damaged configuration.
    std::fs::write(folder.path().join("config.yaml"), "kind: Pod").unwrap();
    std::fs::write(folder.path().join("cpu_manager_state"), "{").unwrap();
    let damaged = doctor(&[], "");
    assert_eq!(damaged.code, 0, "{damaged:#?}");
    assert!(
        damaged.stdout.contains("its kind is `Pod`") && damaged.stdout.contains("cpu_manager_state"),
        "{damaged:#?}"
    );

    let config = "kind: KubeletConfiguration\ncgroupDriver: systemd\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n\
                  featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\n";
    std::fs::write(folder.path().join("config.yaml"), config).unwrap();
    let state = r#"{"policyName":"static","defaultCpuSet":"0-1","entries":{"uid":{"a":"2","b":"3"}},"checksum":1}"#;
    std::fs::write(folder.path().join("cpu_manager_state"), state).unwrap();
    let known = doctor(&[], "");
    for line in [
        "cgroupDriver systemd, cgroupRoot /",
        "CPUs 0-1",
        "on; it writes memory.min of Guaranteed and memory.low of Burstable pods",
        "2-3 are given to 2 containers alone",
    ] {
        assert!(known.stdout.contains(line), "{line}: {}", known.stdout);
    }
    // As served by the API server.
    let served =
        doctor(&["--kubelet-config", "-", "-o", "json"], r#"{"kubeletconfig":{"cgroupDriver":"cgroupfs"}}"#).json();
    assert_eq!(served["kubelet"]["cgroupDriver"], "cgroupfs");
    let given = &served["kubelet"]["cpuManager"]["exclusive"];
    assert_eq!(given[1], serde_json::json!({"podUid": "uid", "container": "b", "cpus": "3"}), "{given}");
    // A file that was named must be usable.
    let wrong = doctor(&["--kubelet-config", "-"], "kind: Pod");
    assert_ne!(wrong.code, 0, "{wrong:#?}");
    assert!(wrong.stderr.contains("standard input") && wrong.stderr.contains("its kind is `Pod`"), "{wrong:#?}");
}

/// What `make demo` shows to users who are not root: a quota that rises above the limit's 40 ms, comes back to it, and stays within 300 %.
#[test]
fn the_recorded_demo_shows_its_steps() {
    let played = run(&["replay", &repository("examples/demo/recording.jsonl")], "");
    assert_eq!(played.code, 0, "{played:#?}");
    let quotas: Vec<_> = played
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .flat_map(|tick| tick["decisions"].as_array().cloned().unwrap_or_default())
        .filter(|decision| decision["knob"] == "cpu.quota" && decision["container"] == "apache")
        .map(|decision| decision["value"].as_i64().unwrap())
        .collect();
    assert!(quotas.iter().any(|&quota| quota > 80_000), "{quotas:?}");
    assert!(quotas.iter().all(|quota| (40_000..=120_000).contains(quota)), "{quotas:?}");
    assert!(quotas.contains(&40_000), "{quotas:?}");
}
