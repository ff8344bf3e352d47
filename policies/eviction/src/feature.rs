//! The six features and their units.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason to evict. Features are evaluated in this order: CPU first, then memory, each group separately.
///
/// Source: koordinator `pkg/features/koordlet_features.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Feature {
    /// Batch pods get too little of the CPU that they request.
    #[serde(rename = "BECPUEvict")]
    BeCpu,
    /// Batch and mid pods request more CPU than the node offers now.
    #[serde(rename = "CPUAllocatableEvict")]
    CpuAllocatable,
    /// The node uses too much CPU.
    #[serde(rename = "CPUEvict")]
    Cpu,
    /// The node uses too much memory: batch pods are evicted.
    #[serde(rename = "BEMemoryEvict")]
    BeMemory,
    /// Batch and mid pods request more memory than the node offers now.
    #[serde(rename = "MemoryAllocatableEvict")]
    MemoryAllocatable,
    /// The node uses too much memory: pods up to a priority are evicted.
    #[serde(rename = "MemoryEvict")]
    Memory,
}

/// The resource that a feature relieves. Each group has its own cool-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Group {
    /// CPU.
    Cpu,
    /// Memory.
    Memory,
}

impl Feature {
    /// All features, in the order of evaluation.
    pub const EACH: [Self; 6] =
        [Self::BeCpu, Self::CpuAllocatable, Self::Cpu, Self::BeMemory, Self::MemoryAllocatable, Self::Memory];

    /// Name of the feature in the configuration and in the pod annotation `koordinator.sh/eviction-policy`.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeCpu => "BECPUEvict",
            Self::CpuAllocatable => "CPUAllocatableEvict",
            Self::Cpu => "CPUEvict",
            Self::BeMemory => "BEMemoryEvict",
            Self::MemoryAllocatable => "MemoryAllocatableEvict",
            Self::Memory => "MemoryEvict",
        }
    }

    /// The group of the feature.
    pub fn group(self) -> Group {
        match self {
            Self::BeCpu | Self::CpuAllocatable | Self::Cpu => Group::Cpu,
            Self::BeMemory | Self::MemoryAllocatable | Self::Memory => Group::Memory,
        }
    }

    /// Whether the feature's amounts are what pods use or what they request.
    pub fn kind(self) -> Kind {
        match self {
            Self::Cpu | Self::BeMemory | Self::Memory => Kind::Used,
            Self::BeCpu | Self::CpuAllocatable | Self::MemoryAllocatable => Kind::Request,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Group {
    /// Time after an eviction during which no other pod is evicted, in microseconds.
    ///
    /// Source: koordinator `pkg/koordlet/qosmanager/framework/config.go`.
    pub fn cool_down_usec(self) -> u64 {
        match self {
            Self::Cpu => 20_000_000,
            Self::Memory => 4_000_000,
        }
    }

    /// Time after the start during which no pod is evicted, in microseconds: early measurements may not be representative.
    pub fn start_delay_usec(self) -> u64 {
        match self {
            Self::Cpu => self.cool_down_usec(),
            Self::Memory => 0,
        }
    }
}

/// Whether an amount is used or requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// What pods use.
    Used,
    /// What pods request.
    Request,
}

/// The resource of an amount, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Resource {
    /// CPU, in thousandths of a CPU.
    Cpu,
    /// Memory, in bytes.
    Memory,
    /// `kubernetes.io/batch-cpu`, in thousandths of a CPU.
    BatchCpu,
    /// `kubernetes.io/batch-memory`, in bytes.
    BatchMemory,
    /// `kubernetes.io/mid-cpu`, in thousandths of a CPU.
    MidCpu,
    /// `kubernetes.io/mid-memory`, in bytes.
    MidMemory,
}

impl Resource {
    /// Name of the resource in Kubernetes.
    pub fn name(self) -> &'static str {
        self.names().first().copied().unwrap_or_default()
    }

    /// All names of the resource: the current one, then older ones.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Cpu => &["cpu"],
            Self::Memory => &["memory"],
            Self::BatchCpu => {
                &["kubernetes.io/batch-cpu", "koordinator.sh/batch-cpu", "alibabacloud.com/reclaimed-cpu"]
            }
            Self::BatchMemory => {
                &["kubernetes.io/batch-memory", "koordinator.sh/batch-memory", "alibabacloud.com/reclaimed-memory"]
            }
            Self::MidCpu => &["kubernetes.io/mid-cpu"],
            Self::MidMemory => &["kubernetes.io/mid-memory"],
        }
    }

    /// Formats an amount of the resource exactly, in the largest unit that divides it.
    pub fn show(self, amount: u64) -> String {
        if matches!(self, Self::Cpu | Self::BatchCpu | Self::MidCpu) {
            return format!("{amount}m");
        }
        let units = [(40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")];
        match units.into_iter().find(|(shift, _)| amount != 0 && amount.trailing_zeros() >= *shift) {
            Some((shift, unit)) => format!("{}{unit}", amount >> shift),
            None => amount.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_worked_in_the_order_of_the_protocol() {
        let names = Feature::EACH.map(|feature| (feature.name(), feature.group(), feature.kind()));
        assert_eq!(
            names,
            [
                ("BECPUEvict", Group::Cpu, Kind::Request),
                ("CPUAllocatableEvict", Group::Cpu, Kind::Request),
                ("CPUEvict", Group::Cpu, Kind::Used),
                ("BEMemoryEvict", Group::Memory, Kind::Used),
                ("MemoryAllocatableEvict", Group::Memory, Kind::Request),
                ("MemoryEvict", Group::Memory, Kind::Used),
            ]
        );
        assert!(Feature::EACH.is_sorted());
        for feature in Feature::EACH {
            assert_eq!(serde_json::to_value(feature).unwrap(), feature.name());
        }
    }

    #[test]
    fn cool_downs_are_those_of_the_protocol() {
        for (group, cool_down, start) in [(Group::Cpu, 20_000_000, 20_000_000), (Group::Memory, 4_000_000, 0)] {
            assert_eq!((group.cool_down_usec(), group.start_delay_usec()), (cool_down, start));
        }
    }

    #[test]
    fn amounts_are_shown_exactly() {
        for (resource, amount, text) in [
            (Resource::Cpu, 0, "0m"),
            (Resource::BatchCpu, 1_500, "1500m"),
            (Resource::MidCpu, 7, "7m"),
            (Resource::Memory, 0, "0"),
            (Resource::Memory, 1_000, "1000"),
            (Resource::Memory, 1 << 30, "1Gi"),
            (Resource::BatchMemory, 3 << 29, "1536Mi"),
            (Resource::MidMemory, 1 << 40, "1Ti"),
        ] {
            assert_eq!(resource.show(amount), text, "{resource:?}");
        }
    }
}
