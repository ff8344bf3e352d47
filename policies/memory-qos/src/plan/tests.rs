use qosm_sdk::{ContainerKind, ExtendedResource, QosClass, mock};

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NODE: NodeMemory = NodeMemory { allocatable: 64 * GIB, page: 4096 };
const ROOT: Target = Target::Tier(Tier::Guaranteed);
const BURSTABLE: Target = Target::Tier(Tier::Burstable);
const BEST_EFFORT: Target = Target::Tier(Tier::BestEffort);

fn config(json: &str) -> Config {
    serde_json::from_str(json).unwrap()
}

fn qos(json: &str) -> MemoryQos {
    serde_json::from_str(json).unwrap()
}

fn container(id: u32, request: Option<u64>, limit: Option<u64>) -> Container {
    Container { memory_request_bytes: request, memory_limit_bytes: limit, ..mock::container(id, "app") }
}

fn pod(id: u32, kube_qos: KubeQos, containers: impl IntoIterator<Item = Container>) -> PodFacts {
    PodFacts { kube_qos, containers: containers.into_iter().collect(), ..mock::pod(id, "default", "web") }
}

fn plan(config: &Config, node: NodeMemory, pods: &[(PodFacts, MemoryQos)]) -> Plan {
    Plan::new(config, node, pods.iter().map(|(pod, qos)| (pod, qos)))
}

fn plan_one(qos_json: &str, pod: PodFacts) -> Plan {
    plan(&Config::default(), NODE, &[(pod, qos(qos_json))])
}

impl Plan {
    fn of(&self, target: Target) -> Protection {
        self.settings.get(&target).map_or(Protection::NONE, |setting| setting.protection)
    }

    fn reason(&self, target: Target) -> &str {
        self.settings.get(&target).map_or("", |setting| &setting.reason)
    }
}

fn bytes(bytes: u64) -> Option<Bound> {
    Some(Bound::Bytes(bytes))
}

/// The pod of the reference's own test: one container without resources, one with 1 GiB of batch memory.
fn batch_pod() -> PodFacts {
    let batch = ExtendedResource { name: "kubernetes.io/batch-memory".into(), request: Some(GIB), limit: Some(GIB) };
    let with_batch = Container { extended_resources: vec![batch], ..container(2, None, None) };
    PodFacts {
        declared_qos: Some(QosClass::Be),
        qos: QosClass::Be,
        ..pod(1, KubeQos::BestEffort, [container(1, None, None), with_batch])
    }
}

