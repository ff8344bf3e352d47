use proptest::prelude::*;

use super::*;
use crate::pod::tests::{container, extended, pod};

const CPU: &str = "kubernetes.io/batch-cpu";
const MEMORY: &str = "kubernetes.io/batch-memory";
const MIB: u64 = 1 << 20;

/// A container with requests and limits of batch CPU and memory.
fn batch(id: u32, cpu: (Option<u64>, Option<u64>), memory: Option<u64>) -> Container {
    let mut resources = Vec::new();
    if cpu != (None, None) {
        resources.push(extended(CPU, cpu.0, cpu.1));
    }
    if memory.is_some() {
        resources.push(extended(MEMORY, memory, memory));
    }
    Container { id, extended: resources, ..container(&format!("c{id}"), ContainerKind::Regular, 0, 0) }
}

fn be(containers: Vec<Container>) -> Pod {
    Pod { declared_qos: Some(QosClass::Be), qos: QosClass::Be, id: 9, ..pod("be", containers) }
}

fn all(pods: &[Pod], rule: QuotaRule) -> Vec<Setting> {
    let mut findings = Vec::new();
    let settings = settings(pods, &PolicyConfig::default(), rule, &mut findings);
    // Tests use amounts of any size, so warnings about implausible ones are dropped.
    findings.retain(|finding| !finding.fault.message.ends_with(" meant?"));
    assert_eq!(findings, []);
    settings
}

/// Shares, quota and memory of each target.
type Row = (Target, u64, Option<u64>, Option<u64>);

fn rows(pods: &[Pod], rule: QuotaRule) -> Vec<Row> {
    let row = |one: Setting| (one.target, one.shares, one.quota_usec, one.memory_bytes);
    all(pods, rule).into_iter().map(row).collect()
}

#[test]
fn shares_follow_the_request() {
    for (milli, expected, weight) in [
        (0, 2, 1),
        (1, 2, 1),
        (2, 2, 1),
        (3, 3, 1),
        (500, 512, 20),
        (1000, 1024, 39),
        (1500, 1536, 59),
        (4000, 4096, 157),
        (256_000, 262_144, 10_000),
        (1_000_000, 262_144, 10_000),
        (u64::MAX, 262_144, 10_000),
    ] {
        assert_eq!((shares(milli), super::weight(shares(milli))), (expected, weight), "{milli}");
    }
}

#[test]
fn quota_follows_the_limit_and_its_period() {
    for (milli, period, expected) in [
        (0, 100_000, None),
        (1, 100_000, Some(1000)),
        (9, 100_000, Some(1000)),
        (10, 100_000, Some(1000)),
        (11, 100_000, Some(1100)),
        (1000, 100_000, Some(100_000)),
        (1500, 100_000, Some(150_000)),
        (1500, 50_000, Some(75_000)),
        (1500, 10_000, Some(15_000)),
    ] {
        assert_eq!(quota(milli, period, None), expected, "{milli} {period}");
    }
}

#[test]
fn normalisation_divides_the_quota_and_rounds_up() {
    for (milli, hundredths, expected) in [
        (1000, 120, 83_334),
        (1200, 120, 100_000),
        (1000, 200, 50_000),
        (1000, 100, 100_000),
        (1000, 80, 100_000),
        (12, 150, 1000),
        (10, 300, 1000),
    ] {
        let ratio = Some(Decimal::hundredths(hundredths));
        assert_eq!(quota(milli, 100_000, ratio), Some(expected), "{milli} {hundredths}");
    }
}

#[test]
fn a_ratio_that_changes_by_less_than_a_hundredth_is_ignored() {
    let ratio = |text: &str| Some(Decimal::parse(text).unwrap());
    for (applied, new, settled) in [
        (None, None, None),
        (None, ratio("1.2"), ratio("1.2")),
        (ratio("1.2"), ratio("1.209"), ratio("1.2")),
        (ratio("1.2"), ratio("1.21"), ratio("1.21")),
        (ratio("1.2"), ratio("1.191"), ratio("1.2")),
        (ratio("1.2"), ratio("1.19"), ratio("1.19")),
        (ratio("1.2"), None, None),
        (ratio("1.005"), None, ratio("1.005")),
        (None, ratio("1.009"), None),
    ] {
        assert_eq!(settled_ratio(applied, new), settled, "{applied:?} {new:?}");
    }
}

