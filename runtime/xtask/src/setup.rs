//! Installs what the verbs need besides Rust; nothing that exists already is installed.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use qosm_build::BuildError;

use crate::root::RootAccess;
use crate::vm;
use crate::workspace::{self, Workspace};
use crate::{cluster, command, conformance, languages, lint, modules, opa, registry};

/// What to prepare for.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Installs only what these verbs need. Default: everything.
    #[arg(long = "for", value_name = "VERB", value_delimiter = ',')]
    purposes: Vec<Purpose>,
}

/// A verb with needs of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Purpose {
    /// A Rust that compiles to Wasm.
    Build,
    /// A Rust that compiles to Wasm, and a virtual machine with a kernel.
    Test,
    /// A web server. The requirements of its build are those of `build`.
    Demo,
    /// rustfmt, clippy and cargo-deny.
    Lint,
    /// The same as `build`.
    Bench,
    /// Kubernetes, and a container runtime.
    Cluster,
    /// Container registries, and the tools that push to them and sign.
    Registry,
    /// wkg, which only the long test run uses.
    Wkg,
    /// opa, and its own test cases.
    Rego,
    /// Go, and a Python with componentize-py.
    Languages,
    /// The tests in a browser.
    Browser,
    /// The tool that rates systemd units.
    Units,
    /// The shells whose completions are tested.
    Shells,
    /// Kubernetes, and a guest with systemd for it.
    Node,
}

/// Installs what the chosen verbs need.
///
/// # Errors
///
/// The first requirement that is missing and cannot be installed; the error says which command to run.
pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<()> {
    use Purpose::{
        Bench, Browser, Build, Cluster, Demo, Languages, Lint, Node, Registry, Rego, Shells, Test, Units, Wkg,
    };
    let all = [Build, Test, Demo, Lint, Bench, Cluster, Registry, Wkg, Rego, Languages, Units, Shells, Node, Browser];
    let mut purposes = if args.purposes.is_empty() { all.to_vec() } else { args.purposes.clone() };
    if purposes.contains(&Demo) {
        purposes.push(Build);
    }
    install(workspace, &purposes)?;
    command::heading("everything is there");
    Ok(())
}

/// Like [`run`], for the verbs themselves; prints nothing if nothing is missing.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn install(workspace: &Workspace, purposes: &[Purpose]) -> Result<()> {
    let for_any = |wanted: &[Purpose]| wanted.iter().any(|purpose| purposes.contains(purpose));
    if for_any(&[Purpose::Build, Purpose::Test, Purpose::Bench]) {
        wasm(workspace)?;
    }
    if for_any(&[Purpose::Test]) {
        program(vm::QEMU, "a virtual machine for the tests on cgroup v2", "qemu-system-x86")?;
        vm::prepare(workspace)?;
    }
    if for_any(&[Purpose::Demo]) {
        program("apache2", "a web server for the demo", "apache2-bin")?;
    }
    if for_any(&[Purpose::Lint]) {
        lint::install(workspace)?;
    }
    if for_any(&[Purpose::Cluster, Purpose::Node]) {
        cluster::Programs::build(workspace)?;
    }
    if for_any(&[Purpose::Node]) {
        vm::prepare_system(workspace)?;
    }
    if for_any(&[Purpose::Registry]) {
        registry::Programs::build(workspace)?;
    }
    if for_any(&[Purpose::Wkg]) {
        registry::build_wkg(workspace)?;
    }
    if for_any(&[Purpose::Rego]) {
        opa::install(workspace)?;
        conformance::install(workspace)?;
    }
    if for_any(&[Purpose::Units]) {
        program("systemd-analyze", "what rates systemd's units", "systemd")?;
    }
    if for_any(&[Purpose::Shells]) {
        let shells = ["bash", "zsh", "fish"].into_iter().filter(|shell| workspace::program(shell).is_none());
        let missing: Vec<_> = shells.collect();
        if !missing.is_empty() {
            packages("shells for the tests of completions", &missing)?;
        }
    }
    if for_any(&[Purpose::Languages]) {
        languages::install(workspace)?;
    }
    if for_any(&[Purpose::Browser]) {
        program("chromium", "a browser for the page's tests", "chromium")?;
    }
    Ok(())
}

/// Installs Debian's package of a program, unless the program exists.
///
/// # Errors
///
/// As [`packages`].
pub(crate) fn program(name: &str, what: &str, package: &str) -> Result<()> {
    if workspace::program(name).is_some() { Ok(()) } else { packages(what, &[package]) }
}

/// Installs Debian packages, as root or through sudo.
///
/// # Errors
///
/// Without root or sudo; the message has the command to run as root.
pub(crate) fn packages(what: &str, names: &[&str]) -> Result<()> {
    command::heading(&format!("installing {what}: {}", names.join(" ")));
    let by_hand = format!("apt-get install --no-install-recommends {}", names.join(" "));
    if workspace::program("apt-get").is_none() {
        bail!("{what} is missing, and so is apt: install what Debian calls `{}`", names.join(" "));
    }
    let variables: [(&str, &std::ffi::OsStr); 1] = [("DEBIAN_FRONTEND", "noninteractive".as_ref())];
    let access = RootAccess::here();
    let (Some(mut update), Some(mut install)) =
        (access.command("apt-get", &variables), access.command("apt-get", &variables))
    else {
        bail!("{what} is missing, and only root can install it: run `sudo {by_hand}`");
    };
    // An update may fail: the packages may be in the lists of another source. On a fresh machine another apt often runs, which installs
    // upgrades.
    if let Err(error) = command::patient(update.args(APT).args(["update", "-q"])) {
        println!("    {error}");
    }
    command::patient(install.args(APT).args(["install", "-y", "-q", "--no-install-recommends"]).args(names))
}

/// apt waits up to ten minutes for another apt, and tries each download three times.
pub(crate) const APT: [&str; 4] = ["-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3"];

/// Installs a Rust for Wasm: rustup's target if its server answers, else Debian's packages.
fn wasm(workspace: &Workspace) -> Result<()> {
    let found = || modules::toolchain(workspace, None).is_some();
    if found() {
        return Ok(());
    }
    command::heading("installing a Rust that compiles to Wasm");
    if workspace::program("rustup").is_some() {
        // If its server is out of reach, rustup hangs instead of failing.
        let reachable = "timeout 8 rustup check >/dev/null 2>&1";
        let patience = if command::output(Command::new("sh").args(["-c", reachable])).is_ok() { 300 } else { 20 };
        let mut rustup = Command::new("rustup");
        command::bounded(rustup.args(["target", "add", qosm_build::TARGET]), Duration::from_secs(patience))?;
        if found() {
            return Ok(());
        }
    }
    // The compiler first: without it, a linker is of no use.
    let compiler = packages("Debian's current Rust", &["rustc-web", "cargo-web", "rust-web-src"]);
    if let Err(error) = compiler {
        return Err(BuildError::NoTarget).context(error.to_string());
    }
    // The version of LLVM differs between Debian releases; any recent wasm-ld links these modules.
    for linker in ["lld-22", "lld-21", "lld-20", "lld-19", "lld"] {
        if found() {
            return Ok(());
        }
        if let Err(error) = packages("a linker for Wasm", &[linker]) {
            println!("    {error}");
        }
    }
    if found() { Ok(()) } else { Err(BuildError::NoTarget.into()) }
}
