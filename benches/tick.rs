//! The promise: a whole CPU Burst tick of the agent costs hardly more than reading the files that it needs, and Wasm is a small part of it.
//! On real cgroups, with 30 to 1000 containers.
#![expect(clippy::expect_used, reason = "what fails must end the bench, not be measured")]

use std::hint::black_box;

use anyhow::Context;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId};
use qosm_agent::LoadedPolicy;
use qosm_benches::bare::TickFiles;
use qosm_benches::cgroups::Tree;
use qosm_benches::figures::{self, Figure, Figures};
use qosm_benches::ticking::Ticking;
use qosm_benches::workload::{self, Native, WINDOW};
use qosm_benches::{is_whole_run, modules, side_by_side};
use qosm_engine::{Cause, Compiler, Engine};

const COUNTS: [u32; 4] = [30, 100, 300, 1000];

fn main() -> anyhow::Result<()> {
    let mut criterion = qosm_benches::criterion()?;
    let engine = Engine::new()?;
    let policy = modules::load(&engine, "cpu-burst", None, &Compiler::InProcess)?;
    let tree = Tree::plant(workload::pods(COUNTS.into_iter().max().unwrap_or(0)))?;
    let mut figures = Figures::new();
    let mut group = criterion.benchmark_group("tick");
    for count in COUNTS {
        measure(&mut group, &engine, &policy, &tree, count, &mut figures)
            .with_context(|| format!("with {count} containers"))?;
    }
    group.finish();
    criterion.final_summary();
    if is_whole_run() { figures::write("tick", &figures) } else { Ok(()) }
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    engine: &Engine,
    policy: &LoadedPolicy,
    tree: &Tree,
    count: u32,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let pods = tree.pods(count);
    let files = TickFiles::of(&tree.host()?, pods)?;
    let mut agent = Ticking::start(tree.host()?, engine.clone(), vec![policy.clone()], pods)?;
    let (held, groups) = (agent.held(), pods.len() * 2);
    anyhow::ensure!(
        held == groups,
        "CPU Burst holds {held} knobs, not a burst on each of {groups} groups: has this kernel CFS burst?"
    );
    files.check(|| {
        agent.tick();
    })?;
    let mut kept = files.keep()?;
    let mut buffer = vec![0; 1 << 16];
    let mut wasm = workload::instance(engine, policy, count)?;
    let columns = workload::columns(count);
    let mut native = Native::start(count)?;

    let mut turn = 0;
    let mut next = || {
        turn += 1;
        turn
    };
    group.bench_function(BenchmarkId::new("agent", count), |b| b.iter(|| agent.tick()));
    group.bench_function(BenchmarkId::new("pread", count), |b| {
        b.iter(|| kept.pread(next()).expect("read just before"));
    });
    group.bench_function(BenchmarkId::new("open-read-close", count), |b| {
        b.iter(|| files.open_read_close(next(), &mut buffer).expect("read just before"));
    });
    group.bench_function(BenchmarkId::new("wasm", count), |b| {
        b.iter(|| wasm.evaluate(WINDOW, Cause::Interval, &columns).expect("evaluated just before"));
    });
    group.bench_function(BenchmarkId::new("native", count), |b| {
        b.iter(|| native.evaluate().expect("evaluated just before"));
    });

    if !is_whole_run() {
        return Ok(());
    }
    let turns = side_by_side::run(&mut [
        &mut |_| {
            black_box(agent.tick());
            Ok(())
        },
        &mut |turn| {
            black_box(kept.pread(turn)?);
            Ok(())
        },
        &mut |turn| {
            black_box(files.open_read_close(turn, &mut buffer)?);
            Ok(())
        },
        &mut |_| {
            black_box(wasm.evaluate(WINDOW, Cause::Interval, &columns)?);
            Ok(())
        },
        &mut |_| {
            black_box(native.evaluate()?);
            Ok(())
        },
    ])?;
    for (name, figure) in [
        ("reads", Figure::once(files.a_tick())),
        ("tick us", turns.figure(|[tick, ..]| tick * 1e6)),
        ("pread us", turns.figure(|[_, pread, ..]| pread * 1e6)),
        ("tick over pread", turns.figure(|[tick, pread, ..]| tick / pread)),
        ("open-read-close over tick", turns.figure(|[tick, _, open, ..]| open / tick)),
        ("wasm us", turns.figure(|[.., wasm, _]| wasm * 1e6)),
        ("native us", turns.figure(|[.., native]| native * 1e6)),
        ("evaluation of tick", turns.figure(|[tick, _, _, wasm, _]| wasm / tick)),
        ("wasm over native of tick", turns.figure(|[tick, _, _, wasm, native]| (wasm - native) / tick)),
    ] {
        figures.insert(format!("{count} {name}"), figure);
    }
    Ok(())
}
