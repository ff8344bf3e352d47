//! Runs policy modules: WebAssembly components, and OPA bundles with policies in Rego, that decide what containers may use.
//!
//! Reading order: [`Interface`] and [`Grants`] (what a module can be granted), [`Engine`] (from bytes to [`Module`] to
//! [`Instance`]), [`Staged`] (the effects of a call), [`CallError`] and [`EngineError`] (what can go wrong), [`Limits`],
//! [`ModuleCache`] and [`Compiler`].
//!
//! A module reaches the interfaces that it was granted and nothing else: there is no WASI, no clock, no file, and an
//! interface that was not granted is not linked. A call that traps, takes too long, exceeds a limit or breaks a rule
//! ends with a typed error, and none of its effects remain. This crate never sees a cgroup path: targets are numbers,
//! knobs are names, and the agent applies a [`Staged`] value.
//!
//! ```no_run
//! use qosm_engine::{Cause, Columns, Compiler, Engine, Grants, Interface, Limits};
//! use qosm_model::unit::Micros;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new()?;
//! let module = engine.load(&std::fs::read("cpu-burst.wasm")?, None, &Compiler::InProcess)?;
//! println!("{} imports {:?}", engine.describe(&module)?.name, module.imports());
//!
//! let grants: Grants = [Interface::CpuStat, Interface::CpuBandwidth].into_iter().collect();
//! let mut instance = engine.instantiate(&module, "cpu-burst", &grants, &Limits::default(), Vec::new())?;
//! instance.configure("{}")?;
//! let staged = instance.evaluate(Micros(0), Cause::Interval, &Columns::default())?;
//! println!("{} settings", staged.settings.len());
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bindings;
mod cache;
mod compile;
mod component;
mod convert;
mod description;
mod engine;
mod error;
mod failures;
#[cfg(any(test, fuzzing))]
pub mod fuzz_checks;
mod inspect;
mod instance;
mod interface;
mod limits;
mod link;
mod memory;
mod oom_score;
mod precompiled;
mod rego;
mod staging;
mod watchdog;

pub use self::interface::{CONTRACT_VERSION, Grant, Grants, Interface, Part, Reach, UnknownInterface};
pub use cache::ModuleCache;
pub use compile::{Compiler, compile_child_main};
pub use convert::PodView;
pub use engine::{Engine, InputObserver, Module, STACK};
pub use error::{Breach, CallError, CompileError, EngineError, Exhausted, Export, Refusal, Rule, WasmError};
pub use inspect::{Form, Inspection};
pub use instance::{Cause, Instance};
pub use limits::Limits;
pub use link::Columns;
pub use memory::Memory;
pub use oom_score::OomScore;
pub use qosm_model::digest::Digest;
pub use rego::{BundleError, MissingBuiltin, OpaModule, OpaModuleError, SettingFlaw};
pub use staging::{InheritedState, LogLevel, LogLine, Rejection, Staged};
