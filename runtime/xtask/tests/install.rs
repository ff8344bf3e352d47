//! Checks the installation, as a package and by its programs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A verb of `cargo xtask` that packs the programs of this profile.
fn xtask(verb: &str) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let mut xtask = Command::new(program);
    xtask.args([verb, "--qosm"]).arg(program.with_file_name("qosm"));
    xtask
}

/// Standard output of a program, which has to succeed.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| unreachable!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_package_has_all_that_is_run_and_read_and_finds_its_modules() {
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("qosm.deb");
    printed(xtask("deb").arg("--output").arg(&package));
    let contents = printed(Command::new("dpkg-deb").arg("--contents").arg(&package));
    // Mode, owner, and path; the other columns differ between builds.
    let entry = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, _, _, _, path @ ..] = fields.as_slice() else { unreachable!("{line}") };
        format!("{mode} {owner} {}\n", path.join(" "))
    };
    insta::assert_snapshot!("package", contents.lines().map(entry).collect::<String>());
    let field = |name: &str| printed(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name));
    assert_eq!((field("Package").trim(), field("Version").trim()), ("qosm", env!("CARGO_PKG_VERSION")));

    let root = folder.path().join("root");
    printed(Command::new("dpkg-deb").arg("--raw-extract").arg(&package).arg(&root));
    for script in ["postinst", "prerm", "postrm"] {
        printed(Command::new("sh").arg("-n").arg(root.join("DEBIAN").join(script)));
    }
    printed(Command::new("bash").arg("-n").arg(root.join("usr/share/bash-completion/completions/qosm")));
    let qosm = |program: &str| {
        let mut qosm = Command::new(root.join("usr/bin").join(program));
        qosm.env_clear().env("HOME", folder.path());
        qosm
    };
    let planned = printed(qosm("qosm").args(["plan", "--facts"]).arg(repository().join("examples/plan/node.yaml")));
    assert!(planned.contains("memory.high"), "{planned}");
    let plugin = printed(qosm("kubectl-qosm").arg("--help"));
    assert!(plugin.contains("Usage: kubectl qosm"), "{plugin}");
    let unit = std::fs::read_to_string(root.join("usr/lib/systemd/system/qosm.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/qosm agent") && !unit.contains("/usr/local"), "{unit}");
}

#[test]
fn an_installation_is_taken_away_again() {
    let folder = tempfile::tempdir().unwrap();
    let install = |more: &[&str]| printed(xtask("install").arg("--destdir").arg(folder.path()).args(more));
    install(&["--prefix", "/opt/qosm"]);
    let programs = |prefix: &str| folder.path().join(prefix).join("bin/qosm").exists();
    assert!(programs("opt/qosm") && !programs("usr/local"));
    install(&["--prefix", "/opt/qosm", "--remove"]);
    let left = |folder: &Path| std::fs::read_dir(folder).map(|entries| entries.count()).unwrap_or(0);
    assert_eq!(left(&folder.path().join("opt")), 0, "nothing of it is left");
    assert!(folder.path().join("etc/qosm/slo.yaml").exists(), "but what an administrator may have changed");
}

/// A simulated host from which the package is removed.
struct Host<'a> {
    /// Output of `systemctl is-enabled` for the unit.
    enabled: &'a str,
    /// Scripts that play `systemctl stop`, and `systemctl is-active` after it.
    stop: &'a str,
    is_active: &'a str,
    /// Scripts that play `qosm get policies` and `qosm restore`.
    get_policies: &'a str,
    restore: &'a str,
    /// Processes, each with its command line and its cgroup.
    processes: &'a [(&'a str, &'a str)],
    /// Time limit in seconds for the agent's answer: long on purpose, except where the agent never answers.
    patience: &'a str,
}

/// A host on which systemd stops the unit, and no agent runs afterwards.
const HOST: Host<'_> = Host {
    enabled: "enabled",
    stop: "exit 0",
    is_active: "exit 3",
    get_policies: "exit 2",
    restore: "exit 0",
    processes: &[],
    patience: "30",
};

