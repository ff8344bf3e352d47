use qosm_sdk::mock;

use super::*;

/// All classes are enabled; LSR, LS and SYSTEM have different identities.
const ALL: &str = r#"{"lsrClass": {"cpuQOS": {"enable": true, "groupIdentity": 2}}, "lsClass": {"cpuQOS": {"enable": true, "groupIdentity": 1}},
    "beClass": {"cpuQOS": {"enable": true}}, "systemClass": {"cpuQOS": {"enable": true, "groupIdentity": 0}}}"#;

fn rule_with(strategy: &str, settings: Settings) -> Rule {
    let (strategy, faults) = Strategy::read(strategy, &Strategy::default());
    assert_eq!(faults, []);
    Rule::new(&strategy, settings)
}

fn rule(strategy: &str) -> Rule {
    rule_with(strategy, Settings::default())
}

const COLOCATION: Settings = Settings { defaults: Defaults::Colocation, raise_by_annotation: false };

fn pod(class: Option<QosClass>, kube_qos: KubeQos) -> PodFacts {
    PodFacts { declared_qos: class, kube_qos, ..mock::pod(1, "default", "web") }
}

fn asks(json: &str) -> Option<PodConfig> {
    Some(serde_json::from_str(json).unwrap())
}

fn identity(rule: &Rule, class: Option<QosClass>, kube_qos: KubeQos) -> i8 {
    rule.pod(&pod(class, kube_qos), None).identity
}

use KubeQos::{BestEffort, Burstable, Guaranteed};

#[test]
fn each_pod_has_the_identity_of_its_class() {
    let lsr_off = r#"{"lsrClass": {"cpuQOS": {"enable": false, "groupIdentity": 2}}, "lsClass": {"cpuQOS": {"enable": true}},
        "beClass": {"cpuQOS": {"enable": true}}}"#;
    let be_alone = r#"{"beClass": {"cpuQOS": {"enable": true}}}"#;
    for (class, kube_qos, of_all, of_lsr_off, of_be_alone) in [
        (Some(QosClass::Lse), Guaranteed, 2, 0, 0),
        (Some(QosClass::Lsr), Burstable, 2, 0, 0),
        (Some(QosClass::Ls), Guaranteed, 1, 2, 0),
        (Some(QosClass::Ls), BestEffort, 1, 2, 0),
        (Some(QosClass::Be), BestEffort, -1, -1, -1),
        (Some(QosClass::Be), Burstable, -1, -1, -1),
        // The value of its own class, whatever its Kubernetes QoS.
        (Some(QosClass::System), BestEffort, 0, 0, 0),
        (Some(QosClass::System), Burstable, 0, 0, 0),
        (None, Guaranteed, 2, 2, 0),
        (None, Burstable, 1, 2, 0),
        (None, BestEffort, -1, -1, -1),
    ] {
        for (strategy, expected) in [(ALL, of_all), (lsr_off, of_lsr_off), (be_alone, of_be_alone), ("{}", 0)] {
            assert_eq!(identity(&rule(strategy), class, kube_qos), expected, "{class:?} {kube_qos:?} {strategy}");
        }
    }
    let system = rule(r#"{"systemClass": {"cpuQOS": {"enable": true, "groupIdentity": 1}}}"#);
    assert_eq!(identity(&system, Some(QosClass::System), BestEffort), 1);
    assert_eq!(identity(&system, None, BestEffort), 0);
}

