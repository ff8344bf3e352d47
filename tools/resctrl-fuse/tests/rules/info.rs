//! The directories, the permissions, and the content of `info`.

use qosm_resctrl_fuse::{Errno, KernelVersion, MountOptions, Profile, Writer};

use super::{names, read, refused, tree, with_groups, write};

#[test]
fn directories_are_those_of_what_the_machine_can_do() {
    for (name, directory, expected) in [
        ("intel", "", "cpus cpus_list info mode mon_data mon_groups schemata size tasks"),
        ("intel", "info", "L3 L3_MON MB last_cmd_status"),
        ("cdp", "info", "L3CODE L3DATA L3_MON MB last_cmd_status"),
        ("haswell", "info", "L3 L3_MON last_cmd_status"),
        ("l2-only", "", "cpus cpus_list info mode schemata size tasks"),
        ("l2-only", "info", "L2 last_cmd_status"),
        ("monitor-only", "info", "L3_MON last_cmd_status"),
        ("intel", "info/L3", "bit_usage cbm_mask min_cbm_bits num_closids shareable_bits sparse_masks"),
        ("intel", "info/MB", "bandwidth_gran delay_linear min_bandwidth num_closids thread_throttle_mode"),
        ("amd", "info/MB", "bandwidth_gran delay_linear min_bandwidth num_closids"),
        ("intel", "info/L3_MON", "max_threshold_occupancy mon_features num_rmids"),
        ("intel", "mon_data", "mon_L3_00 mon_L3_01"),
        ("amd", "mon_data", "mon_L3_00 mon_L3_08"),
        ("intel", "mon_data/mon_L3_01", "llc_occupancy mbm_local_bytes mbm_total_bytes"),
        ("haswell", "mon_data/mon_L3_00", "llc_occupancy"),
        ("sub-numa", "mon_data/mon_L3_01", "llc_occupancy mbm_local_bytes mbm_total_bytes mon_sub_L3_02 mon_sub_L3_03"),
    ] {
        let tree = tree(Profile::named(name).unwrap());
        assert_eq!(names(&tree, directory).join(" "), expected, "{directory} of {name}");
    }
    let old = tree(Profile::intel().with_kernel(KernelVersion(6, 6)));
    assert!(!names(&old, "info/L3").contains(&"sparse_masks".to_owned()));
    let debug = tree(Profile { mount: MountOptions { debug: true, ..MountOptions::default() }, ..Profile::intel() });
    assert_eq!(
        names(&debug, "").join(" "),
        "cpus cpus_list ctrl_hw_id info mode mon_data mon_groups mon_hw_id schemata size tasks"
    );
}

#[test]
fn what_can_be_written_says_so() {
    let mut tree = with_groups(Profile::intel());
    tree.mkdir("g/mon_groups/m", Writer::ROOT).unwrap();
    for (path, mode) in [
        ("", 0o755),
        ("info", 0o755),
        ("g", 0o755),
        ("g/mon_groups/m", 0o755),
        ("mon_data/mon_L3_00", 0o755),
        ("tasks", 0o644),
        ("g/cpus", 0o644),
        ("g/cpus_list", 0o644),
        ("g/schemata", 0o644),
        ("g/mode", 0o644),
        ("g/mon_groups/m/tasks", 0o644),
        ("info/L3_MON/max_threshold_occupancy", 0o644),
        ("g/size", 0o444),
        ("info/last_cmd_status", 0o444),
        ("info/L3/cbm_mask", 0o444),
        ("mon_data/mon_L3_00/llc_occupancy", 0o444),
    ] {
        let attributes = tree.attributes(path).unwrap();
        assert_eq!((attributes.mode, attributes.is_directory), (mode, mode == 0o755), "{path}");
    }
    tree.set_attributes("g/tasks", Some(0o666), Some(5), None).unwrap();
    let changed = tree.attributes("g/tasks").unwrap();
    assert_eq!((changed.mode, changed.uid, changed.gid), (0o666, 5, 0));
}

#[test]
fn a_path_that_is_not_there_and_a_file_of_the_wrong_kind_have_their_errno() {
    let mut tree = tree(Profile::intel());
    for (path, read) in
        [("nowhere", Errno::NOENT), ("tasks/x", Errno::NOTDIR), ("info", Errno::ISDIR), ("", Errno::ISDIR)]
    {
        assert_eq!(tree.read(path), Err(read), "{path}");
        assert_eq!(tree.write(path, b"\n", Writer::ROOT), Err(read), "{path}");
    }
    assert_eq!(tree.write("size", b"\n", Writer::ROOT), Err(Errno::INVAL));
    assert_eq!(tree.list("tasks"), Err(Errno::NOTDIR));
    assert_eq!(tree.list("nowhere"), Err(Errno::NOENT));
}

