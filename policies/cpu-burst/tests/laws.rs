//! Properties that hold for all loads and configurations.

#![expect(clippy::unwrap_used, reason = "a test that fails its expectation should say so at once")]

use cpu_burst::CpuBurst;
use proptest::prelude::*;
use qosm_sdk::mock::{self, CPU_QUOTA, MockHost, Value};
use qosm_sdk::{Container, CpuBandwidth as _, CpuSample, NodeSample, PodFacts, Session, Target, strategies};

const POD: Target = Target::Pod(1);

/// One pod with a container for each limit, on a host that reports what is held.
struct Run {
    host: MockHost,
    policy: Session<CpuBurst>,
    limits: Vec<u64>,
}

/// A container that was throttled in `nr_throttled` of ten periods.
fn load(usage_usec: u64, nr_throttled: u64, throttled_usec: u64) -> CpuSample {
    CpuSample { container: 0, usage_usec, nr_periods: 10, nr_throttled, throttled_usec }
}

impl Run {
    fn new(limits: &[u64], profile: &str, config: &str) -> Self {
        let mut host = MockHost::default();
        let mut policy = Session::default();
        policy.configure(&mut host, profile).unwrap();
        let mut run = Self { host, policy, limits: limits.to_vec() };
        run.host.columns.bandwidth = mock::bandwidth(&[run.pod(config)]);
        run.ask(config);
        run
    }

    fn pod(&self, config: &str) -> PodFacts {
        let containers = self
            .limits
            .iter()
            .zip(1..)
            .map(|(limit, id)| Container { cpu_limit_milli: Some(*limit), ..mock::container(id, &format!("c{id}")) });
        PodFacts { containers: containers.collect(), config: config.into(), ..mock::pod(1, "default", "web") }
    }

    fn ask(&mut self, config: &str) {
        let pod = self.pod(config);
        assert_eq!(self.policy.pods(&mut self.host, vec![pod], &[]).unwrap(), []);
    }

    fn tick(&mut self, loads: &[CpuSample], node_usec: Option<u64>) {
        self.host.columns.node = Some(NodeSample { cpu_usage_usec: node_usec, ..mock::node(16, 0) });
        let samples = loads.iter().zip(1..).take(self.limits.len());
        self.host.columns.cpu = samples.map(|(load, container)| CpuSample { container, ..*load }).collect();
        self.policy.evaluate(&mut self.host, mock::tick(1_000)).unwrap();
        self.host.commit();
    }

    fn held(&self, target: Target) -> Option<i64> {
        match self.host.held(target, CPU_QUOTA) {
            Some(Value::Number(quota)) => Some(quota),
            _ => None,
        }
    }

    fn base(&self, index: usize) -> i64 {
        i64::try_from(self.limits[index] * 100).unwrap()
    }
}

fn profiles() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(r#"{"profile": "koordinator"}"#), Just("{}")]
}

fn loads() -> impl Strategy<Value = Vec<(Vec<CpuSample>, Option<u64>)>> {
    let loads = proptest::collection::vec(strategies::cpu(0), 0..4);
    proptest::collection::vec((loads, proptest::option::of(0..16_000_000_u64)), 1..60)
}

