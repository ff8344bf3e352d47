//! The promise: an agent with its default modules costs a busy node next to nothing.
//!
//! Measures in real time, one tick a second on 300 containers, so that caches are cold between two ticks as on a node: CPU time of the
//! whole process, all threads and kernel mode included. Then the same while the agent is recording.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::modules;
use qosm_benches::ticking::Ticking;
use qosm_benches::{length, run_if_wanted, workload};
use qosm_engine::{Compiler, Engine};
use rustix::time::{ClockId, clock_gettime};

const CONTAINERS: u32 = 300;
const TICKS: u32 = 20;
const TICK: Duration = Duration::from_secs(1);

fn ticks() -> u32 {
    length(TICKS, 2)
}

fn main() -> ExitCode {
    run_if_wanted("cpu", run)
}

fn run() -> anyhow::Result<()> {
    let engine = Engine::new()?;
    let policies = modules::DEFAULT
        .iter()
        .map(|name| modules::load(&engine, name, None, &Compiler::InProcess))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let tree = Tree::plant(workload::pods(CONTAINERS))?;
    let mut agent = Ticking::start(tree.host()?, engine, policies, tree.pods(CONTAINERS))?;

    let at_work = measure(&mut agent);
    println!("cpu/default-modules/{CONTAINERS}");
    at_work.print();

    // Records to a file through a thread, as the agent does.
    let (lines, received) = sync_channel::<String>(32);
    let file = tempfile::NamedTempFile::new().context("no file for the recording")?;
    let mut out = file.reopen().context("the recording's file cannot be opened")?;
    let writer = spawn(move || received.iter().try_for_each(|line| out.write_all(line.as_bytes())));
    agent.record(lines);
    let recorded = measure(&mut agent);
    anyhow::ensure!(agent.is_recording(), "the recording ended by itself");
    drop(agent);
    writer.join().map_err(|_| anyhow::anyhow!("the writer of the recording failed"))??;
    println!("cpu/recorded/{CONTAINERS}");
    recorded.print();
    let size = file.as_file().metadata().context("the recording is gone")?.len();
    println!("    {} KiB a tick", size / u64::from(ticks()) / 1024);

    let figures = [
        ("percent", at_work.percent),
        ("mean percent", Figure::once(at_work.mean)),
        ("recorded percent", recorded.percent),
        ("recorded mean percent", Figure::once(recorded.mean)),
    ];
    let figures: Figures = figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect();
    figures::write("cpu", &figures)
}

struct Measured {
    /// CPU percent of each second.
    percent: Figure,
    mean: f64,
    longest: Duration,
}

impl Measured {
    fn print(&self) {
        let Self { percent, mean, longest } = self;
        println!(
            "    {mean:.3} % of one core over {} s (median second: {:.3} %); longest tick: {longest:.2?}",
            ticks(),
            percent.median
        );
    }
}

/// Ticks once a second.
fn measure(agent: &mut Ticking) -> Measured {
    let (begun, before) = (Instant::now(), cpu_time());
    let mut percents = Vec::new();
    let mut longest = Duration::ZERO;
    let mut last = before;
    for tick in 1..=ticks() {
        sleep((begun + TICK * tick).saturating_duration_since(Instant::now()));
        let start = Instant::now();
        agent.tick();
        longest = longest.max(start.elapsed());
        let now = cpu_time();
        percents.push((now - last) / TICK.as_secs_f64() * 100.0);
        last = now;
    }
    Measured { percent: Figure::of(percents), mean: (last - before) / begun.elapsed().as_secs_f64() * 100.0, longest }
}

/// CPU time of this process so far, in seconds.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default().as_secs_f64()
}
