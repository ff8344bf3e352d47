//! Properties that hold for all pods and configurations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cpu_identity::CpuIdentity;
use cpu_identity::config::{Defaults, PodConfig, Settings};
use cpu_identity::rule::Rule;
use cpu_identity::strategy::{Class, CpuPolicy, CpuQos, Strategy};
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use qosm_sdk::mock::{self, CORE_GROUP, CPU_BVT, CPU_IDLE, ConfigKey, MockHost, Value};
use qosm_sdk::{ContainerState, PodFacts, QosClass, Session, Target, strategies};
use serde_json::json;

const KEY: &str = "resource-qos-config";

fn class() -> impl proptest::strategy::Strategy<Value = CpuQos> {
    (option::of(any::<bool>()), option::of(-1..=2_i8), option::of(any::<bool>()), option::of(any::<bool>())).prop_map(
        |(enable, group_identity, sched_idle, core_expeller)| CpuQos {
            enable,
            group_identity,
            sched_idle,
            core_expeller,
        },
    )
}

fn configured() -> impl proptest::strategy::Strategy<Value = Strategy> {
    let policy = prop_oneof![3 => Just(CpuPolicy::GroupIdentity), 1 => Just(CpuPolicy::CoreSched)];
    (policy, class(), class(), class(), class()).prop_map(|(policy, lsr, ls, be, system)| Strategy {
        policy,
        lsr,
        ls,
        be,
        system,
    })
}

fn settings() -> impl proptest::strategy::Strategy<Value = Settings> {
    (prop_oneof![Just(Defaults::Koordinator), Just(Defaults::Colocation)], any::<bool>())
        .prop_map(|(defaults, raise_by_annotation)| Settings { defaults, raise_by_annotation })
}

fn asked() -> impl proptest::strategy::Strategy<Value = PodConfig> {
    (option::of(any::<bool>()), option::of(-1..=2_i8))
        .prop_map(|(enable, group_identity)| PodConfig { enable, group_identity })
}

