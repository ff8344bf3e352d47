//! Policies as OCI artefacts: found by a reference, believed by their signatures, kept by their digests.
//!
//! Reading order: [`Reference`] and [`Location`] (how people name an artefact), [`RegistrySettings`] (how registries are reached, and
//! [`trust`]: whose signatures count), [`Library`] (pull, verify, look, push, copy), [`Artifact`] (what is pushed). What is pulled is
//! bytes whose digest and signatures were checked; whether they are a module that can run is the engine's business, and when they
//! are to run is the agent's.
//!
//! What this crate must not do: run or compile Wasm, decide what runs, or go on as nobody where credentials do not work.
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

mod artifact;
mod credentials;
mod error;
mod layout;
mod library;
mod manifest;
mod reference;
mod remote;
mod retry;
mod settings;
mod shape;
mod source;
pub mod trust;
mod upload;

pub use artifact::{Artifact, Interfaces, Label, WasmConfig};
pub use error::RegistryError;
pub use layout::Collected;
pub use library::{Library, Look, Pulled, Stored, Trusted, Verification, trust_of};
pub use reference::{Location, Reference, ReferenceError};
pub use settings::{HostSettings, RegistryLimits, RegistrySettings};
pub use source::Watch;
