//! When a feature acts, and how much has to be released. Pure integer arithmetic; comparisons do not round.

use std::fmt;

use crate::config::{Allocatable, Limit, Profile, Satisfaction, Usage};
use crate::feature::Resource;
use crate::window::Sums;

/// Why a feature acts: which threshold was exceeded, and by how much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Batch pods get too little CPU. Amounts in thousandths of a CPU, averaged over the window.
    Satisfaction {
        /// CPU that they request.
        request: u64,
        /// CPU that they use.
        used: u64,
        /// CPU that they can get.
        limit: u64,
        /// The settings.
        settings: Satisfaction,
        /// Amount to release.
        release: u64,
    },
    /// The node uses too much.
    Usage {
        /// The resource: [`Resource::Cpu`] or [`Resource::Memory`].
        resource: Resource,
        /// Amount in use.
        used: u64,
        /// Capacity of the node.
        capacity: u64,
        /// The settings.
        settings: Usage,
        /// Amount to release.
        release: u64,
        /// Why it cannot wait; `None` if it can.
        shortage: Option<Shortage>,
    },
    /// Pods request more than the node offers.
    Requests {
        /// The resources whose requests are too large.
        exceeded: Vec<Exceeded>,
        /// The settings.
        settings: Allocatable,
    },
}

/// A resource of which pods request more than the node offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The resource.
    pub resource: Resource,
    /// Amount that pods request.
    pub requested: u64,
    /// Amount that the node offers; `None` if it offers nothing.
    pub allocatable: Option<u64>,
    /// Amount to release.
    pub release: u64,
}

/// Why memory cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// All tasks of the node wait for memory. Both times are in microseconds, and 0 if only the trigger reported the pressure.
    Pressure {
        /// Time in which they waited.
        full_usec: u64,
        /// Length of the window.
        window_usec: u64,
    },
    /// The kernel's OOM killer killed processes of pods that did not hit their own limits.
    OomKills(u64),
    /// `MemAvailable` is not above the kernel's `low` watermark, in bytes.
    Marks {
        /// `MemAvailable`.
        available: u64,
        /// The watermark.
        low: u64,
    },
}

/// The batch CPU to release, in thousandths of a CPU, if batch pods starve; `None` if they do not, or if there is nothing to release.
/// Amounts are request, use and limit; averages if there are several samples.
///
/// Batch pods do not starve if the limit is 0 (unknown), if the limit is a CPU or more and not used up, if they request nothing, or if the
/// ratio of limit to request is above the lower percentage. The amount to release is what is missing to the upper percentage.
///
/// Source: koordinator `pkg/koordlet/qosmanager/plugins/cpuevict/cpu_evict.go`.
pub fn starving(amounts: &Sums<3>, settings: &Satisfaction) -> Option<u64> {
    let [request, used, limit] = amounts.sums.map(|sum| i128::try_from(sum).unwrap_or(i128::MAX));
    let count = i128::from(amounts.count);
    let percent = |amount: i128, percent: i64| amount.saturating_mul(percent.into());
    if limit <= 0 || request <= 0 {
        return None;
    }
    if limit >= count.saturating_mul(1_000) && used.saturating_mul(100) < percent(limit, settings.usage) {
        return None;
    }
    if limit.saturating_mul(100) > percent(request, settings.lower) {
        return None;
    }
    let missing = percent(request, settings.upper).saturating_sub(limit.saturating_mul(100));
    positive(missing / count.saturating_mul(100).max(1))
}

/// The batch CPU to release if both the average of the window and the latest sample say that batch pods starve: by the average if request
/// and limit have not changed, otherwise the smaller of both.
pub fn starving_twice(average: &Sums<3>, latest: &Sums<3>, settings: &Satisfaction) -> Option<u64> {
    let (by_average, by_latest) = (starving(average, settings)?, starving(latest, settings)?);
    let is_same =
        [0, 2].iter().all(|&index| average.sums[index] == latest.sums[index].saturating_mul(average.count.into()));
    Some(if is_same { by_average } else { by_average.min(by_latest) })
}

/// The limit that satisfaction is measured by, in thousandths of a CPU; 0 if unknown. `allocatable` is the batch CPU that the node offers:
/// 0 counts as a limit of 1, so that starving is detected, and a negative amount as unknown.
pub fn limit_of(limit: Limit, real_limit_milli: u64, allocatable: Option<i64>) -> u64 {
    match (limit, allocatable) {
        (Limit::Real, _) => real_limit_milli,
        (Limit::Allocatable, Some(0)) => 1,
        (Limit::Allocatable, allocatable) => allocatable.and_then(|amount| u64::try_from(amount).ok()).unwrap_or(0),
    }
}

