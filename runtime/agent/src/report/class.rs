//! Classes of shares (resctrl), on the wire.

use serde::{Deserialize, Serialize};

/// A class that a policy defined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassReport {
    /// The policy that defined the class.
    pub policy: String,
    /// The policy's own name for it.
    pub class: String,
    /// What its members may use.
    pub shares: String,
    /// Whether these shares are in force.
    pub in_force: bool,
    /// Why they are not, or which of them are not.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
    /// The control group in resctrl.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub group: String,
    /// The control group's schemata.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub schemata: String,
    /// `namespace/name/container` of its members.
    pub members: Vec<String>,
    /// Its counters; missing while no policy imports them.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub usage: Vec<UsageReport>,
    /// Reason in the policy's words.
    pub reason: String,
    /// Since when it has these shares (RFC 3339).
    pub since: String,
}

/// The class that a container is in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MembershipReport {
    /// The container's name.
    pub container: String,
    /// Why it is in this class, in the policy's words.
    pub reason: String,
    /// Since when (RFC 3339).
    pub since: String,
    /// The class and its state, without its other members; the counters are the container's own.
    pub class: ClassReport,
}

/// Counters of one domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageReport {
    /// The kernel's number of the cache, and of the memory bandwidth behind it.
    pub domain: u32,
    /// Bytes in the cache.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub occupancy_bytes: Option<u64>,
    /// Bytes moved to and from any memory since the agent began to count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total_bytes: Option<u64>,
}

/// A class whose shares or members change, or (in a plan) would.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassDecision {
    /// The policy that defines the class.
    pub policy: String,
    /// The policy's own name for it.
    pub class: String,
    /// What its members may use; missing if the class is released.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shares: Option<String>,
    /// `namespace/name/container` of its members.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub members: Vec<String>,
    /// Reason in the policy's words.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub reason: String,
    /// Why the class is not in force, or which of its shares are not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}

impl std::fmt::Display for ClassDecision {
    /// `class be: ways 0-30 %, for default/batch/app`, or `class be: given up`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(shares) = &self.shares else { return write!(f, "class {}: given up", self.class) };
        write!(f, "class {}: {shares}", self.class)?;
        match self.members.as_slice() {
            [] => f.write_str(", without members"),
            members => write!(f, ", for {}", members.join(", ")),
        }
    }
}
