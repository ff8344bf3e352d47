use proptest::prelude::*;
use qosm_model::knob::{Target, Value};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::unit::Micros;

use super::*;
use crate::simulated::{CoreSchedulingKernel, Crash, Spec, Versions};
use crate::{HostError, LayoutOptions, Support, Wanted};

const FIRST: ContainerId = ContainerId(1);
const SECOND: ContainerId = ContainerId(2);
const THIRD: ContainerId = ContainerId(3);
const A: i64 = 7;
const B: i64 = 9_007_199_254_740_991;

fn path(container: ContainerId) -> String {
    format!("kubepods/burstable/podu{0}/c{0}", container.0)
}

fn spec() -> Spec {
    Spec { core_scheduling: CoreSchedulingKernel::Works, ..Spec::default() }
}

/// Three containers with two processes each: 10 and 11, 20 and 21, 30 and 31.
fn node(spec: &Spec) -> Host {
    let mut host = Host::simulated(spec).unwrap();
    for container in [FIRST, SECOND, THIRD] {
        host.create(&path(container)).unwrap();
        let pid = container.0 * 10;
        let processes = format!("{pid}\n{}\n", pid + 1);
        host.simulated_mut().unwrap().set_file(&path(container), "cgroup.procs", &processes).unwrap();
    }
    attach(&mut host);
    host
}

fn attach(host: &mut Host) {
    for container in [FIRST, SECOND, THIRD] {
        host.attach(Target::Pod(PodId(container.0)), path(container).rsplit_once('/').unwrap().0).unwrap();
        host.attach(Target::Container(container), &path(container)).unwrap();
    }
}

/// Starts another agent on the node of the first.
fn restart(host: Host) -> Host {
    let simulation = host.into_simulation().unwrap();
    let mut host = Host::on_simulation(simulation, &LayoutOptions::default()).unwrap();
    attach(&mut host);
    host
}

/// Writes the numbers of these containers' groups, and 0 to the others.
fn write(host: &mut Host, groups: &[(i64, &[ContainerId])]) -> Result<(), HostError> {
    let number = |container| groups.iter().find(|(_, members)| members.contains(&container)).map_or(0, |group| group.0);
    let want = |container| Wanted {
        target: Target::Container(container),
        knob: Knob::CoreGroup,
        value: Value::Number(number(container)),
    };
    let plan = host.plan(&[FIRST, SECOND, THIRD].map(want));
    if let Some((_, _, refused)) = plan.refused.into_iter().next() {
        return Err(refused);
    }
    plan.steps.iter().try_for_each(|step| host.execute(step).map(drop))
}

/// Writes the numbers, and moves the processes.
fn put(host: &mut Host, groups: &[(i64, &[ContainerId])]) -> CoreGroupReport {
    write(host, groups).unwrap();
    host.reconcile_core_groups()
}

fn cookies(host: &mut Host, pids: &[u32]) -> Vec<u64> {
    let simulated = host.simulated_mut().unwrap();
    pids.iter().map(|&pid| simulated.core_cookie(pid)).collect()
}

#[track_caller]
fn all_well(report: &CoreGroupReport) {
    assert!(report.problems.is_empty(), "{report:?}");
}

#[track_caller]
fn problem(report: &CoreGroupReport) -> &str {
    let [problem] = report.problems.as_slice() else { panic!("{report:?}") };
    &problem.why
}

/// A user may write attributes in a slice that systemd has delegated to the user.
#[test]
fn a_note_that_is_not_on_a_containers_cgroup_is_not_heeded_and_none_is_written_there() {
    let mut host = node(&spec());
    let slice = "user.slice/user-1000.slice";
    host.create(slice).unwrap();
    host.simulated_mut().unwrap().set_file(slice, "cgroup.procs", "40\n").unwrap();
    let tree = host.tree_of(Knob::CoreGroup).unwrap();
    host.backend.set_note(Area::Cgroup(tree), slice, Note::Group, Some(&A.to_string())).unwrap();
    let report = put(&mut host, &[(A, &[FIRST])]);
    all_well(&report);
    assert_eq!((report.groups, report.processes), (1, 2));
    assert_eq!(cookies(&mut host, &[40]), [0]);

    let refused = refusal(&mut host, slice);
    assert!(refused.contains("user-1000.slice is no container's cgroup below /kubepods"), "{refused}");
}

