//! Counted containers and classes.

use std::time::Duration;

use qosm_model::resctrl::Usage;
use qosm_resctrl_fuse::{Bytes, BytesPerSecond, Demand};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn monitors(node: &Node) -> Vec<String> {
    let present = node.machine.groups.present().unwrap();
    let own = present.own.into_iter().filter(|group| matches!(group, Group::Monitor { .. }));
    own.map(|group| group.to_string()).collect()
}

fn demand(node: &Node, group: &str) {
    let demand = Demand { occupancy: Bytes(4 << 20), bandwidth: BytesPerSecond(1_000_000_000), local_percent: 50 };
    node.machine.others(|tree| tree.set_group_demand(group, 0, demand)).unwrap();
}

/// Traffic in the first domain, in megabytes.
fn traffic(usages: &[Usage]) -> Option<u64> {
    usages.first()?.total.map(|total| (total.0 + 500_000) / 1_000_000)
}

#[test]
fn traffic_is_counted_of_each_class_each_container_and_the_rest() {
    let Some(mut node) = Node::of(Profile::intel(), 3) else { return };
    let wanted = [be(&[0]), class("none", shares(None, None), &[])];
    node.host.reconcile_classes(&wanted, &[ContainerId(0), ContainerId(2)]);
    let groups = monitors(&node);
    assert_eq!(groups.len(), 2);
    for group in groups.iter().map(String::as_str).chain([""]) {
        demand(&node, group);
    }
    node.machine.others(|tree| tree.advance(5 * SECOND));
    let first = node.host.read_resctrl();
    assert_eq!((traffic(&first.classes[0]), traffic(&first.rest)), (None, None));
    let occupancy = first.classes[0][0].occupancy.unwrap().0;
    assert!(occupancy.abs_diff(4 << 20) < 1 << 20, "{first:?}");
    for seconds in [1, 3] {
        node.machine.others(|tree| tree.advance(u32::try_from(seconds).unwrap() * SECOND));
        let reading = node.host.read_resctrl();
        assert_eq!(traffic(&reading.classes[0]), Some(1000 * seconds), "{reading:?}");
        assert!(reading.classes[1].is_empty());
        let containers: Vec<_> =
            reading.containers.iter().map(|(container, usages)| (container.0, traffic(usages))).collect();
        assert_eq!(containers, [(0, Some(1000 * seconds)), (2, Some(1000 * seconds))]);
        // The root's own traffic, and that of the container in no class.
        assert_eq!(traffic(&reading.rest), Some(2000 * seconds), "{reading:?}");
        let usage = reading.rest[0];
        // The kernel counts in units of its own.
        let (local, total) = (usage.local.unwrap().0, usage.total.unwrap().0);
        assert!(usage.domain == DomainId(0) && total.abs_diff(local * 2) < 1 << 20, "{usage:?}");
    }
    // A removed cache takes its counters along; the others are still read.
    node.machine.others(|tree| tree.offline_l3(1));
    node.host.reconcile_classes(&wanted, &[ContainerId(0), ContainerId(2)]);
    node.machine.others(|tree| tree.advance(SECOND));
    let reading = node.host.read_resctrl();
    assert_eq!((reading.rest.len(), traffic(&reading.rest)), (1, Some(2000)), "{reading:?}");
}

#[test]
fn a_monitor_group_follows_its_container_and_counts_on() {
    // Kernels before 6.5 do not rename.
    for (kernel, counts_on) in [(KernelVersion(6, 18), true), (KernelVersion(6, 1), false)] {
        let Some(mut node) = Node::of(Profile::intel().with_kernel(kernel), 1) else { return };
        let counted = [ContainerId(0)];
        let ls = |members: &[u32]| class("ls", shares(ways(50, 100), None), members);
        for (wanted, above) in [
            ([be(&[0]), ls(&[])], "qosm-p-be/"),
            ([be(&[]), ls(&[0])], "qosm-p-ls/"),
            ([be(&[]), ls(&[])], ""),
            ([be(&[0]), ls(&[])], "qosm-p-be/"),
        ] {
            let before = monitors(&node);
            if let [before] = before.as_slice() {
                demand(&node, before);
                node.machine.others(|tree| tree.advance(SECOND));
                node.host.read_resctrl();
            }
            node.host.reconcile_classes(&wanted, &counted);
            let groups = monitors(&node);
            let [group] = groups.as_slice() else { unreachable!("{groups:?}") };
            assert_eq!(group.split_once("mon_groups/").unwrap().0, above);
            // The class that the container left is gone with its only member.
            let reading = node.host.read_resctrl();
            assert_eq!(reading.containers.len(), 1);
            if !before.is_empty() {
                let expected = if counts_on { Some(0) } else { None };
                assert_eq!(traffic(&reading.containers[0].1), expected, "{before:?} {groups:?}");
            }
        }
        node.host.reconcile_classes(&[be(&[0])], &[]);
        assert!(monitors(&node).is_empty());
        assert_eq!(node.host.read_resctrl().containers, []);
    }
}

