//! The promise: one version of a policy replaces another between two ticks, and hardly delays the loop.
//!
//! CPU Burst on 300 containers of real cgroups, at rest. Two versions that differ only in a custom section take turns: the policy set is
//! applied (1), the next step sends the new version to its dry run on another thread (2), and a later step evaluates it instead of the old
//! one (3). The time of these beyond an ordinary step is the delay of the loop; knobs that it writes are counted. The loop sleeps between
//! steps as between ticks, so that the dry run has a CPU.

use std::time::{Duration, Instant};

use anyhow::Context;
use qosm_agent::LoadedPolicy;
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::ticking::Ticking;
use qosm_benches::{is_wanted, length, modules, workload};
use qosm_engine::{Compiler, Engine};

const CONTAINERS: u32 = 300;
const SWAPS: usize = 100;
/// Number of ordinary steps between two swaps.
const BETWEEN: usize = 3;
/// Time between two steps.
const PAUSE: Duration = Duration::from_millis(60);
/// Maximum number of steps until the other version runs.
const MAX_STEPS: usize = 20;

fn main() -> anyhow::Result<()> {
    if !is_wanted("swap") {
        return Ok(());
    }
    let engine = Engine::new()?;
    let first = modules::load(&engine, "cpu-burst", None, &Compiler::InProcess)?;
    let second =
        modules::others(&engine, &first, &Compiler::InProcess)?.next().context("there is no other version")??;
    let tree = Tree::plant(workload::pods(CONTAINERS))?;
    let mut agent = Ticking::start(tree.host()?, engine, vec![first.clone()], tree.pods(CONTAINERS))?;
    let mut timed = Timed::default();
    for swap in 0..length(SWAPS, 2) {
        for _ in 0..BETWEEN {
            std::thread::sleep(PAUSE);
            timed.ordinary.push(timed_tick(&mut agent, &mut 0));
        }
        let next: &LoadedPolicy = if swap % 2 == 0 { &second } else { &first };
        std::thread::sleep(PAUSE);
        let started = Instant::now();
        agent.apply(next);
        timed.apply.push(started.elapsed());
        timed.dry_run.push(timed_tick(&mut agent, &mut timed.written));
        let mut first = None;
        for _ in 0..MAX_STEPS {
            std::thread::sleep(PAUSE);
            let step = timed_tick(&mut agent, &mut timed.written);
            if agent.runs(next) {
                first = Some(step);
                break;
            }
        }
        timed.first.push(first.context("the other version did not take its place")?);
    }
    anyhow::ensure!(timed.written == 0, "{} knobs were written for nothing", timed.written);
    timed.report()
}

fn timed_tick(agent: &mut Ticking, written: &mut usize) -> Duration {
    let started = Instant::now();
    *written += agent.tick();
    started.elapsed()
}

#[derive(Default)]
struct Timed {
    ordinary: Vec<Duration>,
    apply: Vec<Duration>,
    dry_run: Vec<Duration>,
    first: Vec<Duration>,
    written: usize,
}

impl Timed {
    fn report(self) -> anyhow::Result<()> {
        let micros = |times: &[Duration]| times.iter().map(|time| time.as_secs_f64() * 1e6).collect::<Vec<_>>();
        let ordinary = Figure::of(micros(&self.ordinary));
        let beyond = |times: &[Duration]| {
            Figure::of(micros(times).into_iter().map(|time| (time - ordinary.median).max(0.0)).collect())
        };
        let pause: Vec<_> =
            self.apply.iter().zip(&self.dry_run).zip(&self.first).map(|((a, b), c)| *a + *b + *c).collect();
        let longest =
            Figure::of(micros(&pause).into_iter().map(|time| (time - 2.0 * ordinary.median).max(0.0)).collect());
        println!("swap/cpu-burst/{CONTAINERS}");
        println!(
            "    an ordinary step {:.0} µs; applying the set {:.0} µs; beyond a step: the step before the dry run {:.0} µs, the step of the switch {:.0} µs; all of it {:.0} µs",
            ordinary.median,
            Figure::of(micros(&self.apply)).median,
            beyond(&self.dry_run).median,
            beyond(&self.first).median,
            longest.median
        );
        let figures: Figures = [
            ("step us", ordinary),
            ("apply us", Figure::of(micros(&self.apply))),
            ("dry run us", beyond(&self.dry_run)),
            ("first us", beyond(&self.first)),
            ("swap us", longest),
        ]
        .into_iter()
        .map(|(name, figure)| (name.to_owned(), figure))
        .collect();
        figures::write("swap", &figures).context("the figures cannot be kept")
    }
}
