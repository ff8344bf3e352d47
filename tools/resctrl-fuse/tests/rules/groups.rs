//! `mkdir`, `rmdir`, `rename`.

use std::time::Duration;

use qosm_resctrl_fuse::{Errno, KernelVersion, MountOptions, Profile, Scripted, Tree, Writer};

use super::{names, read, tree, with_groups, write};

fn status(tree: &mut Tree) -> String {
    read(tree, "info/last_cmd_status")
}

#[test]
fn groups_are_made_in_two_places_only() {
    let mut tree = with_groups(Profile::intel());
    for path in ["mon_groups/m", "g/mon_groups/m"] {
        assert_eq!(tree.mkdir(path, Writer::ROOT), Ok(()), "{path}");
    }
    for (path, errno) in [
        ("g", Errno::EXIST),
        ("info", Errno::EXIST),
        ("mon_data", Errno::EXIST),
        ("mon_groups", Errno::EXIST),
        ("schemata", Errno::EXIST),
        ("g/mon_groups", Errno::EXIST),
        ("g/mon_groups/m", Errno::EXIST),
        ("g/x", Errno::PERM),
        ("mon_data/x", Errno::PERM),
        ("mon_groups/m/x", Errno::PERM),
        ("g/mon_groups/m/mon_data/x", Errno::PERM),
        ("mon_groups/mon_groups", Errno::PERM),
        ("g/mon_groups/mon_groups", Errno::PERM),
        ("info/x", Errno::NODEV),
        ("info/L3/x", Errno::NODEV),
        ("info/L3_MON/x", Errno::NODEV),
        ("a\nb", Errno::INVAL),
        ("mon_groups/a\nb", Errno::INVAL),
        ("nowhere/x", Errno::NOENT),
        ("tasks/x", Errno::NOTDIR),
    ] {
        assert_eq!(tree.mkdir(path, Writer::ROOT), Err(errno), "{path:?}");
    }
    assert_eq!(names(&tree, "mon_groups"), ["m"]);
}

#[test]
fn a_group_has_its_files_at_once_and_belongs_to_its_maker() {
    let mut tree = tree(Profile::intel());
    let maker = Writer { uid: 7, gid: 8, ..Writer::ROOT };
    tree.mkdir("g", maker).unwrap();
    tree.mkdir("g/mon_groups/m", maker).unwrap();
    assert_eq!(names(&tree, "g"), ["cpus", "cpus_list", "mode", "mon_data", "mon_groups", "schemata", "size", "tasks"]);
    assert_eq!(names(&tree, "g/mon_groups/m"), ["cpus", "cpus_list", "mon_data", "tasks"]);
    assert_eq!((read(&mut tree, "g/tasks").as_str(), read(&mut tree, "g/cpus").as_str()), ("", "0000\n"));
    assert_eq!(read(&mut tree, "g/mode"), "shareable\n");
    for path in ["g", "g/tasks", "g/mon_groups/m/tasks"] {
        let attributes = tree.attributes(path).unwrap();
        assert_eq!((attributes.uid, attributes.gid), (7, 8), "{path}");
    }
}

#[test]
fn there_are_as_many_control_groups_as_the_resource_with_the_fewest_closids_has() {
    for (profile, groups) in [
        (Profile::intel(), 7),
        (Profile::l3_only(), 15),
        (Profile::few_closids(), 3),
        (Profile::haswell(), 3),
        (Profile::amd(), 15),
        // Code and data separate halve the 16 CLOSIDs of L3, and memory bandwidth has no more.
        (Profile::cdp(), 7),
        (Profile { mount: MountOptions { cdp: true, ..MountOptions::default() }, ..Profile::l3_only() }, 7),
    ] {
        let mut tree = tree(profile);
        for group in 0..groups {
            assert_eq!(tree.mkdir(&format!("g{group}"), Writer::ROOT), Ok(()));
        }
        for _ in 0..2 {
            assert_eq!(tree.mkdir("more", Writer::ROOT), Err(Errno::NOSPC));
            assert_eq!(status(&mut tree), "Out of CLOSIDs\n");
        }
        tree.rmdir("g1").unwrap();
        assert_eq!(tree.mkdir("more", Writer::ROOT), Ok(()));
    }
}

