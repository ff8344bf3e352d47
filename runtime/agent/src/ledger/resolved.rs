//! What resolving a knob comes to.

use std::sync::Arc;

use qosm_host::Wanted;
use qosm_host::knob_table::row;
use qosm_model::knob::{Knob, Level, Target, Value};

/// What a knob should hold, and on whose word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) wanted: Wanted,
    /// The policy whose lease wins, or whose lease is being undone.
    pub(crate) policy: Arc<str>,
    pub(crate) reason: Arc<str>,
    /// No lease any more: the baseline comes back.
    pub(crate) restores: bool,
    /// A guard rail changed the value that the policy asked for.
    pub(crate) guarded: Option<(Value, String)>,
}

/// A number of the kernel's as a knob's value has it.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A value within the guard rails; with what was asked for and why it was not taken, where they changed it.
pub(crate) type Railed = (Value, Option<(Value, String)>);

/// Whether a tier's value is made up of the baseline and of what policies want.
pub(super) fn is_composed(target: Target, knob: Knob) -> bool {
    target.level() == Level::Tier && row(knob).is_granted_from_above()
}
