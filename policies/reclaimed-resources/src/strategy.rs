//! The colocation strategy: how much of a node may be published.
//!
//! Fields and defaults: koordinator `pkg/util/sloconfig/colocation_config.go`, `apis/configuration/slo_controller_config.go`.

use serde_json::{Map, Value};

use crate::amounts::Resource;
use crate::decimal::Decimal;
use crate::duration;
use crate::json::{self, Fault};

/// Upper bound of percentages that may exceed 100.
pub const MAX_PERCENT: u32 = 10_000;
/// Seconds of a day.
const DAY_SECONDS: u64 = 86_400;
/// Maximum number of further aggregates.
const MAX_DURATIONS: usize = 8;

/// Which amount of a pod is subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CalculatePolicy {
    /// The pod's use.
    #[default]
    Usage,
    /// The pod's request. For memory only.
    Request,
    /// The larger of use and request.
    MaxUsageRequest,
}

/// Which memory counts as used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryView {
    /// All memory except page cache.
    #[default]
    WithoutPageCache,
    /// All memory except page cache that was not used recently.
    WithHotPageCache,
    /// All memory, including page cache.
    WithPageCache,
}

/// How the mid amount is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MidMode {
    /// From what prod pods are expected to leave unused.
    #[default]
    Reclaim,
    /// A fixed share of the capacity.
    Static,
}

/// The effective strategy of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Whether anything is published.
    pub enable: bool,
    /// Window of the averages, in seconds.
    pub aggregate_seconds: u64,
    /// How long a pod has to be measured before its use counts, in seconds.
    pub report_seconds: u64,
    /// Windows of further aggregates, in seconds. They are not computed, but the longest window determines how long the node's use is kept.
    pub aggregate_durations: Vec<u64>,
    /// Which memory counts as used.
    pub memory_view: MemoryView,
    /// 100 minus the safety margin, in percent of the CPU capacity; above 100 the node is overcommitted.
    pub cpu_reclaim_percent: u32,
    /// 100 minus the safety margin, in percent of the memory capacity.
    pub memory_reclaim_percent: u32,
    /// Which CPU amount of a pod is subtracted; never [`CalculatePolicy::Request`].
    pub cpu_policy: CalculatePolicy,
    /// Which memory amount of a pod is subtracted.
    pub memory_policy: CalculatePolicy,
    /// Cap of batch CPU in percent of the capacity; `None` = no cap.
    pub batch_cpu_threshold_percent: Option<u32>,
    /// Cap of batch memory in percent of the capacity; `None` = no cap.
    pub batch_memory_threshold_percent: Option<u32>,
    /// Cap of mid CPU in percent of the capacity, at most 100.
    pub mid_cpu_threshold_percent: u32,
    /// Cap of mid memory in percent of the capacity, at most 100.
    pub mid_memory_threshold_percent: u32,
    /// Percent of the unallocated capacity that is added to the mid amount, at most 100.
    pub mid_unallocated_percent: u32,
    /// How the mid amount is computed.
    pub mid_mode: MidMode,
    /// Mid CPU in the static mode, in percent of the capacity.
    pub mid_static_cpu_percent: u32,
    /// Mid memory in the static mode, in percent of the capacity.
    pub mid_static_memory_percent: u32,
    /// Age of the measurements in minutes above which all resources are withdrawn.
    pub degrade_minutes: u64,
    /// Interval in seconds after which resources are published again.
    pub update_seconds: u64,
    /// Relative change above which an amount is published at once.
    pub diff_threshold: Decimal,
}

impl Default for Strategy {
    fn default() -> Self {
        Self {
            enable: false,
            aggregate_seconds: 300,
            report_seconds: 60,
            aggregate_durations: vec![300, 600, 1800],
            memory_view: MemoryView::WithoutPageCache,
            cpu_reclaim_percent: 60,
            memory_reclaim_percent: 65,
            cpu_policy: CalculatePolicy::Usage,
            memory_policy: CalculatePolicy::Usage,
            batch_cpu_threshold_percent: None,
            batch_memory_threshold_percent: None,
            mid_cpu_threshold_percent: 100,
            mid_memory_threshold_percent: 100,
            mid_unallocated_percent: 0,
            mid_mode: MidMode::Reclaim,
            mid_static_cpu_percent: 0,
            mid_static_memory_percent: 0,
            degrade_minutes: 15,
            update_seconds: 300,
            diff_threshold: Decimal::hundredths(10),
        }
    }
}