#[test]
fn containers_and_their_pod_get_what_their_resources_say() {
    use Target::{Container, Pod};
    for (containers, expected) in [
        (
            vec![batch(1, (Some(1000), Some(2000)), Some(64 * MIB)), batch(2, (Some(500), Some(500)), Some(MIB))],
            vec![
                (Pod(9), 1536, Some(250_000), Some(65 * MIB)),
                (Container(1), 1024, Some(200_000), Some(64 * MIB)),
                (Container(2), 512, Some(50_000), Some(MIB)),
            ],
        ),
        // A container without batch resources gets the smallest weight and no limits, and so does not limit the pod either.
        (
            vec![batch(1, (Some(1000), Some(2000)), Some(MIB)), batch(2, (None, None), None)],
            vec![
                (Pod(9), 1024, None, None),
                (Container(1), 1024, Some(200_000), Some(MIB)),
                (Container(2), 2, None, None),
            ],
        ),
        // A limit of 0 means no limit, a request of 0 the smallest weight.
        (vec![batch(1, (Some(0), Some(0)), Some(0))], vec![(Pod(9), 2, None, None), (Container(1), 2, None, None)]),
        // CPU and memory limits are independent of each other.
        (
            vec![batch(1, (Some(100), Some(100)), Some(MIB)), batch(2, (Some(100), Some(100)), None)],
            vec![
                (Pod(9), 204, Some(20_000), None),
                (Container(1), 102, Some(10_000), Some(MIB)),
                (Container(2), 102, Some(10_000), None),
            ],
        ),
        // A limit without a request, and a request without a limit.
        (
            vec![batch(1, (None, Some(100)), Some(MIB))],
            vec![(Pod(9), 2, Some(10_000), Some(MIB)), (Container(1), 2, Some(10_000), Some(MIB))],
        ),
        (vec![batch(1, (Some(100), None), None)], vec![(Pod(9), 102, None, None), (Container(1), 102, None, None)]),
        // Each quota is at least 1000, and so is the pod's.
        (
            vec![batch(1, (Some(1), Some(1)), Some(1))],
            vec![(Pod(9), 2, Some(1000), Some(1)), (Container(1), 2, Some(1000), Some(1))],
        ),
    ] {
        assert_eq!(rows(&[be(containers.clone())], QuotaRule::default()), expected, "{containers:?}");
    }
}

#[test]
fn a_pod_without_batch_resources_is_left_alone() {
    let mut native = container("native", ContainerKind::Regular, 1000, MIB);
    native.extended = vec![extended("nvidia.com/gpu", Some(1), Some(1))];
    let batch = || vec![batch(1, (Some(100), Some(100)), None)];
    let ended = Pod { is_active: false, ..be(batch()) };
    let unlabelled = Pod { declared_qos: None, qos: QosClass::Be, ..be(batch()) };
    let sensitive = Pod { declared_qos: Some(QosClass::Ls), ..be(batch()) };
    for pod in [be(vec![native]), be(vec![]), ended, unlabelled, sensitive] {
        assert_eq!(all(std::slice::from_ref(&pod), QuotaRule::default()), [], "{pod:?}");
    }
}

#[test]
fn each_of_the_three_spellings_is_read_and_milli_stays_milli() {
    for (cpu, memory) in [
        (CPU, MEMORY),
        ("koordinator.sh/batch-cpu", "koordinator.sh/batch-memory"),
        ("alibabacloud.com/reclaimed-cpu", "alibabacloud.com/reclaimed-memory"),
    ] {
        let mut one = batch(1, (None, None), None);
        one.extended = vec![extended(cpu, Some(1000), Some(1000)), extended(memory, Some(2048), Some(2048))];
        let expected = (Target::Pod(9), 1024, Some(100_000), Some(2048));
        assert_eq!(rows(&[be(vec![one])], QuotaRule::default())[0], expected, "{cpu}");
    }
    let mut both = batch(1, (Some(1000), Some(1000)), None);
    both.extended.insert(0, extended("alibabacloud.com/reclaimed-cpu", Some(7), Some(7)));
    assert_eq!(rows(&[be(vec![both])], QuotaRule::default())[0].1, 1024, "what is published first counts");
}

