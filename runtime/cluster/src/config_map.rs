//! ConfigMaps from manifests.

use k8s_openapi::api::core::v1;
use qosm_model::layering::ConfigMap;
use qosm_model::problem::Problem;
use serde_json::Value;

use crate::object::{KUBERNETES, Read, refused, unknown_fields};

/// Reads a ConfigMap. `origin` names the place for problems, e.g. `config.yaml, document 2`.
///
/// # Errors
///
/// The field that makes the object unusable: it has the wrong type, or the name is missing. A `data` value that is not a string
/// makes the object unusable as well: to drop its key would change the meaning of the ConfigMap.
pub fn config_map_from_value(value: Value, origin: &str) -> Result<Read<ConfigMap>, Problem> {
    let (read, unknown) =
        crate::typed::read::<v1::ConfigMap>(value).map_err(|misfit| refused(origin, "ConfigMap", misfit))?;
    let name = read.metadata.name.filter(|name| !name.is_empty()).ok_or_else(|| Problem {
        object: origin.into(),
        field: Some("metadata.name".into()),
        message: "it is missing; the ConfigMap is not read, write a name".into(),
    })?;
    let namespace = read.metadata.namespace.filter(|namespace| !namespace.is_empty());
    let object = ConfigMap { namespace, name, data: read.data.unwrap_or_default() };
    let problems = unknown_fields(KUBERNETES, &format!("ConfigMap {}", object.key()), origin, unknown);
    Ok(Read { object, problems })
}
