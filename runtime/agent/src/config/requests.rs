//! Guard rails of requests to the cluster: evictions, and resources of the node.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Bounds of evictions. Static pods, their mirror pods, pods of system priority (priority 2000000000 and above) and pods of
/// `protectedNamespaces` are never evicted, whatever is configured here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct EvictionRails {
    /// Maximum number of evictions on this node within a minute; 0 = no evictions.
    pub per_minute: u32,
    /// Maximum number of evictions on this node within an hour; 0 = no evictions.
    pub per_hour: u32,
    /// Namespaces whose pods are not evicted, beside `protectedNamespaces`.
    #[serde(deserialize_with = "super::namespaces")]
    pub protected_namespaces: BTreeSet<String>,
    /// Whether pods of DaemonSets may be evicted: they come back on the same node.
    pub daemon_sets: bool,
    /// Seconds after which the agent itself ends a pod whose eviction is urgent, if the controller has not answered; `null` =
    /// never.
    pub local_after_seconds: Option<u32>,
    /// Longest time between SIGTERM and SIGKILL if the agent ends a pod itself, in seconds.
    pub max_local_grace_seconds: u32,
}

impl Default for EvictionRails {
    fn default() -> Self {
        Self {
            per_minute: 6,
            per_hour: 60,
            protected_namespaces: BTreeSet::new(),
            daemon_sets: false,
            local_after_seconds: Some(5),
            max_local_grace_seconds: 30,
        }
    }
}

/// The names of resources that may be published unless the operator says otherwise.
pub(super) fn publishable() -> BTreeSet<String> {
    let names = [
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
        "kubernetes.io/mid-cpu",
        "kubernetes.io/mid-memory",
        "koordinator.sh/batch-cpu",
        "koordinator.sh/batch-memory",
        "alibabacloud.com/reclaimed-cpu",
        "alibabacloud.com/reclaimed-memory",
    ];
    names.map(str::to_owned).into()
}
