//! CPUs and caches that go offline and come back.

use qosm_resctrl_fuse::{CpuMask, Errno, Profile};

use super::{names, read, refused, with_groups, write};

#[test]
fn a_cache_without_cpus_is_gone_from_everywhere() {
    let mut tree = with_groups(Profile::intel());
    write(&mut tree, "g/schemata", "L3:0=3;1=3\nMB:1=10\n");
    write(&mut tree, "g/cpus_list", "3,8\n");
    tree.offline_l3(1);
    for (path, text) in [
        ("g/schemata", "    MB:0=100\n    L3:0=3\n"),
        ("g/size", "    MB:0=100\n    L3:0=4194304\n"),
        ("info/L3/bit_usage", "0=SSSSSSSSSSS\n"),
        ("g/cpus_list", "3\n"),
        ("cpus_list", "0-2,4-7\n"),
    ] {
        assert_eq!(read(&mut tree, path), text, "{path}");
    }
    assert_eq!(names(&tree, "g/mon_data"), ["mon_L3_00"]);
    assert_eq!(tree.read("g/mon_data/mon_L3_01/llc_occupancy"), Err(Errno::NOENT));
    refused(&mut tree, "g/schemata", "L3:0=1;1=1\n", Errno::INVAL, "ok");
    refused(&mut tree, "g/cpus_list", "8\n", Errno::INVAL, "Can only assign online CPUs");
    tree.online_l3(1);
    // A domain that comes back starts empty, and its CPUs are the root's.
    assert_eq!(read(&mut tree, "g/schemata"), "    MB:0=100;1=100\n    L3:0=3;1=7ff\n");
    assert_eq!(read(&mut tree, "cpus_list"), "0-2,4-15\n");
    assert_eq!(names(&tree, "g/mon_data"), ["mon_L3_00", "mon_L3_01"]);
}

#[test]
fn a_cache_stays_while_it_has_a_cpu() {
    let mut tree = with_groups(Profile::intel());
    write(&mut tree, "g/schemata", "L3:1=3\n");
    tree.offline(&"8-14".parse::<CpuMask>().unwrap());
    assert_eq!(read(&mut tree, "g/schemata"), "    MB:0=100;1=100\n    L3:0=7ff;1=3\n");
    // CPUs that the machine does not have are ignored.
    tree.online(&"8-99".parse::<CpuMask>().unwrap());
    assert_eq!(read(&mut tree, "cpus_list"), "0-15\n");
}
