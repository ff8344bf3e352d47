use super::super::availability::Vendor;
use super::super::fixture::{self, Fixture};
use super::super::group::GroupName;
use super::*;

/// Threads that change whenever they are listed or moved.
struct Scripted<F> {
    left: BTreeSet<u64>,
    out_of_sight: usize,
    put: F,
    /// Written threads, in order.
    written: Vec<u64>,
}

impl<F: FnMut(u64, &mut BTreeSet<u64>) -> io::Result<()>> Threads for Scripted<F> {
    fn pending(&mut self) -> Result<(BTreeSet<u64>, usize), ResctrlError> {
        Ok((self.left.clone(), self.out_of_sight))
    }

    fn put(&mut self, thread: u64) -> io::Result<()> {
        self.written.push(thread);
        (self.put)(thread, &mut self.left)
    }

    fn refusal(&self, thread: u64, source: io::Error) -> ResctrlError {
        if is(&source, Errno::NOENT) {
            return ResctrlError::Gone { path: "/r/qosm-be".to_owned() };
        }
        let status = super::super::error::Status::default();
        ResctrlError::Refused { path: "tasks".to_owned(), value: thread.to_string(), errno: "EPERM", status, source }
    }
}

fn scripted<F: FnMut(u64, &mut BTreeSet<u64>) -> io::Result<()>>(left: &[u64], put: F) -> Scripted<F> {
    Scripted { left: left.iter().copied().collect(), out_of_sight: 0, put, written: Vec::new() }
}

#[test]
fn what_is_cloned_while_others_are_moved_follows() {
    // 1 clones 10 just before it is moved, 10 clones 100.
    let mut threads = scripted(&[1, 2], |thread, left| {
        left.remove(&thread);
        match thread {
            1 => left.insert(10),
            10 => left.insert(100),
            _ => false,
        };
        Ok(())
    });
    let moved = move_until_settled(&mut threads).unwrap();
    assert_eq!(threads.written, [1, 2, 10, 100]);
    assert_eq!((moved.moved, moved.rounds, moved.is_settled), (4, 4, true));
}

#[test]
fn a_container_that_clones_faster_than_threads_are_moved_is_reported() {
    let mut threads = scripted(&[1], |thread, left| {
        left.remove(&thread);
        left.insert(thread + 1);
        Ok(())
    });
    let moved = move_until_settled(&mut threads).unwrap();
    assert_eq!((moved.moved, moved.rounds, moved.is_settled), (16, MAX_ROUNDS, false));
}

#[test]
fn a_thread_that_ended_is_no_error() {
    let mut threads = scripted(&[1, 2, 3], |thread, left| {
        left.remove(&thread);
        if thread == 2 { Err(Errno::SRCH.into()) } else { Ok(()) }
    });
    let moved = move_until_settled(&mut threads).unwrap();
    assert_eq!((moved.moved, moved.vanished, moved.refused, moved.is_settled), (2, 1, 0, true));
}

#[test]
fn a_refused_thread_keeps_none_of_the_others_and_is_tried_once() {
    let mut threads = scripted(&[1, 2, 3], |thread, left| {
        if thread == 2 {
            return Err(Errno::PERM.into());
        }
        left.remove(&thread);
        Ok(())
    });
    let moved = move_until_settled(&mut threads).unwrap();
    assert_eq!(threads.written, [1, 2, 3]);
    assert_eq!((moved.moved, moved.refused, moved.rounds, moved.is_settled), (2, 1, 2, true));
    assert_eq!(moved.first_refusal.unwrap().to_string(), "the kernel refused `2` in tasks (EPERM)");
}

#[test]
fn a_group_that_goes_meanwhile_ends_it() {
    let mut threads = scripted(&[1, 2], |_, _| Err(Errno::NOENT.into()));
    assert!(move_until_settled(&mut threads).unwrap_err().is_gone());
    assert_eq!(threads.written, [1]);
}

