//! A kubelet's configuration, from its file or its endpoint `/configz`, and the containers that its memory manager bound to NUMA nodes.
//!
//! Kubernetes: `staging/src/k8s.io/kubelet/config/v1beta1/types.go` (KubeletConfiguration),
//! `pkg/kubelet/cm/memorymanager/state/checkpoint.go` (the checkpoint).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Why a file of the kubelet cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletError {
    /// Neither YAML nor JSON, or a field with the wrong type.
    #[error("it is no KubeletConfiguration: {0}")]
    Configuration(String),
    /// YAML of another kind, such as a Pod or a kubeconfig.
    #[error("its kind is `{0}`, not KubeletConfiguration")]
    Kind(String),
    /// A checkpoint that is damaged or has an unknown format.
    #[error("it is no checkpoint of the kubelet's: {0}")]
    Checkpoint(#[from] serde_json::Error),
}

/// The fields of a KubeletConfiguration that decide what the kubelet writes to cgroups. `None` means the kubelet's default, which
/// its file does not contain; `/configz` has every field.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    /// `systemd` or `cgroupfs`. Since Kubernetes 1.31 the container runtime's driver counts instead, if the runtime reports one.
    pub cgroup_driver: Option<String>,
    /// The cgroup above kubepods; `/` if empty.
    pub cgroup_root: Option<String>,
    /// `none` or `static`.
    pub cpu_manager_policy: Option<String>,
    /// `None` or `Static`.
    pub memory_manager_policy: Option<String>,
    /// `none`, `best-effort`, `restricted` or `single-numa-node`.
    pub topology_manager_policy: Option<String>,
    /// Amounts reserved for the system, by resource.
    pub system_reserved: BTreeMap<String, Value>,
    /// Amounts reserved for the kubelet and the runtime, by resource.
    pub kube_reserved: BTreeMap<String, Value>,
    /// CPUs reserved for the system: the CPU manager gives them to no container exclusively.
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: Option<String>,
    /// Feature gates that are set explicitly.
    pub feature_gates: BTreeMap<String, bool>,
    /// Position between request and limit at which MemoryQoS sets `memory.high`, from 0 to 1.
    pub memory_throttling_factor: Option<f64>,
    /// `None` or `TieredReservation`: whether MemoryQoS writes `memory.min` and `memory.low`.
    pub memory_reservation_policy: Option<String>,
}

impl KubeletConfiguration {
    /// Reads the kubelet's file, or the response of `/configz`, which has the configuration in the field `kubeletconfig`.
    ///
    /// # Errors
    ///
    /// [`KubeletError`] if the text is something else.
    pub fn parse(text: &str) -> Result<Self, KubeletError> {
        let wrong = |error: &dyn std::fmt::Display| KubeletError::Configuration(error.to_string());
        let mut value: Value = serde_saphyr::from_str(text).map_err(|error| wrong(&error))?;
        let served = value.get_mut("kubeletconfig").map(Value::take);
        // `/configz` leaves the kind out.
        if served.is_none() {
            let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
            if kind != "KubeletConfiguration" {
                return Err(KubeletError::Kind(kind.to_owned()));
            }
        }
        let mut value = served.unwrap_or(value);
        // A field without a value counts as absent, as for the kubelet.
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        let mut read: Self = serde_path_to_error::deserialize(value).map_err(|error| wrong(&error))?;
        read.cgroup_driver = read.cgroup_driver.filter(|driver| !driver.is_empty());
        Ok(read)
    }

    /// Whether the feature gate MemoryQoS is set; `None` means the default of the kubelet's version (on from 1.37).
    pub fn memory_qos(&self) -> Option<bool> {
        self.feature_gates.get("MemoryQoS").copied()
    }
}

/// The memory manager's checkpoint, `memory_manager_state`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryManagerState {
    /// `None` or `Static`.
    pub policy: String,
    /// Number of containers whose memory is bound to NUMA nodes.
    pub pinned: usize,
}

impl MemoryManagerState {
    /// Reads the checkpoint.
    ///
    /// # Errors
    ///
    /// [`KubeletError::Checkpoint`].
    pub fn parse(text: &str) -> Result<Self, KubeletError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Checkpoint {
            policy_name: String,
            #[serde(default)]
            entries: BTreeMap<String, BTreeMap<String, Value>>,
        }
        let checkpoint: Checkpoint = serde_json::from_str(text)?;
        Ok(Self { policy: checkpoint.policy_name, pinned: checkpoint.entries.values().map(BTreeMap::len).sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
cpuManagerPolicy: static
reservedSystemCPUs: 0-1
systemReserved: {cpu: 100m, memory: 128Mi}
featureGates: {MemoryQoS: true}
memoryThrottlingFactor: 0.9
memoryReservationPolicy: TieredReservation
";

    #[test]
    fn the_file_and_configz_say_the_same() {
        let of_file = KubeletConfiguration::parse(FILE).unwrap();
        let mut served: Value = serde_saphyr::from_str(FILE).unwrap();
        let fields = served.as_object_mut().unwrap();
        fields.remove("kind");
        fields.remove("apiVersion");
        let served = serde_json::json!({"kubeletconfig": served}).to_string();
        assert_eq!(KubeletConfiguration::parse(&served).unwrap(), of_file);
        assert_eq!(of_file.cgroup_driver.as_deref(), Some("systemd"));
        assert_eq!(of_file.reserved_system_cpus.as_deref(), Some("0-1"));
        assert_eq!(of_file.memory_qos(), Some(true));
        assert_eq!(of_file.memory_throttling_factor, Some(0.9));
        assert_eq!(of_file.cgroup_root, None);
    }

    #[test]
    fn a_field_without_a_value_counts_as_absent() {
        let text =
            "kind: KubeletConfiguration\nfeatureGates:\nsystemReserved:\ncgroupDriver: ''\ncpuManagerPolicy: static\n";
        let expected =
            KubeletConfiguration { cpu_manager_policy: Some("static".to_owned()), ..KubeletConfiguration::default() };
        assert_eq!(KubeletConfiguration::parse(text).unwrap(), expected);
    }

    #[test]
    fn other_files_are_named_for_what_they_are() {
        for (text, said) in [
            ("kind: Pod", "its kind is `Pod`, not KubeletConfiguration"),
            ("", "its kind is ``, not KubeletConfiguration"),
            ("kind: KubeletConfiguration\ncgroupDriver: [1]", "cgroupDriver: invalid type"),
            ("kind: KubeletConfiguration\nfeatureGates: {MemoryQoS: 1}", "featureGates.MemoryQoS: invalid type"),
            ("{", "it is no KubeletConfiguration"),
        ] {
            let error = KubeletConfiguration::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }

    #[test]
    fn the_memory_managers_checkpoint_counts_containers() {
        let text = r#"{"policyName":"Static","machineState":{},"entries":{"uid":{"a":[{"numaAffinity":[0],"type":"memory","size":1}]}},"checksum":1}"#;
        let expected = MemoryManagerState { policy: "Static".to_owned(), pinned: 1 };
        assert_eq!(MemoryManagerState::parse(text).unwrap(), expected);
        let none = MemoryManagerState { policy: "None".to_owned(), pinned: 0 };
        assert_eq!(MemoryManagerState::parse(r#"{"policyName":"None","machineState":{},"checksum":1}"#).unwrap(), none);
        assert!(MemoryManagerState::parse("{}").is_err());
    }
}
