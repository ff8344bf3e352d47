//! Resctrl in a recording: what can be divided, the state of classes, and what was counted.

use std::sync::Arc;

use qosm_host::simulated::{PlayedClass, PlayedResctrl};
use qosm_model::resctrl::{ClassOutcome, ClassState, Domain, DomainId, NotAClassName, Usage};
use qosm_model::unit::Bytes;
use serde::{Deserialize, Serialize};

/// Caches, classes and counters. A line without this leaves all as it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ResctrlLine {
    /// The domains that are online.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainLine>,
    /// State and counters of classes. A class without a line is in force if there are domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassLine>,
    /// Counters of processes in no class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rest: Vec<UsageLine>,
}

/// One cache, and the memory bandwidth behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct DomainLine {
    /// The kernel's number of it.
    pub id: u32,
    /// Ways that can be handed out.
    pub cache_ways: u32,
    /// Size of the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// Whether its memory bandwidth can be divided.
    pub divides_bandwidth: bool,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClassLine {
    /// The policy that defined it.
    pub policy: String,
    /// The policy's own name for it.
    pub class: String,
    /// Whether its shares are in force.
    pub in_force: bool,
    /// Why the shares, or a part of them, are not in force.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
    /// Counters of its members.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub usage: Vec<UsageLine>,
}

/// Counters of one domain within the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct UsageLine {
    /// The domain.
    pub domain: u32,
    /// Bytes in the cache now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occupancy_bytes: Option<u64>,
    /// Bytes moved between the cache and the memory of the same NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_bytes: Option<u64>,
    /// Bytes moved between the cache and any memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
}

impl From<&Usage> for UsageLine {
    fn from(usage: &Usage) -> Self {
        Self {
            domain: usage.domain.0,
            occupancy_bytes: usage.occupancy.map(|bytes| bytes.0),
            local_bytes: usage.local.map(|bytes| bytes.0),
            total_bytes: usage.total.map(|bytes| bytes.0),
        }
    }
}

impl From<&UsageLine> for Usage {
    fn from(line: &UsageLine) -> Self {
        Self {
            domain: DomainId(line.domain),
            occupancy: line.occupancy_bytes.map(Bytes),
            local: line.local_bytes.map(Bytes),
            total: line.total_bytes.map(Bytes),
        }
    }
}

impl From<&Domain> for DomainLine {
    fn from(domain: &Domain) -> Self {
        Self {
            id: domain.id.0,
            cache_ways: domain.cache_ways,
            cache_bytes: domain.cache.map(|bytes| bytes.0),
            divides_bandwidth: domain.divides_bandwidth,
        }
    }
}

impl From<&DomainLine> for Domain {
    fn from(line: &DomainLine) -> Self {
        Self {
            id: DomainId(line.id),
            cache_ways: line.cache_ways,
            cache: line.cache_bytes.map(Bytes),
            divides_bandwidth: line.divides_bandwidth,
        }
    }
}

impl ClassLine {
    pub(crate) fn new(policy: &str, state: &ClassState, usage: &[Usage]) -> Self {
        Self {
            policy: policy.to_owned(),
            class: state.class.to_string(),
            in_force: state.in_force,
            why: state.why.clone(),
            usage: usage.iter().map(Into::into).collect(),
        }
    }

    fn played(&self) -> Result<PlayedClass, NotAClassName> {
        Ok(PlayedClass {
            policy: Arc::from(self.policy.as_str()),
            class: self.class.parse()?,
            outcome: ClassOutcome { in_force: self.in_force, why: self.why.clone(), ..ClassOutcome::default() },
            usage: self.usage.iter().map(Into::into).collect(),
        })
    }
}

impl ResctrlLine {
    /// The state that the simulated node is to show.
    pub(crate) fn played(&self) -> Result<PlayedResctrl, NotAClassName> {
        Ok(PlayedResctrl {
            domains: self.domains.iter().map(Into::into).collect(),
            classes: self.classes.iter().map(ClassLine::played).collect::<Result<_, _>>()?,
            rest: self.rest.iter().map(Into::into).collect(),
        })
    }
}
