//! Compares the reports' resources with a Node, and makes a patch of the difference for the version of the Node that was compared.
//!
//! A Node's annotation [`PUBLISHED`] names the resources that the controller published. It changes or removes only these: a
//! resource of another publisher stays as it is, and the answer to the report says so.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::is_earlier;
use crate::Quantity;
use crate::node_report::{ReportedResource, ResourceAnswer};

/// Annotation of a Node with the comma-separated names of the resources that the controller manages there.
pub const PUBLISHED: &str = "qosm.io/published-resources";
/// Annotation of a Node with the amounts before subtraction of what other schedulers allocated: `{"resources": {NAME: AMOUNT}}`.
pub const ORIGIN: &str = "node.koordinator.sh/originExtendedAllocatable";

/// Message for a resource that is allowed but not written yet.
pub(in super::super) const UNDER_WAY: &str = "it is being written";

/// Rules for published resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicationRules {
    /// The names of the resources that may be published.
    pub names: BTreeSet<String>,
    /// Upper bound of one resource, in percent of the node's CPU or memory.
    pub max_percent_of_capacity: u32,
}

/// The part of a Node that concerns published resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct NodeState {
    pub(in super::super) uid: String,
    pub(in super::super) version: String,
    /// Amounts by resource, as in the Node's status.
    pub(in super::super) capacity: BTreeMap<String, String>,
    pub(in super::super) allocatable: BTreeMap<String, String>,
    pub(in super::super) published: Option<String>,
    pub(in super::super) origin: Option<String>,
}

impl NodeState {
    /// The resources that the controller manages on this Node.
    pub(in super::super) fn managed(&self) -> BTreeSet<&str> {
        let names = self.published.as_deref().unwrap_or_default().split(',').map(str::trim);
        names.filter(|name| name.contains('/')).collect()
    }

    /// Whether this is an earlier version of the same Node; `false` if the versions cannot be compared.
    pub(in super::super) fn is_older_than(&self, other: &Self) -> bool {
        is_earlier((&self.uid, &self.version), (&other.uid, &other.version))
    }

    fn has(&self, name: &str) -> bool {
        self.capacity.contains_key(name) || self.allocatable.contains_key(name)
    }

    /// The amount of a resource; `None` if the Node does not have it, or if capacity and allocatable differ.
    fn amount(&self, name: &str) -> Option<u64> {
        let read = |amounts: &BTreeMap<String, String>| Some(Quantity::parse(amounts.get(name)?).ok()?.units());
        let capacity = read(&self.capacity)?;
        (read(&self.allocatable) == Some(capacity)).then_some(capacity)
    }

    /// Upper bound for a resource: `percent` of the node's CPU in thousandths for names in `-cpu`, of its memory in bytes for
    /// names in `-memory`. `None` for other names.
    fn most(&self, name: &str, percent: u32) -> Option<u64> {
        let read = |of: &str| Quantity::parse(self.capacity.get(of)?).ok();
        let of_node = if name.ends_with("-cpu") {
            read("cpu").map_or(0, Quantity::millis)
        } else if name.ends_with("-memory") {
            read("memory").map_or(0, Quantity::units)
        } else {
            return None;
        };
        // Kubernetes' quantities end at 2^63 − 1.
        let limit = i64::MAX.unsigned_abs();
        Some(u64::try_from(u128::from(of_node) * u128::from(percent) / 100).unwrap_or(limit).min(limit))
    }
}

/// The patch that a Node needs, and the answers to the report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Publication {
    /// A merge patch of the Node's status; `None` if nothing changes.
    pub(in super::super) patch: Option<Value>,
    /// One answer per resource, with the amount before the patch.
    pub(in super::super) answers: Vec<ResourceAnswer>,
}

