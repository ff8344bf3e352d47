//! Limits of a specification that the kernel refuses, where qosm makes a pod's cgroups.

use qosm_host::HostError;
use qosm_model::pod::Pod;
use qosm_model::problem::Problem;

/// The problem of the pod; `None` if the error is another one.
pub(crate) fn problem(pod: &Pod, error: &HostError) -> Option<Problem> {
    let HostError::Bound { path, value, source } = error else { return None };
    let field = match path.rsplit_once('/').map_or(path.as_str(), |(_, file)| file) {
        "cpu.max" | "cpu.cfs_quota_us" => "resources.limits.cpu",
        "memory.max" | "memory.limit_in_bytes" => "resources.limits.memory",
        _ => "resources.requests.cpu",
    };
    Some(Problem {
        object: format!("pod {}", pod.key()),
        field: Some(field.to_owned()),
        message: format!(
            "the kernel refuses `{value}` in {path} ({source}): the cgroup does not have it, correct `{field}` of the pod or its container"
        ),
    })
}
