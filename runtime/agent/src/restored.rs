//! The outcome of restoring a knob: a row of a report.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::journal::Record;
use crate::report::WireValue;

/// The baseline was written.
pub const RESTORED: &str = "restored";

/// The baseline would be written; in a dry run.
pub const WOULD_RESTORE: &str = "would-restore";

/// The knob held its baseline already.
pub const ALREADY: &str = "already";

/// Left as it is: another program has written it, or its pod is paused.
pub const LEFT: &str = "left";

/// The cgroup is gone.
pub const GONE: &str = "gone";

/// The knob could not be restored.
pub const FAILED: &str = "failed";

/// A slow write of the baseline had not ended when its time was up.
pub const UNDER_WAY: &str = "under-way";

/// One knob of the journal, and the outcome of restoring it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// Directory of the cgroup, below the root of its hierarchy.
    pub cgroup: String,
    /// The knob.
    pub knob: String,
    /// The baseline; if another program has written the knob, its current value instead.
    pub value: WireValue,
    /// One of [`RESTORED`] ([`WOULD_RESTORE`] in a dry run), [`ALREADY`], [`LEFT`], [`GONE`], [`FAILED`] and [`UNDER_WAY`].
    pub outcome: Cow<'static, str>,
    /// Reason for an outcome that needs one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

impl Restored {
    pub(crate) fn new(record: &Record, outcome: &'static str, why: Option<String>) -> Self {
        Self {
            cgroup: record.cgroup.clone(),
            knob: record.knob.to_string(),
            value: record.baseline.into(),
            outcome: Cow::Borrowed(outcome),
            why,
        }
    }

    /// Whether the knob should hold its baseline and does not. The journal keeps its record.
    pub fn is_left_behind(&self) -> bool {
        self.outcome == FAILED || self.outcome == UNDER_WAY
    }
}
