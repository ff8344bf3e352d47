//! Mounting: errors, and the state after a mount.

use qosm_resctrl_fuse::{Errno, KernelVersion, MountOptions, Profile, Scripted, Tree, Writer};

use super::{names, read, tree, with_groups, write};

#[test]
fn a_machine_without_resctrl_or_without_the_option_cannot_be_mounted() {
    let cdp = MountOptions { cdp: true, ..MountOptions::default() };
    let cdpl2 = MountOptions { cdpl2: true, ..MountOptions::default() };
    let debug = MountOptions { debug: true, ..MountOptions::default() };
    for (profile, errno) in [
        (Profile::none(), Errno::NODEV),
        (Profile { mount: cdp, ..Profile::haswell() }, Errno::INVAL),
        (Profile { mount: cdp, ..Profile::mb_only() }, Errno::INVAL),
        (Profile { mount: cdpl2, ..Profile::intel() }, Errno::INVAL),
        (Profile { mount: debug, kernel: KernelVersion(6, 6), ..Profile::intel() }, Errno::INVAL),
    ] {
        let error = Tree::new(profile, Scripted::default()).unwrap_err();
        assert_eq!(error.errno(), errno, "{error}");
    }
}

#[test]
fn after_a_mount_there_is_the_root_alone_with_everything() {
    let mut tree = Tree::new(Profile::intel(), Scripted::new([10, 11])).unwrap();
    let fresh = |tree: &mut Tree| {
        assert_eq!(names(tree, "").len(), 9);
        assert_eq!(names(tree, "mon_groups"), Vec::<String>::new());
        for (path, text) in [
            ("tasks", "10\n11\n"),
            ("cpus_list", "0-15\n"),
            ("mode", "shareable\n"),
            ("schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n"),
            ("info/last_cmd_status", "ok\n"),
        ] {
            assert_eq!(read(tree, path), text, "{path}");
        }
    };
    fresh(&mut tree);
    tree.mkdir("g", Writer::ROOT).unwrap();
    tree.mkdir("mon_groups/m", Writer::ROOT).unwrap();
    write(&mut tree, "g/tasks", "10\n");
    write(&mut tree, "mon_groups/m/tasks", "11\n");
    write(&mut tree, "g/cpus_list", "3\n");
    write(&mut tree, "schemata", "L3:0=1\nMB:0=10\n");
    assert_eq!(tree.mkdir("g", Writer::ROOT), Err(Errno::EXIST));
    tree.remount(MountOptions::default()).unwrap();
    fresh(&mut tree);
    // All CLOSIDs are free.
    for group in 0..7 {
        assert_eq!(tree.mkdir(&format!("g{group}"), Writer::ROOT), Ok(()));
    }
}

#[test]
fn another_mount_may_have_other_options() {
    let mut tree = with_groups(Profile::intel());
    tree.remount(MountOptions { cdp: true, ..MountOptions::default() }).unwrap();
    assert_eq!(names(&tree, "info"), ["L3CODE", "L3DATA", "L3_MON", "MB", "last_cmd_status"]);
    tree.mkdir("g", Writer::ROOT).unwrap();
    let refused = tree.remount(MountOptions { cdpl2: true, ..MountOptions::default() }).unwrap_err();
    assert_eq!(refused.errno(), Errno::INVAL);
    assert!(tree.attributes("g").is_ok(), "a refused mount leaves the one that is there");
}

#[test]
fn a_mount_of_nothing_but_monitoring_lists_no_tasks() {
    let mut tree = tree(Profile::monitor_only());
    tree.mkdir("mon_groups/m", Writer::ROOT).unwrap();
    write(&mut tree, "mon_groups/m/tasks", "1\n");
    assert_eq!(read(&mut tree, "mon_groups/m/tasks"), "1\n");
    assert_eq!(read(&mut tree, "tasks"), "");
}
