//! What an instance publishes of the cluster's resources. Evictions are the agent's to know: they outlive the instance.

use std::collections::HashSet;

use qosm_model::node_resource::ResourceName;

/// A new instance has asked for nothing, as it holds no knob.
#[derive(Default)]
pub(super) struct StagedRequests {
    published: HashSet<ResourceName>,
    /// As it was before this call changed it.
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

    /// Few calls change anything, and there are few of them: they are copied where one does.
    fn note(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.published.clone());
        }
    }

    /// The call returned normally.
    pub(super) fn commit(&mut self) {
        self.before = None;
    }

    /// The call failed.
    pub(super) fn discard(&mut self) {
        if let Some(published) = self.before.take() {
            self.published = published;
        }
    }
}
