//! A pod as a policy is given it.

use std::ops::Deref;

use serde::Deserialize;

use crate::PodFacts;

/// A pod and what was asked of this policy for it. Its facts are read through it: `pod.name`, `pod.containers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<C> {
    /// What the specification and the status say.
    pub facts: PodFacts,
    /// The effective configuration; `None` when nobody asked for anything, and when it was refused: then hold nothing.
    pub config: Option<C>,
}

impl<C> Deref for Pod<C> {
    type Target = PodFacts;

    fn deref(&self) -> &PodFacts {
        &self.facts
    }
}

/// The pod configuration of a policy that takes none: accepts any object and keeps nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NoConfig {}
