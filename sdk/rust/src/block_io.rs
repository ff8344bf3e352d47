//! Block devices and their settings: parsing, formatting and the knobs.

use std::fmt;
use std::str::FromStr;

use crate::{IoCostModel, IoCostQos, IoDevice, IoLatency, IoLimits};

impl fmt::Display for IoDevice {
    /// `MAJOR:MINOR`, as the kernel prints device numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for IoDevice {
    type Err = String;

    /// Parses `MAJOR:MINOR`.
    ///
    /// ```
    /// use qosm_sdk::IoDevice;
    ///
    /// assert_eq!("8:16".parse(), Ok(IoDevice { major: 8, minor: 16 }));
    /// assert!("sdb".parse::<IoDevice>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        text.split_once(':')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| format!("`{text}` are no numbers of a device, such as `8:16`"))
    }
}

impl IoLimits {
    /// No limits; the base of `IoLimits { read_bps: Some(1 << 20), ..IoLimits::NONE }`.
    ///
    /// ```
    /// use qosm_sdk::IoLimits;
    ///
    /// let wanted = IoLimits { write_iops: Some(120), ..IoLimits::NONE };
    /// assert_eq!(wanted.to_string(), "rbps=max wbps=max riops=max wiops=120");
    /// ```
    pub const NONE: Self = Self { read_bps: None, write_bps: None, read_iops: None, write_iops: None };

    /// Drops the limits that the kernel treats as unlimited; it counts operations in 32 bits.
    pub(crate) fn in_force(self) -> Self {
        let bps = |limit: Option<u64>| limit.filter(|limit| *limit != u64::MAX);
        let iops = |limit: Option<u64>| limit.filter(|limit| *limit < u64::from(u32::MAX));
        Self {
            read_bps: bps(self.read_bps),
            write_bps: bps(self.write_bps),
            read_iops: iops(self.read_iops),
            write_iops: iops(self.write_iops),
        }
    }
}

impl fmt::Display for IoLimits {
    /// In the format of `io.max`, without the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("rbps", self.read_bps),
            (" wbps", self.write_bps),
            (" riops", self.read_iops),
            (" wiops", self.write_iops),
        ];
        for (name, limit) in fields {
            match limit {
                Some(limit) => write!(f, "{name}={limit}")?,
                None => write!(f, "{name}=max")?,
            }
        }
        Ok(())
    }
}

/// Hundredths of a percent, printed as the kernel prints percentages.
struct Percent(u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl fmt::Display for IoCostQos {
    /// In the format of `io.cost.qos`, without the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enable={}", u8::from(self.enabled))?;
        let Some(latency) = self.latency else { return f.write_str(" ctrl=auto") };
        let IoLatency { read_permyriad, read_latency_usec, write_permyriad, write_latency_usec, min, max } = latency;
        let (read_permyriad, write_permyriad) = (Percent(read_permyriad), Percent(write_permyriad));
        let (min, max) = (Percent(min), Percent(max));
        write!(f, " ctrl=user rpct={read_permyriad} rlat={read_latency_usec} wpct={write_permyriad} ")?;
        write!(f, "wlat={write_latency_usec} min={min} max={max}")
    }
}

impl fmt::Display for IoCostModel {
    /// In the format of `io.cost.model`, without the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read_bps, read_seq_iops, read_rand_iops, write_bps, write_seq_iops, write_rand_iops } = self;
        write!(f, "ctrl=user model=linear rbps={read_bps} rseqiops={read_seq_iops} rrandiops={read_rand_iops} ")?;
        write!(f, "wbps={write_bps} wseqiops={write_seq_iops} wrandiops={write_rand_iops}")
    }
}

/// The kind of a block device setting.
///
/// ```
/// use qosm_sdk::mock::IoKnob;
///
/// assert_eq!(IoKnob::Max.as_str(), "io.max");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoKnob {
    /// `io.max`: limits of a cgroup.
    Max,
    /// `io.weight`: the share of a cgroup.
    Weight,
    /// `io.cost.qos`: whether the cost model is enabled, for the whole node.
    CostQos,
    /// `io.cost.model`: the speed of the device, for the whole node.
    CostModel,
}

