//! Runs the benches: all of them with the table, or each once in its shortest form, which shows that it still works.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Deserialize;

use crate::root::RootAccess;
use crate::workspace::Workspace;
use crate::{build, command, fleet, modules, opa, setup, workloads};

/// What `cargo bench` is given.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Arguments of `cargo bench`, such as a bench's name; `--bench footprint` measures the program beside an API server.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// The bench of the program as shipped. It needs an API server, and is no target of `cargo bench`.
const FOOTPRINT: &str = "footprint";
/// Number of nodes in the fleet's shortest form.
const FEW_NODES: u32 = 20;
/// Time limit of a bench in its shortest form; a bench that exceeds it hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs all benches and prints the table; with arguments, runs only the benches that they name, without the table.
///
/// # Errors
///
/// When something cannot be built or measured, or a promise is not kept.
pub(crate) fn run(workspace: &Workspace, Args { rest }: &Args) -> Result<()> {
    let names_footprint = rest.iter().any(|argument| argument == FOOTPRINT);
    let is_whole = rest.is_empty();
    // The bench of Rego compares policies with `opa` itself.
    let mut purposes = vec![setup::Purpose::Rego];
    purposes.extend((is_whole || names_footprint).then_some(setup::Purpose::Cluster));
    setup::install(workspace, &purposes)?;
    build(workspace)?;
    command::heading("benches");
    if !names_footprint {
        command::run(&mut beside_opa(workspace, "build"))?;
        let mut cargo = workspace.cargo();
        cargo.args(["bench", "--workspace", "--no-fail-fast"]).env("QOSM_MODULE_DIR", workspace.modules());
        cargo.env("PATH", opa::path(workspace)?);
        if !rest.iter().any(|arg| arg.starts_with("--bench")) {
            // Without this, cargo also runs every crate's unit tests as benches.
            cargo.args(["--bench", "*"]);
        }
        command::run(cargo.args(rest))?;
    }
    if is_whole || names_footprint {
        fleet::beside_api_server(workspace, |kubeconfig| {
            let program = program(workspace, FOOTPRINT);
            command::run(&mut as_root(&program, &variables(workspace, Some(kubeconfig))?))
        })?;
    }
    if is_whole {
        command::heading("the promises");
        command::run(Command::new(program(workspace, "summary")).current_dir(workspace.root()))?;
    }
    Ok(())
}

/// Runs each bench once in its shortest form, and calls `ended` with its name and whether it succeeded.
///
/// # Errors
///
/// If something cannot be built, or there is no API server or VM.
pub(crate) fn short(workspace: &Workspace, mut ended: impl FnMut(&str, bool)) -> Result<()> {
    command::heading("building the benches");
    let benches = targets(workspace)?;
    command::run(&mut beside_opa(workspace, "build"))?;
    command::heading("each bench once, in its shortest form");
    let with_short = |kubeconfig: Option<&Path>| -> Result<Variables> {
        let mut variables = variables(workspace, kubeconfig)?;
        variables.push((SHORT, "1".into()));
        Ok(variables)
    };
    let shared = with_short(None)?;
    // Results of an earlier run would hide what this run did not measure.
    command::run(as_root(&program(workspace, "summary"), &shared).arg("--forget"))?;
    for (name, bench) in &benches {
        run_one(as_root(bench, &shared).arg("--bench").current_dir(workspace.root()), name, &mut ended)?;
    }
    let beside = fleet::beside_api_server(workspace, |kubeconfig| {
        let shared = with_short(Some(kubeconfig))?;
        run_one(&mut as_root(&program(workspace, FOOTPRINT), &shared), FOOTPRINT, &mut ended)?;
        let mut fleet = as_root(&program(workspace, "fleet"), &shared);
        run_one(fleet.arg(FEW_NODES.to_string()), "fleet", &mut ended)
    });
    if let Err(error) = beside {
        println!("    {error:#}");
        ended("the benches beside an API server", false);
    }
    run_one(&mut as_root(&program(workspace, "summary"), &shared), "summary", &mut ended)?;
    let compared = workloads::measure(workspace, 2, 1);
    if let Err(error) = &compared {
        println!("    {error:#}");
    }
    ended("overcommit", compared.is_ok_and(|code| code == 0));
    Ok(())
}

/// `cargo build` or `cargo test` of `runtime/opa-wasm`, which is a separate workspace.
pub(crate) fn beside_opa(workspace: &Workspace, verb: &str) -> Command {
    let mut cargo = workspace.cargo();
    let manifest = workspace.root().join("runtime/opa-wasm/Cargo.toml");
    // Not `--locked`: its lock file also lists the dependencies of this workspace's crates, and changes with them.
    cargo.args([verb, "--release", "--manifest-path"]).arg(manifest);
    cargo
}

fn run_one(command: &mut Command, name: &str, ended: &mut impl FnMut(&str, bool)) -> Result<()> {
    let status = command::bounded(command, LIMIT)?;
    if status.is_none() {
        println!("    it was ended after {} s", LIMIT.as_secs());
    }
    ended(name, status.is_some_and(|status| status.success()));
    Ok(())
}

/// Selects the benches' shortest form.
const SHORT: &str = "QOSM_BENCH_SHORT";

type Variables = Vec<(&'static str, std::ffi::OsString)>;

fn variables(workspace: &Workspace, kubeconfig: Option<&Path>) -> Result<Variables> {
    let mut variables = vec![("QOSM_MODULE_DIR", workspace.modules().into()), ("PATH", opa::path(workspace)?)];
    variables.extend(kubeconfig.map(|kubeconfig| ("KUBECONFIG", kubeconfig.into())));
    Ok(variables)
}

/// Runs a bench as root if possible; otherwise the bench reports what it lacks.
fn as_root(program: &Path, variables: &Variables) -> Command {
    let all: Vec<(&str, &OsStr)> = variables.iter().map(|(name, value)| (*name, value.as_os_str())).collect();
    RootAccess::here().command(program, &all).unwrap_or_else(|| {
        let mut command = Command::new(program);
        command.envs(all.iter().copied());
        command
    })
}

fn program(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target().join("release").join(name)
}

/// Compiles the targets of `cargo bench`. Returns their names and programs.
fn targets(workspace: &Workspace) -> Result<Vec<(String, PathBuf)>> {
    /// A line of `cargo --message-format=json`, with the fields of all kinds of lines.
    #[derive(Deserialize)]
    struct Message {
        target: Option<qosm_build::Target>,
        executable: Option<PathBuf>,
    }
    let mut benches = Vec::new();
    let mut cargo = workspace.cargo();
    cargo.args(["bench", "--workspace", "--bench", "*", "--no-run", "--message-format=json-render-diagnostics"]);
    let status = command::lines(&mut cargo, |line| {
        let Ok(Message { target: Some(target), executable: Some(program) }) = serde_json::from_str(line) else {
            return;
        };
        if target.kind.iter().any(|kind| kind == "bench") {
            benches.push((target.name, program));
        }
    })?;
    anyhow::ensure!(status.success(), "the benches do not compile");
    benches.sort();
    let known = modules::packages(workspace)?.iter().flat_map(|package| &package.targets).filter(is_bench).count();
    if benches.len() != known || known == 0 {
        bail!("cargo compiled {} benches of {known}", benches.len());
    }
    Ok(benches)
}

fn is_bench(target: &&qosm_build::Target) -> bool {
    target.kind.iter().any(|kind| kind == "bench")
}
