//! The settings of each feature, once they are known to fit.

use super::{ConfigError, Field, Thresholds, error};
use crate::feature::{Feature, Group};

/// Most that `cpuEvictBESatisfactionLowerPercent` may be.
const MAX_SATISFACTION_LOWER: i64 = 60;
/// A lower threshold that is not said lies so many percent below the upper one.
const BUFFER_PERCENT: i64 = 2;
/// Largest priority of the class `koord-mid`; what is above is never evicted for requests.
const MAX_MID_PRIORITY: i64 = 7_999;

/// What bounds batch pods' CPU when satisfaction is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// What the kernel enforces now (`evictByRealLimit`).
    #[default]
    Real,
    /// What the node offers now (`evictByAllocatable`).
    Allocatable,
}

/// Settings of [`Feature::BeCpu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Satisfaction {
    /// At or below so many percent of what they request, batch pods starve.
    pub lower: i64,
    /// Up to here they are to come.
    pub upper: i64,
    /// They starve only if they use so many percent of what they may.
    pub usage: i64,
    /// Averages are taken over so long.
    pub window_seconds: u64,
    /// What bounds them.
    pub limit: Limit,
}

/// Settings of the features that look at what the node uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// From so many percent of capacity on.
    pub threshold: i64,
    /// Down to so many.
    pub lower: i64,
    /// Pods up to this priority; `None` = batch pods, by their label.
    pub priority: Option<i32>,
    /// Averages are taken over so long (CPU).
    pub window_seconds: u64,
}

/// Settings of the features that look at what pods request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocatable {
    /// Above so many percent of what is offered.
    pub threshold: i64,
    /// Down to so many.
    pub lower: i64,
    /// Pods up to this priority.
    pub priority: i32,
}

/// Settings of one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// [`Feature::BeCpu`].
    Satisfaction(Satisfaction),
    /// [`Feature::Cpu`], [`Feature::BeMemory`], [`Feature::Memory`].
    Usage(Usage),
    /// [`Feature::CpuAllocatable`], [`Feature::MemoryAllocatable`].
    Allocatable(Allocatable),
}

impl Thresholds {
    /// The settings of a feature; `None` where nothing is said of it.
    ///
    /// # Errors
    ///
    /// The field that says what cannot be, or that is missing beside another one.
    pub fn check(&self, feature: Feature) -> Result<Option<Checked>, ConfigError> {
        let checked = match feature {
            Feature::BeCpu => self.satisfaction()?.map(Checked::Satisfaction),
            Feature::Cpu => {
                let threshold = number("cpuEvictThresholdPercent", &self.cpu)?;
                let lower = number("cpuEvictLowerPercent", &self.cpu_lower)?;
                match threshold {
                    Some(threshold) => {
                        self.up_to_priority(["cpuEvictThresholdPercent", "cpuEvictLowerPercent"], threshold, lower)?
                    }
                    None => unset_beside("cpuEvictThresholdPercent", "cpuEvictLowerPercent", lower)?,
                }
                .map(Checked::Usage)
            }
            Feature::Memory => {
                let names = ["memoryEvictThresholdPercent", "memoryEvictLowerPercent"];
                let (threshold, lower) = self.memory()?;
                self.up_to_priority(names, threshold, lower)?.map(Checked::Usage)
            }
            Feature::BeMemory => {
                let (threshold, lower) = self.memory()?;
                let lower = below(["memoryEvictThresholdPercent", "memoryEvictLowerPercent"], threshold, lower)?;
                Some(Checked::Usage(Usage { threshold, lower, priority: None, window_seconds: 1 }))
            }
            Feature::CpuAllocatable | Feature::MemoryAllocatable => {
                self.allocatable(feature.group())?.map(Checked::Allocatable)
            }
        };
        Ok(checked)
    }

    fn satisfaction(&self) -> Result<Option<Satisfaction>, ConfigError> {
        const LOWER: &str = "cpuEvictBESatisfactionLowerPercent";
        const UPPER: &str = "cpuEvictBESatisfactionUpperPercent";
        const USAGE: &str = "cpuEvictBEUsageThresholdPercent";
        let (lower, upper) = match (number(LOWER, &self.satisfaction_lower)?, number(UPPER, &self.satisfaction_upper)?)
        {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(error(LOWER, "is missing".into(), format!("give it beside {UPPER}"))),
            (Some(_), None) => return Err(error(UPPER, "is missing".into(), format!("give it beside {LOWER}"))),
            (Some(lower), Some(upper)) => (lower, upper),
        };
        if !(1..=MAX_SATISFACTION_LOWER).contains(&lower) {
            return Err(error(LOWER, format!("is {lower}"), format!("give 1 to {MAX_SATISFACTION_LOWER}")));
        }
        if !(1..100).contains(&upper) {
            return Err(error(UPPER, format!("is {upper}"), "give 1 to 99".into()));
        }
        if upper < lower {
            return Err(error(UPPER, format!("is {upper}"), format!("give at least {LOWER}, which is {lower}")));
        }
        let usage = number(USAGE, &self.be_usage)?.unwrap_or(90);
        if !(0..=100).contains(&usage) {
            return Err(error(USAGE, format!("is {usage}"), "give 0 to 100".into()));
        }
        let limit = match &self.cpu_policy {
            Field::Unset => Limit::Real,
            Field::Is(word) if word == "evictByRealLimit" => Limit::Real,
            Field::Is(word) if word == "evictByAllocatable" => Limit::Allocatable,
            Field::Is(word) | Field::Wrong(word) => {
                let way_out = "write `evictByRealLimit` or `evictByAllocatable`";
                return Err(error("cpuEvictPolicy", format!("is `{word}`"), way_out.into()));
            }
        };
        Ok(Some(Satisfaction { lower, upper, usage, window_seconds: self.window()?, limit }))
    }

