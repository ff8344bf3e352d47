//! CPU weights and `cpu.idle` on simulated kernels: the values that read back, the order of writes, and refusals.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use qosm_host::simulated::{Kernel, Spec, Versions};
use qosm_host::{Executed, Host, HostError, Plan, Support, Wanted};
use qosm_model::knob::{DEFAULT_WEIGHT, IDLE_WEIGHT, Knob, Target, Value};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::unit::MilliCpu;

const TIER: Target = Target::Tier(Tier::BestEffort);
const POD: Target = Target::Pod(PodId(1));
const CONTAINER: Target = Target::Container(ContainerId(1));
const PATH: &str = "kubepods/besteffort/poda/x";
const ON: Value = Value::Number(1);
const OFF: Value = Value::Number(0);

const SPECS: [(Versions, Kernel); 4] = [
    (Versions::V1, Kernel::Mainline),
    (Versions::V1, Kernel::Alibaba),
    (Versions::V2, Kernel::Mainline),
    (Versions::V2, Kernel::Alibaba),
];

fn node(spec: &Spec) -> Host {
    let mut host = Host::simulated(spec).unwrap();
    for (target, path) in [(TIER, "kubepods/besteffort"), (POD, "kubepods/besteffort/poda"), (CONTAINER, PATH)] {
        host.create(path).unwrap();
        host.attach(target, path).unwrap();
    }
    host
}

fn spec((versions, kernel): (Versions, Kernel)) -> Spec {
    Spec { versions, kernel, ..Spec::default() }
}

fn lacking(file: &str, versions: Versions) -> Spec {
    Spec { versions, missing_files: BTreeSet::from([file.to_owned()]), ..Spec::default() }
}

fn weight_file(versions: Versions) -> &'static str {
    if versions == Versions::V1 { "cpu.shares" } else { "cpu.weight" }
}

fn want(target: Target, knob: Knob, value: Value) -> Wanted {
    Wanted { target, knob, value }
}

