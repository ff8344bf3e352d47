//! The validated settings of each feature.

use qosm_sdk::shown;

use super::{ConfigError, Field, Thresholds, error};
use crate::feature::{Feature, Group};

/// Upper bound of `cpuEvictBESatisfactionLowerPercent`.
const MAX_SATISFACTION_LOWER: i64 = 60;
/// How far below the threshold the lower threshold is by default, in percent.
const BUFFER_PERCENT: i64 = 2;
/// Largest priority of the class `koord-mid`; pods of a higher priority are never evicted because of requests.
const MAX_MID_PRIORITY: i64 = 7_999;

/// The limit of batch pods' CPU that satisfaction is measured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Limit {
    /// The limit in force in the kernel (`evictByRealLimit`).
    #[default]
    Real,
    /// The batch CPU that the node offers (`evictByAllocatable`).
    Allocatable,
}

/// Settings of [`Feature::BeCpu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Satisfaction {
    /// Percent of their request at or below which batch pods starve.
    pub lower: i64,
    /// Percent of their request that evictions aim for.
    pub upper: i64,
    /// Percent of the limit that batch pods must use in order to count as starving.
    pub usage: i64,
    /// Window of the averages, in seconds.
    pub window_seconds: u64,
    /// The limit that satisfaction is measured by.
    pub limit: Limit,
}

/// Settings of the features that act on the node's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Use at or above which pods are evicted, in percent of capacity.
    pub threshold: i64,
    /// Use that evictions aim for, in percent of capacity.
    pub lower: i64,
    /// Highest priority of pods to evict; `None` = batch pods by their label, whatever their priority.
    pub priority: Option<i32>,
    /// Window of the averages, in seconds (CPU only).
    pub window_seconds: u64,
}

/// Settings of the features that act on the requests of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocatable {
    /// Requests above which pods are evicted, in percent of what the node offers.
    pub threshold: i64,
    /// Requests that evictions aim for, in percent of what the node offers.
    pub lower: i64,
    /// Highest priority of pods to evict.
    pub priority: i32,
}

/// Settings of a feature.
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
    /// The settings of a feature; `None` if the strategy does not configure it.
    ///
    /// # Errors
    ///
    /// Returns the field that is invalid, or that is missing although its counterpart is set.
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
        Ok(Some(Satisfaction { lower, upper, usage, window_seconds: self.window()?, limit: self.limit()? }))
    }

    fn limit(&self) -> Result<Limit, ConfigError> {
        match &self.cpu_policy {
            Field::Unset => Ok(Limit::Real),
            Field::Is(word) if word == "evictByRealLimit" => Ok(Limit::Real),
            Field::Is(word) if word == "evictByAllocatable" => Ok(Limit::Allocatable),
            Field::Is(word) | Field::Wrong(word) => {
                let way_out = "write `evictByRealLimit` or `evictByAllocatable`";
                Err(error("cpuEvictPolicy", format!("is `{}`", shown(word.as_str())), way_out.into()))
            }
        }
    }

    /// Fields that no feature could use, whether or not one that is on needs them.
    pub fn unusable(&self) -> impl Iterator<Item = ConfigError> {
        let numbers = [
            ("cpuEvictBESatisfactionLowerPercent", &self.satisfaction_lower),
            ("cpuEvictBESatisfactionUpperPercent", &self.satisfaction_upper),
            ("cpuEvictBEUsageThresholdPercent", &self.be_usage),
            ("cpuEvictThresholdPercent", &self.cpu),
            ("cpuEvictLowerPercent", &self.cpu_lower),
            ("memoryEvictThresholdPercent", &self.memory),
            ("memoryEvictLowerPercent", &self.memory_lower),
            ("evictEnabledPriorityThreshold", &self.priority),
            ("cpuAllocatableEvictThresholdPercent", &self.cpu_allocatable),
            ("cpuAllocatableEvictLowerPercent", &self.cpu_allocatable_lower),
            ("memoryAllocatableEvictThresholdPercent", &self.memory_allocatable),
            ("memoryAllocatableEvictLowerPercent", &self.memory_allocatable_lower),
            ("allocatableEvictPriorityThreshold", &self.allocatable_priority),
        ];
        let numbers = numbers.into_iter().filter_map(|(name, field)| number(name, field).err());
        numbers.chain(self.limit().err()).chain(self.window().err())
    }

    /// Window of the averages in seconds; at least 1, the interval of samples.
    fn window(&self) -> Result<u64, ConfigError> {
        const WINDOW: &str = "cpuEvictTimeWindowSeconds";
        let seconds = number(WINDOW, &self.window_seconds)?.unwrap_or(1);
        u64::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds > 0)
            .ok_or_else(|| error(WINDOW, format!("is {seconds}"), "give 1 or more".into()))
    }

    /// Threshold and lower threshold of memory; only the threshold has a default.
    fn memory(&self) -> Result<(i64, Option<i64>), ConfigError> {
        let threshold = number("memoryEvictThresholdPercent", &self.memory)?.unwrap_or(70);
        Ok((threshold, number("memoryEvictLowerPercent", &self.memory_lower)?))
    }

    /// Settings of a feature that requires a priority; `None` if the priority is not set.
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

/// Fails if a lower threshold is set while its threshold is not.
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

/// The lower threshold or its default; it has to be below the threshold.
fn below(names: [&'static str; 2], threshold: i64, lower: Option<i64>) -> Result<i64, ConfigError> {
    if threshold < 0 {
        return Err(error(names[0], format!("is {threshold}"), "give 0 or more".into()));
    }
    if let Some(lower) = lower.filter(|lower| *lower < 0) {
        return Err(error(names[1], format!("is {lower}"), "give 0 or more".into()));
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
