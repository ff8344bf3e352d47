//! Reads the Node object: capacity, reservation, third parties' allocations, CPU normalisation.
//!
//! Koordinator: `apis/extension/node_reservation.go`, `apis/slo/v1alpha1/node.go`, `pkg/util/node.go`.

use std::collections::BTreeMap;

use cpu_sets::CpuSet;
use serde_json::{Map, Value};

use crate::amounts::Amounts;
use crate::class::PriorityClass;
use crate::decimal::Decimal;
use crate::finding::Finding;
use crate::json::{self, Fault};
use crate::quantity::Quantity;

/// Annotation: resources kept from pods.
pub const RESERVATION_ANNOTATION: &str = "node.koordinator.sh/reservation";
/// Annotation: resources that other schedulers have allocated.
pub const THIRD_PARTY_ANNOTATION: &str = "node.koordinator.sh/thirdPartyAllocations";
/// Annotation: the amounts before third parties' allocations are subtracted.
pub const ORIGIN_ANNOTATION: &str = "node.koordinator.sh/originExtendedAllocatable";
/// Annotation: how much faster a CPU of this node is than the fleet's reference.
pub const RATIO_ANNOTATION: &str = "node.koordinator.sh/cpu-normalization-ratio";

/// The parts of a Node object that this policy uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`.
    pub annotations: BTreeMap<String, String>,
    /// `status.capacity` of CPU and memory.
    pub capacity: Amounts,
    /// `status.allocatable` of CPU and memory.
    pub allocatable: Amounts,
    /// `status.allocatable` of all extended resources, in their own units.
    pub extended: BTreeMap<String, u64>,
    /// NUMA zones of the NodeResourceTopology; empty if there is none.
    pub zones: Vec<Zone>,
}

/// A NUMA zone, `node-<id>` in the NodeResourceTopology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The NUMA node's number.
    pub id: u32,
    /// Its allocatable CPU and memory.
    pub allocatable: Amounts,
}

/// How the reservation annotation applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyPolicy {
    /// The reservation reduces what the scheduler may allocate, and reserves CPUs.
    #[default]
    Default,
    /// The reservation reserves CPUs only; the kubelet's reservation reduces what the scheduler may allocate.
    ReservedCpusOnly,
}

/// The reservation annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// The reserved amounts. If `reservedCPUs` is set, the number of its CPUs replaces the CPU quantity.
    pub amounts: Amounts,
    /// How the scheduler applies the reservation. Batch resources exclude it with either policy, since reserved CPUs run no pods.
    pub apply_policy: ApplyPolicy,
}

impl Reservation {
    /// Reads the annotation. Parts that cannot be used are reported; the other parts apply, but nothing that was reserved before is given
    /// away then.
    pub fn read(annotations: &BTreeMap<String, String>, before: Amounts, findings: &mut Vec<Finding>) -> Self {
        let known = findings.len();
        let mut reservation = Self::parts(annotations, findings);
        if findings.len() > known {
            reservation.amounts = reservation.amounts.max(before);
        }
        reservation
    }

    /// The parts of the annotation that can be used.
    fn parts(annotations: &BTreeMap<String, String>, findings: &mut Vec<Finding>) -> Self {
        let mut reservation = Self::default();
        let Some(fields) = annotation(annotations, RESERVATION_ANNOTATION, findings) else { return reservation };
        let mut report = |fault| findings.push(Finding::new(RESERVATION_ANNOTATION, fault));
        match json::object(&fields, "resources") {
            Ok(Some(resources)) => {
                match quantity(resources, "cpu") {
                    Ok(cpu) => reservation.amounts.cpu_milli = cpu.millis(),
                    Err(fault) => report(fault.within("resources")),
                }
                match quantity(resources, "memory") {
                    Ok(memory) => reservation.amounts.memory_bytes = memory.units(),
                    Err(fault) => report(fault.within("resources")),
                }
            }
            Ok(None) => {}
            Err(fault) => report(fault),
        }
        match json::field(&fields, "reservedCPUs") {
            None => {}
            Some(Value::String(cpus)) if cpus.trim_ascii().is_empty() => {}
            Some(value) => match value.as_str().and_then(|cpus| CpuSet::parse(cpus).ok()) {
                Some(cpus) => {
                    let count = u64::try_from(cpus.len()).unwrap_or(u64::MAX);
                    reservation.amounts.cpu_milli = count.saturating_mul(1000);
                }
                None => {
                    let message = format!("is {}, which is no cpulist; write e.g. \"0-3,8\"", json::shown(value));
                    report(Fault::new("reservedCPUs", message));
                }
            },
        }
        let policies = [("Default", ApplyPolicy::Default), ("ReservedCPUsOnly", ApplyPolicy::ReservedCpusOnly)];
        match json::word(&fields, "applyPolicy", &policies) {
            Ok(policy) => reservation.apply_policy = policy.unwrap_or_default(),
            Err(fault) => report(fault),
        }
        reservation
    }
}

