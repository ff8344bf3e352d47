//! A simulated node: containers that work by a plan, and are halted at their quota as by the kernel.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use qosm_model::unit::Micros;

use super::super::sampling_rate::SamplingRate;
use super::*;

/// Length of the simulation's steps, in microseconds.
const STEP: u64 = 100;
const PERIOD: u64 = 100_000;

/// A simulated container.
struct Load {
    path: String,
    /// CPU time per 100 ms, in microseconds; `None` without a quota.
    quota: Option<u64>,
    /// Its demand at a time in microseconds, in thousandths of a CPU.
    wants: Box<dyn Fn(u64) -> u64>,
    used: u64,
    /// Start of its current period, and the CPU time used since.
    period: (u64, u64),
    /// Times at which it was halted.
    halts: Vec<u64>,
}

impl Load {
    fn new(path: &str, quota: Option<u64>, wants: impl Fn(u64) -> u64 + 'static) -> Self {
        Self { path: path.to_owned(), quota, wants: Box::new(wants), used: 0, period: (0, 0), halts: Vec::new() }
    }

    fn step(&mut self, at: u64) {
        let wants = (self.wants)(at) * STEP / 1000;
        if at >= self.period.0 + PERIOD {
            // Periods begin with the work.
            let begin = if wants > 0 { at } else { 0 };
            self.period = (begin, 0);
        }
        let left = self.quota.map_or(u64::MAX, |quota| quota - self.period.1);
        let used = wants.min(left);
        if wants > left && left > 0 || wants > 0 && left == 0 && used == 0 && self.period.1 > 0 && !self.is_halted(at) {
            self.halts.push(at);
        }
        self.used += used;
        self.period.1 += used;
    }

    /// Whether it was halted in its current period, at `at` or before.
    fn is_halted(&self, at: u64) -> bool {
        self.halts.last().is_some_and(|last| *last >= self.period.0 && *last <= at)
    }
}

#[derive(Default)]
struct World {
    loads: Vec<Load>,
    /// Number of reads of each file.
    reads: BTreeMap<String, usize>,
    gone: Vec<String>,
}

/// A file of the simulated node.
struct File {
    world: Rc<RefCell<World>>,
    path: String,
}

impl Usage for File {
    fn usage(&self) -> Option<u64> {
        let mut world = self.world.borrow_mut();
        if world.gone.contains(&self.path) {
            return None;
        }
        *world.reads.entry(self.path.clone()).or_default() += 1;
        let is_below = |load: &&Load| {
            self.path.is_empty()
                || load
                    .path
                    .strip_prefix(&self.path)
                    .is_some_and(|rest| matches!(rest.bytes().next(), None | Some(b'/')))
        };
        Some(world.loads.iter().filter(is_below).map(|load| load.used).sum())
    }
}

struct Node {
    world: Rc<RefCell<World>>,
    sampler: Sampler<File>,
    sampling_rate: SamplingRate,
    start: Instant,
    at: u64,
    next: u64,
    cpu: Duration,
    /// Duration of a read.
    read: Duration,
    rounds: usize,
    has_lost: bool,
    /// Reported containers, the time in microseconds, and whether each was idle before.
    reported: Vec<(usize, u64, bool)>,
}

impl Node {
    fn new(loads: Vec<Load>) -> Self {
        let world = Rc::new(RefCell::new(World { loads, ..World::default() }));
        let mut node = Self {
            world,
            sampler: Sampler::default(),
            sampling_rate: SamplingRate::default(),
            start: Instant::now(),
            at: 0,
            next: 0,
            cpu: Duration::ZERO,
            read: Duration::from_micros(1),
            rounds: 0,
            has_lost: false,
            reported: Vec::new(),
        };
        node.arrange(true);
        node
    }

