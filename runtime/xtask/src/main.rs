//! What a Makefile line cannot say: the set-up, the modules, the test run, the VM and the demo.
//!
//! `cargo xtask --help` lists the verbs; the Makefile has one line for each that a person wants. Nothing here is shipped.

mod book;
mod cgroup;
mod cluster;
mod command;
mod contract;
mod crates;
mod debian;
mod demo;
mod fleet;
mod go;
mod image;
mod interrupt;
mod keys;
mod languages;
mod lint;
mod lock;
mod modules;
mod opa;
mod place;
mod privilege;
mod process;
mod publish;
mod registry;
mod rego;
mod setup;
mod sweep;
mod test;
mod tree;
mod vm;
mod workloads;
mod workspace;

use std::process::{Command, ExitCode};

use clap::Parser;

use crate::workspace::Workspace;

/// Builds, tests and shows qosm.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Verb {
    /// Installs what the other verbs need and this machine lacks.
    Setup(setup::Args),
    /// Builds the agent and the default modules.
    Build,
    /// Builds the default modules to `policies/<name>.wasm` in the target directory.
    Modules(modules::Args),
    /// Builds the Rego template and examples to `rego/<name>.tar.gz` in the target directory, and runs their own tests.
    Rego(rego::Args),
    /// Runs all tests, on this machine and in a VM with cgroup v2.
    Test(test::Args),
    /// Runs the benches.
    Bench(BenchArgs),
    /// Measures in the VM what memory QoS does for a latency-sensitive process beside a memory hog.
    BenchWorkloads(workloads::Args),
    /// Measures what a fleet of ten thousand nodes asks of a real API server.
    BenchFleet(fleet::Args),
    /// Renders the book of `docs`.
    Book,
    /// Checks formatting, clippy's lints and the dependencies.
    Lint,
    /// Shows CPU Burst at work on a real web server, and memory locality on two NUMA nodes.
    Demo(demo::Args),
    /// The demo's second act, where it plays: on a machine that it is handed to.
    #[command(hide = true)]
    Pages(demo::pages::Args),
    /// Puts what was built into an image, without a builder.
    Image(image::Args),
    /// Writes docs/contract.md, the contract's reference, and sdk/go/bindings, from its WIT.
    Contract(contract::Args),
    /// Pushes the default modules to a registry, and signs them.
    Publish(publish::Args),
    /// A real cluster on this machine, for tests.
    #[command(subcommand)]
    Cluster(cluster::Verb),
    /// Real container registries on this machine, for tests.
    #[command(subcommand)]
    Registry(registry::Verb),
    /// The part of `test`'s sweep that needs root.
    #[command(hide = true)]
    Sweep,
    /// A small virtual machine with cgroup v2 and two NUMA nodes.
    #[command(subcommand)]
    Vm(vm::Verb),
}

/// What `cargo bench` is given.
#[derive(clap::Args)]
struct BenchArgs {
    /// Handed to `cargo bench` as it is, e.g. a bench's name.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

fn main() -> ExitCode {
    match run(Verb::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    if let Verb::Pages(args) = &verb {
        // In the VM there is no workspace.
        return demo::pages::play(args);
    }
    let workspace = Workspace::here()?;
    match verb {
        Verb::Setup(args) => setup::run(&workspace, &args)?,
        Verb::Build => build(&workspace)?,
        Verb::Modules(args) => {
            setup::install(&workspace, &[setup::Purpose::Build])?;
            modules::build(&workspace, &args)?;
        }
        Verb::Rego(args) => {
            setup::install(&workspace, &[setup::Purpose::Rego])?;
            return rego::run(&workspace, &args);
        }
        Verb::Test(args) => return test::run(&workspace, &args),
        Verb::Bench(args) => bench(&workspace, &args.rest)?,
        Verb::BenchWorkloads(args) => return workloads::run(&workspace, &args),
        Verb::BenchFleet(args) => return fleet::run(&workspace, &args),
        Verb::Book => book::run(&workspace)?,
        Verb::Lint => lint::run(&workspace)?,
        Verb::Demo(args) => return demo::run(&workspace, &args),
        Verb::Pages(_) => {}
        Verb::Image(args) => image::run(&workspace, &args)?,
        Verb::Contract(args) => contract::run(&workspace, &args)?,
        Verb::Publish(args) => publish::run(&workspace, &args)?,
        Verb::Cluster(verb) => return cluster::run(&workspace, &verb),
        Verb::Registry(verb) => return registry::run(&workspace, &verb),
        Verb::Sweep => sweep::of_ended_tests()?,
        Verb::Vm(vm::Verb::Run(args)) => {
            setup::install(&workspace, &[setup::Purpose::Test])?;
            return vm::run(&workspace, &args);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// All benches and the table that they give; with arguments only what these name, and no table.
fn bench(workspace: &Workspace, rest: &[String]) -> anyhow::Result<()> {
    // A policy in Rego is measured beside `opa` itself.
    setup::install(workspace, &[setup::Purpose::Rego])?;
    build(workspace)?;
    command::heading("benches");
    let mut cargo = workspace.cargo();
    cargo.args(["bench", "--workspace", "--no-fail-fast"]).env("QOSM_MODULE_DIR", workspace.modules());
    cargo.env("PATH", opa::path(workspace)?);
    if !rest.iter().any(|arg| arg.starts_with("--bench")) {
        // Otherwise cargo also asks every crate's unit tests for benches.
        cargo.args(["--bench", "*"]);
    }
    command::run(cargo.args(rest))?;
    if rest.is_empty() {
        command::heading("the promises");
        let mut summary = Command::new(workspace.target().join("release/summary"));
        command::run(summary.current_dir(workspace.root()).env("CARGO_TARGET_DIR", workspace.target()))?;
    }
    Ok(())
}

/// Modules and binaries, both in place for whoever runs the product. All packages at once and everywhere: with fewer of them
/// cargo would choose other features for the shared dependencies and compile the engine a second time.
pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<()> {
    setup::install(workspace, &[setup::Purpose::Build])?;
    modules::build(workspace, &modules::Args::default())?;
    command::heading("the agent");
    let mut cargo: Command = workspace.cargo();
    command::run(cargo.args(["build", "--release", "--workspace"]))?;
    println!("    {}", workspace.binary().display());
    Ok(())
}