impl Node {
    /// Amounts that pods may not use: for each resource, the larger of the kubelet's reservation and the annotation's.
    pub fn reserved(&self, reservation: &Reservation) -> Amounts {
        self.capacity.minus(self.allocatable).max(reservation.amounts)
    }

    /// The CPU normalisation ratio; `None` if it is not above 1.
    pub fn normalization_ratio(&self, findings: &mut Vec<Finding>) -> Option<Decimal> {
        let text = self.annotations.get(RATIO_ANNOTATION)?;
        match Decimal::parse(text) {
            Ok(ratio) => Some(ratio).filter(|ratio| *ratio > Decimal::ONE),
            Err(error) => {
                let message =
                    format!("is `{text}`, which {error}; write a ratio such as 1.2, or remove the annotation");
                findings.push(Finding::new(RATIO_ANNOTATION, Fault::new("", message)));
                None
            }
        }
    }
}

/// Batch and mid resources that other schedulers have allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThirdParty {
    /// Batch CPU and memory.
    pub batch: Amounts,
    /// Mid CPU and memory.
    pub mid: Amounts,
}

/// The resource names that allocations may use.
pub(crate) struct AllocationNames<'n> {
    /// Names of batch CPU.
    pub(crate) batch_cpu: &'n [String],
    /// Names of batch memory.
    pub(crate) batch_memory: &'n [String],
    /// Names of mid CPU.
    pub(crate) mid_cpu: &'n [String],
    /// Names of mid memory.
    pub(crate) mid_memory: &'n [String],
}

impl ThirdParty {
    /// Reads the annotation. Allocations of other priority classes and of other resources are ignored.
    ///
    /// # Errors
    ///
    /// Fails if any part cannot be read, since the allocated amounts are unknown then.
    pub(crate) fn read(annotations: &BTreeMap<String, String>, names: &AllocationNames<'_>) -> Result<Self, Finding> {
        let Some(text) = annotations.get(THIRD_PARTY_ANNOTATION) else { return Ok(Self::default()) };
        Self::parse(text, names).map_err(|fault| Finding::new(THIRD_PARTY_ANNOTATION, fault))
    }

    fn parse(text: &str, names: &AllocationNames<'_>) -> Result<Self, Fault> {
        let fields = json::parse(text)?;
        let mut sum = Self::default();
        for (index, item) in json::list(&fields, "allocations")?.into_iter().flatten().enumerate() {
            let path = format!("allocations[{index}]");
            let Value::Object(item) = item else {
                return Err(Fault::new(&path, format!("is {}; write an object", json::shown(item))));
            };
            let class = match json::field(item, "priority") {
                None => PriorityClass::None,
                Some(Value::String(name)) => PriorityClass::by_name(name),
                Some(value) => {
                    let message = format!("is {}; write a priority class, e.g. koord-batch", json::shown(value));
                    return Err(Fault::new("priority", message).within(&path));
                }
            };
            let (into, cpu, memory) = match class {
                PriorityClass::Batch => (&mut sum.batch, names.batch_cpu, names.batch_memory),
                PriorityClass::Mid => (&mut sum.mid, names.mid_cpu, names.mid_memory),
                _ => continue,
            };
            let resources = json::object(item, "resources").map_err(|fault| fault.within(&path))?;
            for (name, value) in resources.into_iter().flatten() {
                let quantity = Quantity::read(value).map_err(|error| {
                    let message = format!("is {}, which {error}", json::shown(value));
                    Fault::new(name, message).within(&format!("{path}.resources"))
                })?;
                let (is_cpu, is_memory) = (cpu.contains(name), memory.contains(name));
                let units = |counts: bool| if counts { quantity.units() } else { 0 };
                *into = into.plus(Amounts::new(units(is_cpu), units(is_memory)));
            }
        }
        Ok(sum)
    }
}

/// Parses an annotation; `None` if it is absent or cannot be read.
fn annotation(
    annotations: &BTreeMap<String, String>,
    name: &str,
    findings: &mut Vec<Finding>,
) -> Option<Map<String, Value>> {
    json::parse(annotations.get(name)?).map_err(|fault| findings.push(Finding::new(name, fault))).ok()
}