impl Strategy {
    /// Applies a further layer over the strategy; fields that the layer does not set stay.
    ///
    /// # Errors
    ///
    /// Returns the first field that cannot be used. No field of the layer applies then.
    pub fn overlaid(&self, layer: &Map<String, Value>) -> Result<Self, Fault> {
        let mut new = self.clone();
        set(&mut new.enable, json::switch(layer, "enable")?);
        set(&mut new.aggregate_seconds, json::whole(layer, "metricAggregateDurationSeconds", 1, DAY_SECONDS)?);
        set(&mut new.report_seconds, json::whole(layer, "metricReportIntervalSeconds", 1, DAY_SECONDS)?);
        set(&mut new.aggregate_durations, durations(layer)?);
        let views = [
            ("usageWithoutPageCache", MemoryView::WithoutPageCache),
            ("usageWithHotPageCache", MemoryView::WithHotPageCache),
            ("usageWithPageCache", MemoryView::WithPageCache),
        ];
        set(&mut new.memory_view, json::word(layer, "metricMemoryCollectPolicy", &views)?);
        set(&mut new.cpu_reclaim_percent, json::percent(layer, "cpuReclaimThresholdPercent", MAX_PERCENT)?);
        set(&mut new.memory_reclaim_percent, json::percent(layer, "memoryReclaimThresholdPercent", MAX_PERCENT)?);
        let policies = [
            ("usage", CalculatePolicy::Usage),
            ("maxUsageRequest", CalculatePolicy::MaxUsageRequest),
            ("request", CalculatePolicy::Request),
        ];
        // `request` is not allowed for CPU: CPU of pods that request much and use little would never be reclaimed.
        set(&mut new.cpu_policy, json::word(layer, "cpuCalculatePolicy", &policies[..2])?);
        set(&mut new.memory_policy, json::word(layer, "memoryCalculatePolicy", &policies)?);
        for (cap, name) in [
            (&mut new.batch_cpu_threshold_percent, "batchCPUThresholdPercent"),
            (&mut new.batch_memory_threshold_percent, "batchMemoryThresholdPercent"),
        ] {
            *cap = json::percent(layer, name, MAX_PERCENT)?.or(*cap);
        }
        set(&mut new.mid_cpu_threshold_percent, json::percent(layer, "midCPUThresholdPercent", 100)?);
        set(&mut new.mid_memory_threshold_percent, json::percent(layer, "midMemoryThresholdPercent", 100)?);
        set(&mut new.mid_unallocated_percent, json::percent(layer, "midUnallocatedPercent", 100)?);
        set(&mut new.mid_mode, json::word(layer, "midReclaimMode", &[("static", MidMode::Static)])?);
        set(&mut new.mid_static_cpu_percent, json::percent(layer, "midStaticCPUReservedPercent", MAX_PERCENT)?);
        set(&mut new.mid_static_memory_percent, json::percent(layer, "midStaticMemoryReservedPercent", MAX_PERCENT)?);
        set(&mut new.degrade_minutes, json::whole(layer, "degradeTimeMinutes", 1, DAY_SECONDS / 60)?);
        set(&mut new.update_seconds, json::whole(layer, "updateTimeThresholdSeconds", 1, DAY_SECONDS)?);
        set(&mut new.diff_threshold, json::decimal(layer, "resourceDiffThreshold")?);
        Ok(new)
    }

    /// The safety margin in percent of the capacity; negative if the node is overcommitted.
    pub(crate) fn margin_percent(&self, resource: Resource) -> i128 {
        100 - i128::from(match resource {
            Resource::Cpu => self.cpu_reclaim_percent,
            Resource::Memory => self.memory_reclaim_percent,
        })
    }

    /// Which amount of a pod is subtracted.
    pub(crate) fn policy(&self, resource: Resource) -> CalculatePolicy {
        match resource {
            Resource::Cpu => self.cpu_policy,
            Resource::Memory => self.memory_policy,
        }
    }

    /// The cap of the batch amount in percent of the capacity.
    pub(crate) fn batch_threshold_percent(&self, resource: Resource) -> Option<u32> {
        match resource {
            Resource::Cpu => self.batch_cpu_threshold_percent,
            Resource::Memory => self.batch_memory_threshold_percent,
        }
    }

    /// The cap of the mid amount in percent of the capacity.
    pub(crate) fn mid_threshold_percent(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Cpu => self.mid_cpu_threshold_percent,
            Resource::Memory => self.mid_memory_threshold_percent,
        }
    }

    /// The mid amount of the static mode in percent of the capacity.
    pub(crate) fn mid_static_percent(&self, resource: Resource) -> u32 {
        match resource {
            Resource::Cpu => self.mid_static_cpu_percent,
            Resource::Memory => self.mid_static_memory_percent,
        }
    }
}

fn set<T>(field: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *field = said;
    }
}

