//! State kept between evaluations.

use crate::amounts::Amounts;
use crate::decimal::Decimal;
use crate::node::ThirdParty;
use crate::publish::Published;
use crate::usage::tracker::Tracker;

/// State kept between evaluations. [`crate::saved_state`] preserves it across a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Measurements over time.
    pub tracker: Tracker,
    /// The last publication.
    pub published: Published,
    /// The reservation annotation's amounts, as last used.
    pub reservation: Amounts,
    /// Allocations of other schedulers, as last read; `None` if they could never be read.
    pub third_party: Option<ThirdParty>,
    /// The CPU normalisation ratio that quotas are divided by.
    pub ratio: Option<Decimal>,
    /// Whether hot page cache counts as used because tasks wait for memory.
    pub is_hot: bool,
    /// Running time of this instance, in microseconds.
    pub running_usec: u64,
}