proptest! {
    #[test]
    fn quotas_stay_within_bounds_and_the_pod_is_the_sum(
        limits in proptest::collection::vec(10..8_000_u64, 1..4),
        profile in profiles(),
        percent in 100..500_i64,
        period in -1..60_i64,
        history in loads(),
    ) {
        let config = format!(
            r#"{{"policy": "auto", "cfsQuotaBurstPercent": {percent}, "cfsQuotaBurstPeriodSeconds": {period}}}"#
        );
        let mut run = Run::new(&limits, profile, &config);
        for (loads, node) in history {
            run.tick(&loads, node);
            let mut sum = 0;
            let mut any = false;
            for (index, id) in (0..limits.len()).zip(1..) {
                let base = run.base(index);
                let held = run.held(Target::Container(id));
                if let Some(quota) = held {
                    prop_assert!(quota > base && quota <= base * percent / 100, "{quota} of {base} at {percent} %");
                    any = true;
                }
                sum += held.unwrap_or(base);
            }
            prop_assert_eq!(run.held(POD), any.then_some(sum));
        }
    }

    #[test]
    fn an_overload_that_lasts_ends_at_the_base(
        limits in proptest::collection::vec(10..8_000_u64, 1..4), profile in profiles(), history in loads(),
    ) {
        let mut run = Run::new(&limits, profile, r#"{"policy": "cfsQuotaBurstOnly"}"#);
        for (loads, node) in history {
            run.tick(&loads, node);
        }
        for _ in 0..60 {
            run.tick(&[load(900_000, 5, 100_000); 3], Some(16_000_000));
        }
        prop_assert!(run.host.leases().is_empty(), "{:?}", run.host.leases());
    }

    #[test]
    fn switching_off_gives_everything_back(
        limits in proptest::collection::vec(10..8_000_u64, 1..4),
        profile in profiles(),
        history in loads(),
        off in prop_oneof![Just("{}"), Just(r#"{"policy": "none"}"#)],
    ) {
        let mut run = Run::new(&limits, profile, r#"{"policy": "auto"}"#);
        for (loads, node) in history {
            run.tick(&loads, node);
        }
        run.ask(off);
        run.tick(&[], None);
        prop_assert!(run.host.leases().is_empty(), "{:?}", run.host.leases());
    }

    #[test]
    fn a_quiet_tick_stages_nothing(limits in proptest::collection::vec(10..8_000_u64, 1..4), profile in profiles()) {
        let mut run = Run::new(&limits, profile, r#"{"policy": "auto"}"#);
        run.tick(&[], Some(0));
        run.policy.evaluate(&mut run.host, mock::tick(1_000)).unwrap();
        prop_assert_eq!(run.host.staged(), []);
    }
}

/// Runs ten containers that are busy and calm in turns for 100 seconds. Returns the number of calls of `cpu-bandwidth` and of the settings
/// that they staged.
fn calls_and_settings(profile: &str) -> (usize, usize) {
    let mut run = Run::new(&[1_000; 10], profile, r#"{"policy": "auto"}"#);
    let mut settings = 0;
    for second in 0..100_u64 {
        let samples = (1..=10_u64).map(|id| {
            let nr_throttled = if (second / 10 + id) % 3 == 0 { (second + id) % 7 } else { 0 };
            CpuSample {
                container: u32::try_from(id).unwrap(),
                ..load(90_000 * nr_throttled + 200_000, nr_throttled, 30_000 * nr_throttled)
            }
        });
        run.host.columns.node = Some(NodeSample { cpu_usage_usec: Some(2_000_000), ..mock::node(32, 0) });
        run.host.columns.cpu = samples.collect();
        run.policy.evaluate(&mut run.host, mock::tick(1_000)).unwrap();
        settings += run.host.commit().len();
    }
    (run.host.calls("cpu-bandwidth"), settings)
}

#[test]
fn only_differences_reach_the_host() {
    // The same numbers as when the policy itself kept account of what it holds.
    assert_eq!(calls_and_settings(r#"{"profile": "koordinator"}"#), (106, 106));
    assert_eq!(calls_and_settings("{}"), (347, 347));
}

#[test]
fn a_new_instance_gives_back_what_an_earlier_one_left() {
    let mut run = Run::new(&[1_000], "{}", "{}");
    run.host.set_quota(Target::Container(1), Some(150_000), "by an earlier instance");
    run.host.set_burst(POD, 1_000, "by an earlier instance");
    run.host.commit();
    run.tick(&[], Some(0));
    assert!(run.host.leases().is_empty(), "{:?}", run.host.leases());
}

#[test]
fn tokens_outlive_the_instance() {
    let config = r#"{"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPeriodSeconds": 60}"#;
    let mut run = Run::new(&[1_000], r#"{"profile": "koordinator"}"#, config);
    // 3000 of 12000 tokens at the start; a use of 300 % spends 200 per second.
    for _ in 0..31 {
        run.tick(&[load(3_000_000, 10, 0)], Some(1_000_000));
    }
    assert_eq!(run.held(POD), None, "the allowance is used up");
    assert!(!run.host.state.is_empty());

    let state = run.host.state.clone();
    for (state, climbs) in [(state, false), (Vec::new(), true), (vec![7; 33], true)] {
        let unreadable = state.first() == Some(&7);
        let mut next = Run::new(&[1_000], "{}", "{}");
        next.host.state = state;
        next.policy = Session::default();
        next.policy.configure(&mut next.host, r#"{"profile": "koordinator"}"#).unwrap();
        next.ask(config);
        next.tick(&[load(900_000, 10, 0)], Some(1_000_000));
        assert_eq!(next.held(POD).is_some(), climbs);
        assert_eq!(next.host.log.len(), usize::from(unreadable), "{:?}", next.host.log);
    }
}
