//! `mon_data`: the advance of counters, their content, and RMIDs in limbo.

use std::time::Duration;

use qosm_resctrl_fuse::tasks::{Scripted, Step, Tid};
use qosm_resctrl_fuse::{Bytes, BytesPerSecond, CounterFault, Demand, Errno, Event, Profile, Tree, Writer};

use super::{number, read, with_groups, write};

const MIB: u64 = 1 << 20;
const UNIT: u64 = 65536;
const SECOND: Duration = Duration::from_secs(1);

/// More than the machine has of everything, half of the traffic local.
const GREEDY: Demand =
    Demand { occupancy: Bytes(1 << 30), bandwidth: BytesPerSecond(1_000_000_000_000), local_percent: 50 };

fn occupancy(tree: &mut Tree, group: &str) -> u64 {
    number(tree, &format!("{group}/mon_data/mon_L3_00/llc_occupancy"))
}

fn total(tree: &mut Tree, group: &str) -> u64 {
    number(tree, &format!("{group}/mon_data/mon_L3_00/mbm_total_bytes"))
}

#[test]
fn a_group_has_no_more_cache_than_its_ways_and_no_more_bandwidth_than_its_value() {
    for (profile, schemata, cached, bandwidth) in [
        (Profile::intel(), "L3:0=3\nMB:0=10\n", 4 * MIB, 10_000_000_000),
        (Profile::intel(), "L3:0=7ff\nMB:0=100\n", 22 * MIB, 100_000_000_000),
        // 16 times 1/8 GB/s
        (Profile::amd(), "L3:0=a\nMB:0=16\n", 4 * MIB, 2_000_000_000),
        (Profile::amd(), "L3:0=0\nMB:0=0\n", 0, 0),
        (Profile::cdp(), "L3CODE:0=1\nL3DATA:0=2\n", 4 * MIB, 100_000_000_000),
    ] {
        let mut tree = with_groups(profile);
        write(&mut tree, "g/schemata", schemata);
        tree.set_group_demand("g", 0, GREEDY).unwrap();
        tree.advance(10 * SECOND);
        assert_eq!(occupancy(&mut tree, "g"), cached, "{schemata}");
        assert_eq!(total(&mut tree, "g"), bandwidth * 10 / UNIT * UNIT, "{schemata}");
        assert_eq!(number(&mut tree, "g/mon_data/mon_L3_00/mbm_local_bytes"), bandwidth * 5 / UNIT * UNIT);
        assert_eq!(occupancy(&mut tree, "h"), 0);
    }
}

#[test]
fn groups_that_overlap_share_what_they_share() {
    let mut tree = with_groups(Profile::intel());
    write(&mut tree, "g/schemata", "L3:0=f\n");
    write(&mut tree, "h/schemata", "L3:0=3c\n");
    for group in ["g", "h"] {
        tree.set_group_demand(group, 0, GREEDY).unwrap();
    }
    tree.advance(5 * SECOND);
    // Two ways of its own, and half of two shared ways.
    assert_eq!([occupancy(&mut tree, "g"), occupancy(&mut tree, "h")], [6 * MIB, 6 * MIB]);
    assert_eq!(total(&mut tree, "g"), total(&mut tree, "h"));
    tree.set_group_demand("h", 0, Demand::default()).unwrap();
    tree.advance(5 * SECOND);
    assert_eq!([occupancy(&mut tree, "g"), occupancy(&mut tree, "h")], [8 * MIB, 0]);
}

#[test]
fn byte_counts_only_grow_and_however_time_is_cut_they_come_to_the_same() {
    let count = |steps: u32| {
        let mut tree = with_groups(Profile::intel());
        tree.set_group_demand("g", 0, Demand { bandwidth: BytesPerSecond(1_000_000_007), ..GREEDY }).unwrap();
        let mut last = 0;
        for _ in 0..steps {
            tree.advance(6 * SECOND / steps);
            let now = total(&mut tree, "g");
            assert!(now >= last);
            last = now;
        }
        last
    };
    assert_eq!(count(1), 6_000_000_042 / UNIT * UNIT);
    assert_eq!(count(1), count(60));
}

#[test]
fn a_control_group_counts_its_monitor_groups_as_its_own() {
    let mut tree = Tree::new(Profile::intel(), Scripted::new([10, 11])).unwrap();
    tree.mkdir("g", Writer::ROOT).unwrap();
    tree.mkdir("g/mon_groups/m", Writer::ROOT).unwrap();
    write(&mut tree, "g/tasks", "10,11\n");
    write(&mut tree, "g/mon_groups/m/tasks", "11\n");
    let modest = Demand { occupancy: Bytes(MIB), bandwidth: BytesPerSecond(UNIT * 1000), local_percent: 100 };
    tree.set_task_demand(Tid(10), 0, modest);
    tree.set_task_demand(Tid(11), 0, modest);
    tree.advance(2 * SECOND);
    assert_eq!([occupancy(&mut tree, "g"), occupancy(&mut tree, "g/mon_groups/m")], [2 * MIB, MIB]);
    assert_eq!([total(&mut tree, "g"), total(&mut tree, "g/mon_groups/m")], [UNIT * 4000, UNIT * 2000]);
}

