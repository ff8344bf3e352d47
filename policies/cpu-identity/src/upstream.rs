//! Kernels without group identities: `cpu.idle` of containers stands for the identity -1.
//!
//! A waking thread counts a CPU as idle if everything that runs there is in idle groups. So it goes there instead of queueing behind
//! another latency-sensitive thread, and the scheduler prefers it at once. Cgroups above a container are never made idle: the kubelet
//! writes their weights, which the kernel would refuse, and the kubelet could not start again.

use qosm_sdk::{ContainerId, ContainerState, Level, PodFacts};

use crate::rule::Wanted;
use crate::strategy::CpuPolicy;

/// Pods of this priority or a higher one belong to the node or the cluster, such as kube-proxy, which has no requests.
const SYSTEM_PRIORITY: i32 = 2_000_000_000;

/// A kernel feature that is configured but missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Group identities.
    Identities {
        /// Why, according to the host.
        why: String,
    },
    /// Core scheduling groups.
    CoreGroups {
        /// Why, according to the host.
        why: String,
    },
}

impl Missing {
    /// The missing feature that the strategy requires; `None` if none is missing.
    pub(crate) fn of(
        policy: Option<CpuPolicy>,
        identities: &Result<(), String>,
        cores: &Result<(), String>,
    ) -> Option<Self> {
        match policy? {
            CpuPolicy::GroupIdentity => identities.as_ref().err().map(|why| Self::Identities { why: why.clone() }),
            CpuPolicy::CoreSched => cores.as_ref().err().map(|why| Self::CoreGroups { why: why.clone() }),
        }
    }
}

/// The reason why the containers of a pod are idle; `None` if they are not.
pub fn idle(pod: &PodFacts, wanted: &Wanted) -> Option<String> {
    let is_wanted = wanted.identity < 0 || wanted.idle;
    if !pod.active || !is_wanted || is_of_the_node(pod) {
        return None;
    }
    let what = if wanted.idle { "schedIdle 1".to_owned() } else { format!("group identity {}", wanted.identity) };
    Some(wanted.source.of(&what))
}

/// Whether a pod belongs to the node or the cluster and so is not batch. A pod that declares a class does not, whatever its priority.
pub(crate) fn is_of_the_node(pod: &PodFacts) -> bool {
    pod.declared_qos.is_none() && pod.priority.is_some_and(|priority| priority >= SYSTEM_PRIORITY)
}

/// The running containers, which have a cgroup.
pub(crate) fn running(pod: &PodFacts) -> impl Iterator<Item = ContainerId> {
    let running = pod.containers.iter().filter(|container| container.state == ContainerState::Running);
    running.map(|container| container.id)
}

/// The message about a missing feature and what is done instead.
pub(crate) fn notice(missing: &Missing) -> (Level, String) {
    match missing {
        Missing::Identities { why } => (
            Level::Info,
            format!(
                "cpu.bvt_warp_ns is not written ({why}): containers with the group identity -1 have cpu.idle instead, or the lowest \
                 weight where the kernel lacks that, and 0 to 2 need nothing beside it; other containers of the same core are not held back"
            ),
        ),
        Missing::CoreGroups { why } => (
            Level::Warn,
            format!(
                "cpuPolicy coreSched: threads are not put into core scheduling groups ({why}), so pods share cores as before; containers \
                 of classes with schedIdle 1 have cpu.idle, and with cpuPolicy groupIdentity those of batch pods would"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{KubeQos, QosClass, mock};

    use super::*;
    use crate::rule::Source;
    use crate::strategy::Class;

    fn pod() -> PodFacts {
        PodFacts { kube_qos: KubeQos::BestEffort, ..mock::pod(1, "batch", "report") }
    }

    fn identity(identity: i8) -> Wanted {
        Wanted { identity, source: Source::Class(Class::Be), ..Wanted::default() }
    }

    #[test]
    fn only_the_identity_of_batch_and_sched_idle_make_idle() {
        let idle_class = Wanted { idle: true, source: Source::Class(Class::Be), ..Wanted::default() };
        for (wanted, expected) in [
            (identity(-1), Some("group identity -1 of class BE")),
            (identity(0), None),
            (identity(2), None),
            (idle_class, Some("schedIdle 1 of class BE")),
            (
                Wanted { source: Source::Label, ..identity(-1) },
                Some("group identity -1 of pods labelled BE, as colocation has it"),
            ),
            (Wanted { source: Source::Annotation, ..identity(-1) }, Some("group identity -1, which the pod asks for")),
            (Wanted::default(), None),
        ] {
            assert_eq!(idle(&pod(), &wanted).as_deref(), expected, "{wanted:?}");
        }
    }

    #[test]
    fn pods_that_have_ended_and_those_of_the_node_itself_are_left_alone() {
        let of = |priority, declared_qos| PodFacts { priority: Some(priority), declared_qos, ..pod() };
        for (pod, expected) in [
            (PodFacts { active: false, ..pod() }, false),
            (of(2_000_001_000, None), false),
            (of(2_000_000_000, None), false),
            (of(1_999_999_999, None), true),
            (of(2_000_000_000, Some(QosClass::Be)), true),
            (of(i32::MIN, None), true),
        ] {
            assert_eq!(idle(&pod, &identity(-1)).is_some(), expected, "{pod:?}");
        }
    }
}
