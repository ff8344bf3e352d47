//! The policy set that the loop applies, and what the loop reports of its policies.

use qosm_model::digest::Digest;
use qosm_model::problem::Problem;
use serde::{Deserialize, Serialize};

use crate::config::{PolicyConfig, PolicyMode};
use crate::loaded::LoadedPolicy;

/// The policies of a node.
#[derive(Clone, Default)]
pub struct PolicySet {
    /// Policies that can run.
    pub policies: Vec<ResolvedPolicy>,
    /// Policies whose module could not be loaded.
    pub load_failed: Vec<LoadFailed>,
    /// Problems of the entries and PolicyModules.
    pub problems: Vec<Problem>,
    /// Number of this set, ascending; 0 is the set of the start.
    pub number: u64,
}

impl PolicySet {
    /// Whether an entry or a PolicyModule does not run as it says.
    pub(crate) fn is_incomplete(&self) -> bool {
        !self.load_failed.is_empty() || self.policies.iter().any(|resolved| resolved.pending_update.is_some())
    }
}

/// A policy that can run.
#[derive(Clone)]
pub struct ResolvedPolicy {
    /// Its entry and its module.
    pub policy: LoadedPolicy,
    /// The generation of the PolicyModule that it comes from.
    pub generation: Option<i64>,
    /// A newer version that was asked for and does not run.
    pub pending_update: Option<PendingUpdate>,
    /// Whether it is a fallback: the version that runs under this name, if there is one, is then kept.
    pub is_fallback: bool,
}

/// A version of a policy that was asked for and does not run; an earlier one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUpdate {
    /// The generation of the PolicyModule, where it comes from one.
    pub generation: Option<i64>,
    /// Reference of the module.
    pub module: String,
    /// Whether it may still run by itself: it is being fetched, compiled or tried out.
    pub is_pending: bool,
    /// Why it does not run.
    pub why: String,
}

impl RolledBack {
    /// Whether a loaded policy is this version. The same module under another entry may work.
    pub(crate) fn is_of(&self, loaded: &LoadedPolicy) -> bool {
        self.digest == *loaded.module.digest() && self.entry == loaded.config
    }
}

impl std::fmt::Display for PendingUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.is_pending { "not there yet" } else { "not taken" };
        match self.generation {
            Some(generation) => write!(f, "generation {generation} is {verb}: {}", self.why),
            None => write!(f, "{} is {verb}: {}", self.module, self.why),
        }
    }
}

/// A running policy, as the loop reports it.
#[derive(Clone)]
pub struct Running {
    /// Its entry and its module.
    pub policy: LoadedPolicy,
    /// The version that it is rolled back to if it fails.
    pub before: Option<LoadedPolicy>,
    /// Whether it has shown that it works.
    pub is_verified: bool,
}

/// A policy that is configured but whose module could not be loaded. The others go on.
#[derive(Clone, Debug)]
pub struct LoadFailed {
    /// Name of the policy.
    pub policy: String,
    /// Its configured mode.
    pub mode: PolicyMode,
    /// Why its module could not be loaded.
    pub error: String,
    /// Whether its module is still being fetched or compiled.
    pub is_pending: bool,
}

/// A version that failed as a canary or within its rollback window.
#[derive(Clone, Debug, PartialEq)]
pub struct RolledBack {
    /// The entry that asked for it.
    pub entry: PolicyConfig,
    /// Digest of the module.
    pub digest: Digest,
    /// What went wrong.
    pub why: String,
}

/// Result of a swap, before anything was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Swapped {
    /// The policy.
    pub policy: String,
    /// The module that it is to run.
    pub module: Option<String>,
    /// The module that ran before.
    pub before: Option<String>,
    /// Number of the first policy set with this swap; reports with a lower number precede it.
    pub policy_set: u64,
}
