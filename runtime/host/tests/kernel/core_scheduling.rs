//! Core scheduling groups on this machine's kernel, if it supports them.

use std::collections::BTreeSet;

use qosm_host::{CoreGroupReport, HostError};
use rustix::process::Pid;
use rustix::thread::{
    CapabilitySet, CoreSchedulingScope, capabilities, core_scheduling_cookie, create_core_scheduling_cookie,
    set_capabilities,
};

use super::*;

const OTHER: ContainerId = ContainerId(2);

const A: i64 = 7;
const B: i64 = 8;

/// Two containers with a shell and its child in each.
struct Node {
    tree: Tree,
    paths: [String; 2],
    shells: Vec<Child>,
}

impl Node {
    /// `None` if the kernel has no core scheduling, which the test reports; the host's answer is checked nevertheless.
    fn new(name: &str) -> Option<Self> {
        let mut tree = Tree::new(&format!("cookies-{name}"));
        let support = tree.host.core_scheduling();
        if !support.works() {
            let refused = write(&mut tree.host, &[(ID, A)]).unwrap_err().to_string();
            assert!(refused.contains(&support.to_string()), "{refused}");
            assert_eq!(tree.host.reconcile_core_groups(), CoreGroupReport::default());
            let _ = writeln!(std::io::stdout(), "not run: {name}, for {support}");
            return None;
        }
        let container = tree.paths.last().unwrap().clone();
        let other = container.replace("podu/c", "podu/other");
        tree.host.create(&other).unwrap();
        tree.host.attach(Target::Container(OTHER), &other).unwrap();
        tree.paths.push(other.clone());
        let mut node = Self { tree, paths: [container, other], shells: Vec::new() };
        for path in node.paths.clone() {
            node.start(&path, "sleep 3600 & wait");
            node.wait_for(&path, 2);
        }
        Some(node)
    }

    fn start(&mut self, path: &str, command: &str) -> u32 {
        let shell = self.tree.start_in(path, command);
        let pid = shell.id();
        self.shells.push(shell);
        pid
    }

