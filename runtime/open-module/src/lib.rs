//! Opens the module that a command line names: a file, an artefact in a registry or a folder, or a module that comes with qosm.
//!
//! [`module`] reads it, with the flags of [`RegistryArgs`]; [`store`] opens the user's store of artefacts; [`compiler`]
//! and [`personal_cache`] are for compiling it, and [`inspect`] shows which interfaces it can use. This crate evaluates
//! no policies and contacts no agent.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod args;
mod compile;
mod defaults;
mod inspect;
mod module;
mod progress;
mod registries;

pub use crate::args::{KeyArgs, RegistryArgs};
pub use crate::compile::{cache, compiler, personal_cache, personal_folder};
pub use crate::defaults::{DEFAULTS, default_dir};
pub use crate::inspect::inspect;
pub use crate::module::{Artefact, module, write};
pub use crate::progress::Bars;
pub use crate::registries::{location, pairs, store, trust};
