//! What a pod is configured for and does not get, and why.

use qosm_sdk::Target;

use crate::plan::{NodeMemory, PodProtection, Shrink};
use crate::reason::Size;
use crate::resources;

/// One knob that comes to nothing, or to less than was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// Of what.
    pub(crate) target: Target,
    /// The knob, as plans name it.
    pub(crate) knob: &'static str,
    /// The reason, with the way out.
    pub(crate) why: String,
}

impl PodProtection<'_> {
    pub(super) fn unmet(&self, node: NodeMemory, shrink: Option<Shrink>) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        let mut add = |target, knob, why| unmet.push(Unmet { target, knob, why });
        if let (Some(Shrink { total, cap }), Some(min)) = (shrink, self.all.min.filter(|min| *min > 0)) {
            let why = format!(
                "shrunk to {}: all pods ask for {} and may have {}; lower minLimitPercent, or raise minTotalPercent of this policy",
                Size::from(min),
                Size::from(total),
                Size::from(cap)
            );
            add(Target::Pod(self.pod.id), "memory.min", why);
        }
        for container in &self.containers {
            let (target, resources) = (Target::Container(container.container.id), container.resources);
            // The pod's own request protects the pod's cgroup, and what no child claims of that the kernel hands down
            // (memory_recursiveprot, with which systemd mounts cgroup v2): where something is left, nothing that was asked for is
            // missing.
            let is_covered = resources::left_of_pod_request(self.pod, container.container) > 0;
            let of_request = [
                ("memory.min", "minLimitPercent", self.qos.min_limit_percent),
                ("memory.low", "lowLimitPercent", self.qos.low_limit_percent),
            ];
            for (knob, field, percent) in of_request {
                if let Some(percent) = percent.filter(|percent| *percent > 0 && resources.request == 0 && !is_covered) {
                    let wanted = resources::requested_name(self.pod);
                    let why = format!("{field} is {percent}, but the container requests no {wanted} to take it of");
                    add(target, knob, why);
                }
            }
            let is_bounded = resources.limit.is_some() || node.allocatable > 0;
            if let Some(percent) = self.qos.throttling_percent.filter(|percent| *percent > 0 && !is_bounded) {
                let why = format!(
                    "throttlingPercent is {percent}, but neither the container nor its pod has a limit, and what the node can \
                     allocate is not known; set a memory limit"
                );
                add(target, "memory.high", why);
            }
        }
        unmet
    }
}
