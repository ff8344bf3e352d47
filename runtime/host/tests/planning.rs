//! Plans on simulated kernels: the kernel accepts every step, from any state to any other.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use qosm_host::simulated::{Kernel, Spec, Versions};
use qosm_host::{BurstRule, Executed, Host, HostError, Plan, Step, Support, Wanted};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, PodId, Tier};

const TREE: [(Target, &str); 9] = [
    (Target::Tier(Tier::Guaranteed), "kubepods"),
    (Target::Tier(Tier::Burstable), "kubepods/burstable"),
    (Target::Tier(Tier::BestEffort), "kubepods/besteffort"),
    (Target::Pod(PodId(1)), "kubepods/burstable/poda"),
    (Target::Pod(PodId(2)), "kubepods/podb"),
    (Target::Container(ContainerId(1)), "kubepods/burstable/poda/x"),
    (Target::Container(ContainerId(2)), "kubepods/burstable/poda/y"),
    (Target::Container(ContainerId(3)), "kubepods/podb/x"),
    (Target::Container(ContainerId(4)), "kubepods/podb/y"),
];
const POD: Target = TREE[3].0;
const CONTAINER: Target = TREE[5].0;

fn node(spec: &Spec) -> Host {
    let cgroups = TREE.iter().map(|&(_, path)| (path.to_owned(), BTreeMap::new())).collect();
    let mut host = Host::simulated(&Spec { cgroups, ..spec.clone() }).unwrap();
    for (target, path) in TREE {
        host.attach(target, path).unwrap();
    }
    host
}

fn v1(kernel: Kernel) -> Spec {
    Spec { versions: Versions::V1, kernel, ..Spec::default() }
}

fn v2(kernel: Kernel) -> Spec {
    Spec { versions: Versions::V2, kernel, ..Spec::default() }
}

fn want(target: Target, knob: Knob, value: impl Into<Option<i64>>) -> Wanted {
    Wanted { target, knob, value: value.into().map_or(Value::Max, Value::Number) }
}

fn carry_out(host: &mut Host, wanted: &[Wanted]) -> Plan {
    let plan = host.plan(wanted);
    for step in &plan.steps {
        match host.execute(step) {
            Ok(done) => assert_eq!(done, Executed::Done(step.to), "{step:?}"),
            Err(error) => unreachable!("{step:?} of {:#?}: {error}", plan.steps),
        }
    }
    plan
}

fn order(plan: &Plan) -> Vec<(Target, Knob)> {
    plan.steps.iter().map(|step| (step.target, step.knob)).collect()
}

#[test]
fn raises_from_the_top_and_lowers_from_the_bottom() {
    for spec in [v1(Kernel::Mainline), v2(Kernel::Mainline)] {
        let mut host = node(&spec);
        let both = |quota, burst| {
            [
                want(CONTAINER, Knob::CfsBurst, burst),
                want(POD, Knob::CfsQuota, quota),
                want(CONTAINER, Knob::CfsQuota, quota),
                want(POD, Knob::CfsBurst, burst),
            ]
        };
        let down =
            [(CONTAINER, Knob::CfsQuota), (POD, Knob::CfsQuota), (POD, Knob::CfsBurst), (CONTAINER, Knob::CfsBurst)];
        // From unlimited: quotas fall, bursts rise.
        assert_eq!(order(&carry_out(&mut host, &both(100_000, 100_000))), down);
        let up =
            [(POD, Knob::CfsQuota), (POD, Knob::CfsBurst), (CONTAINER, Knob::CfsQuota), (CONTAINER, Knob::CfsBurst)];
        assert_eq!(order(&carry_out(&mut host, &both(200_000, 200_000))), up);
        let down =
            [(CONTAINER, Knob::CfsBurst), (CONTAINER, Knob::CfsQuota), (POD, Knob::CfsBurst), (POD, Knob::CfsQuota)];
        assert_eq!(order(&carry_out(&mut host, &both(50_000, 20_000))), down);
        let plan = host.plan(&both(50_000, 20_000));
        assert!(plan.steps.is_empty() && plan.unchanged.len() == 4);
    }
}

