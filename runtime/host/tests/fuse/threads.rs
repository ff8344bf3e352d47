//! Threads that clone and end while they are moved: scripted at the worst moments, and real ones.

use std::path::PathBuf;

use qosm_host::CgroupVersion;
use qosm_host::resctrl::{ContainerCgroup, Moved};
use qosm_resctrl_fuse::tasks::{Credentials, Moment, Scripted, Step, Task, Tasks};
use qosm_resctrl_fuse::{Profile, Tid};

use super::*;

/// A script, and a container's cgroup with the threads from 10 on.
struct Contained {
    script: Scripted,
    file: PathBuf,
}

impl Contained {
    fn show(&mut self) {
        let ids = self.script.list().into_iter().map(|task| task.tid.0).filter(|&id| id >= 10);
        let text: String = ids.map(|id| format!("{id}\n")).collect();
        std::fs::write(&self.file, text).unwrap();
    }
}

impl Tasks for Contained {
    fn list(&mut self) -> Vec<Task> {
        self.script.list()
    }

    fn credentials(&mut self, tid: Tid) -> Option<Credentials> {
        self.script.credentials(tid)
    }

    fn at(&mut self, moment: Moment<'_>) {
        self.script.at(moment);
        self.show();
    }
}

/// A container with the threads 10 to 12; 1 and 2 are in no container.
struct Container {
    machine: Machine,
    script: Scripted,
    cgroup: tempfile::TempDir,
}

impl Container {
    fn new() -> Option<Self> {
        let cgroup = tempfile::tempdir().unwrap();
        let script = Scripted::new([1, 2, 10, 11, 12]);
        let mut tasks = Contained { script: script.clone(), file: cgroup.path().join("cgroup.threads") };
        tasks.show();
        let machine = Machine::new(Profile::intel(), tasks)?;
        machine.groups.create(&control("be")).unwrap();
        Some(Self { machine, script, cgroup })
    }

