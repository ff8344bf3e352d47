//! Where things are: the checkout, cargo's target directory, this user's cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use qosm_build::Cargo;

/// The checkout that this program was built from, and where it was built.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// The checkout is known since this program was compiled, and the target directory is where it lies: so that it also works
    /// through `sudo`, where no cargo is on the path.
    ///
    /// # Errors
    ///
    /// When this program lies in no target directory, or its checkout has gone.
    pub(crate) fn here() -> Result<Self> {
        let program = this_program()?;
        let target = program.ancestors().nth(2).context("this program lies in no target directory")?.to_path_buf();
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.ancestors().nth(2).context("this crate lies in no checkout")?.to_path_buf();
        anyhow::ensure!(root.join("Cargo.toml").exists(), "the checkout {} has gone", root.display());
        Ok(Self { root, target })
    }

    /// The folder with the workspace's Cargo.toml.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's target directory, `CARGO_TARGET_DIR` heeded.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The `qosm` binary, once built.
    pub(crate) fn binary(&self) -> PathBuf {
        self.target.join("release/qosm")
    }

    /// The `qosm-policy` binary, once built: `qosm` finds it there.
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

    /// A cargo command in the checkout, with the same target directory as this program's.
    pub(crate) fn cargo(&self) -> Command {
        let mut cargo = Cargo::here().command(&self.root);
        cargo.env("CARGO_TARGET_DIR", &self.target);
        cargo
    }

    /// A folder that outlives the checkout, for what takes long to get: `$HOME/.cache/qosm`.
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

/// Takes a complete program into the cache, beside where it was made and under its own name: what was interrupted before never
/// appears there.
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

/// Where this program lies. The build that it starts may replace it while it runs: what lies there then does as well.
///
/// # Errors
///
/// When the kernel does not tell.
pub(crate) fn this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    // proc(5), /proc/pid/exe.
    Ok(match program.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => path.into(),
        None => program,
    })
}

/// A program on the path, or in one of the system's folders that an ordinary user's path leaves out.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(name)).find(|file| file.is_file())
}
