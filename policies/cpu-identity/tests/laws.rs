//! What holds for any pods and any configuration.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use cpu_identity::CpuIdentity;
use cpu_identity::config::{Defaults, PodConfig, Settings};
use cpu_identity::rule::Rule;
use cpu_identity::strategy::{Class, CpuPolicy, CpuQos, Strategy};
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use qosm_sdk::mock::{self, CPU_IDLE, ConfigKey, MockHost, Value};
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

/// The strategy as it stands in a ConfigMap.
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

fn evaluate(host: &mut MockHost, policy: &mut Session<CpuIdentity>, strategy: &str) {
    let key = ConfigKey { text: strategy.into(), strategy: strategy.into() };
    host.columns.cluster_config.insert(KEY.into(), key);
    policy.evaluate(host, mock::tick(1_000)).unwrap();
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
        let mut host = MockHost::granting(["cluster-config", "cpu-weight"]);
        let mut policy = Session::<CpuIdentity>::default();
        let defaults = if settings.defaults == Defaults::Colocation { "colocation" } else { "koordinator" };
        let config = json!({"defaults": defaults, "raiseByAnnotation": settings.raise_by_annotation});
        policy.configure(&mut host, &config.to_string()).unwrap();
        policy.pods(&mut host, pods.clone(), &[]).unwrap();
        evaluate(&mut host, &mut policy, &written(&strategy));
        for (&(target, knob), &value) in host.leases() {
            prop_assert_eq!((knob, value), (CPU_IDLE, Value::Number(1)));
            let Target::Container(id) = target else { return Err(TestCaseError::fail(format!("{target:?}"))) };
            let containers = pods.iter().filter(|pod| pod.active).flat_map(|pod| &pod.containers);
            let running = containers.filter(|container| container.state == ContainerState::Running);
            prop_assert!(running.map(|container| container.id).any(|running| running == id));
        }

        // Switched off, it holds nothing.
        let off = CpuQos { enable: Some(false), ..CpuQos::default() };
        let off = Strategy { policy: strategy.policy, lsr: off, ls: off, be: off, system: off };
        evaluate(&mut host, &mut policy, &written(&off));
        prop_assert!(host.leases().is_empty());
    }
}
