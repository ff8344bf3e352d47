//! A guest whose first process is systemd: a complete Debian in user-mode Linux, like a node in production, with slices and scopes.
//!
//! Its disk is created once for each recipe and kept in the cache. Each guest writes to a separate overlay file, with which it can be
//! booted again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::{boot, guest};
use crate::interrupt::Interrupt;
use crate::root::RootAccess;
use crate::workspace::Workspace;
use crate::{command, setup};

/// The script that creates the disk.
const RECIPE: &str = include_str!("system.sh");
/// Packages on the disk besides the smallest Debian.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,iproute2,kmod,procps,openssl";

/// A guest that is powered off.
pub(crate) struct System {
    program: PathBuf,
    modules: Option<PathBuf>,
    disk: PathBuf,
    /// What the guest wrote, and the script that it has to run.
    folder: tempfile::TempDir,
}

/// Creates the disk, unless it is there. If there is no user-mode Linux, that is printed and is no error.
///
/// # Errors
///
/// If mmdebstrap or root is missing, or the disk cannot be created.
pub(crate) fn prepare(workspace: &Workspace) -> Result<()> {
    guest::fetch_user_mode(workspace)?;
    if guest::user_mode(workspace)?.is_none() {
        return Ok(());
    }
    let (release, disk) = (release()?, disk(workspace)?);
    if disk.exists() {
        return Ok(());
    }
    setup::program("mmdebstrap", "what makes a node's disk", "mmdebstrap")?;
    setup::program("mkfs.ext4", "what makes a node's disk", "e2fsprogs")?;
    command::heading("making a node's disk: Debian with systemd");
    let script = tempfile::NamedTempFile::new().context("no folder for a script")?;
    std::fs::write(script.path(), RECIPE).context("a script cannot be written")?;
    let Some(mut make) = RootAccess::here().command("sh", &[]) else {
        bail!("the disk of a node can only be made by root: run this as root or allow `sudo` without a password");
    };
    command::patient(make.arg(script.path()).args([&release, PACKAGES]).arg(&disk))
}

impl System {
    /// A guest that has not run yet; `None` if this machine has no user-mode Linux.
    ///
    /// # Errors
    ///
    /// If its disk was not created.
    pub(crate) fn fresh(workspace: &Workspace) -> Result<Option<Self>> {
        let Some(program) = guest::user_mode(workspace)? else { return Ok(None) };
        let disk = disk(workspace)?;
        anyhow::ensure!(disk.exists(), "{} is missing: run `cargo xtask setup --for node`", disk.display());
        let modules = program.ancestors().nth(2).map(|usr| usr.join("lib/uml/modules"));
        let folder = tempfile::tempdir().context("no folder for the guest's files")?;
        Ok(Some(Self { program, modules, disk, folder }))
    }

    /// A shell command that loads a module of the guest's kernel.
    pub(crate) fn load(&self, module: &str) -> String {
        let folder = self.modules.as_deref().unwrap_or(Path::new("/lib/modules"));
        format!("insmod \"$(find '/host{}' -name '{module}.ko')\"\n", folder.display())
    }

    /// Boots the guest, runs a script as root and calls `each` with each line that it prints. Returns the script's exit code. The guest can
    /// read this machine's files below `/host`, and has the files that an earlier boot wrote.
    ///
    /// # Errors
    ///
    /// When the guest goes down before the script ends, does not finish in time, or this process is asked to end.
    pub(crate) fn boot(
        &self,
        script: &str,
        limit: Duration,
        interrupt: &Interrupt,
        each: impl FnMut(&str),
    ) -> Result<u8> {
        let file = self.folder.path().join("script");
        std::fs::write(&file, script).context("the guest's script cannot be written")?;
        let written = self.folder.path().join("written");
        let command = boot::system(&self.program, &written, &self.disk, &file);
        boot::run(command, limit, interrupt, each)
    }
}

/// Path of the disk of this recipe.
fn disk(workspace: &Workspace) -> Result<PathBuf> {
    let recipe = Sha256::digest(format!("{}{PACKAGES}{RECIPE}", release()?));
    let name: String = recipe.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Ok(workspace.cache()?.join(format!("vm/system-{name}.ext4")))
}

/// The release of this machine's Debian: the guest needs the libraries of programs that are compiled here.
fn release() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("/etc/os-release cannot be read")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release names no release of Debian")?.trim_matches('"').to_owned())
}
