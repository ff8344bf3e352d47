//! The image that `make image` writes: pushed to a registry as its output says, and read back.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::artefacts::module;
use crate::env::{crane, env, run, skopeo};
use crate::publish::{QOSM, xtask};

#[test]
fn the_image_is_pushed_and_what_comes_back_is_what_was_built() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, root) = (folder.path().join("image.tar"), folder.path().join("root"));
    let name = format!("{}/image/qosm:try", env().plain.host);
    // As in the Makefile, after the build.
    let said =
        run(Command::new(xtask()).args(["image", "--qosm", QOSM, "--name", &name, "--output"]).arg(&archive)).well();
    let taken = format!("docker-archive:{}", archive.display());
    let copy = said.lines().find_map(|line| line.trim().strip_prefix("skopeo ")).unwrap();
    assert!(copy.starts_with(&format!("copy {taken} docker://{name} ")), "{said}");
    run(skopeo().args(["copy", "--dest-tls-verify=false", &taken, &format!("docker://{name}")])).well();

    run(crane().args(["validate", "--insecure", "--remote", &name])).well();
    let config: Value = serde_json::from_str(&run(crane().args(["config", "--insecure", &name])).well()).unwrap();
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/qosm"]), "{config}");
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"), "{config}");
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0", "{config}");
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    assert_eq!((&config["architecture"], &config["os"]), (&machine.into(), &"linux".into()), "{config}");

    let files = folder.path().join("files.tar");
    run(crane().args(["export", "--insecure", &name]).arg(&files)).well();
    fs::create_dir(&root).unwrap();
    run(Command::new("tar").arg("-xf").arg(&files).arg("-C").arg(&root)).well();
    for name in ["cpu-burst", "memory-qos", "memory-locality"] {
        let inside = root.join("usr/lib/qosm/policies").join(format!("{name}.wasm"));
        assert_eq!(fs::read(inside).unwrap(), fs::read(module(name)).unwrap(), "{name}");
    }
    assert!(root.join("usr/share/doc/qosm/LICENSE").is_file());
    let shells = ["bin/sh", "bin/bash", "usr/bin/sh"].map(|shell| root.join(shell).exists());
    assert_eq!(shells, [false; 3], "nobody can start a shell in it");
    assert_eq!(within(&root, "qosm").args(["--version"]).output().unwrap().stdout, version());
}

/// Runs a program of an unpacked image with only the image's loader and libraries.
fn within(root: &Path, program: &str) -> Command {
    let mut folders = vec![root.to_path_buf()];
    let mut libraries = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.file_name().is_some_and(|name| name.to_string_lossy().contains(".so")) {
                libraries.push(entry);
            }
        }
    }
    let is_loader = |path: &&std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("ld-linux");
    let mut command = Command::new(libraries.iter().find(is_loader).unwrap());
    let paths = std::env::join_paths(libraries.iter().filter_map(|library| library.parent())).unwrap();
    command.arg("--inhibit-cache").arg("--library-path").arg(paths);
    command.arg(root.join("usr/bin").join(program)).env_clear();
    command
}

fn version() -> Vec<u8> {
    format!("qosm {}\n", env!("CARGO_PKG_VERSION")).into_bytes()
}
