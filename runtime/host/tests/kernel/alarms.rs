//! What wakes the loop between two ticks.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use qosm_host::{CgroupVersion, Controller, Throttleable};
use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::knob::{Knob, Target};
use qosm_model::unit::Micros;

use super::{CONTAINER, ID, POD, Tree, want};

/// Long enough for an emulated machine under load.
const PATIENCE: Duration = Duration::from_secs(60);

struct Watched {
    tree: Tree,
    woken: Receiver<()>,
}

impl Watched {
    fn new(name: &str) -> Self {
        let mut tree = Tree::new(name);
        let (wake, woken) = channel();
        tree.host.start_alarms(move || wake.send(()).unwrap_or_default()).unwrap();
        Self { tree, woken }
    }

    /// The alarms that come first.
    fn wait(&mut self) -> BTreeSet<Alarm> {
        self.woken.recv_timeout(PATIENCE).unwrap();
        self.tree.host.alarms()
    }

    fn is_v2(&self, controller: Controller) -> bool {
        self.tree.version(controller) == Some(CgroupVersion::V2)
    }

    fn missing(&self) -> Vec<String> {
        self.tree.host.unwatched().map(|(_, why)| why.to_owned()).collect()
    }
}

fn alarm(trigger: Trigger, target: Option<Target>) -> Alarm {
    Alarm { trigger, target }
}

fn pressure(scope: Scope, target: Option<Target>, window: Micros) -> Alarm {
    alarm(
        Trigger::Pressure(Pressure { scope, resource: Resource::Cpu, full: false, stall: Micros(20_000), window }),
        target,
    )
}

#[test]
fn a_new_cgroup_is_told_at_once() {
    let mut watched = Watched::new("alarm-started");
    let wanted = alarm(Trigger::ContainerStarted, Some(POD));
    watched.tree.host.watch(&BTreeSet::from([wanted]));
    assert_eq!((watched.tree.host.watches(), watched.missing()), (1, vec![]));
    let path = format!("{}/kubepods/burstable/podu/new", watched.tree.root);
    for _ in 0..2 {
        watched.tree.host.create(&path).unwrap();
        assert_eq!(watched.wait(), BTreeSet::from([wanted]));
        watched.tree.host.remove(&path).unwrap();
    }
    watched.tree.host.watch(&BTreeSet::new());
    watched.tree.host.create(&path).unwrap();
    assert!(watched.woken.recv_timeout(Duration::from_millis(300)).is_err());
    watched.tree.host.remove(&path).unwrap();
}

#[test]
fn pressure_above_a_threshold_is_told_or_it_is_said_why_not() {
    let mut watched = Watched::new("alarm-pressure");
    let facts = watched.tree.host.facts();
    // Without the capability the kernel takes windows of whole two seconds, and looks less often.
    let window = Micros(if facts.capabilities.sys_resource { 500_000 } else { 2_000_000 });
    let of_node = pressure(Scope::Node, None, window);
    let of_container = pressure(Scope::Container, Some(CONTAINER), window);
    watched.tree.host.watch(&BTreeSet::from([of_node, of_container]));
    let missing = watched.missing();
    let mut expected = BTreeSet::from([of_node, of_container]);
    if !facts.psi {
        assert_eq!(missing, ["the kernel accounts no pressure: boot with psi=1"; 2]);
        return;
    }
    if !watched.is_v2(Controller::Cpu) {
        expected.remove(&of_container);
        // Hybrid layouts have a v2 tree, in which this container has no cgroup.
        let why = ["there is no pressure file in its cgroup", "pressure of cgroups needs cgroup v2"];
        assert!(missing.len() == 1 && why.contains(&missing[0].as_str()), "{missing:?}");
    }
    // More threads than CPUs.
    let threads = facts.cpus * 2 + 1;
    watched.tree.run(&format!("for n in $(seq {threads}); do while :; do :; done & done; wait"));
    let begun = Instant::now();
    let mut told = BTreeSet::new();
    while told != expected {
        assert!(begun.elapsed() < PATIENCE, "{told:?}");
        told.extend(watched.wait());
    }
}

