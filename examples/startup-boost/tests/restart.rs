//! Boosts that are under way survive a restart of the agent and a new version of the policy.

#![expect(clippy::unwrap_used, reason = "a test that fails its expectation should say so at once")]

use qosm_sdk::mock::{self, CPU_QUOTA, MockHost};
use qosm_sdk::{Container, PodFacts, Session, Target};
use startup_boost::StartupBoost;

const APP: Target = Target::Container(7);

fn host() -> MockHost {
    let mut host = MockHost::default();
    host.columns.bandwidth = mock::bandwidth(&[web()]);
    host.columns.node = Some(mock::node(4, 8 << 30));
    host
}

fn web() -> PodFacts {
    let app = Container { cpu_limit_milli: Some(500), ..mock::container(7, "app") };
    let config = r#"{"percent": 200, "seconds": 10, "decaySeconds": 0}"#.into();
    PodFacts { config, containers: vec![app], ..mock::pod(1, "default", "web") }
}

/// An instance whose pod exists from the start, or comes later.
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
    host.assert_held(APP, CPU_QUOTA, 100_000);

    let mut next = started(&mut host, false);
    tick(&mut next, &mut host, 5);
    // 5 s of 10 were over.
    host.assert_held(APP, CPU_QUOTA, 100_000);
    tick(&mut next, &mut host, 6);
    host.assert_free(APP, CPU_QUOTA);

    let mut third = started(&mut host, false);
    tick(&mut third, &mut host, 1);
    // One start gets one boost.
    host.assert_free(APP, CPU_QUOTA);
}

#[test]
fn a_state_that_cannot_be_read_is_logged_and_boosts_no_container() {
    let mut host = host();
    host.state = vec![1, 2, 3];
    let mut policy = started(&mut host, false);
    tick(&mut policy, &mut host, 1);
    assert_eq!(host.log.len(), 1, "{:?}", host.log);
    host.assert_free(APP, CPU_QUOTA);
}
