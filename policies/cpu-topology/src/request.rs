//! What pods ask for by annotation, and the node's rules for assigning CPUs.

use std::collections::BTreeMap;

use cpu_sets::{AnnotationError, read};
use qosm_sdk::shown;
use serde::Deserialize;

/// Pod annotation: how CPUs are chosen for the pod. Source: koordinator `apis/extension/numa_aware.go`.
pub const RESOURCE_SPEC: &str = "scheduling.koordinator.sh/resource-spec";
/// Pod annotation of ack-koordinator: `"true"` asks for CPUs of the pod's own.
pub const CPUSET_SCHEDULER: &str = "cpuset-scheduler";
/// Pod annotation: the NUMA policy of one pod. Source: koordinator `apis/extension/numa_aware.go`.
pub const NUMA_SPEC: &str = "scheduling.koordinator.sh/numa-topology-spec";
/// Node label: how CPUs are bound if the pod does not specify it.
pub const BIND_POLICY_LABEL: &str = "node.koordinator.sh/cpu-bind-policy";
/// Node label: which NUMA node is tried first.
pub const NUMA_STRATEGY_LABEL: &str = "node.koordinator.sh/numa-allocate-strategy";
/// Node label: whether a pod may have CPUs of several NUMA nodes.
pub const NUMA_POLICY_LABEL: &str = "node.koordinator.sh/numa-topology-policy";

/// Whether a pod gets whole cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BindPolicy {
    /// The node's policy; whole cores if the node has none.
    #[default]
    Default,
    /// Whole cores: all of their threads.
    FullPCpus,
    /// One thread of each core before the second thread of any.
    SpreadByPCpus,
}

/// Which CPUs a pod avoids because of other pods with the same setting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exclusive {
    /// No CPUs are avoided.
    #[default]
    None,
    /// The pod shares no core with a pod of the same setting.
    PCpuLevel,
    /// The pod shares no NUMA node with a pod of the same setting.
    NumaNodeLevel,
}

/// Which NUMA node is tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumaStrategy {
    /// The node with the fewest free CPUs that still has enough.
    #[default]
    MostAllocated,
    /// The node with the most free CPUs.
    LeastAllocated,
    /// Equal numbers of CPUs from all nodes.
    DistributeEvenly,
}

/// Whether a pod may have CPUs of several NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumaPolicy {
    /// One node if a node has enough free CPUs, several nodes otherwise. Without a policy, several nodes are also preferred if only they
    /// have enough whole cores.
    BestEffort,
    /// As few nodes as an empty machine would need; the pod is not pinned otherwise.
    Restricted,
    /// One node; the pod is not pinned otherwise.
    SingleNumaNode,
}

/// How CPUs are to be chosen for a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// How CPUs are bound.
    pub bind: BindPolicy,
    /// Whether `bind` is required, so that no other policy may replace it.
    pub is_required: bool,
    /// Which pods the pod avoids where possible.
    pub exclusive: Exclusive,
    /// The pod's own NUMA policy; `None` means the node's, or none.
    pub numa: Option<NumaPolicy>,
}

/// The rules from a node's labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeRules {
    /// Bind policy of all pods that require none of their own.
    pub bind: BindPolicy,
    /// Which NUMA node is tried first.
    pub strategy: NumaStrategy,
    /// Whether a pod may have CPUs of several NUMA nodes; `None` if the node does not say.
    pub numa: Option<NumaPolicy>,
}

fn fault(key: &'static str, field: &'static str, value: &str, ways: &str) -> AnnotationError {
    AnnotationError { key, field, fault: format!("`{}` is none of {ways}", shown(value)) }
}

fn bind(field: &'static str, word: &str) -> Result<BindPolicy, AnnotationError> {
    match word {
        "" | "Default" => Ok(BindPolicy::Default),
        "FullPCPUs" => Ok(BindPolicy::FullPCpus),
        "SpreadByPCPUs" => Ok(BindPolicy::SpreadByPCpus),
        // Koordinator declares this word, but its scheduler treats it as the default.
        "ConstrainedBurst" => Ok(BindPolicy::Default),
        other => Err(fault(RESOURCE_SPEC, field, other, "`Default`, `FullPCPUs`, `SpreadByPCPUs`")),
    }
}

