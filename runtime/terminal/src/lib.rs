//! Input and output of the commands of `qosm` and `qosm-policy`, for users and scripts.
//!
//! [`Output`] is the flag `-o`, [`mod@print`] writes tables, JSON and errors, [`schema`] lists the fields of a JSON schema,
//! [`document`] reads the files that arguments name, [`manual`] documents the verbs, [`Answer`] and [`end`] determine the
//! exit code, [`log`] is the log of a long-running command, and [`interrupt`] receives Ctrl-C and a service manager's
//! SIGTERM. This crate contains no verbs.
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
