//! Block devices and volumes of pods, in the format of facts and recordings.

use qosm_model::block_io::{BlockDevice, DeviceNumber};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A whole disk, or what the kernel presents as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DeviceFacts {
    /// Major and minor number of the device, e.g. `8:16`.
    pub device: Numbers,
    /// Names of the device below `/dev`, the kernel's own name first.
    pub names: Vec<String>,
    /// The names of its partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<String>,
    /// LVM volume groups that have data on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_groups: Vec<String>,
    /// The device's line of `io.cost.qos` without qosm, after the device number; `None` = no line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_qos: Option<String>,
    /// The same for `io.cost.model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_model: Option<String>,
}

/// A volume of a pod on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct VolumeFacts {
    /// `namespace/name`.
    pub pod: String,
    /// Name of the volume's directory at the kubelet.
    pub name: String,
    /// The numbers of the disk.
    pub device: Numbers,
}

/// The numbers of a device, written `8:16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers(pub DeviceNumber);

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl From<&BlockDevice> for DeviceFacts {
    fn from(device: &BlockDevice) -> Self {
        let BlockDevice { number, names, partitions, volume_groups } = device.clone();
        Self { device: Numbers(number), names, partitions, volume_groups, cost_qos: None, cost_model: None }
    }
}

impl From<&DeviceFacts> for BlockDevice {
    fn from(facts: &DeviceFacts) -> Self {
        let DeviceFacts { device, names, partitions, volume_groups, .. } = facts.clone();
        Self { number: device.0, names, partitions, volume_groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_reads_back_and_a_number_that_is_none_is_named() {
        let text = r#"{"device":"8:16","names":["sdb"],"volumeGroups":["data"],"costQos":"enable=1 ctrl=auto"}"#;
        let facts: DeviceFacts = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&facts).unwrap(), text);
        let again = DeviceFacts { cost_qos: facts.cost_qos.clone(), ..DeviceFacts::from(&BlockDevice::from(&facts)) };
        assert_eq!(again, facts);
        let error = serde_json::from_str::<DeviceFacts>(r#"{"device":"sdb","names":[]}"#).unwrap_err();
        assert!(error.to_string().contains("`sdb` are no numbers of a device, such as `8:16`"), "{error}");
    }
}
