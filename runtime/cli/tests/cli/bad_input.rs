//! Invalid usage: messages and exit codes. 2 means invalid usage, 1 means that the command ran with a bad result.

use serde_json::json;

use crate::qosm::{limited, module, plan, play, pod, run};

#[test]
fn facts_with_an_unknown_field_are_refused_by_name() {
    for (facts, words) in [
        (json!({"hosts": {}}), ["hosts", "host"]),
        (json!({"host": {"cgroups": "v2"}}), ["cgroups", "cgroup"]),
        (json!({"host": {"driver": "systemd-cgroup"}}), ["systemd-cgroup", "cgroupfs"]),
        (json!({"host": {"cpus": "eight"}}), ["eight", "cpus: "]),
        (json!({"policies": [{"name": "cpu-burst", "grant": []}]}), ["grant", "grants"]),
        (json!({"policies": [{"name": "cpu-burst", "mode": "shade"}]}), ["shade", "shadow"]),
        (json!({"guardRails": {"maxQuota": 1}}), ["maxQuota", "maxQuotaPercent"]),
        (json!({"guardRails": {"maxQuotaPercent": 50}}), ["maxQuotaPercent: ", "50 is not from 100 to"]),
        (json!({"guardRails": {"minQuotaPercent": 150}}), ["minQuotaPercent: ", "150 is not from 0 to 100"]),
        (json!({"cgroups": [{"pods": "default/web"}]}), ["pods", "pod"]),
    ] {
        plan(&facts).says(2, &words);
        play(&facts, &[]).says(2, &["line 1", words[0]]);
    }
    run(&["plan", "--facts", "-"], "host: [").says(2, &["standard input: "]);
    run(&["plan", "--facts", "-"], "just a word").says(2, &["standard input: "]);
    run(&["plan", "--facts", "-"], "").says(2, &["standard input is empty"]);
}

