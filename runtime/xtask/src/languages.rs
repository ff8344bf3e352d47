//! The example policies in Go and Python: their compilers, their modules, and the Go bindings of the contract.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use qosm_build::Project;
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;

use crate::workspace::{self, Workspace};
use crate::{command, contract, go, setup};

/// The contract's bindings in Go: folder and package.
const BINDINGS: &str = "sdk/go/bindings";
const PACKAGE: &str = "github.com/qosm/qosm/sdk/go/bindings";
/// The only folder in it that is written by hand.
const BY_HAND: &str = "export_qosm_policy_lifecycle";

const GO: &str = "examples/go-policy";
const PYTHON: &str = "examples/python-policy";

/// Compiles a Python program and the interpreter to a component. One wheel on PyPI.
const COMPONENTIZE_PY: &str = "componentize-py";
const COMPONENTIZE_PY_VERSION: &str = "0.25.1";

/// Installs Go, and a Python with componentize-py.
///
/// # Errors
///
/// What is missing and cannot be installed.
pub(crate) fn install(workspace: &Workspace) -> Result<()> {
    go::command()?;
    let folder = environment(workspace)?;
    let is_whole = folder.join("whole");
    if is_whole.exists() {
        return Ok(());
    }
    command::heading(&format!("getting {COMPONENTIZE_PY} {COMPONENTIZE_PY_VERSION}"));
    if workspace::program("python3").is_none() || make_environment(&folder).is_err() {
        // In Debian, these are separate packages.
        setup::packages("Python", &["python3", "python3-venv"])?;
        make_environment(&folder)?;
    }
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--no-deps"]);
    command::patient(pip.arg(format!("{COMPONENTIZE_PY}=={COMPONENTIZE_PY_VERSION}")))?;
    // The marker is written last, so that an interrupted install is repeated from the start.
    fs::write(&is_whole, "").with_context(|| format!("{} cannot be written", is_whole.display()))
}

fn make_environment(folder: &Path) -> Result<()> {
    command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder))
}

/// Where componentize-py is, or will be.
fn environment(workspace: &Workspace) -> Result<PathBuf> {
    Ok(workspace.cache()?.join(format!("{COMPONENTIZE_PY}-{COMPONENTIZE_PY_VERSION}")))
}

/// Builds both modules to a folder.
///
/// # Errors
///
/// If a module does not compile, or is no component.
pub(crate) fn build(workspace: &Workspace) -> Result<()> {
    command::heading("modules in Go and Python");
    let folder = workspace.language_modules();
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let go = folder.join("go-policy.wasm");
    let built = Project::open(&workspace.root().join(GO))?.build(None)?;
    fs::write(&go, &built.module).with_context(|| format!("{} cannot be written", go.display()))?;
    let python = folder.join("python-policy.wasm");
    let mut componentize = Command::new(environment(workspace)?.join("bin").join(COMPONENTIZE_PY));
    // The same command as in the example's README.
    componentize.current_dir(workspace.root().join(PYTHON)).env_remove("VIRTUAL_ENV");
    componentize.args(["-d", "../../sdk/wit", "-d", "wit", "-w", "example:memory-high/memory-high"]);
    command::run(
        componentize
            .args(["componentize", "--stub-wasi", "-p", ".", "-p", "../../sdk/python", "policy", "-o"])
            .arg(&python),
    )?;
    for file in [go, python] {
        let size = file.metadata().with_context(|| format!("{} was not built", file.display()))?.len();
        println!("    {} ({size} bytes)", file.display());
    }
    Ok(())
}

/// Writes the Go bindings.
///
/// # Errors
///
/// If the contract is not valid WIT, there is no Go, or the folder cannot be written.
pub(crate) fn write_bindings(workspace: &Workspace) -> Result<()> {
    let folder = workspace.root().join(BINDINGS);
    let made = bindings(workspace)?;
    for gone in there(&folder)?.keys().filter(|name| !made.contains_key(*name)) {
        let file = folder.join(gone);
        fs::remove_file(&file).with_context(|| format!("{} cannot be removed", file.display()))?;
    }
    for (name, text) in made {
        write(&folder.join(name), &text)?;
    }
    println!("    {BINDINGS}");
    Ok(())
}

/// Compares the Go bindings with the contract.
///
/// # Errors
///
/// If they differ; the error says which command to run.
pub(crate) fn check_bindings(workspace: &Workspace) -> Result<()> {
    command::heading("the contract's bindings in Go");
    let there = there(&workspace.root().join(BINDINGS))?;
    let made = bindings(workspace)?;
    let differs = |name: &&String| there.get(*name) != made.get(*name);
    if let Some(name) = made.keys().chain(there.keys()).find(differs) {
        bail!("{BINDINGS}/{name} is not what {} says: run `cargo xtask contract`", contract::CONTRACT);
    }
    Ok(())
}

/// Generates the bindings, formatted by gofmt.
fn bindings(workspace: &Workspace) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut resolve = Resolve::default();
    let contract = workspace.root().join(contract::CONTRACT);
    let (package, _) = resolve.push_path(&contract).context("the contract is no WIT")?;
    let world = resolve.select_world(&[package], None).context("the contract has no world")?;
    let options = wit_bindgen_go::Opts {
        format: wit_bindgen_go::Format::False,
        pkg_name: Some(PACKAGE.to_owned()),
        ..wit_bindgen_go::Opts::default()
    };
    let mut files = Files::default();
    options.build().generate(&mut resolve, world, &mut files).context("the contract has no bindings in Go")?;
    let folder = tempfile::tempdir().context("no folder to format in")?;
    for (name, text) in files.iter() {
        write(&folder.path().join(name), text)?;
    }
    let gofmt = Path::new(go::command()?.get_program()).with_file_name("gofmt");
    command::run(Command::new(gofmt).arg("-w").arg(folder.path()))?;
    there(folder.path())
}

fn write(file: &Path, text: &[u8]) -> Result<()> {
    let folder = file.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

/// The generated files of a folder, by `package/file`.
fn there(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let unlisted = || format!("{} cannot be listed", folder.display());
    let mut files = BTreeMap::new();
    for package in fs::read_dir(folder).with_context(unlisted)? {
        let package = package.with_context(unlisted)?.path();
        if package.file_name() == Some(OsStr::new(BY_HAND)) {
            continue;
        }
        for file in fs::read_dir(&package).with_context(unlisted)? {
            let file = file.with_context(unlisted)?.path();
            let text = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let name = file.strip_prefix(folder).with_context(unlisted)?;
            files.insert(name.to_string_lossy().into_owned(), text);
        }
    }
    Ok(files)
}