/// Why a container in this cgroup is in no group.
fn refusal(host: &mut Host, cgroup: &str) -> String {
    let container = Target::Container(ContainerId(4));
    host.attach(container, cgroup).unwrap();
    let plan = host.plan(&[Wanted { target: container, knob: Knob::CoreGroup, value: Value::Number(B) }]);
    let refused = plan.steps.iter().find_map(|step| host.execute(step).err());
    refused.or(plan.refused.into_iter().next().map(|(_, _, error)| error)).unwrap().to_string()
}

#[test]
fn without_kubepods_notes_count_below_a_cgroup_root_alone() {
    for (cgroup_root, groups) in [("", 0), ("machine", 1)] {
        let mut host = Host::simulated(&Spec { cgroup_root: cgroup_root.to_owned(), ..spec() }).unwrap();
        for (cgroup, pid) in [("user.slice/user-1000.slice", 40), ("machine/job", 50)] {
            host.create(cgroup).unwrap();
            host.simulated_mut().unwrap().set_file(cgroup, "cgroup.procs", &format!("{pid}\n")).unwrap();
            let tree = host.tree_of(Knob::CoreGroup).unwrap();
            host.backend.set_note(Area::Cgroup(tree), cgroup, Note::Group, Some(&A.to_string())).unwrap();
        }
        assert_eq!(host.reconcile_core_groups().groups, groups, "{cgroup_root:?}");
        assert_eq!(cookies(&mut host, &[40]), [0]);
        if cgroup_root.is_empty() {
            let refused = refusal(&mut host, "machine/job");
            assert!(refused.contains("no kubepods") && refused.contains("--cgroup-root"), "{refused}");
        }
    }
}

fn v1() -> Spec {
    Spec { versions: Versions::V1, ..spec() }
}

#[test]
fn each_group_has_a_cookie_of_its_own_and_the_host_keeps_none() {
    for spec in [spec(), v1()] {
        let mut host = node(&spec);
        let report = put(&mut host, &[(A, &[FIRST, SECOND]), (B, &[THIRD])]);
        assert_eq!(report, CoreGroupReport { groups: 2, processes: 6, ..CoreGroupReport::default() });
        let found = cookies(&mut host, &[10, 11, 20, 21, 30, 31]);
        let (a, b) = (found[0], found[4]);
        assert_eq!(found, [a, a, a, a, b, b]);
        assert!(a != 0 && b != 0 && a != b);
        assert!(!host.simulated_mut().unwrap().holds_core_cookie());

        host.simulated_mut().unwrap().take_core_pushes();
        assert_eq!(host.reconcile_core_groups(), report);
        assert_eq!(host.simulated_mut().unwrap().take_core_pushes(), 0, "the same again changes nothing");
    }
}

#[test]
fn the_knob_is_what_was_written_and_says_where_it_stands() {
    let mut host = node(&spec());
    let (first, pod) = (Target::Container(FIRST), Target::Pod(PodId(1)));
    assert_eq!(host.read(first, Knob::CoreGroup).unwrap(), Value::Number(0));
    assert_eq!(host.support(first, Knob::CoreGroup), Support::Native);
    write(&mut host, &[(A, &[FIRST])]).unwrap();
    assert_eq!(host.read(first, Knob::CoreGroup).unwrap(), Value::Number(A));
    let file = host.file(first, Knob::CoreGroup).unwrap();
    assert_eq!(file.path, "/sys/fs/cgroup/kubepods/burstable/podu1/c1 (extended attribute user.qosm.core_group)");
    let Support::Unavailable { why } = host.support(pod, Knob::CoreGroup) else { panic!() };
    assert!(why.contains("processes are the containers'"), "{why}");
    let error = write(&mut host, &[(B + 1, &[FIRST])]).unwrap_err().to_string();
    assert!(error.contains("9007199254740991"), "{error}");
}

