//! Opens the module that a command line names: a file, an artefact in a registry or a folder, or a module that comes with qosm.
//!
//! [`module`] reads it, with the flags of [`RegistryArgs`]; [`store`] is the store of artefacts of the person who typed the command;
//! [`compiler`] and [`personal_cache`] are how it gets compiled, and [`inspect`] shows what it may touch. No policy is evaluated here, and no
//! agent is asked.
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
