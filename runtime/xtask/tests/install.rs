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