    fn arrange(&mut self, takes_root: bool) {
        let watched = |(number, load): (usize, &Load)| {
            let container = id(number);
            let about =
                load.quota.map(|quota| Throttleable { container, quota: Micros(quota), period: Micros(PERIOD) });
            SampledContainer { container, about, path: load.path.clone() }
        };
        let watched = self.world.borrow().loads.iter().enumerate().map(watched).collect();
        let world = &self.world;
        self.sampler.arrange(watched, takes_root, |index| {
            let path = match index {
                UsageSource::Group(path) => path.to_owned(),
                UsageSource::Container(ContainerId(number)) => {
                    world.borrow().loads[usize::try_from(number).unwrap()].path.clone()
                }
            };
            let is_gone = world.borrow().gone.contains(&path);
            (!is_gone).then(|| File { world: Rc::clone(world), path })
        });
        self.next = self.at;
    }

    fn run(&mut self, micros: u64) {
        let until = self.at + micros;
        while self.at < until {
            if self.at >= self.next {
                self.sample_round();
            }
            for load in &mut self.world.borrow_mut().loads {
                load.step(self.at);
            }
            self.at += STEP;
        }
    }

    fn sample_round(&mut self) {
        let now = self.start + Duration::from_micros(self.at);
        let round = self.sampler.round(now, self.sampling_rate.allowance());
        self.rounds += 1;
        self.has_lost |= round.has_lost;
        self.cpu += Duration::from_micros(4) + self.read * u32::try_from(round.reads).unwrap();
        let space = self.sampling_rate.next_interval(&round, now, self.cpu);
        self.next = self.at + u64::try_from(space.as_micros()).unwrap();
        let reported = round.throttled.iter();
        self.reported
            .extend(reported.map(|&(ContainerId(number), first)| (usize::try_from(number).unwrap(), self.at, first)));
    }

    /// Time from the first halt of a container after `from` until its report, in milliseconds.
    fn reaction(&self, container: usize, from: u64) -> Option<f64> {
        let halt = *self.world.borrow().loads[container].halts.iter().find(|halt| **halt >= from)?;
        let reported = self.reported.iter().find(|(who, at, _)| *who == container && *at >= halt)?.1;
        Some((reported - halt) as f64 / 1000.0)
    }

    fn reads(&mut self) -> BTreeMap<String, usize> {
        std::mem::take(&mut self.world.borrow_mut().reads)
    }

    /// Resets the counts.
    fn begin_count(&mut self) {
        self.reads();
        self.rounds = 0;
    }
}

fn id(number: usize) -> ContainerId {
    ContainerId(u32::try_from(number).unwrap())
}

/// Idle containers in three tiers, with a quota of 20 ms each.
fn idle(containers: usize) -> Vec<Load> {
    let tier = ["kubepods", "kubepods/burstable", "kubepods/besteffort"];
    let load = |number: usize| Load::new(&format!("{}/pod{number}/{number}", tier[number % 3]), Some(20_000), |_| 0);
    (0..containers).map(load).collect()
}

/// A load of `cpus` CPUs from a time on.
fn from(begin: u64, cpus: u64) -> impl Fn(u64) -> u64 {
    move |at| if at >= begin { cpus * 1000 } else { 0 }
}

fn percentile(mut values: Vec<f64>, percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[(values.len() - 1) * percent / 100]
}

/// Reactions to a container on an idle node, which begins to work at times spread over a round and a tick.
fn reactions(quota: u64, cpus: u64, others: fn() -> Vec<Load>) -> Vec<f64> {
    let begins = (0..20).map(|trial| 1_000_000 + trial * 700);
    let reaction = |begin: u64| {
        let mut loads = others();
        let container = loads.len();
        loads.push(Load::new("kubepods/burstable/podx/x", Some(quota), from(begin, cpus)));
        let mut node = Node::new(loads);
        node.run(begin + 150_000);
        let reaction =
            node.reaction(container, begin).unwrap_or_else(|| panic!("{quota} µs, {cpus} CPUs, {begin}: not reported"));
        let first = node.reported.iter().find(|(who, ..)| *who == container).unwrap();
        assert!(first.2, "it was at rest before");
        reaction
    };
    begins.map(reaction).collect()
}