#[test]
fn without_an_rmid_there_is_no_group_and_no_closid_is_lost() {
    let mut profile = Profile::intel();
    profile.monitoring.as_mut().unwrap().num_rmids = 2;
    let mut tree = tree(profile);
    tree.mkdir("g", Writer::ROOT).unwrap();
    for path in ["h", "h", "h", "h", "h", "h", "h", "h", "mon_groups/m", "g/mon_groups/m"] {
        assert_eq!(tree.mkdir(path, Writer::ROOT), Err(Errno::NOSPC), "{path}");
        assert_eq!(status(&mut tree), "Out of RMIDs\n");
    }
    tree.rmdir("g").unwrap();
    assert_eq!(tree.mkdir("h", Writer::ROOT), Err(Errno::BUSY));
    assert_eq!(status(&mut tree), "Out of RMIDs\n");
    tree.advance(Duration::from_secs(1));
    assert_eq!(tree.mkdir("h", Writer::ROOT), Ok(()));
}

#[test]
fn without_a_way_that_may_be_shared_there_is_no_group() {
    let mut tree = tree(Profile::intel());
    write(&mut tree, "mode", "exclusive\n");
    assert_eq!(tree.mkdir("g", Writer::ROOT), Err(Errno::NOSPC));
    assert_eq!(status(&mut tree), "No space on L3:0\n");
    write(&mut tree, "schemata", "L3:0=3ff\n");
    assert_eq!(tree.mkdir("g", Writer::ROOT), Err(Errno::NOSPC));
    assert_eq!(status(&mut tree), "No space on L3:1\n");
    write(&mut tree, "schemata", "L3:1=7fe\n");
    assert_eq!(tree.mkdir("g", Writer::ROOT), Ok(()));
    assert_eq!(read(&mut tree, "g/schemata"), "    MB:0=100;1=100\n    L3:0=400;1=1\n");
}

