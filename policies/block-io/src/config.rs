//! The configuration of operators and pods.
//!
//! Field names match in any letter case, the last of several fields counts, and `null` counts as absent, as in koordinator's decoder.

use std::fmt;

use qosm_sdk::{IoCostModel, IoLatency, IoLimits, shown};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::read;

/// Key of the cluster ConfigMap; other policies use its other fields.
pub const CONFIG_MAP_KEY: &str = "resource-qos-config";
/// Annotation of a pod with its own blocks.
pub const ANNOTATION: &str = "koordinator.sh/blkioQOS";
/// Field of the key with the limits of batch pods.
pub const BE: &str = "beClass.blkioQOS";
/// Field of the key with the performance of devices.
pub const ROOT: &str = "cgroupRoot.blkioQOS";
/// Field of the policy's own configuration with the limits of batch pods.
pub const OWN_BE: &str = "beBlocks";
/// Field of the policy's own configuration with the performance of devices.
pub const OWN_ROOT: &str = "rootBlocks";

/// The policy-level configuration: blocks that apply if the cluster's key does not set them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// Limits of batch pods.
    pub be_blocks: Vec<Value>,
    /// Performance of devices.
    pub root_blocks: Vec<Value>,
}

/// Annotation `koordinator.sh/blkioQOS`. Each block is checked separately, so the schema does not constrain them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodConfig {
    /// Limits of the pod.
    pub blocks: Vec<Value>,
}

/// What the name of a block refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device, by one of its names.
    Device,
    /// All devices with data of an LVM volume group.
    VolumeGroup,
    /// The device of a volume of the pod.
    PodVolume,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Device, Self::VolumeGroup, Self::PodVolume];

    /// The value of `type`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::VolumeGroup => "volumegroup",
            Self::PodVolume => "podvolume",
        }
    }
}

/// One entry of `blocks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block<T> {
    /// What `name` refers to.
    pub kind: Kind,
    /// Name of the device, the volume group or the volume.
    pub name: String,
    /// The parsed `ioCfg`.
    pub asks: T,
}

/// Limits and weight of a group of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Limits per second; `None` = no limit.
    pub limits: IoLimits,
    /// Weight, 1 to 99; `None` = the default of a new cgroup, 100.
    pub weight: Option<u32>,
}

impl Share {
    /// No limits and no weight.
    pub const NONE: Self = Self { limits: IoLimits::NONE, weight: None };
}

/// Latency targets of a device, for which the kernel throttles cgroups, and the device's performance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The latency targets.
    pub latency: IoLatency,
    /// The performance of the device; `None` = the kernel chooses a model.
    pub model: Option<IoCostModel>,
}

impl Default for Cost {
    fn default() -> Self {
        let latency = IoLatency {
            read_permyriad: 9_500,
            read_latency_usec: 3_000,
            write_permyriad: 9_500,
            write_latency_usec: 3_000,
            // The kernel's own bounds; the protocol does not let operators limit how far the kernel slows a device down.
            min: 100,
            max: 1_000_000,
        };
        Self { latency, model: None }
    }
}

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field as operators write it; empty for the whole strategy.
    pub field: String,
    /// The invalid value.
    pub value: String,
    /// Which values are allowed.
    pub way_out: String,
    /// What counts until it is corrected.
    pub meanwhile: Meanwhile,
}

/// What counts until an invalid field of the strategy is corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Meanwhile {
    /// The last valid value of the field.
    #[default]
    LastValue,
    /// What is there without the field.
    WithoutIt,
    /// The other blocks.
    WithoutBlock,
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LastValue => {
                "Until then its last valid value counts, after a start as if it were left out; the other fields count"
            }
            Self::WithoutIt => "The other fields count",
            Self::WithoutBlock => "Until then the block does not count; the others do",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { "the strategy" } else { &self.field };
        write!(f, "{field} is {}; {}", self.value, self.way_out)
    }
}

/// Where a remark about an ignored setting is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tier kubepods, for pods of the class LSR.
    Kubepods,
    /// The tier burstable, for pods of the class LS.
    Burstable,
    /// The tier besteffort.
    BestEffort,
    /// The node's devices.
    Node,
}

/// The blocks of the cluster's key; `None` = not set, so the policy's own configuration applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// Limits of batch pods.
    pub be: Option<Vec<Block<Share>>>,
    /// Performance of devices.
    pub root: Option<Vec<Block<Cost>>>,
}

impl Strategy {
    /// Reads a node's strategy, a JSON object. A field with an invalid value keeps its value from `last` and is returned as a fault; the
    /// other fields are read.
    pub fn read(json: &str, last: &Self) -> (Self, Vec<(Place, Fault)>) {
        let fields: Map<String, Value> = match serde_json::from_str(json) {
            Ok(fields) => fields,
            Err(_) => {
                let way_out = "give a JSON object".to_owned();
                let (field, meanwhile) = (String::new(), Meanwhile::LastValue);
                let fault = Fault { field, value: shown(json), way_out, meanwhile };
                return (last.clone(), vec![(Place::BestEffort, fault)]);
            }
        };
        let mut faults = Vec::new();
        for (class, place) in
            [("lsrClass", Place::Kubepods), ("lsClass", Place::Burstable), ("systemClass", Place::Node)]
        {
            faults.extend(read::refused(&fields, class).map(|fault| (place, fault)));
        }
        let mut of = Vec::new();
        let be = read::group(&fields, "beClass", last.be.as_ref(), &mut of);
        faults.extend(of.drain(..).map(|fault| (Place::BestEffort, fault)));
        let root = read::group(&fields, "cgroupRoot", last.root.as_ref(), &mut of);
        faults.extend(of.drain(..).map(|fault| (Place::Node, fault)));
        (Self { be, root }, faults)
    }
}

/// The blocks of the policy's own configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Limits of batch pods.
    pub be: Vec<Block<Share>>,
    /// Performance of devices.
    pub root: Vec<Block<Cost>>,
}

impl Config {
    /// Reads the blocks.
    ///
    /// # Errors
    ///
    /// Returns all fields with invalid values.
    pub fn read(&self) -> Result<Own, Vec<Fault>> {
        let mut faults = Vec::new();
        let be = read::blocks(&self.be_blocks, OWN_BE, &[], false, &mut faults);
        let root = read::blocks(&self.root_blocks, OWN_ROOT, &[], false, &mut faults);
        if faults.is_empty() { Ok(Own { be, root }) } else { Err(faults) }
    }
}

impl PodConfig {
    /// Reads the blocks. A field with an invalid value counts as absent and is returned as a fault; the other fields are read.
    pub fn read(&self) -> (Vec<Block<Share>>, Vec<Fault>) {
        let mut faults = Vec::new();
        let blocks = read::blocks(&self.blocks, "blocks", &[], true, &mut faults);
        (blocks, faults)
    }

    /// Whether exactly one block names a volume.
    pub fn names_one_volume(&self) -> bool {
        read::has_one(&self.blocks, Kind::PodVolume)
    }
}

#[cfg(test)]
mod tests;
