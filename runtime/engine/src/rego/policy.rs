//! A compiled bundle whose built-in functions this host provides.

use std::collections::BTreeSet;
use std::sync::Arc;

use qosm_model::digest::Digest;
use qosm_model::protocol::Description;
use qosm_rego::{Support, Value, builtin, support};
use wasmtime::Module;

use super::ENTRYPOINT;
use super::bundle::Bundle;
use super::error::{BundleError, MissingBuiltin};
use super::machine::{Builtins, Machine, NoAbi, foreign_imports};
use crate::error::{EngineError, Export};
use crate::instance::failure;
use crate::interface::{Interface, Reach};
use crate::limits::Limits;
use crate::watchdog::Deadline;

/// A Rego policy, ready to be instantiated.
#[derive(Clone)]
pub(crate) struct Policy {
    pub(super) module: Module,
    pub(crate) description: Description,
    /// The interfaces that the policy reads and controls.
    pub(crate) grants: BTreeSet<Interface>,
    /// The declared reach.
    pub(crate) reach: BTreeSet<Reach>,
    /// The bundle's own data: an object.
    pub(super) data: Value,
    pub(super) builtins: Arc<Builtins>,
    /// The number of the entrypoint in the module.
    pub(super) entrypoint: i32,
}

impl Policy {
    /// Checks a compiled bundle. The module is started once to read which functions it needs.
    ///
    /// # Errors
    ///
    /// [`EngineError::Bundle`] for an incompatible module, [`EngineError::Instantiate`] for a failing start.
    pub(crate) fn new(
        bundle: Bundle,
        module: Module,
        deadline: Deadline,
        limits: &Limits,
    ) -> Result<Self, EngineError> {
        let digest = bundle.digest;
        let refuse = |source| EngineError::Bundle { module: digest, source };
        let names = foreign_imports(&module);
        if !names.is_empty() {
            return Err(refuse(BundleError::ForeignImports { names }));
        }
        let mut machine =
            Machine::start(&module, deadline, limits, Arc::default()).map_err(|error| ended(digest, limits, &error))?;
        let (major, minor) = machine.version();
        if major != 1 || minor < 2 {
            return Err(refuse(BundleError::AbiVersion { major, minor }));
        }
        let (asked, _) = machine.within(limits, |machine| Ok((machine.builtins()?, machine.entrypoints()?)));
        let (needed, entrypoints) = asked.map_err(|error| ended(digest, limits, &error))?;
        let entrypoint = entrypoints.iter().find(|(name, _)| name == ENTRYPOINT).map(|&(_, number)| number);
        let entrypoint = entrypoint.ok_or_else(|| {
            let found = entrypoints.into_iter().map(|(name, _)| name).take(8).collect();
            refuse(BundleError::NoEntrypoint { found })
        })?;
        let builtins = answers(needed).map_err(refuse)?;
        let Bundle { data, metadata, .. } = bundle;
        Ok(Self {
            module,
            description: metadata.description,
            grants: metadata.grants,
            reach: metadata.reach,
            data,
            builtins: Arc::new(builtins),
            entrypoint,
        })
    }
}

impl Policy {
    /// The same policy with other grants than it declares.
    pub(crate) fn with_grants(&self, grants: BTreeSet<Interface>) -> Self {
        Self { grants, ..self.clone() }
    }
}

/// Finds the built-in function for each function that a module needs.
fn answers(needed: Vec<(String, i32)>) -> Result<Builtins, BundleError> {
    let mut builtins = Builtins::with_capacity(needed.len());
    let mut missing = Vec::new();
    for (name, number) in needed {
        if let Some(builtin) = builtin(&name) {
            builtins.insert(number, builtin);
            continue;
        }
        let (why, instead) = match support(&name) {
            Support::Refused { why, instead } => (Some(why.to_owned()), instead.to_owned()),
            Support::Unknown { instead } => (None, instead),
            // OPA 1.22 compiles this function into modules; an older OPA leaves it to the host.
            Support::Works => (None, "build the policy with OPA 1.22".to_owned()),
        };
        missing.push(MissingBuiltin { name, why, instead });
    }
    if missing.is_empty() { Ok(builtins) } else { Err(BundleError::Builtins(missing)) }
}

fn ended(digest: Digest, limits: &Limits, error: &wasmtime::Error) -> EngineError {
    match error.downcast_ref::<NoAbi>() {
        Some(NoAbi(why)) => EngineError::Bundle { module: digest, source: BundleError::NoAbi(why.clone()) },
        None => {
            let name: Arc<str> = digest.to_string().into();
            EngineError::Instantiate(failure(&name, Export::Start, limits, error))
        }
    }
}
