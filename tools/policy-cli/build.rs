//! Embeds the templates of `qosm policy new`, and the SDK that they need, in the binary.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// The embedded trees: name of the constant, and path in the repository.
const TREES: [(&str, &str); 4] = [
    ("TEMPLATE_RUST", "sdk/templates/rust"),
    ("TEMPLATE_REGO", "sdk/templates/rego"),
    ("SDK_RUST", "sdk/rust"),
    ("SDK_WIT", "sdk/wit"),
];

/// Build output, and the parts that an SDK does not need where it is used.
const LEFT_OUT: [&str; 6] = ["target", "Cargo.lock", "tests", "examples", "benches", "fuzz"];

fn main() -> io::Result<()> {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(name.to_owned()));
    let repository = variable("CARGO_MANIFEST_DIR")?.join("../..").canonicalize()?;
    let mut source = String::new();
    for (name, place) in TREES {
        let root = repository.join(place);
        println!("cargo::rerun-if-changed={}", root.display());
        let mut files = Vec::new();
        collect(&root, Path::new(""), &mut files)
            .map_err(|error| io::Error::other(format!("{}: {error}", root.display())))?;
        files.sort();
        let _ = writeln!(source, "pub(super) static {name}: &[(&str, &[u8])] = &[");
        for file in files {
            let _ = writeln!(source, "    ({file:?}, include_bytes!({:?})),", root.join(&file));
        }
        let _ = writeln!(source, "];");
    }
    let workspace = repository.join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", workspace.display());
    let _ = writeln!(source, "pub(super) static WORKSPACE: &str = include_str!({workspace:?});");
    std::fs::write(variable("OUT_DIR")?.join("trees.rs"), source)
}

/// The files below a folder.
fn collect(root: &Path, below: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    // A template keeps its tests.
    let is_template = root.parent().is_some_and(|parent| parent.ends_with("templates"));
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let name = entry.file_name();
        let is_left_out = LEFT_OUT.iter().any(|out| name == *out) && !(is_template && name == "tests");
        // The SDK's symbolic link to the contract, which is embedded as a tree of its own.
        let is_left_out = is_left_out || entry.file_type()?.is_symlink();
        if is_left_out {
            continue;
        }
        let path = below.join(&name);
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
