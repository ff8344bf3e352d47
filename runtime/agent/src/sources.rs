//! The state that the sources provide: pods, configuration, the node, and the controller's answers.

use std::collections::BTreeSet;

use qosm_cluster::node_report::ControllerAnswer;
use qosm_cluster::{Objects, PolicyModule};
use qosm_model::layering::ConfigMap;
use qosm_model::pod::{Node, Pod};
use qosm_model::problem::Problem;

/// The state that the sources provide.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// All pods of the node.
    pub pods: Vec<Pod>,
    /// All ConfigMaps that matter.
    pub config_maps: Vec<ConfigMap>,
    /// PolicyModules, which run here if they select this node.
    pub policy_modules: Vec<PolicyModule>,
    /// Names of PolicyModules that exist and cannot be read: what runs of them on this node stays.
    pub unread_modules: BTreeSet<String>,
    /// The node.
    pub node: Node,
    /// The controller's answer to the node's last report.
    pub answer: Option<ControllerAnswer>,
    /// Problems of objects that could not be read.
    pub problems: Vec<Problem>,
    /// Problems of the connection to the API server.
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
