//! The CPU and memory that are in force on the node. Since in-place resize (KEP-1287) the specification is only requested: the
//! kubelet applies it now, later or never, and reports in the status what is in force.
//!
//! | the status has | what counts |
//! | --- | --- |
//! | `resources`, and a pending resize | `resources` |
//! | `resources`, and no resize | the lower of both: runtimes also report what NRI plug-ins set, which the specification does not request |
//! | only `allocatedResources` | these as requests, and as limits where the specified limit equals the request |
//! | neither | the specification: servers before 1.27, pods that have not started, manifests |
//!
//! A resize neither removes a limit nor adds one: a resource without a limit in the specification has none in force.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use qosm_model::pod::Resources;
use qosm_model::unit::{Bytes, MilliCpu};

use super::resources::{CPU, List, MEMORY, Reader};

/// The resources in the status of a container or of the pod as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    limits: Option<Amounts>,
    requests: Option<Amounts>,
    allocated: Option<Amounts>,
}

/// CPU and memory of one list.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    cpu: Amount<MilliCpu>,
    memory: Amount<Bytes>,
}

/// An amount in an existing list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Amount<T> {
    /// The list does not have the resource.
    #[default]
    Missing,
    /// The amount is not a quantity.
    Unreadable,
    /// The amount.
    Read(T),
}

/// The resources in force, and the specified ones if they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) now: Resources,
    pub(super) next: Option<Resources>,
}

impl Told {
    /// Reads `resources` and `allocatedResources` below `path`.
    pub(super) fn read(
        resources: Option<&ResourceRequirements>,
        allocated: Option<&BTreeMap<String, Text>>,
        path: &str,
        reader: &mut Reader<'_>,
    ) -> Self {
        let mut read = |list: Option<&BTreeMap<String, Text>>, field: &str| {
            let read = reader.list(list, &format!("{path}.{field}"));
            Amounts::of(&read, list)
        };
        Self {
            limits: resources.map(|resources| read(resources.limits.as_ref(), "resources.limits")),
            requests: resources.map(|resources| read(resources.requests.as_ref(), "resources.requests")),
            allocated: allocated.map(|allocated| read(Some(allocated), "allocatedResources")),
        }
    }

    /// Whether the kubelet has allocated other amounts than the specification requests.
    pub(super) fn is_allocated_otherwise(&self, specified: &Resources) -> bool {
        let Some(allocated) = self.allocated else { return false };
        allocated.cpu.differs(specified.cpu_request) || allocated.memory.differs(specified.memory_request)
    }

    /// The resources in force.
    pub(super) fn in_force(&self, specified: Resources, is_resizing: bool) -> InForce {
        let cpu = self.resource(specified.cpu_request, specified.cpu_limit, |list| list.cpu, is_resizing);
        let memory = self.resource(specified.memory_request, specified.memory_limit, |list| list.memory, is_resizing);
        let now = Resources { cpu_request: cpu.0, cpu_limit: cpu.1, memory_request: memory.0, memory_limit: memory.1 };
        InForce { now, next: (now != specified).then_some(specified) }
    }

    /// Request and limit in force of one resource.
    fn resource<T: Copy + Ord + Default>(
        &self,
        request: Option<T>,
        limit: Option<T>,
        of: impl Fn(&Amounts) -> Amount<T>,
        is_resizing: bool,
    ) -> (Option<T>, Option<T>) {
        let choose = |specified: T, told: T| if is_resizing { told } else { told.min(specified) };
        let allocated = self.allocated.as_ref().and_then(|list| of(list).read());
        let limit_now = limit.and_then(|specified| match self.limits.as_ref().map(&of) {
            Some(Amount::Read(told)) => Some(choose(specified, told)),
            // Requested, but not in force yet.
            Some(Amount::Missing) => None,
            Some(Amount::Unreadable) => Some(specified),
            None if request == limit => Some(allocated.map_or(specified, |told| choose(specified, told))),
            None => Some(specified),
        });
        let request_now = request.and_then(|specified| match self.requests.as_ref().map(&of) {
            Some(Amount::Read(told)) => Some(choose(specified, told)),
            // A limit without a request counts as the request.
            Some(Amount::Missing) => allocated.or(limit_now.map(|limit| limit.min(specified))),
            Some(Amount::Unreadable) | None => Some(allocated.map_or(specified, |told| choose(specified, told))),
        });
        // A status whose request exceeds its limit contradicts itself: the kernel enforces the limit. A specification keeps its request
        // without a status: its limit lacks the unit, or is 0, which is no limit.
        let has_status = self.limits.is_some() || self.requests.is_some() || self.allocated.is_some();
        let most = limit_now.filter(|limit| has_status && *limit > T::default());
        let request_now = request_now.map(|request| most.map_or(request, |most| request.min(most)));
        (request_now, limit_now)
    }
}