#[test]
fn a_request_is_protected_on_all_three_levels() {
    for (json, min, low) in [
        (r#"{"minLimitPercent":100}"#, Some(104_857_600), None),
        (r#"{"lowLimitPercent":100}"#, None, Some(104_857_600)),
        (r#"{"minLimitPercent":50,"lowLimitPercent":80}"#, Some(52_428_800), Some(83_886_080)),
        (r#"{"minLimitPercent":50,"lowLimitPercent":20}"#, Some(52_428_800), Some(52_428_800)),
        (r#"{"minLimitPercent":50,"lowLimitPercent":0}"#, Some(52_428_800), Some(0)),
        (r#"{"minLimitPercent":0,"lowLimitPercent":0}"#, Some(0), Some(0)),
    ] {
        let plan = plan_one(json, pod(1, KubeQos::Burstable, [container(1, Some(100 * MIB), None)]));
        for target in [Target::Container(1), Target::Pod(1), BURSTABLE, ROOT] {
            assert_eq!((plan.of(target).min_bytes, plan.of(target).low_bytes), (min, low), "{json} {target:?}");
        }
        assert_eq!(plan.of(BEST_EFFORT), Protection::NONE, "{json}");
    }
}

#[test]
fn high_stands_on_containers_only() {
    for (request, limit, percent, expected) in [
        (None, Some(100 * MIB), 80, bytes(83_886_080)),
        (Some(2 * GIB), Some(6 * GIB), 80, bytes(5_583_454_208)),
        (Some(100 * MIB), Some(100 * MIB), 80, bytes(100 * MIB)),
        (None, None, 50, bytes(32 * GIB)),
        (Some(0), Some(0), 50, bytes(32 * GIB)),
        (Some(100 * MIB), Some(200 * MIB + 1), 100, bytes(200 * MIB)),
        (Some(100 * GIB), None, 50, bytes(82 * GIB)),
        (Some(100 * MIB), Some(200 * MIB), 0, Some(Bound::Unlimited)),
    ] {
        let json = format!(r#"{{"throttlingPercent":{percent}}}"#);
        let plan = plan_one(&json, pod(1, KubeQos::Burstable, [container(1, request, limit)]));
        assert_eq!(plan.of(Target::Container(1)), Protection { high: expected, ..Protection::NONE });
        assert_eq!(plan.settings.len(), 1, "neither pod nor tier");
    }
}

#[test]
fn the_pods_limit_counts_before_the_nodes_memory() {
    for (pod_request, pod_limit, formula, percent, expected, base) in [
        (None, Some(2 * GIB), "current", 50, GIB, "request 0 B to pod limit 2 GiB"),
        (Some(2 * GIB), Some(2 * GIB), "current", 50, 2 * GIB, "pod limit 2 GiB, raised to what is requested"),
        (Some(2 * GIB), None, "current", 1, 2 * GIB, "node allocatable 64 GiB, raised to what is requested"),
        (Some(2 * GIB), Some(2 * GIB), "legacy", 50, GIB, "high 50 % of pod limit 2 GiB"),
        (None, Some(0), "current", 50, 32 * GIB, "node allocatable 64 GiB"),
    ] {
        let config = config(&format!(r#"{{"policy":{{"highFormula":"{formula}"}}}}"#));
        let pod = PodFacts {
            memory_request_bytes: pod_request,
            memory_limit_bytes: pod_limit,
            ..pod(1, KubeQos::Burstable, [container(1, None, None)])
        };
        let plan = plan(&config, NODE, &[(pod, qos(&format!(r#"{{"throttlingPercent":{percent}}}"#)))]);
        assert_eq!(plan.of(Target::Container(1)).high, bytes(expected), "{base}");
        assert!(plan.reason(Target::Container(1)).ends_with(base), "{}", plan.reason(Target::Container(1)));
    }
}

#[test]
fn a_bound_is_never_nothing_nor_below_what_is_requested() {
    for (request, limit, formula, expected, raised) in [
        (512, 512, "current", 4096, ", raised to one page"),
        (512, 512, "legacy", 4096, ", raised to one page"),
        (GIB, 2048, "current", GIB, ", raised to what is requested"),
        (GIB, 2048, "legacy", GIB, ", raised to what is requested"),
    ] {
        let config = config(&format!(r#"{{"policy":{{"highFormula":"{formula}"}}}}"#));
        let pod = pod(1, KubeQos::Burstable, [container(1, Some(request), Some(limit))]);
        let plan = plan(&config, NODE, &[(pod, qos(r#"{"throttlingPercent":80}"#))]);
        assert_eq!(plan.of(Target::Container(1)).high, bytes(expected), "{formula} from {request} to {limit}");
        assert!(plan.reason(Target::Container(1)).ends_with(raised), "{}", plan.reason(Target::Container(1)));
        assert!(!plan.lost_units.is_empty());
    }
}

#[test]
fn the_legacy_formula_is_a_choice() {
    let config = config(r#"{"policy":{"highFormula":"legacy"}}"#);
    let pods = [(
        pod(1, KubeQos::Burstable, [container(1, Some(2 * GIB), Some(6 * GIB))]),
        qos(r#"{"throttlingPercent":80}"#),
    )];
    let plan = plan(&config, NODE, &pods);
    assert_eq!(plan.of(Target::Container(1)).high, bytes(5_153_960_755));
    assert_eq!(plan.reason(Target::Container(1)), "high 80 % of limit 6 GiB");
}

#[test]
fn high_is_raised_to_min() {
    let plan = plan_one(
        r#"{"minLimitPercent":100,"throttlingPercent":40}"#,
        pod(1, KubeQos::Burstable, [container(1, Some(100 * MIB + 5), Some(100 * MIB + 5))]),
    );
    assert_eq!(plan.of(Target::Container(1)).high, bytes(100 * MIB + 5));
    assert_eq!(
        plan.reason(Target::Container(1)),
        "min 100 % of request 104857605 B; high 40 % of the way from request 104857605 B to limit 104857605 B, raised to min"
    );
}

#[test]
fn nothing_is_made_up_where_neither_limit_nor_node_is_known() {
    let unknown = NodeMemory { allocatable: 0, page: 4096 };
    let pods = [(
        pod(1, KubeQos::Burstable, [container(1, Some(MIB), None), container(2, Some(MIB), Some(2 * MIB))]),
        qos(r#"{"throttlingPercent":50,"minLimitPercent":100}"#),
    )];
    let plan = plan(&Config::default(), unknown, &pods);
    assert_eq!(plan.of(Target::Container(1)).high, None);
    assert_eq!(plan.of(Target::Container(2)).high, bytes(MIB + MIB / 2));
    assert_eq!((plan.of(ROOT).min_bytes, plan.shrink), (Some(2 * MIB), None));
}

#[test]
fn the_reference_agents_batch_pod_comes_out_the_same() {
    let node = NodeMemory { allocatable: GIB, page: 4096 };
    for (json, min, idle_high) in [
        (r#"{"minLimitPercent":100,"throttlingPercent":80}"#, GIB, 858_992_640),
        (r#"{"minLimitPercent":50,"throttlingPercent":40}"#, 536_870_912, 429_494_272),
    ] {
        let plan = plan(&Config::default(), node, &[(batch_pod(), qos(json))]);
        for target in [Target::Pod(1), BEST_EFFORT, ROOT] {
            assert_eq!(plan.of(target), Protection { min_bytes: Some(min), ..Protection::NONE }, "{target:?}");
        }
        let idle = plan.of(Target::Container(1));
        assert_eq!((idle.min_bytes, idle.high), (Some(0), bytes(idle_high)));
        let busy = plan.of(Target::Container(2));
        assert_eq!((busy.min_bytes, busy.high), (Some(min), bytes(GIB)));
    }
}

#[test]
fn plain_numbers_go_to_pod_and_containers_but_not_to_tiers() {
    let plan = plan_one(
        r#"{"policy":"auto","wmarkRatio":95,"wmarkScalePermill":20,"wmarkMinAdj":-25,
            "priority":7,"priorityEnable":1,"oomKillGroup":0}"#,
        pod(1, KubeQos::Guaranteed, [container(1, Some(MIB), Some(MIB)), container(2, None, None)]),
    );
    let expected = Protection {
        wmark_ratio_percent: Some(95),
        wmark_scale_permyriad: Some(20),
        wmark_min_adj_percent: Some(-25),
        oom_priority: Some(7),
        use_oom_priority: Some(true),
        oom_group: Some(false),
        ..Protection::NONE
    };
    for target in [Target::Pod(1), Target::Container(1), Target::Container(2)] {
        assert_eq!(plan.of(target), expected);
        assert_eq!(
            plan.reason(target),
            "wmark ratio 95 %; wmark scale 20; wmark min adj -25 %; OOM priority 7; OOM priorities on; OOM group off"
        );
    }
    assert_eq!(plan.settings.len(), 3);
}

#[test]
fn explicit_zeros_are_held() {
    let plan = plan_one(
        r#"{"minLimitPercent":0,"lowLimitPercent":0,"throttlingPercent":0,"wmarkRatio":0,"wmarkMinAdj":0,
            "priority":0,"priorityEnable":0,"oomKillGroup":0,"pageCacheLimitSize":0}"#,
        pod(1, KubeQos::Burstable, [container(1, Some(MIB), None)]),
    );
    let common = Protection {
        min_bytes: Some(0),
        low_bytes: Some(0),
        wmark_ratio_percent: Some(0),
        wmark_min_adj_percent: Some(0),
        oom_priority: Some(0),
        use_oom_priority: Some(false),
        oom_group: Some(false),
        ..Protection::NONE
    };
    assert_eq!(plan.of(Target::Container(1)), Protection { high: Some(Bound::Unlimited), ..common });
    assert_eq!(
        plan.of(Target::Pod(1)),
        Protection { page_cache_limit_enable: Some(false), page_cache_limit_bytes: Some(0), ..common }
    );
}

#[test]
fn the_page_cache_limit_stands_on_the_pod_only() {
    let plan = plan_one(
        r#"{"pageCacheLimitPercent":50,"pageCacheReclaimSync":true}"#,
        pod(1, KubeQos::Burstable, [container(1, None, Some(GIB)), container(2, None, Some(GIB))]),
    );
    assert_eq!(
        plan.of(Target::Pod(1)),
        Protection {
            page_cache_limit_enable: Some(true),
            page_cache_limit_bytes: Some(GIB),
            page_cache_reclaim_sync: Some(true),
            ..Protection::NONE
        }
    );
    assert_eq!(plan.reason(Target::Pod(1)), "page cache limit 50 % of pod limit 2 GiB");
    assert_eq!(plan.settings.len(), 1);
}

#[test]
fn a_tier_sums_up_its_pods_each_truncated() {
    let pods = [
        (KubeQos::Burstable, 199, 33),
        (KubeQos::Burstable, 150, 33),
        (KubeQos::BestEffort, 150, 33),
        (KubeQos::Guaranteed, 1000, 10),
    ];
    let pods: Vec<_> = (1..)
        .zip(pods)
        .map(|(id, (tier, request, percent))| {
            (
                pod(id, tier, [container(id, Some(request), None)]),
                qos(&format!(r#"{{"minLimitPercent":{percent},"lowLimitPercent":{percent}}}"#)),
            )
        })
        .collect();
    let plan = plan(&Config::default(), NODE, &pods);
    for (target, expected) in [(BURSTABLE, 65 + 49), (BEST_EFFORT, 49), (ROOT, 65 + 49 + 49 + 100)] {
        assert_eq!((plan.of(target).min_bytes, plan.of(target).low_bytes), (Some(expected), Some(expected)));
    }
    assert_eq!(plan.reason(BURSTABLE), "min sum of its 2 pods; low sum of its 2 pods");
    assert_eq!(plan.reason(BEST_EFFORT), "min of its 1 pod; low of its 1 pod");
}

#[test]
fn a_tier_counts_only_pods_that_want_the_value() {
    let pods = [
        (pod(1, KubeQos::Burstable, [container(1, Some(MIB), None)]), qos(r#"{"minLimitPercent":100}"#)),
        (pod(2, KubeQos::Burstable, [container(2, Some(MIB), None)]), qos(r#"{"wmarkRatio":95}"#)),
        (pod(3, KubeQos::BestEffort, [container(3, None, None)]), qos(r#"{"wmarkRatio":95}"#)),
    ];
    let plan = plan(&Config::default(), NODE, &pods);
    assert_eq!(plan.of(BURSTABLE), Protection { min_bytes: Some(MIB), ..Protection::NONE });
    assert_eq!(plan.of(BEST_EFFORT), Protection::NONE);
}

#[test]
fn a_tiers_low_covers_a_low_that_was_raised_to_min() {
    let pod = pod(1, KubeQos::Burstable, [container(1, Some(100 * MIB), None)]);
    let plan = plan_one(r#"{"minLimitPercent":60,"lowLimitPercent":10}"#, pod);
    for target in [Target::Container(1), Target::Pod(1), BURSTABLE, ROOT] {
        assert_eq!(plan.of(target).low_bytes, Some(60 * MIB), "{target:?}");
    }
    assert_eq!(plan.reason(Target::Pod(1)), "min 60 % of request 100 MiB; low 10 % of request 100 MiB, raised to min");
}

#[test]
fn a_pod_covers_containers_that_its_own_request_leaves_out() {
    // The running init container of a BE pod does not count in the pod's batch request.
    let mut pod = batch_pod();
    pod.containers[1].kind = ContainerKind::Init;
    let plan = plan_one(r#"{"minLimitPercent":100,"lowLimitPercent":100}"#, pod);
    for target in [Target::Container(2), Target::Pod(1), BEST_EFFORT, ROOT] {
        assert_eq!((plan.of(target).min_bytes, plan.of(target).low_bytes), (Some(GIB), Some(GIB)), "{target:?}");
    }
    assert_eq!(
        plan.reason(Target::Pod(1)),
        "min 100 % of request 0 B, raised to that of its containers; \
         low 100 % of request 0 B, raised to that of its containers"
    );
}

#[test]
fn only_containers_that_run_are_set_while_pod_and_tier_are_anyway() {
    let state = |state, mut container: Container| {
        container.state = state;
        container
    };
    let containers = [
        Container { kind: ContainerKind::Sidecar, ..container(1, Some(MIB), None) },
        Container { kind: ContainerKind::Init, ..container(2, Some(8 * MIB), None) },
        state(ContainerState::Terminated, Container { kind: ContainerKind::Init, ..container(3, Some(9 * MIB), None) }),
        state(ContainerState::Waiting, container(4, Some(MIB), None)),
    ];
    let plan = plan_one(r#"{"minLimitPercent":100}"#, pod(1, KubeQos::Burstable, containers));
    let set: Vec<Target> = plan.settings.keys().copied().collect();
    assert_eq!(set, [ROOT, BURSTABLE, Target::Pod(1), Target::Container(1), Target::Container(2)]);
    assert_eq!(plan.of(Target::Pod(1)).min_bytes, Some(9 * MIB));
}

#[test]
fn pods_that_ended_or_ask_for_nothing_count_nowhere() {
    let running = pod(1, KubeQos::Burstable, [container(1, Some(MIB), None)]);
    for (active, json) in
        [(false, r#"{"minLimitPercent":100}"#), (true, "{}"), (true, r#"{"policy":"none","minLimitPercent":100}"#)]
    {
        let plan = plan_one(json, PodFacts { active, ..running.clone() });
        assert_eq!(plan.settings, BTreeMap::new(), "{json}");
    }
}

#[test]
fn tiers_take_their_switches_from_the_class_that_stands_for_them() {
    let config = config(
        r#"{"classes":{
            "lsrClass":{"enable":true,"priorityEnable":1,"wmarkRatio":95,"minLimitPercent":100},
            "lsClass":{"priority":5,"oomKillGroup":0},
            "beClass":{},
            "systemClass":{"priority":1}
        }}"#,
    );
    let plan = plan(&config, NODE, &[]);
    assert_eq!(plan.of(ROOT), Protection { use_oom_priority: Some(true), ..Protection::NONE });
    assert_eq!(plan.of(BURSTABLE), Protection { oom_priority: Some(5), oom_group: Some(false), ..Protection::NONE });
    assert_eq!(plan.settings.len(), 2);
    assert_eq!(plan.reason(BURSTABLE), "of class lsClass: OOM priority 5; OOM group off");
}

#[test]
fn min_can_be_kept_below_the_limit() {
    let config = config(r#"{"policy":{"minBelowLimitPercent":10}}"#);
    let containers = [container(1, Some(100 * MIB), Some(100 * MIB)), container(2, Some(50 * MIB), Some(100 * MIB))];
    let pods = [(
        pod(1, KubeQos::Burstable, containers),
        qos(r#"{"minLimitPercent":100,"lowLimitPercent":100,"throttlingPercent":50}"#),
    )];
    let plan = plan(&config, NODE, &pods);
    assert_eq!(plan.of(Target::Container(1)).min_bytes, Some(90 * MIB));
    assert_eq!(plan.of(Target::Container(1)).low_bytes, Some(100 * MIB));
    assert_eq!(plan.of(Target::Container(1)).high, bytes(100 * MIB));
    assert_eq!(plan.of(Target::Container(2)).min_bytes, Some(50 * MIB));
    assert_eq!(plan.of(Target::Pod(1)).min_bytes, Some(150 * MIB), "the pod's limit is far away");
    assert!(
        plan.reason(Target::Container(1)).starts_with("min 100 % of request 100 MiB, kept 10 % below limit 100 MiB;")
    );
}

#[test]
fn all_min_shrink_alike_where_they_are_more_than_the_node_can_give() {
    let node = NodeMemory { allocatable: 100 * MIB, page: 4096 };
    let pods = || {
        [
            (
                pod(1, KubeQos::Burstable, [container(1, Some(150 * MIB), Some(150 * MIB))]),
                qos(r#"{"minLimitPercent":100,"lowLimitPercent":100,"throttlingPercent":50}"#),
            ),
            (
                pod(2, KubeQos::BestEffort, [container(2, Some(50 * MIB), None)]),
                qos(r#"{"minLimitPercent":100,"lowLimitPercent":20}"#),
            ),
        ]
    };
    let plan_for = |json: &str| plan(&config(json), node, &pods());
    let shrunk = plan_for("{}");
    assert_eq!(shrunk.shrink, Some(Shrink { total: u128::from(200 * MIB), cap: 100 * MIB }));
    for (target, min, low) in [
        (ROOT, 100, 175),
        (BURSTABLE, 75, 150),
        (BEST_EFFORT, 25, 25),
        (Target::Pod(1), 75, 150),
        (Target::Container(1), 75, 150),
        (Target::Container(2), 25, 25),
    ] {
        let protection = shrunk.of(target);
        assert_eq!((protection.min_bytes, protection.low_bytes), (Some(min * MIB), Some(low * MIB)), "{target:?}");
    }
    assert_eq!(shrunk.of(Target::Container(1)).high, bytes(150 * MIB));
    assert_eq!(
        shrunk.reason(Target::Pod(2)),
        "min 100 % of request 50 MiB, shrunk because all pods ask for 200 MiB and may have 100 MiB; \
         low 20 % of request 50 MiB, raised to min"
    );
    for unbounded in [r#"{"policy":{"minTotalPercent":0}}"#, r#"{"policy":{"minTotalPercent":200}}"#] {
        let plan = plan_for(unbounded);
        assert_eq!((plan.shrink, plan.of(ROOT).min_bytes), (None, Some(200 * MIB)), "{unbounded}");
    }
    assert_eq!(plan_for(r#"{"policy":{"minTotalPercent":50}}"#).of(ROOT).min_bytes, Some(50 * MIB));
}

#[test]
fn what_is_asked_for_and_comes_to_nothing_has_a_reason() {
    let unmet = |qos_json: &str, node, container| -> Vec<String> {
        let plan = plan(&Config::default(), node, &[(pod(1, KubeQos::Burstable, [container]), qos(qos_json))]);
        plan.unmet.iter().map(|unmet| format!("{:?} {}: {}", unmet.target, unmet.knob, unmet.why)).collect()
    };
    let unknown = NodeMemory { allocatable: 0, ..NODE };
    let small = NodeMemory { allocatable: GIB, ..NODE };
    let all = r#"{"minLimitPercent":50,"lowLimitPercent":60,"throttlingPercent":80}"#;
    assert_eq!(unmet(all, NODE, container(1, Some(GIB), Some(2 * GIB))), [""; 0], "it gets all of it");
    assert_eq!(
        unmet(all, NODE, container(1, None, Some(2 * GIB))),
        [
            "Target::Container(1) memory.min: minLimitPercent is 50, but the container requests no memory to take it of",
            "Target::Container(1) memory.low: lowLimitPercent is 60, but the container requests no memory to take it of",
        ]
    );
    let bound = unmet(all, unknown, container(1, Some(GIB), None));
    assert!(bound.len() == 1 && bound[0].contains("memory.high: throttlingPercent is 80"), "{bound:?}");
    let shrunk = unmet(r#"{"minLimitPercent":100}"#, small, container(1, Some(2 * GIB), None));
    assert_eq!(
        shrunk,
        [
            "Target::Pod(1) memory.min: shrunk to 1 GiB: all pods ask for 2 GiB and may have 1 GiB; lower minLimitPercent, \
          or raise minTotalPercent of this policy"
        ]
    );
    assert_eq!(unmet(r#"{"minLimitPercent":0}"#, NODE, container(1, None, None)), [""; 0], "nothing is asked for");
}

#[test]
fn a_page_cache_limit_without_effect_has_a_reason() {
    let percent = "Target::Pod(1) memory.pagecache_limit.size: pageCacheLimitPercent is 50, but the pod has no limit to take it of; set \
                   limits.memory of each container, or pageCacheLimitSize";
    let sync = "Target::Pod(1) memory.pagecache_limit.sync: pageCacheReclaimSync is true, but there is no page cache limit; set \
                pageCacheLimitSize or pageCacheLimitPercent";
    for (qos_json, limit, expected) in [
        (r#"{"pageCacheLimitPercent":50}"#, None, Some(percent)),
        (r#"{"pageCacheLimitPercent":50,"pageCacheReclaimSync":true}"#, None, Some(percent)),
        (r#"{"pageCacheLimitPercent":50}"#, Some(GIB), None),
        (r#"{"pageCacheLimitPercent":50,"pageCacheLimitSize":4096}"#, None, None),
        (r#"{"pageCacheLimitPercent":0}"#, None, None),
        (r#"{"pageCacheReclaimSync":true}"#, Some(GIB), Some(sync)),
        (r#"{"pageCacheReclaimSync":false}"#, None, None),
        (r#"{"pageCacheReclaimSync":true,"pageCacheLimitSize":0}"#, None, None),
    ] {
        let plan = plan_one(qos_json, pod(1, KubeQos::Burstable, [container(1, None, limit)]));
        let unmet = plan.unmet.iter().map(|unmet| format!("{:?} {}: {}", unmet.target, unmet.knob, unmet.why));
        assert_eq!(unmet.collect::<Vec<_>>(), expected.as_slice(), "{qos_json}");
    }
}
