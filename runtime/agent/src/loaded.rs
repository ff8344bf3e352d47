//! A module that is ready to run as a policy: its entry, what it describes, and where it came from.

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
    /// Who it says it is.
    pub description: Description,
    /// Where the module came from.
    pub origin: ModuleOrigin,
    /// What comes of both, found out once and not in the loop: compiling a stranger's schemas takes its time.
    pub checked: Arc<Checked>,
}

/// What an operator's entry and a module's description come to.
#[derive(Debug)]
pub struct Checked {
    /// How pods are configured; `None` = the module takes nothing from them, or its description contradicts itself.
    pub(crate) protocol: Option<Arc<CompiledProtocol>>,
    /// Why it cannot run in any case.
    flaw: Option<String>,
}

impl Checked {
    /// Compiles the module's schemas, and holds the entry against the one for it.
    pub fn of(entry: &PolicyConfig, description: &Description) -> Self {
        let (protocol, flaw) = match description.protocol.clone().map(CompiledProtocol::compile) {
            None => (None, None),
            Some(Ok(protocol)) => (Some(Arc::new(protocol)), None),
            Some(Err(problem)) => (None, Some(format!("policy `{}`: {problem}", entry.name))),
        };
        let flaw = flaw.or_else(|| fits(entry, description).err());
        Self { protocol, flaw }
    }

    /// Why it cannot run.
    pub(crate) fn flaw(&self) -> Option<&str> {
        self.flaw.as_deref()
    }
}

/// Whether what the operator configured is what the module describes: known before it is called.
///
/// # Errors
///
/// All wrong fields, with what to write.
fn fits(entry: &PolicyConfig, description: &Description) -> Result<(), String> {
    let problems = check_config(&entry.name, description.config_schema.as_ref(), &entry.config);
    let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Where the module that runs came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleOrigin {
    /// As the entry names it.
    pub reference: ModuleReference,
    /// For an artefact: the digest of its manifest, and why it is believed.
    pub artifact: Option<(Digest, Trusted)>,
}

impl ModuleOrigin {
    /// What names this very module, as far as anything does: an artefact by its digest.
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