impl Amounts {
    fn of(read: &List, written: Option<&BTreeMap<String, Text>>) -> Self {
        let is_written = |name: &str| written.is_some_and(|written| written.contains_key(name));
        let amount = |name: &str| match read.get(name) {
            Some(quantity) => Amount::Read(*quantity),
            None if is_written(name) => Amount::Unreadable,
            None => Amount::Missing,
        };
        Self {
            cpu: amount(CPU).map(|quantity| MilliCpu(quantity.millis())),
            memory: amount(MEMORY).map(|quantity| Bytes(quantity.units())),
        }
    }
}

impl<T: Copy + PartialEq> Amount<T> {
    fn read(self) -> Option<T> {
        match self {
            Self::Read(amount) => Some(amount),
            Self::Missing | Self::Unreadable => None,
        }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> Amount<U> {
        match self {
            Self::Read(amount) => Amount::Read(change(amount)),
            Self::Missing => Amount::Missing,
            Self::Unreadable => Amount::Unreadable,
        }
    }

    fn differs(self, from: Option<T>) -> bool {
        self.read().is_some_and(|amount| Some(amount) != from)
    }
}

/// The kubelet's state of an unfinished resize; `None` if there is none.
///
/// Kubernetes 1.33 and later report it by conditions (`PodResizePending` with the reason Deferred or Infeasible,
/// `PodResizeInProgress`), earlier versions by `status.resize`.
pub(super) fn resize(status: &PodStatus) -> Option<String> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let of = |kind: &str| conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True");
    if let Some(pending) = of("PodResizePending") {
        return Some(said(pending, "Pending"));
    }
    if let Some(under_way) = of("PodResizeInProgress") {
        return Some(match under_way.reason.as_deref().is_some_and(|reason| !reason.is_empty()) {
            true => format!("InProgress, {}", said(under_way, "")),
            false => said(under_way, "InProgress"),
        });
    }
    status.resize.clone().filter(|word| !word.is_empty())
}

