//! What the crate gives, held against `opa` itself, against laws and against bounds.

mod corpus;
mod limits;
mod opa;
mod table;
mod values;
