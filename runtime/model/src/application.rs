//! Processes of a node beside Kubernetes that have a class of their own, as the cluster's ConfigMap names them.

use std::sync::Arc;

use crate::node::GroupCounters;
use crate::pod::{QosClass, Tier};

/// The key of the cluster ConfigMap.
pub const KEY: &str = "host-application-config";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Application {
    /// Its name, which no other has.
    pub name: String,
    /// Its class of service.
    pub qos: Option<QosClass>,
    /// Its priority class, as it was written.
    pub priority: Option<String>,
    /// The tier in which its cgroup lies; `None` = in none of them.
    pub tier: Option<Tier>,
    /// Its cgroup, below that of the tier or below the root.
    pub cgroup: String,
}

/// What one used: CPU time within the window, and its memory now.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationSample {
    /// Which.
    pub application: Arc<Application>,
    /// What was counted of its cgroup.
    pub used: GroupCounters,
}
