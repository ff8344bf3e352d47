//! A module that is ready to run as a policy: its entry, its description, and where it came from.

use std::sync::Arc;

use qosm_engine::Module;
use qosm_model::digest::Digest;
use qosm_model::layering::{CompiledProtocol, check_config};
use qosm_model::protocol::Description;
use qosm_registry::{Location, Trusted};

use crate::config::PolicyConfig;
use crate::module_reference::ModuleReference;

/// A module that is ready to be instantiated as a policy. Cheap to clone.
#[derive(Clone)]
pub struct LoadedPolicy {
    /// The operator's entry.
    pub config: PolicyConfig,
    /// The compiled module.
    pub module: Module,
    /// The module's description of itself.
    pub description: Description,
    /// Where the module came from.
    pub origin: ModuleOrigin,
    /// The result of checking entry and description. Computed once and outside of the loop, because compiling unknown schemas takes time.
    pub checked: Arc<Checked>,
}

/// The result of checking an operator's entry against a module's description.
#[derive(Debug)]
pub struct Checked {
    /// How pods are configured; `None` = the module takes no configuration from pods, or its description contradicts itself.
    pub(crate) protocol: Option<Arc<CompiledProtocol>>,
    /// Why the policy cannot run; `None` if nothing is wrong.
    flaw: Option<String>,
}

impl Checked {
    /// Compiles the module's schemas, and checks the entry's configuration against its schema.
    pub fn of(entry: &PolicyConfig, description: &Description) -> Self {
        let (protocol, flaw) = match description.protocol.clone().map(CompiledProtocol::compile) {
            None => (None, None),
            Some(Ok(protocol)) => (Some(Arc::new(protocol)), None),
            Some(Err(problem)) => (None, Some(format!("policy `{}`: {problem}", entry.name))),
        };
        let flaw = flaw.or_else(|| fits(entry, description).err());
        Self { protocol, flaw }
    }

    /// Why the policy cannot run; `None` if nothing is wrong.
    pub(crate) fn flaw(&self) -> Option<&str> {
        self.flaw.as_deref()
    }
}

/// Checks the operator's configuration against the module's schema, before the module is called.
///
/// # Errors
///
/// Lists all wrong fields, with what to write.
fn fits(entry: &PolicyConfig, description: &Description) -> Result<(), String> {
    let problems = check_config(&entry.name, description.config_schema.as_ref(), &entry.config);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Where the module that runs came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOrigin {
    /// The module as the entry names it.
    pub reference: ModuleReference,
    /// For an artefact: the digest of its manifest, and why it is trusted.
    pub artifact: Option<(Digest, Trusted)>,
}

impl ModuleOrigin {
    /// A reference to exactly this module if there is one: an artefact by its digest. Otherwise the reference in the entry.
    pub(crate) fn pinned(&self, config: &PolicyConfig) -> Option<String> {
        match (&self.reference, &self.artifact) {
            (ModuleReference::Artifact(Location::Registry(reference)), Some((digest, _))) => {
                let pinned = Location::Registry(reference.pinned(*digest));
                Some(ModuleReference::Artifact(pinned).to_string())
            }
            _ => config.module.clone(),
        }
    }
}
