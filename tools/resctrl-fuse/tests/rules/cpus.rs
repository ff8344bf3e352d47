//! `cpus` and `cpus_list`.

use qosm_resctrl_fuse::{CpuMask, Errno, Profile, Tree, Writer};

use super::{read, refused, with_groups, write};

/// `g` with its monitor groups `m` and `n`, and `h`.
fn groups() -> Tree {
    let mut tree = with_groups(Profile::intel());
    tree.mkdir("g/mon_groups/m", Writer::ROOT).unwrap();
    tree.mkdir("g/mon_groups/n", Writer::ROOT).unwrap();
    tree
}

#[test]
fn a_cpu_is_in_one_control_group_and_in_one_of_its_monitor_groups() {
    let mut tree = groups();
    for (path, text, [root, g, h, m, n]) in [
        ("g/cpus_list", "2-5\n", ["0-1,6-15", "2-5", "", "", ""]),
        ("g/mon_groups/m/cpus", "3c\n", ["0-1,6-15", "2-5", "", "2-5", ""]),
        ("g/mon_groups/n/cpus_list", "5\n", ["0-1,6-15", "2-5", "", "2-4", "5"]),
        ("h/cpus_list", "4,8\n", ["0-1,6-7,9-15", "2-3,5", "4,8", "2-3", "5"]),
        // CPUs that a monitor group drops stay with its control group.
        ("g/mon_groups/m/cpus_list", "\n", ["0-1,6-7,9-15", "2-3,5", "4,8", "", "5"]),
        // Writing a control group removes all CPUs from its monitor groups; CPUs that it drops go to the root.
        ("g/cpus", "000c\n", ["0-1,5-7,9-15", "2-3", "4,8", "", ""]),
        ("cpus_list", "0-15\n", ["0-15", "", "", "", ""]),
    ] {
        write(&mut tree, path, text);
        let paths = ["", "g/", "h/", "g/mon_groups/m/", "g/mon_groups/n/"];
        let lists = paths.map(|path| read(&mut tree, &format!("{path}cpus_list")).trim_end().to_owned());
        assert_eq!(lists, [root, g, h, m, n], "{text:?} into {path}");
    }
}

#[test]
fn both_files_show_the_same_cpus() {
    let mut tree = groups();
    write(&mut tree, "g/cpus_list", "0-1,8\n");
    assert_eq!(read(&mut tree, "g/cpus"), "0103\n");
    assert_eq!(read(&mut tree, "cpus"), "fefc\n");
    let mut profile = Profile::intel();
    profile.l3_domains[1].cpus = "8-39".parse().unwrap();
    let mut wide = with_groups(profile);
    write(&mut wide, "g/cpus", "80,00000001\n");
    assert_eq!(read(&mut wide, "g/cpus_list"), "0,39\n");
    assert_eq!(read(&mut wide, "cpus"), "7f,fffffffe\n");
}

#[test]
fn cpus_that_cannot_be_had_are_refused() {
    let mut tree = groups();
    write(&mut tree, "g/cpus_list", "2-5\n");
    tree.offline(&"15".parse::<CpuMask>().unwrap());
    for (path, text, errno, status) in [
        ("g/cpus_list", "x\n", Errno::INVAL, "Bad CPU list/mask"),
        ("g/cpus", "0-3\n", Errno::INVAL, "Bad CPU list/mask"),
        ("g/cpus_list", "3-2\n", Errno::INVAL, "Bad CPU list/mask"),
        ("g/cpus_list", "14-15\n", Errno::INVAL, "Can only assign online CPUs"),
        ("g/mon_groups/m/cpus_list", "5-6\n", Errno::INVAL, "Can only add CPUs to mongroup that belong to parent"),
        ("cpus_list", "0\n", Errno::INVAL, "Can't drop CPUs from default group"),
        ("cpus", "0\n", Errno::INVAL, "Can't drop CPUs from default group"),
    ] {
        refused(&mut tree, path, text, errno, status);
    }
    assert_eq!(read(&mut tree, "g/cpus_list"), "2-5\n");
    assert_eq!(read(&mut tree, "cpus_list"), "0-1,6-14\n");
}
