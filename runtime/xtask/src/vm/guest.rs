//! The guest's kernel and shell, from Debian's packages.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::registers;
use crate::command;
use crate::debian::{Packaged, fetch, fetch_lists, find, program, unpack};
use crate::workspace::Workspace;

/// User-mode Linux: package, folder in it, program.
const USER_MODE: Packaged = ("user-mode-linux", "usr/bin", "linux.uml");

/// The files that a guest boots from.
#[derive(Debug)]
pub(crate) struct Guest {
    /// A Linux kernel that runs in a virtual machine without modules.
    pub(crate) kernel: PathBuf,
    /// A statically linked busybox.
    pub(crate) busybox: PathBuf,
    /// User-mode Linux; `None` if it is not available: Ubuntu has no package of it.
    pub(crate) user_mode: Option<PathBuf>,
}

/// Finds any version in the cache; else fetches the newest that apt knows.
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
    let user_mode = user_mode(workspace)?;
    Ok(Guest { kernel, busybox, user_mode })
}

/// User-mode Linux, if it is in the cache.
///
/// # Errors
///
/// When there is no folder for a cache.
pub(crate) fn user_mode(workspace: &Workspace) -> Result<Option<PathBuf>> {
    Ok(program(&workspace.cache()?.join("vm"), USER_MODE))
}

/// Fetches user-mode Linux into the cache, unless it is there. A failure is printed and is no error.
///
/// # Errors
///
/// When there is no folder for a cache.
pub(crate) fn fetch_user_mode(workspace: &Workspace) -> Result<()> {
    let cache = workspace.cache()?.join("vm");
    if let Err(error) = unpack(&cache, &[USER_MODE], "cgroup v2 at this machine's speed") {
        command::tell(&error);
        println!("    an emulated machine takes its place, which needs ten times as long");
    }
    if let Some(program) = program(&cache, USER_MODE) {
        command::warn(registers::build(&program));
    }
    Ok(())
}

/// The package to which the name of the newest version refers.
fn kernel_package() -> Result<String> {
    let meta = "linux-image-cloud-amd64";
    let printed = command::output(Command::new("apt-cache").args(["depends", "--important", meta]))
        .context("apt knows no kernel for virtual machines; the tests on cgroup v2 need Debian's")?;
    let depends = printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.map(str::trim).find(|name| name.starts_with("linux-image-"));
    package.map(str::to_owned).with_context(|| format!("{meta} depends on no kernel"))
}
