//! Properties that hold for all pods and configurations.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use memory_qos::MemoryQosPolicy;
use proptest::option;
use proptest::prelude::*;
use qosm_sdk::{KubeQos, PodFacts, PodId, Session, Target, Tier, mock, strategies};

prop_compose! {
    /// A configuration as the host passes it: all fields within their ranges.
    fn config()(
        percents in (option::of(0..=100), option::of(0..=100), option::of(0..=100)),
        wmark in (option::of(0..=100), option::of(1..=1000), option::of(-25..=50)),
        oom in (option::of(0..=1), option::of(0..=12), option::of(0..=1)),
        cache in (option::of(any::<bool>()), option::of(0..=100), option::of(any::<i64>()), option::of(any::<bool>())),
        policy in option::of(prop_oneof![Just("auto"), Just("default"), Just("none"), Just("")]),
    ) -> String {
        let (min, low, throttling) = percents;
        let (ratio, scale, min_adj) = wmark;
        let (switch, priority, group) = oom;
        let (enable, percent, size, sync) = cache;
        serde_json::json!({
            "policy": policy, "minLimitPercent": min, "lowLimitPercent": low, "throttlingPercent": throttling,
            "wmarkRatio": ratio, "wmarkScalePermill": scale, "wmarkMinAdj": min_adj,
            "priorityEnable": switch, "priority": priority, "oomKillGroup": group,
            "pageCacheEnable": enable, "pageCacheLimitPercent": percent, "pageCacheLimitSize": size,
            "pageCacheReclaimSync": sync,
        })
        .to_string()
    }
}

