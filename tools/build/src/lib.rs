//! From a policy's source to the module that a node runs.
//!
//! Reading order: [`Project`] (what lies in a folder, in which language, and what it is built to), [`Toolchain`] (a Rust that
//! compiles to Wasm, in either of the two ways it can be had), [`component`] (a core module becomes a component), [`Go`], [`Opa`] (the
//! compiler of Rego), [`BuildError`].
//!
//! `qosm policy build` and the build of the default modules are the same steps and share them here. Nothing is loaded or run: whether
//! a node would take what was built is the engine's to say.

mod cargo;
mod component;
mod error;
mod go;
mod opa;
mod project;
mod rust;
mod toolchain;

pub use cargo::{Cargo, Package, Target};
pub use component::component;
pub use error::BuildError;
pub use go::Go;
pub use opa::{MANIFEST, Manifest, Opa, manifest};
pub use project::{Built, Language, Project};
pub use rust::Rust;
pub use toolchain::{Job, TARGET, Toolchain, Way};