    /// At least the interval at which samples are taken.
    fn window(&self) -> Result<u64, ConfigError> {
        const WINDOW: &str = "cpuEvictTimeWindowSeconds";
        let seconds = number(WINDOW, &self.window_seconds)?.unwrap_or(1);
        u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .ok_or_else(|| error(WINDOW, format!("is {seconds}"), "give 1 or more".into()))
    }

    /// Threshold and lower threshold of memory; the first has a default.
    fn memory(&self) -> Result<(i64, Option<i64>), ConfigError> {
        let threshold = number("memoryEvictThresholdPercent", &self.memory)?.unwrap_or(70);
        Ok((threshold, number("memoryEvictLowerPercent", &self.memory_lower)?))
    }

    /// Settings of a feature that asks for a priority: it is off without one.
    fn up_to_priority(
        &self,
        names: [&'static str; 2],
        threshold: i64,
        lower: Option<i64>,
    ) -> Result<Option<Usage>, ConfigError> {
        const PRIORITY: &str = "evictEnabledPriorityThreshold";
        let lower = below(names, threshold, lower)?;
        let Some(priority) = number(PRIORITY, &self.priority)? else { return Ok(None) };
        let priority = i32::try_from(priority).map_err(|_| {
            error(PRIORITY, format!("is {priority}"), format!("give a priority, {} to {}", i32::MIN, i32::MAX))
        })?;
        let window_seconds = if names[0] == "cpuEvictThresholdPercent" { self.window()? } else { 1 };
        Ok(Some(Usage { threshold, lower, priority: Some(priority), window_seconds }))
    }

    fn allocatable(&self, group: Group) -> Result<Option<Allocatable>, ConfigError> {
        const PRIORITY: &str = "allocatableEvictPriorityThreshold";
        let (names, fields) = match group {
            Group::Cpu => (
                ["cpuAllocatableEvictThresholdPercent", "cpuAllocatableEvictLowerPercent"],
                [&self.cpu_allocatable, &self.cpu_allocatable_lower],
            ),
            Group::Memory => (
                ["memoryAllocatableEvictThresholdPercent", "memoryAllocatableEvictLowerPercent"],
                [&self.memory_allocatable, &self.memory_allocatable_lower],
            ),
        };
        let (threshold, lower) = match (number(names[0], fields[0])?, number(names[1], fields[1])?) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                return Err(error(names[0], "is missing".into(), format!("give it beside {}", names[1])));
            }
            (Some(_), None) => {
                return Err(error(names[1], "is missing".into(), format!("give it beside {}", names[0])));
            }
            (Some(threshold), Some(lower)) => (threshold, lower),
        };
        if lower < 0 {
            return Err(error(names[1], format!("is {lower}"), "give 0 or more".into()));
        }
        let lower = below(names, threshold, Some(lower))?;
        let Some(priority) = number(PRIORITY, &self.allocatable_priority)? else { return Ok(None) };
        match i32::try_from(priority) {
            Ok(priority) if i64::from(priority) <= MAX_MID_PRIORITY => {
                Ok(Some(Allocatable { threshold, lower, priority }))
            }
            _ => {
                let way_out = format!(
                    "give at most {MAX_MID_PRIORITY}: pods of koord-prod are never evicted for what is requested"
                );
                Err(error(PRIORITY, format!("is {priority}"), way_out))
            }
        }
    }
}

fn number(name: &'static str, field: &Field<i64>) -> Result<Option<i64>, ConfigError> {
    match field {
        Field::Unset => Ok(None),
        Field::Is(number) => Ok(Some(*number)),
        Field::Wrong(text) => Err(error(name, format!("is {text}"), "write a whole number, without quotes".into())),
    }
}

/// A lower threshold without the one that it belongs to.
fn unset_beside<T>(
    threshold: &'static str,
    lower_name: &'static str,
    lower: Option<i64>,
) -> Result<Option<T>, ConfigError> {
    match lower {
        None => Ok(None),
        Some(_) => Err(error(threshold, "is missing".into(), format!("give it beside {lower_name}"))),
    }
}

/// The lower threshold, said or not, which has to lie below the other one.
fn below(names: [&'static str; 2], threshold: i64, lower: Option<i64>) -> Result<i64, ConfigError> {
    if threshold < 0 {
        return Err(error(names[0], format!("is {threshold}"), "give 0 or more".into()));
    }
    let lower = lower.unwrap_or(threshold - BUFFER_PERCENT);
    if lower >= threshold {
        return Err(error(
            names[1],
            format!("is {lower}"),
            format!("give less than {}, which is {threshold}", names[0]),
        ));
    }
    Ok(lower)
}