#[test]
fn cuts_a_burst_to_the_quota_where_the_kernel_wants_it() {
    for (spec, given) in [
        (v1(Kernel::Mainline), 200_000),
        (v2(Kernel::Mainline), 200_000),
        (v1(Kernel::Alibaba), 2_000_000),
        (v2(Kernel::Alibaba), 2_000_000),
    ] {
        let mut host = node(&spec);
        let wanted = [want(CONTAINER, Knob::CfsQuota, 200_000), want(CONTAINER, Knob::CfsBurst, 2_000_000)];
        let plan = carry_out(&mut host, &wanted);
        assert_eq!(host.read(CONTAINER, Knob::CfsBurst).unwrap(), Value::Number(given));
        assert_eq!(plan.clamped.len(), usize::from(given == 200_000));
        // The burst alone, against the quota in force: clamped again, and unchanged.
        let plan = host.plan(&wanted[1..]);
        assert!(plan.steps.is_empty() && plan.unchanged.len() == 1);
    }
    // Without a quota there is no bound.
    let mut host = node(&v2(Kernel::Mainline));
    let plan = carry_out(&mut host, &[want(CONTAINER, Knob::CfsBurst, 2_000_000)]);
    assert!(plan.clamped.is_empty());
}

#[test]
fn lowers_a_burst_before_a_quota_comes_back_and_refuses_below_one_without_a_lease() {
    for spec in [v1(Kernel::Mainline), v2(Kernel::Mainline)] {
        let mut host = node(&spec);
        carry_out(&mut host, &[want(CONTAINER, Knob::CfsBurst, 500_000)]);
        let alone = host.plan(&[want(CONTAINER, Knob::CfsQuota, 100_000)]);
        assert!(alone.steps.is_empty());
        assert!(matches!(alone.refused[0].2, HostError::BurstAboveQuota { .. }), "{:?}", alone.refused);
        let wanted = [want(CONTAINER, Knob::CfsQuota, 100_000), want(CONTAINER, Knob::CfsBurst, 500_000)];
        let plan = carry_out(&mut host, &wanted);
        assert_eq!(order(&plan), [(CONTAINER, Knob::CfsBurst), (CONTAINER, Knob::CfsQuota)]);
    }
    let mut host = node(&v2(Kernel::Alibaba));
    carry_out(&mut host, &[want(CONTAINER, Knob::CfsBurst, 500_000)]);
    carry_out(&mut host, &[want(CONTAINER, Knob::CfsQuota, 100_000)]);
}

#[test]
fn moves_a_container_that_becomes_unlimited_with_its_falling_pod() {
    let mut host = node(&v1(Kernel::Mainline));
    let wanted = |pod, container| [want(POD, Knob::CfsQuota, pod), want(CONTAINER, Knob::CfsQuota, container)];
    carry_out(&mut host, &wanted(Some(400_000), Some(300_000)));
    carry_out(&mut host, &wanted(Some(200_000), None));
    carry_out(&mut host, &wanted(Some(400_000), Some(300_000)));
}

#[test]
fn goes_by_the_period_in_force() {
    let mut host = node(&v1(Kernel::Mainline));
    host.simulated_mut().unwrap().set_file("kubepods/burstable/poda", "cpu.cfs_period_us", "50000").unwrap();
    // 100 ms in 50 ms is two CPUs; 150 ms in 100 ms is less than that.
    let wanted = [want(POD, Knob::CfsQuota, 100_000), want(CONTAINER, Knob::CfsQuota, 150_000)];
    carry_out(&mut host, &wanted);
    carry_out(&mut host, &[want(POD, Knob::CfsQuota, 50_000), want(CONTAINER, Knob::CfsQuota, 100_000)]);
    assert_eq!(host.bandwidth(POD).unwrap().period.0, 50_000);
}

