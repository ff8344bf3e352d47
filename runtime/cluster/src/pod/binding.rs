//! The annotation that binds a manifest's containers to existing cgroups.

use std::collections::BTreeMap;

use qosm_model::pod::ContainerCgroup;
use serde_json::{Map, Value};

use super::resources::Reader;

/// Annotation that binds a pod's containers to existing cgroups, for pods that no kubelet runs. Only manifests may have it.
///
/// The value is a JSON object from container names to paths below the root of the cgroup hierarchies, e.g. `{"server":
/// "system.slice/nginx.service"}`; the same path counts in every hierarchy of cgroup v1. The name `""`, or `pod` where
/// no container has that name, means the pod's own cgroup. A container that is not named keeps the path that it would
/// have without the annotation. A leading `/` is the hierarchy's root as well; `.`, `..` and empty parts are refused.
pub const CGROUP_ANNOTATION: &str = "qosm.io/cgroup";

/// The content of the annotation.
#[derive(Default)]
pub(super) struct Binding {
    pub(super) pod: Option<String>,
    containers: BTreeMap<String, String>,
}

impl Binding {
    /// Reads the annotation. An annotation that is no JSON object is ignored as a whole; an invalid entry is ignored alone.
    pub(super) fn read<'n>(
        annotations: &BTreeMap<String, String>,
        names: impl Iterator<Item = &'n str>,
        reader: &mut Reader<'_>,
    ) -> Self {
        let mut binding = Self::default();
        let Some(text) = annotations.get(CGROUP_ANNOTATION) else { return binding };
        let field = format!("annotation {CGROUP_ANNOTATION}");
        let paths = match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(paths) => paths,
            Err(error) => {
                let message = format!(
                    r#"it is no JSON object ({error}); it is ignored as a whole, write e.g. {{"server": "system.slice/nginx.service"}}"#
                );
                reader.report(&field, message);
                return binding;
            }
        };
        let names: Vec<&str> = names.collect();
        for (name, path) in paths {
            let entry = format!("{field}: {}", Value::from(name.as_str()));
            let Some(path) = path.as_str().and_then(relative) else {
                let message = format!(
                    "{path} is no path below the hierarchy; the entry is ignored, write e.g. \"system.slice/x.service\""
                );
                reader.report(&entry, message);
                continue;
            };
            if names.contains(&name.as_str()) {
                binding.containers.insert(name, path);
            } else if name.is_empty() || (name == "pod" && binding.pod.is_none()) {
                binding.pod = Some(path);
            } else {
                let message = format!(
                    "the pod has no container of this name; the entry is ignored, known are {}",
                    names.join(", ")
                );
                reader.report(&entry, message);
            }
        }
        binding
    }

    /// Ignores the annotation and reports it: in a cluster, a pod's owner could name any cgroup of the node.
    pub(super) fn refuse(annotations: &BTreeMap<String, String>, reader: &mut Reader<'_>) -> Self {
        if annotations.contains_key(CGROUP_ANNOTATION) {
            let message = "it counts only in manifests on the node (`--pods`), for in a cluster the kubelet says which cgroups are a \
                           pod's; it is ignored, remove it";
            reader.report(&format!("annotation {CGROUP_ANNOTATION}"), message.to_owned());
        }
        Self::default()
    }

    pub(super) fn container(&self, name: &str) -> Option<ContainerCgroup> {
        self.containers.get(name).cloned().map(ContainerCgroup::Bound)
    }
}

/// The path without a leading `/`; `None` if it does not stay strictly below the root.
fn relative(path: &str) -> Option<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let fits = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    path.split('/').all(fits).then(|| path.to_owned())
}
