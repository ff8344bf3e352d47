//! Builds with Go: packages for `go install`, and commands for other builds.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{PAUSES, each_line, output, tried, wait};
use crate::workspace;

/// The minimum version of Go, which Kubernetes, Helm and the tools for registries require.
const WANTED: (u32, u32) = (1, 26);

/// Without DWARF, which linking strips anyway; without inlining; one thread for each compiler, since several run at a time. The last two are a
/// quarter of the CPU time (opa: 83 s instead of 111), the first a sixth.
const FLAGS: &str = "'-gcflags=all=-dwarf=false -l -c=1'";

/// A compiler collects garbage only near this limit: most packages need less. At Go's default it takes a third more CPU time (opa: 113 s
/// instead of 77), and with a heap that may grow to five times what is in use 82 s, without a bound for large packages.
const HEAP: &str = "2GiB";

/// Interval of progress messages of a build.
const PROGRESS: Duration = Duration::from_secs(30);

/// Runs `go install` and moves the program to a file.
///
/// # Errors
///
/// If there is no Go, or the build fails.
pub(crate) fn install(package: &str, file: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("no folder to build in")?;
    println!("    $ go install {package}   (minutes, once a version)");
    let mut install = command()?;
    install.args(["install", "-v", "-ldflags=-s -w", package]).env("GOBIN", folder.path());
    // A build downloads modules, and a retry does not rebuild finished packages.
    tried(&PAUSES, || with_progress(&mut install, package))?;
    let made = fs::read_dir(folder.path()).context("what was built cannot be listed")?.find_map(Result::ok);
    let made = made.with_context(|| format!("`go install {package}` built no program"))?.path();
    fs::copy(&made, file).with_context(|| format!("{} cannot be written", file.display()))?;
    Ok(())
}

/// A Go command, if this machine's Go is new enough.
///
/// # Errors
///
/// If there is no Go, or it is too old.
pub(crate) fn command() -> Result<Command> {
    let help = format!("Go {}.{} or newer is needed to build what the tests run beside", WANTED.0, WANTED.1);
    let Some(program) =
        workspace::program("go").or_else(|| Some("/usr/local/go/bin/go".into()).filter(|go: &PathBuf| go.is_file()))
    else {
        bail!("{help}, this machine has none: install it from https://go.dev/dl and put its folder `bin` on the PATH");
    };
    let printed = output(Command::new(&program).args(["env", "GOVERSION"]))?;
    let version = version(&printed).with_context(|| format!("`go env GOVERSION` printed `{}`", printed.trim()))?;
    if version < WANTED {
        bail!("{help}, this machine has {}: install a newer one from https://go.dev/dl", printed.trim());
    }
    let mut go = Command::new(program);
    // Independent of the user's settings: no cgo, so that the binaries run anywhere; no workspace; no flags of theirs.
    go.env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", FLAGS)
        .env("GOGC", "off")
        .env("GOMEMLIMIT", HEAP)
        .env_remove("GOOS")
        .env_remove("GOARCH");
    go.stdin(Stdio::null());
    Ok(go)
}

/// Runs a build that prints each package as it is compiled, and reports progress from time to time.
///
/// # Errors
///
/// If the build fails; the error holds Go's last lines.
pub(crate) fn with_progress(command: &mut Command, what: &str) -> Result<()> {
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
        if let Some(status) = wait(&mut child, PROGRESS).with_context(|| format!("{what} cannot be waited for"))? {
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

/// Parses a version such as `go1.26.8`.
fn version(printed: &str) -> Option<(u32, u32)> {
    let mut numbers = printed.trim().strip_prefix("go")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Counts the lines that name a package, and returns the last of the other lines, which are Go's errors.
fn complaints(stderr: impl Read, count: &AtomicU64) -> Vec<String> {
    let mut others = Vec::new();
    let read = each_line(stderr, |line| {
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
}
