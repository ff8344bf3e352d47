//! What is installed, as a package and by its programs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a program prints that must not fail.
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
    printed(Command::new(env!("CARGO_BIN_EXE_xtask")).args(["deb", "--output"]).arg(&package));
    let contents = printed(Command::new("dpkg-deb").arg("--contents").arg(&package));
    // Mode, owner, and path; what else stands there differs from build to build.
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
    let xtask = |more: &[&str]| {
        let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
        xtask.args(["install", "--destdir"]).arg(folder.path()).args(more);
        printed(&mut xtask)
    };
    xtask(&["--prefix", "/opt/qosm"]);
    let programs = |prefix: &str| folder.path().join(prefix).join("bin/qosm").exists();
    assert!(programs("opt/qosm") && !programs("usr/local"));
    xtask(&["--prefix", "/opt/qosm", "--remove"]);
    let left = |folder: &Path| std::fs::read_dir(folder).map(|entries| entries.count()).unwrap_or(0);
    assert_eq!(left(&folder.path().join("opt")), 0, "nothing of it is left");
    assert!(folder.path().join("etc/qosm/slo.yaml").exists(), "but what an administrator may have changed");
}

/// What dpkg runs before it removes the package, on a host whose systemd says `enabled` of the unit and whose agent answers with a script.
/// The exit code, and what was called.
fn removal(enabled: &str, get_policies: &str, restore: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let script = std::fs::read_to_string(repository().join("deploy/debian/prerm")).unwrap();
    let mut here = script.clone();
    for (there, name) in
        [("/usr/bin/qosm", "qosm"), ("/run/systemd/system", "systemd"), ("/var/lib/qosm", "state"), ("timeout 30", "")]
    {
        assert!(script.contains(there), "{there}");
        let instead = if name.is_empty() { "timeout 0.2".to_owned() } else { path(name).display().to_string() };
        here = here.replace(there, &instead);
    }
    std::fs::create_dir(path("systemd")).unwrap();
    std::fs::create_dir(path("state")).unwrap();
    let put = |name: &str, script: &str| {
        use std::os::unix::fs::PermissionsExt;
        let called = format!("#!/bin/sh\necho \"{name} $1\" >> '{}'\n{script}\n", path("called").display());
        std::fs::write(path(name), called).unwrap();
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    put("qosm", &format!("case $1 in get) {get_policies} ;; restore) {restore} ;; esac"));
    put(
        "systemctl",
        &format!(
            "case $1 in is-enabled) echo {enabled}; [ {enabled} = enabled ] ;; disable) [ {enabled} = enabled ] ;; esac"
        ),
    );
    let search = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-c", &here, "prerm", "remove"])
        .env("PATH", format!("{}:{search}", folder.path().display()))
        .output()
        .unwrap();
    let called = std::fs::read_to_string(path("called")).unwrap();
    (output.status.code(), called.lines().collect::<Vec<_>>().join(", "))
}

#[test]
fn a_removal_puts_back_what_is_held_unless_another_agent_is_there_or_does_not_answer() {
    let (stopped, no_agent) = ("systemctl stop, systemctl is-enabled, systemctl disable", "exit 2");
    let all = format!("{stopped}, qosm get, qosm restore");
    assert_eq!(removal("enabled", no_agent, "exit 0"), (Some(0), all.clone()));
    assert_eq!(removal("enabled", no_agent, "exit 1"), (Some(1), all), "it is refused");
    assert_eq!(removal("enabled", "exit 0", "exit 0"), (Some(0), format!("{stopped}, qosm get")));
    assert_eq!(removal("enabled", "exec sleep 60", "exit 0"), (Some(0), format!("{stopped}, qosm get")));
    for masked in ["masked", "masked-runtime"] {
        let called = "systemctl stop, systemctl is-enabled, qosm get, qosm restore";
        assert_eq!(removal(masked, no_agent, "exit 0"), (Some(0), called.to_owned()));
    }
}
