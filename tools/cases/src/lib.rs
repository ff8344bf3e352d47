//! Plays policies' case files to modules.
//!
//! A case (YAML, [`qosm_sdk::testing`]) lists a policy's input and the decisions that are expected. The SDK plays it to the policy's own
//! code. [`Wasm`] plays the same file to the module that was built from that code, a component or an OPA bundle, in the engine that nodes
//! run. [`scripts`] finds the cases of a folder.
//!
//! ```no_run
//! use qosm_cases::Wasm;
//! use qosm_engine::{Compiler, Engine};
//! use qosm_sdk::testing::run_folder;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::new()?;
//! let module = engine.load(&std::fs::read("my-policy.wasm")?, None, &Compiler::InProcess)?;
//! run_folder("tests/cases", || Wasm::start(&engine, &module, "my-policy"))?;
//! # Ok(())
//! # }
//! ```

mod convert;
mod script;
mod wasm;

pub use script::{Script, scripts};
pub use wasm::Wasm;
