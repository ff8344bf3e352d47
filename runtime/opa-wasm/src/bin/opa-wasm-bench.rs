//! `opa-wasm-bench MODULE INPUT`: prints the median time of an evaluation by `opa-wasm`, in nanoseconds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use qosm_opa_wasm::OpaWasm;

/// Minimum time of the measurement.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [module, input] = arguments.as_slice() else { bail!("usage: opa-wasm-bench MODULE INPUT") };
    let wasm = std::fs::read(module).with_context(|| module.clone())?;
    let input = serde_json::from_slice(&std::fs::read(input).with_context(|| input.clone())?)?;
    // With deadlines, as in the engine.
    let mut config = wasmtime::Config::new();
    config.epoch_interruption(true).cranelift_nan_canonicalization(true);
    let mut policy = OpaWasm::start(&wasmtime::Engine::new(&config)?, &wasm, &serde_json::json!({}))?;
    let begun = Instant::now();
    let mut times = Vec::new();
    while times.len() < 10 || begun.elapsed() < LONG_ENOUGH {
        let from = Instant::now();
        black_box(policy.evaluate(&input)?);
        times.push(from.elapsed());
    }
    times.sort_unstable();
    let median = times.get(times.len() / 2).context("nothing was measured")?;
    println!("{}", median.as_nanos());
    Ok(())
}