#[test]
fn rounds_memory_and_keeps_parents_above_children() {
    for spec in [v2(Kernel::Mainline), v1(Kernel::Alibaba)] {
        let mut host = node(&spec);
        let wanted = |min| [want(CONTAINER, Knob::MemoryMin, min), want(POD, Knob::MemoryMin, min)];
        let plan = carry_out(&mut host, &wanted(10_000));
        assert_eq!(order(&plan), [(POD, Knob::MemoryMin), (CONTAINER, Knob::MemoryMin)]);
        assert_eq!(host.read(POD, Knob::MemoryMin).unwrap(), Value::Number(8192));
        assert!(host.plan(&wanted(8193)).steps.is_empty());
        let plan = carry_out(&mut host, &wanted(0));
        assert_eq!(order(&plan), [(CONTAINER, Knob::MemoryMin), (POD, Knob::MemoryMin)]);
        carry_out(&mut host, &[want(CONTAINER, Knob::MemoryHigh, 1 << 30)]);
        carry_out(&mut host, &[want(CONTAINER, Knob::MemoryHigh, None)]);
        assert_eq!(host.read(CONTAINER, Knob::MemoryHigh).unwrap(), Value::Max);
        // Koordinator's value for unlimited counts as unlimited.
        assert_eq!(host.plan(&[want(CONTAINER, Knob::MemoryHigh, i64::MAX)]).unchanged.len(), 1);
    }
}

/// A limit that is enabled without its size would leave no page cache at all.
#[test]
fn a_page_cache_limit_ends_at_the_memory_limit() {
    let mut host = node(&v1(Kernel::Alibaba));
    host.simulated_mut().unwrap().set_file("kubepods/burstable/poda", "memory.limit_in_bytes", "1048576").unwrap();
    let wanted = [want(POD, Knob::PageCacheLimitEnable, 1), want(POD, Knob::PageCacheLimitSize, 2_097_152)];
    let plan = carry_out(&mut host, &wanted);
    assert_eq!(plan.clamped.len(), 1);
    assert_eq!(host.read(POD, Knob::PageCacheLimitSize).unwrap(), Value::Number(1_048_576));
    assert_eq!(host.read(POD, Knob::PageCacheLimitEnable).unwrap(), Value::Number(1));
}

/// Alibaba's kernel accepts more, but Koordinator's agent writes no more; on a mainline kernel the quota is the tighter bound.
#[test]
fn a_burst_on_v1_is_at_most_100_seconds() {
    for (wanted, clamps) in [(100_000_000, 0), (100_000_001, 1), (i64::MAX, 1)] {
        let mut host = node(&v1(Kernel::Alibaba));
        let plan = carry_out(&mut host, &[want(POD, Knob::CfsBurst, wanted)]);
        assert_eq!((plan.refused.len(), plan.steps[0].to), (0, Value::Number(100_000_000)), "{wanted}");
        let told: BTreeMap<_, _> = plan.clamped.iter().map(|clamp| (clamp.knob, clamp.wanted)).collect();
        assert_eq!(told.len(), clamps);
        assert!(told.values().all(|told| *told == Value::Number(wanted)), "{told:?}");
        assert!(host.plan(&[want(POD, Knob::CfsBurst, wanted)]).steps.is_empty());
    }
    let mut host = node(&v1(Kernel::Mainline));
    let plan = host.plan(&[want(POD, Knob::CfsQuota, 1_600_000), want(POD, Knob::CfsBurst, 160_000_000)]);
    assert_eq!((plan.steps.len(), plan.clamped.len(), plan.refused.len()), (2, 1, 0));
    let mut host = node(&v2(Kernel::Alibaba));
    assert_eq!(host.plan(&[want(POD, Knob::CfsBurst, 160_000_000)]).steps.len(), 1);
    // The kernel limits the sum of both.
    let both = [want(POD, Knob::CfsQuota, 100_000), want(POD, Knob::CfsBurst, i64::MAX)];
    let plan = carry_out(&mut host, &both);
    assert_eq!((plan.refused.len(), plan.steps.len()), (0, 2));
    assert!(host.plan(&both).steps.is_empty());
}