fn said(condition: &PodCondition, otherwise: &str) -> String {
    let reason = condition.reason.as_deref().filter(|reason| !reason.is_empty()).unwrap_or(otherwise);
    match condition.message.as_deref().filter(|message| !message.is_empty()) {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// CPU request, CPU limit, memory request, memory limit.
    type Row = [Option<u64>; 4];

    const OLD: Row = [Some(1000), Some(2000), Some(1 << 30), Some(2 << 30)];
    const WISH: Row = [Some(24_000), Some(32_000), Some(200 << 30), Some(256 << 30)];

    fn resources([cpu_request, cpu_limit, memory_request, memory_limit]: Row) -> Resources {
        Resources {
            cpu_request: cpu_request.map(MilliCpu),
            cpu_limit: cpu_limit.map(MilliCpu),
            memory_request: memory_request.map(Bytes),
            memory_limit: memory_limit.map(Bytes),
        }
    }

    fn told(status: &Value) -> (Told, Vec<String>) {
        let part = |name: &str| status.get(name).cloned();
        let resources: Option<ResourceRequirements> =
            part("resources").map(|part| serde_json::from_value(part).unwrap());
        let allocated: Option<BTreeMap<String, Text>> =
            part("allocatedResources").map(|part| serde_json::from_value(part).unwrap());
        let mut reader = Reader { object: "pod shop/web", origin: "web.yaml", problems: Vec::new() };
        let path = "status.containerStatuses[0]";
        let told = Told::read(resources.as_ref(), allocated.as_ref(), path, &mut reader);
        (told, reader.problems.iter().map(ToString::to_string).collect())
    }

    fn list(row: Row) -> Value {
        let [cpu_request, cpu_limit, memory_request, memory_limit] = row.map(|amount| amount.unwrap_or_default());
        json!({
            "requests": {"cpu": format!("{cpu_request}m"), "memory": memory_request.to_string()},
            "limits": {"cpu": format!("{cpu_limit}m"), "memory": memory_limit.to_string()},
        })
    }

    #[test]
    fn the_node_runs_what_the_status_says_and_else_what_is_specified() {
        let guaranteed = |amount| [Some(amount), Some(amount), Some(amount << 20), Some(amount << 20)];
        let without_limits = [Some(1000), None, Some(1 << 30), None];
        let allocated = json!({"allocatedResources": {"cpu": "1", "memory": "1Gi"}});
        let of = |row| json!({"resources": list(row)});
        for (what, specified, status, is_resizing, expected) in [
            ("an old server", WISH, json!({}), false, WISH),
            ("a resize that was refused", WISH, of(OLD), true, OLD),
            ("growth that nobody speaks of yet", WISH, of(OLD), false, OLD),
            ("a shrink that is on its way", OLD, of(WISH), true, WISH),
            ("what an NRI plug-in set", OLD, of(WISH), false, OLD),
            (
                "no limits yet",
                OLD,
                json!({"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}),
                true,
                without_limits,
            ),
            ("a limit that nobody asked for", without_limits, of(OLD), true, without_limits),
            ("nothing at all yet", OLD, json!({"resources": {}}), true, [None, None, None, None]),
            ("only what is set aside", WISH, allocated.clone(), true, [OLD[0], WISH[1], OLD[2], WISH[3]]),
            (
                "set aside for one that uses no more than it requests",
                guaranteed(4096),
                allocated,
                true,
                [Some(1000), Some(1000), Some(1 << 30), Some(1 << 30)],
            ),
            (
                "requests beyond the limits",
                WISH,
                of([Some(9000), Some(2000), Some(9 << 30), Some(2 << 30)]),
                true,
                [Some(2000), Some(2000), Some(2 << 30), Some(2 << 30)],
            ),
            (
                "limits alone",
                WISH,
                json!({"resources": {"limits": {"cpu": "2", "memory": "2Gi"}}}),
                true,
                [Some(2000), Some(2000), Some(2 << 30), Some(2 << 30)],
            ),
        ] {
            let (told, problems) = told(&status);
            let InForce { now, next } = told.in_force(resources(specified), is_resizing);
            assert_eq!(now, resources(expected), "{what}");
            assert_eq!(next, (specified != expected).then(|| resources(specified)), "{what}");
            assert!(problems.is_empty(), "{what}: {problems:?}");
        }
    }

    #[test]
    fn a_limit_of_0_or_without_its_unit_leaves_the_request() {
        let reported =
            json!({"resources": {"limits": {"cpu": "0", "memory": "0"}, "requests": {"cpu": "1", "memory": "1Gi"}}});
        for (limit, status) in [(0, json!({})), (2048, json!({})), (0, reported)] {
            let specified = resources([Some(1000), Some(0), Some(1 << 30), Some(limit)]);
            let InForce { now, next } = told(&status).0.in_force(specified, false);
            assert_eq!((now, next), (specified, None), "{limit} {status}");
        }
    }

    #[test]
    fn an_amount_that_cannot_be_read_is_named_and_the_specification_counts() {
        let status = json!({"resources": {"limits": {"cpu": "two", "memory": "1Gi"}}});
        let (told, problems) = told(&status);
        let InForce { now, .. } = told.in_force(resources(OLD), true);
        assert_eq!((now.cpu_limit, now.memory_limit), (Some(MilliCpu(2000)), Some(Bytes(1 << 30))));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("status.containerStatuses[0].resources.limits.cpu"), "{problems:?}");
    }

    #[test]
    fn what_the_kubelet_set_aside_is_compared_with_the_requests() {
        let (told, _) = told(&json!({"allocatedResources": {"cpu": "1", "memory": "1Gi", "example.com/x": "3"}}));
        assert!(told.is_allocated_otherwise(&resources(WISH)));
        assert!(!told.is_allocated_otherwise(&resources(OLD)));
        assert!(!Told::default().is_allocated_otherwise(&resources(OLD)));
    }

    #[test]
    fn a_resize_is_told_in_the_kubelets_words() {
        let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]});
        for (status, expected) in [
            (json!({}), None),
            (condition("Ready", "True", "", ""), None),
            (condition("PodResizePending", "False", "Deferred", ""), None),
            (condition("PodResizePending", "True", "Deferred", ""), Some("Deferred")),
            (condition("PodResizePending", "True", "Infeasible", "no room"), Some("Infeasible: no room")),
            (condition("PodResizePending", "True", "", ""), Some("Pending")),
            (condition("PodResizeInProgress", "True", "", ""), Some("InProgress")),
            (condition("PodResizeInProgress", "True", "Error", "EINVAL"), Some("InProgress, Error: EINVAL")),
            (json!({"resize": "Proposed"}), Some("Proposed")),
            (json!({"resize": ""}), None),
        ] {
            let read: PodStatus = serde_json::from_value(status.clone()).unwrap();
            assert_eq!(resize(&read).as_deref(), expected, "{status}");
        }
    }
}
