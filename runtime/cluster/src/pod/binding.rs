//! Cgroups that a manifest names for its containers.

use std::collections::BTreeMap;

use qosm_model::pod::ContainerCgroup;
use serde_json::{Map, Value};

use super::resources::Reader;

/// Binds a pod's containers to cgroups that exist already, for pods that no kubelet runs.
///
/// The value is a JSON object from container names to paths below the root of the cgroup hierarchies, e.g.
/// `{"server": "system.slice/nginx.service"}`; the same path counts in every hierarchy of cgroup v1. The name `""`, or `pod`
/// where no container is called so, stands for the pod's own cgroup. A container that is not named keeps the place that it
/// would have without the annotation. A leading `/` is the hierarchy's root as well; `.`, `..` and empty parts are refused.
pub const CGROUP_ANNOTATION: &str = "qosm.io/cgroup";

/// What the annotation says.
#[derive(Default)]
pub(super) struct Binding {
    pub(super) pod: Option<String>,
    containers: BTreeMap<String, String>,
}

impl Binding {
    /// Reads the annotation. One that is no JSON object is ignored as a whole, a bad entry alone.
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
                reader.tell(&field, message);
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
                reader.tell(&entry, message);
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
                reader.tell(&entry, message);
            }
        }
        binding
    }

    pub(super) fn container(&self, name: &str) -> Option<ContainerCgroup> {
        self.containers.get(name).cloned().map(ContainerCgroup::Bound)
    }
}

/// The path without a leading `/`; `None` where it does not stay strictly below the root.
fn relative(path: &str) -> Option<String> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    let fits = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(char::is_control);
    path.split('/').all(fits).then(|| path.to_owned())
}