#[test]
fn more_of_the_same_than_a_file_takes_is_capped_and_told() {
    let mut host = node(&v1(Kernel::Alibaba));
    for (knob, wanted, given) in [
        (Knob::CfsQuota, 999, 1000),
        (Knob::CfsQuota, i64::MAX, (1 << 44) - 1),
        (Knob::CpuWeight, 10_001, 10_000),
        (Knob::WmarkScale, 2000, 1000),
        (Knob::WmarkMinAdj, 51, 50),
        (Knob::WmarkMinAdj, -26, -25),
        // No bound or protection is rounded down to 0.
        (Knob::MemoryHigh, 512, 4096),
        (Knob::MemoryMin, 1, 4096),
        (Knob::MemoryLow, 4095, 4096),
        (Knob::MemoryMax, 512, 4096),
        (Knob::PageCacheLimitSize, 512, 4096),
    ] {
        let plan = carry_out(&mut host, &[want(POD, knob, wanted)]);
        assert!(plan.refused.is_empty(), "{knob} {wanted}: {:?}", plan.refused);
        assert_eq!(host.read(POD, knob).unwrap(), Value::Number(given), "{knob} {wanted}");
        assert_eq!((plan.clamped[0].wanted, plan.clamped[0].given), (Value::Number(wanted), Value::Number(given)));
        assert!(host.plan(&[want(POD, knob, wanted)]).steps.is_empty());
    }
    let plan = carry_out(&mut host, &[want(POD, Knob::MemoryHigh, 0)]);
    assert!(plan.clamped.is_empty(), "whoever says 0 means it");
}

#[test]
fn refuses_what_is_out_of_range_and_does_the_rest() {
    let mut host = node(&v1(Kernel::Alibaba));
    host.simulated_mut().unwrap().set_file("kubepods/burstable/poda", "memory.limit_in_bytes", "1048576").unwrap();
    let out_of_range = [
        want(POD, Knob::CfsQuota, 0),
        want(POD, Knob::CfsBurst, None),
        want(POD, Knob::MemoryMin, -1),
        want(POD, Knob::WmarkRatio, 101),
        want(POD, Knob::WmarkScale, 0),
        want(POD, Knob::CpuWeight, -1),
        want(POD, Knob::OomPriority, 13),
        want(POD, Knob::OomGroup, 2),
    ];
    let fine = want(POD, Knob::MemoryLow, 4096);
    let wanted: Vec<_> = out_of_range.into_iter().chain([fine]).collect();
    let plan = carry_out(&mut host, &wanted);
    assert_eq!(plan.refused.len(), out_of_range.len());
    for (_, _, error) in &plan.refused {
        assert!(matches!(error, HostError::Range { .. }), "{error}");
    }
    assert_eq!(order(&plan), [(POD, Knob::MemoryLow)]);
    let page_cache = [
        want(POD, Knob::PageCacheLimitEnable, 1),
        want(POD, Knob::PageCacheLimitSize, 524_288),
        want(POD, Knob::PageCacheReclaimSync, 1),
    ];
    let plan = carry_out(&mut host, &page_cache);
    assert_eq!(plan.steps.last().map(|step| step.knob), Some(Knob::PageCacheLimitEnable), "the switch comes last");
}

#[test]
fn of_two_wanted_values_the_later_counts() {
    let mut host = node(&v2(Kernel::Mainline));
    let plan = carry_out(&mut host, &[want(POD, Knob::CfsQuota, 100_000), want(POD, Knob::CfsQuota, 200_000)]);
    assert_eq!(plan.steps.len(), 1);
    assert_eq!(host.read(POD, Knob::CfsQuota).unwrap(), Value::Number(200_000));
}

#[test]
fn reports_what_a_kernel_lacks() {
    let mut host = node(&v1(Kernel::Mainline));
    let plan = host.plan(&[want(POD, Knob::MemoryHigh, 4096), want(POD, Knob::CfsQuota, 100_000)]);
    assert_eq!(order(&plan), [(POD, Knob::CfsQuota)]);
    assert!(matches!(plan.refused[0].2, HostError::Unsupported { .. }));
    assert!(matches!(host.support(POD, Knob::MemoryHigh), Support::Unavailable { .. }));
    assert_eq!(host.support(POD, Knob::CfsQuota), Support::Native);

    let sys = BTreeMap::from([("kernel/mm/pagecache_limit/enabled".to_owned(), "0\n".to_owned())]);
    let mut host = node(&Spec { sys, ..v2(Kernel::Alibaba) });
    let Support::Unavailable { why } = host.support(POD, Knob::PageCacheLimitSize) else { unreachable!("it is off") };
    assert!(why.contains("/sys/kernel/mm/pagecache_limit/enabled"), "{why}");
}

