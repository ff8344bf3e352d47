//! The guest's kernel and shell, out of Debian's packages.
//!
//! They are only unpacked, never installed: this needs no root, and leaves this machine's own kernel and busybox alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command;
use crate::privilege::Privilege;
use crate::workspace::Workspace;

/// What the guest starts from.
#[derive(Debug)]
pub(crate) struct Guest {
    /// A Linux that needs no modules to be a virtual machine.
    pub(crate) kernel: PathBuf,
    /// A statically linked busybox.
    pub(crate) busybox: PathBuf,
}

/// From the cache, where any version will do; else the newest that apt knows.
///
/// # Errors
///
/// When nothing is cached and apt is missing, knows no such package or cannot download it.
pub(crate) fn find_or_fetch(workspace: &Workspace) -> Result<Guest> {
    let cache = workspace.cache()?.join("vm");
    let kernel = match find(&cache, "linux-image-", "boot", "vmlinuz-") {
        Some(kernel) => kernel,
        None => {
            anyhow::ensure!(cfg!(target_arch = "x86_64"), "the VM of the tests is made for x86-64 machines only");
            command::heading("getting a kernel for the VM");
            fetch_lists();
            let package = kernel_package()?;
            fetch(&cache, &package)?;
            find(&cache, "linux-image-", "boot", "vmlinuz-")
                .with_context(|| format!("the package {package} holds no kernel"))?
        }
    };
    let busybox = match find(&cache, "busybox-static", "bin", "busybox")
        .or_else(|| find(&cache, "busybox-static", "usr/bin", "busybox"))
    {
        Some(busybox) => busybox,
        None => {
            command::heading("getting a shell for the VM");
            fetch(&cache, "busybox-static")?;
            find(&cache, "busybox-static", "bin", "busybox")
                .or_else(|| find(&cache, "busybox-static", "usr/bin", "busybox"))
                .context("the package busybox-static holds no busybox")?
        }
    };
    Ok(Guest { kernel, busybox })
}

/// A file that starts with `prefix`, in a folder of an unpacked package; the last in the order of names.
fn find(cache: &Path, package: &str, folder: &str, prefix: &str) -> Option<PathBuf> {
    let starts =
        |path: &PathBuf, with: &str| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(with));
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    };
    let mut packages: Vec<_> = list(cache).into_iter().filter(|path| starts(path, package)).collect();
    packages.sort();
    let mut files = packages.iter().flat_map(|package| list(&package.join(folder)));
    files.rfind(|path| starts(path, prefix) && path.is_file())
}

/// The package behind the name that always means the newest.
fn kernel_package() -> Result<String> {
    let meta = "linux-image-cloud-amd64";
    let printed = command::output(Command::new("apt-cache").args(["depends", "--important", meta]))
        .context("apt knows no kernel for virtual machines; the tests on cgroup v2 need Debian's")?;
    let depends = printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.map(str::trim).find(|name| name.starts_with("linux-image-"));
    package.map(str::to_owned).with_context(|| format!("{meta} depends on no kernel"))
}

/// apt's lists, where they can be had: a fresh machine has none.
fn fetch_lists() {
    if let Some(mut update) = Privilege::here().command("apt-get", &[])
        && let Err(error) = command::run(update.args(["update", "-q"]))
    {
        println!("    {error}");
    }
}

/// Downloads a package and unpacks it to `<cache>/<package>_<version>_<architecture>`, which appears whole or not at all.
fn fetch(cache: &Path, package: &str) -> Result<()> {
    std::fs::create_dir_all(cache).with_context(|| format!("{} cannot be made", cache.display()))?;
    let folder = tempfile::tempdir_in(cache).context("no folder to download to")?;
    // As root apt would download as the user _apt, who may not write here.
    let download = ["-q", "-o", "APT::Sandbox::User=root", "download", package];
    command::run(Command::new("apt-get").args(download).current_dir(folder.path()))?;
    let files = std::fs::read_dir(folder.path()).context("the download cannot be listed")?;
    let deb =
        files.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some_and(|e| e == "deb"));
    let Some(deb) = deb else { bail!("apt-get downloaded no {package}") };
    let unpacked = folder.path().join("unpacked");
    command::run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&unpacked))?;
    let home = cache.join(deb.file_stem().unwrap_or_default());
    if !home.exists() {
        std::fs::rename(&unpacked, &home).with_context(|| format!("{} cannot be made", home.display()))?;
    }
    Ok(())
}