#[test]
fn an_idle_container_is_reported_as_soon_as_its_quota_is_used_up() {
    for (quota, cpus) in
        [(1_000, 1), (2_000, 2), (5_000, 1), (20_000, 1), (20_000, 2), (20_000, 16), (90_000, 1), (400_000, 8)]
    {
        let reactions = reactions(quota, cpus, || idle(300));
        let (p90, longest) = (percentile(reactions.clone(), 90), percentile(reactions, 100));
        assert!(p90 <= 14.0 && longest <= 16.0, "{quota} µs with {cpus} CPUs: p90 {p90} ms, longest {longest} ms");
    }
}

#[test]
fn active_neighbours_do_not_delay_the_report() {
    // A container that is halted in each period, one without a quota, and one of another tier.
    fn busy() -> Vec<Load> {
        let mut loads = idle(297);
        loads.push(Load::new("kubepods/burstable/poda/a", Some(30_000), |_| 1000));
        loads.push(Load::new("kubepods/burstable/podb/b", None, |_| 4000));
        loads.push(Load::new("kubepods/besteffort/podc/c", None, |_| 8000));
        loads
    }
    for (quota, cpus) in [(5_000, 1), (20_000, 1), (20_000, 16), (90_000, 1)] {
        let reactions = reactions(quota, cpus, busy);
        let (p90, longest) = (percentile(reactions.clone(), 90), percentile(reactions, 100));
        assert!(p90 <= 12.0 && longest <= 16.0, "{quota} µs with {cpus} CPUs: p90 {p90} ms, longest {longest} ms");
    }
}

#[test]
fn an_idle_node_costs_one_read_a_round_however_many_containers_it_has() {
    for containers in [4, 30, 300] {
        let mut node = Node::new(idle(containers));
        node.run(100_000);
        node.begin_count();
        node.run(1_000_000);
        assert_eq!(node.rounds, 100);
        assert_eq!(node.reads(), BTreeMap::from([("kubepods".to_owned(), 100)]), "{containers} containers");
    }
}

#[test]
fn a_nearly_idle_node_costs_the_reads_of_its_tiers() {
    // 1 % of a CPU each in a tenth of the containers: none is near its quota.
    let mut loads = idle(300);
    for load in loads.iter_mut().step_by(10) {
        load.wants = Box::new(|at| if at % 100_000 < 1_000 { 1000 } else { 0 });
    }
    let mut node = Node::new(loads);
    node.run(1_000_000);
    node.begin_count();
    node.run(1_000_000);
    let reads = node.reads();
    let of_tiers: usize =
        ["kubepods", "kubepods/burstable", "kubepods/besteffort"].iter().map(|tier| reads[*tier]).sum();
    let of_containers = reads.values().sum::<usize>() - of_tiers;
    assert!(of_tiers <= node.rounds * 3, "{of_tiers} in {} rounds", node.rounds);
    // 300 ms were used: each container is sampled once for every 12 ms that its tier used.
    assert!(of_containers <= 300 * 300 / 12, "{of_containers}");
    assert_eq!(node.reported, []);
}

#[test]
fn an_active_container_is_sampled_and_its_idle_neighbour_is_not() {
    let mut loads = idle(298);
    loads.push(Load::new("kubepods/burstable/poda/a", Some(30_000), |_| 1000));
    loads.push(Load::new("kubepods/burstable/podb/b", None, |_| 4000));
    let mut node = Node::new(loads);
    node.run(1_000_000);
    node.begin_count();
    node.run(1_000_000);
    let reads = node.reads();
    assert!(reads["kubepods/burstable/poda/a"] > 150, "{reads:?}");
    let others: usize = reads
        .iter()
        .filter(|(path, _)| path.matches('/').count() == 3 && !path.ends_with("/a") && !path.ends_with("/b"))
        .map(|(_, reads)| reads)
        .sum();
    assert_eq!(others, 0, "{reads:?}");
    assert_eq!(reads.get("kubepods/besteffort"), Some(&node.rounds), "the tier is sampled, since the node is active");
    assert!(!reads.keys().any(|path| path.starts_with("kubepods/besteffort/")), "{reads:?}");
}