    fn with(&self, act: impl FnOnce(&Groups, &[ContainerCgroup<'_>]) -> Result<Moved, ResctrlError>) -> Moved {
        let directory = Dir::open_ambient_dir(self.cgroup.path(), ambient_authority()).unwrap();
        let cgroup = ContainerCgroup { directory: &directory, version: CgroupVersion::V2, path: "c" };
        act(&self.machine.groups, &[cgroup]).unwrap()
    }

    fn assign(&self, group: &Group) -> Moved {
        self.with(|groups, containers| groups.assign(group, containers))
    }

    fn release(&self, group: &Group) -> Moved {
        self.with(|groups, containers| groups.release(group, containers))
    }

    fn tasks(&self, group: &str) -> String {
        self.machine.text(&format!("{group}tasks")).replace('\n', " ").trim_end().to_owned()
    }
}

#[test]
fn a_container_goes_into_its_group_and_out_again() {
    let Some(container) = Container::new() else { return };
    let moved = container.assign(&control("be"));
    assert_eq!((moved.moved, moved.rounds, moved.is_settled), (3, 2, true), "{moved:?}");
    assert_eq!((container.tasks("qosm-be/").as_str(), container.tasks("").as_str()), ("10 11 12", "1 2"));
    // Threads that are already in the group are not written.
    assert_eq!(container.assign(&control("be")).moved, 0);
    // A thread that another program put there is not the container's.
    container.machine.others(|tree| tree.write("qosm-be/tasks", b"2\n", Writer::ROOT)).unwrap();
    assert_eq!(container.release(&control("be")).moved, 3);
    assert_eq!((container.tasks("qosm-be/").as_str(), container.tasks("").as_str()), ("2", "1 10 11 12"));
}

#[test]
fn clones_made_between_a_read_and_a_write_follow() {
    let Some(container) = Container::new() else { return };
    let clone = |creator, tid| Step::Clone { creator: Tid(creator), tid: Tid(tid) };
    // 12 clones when 10 is written, and its clone clones when 11 is written; the next round finds both.
    container.script.before_write("qosm-be", [clone(12, 20)]);
    container.script.before_write("qosm-be", [clone(20, 21)]);
    let moved = container.assign(&control("be"));
    assert!(moved.is_settled && moved.rounds >= 3, "{moved:?}");
    assert_eq!(container.tasks("qosm-be/"), "10 11 12 20 21");
    // Clones of threads in the group start in the group.
    container.script.step(clone(21, 22));
    assert_eq!(container.tasks("qosm-be/"), "10 11 12 20 21 22");
}

#[test]
fn a_thread_that_ends_between_a_read_and_a_write_is_no_error() {
    let Some(container) = Container::new() else { return };
    container.script.before_write("qosm-be", [Step::Exit(Tid(10)), Step::Exit(Tid(12))]);
    let moved = container.assign(&control("be"));
    assert_eq!((moved.moved, moved.vanished, moved.refused, moved.is_settled), (1, 2, 0, true), "{moved:?}");
    assert_eq!(container.tasks("qosm-be/"), "11");
}

#[test]
fn the_way_into_a_monitor_group_leads_through_its_control_group() {
    let Some(container) = Container::new() else { return };
    let (be, x, ls) = (control("be"), monitor(Some("be"), "x"), control("ls"));
    for group in [&x, &ls] {
        container.machine.groups.create(group).unwrap();
    }
    // One thread is already in the control group, one in another.
    container.machine.others(|tree| {
        tree.write("qosm-be/tasks", b"10\n", Writer::ROOT).unwrap();
        tree.write("qosm-ls/tasks", b"11\n", Writer::ROOT).unwrap();
    });
    let moved = container.assign(&x);
    assert_eq!((moved.moved, moved.refused, moved.is_settled), (3, 0, true), "{moved:?}");
    assert_eq!(container.tasks("qosm-be/mon_groups/qosm-x/"), "10 11 12");
    // The threads are also in the control group, so that none has to be moved there.
    assert_eq!(container.assign(&be).moved, 0);
    assert_eq!(container.release(&x).moved, 3);
    assert_eq!(container.tasks("qosm-be/mon_groups/qosm-x/"), "");
    assert_eq!(container.tasks("qosm-be/"), "10 11 12");
    assert_eq!(container.release(&be).moved, 3);
    assert_eq!(container.tasks(""), "1 2 10 11 12");
}

#[test]
fn a_removed_group_is_reported() {
    let Some(container) = Container::new() else { return };
    container.machine.others(|tree| tree.rmdir("qosm-be")).unwrap();
    let directory = Dir::open_ambient_dir(container.cgroup.path(), ambient_authority()).unwrap();
    let cgroup = ContainerCgroup { directory: &directory, version: CgroupVersion::V2, path: "c" };
    let error = container.machine.groups.assign(&control("be"), &[cgroup]).unwrap_err();
    assert!(error.is_gone(), "{error}");
}

#[test]
fn removing_a_group_leaves_its_threads_in_the_root() {
    let Some(container) = Container::new() else { return };
    container.assign(&control("be"));
    // A thread that starts while the others are moved leaves the group with the directory at the latest.
    container.script.before_write("", [Step::Clone { creator: Tid(12), tid: Tid(20) }]);
    container.machine.groups.remove(&control("be")).unwrap();
    assert_eq!(container.tasks(""), "1 2 10 11 12 20");
}

#[test]
fn real_processes_that_fork_all_the_time_are_caught() {
    let mut cgroup = Cgroup::new();
    let Some(machine) = Machine::any(std::slice::from_ref(&cgroup)) else { return };
    machine.groups.create(&control("be")).unwrap();
    // Each of the three starts three more again and again, so that one round always misses some.
    cgroup.run("for i in 1 2 3; do (while :; do sleep 0.02 & sleep 0.03 & sleep 0.01; done) & done; wait");
    cgroup.wait_for_threads(4);
    let (directory, version) = cgroup.directory();
    let threads = || cgroup.threads();
    let opened = Dir::open_ambient_dir(&directory, ambient_authority()).unwrap();
    let containers = [ContainerCgroup { directory: &opened, version, path: &directory }];
    let mut reads = 0;
    loop {
        let moved = machine.groups.assign(&control("be"), &containers).unwrap();
        assert_eq!((moved.refused, moved.out_of_sight), (0, 0), "{moved:?}");
        reads += 1;
        if moved.is_settled {
            break;
        }
        assert!(reads < 50, "{moved:?}");
    }
    // The shells are in the group, and processes that they start from now on start there.
    let inside = machine.text("qosm-be/tasks");
    let mut shells = threads();
    shells.retain(|thread| inside.lines().any(|line| line == thread));
    assert!(shells.len() >= 4, "{inside:?}");

    // Threads that still run are in the root afterwards.
    machine.groups.remove(&control("be")).unwrap();
    let root = machine.text("tasks");
    let left = threads();
    shells.retain(|thread| left.contains(thread));
    assert!(shells.len() >= 4 && shells.iter().all(|thread| root.lines().any(|line| line == thread)), "{shells:?}");
}
