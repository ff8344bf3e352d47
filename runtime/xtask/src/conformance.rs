//! OPA's own test cases as WebAssembly. They are part of its Go module, and a Go program compiles them with OPA's library. The result is
//! kept in the user's cache by OPA's version, like [`opa`](crate::opa).

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::workspace::Workspace;
use crate::{command, go, opa};

/// The Go program in this crate; its go.mod requires the same version of OPA.
const PROGRAM: &str = "runtime/xtask/conformance";
/// Version of the format that the program writes; `runtime/engine/tests/rego/conformance.rs` reads it.
const REVISION: u32 = 1;

/// Compiles the cases, unless they are in the cache.
///
/// # Errors
///
/// When there is no Go, or it does not build the program, or that fails.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    let folder = folder(workspace)?;
    if folder.join("cases.json").is_file() {
        return Ok(());
    }
    command::heading(&format!("compiling the test cases of opa {}", opa::VERSION));
    let source = workspace.root().join(PROGRAM);
    let program = tempfile::tempdir().context("no folder to build in")?;
    let file = program.path().join("conformance");
    let mut build = go::command()?;
    // With the flags of the other builds, or Go compiles OPA and its own library once more.
    build.args(["build", "-v", "-ldflags=-s -w", "-o"]).arg(&file).arg(".").current_dir(&source);
    go::with_progress(&mut build, "the compiler of OPA's test cases")?;
    let mut list = go::command()?;
    list.args(["list", "-m", "-f", "{{.Dir}} {{.Version}}", opa::PACKAGE]).current_dir(&source);
    let listed = command::output(&mut list)?;
    let (opa_source, version) = listed.trim().rsplit_once(' ').context("`go list` names no folder of OPA's module")?;
    ensure!(
        version.trim_start_matches('v') == opa::VERSION,
        "{PROGRAM}/go.mod asks for OPA {version}, and opa is {}: write one version into both",
        opa::VERSION
    );
    // An interrupted run leaves no complete folder.
    let fresh = folder.with_extension("new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).with_context(|| format!("{} cannot be removed", fresh.display()))?;
    }
    fs::create_dir_all(&fresh).with_context(|| format!("{} cannot be made", fresh.display()))?;
    command::run(std::process::Command::new(&file).arg(opa_source).arg(&fresh))?;
    fs::rename(&fresh, &folder).with_context(|| format!("{} cannot be kept", folder.display()))
}

/// Where the cases are, or will be.
fn folder(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join(format!("opa-cases-{}-{REVISION}", opa::VERSION)))
}