/// The amount to release of a node's use; `None` below the threshold. `koordinator` computes in whole percent.
///
/// The use is a fraction of sums, `used / count`, so that averages stay exact.
pub fn usage_release(used: u128, count: u64, capacity: u64, settings: &Usage, profile: Profile) -> Option<u64> {
    let (used, count, capacity) =
        (i128::try_from(used).unwrap_or(i128::MAX / 200), i128::from(count.max(1)), i128::from(capacity));
    if capacity == 0
        || used.saturating_mul(100) < capacity.saturating_mul(count).saturating_mul(settings.threshold.into())
    {
        return None;
    }
    let release = match profile {
        Profile::Koordinator => {
            let percent = (used / count).saturating_mul(100) / capacity;
            capacity.saturating_mul(percent.saturating_sub(settings.lower.into())) / 100
        }
        Profile::Responsive => {
            let keep = capacity.saturating_mul(count).saturating_mul(settings.lower.into());
            used.saturating_mul(100).saturating_sub(keep) / count.saturating_mul(100)
        }
    };
    Some(u64::try_from(release.max(0)).unwrap_or(u64::MAX))
}

/// The amount of requests to release: all if the node offers nothing; otherwise, if they are above the threshold, what exceeds the lower
/// percentage. `None` if there is nothing to release.
pub fn requests_release(requested: u64, allocatable: Option<i64>, settings: &Allocatable) -> Option<u64> {
    let allocatable = allocatable.map_or(0, |amount| i128::from(amount.max(0)));
    let requested = i128::from(requested);
    if allocatable == 0 {
        return positive(requested);
    }
    let scaled = requested.saturating_mul(100);
    if scaled <= allocatable.saturating_mul(settings.threshold.into()) {
        return None;
    }
    positive(scaled.saturating_sub(allocatable.saturating_mul(settings.lower.into())) / 100)
}

fn positive(amount: i128) -> Option<u64> {
    (amount > 0).then(|| u64::try_from(amount).unwrap_or(u64::MAX))
}

/// A part in hundredths of a percent of the whole, rounded down.
fn basis_points(part: u64, whole: u64) -> u128 {
    u128::from(part) * 10_000 / u128::from(whole.max(1))
}

/// A percentage in hundredths of a percent, shown rounded down: a value below a threshold is never shown as having reached it.
struct Percent(u128);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 100 {
            0 => write!(f, "{} %", self.0 / 100),
            part => write!(f, "{}.{part:02} %", self.0 / 100),
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Satisfaction { request, used, limit, settings, release } => {
                let rate = Percent(basis_points(*limit, *request));
                let Satisfaction { lower, upper, .. } = settings;
                write!(f, "batch pods get {limit}m ({used}m used) of {request}m requested, {rate} <= {lower} %; ")?;
                write!(f, "{release}m are missing to {upper} %")
            }
            Self::Usage { resource, used, capacity, settings, release, shortage } => {
                let what = if *resource == Resource::Cpu { "CPU" } else { "memory" };
                let rate = Percent(basis_points(*used, *capacity));
                let is_reached =
                    basis_points(*used, *capacity) >= u128::try_from(settings.threshold).unwrap_or(0) * 100;
                let sign = if is_reached { ">=" } else { "<" };
                write!(f, "the node uses {rate} of its {what}, {sign} {} %", settings.threshold)?;
                if let Some(shortage) = shortage {
                    write!(f, ", and {shortage}")?;
                }
                write!(f, "; to release: {}", resource.show(*release))
            }
            Self::Requests { exceeded, settings } => {
                let mut separator = "";
                for Exceeded { resource, requested, allocatable, release } in exceeded {
                    write!(f, "{separator}{} of {} are requested, ", resource.show(*requested), resource.name())?;
                    match allocatable {
                        Some(amount) => {
                            let rate = Percent(basis_points(*requested, *amount));
                            write!(f, "{rate} of what is offered, > {} %", settings.threshold)?;
                        }
                        None => f.write_str("and none is offered")?,
                    }
                    write!(f, "; to release: {}", resource.show(*release))?;
                    separator = "; ";
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pressure { window_usec: 0, .. } => f.write_str("all tasks wait for memory"),
            Self::Pressure { full_usec, window_usec } => {
                write!(f, "all tasks waited for memory {} ms of {} ms", full_usec / 1_000, window_usec / 1_000)
            }
            Self::OomKills(1) => f.write_str("the OOM killer ended a process"),
            Self::OomKills(count) => write!(f, "the OOM killer ended {count} processes"),
            Self::Marks { available, low } => {
                let show = |bytes: u64| Resource::Memory.show(bytes);
                write!(f, "{} are available, no more than the kernel's mark of {}", show(*available), show(*low))
            }
        }
    }
}

#[cfg(test)]
mod tests;
