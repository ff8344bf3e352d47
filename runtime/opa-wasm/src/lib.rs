//! The crate `opa-wasm` as a second host of OPA's modules, beside the engine's own runner. No program of qosm's links
//! it; `docs/decisions/0001-rego-runner.md` has the reasons.
//!
//! The crate is asynchronous throughout, and none of its futures waits for anything: [`OpaWasm`] runs them to their end where it is
//! called.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, bail};
use serde_json::Value as Json;
use wasmtime::{Engine, Module, Store};

/// A module, started by `opa-wasm`.
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
    /// Where it cannot be compiled, or calls a function that `opa-wasm` does not know.
    pub fn start(engine: &Engine, wasm: &[u8], data: &Json) -> anyhow::Result<Self> {
        let module = Module::new(engine, wasm)?;
        let mut store = Store::new(engine, ());
        // Where the engine has deadlines, this one never comes.
        store.set_epoch_deadline(u64::MAX / 2);
        let runtime = now(opa_wasm::Runtime::new(&mut store, &module))??;
        let entrypoint = runtime.default_entrypoint().context("it has no entrypoint")?.to_owned();
        let policy = now(runtime.with_data(&mut store, data))??;
        Ok(Self { store, policy, entrypoint })
    }

    /// Evaluates its first entrypoint: an array of the bindings for each way in which it is true.
    ///
    /// # Errors
    ///
    /// Where the evaluation ends: a function that is not implemented, or one that fails, ends it too.
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