#[test]
fn an_idle_container_is_never_reported_whatever_the_others_do() {
    // Each uses half of its quota, all together many times one quota.
    let wants = |number: u64| move |at: u64| if (at + number * 13_700) % 100_000 < 10_000 { 1000 } else { 0 };
    let mut loads = idle(100);
    for (number, load) in (0..).zip(&mut loads) {
        load.wants = Box::new(wants(number));
    }
    let mut node = Node::new(loads);
    node.run(3_000_000);
    assert_eq!(node.reported, []);
}

#[test]
fn throttling_is_reported_once_in_each_period_and_first_after_idling() {
    let mut loads = idle(10);
    // Two periods of work, a second of rest, one period of work.
    let is_active = |at: u64| matches!(at, 500_000..700_000 | 1_700_000..1_800_000);
    loads.push(Load::new("kubepods/burstable/podx/x", Some(20_000), move |at| if is_active(at) { 1000 } else { 0 }));
    let mut node = Node::new(loads);
    node.run(2_000_000);
    let reported: Vec<_> = node.reported.iter().map(|(who, at, first)| (*who, at / 100_000, *first)).collect();
    assert_eq!(reported, [(10, 5, true), (10, 6, false), (10, 17, true)]);
}

#[test]
fn a_fully_active_node_costs_no_more_than_the_budget() {
    let mut loads = idle(300);
    for (number, load) in (0_u64..).zip(&mut loads) {
        load.wants = Box::new(move |at| if (at / 1000 + number) % 3 == 0 { 400 } else { 0 });
    }
    let mut node = Node::new(loads);
    node.run(500_000);
    let before = node.cpu;
    node.run(3_000_000);
    let cost = node.cpu - before;
    assert!(cost <= Duration::from_millis(30 + 5), "{cost:?} in 3 s");
}

#[test]
fn with_too_many_to_sample_each_has_its_turn() {
    let wants = |number: u64| move |at: u64| if (at / 1000 + number).is_multiple_of(20) { 1000 } else { 0 };
    let mut loads = idle(300);
    for (number, load) in (0..).zip(&mut loads) {
        (load.wants, load.quota) = (Box::new(wants(number)), Some(200_000));
    }
    let mut node = Node::new(loads);
    node.read = Duration::from_micros(20);
    node.run(1_000_000);
    node.begin_count();
    node.run(4_000_000);
    let reads = node.reads();
    let of_containers: Vec<usize> = reads
        .iter()
        .filter(|(path, _)| path.matches('/').count() >= 2 && path.ends_with(|c: char| c.is_ascii_digit()))
        .map(|(_, reads)| *reads)
        .collect();
    assert_eq!(of_containers.len(), 300);
    let (least, most) = (of_containers.iter().min().unwrap(), of_containers.iter().max().unwrap());
    assert!(*least > 0 && *most <= least * 2, "{least} to {most}");
}

#[test]
fn containers_outside_of_kubepods_are_seen_as_well() {
    for takes_root in [true, false] {
        for others in [0, 2, 40] {
            let mut loads: Vec<_> = (0..others).map(|n| Load::new(&format!("bound{n}"), Some(20_000), |_| 0)).collect();
            loads.push(Load::new("service", Some(20_000), from(1_003_000, 1)));
            loads.push(Load::new("system.slice/a.service", Some(20_000), from(1_203_000, 2)));
            let mut node = Node::new(loads);
            node.arrange(takes_root);
            node.run(1_400_000);
            for (container, begin) in [(others, 1_003_000), (others + 1, 1_203_000)] {
                let reaction = node.reaction(container, begin);
                assert!(
                    reaction.is_some_and(|millis| millis <= 16.0),
                    "{others} others, {container}: {reaction:?} {:?}",
                    node.reported
                );
            }
        }
    }
}

#[test]
fn a_nested_cgroup_is_sampled_whatever_is_active_around_it() {
    let mut loads = idle(20);
    loads.push(Load::new("kubepods/burstable/podo/o", Some(50_000), |_| 1000));
    loads.push(Load::new("kubepods/burstable/podo/o/inner", Some(20_000), from(1_003_000, 1)));
    let mut node = Node::new(loads);
    node.run(1_200_000);
    let reaction = node.reaction(21, 1_003_000);
    assert!(reaction.is_some_and(|millis| millis <= 16.0), "{reaction:?}");
}

