//! Properties that hold for all pods.

#![expect(clippy::unwrap_used, reason = "a test that fails its expectation should say so at once")]

use proptest::prelude::*;
use qosm_sdk::mock::{self, CPU_BURST, MockHost, Value};
use qosm_sdk::{PodFacts, Session, Target, strategies};
use service_class::ServiceClass;

fn asked() -> impl Strategy<Value = String> {
    let fields = (proptest::option::of(0..=1000_u64), proptest::option::of(1..=100_u64));
    fields.prop_map(|(burst, high)| {
        serde_json::json!({"policy": "silver", "burstPercent": burst, "highPercent": high}).to_string()
    })
}

fn evaluated(pods: Vec<PodFacts>) -> MockHost {
    let mut host = MockHost::default();
    host.columns.bandwidth = mock::bandwidth(&pods);
    let mut policy = Session::<ServiceClass>::default();
    assert_eq!(policy.pods(&mut host, pods, &[]).unwrap(), []);
    policy.evaluate(&mut host, mock::tick(0)).unwrap();
    host.commit();
    host
}

proptest! {
    #[test]
    fn a_pod_has_saved_up_what_its_containers_have(pods in strategies::pods(0..4, asked())) {
        let host = evaluated(pods.clone());
        let number = |target| match host.held(target, CPU_BURST) {
            Some(Value::Number(number)) => Some(number),
            _ => None,
        };
        for pod in &pods {
            let containers = pod.containers.iter().filter_map(|container| number(Target::Container(container.id)));
            if let Some(burst) = number(Target::Pod(pod.id)) {
                prop_assert_eq!(burst, containers.fold(0, i64::saturating_add));
            }
        }
    }

    #[test]
    fn nothing_is_held_without_configuration(pods in strategies::pods(0..4, Just("{}".to_owned()))) {
        let host = evaluated(pods);
        prop_assert!(host.leases().is_empty(), "{}", host);
    }
}
