//! The part of a Node that the controller reads: labels, annotations, and amounts of resources.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

use super::colocation::{NodeState, ORIGIN, PUBLISHED};

/// A Node without its large fields: conditions, images, volumes.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = v1::Node)]
pub(super) struct NodeView {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    capacity: BTreeMap<String, String>,
    #[serde(default)]
    allocatable: BTreeMap<String, String>,
}

impl NodeView {
    /// The state that is compared with reports: CPU and memory, the resources with these names, and those that the controller manages.
    pub(super) fn state(&self, names: &BTreeSet<String>) -> NodeState {
        let annotation = |key: &str| self.metadata.annotations.as_ref()?.get(key).cloned();
        let mut state = NodeState {
            uid: self.uid().unwrap_or_default(),
            version: self.resource_version().unwrap_or_default(),
            published: annotation(PUBLISHED),
            origin: annotation(ORIGIN),
            ..NodeState::default()
        };
        let managed = state.managed();
        let counts = |name: &str| matches!(name, "cpu" | "memory") || names.contains(name) || managed.contains(name);
        let only = |amounts: &BTreeMap<String, String>| -> BTreeMap<String, String> {
            let counted = amounts.iter().filter(|(name, _)| counts(name));
            counted.map(|(name, amount)| (name.clone(), amount.clone())).collect()
        };
        let (capacity, allocatable) = (only(&self.status.capacity), only(&self.status.allocatable));
        (state.capacity, state.allocatable) = (capacity, allocatable);
        state
    }
}

/// Converts an event of a metadata-only watch.
pub(super) fn of_metadata(event: Event<PartialObjectMeta<v1::Node>>) -> Event<NodeView> {
    let view = |node: PartialObjectMeta<v1::Node>| NodeView { metadata: node.metadata, status: Status::default() };
    match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::InitApply(node) => Event::InitApply(view(node)),
        Event::Apply(node) => Event::Apply(view(node)),
        Event::Delete(node) => Event::Delete(view(node)),
    }
}