#[test]
fn quotas_are_lifted_while_the_tier_has_one() {
    let pods = [be(vec![batch(1, (Some(1000), Some(1000)), Some(MIB))])];
    let off = QuotaRule { is_the_tiers: true, ratio: Some(Decimal::hundredths(200)) };
    let expected = [(Target::Pod(9), 1024, None, Some(MIB)), (Target::Container(1), 1024, None, Some(MIB))];
    assert_eq!(rows(&pods, off), expected);
    let on = QuotaRule { is_the_tiers: false, ..off };
    assert_eq!(rows(&pods, on)[0].2, Some(50_000), "and come back");
}

#[test]
fn init_containers_count_only_while_they_run() {
    use ContainerState::{Running, Terminated, Waiting};
    let with = |state: ContainerState, regular: ContainerState| {
        let init = Container { kind: ContainerKind::Init, state, ..batch(2, (Some(3000), Some(3000)), Some(8 * MIB)) };
        let sidecar = Container { kind: ContainerKind::Sidecar, ..batch(3, (Some(100), Some(200)), Some(MIB)) };
        vec![sidecar, init, Container { state: regular, ..batch(1, (Some(1000), Some(1000)), Some(2 * MIB)) }]
    };
    // Requests: 1100m make 1126 shares in each case.
    for (state, regular, quota, memory, targets) in [
        (Terminated, Running, 120_000, 3 * MIB, vec![Target::Pod(9), Target::Container(3), Target::Container(1)]),
        (Running, Waiting, 320_000, 9 * MIB, vec![Target::Pod(9), Target::Container(3), Target::Container(2)]),
        (Waiting, Waiting, 120_000, 3 * MIB, vec![Target::Pod(9), Target::Container(3)]),
    ] {
        let rows = rows(&[be(with(state, regular))], QuotaRule::default());
        assert_eq!(rows[0], (Target::Pod(9), 1126, Some(quota), Some(memory)), "{state:?}");
        assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), targets, "{state:?}");
    }
    let overhead = Pod { overhead: crate::amounts::Amounts::new(500, MIB), ..be(with(Terminated, Running)) };
    assert_eq!(rows(&[overhead], QuotaRule::default())[0], (Target::Pod(9), 1126, Some(120_000), Some(3 * MIB)));
}

