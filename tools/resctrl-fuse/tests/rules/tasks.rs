//! `tasks`: moves, refusals, and the groups of clones.

use qosm_resctrl_fuse::tasks::{Credentials, Scripted, Step, Tid};
use qosm_resctrl_fuse::{Errno, KernelVersion, Profile, Tree, Writer};

use super::{read, refused, write};

/// Root's tasks 10, 11, 12, user 1000's 20, and groups `g`, `h`, `g/mon_groups/m`.
fn scripted(profile: Profile) -> (Tree, Scripted) {
    let script = Scripted::new([10, 11, 12]);
    script.add(Tid(20), Credentials { uid: 1000, saved_uid: 1000 });
    let mut tree = Tree::new(profile, script.clone()).unwrap();
    for path in ["g", "h", "g/mon_groups/m"] {
        tree.mkdir(path, Writer::ROOT).unwrap();
    }
    (tree, script)
}

#[test]
fn a_task_is_in_one_group_and_a_control_group_lists_those_of_its_monitor_groups() {
    let (mut tree, _) = scripted(Profile::intel());
    assert_eq!(read(&mut tree, "tasks"), "10\n11\n12\n20\n");
    for (path, text, [root, g, h, m]) in [
        ("g/tasks", "10\n", ["11\n12\n20\n", "10\n", "", ""]),
        // Neither a newline nor a change of group is required.
        ("g/tasks", "10", ["11\n12\n20\n", "10\n", "", ""]),
        ("g/tasks", " 11 ,12,\n", ["20\n", "10\n11\n12\n", "", ""]),
        ("g/mon_groups/m/tasks", "11,12\n", ["20\n", "10\n11\n12\n", "", "11\n12\n"]),
        ("g/tasks", "11\n", ["20\n", "10\n11\n12\n", "", "12\n"]),
        ("h/tasks", "12\n", ["20\n", "10\n11\n", "12\n", ""]),
        ("tasks", "0xa\n", ["10\n20\n", "11\n", "12\n", ""]),
        ("tasks", "\n", ["10\n20\n", "11\n", "12\n", ""]),
        ("tasks", "", ["10\n20\n", "11\n", "12\n", ""]),
    ] {
        write(&mut tree, path, text);
        let lists = ["tasks", "g/tasks", "h/tasks", "g/mon_groups/m/tasks"].map(|path| read(&mut tree, path));
        assert_eq!(lists, [root, g, h, m], "{text:?} into {path}");
    }
}

#[test]
fn a_refused_task_is_named() {
    let (mut tree, _) = scripted(Profile::intel());
    for (path, text, errno, status) in [
        ("g/tasks", "x\n", Errno::INVAL, "Task list parsing error pid x"),
        ("g/tasks", ",10\n", Errno::INVAL, "Task list parsing error pid "),
        ("g/tasks", "10 11\n", Errno::INVAL, "Task list parsing error pid 10 11"),
        ("g/tasks", "2147483648\n", Errno::INVAL, "Task list parsing error pid 2147483648"),
        ("g/tasks", "-1\n", Errno::INVAL, "Invalid pid -1"),
        ("g/tasks", "99\n", Errno::SRCH, "No task 99\nError while processing task 99"),
        (
            "g/mon_groups/m/tasks",
            "10\n",
            Errno::INVAL,
            "Can't move task to different control group\nError while processing task 10",
        ),
    ] {
        refused(&mut tree, path, text, errno, status);
        assert_eq!(read(&mut tree, "tasks"), "10\n11\n12\n20\n");
    }
    refused(&mut tree, "g/tasks", "10,99,11\n", Errno::SRCH, "No task 99\nError while processing task 99");
    assert_eq!(read(&mut tree, "g/tasks"), "10\n", "those before the failure stay moved");
}

