//! The NUMA zones of a node: a NodeResourceTopology, as node-feature-discovery and Koordinator write it.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use qosm_model::pod::NodeZone;
use qosm_model::problem::Problem;
use serde::Deserialize;
use serde_json::Value;

use crate::node::resources;
use crate::object::{Read, refused};
use crate::typed::read_as;

/// API group of NodeResourceTopology.
pub(crate) const GROUP: &str = "topology.node.k8s.io";
/// Versions of the kind, the newest first; both have the fields that are read here.
pub(crate) const VERSIONS: [&str; 2] = ["v1alpha2", "v1alpha1"];

/// The zones of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// The node's name.
    pub node: String,
    /// The zones, in the order of their numbers.
    pub zones: Vec<NodeZone>,
}

#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
    #[serde(default)]
    zones: Vec<Zone>,
}

#[derive(Deserialize)]
struct Zone {
    name: String,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    capacity: Option<Quantity>,
    allocatable: Option<Quantity>,
}

/// Reads a NodeResourceTopology. Zones of other types than `Node` are ignored. A zone whose name does not end in the number of a
/// NUMA node becomes a problem.
///
/// # Errors
///
/// The field that has the wrong type.
pub fn topology_from_value(value: Value, origin: &str) -> Result<Read<Topology>, Problem> {
    let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let known = VERSIONS.map(|version| format!("{GROUP}/{version}"));
    let api = known.iter().find(|known| *known == version).unwrap_or(&known[0]).clone();
    let (object, _) =
        read_as::<Object>(value, &api).map_err(|misfit| refused(origin, "NodeResourceTopology", misfit))?;
    let node = object.metadata.name.unwrap_or_default();
    let mut problems = Vec::new();
    let mut zones: Vec<NodeZone> = Vec::new();
    for (index, zone) in object.zones.into_iter().enumerate().filter(|(_, zone)| zone.kind == "Node") {
        let mut report = |field: String, message: String| {
            problems.push(Problem {
                object: format!("NodeResourceTopology {node}"),
                field: Some(format!("zones[{index}]{field}")),
                message: format!("{message} (in {origin})"),
            });
        };
        let number = zone.name.rsplit('-').next().and_then(|number| number.parse().ok());
        let Some(id) = number.filter(|id| !zones.iter().any(|zone| zone.id == *id)) else {
            let message =
                format!("`{}` is not `node-` and the number of another NUMA node; the zone does not count", zone.name);
            report(".name".to_owned(), message);
            continue;
        };
        let amounts = |amount: fn(&Resource) -> Option<&Quantity>| {
            let named = |resource: &Resource| Some((resource.name.clone(), amount(resource)?.clone()));
            Some(zone.resources.iter().filter_map(named).collect())
        };
        let resources = resources::read(
            &[
                ("capacity", amounts(|resource| resource.capacity.as_ref())),
                ("allocatable", amounts(|resource| resource.allocatable.as_ref())),
            ],
            |field, message| report(format!(".resources: {field}"), message),
        );
        zones.push(NodeZone { id, resources });
    }
    zones.sort_by_key(|zone| zone.id);
    Ok(Read { object: Topology { node, zones }, problems })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zones_of_numa_nodes_are_read_by_number() {
        let read = topology_from_value(
            json!({
                "apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology", "metadata": {"name": "here"},
                "topologyPolicies": ["None"],
                "zones": [
                    {"name": "node-1", "type": "Node", "costs": [{"name": "node-0", "value": 21}],
                     "resources": [{"name": "cpu", "capacity": "4", "allocatable": "3500m", "available": "1"}]},
                    {"name": "node-0", "type": "Node", "resources": [
                        {"name": "memory", "capacity": "much", "allocatable": "1Gi"}, {"name": "cpu", "capacity": "4"}]},
                    {"name": "socket-0", "type": "Socket"},
                    {"name": "left", "type": "Node"},
                    {"name": "node-1", "type": "Node"},
                ],
            }),
            "test",
        )
        .unwrap();
        let Topology { node, zones } = read.object;
        let shown: Vec<_> = zones
            .iter()
            .flat_map(|zone| {
                zone.resources.iter().map(move |own| (zone.id, own.name.as_str(), own.capacity, own.allocatable))
            })
            .collect();
        assert_eq!(node, "here");
        assert_eq!(
            shown,
            [(0, "cpu", Some(4_000), None), (0, "memory", None, Some(1 << 30)), (1, "cpu", Some(4_000), Some(3_500))]
        );
        let fields: Vec<_> = read.problems.iter().filter_map(|problem| problem.field.as_deref()).collect();
        assert_eq!(fields, ["zones[1].resources: capacity.memory", "zones[3].name", "zones[4].name"]);
    }

    #[test]
    fn what_is_not_of_its_type_is_refused_with_its_field() {
        for (value, field) in [
            (json!({"metadata": {"name": "here"}, "zones": {}}), "zones"),
            (json!({"metadata": {"name": "here"}, "zones": [{"name": 1}]}), "zones[0].name"),
            (json!({"apiVersion": "topology.node.k8s.io/v9", "metadata": {"name": "here"}}), "apiVersion"),
        ] {
            let problem = topology_from_value(value, "test").unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field), "{problem}");
        }
    }
}
