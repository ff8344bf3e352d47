//! The node from a manifest.

use k8s_openapi::api::core::v1;
use qosm_model::pod::Node;
use qosm_model::problem::Problem;
use serde_json::Value;

use crate::object::{Read, refused, unknown_fields};
use crate::quantity::parse_bytes;

/// Reads a Node: its name, labels and `status.allocatable.memory`. `origin` names the place for problems.
///
/// # Errors
///
/// The field that is not of its type.
pub fn node_from_value(value: Value, origin: &str) -> Result<Read<Node>, Problem> {
    let (read, unknown) = crate::typed::read::<v1::Node>(value).map_err(|misfit| refused(origin, "Node", misfit))?;
    let name = read.metadata.name.unwrap_or_default();
    let object_name = format!("node {name}");
    let mut problems = unknown_fields(&object_name, origin, unknown);
    let memory = read.status.and_then(|status| status.allocatable?.remove("memory"));
    let memory_allocatable = memory.and_then(|quantity| match parse_bytes(&quantity.0) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            problems.push(Problem {
                object: object_name,
                field: Some("status.allocatable.memory".into()),
                message: format!(
                    "`{}` is not a quantity: {error}; all of the machine's memory counts, write e.g. `32Gi` (in {origin})",
                    quantity.0
                ),
            });
            None
        }
    });
    Ok(Read { object: Node { name, labels: read.metadata.labels.unwrap_or_default(), memory_allocatable }, problems })
}
