//! Rego's values and the built-in functions that OPA leaves to the host, as OPA has them; no Wasm, no I/O.
//!
//! `opa build -t wasm` compiles 96 of Rego's 206 built-in functions into the module; the rest are imports that whoever runs the
//! module has to answer. Reading order: [`Value`] and its [`Number`] (what is handed over, and its text forms), [`support`]
//! (which names are answered, and what to write instead of the others), [`Builtin`] (one function), [`Context`] (what a call may
//! know besides its arguments, and where `print` and `trace` write to). How a module is run is left to the engine.
//!
//! Nothing here runs without bound: these functions are native code, which no deadline of the engine can stop, so that each
//! refuses what would take too long or give too much ([`limit`]).
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

mod builtin;
mod cidr;
mod context;
mod documents;
mod duration;
mod encoding;
mod evaluation;
mod globs;
mod go;
mod identifiers;
mod json;
pub mod limit;
mod number;
mod numbers;
mod objects;
mod operand;
#[cfg(any(test, fuzzing))]
pub mod oracle;
mod patch;
mod re2;
mod refused;
mod regexes;
mod schema;
mod strings;
pub mod table;
mod text;
mod time;
mod value;
mod yaml;

pub use builtin::{Builtin, BuiltinError, Support, builtin, support};
pub use context::Context;
pub use number::Number;
pub use text::ParseError;
pub use value::Value;
