//! Block I/O: devices, and a cgroup's limits on them. Values are spelled as in the kernel's files
//! (Documentation/admin-guide/cgroup-v2.rst, "IO").

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::pod::PodId;

/// A block device by its numbers in the kernel. Limits apply to whole disks, never to partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// No particular device, for a kind of knob on all devices. No device in the kernel has the numbers 0:0.
    pub const NONE: Self = Self { major: 0, minor: 0 };
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A text that is not the numbers of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` are no numbers of a device, such as `8:16`")]
pub struct NotADevice(pub String);

impl FromStr for DeviceNumber {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        text.split_once(':')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| NotADevice(text.to_owned()))
    }
}

/// A cgroup's limits on one device: a line of `io.max`. `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoLimits {
    /// Bytes read per second.
    pub read_bps: Option<u64>,
    /// Bytes written per second.
    pub write_bps: Option<u64>,
    /// Reads per second.
    pub read_iops: Option<u64>,
    /// Writes per second.
    pub write_iops: Option<u64>,
}

impl IoLimits {
    /// The smallest value that the kernel accepts for any of the limits (`tg_set_limit` of block/blk-throttle.c).
    pub const LEAST: u64 = 2;

    /// The limits with their names in the file.
    pub fn fields(self) -> [(&'static str, Option<u64>); 4] {
        [("rbps", self.read_bps), ("wbps", self.write_bps), ("riops", self.read_iops), ("wiops", self.write_iops)]
    }

    /// Whether there is no limit.
    pub fn is_unlimited(self) -> bool {
        self == Self::default()
    }
}

impl fmt::Display for IoLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, limit)) in self.fields().into_iter().enumerate() {
            let blank = if place == 0 { "" } else { " " };
            match limit {
                Some(limit) => write!(f, "{blank}{name}={limit}")?,
                None => write!(f, "{blank}{name}=max")?,
            }
        }
        Ok(())
    }
}

/// Hundredths of a percent, the unit in which the kernel counts percentages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hundredths(pub u32);

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.0 / 100, self.0 % 100)
    }
}

impl Hundredths {
    fn parse(text: &str) -> Option<Self> {
        let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(rest) {
            return None;
        }
        let rest: u32 = match rest.len() {
            1 => rest.parse::<u32>().ok()?.checked_mul(10)?,
            _ => rest.get(..2)?.parse().ok()?,
        };
        whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(rest).map(Self)
    }
}

/// Latency targets that the cost model enforces by throttling cgroups: the parameters of a line of `io.cost.qos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoLatency {
    /// Share of the reads that must finish within [`IoLatency::read_latency`].
    pub read_permyriad: Hundredths,
    /// Latency in microseconds.
    pub read_latency: u32,
    /// Share of the writes that must finish within [`IoLatency::write_latency`].
    pub write_permyriad: Hundredths,
    /// Latency in microseconds.
    pub write_latency: u32,
    /// Lowest speed that the controller chooses, relative to the model's.
    pub min: Hundredths,
    /// Highest speed that the controller chooses, relative to the model's.
    pub max: Hundredths,
}

/// A line of `io.cost.qos`: whether the cost model is enabled for a device, and its latency targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoCostQos {
    /// Whether the cost model is enabled.
    pub is_enabled: bool,
    /// Latency targets; `None` if the kernel chooses them by the kind of the device (`ctrl=auto`).
    pub latency: Option<IoLatency>,
}

impl fmt::Display for IoCostQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enable={}", u8::from(self.is_enabled))?;
        let Some(latency) = self.latency else { return f.write_str(" ctrl=auto") };
        let IoLatency { read_permyriad, read_latency, write_permyriad, write_latency, min, max } = latency;
        write!(
            f,
            " ctrl=user rpct={read_permyriad} rlat={read_latency} wpct={write_permyriad} wlat={write_latency} min={min} max={max}"
        )
    }
}

