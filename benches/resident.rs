//! The promise: the agent stays small, and does not grow.
//!
//! Measures a process that does the agent's work, with the default modules and 100 pods on real cgroups. A child process compiles the
//! modules, so that the compiler's memory does not count, and no benchmark framework is loaded. Then the same with twenty modules, versions
//! of CPU Burst that all set the same knobs: the memory of each beyond the first three.

use std::ffi::OsStr;
use std::fs;
use std::process::ExitCode;

use anyhow::Context;
use qosm_agent::LoadedPolicy;
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::modules;
use qosm_benches::ticking::Ticking;
use qosm_benches::{length, run_if_wanted, workload};
use qosm_engine::{Compiler, Engine, Memory, compile_child_main};

const PODS: u32 = 100;
/// Number of ticks until all tables have reached their size.
const EARLY_TICKS: u32 = 2_000;
const TICKS: u32 = 20_000;
/// Number of modules, and of ticks with them.
const MANY: u32 = 20;
const TICKS_WITH_MANY: u32 = 500;
/// The argument that makes this program the compiler's child process.
const COMPILE: &str = "compile-module";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(COMPILE)) {
        return compile_child_main();
    }
    run_if_wanted("resident", run)
}

fn run() -> anyhow::Result<()> {
    let engine = Engine::new()?;
    let program = std::env::current_exe().context("this program does not know where it lies")?;
    let compiler = Compiler::Child {
        program,
        args: vec![COMPILE.into()],
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    };
    let policies = modules::DEFAULT
        .iter()
        .map(|name| modules::load(&engine, name, None, &compiler))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let tree = Tree::plant(workload::pods(PODS))?;
    let mut agent = Ticking::start(tree.host()?, engine.clone(), policies.clone(), tree.pods(PODS))?;
    let (early_ticks, ticks) = (length(EARLY_TICKS, 20), length(TICKS, 20));
    for _ in 0..early_ticks {
        agent.tick();
    }
    let early = status("VmRSS")?;
    for _ in 0..ticks {
        agent.tick();
    }
    let (late, most) = (status("VmRSS")?, status("VmHWM")?);
    println!("resident/default-modules/{PODS}");
    println!(
        "    after {early_ticks} ticks: {:.1} MiB; after {ticks} more: {:.1} MiB; at most: {:.1} MiB",
        early / 1024.0,
        late / 1024.0,
        most / 1024.0
    );
    drop(agent);
    let many = many(&engine, &policies, &compiler)?;
    let mut agent = Ticking::start(tree.host()?, engine, many, tree.pods(PODS))?;
    let ticks = length(TICKS_WITH_MANY, 5);
    for _ in 0..ticks {
        agent.tick();
    }
    let with_many = status("VmRSS")?;
    println!("    with {MANY} modules, after {ticks} ticks: {:.1} MiB", with_many / 1024.0);
    let figures = [
        ("MiB", late / 1024.0),
        ("most MiB", most / 1024.0),
        ("growth KiB", late - early),
        ("many MiB", with_many / 1024.0),
    ];
    let figures: Figures = figures.into_iter().map(|(name, value)| (name.to_owned(), Figure::once(value))).collect();
    figures::write("resident", &figures)
}

/// The default modules and other versions of CPU Burst, each with a unique name.
fn many(engine: &Engine, default: &[LoadedPolicy], compiler: &Compiler) -> anyhow::Result<Vec<LoadedPolicy>> {
    let mut many = default.to_vec();
    let cpu_burst = default.first().context("there are no default modules")?;
    for other in modules::others(engine, cpu_burst, compiler)? {
        if many.len() == MANY as usize {
            return Ok(many);
        }
        let mut other = other?;
        // `builtin:` grants a module with another name the same as the default module.
        other.config.module = Some(format!("builtin:{}", other.config.name));
        other.config.name = format!("{}-{}", other.config.name, many.len());
        many.push(other);
    }
    anyhow::bail!("there are not that many versions")
}

/// A value in `/proc/self/status`, in KiB.
fn status(name: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/status").context("/proc/self/status cannot be read")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let line = line.with_context(|| format!("/proc/self/status has no {name}"))?;
    let kib = line.trim().trim_end_matches(" kB").parse::<u32>();
    Ok(f64::from(kib.with_context(|| format!("{name} is `{line}`"))?))
}
