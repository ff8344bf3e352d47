//! Koordinator's annotations of nodes and pods about CPUs. Parse them when an annotation changes, not at every tick.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::json::with_names;
use crate::set::{CpuListError, CpuSet};

/// Node annotation: CPUs and amounts of resources kept from pods. Source: koordinator `apis/extension/node_reservation.go`.
pub const RESERVATION: &str = "node.koordinator.sh/reservation";
/// Node annotation: CPUs of the QoS class SYSTEM. Source: koordinator `apis/extension/system_qos.go`.
pub const SYSTEM_QOS: &str = "node.koordinator.sh/system-qos-resource";
/// Pod annotation: the scheduler's choice of CPUs and NUMA nodes. Source: koordinator `apis/extension/numa_aware.go`.
pub const RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";

/// Maximum length of an annotation that is read, in bytes. A pod's owner may write 256 KiB, which would take the time of an evaluation.
pub const MAX_ANNOTATION_BYTES: usize = 4096;

/// An annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationError {
    /// Key of the annotation.
    pub key: &'static str,
    /// The field that is wrong; empty if the annotation as a whole cannot be read.
    pub field: &'static str,
    /// What is wrong with it.
    pub fault: String,
}

impl fmt::Display for AnnotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, field, fault } = self;
        match *field {
            "" => write!(f, "annotation `{key}` cannot be read: {fault}"),
            field => write!(f, "annotation `{key}`, field `{field}`: {fault}"),
        }
    }
}

impl std::error::Error for AnnotationError {}

/// Reads an annotation that is a JSON object. The field names in `names` match in any letter case, as in koordinator's decoder.
///
/// # Errors
///
/// Fails if the text is not a JSON object of this shape, or has more than 4096 bytes.
pub fn read<T: DeserializeOwned>(key: &'static str, text: &str, names: &[&str]) -> Result<T, AnnotationError> {
    if text.len() > MAX_ANNOTATION_BYTES {
        let fault = format!("it has {} bytes, and {MAX_ANNOTATION_BYTES} are read", text.len());
        return Err(AnnotationError { key, field: "", fault });
    }
    let fields = serde_json::from_str(text).map(|fields| Value::Object(with_names(fields, names)));
    let read = fields.and_then(serde_json::from_value);
    read.map_err(|error| AnnotationError { key, field: "", fault: error.to_string() })
}

/// Reads a cpulist; empty if the field is absent or `null`.
fn cpus(key: &'static str, field: &'static str, value: Option<&Value>) -> Result<CpuSet, AnnotationError> {
    let fault = |fault: String| AnnotationError { key, field, fault };
    match value {
        None | Some(Value::Null) => Ok(CpuSet::default()),
        Some(Value::String(text)) => CpuSet::parse(text).map_err(|error: CpuListError| fault(error.to_string())),
        Some(other) => Err(fault(format!("{other} is no cpulist; write one in quotes, such as \"0-3\""))),
    }
}

/// CPUs that a node keeps from pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Thousandths of a CPU: the number of `cpus` if any are named, otherwise the reserved amount.
    pub cpu_milli: u64,
    /// The CPUs that the annotation names.
    pub cpus: CpuSet,
}

impl Reservation {
    /// Reads the annotation [`RESERVATION`].
    ///
    /// # Errors
    ///
    /// Fails if the text is not a JSON object of this shape, has an invalid cpulist, or an invalid amount of CPU.
    pub fn parse(text: &str) -> Result<Self, AnnotationError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            resources: Option<Value>,
            #[serde(rename = "reservedCPUs")]
            reserved_cpus: Option<Value>,
        }
        let wire: Wire = read(RESERVATION, text, &["resources", "reservedCPUs"])?;
        let cpus = cpus(RESERVATION, "reservedCPUs", wire.reserved_cpus.as_ref())?;
        if !cpus.is_empty() {
            let count = u64::try_from(cpus.len()).unwrap_or(u64::MAX);
            return Ok(Self { cpu_milli: count.saturating_mul(1000), cpus });
        }
        let resources = wire.resources.unwrap_or_default();
        if !matches!(resources, Value::Null | Value::Object(_)) {
            let fault = format!("{resources} is no object; write one such as {{\"cpu\": \"2\"}}");
            return Err(AnnotationError { key: RESERVATION, field: "resources", fault });
        }
        let cpu_milli = match resources.get("cpu") {
            None | Some(Value::Null) => 0,
            Some(amount) => milli(amount).ok_or_else(|| AnnotationError {
                key: RESERVATION,
                field: "resources.cpu",
                fault: format!(
                    "{amount} is no amount of CPU; write whole CPUs (\"2\"), parts (\"1.5\") or thousandths (\"1500m\")"
                ),
            })?,
        };
        Ok(Self { cpu_milli, cpus })
    }
}