#[test]
fn between_classes_that_stay_no_traffic_is_lost() {
    let Some(mut node) = Node::of(Profile::intel(), 3) else { return };
    let counted = [ContainerId(0)];
    let ls = |members: &[u32]| class("ls", shares(ways(50, 100), None), members);
    node.host.reconcile_classes(&[be(&[0, 1]), ls(&[2])], &counted);
    demand(&node, &monitors(&node)[0]);
    node.machine.others(|tree| tree.advance(SECOND));
    node.host.read_resctrl();
    node.machine.others(|tree| tree.advance(SECOND));
    node.host.reconcile_classes(&[be(&[1]), ls(&[0, 2])], &counted);
    assert!(monitors(&node)[0].starts_with("qosm-p-ls/"));
    node.machine.others(|tree| tree.advance(SECOND));
    assert_eq!(traffic(&node.host.read_resctrl().containers[0].1), Some(2000));
}

#[test]
fn without_enough_rmids_some_are_not_counted_and_classes_come_first() {
    let mut profile = Profile::intel();
    profile.monitoring.as_mut().unwrap().num_rmids = 6;
    let Some(mut node) = Node::of(profile, 5) else { return };
    let counted = [0, 1, 2, 3, 4].map(ContainerId);
    for _ in 0..2 {
        assert!(node.host.reconcile_classes(&[], &counted).is_empty());
        assert_eq!(node.host.read_resctrl().containers.len(), 3);
    }
    // A class also needs an RMID.
    for _ in 0..2 {
        let outcomes = node.host.reconcile_classes(&[be(&[0]), class("ls", shares(None, None), &[1])], &counted);
        assert!(outcomes.iter().all(|outcome| outcome.in_force), "{outcomes:?}");
        assert_eq!(node.host.read_resctrl().containers.len(), 3);
    }
    // Other programs take all RMIDs as soon as these leave limbo.
    node.keep(&[]);
    node.machine.others(|tree| tree.advance(60 * SECOND));
    node.machine.others(|tree| (0..5).for_each(|id| tree.mkdir(&format!("mon_groups/{id}"), Writer::ROOT).unwrap()));
    assert!(node.host.reconcile_classes(&[], &counted).is_empty());
    assert_eq!(node.host.read_resctrl().containers, []);
    let outcome = node.keep(&[be(&[0])]).remove(0);
    assert!(!outcome.in_force && outcome.why.contains("no RMID is left"), "{outcome:?}");
}

#[test]
fn machines_that_do_not_count_have_readings_of_nothing() {
    let Some(mut node) = Node::of(Profile::l2_only(), 1) else { return };
    let outcome = node.host.reconcile_classes(&[be(&[0])], &[ContainerId(0)]).remove(0);
    assert!(outcome.in_force);
    let reading = node.host.read_resctrl();
    assert_eq!((reading.classes, reading.containers, reading.rest), (vec![vec![]], vec![], vec![]));
    // A machine that only monitors counts without any class.
    let Some(mut node) = Node::of(Profile::monitor_only(), 1) else { return };
    let outcome = node.host.reconcile_classes(&[be(&[0])], &[ContainerId(0)]).remove(0);
    assert!(!outcome.in_force);
    let reading = node.host.read_resctrl();
    assert_eq!((reading.containers.len(), reading.rest.len()), (1, 2));
}
