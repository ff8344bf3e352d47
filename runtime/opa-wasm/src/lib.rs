//! The crate `opa-wasm` as a second host of OPA's modules, to compare with the engine's own runner. No program of qosm
//! links it; `docs/decisions/0001-rego-runner.md` has the reasons.
//!
//! The crate `opa-wasm` is asynchronous, but its futures never wait: [`OpaWasm`] polls them to completion on the caller's thread.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use wasmtime::{Engine, Module, Store};

/// A module started by `opa-wasm`.
pub struct OpaWasm {
    store: Store<()>,
    policy: opa_wasm::Policy<opa_wasm::DefaultContext>,
    entrypoint: String,
}

impl OpaWasm {
    /// Compiles a module and starts it with its data.
    ///
    /// # Errors
    ///
    /// If the module cannot be compiled, or calls a function that `opa-wasm` does not know.
    pub fn start(engine: &Engine, wasm: &[u8], data: &Json) -> anyhow::Result<Self> {
        let module = Module::new(engine, wasm)?;
        let mut store = Store::new(engine, ());
        // With an engine that has deadlines, this deadline is never reached.
        store.set_epoch_deadline(u64::MAX / 2);
        let runtime = now(opa_wasm::Runtime::new(&mut store, &module))??;
        let entrypoint = runtime.default_entrypoint().context("it has no entrypoint")?.to_owned();
        let policy = now(runtime.with_data(&mut store, data))??;
        Ok(Self { store, policy, entrypoint })
    }

    /// Evaluates the module's first entrypoint. Returns an array with the bindings of each solution.
    ///
    /// # Errors
    ///
    /// If the evaluation ends early. A function that is not implemented or fails ends it too.
    pub fn evaluate(&mut self, input: &Json) -> anyhow::Result<Json> {
        now(self.policy.evaluate(&mut self.store, &self.entrypoint, input))?
    }
}

/// Runs a future that never waits.
fn now<F: Future>(future: F) -> anyhow::Result<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => bail!("it waits for something"),
    }
}
