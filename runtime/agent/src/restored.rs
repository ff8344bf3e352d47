//! What became of a knob that was to be put back: a row of a report.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::journal::Record;
use crate::report::WireValue;

/// Put back.
pub const RESTORED: &str = "restored";

/// Would be put back, in a dry run.
pub const WOULD_RESTORE: &str = "would-restore";

/// It held its baseline already.
pub const ALREADY: &str = "already";

/// Another writer's by now, or of a paused pod.
pub const LEFT: &str = "left";

/// Its cgroup is gone.
pub const GONE: &str = "gone";

/// Could not be put back.
pub const FAILED: &str = "failed";

/// Being put back by a write that takes long and had not ended when its time was up.
pub const UNDER_WAY: &str = "under-way";

/// One knob of the journal, and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restored {
    /// The cgroup.
    pub cgroup: String,
    /// The knob.
    pub knob: String,
    /// What it holds now; of one that could not be put back, what it was to hold.
    pub value: WireValue,
    /// One of [`RESTORED`] ([`WOULD_RESTORE`] in a dry run), [`ALREADY`], [`LEFT`], [`GONE`], [`FAILED`] and [`UNDER_WAY`].
    pub outcome: Cow<'static, str>,
    /// Why, where that needs saying.
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

    /// Whether the knob does not hold its baseline though it should, and the journal still knows it.
    pub fn is_left_behind(&self) -> bool {
        self.outcome == FAILED || self.outcome == UNDER_WAY
    }
}
