//! Policies in Rego: OPA bundles, which this crate's engine runs through OPA's Wasm ABI.
//!
//! Reading order: [`bundle`] (the archive), [`metadata`] (the policy's description and imports), [`policy`] (compiled,
//! and checked against the built-ins of this host), [`machine`] (the ABI), [`input`] (what a policy sees), [`settings`]
//! (the policy's result), [`declaration`] (from a full declaration to differences), [`instance`] (an instance of one
//! policy). `docs/rego.md` is the manual for authors.

mod bundle;
mod declaration;
mod error;
mod input;
mod instance;
mod machine;
mod metadata;
mod opa_module;
mod policy;
mod settings;

pub(crate) use bundle::{Bundle, is_bundle};
pub use error::{BundleError, MissingBuiltin, SettingFlaw};
pub(crate) use instance::Rego;
pub(crate) use machine::Abort;
pub(crate) use metadata::in_rego;
pub use opa_module::{OpaModule, OpaModuleError};
pub(crate) use policy::Policy;

/// The entrypoint that a policy must have.
const ENTRYPOINT: &str = "qosm/settings";

/// The package of a policy: its key in `data` is reserved for the policy's rules.
const PACKAGE: &str = "qosm";

/// Maximum nesting depth of documents from outside. OPA's Wasm parses them recursively on a stack of 64 KiB.
const DEPTH: usize = 100;

/// Whether a value is nested no deeper than [`DEPTH`].
fn is_shallow(value: &qosm_rego::Value) -> bool {
    fn within(value: &qosm_rego::Value, left: usize) -> bool {
        use qosm_rego::Value::{Array, Bool, Null, Number, Object, Set, String};
        let Some(below) = left.checked_sub(1) else { return false };
        match value {
            Null | Bool(_) | Number(_) | String(_) => true,
            Array(elements) => elements.iter().all(|element| within(element, below)),
            Set(elements) => elements.iter().all(|element| within(element, below)),
            Object(pairs) => pairs.iter().all(|(key, value)| within(key, below) && within(value, below)),
        }
    }
    within(value, DEPTH)
}