#[test]
fn children_inherit_and_what_joins_later_is_found_in_time() {
    let mut host = node(&spec());
    write(&mut host, &[(A, &[FIRST])]).unwrap();
    host.settle_core_groups(Micros(1));
    let simulated = host.simulated_mut().unwrap();
    simulated.fork(&path(FIRST), 10, 12).unwrap();
    simulated.join(&path(FIRST), 13).unwrap();
    let found = cookies(&mut host, &[10, 12, 13]);
    assert_eq!(found, [found[0], found[0], 0]);
    host.settle_core_groups(Micros(10_000_000));
    assert_eq!(cookies(&mut host, &[13]), [0], "not looked at again so soon");
    host.settle_core_groups(Micros(10_000_001));
    assert_eq!(cookies(&mut host, &[10, 12, 13]), [found[0]; 3]);
}

#[test]
fn a_change_is_settled_at_once_and_nothing_is_looked_at_while_nobody_is_in_a_group() {
    let mut host = node(&spec());
    host.settle_core_groups(Micros(1));
    assert_eq!(host.core_groups(), Some(&CoreGroupReport::default()));
    write(&mut host, &[(A, &[FIRST])]).unwrap();
    assert_eq!(host.describe_core_group(Target::Container(FIRST)), "its processes are not in it yet");
    host.settle_core_groups(Micros(2));
    assert_ne!(cookies(&mut host, &[10]), [0]);
    assert!(host.describe_core_group(Target::Container(FIRST)).starts_with("its threads share no core"));

    write(&mut host, &[]).unwrap();
    host.settle_core_groups(Micros(3));
    assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
    // The note of the cookie is kept until a later scan finds no process with it.
    assert_eq!(host.core_groups().unwrap().leaving, 1);
    host.settle_core_groups(Micros(10_000_003));
    assert_eq!(host.core_groups(), Some(&CoreGroupReport::default()));
}

#[test]
fn at_the_end_nobody_has_a_cookie() {
    let mut host = node(&spec());
    put(&mut host, &[(A, &[FIRST, SECOND])]);
    write(&mut host, &[(A, &[SECOND])]).unwrap();
    host.finish_core_groups(std::time::Duration::ZERO).unwrap();
    assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
    assert_ne!(cookies(&mut host, &[20]), [0], "a paused pod stays where it is");

    write(&mut host, &[]).unwrap();
    host.simulated_mut().unwrap().set_traceable(20, false);
    let error = host.finish_core_groups(std::time::Duration::ZERO).unwrap_err();
    assert!(error.contains("process 20 of cgroup"), "{error}");
}

#[test]
fn a_restarted_agent_goes_on_with_its_groups_and_gives_back_what_is_wanted_no_longer() {
    let mut host = node(&spec());
    let all: &[(i64, &[ContainerId])] = &[(A, &[FIRST, SECOND]), (B, &[THIRD])];
    put(&mut host, all);
    let before = cookies(&mut host, &[10, 11, 20, 21, 30, 31]);

    let mut host = restart(host);
    host.simulated_mut().unwrap().take_core_pushes();
    all_well(&put(&mut host, all));
    assert_eq!(cookies(&mut host, &[10, 11, 20, 21, 30, 31]), before);
    assert_eq!(host.simulated_mut().unwrap().take_core_pushes(), 0);

    let mut host = restart(host);
    all_well(&put(&mut host, &[(A, &[FIRST])]));
    assert_eq!(cookies(&mut host, &[10, 11, 20, 21, 30, 31]), [before[0], before[0], 0, 0, 0, 0]);
    all_well(&put(&mut host, &[]));
    assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
}

#[test]
fn containers_that_are_not_attached_are_brought_to_their_groups_too() {
    let mut host = node(&spec());
    put(&mut host, &[(A, &[FIRST, SECOND])]);
    let before = cookies(&mut host, &[10, 20]);
    host.simulated_mut().unwrap().join(&path(FIRST), 12).unwrap();
    let mut host = Host::on_simulation(host.into_simulation().unwrap(), &LayoutOptions::default()).unwrap();
    all_well(&host.reconcile_core_groups());
    assert_eq!(cookies(&mut host, &[10, 12, 20]), [before[0], before[0], before[1]]);
}

