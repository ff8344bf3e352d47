//! Cost of a policy in Rego compared with one in Rust, and with `opa` itself and the crate `opa-wasm` with the same policy and input
//! (reported without a promise).
//!
//! The policy in Rego reads what CPU Burst reads: the sample and quota of each container. Nothing is throttled, so it sets nothing, as in
//! nearly all ticks. `opa` interprets the same text; its figure does not include reading the input, and the engine's figure does.
//! `opa-wasm` runs the same module in a separate program (`runtime/opa-wasm`), which reads the whole input each time, while the engine
//! keeps the unchanged parts.
#![expect(clippy::expect_used, reason = "what fails must end the bench, not be measured")]

use std::cell::RefCell;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use criterion::BenchmarkId;
use qosm_benches::figures::{self, Figures};
use qosm_benches::workload::{self, WINDOW};
use qosm_benches::{is_whole_run, modules, side_by_side};
use qosm_engine::{Cause, Compiler, Engine, Instance, Interface, Limits, Module, PodView};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::unit::{Bytes, Micros};

const COUNTS: [u32; 3] = [10, 100, 1000];
/// The number of containers that the summary reports.
const MANY: u32 = 100;

const POLICY: &str = r#"package qosm

import rego.v1

# METADATA
# entrypoint: true
# custom:
#   qosm:
#     name: bench
#     version: 0.1.0
#     grants: [cpu-stat, cpu-bandwidth, node]
settings contains {"container": container.id, "knob": "cpu.quota", "value": value, "reason": "it was throttled"} if {
	some pod in input.pods
	pod.config.policy == "auto"
	some container in pod.containers
	container.state == "running"
	sample := input.cpu[container.id]
	sample.nrThrottled * 10 > sample.nrPeriods
	quota := input.bandwidth.containers[container.id].quotaUsec
	is_number(quota)
	value := floor((quota * 12) / 10)
}
"#;

/// A policy that saves its input.
const MIRROR: &str = r#"package qosm

import rego.v1

# METADATA
# entrypoint: true
# custom:
#   qosm:
#     name: mirror
#     version: 0.1.0
#     grants: [cpu-stat, node]
settings contains {"state": {"input": input}}
"#;

/// Runs `opa` from the `PATH`, to which `cargo xtask bench` adds the one of `make setup`.
fn opa(arguments: &[&str], folder: &Path) -> anyhow::Result<String> {
    let ran = Command::new("opa").args(arguments).current_dir(folder).output();
    let ran = ran.context("opa cannot be started: run `cargo xtask bench --bench rego`, or put it on the path")?;
    anyhow::ensure!(ran.status.success(), "opa {}: {}", arguments.join(" "), String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?)
}

fn module(engine: &Engine, text: &str, folder: &Path) -> anyhow::Result<Module> {
    std::fs::write(folder.join("policy.rego"), text)?;
    opa(&["build", "-t", "wasm", "-o", "bundle.tar.gz", "policy.rego"], folder)?;
    Ok(engine.load(&std::fs::read(folder.join("bundle.tar.gz"))?, None, &Compiler::InProcess)?)
}

/// A policy instance with `count` pods.
fn instance(engine: &Engine, module: &Module, count: u32) -> anyhow::Result<Instance> {
    // The mirror policy saves its whole input and exceeds the default limits.
    let limits = Limits {
        state: Bytes(64 << 20),
        hostcall: Bytes(64 << 20),
        memory: Bytes(256 << 20),
        evaluation: Duration::from_secs(5),
        ..Limits::default()
    };
    let grants = Interface::ALL.into_iter().collect();
    let mut instance = engine.instantiate(module, "bench", &grants, &limits, Vec::new())?;
    instance.configure("{}")?;
    let pods = workload::pods(count);
    let ids: Vec<[(ContainerId, Option<u32>); 1]> = (1..=count).map(|id| [(ContainerId(id), None)]).collect();
    let view = |((id, pod), containers)| PodView {
        id: PodId(id),
        pod,
        containers: <[_; 1]>::as_slice(containers),
        config: r#"{"policy":"auto"}"#,
        annotated: true,
    };
    let views: Vec<_> = (1..).zip(&pods).zip(&ids).map(view).collect();
    instance.pods(&views, &[])?;
    Ok(instance)
}

