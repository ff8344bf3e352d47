//! More classes than the machine has CLOSIDs, groups of an earlier agent, and groups of other programs.

use super::*;

/// A machine with three groups besides the root.
fn few() -> Profile {
    Profile::few_closids()
}

fn lower(name: &str, end: u32, members: &[u32]) -> WantedClass {
    class(name, shares(ways(0, end), None), members)
}

fn groups(outcomes: &[ClassOutcome]) -> Vec<&str> {
    outcomes.iter().map(|outcome| outcome.group.as_str()).collect()
}

#[test]
fn equal_classes_share_a_group_when_there_are_no_more_and_others_wait() {
    let Some(mut node) = Node::of(few(), 6) else { return };
    node.machine.others(|tree| tree.mkdir("lab", Writer::ROOT)).unwrap();
    let wanted =
        [lower("a", 20, &[0]), lower("b", 40, &[1]), lower("c", 60, &[2]), lower("d", 20, &[3]), lower("e", 20, &[])];
    for _ in 0..2 {
        let outcomes = node.keep(&wanted);
        assert_eq!(groups(&outcomes), ["qosm-p-a", "qosm-p-b", "", "qosm-p-a", ""]);
        assert_eq!(outcomes[3].schemata, outcomes[0].schemata);
        let reported: Vec<_> = outcomes.iter().map(|outcome| outcome.in_force).collect();
        assert_eq!(reported, [true, true, false, true, true]);
        assert!(
            outcomes[2].why.starts_with("no CLOSID is left for resctrl group ")
                && outcomes[2]
                    .why
                    .contains("this machine has 4, one of them the root's, the others held by lab, qosm-p-a, qosm-p-b"),
            "{outcomes:?}"
        );
    }
    // Its shares now differ from those of the shared group.
    let mut changed = wanted.clone();
    changed[3] = lower("d", 80, &[3]);
    let outcomes = node.keep(&changed);
    assert_eq!(groups(&outcomes), ["qosm-p-a", "qosm-p-b", "", "", ""]);
    assert!(!outcomes[3].in_force);
    // A removed class frees its group for the first waiting class.
    node.machine.others(|tree| tree.rmdir("lab")).unwrap();
    let outcomes = node.keep(&changed);
    assert_eq!(groups(&outcomes), ["qosm-p-a", "qosm-p-b", "qosm-p-c", "", ""]);
    // After the group's own class is removed, the other class in it gets a group of its own.
    node.keep(&wanted);
    let outcomes = node.keep(&wanted[1..]);
    assert_eq!(groups(&outcomes), ["qosm-p-b", "qosm-p-c", "qosm-p-d", ""]);
    assert!(outcomes.iter().all(|outcome| outcome.in_force), "{outcomes:?}");
    assert!(!node.exists("qosm-p-a"));
}

#[test]
fn a_class_that_comes_before_others_takes_the_group_of_the_last() {
    let Some(mut node) = Node::of(few(), 4) else { return };
    let wanted = [lower("b", 40, &[1]), lower("c", 60, &[2]), lower("d", 80, &[3])];
    assert_eq!(groups(&node.keep(&wanted)), ["qosm-p-b", "qosm-p-c", "qosm-p-d"]);
    let more: Vec<_> = [lower("a", 20, &[0])].into_iter().chain(wanted).collect();
    for _ in 0..2 {
        let outcomes = node.keep(&more);
        assert_eq!(groups(&outcomes), ["qosm-p-a", "qosm-p-b", "qosm-p-c", ""]);
        assert!(outcomes[3].why.contains("no CLOSID is left"), "{outcomes:?}");
    }
    // The result is the same as for an agent that starts with all of them.
    node.restart();
    assert_eq!(groups(&node.keep(&more)), ["qosm-p-a", "qosm-p-b", "qosm-p-c", ""]);
}