#[test]
fn finds_a_file_that_takes_nothing_before_it_is_needed() {
    // TencentOS: v1 has memory.high, but every write fails with EINVAL.
    let spec = Spec {
        extra_files: BTreeMap::from([("memory.high".to_owned(), "9223372036854771712\n".to_owned())]),
        refusing_files: ["memory.high".to_owned()].into(),
        ..v1(Kernel::Mainline)
    };
    let mut host = node(&spec);
    let Support::Unavailable { why } = host.support(POD, Knob::MemoryHigh) else { unreachable!("it refuses") };
    assert!(why.contains("EINVAL"), "{why}");
    let plan = host.plan(&[want(POD, Knob::MemoryHigh, 4096)]);
    assert!(plan.steps.is_empty() && plan.refused.len() == 1);
}

#[test]
fn parks_what_the_kernel_refuses_and_tries_again_slowly() {
    let mut host = node(&v2(Kernel::Mainline));
    let wanted = [want(POD, Knob::MemoryLow, 4096)];
    let plan = host.plan(&wanted);
    host.simulated_mut().unwrap().set_refusing("memory.low", true);
    let error = host.execute(&plan.steps[0]).unwrap_err();
    let HostError::Refused { target, knob, value, path, errno, .. } = &error else { unreachable!("{error}") };
    assert_eq!((*target, *knob, value.as_str(), *errno), (POD, Knob::MemoryLow, "4096", "EINVAL"));
    assert_eq!(path, "/sys/fs/cgroup/kubepods/burstable/poda/memory.low");
    let Support::Unavailable { why } = host.support(POD, Knob::MemoryLow) else { unreachable!("it was refused") };
    assert!(why.contains("EINVAL"), "{why}");
    assert_eq!(host.support(CONTAINER, Knob::MemoryLow), Support::Native, "others are not concerned");
    host.simulated_mut().unwrap().set_refusing("memory.low", false);
    let mut plans = 0;
    while host.plan(&wanted).steps.is_empty() {
        plans += 1;
        assert!(plans < 100);
    }
    assert!(plans > 60);
    carry_out(&mut host, &wanted);
    assert_eq!(host.support(POD, Knob::MemoryLow), Support::Native);
}

#[test]
fn a_refusal_is_reconsidered_when_what_it_hung_on_changes() {
    let mut host = node(&v1(Kernel::Mainline));
    carry_out(&mut host, &[want(POD, Knob::CfsQuota, 100_000)]);
    let child = [want(CONTAINER, Knob::CfsQuota, 200_000)];
    let plan = host.plan(&child);
    assert!(matches!(host.execute(&plan.steps[0]), Err(HostError::Refused { errno: "EINVAL", .. })));
    assert!(matches!(host.plan(&child).refused[0].2, HostError::BackedOff { .. }));
    carry_out(&mut host, &[want(POD, Knob::CfsQuota, 200_000)]);
    carry_out(&mut host, &child);
}

#[test]
fn learns_the_burst_rule_from_the_first_refusal() {
    for (kernel, rule) in [(Kernel::Mainline, BurstRule::BurstWithinQuota), (Kernel::Alibaba, BurstRule::Unbounded)] {
        let mut host = node(&Spec { read_only: true, ..v2(kernel) });
        assert_eq!(host.facts().burst_rule, BurstRule::Unknown);
        assert!(host.facts().unprobed.unwrap().contains("EROFS"));
        let plan = host.plan(&[want(POD, Knob::CfsQuota, 100_000)]);
        assert!(matches!(host.execute(&plan.steps[0]), Err(HostError::ReadOnly { .. })));
        host.simulated_mut().unwrap().set_read_only(false);
        carry_out(&mut host, &[want(POD, Knob::CfsQuota, 100_000)]);
        let burst = [want(POD, Knob::CfsBurst, 300_000)];
        let plan = host.plan(&burst);
        assert_eq!(host.execute(&plan.steps[0]).is_ok(), kernel == Kernel::Alibaba);
        assert_eq!(host.facts().burst_rule, rule);
        carry_out(&mut host, &burst);
    }
}

