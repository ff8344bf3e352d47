//! What Rego has of Go: how it prints numbers and strings, and its layouts of time.

pub(crate) mod float;
pub(crate) mod layout;
pub(crate) mod parse;
pub(crate) mod printf;
pub(crate) mod quote;
pub(crate) mod url;
pub(crate) mod verb;