/// A Kubernetes quantity of CPU in thousandths of a CPU, rounded up and capped as Kubernetes does; `None` if it is invalid or negative. Binary
/// units, which nobody counts CPUs in, are invalid here.
fn milli(amount: &Value) -> Option<u64> {
    let text = match amount {
        // Kubernetes skips blanks around it.
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (digits, power) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 6),
        b'M' => (&text[..text.len() - 1], 9),
        b'G' => (&text[..text.len() - 1], 12),
        b'T' => (&text[..text.len() - 1], 15),
        b'P' => (&text[..text.len() - 1], 18),
        b'm' => (&text[..text.len() - 1], 0),
        b'u' => (&text[..text.len() - 1], -3),
        b'n' => (&text[..text.len() - 1], -6),
        _ => (text.as_str(), 3),
    };
    let (digits, power) = match digits.split_once(['e', 'E']) {
        Some((digits, exponent)) if power == 3 => {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            // With a larger exponent the result is zero or the maximum, whatever the digits are.
            let far = if exponent.starts_with('-') { -MAX_EXPONENT } else { MAX_EXPONENT };
            (digits, power + exponent.parse().unwrap_or(far).clamp(-MAX_EXPONENT, MAX_EXPONENT))
        }
        Some(_) => return None,
        None => (digits, power),
    };
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let part = part.trim_end_matches('0');
    let all = format!("{whole}{part}");
    if all.is_empty() && digits.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) || digits == "." {
        return None;
    }
    let significant = all.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // The digits before the point make the number of thousandths; those after it only round it up.
    let point = i64::from(power) + i64::try_from(significant.len()).ok()? - i64::try_from(part.len()).ok()?;
    let Ok(kept) = usize::try_from(point) else { return Some(1) };
    let (before, after) = significant.split_at(kept.min(significant.len()));
    let zeros = kept - before.len();
    let number = u32::try_from(zeros).ok().and_then(|zeros| 10_u64.checked_pow(zeros)).and_then(|factor| {
        let number: u64 = if before.is_empty() { 0 } else { before.parse().ok()? };
        number.checked_mul(factor)?.checked_add(u64::from(after.bytes().any(|byte| byte != b'0')))
    });
    Some(number.unwrap_or(MAX_MILLI).min(MAX_MILLI))
}

/// Limit of exponents: a larger one turns any number that fits into an annotation into zero or the maximum.
const MAX_EXPONENT: i32 = 1 << 20;
/// Kubernetes caps quantities at this value.
const MAX_MILLI: u64 = i64::MAX.unsigned_abs();

/// The CPUs of the QoS class SYSTEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemQos {
    /// The CPUs of the class.
    pub cpus: CpuSet,
    /// Whether no other class may use them; `true` unless the annotation says otherwise.
    pub is_exclusive: bool,
}

impl SystemQos {
    /// Reads the annotation [`SYSTEM_QOS`].
    ///
    /// # Errors
    ///
    /// Fails if the text is not a JSON object of this shape, or has an invalid cpulist.
    pub fn parse(text: &str) -> Result<Self, AnnotationError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            cpuset: Option<Value>,
            cpuset_exclusive: Option<Value>,
        }
        let wire: Wire = read(SYSTEM_QOS, text, &["cpuset", "cpusetExclusive"])?;
        let cpus = cpus(SYSTEM_QOS, "cpuset", wire.cpuset.as_ref())?;
        let is_exclusive = match wire.cpuset_exclusive {
            None | Some(Value::Null) => true,
            Some(Value::Bool(is_exclusive)) => is_exclusive,
            Some(other) => {
                let fault = format!("{other} is neither true nor false; write one of them without quotes");
                return Err(AnnotationError { key: SYSTEM_QOS, field: "cpusetExclusive", fault });
            }
        };
        Ok(Self { cpus, is_exclusive })
    }

    /// The CPUs that no other class may use.
    pub fn excluded(&self) -> CpuSet {
        if self.is_exclusive { self.cpus.clone() } else { CpuSet::default() }
    }
}

/// Resource names under which a pod may have CPU time of a NUMA node.
const CPU_NAMES: [&str; 2] = ["cpu", "kubernetes.io/batch-cpu"];

/// The scheduler's choice for a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceStatus {
    /// The CPUs that the pod is pinned to; empty if it is not pinned.
    pub cpus: CpuSet,
    /// Whether the scheduler chose NUMA nodes for the pod.
    pub has_numa_nodes: bool,
    /// The chosen NUMA nodes on which the pod has CPU time, in the order of the annotation.
    pub cpu_nodes: Vec<u32>,
}

