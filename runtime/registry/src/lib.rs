//! Policies as OCI artefacts: located by a reference, trusted by their signatures, stored by their digests.
//!
//! Reading order: [`Reference`] and [`Location`] (names of artefacts), [`RegistrySettings`] (access to registries, and
//! [`trust`]: which signatures count), [`Store`] (pull, verify, inspect, push, copy), [`Artifact`] (what is pushed). A
//! pull returns bytes whose digest and signatures were verified; the engine decides whether they are a module that can
//! run, and the agent when it runs.
//!
//! What this crate must not do: run or compile Wasm, decide what runs, or fall back to anonymous requests where
//! credentials do not work.
//!
//! ```
//! use qosm_registry::{Location, Reference};
//!
//! let reference: Reference = "oci://registry.example.com/policies/cpu-burst:1.2.0".parse()?;
//! assert_eq!((reference.registry(), reference.tag()), ("registry.example.com", Some("1.2.0")));
//! // Nothing is guessed: no registry, no version.
//! assert!("policies/cpu-burst:1.2.0".parse::<Reference>().is_err());
//! assert!("registry.example.com/policies/cpu-burst".parse::<Reference>().is_err());
//! assert!(matches!("oci-layout:/media/policies:1.2.0".parse(), Ok(Location::Layout { .. })));
//! # Ok::<(), qosm_registry::ReferenceError>(())
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod artifact;
mod credentials;
mod error;
mod layout;
mod layout_kind;
mod manifest;
mod reference;
mod remote;
mod retry;
mod settings;
mod source;
mod store;
pub mod trust;
mod upload;

pub use artifact::{Artifact, Interfaces, Label, WasmConfig};
pub use error::RegistryError;
pub use layout::Collected;
pub use reference::{Location, Reference, ReferenceError};
pub use settings::{HostSettings, RegistryLimits, RegistrySettings};
pub use source::TransferProgress;
pub use store::{ArtifactInfo, Pulled, Store, Stored, Trusted, Verification, trust_of};
