//! Reads a Node.

pub(crate) mod resources;

use k8s_openapi::api::core::v1;
use qosm_model::pod::Node;
use qosm_model::problem::Problem;
use qosm_model::unit::Bytes;
use serde_json::Value;

use crate::object::{KUBERNETES, Read, refused, unknown_fields};
use crate::quantity::parse_bytes;

/// Reads a Node: its name, labels and annotations, and the amounts of `status.capacity` and `status.allocatable`. `origin` names
/// the source in problems.
///
/// # Errors
///
/// The field that is not of its type.
pub fn node_from_value(value: Value, origin: &str) -> Result<Read<Node>, Problem> {
    let (read, unknown) = crate::typed::read::<v1::Node>(value).map_err(|misfit| refused(origin, "Node", misfit))?;
    let name = read.metadata.name.unwrap_or_default();
    let object_name = format!("node {name}");
    let mut problems = unknown_fields(KUBERNETES, &object_name, origin, unknown);
    let status = read.status.unwrap_or_default();
    let amounts = [("status.capacity", status.capacity), ("status.allocatable", status.allocatable)];
    let resources = resources::read(&amounts, |field, message| {
        problems.push(Problem {
            object: object_name.clone(),
            field: Some(field),
            message: format!("{message} (in {origin})"),
        });
    });
    let [_, (_, allocatable)] = amounts;
    let memory = allocatable.as_ref().and_then(|amounts| amounts.get("memory"));
    let memory_allocatable: Option<Bytes> = memory.and_then(|quantity| parse_bytes(&quantity.0).ok());
    let node = Node {
        name,
        labels: read.metadata.labels.unwrap_or_default(),
        memory_allocatable,
        annotations: read.metadata.annotations.unwrap_or_default(),
        resources,
        zones: Vec::new(),
    };
    Ok(Read { object: node, problems })
}