#[test]
fn a_task_takes_its_demand_along_and_leaves_its_lines_behind() {
    let script = Scripted::new([10]);
    let mut tree = Tree::new(Profile::intel(), script.clone()).unwrap();
    tree.mkdir("g", Writer::ROOT).unwrap();
    tree.mkdir("h", Writer::ROOT).unwrap();
    write(&mut tree, "g/tasks", "10\n");
    tree.set_task_demand(Tid(10), 0, Demand { occupancy: Bytes(11 * MIB), ..GREEDY });
    tree.advance(2 * SECOND);
    let counted = total(&mut tree, "g");
    write(&mut tree, "h/tasks", "10\n");
    assert_eq!([occupancy(&mut tree, "g"), occupancy(&mut tree, "h")], [11 * MIB, 0]);
    tree.advance(SECOND / 4);
    // A quarter of the turnover of 22 MiB, in units of 64 KiB.
    assert_eq!([occupancy(&mut tree, "g"), occupancy(&mut tree, "h")], [11 * MIB / 2, 11 * MIB / 2]);
    tree.advance(SECOND);
    assert_eq!([occupancy(&mut tree, "g"), occupancy(&mut tree, "h")], [0, 11 * MIB]);
    assert_eq!(total(&mut tree, "g"), counted, "what has been counted stays");
    script.step(Step::Exit(Tid(10)));
    tree.advance(2 * SECOND);
    assert_eq!(occupancy(&mut tree, "h"), 0);
}

#[test]
fn a_counter_can_have_no_value() {
    let mut tree = with_groups(Profile::intel());
    tree.mkdir("g/mon_groups/m", Writer::ROOT).unwrap();
    let (own, of_m) = ("g/mon_data/mon_L3_00/llc_occupancy", "g/mon_groups/m/mon_data/mon_L3_00/llc_occupancy");
    for (fault, text) in [
        (CounterFault::Unavailable, "Unavailable\n"),
        (CounterFault::Error, "Error\n"),
        (CounterFault::Unassigned, "Unassigned\n"),
    ] {
        tree.set_counter_fault("g/mon_groups/m", 0, Event::LlcOccupancy, Some(fault)).unwrap();
        assert_eq!(read(&mut tree, of_m), text);
        assert_eq!(read(&mut tree, own), "0\n", "its own can be read");
        tree.set_counter_fault("g", 0, Event::LlcOccupancy, Some(fault)).unwrap();
        assert_eq!(read(&mut tree, own), text);
        assert_eq!(read(&mut tree, "g/mon_data/mon_L3_01/llc_occupancy"), "0\n");
        assert_eq!(read(&mut tree, "g/mon_data/mon_L3_00/mbm_total_bytes"), "0\n");
        for group in ["g", "g/mon_groups/m"] {
            tree.set_counter_fault(group, 0, Event::LlcOccupancy, None).unwrap();
        }
        assert_eq!(read(&mut tree, own), "0\n");
    }
    assert_eq!(tree.set_counter_fault("info", 0, Event::LlcOccupancy, None), Err(Errno::NOTDIR));
}

#[test]
fn the_nodes_of_a_cache_add_up_to_it() {
    let mut tree = with_groups(Profile::sub_numa());
    tree.set_group_demand("g", 1, Demand { occupancy: Bytes(5 * UNIT), ..GREEDY }).unwrap();
    tree.advance(2 * SECOND);
    for (path, units) in [("llc_occupancy", 5), ("mon_sub_L3_02/llc_occupancy", 3), ("mon_sub_L3_03/llc_occupancy", 2)]
    {
        assert_eq!(number(&mut tree, &format!("g/mon_data/mon_L3_01/{path}")), units * UNIT, "{path}");
    }
}

#[test]
fn an_rmid_is_in_limbo_until_the_caches_have_forgotten_it() {
    let mut profile = Profile::intel();
    profile.monitoring.as_mut().unwrap().num_rmids = 2;
    profile.cache_turnover_millis = 10_000;
    let mut tree = Tree::new(profile, Scripted::default()).unwrap();
    tree.write("info/L3_MON/max_threshold_occupancy", b"65536\n", Writer::ROOT).unwrap();
    tree.mkdir("g", Writer::ROOT).unwrap();
    write(&mut tree, "g/schemata", "L3:1=3\n");
    tree.set_group_demand("g", 1, GREEDY).unwrap();
    tree.advance(5 * SECOND);
    assert_eq!(number(&mut tree, "g/mon_data/mon_L3_01/llc_occupancy"), 4 * MIB);
    tree.rmdir("g").unwrap();
    // 4 MiB at 2.2 MiB per second.
    for made in [Err(Errno::BUSY), Err(Errno::BUSY), Ok(())] {
        assert_eq!(tree.mkdir("g", Writer::ROOT), made, "after {:?}", tree.clock());
        tree.advance(SECOND);
    }
    assert_eq!(number(&mut tree, "g/mon_data/mon_L3_01/mbm_total_bytes"), 0, "counted since the group was made");
}
