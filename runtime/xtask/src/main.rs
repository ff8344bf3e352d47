//! Tasks that are too complex for a line in the Makefile: setup, modules, tests, the VM and the demo.
//!
//! `cargo xtask --help` lists the verbs; the Makefile has a line for each that users need. Nothing of this crate is shipped.

mod bench;
mod book;
mod cgroup;
mod cluster;
mod colocation;
mod command;
mod conformance;
mod containerd;
mod contract;
mod crates;
mod debian;
mod demo;
mod download;
mod fleet;
mod go;
mod image;
mod install;
mod interrupt;
mod keys;
mod languages;
mod lint;
mod lock;
mod modules;
mod opa;
mod process;
mod publish;
mod registry;
mod rego;
mod root;
mod setup;
mod soak;
mod state_dir;
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
    /// Runs one stage of the tests, for the run that built it.
    #[command(hide = true)]
    Stage(test::StageArgs),
    /// Kills agents at random moments and lets one run for a million ticks: nothing may be lost, left behind or grow.
    Soak(soak::Args),
    /// Runs the benches.
    Bench(bench::Args),
    /// Measures in the VM what memory QoS does for a latency-sensitive process beside a memory hog.
    BenchWorkloads(workloads::Args),
    /// Measures a server alone, beside batch work, and beside batch work under qosm.
    BenchColocation(colocation::Args),
    /// Measures the load of a fleet of ten thousand nodes on a real API server.
    BenchFleet(fleet::Args),
    /// Renders the book of `docs`.
    Book,
    /// Checks formatting, clippy's lints and the dependencies.
    Lint,
    /// Shows CPU Burst at work on a real web server, and memory locality on two NUMA nodes.
    Demo(demo::Args),
    /// Runs the demo's second act inside the machine that it was copied to.
    #[command(hide = true)]
    Pages(demo::pages::Args),
    /// Packs the built programs and modules as a container image, without an image builder.
    Image(image::Args),
    /// Installs the built programs and modules on this machine, or removes them.
    Install(install::Args),
    /// Packs the built programs and modules as a Debian package.
    Deb(install::PackageArgs),
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
    /// Runs the part of `test`'s sweep that needs root.
    #[command(hide = true)]
    Sweep,
    /// A small virtual machine with cgroup v2 and two NUMA nodes.
    #[command(subcommand)]
    Vm(vm::Verb),
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
        Verb::Stage(args) => return test::run_stage(&workspace, &args),
        Verb::Soak(args) => return soak::run(&workspace, &args),
        Verb::Bench(args) => bench::run(&workspace, &args)?,
        Verb::BenchWorkloads(args) => return workloads::run(&workspace, &args),
        Verb::BenchColocation(args) => return colocation::run(&workspace, &args),
        Verb::BenchFleet(args) => return fleet::run(&workspace, &args),
        Verb::Book => book::run(&workspace)?,
        Verb::Lint => lint::run(&workspace)?,
        Verb::Demo(args) => return demo::run(&workspace, &args),
        Verb::Pages(_) => {}
        Verb::Image(args) => image::run(&workspace.with(&args.programs)?, &args)?,
        Verb::Install(args) => install::run(&workspace.with(&args.programs)?, &args)?,
        Verb::Deb(args) => install::package(&workspace.with(&args.programs)?, &args)?,
        Verb::Contract(args) => contract::run(&workspace, &args)?,
        Verb::Publish(args) => publish::run(&workspace.with(&args.programs)?, &args)?,
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

/// Builds modules and binaries, of all packages at once; what needs the
/// agent alone, such as the demo, builds `--package qosm`, which `runtime/features` has compiled alike.
pub(crate) fn build(workspace: &Workspace) -> anyhow::Result<()> {
    setup::install(workspace, &[setup::Purpose::Build])?;
    modules::build(workspace, &modules::Args::default())?;
    command::heading("the agent");
    let mut cargo: Command = workspace.cargo();
    command::run(cargo.args(["build", "--release", "--workspace"]))?;
    println!("    {}", workspace.binary().display());
    println!("    {}", workspace.policy_binary().display());
    Ok(())
}