#[test]
fn plans_against_what_another_writer_left() {
    let mut host = node(&v2(Kernel::Mainline));
    carry_out(&mut host, &[want(POD, Knob::CfsQuota, 100_000)]);
    host.simulated_mut().unwrap().set_file("kubepods/burstable/poda", "cpu.max", "300000 100000").unwrap();
    let plan = host.plan(&[want(POD, Knob::CfsQuota, 100_000)]);
    assert_eq!(
        plan.steps,
        [Step { target: POD, knob: Knob::CfsQuota, from: Value::Number(300_000), to: Value::Number(100_000) }]
    );
    host.simulated_mut().unwrap().remove_cgroup("kubepods/burstable/poda").unwrap();
    assert!(host.execute(&plan.steps[0]).unwrap_err().is_gone());
    let plan = host.plan(&[want(POD, Knob::CfsQuota, 100_000)]);
    assert!(plan.refused[0].2.is_gone());
}

/// The wanted values of each cgroup: quota in µs per period, burst, min, low, high.
type State = Vec<(Option<i64>, i64, i64, i64, Option<i64>)>;

fn state() -> impl Strategy<Value = State> {
    let quota = prop_oneof![Just(None), (1000_i64..400_000).prop_map(Some)];
    let high = prop_oneof![Just(None), (0_i64..1 << 30).prop_map(Some)];
    let one = (quota, 0_i64..500_000, 0_i64..1 << 30, 0_i64..1 << 30, high);
    proptest::collection::vec(one, TREE.len())
}

/// Makes a state acceptable on v1: no quota / period above that of a limited ancestor.
fn within_parents(host: &mut Host, state: &State) -> Vec<Wanted> {
    let mut effective: Vec<Option<f64>> = Vec::new();
    let mut wanted = Vec::new();
    for (place, (target, path)) in TREE.into_iter().enumerate() {
        let (quota, burst, min, low, high) = state[place];
        let period = f64::from(u32::try_from(host.bandwidth(target).unwrap().period.0).unwrap());
        let parent =
            TREE.iter().position(|&(_, above)| path.rsplit_once('/').is_some_and(|(parent, _)| parent == above));
        let bound = parent.and_then(|parent| effective[parent]);
        let quota = quota.and_then(|quota| {
            let own = f64::from(i32::try_from(quota).unwrap()) / period;
            // Slightly below the bound, because the kernel rounds ratios.
            (bound.is_none_or(|bound| own <= bound * 0.999)).then_some(quota)
        });
        let own = quota.map(|quota| f64::from(i32::try_from(quota).unwrap()) / period);
        effective.push(own.or(bound));
        wanted.push(want(target, Knob::CfsQuota, quota));
        wanted.push(want(target, Knob::CfsBurst, burst));
        wanted.push(want(target, Knob::MemoryMin, min));
        wanted.push(want(target, Knob::MemoryLow, low));
        wanted.push(want(target, Knob::MemoryHigh, high));
    }
    wanted
}