#[test]
fn a_lowered_quota_counts_from_the_last_sample_on() {
    let mut loads = idle(20);
    loads.push(Load::new("kubepods/burstable/podx/x", Some(60_000), from(603_000, 1)));
    let mut node = Node::new(loads);
    node.run(500_000);
    node.world.borrow_mut().loads[20].quota = Some(20_000);
    let about: Vec<_> =
        (0..21).map(|n| Throttleable { container: id(n), quota: Micros(20_000), period: Micros(PERIOD) }).collect();
    assert!(node.sampler.set_quotas(&about, &[]));
    assert!(!node.sampler.set_quotas(&about[1..], &[]) && !node.sampler.set_quotas(&about[1..], &[id(0)]));
    node.run(200_000);
    assert!(node.reaction(20, 603_000).is_some_and(|millis| millis <= 14.0), "{:?}", node.reported);
}

#[test]
fn a_new_container_is_sampled_at_once_and_a_removed_one_is_reported() {
    let mut node = Node::new(idle(20));
    node.run(503_000);
    node.world.borrow_mut().loads.push(Load::new("kubepods/burstable/podx/x", Some(20_000), from(505_000, 1)));
    node.arrange(true);
    node.run(200_000);
    assert!(node.reaction(20, 505_000).is_some_and(|millis| millis <= 12.0), "{:?}", node.reported);
    node.world.borrow_mut().gone.push("kubepods/burstable/podx/x".to_owned());
    node.run(150_000);
    assert!(std::mem::take(&mut node.has_lost));
    node.run(150_000);
    assert!(!node.has_lost, "said once");
}

#[test]
fn a_removed_tier_leaves_the_others_sampled() {
    let mut node = Node::new(idle(30));
    node.run(500_000);
    node.world.borrow_mut().gone.push("kubepods/burstable".to_owned());
    node.world.borrow_mut().loads[0].wants = Box::new(from(510_000, 1));
    node.world.borrow_mut().loads[1].wants = Box::new(from(510_000, 1));
    node.run(200_000);
    assert!(node.reaction(0, 510_000).is_some(), "{:?}", node.reported);
    assert!(node.reaction(1, 510_000).is_some(), "its own file is still there");
}

#[test]
fn without_quotas_nothing_is_sampled() {
    let loads = (0..30).map(|n| Load::new(&format!("kubepods/pod{n}/{n}"), None, |_| 1000)).collect();
    let node = Node::new(loads);
    assert!(node.sampler.is_empty());
}

#[test]
fn groups_are_made_where_they_save_reads() {
    let systemd = |tier: &str, pod: usize, container: &str| {
        format!("kubepods.slice/kubepods-{tier}.slice/kubepods-{tier}-pod{pod}.slice/cri-containerd-{container}.scope")
    };
    let mut paths: Vec<String> = (0..5).map(|pod| systemd("burstable", pod, "a")).collect();
    paths.extend((0..4).map(|container| systemd("burstable", 9, &container.to_string())));
    paths.extend((0..3).map(|pod| systemd("besteffort", pod, "a")));
    paths.push("system.slice/x.service".to_owned());
    let mut watched: Vec<SampledContainer> = paths
        .into_iter()
        .enumerate()
        .map(|(n, path)| SampledContainer { container: id(n), about: None, path })
        .collect();
    watched.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
    let plan = plan(&watched, true);
    let groups: Vec<_> = plan.groups.iter().map(|(path, parent)| (path.as_deref(), *parent)).collect();
    assert_eq!(
        groups,
        [
            (None, None),
            (Some("kubepods.slice"), Some(0)),
            (Some("kubepods.slice/kubepods-burstable.slice"), Some(1)),
            (Some("kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod9.slice"), Some(2)),
        ]
    );
    assert_eq!(plan.group_of, [1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 0]);
}
