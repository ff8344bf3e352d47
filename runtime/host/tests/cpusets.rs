//! CPUs of cgroups: the order of the writes, unavailable CPUs, and how baselines are restored.
#![expect(clippy::unwrap_used, reason = "tests")]

use qosm_host::simulated::{Spec, Versions};
use qosm_host::{Baselines, Executed, Host, HostError, Plan, Wanted};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, PodId, Tier};

const ALL: Target = Target::Tier(Tier::Guaranteed);
const TIER: Target = Target::Tier(Tier::BestEffort);
const POD: Target = Target::Pod(PodId(1));
const APP: Target = Target::Container(ContainerId(1));
const PATHS: [(Target, &str); 4] = [
    (ALL, "kubepods"),
    (TIER, "kubepods/besteffort"),
    (POD, "kubepods/besteffort/podb"),
    (APP, "kubepods/besteffort/podb/app"),
];

fn cpus(list: &str) -> Value {
    if list == "max" { Value::Max } else { Value::Cpus(list.parse().unwrap()) }
}

/// A node of eight CPUs; on v1 each group has all of them in its own list, as runtimes leave it.
fn node(versions: Versions) -> Host {
    let mut host = Host::simulated(&Spec { versions, cpus: 8, ..Spec::default() }).unwrap();
    for (target, path) in PATHS {
        host.create(path).unwrap();
        host.attach(target, path).unwrap();
        if versions == Versions::V1 {
            host.simulated_mut().unwrap().set_file(path, "cpuset.cpus", "0-7").unwrap();
        }
    }
    host
}

fn wanted(values: &[(Target, &str)]) -> Vec<Wanted> {
    values.iter().map(|&(target, list)| Wanted { target, knob: Knob::CpusetCpus, value: cpus(list) }).collect()
}

/// Executes a plan; the kernel accepts each of its steps.
fn carry_out(host: &mut Host, plan: &Plan) -> Vec<String> {
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    let steps = plan.steps.iter().map(|step| {
        assert!(matches!(host.execute(step).unwrap(), Executed::Done(_)));
        let name = host.attached_path(step.target).unwrap().rsplit('/').next().unwrap().to_owned();
        format!("{name} {}", step.to.to_string().trim_start_matches("CPUs "))
    });
    steps.collect()
}

fn set(host: &mut Host, values: &[(Target, &str)]) -> Vec<String> {
    let plan = host.plan(&wanted(values));
    carry_out(host, &plan)
}

fn lists(host: &mut Host, file: &str) -> [String; 4] {
    PATHS.map(|(_, path)| host.simulated_mut().unwrap().read_file(path, file).unwrap().trim().to_owned())
}

#[test]
fn on_v1_groups_grow_from_the_top_and_shrink_from_the_bottom() {
    let mut host = node(Versions::V1);
    let narrow = set(&mut host, &[(TIER, "2-3"), (POD, "2-3"), (APP, "3")]);
    assert_eq!(narrow, ["app 3", "podb 2-3", "besteffort 2-3"]);
    let elsewhere = set(&mut host, &[(TIER, "3-5"), (POD, "4-5"), (APP, "5")]);
    let grown = ["besteffort 2-5", "podb 2-5", "app 3,5"];
    assert_eq!(elsewhere[..3], grown.map(str::to_owned)[..], "{elsewhere:?}");
    assert_eq!(elsewhere[3..], ["app 5", "podb 4-5", "besteffort 3-5"].map(str::to_owned)[..], "{elsewhere:?}");
    let wide = set(&mut host, &[(APP, "0-7"), (POD, "0-7"), (TIER, "0-7")]);
    assert_eq!(wide, ["besteffort 0-7", "podb 0-7", "app 0-7"]);
}

#[test]
fn on_v1_a_group_below_that_keeps_its_cpus_refuses_the_one_above() {
    let mut host = node(Versions::V1);
    let plan = host.plan(&wanted(&[(TIER, "2-3"), (POD, "2-3")]));
    let refused: Vec<String> = plan.refused.iter().map(|(_, _, error)| error.to_string()).collect();
    assert_eq!(
        refused,
        [
            "/sys/fs/cgroup/cpuset/kubepods/besteffort/podb/cpuset.cpus is not set to CPUs 2-3: \
             `kubepods/besteffort/podb/app` below it has CPUs 0-1,4-7 as well, and is not narrowed with it",
            "/sys/fs/cgroup/cpuset/kubepods/besteffort/cpuset.cpus is not set to CPUs 2-3: \
             `kubepods/besteffort/podb` below it has CPUs 0-1,4-7 as well, and is not narrowed with it",
        ]
    );
    assert!(plan.steps.is_empty());
}

#[test]
fn on_v1_what_the_group_above_lacks_is_cut() {
    let mut host = node(Versions::V1);
    set(&mut host, &[(TIER, "2-3"), (POD, "2-3"), (APP, "2-3")]);
    let plan = host.plan(&wanted(&[(APP, "3-4,9")]));
    assert_eq!(plan.clamped[0].given, cpus("3"));
    assert_eq!(plan.clamped[0].why, "CPUs 4,9 cannot be had: there are 2-3 above it");
    assert_eq!(carry_out(&mut host, &plan), ["app 3"]);
}