fn snapshot(host: &mut Host) -> Vec<Wanted> {
    let mut values = Vec::new();
    for (target, _) in TREE {
        for knob in Knob::ALL {
            if let Ok(value) = host.read(target, knob) {
                values.push(Wanted { target, knob, value });
            }
        }
    }
    values
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_step_is_accepted_and_releasing_all_restores(
        start in state(),
        goals in proptest::collection::vec((state(), any::<prop::sample::Index>()), 1..4),
        periods in proptest::collection::vec(prop::sample::select(vec![20_000_u32, 50_000, 100_000]), TREE.len()),
        kernel in prop::sample::select(vec![Kernel::Mainline, Kernel::Alibaba]),
        versions in prop::sample::select(vec![Versions::V1, Versions::V2]),
    ) {
        let mut host = node(&Spec { versions, kernel, ..Spec::default() });
        for ((_, path), period) in TREE.into_iter().zip(&periods) {
            let simulation = host.simulated_mut().unwrap();
            if versions == Versions::V1 {
                simulation.set_file(path, "cpu.cfs_period_us", &period.to_string()).unwrap();
            } else {
                simulation.set_file(path, "cpu.max", &format!("max {period}")).unwrap();
            }
        }
        let wanted = within_parents(&mut host, &start);
        carry_out(&mut host, &wanted);
        let baseline = snapshot(&mut host);
        for (goal, seed) in goals {
            let mut wanted = within_parents(&mut host, &goal);
            // In any order.
            let middle = seed.index(wanted.len());
            wanted.rotate_left(middle);
            let plan = carry_out(&mut host, &wanted);
            let reached = |knob| plan.refused.iter().all(|&(_, of, _)| of != knob);
            prop_assert!(reached(Knob::CfsQuota) && reached(Knob::CfsBurst), "{:?}", plan.refused);
            prop_assert!(host.plan(&wanted).steps.is_empty());
        }
        let plan = carry_out(&mut host, &baseline);
        prop_assert!(plan.refused.is_empty() && plan.clamped.is_empty());
        prop_assert_eq!(snapshot(&mut host), baseline);
    }
}

#[test]
fn memory_is_held_to_numa_nodes_and_let_go() {
    let path = "kubepods/burstable/poda/x";
    for spec in [v1(Kernel::Mainline), v2(Kernel::Mainline)] {
        let mut host = node(&Spec { numa_nodes: 2, ..spec.clone() });
        let mems = |host: &mut Host| host.simulated_mut().unwrap().read_file(path, "cpuset.mems").unwrap();
        if spec.versions == Versions::V1 {
            // A v1 cgroup without nodes cannot have processes.
            host.simulated_mut().unwrap().overwrite(path, "cpuset.mems", "0-1").unwrap();
        }
        let before = host.read(CONTAINER, Knob::CpusetMems).unwrap();
        carry_out(&mut host, &[want(CONTAINER, Knob::CpusetMems, 0b10)]);
        assert_eq!(mems(&mut host), "1\n");
        if spec.versions == Versions::V2 {
            let effective = host.simulated_mut().unwrap().read_file(path, "cpuset.mems.effective").unwrap();
            assert_eq!(effective, "1\n");
        }
        // A node that the machine does not have.
        let plan = host.plan(&[want(CONTAINER, Knob::CpusetMems, 0b100)]);
        let error = host.execute(&plan.steps[0]).unwrap_err();
        assert!(matches!(error, HostError::Refused { errno: "EINVAL", .. }), "{error}");
        let plan = host.plan(&[want(POD, Knob::CpusetMems, 1), want(CONTAINER, Knob::CpusetMems, 0)]);
        assert_eq!(plan.refused.len(), 2, "{plan:?}");
        carry_out(&mut host, &[Wanted { target: CONTAINER, knob: Knob::CpusetMems, value: before }]);
        assert_eq!(host.read(CONTAINER, Knob::CpusetMems).unwrap(), before);
        assert_eq!(mems(&mut host), "0-1\n", "it has processes, so it cannot be left without nodes of its own");
    }
    let mut host = node(&Spec { numa_nodes: 2, ..v1(Kernel::Mainline) });
    host.simulated_mut().unwrap().overwrite("kubepods/burstable/poda", "cpuset.mems", "0").unwrap();
    let simulation = host.simulated_mut().unwrap();
    assert!(simulation.set_file(path, "cpuset.mems", "1").is_err(), "the parent does not have it");
    simulation.set_file(path, "cpuset.mems", "0").unwrap();
    assert!(simulation.set_file(path, "cpuset.mems", "").is_err(), "it has processes");
}