/// Reads `metricAggregatePolicy.durations`, in seconds, sorted.
fn durations(layer: &Map<String, Value>) -> Result<Option<Vec<u64>>, Fault> {
    let path = "metricAggregatePolicy.durations";
    let Some(policy) = json::object(layer, "metricAggregatePolicy")? else { return Ok(None) };
    let Some(items) = json::list(policy, "durations").map_err(|fault| fault.within("metricAggregatePolicy"))? else {
        return Ok(None);
    };
    if items.len() > MAX_DURATIONS {
        return Err(Fault::new(path, format!("has {} entries; write at most {MAX_DURATIONS}", items.len())));
    }
    let mut seconds = Vec::new();
    for item in items {
        let read = item.as_str().and_then(duration::seconds).filter(|seconds| (1..=DAY_SECONDS).contains(seconds));
        match read {
            Some(read) => seconds.push(read),
            None => {
                let way_out = "which is no duration from 1s to 24h; write e.g. \"5m\" or \"1h30m\"";
                return Err(Fault::new(path, format!("has {}, {way_out}", json::shown(item))));
            }
        }
    }
    seconds.sort_unstable();
    seconds.dedup();
    Ok(Some(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(json: &str) -> Result<Strategy, String> {
        Strategy::default().overlaid(&json::parse(json).unwrap()).map_err(|fault| fault.to_string())
    }

    #[test]
    fn every_field_has_its_default_and_takes_its_value() {
        let default = Strategy::default;
        assert_eq!(overlay("{}"), Ok(default()));
        let durations = |durations: &[u64]| Strategy { aggregate_durations: durations.to_vec(), ..default() };
        for (json, expected) in [
            (r#"{"enable":true}"#, Strategy { enable: true, ..default() }),
            (r#"{"metricAggregateDurationSeconds":60}"#, Strategy { aggregate_seconds: 60, ..default() }),
            (r#"{"metricReportIntervalSeconds":10}"#, Strategy { report_seconds: 10, ..default() }),
            (r#"{"metricAggregatePolicy":{"durations":["30m","1m30s","30m"]}}"#, durations(&[90, 1800])),
            (r#"{"metricAggregatePolicy":{"durations":[]}}"#, durations(&[])),
            (r#"{"metricAggregatePolicy":{"statisticTypes":["p99"]}}"#, default()),
            (
                r#"{"metricMemoryCollectPolicy":"usageWithHotPageCache"}"#,
                Strategy { memory_view: MemoryView::WithHotPageCache, ..default() },
            ),
            (
                r#"{"metricMemoryCollectPolicy":"usageWithPageCache"}"#,
                Strategy { memory_view: MemoryView::WithPageCache, ..default() },
            ),
            (r#"{"metricMemoryCollectPolicy":"usageWithoutPageCache"}"#, default()),
            (r#"{"cpuReclaimThresholdPercent":120}"#, Strategy { cpu_reclaim_percent: 120, ..default() }),
            (r#"{"cpuReclaimThresholdPercent":0}"#, Strategy { cpu_reclaim_percent: 0, ..default() }),
            (r#"{"memoryReclaimThresholdPercent":80}"#, Strategy { memory_reclaim_percent: 80, ..default() }),
            (
                r#"{"cpuCalculatePolicy":"maxUsageRequest"}"#,
                Strategy { cpu_policy: CalculatePolicy::MaxUsageRequest, ..default() },
            ),
            (
                r#"{"memoryCalculatePolicy":"request"}"#,
                Strategy { memory_policy: CalculatePolicy::Request, ..default() },
            ),
            (
                r#"{"memoryCalculatePolicy":"maxUsageRequest"}"#,
                Strategy { memory_policy: CalculatePolicy::MaxUsageRequest, ..default() },
            ),
            (r#"{"memoryCalculatePolicy":""}"#, default()),
            (r#"{"batchCPUThresholdPercent":50}"#, Strategy { batch_cpu_threshold_percent: Some(50), ..default() }),
            (r#"{"batchMemoryThresholdPercent":0}"#, Strategy { batch_memory_threshold_percent: Some(0), ..default() }),
            (r#"{"midCPUThresholdPercent":10}"#, Strategy { mid_cpu_threshold_percent: 10, ..default() }),
            (r#"{"midMemoryThresholdPercent":20}"#, Strategy { mid_memory_threshold_percent: 20, ..default() }),
            (r#"{"midUnallocatedPercent":30}"#, Strategy { mid_unallocated_percent: 30, ..default() }),
            (r#"{"midReclaimMode":"static"}"#, Strategy { mid_mode: MidMode::Static, ..default() }),
            (r#"{"midReclaimMode":null}"#, default()),
            (r#"{"midStaticCPUReservedPercent":15}"#, Strategy { mid_static_cpu_percent: 15, ..default() }),
            (r#"{"midStaticMemoryReservedPercent":25}"#, Strategy { mid_static_memory_percent: 25, ..default() }),
            (r#"{"degradeTimeMinutes":5}"#, Strategy { degrade_minutes: 5, ..default() }),
            (r#"{"updateTimeThresholdSeconds":120}"#, Strategy { update_seconds: 120, ..default() }),
            (r#"{"resourceDiffThreshold":0.25}"#, Strategy { diff_threshold: Decimal::hundredths(25), ..default() }),
            (r#"{"resourceDiffThreshold":1}"#, Strategy { diff_threshold: Decimal::ONE, ..default() }),
            (r#"{"extensions":{"any":1},"nodePredictPolicy":{}}"#, default()),
        ] {
            assert_eq!(overlay(json), Ok(expected), "{json}");
        }
    }

    #[test]
    fn an_upper_layer_replaces_what_it_says_and_nothing_else() {
        let below =
            overlay(r#"{"enable":true,"cpuReclaimThresholdPercent":70,"batchCPUThresholdPercent":50}"#).unwrap();
        let above = json::parse(r#"{"cpuReclaimThresholdPercent":0,"enable":null}"#).unwrap();
        let expected = Strategy { cpu_reclaim_percent: 0, ..below.clone() };
        assert_eq!(below.overlaid(&above), Ok(expected));
        let half_wrong = json::parse(r#"{"enable":false,"degradeTimeMinutes":0}"#).unwrap();
        assert!(below.overlaid(&half_wrong).is_err());
    }

    #[test]
    fn every_field_refuses_what_it_cannot_be() {
        for (json, field) in [
            (r#"{"enable":"true"}"#, "enable"),
            (r#"{"metricAggregateDurationSeconds":0}"#, "metricAggregateDurationSeconds"),
            (r#"{"metricReportIntervalSeconds":86401}"#, "metricReportIntervalSeconds"),
            (r#"{"metricAggregatePolicy":[]}"#, "metricAggregatePolicy"),
            (r#"{"metricAggregatePolicy":{"durations":"5m"}}"#, "metricAggregatePolicy.durations"),
            (r#"{"metricAggregatePolicy":{"durations":["0s"]}}"#, "metricAggregatePolicy.durations"),
            (r#"{"metricAggregatePolicy":{"durations":[300]}}"#, "metricAggregatePolicy.durations"),
            (
                r#"{"metricAggregatePolicy":{"durations":["1s","2s","3s","4s","5s","6s","7s","8s","9s"]}}"#,
                "metricAggregatePolicy.durations",
            ),
            (r#"{"metricMemoryCollectPolicy":"all"}"#, "metricMemoryCollectPolicy"),
            (r#"{"cpuReclaimThresholdPercent":-1}"#, "cpuReclaimThresholdPercent"),
            (r#"{"cpuReclaimThresholdPercent":60.5}"#, "cpuReclaimThresholdPercent"),
            (r#"{"memoryReclaimThresholdPercent":10001}"#, "memoryReclaimThresholdPercent"),
            (r#"{"cpuCalculatePolicy":"request"}"#, "cpuCalculatePolicy"),
            (r#"{"memoryCalculatePolicy":"requests"}"#, "memoryCalculatePolicy"),
            (r#"{"batchCPUThresholdPercent":-5}"#, "batchCPUThresholdPercent"),
            (r#"{"batchMemoryThresholdPercent":"50"}"#, "batchMemoryThresholdPercent"),
            (r#"{"midCPUThresholdPercent":101}"#, "midCPUThresholdPercent"),
            (r#"{"midMemoryThresholdPercent":-1}"#, "midMemoryThresholdPercent"),
            (r#"{"midUnallocatedPercent":101}"#, "midUnallocatedPercent"),
            (r#"{"midReclaimMode":"dynamic"}"#, "midReclaimMode"),
            (r#"{"midStaticCPUReservedPercent":-1}"#, "midStaticCPUReservedPercent"),
            (r#"{"midStaticMemoryReservedPercent":1e30}"#, "midStaticMemoryReservedPercent"),
            (r#"{"degradeTimeMinutes":0}"#, "degradeTimeMinutes"),
            (r#"{"updateTimeThresholdSeconds":0}"#, "updateTimeThresholdSeconds"),
            (r#"{"resourceDiffThreshold":0}"#, "resourceDiffThreshold"),
            (r#"{"resourceDiffThreshold":-0.1}"#, "resourceDiffThreshold"),
        ] {
            let error = overlay(json).unwrap_err();
            assert!(error.starts_with(&format!("{field} ")), "{json}: {error}");
        }
    }
}
