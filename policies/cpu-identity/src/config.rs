//! The configuration of operators and pods, in addition to the strategy in the cluster's ConfigMap.

use serde::Deserialize;

/// The smallest group identity: batch.
pub const MIN_IDENTITY: i8 = -1;
/// The largest group identity: goes before all others.
pub const MAX_IDENTITY: i8 = 2;

/// Which pods have a rank without being named in the ConfigMap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Defaults {
    /// None: a class has a rank only if its `cpuQOS` sets `enable`.
    #[default]
    Koordinator,
    /// Pods labelled BE, unless `beClass` sets `enable` or the strategy sets another `cpuPolicy`.
    Colocation,
}

/// The policy-level configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Which pods have a rank without being named in the ConfigMap.
    pub defaults: Defaults,
    /// Whether an annotation may ask for a higher rank than that of the pod's class.
    pub raise_by_annotation: bool,
}

/// Annotation `koordinator.sh/cpuQOS` of a pod. The host checks it against the schema.
///
/// Source: koordinator `apis/slo/v1alpha1/pod.go`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    /// Whether the pod has a rank of its own; if unset, the pod has no rank.
    pub enable: Option<bool>,
    /// The rank; if unset, that of the class.
    pub group_identity: Option<i8>,
}
