//! Moves threads of real processes into classes, between them, and out.

use super::*;

/// A node whose emulation knows the threads of this machine.
fn node(containers: u32) -> Option<Node> {
    Node::new(Machine::any, containers)
}

impl Node {
    /// Number of threads that are both in the container and in the group.
    fn inside(&self, container: usize, group: &str) -> usize {
        let tasks = self.machine.text(&format!("{group}tasks"));
        let threads = self.cgroups[container].threads();
        threads.iter().filter(|thread| tasks.lines().any(|line| line == *thread)).count()
    }

    /// Reconciles until no thread had to be moved.
    fn settle(&mut self, wanted: &[WantedClass]) {
        let still = |outcomes: Vec<ClassOutcome>| outcomes.iter().all(|outcome| outcome.threads_moved == 0);
        assert!((0..50).any(|_| still(self.keep(wanted))), "threads are moved again and again");
    }
}

const SLEEPS: &str = "sleep 1000 & sleep 1000 & wait";

fn ls(members: &[u32]) -> WantedClass {
    class("ls", shares(None, None), members)
}

#[test]
fn threads_go_with_their_container_from_class_to_class_and_out() {
    let Some(mut node) = node(2) else { return };
    for container in 0..2 {
        node.cgroups[container].run(SLEEPS);
        node.cgroups[container].wait_for_threads(3);
    }
    let outcome = node.keep(&[be(&[0])]).remove(0);
    assert_eq!((outcome.threads_moved, outcome.why.as_str()), (3, ""));
    assert_eq!((node.inside(0, "qosm-p-be/"), node.inside(1, "")), (3, 3));
    assert_eq!(node.keep(&[be(&[0])])[0].threads_moved, 0);

    // A process that enters a container from outside starts in the root group, as with `kubectl exec`.
    node.cgroups[0].run("exec sleep 1000");
    node.cgroups[0].wait_for_threads(4);
    assert_eq!(node.keep(&[be(&[0])])[0].threads_moved, 1);
    assert_eq!(node.inside(0, "qosm-p-be/"), 4);

    let outcomes = node.keep(&[be(&[1]), ls(&[0])]);
    let moved: Vec<_> = outcomes.iter().map(|outcome| outcome.threads_moved).collect();
    assert_eq!(moved, [3, 4]);
    assert_eq!((node.inside(0, "qosm-p-ls/"), node.inside(1, "qosm-p-be/")), (4, 3));

    // One container leaves a class that stays.
    let outcomes = node.keep(&[be(&[0, 1])]);
    assert_eq!(outcomes[0].threads_moved, 4);
    node.keep(&[be(&[1])]);
    assert_eq!((node.inside(0, ""), node.inside(1, "qosm-p-be/")), (4, 3));
    node.keep(&[]);
    assert_eq!((node.inside(0, ""), node.inside(1, "")), (4, 3));
}

#[test]
fn counted_containers_keep_their_class() {
    let Some(mut node) = node(1) else { return };
    node.cgroups[0].run(SLEEPS);
    node.cgroups[0].wait_for_threads(3);
    let counted = [ContainerId(0)];
    for (wanted, control) in
        [(vec![], ""), (vec![be(&[0])], "qosm-p-be/"), (vec![ls(&[0])], "qosm-p-ls/"), (vec![], "")]
    {
        node.host.reconcile_classes(&wanted, &counted);
        let present = node.machine.groups.present().unwrap();
        let monitors: Vec<_> =
            present.own.iter().filter(|group| matches!(group, Group::Monitor { .. })).map(Group::to_string).collect();
        let [monitor] = monitors.as_slice() else { unreachable!("{monitors:?}") };
        assert!(monitor.starts_with(&format!("{control}mon_groups/")), "{monitor}");
        assert_eq!((node.inside(0, &format!("{monitor}/")), node.inside(0, control)), (3, 3));
    }
    node.host.reconcile_classes(&[be(&[0])], &counted);
    node.keep(&[be(&[0])]);
    assert_eq!(node.inside(0, "qosm-p-be/"), 3);
}

#[test]
fn threads_that_another_program_moves_away_come_back() {
    let Some(mut node) = node(1) else { return };
    node.cgroups[0].run(SLEEPS);
    node.cgroups[0].wait_for_threads(3);
    node.keep(&[be(&[0])]);
    for thread in node.cgroups[0].threads() {
        std::fs::write(format!("{}/tasks", node.machine.path), format!("{thread}\n")).unwrap();
    }
    assert_eq!(node.inside(0, "qosm-p-be/"), 0);
    assert!((0..40).any(|_| node.keep(&[be(&[0])])[0].threads_moved == 3));
}

#[test]
fn containers_that_fork_all_the_time_are_in_their_class_in_the_end() {
    let Some(mut node) = node(1) else { return };
    node.cgroups[0].run("for i in 1 2 3; do (while :; do sleep 0.05 & sleep 0.1; done) & done; wait");
    node.cgroups[0].wait_for_threads(4);
    node.settle(&[be(&[0])]);
    let (threads, inside) = (node.cgroups[0].threads().len(), node.inside(0, "qosm-p-be/"));
    assert!(inside >= 4, "{inside} of {threads}");
}

#[test]
fn a_cgroup_made_anew_under_the_same_name_is_another_container() {
    let Some(mut node) = node(1) else { return };
    node.host.reconcile_classes(&[be(&[0])], &[ContainerId(0)]);
    let monitors = |node: &Node| {
        let present = node.machine.groups.present().unwrap();
        present.own.into_iter().filter(|group| matches!(group, Group::Monitor { .. })).collect::<Vec<_>>()
    };
    let before = monitors(&node);
    let path = node.cgroups[0].path().to_owned();
    node.host.remove(&path).unwrap();
    node.host.create(&path).unwrap();
    node.cgroups[0].run(SLEEPS);
    node.cgroups[0].wait_for_threads(3);
    node.host.attach(Target::Container(ContainerId(0)), &path).unwrap();
    let outcome = node.host.reconcile_classes(&[be(&[0])], &[ContainerId(0)]).remove(0);
    assert_eq!(outcome.threads_moved, 3);
    let after = monitors(&node);
    assert!(after.len() == 1 && after != before, "{after:?}");
    // A removed container leaves no group.
    node.host.detach(Target::Container(ContainerId(0)));
    node.host.reconcile_classes(&[be(&[0])], &[ContainerId(0)]);
    assert!(monitors(&node).is_empty() && node.control_groups().is_empty());
}

#[test]
fn the_next_agent_finds_the_classes_in_which_containers_were_left() {
    let Some(mut node) = node(3) else { return };
    for container in 0..3 {
        node.cgroups[container].run(SLEEPS);
        node.cgroups[container].wait_for_threads(3);
    }
    node.settle(&[be(&[0]), ls(&[1])]);
    node.restart();
    let all = [0, 1, 2].map(ContainerId);
    let found = node.host.classes_found(&[ls(&[]), class("new", shares(None, None), &[]), be(&[])], &all);
    assert_eq!(found, [(ContainerId(0), 2), (ContainerId(1), 0)]);
    assert_eq!((node.inside(0, "qosm-p-be/"), node.inside(1, "qosm-p-ls/")), (3, 3), "it only looks");
}
