//! What the policy remembers from one evaluation to the next.

use crate::decimal::Decimal;
use crate::node::ThirdParty;
use crate::publish::Published;
use crate::usage::tracker::Tracker;

/// The memory. [`crate::saved_state`] keeps it over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// What was measured.
    pub tracker: Tracker,
    /// What was published last.
    pub published: Published,
    /// What other schedulers had given away when that could be read last.
    pub third_party: Option<ThirdParty>,
    /// The CPU normalisation ratio that quotas are divided by.
    pub ratio: Option<Decimal>,
    /// Whether hot page cache counts as used because tasks wait for memory.
    pub is_hot: bool,
    /// How long this instance has run, in microseconds.
    pub running_usec: u64,
}