#[test]
fn info_describes_the_machine() {
    for (name, path, text) in [
        ("intel", "L3/num_closids", "16\n"),
        ("cdp", "L3CODE/num_closids", "8\n"),
        ("cdp", "L3DATA/num_closids", "8\n"),
        ("intel", "L3/cbm_mask", "7ff\n"),
        ("intel", "L3/min_cbm_bits", "1\n"),
        ("intel", "L3/shareable_bits", "0\n"),
        ("intel", "L3/sparse_masks", "0\n"),
        ("haswell", "L3/min_cbm_bits", "2\n"),
        ("haswell", "L3/shareable_bits", "c0000\n"),
        ("amd", "L3/min_cbm_bits", "0\n"),
        ("amd", "L3/sparse_masks", "1\n"),
        ("intel", "MB/num_closids", "8\n"),
        ("intel", "MB/min_bandwidth", "10\n"),
        ("intel", "MB/bandwidth_gran", "10\n"),
        ("intel", "MB/delay_linear", "1\n"),
        ("intel", "MB/thread_throttle_mode", "max\n"),
        ("amd", "MB/min_bandwidth", "0\n"),
        ("amd", "MB/bandwidth_gran", "1\n"),
        ("amd", "MB/delay_linear", "0\n"),
        ("intel", "L3_MON/num_rmids", "144\n"),
        ("intel", "L3_MON/mon_features", "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n"),
        ("haswell", "L3_MON/mon_features", "llc_occupancy\n"),
        ("intel", "last_cmd_status", "ok\n"),
    ] {
        assert_eq!(read(&mut tree(Profile::named(name).unwrap()), &format!("info/{path}")), text, "{path} of {name}");
    }
}

#[test]
fn bit_usage_shows_the_owner_of_each_way() {
    let mut tree = tree(Profile::haswell());
    assert_eq!(read(&mut tree, "info/L3/bit_usage"), "0=XXSSSSSSSSSSSSSSSSSS;1=XXSSSSSSSSSSSSSSSSSS\n");
    tree.mkdir("g", Writer::ROOT).unwrap();
    write(&mut tree, "schemata", "L3:0=f0;1=f0\n");
    write(&mut tree, "g/schemata", "L3:0=f;1=3\n");
    write(&mut tree, "g/mode", "exclusive\n");
    assert_eq!(read(&mut tree, "info/L3/bit_usage"), "0=HH0000000000SSSSEEEE;1=HH0000000000SSSS00EE\n");
}

#[test]
fn the_threshold_is_bounded_and_rounded_and_leaves_the_status_alone() {
    let mut tree = tree(Profile::intel());
    let path = "info/L3_MON/max_threshold_occupancy";
    // 22 MiB for 144 RMIDs, in units of 64 KiB.
    assert_eq!(read(&mut tree, path), "131072\n");
    refused(&mut tree, "mode", "none\n", Errno::INVAL, "Unknown or unsupported mode");
    for (text, errno) in
        [("23068673\n", Errno::INVAL), ("x\n", Errno::INVAL), ("", Errno::INVAL), ("4294967296\n", Errno::RANGE)]
    {
        refused(&mut tree, path, text, errno, "Unknown or unsupported mode");
    }
    for (text, stored) in [("65537\n", "65536\n"), ("65535", "0\n"), ("23068672\n", "23068672\n")] {
        assert_eq!(tree.write(path, text.as_bytes(), Writer::ROOT), Ok(text.len()));
        assert_eq!(read(&mut tree, path), stored);
    }
}

#[test]
fn the_status_is_of_the_last_command() {
    for (path, text) in
        [("schemata", "L3:0=3\n"), ("tasks", "1\n"), ("cpus", "f\n"), ("cpus_list", "1\n"), ("mode", "shareable\n")]
    {
        let mut tree = with_groups(Profile::intel());
        refused(&mut tree, "g/mode", "none\n", Errno::INVAL, "Unknown or unsupported mode");
        write(&mut tree, &format!("g/{path}"), text);
    }
    let mut tree = with_groups(Profile::intel());
    refused(&mut tree, "g/mode", "none\n", Errno::INVAL, "Unknown or unsupported mode");
    // An error before the lookup of the group does not change the status, nor does rmdir.
    assert_eq!(tree.mkdir("g", Writer::ROOT), Err(Errno::EXIST));
    assert_eq!(tree.rmdir("h"), Ok(()));
    assert_eq!(read(&mut tree, "info/last_cmd_status"), "Unknown or unsupported mode\n");
    assert_eq!(tree.mkdir("h/x", Writer::ROOT), Err(Errno::NOENT));
    assert_eq!(tree.mkdir("mon_groups/m", Writer::ROOT), Ok(()));
    assert_eq!(read(&mut tree, "info/last_cmd_status"), "ok\n");
    refused(&mut tree, "g/mode", "none\n", Errno::INVAL, "Unknown or unsupported mode");
    assert_eq!(tree.rename("mon_groups/m", "mon_groups/n"), Ok(()));
    assert_eq!(read(&mut tree, "info/last_cmd_status"), "ok\n");
}
