//! What the ledger did, for the parts of the agent that come after it.

use qosm_model::knob::Target;
use qosm_model::pod::PodId;

use crate::report::Decision;
use crate::table::PodTable;

/// The result of writing knobs.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Knobs written, or (in a plan) to be written.
    pub(crate) decisions: Vec<Decision>,
    /// Knobs that could not be written.
    pub(crate) refused: Vec<Decision>,
    /// Warnings for the owners of pods, in this order.
    pub(crate) notices: Vec<Notice>,
    /// Targets whose cgroups turned out to be gone.
    pub(crate) gone: Vec<Target>,
    /// Whether the contested knobs changed, and so the node's problems.
    pub(crate) changes_problems: bool,
}

/// A warning for the owner of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// `namespace/name`; `tier NAME` for what is about a tier, `node` for the node.
    pub(crate) pod: String,
    /// `None` for a tier and the node.
    pub(crate) id: Option<PodId>,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Applied {
    /// Notes a warning for the owner of the pod that a target is or belongs to. A tier has no owner: its warnings are among the events of
    /// the node, as the node's own are.
    pub(crate) fn notify(&mut self, pods: &PodTable, target: Target, reason: &'static str, message: String) {
        let (pod, id) = match (target, pods.of(target)) {
            (Target::Node | Target::Tier(_), _) => (pods.shown(target), None),
            (_, Some(entry)) => (entry.pod.key(), Some(entry.id)),
            (_, None) => return,
        };
        self.notices.push(Notice { pod, id, reason, message });
    }
}
