//! A Rust that compiles to Wasm, in either of the two ways it can be had.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::command;
use crate::workspace::Workspace;

/// What `modules.rs` builds for.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Where Debian's current Rust lies, whatever else is on the path.
const DEBIAN: &str = "/usr/bin";

/// Which way to build for Wasm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// The standard library of the cargo in use, as `rustup target add` brings it.
    Rustup,
    /// Debian's `rustc-web` with the standard library built from `rust-web-src`, where rustup's server is out of reach.
    Debian,
}

/// A compiler for Wasm that is there.
#[derive(Debug)]
pub(crate) enum Toolchain {
    /// The cargo in use has the target.
    Installed,
    /// Debian's compiler, its library's source and a linker.
    FromSource {
        /// `wasm-ld` of whatever LLVM this Debian has.
        linker: PathBuf,
    },
}

impl Toolchain {
    /// What this machine has; only the way asked for, if one is. `None` where nothing fits.
    pub(crate) fn find(workspace: &Workspace, way: Option<Way>) -> Option<Self> {
        let installed = || {
            let library = sysroot(&rustc(workspace)).ok()?.join("lib/rustlib").join(TARGET).join("lib");
            library.is_dir().then_some(Self::Installed)
        };
        let from_source = || {
            let rustc = Path::new(DEBIAN).join("rustc");
            let source = sysroot(&rustc).ok()?.join("lib/rustlib/src/rust/library/std");
            let linker = linker()?;
            (source.is_dir() && is_new_enough(&rustc)).then_some(Self::FromSource { linker })
        };
        match way {
            Some(Way::Rustup) => installed(),
            Some(Way::Debian) => from_source(),
            None => installed().or_else(from_source),
        }
    }

    /// `cargo build` for Wasm in a target directory of its own: the two compilers would undo each other's work in a shared one.
    pub(crate) fn cargo_build(&self, workspace: &Workspace, target: &Path) -> Result<Command> {
        let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home_cargo);
        let (mut cargo, sysroot) = match self {
            Self::Installed => (workspace.cargo(), sysroot(&rustc(workspace))?),
            Self::FromSource { linker } => {
                let rustc = Path::new(DEBIAN).join("rustc");
                let mut cargo = Command::new(Path::new(DEBIAN).join("cargo"));
                cargo.current_dir(workspace.root()).env("RUSTC", &rustc);
                // -Zbuild-std is the one unstable thing here, and a released compiler takes it only like this.
                cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
                // What rustup's cargo set for this process points at the other compiler.
                for name in ["CARGO", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"]
                {
                    cargo.env_remove(name);
                }
                (cargo, sysroot(&rustc)?)
            }
        };
        // Paths end up in panic messages; without them the same source gives the same module on every machine.
        let mut flags = vec![remap(workspace.root(), "/qosm"), remap(&sysroot, "/rust")];
        flags.extend(cargo_home.map(|home| remap(&home, "/cargo")));
        for name in ["RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        cargo.args(["build", "--profile", "wasm", "--target", TARGET, "--lib", "--target-dir"]).arg(target);
        if matches!(self, Self::FromSource { .. }) {
            cargo.arg("-Zbuild-std=std,panic_abort");
        }
        Ok(cargo)
    }
}

/// The compiler beside the cargo in use.
fn rustc(workspace: &Workspace) -> PathBuf {
    let cargo = PathBuf::from(workspace.cargo().get_program());
    let beside = cargo.with_file_name("rustc");
    if beside.is_file() { beside } else { PathBuf::from("rustc") }
}

fn sysroot(rustc: &Path) -> Result<PathBuf> {
    let printed = command::output(Command::new(rustc).args(["--print", "sysroot"]).env_remove("LD_LIBRARY_PATH"))?;
    Ok(PathBuf::from(printed.trim()))
}

/// Whether a compiler is at least the workspace's `rust-version`.
fn is_new_enough(rustc: &Path) -> bool {
    let printed = command::output(Command::new(rustc).arg("--version").env_remove("LD_LIBRARY_PATH"));
    let have = printed.ok().and_then(|line| numbers(line.split(' ').nth(1)?));
    have >= numbers(env!("CARGO_PKG_RUST_VERSION"))
}

/// `1.95` or `1.95.0` as something that compares.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The newest `wasm-ld`: Debian has one a version of LLVM.
fn linker() -> Option<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("wasm-ld-")?.parse::<u32>().ok();
    let files = std::fs::read_dir(DEBIAN).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let newest = files.filter(|path| version(path).is_some()).max_by_key(version);
    newest.or_else(|| Some(Path::new(DEBIAN).join("wasm-ld")).filter(|path| path.is_file()))
}

fn home_cargo() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("HOME")?).join(".cargo"))
}

fn remap(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}={to}", from.display())
}

/// The error of a machine without any such compiler.
///
/// # Errors
///
/// Always.
pub(crate) fn missing<T>() -> Result<T> {
    bail!(
        "no Rust here compiles to {TARGET}: run `rustup target add {TARGET}`, or on Debian, as root, \
         `apt-get install --no-install-recommends rustc-web cargo-web rust-web-src lld-22`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers() {
        assert!(numbers("1.100.0") > numbers("1.95"));
        assert!(numbers("1.95.0") >= numbers("1.95"));
        assert!(numbers("1.63.0") < numbers("1.95"));
        assert!(numbers("nonsense") < numbers("1.95"));
    }
}
