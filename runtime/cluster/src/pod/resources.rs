//! Requests and limits, and the Kubernetes QoS class that follows from them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use qosm_model::pod::{ContainerKind, ExtendedResource, KubeQos, Resources};
use qosm_model::problem::Problem;
use qosm_model::unit::{Bytes, MilliCpu};

use super::Given;
use crate::quantity::Quantity;

pub(super) const CPU: &str = "cpu";
pub(super) const MEMORY: &str = "memory";
/// The resources that decide the Kubernetes QoS class.
const COMPUTE: [&str; 2] = [CPU, MEMORY];

/// Amounts by resource name.
pub(super) type List = BTreeMap<String, Quantity>;

/// Collects the problems of one pod.
pub(super) struct Reader<'r> {
    pub(super) object: &'r str,
    pub(super) origin: &'r str,
    pub(super) problems: Vec<Problem>,
}

impl Reader<'_> {
    pub(super) fn report(&mut self, field: &str, message: String) {
        let message = format!("{message} (in {})", self.origin);
        self.problems.push(Problem { object: self.object.into(), field: Some(field.into()), message });
    }

    /// Reads a list of amounts; an amount that is no quantity counts as not set.
    pub(super) fn list(&mut self, list: Option<&BTreeMap<String, Text>>, path: &str) -> List {
        let mut amounts = List::new();
        for (name, text) in list.into_iter().flatten() {
            match Quantity::parse(&text.0) {
                Ok(quantity) => {
                    amounts.insert(name.clone(), quantity);
                }
                Err(error) => {
                    let example = if name == CPU { "`500m` or `2`" } else { "`512Mi` or `2Gi`" };
                    let message =
                        format!("`{}` is not a quantity: {error}; it counts as not set, write e.g. {example}", text.0);
                    self.report(&format!("{path}.{name}"), message);
                }
            }
        }
        amounts
    }
}

/// Requests and limits of a container, or of a pod as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Amounts {
    requests: List,
    limits: List,
}

impl Amounts {
    /// Reads a container's resources. A missing request equals the limit, as in the API server; an unreadable request stays unset.
    pub(super) fn read(resources: Option<&ResourceRequirements>, path: &str, reader: &mut Reader<'_>) -> Self {
        let mut amounts = Self::read_specified(resources, path, reader);
        let specified = resources.and_then(|resources| resources.requests.as_ref());
        for (name, limit) in &amounts.limits {
            if !specified.is_some_and(|specified| specified.contains_key(name)) {
                amounts.requests.insert(name.clone(), *limit);
            }
        }
        amounts
    }

    fn read_specified(resources: Option<&ResourceRequirements>, path: &str, reader: &mut Reader<'_>) -> Self {
        let Some(resources) = resources else { return Self::default() };
        Self {
            requests: reader.list(resources.requests.as_ref(), &format!("{path}.requests")),
            limits: reader.list(resources.limits.as_ref(), &format!("{path}.limits")),
        }
    }

    /// CPU and memory.
    pub(super) fn compute(&self) -> Resources {
        let cpu = |list: &List| list.get(CPU).map(|quantity| MilliCpu(quantity.millis()));
        let memory = |list: &List| list.get(MEMORY).map(|quantity| Bytes(quantity.units()));
        Resources {
            cpu_request: cpu(&self.requests),
            cpu_limit: cpu(&self.limits),
            memory_request: memory(&self.requests),
            memory_limit: memory(&self.limits),
        }
    }

    /// All resources but CPU and memory, by name.
    pub(super) fn extended(&self) -> Vec<ExtendedResource> {
        let names: BTreeSet<&String> =
            self.requests.keys().chain(self.limits.keys()).filter(|name| !COMPUTE.contains(&name.as_str())).collect();
        let amount = |list: &List, name: &str| list.get(name).map(|quantity| quantity.units());
        names
            .into_iter()
            .map(|name| ExtendedResource {
                name: name.clone(),
                request: amount(&self.requests, name),
                limit: amount(&self.limits, name),
            })
            .collect()
    }

    fn is_specified(&self) -> bool {
        !self.requests.is_empty() || !self.limits.is_empty()
    }
}

/// The pod's own resources.
pub(super) struct PodAmounts {
    pub(super) pod: Amounts,
}

impl PodAmounts {
    /// Reads `spec.resources`. If there are limits, a missing request is the sum of the containers' requests, or the limit if no
    /// container has a request (KEP-2837).
    pub(super) fn read(
        resources: Option<&ResourceRequirements>,
        containers: &[Given],
        reader: &mut Reader<'_>,
    ) -> Self {
        let mut pod = Amounts::read_specified(resources, "spec.resources", reader);
        let specified = resources.and_then(|resources| resources.requests.as_ref());
        if !pod.limits.is_empty() {
            for name in
                COMPUTE.into_iter().filter(|name| !specified.is_some_and(|specified| specified.contains_key(*name)))
            {
                let request = requested_together(containers, name).or_else(|| pod.limits.get(name).copied());
                pod.requests.extend(request.map(|request| (name.to_owned(), request)));
            }
        }
        Self { pod }
    }

    /// The QoS class by Kubernetes' rule: from the pod's own resources if it has any, else from all containers, init containers
    /// included. Amounts of 0 count as missing.
    pub(super) fn kube_qos(&self, containers: &[Given]) -> KubeQos {
        let all: Vec<&Amounts> = if self.pod.is_specified() {
            vec![&self.pod]
        } else {
            containers.iter().map(|container| &container.amounts).collect()
        };
        let sum = |list: fn(&Amounts) -> &List| {
            let mut sum = List::new();
            for (name, quantity) in all.iter().flat_map(|amounts| list(amounts)) {
                if COMPUTE.contains(&name.as_str()) && !quantity.is_zero() {
                    let so_far = sum.get(name).copied().unwrap_or_default();
                    sum.insert(name.clone(), so_far.plus(*quantity));
                }
            }
            sum
        };
        let (requests, limits) = (sum(|amounts| &amounts.requests), sum(|amounts| &amounts.limits));
        let is_limited = |amounts: &Amounts| {
            COMPUTE.into_iter().all(|name| amounts.limits.get(name).is_some_and(|quantity| !quantity.is_zero()))
        };
        if requests.is_empty() && limits.is_empty() {
            KubeQos::BestEffort
        } else if all.iter().all(|amounts| is_limited(amounts)) && requests == limits {
            KubeQos::Guaranteed
        } else {
            KubeQos::Burstable
        }
    }
}

/// The sum of regular containers and sidecars, or the peak while init containers run, whichever is higher; `None` if no container
/// requests the resource.
fn requested_together(containers: &[Given], name: &str) -> Option<Quantity> {
    let requests = || containers.iter().filter_map(|given| Some((given.kind, *given.amounts.requests.get(name)?)));
    requests().next()?;
    let (mut together, mut sidecars, mut peak) = (Quantity::ZERO, Quantity::ZERO, Quantity::ZERO);
    for (kind, request) in requests() {
        match kind {
            ContainerKind::Init => peak = peak.max(sidecars.plus(request)),
            ContainerKind::Sidecar => {
                sidecars = sidecars.plus(request);
                peak = peak.max(sidecars);
            }
            ContainerKind::Regular => together = together.plus(request),
        }
    }
    Some(together.plus(sidecars).max(peak))
}