#[test]
fn facts_that_do_not_fit_together_are_refused_by_name() {
    let pod = pod("web", &json!({}), &json!([limited("a", "1")]));
    for (facts, words) in [
        (json!({"host": {"cpus": 0}}), ["host.cpus", "at least one"]),
        (json!({"host": {"memory": "lots"}}), ["cannot simulate the node of standard input", "host.memory: `lots`: "]),
        (json!({"host": {"pageSize": 1000}}), ["host.pageSize", "power of two"]),
        (json!({"host": {"cgroup": {"blkio": "v1"}}}), ["host.cgroup", "blkio"]),
        (json!({"cgroups": [{"pod": "default/nope", "files": {}}]}), ["cgroups", "default/nope"]),
        (json!({"pods": [pod], "cgroups": [{"pod": "default/web", "container": "b", "files": {}}]}), ["`b`", "a"]),
        (json!({"cgroups": [{"tier": "gold", "files": {}}]}), ["tier `gold`", "burstable"]),
        (
            json!({"cgroups": [{"tier": "burstable", "files": {"cpu.max": "15O000 100000"}}]}),
            ["cpu.max cannot hold `15O000 100000`", "now it is `max 100000`"],
        ),
        (json!({"host": {"missingFiles": ["cpu.max.brust"]}}), ["host.missingFiles", "`cpu.max.brust`"]),
        (numa(&[(0, "3-0")]), ["host.numaNodes: node 0", "`3-0` is no list of CPUs"]),
        (numa(&[(0, "0-1"), (1, "1-3")]), ["host.numaNodes: CPU 1", "nodes 0 and 1"]),
        (numa(&[(0, "0-1"), (0, "2-3")]), ["host.numaNodes: node 0", "twice"]),
        (
            json!({"host": {"cpuManagerState": r#"{"policyName":"static"}"#}}),
            ["host.cpuManagerState", "without quotes around it"],
        ),
        (numa(&[(0, "0-1"), (1, "2-4")]), ["host.numaNodes: node 1 has CPU 4", "cpuTopology"]),
        (json!({"policies": [{"name": "cpu-burst"}, {"name": "cpu-burst"}]}), ["cpu-burst", "twice"]),
        (json!({"policies": [{"name": "cpu-burst", "shadowOf": "memory-qos"}]}), ["cpu-burst", "mode: shadow"]),
        (
            json!({"policies": [{"name": "memory-qos"}, {"name": "cpu-burst", "mode": "shadow", "shadowOf": "cpu-burst"}]}),
            ["`cpu-burst`", "memory-qos"],
        ),
        (json!({"policies": [{"name": "cpu-burst", "grants": ["cpu"]}]}), ["`cpu`", "cpu-stat"]),
    ] {
        let planned = plan(&facts);
        assert_ne!(planned.code, 0, "{planned:#?}");
        planned.says(planned.code, &words);
        assert_eq!(planned.stdout, "");
    }
}

/// Facts of a host with four CPUs and these NUMA nodes.
fn numa(nodes: &[(u32, &str)]) -> serde_json::Value {
    let nodes = nodes.iter().map(|(id, cpus)| json!({"id": id, "cpus": cpus, "memory": "1Gi"}));
    json!({"host": {"cpus": 4, "numaNodes": nodes.collect::<Vec<_>>()}})
}

/// `off` is a boolean in YAML.
#[test]
fn an_entry_for_a_pod_that_could_not_be_read_says_why() {
    let mut web = pod("web", &json!({}), &json!([limited("a", "1")]));
    web["metadata"]["name"] = json!(false);
    let facts = json!({"pods": [web], "cgroups": [{"pod": "default/off", "files": {"cpu.max": "1000 100000"}}]});
    let words = ["no pod `default/off`", "because: objects have problems", "metadata.name", "boolean `false`"];
    plan(&facts).says(2, &words);
    play(&facts, &[]).says(2, &words);
}

/// On v1 the kernel refuses a container a quota above that of its pod, and everywhere one that is too large.
#[test]
fn a_pod_whose_limits_the_kernel_refuses_is_named_and_the_others_count() {
    let burst = json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#});
    let good = pod("good", &burst, &json!([limited("a", "1")]));
    let mut above = pod("web", &json!({}), &json!([limited("a", "2")]));
    above["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    let large = pod("web", &json!({}), &json!([limited("a", "1Gi")]));
    for (cgroup, web, value, file) in
        [("v1", above, "`200000`", "cpu.cfs_quota_us"), ("v2", large, "`107374182400000 100000`", "cpu.max")]
    {
        let host = json!({"cgroup": cgroup, "driver": "cgroupfs"});
        let facts = json!({"host": host, "policies": [{"name": "cpu-burst"}], "pods": [web, good.clone()]});
        let planned = plan(&facts);
        planned.says(1, &["pod default/web: resources.limits.cpu: the kernel refuses ", value, file, "correct"]);
        assert_eq!(planned.rows().len(), 2, "{planned:#?}");
        assert_eq!(planned.json()["problems"].as_array().map(Vec::len), Some(1), "{planned:#?}");
        let played = play(&facts, &[json!({"windowMillis": 1000})]);
        played.says(0, &[]);
        assert!(played.stdout.contains("the kernel refuses"), "{played:#?}");
    }
}

#[test]
fn objects_that_cannot_be_read_are_reported_and_the_others_count() {
    let good =
        pod("web", &json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#}), &json!([limited("a", "1")]));
    let mut wrong = pod("wrong", &json!({}), &json!([limited("a", "1")]));
    wrong["spec"]["containers"] = json!("none");
    let mut odd = pod("odd", &json!({}), &json!([limited("a", "many")]));
    odd["spec"]["contaners"] = json!([]);
    for (bad, words) in [
        (wrong, &["default/wrong", "spec.containers"][..]),
        (odd, &["default/odd", "many", "contaners"]),
        (json!({"metadata": {}}), &["metadata.name"]),
        (good.clone(), &["default/web", "already"]),
    ] {
        let planned = plan(&json!({"policies": [{"name": "cpu-burst"}], "pods": [good, bad]}));
        planned.says(1, words);
        assert_eq!(planned.rows().len(), 2, "{planned:#?}");
    }
}

/// As in the agent, which reads neither hidden files nor subfolders, and goes on where a link leads nowhere.
#[test]
fn a_plan_reads_of_a_folder_what_the_agent_reads() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, name: &str| {
        let annotations = json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#});
        let mut manifest = pod(name, &annotations, &json!([limited("a", "1")]));
        manifest["kind"] = json!("Pod");
        std::fs::write(folder.path().join(file), manifest.to_string()).unwrap();
    };
    write("web.json", "web");
    write(".web.json.swp.json", "hidden");
    std::fs::create_dir(folder.path().join("older.yaml")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("lost.yaml")).unwrap();
    let pods = folder.path().display().to_string();
    let facts = json!({"policies": [{"name": "cpu-burst"}]}).to_string();
    let planned = run(&["plan", "--facts", "-", "--pods", &pods, "-o", "json"], &facts);
    planned.says(1, &["lost.yaml: it is a link that leads nowhere"]);
    assert_eq!(planned.rows(), ["container default/web/a cpu.burst 100000", "pod default/web cpu.burst 100000"]);
}

#[test]
fn a_recording_that_is_cut_off_names_the_line() {
    let facts = json!({"pods": [pod("web", &json!({}), &json!([limited("a", "1")]))]});
    for (lines, played, words) in [
        (String::new(), 0, &["empty", "facts"][..]),
        ("{\"host\": ".to_owned(), 0, &["line 1"]),
        (
            format!("{facts}\n{{\"windowMillis\": 1000}}\n{{\"containers\": [{{\"pod\": \"default/w"),
            2,
            &["line 3", "EOF"],
        ),
        (format!("{facts}\n\n{{\"window\": 5}}\n"), 1, &["line 3", "window", "windowMillis"]),
        (format!("{facts}\n{{\"windowMillis\": -5}}\n"), 1, &["line 2"]),
        (format!("{facts}\n[1000]\n"), 1, &["line 2", "JSON list", "braces"]),
    ] {
        let replayed = run(&["replay", "-"], &lines);
        replayed.says(2, words);
        assert_eq!(replayed.stdout.lines().count(), played, "what came before the bad line was played: {replayed:#?}");
    }
}

#[test]
fn a_tick_of_an_unknown_container_is_refused_with_the_known_ones() {
    let facts = json!({"pods": [pod("web", &json!({}), &json!([limited("a", "1")]))]});
    play(&facts, &[json!({"containers": [{"pod": "default/nope", "container": "a"}]})])
        .says(2, &["line 2", "default/nope", "known are: default/web"]);
    play(&facts, &[json!({"containers": [{"pod": "default/web", "container": "b"}]})])
        .says(2, &["line 2", "`b`", "known are: a"]);
    play(&facts, &[json!({"cgroups": [{"pod": "default/web", "tier": "burstable"}]})])
        .says(2, &["line 2", "tier", "pod"]);
}

#[test]
fn what_has_ended_or_waits_is_reported_to_have_no_cgroup() {
    let web = |phase: &str, state: &str| {
        let mut web = pod("web", &json!({}), &json!([limited("app", "1")]));
        let id = "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let status = json!({"name": "app", "containerID": id, "state": {state: {}}});
        web["status"] = json!({"phase": phase, "containerStatuses": [status]});
        web
    };
    let sample = json!({"pod": "default/web", "container": "app", "cpu": {}});
    let file = json!({"pod": "default/web", "container": "app", "files": {"cpu.max": "1000 100000"}});
    let of_pod = json!({"pod": "default/web", "files": {"cpu.max": "1000 100000"}});
    for (web, words) in [
        (web("Succeeded", "terminated"), ["pod `default/web` has ended", "until the tick in which it ends"]),
        (web("Running", "terminated"), ["container `app` of pod `default/web` has ended", "until the tick"]),
        (
            web("Running", "waiting"),
            ["container `app` of pod `default/web` waits", "from the tick on in which it runs"],
        ),
    ] {
        let facts = json!({"host": {}, "pods": [web]});
        let row = |row: &serde_json::Value| vec![row.clone()];
        for line in [json!({"containers": row(&sample)}), json!({"cgroups": row(&file)})] {
            play(&facts, &[line]).says(2, &["line 2", words[0], words[1]]);
        }
        let mut with_file = facts.clone();
        with_file["cgroups"] = json!([file]);
        plan(&with_file).says(2, &words);
    }
    let facts = json!({"host": {}, "pods": [web("Succeeded", "terminated")], "cgroups": [of_pod]});
    plan(&facts).says(2, &["pod `default/web` has ended"]);
}

#[test]
fn what_is_not_there_is_named_with_a_way_out() {
    run(&["plan", "--facts", "/nowhere/facts.yaml"], "").says(2, &["/nowhere/facts.yaml"]);
    run(&["plan", "--facts", "-", "--pods", "/nowhere/pods"], "{}").says(2, &["/nowhere/pods"]);
    run(&["replay", "/nowhere/x.jsonl"], "").says(2, &["/nowhere/x.jsonl"]);
    let wait = ["rollout", "status", "x", "--wait", "9223372036854775807s", "--kubeconfig", "/nowhere/config"];
    run(&wait, "").says(1, &["/nowhere/config"]);
    run(&["plan", "--facts", "-", "--policy", "cache-guard"], "{}")
        .says(1, &["cache-guard", "cache-guard.wasm", "make build"]);
    run(&["plan", "--facts", "-", "--policy", "x=/nowhere/x.wasm"], "{}").says(1, &["policy `x`", "/nowhere/x.wasm"]);
    run(&["plan", "--facts", "-", "--module-dir", "/nowhere"], "{}")
        .says(1, &["/nowhere/cpu-burst.wasm", "make build"]);
    run(&["policy", "inspect", "nothing-like-it"], "").says(1, &["nothing-like-it"]);
    for command in [
        &["get", "pods"][..],
        &["explain", "default/web"],
        &["pause", "default/web"],
        &["resume", "default/web"],
        &["hold", "default/web", "--lift"],
        &["record"],
        &["diff", "next"],
        &["policy", "retry", "x"],
    ] {
        let asked = run(&[command, &["--admin-socket", "/nowhere/qosm.sock"]].concat(), "");
        asked.says(1, &["/nowhere/qosm.sock", "is it running"]);
    }
}

#[test]
fn flags_that_make_no_sense_end_with_2() {
    for args in [
        &[][..],
        &["plna"],
        &["plan", "--fact", "x"],
        &["plan", "--facts", "-", "-o", "xml"],
        &["replay"],
        &["get", "secrets"],
        &["get", "pods", "--watch", "-o", "json"],
        &["agent"],
        &["agent", "--pods", "/tmp", "--tick-millis", "1"],
        &["agent", "--pods", "/tmp", "--metrics-listen", "everywhere"],
        &["agent", "--pods", "/tmp", "--shadow", "next"],
        &["agent", "--pods", "/tmp", "--resctrl", "resctrl"],
        &["doctor", "--resctrl", "/tmp/../resctrl"],
        &["resctrl", "emulate"],
        &["resctrl", "emulate", "/tmp/qosm-never-made", "--profile", "pentium"],
        &["demo"],
        &["demo", "resctrl", "--profile", "pentium"],
        &["demo", "resctrl", "--policy-config", "fast"],
        &["replay", "-", "--against-config", "{}"],
        &["replay", "-", "--against", "cpu-burst"],
        &["replay", "-", "--against", "cpu-burst", "--against-config", "fast"],
        &["replay", "-", "--against", "other", "--against-config", "{}"],
        &["replay", "-", "--against", "other=x.wasm"],
        &["record", "--max-ticks", "0"],
        &["record", "--max-size", "lots"],
        &["record", "--for", "ever"],
        &["diff"],
        &["pause", "web"],
        &["resume", "web"],
        &["hold", "web"],
        &["pause", "default/web", "--for", "a while"],
        &["pause", "default/web", "--lift"],
        &["hold", "default/web", "--for", "1h", "--lift"],
        &["plan", "--facts", "-", "--policy-config", "cpu-burst"],
        &["plan", "--facts", "-", "--policy-config", "cpu-burst=fast"],
        &["plan", "--facts", "-", "--policy-config", "other={}"],
        &["plan", "--facts", "-", "--grant", "other=node"],
    ] {
        let asked = run(args, "{}");
        assert_eq!(asked.code, 2, "{args:?}: {asked:#?}");
        assert!(!asked.stderr.is_empty() && asked.stdout.is_empty(), "{args:?}: {asked:#?}");
    }
}

#[test]
fn files_that_cannot_be_used_end_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    std::fs::create_dir(folder.path().join("pods")).unwrap();
    write("grants.yaml", b"policies: [{name: cpu-burst, grants: [bogus]}]");
    write("twice.yaml", b"policies: [{name: cpu-burst}, {name: cpu-burst}]");
    write("binary", b"\xff\xfe\x00");
    let (pods, state, nope) = (path("pods"), path("state"), path("nope.yaml"));
    let agent = ["agent", "--pods", &pods, "--state-dir", &state];
    let (grants, twice, binary) = (path("grants.yaml"), path("twice.yaml"), path("binary"));
    for (args, words) in [
        ([&agent[..], &["--agent-config", &grants]].concat(), ["grants.yaml: policies: policy `cpu-burst`", "`bogus`"]),
        ([&agent[..], &["--agent-config", &twice]].concat(), ["twice.yaml: policies: policy `cpu-burst`", "twice;"]),
        ([&agent[..], &["--grant", "cpu-burst=bogus"]].concat(), ["policy `cpu-burst`: grants", "`bogus`"]),
        ([&agent[..], &["--config", &nope]].concat(), ["nope.yaml cannot be read", "No such file"]),
        (vec!["plan", "--config", &nope], ["nope.yaml cannot be read", "No such file"]),
        (vec!["plan", "--pods", &nope], ["nope.yaml cannot be read", "No such file"]),
        (vec!["replay", &nope], ["cannot read ", "No such file"]),
        (vec!["replay", &binary], ["cannot read ", "UTF-8"]),
    ] {
        run(&args, "").says(2, &words);
    }
    assert!(!folder.path().join("state").exists(), "an agent that was asked wrongly makes nothing");
}

#[test]
fn durations_are_above_0_and_an_update_takes_its_time() {
    let above = "expected a duration above 0, such as 90s, 30m or 24h";
    for (args, words) in [
        (&["pause", "default/web", "--for=-5m"][..], above),
        (&["pause", "default/web", "--for=0s"], above),
        (&["pause", "default/web", "--for", "a while"], above),
        (&["record", "--for=-2s"], above),
        (&["record", "--for", "0s"], above),
        (&["top", "--interval", "10ms"], "expected a duration of at least 200ms, such as 2s"),
        (&["ui", "--interval=-2s"], "expected a duration of at least 200ms, such as 2s"),
        (&["rollout", "status", "cpu-burst", "--wait=-1s"], "expected a duration of 0 or more, such as 90s or 10m"),
    ] {
        run(args, "").says(2, &[words]);
    }
}

#[test]
fn a_policy_configuration_that_does_not_fit_is_reported_by_field() {
    for (config, field) in [
        (
            r#"{"lowerPercent": 0}"#,
            "policy cpu-burst: config: lowerPercent: 0 is below 1; write a whole number from 1 to 100",
        ),
        (
            r#"{"profile": "fast"}"#,
            "config: profile: `\"fast\"` is not known here; write one of `responsive`, `koordinator`",
        ),
        (r#"{"speed": 3}"#, "config: speed: there is no such field; write only alarmRaisePercent"),
        // The module reports what the schema cannot express.
        (r#"{"calmWindows": 90}"#, "field `calmWindowsMax` of the policy's configuration is 80: give 90 to 86400"),
    ] {
        let planned =
            run(&["plan", "--facts", "-", "-o", "json", "--policy-config", &format!("cpu-burst={config}")], "{}");
        planned.says(1, &["policy `cpu-burst` does not run", field]);
    }
}

#[test]
fn a_module_without_its_grants_does_not_run_and_names_them() {
    let web =
        pod("web", &json!({"koordinator.sh/cpuBurst": r#"{"policy":"cpuBurstOnly"}"#}), &json!([limited("a", "1")]));
    let facts = json!({"pods": [web]}).to_string();
    let greedy = format!("greedy={}", module("cpu-burst"));
    let args = ["plan", "--facts", "-", "-o", "json", "--policy", &greedy];
    let planned = run(&args, &facts);
    planned.says(1, &["greedy", "not granted", "cpu-bandwidth", "cpu-stat", "node", "qosm policy inspect"]);
    assert!(planned.rows().is_empty(), "{planned:#?}");
    run(&[&args[..], &["--grant", "greedy=node,cpu-stat"]].concat(), &facts).says(1, &["greedy", "cpu-bandwidth"]);
    let granted =
        run(&[&args[..], &["--grant", "greedy=node,cpu-stat", "--grant", "greedy=cpu-bandwidth"]].concat(), &facts);
    assert_eq!(
        granted.says_nothing_else().rows(),
        ["container default/web/a cpu.burst 100000", "pod default/web cpu.burst 100000"]
    );
    run(&[&args[..], &["--grant", "greedy=root"]].concat(), &facts).says(1, &["greedy", "`root`", "cpu-bandwidth"]);
}

#[test]
fn a_replay_with_a_policy_that_does_not_run_ends_with_1() {
    let greedy = format!("greedy={}", module("cpu-burst"));
    let replayed = run(&["replay", "-", "--policy", &greedy, "--policy", "memory-qos"], "{}\n{}\n");
    assert_eq!(replayed.code, 1, "{replayed:#?}");
    let lines = replayed.lines();
    assert_eq!(lines.len(), 2, "the others go on: {replayed:#?}");
    assert!(lines[0]["failing"]["greedy"].as_str().unwrap().contains("not granted"), "{}", lines[0]);
}
