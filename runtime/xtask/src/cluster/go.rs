//! Building with Go: Kubernetes' binaries as those of an ordinary module, and what `go install` can name.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::command;
use crate::workspace;

/// The Go that Kubernetes and Helm ask for.
const WANTED: (u32, u32) = (1, 26);

/// How often a build tells that it goes on.
const PROGRESS: Duration = Duration::from_secs(30);

/// A Go module that does nothing but require Kubernetes'.
pub(crate) struct Module {
    folder: PathBuf,
    version: String,
}

impl Module {
    /// Kubernetes' repository replaces the modules that it publishes beside itself by folders of its own, which Go does not hear
    /// in a module that is only required. So this one replaces them by what was published.
    ///
    /// # Errors
    ///
    /// When there is no Go, or the module cannot be downloaded.
    pub(crate) fn of_kubernetes(cache: &Path, version: &str) -> Result<Self> {
        /// What `go mod download -json` prints of a module.
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Downloaded {
            go_mod: PathBuf,
        }
        let folder = cache.join("module");
        fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        let module = format!("k8s.io/kubernetes@v{version}");
        println!("    $ go mod download {module}");
        let printed = command::output(go()?.args(["mod", "download", "-json", &module]).current_dir(&folder))?;
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
        // What asks the server for its version, as Helm does, must not take this one for an unknown.
        let mut flags = "-s -w".to_owned();
        let mut numbers = version.split('.');
        for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
            flags += &format!(" -X {package}.gitVersion=v{version} -X {package}.gitTreeState=clean");
        }
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let base = "k8s.io/component-base/version";
        flags += &format!(" -X {base}.gitMajor={major} -X {base}.gitMinor={minor}");
        let mut build = go()?;
        build.args(["build", "-v", "-mod=mod", "-ldflags", &flags, "-o"]).arg(file);
        build.arg(format!("k8s.io/kubernetes/cmd/{name}")).current_dir(&self.folder);
        println!("    $ go build k8s.io/kubernetes/cmd/{name}   (minutes, once a version)");
        with_progress(&mut build, name)
    }
}

/// As `go install`, to a file.
///
/// # Errors
///
/// When there is no Go, or it does not build it.
pub(crate) fn install(package: &str, file: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no folder to build in")?;
    println!("    $ go install {package}   (minutes, once a version)");
    let mut install = go()?;
    with_progress(install.args(["install", "-v", "-ldflags=-s -w", package]).env("GOBIN", folder.path()), package)?;
    let made = fs::read_dir(folder.path()).context("what was built cannot be listed")?.find_map(Result::ok);
    let made = made.with_context(|| format!("`go install {package}` built no program"))?.path();
    fs::copy(&made, file).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(())
}

/// A Go command, if this machine's is new enough.
fn go() -> Result<Command> {
    let help = format!("Go {}.{} or newer is needed to build the cluster", WANTED.0, WANTED.1);
    let Some(program) =
        workspace::program("go").or_else(|| Some("/usr/local/go/bin/go".into()).filter(|go: &PathBuf| go.is_file()))
    else {
        bail!("{help}, this machine has none: install it from https://go.dev/dl and put its folder `bin` on the PATH");
    };
    let printed = command::output(Command::new(&program).args(["env", "GOVERSION"]))?;
    let version = version(&printed).with_context(|| format!("`go env GOVERSION` printed `{}`", printed.trim()))?;
    if version < WANTED {
        bail!("{help}, this machine has {}: install a newer one from https://go.dev/dl", printed.trim());
    }
    let mut go = Command::new(program);
    // Whatever else this user builds: no C, so that the binaries run anywhere; no workspace; no flags of theirs.
    go.env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "").env_remove("GOOS").env_remove("GOARCH");
    go.stdin(Stdio::null());
    Ok(go)
}

/// `go1.26.8` and the like.
fn version(printed: &str) -> Option<(u32, u32)> {
    let mut numbers = printed.trim().strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The requirement, and a replacement for each module that theirs replaces by a folder.
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

/// Runs a build that names each package as it is compiled, and tells now and then how far it is.
fn with_progress(command: &mut Command, what: &str) -> Result<()> {
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{what}: go cannot be started"))?;
    let stderr = child.stderr.take().context("a piped command has no stderr")?;
    let count = Arc::new(AtomicU64::new(0));
    let reader = {
        let count = Arc::clone(&count);
        thread::spawn(move || complaints(stderr, &count))
    };
    let begun = Instant::now();
    let status = loop {
        if let Some(status) =
            command::wait(&mut child, PROGRESS).with_context(|| format!("{what} cannot be waited for"))?
        {
            break status;
        }
        println!("    {what}: {} packages, {} s", count.load(Ordering::Relaxed), begun.elapsed().as_secs());
    };
    let complaints = reader.join().unwrap_or_default();
    if !status.success() {
        bail!("{what} cannot be built ({status}):\n{}", complaints.join("\n"));
    }
    println!("    {what} is built: {} packages, {} s", count.load(Ordering::Relaxed), begun.elapsed().as_secs());
    Ok(())
}

/// Counts the lines that name a package, and returns the last of the others: what Go complains of.
fn complaints(stderr: impl Read, count: &AtomicU64) -> Vec<String> {
    let mut others = Vec::new();
    let read = command::each_line(stderr, |line| {
        if line.contains(' ') {
            others.push(line.to_owned());
            others.drain(..others.len().saturating_sub(20));
        } else {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    if let Err(error) = read {
        others.push(error.to_string());
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_go_prints_them() {
        assert_eq!(version("go1.26.8\n"), Some((1, 26)));
        assert_eq!(version("go1.27rc1"), Some((1, 27)));
        assert_eq!(version("devel"), None);
    }

    #[test]
    fn folders_become_published_modules() {
        let theirs = "module k8s.io/kubernetes\n\ngo 1.26.0\n\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\ta => b v1\n)\n";
        let text = go_mod(theirs, "1.36.3");
        assert!(text.contains("go 1.26.0\n"), "{text}");
        assert!(text.contains("\tk8s.io/api => k8s.io/api v0.36.3\n"), "{text}");
        assert!(!text.contains("a => "), "{text}");
    }
}
