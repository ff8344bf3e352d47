//! Names, modes and owners; `size`; freed RMIDs.

use std::time::Duration;

use qosm_resctrl_fuse::{Bytes, Demand, Errno, Event, Profile, Tid, Writer};

use crate::Root;

fn with_rmids(num_rmids: u32) -> Profile {
    let mut profile = Profile::intel();
    profile.monitoring.as_mut().unwrap().num_rmids = num_rmids;
    profile
}

#[test]
fn a_freed_rmid_is_in_limbo_until_the_cache_has_forgotten_it() {
    let mut root = Root::with_groups(with_rmids(2), &["g"]);
    root.write("info/L3_MON/max_threshold_occupancy", "1048576\n").unwrap();
    let demand = Demand { occupancy: Bytes(8 << 20), ..Demand::default() };
    root.tree.set_group_demand("g", 1, demand).unwrap();
    root.tree.advance(Duration::from_secs(2));
    root.tree.rmdir("g").unwrap();
    // 8 MiB leave the cache at 22 MiB per second; the kernel checks once a second.
    assert_eq!(root.mkdir("h"), Err(Errno::BUSY));
    assert_eq!(root.status(), "Out of RMIDs");
    root.tree.advance(Duration::from_millis(900));
    assert_eq!(root.mkdir("h"), Err(Errno::BUSY));
    root.tree.advance(Duration::from_millis(100));
    root.mkdir("h").unwrap();
}

#[test]
fn without_an_occupancy_counter_there_is_no_limbo() {
    let mut profile = with_rmids(2);
    profile.monitoring.as_mut().unwrap().events.remove(&Event::LlcOccupancy);
    let mut root = Root::with_groups(profile, &["g"]);
    root.tree.rmdir("g").unwrap();
    root.mkdir("h").unwrap();
}

#[test]
fn shareable_bits_go_to_every_new_group() {
    let mut root = Root::with_groups(Profile::haswell(), &["g"]);
    root.write("schemata", "L3:0=c0000;1=c0000\n").unwrap();
    root.write("g/schemata", "L3:0=3ffff;1=3ffff\n").unwrap();
    root.write("g/mode", "exclusive\n").unwrap();
    root.mkdir("h").unwrap();
    assert_eq!(root.read("h/schemata"), "L3:0=c0000;1=c0000\n");
}

#[test]
fn files_have_the_kernel_s_modes_and_their_creator_s_owner() {
    let mut root = Root::on(Profile::intel());
    root.tree.mkdir("g", Writer { tid: Tid(100), uid: 1000, gid: 100 }).unwrap();
    for (path, mode) in [
        ("", 0o755),
        ("g", 0o755),
        ("g/mon_groups", 0o755),
        ("g/mon_data/mon_L3_00", 0o755),
        ("g/tasks", 0o644),
        ("g/cpus", 0o644),
        ("g/cpus_list", 0o644),
        ("g/schemata", 0o644),
        ("g/mode", 0o644),
        ("g/size", 0o444),
        ("g/mon_data/mon_L3_00/llc_occupancy", 0o444),
        ("info", 0o755),
        ("info/last_cmd_status", 0o444),
        ("info/L3/cbm_mask", 0o444),
        ("info/L3_MON/max_threshold_occupancy", 0o644),
        ("info/L3_MON/num_rmids", 0o444),
    ] {
        let attributes = root.tree.attributes(path).unwrap();
        assert_eq!(attributes.mode, mode, "{path}");
        let owner = if path.starts_with('g') { (1000, 100) } else { (0, 0) };
        assert_eq!((attributes.uid, attributes.gid), owner, "{path}");
    }
    root.tree.set_attributes("g/tasks", Some(0o664), Some(5), None).unwrap();
    let attributes = root.tree.attributes("g/tasks").unwrap();
    assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o664, 5, 100));
    root.tree.rmdir("g").unwrap();
    root.mkdir("g").unwrap();
    assert_eq!(root.tree.attributes("g/tasks").unwrap().mode, 0o644);
}

#[test]
fn paths_lead_through_directories_to_files() {
    let mut root = Root::on(Profile::intel());
    for (path, errno) in [
        ("none", Errno::NOENT),
        ("tasks/x", Errno::NOTDIR),
        ("info", Errno::ISDIR),
        ("", Errno::ISDIR),
        ("info/x/y", Errno::NOENT),
    ] {
        assert_eq!(root.tree.read(path), Err(errno), "{path}");
    }
    assert_eq!(root.write("info", "x\n"), Err(Errno::ISDIR));
    assert_eq!(root.tree.list("tasks"), Err(Errno::NOTDIR));
    for path in ["size", "info/last_cmd_status", "info/L3/cbm_mask", "mon_data/mon_L3_00/llc_occupancy"] {
        assert_eq!(root.write(path, "1\n"), Err(Errno::INVAL), "{path}");
    }
}

#[test]
fn rmdir_leaves_the_status_alone_and_mkdir_clears_it() {
    let mut root = Root::with_groups(Profile::intel(), &["g"]);
    root.write("schemata", "L3\n").unwrap_err();
    root.tree.rmdir("g").unwrap();
    assert_eq!(root.status(), "Missing ':'");
    root.mkdir("g").unwrap();
    assert_eq!(root.status(), "ok");
}

#[test]
fn size_is_the_share_of_the_cache_and_bandwidth_as_it_is() {
    let mut root = Root::with_groups(Profile::intel(), &["g"]);
    root.write("g/schemata", "L3:0=3;1=7ff\nMB:0=30\n").unwrap();
    assert_eq!(root.read("g/size"), format!("    MB:0=30;1=100\n    L3:0={};1={}\n", 4 << 20, 22 << 20));
    let mut root = Root::with_groups(Profile::amd(), &["g"]);
    root.write("g/schemata", "L3:0=a5a5;8=0\n").unwrap();
    assert_eq!(root.read("g/size"), format!("    MB:0=2048;8=2048\n    L3:0={};8=0\n", 16 << 20));
}
