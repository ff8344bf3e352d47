//! Settings that are not in force, and why.

use std::sync::Arc;

use qosm_model::knob::Value;
use qosm_model::lease::Timestamp;

/// A setting that is not in force.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) wanted: Value,
    pub(crate) policy: Arc<str>,
    pub(crate) why: String,
    /// The host does not have the knob at all.
    pub(crate) unavailable: bool,
    /// The feature that the host lacks, if that is why.
    pub(crate) lacking: Option<String>,
    pub(crate) since: Timestamp,
}

impl Refusal {
    pub(super) fn new(wanted: Value, policy: &Arc<str>, why: &str, since: Timestamp) -> Self {
        let (policy, why) = (Arc::clone(policy), why.to_owned());
        Self { wanted, policy, why, unavailable: false, lacking: None, since }
    }
}
