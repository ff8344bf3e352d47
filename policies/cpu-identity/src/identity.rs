//! Group identities: each tier, pod and container holds its identity, and the node's switches hold the required values.
//!
//! A container could inherit the identity of its pod. But an existing cgroup does not follow its parent, and a value written by another
//! program would remain, so the identity is held on each cgroup.

use qosm_sdk::{CpuIdentity, NodeKnob, NodeKnobs, PodFacts, Target, Tier};

use crate::rule::{Rule, Source, Wanted};
use crate::strategy::Class;
use crate::{PodConfig, upstream};

/// Values of the node's switches while identities are in force.
const SWITCHES: [(NodeKnob, u64, &str); 2] = [
    (NodeKnob::SchedCore, 0, "group identity, which core scheduling excludes"),
    (NodeKnob::GroupIdentity, 1, "group identities have an effect"),
];

/// An identity and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The group identity, -1 to 2.
    pub rank: i8,
    /// The reason in a few words.
    pub reason: String,
}

impl Identity {
    fn new(wanted: &Wanted) -> Self {
        let rank = wanted.identity;
        let reason = match wanted.source {
            Source::Unset => format!("group identity {rank}, since its class has none"),
            source => source.of(&format!("group identity {rank}")),
        };
        Self { rank, reason }
    }

    /// The identity of a tier's own cgroup.
    pub fn of_tier(rule: &Rule, tier: Tier) -> Self {
        match tier {
            Tier::Guaranteed => {
                Self { rank: 0, reason: "group identity 0, since pods of all classes are below it".to_owned() }
            }
            Tier::Burstable | Tier::BestEffort => Self::new(&rule.tier(tier)),
        }
    }

    /// The identity of a pod and its containers; `None` if the pod has ended.
    pub fn of_pod(rule: &Rule, pod: &PodFacts, asked: Option<PodConfig>) -> Option<Self> {
        let identity = Self::new(&rule.pod(pod, asked));
        let is_exempt = identity.rank < 0 && upstream::is_of_the_node(pod);
        let exempt =
            || Self { rank: 0, reason: format!("group identity 0: the node's own pods are not {}", Class::Be) };
        pod.active.then(|| if is_exempt { exempt() } else { identity })
    }
}

/// Sets the node's switches. A switch whose baseline is right already is not held.
pub(crate) fn switch<H: NodeKnobs>(host: &mut H) {
    let states = host.node_knobs();
    for (knob, value, reason) in SWITCHES {
        let baseline = states.iter().find(|state| state.knob == knob).and_then(|state| state.baseline);
        if baseline.is_some_and(|baseline| baseline != value) {
            host.set_node_knob(knob, value, reason);
        }
    }
}

/// Sets the identity of each tier.
pub(crate) fn tiers<H: CpuIdentity>(host: &mut H, rule: &Rule) {
    for tier in [Tier::Guaranteed, Tier::Burstable, Tier::BestEffort] {
        let Identity { rank, reason } = Identity::of_tier(rule, tier);
        host.set_identity(Target::Tier(tier), rank, &reason);
    }
}

