//! Applications of a node outside Kubernetes that have a QoS class, as the cluster's ConfigMap lists them.

use std::sync::Arc;

use crate::node::GroupCounters;
use crate::pod::{QosClass, Tier};

/// The key of the cluster ConfigMap.
pub const KEY: &str = "host-application-config";

/// An application outside Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its unique name.
    pub name: String,
    /// Its QoS class.
    pub qos: Option<QosClass>,
    /// Its priority class as in the ConfigMap.
    pub priority: Option<String>,
    /// The tier in which its cgroup lies; `None` if it is in none.
    pub tier: Option<Tier>,
    /// Its cgroup, relative to that of the tier or to the root.
    pub cgroup: String,
}

/// Usage of one application: CPU time within the window, and current memory.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationSample {
    /// The application.
    pub application: Arc<Application>,
    /// The counters of its cgroup.
    pub used: GroupCounters,
}