impl ResourceStatus {
    /// Reads the annotation [`RESOURCE_STATUS`].
    ///
    /// # Errors
    ///
    /// Fails if the text is not a JSON object of this shape, or has an invalid cpulist.
    pub fn parse(text: &str) -> Result<Self, AnnotationError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            cpuset: Option<Value>,
            numa_node_resources: Option<Value>,
        }
        #[derive(Deserialize)]
        struct Zone {
            node: Option<i64>,
            resources: Option<BTreeMap<String, Value>>,
        }
        let wire: Wire = read(RESOURCE_STATUS, text, &["cpuset", "numaNodeResources"])?;
        let cpus = cpus(RESOURCE_STATUS, "cpuset", wire.cpuset.as_ref())?;
        let zones: Option<Vec<Zone>> =
            serde_json::from_value(wire.numa_node_resources.unwrap_or_default()).map_err(|error| AnnotationError {
                key: RESOURCE_STATUS,
                field: "numaNodeResources",
                fault: error.to_string(),
            })?;
        let zones = zones.unwrap_or_default();
        let has_cpu = |zone: &Zone| {
            let amount = |name: &str| zone.resources.as_ref()?.get(name).and_then(milli);
            CPU_NAMES.iter().any(|name| amount(name).is_some_and(|amount| amount > 0))
        };
        let mut cpu_nodes = Vec::new();
        for zone in zones.iter().filter(|zone| has_cpu(zone)) {
            if let Some(node) = u32::try_from(zone.node.unwrap_or(0)).ok().filter(|node| !cpu_nodes.contains(node)) {
                cpu_nodes.push(node);
            }
        }
        Ok(Self { cpus, has_numa_nodes: !zones.is_empty(), cpu_nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_names_cpus_or_an_amount() {
        for (text, cpu_milli, cpus) in [
            ("{}", 0, ""),
            (r#"{"resources": null}"#, 0, ""),
            (r#"{"resources": {"cpu": "2"}}"#, 2_000, ""),
            (r#"{"resources": {"cpu": 2}}"#, 2_000, ""),
            (r#"{"resources": {"cpu": "1500m", "memory": "1Gi"}}"#, 1_500, ""),
            (r#"{"resources": {"cpu": " 0.5 "}}"#, 500, ""),
            (r#"{"resources": {"cpu": ".5"}}"#, 500, ""),
            (r#"{"resources": {"cpu": "1."}}"#, 1_000, ""),
            (r#"{"resources": {"cpu": "0.0001"}}"#, 1, ""),
            (r#"{"resources": {"cpu": "1e1"}}"#, 10_000, ""),
            (r#"{"resources": {"cpu": "1k"}}"#, 1_000_000, ""),
            (r#"{"resources": {"cpu": "1500u"}}"#, 2, ""),
            (r#"{"resources": {"cpu": "1M"}}"#, 1_000_000_000, ""),
            (r#"{"resources": {"cpu": "3T"}}"#, 3_000_000_000_000_000, ""),
            (r#"{"resources": {"cpu": "0.0100e2"}}"#, 1_000, ""),
            (r#"{"resources": {"cpu": "00012.3456"}}"#, 12_346, ""),
            (r#"{"resources": {"cpu": "0e999"}}"#, 0, ""),
            (r#"{"resources": {"cpu": "1e-400"}}"#, 1, ""),
            // As in Kubernetes, a larger value becomes the maximum.
            (r#"{"resources": {"cpu": "1e400"}}"#, MAX_MILLI, ""),
            (r#"{"resources": {"cpu": "1e99999999999999999999"}}"#, MAX_MILLI, ""),
            (r#"{"resources": {"cpu": "99999999999999999999999"}}"#, MAX_MILLI, ""),
            (r#"{"Resources": {"cpu": "1"}, "reservedcpus": "0-3"}"#, 4_000, "0-3"),
            // If CPUs are named, their number replaces the amount.
            (r#"{"resources": {"cpu": "9"}, "reservedCPUs": "0-3", "applyPolicy": "ReservedCPUsOnly"}"#, 4_000, "0-3"),
            (r#"{"reservedCPUs": "0,8"}"#, 2_000, "0,8"),
            (r#"{"resources": {"cpu": "1"}, "reservedCPUs": ""}"#, 1_000, ""),
        ] {
            let expected = Reservation { cpu_milli, cpus: CpuSet::parse(cpus).unwrap() };
            assert_eq!(Reservation::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_reservation_that_cannot_be_read_says_why() {
        for (text, field) in [
            ("", ""),
            ("[]", ""),
            (r#"{"reservedCPUs": 3, "resources": {"cpu": "3"}}"#, "reservedCPUs"),
            (r#"{"resources": "3"}"#, "resources"),
            (r#"{"reservedCPUs": "3-1"}"#, "reservedCPUs"),
            (&format!(r#"{{"reservedCPUs": "{}"}}"#, "0-3,".repeat(1024)), ""),
            (r#"{"resources": {"cpu": "many"}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": "-1"}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": ""}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": "."}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": "NaN"}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": "1e"}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": "1e--4"}}"#, "resources.cpu"),
            (r#"{"resources": {"cpu": 1e400}}"#, ""),
            (r#"{"resources": {"cpu": true}}"#, "resources.cpu"),
        ] {
            let error = Reservation::parse(text).unwrap_err();
            assert_eq!((error.key, error.field), (RESERVATION, field), "{text}: {error}");
        }
        let error = Reservation::parse(r#"{"resources": {"cpu": "many"}}"#).unwrap_err();
        insta::assert_snapshot!(error, @r#"annotation `node.koordinator.sh/reservation`, field `resources.cpu`: "many" is no amount of CPU; write whole CPUs ("2"), parts ("1.5") or thousandths ("1500m")"#);
        let error = Reservation::parse(r#"{"reservedCPUs": 4}"#).unwrap_err();
        insta::assert_snapshot!(error, @r#"annotation `node.koordinator.sh/reservation`, field `reservedCPUs`: 4 is no cpulist; write one in quotes, such as "0-3""#);
    }

    #[test]
    fn cpus_of_system_are_exclusive_unless_said_otherwise() {
        for (text, cpus, excluded) in [
            ("{}", "", ""),
            (r#"{"cpuset": "0-1"}"#, "0-1", "0-1"),
            (r#"{"cpuset": "0-1", "cpusetExclusive": true}"#, "0-1", "0-1"),
            (r#"{"cpuset": "0-1", "cpusetExclusive": null}"#, "0-1", "0-1"),
            (r#"{"cpuset": "0-1", "cpusetExclusive": false}"#, "0-1", ""),
        ] {
            let system = SystemQos::parse(text).unwrap();
            assert_eq!(
                (system.cpus.to_string().as_str(), system.excluded().to_string().as_str()),
                (cpus, excluded),
                "{text}"
            );
        }
        for (text, field) in [
            (r#"{"cpuset": "x"}"#, "cpuset"),
            (r#"{"cpuset": 1}"#, "cpuset"),
            (r#"{"cpuset": "1", "cpusetExclusive": "no"}"#, "cpusetExclusive"),
        ] {
            assert_eq!(SystemQos::parse(text).unwrap_err().field, field, "{text}");
        }
        assert_eq!(SystemQos::parse("null,").unwrap_err().field, "");
    }

    #[test]
    fn a_pod_is_pinned_to_cpus_or_bound_to_nodes_or_neither() {
        for (text, cpus, has_numa_nodes, cpu_nodes) in [
            ("{}", "", false, vec![]),
            (r#"{"cpuset": "4-5"}"#, "4-5", false, vec![]),
            (r#"{"cpuset": "", "numaNodeResources": []}"#, "", false, vec![]),
            (r#"{"numaNodeResources": [{"node": 0}]}"#, "", true, vec![]),
            (r#"{"cpuset": "1", "numaNodeResources": [{"node": 0, "resources": {"cpu": "4"}}]}"#, "1", true, vec![0]),
            // In the order of the annotation; a zone with huge pages only has no CPU time.
            (
                r#"{"numaNodeResources": [{"node": 1, "resources": {"kubernetes.io/batch-cpu": "500"}}, {"node": 0, "resources": {"cpu": "1"}},
                    {"node": 2, "resources": {"hugepages-2Mi": "4Mi"}}, {"node": 3, "resources": {"cpu": "0"}}]}"#,
                "",
                true,
                vec![1, 0],
            ),
        ] {
            let expected = ResourceStatus { cpus: CpuSet::parse(cpus).unwrap(), has_numa_nodes, cpu_nodes };
            assert_eq!(ResourceStatus::parse(text), Ok(expected), "{text}");
        }
        for (text, field) in [
            (r#"{"cpuset": "4-"}"#, "cpuset"),
            (r#"{"cpuset": [4]}"#, "cpuset"),
            (r#"{"numaNodeResources": {"node": 0}}"#, "numaNodeResources"),
        ] {
            assert_eq!(ResourceStatus::parse(text).unwrap_err().field, field, "{text}");
        }
    }
}