#[test]
fn on_v2_a_group_remembers_what_it_may_have_later() {
    let mut host = node(Versions::V2);
    assert_eq!(set(&mut host, &[(APP, "3-4"), (TIER, "2-3")]), ["app 3-4", "besteffort 2-3"]);
    assert_eq!(lists(&mut host, "cpuset.cpus.effective"), ["0-7", "2-3", "2-3", "3"]);
    assert_eq!(set(&mut host, &[(TIER, "max")]), ["besteffort max"]);
    assert_eq!(lists(&mut host, "cpuset.cpus.effective"), ["0-7", "0-7", "0-7", "3-4"]);
    // The kernel requires a list for a group with processes, so the list of all CPUs means no restriction.
    assert_eq!((&*lists(&mut host, "cpuset.cpus")[1], host.read(TIER, Knob::CpusetCpus).unwrap()), ("0-7", Value::Max));
    // CPUs that the machine does not have and cannot get.
    let plan = host.plan(&wanted(&[(APP, "4,9")]));
    assert_eq!(plan.clamped[0].given, cpus("4"));
}

#[test]
fn on_v2_all_cpus_are_no_restriction() {
    let mut host = node(Versions::V2);
    assert!(set(&mut host, &[(TIER, "0-7")]).is_empty());
    assert_eq!(set(&mut host, &[(TIER, "2-3")]), ["besteffort 2-3"]);
    assert_eq!(set(&mut host, &[(TIER, "0-7")]), ["besteffort max"]);
    let plan = host.plan(&wanted(&[(TIER, "0-9")]));
    assert_eq!((plan.clamped[0].given, plan.unchanged.len()), (Value::Max, 1));
}

#[test]
fn a_set_of_which_nothing_is_left_is_refused_before_it_is_written() {
    for versions in [Versions::V1, Versions::V2] {
        let mut host = node(versions);
        set(&mut host, &[(TIER, "2-3"), (POD, "2-3"), (APP, "2-3")]);
        for (target, list, why) in [
            (APP, "4-5", "leave {} none: `kubepods/besteffort/podb` above it has CPUs 2-3; choose among these"),
            (ALL, "8-9", "leave {} none: the node has CPUs 0-7; choose among these"),
        ] {
            let before = lists(&mut host, "cpuset.cpus");
            let plan = host.plan(&wanted(&[(target, list)]));
            assert!(plan.steps.is_empty());
            let [(_, _, error @ HostError::NoCpus { path, .. })] = &plan.refused[..] else {
                panic!("{:?}", plan.refused)
            };
            assert_eq!(error.to_string(), format!("CPUs {list} {}", why.replace("{}", path)));
            assert_eq!(lists(&mut host, "cpuset.cpus"), before);
        }
    }
}

#[test]
fn a_plan_counts_with_what_it_changes_above() {
    for versions in [Versions::V1, Versions::V2] {
        let mut host = node(versions);
        set(&mut host, &[(TIER, "2-3"), (POD, "2-3"), (APP, "2-3")]);
        // The combination is possible; the container's set alone is not.
        let steps = set(&mut host, &[(APP, "6"), (POD, "6-7"), (TIER, "6-7")]);
        assert!(!steps.is_empty());
        let plan = host.plan(&wanted(&[(TIER, "2"), (APP, "6")]));
        assert!(plan.refused.iter().any(|(target, ..)| *target == APP), "{:?}", plan.refused);
    }
}

#[test]
fn on_v1_a_group_that_had_what_is_above_gets_it_again() {
    let mut host = node(Versions::V1);
    set(&mut host, &[(TIER, "2-3"), (POD, "2-3"), (APP, "2")]);
    let baselines: Baselines = [TIER, POD, APP].map(|target| (target, Knob::CpusetCpus)).into();
    // A CPU went offline meanwhile, and a baseline contains it.
    host.simulated_mut().unwrap().set_file("kubepods", "cpuset.cpus", "0-6").unwrap();
    let plan = host.plan_with_baselines(&wanted(&[(TIER, "max"), (POD, "max"), (APP, "1-7")]), &baselines);
    carry_out(&mut host, &plan);
    assert_eq!(lists(&mut host, "cpuset.cpus"), ["0-6", "0-6", "0-6", "1-6"]);
}

#[test]
fn without_the_controller_the_way_out_is_named() {
    let mut host =
        Host::simulated(&Spec { missing_files: ["cpuset.cpus".to_owned()].into(), ..Spec::default() }).unwrap();
    host.create("kubepods/besteffort").unwrap();
    host.attach(TIER, "kubepods/besteffort").unwrap();
    let plan = host.plan(&wanted(&[(TIER, "0")]));
    assert_eq!(
        plan.refused[0].2.to_string(),
        "cpuset.cpus is not supported: there is no such file in cgroup `kubepods/besteffort`; needs the controller cpuset, on v2 since \
         Linux 5.0 and turned on in cgroup.subtree_control of every cgroup above; a CFS quota bounds the sum of CPU time"
    );
}
