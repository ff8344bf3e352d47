//! The policy's configuration.

use qosm_sdk::{BandwidthShare, CacheShare, QosClass, Share};
use serde::Deserialize;

/// 100 percent.
pub(crate) const ALL: u32 = 100;

/// The effective configuration: the policy's own, and each class of the node's strategy with all layers merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// The policy-level configuration.
    pub policy: Settings,
    /// The QoS classes; the fields of a class that is not enabled are unset.
    pub classes: Classes,
}

/// Whether shares are fixed or follow the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Profile {
    /// Shares stay as configured.
    #[default]
    Static,
    /// The share of BE shrinks while latency-sensitive pods are squeezed.
    Dynamic,
}

/// The policy-level configuration. All fields but `profile` apply to the profile `dynamic` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// Whether shares are fixed or follow the load.
    pub profile: Profile,
    /// Memory bandwidth of a domain in MB/s; 0 = the maximum seen so far.
    #[serde(rename = "maxBandwidthMBps")]
    pub max_bandwidth_mbps: u64,
    /// Percent of that bandwidth from which a domain's memory is short.
    pub bandwidth_high_percent: u32,
    /// Percent of that bandwidth up to which a domain's memory is calm.
    pub bandwidth_low_percent: u32,
    /// Percent of the traffic from which BE counts as its cause.
    pub be_traffic_percent: u32,
    /// Percent of the cache that they may use, below which latency-sensitive containers have lost it.
    pub occupancy_low_percent: u32,
    /// Percent of the cache that they may use, from which latency-sensitive containers have it back.
    pub occupancy_calm_percent: u32,
    /// Percent of all ways by which BE's range shrinks at a time.
    pub cache_step_percent: u32,
    /// Minimum width of BE's range, in percent of all ways.
    pub cache_floor_percent: u32,
    /// Percentage points by which BE's share of the memory bandwidth shrinks at a time.
    pub bandwidth_step_percent: u32,
    /// Minimum of BE's share of the memory bandwidth, in percent.
    pub bandwidth_floor_percent: u32,
    /// Minimum time between two steps, in seconds.
    pub step_seconds: u64,
    /// Time of calm in seconds after which a step is given back.
    pub calm_seconds: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: Profile::Static,
            max_bandwidth_mbps: 0,
            bandwidth_high_percent: 80,
            bandwidth_low_percent: 60,
            be_traffic_percent: 20,
            occupancy_low_percent: 50,
            occupancy_calm_percent: 70,
            cache_step_percent: 10,
            cache_floor_percent: 10,
            bandwidth_step_percent: 10,
            bandwidth_floor_percent: 10,
            step_seconds: 2,
            calm_seconds: 30,
        }
    }
}

/// The classes of the ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Classes {
    /// LSE and LSR.
    pub lsr_class: ResctrlQos,
    /// LS.
    pub ls_class: ResctrlQos,
    /// BE.
    pub be_class: ResctrlQos,
    /// SYSTEM.
    pub system_class: ResctrlQos,
}

/// The field `resctrlQOS` of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResctrlQos {
    /// Whether the class has shares. The host passes only classes that do, and removes this field.
    pub enable: Option<bool>,
    /// Start of the class's range of ways, in percent of all ways.
    pub cat_range_start_percent: Option<u32>,
    /// End of the range, in percent of all ways.
    pub cat_range_end_percent: Option<u32>,
    /// Share of the memory bandwidth in percent; 0 = not divided.
    pub mba_percent: Option<u32>,
}

/// The shares of a QoS class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Start of the range of ways, in percent.
    pub(crate) start: u32,
    /// End of the range of ways, in percent.
    pub(crate) end: u32,
    /// Share of the memory bandwidth in percent; `None` = not divided.
    pub(crate) bandwidth: Option<u32>,
}

impl Shared {
    /// Converts to the host's type.
    pub(crate) fn share(self) -> Share {
        Share {
            cache: Some(CacheShare::Percent((self.start, self.end))),
            bandwidth: self.bandwidth.map(BandwidthShare::Percent),
        }
    }
}

/// The QoS classes that this policy distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Lsr,
    Ls,
    Be,
    System,
}

impl Class {
    pub(crate) const EACH: [Self; 4] = [Self::Lsr, Self::Ls, Self::Be, Self::System];

    /// The class of a pod.
    pub(crate) fn of(qos: QosClass) -> Self {
        match qos {
            QosClass::Lse | QosClass::Lsr => Self::Lsr,
            QosClass::Ls => Self::Ls,
            QosClass::Be => Self::Be,
            QosClass::System => Self::System,
        }
    }

    /// Name of the class at the host.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lsr => "lsr",
            Self::Ls => "ls",
            Self::Be => "be",
            Self::System => "system",
        }
    }

    /// Key of the class in the ConfigMap.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Lsr => "lsrClass",
            Self::Ls => "lsClass",
            Self::Be => "beClass",
            Self::System => "systemClass",
        }
    }

    /// Default end of the range of ways, in percent.
    fn default_end(self) -> u32 {
        if self == Self::Be { 30 } else { ALL }
    }

    /// Whether the profile `dynamic` protects pods of this class.
    pub(crate) fn is_latency_sensitive(self) -> bool {
        matches!(self, Self::Lsr | Self::Ls)
    }
}

