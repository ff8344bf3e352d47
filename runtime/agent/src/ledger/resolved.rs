//! The result of resolving a knob.

use std::sync::Arc;

use qosm_host::Wanted;
use qosm_host::knob_table::row;
use qosm_model::knob::{Knob, Level, Target, Value};

/// What a knob should hold, for which policy and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) wanted: Wanted,
    /// The policy whose lease wins, or whose lease is being undone.
    pub(crate) policy: Arc<str>,
    pub(crate) reason: Arc<str>,
    /// The knob has no lease any more: its baseline is restored.
    pub(crate) restores: bool,
    /// What the policy asked for, and why the value is another; `None` if it is not.
    pub(crate) guarded: Option<(Value, String)>,
    /// Whether the policy's value is refused, and this one is the baseline instead.
    pub(crate) is_refused: bool,
}

/// Converts a number of the kernel's to a knob's value; saturates at `i64::MAX`.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A value within the guard rails; if they changed it, with what was asked for and the reason.
pub(crate) type Railed = (Value, Option<(Value, String)>);

/// Whether a tier's value is made up of the baseline and of what policies want.
pub(super) fn is_composed(target: Target, knob: Knob) -> bool {
    target.level() == Level::Tier && row(knob).is_granted_from_above()
}