#[test]
fn a_cookie_of_another_program_is_neither_adopted_nor_taken_away() {
    let mut host = node(&spec());
    host.simulated_mut().unwrap().make_core_cookie(10);
    let foreign = cookies(&mut host, &[10])[0];
    all_well(&put(&mut host, &[(A, &[FIRST, SECOND])]));
    let found = cookies(&mut host, &[10, 11, 20, 21]);
    assert_eq!(found, [foreign, found[1], found[1], found[1]], "it shares its core with even fewer");
    assert!(found[1] != foreign && found[1] != 0);

    let mut host = restart(host);
    put(&mut host, &[]);
    assert_eq!(cookies(&mut host, &[10, 11, 20, 21]), [foreign, 0, 0, 0]);
}

#[test]
fn groups_that_change_keep_apart() {
    let mut host = node(&spec());
    put(&mut host, &[(A, &[FIRST, SECOND, THIRD])]);
    all_well(&put(&mut host, &[(A, &[FIRST, SECOND]), (B, &[THIRD])]));
    let found = cookies(&mut host, &[10, 20, 30]);
    assert!(found[0] == found[1] && found[1] != found[2] && found[2] != 0, "{found:?}");
    all_well(&put(&mut host, &[(B, &[FIRST, SECOND, THIRD])]));
    let found = cookies(&mut host, &[10, 11, 20, 21, 30, 31]);
    assert!(found.iter().all(|&cookie| cookie == found[0] && cookie != 0), "{found:?}");
}

#[test]
fn a_kernel_without_it_has_no_such_knob_and_says_why() {
    for (kernel, switch, support, why) in [
        (CoreSchedulingKernel::Missing, None, CoreScheduling::Missing, "it takes Linux 5.14 with CONFIG_SCHED_CORE"),
        (CoreSchedulingKernel::NoSmt, None, CoreScheduling::NoSmt, "no core of this machine has two threads online"),
        (
            CoreSchedulingKernel::Works,
            Some("0\n"),
            CoreScheduling::SwitchedOff,
            "write 1 to /proc/sys/kernel/sched_core",
        ),
    ] {
        let mut host = node(&Spec { core_scheduling: kernel, ..spec() });
        if let Some(text) = switch {
            host.simulated_mut().unwrap().set_proc_file(SWITCH, text);
        }
        assert_eq!(host.core_scheduling(), support);
        let error = write(&mut host, &[(A, &[FIRST])]).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(host.reconcile_core_groups(), CoreGroupReport::default());
        assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
    }
    let mut host = node(&spec());
    host.simulated_mut().unwrap().set_proc_file(SWITCH, "1\n");
    assert!(host.core_scheduling().works());
}

#[test]
fn where_cores_lose_their_second_threads_it_is_told_and_groups_can_still_be_left() {
    let mut host = node(&spec());
    put(&mut host, &[(A, &[FIRST])]);
    host.simulated_mut().unwrap().set_core_scheduling(CoreSchedulingKernel::NoSmt);
    let report = host.reconcile_core_groups();
    assert!(problem(&report).contains("no core of this machine has two threads"), "{report:?}");
    write(&mut host, &[]).unwrap();
    host.simulated_mut().unwrap().set_core_scheduling(CoreSchedulingKernel::Works);
    host.finish_core_groups(std::time::Duration::ZERO).unwrap();
    assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
}

#[test]
fn a_process_out_of_reach_is_named_with_the_way_out_and_the_others_are_grouped() {
    let mut host = node(&spec());
    host.simulated_mut().unwrap().set_traceable(11, false);
    let report = put(&mut host, &[(A, &[FIRST, SECOND])]);
    assert_eq!(report.processes, 3);
    let why = problem(&report);
    assert!(
        why.contains("process 11 of cgroup `kubepods/burstable/podu1/c1`") && why.contains("CAP_SYS_PTRACE"),
        "{why}"
    );
    assert_ne!(cookies(&mut host, &[10]), [0]);
    host.settle_core_groups(Micros(1));
    let described = [FIRST, SECOND].map(|container| host.describe_core_group(Target::Container(container)));
    assert!(described[0].contains("process 11") && described[1].starts_with("its threads share"), "{described:?}");
    host.simulated_mut().unwrap().set_traceable(11, true);
    all_well(&host.reconcile_core_groups());
}

