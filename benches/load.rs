//! The promise: a module that was compiled before decides within milliseconds.
//!
//! From the file on disk to the first settings for 100 pods, in the agent's steps: read, look up in the cache and verify, link, describe,
//! instantiate, configure, pass the pods, evaluate.
#![expect(clippy::expect_used, reason = "what fails must end the bench, not be measured")]

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use criterion::BenchmarkId;
use qosm_benches::{modules, workload};
use qosm_engine::{Compiler, Engine, Memory, ModuleCache};

const PODS: u32 = 100;

fn main() -> anyhow::Result<()> {
    let mut criterion = qosm_benches::criterion()?;
    let engine = Engine::new()?;
    let folder = tempfile::tempdir().context("no folder for the cache")?;
    let cache = ModuleCache::open(Dir::open_ambient_dir(folder.path(), ambient_authority())?)?;
    // This compiler does not exist, so a cache miss ends the bench.
    let none = Compiler::Child {
        program: folder.path().join("no-compiler"),
        args: Vec::new(),
        memory: Memory::default(),
        cpu: Compiler::cpu_time(None),
    };
    let pods = workload::pods(PODS);
    let mut group = criterion.benchmark_group("load");
    for name in modules::DEFAULT {
        modules::load(&engine, name, Some(&cache), &Compiler::InProcess)?;
        let load = || -> anyhow::Result<_> {
            let policy = modules::load(&engine, name, Some(&cache), &none)?;
            workload::first_decision(&engine, &policy, &pods)
        };
        let (_, staged) = load()?;
        anyhow::ensure!(!staged.settings.is_empty(), "policy `{name}` wants nothing for {PODS} pods");
        group.bench_function(BenchmarkId::new(name, PODS), |b| {
            b.iter_with_large_drop(|| load().expect("loaded just before"));
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