impl IoKnob {
    /// All kinds.
    ///
    /// ```
    /// use qosm_sdk::mock::IoKnob;
    ///
    /// assert_eq!(IoKnob::ALL.map(IoKnob::as_str), ["io.max", "io.weight", "io.cost.qos", "io.cost.model"]);
    /// ```
    pub const ALL: [Self; 4] = [Self::Max, Self::Weight, Self::CostQos, Self::CostModel];

    /// The name in plans and metrics; plans append the device.
    ///
    /// ```
    /// use qosm_sdk::mock::IoKnob;
    ///
    /// assert_eq!(IoKnob::CostQos.as_str(), "io.cost.qos");
    /// ```
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Max => "io.max",
            Self::Weight => "io.weight",
            Self::CostQos => "io.cost.qos",
            Self::CostModel => "io.cost.model",
        }
    }
}

/// The value that is held of a device setting.
///
/// ```
/// use qosm_sdk::IoLimits;
/// use qosm_sdk::mock::IoValue;
///
/// let limits = IoLimits { read_bps: Some(1_048_576), ..IoLimits::NONE };
/// assert_eq!(IoValue::Limits(limits).to_string(), "rbps=1048576 wbps=max riops=max wiops=max");
/// assert_eq!(IoValue::Weight(200).to_string(), "200");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoValue {
    /// Value of [`IoKnob::Max`].
    Limits(IoLimits),
    /// Value of [`IoKnob::Weight`].
    Weight(u32),
    /// Value of [`IoKnob::CostQos`].
    CostQos(IoCostQos),
    /// Value of [`IoKnob::CostModel`].
    CostModel(IoCostModel),
}

impl IoValue {
    /// The kind of setting that this value belongs to.
    ///
    /// ```
    /// use qosm_sdk::mock::{IoKnob, IoValue};
    ///
    /// assert_eq!(IoValue::Weight(200).knob(), IoKnob::Weight);
    /// ```
    #[must_use]
    pub fn knob(self) -> IoKnob {
        match self {
            Self::Limits(_) => IoKnob::Max,
            Self::Weight(_) => IoKnob::Weight,
            Self::CostQos(_) => IoKnob::CostQos,
            Self::CostModel(_) => IoKnob::CostModel,
        }
    }
}

impl fmt::Display for IoValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(limits) => limits.fmt(f),
            Self::Weight(weight) => weight.fmt(f),
            Self::CostQos(qos) => qos.fmt(f),
            Self::CostModel(model) => model.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_back() {
        let device = IoDevice { major: 259, minor: 1_048_575 };
        assert_eq!(device.to_string().parse(), Ok(device));
        for text in ["", "8", "8:", ":1", "8:16:1", "8:+1", "-1:0", "a:b", "4294967296:0", " 8:1"] {
            assert!(text.parse::<IoDevice>().is_err(), "{text}");
        }
    }

    #[test]
    fn lines_are_those_of_the_kernel() {
        let latency = IoLatency {
            read_permyriad: 9500,
            read_latency_usec: 3000,
            write_permyriad: 9505,
            write_latency_usec: 4000,
            min: 100,
            max: 1_000_000,
        };
        let qos = |enabled, latency| IoCostQos { enabled, latency }.to_string();
        assert_eq!(qos(false, None), "enable=0 ctrl=auto");
        let expected = "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.05 wlat=4000 min=1.00 max=10000.00";
        assert_eq!(qos(true, Some(latency)), expected);
        let model = IoCostModel {
            read_bps: 1,
            read_seq_iops: 2,
            read_rand_iops: 3,
            write_bps: 4,
            write_seq_iops: 5,
            write_rand_iops: 6,
        };
        let expected = "ctrl=user model=linear rbps=1 rseqiops=2 rrandiops=3 wbps=4 wseqiops=5 wrandiops=6";
        assert_eq!(model.to_string(), expected);
    }

    #[test]
    fn what_the_kernel_takes_for_no_limit_is_none() {
        let most = u64::from(u32::MAX);
        let limits = IoLimits {
            read_bps: Some(u64::MAX),
            write_bps: Some(u64::MAX - 1),
            read_iops: Some(most),
            write_iops: Some(most - 1),
        };
        let in_force = IoLimits { read_bps: None, read_iops: None, ..limits };
        assert_eq!(limits.in_force(), in_force);
    }
}