#[test]
fn a_short_window_without_the_capability_is_told() {
    let mut watched = Watched::new("alarm-window");
    let facts = watched.tree.host.facts();
    watched.tree.host.watch(&BTreeSet::from([pressure(Scope::Node, None, Micros(500_000))]));
    let expected: &[&str] = match (facts.psi, facts.capabilities.sys_resource) {
        (false, _) => &["the kernel accounts no pressure: boot with psi=1"],
        (true, false) => &["a window below 2 s needs CAP_SYS_RESOURCE"],
        (true, true) => &[],
    };
    assert_eq!(watched.missing(), expected);
}

#[test]
fn an_event_of_memory_is_told_or_it_is_said_why_not() {
    let mut watched = Watched::new("alarm-memory");
    let wanted = alarm(Trigger::MemoryEvents, Some(CONTAINER));
    watched.tree.host.watch(&BTreeSet::from([wanted]));
    if !watched.is_v2(Controller::Memory) {
        assert_eq!(watched.missing(), ["memory.events is a file of cgroup v2"]);
        return;
    }
    assert_eq!(watched.missing(), [""; 0]);
    watched.tree.carry_out(&[want(CONTAINER, Knob::MemoryHigh, 4 << 20)]);
    watched.tree.run("x=$(head -c 16000000 /dev/zero | tr '\\0' x); sleep 60");
    assert_eq!(watched.wait(), BTreeSet::from([wanted]));
}

#[test]
fn a_container_that_uses_up_its_quota_is_told_within_the_period() {
    let mut watched = Watched::new("alarm-throttled");
    let (quota, period) = (Micros(20_000), Micros(100_000));
    watched.tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 20_000)]);
    watched.tree.host.sample_throttling(&[Throttleable { container: ID, quota, period }]);
    assert!(watched.woken.recv_timeout(Duration::from_millis(300)).is_err(), "it is idle");
    watched.tree.run("while :; do :; done");
    let wanted = BTreeSet::from([alarm(Trigger::Throttling, Some(CONTAINER))]);
    assert_eq!(watched.wait(), wanted);
    // And again in the next periods.
    assert_eq!(watched.wait(), wanted);
    watched.tree.host.sample_throttling(&[]);
    sleep(Duration::from_millis(50));
    watched.woken.try_iter().count();
    watched.tree.host.alarms();
    assert!(watched.woken.recv_timeout(Duration::from_millis(300)).is_err(), "nobody is looked at");
}

#[test]
fn a_cgroup_that_goes_takes_its_watches_along() {
    let mut watched = Watched::new("alarm-gone");
    let path = format!("{}/kubepods/burstable/podu/short", watched.tree.root);
    watched.tree.host.create(&path).unwrap();
    let target = Target::Container(qosm_model::pod::ContainerId(9));
    watched.tree.host.attach(target, &path).unwrap();
    let wanted = [
        pressure(Scope::Container, Some(target), Micros(2_000_000)),
        alarm(Trigger::MemoryEvents, Some(target)),
        alarm(Trigger::ContainerStarted, Some(target)),
    ];
    watched.tree.host.watch(&BTreeSet::from(wanted));
    watched.tree.host.sample_throttling(&[Throttleable {
        container: qosm_model::pod::ContainerId(9),
        quota: Micros(20_000),
        period: Micros(100_000),
    }]);
    watched.tree.host.remove(&path).unwrap();
    watched.tree.host.detach(target);
    sleep(Duration::from_millis(100));
    let before = wakeups();
    sleep(Duration::from_millis(300));
    assert!(wakeups() - before < 5, "the thread does not go round and round over what is gone");
    watched.tree.host.watch(&BTreeSet::new());
    assert_eq!(watched.tree.host.watches(), 0);
}

#[test]
fn nothing_to_tell_costs_nothing() {
    let mut watched = Watched::new("alarm-idle");
    let wanted = [alarm(Trigger::ContainerStarted, Some(POD)), alarm(Trigger::MemoryEvents, Some(CONTAINER))];
    watched.tree.host.watch(&BTreeSet::from(wanted));
    sleep(Duration::from_millis(100));
    let before = wakeups();
    sleep(Duration::from_millis(500));
    assert_eq!(wakeups(), before);
}

/// How often the thread of this test gave up its CPU to wait. Kernel tests run one after the other: it is the youngest.
fn wakeups() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let numbers = tasks.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |task: &u32| {
        fs::read_to_string(format!("/proc/self/task/{task}/comm")).is_ok_and(|name| name.trim() == "qosm-alarms")
    };
    let task = numbers.filter(is_ours).max().unwrap();
    let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}
