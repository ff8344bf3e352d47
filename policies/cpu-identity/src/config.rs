//! What operators and pods can ask of this policy, beside the strategy of the cluster's ConfigMap.

use serde::Deserialize;

/// The least group identity: batch.
pub const MIN_IDENTITY: i8 = -1;
/// The highest: before all others.
pub const MAX_IDENTITY: i8 = 2;

/// Whom the ConfigMap need not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Defaults {
    /// No class by itself: one counts once its `cpuQOS` says `enable`.
    #[default]
    Koordinator,
    /// Pods labelled BE, unless `enable` of `beClass` or another `cpuPolicy` is said.
    Colocation,
}

/// The policy-level configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Whom the ConfigMap need not name.
    pub defaults: Defaults,
    /// Whether an annotation may ask for more than the pod's class has.
    pub raise_by_annotation: bool,
}

/// Annotation `koordinator.sh/cpuQOS` of a pod. The host has checked it against the schema.
///
/// Source: koordinator `apis/slo/v1alpha1/pod.go`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodConfig {
    /// Whether the pod has a rank of its own; not said = it has none at all.
    pub enable: Option<bool>,
    /// The rank.
    pub group_identity: Option<i8>,
}