/// Runs the script that dpkg runs before it removes the package. Returns the exit code, the commands that it called, and its messages.
fn removal(host: &Host<'_>) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut script = std::fs::read_to_string(repository().join("deploy/debian/prerm")).unwrap();
    let mut stand_in = |there: &str, here: &str| {
        assert!(script.contains(there), "{there}");
        script = script.replace(there, here);
    };
    for (there, name) in [
        ("/usr/bin/qosm get", "qosm get"),
        ("/usr/bin/qosm restore", "qosm restore"),
        ("[ -d /run/systemd/system ]", "[ -d systemd ]"),
        ("[ -d /var/lib/qosm ]", "[ -d state ]"),
        ("in /proc/[0-9]*", "in proc/[0-9]*"),
    ] {
        stand_in(there, name);
    }
    stand_in("timeout -k 5 30 ", &format!("timeout -k {0} {0} ", host.patience));
    for name in ["systemd", "state", "bin", "proc", "proc/self"] {
        std::fs::create_dir(path(name)).unwrap();
    }
    for (number, (line, cgroup)) in host.processes.iter().enumerate() {
        let process = path("proc").join((number + 1).to_string());
        std::fs::create_dir(&process).unwrap();
        std::fs::write(process.join("cmdline"), line.replace(' ', "\0") + "\0").unwrap();
        std::fs::write(process.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
    }
    // A process that has ended since it was listed.
    std::fs::create_dir(path("proc/9999")).unwrap();
    let put = |name: &str, script: &str| {
        use std::os::unix::fs::PermissionsExt;
        let called = format!("#!/bin/sh\necho \"{name} $1\" >> '{}'\n{script}\n", path("called").display());
        let program = path("bin").join(name);
        std::fs::write(&program, called).unwrap();
        std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    let Host { enabled, stop, is_active, get_policies, restore, .. } = host;
    put("qosm", &format!("case $1 in get) {get_policies} ;; restore) {restore} ;; esac"));
    let disabled = format!("[ {enabled} = enabled ]");
    put(
        "systemctl",
        &format!(
            "case $1 in stop) {stop} ;; is-active) {is_active} ;; is-enabled) echo {enabled}; {disabled} ;; disable) {disabled} ;; esac"
        ),
    );
    let search = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-c", &script, "prerm", "remove"])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{search}", path("bin").display()))
        .output()
        .unwrap();
    let called = std::fs::read_to_string(path("called")).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), called.lines().collect::<Vec<_>>().join(", "), said)
}

const STOPPED: &str = "systemctl stop, systemctl is-enabled, systemctl disable";

#[track_caller]
fn assert_removal(host: &Host<'_>, code: i32, called: &str, said: &str) {
    let (ended, calls, words) = removal(host);
    assert_eq!((ended, calls.as_str()), (Some(code), called), "{words}");
    assert!(words.contains(said) && (said.is_empty() == words.is_empty()), "{words}");
}

#[test]
fn a_removal_puts_back_what_is_held_unless_another_agent_is_there() {
    let all = format!("{STOPPED}, qosm get, qosm restore");
    assert_removal(&HOST, 0, &all, "");
    assert_removal(&Host { restore: "exit 1", ..HOST }, 1, &all, "is not as it was before qosm");
    let answered = format!("{STOPPED}, qosm get");
    assert_removal(&Host { get_policies: "exit 0", ..HOST }, 0, &answered, "another agent runs on this host");
}

#[test]
fn a_removal_is_refused_where_the_unit_cannot_be_stopped_and_runs_on() {
    let runs_on = Host { stop: "exit 1", is_active: "exit 0", ..HOST };
    assert_removal(&runs_on, 1, "systemctl stop, systemctl is-active", "qosm.service cannot be stopped");
    let masked = "systemctl is-enabled, qosm get, qosm restore";
    for enabled in ["masked", "masked-runtime"] {
        assert_removal(&Host { enabled, ..HOST }, 0, &format!("systemctl stop, {masked}"), "");
        let refused = Host { enabled, stop: "exit 5", ..HOST };
        assert_removal(&refused, 0, &format!("systemctl stop, systemctl is-active, {masked}"), "");
    }
}

#[test]
fn a_removal_is_refused_where_an_agent_does_not_answer_unless_all_agents_are_in_pods() {
    let in_pod =
        ("/usr/bin/qosm agent --kubernetes", "/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope");
    let by_driver = ("/usr/bin/qosm agent --kubernetes", "/kubelet/kubepods/burstable/pod1/2");
    let by_hand = ("qosm agent --pods /etc/qosm/pods", "/user.slice/user-0.slice/session-1.scope");
    let others = [("/bin/sh -c qosm agent --help", "/"), ("/usr/bin/qosm get pods --watch", "/user.slice")];
    let (refused, left_alone) = ((1, "/run/qosm/qosm.sock and does not answer"), (0, "another agent runs"));
    let called = format!("{STOPPED}, qosm get");
    // An agent that hangs, and one that also ignores signals.
    for get_policies in ["exec sleep 60", "trap '' TERM; while :; do sleep 0.1; done"] {
        let hangs = Host { get_policies, patience: "2", ..HOST };
        assert_removal(&hangs, refused.0, &called, refused.1);
    }
    for (processes, (code, said)) in [
        (vec![], refused),
        (others.to_vec(), refused),
        (vec![by_hand], refused),
        (vec![in_pod, by_hand], refused),
        (vec![in_pod], left_alone),
        (vec![others[0], in_pod, by_driver, others[1]], left_alone),
    ] {
        // The exit code of `timeout`, without the wait.
        let host = Host { get_policies: "exit 124", processes: &processes, ..HOST };
        assert_removal(&host, code, &called, said);
    }
}
