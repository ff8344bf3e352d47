//! What the sources say, and taking it: which pods came, changed and went, and what their policies are to make of it.

use std::collections::BTreeSet;

use qosm_cluster::node_report::ControllerAnswer;
use qosm_cluster::{Objects, PolicyModule};
use qosm_model::layering::ConfigMap;
use qosm_model::pod::{Node, Pod};
use qosm_model::problem::Problem;

/// What the sources say: who should run here, and how.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// All pods of the node.
    pub pods: Vec<Pod>,
    /// All ConfigMaps that matter.
    pub config_maps: Vec<ConfigMap>,
    /// Modules that run here if they select this node.
    pub policy_modules: Vec<PolicyModule>,
    /// PolicyModules that are there and cannot be read: what of them runs here stays.
    pub unread_modules: BTreeSet<String>,
    /// The node.
    pub node: Node,
    /// What the controller made of the node's last report.
    pub answer: Option<ControllerAnswer>,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// What is wrong with the way to the API server.
    pub troubles: Vec<Problem>,
}

impl Sources {
    /// Whether there are PolicyModules at all.
    pub(crate) fn names_modules(&self) -> bool {
        !self.policy_modules.is_empty() || !self.unread_modules.is_empty()
    }
}

impl From<Objects> for Sources {
    fn from(objects: Objects) -> Self {
        Self {
            pods: objects.pods,
            config_maps: objects.config_maps,
            policy_modules: objects.policy_modules,
            unread_modules: objects.unread_modules,
            node: objects.node.unwrap_or_default(),
            answer: objects.answer,
            problems: objects.problems,
            troubles: objects.api_errors,
        }
    }
}
