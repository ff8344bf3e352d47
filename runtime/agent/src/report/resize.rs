//! A resize that the kubelet has not carried out, in words.

use std::fmt::Display;

use qosm_model::pod::{Moment, Pod, Resources};

/// The kubelet's status of a resize, then for the pod and each container the current and the requested resources. Empty if there is no
/// resize.
pub(crate) fn lines(pod: &Pod) -> Vec<String> {
    let Some(said) = &pod.resize else { return Vec::new() };
    let whole = differences(pod.resources(Moment::Now), pod.resources(Moment::Next)).map(|text| format!("pod: {text}"));
    let containers = pod.containers.iter().filter_map(|container| {
        let text = differences(container.resources(Moment::Now), container.resources(Moment::Next))?;
        Some(format!("container {}: {text}", container.name))
    });
    std::iter::once(said.clone()).chain(whole).chain(containers).collect()
}

fn differences(now: Resources, next: Resources) -> Option<String> {
    let differences: Vec<String> = [
        difference("requests.cpu", now.cpu_request, next.cpu_request),
        difference("limits.cpu", now.cpu_limit, next.cpu_limit),
        difference("requests.memory", now.memory_request, next.memory_request),
        difference("limits.memory", now.memory_limit, next.memory_limit),
    ]
    .into_iter()
    .flatten()
    .collect();
    (!differences.is_empty()).then(|| differences.join("; "))
}

fn difference<T: Display + PartialEq>(field: &str, now: Option<T>, next: Option<T>) -> Option<String> {
    let shown = |amount: &Option<T>| amount.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    (now != next).then(|| format!("{field} is {}, asked for is {}", shown(&now), shown(&next)))
}

#[cfg(test)]
mod tests {
    use qosm_model::unit::{Bytes, MilliCpu};

    use super::*;

    #[test]
    fn only_what_differs_is_told() {
        let now = Resources { cpu_limit: Some(MilliCpu(2000)), memory_limit: Some(Bytes(64)), ..Resources::default() };
        let next = Resources { cpu_limit: Some(MilliCpu(500)), cpu_request: Some(MilliCpu(100)), ..now };
        assert_eq!(differences(now, now), None);
        assert_eq!(
            differences(now, next).as_deref(),
            Some("requests.cpu is none, asked for is 100m; limits.cpu is 2000m, asked for is 500m")
        );
    }
}