impl Classes {
    /// The shares of a class; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Returns a message that names the invalid field and how to fix it.
    pub(crate) fn shared(&self, class: Class) -> Result<Option<Shared>, String> {
        let given = match class {
            Class::Lsr => self.lsr_class,
            Class::Ls => self.ls_class,
            Class::Be => self.be_class,
            Class::System => self.system_class,
        };
        if given == ResctrlQos::default() || given.enable == Some(false) {
            return Ok(None);
        }
        let start = given.cat_range_start_percent.unwrap_or(0);
        let end = given.cat_range_end_percent.unwrap_or(class.default_end());
        let mba = given.mba_percent.unwrap_or(ALL);
        let key = class.key();
        if start >= end || end > ALL {
            return Err(format!(
                "{key}.resctrlQOS: catRangeStartPercent {start} to catRangeEndPercent {end} is no range of ways; set a start \
                 below the end, and an end of at most 100"
            ));
        }
        if mba > ALL {
            return Err(format!(
                "{key}.resctrlQOS.mbaPercent: it is {mba}, which is not within 0 to 100; 0 leaves the memory bandwidth alone"
            ));
        }
        Ok(Some(Shared { start, end, bandwidth: (mba > 0).then_some(mba) }))
    }
}

impl Settings {
    /// Checks what serde does not.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names the field.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (field, value, least) in [
            ("bandwidthHighPercent", self.bandwidth_high_percent, 1),
            ("bandwidthLowPercent", self.bandwidth_low_percent, 0),
            ("beTrafficPercent", self.be_traffic_percent, 0),
            ("occupancyLowPercent", self.occupancy_low_percent, 0),
            ("occupancyCalmPercent", self.occupancy_calm_percent, 0),
            ("cacheStepPercent", self.cache_step_percent, 1),
            ("cacheFloorPercent", self.cache_floor_percent, 1),
            ("bandwidthStepPercent", self.bandwidth_step_percent, 1),
            ("bandwidthFloorPercent", self.bandwidth_floor_percent, 1),
        ] {
            if !(least..=ALL).contains(&value) {
                return Err(format!("{field} is {value}, which is not within {least} to {ALL}"));
            }
        }
        for (low, low_value, high, high_value) in [
            ("bandwidthLowPercent", self.bandwidth_low_percent, "bandwidthHighPercent", self.bandwidth_high_percent),
            ("occupancyLowPercent", self.occupancy_low_percent, "occupancyCalmPercent", self.occupancy_calm_percent),
        ] {
            if low_value >= high_value {
                return Err(format!(
                    "{low} is {low_value} and {high} {high_value}; what narrows and what gives back would take turns: set {low} below \
                     {high}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(json: &str) -> Classes {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_class_that_is_enabled_has_the_defaults_of_the_protocol() {
        for (class, end) in [(Class::Lsr, 100), (Class::Ls, 100), (Class::Be, 30), (Class::System, 100)] {
            let on = classes(&format!(r#"{{"{}": {{"enable": true}}}}"#, class.key()));
            assert_eq!(on.shared(class), Ok(Some(Shared { start: 0, end, bandwidth: Some(100) })), "{class:?}");
            for off in ["{}", r#"{"enable": false}"#, r#"{"enable": false, "catRangeEndPercent": 10}"#] {
                let off = classes(&format!(r#"{{"{}": {off}}}"#, class.key()));
                assert_eq!(off.shared(class), Ok(None), "{class:?}");
            }
        }
    }

    #[test]
    fn no_percent_of_the_bandwidth_leaves_it_alone() {
        let be = classes(r#"{"beClass": {"catRangeStartPercent": 10, "catRangeEndPercent": 20, "mbaPercent": 0}}"#);
        let shared = Shared { start: 10, end: 20, bandwidth: None };
        assert_eq!(be.shared(Class::Be), Ok(Some(shared)));
        assert_eq!(shared.share(), Share { cache: Some(CacheShare::Percent((10, 20))), bandwidth: None });
    }

    #[test]
    fn what_cannot_be_is_named_with_its_class() {
        for (json, field) in [
            (
                r#"{"beClass": {"catRangeStartPercent": 30}}"#,
                "beClass.resctrlQOS: catRangeStartPercent 30 to catRangeEndPercent 30",
            ),
            (
                r#"{"lsClass": {"catRangeStartPercent": 80, "catRangeEndPercent": 20}}"#,
                "lsClass.resctrlQOS: catRangeStartPercent 80",
            ),
            (
                r#"{"lsrClass": {"catRangeEndPercent": 101}}"#,
                "lsrClass.resctrlQOS: catRangeStartPercent 0 to catRangeEndPercent 101",
            ),
            (r#"{"systemClass": {"mbaPercent": 101}}"#, "systemClass.resctrlQOS.mbaPercent: it is 101"),
        ] {
            let classes = classes(json);
            let faults: Vec<String> = Class::EACH.into_iter().filter_map(|class| classes.shared(class).err()).collect();
            assert!(faults.len() == 1 && faults[0].starts_with(field), "{faults:?}");
        }
    }

    #[test]
    fn marks_that_would_take_turns_are_refused() {
        for (json, field) in [
            (r#"{"bandwidthLowPercent": 80}"#, "bandwidthLowPercent is 80 and bandwidthHighPercent 80"),
            (r#"{"occupancyCalmPercent": 50}"#, "occupancyLowPercent is 50 and occupancyCalmPercent 50"),
            (r#"{"cacheStepPercent": 0}"#, "cacheStepPercent is 0"),
            (r#"{"bandwidthFloorPercent": 101}"#, "bandwidthFloorPercent is 101"),
        ] {
            let error = serde_json::from_str::<Settings>(json).unwrap().check().unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
        assert!(serde_json::from_str::<Settings>(r#"{"profil": "dynamic"}"#).is_err());
        assert_eq!(Settings::default().check(), Ok(()));
    }
}
