//! What a restart of the agent, or a new version of the policy, does to boosts that are under way.

#![expect(clippy::unwrap_used, reason = "a test that fails its expectation should say so at once")]

use qosm_sdk::mock::{self, CPU_QUOTA, MockHost, Value};
use qosm_sdk::{Bandwidth, Container, PodFacts, Session, Target};
use startup_boost::StartupBoost;

const APP: Target = Target::Container(7);

fn host() -> MockHost {
    let mut host = MockHost::default();
    let quota = Some(50_000);
    host.columns.bandwidth =
        vec![Bandwidth { target: APP, quota_usec: quota, baseline_quota_usec: quota, period_usec: 100_000 }];
    host.columns.node = Some(qosm_sdk::NodeSample {
        cpus: 4,
        memory_capacity_bytes: 0,
        memory_allocatable_bytes: 0,
        page_size_bytes: 4096,
        cpu_usage_usec: None,
        memory_available_bytes: None,
    });
    host
}

fn web() -> PodFacts {
    let app = Container { cpu_limit_milli: Some(500), ..mock::container(7, "app") };
    let config = r#"{"percent": 200, "seconds": 10, "decaySeconds": 0}"#.into();
    PodFacts { config, containers: vec![app], ..mock::pod(1, "default", "web") }
}

/// An instance to which the pod was there from the start, or came later.
fn started(host: &mut MockHost, comes_later: bool) -> Session<StartupBoost> {
    let mut policy = Session::default();
    policy.configure(host, "{}").unwrap();
    if comes_later {
        tick(&mut policy, host, 1);
    }
    policy.pods(host, vec![web()], &[]).unwrap();
    policy
}

fn tick(policy: &mut Session<StartupBoost>, host: &mut MockHost, times: u32) {
    for _ in 0..times {
        policy.evaluate(host, mock::tick(1_000)).unwrap();
        host.commit();
    }
}

#[test]
fn a_boost_goes_on_where_it_was() {
    let mut host = host();
    let mut policy = started(&mut host, true);
    tick(&mut policy, &mut host, 6);
    assert_eq!(host.held(APP, CPU_QUOTA), Some(Value::Number(100_000)));

    let mut next = started(&mut host, false);
    tick(&mut next, &mut host, 5);
    assert_eq!(host.held(APP, CPU_QUOTA), Some(Value::Number(100_000)), "5 s of 10 are over");
    tick(&mut next, &mut host, 6);
    assert_eq!(host.held(APP, CPU_QUOTA), None);

    let mut third = started(&mut host, false);
    tick(&mut third, &mut host, 1);
    assert_eq!(host.held(APP, CPU_QUOTA), None, "once is enough");
}

#[test]
fn a_state_that_cannot_be_read_is_told_and_boosts_nobody() {
    let mut host = host();
    host.state = vec![1, 2, 3];
    let mut policy = started(&mut host, false);
    tick(&mut policy, &mut host, 1);
    assert_eq!(host.log.len(), 1, "{:?}", host.log);
    assert_eq!(host.held(APP, CPU_QUOTA), None);
}