/// Time that `opa` takes for an evaluation of the policy, in nanoseconds.
fn opa_takes(engine: &Engine, count: u32, folder: &Path) -> anyhow::Result<f64> {
    let mirror = module(engine, MIRROR, folder)?;
    let columns = workload::columns(count);
    let staged = instance(engine, &mirror, count)?.evaluate(Micros(0), Cause::Interval, &columns)?;
    let state: serde_json::Value = serde_json::from_slice(&staged.state.context("it saves what it sees")?)?;
    std::fs::write(folder.join("input.json"), state["input"].to_string())?;
    std::fs::write(folder.join("policy.rego"), POLICY)?;
    let arguments =
        ["bench", "--format", "json", "--data", "policy.rego", "--input", "input.json", "data.qosm.settings"];
    let profile: serde_json::Value = serde_json::from_str(&opa(&arguments, folder)?)?;
    let (total, rounds) = (profile["T"].as_f64(), profile["N"].as_f64());
    Ok(total.context("opa bench tells no time")? / rounds.context("opa bench tells no count")?)
}

/// Time that `opa-wasm` takes for it, in nanoseconds, with the input that [`opa_takes`] wrote.
fn opa_wasm_takes(folder: &Path) -> anyhow::Result<f64> {
    opa(&["build", "-t", "wasm", "-o", "bundle.tar.gz", "policy.rego"], folder)?;
    let unpacked = Command::new("tar").args(["-xzf", "bundle.tar.gz", "/policy.wasm"]).current_dir(folder).status()?;
    anyhow::ensure!(unpacked.success(), "the bundle cannot be unpacked");
    let program = qosm_benches::target_directory()?.join("release/opa-wasm-bench");
    let mut bench = Command::new(&program);
    bench.arg(folder.join("policy.wasm")).arg(folder.join("input.json"));
    let ran = bench.output().with_context(|| {
        let manifest = "runtime/opa-wasm/Cargo.toml";
        format!(
            "{} is not there: run `make bench`, or `cargo build --release --manifest-path {manifest}`",
            program.display()
        )
    })?;
    anyhow::ensure!(ran.status.success(), "opa-wasm-bench: {}", String::from_utf8_lossy(&ran.stderr));
    Ok(String::from_utf8(ran.stdout)?.trim().parse()?)
}

fn main() -> anyhow::Result<()> {
    let mut criterion = qosm_benches::criterion()?;
    let engine = Engine::new()?;
    let folder = tempfile::tempdir()?;
    let rego = module(&engine, POLICY, folder.path())?;
    let rust = modules::load(&engine, "cpu-burst", None, &Compiler::InProcess)?;
    let mut figures = Figures::new();
    let mut group = criterion.benchmark_group("rego");
    for count in COUNTS {
        let columns = workload::columns(count);
        let in_rego = RefCell::new(instance(&engine, &rego, count)?);
        let in_rust = RefCell::new(workload::instance(&engine, &rust, count)?);
        let evaluate = |instance: &RefCell<Instance>| -> anyhow::Result<()> {
            black_box(instance.borrow_mut().evaluate(WINDOW, Cause::Interval, &columns)?);
            Ok(())
        };
        for (name, instance) in [("rego", &in_rego), ("rust", &in_rust)] {
            group.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter(|| evaluate(instance).expect("evaluated before"));
            });
        }
        if !is_whole_run() {
            continue;
        }
        let opa = opa_takes(&engine, count, folder.path())? / 1e9;
        let opa_wasm = opa_wasm_takes(folder.path())? / 1e9;
        let turns = side_by_side::run(&mut [&mut |_| evaluate(&in_rego), &mut |_| evaluate(&in_rust)])?;
        figures.insert(format!("rego to rust, {count}"), turns.figure(|[rego, rust]| rego / rust));
        figures.insert(format!("rego to opa, {count}"), turns.figure(|[rego, _]| rego / opa));
        figures.insert(format!("rego to opa-wasm, {count}"), turns.figure(|[rego, _]| rego / opa_wasm));
        if count == MANY {
            figures.insert("rego us a container".to_owned(), turns.figure(|[rego, _]| rego / f64::from(MANY) * 1e6));
        }
    }
    group.finish();
    criterion.final_summary();
    if is_whole_run() { figures::write("rego", &figures) } else { Ok(()) }
}
