//! The two ways to get a Rust that compiles to Wasm.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use crate::cargo::{self, Cargo};
use crate::error::BuildError;

/// Compilation target of modules.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Where Debian installs its current Rust; used regardless of the `PATH`.
const DEBIAN: &str = "/usr/bin";

/// A way to build for Wasm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The standard library of the cargo in use, as `rustup target add` brings it.
    Rustup,
    /// Debian's `rustc-web` with the standard library built from `rust-web-src`, where rustup's server is out of reach.
    Debian,
}

impl Way {
    /// The words for the ways on command lines.
    pub const WORDS: [&'static str; 2] = ["rustup", "debian"];
}

impl FromStr for Way {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "rustup" => Ok(Self::Rustup),
            "debian" => Ok(Self::Debian),
            other => Err(format!("`{other}` is no way to build for Wasm; there are {}", Self::WORDS.join(" and "))),
        }
    }
}

/// An installed compiler for Wasm.
#[derive(Debug)]
pub enum Toolchain {
    /// The cargo in use, with the target installed.
    Installed,
    /// Debian's compiler, the source of the standard library, and a linker.
    FromSource {
        /// Path of `wasm-ld`, of any LLVM version.
        linker: PathBuf,
    },
}

/// A compilation.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The cargo in use.
    pub cargo: &'a Cargo,
    /// The folder of the workspace's Cargo.toml, or of a crate without a workspace.
    pub folder: &'a Path,
    /// The name that replaces the folder's path in panic messages and backtraces; `None` if cargo uses paths relative to it anyway.
    pub shown_as: Option<&'a str>,
    /// The target directory; each way uses its own subfolder.
    pub target: &'a Path,
}

impl Toolchain {
    /// Finds a compiler on this machine; if `way` is set, only of that kind. `oldest` is the minimum version of Debian's compiler; cargo
    /// itself checks that of an installed one. `None` if there is none.
    pub fn find(cargo: &Cargo, folder: &Path, oldest: &str, way: Option<Way>) -> Option<Self> {
        let installed = || {
            let library = sysroot(&cargo.rustc(), folder).ok()?.join("lib/rustlib").join(TARGET).join("lib");
            library.is_dir().then_some(Self::Installed)
        };
        let from_source = || {
            let rustc = Path::new(DEBIAN).join("rustc");
            let source = sysroot(&rustc, folder).ok()?.join("lib/rustlib/src/rust/library/std");
            let linker = linker()?;
            (source.is_dir() && is_new_enough(&rustc, oldest)).then_some(Self::FromSource { linker })
        };
        match way {
            Some(Way::Rustup) => installed(),
            Some(Way::Debian) => from_source(),
            None => installed().or_else(from_source),
        }
    }

    /// `cargo build` for Wasm with the profile `wasm`, in a target directory for this kind of compiler: in a shared one, the two would
    /// discard each other's output. The caller adds the packages.
    ///
    /// # Errors
    ///
    /// If the compiler does not print the path of its library.
    pub fn cargo_build(&self, job: &Job<'_>) -> Result<Command, BuildError> {
        let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home_cargo);
        let (mut cargo, sysroot) = match self {
            Self::Installed => (job.cargo.command(job.folder), sysroot(&job.cargo.rustc(), job.folder)?),
            Self::FromSource { linker } => {
                let rustc = Path::new(DEBIAN).join("rustc");
                let mut cargo = Command::new(Path::new(DEBIAN).join("cargo"));
                cargo.current_dir(job.folder).env("RUSTC", &rustc);
                // -Zbuild-std is the only unstable flag here, and a released compiler accepts it only with `RUSTC_BOOTSTRAP`.
                cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
                // rustup's cargo set these variables for this process, and they refer to the other compiler.
                for name in ["CARGO", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"]
                {
                    cargo.env_remove(name);
                }
                (cargo, sysroot(&rustc, job.folder)?)
            }
        };
        // Paths would end up in panic messages. Without them, the same source gives the same module on every machine.
        let mut flags = vec![remap(&sysroot, "/rust")];
        flags.extend(job.shown_as.map(|name| remap(job.folder, name)));
        flags.extend(cargo_home.map(|home| remap(&home, "/cargo")));
        for name in ["RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        cargo.args(["build", "--profile", "wasm", "--target", TARGET, "--lib", "--target-dir"]);
        cargo.arg(self.target(job));
        if matches!(self, Self::FromSource { .. }) {
            cargo.arg("-Zbuild-std=std,panic_abort");
        }
        Ok(cargo)
    }

    /// Where `cargo_build` writes the core module of a library.
    pub fn core_module(&self, job: &Job<'_>, library: &str) -> PathBuf {
        self.target(job).join(TARGET).join("wasm").join(format!("{}.wasm", library.replace('-', "_")))
    }

    fn target(&self, job: &Job<'_>) -> PathBuf {
        job.target.join(match self {
            Self::Installed => "wasm",
            Self::FromSource { .. } => "wasm-from-source",
        })
    }
}

/// Runs rustc in `folder`, because files there can choose a toolchain.
fn sysroot(rustc: &Path, folder: &Path) -> Result<PathBuf, BuildError> {
    let mut rustc = Command::new(rustc);
    let printed = cargo::output(rustc.args(["--print", "sysroot"]).current_dir(folder).env_remove("LD_LIBRARY_PATH"))?;
    Ok(PathBuf::from(printed.trim()))
}

fn is_new_enough(rustc: &Path, oldest: &str) -> bool {
    let printed = cargo::output(Command::new(rustc).arg("--version").env_remove("LD_LIBRARY_PATH"));
    let have = printed.ok().and_then(|line| numbers(line.split(' ').nth(1)?));
    have >= numbers(oldest)
}

/// Parses `1.95` or `1.95.0` to numbers that can be compared.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Path of the newest `wasm-ld`; Debian installs one for each version of LLVM.
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

    #[test]
    fn each_way_has_a_word() {
        assert_eq!(Way::WORDS.map(str::parse::<Way>), [Ok(Way::Rustup), Ok(Way::Debian)]);
        assert!("wasi".parse::<Way>().unwrap_err().contains("rustup and debian"));
    }
}
