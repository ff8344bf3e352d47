//! Types that both profiles share: their inputs and reasons.

use std::fmt;

use crate::pool::NodeState;

/// Activity of a container since the last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Length of the window, in microseconds.
    pub(crate) window_usec: u64,
    /// CPU time used, in microseconds.
    pub(crate) usage_usec: u64,
    /// Number of CFS periods.
    pub(crate) nr_periods: u64,
    /// Number of periods in which the container was throttled.
    pub(crate) nr_throttled: u64,
    /// Time that its threads waited for the next period, in microseconds.
    pub(crate) throttled_usec: u64,
}

impl Activity {
    /// Adds another window.
    pub(crate) fn add(&mut self, other: Self) {
        self.window_usec = self.window_usec.saturating_add(other.window_usec);
        self.usage_usec = self.usage_usec.saturating_add(other.usage_usec);
        self.nr_periods = self.nr_periods.saturating_add(other.nr_periods);
        self.nr_throttled = self.nr_throttled.saturating_add(other.nr_throttled);
        self.throttled_usec = self.throttled_usec.saturating_add(other.throttled_usec);
    }

    /// The activity after an earlier part that a raise has answered. One throttled period is subtracted in addition: it was in progress at
    /// the raise, and the kernel counted it only when it was over.
    pub(crate) fn since(&self, answered: &Self) -> Self {
        Self {
            window_usec: self.window_usec.saturating_sub(answered.window_usec),
            usage_usec: self.usage_usec.saturating_sub(answered.usage_usec),
            nr_periods: self.nr_periods.saturating_sub(answered.nr_periods),
            nr_throttled: self.nr_throttled.saturating_sub(answered.nr_throttled.saturating_add(1)),
            throttled_usec: self.throttled_usec.saturating_sub(answered.throttled_usec),
        }
    }

    /// Whether the container was throttled. Without periods there is no ratio, so it counts as not throttled.
    pub(crate) fn is_throttled(&self) -> bool {
        self.nr_periods > 0 && self.nr_throttled > 0
    }

    /// Throttled periods in percent, rounded up so that any throttling is at least 1.
    pub(crate) fn throttled_percent(&self) -> u64 {
        if self.is_throttled() {
            self.nr_throttled.min(self.nr_periods).saturating_mul(100).div_ceil(self.nr_periods)
        } else {
            0
        }
    }
}

/// The inputs of a decision for one container. Quotas are in microseconds per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Situation {
    /// Quota in force.
    pub(crate) current: u64,
    /// Quota that follows from the CPU limit.
    pub(crate) base: u64,
    /// Highest quota allowed; not below `base`.
    pub(crate) ceil: u64,
    /// CFS period, in microseconds.
    pub(crate) period_usec: u64,
    /// Activity of the container; `None` if unknown.
    pub(crate) activity: Option<Activity>,
    /// Whether its burst allowance is used up.
    pub(crate) refused: bool,
    /// How busy the node is.
    pub(crate) node: NodeState,
}

impl Situation {
    /// `quota` limited to the range from `base` to `ceil`.
    pub(crate) fn bounded(&self, quota: u64) -> u64 {
        quota.min(self.ceil).max(self.base)
    }
}

/// The reason for a quota. Formatted only when a setting is staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Why {
    /// No reason for a change, or only the bounds.
    #[default]
    Bounds,
    /// The container used up its quota before its period was over.
    UsedUp,
    /// The container was throttled in this percentage of its periods.
    Throttled(u64),
    /// The container is not throttled any more.
    Calm,
    /// The limiter has no tokens left.
    AllowanceUsed,
    /// The share pool is overloaded.
    Overload,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bounds => f.write_str("kept between the quota of the CPU limit and the configured ceiling"),
            Self::UsedUp => f.write_str("used up its quota before the period was over, and the node has room"),
            Self::Throttled(percent) => write!(f, "throttled in {percent} % of the periods, and the node has room"),
            Self::Calm => f.write_str("not throttled lately"),
            Self::AllowanceUsed => f.write_str("burst allowance of cfsQuotaBurstPeriodSeconds used up"),
            Self::Overload => f.write_str("shared CPUs are used beyond sharePoolThresholdPercent"),
        }
    }
}
