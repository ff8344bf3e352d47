//! The resources that an instance publishes. The agent keeps track of evictions, since they outlive the instance.

use std::collections::HashSet;

use qosm_model::node_resource::ResourceName;

/// The published resources. A new instance has none, as it holds no knob.
#[derive(Default)]
pub(super) struct StagedRequests {
    published: HashSet<ResourceName>,
    /// The resources before this call's first change; `None` if it changed nothing.
    before: Option<HashSet<ResourceName>>,
}

impl StagedRequests {
    pub(super) fn published(&self) -> usize {
        self.published.len()
    }

    pub(super) fn publishes(&self, name: &ResourceName) -> bool {
        self.published.contains(name)
    }

    pub(super) fn publish(&mut self, name: ResourceName) {
        if !self.published.contains(&name) {
            self.note();
            self.published.insert(name);
        }
    }

    pub(super) fn withdraw(&mut self, name: &ResourceName) {
        self.note();
        self.published.remove(name);
    }

    /// Copies the resources before the first change of a call. Few calls change any, and resources are few.
    fn note(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.published.clone());
        }
    }

    /// Commits a call that returned normally.
    pub(super) fn commit(&mut self) {
        self.before = None;
    }

    /// Undoes the changes of a failed call.
    pub(super) fn discard(&mut self) {
        if let Some(published) = self.before.take() {
            self.published = published;
        }
    }
}