/// Pods with any amounts that the fields can hold, plausible or not.
fn pods(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<PodFacts>> {
    strategies::pods(count, config())
}

struct Run {
    host: mock::MockHost,
    session: Session<MemoryQosPolicy>,
}

impl Run {
    fn new(policy: &str, allocatable: u64) -> Self {
        let mut host = mock::MockHost::default();
        host.columns.node = Some(mock::node(8, allocatable));
        let mut session = Session::default();
        session.configure(&mut host, &format!(r#"{{"policy":{policy}}}"#)).unwrap();
        Self { host, session }
    }

    fn step(&mut self, upserted: Vec<PodFacts>, removed: &[PodId]) -> Vec<mock::Staged> {
        assert_eq!(self.session.pods(&mut self.host, upserted, removed).unwrap(), []);
        self.session.evaluate(&mut self.host, mock::tick(0)).unwrap();
        self.host.commit()
    }

    /// The number held on a knob; `None` if nothing is held, or no bound.
    fn number(&self, target: Target, knob: &str) -> Option<i64> {
        match self.host.held(target, knob)? {
            mock::Value::Number(number) => Some(number),
            mock::Value::Max | mock::Value::Shares(_) | mock::Value::Cpus(_) => None,
        }
    }
}

fn total(numbers: impl Iterator<Item = Option<i64>>) -> i64 {
    numbers.flatten().fold(0, i64::saturating_add)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parents_cover_children(pods in pods(0..5), allocatable in strategies::amount(), cap in 0..=200_u32, below in 0..=100_u32) {
        let policy = format!(r#"{{"minTotalPercent":{cap},"minBelowLimitPercent":{below}}}"#);
        let mut run = Run::new(&policy, allocatable);
        run.step(pods.clone(), &[]);
        for knob in ["memory.min", "memory.low"] {
            for pod in &pods {
                let containers = total(pod.containers.iter().map(|held| run.number(Target::Container(held.id), knob)));
                prop_assert!(run.number(Target::Pod(pod.id), knob).unwrap_or(0) >= containers, "{knob} of {pod:?}");
            }
            let tier = |tier| run.number(Target::Tier(tier), knob).unwrap_or(0);
            let pods_of = |kube_qos| {
                total(pods.iter().filter(|pod| pod.kube_qos == kube_qos).map(|pod| run.number(Target::Pod(pod.id), knob)))
            };
            prop_assert_eq!(tier(Tier::Burstable), pods_of(KubeQos::Burstable));
            prop_assert_eq!(tier(Tier::BestEffort), pods_of(KubeQos::BestEffort));
            let all = [tier(Tier::Burstable), tier(Tier::BestEffort), pods_of(KubeQos::Guaranteed)];
            prop_assert_eq!(tier(Tier::Guaranteed), total(all.into_iter().map(Some)));
        }
        let root = run.number(Target::Tier(Tier::Guaranteed), "memory.min").unwrap_or(0);
        if cap > 0 && allocatable > 0 {
            prop_assert!(i128::from(root) <= i128::from(allocatable) * i128::from(cap) / 100);
        }
    }

    #[test]
    fn high_and_low_are_never_below_min(pods in pods(0..5), allocatable in strategies::amount(), legacy: bool) {
        let formula = if legacy { "legacy" } else { "current" };
        let mut run = Run::new(&format!(r#"{{"highFormula":"{formula}"}}"#), allocatable);
        run.step(pods.clone(), &[]);
        let containers = pods.iter().flat_map(|pod| pod.containers.iter().map(|held| Target::Container(held.id)));
        let targets = containers.chain(pods.iter().map(|pod| Target::Pod(pod.id)));
        for target in targets {
            let min = run.number(target, "memory.min").unwrap_or(0);
            for knob in ["memory.low", "memory.high"] {
                let value = run.number(target, knob).unwrap_or(i64::MAX);
                prop_assert!(value == 0 || value >= min, "{knob} of {target:?}: {value} < {min}");
            }
        }
    }

    #[test]
    fn what_is_held_depends_on_the_pods_alone(
        first in pods(0..4), second in pods(0..4), allocatable in strategies::amount(),
    ) {
        let mut run = Run::new("{}", allocatable);
        run.step(first.clone(), &[]);
        prop_assert_eq!(run.step(first.clone(), &[]), [], "nothing changed, nothing is staged");
        let gone: Vec<PodId> = first.iter().skip(second.len()).map(|pod| pod.id).collect();
        run.step(second.clone(), &gone);
        let mut fresh = Run::new("{}", allocatable);
        fresh.step(second.clone(), &[]);
        prop_assert_eq!(run.host.leases(), fresh.host.leases());
    }

    #[test]
    fn nothing_is_held_without_configuration(pods in pods(0..5), none in "(\\{\\})|(\\{\"policy\":\"none\"\\})") {
        let mut run = Run::new("{}", 1 << 36);
        run.step(pods.clone(), &[]);
        let silent = pods.into_iter().map(|pod| PodFacts { config: none.clone(), ..pod }).collect();
        run.step(silent, &[]);
        prop_assert_eq!(run.host.to_string(), "nothing");
    }

    #[test]
    fn tiers_are_let_go_with_their_last_pod(pods in pods(0..5)) {
        let mut run = Run::new("{}", 1 << 36);
        run.step(pods.clone(), &[]);
        let all: Vec<PodId> = pods.iter().map(|pod| pod.id).collect();
        let staged = run.step(Vec::new(), &all);
        prop_assert!(staged.iter().all(|staged| matches!(staged.target, Target::Tier(_)) && staged.value.is_none()));
        prop_assert_eq!(run.host.to_string(), "nothing");
    }

    #[test]
    fn any_text_is_taken_or_refused(config in ".*", policy in ".*") {
        let mut host = mock::MockHost::default();
        let mut session = Session::<MemoryQosPolicy>::default();
        let _ = session.configure(&mut host, &policy);
        let facts = PodFacts { config, ..mock::pod(1, "default", "any") };
        session.pods(&mut host, vec![facts], &[]).unwrap();
        session.evaluate(&mut host, mock::tick(0)).unwrap();
    }
}
