//! Which cgroup files stay open, and how writes of other programs are detected without reading them.

use std::collections::BTreeSet;
use std::fs;

use qosm_host::{CgroupVersion, Controller};
use qosm_model::knob::{Knob, Target};
use qosm_model::pod::ContainerId;

use super::{CONTAINER, POD, Tree};

const CONTAINERS: u32 = 5;

/// A tree with more containers in its pod.
fn crowded(name: &str) -> (Tree, Vec<ContainerId>) {
    let mut tree = Tree::new(name);
    let ids: Vec<_> = (1..=CONTAINERS).map(ContainerId).collect();
    for id in ids.iter().skip(1) {
        let path = format!("{}/kubepods/burstable/podu/c{}", tree.root, id.0);
        tree.host.create(&path).unwrap();
        tree.paths.push(path.clone());
        tree.host.attach(Target::Container(*id), &path).unwrap();
    }
    (tree, ids)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Number of files with a container's CPU time and throttling.
fn counters(tree: &Tree) -> usize {
    let is_v2 = |controller| tree.version(controller) == Some(CgroupVersion::V2);
    if is_v2(Controller::Cpu) && is_v2(Controller::Cpuacct) { 1 } else { 2 }
}

#[test]
fn only_what_is_read_turn_after_turn_is_kept_open() {
    let (mut tree, ids) = crowded("kept");
    tree.host.watch_writes().unwrap();
    let counters = counters(&tree);
    let before = descriptors();
    for turn in 0..10 {
        tree.host.begin_tick();
        for &id in &ids {
            tree.host.cpu_counters(id).unwrap();
        }
        // One quota is read in every turn; the others only once.
        tree.host.bandwidth(CONTAINER).unwrap();
        if turn == 5 {
            for target in ids.iter().map(|&id| Target::Container(id)).chain([POD]) {
                tree.host.bandwidth(target).unwrap();
                tree.host.read(target, Knob::CfsQuota).unwrap();
            }
        }
    }
    let kept = ids.len() * counters + 1;
    // Files that were read twice in turn 5 stay open for a while.
    assert!(tree.host.open_files() >= kept, "{}", tree.host.open_files());
    for _ in 0..64 {
        tree.host.begin_tick();
        for &id in &ids {
            tree.host.cpu_counters(id).unwrap();
        }
        tree.host.bandwidth(CONTAINER).unwrap();
    }
    assert_eq!(tree.host.open_files(), kept);
    assert_eq!(descriptors() - before, kept);
    // A column that no policy imports any more releases its descriptors.
    for _ in 0..64 {
        tree.host.begin_tick();
    }
    assert_eq!((tree.host.open_files(), descriptors()), (0, before));
}

#[test]
fn writes_of_others_are_detected_and_the_kernels_own_are_not() {
    let mut tree = Tree::new("heard");
    tree.host.watch_writes().unwrap();
    assert!(tree.host.detects_writes());
    tree.host.written_targets();
    assert_eq!(tree.host.written_targets(), BTreeSet::new());

    let (directory, version) = (tree.directory(Controller::Cpu), tree.version(Controller::Cpu));
    let file = if version == Some(CgroupVersion::V2) { "cpu.max" } else { "cpu.cfs_quota_us" };
    fs::write(format!("{directory}/{file}"), "50000").unwrap();
    assert_eq!(tree.host.written_targets(), BTreeSet::from([CONTAINER]), "{directory}/{file}");
    assert_eq!(tree.host.written_targets(), BTreeSet::new(), "once");

    // Neither a new process nor a read counts as a write of a knob.
    tree.run("sleep 60");
    fs::read_to_string(format!("{directory}/{file}")).unwrap();
    assert_eq!(tree.host.written_targets(), BTreeSet::new());

    // A cached period is valid until the next write to its file.
    if version == Some(CgroupVersion::V1) {
        assert_eq!(tree.host.bandwidth(CONTAINER).unwrap().period.0, 100_000);
        fs::write(format!("{directory}/cpu.cfs_period_us"), "200000").unwrap();
        assert_eq!(tree.host.written_targets(), BTreeSet::from([CONTAINER]));
        assert_eq!(tree.host.bandwidth(CONTAINER).unwrap().period.0, 200_000);
    }

    // Turning a controller off and on again resets its knobs without a write to them.
    if version == Some(CgroupVersion::V2) {
        let (above, _) = directory.rsplit_once('/').unwrap();
        fs::write(format!("{above}/cgroup.subtree_control"), "+cpu").unwrap();
        assert_eq!(tree.host.written_targets(), BTreeSet::from([CONTAINER]));
    }

    tree.host.detach(CONTAINER);
    fs::write(format!("{directory}/{file}"), "60000").unwrap();
    assert_eq!(tree.host.written_targets(), BTreeSet::new(), "whoever is not attached is nobody's");
}

/// Another one may take its place under the same path, in which nothing is set.
#[test]
fn a_cgroup_that_is_removed_counts_as_written() {
    let mut tree = Tree::new("removed");
    tree.host.watch_writes().unwrap();
    tree.host.written_targets();
    let directory = tree.directory(Controller::Cpu);
    fs::remove_dir(&directory).unwrap();
    assert_eq!(tree.host.written_targets(), BTreeSet::from([CONTAINER]));
    fs::create_dir(&directory).unwrap();
    assert_eq!(tree.host.written_targets(), BTreeSet::new());
}
