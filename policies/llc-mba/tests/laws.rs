//! Properties that hold for all pods, annotations and counts.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use llc_mba::LlcMba;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use qosm_sdk::{
    BandwidthShare, CacheDomain, CacheShare, CacheUsage, ClassSample, ContainerUsage, PodFacts, PodId, QosClass,
    Session, Target, mock,
};

/// A range of ways that is not empty.
fn range() -> impl Strategy<Value = (u32, u32)> {
    (0..100_u32).prop_flat_map(|start| (Just(start), start + 1..=100))
}

prop_compose! {
    fn annotation()(
        all in option::of(range()), mb in option::of(0..=100_u32), caches in vec((0..3_u32, range()), 0..3),
    ) -> String {
        let caches: std::collections::BTreeMap<_, _> = caches.into_iter().collect();
        let rows: Vec<_> = caches
            .iter()
            .map(|(id, (start, end))| serde_json::json!({"cacheid": id, "range": [start, end]}))
            .collect();
        let mut said = serde_json::json!({"llc": {"schemataPerCache": rows}, "mb": {}});
        if let Some((start, end)) = all {
            said["llc"]["schemata"] = serde_json::json!({"range": [start, end]});
        }
        if let Some(percent) = mb {
            said["mb"]["schemata"] = serde_json::json!({"percent": percent});
        }
        said.to_string()
    }
}

fn qos() -> impl Strategy<Value = QosClass> {
    prop_oneof![
        Just(QosClass::Lse),
        Just(QosClass::Lsr),
        Just(QosClass::Ls),
        Just(QosClass::Be),
        Just(QosClass::System)
    ]
}

