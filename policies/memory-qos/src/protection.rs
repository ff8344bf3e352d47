//! `memory.min` and `memory.low` of one cgroup during the computation, with the reason of each.

use crate::config::{MemoryQos, PolicyConfig};
use crate::formula::{below_limit, low_over_min, scaled, share};
use crate::plan::Shrink;
use crate::reason::{Reason, Size};
use crate::resources::Resources;

/// Protection of a pod or container.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupProtection {
    /// `memory.min` in bytes; `None` = not set.
    pub(crate) min: Option<u64>,
    /// `memory.low` in bytes; `None` = not set.
    pub(crate) low: Option<u64>,
    min_reason: String,
    low_reason: String,
}

impl GroupProtection {
    /// Computes the configured percentages of the request; `memory.min` is kept below the limit as the policy requires.
    pub(crate) fn new(qos: &MemoryQos, resources: Resources, policy: &PolicyConfig) -> Self {
        let request = Size::from(resources.request);
        let mut levels = Self::default();
        if let Some(percent) = qos.min_limit_percent {
            let wanted = share(resources.request, percent);
            let min = below_limit(wanted, resources.limit, policy.min_below_limit_percent);
            levels.min = Some(min);
            levels.min_reason = format!("min {percent} % of request {request}");
            if let (true, Some(limit)) = (min < wanted, resources.limit) {
                levels.min_reason +=
                    &format!(", kept {} % below limit {}", policy.min_below_limit_percent, Size::from(limit));
            }
        }
        if let Some(percent) = qos.low_limit_percent {
            levels.low = Some(share(resources.request, percent));
            levels.low_reason = format!("low {percent} % of request {request}");
        }
        levels
    }

    /// Shrinks `memory.min` by the same factor as that of the other containers, which ask for `asked` together, so that all get `most`.
    pub(crate) fn fit(&mut self, most: u64, asked: u128) {
        if let Some(min) = &mut self.min
            && asked > u128::from(most)
        {
            *min = scaled(*min, most, asked);
            self.min_reason += &format!(", shrunk so that all containers of the pod have {}", Size::from(most));
        }
    }

    /// Raises `memory.min`, if it is set, to what the child cgroups need.
    pub(crate) fn cover_min(&mut self, children: u64) {
        if let Some(min) = self.min.as_mut().filter(|min| **min < children) {
            *min = children;
            self.min_reason += ", raised to that of its containers";
        }
    }

    /// Raises `memory.low`, if it is set, to what the child cgroups need.
    pub(crate) fn cover_low(&mut self, children: u64) {
        if let Some(low) = self.low.as_mut().filter(|low| **low < children) {
            *low = children;
            self.low_reason += ", raised to that of its containers";
        }
    }

    /// Shrinks `memory.min`, then raises `memory.low` to it.
    pub(crate) fn settle(&mut self, shrink: Option<Shrink>) {
        if let (Some(min), Some(Shrink { total, cap })) = (&mut self.min, shrink) {
            *min = scaled(*min, cap, total);
            self.min_reason +=
                &format!(", shrunk because all pods ask for {} and may have {}", Size::from(total), Size::from(cap));
        }
        let low = low_over_min(self.low, self.min);
        if low != self.low {
            self.low = low;
            self.low_reason += ", raised to min";
        }
    }

    /// Adds the reasons of both values.
    pub(crate) fn explain(&self, reason: &mut Reason) {
        for part in [&self.min_reason, &self.low_reason] {
            if !part.is_empty() {
                reason.add(part);
            }
        }
    }
}
