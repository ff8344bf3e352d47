//! What operators and pods can ask of this policy.
//!
//! Field names count in any letter case, the last of several counts, and `null` counts as left out: as the decoder takes them that these
//! keys are written for.

use std::fmt;

use qosm_sdk::{IoCostModel, IoLatency, IoLimits};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::read;

/// Key of the cluster ConfigMap. Its other fields are about other policies.
pub const CONFIG_MAP_KEY: &str = "resource-qos-config";
/// Annotation of a pod.
pub const ANNOTATION: &str = "koordinator.sh/blkioQOS";
/// Where the cluster says what batch may do.
pub const BE: &str = "beClass.blkioQOS";
/// Where the cluster says what devices can do.
pub const ROOT: &str = "cgroupRoot.blkioQOS";
/// Where the policy's own configuration says what batch may do.
pub const OWN_BE: &str = "beBlocks";
/// Where the policy's own configuration says what devices can do.
pub const OWN_ROOT: &str = "rootBlocks";

/// The policy-level configuration: blocks that count where the cluster's key says nothing of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Config {
    /// What batch may do.
    pub be_blocks: Vec<Value>,
    /// What devices can do.
    pub root_blocks: Vec<Value>,
}

/// Annotation `koordinator.sh/blkioQOS`. Each block is judged by itself, so the schema leaves them open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodConfig {
    /// What the pod may do.
    pub blocks: Vec<Value>,
}

/// What a block names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device, by a name of it.
    Device,
    /// All devices with data of an LVM volume group.
    VolumeGroup,
    /// The device of a volume of the pod.
    PodVolume,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Device, Self::VolumeGroup, Self::PodVolume];

    /// As `type` has it.
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
    /// What `name` is of.
    pub kind: Kind,
    /// Of the device, the volume group or the volume.
    pub name: String,
    /// What `ioCfg` asks for.
    pub asks: T,
}

/// What a group of processes may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// A second; `None` = no limit.
    pub limits: IoLimits,
    /// Its weight, 1 to 99; `None` = that of a new group, 100.
    pub weight: Option<u32>,
}

impl Share {
    /// Nothing is asked for.
    pub const NONE: Self = Self { limits: IoLimits::NONE, weight: None };
}

/// When the kernel holds groups back for the sake of a device, and what the device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How late requests may be.
    pub latency: IoLatency,
    /// What the device can do; `None` = the kernel chooses.
    pub model: Option<IoCostModel>,
}

impl Default for Cost {
    fn default() -> Self {
        let latency = IoLatency {
            read_permyriad: 9_500,
            read_latency_usec: 3_000,
            write_permyriad: 9_500,
            write_latency_usec: 3_000,
            // The kernel's own bounds: how far it slows a device down is not the operator's to say here.
            min: 100,
            max: 1_000_000,
        };
        Self { latency, model: None }
    }
}

/// A field that says what cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its path as people write it; empty for the whole of it.
    pub field: String,
    /// What it says.
    pub value: String,
    /// What it may say.
    pub way_out: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = if self.field.is_empty() { "the strategy" } else { &self.field };
        write!(f, "{field} is {}; {}", self.value, self.way_out)
    }
}

/// Where the operator looks for what was wanted and is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tier kubepods, whose pods are LSR's.
    Kubepods,
    /// The tier burstable, whose pods are LS's.
    Burstable,
    /// The tier besteffort.
    BestEffort,
    /// The node's devices.
    Node,
}

/// What the cluster asks for; `None` = it does not say, and the policy's own configuration counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strategy {
    /// What batch may do.
    pub be: Option<Vec<Block<Share>>>,
    /// What devices can do.
    pub root: Option<Vec<Block<Cost>>>,
}

impl Strategy {
    /// Reads a node's strategy, a JSON object. A field that says what cannot be is as in `last`, and named; the others go on.
    pub fn read(json: &str, last: &Self) -> (Self, Vec<(Place, Fault)>) {
        let fields: Map<String, Value> = match serde_json::from_str(json) {
            Ok(fields) => fields,
            Err(_) => {
                let way_out = "give a JSON object".to_owned();
                let fault = Fault { field: String::new(), value: read::clip(json.to_owned(), read::SHOWN), way_out };
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

/// What the policy's own configuration asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// What batch may do.
    pub be: Vec<Block<Share>>,
    /// What devices can do.
    pub root: Vec<Block<Cost>>,
}

impl Config {
    /// Reads its blocks.
    ///
    /// # Errors
    ///
    /// All fields that say what cannot be.
    pub fn read(&self) -> Result<Own, Vec<Fault>> {
        let mut faults = Vec::new();
        let be = read::blocks(&self.be_blocks, OWN_BE, &[], false, &mut faults);
        let root = read::blocks(&self.root_blocks, OWN_ROOT, &[], false, &mut faults);
        if faults.is_empty() { Ok(Own { be, root }) } else { Err(faults) }
    }
}

impl PodConfig {
    /// Reads its blocks. A field that says what cannot be counts as left out, and is named; the others go on.
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