#[test]
fn the_next_agent_takes_over_what_is_wanted_and_removes_the_rest() {
    let Some(mut node) = Node::of(Profile::intel(), 3) else { return };
    let counted = [0, 1, 2].map(ContainerId);
    let all = [be(&[0]), lower("ls", 60, &[1])];
    node.host.reconcile_classes(&all, &counted);
    // The state that the first agent left, except for a thread in no container.
    node.machine.others(|tree| {
        tree.write("qosm-p-be/tasks", b"10\n", Writer::ROOT).unwrap();
        tree.mkdir("qosm-other", Writer::ROOT).unwrap();
    });
    let inode = |node: &Node, path: &str| {
        std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(format!("{}/{path}", node.machine.path)).unwrap())
    };
    let monitors = |node: &Node| -> Vec<String> {
        let present = node.machine.groups.present().unwrap();
        let own = present.own.into_iter().filter(|group| matches!(group, Group::Monitor { .. }));
        own.map(|group| group.to_string()).collect()
    };
    let (group, before) = (inode(&node, "qosm-p-be"), monitors(&node));
    assert_eq!(before.len(), 3);

    node.restart();
    let outcome = node.host.reconcile_classes(&all[..1], &counted[..1]).remove(0);
    assert_eq!((outcome.group.as_str(), outcome.why.as_str()), ("qosm-p-be", ""));
    assert_eq!(node.control_groups(), ["qosm-p-be"]);
    assert_eq!(inode(&node, "qosm-p-be"), group);
    let left = monitors(&node);
    assert!(left.len() == 1 && before.contains(&left[0]) && left[0].starts_with("qosm-p-be/"), "{left:?}");
    assert_eq!(node.machine.text("qosm-p-be/tasks"), "");

    // An agent without wanted classes removes all groups.
    node.restart();
    assert_eq!(node.keep(&[]), []);
    assert!(node.control_groups().is_empty() && monitors(&node).is_empty());
}

#[test]
fn clearing_leaves_none_of_qosm_s_groups_and_all_others() {
    let Some(mut node) = Node::of(Profile::intel(), 2) else { return };
    node.machine.others(|tree| {
        for path in ["lab", "lab/mon_groups/qosm-like", "mon_groups/x"] {
            tree.mkdir(path, Writer::ROOT).unwrap();
        }
        tree.write("schemata", b"L3:0=7fe;1=7fe\nMB:0=90;1=100\n", Writer::ROOT).unwrap();
        tree.write("lab/schemata", b"L3:0=1;1=1\nMB:0=10\n", Writer::ROOT).unwrap();
        tree.write("lab/tasks", b"10\n", Writer::ROOT).unwrap();
    });
    let before = node.machine.seen();
    for restarts in [false, true] {
        node.host.reconcile_classes(&[be(&[0]), lower("ls", 60, &[1])], &[ContainerId(0), ContainerId(1)]);
        assert_ne!(node.machine.seen(), before);
        // Another process may restore.
        if restarts {
            node.restart();
        }
        let removed = node.host.clear_classes().unwrap();
        assert!(removed.contains(&"qosm-p-be".to_owned()) && removed.contains(&"qosm-p-ls".to_owned()), "{removed:?}");
        assert_eq!(node.machine.seen(), before);
        assert!(node.exists("lab/mon_groups/qosm-like") && node.exists("mon_groups/x"));
        assert_eq!(node.host.clear_classes().unwrap(), Vec::<String>::new());
    }
    // Classes can be reconciled again afterwards.
    assert!(node.keep(&[be(&[0])])[0].in_force);
}

#[test]
fn whatever_is_kept_others_schemata_stay_byte_for_byte() {
    let Some(mut node) = Node::of(Profile::intel(), 3) else { return };
    node.machine.others(|tree| {
        tree.mkdir("lab", Writer::ROOT).unwrap();
        tree.write("lab/schemata", b"L3:0=3f;1=1\nMB:0=10;1=70\n", Writer::ROOT).unwrap();
        tree.write("schemata", b"L3:0=7fe\nMB:1=80\n", Writer::ROOT).unwrap();
    });
    let foreign = |node: &Node| [node.machine.text("schemata"), node.machine.text("lab/schemata")];
    let before = foreign(&node);
    for end in [10, 50, 100] {
        for members in [&[0, 1, 2][..], &[1], &[]] {
            node.host.reconcile_classes(&[lower("a", end, members), be(&[2])], &[ContainerId(0)]);
            assert_eq!(foreign(&node), before);
        }
    }
    node.keep(&[]);
    assert_eq!(foreign(&node), before);
    assert_eq!(node.control_groups(), ["lab"]);
}
