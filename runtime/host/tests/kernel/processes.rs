//! Ends the processes of a cgroup and of the cgroups below it, but no others.

use std::os::unix::process::ExitStatusExt as _;

use qosm_host::Ending;

use super::*;

const OTHER: Target = Target::Container(ContainerId(2));

/// Number of processes of a cgroup.
fn processes(tree: &Tree, path: &str) -> usize {
    let directory = tree.directory_of(Controller::Memory, path);
    fs::read_to_string(format!("{directory}/cgroup.procs")).unwrap_or_default().lines().count()
}

#[test]
fn all_processes_of_a_cgroup_end_those_that_ignore_sigterm_and_those_below_it_too() {
    let mut tree = Tree::new("ending");
    let container = tree.paths.last().unwrap().clone();
    let pod = container.trim_end_matches("/c").to_owned();
    let (below, other) = (format!("{container}/inner"), format!("{pod}/other"));
    tree.host.create(&other).unwrap();
    tree.host.attach(OTHER, &other).unwrap();
    // A nested group like a container creates: without controllers, so that v2 allows processes in its parent.
    for controller in [Controller::Cpu, Controller::Cpuacct, Controller::Memory] {
        if tree.version(controller).is_some() {
            fs::create_dir_all(tree.directory_of(controller, &below)).unwrap();
        }
    }
    tree.paths.extend([other.clone(), below.clone()]);

    let mut stubborn = tree.start_in(&container, "trap '' TERM; sleep 3600 & sleep 3600 & wait; wait; wait");
    let mut nested = tree.start_in(&below, "sleep 3600 & wait");
    let mut spared = tree.start_in(&other, "exec sleep 3600");
    for (path, count) in [(&container, 3), (&below, 2), (&other, 1)] {
        let begun = Instant::now();
        while processes(&tree, path) != count {
            assert!(begun.elapsed() < PATIENCE, "{path}: {} of {count}", processes(&tree, path));
            sleep(Duration::from_millis(10));
        }
    }

    assert_eq!(tree.host.end_processes(CONTAINER, Ending::Terminate).unwrap(), 5);
    assert_eq!(nested.wait().unwrap().signal(), Some(15));
    assert_eq!(stubborn.try_wait().unwrap(), None, "it does not heed SIGTERM");
    assert_eq!(processes(&tree, &container), 3);

    assert!(tree.host.end_processes(CONTAINER, Ending::Kill).unwrap() >= 3);
    assert_eq!(stubborn.wait().unwrap().signal(), Some(9));
    tree.wait_until("no process is left", |host| host.end_processes(CONTAINER, Ending::Kill).unwrap() == 0);
    assert_eq!((spared.try_wait().unwrap(), processes(&tree, &other)), (None, 1), "a neighbour goes on");

    // Ending a pod's processes includes all cgroups below it.
    assert_eq!(tree.host.end_processes(POD, Ending::Kill).unwrap(), 1);
    assert_eq!(spared.wait().unwrap().signal(), Some(9));
}