fn numa(key: &'static str, field: &'static str, word: &str) -> Result<Option<NumaPolicy>, AnnotationError> {
    match word {
        "" => Ok(None),
        "BestEffort" => Ok(Some(NumaPolicy::BestEffort)),
        "Restricted" => Ok(Some(NumaPolicy::Restricted)),
        "SingleNUMANode" => Ok(Some(NumaPolicy::SingleNumaNode)),
        other => Err(fault(key, field, other, "`BestEffort`, `Restricted`, `SingleNUMANode`")),
    }
}

impl Spec {
    /// Reads the annotation [`RESOURCE_SPEC`].
    ///
    /// # Errors
    ///
    /// Fails if the text is not a JSON object of this shape, or has an unknown policy name.
    pub fn parse(text: &str) -> Result<Self, AnnotationError> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(rename = "requiredCPUBindPolicy")]
            required: Option<String>,
            #[serde(rename = "preferredCPUBindPolicy")]
            preferred: Option<String>,
            #[serde(rename = "preferredCPUExclusivePolicy")]
            exclusive: Option<String>,
        }
        let names = ["requiredCPUBindPolicy", "preferredCPUBindPolicy", "preferredCPUExclusivePolicy"];
        let wire: Wire = read(RESOURCE_SPEC, text, &names)?;
        let required = bind("requiredCPUBindPolicy", wire.required.as_deref().unwrap_or_default())?;
        let preferred = bind("preferredCPUBindPolicy", wire.preferred.as_deref().unwrap_or_default())?;
        let is_required = required != BindPolicy::Default;
        let exclusive = match wire.exclusive.as_deref().unwrap_or_default() {
            "" | "None" => Exclusive::None,
            "PCPULevel" => Exclusive::PCpuLevel,
            "NUMANodeLevel" => Exclusive::NumaNodeLevel,
            other => {
                let ways = "`None`, `PCPULevel`, `NUMANodeLevel`";
                return Err(fault(RESOURCE_SPEC, "preferredCPUExclusivePolicy", other, ways));
            }
        };
        Ok(Self { bind: if is_required { required } else { preferred }, is_required, exclusive, numa: None })
    }

    /// Reads the annotation [`NUMA_SPEC`].
    ///
    /// # Errors
    ///
    /// As [`Spec::parse`].
    pub fn parse_numa(text: &str) -> Result<Option<NumaPolicy>, AnnotationError> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(rename = "numaTopologyPolicy")]
            policy: Option<String>,
        }
        let wire: Wire = read(NUMA_SPEC, text, &["numaTopologyPolicy"])?;
        numa(NUMA_SPEC, "numaTopologyPolicy", wire.policy.as_deref().unwrap_or_default())
    }

    /// Combines what the pod specifies with the node's rules: the node's bind policy is required, unless the pod requires another.
    ///
    /// Source: koordinator `pkg/scheduler/plugins/nodenumaresource/util.go`, `getCPUBindPolicy`.
    #[must_use]
    pub fn on(self, node: NodeRules) -> Self {
        let (bind, is_required) = match node.bind {
            BindPolicy::Default => (self.bind, self.is_required),
            _ if self.is_required => (self.bind, true),
            policy => (policy, true),
        };
        let bind = if bind == BindPolicy::Default { BindPolicy::FullPCpus } else { bind };
        Self { bind, is_required, numa: self.numa.or(node.numa), ..self }
    }
}

