//! The promise: an agent with its default modules costs a busy node next to nothing.
//!
//! In real time, a tick a second on 300 containers, so that between two ticks everything has gone cold as it does on a node: the
//! CPU time of the whole process, all threads and what the kernel does for it.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::modules;
use qosm_benches::ticking::Ticking;
use qosm_benches::{is_wanted, workload};
use qosm_engine::{Compiler, Engine};
use rustix::time::{ClockId, clock_gettime};

const CONTAINERS: u32 = 300;
const TICKS: u32 = 20;
const TICK: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if !is_wanted("cpu") {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let engine = Engine::new()?;
    let policies = modules::DEFAULT
        .iter()
        .map(|name| modules::load(&engine, name, None, &Compiler::InProcess))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let tree = Tree::plant(workload::pods(CONTAINERS))?;
    let mut agent = Ticking::start(tree.host()?, engine, policies, tree.pods(CONTAINERS))?;

    let (begun, before) = (Instant::now(), cpu_time());
    let mut percents = Vec::new();
    let mut longest = Duration::ZERO;
    let mut last = before;
    for tick in 1..=TICKS {
        sleep((begun + TICK * tick).saturating_duration_since(Instant::now()));
        let start = Instant::now();
        agent.tick();
        longest = longest.max(start.elapsed());
        let now = cpu_time();
        percents.push((now - last) / TICK.as_secs_f64() * 100.0);
        last = now;
    }
    let percent = Figure::of(percents);
    let mean = (last - before) / begun.elapsed().as_secs_f64() * 100.0;
    println!("cpu/default-modules/{CONTAINERS}");
    println!(
        "    {mean:.3} % of one core over {TICKS} s (median second: {:.3} %); longest tick: {longest:.2?}",
        percent.median
    );
    let figures = [("percent", percent), ("mean percent", Figure::once(mean))];
    let figures: Figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    figures::write("cpu", &figures)
}

/// CPU time of this process so far, in seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}
