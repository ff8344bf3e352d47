//! Binaries as their projects publish them, each held against the digest that is published beside it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::command;
use crate::workspace;

/// A program on another project's server.
pub(crate) struct Download {
    /// The file: the program, or an archive with it.
    address: String,
    /// The file with its digest, or with those of many files.
    digests: String,
    /// Where the program is in the archive; `None` if there is no archive.
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

    /// Downloads it to a file. `false` where the server is out of reach, which is found out within ten seconds.
    ///
    /// # Errors
    ///
    /// When what comes is not what its digest says, or not what it should hold.
    pub(crate) fn fetch(&self, fresh: &Path) -> Result<bool> {
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

/// The machine as Go and those who publish its programs call it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The digest of a file in what `sha256sum` prints, or the only one there without a name.
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
