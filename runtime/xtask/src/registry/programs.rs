//! The programs of the registries and of their users: Debian's packages, releases that are downloaded if the server is in reach and else
//! built by `go install`, a crate, and a small program of this project. All of them are in the user's cache, by version.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::debian::{self, Packaged};
use crate::download::Download;
use crate::workspace::{self, Workspace, keep};
use crate::{command, crates, go, setup};

/// CNCF distribution, 2.8 in Debian 12. It is unpacked and not installed, because the installed package would start a registry.
const REGISTRY: Packaged = ("docker-registry", "usr/bin", "docker-registry");

/// A program that `go install` can build, with the version of its module.
struct OfGo {
    name: &'static str,
    package: &'static str,
    version: &'static str,
}

const COSIGN: OfGo = OfGo { name: "cosign", package: "github.com/sigstore/cosign/v3/cmd/cosign", version: "3.1.3" };
const CRANE: OfGo =
    OfGo { name: "crane", package: "github.com/google/go-containerregistry/cmd/crane", version: "0.22.1" };

/// The version of the crate `wkg`.
const WKG: &str = "0.16.1";

/// The program with the referrers API, the module that it is built from, and its version: distribution has no such API (3.1.2).
const REFERRERS: &str = include_str!("referrers.go");
const OCIREGISTRY: &str = "cuelabs.dev/go/oci/ociregistry";
const OCIREGISTRY_VERSION: &str = "v0.0.0-20251212221603-3adeb8663819";

/// The path of each program.
#[derive(Debug)]
pub(crate) struct Programs {
    /// The most common registry, CNCF distribution.
    pub(crate) registry: PathBuf,
    /// The registry with the referrers API.
    pub(crate) referrers: PathBuf,
    /// cosign.
    pub(crate) cosign: PathBuf,
    /// crane.
    pub(crate) crane: PathBuf,
    /// skopeo.
    pub(crate) skopeo: PathBuf,
    /// wkg, where it was built: `make test` leaves it out.
    pub(crate) wkg: Option<PathBuf>,
    /// htpasswd.
    pub(crate) htpasswd: PathBuf,
}

impl Programs {
    /// Downloads and builds the missing programs, except wkg.
    ///
    /// # Errors
    ///
    /// What is missing and cannot be installed; the error says which command to run.
    pub(crate) fn build(workspace: &Workspace) -> Result<Self> {
        let cache = cache(workspace)?;
        setup::program("openssl", "keys for the registries", "openssl")?;
        setup::program("htpasswd", "passwords for the registries", "apache2-utils")?;
        setup::program("skopeo", "a tool for registries", "skopeo")?;
        debian::unpack(&cache.join("debian"), &[REGISTRY], "the registries")?;
        for (tool, release) in
            [(CRANE, Download::of_crane(CRANE.version)), (COSIGN, Download::of_cosign(COSIGN.version))]
        {
            once(&cache, tool.name, tool.version, |fresh| {
                if release.is_had(fresh) {
                    return Ok(());
                }
                go::install(&format!("{}@v{}", tool.package, tool.version), fresh)
            })?;
        }
        once(&cache, "referrers", OCIREGISTRY_VERSION, build_referrers)?;
        Self::find(workspace)
    }

    /// The same, and wkg.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and when wkg cannot be compiled.
    pub(crate) fn build_all(workspace: &Workspace) -> Result<Self> {
        Self::build(workspace)?;
        build_wkg(workspace)?;
        Self::find(workspace)
    }

    /// The paths of all programs.
    ///
    /// # Errors
    ///
    /// If a program is not there yet.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self> {
        let cache = cache(workspace)?;
        let build = "run `cargo xtask registry build`";
        let built = |name: &str, version: &str| {
            let file = built(&cache, name, version);
            if file.exists() { Ok(file) } else { bail!("{name} {version} is missing: {build}") }
        };
        let installed = |name: &str| workspace::program(name).with_context(|| format!("{name} is missing: {build}"));
        Ok(Self {
            registry: debian::program(&cache.join("debian"), REGISTRY)
                .with_context(|| format!("{} is missing: {build}", REGISTRY.2))?,
            referrers: built("referrers", OCIREGISTRY_VERSION)?,
            cosign: built(COSIGN.name, COSIGN.version)?,
            crane: built(CRANE.name, CRANE.version)?,
            skopeo: installed("skopeo")?,
            wkg: built("wkg", WKG).ok(),
            htpasswd: installed("htpasswd")?,
        })
    }

    /// The programs for users and tests, by name.
    pub(crate) fn tools(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let tools: [(_, &Path); 3] = [("cosign", &self.cosign), ("crane", &self.crane), ("skopeo", &self.skopeo)];
        tools.into_iter().chain(self.wkg.as_deref().map(|wkg| ("wkg", wkg)))
    }
}

/// Compiles wkg, unless it is there.
///
/// # Errors
///
/// When it cannot be compiled.
pub(crate) fn build_wkg(workspace: &Workspace) -> Result<()> {
    let cache = cache(workspace)?;
    if built(&cache, "wkg", WKG).exists() {
        return Ok(());
    }
    command::heading("getting wkg (it is compiled, which takes some minutes; once a version)");
    crates::install(workspace, &format!("wkg@{WKG}"), &root(&cache, "wkg", WKG), crates::Optimized::Not)
}

fn cache(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join("registry"))
}

/// The folder of one version of a program.
fn root(cache: &Path, name: &str, version: &str) -> PathBuf {
    cache.join(format!("{name}-{version}"))
}

fn built(cache: &Path, name: &str, version: &str) -> PathBuf {
    root(cache, name, version).join("bin").join(name)
}

/// Builds a program, unless it exists.
fn once(cache: &Path, name: &str, version: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let file = built(cache, name, version);
    if file.exists() {
        return Ok(());
    }
    command::heading(&format!("getting {name} {version}"));
    let fresh = file.with_extension("new");
    let bin = root(cache, name, version).join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("{} cannot be made", bin.display()))?;
    build(&fresh)?;
    keep(&fresh, name)
}

/// Builds the program in a Go module of its own, so that Go finds its dependencies.
fn build_referrers(file: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no folder to build in")?;
    let module = format!("module qosm.test/referrers\n\ngo 1.24.0\n\nrequire {OCIREGISTRY} {OCIREGISTRY_VERSION}\n");
    for (name, text) in [("go.mod", module.as_str()), ("main.go", REFERRERS)] {
        fs::write(folder.path().join(name), text).with_context(|| format!("{name} cannot be written"))?;
    }
    println!("    $ go build {OCIREGISTRY}@{OCIREGISTRY_VERSION}");
    let mut build = go::command()?;
    build.args(["build", "-v", "-mod=mod", "-ldflags=-s -w", "-o"]).arg(file).current_dir(folder.path());
    go::with_progress(&mut build, "referrers")
}
