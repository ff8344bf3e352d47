//! Memory bandwidth of resctrl's `MB` and `SMBA`, whose unit depends on the vendor.

use std::fmt;

use super::error::ResctrlError;
use super::info::BandwidthInfo;
use super::resource::BandwidthResource;

/// The number in a bandwidth line of `schemata`, in units of [`BandwidthUnit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(pub u32);

impl Bandwidth {
    /// Parses decimal digits with optional white space around them.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_decimal { text.parse().ok().map(Self) } else { None }
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The unit of a [`Bandwidth`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BandwidthUnit {
    /// Percent of a class's maximum, enforced by delaying its requests (Intel). Not proportional to bytes.
    Percent,
    /// Eighths of a gigabyte per second (AMD).
    EighthsOfGigabyte,
    /// MB/s as the kernel defines them, bytes per second divided by 2²⁰, if resctrl is mounted with `mba_MBps`. The
    /// kernel adjusts the limit towards it once a second.
    MegabytesPerSecond,
}

/// A share of the memory bandwidth, 1 to 100 percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

impl Percent {
    /// 100 percent: no limit.
    pub const ALL: Self = Self(100);

    /// Creates a share from 1 to 100 percent.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Percent`] for 0 and for more than 100.
    pub const fn new(percent: u8) -> Result<Self, ResctrlError> {
        if matches!(percent, 1..=100) { Ok(Self(percent)) } else { Err(ResctrlError::Percent { percent }) }
    }

    /// The number of percent.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// This share of `full`, rounded down.
    fn of(self, full: u32) -> u32 {
        u32::try_from(u64::from(full) * u64::from(self.0) / 100).unwrap_or(full)
    }
}

/// 20 GB/s in eighths: a load gets about four fifths of the 25 GB/s that the cores of one cache had on an EPYC 7003. Other models differ.
const USUAL_EIGHTHS: u32 = 160;

impl BandwidthInfo {
    /// Converts a share of the bandwidth to a value. 100 % gives the maximum, which lifts the limit in every unit.
    ///
    /// `full` is the bandwidth of all cores of a cache together, in [`BandwidthInfo::unit`]; it is configured or
    /// measured, since processors do not report it. It is not needed for percent; for eighths of a gigabyte it defaults
    /// to 160.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::NotLinear`] for a processor whose values are not percentages, [`ResctrlError::FullBandwidth`]
    /// without `full` if the unit is MB/s.
    pub fn share(&self, percent: Percent, full: Option<Bandwidth>) -> Result<Bandwidth, ResctrlError> {
        let resource = self.resource;
        if self.unit == BandwidthUnit::Percent && !self.delay_linear {
            return Err(ResctrlError::NotLinear { resource });
        }
        if percent == Percent::ALL {
            return Ok(self.maximum);
        }
        let value = match self.unit {
            BandwidthUnit::Percent => u32::from(percent.value()),
            BandwidthUnit::EighthsOfGigabyte => percent.of(full.map_or(USUAL_EIGHTHS, |full| full.0)),
            BandwidthUnit::MegabytesPerSecond => {
                percent.of(full.ok_or(ResctrlError::FullBandwidth { resource, percent })?.0)
            }
        };
        // A value of 0 would take all bandwidth away.
        Ok(self.accepted(Bandwidth(value.max(1))))
    }

    /// The value that the kernel will store: brought into range, and rounded up to a multiple of `bandwidth_gran`.
    /// `schemata` shows this value, so compare only this value with it.
    pub fn accepted(&self, value: Bandwidth) -> Bandwidth {
        if self.unit == BandwidthUnit::MegabytesPerSecond {
            return value;
        }
        let value = value.0.max(self.min_bandwidth).min(self.maximum.0);
        let rounded = value.checked_next_multiple_of(self.bandwidth_gran.max(1)).unwrap_or(self.maximum.0);
        Bandwidth(rounded.min(self.maximum.0))
    }
}

impl BandwidthResource {
    /// The value that lifts the limit: 100 %, 2048 eighths of a gigabyte or the root's value if that is larger, and the
    /// largest number of MB/s.
    pub(crate) fn maximum(unit: BandwidthUnit, of_root: Option<Bandwidth>) -> Bandwidth {
        const AMD: Bandwidth = Bandwidth(2048);
        match unit {
            BandwidthUnit::Percent => Bandwidth(100),
            // Later models have more bits, and a fresh root has the maximum.
            BandwidthUnit::EighthsOfGigabyte => of_root.map_or(AMD, |root| root.max(AMD)),
            BandwidthUnit::MegabytesPerSecond => Bandwidth(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(unit: BandwidthUnit, min_bandwidth: u32, bandwidth_gran: u32) -> BandwidthInfo {
        BandwidthInfo {
            resource: BandwidthResource::Memory,
            num_closids: 8,
            min_bandwidth,
            bandwidth_gran,
            delay_linear: true,
            thread_throttle_mode: None,
            unit,
            maximum: BandwidthResource::maximum(unit, None),
            ids: Vec::new(),
        }
    }

    #[test]
    fn each_unit_has_its_share() {
        use BandwidthUnit::{EighthsOfGigabyte, MegabytesPerSecond, Percent as InPercent};
        let percent = info(InPercent, 10, 10);
        let coarse = info(InPercent, 30, 15);
        let amd = info(EighthsOfGigabyte, 0, 1);
        let megabytes = info(MegabytesPerSecond, 10, 10);
        for (info, share, full, expected) in [
            (&percent, 1, None, 10),
            (&percent, 10, None, 10),
            (&percent, 35, None, 40),
            (&percent, 91, None, 100),
            (&percent, 100, None, 100),
            (&coarse, 20, None, 30),
            (&coarse, 31, None, 45),
            (&coarse, 95, None, 100),
            (&amd, 35, None, 56),
            (&amd, 1, None, 1),
            (&amd, 1, Some(50), 1),
            (&amd, 50, Some(301), 150),
            (&amd, 99, Some(4000), 2048),
            (&amd, 100, Some(301), 2048),
            (&megabytes, 25, Some(40_001), 10_000),
            (&megabytes, 100, None, u32::MAX),
            (&megabytes, 99, Some(u32::MAX), 4_252_017_622),
        ] {
            let got = info.share(Percent::new(share).unwrap(), full.map(Bandwidth)).unwrap();
            assert_eq!(got.0, expected, "{share} % in {:?}", info.unit);
        }
    }

    #[test]
    fn a_percentage_without_a_value_is_an_error() {
        let half = Percent::new(50).unwrap();
        let error = info(BandwidthUnit::MegabytesPerSecond, 10, 10).share(half, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "50 % of MB cannot be converted to MB/s: configure the full bandwidth of a cache's cores, or mount resctrl without mba_MBps"
        );
        let unlike = BandwidthInfo { delay_linear: false, ..info(BandwidthUnit::Percent, 10, 10) };
        assert!(matches!(unlike.share(half, None), Err(ResctrlError::NotLinear { .. })));
        for percent in [0, 101, 255] {
            assert!(Percent::new(percent).is_err(), "{percent}");
        }
    }

    #[test]
    fn a_root_with_more_bits_says_what_unlimited_is() {
        let maximum = |root| BandwidthResource::maximum(BandwidthUnit::EighthsOfGigabyte, root).0;
        assert_eq!([maximum(None), maximum(Some(Bandwidth(16))), maximum(Some(Bandwidth(4096)))], [2048, 2048, 4096]);
    }

    proptest! {
        #[test]
        fn a_share_is_accepted_as_it_is(percent in 1_u8..=100, min in 0_u32..=100, gran in 0_u32..=50, full: u32, amd: bool) {
            let unit = if amd { BandwidthUnit::EighthsOfGigabyte } else { BandwidthUnit::Percent };
            let info = info(unit, min, gran);
            let share = info.share(Percent::new(percent).unwrap(), Some(Bandwidth(full))).unwrap();
            prop_assert_eq!(info.accepted(share), share);
            prop_assert!(share.0 >= min.max(1) && share <= info.maximum);
            prop_assert!(share.0.is_multiple_of(gran.max(1)) || share == info.maximum);
        }
    }
}
