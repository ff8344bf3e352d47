//! Builds a policy's source to the module that a node runs.
//!
//! Reading order: [`Project`] (a policy's folder, its language, and its build), [`Toolchain`] (the two ways to get a Rust that compiles to
//! Wasm), [`component`] (converts a core module to a component), [`Go`], [`Opa`] (the compiler of Rego), [`BuildError`].
//!
//! `qosm policy build` and the build of the default modules share these steps. Nothing is loaded or run here: the engine decides whether a
//! node accepts the module.

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