/// The maximum performance of a device: the parameters of a line of `io.cost.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoCostModel {
    /// Bytes read per second.
    pub read_bps: u64,
    /// Sequential reads of 4 KiB per second.
    pub read_seq_iops: u64,
    /// Random reads of 4 KiB per second.
    pub read_rand_iops: u64,
    /// Bytes written per second.
    pub write_bps: u64,
    /// Sequential writes of 4 KiB per second.
    pub write_seq_iops: u64,
    /// Random writes of 4 KiB per second.
    pub write_rand_iops: u64,
}

impl fmt::Display for IoCostModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ctrl=user model=linear rbps={} rseqiops={} rrandiops={} wbps={} wseqiops={} wrandiops={}",
            self.read_bps,
            self.read_seq_iops,
            self.read_rand_iops,
            self.write_bps,
            self.write_seq_iops,
            self.write_rand_iops
        )
    }
}

/// A text that is not the value of a device in one of these files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not what the kernel's file says of a device")]
pub struct NotALine(pub String);

/// The `NAME=VALUE` words of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
    }
}

impl FromStr for IoLimits {
    type Err = NotALine;

    /// Parses what [`IoLimits`] prints, the part of a line of `io.max` after the device's numbers.
    fn from_str(text: &str) -> Result<Self, NotALine> {
        let words = Words(text);
        let limit = |name| match words.get(name)? {
            "max" => Some(None),
            _ => Some(Some(words.number(name)?)),
        };
        let limits = || {
            Some(Self {
                read_bps: limit("rbps")?,
                write_bps: limit("wbps")?,
                read_iops: limit("riops")?,
                write_iops: limit("wiops")?,
            })
        };
        limits().ok_or_else(|| NotALine(text.to_owned()))
    }
}

impl FromStr for IoCostQos {
    type Err = NotALine;

    /// Parses what [`IoCostQos`] prints, and the part of a line of `io.cost.qos` after the device's numbers.
    fn from_str(text: &str) -> Result<Self, NotALine> {
        let words = Words(text);
        let percent = |name| Hundredths::parse(words.get(name)?);
        let latency = || {
            Some(IoLatency {
                read_permyriad: percent("rpct")?,
                read_latency: words.number("rlat")?,
                write_permyriad: percent("wpct")?,
                write_latency: words.number("wlat")?,
                min: percent("min")?,
                max: percent("max")?,
            })
        };
        let qos = || {
            let is_enabled = match words.get("enable")? {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            let latency = match words.get("ctrl")? {
                "auto" => None,
                "user" => Some(latency()?),
                _ => return None,
            };
            Some(Self { is_enabled, latency })
        };
        qos().ok_or_else(|| NotALine(text.to_owned()))
    }
}

impl FromStr for IoCostModel {
    type Err = NotALine;

    /// Parses what [`IoCostModel`] prints, and the part of a line of `io.cost.model` after the device's numbers. A model
    /// that the kernel chose (`ctrl=auto`) is an error.
    fn from_str(text: &str) -> Result<Self, NotALine> {
        let words = Words(text);
        let model = || {
            if (words.get("ctrl"), words.get("model")) != (Some("user"), Some("linear")) {
                return None;
            }
            Some(Self {
                read_bps: words.number("rbps")?,
                read_seq_iops: words.number("rseqiops")?,
                read_rand_iops: words.number("rrandiops")?,
                write_bps: words.number("wbps")?,
                write_seq_iops: words.number("wseqiops")?,
                write_rand_iops: words.number("wrandiops")?,
            })
        };
        model().ok_or_else(|| NotALine(text.to_owned()))
    }
}

/// A whole disk, or a device that the kernel presents as one, such as a logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its numbers.
    pub number: DeviceNumber,
    /// Its names below `/dev`: first the kernel's name (`sda`, `dm-0`), then those of device mapper (`mapper/data-logs`,
    /// `data/logs`).
    pub names: Vec<String>,
    /// The names of its partitions below `/dev`.
    pub partitions: Vec<String>,
    /// LVM volume groups that have data on it.
    pub volume_groups: Vec<String>,
}

