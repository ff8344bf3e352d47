//! How a command of `qosm` or `qosm-policy` speaks with the person or the script that typed it.
//!
//! [`Output`] is the flag `-o`, [`print`] writes tables, JSON and errors, [`schema`] lays out the fields of a JSON schema, [`document`]
//! reads the files that arguments name, [`manual`] writes the verbs down, [`Answer`] and [`end`] make the exit code, [`log`] is the log of
//! a long-running command, and [`interrupt`] receives Ctrl-C and a service manager's SIGTERM. What a command does is none of this crate's business: it knows no verb.
//!
//! ```
//! use qosm_terminal::{Answer, Usage, end};
//!
//! let answer = || -> anyhow::Result<Answer> { Err(Usage("--for `soon`: expected a duration such as 90s".to_owned()).into()) };
//! end(answer(), |_| false); // prints the error; the exit code is 2
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod document;
mod exchange;
mod exit;
pub mod interrupt;
pub mod log;
pub mod manual;
mod output;
pub mod print;
pub mod schema;

pub use crate::exchange::block_on;
pub use crate::exit::{Answer, EXIT_CODES, Usage, end};
pub use crate::output::{Output, OutputArgs};