/// A resource's quantity. In Go the names of resources are keys of a map, which match letter by letter.
fn quantity(resources: &Map<String, Value>, name: &str) -> Result<Quantity, Fault> {
    let value = resources.get(name).filter(|value| !value.is_null());
    let Some(value) = value else { return Ok(Quantity::default()) };
    Quantity::read(value).map_err(|error| Fault::new(name, format!("is {}, which {error}", json::shown(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn annotated(name: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), text.to_owned())])
    }

    #[test]
    fn the_reservation_annotation_is_read_in_all_its_forms() {
        for (text, cpu, memory, policy) in [
            (r#"{"resources":{"cpu":"4","memory":"2Gi"}}"#, 4000, 2 * GIB, ApplyPolicy::Default),
            (r#"{"resources":{"cpu":1.5}}"#, 1500, 0, ApplyPolicy::Default),
            (r#"{"resources":{"cpu":" 3 "}}"#, 3000, 0, ApplyPolicy::Default),
            (r#"{"resources":{"CPU":"3","Memory":"1Gi"}}"#, 0, 0, ApplyPolicy::Default),
            (r#"{"reservedCPUs":"0-1, 4"}"#, 3000, 0, ApplyPolicy::Default),
            (r#"{"resources":{"memory":1024}}"#, 0, 1024, ApplyPolicy::Default),
            (r#"{"reservedCPUs":"0-3"}"#, 4000, 0, ApplyPolicy::Default),
            (r#"{"resources":{"cpu":"9","memory":"1Gi"},"reservedCPUs":"0-1"}"#, 2000, GIB, ApplyPolicy::Default),
            (r#"{"resources":{"cpu":"9"},"reservedCPUs":""}"#, 9000, 0, ApplyPolicy::Default),
            (r#"{"reservedCPUs":"0","applyPolicy":"ReservedCPUsOnly"}"#, 1000, 0, ApplyPolicy::ReservedCpusOnly),
            (r#"{"reservedCPUs":"0","applyPolicy":"Default"}"#, 1000, 0, ApplyPolicy::Default),
            (r#"{"reservedCPUs":"0","applyPolicy":""}"#, 1000, 0, ApplyPolicy::Default),
            ("{}", 0, 0, ApplyPolicy::Default),
        ] {
            let mut findings = Vec::new();
            let before = Amounts::new(99_000, 99 * GIB);
            let reservation = Reservation::read(&annotated(RESERVATION_ANNOTATION, text), before, &mut findings);
            let expected = Reservation { amounts: Amounts::new(cpu, memory), apply_policy: policy };
            assert_eq!((reservation, findings), (expected, vec![]), "{text}");
        }
        let mut findings = Vec::new();
        let removed = Reservation::read(&BTreeMap::new(), Amounts::new(99_000, GIB), &mut findings);
        assert_eq!((removed, findings), (Reservation::default(), vec![]));
    }

    #[test]
    fn a_wrong_part_of_the_reservation_is_reported_and_the_rest_counts_but_never_less_than_before() {
        for (text, cpu, memory, shown) in [
            ("[]", 0, 0, "is no JSON object"),
            (r#"{"resources":7,"reservedCPUs":"0"}"#, 1000, 0, "field resources is `7`"),
            (
                r#"{"resources":{"cpu":"-1","memory":"1Ki"}}"#,
                0,
                1024,
                "field resources.cpu is `\"-1\"`, which is negative",
            ),
            (r#"{"resources":{"cpu":"1","memory":"1kb"}}"#, 1000, 0, "field resources.memory is `\"1kb\"`"),
            (r#"{"resources":{"cpu":"3"},"reservedCPUs":"3-1"}"#, 3000, 0, "field reservedCPUs is `\"3-1\"`"),
            (r#"{"resources":{"cpu":"3"},"reservedCPUs":"0-65536"}"#, 3000, 0, "field reservedCPUs is `\"0-65536\"`"),
            (r#"{"resources":{"cpu":"3"},"reservedCPUs":4}"#, 3000, 0, "field reservedCPUs is `4`"),
            (r#"{"reservedCPUs":"0","applyPolicy":"Never"}"#, 1000, 0, "field applyPolicy is `\"Never\"`"),
        ] {
            let mut findings = Vec::new();
            let annotations = annotated(RESERVATION_ANNOTATION, text);
            let reservation = Reservation::read(&annotations, Amounts::ZERO, &mut findings);
            assert_eq!(reservation.amounts, Amounts::new(cpu, memory), "{text}");
            assert_eq!(findings.len(), 1, "{text}");
            let reservation = Reservation::read(&annotations, Amounts::new(2000, 512), &mut Vec::new());
            assert_eq!(reservation.amounts, Amounts::new(cpu.max(2000), memory.max(512)), "{text}");
            assert!(findings[0].to_string().contains(shown), "{text}: {}", findings[0]);
        }
    }

    #[test]
    fn reserved_is_the_larger_for_each_resource() {
        let node = Node {
            capacity: Amounts::new(16_000, 64 * GIB),
            allocatable: Amounts::new(15_000, 60 * GIB),
            ..Node::default()
        };
        for (annotation, expected) in [
            (Amounts::ZERO, Amounts::new(1000, 4 * GIB)),
            (Amounts::new(2000, GIB), Amounts::new(2000, 4 * GIB)),
            (Amounts::new(500, 8 * GIB), Amounts::new(1000, 8 * GIB)),
        ] {
            let reservation = Reservation { amounts: annotation, ..Reservation::default() };
            assert_eq!(node.reserved(&reservation), expected);
        }
        let odd = Node { allocatable: Amounts::new(17_000, 70 * GIB), ..node };
        assert_eq!(odd.reserved(&Reservation::default()), Amounts::ZERO, "allocatable above capacity reserves nothing");
    }

    #[test]
    fn a_ratio_counts_above_one() {
        for (text, ratio, reported) in [
            ("1.2", Some(Decimal::hundredths(120)), 0),
            ("1.00", None, 0),
            ("0.8", None, 0),
            ("-1", None, 1),
            ("fast", None, 1),
            ("NaN", None, 1),
        ] {
            let node = Node { annotations: annotated(RATIO_ANNOTATION, text), ..Node::default() };
            let mut findings = Vec::new();
            assert_eq!((node.normalization_ratio(&mut findings), findings.len()), (ratio, reported), "{text}");
        }
    }

    fn third_party(text: &str) -> Result<ThirdParty, String> {
        let name = |name: &str| vec![name.to_owned()];
        let names = AllocationNames {
            batch_cpu: &["kubernetes.io/batch-cpu".to_owned(), "alibabacloud.com/reclaimed-cpu".to_owned()],
            batch_memory: &name("kubernetes.io/batch-memory"),
            mid_cpu: &name("kubernetes.io/mid-cpu"),
            mid_memory: &name("kubernetes.io/mid-memory"),
        };
        ThirdParty::read(&annotated(THIRD_PARTY_ANNOTATION, text), &names).map_err(|finding| finding.to_string())
    }

    #[test]
    fn allocations_of_third_parties_are_summed_by_class() {
        let text = r#"{"allocations":[
            {"name":"yarn","priority":"koord-batch",
             "resources":{"kubernetes.io/batch-cpu":"10000","kubernetes.io/batch-memory":"4Gi","nvidia.com/gpu":"1"}},
            {"name":"other","priority":"koord-batch","resources":{"alibabacloud.com/reclaimed-cpu":500}},
            {"name":"mid","priority":"koord-mid","resources":{"kubernetes.io/mid-cpu":"1k","kubernetes.io/mid-memory":"1Gi"}},
            {"name":"prod","priority":"koord-prod","resources":{"kubernetes.io/batch-cpu":"99999"}},
            {"name":"none","resources":{"kubernetes.io/batch-cpu":"99999"}},
            {"name":"empty","priority":"koord-batch"}]}"#;
        let expected = ThirdParty { batch: Amounts::new(10_500, 4 * GIB), mid: Amounts::new(1000, GIB) };
        assert_eq!(third_party(text), Ok(expected));
        assert_eq!(third_party("{}"), Ok(ThirdParty::default()));
    }

    #[test]
    fn allocations_that_cannot_be_read_are_an_error() {
        for (text, shown) in [
            ("yarn", "cannot be read"),
            (r#"{"allocations":{}}"#, "field allocations is `{}`"),
            (r#"{"allocations":[1]}"#, "field allocations[0] is `1`"),
            (r#"{"allocations":[{"priority":5}]}"#, "field allocations[0].priority is `5`"),
            (
                r#"{"allocations":[{"priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"ten"}}]}"#,
                "field allocations[0].resources.kubernetes.io/batch-cpu is `\"ten\"`",
            ),
        ] {
            let error = third_party(text).unwrap_err();
            assert!(error.contains(shown), "{text}: {error}");
        }
    }
}