fn pods(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<PodFacts>> {
    let config = prop_oneof![Just("{}".to_owned()), annotation()];
    vec((qos(), config, any::<bool>()), count).prop_map(|pods| {
        let pod = |(id, (qos, config, active)): (usize, (QosClass, String, bool))| {
            let id = PodId::try_from(id).unwrap();
            let containers = vec![mock::container(id, "app")];
            PodFacts { qos, config, active, containers, ..mock::pod(id, "default", &format!("pod-{id}")) }
        };
        pods.into_iter().enumerate().map(pod).collect()
    })
}

/// The counts of one window on one domain: traffic of BE and of all others, cache occupancy of latency-sensitive pods and of BE.
type Window = (Option<u64>, Option<u64>, Option<u64>, Option<u64>);

fn window() -> impl Strategy<Value = Window> {
    let bytes = || option::weighted(0.9, 0..40_000_000_000_u64);
    let occupancy = || option::weighted(0.9, 0..200_000_000_u64);
    (bytes(), bytes(), occupancy(), occupancy())
}

struct Run {
    host: mock::MockHost,
    session: Session<LlcMba>,
}

impl Run {
    fn new(config: &str) -> Self {
        let mut run = Self { host: mock::MockHost::default(), session: Session::default() };
        run.session.configure(&mut run.host, config).unwrap();
        let domain = CacheDomain { id: 0, cache_ways: 20, cache_bytes: Some(100 << 20), divides_bandwidth: true };
        run.host.columns.cache_domains = vec![domain, CacheDomain { id: 8, ..domain }];
        run
    }

    fn give(&mut self, upserted: Vec<PodFacts>, removed: &[PodId]) {
        assert_eq!(self.session.pods(&mut self.host, upserted, removed).unwrap(), []);
    }

    fn count(&mut self, (be, rest, ls_occupancy, be_occupancy): Window) {
        let usage =
            |occupancy_bytes, total_bytes| CacheUsage { domain: 0, occupancy_bytes, local_bytes: None, total_bytes };
        self.host.columns.class_usage = vec![ClassSample { class: "be".into(), usage: vec![usage(be_occupancy, be)] }];
        self.host.columns.container_usage =
            vec![ContainerUsage { container: 1, usage: vec![usage(ls_occupancy, rest)] }];
        self.host.columns.rest_usage = vec![usage(None, rest)];
    }

    fn step(&mut self) {
        self.session.evaluate(&mut self.host, mock::tick(1_000)).unwrap();
        self.host.commit();
    }

    /// The end of BE's ways and its share of the memory bandwidth on domain 0.
    fn be(&self) -> (u32, u32) {
        let (all, domains) = &self.host.classes().defined["be"];
        let own = domains.iter().find(|(id, _)| *id == 0).map(|(_, share)| *share);
        let Some(CacheShare::Percent((_, end))) = own.and_then(|own| own.cache).or(all.cache) else { return (0, 0) };
        match own.and_then(|own| own.bandwidth).or(all.bandwidth) {
            Some(BandwidthShare::Percent(percent)) => (end, percent),
            _ => (end, 100),
        }
    }
}

const STATIC: &str = r#"{"classes": {"lsClass": {"catRangeEndPercent": 100}, "beClass": {"catRangeEndPercent": 30}}}"#;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_held_depends_on_the_pods_alone(first in pods(0..6), second in pods(0..6)) {
        let mut run = Run::new(STATIC);
        run.give(first.clone(), &[]);
        run.step();
        run.host.take_class_changes();
        run.step();
        prop_assert_eq!(run.host.take_class_changes(), [], "nothing changed, nothing is staged");
        let gone: Vec<PodId> = first.iter().skip(second.len()).map(|pod| pod.id).collect();
        run.give(second.clone(), &gone);
        run.step();
        let mut fresh = Run::new(STATIC);
        fresh.give(second, &[]);
        fresh.step();
        prop_assert_eq!(run.host.classes(), fresh.host.classes());
    }

    #[test]
    fn every_member_is_in_a_class_and_every_class_of_pods_has_a_member(pods in pods(0..8)) {
        let mut run = Run::new(STATIC);
        run.give(pods.clone(), &[]);
        run.step();
        let classes = run.host.classes();
        for class in classes.members.values() {
            prop_assert!(classes.defined.contains_key(class));
        }
        for class in classes.defined.keys().filter(|class| class.starts_with("pods_")) {
            prop_assert!(classes.members.values().any(|own| own == class), "{class}");
        }
        for pod in pods.iter().filter(|pod| !pod.active) {
            prop_assert_eq!(run.host.class_of(Target::Pod(pod.id)), None);
        }
    }

    #[test]
    fn equal_shares_are_one_class(config in annotation(), count in 2..5_u32) {
        let mut run = Run::new("{}");
        let pod = |id| PodFacts { config: config.clone(), ..mock::pod(id, "default", &format!("pod-{id}")) };
        run.give((0..count).map(pod).collect(), &[]);
        run.step();
        prop_assert!(run.host.classes().defined.len() <= 1);
    }

    #[test]
    fn nothing_is_left_of_pods_that_are_gone(pods in pods(0..6)) {
        let mut run = Run::new("{}");
        run.give(pods.clone(), &[]);
        run.step();
        let all: Vec<PodId> = pods.iter().map(|pod| pod.id).collect();
        run.give(Vec::new(), &all);
        run.step();
        prop_assert_eq!(run.host.classes(), &mock::Classes::default());
    }

    #[test]
    fn be_stays_between_floor_and_share_and_gets_all_back(
        windows in vec(window(), 0..60), end in 1..=100_u32, mba in 0..=100_u32, floors in (1..=100_u32, 1..=100_u32),
        steps in (1..=100_u32, 1..=100_u32), most in 0..50_000_u64,
    ) {
        let config = serde_json::json!({
            "policy": {
                "profile": "dynamic", "maxBandwidthMBps": most, "calmSeconds": 2, "stepSeconds": 1,
                "cacheFloorPercent": floors.0, "bandwidthFloorPercent": floors.1,
                "cacheStepPercent": steps.0, "bandwidthStepPercent": steps.1,
            },
            "classes": {"lsClass": {"enable": true}, "beClass": {"catRangeEndPercent": end, "mbaPercent": mba}},
        })
        .to_string();
        let share = if mba == 0 { 100 } else { mba };
        let web = PodFacts { containers: vec![mock::container(1, "app")], ..mock::pod(1, "default", "web") };
        let (mut run, mut twin) = (Run::new(&config), Run::new(&config));
        for run in [&mut run, &mut twin] {
            run.give(vec![web.clone()], &[]);
        }
        for window in windows {
            for run in [&mut run, &mut twin] {
                run.count(window);
                run.step();
            }
            let (ways, bandwidth) = run.be();
            prop_assert!(ways <= end && bandwidth <= share, "never above what it is said to have");
            prop_assert!(ways >= floors.0.min(end) && bandwidth >= floors.1.min(share), "never below the floor");
            prop_assert_eq!(run.host.classes(), twin.host.classes(), "the same for the same");
        }
        run.count((Some(0), Some(0), Some(100 << 20), Some(0)));
        for _ in 0..210 {
            run.step();
        }
        prop_assert_eq!(run.be(), (end, share), "all comes back");
    }

    #[test]
    fn a_restart_goes_on_where_it_was(windows in vec(window(), 1..20)) {
        let config = r#"{"policy": {"profile": "dynamic"}, "classes": {"beClass": {"catRangeEndPercent": 30}}}"#;
        let mut run = Run::new(config);
        run.give(vec![mock::pod(1, "default", "web")], &[]);
        for window in windows {
            run.count(window);
            run.step();
        }
        let mut after = mock::MockHost::default();
        after.state.clone_from(&run.host.state);
        after.columns.cache_domains.clone_from(&run.host.columns.cache_domains);
        let mut session = Session::<LlcMba>::default();
        session.configure(&mut after, config).unwrap();
        session.evaluate(&mut after, mock::tick(0)).unwrap();
        prop_assert_eq!(&after.classes().defined["be"], &run.host.classes().defined["be"]);
    }

    #[test]
    fn any_text_is_taken_or_refused(config in ".*", policy in ".*") {
        let mut host = mock::MockHost::default();
        let mut session = Session::<LlcMba>::default();
        let _ = session.configure(&mut host, &policy);
        let facts = PodFacts { config, ..mock::pod(1, "default", "any") };
        session.pods(&mut host, vec![facts], &[]).unwrap();
        session.evaluate(&mut host, mock::tick(0)).unwrap();
    }
}