#[test]
fn specification_and_annotation_each_come_first_as_configured() {
    let annotation = r#"{"containers":{"c1":{"requests":{"kubernetes.io/batch-cpu":"500"},
        "limits":{"kubernetes.io/batch-cpu":"2k","kubernetes.io/batch-memory":"1Mi"}}}}"#;
    let specified = || vec![batch(1, (Some(1000), Some(1000)), Some(2 * MIB)), batch(2, (None, None), None)];
    let plain = || vec![batch(1, (None, None), None), batch(2, (None, None), None)];
    let (spec, anno) = (ResourceSource::Spec, ResourceSource::Annotation);
    let by_spec = vec![
        (Target::Pod(9), 1024, None, None),
        (Target::Container(1), 1024, Some(100_000), Some(2 * MIB)),
        (Target::Container(2), 2, None, None),
    ];
    // The annotation does not name the second container: it keeps its values and does not count.
    let by_annotation =
        vec![(Target::Pod(9), 512, Some(200_000), Some(MIB)), (Target::Container(1), 512, Some(200_000), Some(MIB))];
    for (source, text, containers, expected) in [
        (spec, Some(annotation), specified(), by_spec.clone()),
        (anno, Some(annotation), specified(), by_annotation.clone()),
        (spec, Some(annotation), plain(), by_annotation.clone()),
        (anno, None, specified(), by_spec.clone()),
        (anno, Some("{}"), specified(), by_spec.clone()),
        (anno, Some(r#"{"containers":{"c1":{}}}"#), specified(), by_spec.clone()),
        (spec, None, plain(), vec![]),
        (anno, Some(r#"{"containers":{"c1":{"limits":{"cpu":"1"}}}}"#), plain(), vec![]),
    ] {
        let pod = Pod { extended_resource_spec: text.map(Into::into), ..be(containers) };
        let policy = PolicyConfig { resource_source: source, ..PolicyConfig::default() };
        let mut findings = Vec::new();
        let seen = settings(&[pod], &policy, QuotaRule::default(), &mut findings);
        let seen: Vec<Row> =
            seen.into_iter().map(|one| (one.target, one.shares, one.quota_usec, one.memory_bytes)).collect();
        assert_eq!((seen, findings), (expected, vec![]), "{source:?} {text:?}");
    }
}

#[test]
fn an_annotation_that_cannot_be_read_is_reported_and_the_specification_counts() {
    for (text, shown) in [
        ("{", "cannot be read"),
        (r#"{"containers":[]}"#, "field containers is `[]`"),
        (r#"{"containers":{"c1":7}}"#, "field containers.c1 is `7`"),
        (
            r#"{"containers":{"c1":{"limits":{"kubernetes.io/batch-cpu":"some"}}}}"#,
            "field containers.c1.limits.kubernetes.io/batch-cpu is `\"some\"`, which is no quantity",
        ),
    ] {
        let pod = Pod { extended_resource_spec: Some(text.into()), ..be(vec![batch(1, (Some(1000), None), None)]) };
        let policy = PolicyConfig { resource_source: ResourceSource::Annotation, ..PolicyConfig::default() };
        let mut findings = Vec::new();
        let seen = settings(&[pod], &policy, QuotaRule::default(), &mut findings);
        assert_eq!(seen[0].shares, 1024, "{text}");
        let finding = findings[0].to_string();
        assert!(
            finding.starts_with("pod default/be, annotation node.koordinator.sh/extended-resource-spec "),
            "{finding}"
        );
        assert!(finding.contains(shown), "{text}: {finding}");
    }
}

#[test]
fn a_negative_amount_of_an_annotation_counts_as_none_and_is_reported() {
    for (text, shares) in [
        (
            r#"{"containers":{"c1":{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"-1"}}}}"#,
            512,
        ),
        // Without another amount the specification counts.
        (r#"{"containers":{"c1":{"limits":{"kubernetes.io/batch-cpu":"-1"}}}}"#, 1024),
    ] {
        let pod = Pod { extended_resource_spec: Some(text.into()), ..be(vec![batch(1, (Some(1000), None), None)]) };
        let policy = PolicyConfig { resource_source: ResourceSource::Annotation, ..PolicyConfig::default() };
        let mut findings = Vec::new();
        let seen = settings(&[pod], &policy, QuotaRule::default(), &mut findings);
        assert_eq!((seen[0].shares, seen[0].quota_usec, seen[0].memory_bytes), (shares, None, None), "{text}");
        let told: Vec<_> = findings.iter().map(ToString::to_string).collect();
        let expected = "pod default/be, annotation node.koordinator.sh/extended-resource-spec field \
                        containers.c1.limits.kubernetes.io/batch-cpu is `\"-1\"`, which is negative; it counts as none";
        assert_eq!(told, [expected], "{text}");
    }
}

#[test]
fn an_amount_that_lost_its_unit_is_told_and_a_limit_is_not_below_the_request() {
    let gib = 1 << 30;
    for (milli, request, limit, given, told) in [
        (None, Some(gib), Some(gib), Some(gib), vec![]),
        (None, Some(0), Some(0), None, vec![]),
        (
            None,
            Some(512),
            Some(512),
            Some(512),
            vec!["limits kubernetes.io/batch-memory is 512, which is 512 bytes; was 512Mi meant?"],
        ),
        (
            None,
            Some(gib),
            Some(512),
            Some(gib),
            vec!["limits kubernetes.io/batch-memory is 512, which is 512 bytes; was 512Mi meant?"],
        ),
        (
            None,
            Some(512),
            None,
            None,
            vec!["requests kubernetes.io/batch-memory is 512, which is 512 bytes; was 512Mi meant?"],
        ),
        (
            Some(4),
            None,
            None,
            None,
            vec!["limits kubernetes.io/batch-cpu is 4, which is 4 thousandths of a CPU; was 4000 meant?"],
        ),
        (Some(10), None, None, None, vec![]),
    ] {
        let extended = vec![extended(CPU, milli, milli), extended(MEMORY, request, limit)];
        let pod = be(vec![Container { extended, ..batch(1, (None, None), None) }]);
        let mut findings = Vec::new();
        let seen = settings(&[pod], &PolicyConfig::default(), QuotaRule::default(), &mut findings);
        assert_eq!(
            seen.iter().map(|one| one.memory_bytes).collect::<Vec<_>>(),
            [given, given],
            "{request:?} {limit:?}"
        );
        let told: Vec<_> = told.into_iter().map(|told| format!("pod default/be, container c1 field {told}")).collect();
        assert_eq!(findings.iter().map(ToString::to_string).collect::<Vec<_>>(), told);
    }
}

#[test]
fn a_limit_below_the_use_says_by_how_much() {
    for (used, above) in [(None, None), (Some(MIB), None), (Some(2 * MIB), None), (Some(3 * MIB), Some(MIB))] {
        let one = Container { memory_used_bytes: used, ..batch(1, (None, None), Some(2 * MIB)) };
        let seen = all(&[be(vec![one])], QuotaRule::default());
        assert_eq!(seen.iter().map(|one| one.above_limit_bytes).collect::<Vec<_>>(), [above, above], "{used:?}");
    }
}

#[test]
fn a_reason_says_where_the_values_come_from() {
    let one = Container { memory_used_bytes: Some(3 * MIB), ..batch(1, (Some(1000), Some(2000)), Some(2 * MIB)) };
    let base = "batch CPU request 1000m, limit 2000m, batch memory limit 2 MiB, by the specification";
    let above = "; 1 MiB more than the limit in use";
    let ratio = Some(Decimal::hundredths(120));
    for (rule, more) in [
        (QuotaRule::default(), ""),
        (QuotaRule { is_the_tiers: true, ratio }, "; no quota while suppression sets that of the tier"),
        (QuotaRule { is_the_tiers: false, ratio }, "; quota divided by CPU normalisation 1.2"),
    ] {
        assert_eq!(all(&[be(vec![one.clone()])], rule)[1].reason, format!("{base}{more}{above}"));
    }
    let none = all(&[be(vec![one, batch(2, (None, None), None)])], QuotaRule::default());
    assert_eq!(none[2].reason, "batch CPU request none, limit none, batch memory limit none, by the specification");
}

fn any_container() -> impl Strategy<Value = Container> {
    let amount = || proptest::option::weighted(0.8, 0..200_000_u64);
    let kinds = prop_oneof![Just(ContainerKind::Regular), Just(ContainerKind::Sidecar), Just(ContainerKind::Init)];
    let states =
        prop_oneof![Just(ContainerState::Running), Just(ContainerState::Waiting), Just(ContainerState::Terminated)];
    (amount(), amount(), amount(), kinds, states).prop_map(|(request, limit, memory, kind, state)| Container {
        kind,
        state,
        ..batch(0, (request, limit), memory)
    })
}

proptest! {
    #[test]
    fn a_pod_covers_its_containers(
        containers in proptest::collection::vec(any_container(), 0..6), ratio in proptest::option::of(1..400_u32), is_the_tiers: bool,
    ) {
        let number = |(id, one): (usize, Container)| {
            let id = u32::try_from(id).unwrap();
            Container { id, name: format!("c{id}"), ..one }
        };
        let pods = [be(containers.into_iter().enumerate().map(number).collect())];
        let rule = QuotaRule { is_the_tiers, ratio: ratio.map(Decimal::hundredths) };
        let settings = all(&pods, rule);
        let Some((whole, parts)) = settings.split_first() else { return Ok(()) };
        prop_assert_eq!(whole.target, Target::Pod(9));
        for part in parts {
            let covers = |whole: Option<u64>, part: Option<u64>| whole.is_none_or(|whole| part.is_none_or(|part| part <= whole));
            prop_assert!(covers(whole.quota_usec, part.quota_usec), "{:?} {:?}", whole, part);
            prop_assert!(covers(whole.memory_bytes, part.memory_bytes), "{:?} {:?}", whole, part);
            prop_assert!((2..=262_144).contains(&part.shares) && (1..=10_000).contains(&part.weight()));
            prop_assert!(part.quota_usec.is_none_or(|quota| quota >= 1000) && part.memory_bytes != Some(0));
            prop_assert!(!is_the_tiers || part.quota_usec.is_none());
        }
        let mut targets: Vec<_> = settings.iter().map(|one| format!("{:?}", one.target)).collect();
        targets.sort();
        targets.dedup();
        prop_assert_eq!(targets.len(), settings.len(), "each target once");
    }
}
