//! Configured values that a pod does not get, and why.

use qosm_sdk::Target;

use crate::plan::{NodeMemory, PodProtection, Shrink};
use crate::reason::Size;
use crate::resources;

/// A knob without effect, or with less effect than configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unmet {
    /// The pod or container.
    pub(crate) target: Target,
    /// Name of the knob, as in plans.
    pub(crate) knob: &'static str,
    /// The reason, and how to fix it.
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
        if self.qos.page_cache_limit_size.is_none() {
            let percent = self.qos.page_cache_limit_percent;
            if let Some(percent) = percent.filter(|percent| *percent > 0 && self.resources.limit.is_none()) {
                let limit = resources::requested_name(self.pod);
                let why = format!(
                    "pageCacheLimitPercent is {percent}, but the pod has no limit to take it of; set limits.{limit} of each container, \
                     or pageCacheLimitSize"
                );
                add(Target::Pod(self.pod.id), "memory.pagecache_limit.size", why);
            } else if percent.is_none() && self.qos.page_cache_reclaim_sync == Some(true) {
                let why = "pageCacheReclaimSync is true, but there is no page cache limit; set pageCacheLimitSize or \
                           pageCacheLimitPercent"
                    .to_owned();
                add(Target::Pod(self.pod.id), "memory.pagecache_limit.sync", why);
            }
        }
        for container in &self.containers {
            let (target, resources) = (Target::Container(container.container.id), container.resources);
            // The pod's own request protects its cgroup, and the kernel distributes what no child claims of that (memory_recursiveprot,
            // with which systemd mounts cgroup v2). If something is left, the container is protected although it requests nothing itself.
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
