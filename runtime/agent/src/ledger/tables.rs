//! Small tables of the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use qosm_model::knob::{Knob, Target};
use qosm_model::pod::PodId;

/// A setting that was refused before any write to the kernel.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub(super) target: Target,
    pub(super) knob: Knob,
    pub(super) why: Arc<str>,
    pub(super) policy: Arc<str>,
}

/// Cgroups that this agent or an earlier one created.
#[derive(Debug, Default)]
pub(super) struct CreatedCgroups {
    /// Whether the agent creates cgroups for pods that have none: only without a kubelet.
    pub(super) is_enabled: bool,
    /// Sorted: each cgroup comes after its parent.
    pub(super) all: BTreeSet<String>,
}

impl CreatedCgroups {
    pub(super) fn new(is_enabled: bool, all: BTreeSet<String>) -> Self {
        Self { is_enabled, all }
    }
}

/// Settings that take no effect for a pod, by the missing feature.
pub(super) type Lacks = BTreeMap<String, BTreeSet<Knob>>;

/// Missing features that settings need.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Not reported yet to the owners of pods.
    pub(super) unreported: BTreeMap<PodId, Lacks>,
    /// Reported to the owners of pods.
    pub(super) reported: BTreeMap<PodId, BTreeSet<Knob>>,
    /// Logged already.
    pub(super) logged: BTreeSet<(String, Knob)>,
    pub(super) unlogged: Lacks,
}

impl Missing {
    pub(super) fn forget(&mut self, pod: PodId) {
        self.unreported.remove(&pod);
        self.reported.remove(&pod);
    }
}