/// Sets the identity of a pod and its containers.
pub(crate) fn pod<H: CpuIdentity>(host: &mut H, rule: &Rule, pod: &PodFacts, asked: Option<PodConfig>) {
    let Some(Identity { rank, reason }) = Identity::of_pod(rule, pod, asked) else { return };
    host.set_identity(Target::Pod(pod.id), rank, &reason);
    for container in upstream::running(pod) {
        host.set_identity(Target::Container(container), rank, &reason);
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::mock::{self, CPU_BVT, MockHost};
    use qosm_sdk::{KubeQos, NodeKnobState, QosClass};

    use super::*;
    use crate::config::Settings;
    use crate::strategy::Strategy;

    const ALL: &str = r#"{"lsrClass": {"cpuQOS": {"enable": true}}, "lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 1}},
        "beClass": {"cpuQOS": {"enable": true}}}"#;

    fn rule(strategy: &str) -> Rule {
        let (strategy, faults) = Strategy::read(strategy, &Strategy::default());
        assert_eq!(faults, []);
        Rule::new(&strategy, Settings::default())
    }

    #[test]
    fn a_tier_has_that_of_its_class_and_kubepods_has_none() {
        for (strategy, tier, rank, reason) in [
            (ALL, Tier::Guaranteed, 0, "group identity 0, since pods of all classes are below it"),
            (ALL, Tier::Burstable, 1, "group identity 1 of class LS"),
            (ALL, Tier::BestEffort, -1, "group identity -1 of class BE"),
            (
                r#"{"lsClass": {"cpuQOS": {"enable": true}}}"#,
                Tier::BestEffort,
                0,
                "group identity 0, since its class has none",
            ),
        ] {
            assert_eq!(Identity::of_tier(&rule(strategy), tier), Identity { rank, reason: reason.to_owned() });
        }
    }

    #[test]
    fn a_pod_has_that_of_its_class_and_of_the_node_itself_at_least_none() {
        let pod = |declared_qos, kube_qos, priority| PodFacts {
            declared_qos,
            kube_qos,
            priority: Some(priority),
            ..mock::pod(1, "default", "web")
        };
        for (pod, rank, reason) in [
            (pod(Some(QosClass::Lse), KubeQos::Guaranteed, 0), 2, "group identity 2 of class LSR"),
            (pod(None, KubeQos::BestEffort, 0), -1, "group identity -1 of class BE"),
            (pod(None, KubeQos::BestEffort, 2_000_001_000), 0, "group identity 0: the node's own pods are not BE"),
            (pod(Some(QosClass::Be), KubeQos::BestEffort, 2_000_001_000), -1, "group identity -1 of class BE"),
            (pod(None, KubeQos::Guaranteed, 2_000_001_000), 2, "group identity 2 of class LSR"),
            (pod(Some(QosClass::System), KubeQos::BestEffort, 0), 0, "group identity 0, since its class has none"),
        ] {
            let expected = Some(Identity { rank, reason: reason.to_owned() });
            assert_eq!(Identity::of_pod(&rule(ALL), &pod, None), expected, "{pod:?}");
            assert_eq!(Identity::of_pod(&rule(ALL), &PodFacts { active: false, ..pod }, None), None);
        }
    }

    #[test]
    fn a_switch_is_set_where_there_is_one_that_stands_wrong() {
        for (core, identity, held) in [
            (None, None, [None, None]),
            (Some(0), Some(1), [None, None]),
            (None, Some(0), [None, Some(1)]),
            (Some(1), Some(0), [Some(0), Some(1)]),
        ] {
            let mut host = MockHost::default();
            let state = |knob, value: Option<u64>| NodeKnobState { knob, value, baseline: value };
            host.columns.node_knobs = vec![state(NodeKnob::GroupIdentity, identity), state(NodeKnob::SchedCore, core)];
            for _ in 0..2 {
                switch(&mut host);
                host.commit();
                let now = [NodeKnob::SchedCore, NodeKnob::GroupIdentity].map(|knob| host.node_knob(knob));
                assert_eq!(now, held, "{core:?} {identity:?}");
            }
        }
    }

    #[test]
    fn a_pod_and_the_containers_that_run_have_one_identity() {
        let mut host = MockHost::default();
        let waiting = qosm_sdk::ContainerState::Waiting;
        let containers =
            vec![mock::container(7, "app"), qosm_sdk::Container { state: waiting, ..mock::container(8, "later") }];
        let web = PodFacts { declared_qos: Some(QosClass::Ls), containers, ..mock::pod(1, "default", "web") };
        let behind = PodConfig { enable: Some(true), group_identity: Some(-1) };
        pod(&mut host, &rule(ALL), &web, Some(behind));
        host.assert_held(Target::Pod(1), CPU_BVT, -1);
        host.assert_held(Target::Container(7), CPU_BVT, -1);
        host.assert_free(Target::Container(8), CPU_BVT);
    }
}
