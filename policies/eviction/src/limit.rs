//! The CPU limit of batch pods, by which their satisfaction is measured.

use std::collections::BTreeSet;

/// The CPU bounds of one cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// CPUs that the cgroup may run on; `None` if unknown.
    pub cpus: Option<Vec<u32>>,
    /// CFS quota in thousandths of a CPU; `None` if unknown or unlimited.
    pub quota_milli: Option<u64>,
}

impl Bound {
    /// The tighter of both bounds, in thousandths of a CPU; `None` if there is none.
    fn milli(&self) -> Option<u64> {
        let cpus = self.cpus.as_ref().map(|cpus| milli_of(cpus.len()));
        cpus.into_iter().chain(self.quota_milli).min()
    }
}

/// The smallest bound of the tier and of all containers of batch pods, in thousandths of a CPU, as koordinator computes it. `None` if
/// nothing bounds them.
///
/// Source: koordinator `pkg/koordlet/metricsadvisor/collectors/beresource/be_resource_collector.go`.
pub fn least_limit_milli(tier: &Bound, containers: &[Bound]) -> Option<u64> {
    containers.iter().chain([tier]).filter_map(Bound::milli).min()
}

/// The CPU that all batch pods together can get, in thousandths of a CPU: the minimum of the tier's own bounds, the CPUs that any container
/// may run on, and the sum of the containers' bounds. Unlike in [`least_limit_milli`], one small container does not make all of them count
/// as starving.
pub fn joint_limit_milli(tier: &Bound, containers: &[Bound]) -> Option<u64> {
    let sets: Option<Vec<&Vec<u32>>> = containers.iter().map(|container| container.cpus.as_ref()).collect();
    let any_cpu = sets.filter(|sets| !sets.is_empty()).map(|sets| {
        let cpus: BTreeSet<u32> = sets.into_iter().flatten().copied().collect();
        milli_of(cpus.len())
    });
    let sum = containers.iter().map(Bound::milli).try_fold(0_u64, |sum, milli| Some(sum.saturating_add(milli?)));
    let sum = sum.filter(|_| !containers.is_empty());
    tier.milli().into_iter().chain(any_cpu).chain(sum).min()
}

fn milli_of(cpus: usize) -> u64 {
    u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(cpus: Option<u32>, quota_milli: Option<u64>) -> Bound {
        Bound { cpus: cpus.map(|cpus| (0..cpus).collect()), quota_milli }
    }

    #[test]
    fn limits_by_hand() {
        for (tier, containers, least, joint) in [
            (bound(None, None), vec![], None, None),
            (bound(Some(8), None), vec![], Some(8_000), Some(8_000)),
            (bound(Some(8), Some(1_500)), vec![], Some(1_500), Some(1_500)),
            (bound(Some(8), Some(20_000)), vec![], Some(8_000), Some(8_000)),
            (bound(None, Some(4_000)), vec![bound(None, None)], Some(4_000), Some(4_000)),
            // Under the kubelet's static CPU manager only containers have fewer CPUs.
            (bound(Some(16), None), vec![bound(Some(4), None), bound(Some(4), None)], Some(4_000), Some(4_000)),
            // One small container does not make the others count as starving.
            (
                bound(Some(8), None),
                vec![bound(Some(8), Some(500)), bound(Some(8), Some(4_000))],
                Some(500),
                Some(4_500),
            ),
            (bound(Some(8), None), vec![bound(Some(8), Some(500)), bound(Some(8), None)], Some(500), Some(8_000)),
        ] {
            assert_eq!(least_limit_milli(&tier, &containers), least, "{tier:?} {containers:?}");
            assert_eq!(joint_limit_milli(&tier, &containers), joint, "{tier:?} {containers:?}");
        }
    }
}
