//! CPUs of cgroups, and memory limits that cannot be lowered, on this machine's kernel.

use std::fs;

use qosm_host::{CgroupVersion, Controller, Executed, HostError, Wanted};
use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, Tier};

use super::{CONTAINER, POD, TIER, Tree, want};

const SANDBOX: Target = Target::Container(ContainerId(2));
const TARGETS: [Target; 5] = [Target::Tier(Tier::Guaranteed), TIER, POD, CONTAINER, SANDBOX];

/// A tree with cpusets as a kubelet and a runtime create it: on v1 each group has its parent's list. Processes run in
/// the container and in the sandbox.
struct Cpusets {
    tree: Tree,
    directories: Vec<String>,
    sleepers: Vec<std::process::Child>,
    all: CpuSet,
}

impl Cpusets {
    fn new(name: &str) -> Self {
        let mut tree = Tree::new(name);
        let all = CpuSet::of(&tree.host.online_cpus()).unwrap();
        assert!(all.len() >= 2, "the tests take two CPUs");
        let sandbox = format!("{}/kubepods/burstable/podu/pause", tree.root);
        tree.host.create(&sandbox).unwrap();
        tree.paths.insert(3, sandbox);
        let paths = tree.paths.clone();
        let mut directories = Vec::new();
        if tree.version(Controller::Cpuset) == Some(CgroupVersion::V1) {
            for path in [tree.root.clone()].iter().chain(&paths) {
                let directory = tree.directory_of(Controller::Cpuset, path);
                fs::create_dir(&directory).unwrap();
                directories.push(directory.clone());
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let above = directory.rsplit_once('/').unwrap().0;
                    fs::write(format!("{directory}/{file}"), fs::read(format!("{above}/{file}")).unwrap()).unwrap();
                }
            }
        } else {
            let root = tree.directory_of(Controller::Cpuset, "");
            for path in ["".to_owned(), tree.root.clone()].iter().chain(&paths[..3]) {
                fs::write(format!("{root}/{path}/cgroup.subtree_control"), "+cpuset").unwrap();
            }
        }
        // Attach again, including the new directories.
        for (target, path) in TARGETS.into_iter().zip([&paths[0], &paths[1], &paths[2], &paths[4], &paths[3]]) {
            tree.host.attach(target, path).unwrap();
        }
        let mut cpusets = Self { tree, directories, sleepers: Vec::new(), all };
        for target in [CONTAINER, SANDBOX] {
            let path = cpusets.tree.host.attached_path(target).unwrap().to_owned();
            let procs = format!("{}/cgroup.procs", cpusets.tree.directory_of(Controller::Cpuset, &path));
            let sleeper = cpusets.tree.start_in(&path, "while :; do sleep 1; done");
            fs::write(procs, sleeper.id().to_string()).unwrap();
            cpusets.sleepers.push(sleeper);
        }
        cpusets
    }

    fn is_v1(&self) -> bool {
        self.tree.version(Controller::Cpuset) == Some(CgroupVersion::V1)
    }

    /// Executes a plan; the kernel accepts each of its steps.
    fn set(&mut self, values: &[(Target, Value)]) {
        let wanted = |&(target, value): &(Target, Value)| Wanted { target, knob: Knob::CpusetCpus, value };
        let plan = self.tree.host.plan(&values.iter().map(wanted).collect::<Vec<_>>());
        assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        for step in &plan.steps {
            assert!(matches!(self.tree.host.execute(step).unwrap(), Executed::Done(_)), "{step:?}");
        }
    }

    /// The CPUs on which the container's process may run.
    fn allowed(&self) -> CpuSet {
        let status = fs::read_to_string(format!("/proc/{}/status", self.sleepers[0].id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().parse().unwrap()
    }

    fn write(&self, target: Target, list: &str) -> std::io::Result<()> {
        fs::write(self.tree.host.file(target, Knob::CpusetCpus).unwrap().path, list)
    }
}

impl Drop for Cpusets {
    fn drop(&mut self) {
        for sleeper in &mut self.sleepers {
            let _ = rustix::process::kill_process_group(
                rustix::process::Pid::from_child(sleeper),
                rustix::process::Signal::KILL,
            );
            let _ = sleeper.wait();
        }
        for directory in self.directories.iter().rev() {
            for _ in 0..100 {
                if fs::remove_dir(directory).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
}

fn cpus(list: &[u32]) -> Value {
    Value::Cpus(CpuSet::of(list).unwrap())
}

#[test]
fn cpus_of_a_tier_go_down_and_elsewhere_and_come_back() {
    let mut node = Cpusets::new("cpus");
    let all = node.all;
    let [first, second] = [all.iter().next().unwrap(), all.iter().nth(1).unwrap()];
    let below: Vec<Target> = if node.is_v1() { vec![TIER, POD, CONTAINER, SANDBOX] } else { vec![TIER] };
    for cpu in [first, second, first] {
        let values: Vec<_> = below.iter().map(|target| (*target, cpus(&[cpu]))).collect();
        node.set(&values);
        assert_eq!(node.allowed(), CpuSet::of(&[cpu]).unwrap());
    }
    let values: Vec<_> = below.iter().map(|target| (*target, Value::Max)).collect();
    node.set(&values);
    assert_eq!(node.allowed(), all);
    for target in &below {
        let read = node.tree.host.read(*target, Knob::CpusetCpus).unwrap();
        assert_eq!(read, if node.is_v1() { Value::Cpus(all) } else { Value::Max });
    }
}

#[test]
fn the_rules_of_sets_are_this_kernels() {
    let mut node = Cpusets::new("cpu-rules");
    let all = node.all;
    let [first, second] = [all.iter().next().unwrap(), all.iter().nth(1).unwrap()];
    let plan =
        |node: &mut Cpusets, target, value| node.tree.host.plan(&[Wanted { target, knob: Knob::CpusetCpus, value }]);
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    if node.is_v1() {
        // A parent may not lose CPUs of its children (EBUSY), and a child may not have CPUs that its parent lacks
        // (EACCES); a group with processes needs some CPUs (ENOSPC); a CPU that does not exist is invalid (EINVAL), or
        // out of the list's range (ERANGE).
        assert_eq!(errno(node.write(TIER, &first.to_string())), Some(16));
        assert!(matches!(plan(&mut node, TIER, cpus(&[first])).refused[0].2, HostError::WiderBelow { .. }));
        assert_eq!(errno(node.write(CONTAINER, "\n")), Some(28));
        assert!(matches!(errno(node.write(CONTAINER, "1023")), Some(22 | 34)));
        node.set(&[(POD, cpus(&[first])), (CONTAINER, cpus(&[first])), (SANDBOX, cpus(&[first]))]);
        assert_eq!(errno(node.write(CONTAINER, &second.to_string())), Some(13));
    } else {
        // The kernel accepts a set without available CPUs, and lets the group run on all CPUs of its parent. A group
        // with processes must keep a set of its own (ENOSPC).
        node.set(&[(POD, cpus(&[first]))]);
        node.write(CONTAINER, &second.to_string()).unwrap();
        assert_eq!(node.allowed(), CpuSet::of(&[first]).unwrap());
        assert_eq!(errno(node.write(CONTAINER, "\n")), Some(28));
    }
    for absent in [vec![second], vec![1022, 1023]] {
        let refused = plan(&mut node, CONTAINER, cpus(&absent)).refused;
        assert!(matches!(refused[0].2, HostError::NoCpus { .. }), "{refused:?}");
    }
    let clamped = plan(&mut node, POD, cpus(&[first, 1023])).clamped;
    assert_eq!(clamped[0].given, cpus(&[first]), "{clamped:?}");
}

#[test]
fn a_memory_limit_stays_above_what_is_in_use_and_nobody_is_killed() {
    let mut tree = Tree::new("memory-max");
    let bytes = 48 << 20;
    tree.run(&format!("(head -c {bytes} /dev/zero; while :; do sleep 1; done) | tail > /dev/null"));
    tree.wait_until("memory in use", |host| host.memory_counters(super::ID).unwrap().anon.0 >= 40 << 20);
    let settle = |tree: &mut Tree, value: Option<i64>| {
        let plan = tree.host.plan(&[want(CONTAINER, Knob::MemoryMax, value)]);
        assert!(plan.refused.is_empty(), "{:?}", plan.refused);
        match tree.host.execute(&plan.steps[0]) {
            Ok(Executed::Pending) => {
                let begun = std::time::Instant::now();
                loop {
                    assert!(begun.elapsed() < super::PATIENCE);
                    if let Some((.., result)) = tree.host.finished().pop() {
                        return result;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
            Ok(Executed::Done(value)) => Ok(value),
            Err(error) => Err(error),
        }
    };
    assert_eq!(settle(&mut tree, Some(96 << 20)).unwrap(), Value::Number(96 << 20));
    let error = settle(&mut tree, Some(16 << 20)).unwrap_err();
    let counters = tree.host.memory_counters(super::ID).unwrap();
    let HostError::InUse { ref stands, .. } = error else { panic!("{error}") };
    let Value::Number(stands) = **stands else { panic!("{error}") };
    assert!(stands.unsigned_abs() >= counters.usage.0, "{stands} {counters:?}");
    assert_eq!((counters.oom_kills, counters.anon.0 >= 40 << 20), (0, true), "{counters:?}");
    assert_eq!(settle(&mut tree, None).unwrap(), Value::Max);
}
