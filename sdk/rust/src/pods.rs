//! The pods that a policy was given.

use std::collections::BTreeMap;

use crate::{Pod, PodId};

/// The pods of a policy, by id. Most policies only update it in [`Policy::pods`](crate::Policy::pods).
///
/// Iteration is in the order of ids, so a policy makes the same decisions for the same input.
///
/// ```
/// use qosm_sdk::{Pod, Pods, mock};
///
/// let mut pods = Pods::default();
/// pods.update(vec![Pod { facts: mock::pod(1, "default", "web"), config: Some(80) }], &[]);
/// pods.update(vec![Pod { facts: mock::pod(2, "default", "db"), config: None }], &[]);
/// assert_eq!(pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["web", "db"]);
///
/// pods.update(Vec::new(), &[1]);
/// assert_eq!(pods.get(1), None);
/// assert_eq!(pods.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods<C> {
    by_id: BTreeMap<PodId, Pod<C>>,
}

impl<C> Default for Pods<C> {
    fn default() -> Self {
        Self { by_id: BTreeMap::new() }
    }
}

impl<C> Pods<C> {
    /// Adds or replaces the pods in `upserted`, and drops those in `removed`.
    ///
    /// ```
    /// use qosm_sdk::{Pod, Pods, mock};
    ///
    /// let mut pods = Pods::default();
    /// for config in [Some("first"), Some("second")] {
    ///     pods.update(vec![Pod { facts: mock::pod(1, "default", "web"), config }], &[]);
    /// }
    /// assert_eq!(pods.get(1).and_then(|pod| pod.config), Some("second"), "what was there before is replaced");
    /// ```
    pub fn update(&mut self, upserted: Vec<Pod<C>>, removed: &[PodId]) {
        for id in removed {
            self.by_id.remove(id);
        }
        self.by_id.extend(upserted.into_iter().map(|pod| (pod.id, pod)));
    }

    /// The pod with this id; `None` if it is gone.
    ///
    /// ```
    /// let pods = qosm_sdk::Pods::<()>::default();
    /// assert_eq!(pods.get(7), None);
    /// ```
    pub fn get(&self, id: PodId) -> Option<&Pod<C>> {
        self.by_id.get(&id)
    }

    /// All pods, in the order of ids.
    ///
    /// ```
    /// use qosm_sdk::{Pod, Pods, mock};
    ///
    /// let mut pods = Pods::default();
    /// pods.update([2, 1].map(|id| Pod { facts: mock::pod(id, "default", "web"), config: Some(()) }).into(), &[]);
    /// assert_eq!(pods.iter().map(|pod| pod.id).collect::<Vec<_>>(), [1, 2]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &Pod<C>> {
        self.by_id.values()
    }

    /// Number of pods.
    ///
    /// ```
    /// assert_eq!(qosm_sdk::Pods::<()>::default().len(), 0);
    /// ```
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are no pods.
    ///
    /// ```
    /// assert!(qosm_sdk::Pods::<()>::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