impl NodeRules {
    /// Reads a node's labels. A label with an unknown value is ignored and returned as a fault.
    pub fn read(labels: &BTreeMap<&str, &str>) -> (Self, Vec<AnnotationError>) {
        let mut faults = Vec::new();
        let word = |key: &str| labels.get(key).copied().unwrap_or_default();
        let bind = match word(BIND_POLICY_LABEL) {
            "" | "None" => BindPolicy::Default,
            "FullPCPUsOnly" => BindPolicy::FullPCpus,
            "SpreadByPCPUs" => BindPolicy::SpreadByPCpus,
            other => {
                faults.push(fault(BIND_POLICY_LABEL, "", other, "`None`, `FullPCPUsOnly`, `SpreadByPCPUs`"));
                BindPolicy::Default
            }
        };
        let strategy = match word(NUMA_STRATEGY_LABEL) {
            "" | "MostAllocated" => NumaStrategy::MostAllocated,
            "LeastAllocated" => NumaStrategy::LeastAllocated,
            "DistributeEvenly" => NumaStrategy::DistributeEvenly,
            other => {
                let ways = "`MostAllocated`, `LeastAllocated`, `DistributeEvenly`";
                faults.push(fault(NUMA_STRATEGY_LABEL, "", other, ways));
                NumaStrategy::MostAllocated
            }
        };
        let numa = numa(NUMA_POLICY_LABEL, "", word(NUMA_POLICY_LABEL)).unwrap_or_else(|error| {
            faults.push(error);
            None
        });
        (Self { bind, strategy, numa }, faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_policy_counts_before_a_preferred_one() {
        for (text, bind, is_required, exclusive) in [
            ("{}", BindPolicy::Default, false, Exclusive::None),
            (r#"{"requiredCPUBindPolicy": "FullPCPUs"}"#, BindPolicy::FullPCpus, true, Exclusive::None),
            (r#"{"preferredCPUBindPolicy": "SpreadByPCPUs"}"#, BindPolicy::SpreadByPCpus, false, Exclusive::None),
            (
                r#"{"requiredCPUBindPolicy": "SpreadByPCPUs", "preferredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}"#,
                BindPolicy::SpreadByPCpus,
                true,
                Exclusive::PCpuLevel,
            ),
            (
                r#"{"preferredCPUBindPolicy": "ConstrainedBurst", "preferredCPUExclusivePolicy": "NUMANodeLevel"}"#,
                BindPolicy::Default,
                false,
                Exclusive::NumaNodeLevel,
            ),
            (r#"{"requiredcpubindpolicy": "FullPCPUs"}"#, BindPolicy::FullPCpus, true, Exclusive::None),
        ] {
            assert_eq!(Spec::parse(text), Ok(Spec { bind, is_required, exclusive, numa: None }), "{text}");
        }
        for text in ["", "[]", r#"{"requiredCPUBindPolicy": "Whole"}"#, r#"{"preferredCPUExclusivePolicy": 1}"#] {
            assert_eq!(Spec::parse(text).unwrap_err().key, RESOURCE_SPEC, "{text}");
        }
        let error = Spec::parse(r#"{"preferredCPUBindPolicy": "full"}"#).unwrap_err();
        insta::assert_snapshot!(error, @"annotation `scheduling.koordinator.sh/resource-spec`, field `preferredCPUBindPolicy`: `full` is none of `Default`, `FullPCPUs`, `SpreadByPCPUs`");
    }

    #[test]
    fn the_node_says_what_a_pod_does_not() {
        let node = |labels: &[(&'static str, &'static str)]| NodeRules::read(&labels.iter().copied().collect());
        let (rules, faults) = node(&[(BIND_POLICY_LABEL, "SpreadByPCPUs"), (NUMA_POLICY_LABEL, "SingleNUMANode")]);
        assert!(faults.is_empty(), "{faults:?}");
        let spec = Spec::default().on(rules);
        assert_eq!((spec.bind, spec.numa), (BindPolicy::SpreadByPCpus, Some(NumaPolicy::SingleNumaNode)));
        let own = Spec {
            bind: BindPolicy::FullPCpus,
            is_required: true,
            numa: Some(NumaPolicy::BestEffort),
            ..Spec::default()
        };
        assert_eq!(own.on(rules), own);
        let (only, _) = node(&[(BIND_POLICY_LABEL, "FullPCPUsOnly")]);
        for preferred in [BindPolicy::Default, BindPolicy::FullPCpus, BindPolicy::SpreadByPCpus] {
            let spec = Spec { bind: preferred, ..Spec::default() }.on(only);
            assert_eq!((spec.bind, spec.is_required), (BindPolicy::FullPCpus, true), "{preferred:?}");
        }
        assert_eq!(Spec::default().on(NodeRules::default()).bind, BindPolicy::FullPCpus);
        let (rules, faults) =
            node(&[(NUMA_STRATEGY_LABEL, "Most"), (NUMA_POLICY_LABEL, "one"), (BIND_POLICY_LABEL, "x")]);
        assert_eq!((rules, faults.len()), (NodeRules::default(), 3), "{faults:?}");
    }
}
