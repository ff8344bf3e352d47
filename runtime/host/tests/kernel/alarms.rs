//! Alarms that wake the loop between two ticks.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use qosm_host::{CgroupVersion, Controller, Throttleable};
use qosm_model::alarm::{Alarm, Pressure, Resource, Scope, Trigger};
use qosm_model::knob::{Knob, Target};
use qosm_model::pod::Tier;
use qosm_model::unit::Micros;

use super::{CONTAINER, ID, POD, Tree, want};

/// Long enough for an emulated machine under load.
const PATIENCE: Duration = Duration::from_secs(120);
/// Upper bound for a report, unless the machine is busy.
const SOON: Duration = Duration::from_millis(300);

struct Watched {
    tree: Tree,
    woken: Receiver<()>,
}

impl Watched {
    fn new(name: &str) -> Self {
        let mut tree = Tree::new(name);
        let (wake, woken) = channel();
        tree.host.start_alarms(move || wake.send(()).unwrap_or_default()).unwrap();
        // Without a high weight, the group might get no CPU on a busy machine, and would never be throttled.
        let facts = tree.host.facts();
        let mount =
            facts.controllers.into_iter().find(|fact| fact.controller == Controller::Cpu).unwrap().mount.unwrap();
        for (file, most) in [("cpu.shares", "262144"), ("cpu.weight", "10000")] {
            let file = std::path::Path::new(&mount).join(&tree.root).join(file);
            if file.exists() {
                fs::write(file, most).unwrap();
            }
        }
        Self { tree, woken }
    }

    /// The first alarms.
    fn wait(&mut self) -> BTreeSet<Alarm> {
        self.woken.recv_timeout(PATIENCE).unwrap();
        self.tree.host.alarms().into_iter().map(|fired| fired.alarm).collect()
    }

