//! Paths: the checkout, cargo's target directory, and the user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use qosm_build::Cargo;

/// The checkout from which this program was built, and its target directory.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
    profile: Profile,
    /// The `qosm` binary.
    binary: PathBuf,
}

/// The profile with which cargo compiles (Cargo.toml).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For the tests of `make test`.
    Dev,
    /// For what ships, what is measured, and the tests of `make test-all`.
    Release,
}

/// The programs that a verb packs or runs.
#[derive(clap::Args)]
pub(crate) struct Shipped {
    /// The `qosm` binary, with `qosm-policy` beside it. Default: the one that `make build` built.
    #[arg(long, value_name = "FILE")]
    qosm: Option<PathBuf>,
}

impl Profile {
    /// Its folder in the target directory.
    pub(crate) fn folder(self, target: &Path) -> PathBuf {
        target.join(match self {
            Self::Dev => "debug",
            Self::Release => "release",
        })
    }

    fn binary(self, target: &Path) -> PathBuf {
        self.folder(target).join("qosm")
    }

    /// The arguments of cargo's verbs that select it.
    const fn args(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &[],
            Self::Release => &["--release"],
        }
    }
}

impl Workspace {
    /// The path of the checkout is compiled in, and this program's own path gives the target directory, so it also works through `sudo`,
    /// without cargo on the `PATH`.
    ///
    /// # Errors
    ///
    /// When this program is not in a target directory, or its checkout is gone.
    pub(crate) fn here() -> Result<Self> {
        let program = this_program()?;
        let target = program.ancestors().nth(2).context("this program lies in no target directory")?.to_path_buf();
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.ancestors().nth(2).context("this crate lies in no checkout")?.to_path_buf();
        anyhow::ensure!(root.join("Cargo.toml").exists(), "the checkout {} has gone", root.display());
        let profile = Profile::Release;
        let binary = profile.binary(&target);
        Ok(Self { root, target, profile, binary })
    }

    /// The same workspace, with the programs that the user named.
    ///
    /// # Errors
    ///
    /// When the named file does not exist.
    pub(crate) fn with(&self, programs: &Shipped) -> Result<Self> {
        let Some(binary) = &programs.qosm else { return Ok(self.clone()) };
        anyhow::ensure!(binary.is_file(), "--qosm {}: there is no such file", binary.display());
        Ok(Self { binary: binary.clone(), ..self.clone() })
    }

    /// The same workspace, whose binaries and tests this profile compiles.
    pub(crate) fn compiled_with(&self, profile: Profile) -> Self {
        Self { profile, binary: profile.binary(&self.target), ..self.clone() }
    }

    /// The profile that compiles the binaries and the tests.
    pub(crate) const fn profile(&self) -> Profile {
        self.profile
    }

    /// The folder with the workspace's Cargo.toml.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory; respects `CARGO_TARGET_DIR`.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The `qosm` binary, once built.
    pub(crate) fn binary(&self) -> PathBuf {
        self.binary.clone()
    }

    /// The `qosm-policy` binary, once built, next to `qosm`, which runs it.
    pub(crate) fn policy_binary(&self) -> PathBuf {
        self.binary().with_file_name("qosm-policy")
    }

    /// The folder of the default modules, once built.
    pub(crate) fn modules(&self) -> PathBuf {
        self.target.join("policies")
    }

    /// The folder of the modules of examples, once built.
    pub(crate) fn example_modules(&self) -> PathBuf {
        self.target.join("example-policies")
    }

    /// The folder of the modules of examples in Go and Python, once built.
    pub(crate) fn language_modules(&self) -> PathBuf {
        self.target.join("language-policies")
    }

    /// A cargo command in the checkout, with this program's target directory.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Cargo::here().command(&self.root);
        cargo.env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// A cargo command of this verb for all crates, with the workspace's profile.
    pub(crate) fn cargo_for_all(&self, verb: &str) -> Command {
        let mut cargo = self.cargo();
        cargo.arg(verb).args(self.profile.args()).arg("--workspace");
        cargo
    }

    /// A folder that outlives the checkout, for files that take long to get: `$HOME/.cache/qosm`.
    ///
    /// # Errors
    ///
    /// Without `HOME`, or when the folder cannot be made.
    pub(crate) fn cache(&self) -> Result<PathBuf> {
        let home = std::env::var_os("HOME").context("the environment has no HOME to keep a cache in")?;
        let cache = Path::new(&home).join(".cache/qosm");
        std::fs::create_dir_all(&cache).with_context(|| format!("the cache {} cannot be made", cache.display()))?;
        Ok(cache)
    }
}

/// Moves a complete program into the cache, under its final name. An interrupted build leaves nothing there.
///
/// # Errors
///
/// When it cannot be renamed.
pub(crate) fn keep(fresh: &Path, name: &str) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(fresh, std::fs::Permissions::from_mode(0o755))
        .and_then(|()| std::fs::rename(fresh, fresh.with_file_name(name)))
        .with_context(|| format!("{} cannot be kept", fresh.display()))
}

/// Path of this program. The build that it starts may replace the program at this path; the new one works too.
///
/// # Errors
///
/// If the kernel does not report the path.
pub(crate) fn this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    // proc(5), /proc/pid/exe.
    Ok(match program.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => path.into(),
        None => program,
    })
}

/// Path of a program on the `PATH`, or in one of the system's folders that an ordinary user's `PATH` lacks.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(name)).find(|file| file.is_file())
}