/// A volume of a pod that has its own file system on a block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodVolume {
    /// The pod.
    pub pod: PodId,
    /// The name of its directory at the kubelet: that of the persistent volume, or for an ephemeral volume its name in the pod.
    pub name: String,
    /// The whole disk that holds it.
    pub device: DeviceNumber,
}

/// The node's block devices, and the volumes of pods on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDevices {
    /// The devices, ordered by their numbers.
    pub devices: Arc<[BlockDevice]>,
    /// The volumes, in no particular order.
    pub volumes: Arc<[PodVolume]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_device_read_back() {
        let device = DeviceNumber { major: 259, minor: 1_048_575 };
        assert_eq!(device.to_string().parse(), Ok(device));
        for text in ["", "8", "8:", ":1", "8:16:1", "8:+1", "-1:0", "a:b", "4294967296:0"] {
            assert_eq!(text.parse::<DeviceNumber>(), Err(NotADevice(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn lines_read_back() {
        let limits = IoLimits { read_bps: Some(2_097_152), write_iops: Some(120), ..IoLimits::default() };
        assert_eq!(limits.to_string(), "rbps=2097152 wbps=max riops=max wiops=120");
        assert_eq!(limits.to_string().parse(), Ok(limits));
        for is_enabled in [false, true] {
            for latency in [None, Some(latency())] {
                let qos = IoCostQos { is_enabled, latency };
                assert_eq!(qos.to_string().parse(), Ok(qos));
            }
        }
        let model = IoCostModel {
            read_bps: 2_706_339_840,
            read_seq_iops: 89_698,
            read_rand_iops: 110_036,
            write_bps: 1_063_126_016,
            write_seq_iops: 135_560,
            write_rand_iops: 130_734,
        };
        assert_eq!(model.to_string().parse(), Ok(model));
    }

    fn latency() -> IoLatency {
        IoLatency {
            read_permyriad: Hundredths(9500),
            read_latency: 3000,
            write_permyriad: Hundredths(9505),
            write_latency: 4000,
            min: Hundredths(5000),
            max: Hundredths(15_000),
        }
    }

    #[test]
    fn what_the_kernel_prints_is_read_in_any_order() {
        let line = "enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.05 wlat=4000 min=50.00 max=150.00";
        assert_eq!(line.parse(), Ok(IoCostQos { is_enabled: true, latency: Some(latency()) }));
        // Parameters that the kernel chose are not parsed as the operator's.
        let auto = "enable=1 ctrl=auto rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=1.00 max=10000.00";
        assert_eq!(auto.parse(), Ok(IoCostQos { is_enabled: true, latency: None }));
        let auto = "ctrl=auto model=linear rbps=174019176 rseqiops=41708 rrandiops=370 wbps=178075866 wseqiops=42705 wrandiops=378";
        assert!(auto.parse::<IoCostModel>().is_err());
        assert_eq!("wiops=9 riops=max wbps=8 rbps=7".parse::<IoLimits>().map(|limits| limits.write_iops), Ok(Some(9)));
        for text in ["", "rbps=1", "rbps=-1 wbps=max riops=max wiops=max", "rbps= wbps=max riops=max wiops=max"] {
            assert!(text.parse::<IoLimits>().is_err(), "{text}");
        }
        for text in ["enable=2 ctrl=auto", "enable=1", "enable=1 ctrl=user rpct=95.00", "enable=1 ctrl=other"] {
            assert!(text.parse::<IoCostQos>().is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_are_read_to_the_hundredth() {
        for (text, hundredths) in [("95", 9500), ("95.5", 9550), ("95.05", 9505), ("0.009", 0), ("1.00", 100)] {
            assert_eq!(Hundredths::parse(text), Some(Hundredths(hundredths)), "{text}");
        }
        for text in ["", ".5", "5.", "1,5", "-1.0", "42949673.00", "1.é"] {
            assert_eq!(Hundredths::parse(text), None, "{text}");
        }
    }
}
