//! Runs any Wasm module of OPA, so that the runner can be compared with OPA itself and with other hosts.

use std::sync::Arc;

use qosm_model::digest::Digest;
use qosm_rego::{Support, Value, builtin, support};

use super::error::MissingBuiltin;
use super::machine::{Builtins, HeapEnd, Machine};
use crate::cache::ModuleCache;
use crate::compile::Compiler;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::limits::Limits;
use crate::precompiled::Precompiled;

/// A started module that `opa build -t wasm` or OPA's library compiled. Policies for the agent are
/// [loaded](Engine::load) as bundles; this runs other modules.
pub struct OpaModule {
    machine: Machine,
    base: HeapEnd,
    limits: Limits,
    entrypoints: Vec<String>,
}

/// Why a module gives no result.
#[derive(Debug, thiserror::Error)]
pub enum OpaModuleError {
    /// It cannot be compiled.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The module calls functions that this host does not provide.
    #[error("it calls {}", .0.iter().map(|missing| missing.name.as_str()).collect::<Vec<_>>().join(", "))]
    Refused(Vec<MissingBuiltin>),
    /// The module aborted, or the engine ended it.
    #[error("{0}")]
    Ended(String),
}

impl OpaModule {
    /// Compiles a module and starts it.
    ///
    /// # Errors
    ///
    /// Each variant of [`OpaModuleError`].
    pub fn start(
        engine: &Engine,
        wasm: &[u8],
        cache: Option<&ModuleCache>,
        limits: &Limits,
    ) -> Result<Self, OpaModuleError> {
        let digest = Digest::of(wasm);
        let module = engine.compiled(digest, wasm, cache, &Compiler::InProcess, Precompiled::load_core)?;
        let mut machine = Machine::start(&module, engine.deadline(), limits, Arc::default()).map_err(ended)?;
        let (asked, _) = machine.within(limits, |machine| Ok((machine.builtins()?, machine.entrypoints()?)));
        let (needed, entrypoints) = asked.map_err(ended)?;
        let mut builtins = Builtins::new();
        let mut missing = Vec::new();
        for (name, number) in needed {
            match (builtin(&name), support(&name)) {
                (Some(builtin), _) => {
                    builtins.insert(number, builtin);
                }
                (None, Support::Refused { why, instead }) => {
                    missing.push(MissingBuiltin { name, why: Some(why.to_owned()), instead: instead.to_owned() });
                }
                (None, Support::Unknown { instead }) => missing.push(MissingBuiltin { name, why: None, instead }),
                (None, Support::Works) => missing.push(MissingBuiltin { name, why: None, instead: String::new() }),
            }
        }
        if !missing.is_empty() {
            return Err(OpaModuleError::Refused(missing));
        }
        let mut machine = Machine::start(&module, engine.deadline(), limits, Arc::new(builtins)).map_err(ended)?;
        let (base, _) = machine.within(limits, Machine::heap_end);
        let base = base.map_err(ended)?;
        let entrypoints = entrypoints.into_iter().map(|(name, _)| name).collect();
        Ok(Self { machine, base, limits: limits.clone(), entrypoints })
    }

    /// The names of the module's entrypoints.
    pub fn entrypoints(&self) -> &[String] {
        &self.entrypoints
    }

    /// Evaluates the module's first entrypoint on documents in Rego's syntax, after it resets the heap. The result is a
    /// set with the bindings of each solution.
    ///
    /// # Errors
    ///
    /// [`OpaModuleError::Ended`] with the reason of the failure.
    pub fn evaluate(&mut self, input: Option<&str>, data: &str) -> Result<Value, OpaModuleError> {
        let Self { machine, base, limits, .. } = self;
        let (results, _) = machine.within(limits, |machine| {
            machine.rewind(*base)?;
            let data = machine.put(data)?;
            let input = input.map(|input| machine.put(input)).transpose()?;
            machine.results(0, input, data)
        });
        results.map(Value::Set).map_err(ended)
    }
}

fn ended(error: wasmtime::Error) -> OpaModuleError {
    OpaModuleError::Ended(error.root_cause().to_string())
}