#[test]
fn a_process_that_ends_meanwhile_is_no_error() {
    let mut host = node(&spec());
    host.simulated_mut().unwrap().end_after_scan(11);
    let report = put(&mut host, &[(A, &[FIRST])]);
    all_well(&report);
    assert_eq!(report.processes, 1);
}

#[test]
fn processes_of_another_pid_namespace_and_the_agents_own_are_left_with_a_reason() {
    for (processes, why) in [("0\n10\n", "`hostPID`"), ("1\n10\n", "qosm itself runs in cgroup")] {
        let mut host = node(&spec());
        host.simulated_mut().unwrap().set_file(&path(FIRST), "cgroup.procs", processes).unwrap();
        let report = put(&mut host, &[(A, &[FIRST])]);
        assert!(problem(&report).contains(why), "{report:?}");
        assert_eq!(cookies(&mut host, &[1]), [0]);
    }
}

#[test]
fn a_host_that_was_started_in_a_group_takes_nothing_back_and_says_so() {
    let mut host = node(&spec());
    put(&mut host, &[(A, &[FIRST])]);
    host.simulated_mut().unwrap().set_own_core_cookie(99);
    let report = put(&mut host, &[]);
    assert!(problem(&report).contains("started in a core scheduling group"), "{report:?}");
    host.simulated_mut().unwrap().set_own_core_cookie(0);
    all_well(&host.reconcile_core_groups());
    assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
}

#[test]
fn without_a_note_no_process_is_moved() {
    let mut host = node(&spec());
    write(&mut host, &[(A, &[FIRST])]).unwrap();
    host.simulated_mut().unwrap().refuse_notes(true);
    let report = host.reconcile_core_groups();
    assert!(problem(&report).contains("user.qosm.core_cookies"), "{report:?}");
    assert_eq!(cookies(&mut host, &[10, 11]), [0, 0]);
    assert!(matches!(write(&mut host, &[]), Err(HostError::ReadOnly { .. })));
}

#[test]
fn a_cgroup_made_anew_is_in_no_group() {
    let mut host = node(&spec());
    put(&mut host, &[(A, &[FIRST])]);
    host.simulated_mut().unwrap().remove_cgroup(&path(FIRST)).unwrap();
    assert_eq!(host.reconcile_core_groups(), CoreGroupReport::default());
    assert!(matches!(host.read(Target::Container(FIRST), Knob::CoreGroup), Err(HostError::Gone { .. })));
}

proptest! {
    /// After a kill at any step, the next agent either finishes the groups or clears all cookies.
    #[test]
    fn a_kill_at_any_step_loses_no_cookie(steps in 0_u64..18, then in 0_u64..18) {
        let after: &[(i64, &[ContainerId])] = &[(A, &[FIRST]), (B, &[SECOND, THIRD])];
        let mut host = node(&spec());
        host.simulated_mut().unwrap().crash_at(Crash::after(steps));
        put(&mut host, &[(A, &[FIRST, SECOND]), (B, &[THIRD])]);
        let mut host = restart(host);
        host.simulated_mut().unwrap().crash_at(Crash::after(then));
        put(&mut host, after);

        let mut finished = restart(host);
        put(&mut finished, after);
        let found = cookies(&mut finished, &[10, 11, 20, 21, 30, 31]);
        let (a, b) = (found[0], found[2]);
        prop_assert!(a != 0 && b != 0 && a != b);
        prop_assert_eq!(&found, &[a, a, b, b, b, b]);

        let mut last = restart(finished);
        write(&mut last, &[]).unwrap();
        last.finish_core_groups(std::time::Duration::ZERO).unwrap();
        prop_assert_eq!(cookies(&mut last, &[10, 11, 20, 21, 30, 31]), [0; 6]);
    }
}
