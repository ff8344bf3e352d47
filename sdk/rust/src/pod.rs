//! A pod as a policy is given it.

use std::ops::Deref;

use serde::Deserialize;

use crate::PodFacts;

/// A pod and what was asked of this policy for it. Its facts are read through it: `pod.name`, `pod.containers`.
///
/// ```
/// use qosm_sdk::{Pod, mock};
///
/// let web = Pod { facts: mock::pod(1, "default", "web"), config: Some(80) };
/// assert_eq!((web.name.as_str(), web.config), ("web", Some(80)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<C> {
    /// What the specification and the status say.
    pub facts: PodFacts,
    /// The effective configuration; `None` where nothing is configured, and where the configuration was refused: then hold nothing.
    pub config: Option<C>,
}

impl<C> Deref for Pod<C> {
    type Target = PodFacts;

    fn deref(&self) -> &PodFacts {
        &self.facts
    }
}

/// The pod configuration of a policy that takes none: accepts any object and keeps nothing.
///
/// ```
/// use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Tick};
///
/// #[derive(Default)]
/// struct ForAll;
///
/// impl Policy for ForAll {
///     type Config = ();
///     type PodConfig = NoConfig;
///     // …
/// #   fn describe() -> Description { Description::new("for-all", "0.1.0", "") }
/// #   fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #   fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NoConfig {}