#[test]
fn what_an_enabled_class_does_not_say_is_the_default() {
    let enabled = |class: Class| rule(&format!(r#"{{"{}": {{"cpuQOS": {{"enable": true}}}}}}"#, class.key()));
    for (class, label, expected) in [
        (Class::Lsr, QosClass::Lsr, 2),
        (Class::Ls, QosClass::Ls, 2),
        (Class::Be, QosClass::Be, -1),
        (Class::System, QosClass::System, 0),
    ] {
        assert_eq!(identity(&enabled(class), Some(label), Burstable), expected, "{class}");
    }
}

#[test]
fn a_tier_has_the_identity_of_its_class_and_kubepods_none() {
    for (tier, expected) in [(Tier::Guaranteed, 0), (Tier::Burstable, 1), (Tier::BestEffort, -1)] {
        assert_eq!(rule(ALL).tier(tier).identity, expected, "{tier:?}");
        assert_eq!(rule("{}").tier(tier), Wanted::default(), "{tier:?}");
    }
}

#[test]
fn an_annotation_lets_latency_sensitive_pods_go_behind_their_class_and_not_before_it() {
    for (annotation, clamped, raised) in [
        (r#"{"enable": true, "groupIdentity": 2}"#, 1, 2),
        (r#"{"enable": true, "groupIdentity": 1}"#, 1, 1),
        (r#"{"enable": true, "groupIdentity": 0}"#, 0, 0),
        (r#"{"enable": true, "groupIdentity": -1}"#, -1, -1),
        (r#"{"enable": true}"#, 1, 1),
        (r#"{"groupIdentity": 2}"#, 0, 0),
        (r#"{"enable": false, "groupIdentity": -1}"#, 0, 0),
        ("{}", 0, 0),
    ] {
        for (raise_by_annotation, expected) in [(false, clamped), (true, raised)] {
            let rule = rule_with(ALL, Settings { raise_by_annotation, ..Settings::default() });
            let wanted = rule.pod(&pod(Some(QosClass::Ls), Burstable), asks(annotation));
            let source = if expected == 1 { Source::Class(Class::Ls) } else { Source::Annotation };
            assert_eq!((wanted.identity, wanted.source), (expected, source), "{annotation} {raise_by_annotation}");
        }
    }
}

#[test]
fn an_annotation_counts_on_pods_labelled_ls_alone_and_where_somebody_has_a_rank() {
    let own = asks(r#"{"enable": true, "groupIdentity": 0}"#);
    for (class, kube_qos, expected) in [
        (Some(QosClass::Lsr), Guaranteed, 2),
        (Some(QosClass::Be), BestEffort, -1),
        (None, Burstable, 1),
        (None, BestEffort, -1),
    ] {
        assert_eq!(rule(ALL).pod(&pod(class, kube_qos), own).identity, expected, "{class:?} {kube_qos:?}");
    }
    let behind = asks(r#"{"enable": true, "groupIdentity": -1}"#);
    let ls = pod(Some(QosClass::Ls), Burstable);
    for (strategy, expected) in [
        ("{}", 0),
        (r#"{"lsClass": {"cpuQOS": {"enable": false}}}"#, 0),
        (r#"{"policies": {"cpuPolicy": "coreSched"}, "lsClass": {"cpuQOS": {"enable": true}}}"#, 0),
        // The pod's own class has no rank, but others have.
        (r#"{"beClass": {"cpuQOS": {"enable": true}}}"#, -1),
    ] {
        assert_eq!(rule(strategy).pod(&ls, behind).identity, expected, "{strategy}");
    }
}

#[test]
fn with_the_defaults_of_colocation_pods_labelled_be_are_batch_unless_it_is_said_otherwise() {
    for (strategy, labelled, unlabelled) in [
        ("{}", -1, 0),
        (r#"{"lsClass": {"cpuQOS": {"enable": true}}}"#, -1, 0),
        (r#"{"beClass": {"cpuQOS": {"groupIdentity": 0}}}"#, 0, 0),
        (r#"{"beClass": {"cpuQOS": {"enable": false}}}"#, 0, 0),
        (r#"{"beClass": {"cpuQOS": {"enable": true}}}"#, -1, -1),
        (r#"{"policies": {"cpuPolicy": "coreSched"}}"#, 0, 0),
    ] {
        let rule = rule_with(strategy, COLOCATION);
        assert_eq!(identity(&rule, Some(QosClass::Be), BestEffort), labelled, "{strategy}");
        assert_eq!(identity(&rule, Some(QosClass::Be), Burstable), labelled, "{strategy}");
        assert_eq!(identity(&rule, None, BestEffort), unlabelled, "{strategy}");
    }
    assert_eq!(rule_with("{}", COLOCATION).pod(&pod(Some(QosClass::Be), BestEffort), None).source, Source::Label);
    assert_eq!(rule_with("{}", COLOCATION).tier(Tier::BestEffort), Wanted::default());
}

#[test]
fn core_scheduling_groups_follow_labels_and_expellers_stay_among_themselves() {
    let rule = rule(
        r#"{"policies": {"cpuPolicy": "coreSched"}, "lsClass": {"cpuQOS": {"enable": true}}, "beClass": {"cpuQOS": {"enable": true}},
            "systemClass": {"cpuQOS": {"enable": true}}, "lsrClass": {"cpuQOS": {"enable": false}}}"#,
    );
    let group = |class, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let wanted = rule.pod(&PodFacts { labels, ..pod(class, Burstable) }, asks(r#"{"enable": true}"#));
        assert_eq!(wanted.identity, 0);
        wanted.core_group
    };
    let (id, policy) = (GROUP_LABEL, POLICY_LABEL);
    for (class, labels, expected) in [
        (Some(QosClass::Ls), &[][..], Some("/expeller")),
        (Some(QosClass::Ls), &[(id, "a")], Some("a/expeller")),
        (Some(QosClass::Ls), &[(id, "a"), (policy, "exclusive")], Some("pod/uid-of-default-web")),
        (Some(QosClass::Ls), &[(id, "a"), (policy, "none")], None),
        (Some(QosClass::Ls), &[(id, "a"), (policy, "")], Some("a/expeller")),
        (None, &[], Some("/expeller")),
        (Some(QosClass::Be), &[], Some("")),
        (Some(QosClass::Be), &[(id, "a")], Some("a")),
        (Some(QosClass::Lsr), &[(id, "a")], None),
        (Some(QosClass::System), &[(id, "a"), (policy, "exclusive")], None),
    ] {
        assert_eq!(group(class, labels).as_deref(), expected, "{class:?} {labels:?}");
    }
}

#[test]
fn with_core_scheduling_classes_are_idle_where_they_say_so() {
    let core =
        |be: &str| rule(&format!(r#"{{"policies": {{"cpuPolicy": "coreSched"}}, "beClass": {{"cpuQOS": {be}}}}}"#));
    for (be, expected) in [
        (r#"{"enable": true, "schedIdle": 1}"#, true),
        (r#"{"enable": true}"#, false),
        (r#"{"enable": false, "schedIdle": 1}"#, false),
        (r#"{"schedIdle": 1}"#, false),
    ] {
        assert_eq!(core(be).pod(&pod(None, BestEffort), None).idle, expected, "{be}");
        assert_eq!(core(be).tier(Tier::BestEffort).idle, expected, "{be}");
        assert!(!core(be).pod(&pod(None, Burstable), None).idle, "{be}");
        assert!(!core(be).tier(Tier::Guaranteed).idle, "{be}");
    }
    // With `groupIdentity`, `schedIdle` has no effect.
    let identity = rule(r#"{"beClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}}"#);
    assert!(!identity.pod(&pod(None, BestEffort), None).idle);
    // The kubepods cgroup takes the value of Guaranteed pods.
    let both = rule(
        r#"{"policies": {"cpuPolicy": "coreSched"}, "lsrClass": {"cpuQOS": {"enable": true, "schedIdle": 1}}, "lsClass": {"cpuQOS": {"enable": true}}}"#,
    );
    assert_eq!([Tier::Guaranteed, Tier::Burstable].map(|tier| both.tier(tier).idle), [true, false]);
}
