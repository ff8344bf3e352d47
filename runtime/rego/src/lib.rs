//! Rego's values and the built-in functions that OPA leaves to the host, with OPA's behaviour. This crate uses no Wasm
//! and no I/O.
//!
//! `opa build -t wasm` compiles 96 of Rego's 206 built-in functions into the module; the rest are imports that the host
//! must provide. Reading order: [`Value`] and its [`Number`] (arguments and results, and their text forms), [`support`]
//! (which functions are supported, and what to write instead of the others), [`Builtin`] (one function), [`Context`] (the
//! state of an evaluation, its budget, and the output of `print` and `trace`). The engine runs the modules.
//!
//! All functions are bounded, since they are native code, which the engine's deadline cannot interrupt. Each charges its
//! work and memory to the evaluation's [`Budget`] in advance, and no result exceeds [`limit`].
//!
//! ```
//! use qosm_rego::{Context, Value, builtin};
//!
//! let sprintf = builtin("sprintf").ok_or("not a built-in")?;
//! let arguments = [Value::parse(r#""%v of %q: %5.2f""#)?, Value::parse(r#"[{1, 2}, "a", 0.5]"#)?];
//! let text = sprintf.call(&arguments, &Context::new(0))?;
//! assert_eq!(text, Some(Value::from(r#"{1, 2} of "a":  0.50"#)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod budget;
mod builtin;
mod cidr;
mod context;
mod documents;
mod duration;
mod encoding;
mod evaluation;
#[cfg(any(test, fuzzing))]
pub mod fuzz_checks;
mod globs;
mod go;
mod identifiers;
mod json;
pub mod limit;
mod number;
mod numbers;
mod objects;
mod operand;
mod patch;
mod pattern;
mod re2;
mod refused;
mod regexes;
pub mod schema;
mod strings;
pub mod table;
mod text;
mod time;
mod value;
mod weight;
mod yaml;

pub use budget::{Budget, Spent, cpu_time};
pub use builtin::{Builtin, BuiltinError, Support, builtin, support};
pub use context::Context;
pub use number::Number;
pub use text::ParseError;
pub use value::Value;