/// `cpu.idle` with its weight.
fn idle() -> [Wanted; 2] {
    [want(CONTAINER, Knob::CpuWeight, IDLE_WEIGHT), want(CONTAINER, Knob::CpuIdle, ON)]
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

fn knobs(plan: &Plan) -> Vec<Knob> {
    plan.steps.iter().map(|step| step.knob).collect()
}

fn written(host: &mut Host, file: &str) -> String {
    host.simulated_mut().unwrap().read_file(PATH, file).unwrap().trim().to_owned()
}

#[test]
fn a_weight_reads_back_on_either_version() {
    for versions in [Versions::V1, Versions::V2] {
        let mut host = node(&Spec { versions, ..Spec::default() });
        assert_eq!(host.read(CONTAINER, Knob::CpuWeight).unwrap(), DEFAULT_WEIGHT);
        for target in [TIER, POD, CONTAINER] {
            for weight in [1, 2, 99, 100, 101, 333, 9_999, 10_000] {
                let wanted = [want(target, Knob::CpuWeight, Value::Number(weight))];
                carry_out(&mut host, &wanted);
                assert_eq!(host.read(target, Knob::CpuWeight).unwrap(), Value::Number(weight));
                assert!(host.plan(&wanted).steps.is_empty());
            }
        }
        carry_out(&mut host, &[want(CONTAINER, Knob::CpuWeight, Value::Number(50))]);
        assert_eq!(written(&mut host, weight_file(versions)), if versions == Versions::V1 { "512" } else { "50" });
    }
}

#[test]
fn shares_that_are_no_weight_are_put_back_to_the_share() {
    let mut host = node(&Spec { versions: Versions::V1, ..Spec::default() });
    for shares in ["2", "3", "9", "103", "204", "102401", "262144"] {
        host.simulated_mut().unwrap().set_file(PATH, "cpu.shares", shares).unwrap();
        let baseline = host.read(CONTAINER, Knob::CpuWeight).unwrap();
        assert_eq!(baseline, Value::Shares(shares.parse().unwrap()));
        carry_out(&mut host, &[want(CONTAINER, Knob::CpuWeight, Value::Number(7))]);
        carry_out(&mut host, &[want(CONTAINER, Knob::CpuWeight, baseline)]);
        assert_eq!(written(&mut host, "cpu.shares"), shares);
    }
}

#[test]
fn idle_goes_first_and_the_weight_comes_back_after_it() {
    for (versions, kernel) in SPECS {
        let mut host = node(&spec((versions, kernel)));
        let before = "39";
        host.simulated_mut().unwrap().set_file(PATH, weight_file(versions), before).unwrap();
        let baseline = host.read(CONTAINER, Knob::CpuWeight).unwrap();
        let plan = carry_out(&mut host, &idle());
        assert_eq!(knobs(&plan), [Knob::CpuIdle, Knob::CpuWeight]);
        assert_eq!(plan.steps[1].from, baseline, "what is lost is reported");
        assert_eq!(host.read(CONTAINER, Knob::CpuWeight).unwrap(), IDLE_WEIGHT);
        assert!(host.plan(&idle()).steps.is_empty());

        let back = [want(CONTAINER, Knob::CpuWeight, baseline), want(CONTAINER, Knob::CpuIdle, OFF)];
        assert_eq!(knobs(&carry_out(&mut host, &back)), [Knob::CpuIdle, Knob::CpuWeight]);
        assert_eq!(written(&mut host, weight_file(versions)), before);
        // The value that the kernel itself restores.
        carry_out(&mut host, &idle());
        carry_out(&mut host, &[want(CONTAINER, Knob::CpuIdle, OFF)]);
        assert_eq!(host.read(CONTAINER, Knob::CpuWeight).unwrap(), DEFAULT_WEIGHT);
    }
}

#[test]
fn an_idle_container_takes_no_weight() {
    for versions in [Versions::V1, Versions::V2] {
        let mut host = node(&Spec { versions, ..Spec::default() });
        let file = weight_file(versions);
        let simulation = host.simulated_mut().unwrap();
        simulation.set_file(PATH, "cpu.idle", "1").unwrap();
        let refused = simulation.set_file(PATH, file, "100").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        let wanted = [want(CONTAINER, Knob::CpuWeight, Value::Number(200))];
        let plan = host.plan(&wanted);
        let (_, _, error) = &plan.refused[0];
        assert!(matches!(error, HostError::Idle { .. }), "{error}");
        assert!(error.to_string().contains(file) && error.to_string().contains("cpu.idle"), "{error}");
        // Both together are accepted, and so is the weight alone once the cgroup is not idle.
        let plan = carry_out(&mut host, &[wanted[0], want(CONTAINER, Knob::CpuIdle, OFF)]);
        assert_eq!(knobs(&plan), [Knob::CpuIdle, Knob::CpuWeight]);
        carry_out(&mut host, &[want(CONTAINER, Knob::CpuWeight, Value::Number(300))]);
    }
}

#[test]
fn no_tier_and_no_pod_becomes_idle() {
    let mut host = node(&Spec::default());
    for target in [TIER, POD] {
        let plan = host.plan(&[want(target, Knob::CpuIdle, ON), want(target, Knob::CpuWeight, IDLE_WEIGHT)]);
        assert!(plan.steps.is_empty() && plan.refused.len() == 2, "{plan:?}");
        let (_, _, error) = &plan.refused[0];
        assert!(matches!(error, HostError::Unsupported { .. }) && error.to_string().contains("kubelet"), "{error}");
        assert!(matches!(host.support(target, Knob::CpuIdle), Support::Unavailable { .. }));
    }
}

#[test]
fn a_weight_outside_of_its_range_is_refused() {
    let mut host = node(&Spec::default());
    for weight in [0, -1] {
        let plan = host.plan(&[want(CONTAINER, Knob::CpuWeight, Value::Number(weight))]);
        let (_, _, error) = &plan.refused[0];
        assert!(matches!(error, HostError::Range { .. }), "{error}");
        assert!(error.to_string().contains("use 1 to 10000"), "{error}");
    }
}

#[test]
fn without_cpu_idle_the_lowest_weight_stands_in() {
    for (versions, lowest) in [(Versions::V1, Value::Shares(2)), (Versions::V2, Value::Number(1))] {
        let mut host = node(&lacking("cpu.idle", versions));
        let Support::Unavailable { why } = host.support(CONTAINER, Knob::CpuIdle) else { unreachable!() };
        assert!(why.contains("Linux 5.15") && why.contains("lowest weight"), "{why}");
        let plan = carry_out(&mut host, &idle());
        assert_eq!(plan.refused.len(), 1);
        assert_eq!((plan.clamped[0].wanted, plan.clamped[0].given), (IDLE_WEIGHT, lowest));
        assert_eq!(host.read(CONTAINER, Knob::CpuWeight).unwrap(), lowest);
        assert!(host.plan(&idle()).steps.is_empty());
        carry_out(&mut host, &[want(CONTAINER, Knob::CpuWeight, DEFAULT_WEIGHT)]);
    }
}

#[test]
fn where_idle_is_refused_the_weight_stays_and_the_next_plan_lowers_it() {
    let mut host = node(&Spec::default());
    host.simulated_mut().unwrap().set_refusing("cpu.idle", true);
    let plan = host.plan(&idle());
    assert_eq!(knobs(&plan), [Knob::CpuIdle, Knob::CpuWeight]);
    let errors: Vec<_> = plan.steps.iter().map(|step| host.execute(step).unwrap_err()).collect();
    assert!(matches!(errors[0], HostError::Refused { errno: "EINVAL", .. }), "{}", errors[0]);
    assert!(matches!(errors[1], HostError::NotIdle { .. }), "{}", errors[1]);
    assert_eq!(host.read(CONTAINER, Knob::CpuWeight).unwrap(), DEFAULT_WEIGHT);
    let plan = carry_out(&mut host, &idle());
    assert_eq!(plan.clamped[0].given, Value::Number(1));
}

#[test]
fn support_is_proved_without_changing_an_idle_container() {
    let mut host = node(&Spec::default());
    assert_eq!(host.support(CONTAINER, Knob::CpuIdle), Support::Native);
    assert_eq!(host.support(POD, Knob::CpuWeight), Support::Native);
    carry_out(&mut host, &idle());
    host.simulated_mut().unwrap().record_writes();
    assert_eq!(host.support(CONTAINER, Knob::CpuWeight), Support::Native);
    assert!(host.simulated_mut().unwrap().take_writes().is_empty());
}

#[test]
fn what_a_request_becomes_is_known() {
    let one = MilliCpu(1000);
    let v1 = node(&Spec { versions: Versions::V1, ..Spec::default() });
    assert_eq!(v1.requested_weights(one), [Value::Number(100)]);
    assert_eq!(v1.requested_weights(MilliCpu(0)), [Value::Shares(2)]);
    let v2 = node(&Spec::default());
    assert_eq!(v2.requested_weights(one), [Value::Number(39), Value::Number(100)]);
}

#[test]
fn a_kernel_is_simulated_that_starts_out_idle() {
    let files = BTreeMap::from([("cpu.idle".to_owned(), "1".to_owned()), ("cpu.weight".to_owned(), "1".to_owned())]);
    let cgroups = BTreeMap::from([(PATH.to_owned(), files)]);
    let mut host = node(&Spec { cgroups, ..Spec::default() });
    // Kernels that clamp print 1 for an idle cgroup.
    assert_eq!(host.read(CONTAINER, Knob::CpuWeight).unwrap(), IDLE_WEIGHT);
}
