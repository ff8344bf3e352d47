//! Origins of decisions: a policy, the module that it ran then, and the layers that configured it for the pod. Many decisions share one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use qosm_agent::report::PolicyUsage;
use serde::Serialize;

/// The origin of a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The policy that decided.
    pub policy: String,
    /// The module that ran as this policy.
    #[serde(flatten)]
    pub version: Version,
    /// The layers that configured the policy for the pod, beside its built-in defaults.
    pub configured_by: Vec<String>,
}

/// A module. Empty if the agent did not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Version {
    /// Name and version that the module gives itself.
    pub module: String,
    /// Its digest.
    pub digest: String,
}

/// All origins that marks refer to.
#[derive(Debug, Default)]
pub(super) struct Origins {
    known: HashSet<Arc<Origin>>,
    /// The module that each policy runs, or ran last.
    versions: HashMap<String, Version>,
}

impl Origins {
    /// Takes the policies of a moment. The module of a policy that is gone stays, because its settings end later.
    pub(super) fn begin(&mut self, policies: &[PolicyUsage]) {
        for policy in policies {
            let known = self.versions.get(&policy.policy);
            if known.is_none_or(|known| (&known.module, &known.digest) != (&policy.module, &policy.digest)) {
                let version = Version { module: policy.module.clone(), digest: policy.digest.clone() };
                self.versions.insert(policy.policy.clone(), version);
            }
        }
    }

    /// The origin of a policy as it runs in this moment, with these layers.
    pub(super) fn of(&mut self, policy: &str, layers: Option<&Vec<String>>) -> Arc<Origin> {
        let origin = Origin {
            policy: policy.to_owned(),
            version: self.versions.get(policy).cloned().unwrap_or_default(),
            configured_by: layers.cloned().unwrap_or_default(),
        };
        if let Some(known) = self.known.get(&origin) {
            return Arc::clone(known);
        }
        let origin = Arc::new(origin);
        self.known.insert(Arc::clone(&origin));
        origin
    }

    /// Drops origins that no mark refers to any more.
    pub(super) fn forget_unused(&mut self) {
        self.known.retain(|origin| Arc::strong_count(origin) > 1);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}