/// Compares a Node with the resources that its report requests; `wanted` is empty if the report no longer counts.
pub(in super::super) fn publication(
    node: &NodeState,
    wanted: &[ReportedResource],
    rules: &PublicationRules,
) -> Publication {
    let managed = node.managed();
    let (mut amounts, mut origins, mut answers) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for resource in wanted {
        let name = resource.name.as_str();
        let refused = |message: String| ResourceAnswer {
            name: name.to_owned(),
            amount: if managed.contains(name) { node.amount(name).unwrap_or(0) } else { 0 },
            in_force: false,
            message,
        };
        if answers.iter().any(|answer: &ResourceAnswer| answer.name == name) {
            continue;
        }
        if !rules.names.contains(name) {
            answers.push(refused(format!(
                "{name} is not among the resources that may be published; add it to the chart's value colocation.resourceNames"
            )));
            continue;
        }
        let is_offered = node.has(name) && node.amount(name) != Some(0);
        if is_offered && !managed.contains(name) {
            answers.push(refused(format!(
                "the node has {name} from another publisher, such as koord-manager; switch that off, then remove the resource from \
                 the node's status"
            )));
            continue;
        }
        let Some(most) = node.most(name, rules.max_percent_of_capacity) else {
            answers.push(refused(format!(
                "the name {name} ends neither in -cpu nor in -memory, so the controller has no bound for it; publish it under a name \
                 that does"
            )));
            continue;
        };
        let amount = resource.amount.min(most);
        amounts.insert(name, amount);
        if let Some(origin) = resource.origin {
            origins.insert(name, origin.min(most));
        }
        let stands = node.amount(name).filter(|_| managed.contains(name));
        let message = match stands {
            Some(stands) if stands == resource.amount => String::new(),
            _ if amount < resource.amount => format!(
                "{} is more than {} % of what the node has; {amount} is published. The chart's value \
                 colocation.maxPercentOfCapacity is the bound",
                resource.amount, rules.max_percent_of_capacity
            ),
            _ => UNDER_WAY.to_owned(),
        };
        let in_force = stands == Some(resource.amount);
        answers.push(ResourceAnswer { name: name.to_owned(), amount: stands.unwrap_or(0), in_force, message });
    }
    Publication { patch: patch(node, &managed, &amounts, &origins), answers }
}

/// The share of each NUMA node, scaled down if the Node has less of the resource than the report requests. Empty if the Node does
/// not have the resource.
pub(in super::super) fn shares<'r>(
    resource: &'r ReportedResource,
    answer: &ResourceAnswer,
) -> impl Iterator<Item = (u32, u64)> + 'r {
    let (asked, stands) = (resource.amount, answer.amount.min(resource.amount));
    let is_there = answer.in_force || answer.amount > 0;
    resource.zones.iter().filter(move |_| is_there).map(move |zone| {
        let share = u128::from(zone.amount) * u128::from(stands) / u128::from(asked.max(1));
        (zone.zone, u64::try_from(share).unwrap_or(u64::MAX).min(zone.amount))
    })
}

fn patch(
    node: &NodeState,
    managed: &BTreeSet<&str>,
    amounts: &BTreeMap<&str, u64>,
    origins: &BTreeMap<&str, u64>,
) -> Option<Value> {
    let mut list = Map::new();
    for (name, amount) in amounts {
        if !managed.contains(name) || node.amount(name) != Some(*amount) {
            list.insert((*name).to_owned(), amount.to_string().into());
        }
    }
    // Published before, and no longer wanted.
    for name in managed.iter().filter(|name| !amounts.contains_key(*name)) {
        if node.has(name) {
            list.insert((*name).to_owned(), Value::Null);
        }
    }
    let mut annotations = Map::new();
    let names = amounts.keys().copied().collect::<Vec<_>>().join(",");
    if node.published.as_deref().unwrap_or_default() != names {
        annotations.insert(PUBLISHED.to_owned(), if names.is_empty() { Value::Null } else { names.into() });
    }
    annotations.extend(origin(node, managed, amounts, origins).map(|origin| (ORIGIN.to_owned(), origin)));
    if list.is_empty() && annotations.is_empty() {
        return None;
    }
    let mut metadata = json!({"uid": node.uid, "resourceVersion": node.version});
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    let mut patch = json!({"metadata": metadata});
    if !list.is_empty() {
        patch["status"] = json!({"capacity": list, "allocatable": list});
    }
    Some(patch)
}

/// The new value of the annotation [`ORIGIN`], `null` to remove it; `None` leaves it. An annotation that also names resources
/// which the controller does not manage belongs to another program.
fn origin(
    node: &NodeState,
    managed: &BTreeSet<&str>,
    amounts: &BTreeMap<&str, u64>,
    origins: &BTreeMap<&str, u64>,
) -> Option<Value> {
    #[derive(Default, Deserialize)]
    struct Origin {
        #[serde(default)]
        resources: BTreeMap<String, Value>,
    }
    let before: Option<Origin> = node.origin.as_deref().map(|text| serde_json::from_str(text).unwrap_or_default());
    let is_ours = |name: &String| managed.contains(name.as_str()) || amounts.contains_key(name.as_str());
    if before.as_ref().is_some_and(|before| before.resources.is_empty() || !before.resources.keys().all(is_ours)) {
        return None;
    }
    if origins.is_empty() {
        return before.is_some().then_some(Value::Null);
    }
    let resources: BTreeMap<&str, String> = origins.iter().map(|(name, amount)| (*name, amount.to_string())).collect();
    let now = json!({"resources": resources}).to_string();
    (node.origin.as_deref() != Some(&now)).then(|| now.into())
}

#[cfg(test)]
mod tests;