    fn pids(&self, path: &str) -> Vec<u32> {
        let directory = self.tree.directory_of(Controller::Cpu, path);
        let text = fs::read_to_string(format!("{directory}/cgroup.procs")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    fn wait_for(&self, path: &str, count: usize) {
        let begun = Instant::now();
        while self.pids(path).len() != count {
            assert!(begun.elapsed() < PATIENCE, "{path}: {:?}", self.pids(path));
            sleep(Duration::from_millis(10));
        }
    }

    /// The distinct cookies of all processes of a container.
    fn cookies(&self, place: usize) -> BTreeSet<u64> {
        self.pids(&self.paths[place]).into_iter().map(cookie).collect()
    }

    fn only_cookie(&self, place: usize) -> u64 {
        let cookies = self.cookies(place);
        assert_eq!(cookies.len(), 1, "{cookies:?}");
        cookies.into_iter().next().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for mut shell in self.shells.drain(..) {
            let _ = rustix::process::kill_process_group(Pid::from_child(&shell), rustix::process::Signal::KILL);
            let _ = shell.wait();
        }
    }
}

fn cookie(pid: u32) -> u64 {
    core_scheduling_cookie(raw(pid), CoreSchedulingScope::Thread).unwrap()
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Writes the numbers of containers' groups.
fn write(host: &mut Host, groups: &[(ContainerId, i64)]) -> Result<(), HostError> {
    let wanted: Vec<_> = groups
        .iter()
        .map(|&(container, group)| Wanted {
            target: Target::Container(container),
            knob: Knob::CoreGroup,
            value: Value::Number(group),
        })
        .collect();
    let plan = host.plan(&wanted);
    if let Some((_, _, refused)) = plan.refused.into_iter().next() {
        return Err(refused);
    }
    plan.steps.iter().try_for_each(|step| host.execute(step).map(drop))
}

/// Writes the numbers, and moves the processes.
fn put(host: &mut Host, groups: &[(ContainerId, i64)]) -> CoreGroupReport {
    write(host, groups).unwrap();
    host.reconcile_core_groups()
}

#[track_caller]
fn all_well(report: &CoreGroupReport) {
    assert!(report.problems.is_empty(), "{report:?}");
}

#[test]
fn groups_keep_apart_survive_the_agent_and_are_given_back() {
    let Some(mut node) = Node::new("groups_keep_apart_survive_the_agent_and_are_given_back") else { return };
    let apart = [(ID, A), (OTHER, B)];
    all_well(&put(&mut node.tree.host, &apart));
    let (a, b) = (node.only_cookie(0), node.only_cookie(1));
    assert!(a != 0 && b != 0 && a != b, "{a:x} {b:x}");
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        let thread = thread.unwrap().file_name().into_string().unwrap().parse().unwrap();
        // Threads of concurrent tests may end meanwhile.
        let own = core_scheduling_cookie(raw(thread), CoreSchedulingScope::Thread);
        assert!(matches!(own, Ok(0) | Err(_)), "a thread of this process has a cookie");
    }

    // A process that joins has no cookie until the next scan.
    let first = node.paths[0].clone();
    let joined = node.start(&first, "exec sleep 3600");
    node.wait_for(&first, 3);
    assert_eq!(cookie(joined), 0);
    all_well(&node.tree.host.reconcile_core_groups());
    assert_eq!(node.only_cookie(0), a);

    // Another agent continues with the same cookies, and clears those that it does not want.
    let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: node.tree.root.clone() };
    let mut next = open(&options);
    for (container, path) in [(ID, &node.paths[0]), (OTHER, &node.paths[1])] {
        next.attach(Target::Container(container), path).unwrap();
    }
    assert_eq!(next.read(Target::Container(ID), Knob::CoreGroup).unwrap(), Value::Number(A));
    all_well(&put(&mut next, &apart));
    assert_eq!((node.only_cookie(0), node.only_cookie(1)), (a, b));
    all_well(&put(&mut next, &[(ID, 0)]));
    assert_eq!((node.only_cookie(0), node.only_cookie(1)), (0, b));

    // Both containers in one group.
    all_well(&put(&mut next, &[(ID, B)]));
    assert_eq!((node.only_cookie(0), node.only_cookie(1)), (b, b));

    // A foreign cookie stays, even when all others are cleared.
    create_core_scheduling_cookie(raw(joined), CoreSchedulingScope::ThreadGroup).unwrap();
    let foreign = cookie(joined);
    all_well(&next.reconcile_core_groups());
    assert_eq!(node.cookies(0), BTreeSet::from([b, foreign]));
    write(&mut next, &[(ID, 0), (OTHER, 0)]).unwrap();
    next.finish_core_groups(PATIENCE).unwrap();
    assert_eq!((node.cookies(0), node.only_cookie(1)), (BTreeSet::from([0, foreign]), 0));
    assert_eq!(next.reconcile_core_groups(), CoreGroupReport::default());
}

#[test]
fn a_process_that_may_not_be_looked_into_is_named() {
    let Some(mut node) = Node::new("a_process_that_may_not_be_looked_into_is_named") else { return };
    write(&mut node.tree.host, &[(ID, A)]).unwrap();
    let report = std::thread::scope(|scope| {
        let without = scope.spawn(|| {
            // Only affects this thread and those that it starts.
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_PTRACE);
            sets.permitted.remove(CapabilitySet::SYS_PTRACE);
            set_capabilities(None, sets).unwrap();
            node.tree.host.reconcile_core_groups()
        });
        without.join().unwrap()
    });
    let [problem] = report.problems.as_slice() else { panic!("{report:?}") };
    let pids = node.pids(&node.paths[0]);
    assert!(problem.cgroup == node.paths[0] && problem.why.contains(&format!("process {} of", pids[0])), "{report:?}");
    assert!(problem.why.contains("CAP_SYS_PTRACE"), "{report:?}");
    assert_eq!(node.only_cookie(0), 0);
    all_well(&node.tree.host.reconcile_core_groups());
    assert_ne!(node.only_cookie(0), 0);
}
