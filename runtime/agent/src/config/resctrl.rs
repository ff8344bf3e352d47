//! Where resctrl is mounted, and the bandwidth that its shares refer to.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where resctrl is mounted, and the bandwidth that its shares refer to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ResctrlConfig {
    /// The mount point; `None` = where this process sees resctrl mounted. If it is not mounted, it is mounted at its usual place at first
    /// need. An emulation is used only if its path is set here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<MountPoint>,
    /// Memory bandwidth that 100 % stands for, for one cache's cores, in millions of bytes per second; `None` = 20 000 on AMD, whose
    /// processors do not report it. Intel processors take percent.
    #[serde(rename = "fullBandwidthMBps", skip_serializing_if = "Option::is_none")]
    pub full_bandwidth_mbps: Option<NonZeroU32>,
}

/// A mount point as `/proc/self/mountinfo` spells it: absolute, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MountPoint(String);

/// A path that is not a valid mount point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no mount point: expected an absolute path without `.` and `..`, such as /sys/fs/resctrl")]
pub struct NoMountPoint(String);

impl MountPoint {
    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MountPoint {
    type Err = NoMountPoint;

    fn from_str(text: &str) -> Result<Self, NoMountPoint> {
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty()).collect();
        let is_plain = parts.iter().all(|part| !matches!(*part, "." | ".."));
        if text.starts_with('/') && is_plain {
            Ok(Self(format!("/{}", parts.join("/"))))
        } else {
            Err(NoMountPoint(text.to_owned()))
        }
    }
}

impl TryFrom<String> for MountPoint {
    type Error = NoMountPoint;

    fn try_from(text: String) -> Result<Self, NoMountPoint> {
        text.parse()
    }
}

impl From<MountPoint> for String {
    fn from(point: MountPoint) -> Self {
        point.0
    }
}

impl fmt::Display for MountPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_spelled_as_the_kernel_spells_it() {
        for (text, expected) in [
            ("/sys/fs/resctrl", Some("/sys/fs/resctrl")),
            ("/tmp//r/", Some("/tmp/r")),
            ("/", Some("/")),
            ("", None),
            ("resctrl", None),
            ("/tmp/../r", None),
            ("/tmp/./r", None),
        ] {
            let parsed = text.parse::<MountPoint>();
            assert_eq!(parsed.as_ref().ok().map(MountPoint::as_str), expected, "{text:?}");
        }
    }

    #[test]
    fn what_resctrl_is_told_is_read_and_what_cannot_be_is_refused_by_name() {
        let read = |text: &str| serde_json::from_str::<ResctrlConfig>(text);
        let reported = read(r#"{"path": "/mnt/resctrl/", "fullBandwidthMBps": 32000}"#).unwrap();
        assert_eq!(reported.path.unwrap().as_str(), "/mnt/resctrl");
        assert_eq!(reported.full_bandwidth_mbps.map(NonZeroU32::get), Some(32_000));
        assert!(read("{}").unwrap().path.is_none());
        for (text, word) in [
            (r#"{"path": "resctrl"}"#, "no mount point"),
            (r#"{"fullBandwidthMBps": 0}"#, "nonzero"),
            (r#"{"fullBandwidthMbps": 1}"#, "fullBandwidthMBps"),
            (r#"{"mount": true}"#, "unknown field"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