    /// Drops the reports of earlier events, until none comes for a while.
    fn settle(&mut self) {
        let begun = Instant::now();
        while self.woken.recv_timeout(SOON).is_ok() {
            assert!(begun.elapsed() < PATIENCE, "it does not fall silent");
            self.tree.host.alarms();
        }
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
fn a_new_cgroup_is_reported_at_once() {
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
    watched.settle();
    watched.tree.host.create(&path).unwrap();
    assert!(watched.woken.recv_timeout(SOON).is_err());
    watched.tree.host.remove(&path).unwrap();
}

#[test]
fn pressure_above_a_threshold_is_reported_or_the_reason_why_not() {
    let mut watched = Watched::new("alarm-pressure");
    let facts = watched.tree.host.facts();
    // Without the capability the kernel only accepts windows in multiples of 2 s, and checks less often.
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
    let mut reported = BTreeSet::new();
    while reported != expected {
        assert!(begun.elapsed() < PATIENCE, "{reported:?}");
        reported.extend(watched.wait());
    }
}

#[test]
fn a_short_window_without_the_capability_is_an_error() {
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
fn a_memory_event_is_reported_or_the_reason_why_not() {
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
fn load_that_rises_suddenly_is_reported_until_nobody_asks() {
    let mut watched = Watched::new("alarm-load");
    let wanted = pressure(Scope::Pod, Some(Target::Tier(Tier::Guaranteed)), Micros(500_000));
    watched.tree.host.watch_load(Some(wanted));
    assert!(watched.woken.recv_timeout(SOON).is_err(), "it is idle");
    watched.tree.run("while :; do :; done");
    assert_eq!(watched.wait(), BTreeSet::from([wanted]));
    watched.tree.host.watch_load(None);
    watched.settle();
}

#[test]
fn a_container_that_uses_up_its_quota_is_reported_within_the_period() {
    let mut watched = Watched::new("alarm-throttled");
    let (quota, period) = (Micros(20_000), Micros(100_000));
    watched.tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 20_000)]);
    watched.tree.host.sample_throttling(&[Throttleable { container: ID, quota, period }], &[]);
    assert!(watched.woken.recv_timeout(SOON).is_err(), "it is idle");
    watched.tree.run("while :; do :; done");
    let wanted = BTreeSet::from([alarm(Trigger::Throttling, Some(CONTAINER))]);
    assert_eq!(watched.wait(), wanted);
    // Reported again in the next periods.
    assert_eq!(watched.wait(), wanted);
    watched.tree.host.sample_throttling(&[], &[]);
    // It is still throttled in each period, and would otherwise be reported in each.
    watched.settle();
}

#[test]
fn an_idle_container_among_many_is_reported_though_it_runs_in_a_nested_cgroup() {
    let mut watched = Watched::new("alarm-idle-many");
    let (quota, period) = (Micros(20_000), Micros(100_000));
    let mut containers = vec![Throttleable { container: ID, quota, period }];
    for number in 2..20 {
        let container = qosm_model::pod::ContainerId(number);
        // In the pods of two tiers, and in a bound group outside of them.
        let above = ["kubepods/burstable/podu", "kubepods", "bound"][usize::try_from(number % 3).unwrap()];
        let path = format!("{}/{above}/{number}", watched.tree.root);
        watched.tree.host.create(&path).unwrap();
        if number == 2 {
            watched.tree.paths.push(format!("{}/bound", watched.tree.root));
        }
        watched.tree.paths.push(path.clone());
        watched.tree.host.attach(Target::Container(container), &path).unwrap();
        containers.push(Throttleable { container, quota, period });
    }
    watched.tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 20_000)]);
    let beside = [containers.pop().unwrap().container];
    watched.tree.host.sample_throttling(&containers, &beside);
    assert!(watched.woken.recv_timeout(Duration::from_millis(700)).is_err(), "all are idle");
    let inside = format!("{}/kubepods/burstable/podu/c/inside", watched.tree.root);
    watched.tree.host.create(&inside).unwrap();
    watched.tree.paths.push(inside);
    watched.tree.run("while :; do :; done");
    watched.woken.recv_timeout(PATIENCE).unwrap();
    let fired = watched.tree.host.alarms().into_iter().map(|fired| (fired.alarm, fired.after_rest)).collect::<Vec<_>>();
    assert_eq!(fired, [(alarm(Trigger::Throttling, Some(CONTAINER)), true)]);
    watched.woken.recv_timeout(PATIENCE).unwrap();
    assert!(watched.tree.host.alarms().iter().all(|fired| !fired.after_rest), "it has not rested since");
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
    let container = qosm_model::pod::ContainerId(9);
    let about = Throttleable { container, quota: Micros(20_000), period: Micros(100_000) };
    watched.tree.host.sample_throttling(&[about], &[]);
    watched.tree.host.remove(&path).unwrap();
    watched.tree.host.detach(target);
    wait_for_rest(4);
    watched.tree.host.watch(&BTreeSet::new());
    assert_eq!(watched.tree.host.watches(), 0);
}

#[test]
fn without_alarms_the_thread_costs_nothing() {
    let mut watched = Watched::new("alarm-idle");
    let wanted = [alarm(Trigger::ContainerStarted, Some(POD)), alarm(Trigger::MemoryEvents, Some(CONTAINER))];
    watched.tree.host.watch(&BTreeSet::from(wanted));
    wait_for_rest(0);
}

/// Waits until the alarm thread of this test has woken at most this often within half a second. The thread has some
/// work to do before that, and on a busy machine it does it late; a thread that spins never comes to rest.
#[track_caller]
fn wait_for_rest(most: u64) {
    let begun = Instant::now();
    loop {
        let before = wakeups();
        sleep(Duration::from_millis(500));
        let now = wakeups();
        // Compare the same thread: a thread that was just started has no name yet.
        if let (Some((thread, before)), Some((same, now))) = (before, now)
            && thread == same
            && now - before <= most
        {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "it still wakes: {before:?}, and half a second later {now:?}");
    }
}

/// The alarm thread of this test, and its number of voluntary context switches. Kernel tests run one after the other:
/// it is the youngest thread.
fn wakeups() -> Option<(u32, u64)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let numbers = tasks.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |task: &u32| {
        fs::read_to_string(format!("/proc/self/task/{task}/comm")).is_ok_and(|name| name.trim() == "qosm-alarms")
    };
    let task = numbers.filter(is_ours).max()?;
    let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    Some((task, line.trim().parse().unwrap()))
}