#[test]
fn other_users_move_only_their_own() {
    let (mut tree, script) = scripted(Profile::intel());
    script.add(Tid(21), Credentials { uid: 0, saved_uid: 1000 });
    let user = Writer { tid: Tid(20), uid: 1000, gid: 1000 };
    assert_eq!(tree.write("g/tasks", b"10\n", user), Err(Errno::PERM));
    assert_eq!(
        read(&mut tree, "info/last_cmd_status"),
        "No permission to move task 10\nError while processing task 10\n"
    );
    // 0 is the writer; the saved user id counts, too.
    assert_eq!(tree.write("g/tasks", b"0\n", user), Ok(2));
    assert_eq!(tree.write("g/tasks", b"21\n", user), Ok(3));
    assert_eq!(read(&mut tree, "g/tasks"), "20\n21\n");
}

#[test]
fn before_6_8_a_write_had_one_id() {
    let (mut tree, _) = scripted(Profile::intel().with_kernel(KernelVersion(6, 7)));
    refused(&mut tree, "g/tasks", "99\n", Errno::SRCH, "No task 99");
    // For an invalid number, the status is not changed.
    for text in ["10,11\n", "x\n", "-1\n", "\n"] {
        refused(&mut tree, "g/tasks", text, Errno::INVAL, "No task 99");
    }
    write(&mut tree, "g/tasks", "10\n");
    assert_eq!(read(&mut tree, "g/tasks"), "10\n");
}

#[test]
fn a_clone_is_where_its_creator_was_when_it_was_made() {
    let (mut tree, script) = scripted(Profile::intel());
    let clone = |creator, tid| Step::Clone { creator: Tid(creator), tid: Tid(tid) };
    write(&mut tree, "g/tasks", "10\n");
    write(&mut tree, "g/mon_groups/m/tasks", "10\n");
    script.step(clone(10, 100));
    script.step(clone(100, 101));
    assert_eq!(read(&mut tree, "g/mon_groups/m/tasks"), "10\n100\n101\n");
    // Moving the creator does not move its existing clones, whether seen before or created just now; later clones start in its new group.
    script.before_write("h", [clone(10, 102)]);
    write(&mut tree, "h/tasks", "10\n");
    script.step(clone(10, 103));
    assert_eq!(read(&mut tree, "h/tasks"), "10\n103\n");
    assert_eq!(read(&mut tree, "g/tasks"), "100\n101\n102\n");
    // A creator that ends right after cloning.
    script.step(clone(100, 104));
    script.step(Step::Exit(Tid(100)));
    assert_eq!(read(&mut tree, "g/tasks"), "101\n102\n104\n");
}

#[test]
fn a_task_that_forks_between_a_read_and_a_write_leaves_its_child_behind() {
    let (mut tree, script) = scripted(Profile::intel());
    script.after_read("", [Step::Clone { creator: Tid(10), tid: Tid(100) }]);
    let seen = read(&mut tree, "tasks");
    assert_eq!(seen, "10\n11\n12\n20\n");
    write(&mut tree, "g/tasks", &seen.trim_end().replace('\n', ","));
    assert_eq!(read(&mut tree, "tasks"), "100\n");
    write(&mut tree, "g/tasks", "100\n");
    assert_eq!(read(&mut tree, "tasks"), "");
}

#[test]
fn an_id_that_comes_round_again_is_another_task() {
    let (mut tree, script) = scripted(Profile::intel());
    write(&mut tree, "g/tasks", "10,11\n");
    script.step(Step::Exit(Tid(11)));
    script.step(Step::Clone { creator: Tid(12), tid: Tid(11) });
    assert_eq!(read(&mut tree, "g/tasks"), "10\n");
    script.step(Step::Exit(Tid(10)));
    refused(&mut tree, "g/tasks", "10\n", Errno::SRCH, "No task 10\nError while processing task 10");
}

#[test]
fn a_process_can_ask_where_it_is() {
    let (mut tree, _) = scripted(Profile::intel());
    write(&mut tree, "g/tasks", "10,11\n");
    write(&mut tree, "g/mon_groups/m/tasks", "11\n");
    for (tid, groups) in
        [(12, Some("res:/\nmon:\n")), (10, Some("res:g\nmon:\n")), (11, Some("res:g\nmon:m\n")), (99, None)]
    {
        assert_eq!(tree.cpu_resctrl_groups(Tid(tid)).as_deref(), groups, "{tid}");
    }
}
