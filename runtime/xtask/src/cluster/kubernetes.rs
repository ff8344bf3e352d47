//! Kubernetes' binaries, built with Go as commands of an ordinary module.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{command, go};

/// A Go module that only requires Kubernetes.
pub(crate) struct Module {
    folder: PathBuf,
    version: String,
}

impl Module {
    /// Kubernetes' repository replaces modules that it also publishes by its own folders. Go ignores such replacements in a required
    /// module, so this module replaces them by the published versions.
    ///
    /// # Errors
    ///
    /// If there is no Go, or the module cannot be downloaded.
    pub(crate) fn of_kubernetes(cache: &Path, version: &str) -> Result<Self> {
        /// Output of `go mod download -json` for a module.
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Downloaded {
            go_mod: PathBuf,
        }
        let folder = cache.join("module");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let module = format!("k8s.io/kubernetes@v{version}");
        println!("    $ go mod download {module}");
        let printed =
            command::patient_output(go::command()?.args(["mod", "download", "-json", &module]).current_dir(&folder))?;
        let downloaded: Downloaded = serde_json::from_str(&printed).context("`go mod download` printed no JSON")?;
        let theirs = fs::read_to_string(&downloaded.go_mod)
            .with_context(|| format!("{} cannot be read", downloaded.go_mod.display()))?;
        let file = folder.join("go.mod");
        fs::write(&file, go_mod(&theirs, version)).with_context(|| format!("{} cannot be written", file.display()))?;
        Ok(Self { folder, version: version.to_owned() })
    }

    /// Builds one of the repository's commands.
    ///
    /// # Errors
    ///
    /// When Go does not build it.
    pub(crate) fn build(&self, name: &str, file: &Path) -> Result<()> {
        let version = &self.version;
        // Sets the version, because clients that ask the server for it, such as Helm, must not get an unknown one.
        let mut flags = "-s -w".to_owned();
        let mut numbers = version.split('.');
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            flags += &format!(" -X {package}.gitVersion=v{version} -X {package}.gitTreeState=clean");
        }
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let base = "k8s.io/component-base/version";
        flags += &format!(" -X {base}.gitMajor={major} -X {base}.gitMinor={minor}");
        let mut build = go::command()?;
        build.args(["build", "-v", "-mod=mod", "-ldflags", &flags, "-o"]).arg(file);
        build.arg(format!("k8s.io/kubernetes/cmd/{name}")).current_dir(&self.folder);
        println!("    $ go build k8s.io/kubernetes/cmd/{name}   (minutes, once a version)");
        go::with_progress(&mut build, name)
    }
}

/// A go.mod with the requirement, and a replacement for each module that `theirs` replaces by a folder.
fn go_mod(theirs: &str, version: &str) -> String {
    let go = theirs.lines().find(|line| line.starts_with("go ")).unwrap_or("go 1.26.0");
    let published = version.split_once('.').map_or(version, |(_, rest)| rest);
    let mut text = format!("module qosm.test/cluster\n\n{go}\n\nrequire k8s.io/kubernetes v{version}\n\nreplace (\n");
    for line in theirs.lines().filter(|line| line.contains("=> ./staging/")) {
        let module = line.trim().trim_start_matches("replace ").split(' ').next().unwrap_or_default();
        text += &format!("\t{module} => {module} v0.{published}\n");
    }
    text + ")\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_become_published_modules() {
        let theirs = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\ta => b v1\n)\n";
        let text = go_mod(theirs, "1.36.3");
        assert!(text.contains("go 1.26.0\n"), "{text}");
        assert!(text.contains("\tk8s.io/api => k8s.io/api v0.36.3\n"), "{text}");
        assert!(!text.contains("a => "), "{text}");
    }
}