fn name(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn container<'a>(directory: &'a Dir, version: CgroupVersion) -> ContainerCgroup<'a> {
    ContainerCgroup { directory, version, path: "kubepods/c" }
}

#[test]
fn writes_only_threads_that_are_not_in_the_group_already() {
    for (version, file) in [(CgroupVersion::V1, "tasks"), (CgroupVersion::V2, "cgroup.threads")] {
        let (resctrl, cgroup) = (fixture::intel(), Fixture::new(&[]));
        resctrl.add(&[("qosm-be/tasks", "7\n8\n9\n")]);
        cgroup.add(&[(&format!("c/{file}"), "7\n8\n"), (&format!("c/below/it/{file}"), "9\n")]);
        // A directory without the file, as between its creation and its population.
        cgroup.root.create_dir("c/empty").unwrap();
        let directory = cgroup.dir("c");
        let group = Group::Control(name("be"));
        let groups = resctrl.groups(Vendor::Intel);
        let moved = groups.assign(&group, &[container(&directory, version)]).unwrap();
        assert_eq!((moved.moved, moved.rounds, moved.is_settled), (0, 1, true), "{version:?}");
        assert_eq!(resctrl.text("qosm-be/tasks"), "7\n8\n9\n");
    }
}

#[test]
fn the_0_of_another_pid_namespace_moves_no_thread() {
    let (resctrl, cgroup) = (fixture::intel(), Fixture::new(&[("c/cgroup.threads", "0\n0\n7\n")]));
    resctrl.add(&[("qosm-be/tasks", "7\n")]);
    let directory = cgroup.dir("c");
    let group = Group::Control(name("be"));
    let moved = resctrl.groups(Vendor::Intel).assign(&group, &[container(&directory, CgroupVersion::V2)]).unwrap();
    assert_eq!((moved.moved, moved.out_of_sight, moved.is_settled), (0, 2, true));
    assert_eq!(resctrl.text("qosm-be/tasks"), "7\n");
}

#[test]
fn threads_in_groups_of_other_programs_stay_there() {
    let (resctrl, cgroup) = (fixture::intel(), Fixture::new(&[("c/cgroup.threads", "7\n8\n9\n")]));
    resctrl.add(&[
        ("qosm-be/tasks", "7\n"),
        ("qosm-ls/tasks", ""),
        ("lab/tasks", "8\n9\n"),
        ("mon_groups/qosm-c/tasks", "7\n"),
    ]);
    let directory = cgroup.dir("c");
    let groups = resctrl.groups(Vendor::Intel);
    for group in [Group::Control(name("be")), Group::Monitor { parent: None, name: name("c") }] {
        let moved = groups.assign(&group, &[container(&directory, CgroupVersion::V2)]).unwrap();
        assert_eq!((moved.moved, moved.foreign, moved.is_settled), (0, 2, true), "{group}");
    }
    assert_eq!((resctrl.text("qosm-be/tasks"), resctrl.text("tasks")), ("7\n".to_owned(), "1\n2\n".to_owned()));
}

#[test]
fn only_members_leave_and_containers_that_are_gone_have_none() {
    let (resctrl, cgroup) = (fixture::intel(), Fixture::new(&[("c/cgroup.threads", "5\n6\n"), ("gone/x", "")]));
    resctrl.add(&[("qosm-be/tasks", "60\n")]);
    let (present, gone) = (cgroup.dir("c"), cgroup.dir("gone"));
    cgroup.root.remove_dir_all("gone").unwrap();
    let containers = [container(&gone, CgroupVersion::V2), container(&present, CgroupVersion::V2)];
    let groups = resctrl.groups(Vendor::Intel);
    let moved = groups.release(&Group::Control(name("be")), &containers).unwrap();
    assert_eq!((moved.moved, moved.rounds, moved.is_settled), (0, 1, true));
    assert_eq!(resctrl.text("tasks"), "1\n2\n");
    let error = groups.release(&Group::Control(name("ls")), &containers).unwrap_err();
    assert_eq!(error.to_string(), "resctrl group /r/qosm-ls is gone");
}