#[test]
fn a_new_group_begins_with_the_first_run_of_shared_and_unused_ways_and_all_bandwidth() {
    let mut tree = tree(Profile::intel());
    tree.mkdir("e", Writer::ROOT).unwrap();
    write(&mut tree, "schemata", "L3:0=f;1=700\n");
    write(&mut tree, "e/schemata", "L3:0=f0;1=f0\nMB:0=10;1=10\n");
    write(&mut tree, "e/mode", "exclusive\n");
    tree.mkdir("g", Writer::ROOT).unwrap();
    assert_eq!(read(&mut tree, "g/schemata"), "    MB:0=100;1=100\n    L3:0=f;1=f\n");
    // The CLOSID of a removed group leaves no values behind.
    tree.rmdir("e").unwrap();
    tree.mkdir("e", Writer::ROOT).unwrap();
    assert_eq!(read(&mut tree, "e/schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
    assert_eq!(read(&mut tree, "e/mode"), "shareable\n");
}

#[test]
fn a_monitor_group_has_the_closid_of_its_control_group_and_an_rmid_of_its_own() {
    let mut profile = Profile::intel();
    profile.mount.debug = true;
    let mut tree = with_groups(profile);
    tree.mkdir("h/mon_groups/m", Writer::ROOT).unwrap();
    for (path, text) in [
        ("ctrl_hw_id", "0\n"),
        ("mon_hw_id", "0\n"),
        ("h/ctrl_hw_id", "2\n"),
        ("h/mon_hw_id", "2\n"),
        ("h/mon_groups/m/mon_hw_id", "3\n"),
    ] {
        assert_eq!(read(&mut tree, path), text, "{path}");
    }
    assert_eq!(tree.read("h/mon_groups/m/ctrl_hw_id"), Err(Errno::NOENT));
}

#[test]
fn where_nothing_is_allocated_or_monitored_there_are_only_groups_of_the_other_kind() {
    let mut monitor_only = tree(Profile::monitor_only());
    assert_eq!(monitor_only.mkdir("g", Writer::ROOT), Err(Errno::PERM));
    assert_eq!(monitor_only.mkdir("mon_groups/m", Writer::ROOT), Ok(()));
    let mut l2_only = tree(Profile::l2_only());
    assert_eq!(l2_only.mkdir("g", Writer::ROOT), Ok(()));
    assert_eq!(names(&l2_only, "g"), ["cpus", "cpus_list", "mode", "schemata", "size", "tasks"]);
    assert_eq!(l2_only.mkdir("g/x", Writer::ROOT), Err(Errno::PERM));
}

#[test]
fn only_groups_other_than_the_root_are_removed() {
    let mut tree = with_groups(Profile::intel());
    for (path, errno) in [
        ("", Errno::PERM),
        ("info", Errno::PERM),
        ("info/L3", Errno::PERM),
        ("mon_data", Errno::PERM),
        ("mon_data/mon_L3_00", Errno::PERM),
        ("mon_groups", Errno::PERM),
        ("g/mon_groups", Errno::PERM),
        ("g/tasks", Errno::NOTDIR),
        ("nowhere", Errno::NOENT),
    ] {
        assert_eq!(tree.rmdir(path), Err(errno), "{path:?}");
    }
}

#[test]
fn what_was_in_a_removed_control_group_is_in_the_root() {
    let mut tree = Tree::new(Profile::intel(), Scripted::new([10, 11, 12])).unwrap();
    tree.mkdir("g", Writer::ROOT).unwrap();
    tree.mkdir("g/mon_groups/m", Writer::ROOT).unwrap();
    write(&mut tree, "g/tasks", "10,11\n");
    write(&mut tree, "g/mon_groups/m/tasks", "11\n");
    write(&mut tree, "g/cpus_list", "2-3\n");
    assert_eq!(read(&mut tree, "cpus_list"), "0-1,4-15\n");
    tree.rmdir("g").unwrap();
    assert_eq!(read(&mut tree, "tasks"), "10\n11\n12\n");
    assert_eq!(read(&mut tree, "cpus_list"), "0-15\n");
    for path in ["g", "g/mon_groups/m"] {
        assert_eq!(tree.attributes(path), Err(Errno::NOENT), "{path}");
    }
}

#[test]
fn what_was_in_a_removed_monitor_group_is_in_its_control_group() {
    let mut tree = Tree::new(Profile::intel(), Scripted::new([10, 11])).unwrap();
    tree.mkdir("g", Writer::ROOT).unwrap();
    tree.mkdir("g/mon_groups/m", Writer::ROOT).unwrap();
    tree.mkdir("g/mon_groups/n", Writer::ROOT).unwrap();
    write(&mut tree, "g/tasks", "10\n");
    write(&mut tree, "g/mon_groups/m/tasks", "10\n");
    write(&mut tree, "g/cpus_list", "2-3\n");
    write(&mut tree, "g/mon_groups/m/cpus_list", "3\n");
    tree.rmdir("g/mon_groups/m").unwrap();
    assert_eq!(read(&mut tree, "g/tasks"), "10\n");
    assert_eq!(read(&mut tree, "g/cpus_list"), "2-3\n");
    assert_eq!(read(&mut tree, "g/mon_groups/n/tasks"), "");
}

#[test]
fn only_monitor_groups_are_renamed_and_only_into_mon_groups() {
    let mut tree = Tree::new(Profile::intel(), Scripted::new([10])).unwrap();
    for path in ["g", "h", "g/mon_groups/m", "g/mon_groups/n"] {
        tree.mkdir(path, Writer::ROOT).unwrap();
    }
    write(&mut tree, "g/tasks", "10\n");
    write(&mut tree, "g/mon_groups/m/tasks", "10\n");
    write(&mut tree, "g/cpus_list", "1\n");
    write(&mut tree, "g/mon_groups/n/cpus_list", "1\n");
    for (from, to, status_text) in [
        ("g", "x", "Source must be a MON group\n"),
        ("g/mon_groups", "h/mon_groups/x", "Source must be a MON group\n"),
        ("g/mon_groups/m", "x", "Destination must be a mon_groups subdirectory\n"),
        ("g/mon_groups/m", "h/x", "Destination must be a mon_groups subdirectory\n"),
        ("g/mon_groups/m", "h/mon_groups/mon_groups", "Destination must be a mon_groups subdirectory\n"),
        ("g/mon_groups/n", "h/mon_groups/n", "Cannot move a MON group that monitors CPUs\n"),
        ("g/tasks", "h/mon_groups/x", "Source and destination must be directories"),
    ] {
        assert_eq!(tree.rename(from, to), Err(Errno::PERM), "{from} to {to}");
        assert_eq!(status(&mut tree), status_text, "{from} to {to}");
    }
    assert_eq!(tree.rename("g/mon_groups/m", "g/mon_groups/n"), Err(Errno::EXIST));
    assert_eq!(tree.rename("g/mon_groups/x", "g/mon_groups/y"), Err(Errno::NOENT));
    assert_eq!(tree.rename("g/mon_groups/n", "g/mon_groups/o"), Ok(()));
    assert_eq!(tree.rename("g/mon_groups/m", "h/mon_groups/m"), Ok(()));
    // The tasks have moved along, into the class of the new control group.
    assert_eq!(read(&mut tree, "h/tasks"), "10\n");
    assert_eq!(read(&mut tree, "h/mon_groups/m/tasks"), "10\n");
    assert_eq!(read(&mut tree, "g/tasks"), "");
}

#[test]
fn nothing_could_be_renamed_before_6_5() {
    let mut tree = tree(Profile::intel().with_kernel(KernelVersion(6, 4)));
    tree.mkdir("mon_groups/m", Writer::ROOT).unwrap();
    assert_eq!(tree.rename("mon_groups/m", "mon_groups/n"), Err(Errno::PERM));
}
