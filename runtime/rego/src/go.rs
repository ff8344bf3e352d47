//! The parts of Go's standard library that Rego's behaviour depends on: formatting of numbers and strings, layouts of
//! time, and URLs.

pub(crate) mod float;
pub(crate) mod layout;
pub(crate) mod parse;
pub(crate) mod printf;
pub(crate) mod quote;
pub(crate) mod url;
pub(crate) mod verb;
