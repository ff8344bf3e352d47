//! A pod, as the host hands it to a policy.

use std::ops::Deref;

use serde::Deserialize;

use crate::PodFacts;

/// A pod and its configuration for this policy. It dereferences to its facts: `pod.name`, `pod.containers`.
///
/// ```
/// use qosm_sdk::{Pod, mock};
///
/// let web = Pod { facts: mock::pod(1, "default", "web"), config: Some(80) };
/// assert_eq!((web.name.as_str(), web.config), ("web", Some(80)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod<C> {
    /// Facts from the pod's specification and status.
    pub facts: PodFacts,
    /// The effective configuration; `None` if the pod is not configured or its configuration was rejected. Hold nothing for such a pod.
    pub config: Option<C>,
}

impl<C> Deref for Pod<C> {
    type Target = PodFacts;

    fn deref(&self) -> &PodFacts {
        &self.facts
    }
}

/// The pod configuration of a policy that takes none: it accepts any JSON object and ignores it.
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
