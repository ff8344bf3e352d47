//! Debian's packages, unpacked into the cache and never installed: this needs no root, starts no service, and does not affect installed
//! programs of the same name.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::root::RootAccess;
use crate::{command, setup, workspace};

/// A package, a folder in it, and the program there.
pub(crate) type Packaged = (&'static str, &'static str, &'static str);

/// Fetches the missing packages for `purpose`.
///
/// # Errors
///
/// As [`fetch`].
pub(crate) fn unpack(cache: &Path, packages: &[Packaged], purpose: &str) -> Result<()> {
    let missing: Vec<_> = packages.iter().filter(|package| program(cache, **package).is_none()).collect();
    if !missing.is_empty() {
        fetch_lists();
    }
    for (package, ..) in missing {
        command::heading(&format!("getting {package} for {purpose}"));
        fetch(cache, package)?;
    }
    Ok(())
}

/// The program of the unpacked package, else the installed one, which is the only one on a machine without apt.
pub(crate) fn program(cache: &Path, (package, folder, program): Packaged) -> Option<PathBuf> {
    let unpacked = find(cache, &format!("{package}_"), folder, program);
    let exact = unpacked.map(|file| file.with_file_name(program)).filter(|file| file.is_file());
    exact.or_else(|| if workspace::program("apt-get").is_some() { None } else { workspace::program(program) })
}

/// The file that starts with `prefix` in a folder of an unpacked package; the last by name if there are several.
pub(crate) fn find(cache: &Path, package: &str, folder: &str, prefix: &str) -> Option<PathBuf> {
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

/// Updates apt's lists if possible; a fresh machine has none.
pub(crate) fn fetch_lists() {
    if let Some(mut update) = RootAccess::here().command("apt-get", &[])
        && let Err(error) = command::patient(update.args(setup::APT).args(["update", "-q"]))
    {
        println!("    {error}");
    }
}

/// Downloads a package and unpacks it to `<cache>/<package>_<version>_<architecture>`, which appears whole or not at all.
///
/// # Errors
///
/// When apt is missing, knows no such package or cannot download it.
pub(crate) fn fetch(cache: &Path, package: &str) -> Result<()> {
    std::fs::create_dir_all(cache).with_context(|| format!("{} cannot be made", cache.display()))?;
    let folder = tempfile::tempdir_in(cache).context("no folder to download to")?;
    // As root, apt downloads as the user _apt, which may not write to this folder.
    let download = ["-q", "-o", "APT::Sandbox::User=root", "download", package];
    command::patient(Command::new("apt-get").args(setup::APT).args(download).current_dir(folder.path()))?;
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