fn pods() -> impl proptest::strategy::Strategy<Value = Vec<PodFacts>> {
    let annotation = prop_oneof![Just("{}"), Just(r#"{"enable": true, "groupIdentity": -1}"#)].prop_map(str::to_owned);
    strategies::pods(0..6, annotation)
}

/// The strategy as written in a ConfigMap.
fn written(strategy: &Strategy) -> String {
    let mut all = json!({"policies": {"cpuPolicy": match strategy.policy {
        CpuPolicy::GroupIdentity => "groupIdentity",
        CpuPolicy::CoreSched => "coreSched",
    }}});
    for class in Class::ALL {
        let said = strategy.class(class);
        all[class.key()] = json!({"cpuQOS": {
            "enable": said.enable, "groupIdentity": said.group_identity, "schedIdle": said.sched_idle.map(u8::from),
            "coreExpeller": said.core_expeller,
        }});
    }
    all.to_string()
}

fn granted() -> MockHost {
    MockHost::granting(["cluster-config", "cpu-weight", "cpu-identity", "node-knobs"])
}

/// A policy with this configuration and these pods.
fn started(host: &mut MockHost, settings: Settings, pods: &[PodFacts]) -> Session<CpuIdentity> {
    let mut policy = Session::<CpuIdentity>::default();
    let defaults = if settings.defaults == Defaults::Colocation { "colocation" } else { "koordinator" };
    let config = json!({"defaults": defaults, "raiseByAnnotation": settings.raise_by_annotation});
    policy.configure(host, &config.to_string()).unwrap();
    policy.pods(host, pods.to_vec(), &[]).unwrap();
    policy
}

fn evaluate(host: &mut MockHost, policy: &mut Session<CpuIdentity>, strategy: &str) {
    let key = ConfigKey { text: strategy.into(), strategy: strategy.into() };
    host.columns.cluster_config.insert(KEY.into(), key);
    policy.evaluate(host, mock::tick(1_000)).unwrap();
    host.commit();
}

proptest! {
    #[test]
    fn a_strategy_that_is_written_is_read(strategy in configured(), last in configured()) {
        prop_assert_eq!(Strategy::read(&written(&strategy), &last), (strategy, vec![]));
    }

    #[test]
    fn any_text_is_a_strategy_or_leaves_the_last(text in ".*", last in configured()) {
        let (strategy, faults) = Strategy::read(&text, &last);
        prop_assert!(!faults.is_empty() && strategy == last || serde_json::from_str::<serde_json::Value>(&text).is_ok());
    }

    #[test]
    fn a_rank_is_one_that_there_is_and_an_annotation_alone_raises_nobody(
        strategy in configured(), settings in settings(), asked in asked(), pods in pods(),
    ) {
        let rule = Rule::new(&strategy, Settings { raise_by_annotation: false, ..settings });
        let raising = Rule::new(&strategy, Settings { raise_by_annotation: true, ..settings });
        for pod in &pods {
            let (class, own) = (rule.pod(pod, None), rule.pod(pod, Some(asked)));
            prop_assert!((-1..=2).contains(&own.identity));
            prop_assert!(own.identity <= class.identity);
            prop_assert!((-1..=2).contains(&raising.pod(pod, Some(asked)).identity));
            prop_assert_eq!(raising.pod(pod, None), class);
            if pod.declared_qos != Some(QosClass::Ls) {
                prop_assert_eq!(own, rule.pod(pod, None));
            }
        }
    }

    #[test]
    fn core_scheduling_and_group_identity_exclude_each_other(
        strategy in configured(), settings in settings(), asked in option::of(asked()), pods in pods(),
    ) {
        let rule = Rule::new(&strategy, settings);
        for wanted in pods.iter().map(|pod| rule.pod(pod, asked)) {
            prop_assert!(wanted.identity == 0 || wanted.core_group.is_none() && !wanted.idle);
        }
    }

    #[test]
    fn containers_that_run_are_idle_and_nothing_else_is_held(
        strategy in configured(), settings in settings(), pods in pods(),
    ) {
        let mut host = granted();
        let mut policy = started(&mut host, settings, &pods);
        evaluate(&mut host, &mut policy, &written(&strategy));
        for (&(target, knob), &value) in host.leases() {
            prop_assert_eq!((knob, value), (CPU_IDLE, Value::Number(1)));
            let Target::Container(id) = target else { return Err(TestCaseError::fail(format!("{target:?}"))) };
            let containers = pods.iter().filter(|pod| pod.active).flat_map(|pod| &pod.containers);
            let running = containers.filter(|container| container.state == ContainerState::Running);
            prop_assert!(running.map(|container| container.id).any(|running| running == id));
        }

        // After it is switched off, the policy holds nothing.
        evaluate(&mut host, &mut policy, &written(&off(&strategy)));
        prop_assert!(host.leases().is_empty());
    }

    #[test]
    fn where_there_is_core_scheduling_containers_share_cores_as_their_pods_may(
        strategy in configured(), settings in settings(), pods in pods(),
    ) {
        let mut host = granted();
        host.columns.core_scheduling = true;
        let mut policy = started(&mut host, settings, &pods);
        evaluate(&mut host, &mut policy, &written(&strategy));
        let rule = Rule::new(&strategy, settings);
        let group = |target: Target| host.leases().get(&(target, CORE_GROUP)).copied();
        for pod in &pods {
            let wanted = rule.pod(pod, None).core_group.filter(|_| pod.active).map(|name| qosm_sdk::core_group(&name));
            for container in &pod.containers {
                let held = group(Target::Container(container.id));
                if let Some(held) = held {
                    let number = wanted.map(|number| Value::Number(i64::try_from(number).unwrap()));
                    prop_assert!(number == Some(held) && container.state == ContainerState::Running);
                }
            }
        }
        for &(target, knob) in host.leases().keys() {
            prop_assert!([CPU_IDLE, CORE_GROUP].contains(&knob) && matches!(target, Target::Container(_)));
        }
        evaluate(&mut host, &mut policy, &written(&off(&strategy)));
        prop_assert!(host.leases().is_empty());
    }

    #[test]
    fn where_there_are_identities_each_group_has_one_and_nothing_is_idle_beside(
        strategy in configured(), settings in settings(), pods in pods(),
    ) {
        let mut host = granted();
        host.columns.group_identity = true;
        let mut policy = started(&mut host, settings, &pods);
        evaluate(&mut host, &mut policy, &written(&strategy));
        let has_identities = Rule::new(&strategy, settings).policy() == Some(CpuPolicy::GroupIdentity);
        let knobs: Vec<_> = host.leases().keys().map(|&(_, knob)| knob).collect();
        if has_identities {
            prop_assert!(knobs.iter().all(|&knob| knob == CPU_BVT));
            let active = pods.iter().filter(|pod| pod.active);
            let groups = |pod: &PodFacts| {
                1 + pod.containers.iter().filter(|container| container.state == ContainerState::Running).count()
            };
            prop_assert_eq!(knobs.len(), 3 + active.map(groups).sum::<usize>());
            prop_assert!(host.leases().values().all(|&value| (-1..=2).any(|rank| value == Value::Number(rank))));
        } else {
            prop_assert!(knobs.iter().all(|&knob| knob == CPU_IDLE));
        }
        evaluate(&mut host, &mut policy, &written(&off(&strategy)));
        prop_assert!(host.leases().is_empty());
    }
}

/// The strategy with every class switched off.
fn off(strategy: &Strategy) -> Strategy {
    let off = CpuQos { enable: Some(false), ..CpuQos::default() };
    Strategy { policy: strategy.policy, lsr: off, ls: off, be: off, system: off }
}
