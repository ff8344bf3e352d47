//! The host on this machine's own kernel, in its own cgroups. Needs root; works on cgroup v1 and v2.
#![expect(clippy::unwrap_used, reason = "tests")]

mod alarms;
mod core_scheduling;
mod cpusets;
mod descriptors;
mod processes;
mod reclaim;
mod weights;

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::simulated::{Kernel, Spec, Versions};
use qosm_host::{
    BurstRule, CgroupVersion, Controller, Directories, Driver, Executed, Host, HostError, LayoutOptions,
    MigrationLimits, Plan, Support, Wanted,
};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::numa::{Migration, MigrationProgress, MigrationState, NumaId, local_percent};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::unit::{Bytes, Micros};

/// Long enough for an emulated machine under load; a wait ends as soon as its condition holds.
const PATIENCE: Duration = Duration::from_secs(120);

const TIER: Target = Target::Tier(Tier::Burstable);
const POD: Target = Target::Pod(PodId(1));
const ID: ContainerId = ContainerId(1);
const CONTAINER: Target = Target::Container(ID);

/// A kubepods-like tree that is removed at the end of the test, whatever its outcome.
struct Tree {
    host: Host,
    root: String,
    paths: Vec<String>,
    load: Option<Child>,
}

impl Tree {
    fn new(name: &str) -> Self {
        let root = format!("qosm-test-{}-{name}", std::process::id());
        let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: root.clone() };
        let mut tree = Self { host: open(&options), root, paths: Vec::new(), load: None };
        for (target, below) in [
            (Target::Tier(Tier::Guaranteed), "kubepods"),
            (TIER, "kubepods/burstable"),
            (POD, "kubepods/burstable/podu"),
            (CONTAINER, "kubepods/burstable/podu/c"),
        ] {
            let path = format!("{}/{below}", tree.root);
            tree.host.create(&path).unwrap();
            tree.paths.push(path.clone());
            tree.host.attach(target, &path).unwrap();
        }
        tree
    }

    fn carry_out(&mut self, wanted: &[Wanted]) -> Plan {
        let plan = self.host.plan(wanted);
        for step in &plan.steps {
            match self.host.execute(step).unwrap() {
                Executed::Done(value) => assert_eq!(value, step.to, "{step:?}"),
                Executed::Pending => self.wait_for(step.target, step.knob, step.to),
            }
        }
        plan
    }

    fn wait_for(&mut self, target: Target, knob: Knob, value: Value) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            for (of, which, result) in self.host.finished() {
                if (of, which) == (target, knob) {
                    assert_eq!(result.unwrap(), value);
                    return;
                }
            }
            sleep(Duration::from_millis(5));
        }
        unreachable!("{knob} was not written within {PATIENCE:?}");
    }

    /// Polls until the condition holds.
    #[track_caller]
    fn wait_until(&mut self, what: &str, is_so: impl Fn(&mut Host) -> bool) {
        let begun = Instant::now();
        while !is_so(&mut self.host) {
            assert!(begun.elapsed() < PATIENCE, "waited in vain for: {what}");
            sleep(Duration::from_millis(50));
        }
    }

    fn version(&self, controller: Controller) -> Option<CgroupVersion> {
        self.host.facts().controllers.iter().find(|fact| fact.controller == controller).and_then(|fact| fact.version)
    }

    /// The container's directory in a controller's hierarchy.
    fn directory(&self, controller: Controller) -> String {
        self.directory_of(controller, self.paths.last().unwrap())
    }

    fn directory_of(&self, controller: Controller, path: &str) -> String {
        let facts = self.host.facts();
        let mount = facts.controllers.into_iter().find(|fact| fact.controller == controller).unwrap().mount.unwrap();
        format!("{mount}/{path}")
    }

    /// Runs a shell command in the container's cgroups.
    fn run(&mut self, command: &str) {
        let path = self.paths.last().unwrap().clone();
        self.load = Some(self.start_in(&path, command));
    }

    /// Starts a shell command in a cgroup of all hierarchies, in a process group of its own.
    fn start_in(&self, path: &str, command: &str) -> Child {
        let mut directories: Vec<_> = [Controller::Cpu, Controller::Cpuacct, Controller::Memory]
            .into_iter()
            .filter(|&controller| self.version(controller).is_some())
            .map(|controller| self.directory_of(controller, path))
            .collect();
        directories.dedup();
        let enter: String =
            directories.iter().map(|directory| format!("echo $$ > {directory}/cgroup.procs; ")).collect();
        let script = format!("{enter}{command}");
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).process_group(0).spawn().unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(mut load) = self.load.take() {
            // Kill the whole process group.
            let group = rustix::process::Pid::from_child(&load);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = load.wait();
        }
        self.paths.insert(0, self.root.clone());
        for path in self.paths.iter().rev() {
            // The kernel may count a process that was just killed for a moment longer.
            for _ in 0..100 {
                if self.host.remove(path).is_ok() {
                    break;
                }
                sleep(Duration::from_millis(10));
            }
        }
    }
}

fn open(options: &LayoutOptions) -> Host {
    let directory = |path| Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let directories = Directories {
        cgroup: directory("/sys/fs/cgroup"),
        proc: directory("/proc"),
        sys: directory("/sys"),
        kubelet: None,
        sysctl: None,
    };
    Host::open(directories, options).unwrap()
}

fn want(target: Target, knob: Knob, value: impl Into<Option<i64>>) -> Wanted {
    Wanted { target, knob, value: value.into().map_or(Value::Max, Value::Number) }
}

#[test]
fn describes_this_node() {
    let mut host = open(&LayoutOptions::default());
    let facts = host.facts();
    assert!(facts.controllers.iter().any(|fact| fact.controller == Controller::Cpu && fact.version.is_some()));
    assert!(facts.cpus >= 1 && facts.memory.0 > 0 && facts.page_size.0 >= 4096);
    assert!(host.node_cpu_busy(&[]).unwrap() > Micros(0));
    let (all, available) = host.node_memory().unwrap();
    assert!(available <= all && all == facts.memory);
    // No scratch cgroup is left.
    for fact in facts.controllers {
        let Some(mount) = fact.mount else { continue };
        let own = format!("qosm-probe-{}", std::process::id());
        let names = || fs::read_dir(&mount).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // Concurrent tests may have scratch cgroups for some milliseconds.
        let begun = Instant::now();
        while names().any(|name| name.starts_with(&own)) {
            assert!(begun.elapsed() < PATIENCE, "a scratch cgroup was left in {mount}");
            sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn moves_quotas_and_bursts_up_and_down_a_real_tree() {
    let mut tree = Tree::new("bandwidth");
    let both = |quota: Option<i64>, burst| {
        [TIER, POD, CONTAINER]
            .into_iter()
            .flat_map(|target| [want(target, Knob::CfsBurst, burst), want(target, Knob::CfsQuota, quota)])
            .collect::<Vec<_>>()
    };
    for (quota, burst) in [
        (Some(100_000), 50_000),
        (Some(400_000), 400_000),
        (Some(50_000), 10_000),
        (None, 0),
        (Some(1000), 0),
        (None, 0),
    ] {
        tree.carry_out(&both(quota, burst));
        for target in [TIER, POD, CONTAINER] {
            let bandwidth = tree.host.bandwidth(target).unwrap();
            assert_eq!(bandwidth.quota.map(|quota| quota.0), quota.map(i64::unsigned_abs));
            assert_eq!(bandwidth.period, Micros(100_000));
            assert_eq!(tree.host.read(target, Knob::CfsBurst).unwrap(), Value::Number(burst));
        }
        assert!(tree.host.plan(&both(quota, burst)).steps.is_empty());
    }
    // Each limited on its own, then the container unlimited while the pod's quota falls.
    tree.carry_out(&[want(POD, Knob::CfsQuota, 400_000), want(CONTAINER, Knob::CfsQuota, 300_000)]);
    tree.carry_out(&[want(POD, Knob::CfsQuota, 200_000), want(CONTAINER, Knob::CfsQuota, None)]);
    tree.carry_out(&[want(POD, Knob::CfsQuota, 400_000), want(CONTAINER, Knob::CfsQuota, 300_000)]);
}

#[test]
fn the_probed_burst_rule_is_what_the_kernel_does() {
    let mut tree = Tree::new("burst");
    let rule = tree.host.facts().burst_rule;
    tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 100_000)]);
    let file = tree.host.file(CONTAINER, Knob::CfsBurst).unwrap();
    let written = fs::write(&file.path, "200000");
    match rule {
        BurstRule::Unknown => assert!(!fs::exists(&file.path).unwrap()),
        BurstRule::Unbounded => assert!(written.is_ok()),
        BurstRule::BurstWithinQuota => {
            assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
            let plan = tree.carry_out(&[want(CONTAINER, Knob::CfsBurst, 200_000)]);
            assert_eq!(plan.clamped[0].given, Value::Number(100_000));
            // While the quota is unlimited, the rule does not apply; afterwards, the burst goes first.
            tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, None), want(CONTAINER, Knob::CfsBurst, 300_000)]);
            let alone = tree.host.plan(&[want(CONTAINER, Knob::CfsQuota, 100_000)]);
            assert!(matches!(alone.refused[0].2, HostError::BurstAboveQuota { .. }));
            tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 100_000), want(CONTAINER, Knob::CfsBurst, 0)]);
        }
    }
}

#[test]
fn reports_a_refusal_with_its_file_and_number() {
    let mut tree = Tree::new("refusal");
    if tree.version(Controller::Cpu) == Some(CgroupVersion::V1) {
        tree.carry_out(&[want(POD, Knob::CfsQuota, 100_000)]);
        let plan = tree.host.plan(&[want(CONTAINER, Knob::CfsQuota, 200_000)]);
        let error = tree.host.execute(&plan.steps[0]).unwrap_err();
        assert!(matches!(error, HostError::Refused { errno: "EINVAL", .. }), "{error}");
        assert!(matches!(tree.host.support(CONTAINER, Knob::CfsQuota), Support::Unavailable { .. }));
    }
    // Only Alibaba's kernels have it natively.
    assert_ne!(tree.host.support(CONTAINER, Knob::WmarkRatio), Support::Native);
    assert_eq!(tree.host.support(POD, Knob::CfsQuota), Support::Native);
}

#[test]
fn sees_drift_and_a_cgroup_made_anew() {
    let mut tree = Tree::new("drift");
    tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 100_000)]);
    let file = tree.host.file(CONTAINER, Knob::CfsQuota).unwrap();
    fs::write(&file.path, "70000").unwrap();
    assert_eq!(tree.host.read(CONTAINER, Knob::CfsQuota).unwrap(), Value::Number(70_000));
    let plan = tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 100_000)]);
    assert_eq!(plan.steps[0].from, Value::Number(70_000));

    let path = tree.paths.last().unwrap().clone();
    let identity = tree.host.identity(CONTAINER);
    tree.host.remove(&path).unwrap();
    assert!(tree.host.read(CONTAINER, Knob::CfsQuota).unwrap_err().is_gone());
    assert!(tree.host.attach(CONTAINER, &path).unwrap_err().is_gone());
    tree.host.create(&path).unwrap();
    assert!(tree.host.cpu_counters(ID).unwrap_err().is_gone());
    assert!(tree.host.execute(&plan.steps[0]).unwrap_err().is_gone());
    tree.host.attach(CONTAINER, &path).unwrap();
    assert_ne!(tree.host.identity(CONTAINER), identity);
    assert_eq!(tree.host.read(CONTAINER, Knob::CfsQuota).unwrap(), Value::Max);
}

#[test]
fn counts_what_a_throttled_load_uses() {
    let mut tree = Tree::new("load");
    tree.carry_out(&[want(CONTAINER, Knob::CfsQuota, 20_000)]);
    let before = tree.host.cpu_counters(ID).unwrap();
    tree.run("x=$(head -c 2000000 /dev/zero | tr '\\0' a); while :; do :; done");
    let begun = Instant::now();
    let delta = loop {
        sleep(Duration::from_millis(50));
        let delta = tree.host.cpu_counters(ID).unwrap().since(before);
        if delta.nr_throttled > 2 {
            break delta;
        }
        assert!(begun.elapsed() < PATIENCE, "{delta:?}");
    };
    assert!(delta.nr_throttled > 2 && delta.nr_periods >= delta.nr_throttled, "{delta:?}");
    assert!(delta.usage > Micros(20_000) && delta.throttled > Micros(0), "{delta:?}");
    let memory = tree.host.memory_counters(ID).unwrap();
    assert!(memory.usage.0 > 0, "{memory:?}");
    if tree.version(Controller::Cpu) == Some(CgroupVersion::V2) {
        let pressure = tree.host.pressure_counters(ID).unwrap();
        assert!(!tree.host.facts().psi || pressure.cpu.some > Micros(0), "{pressure:?}");
    }
}

/// A fixed pseudo-random sequence.
struct Sequence(u64);

impl Sequence {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from[usize::try_from(self.0 >> 33).unwrap() % from.len()]
    }
}

#[test]
fn the_simulation_refuses_what_this_kernel_refuses() {
    let tree = Tree::new("twin");
    let versions = Versions {
        cpu: tree.version(Controller::Cpu).unwrap(),
        memory: tree.version(Controller::Memory).unwrap_or(CgroupVersion::V2),
        ..Versions::V1
    };
    let kernel = match tree.host.facts().burst_rule {
        BurstRule::Unbounded => Kernel::Alibaba,
        _ => Kernel::Mainline,
    };
    let cgroups = tree.paths.iter().map(|path| (path.clone(), Default::default())).collect();
    let page_size = tree.host.page_size();
    let mut twin = Host::simulated(&Spec { versions, kernel, page_size, cgroups, ..Spec::default() }).unwrap();
    let twin = twin.simulated_mut().unwrap();
    let mut files: Vec<(Controller, &str)> = match versions.cpu {
        CgroupVersion::V1 => vec![
            (Controller::Cpu, "cpu.cfs_quota_us"),
            (Controller::Cpu, "cpu.cfs_quota_us"),
            (Controller::Cpu, "cpu.cfs_burst_us"),
            (Controller::Cpu, "cpu.cfs_period_us"),
            (Controller::Cpu, "cpu.shares"),
        ],
        CgroupVersion::V2 => {
            vec![(Controller::Cpu, "cpu.max"), (Controller::Cpu, "cpu.max.burst"), (Controller::Cpu, "cpu.weight")]
        }
    };
    if tree.host.facts().knobs.iter().any(|fact| fact.knob == Knob::CpuIdle && fact.support == Support::Native) {
        files.push((Controller::Cpu, "cpu.idle"));
    }
    if versions.memory == CgroupVersion::V2 && tree.version(Controller::Memory).is_some() {
        files.extend([
            (Controller::Memory, "memory.min"),
            (Controller::Memory, "memory.low"),
            (Controller::Memory, "memory.high"),
            (Controller::Memory, "memory.oom.group"),
        ]);
    }
    const VALUES: [&str; 20] = [
        "-1",
        "0",
        "1",
        "2",
        "999",
        "1000",
        "1001",
        "5000",
        "20000",
        "50000",
        "99999",
        "100000",
        "100001",
        "300000",
        "1000000",
        "1000001",
        "17592186044415",
        "17592186044416",
        "9223372036854775807",
        "max",
    ];
    let facts = tree.host.facts();
    let mut sequence = Sequence(1);
    let (mut accepted, mut refused) = (0, 0);
    for turn in 0..4000 {
        let (controller, file) = sequence.pick(&files);
        let (value, path) = (sequence.pick(&VALUES), sequence.pick(&[0, 1, 2, 3]));
        let path = &tree.paths[path];
        let mount =
            facts.controllers.iter().find(|fact| fact.controller == controller).unwrap().mount.as_ref().unwrap();
        let real = format!("{mount}/{path}/{file}");
        let written = fs::write(&real, value).map_err(|error| error.raw_os_error());
        let simulated = twin.set_file(path, file, value).map_err(|error| error.raw_os_error());
        assert_eq!(simulated, written, "turn {turn}: {value} to {real}");
        // For an idle group, some kernels print the documented weight 0, and others 1.
        if file != "cpu.weight" || !twin.read_file(path, "cpu.idle").is_ok_and(|idle| idle == "1\n") {
            let simulated = twin.read_file(path, file).unwrap();
            assert_eq!(simulated, fs::read_to_string(&real).unwrap(), "turn {turn}: {real}");
        }
        *(if written.is_ok() { &mut accepted } else { &mut refused }) += 1;
    }
    assert!(accepted > 400 && refused > 400, "{accepted} accepted, {refused} refused");
}

#[test]
fn protects_and_throttles_memory() {
    let mut tree = Tree::new("memory");
    let wanted = |min: i64, high: Option<i64>| {
        [
            want(CONTAINER, Knob::MemoryMin, min),
            want(POD, Knob::MemoryMin, min),
            want(TIER, Knob::MemoryMin, min),
            want(CONTAINER, Knob::MemoryLow, min),
            want(CONTAINER, Knob::MemoryHigh, high),
        ]
    };
    if tree.version(Controller::Memory) != Some(CgroupVersion::V2) {
        // Mainline v1 has none of these files, Alibaba's kernel has; either way the host knows it before writing.
        let plan = tree.host.plan(&wanted(1 << 20, Some(64 << 20)));
        for (target, knob, error) in &plan.refused {
            assert!(matches!(error, HostError::Unsupported { .. }), "{error}");
            assert!(matches!(tree.host.support(*target, *knob), Support::Unavailable { .. }));
        }
        assert_eq!(plan.steps.len() + plan.refused.len(), 5);
        return;
    }
    for (min, high) in [(1 << 20, Some(64 << 20)), (4 << 20, None), ((1 << 20) + 1, Some(32 << 20)), (0, None)] {
        tree.carry_out(&wanted(min, high));
        assert_eq!(tree.host.read(TIER, Knob::MemoryMin).unwrap(), Value::Number(min / 4096 * 4096));
        assert!(tree.host.plan(&wanted(min, high)).steps.is_empty());
    }
    // Page cache above the bound: the write reclaims, in another thread if that takes longer than a moment.
    let file = std::env::temp_dir().join(format!("qosm-test-{}", std::process::id()));
    tree.run(&format!(
        "dd if=/dev/zero of={0} bs=1048576 count=48 2>/dev/null; while :; do sleep 1; done",
        file.display()
    ));
    tree.wait_until("page cache", |host| host.memory_counters(ID).unwrap().usage.0 >= 40 << 20);
    let usage = tree.host.memory_counters(ID).unwrap().usage.0;
    let plan = tree.host.plan(&[want(CONTAINER, Knob::MemoryHigh, 16 << 20)]);
    let executed = tree.host.execute(&plan.steps[0]).unwrap();
    if executed == Executed::Pending {
        tree.wait_for(CONTAINER, Knob::MemoryHigh, Value::Number(16 << 20));
    }
    assert_eq!(tree.host.read(CONTAINER, Knob::MemoryHigh).unwrap(), Value::Number(16 << 20));
    fs::remove_file(&file).unwrap();
    assert!(usage > 16 << 20, "only {usage} bytes were in use");
}

/// A process with memory on one NUMA node, whose container is then pinned to the CPUs of another.
struct Astray {
    tree: Tree,
    from: NumaId,
    to: NumaId,
    hogs: Vec<Child>,
}

const SECOND: ContainerId = ContainerId(2);

impl Astray {
    /// `None` without a second NUMA node or without cgroup v2. The tests' VM has both.
    fn new(name: &str) -> Option<Self> {
        let mut tree = Tree::new(name);
        let topology = tree.host.numa_topology();
        let mut nodes: Vec<_> = topology.with_memory().filter(|(_, node)| !node.cpus.is_empty()).collect();
        if nodes.len() < 2 || tree.version(Controller::Cpuset) != Some(CgroupVersion::V2) {
            assert!(std::env::var_os("QOSM_TEST_VM").is_none(), "this VM lacks its second NUMA node, or cgroup v2");
            // Not `println`, which is hidden for a test that passes.
            let _ = writeln!(std::io::stdout(), "not run: {name}, for it takes two NUMA nodes and cgroup v2");
            return None;
        }
        // Start on the node with more free memory, so that the memory does come from there.
        nodes.sort_by_key(|(_, node)| std::cmp::Reverse(node.free));
        let (from, to) = (nodes[0].0, nodes[1].0);
        let second = format!("{}/kubepods/burstable/podu/d", tree.root);
        tree.host.create(&second).unwrap();
        tree.host.attach(Target::Container(SECOND), &second).unwrap();
        tree.paths.push(second.clone());
        let mut path = String::from("/sys/fs/cgroup");
        for part in format!("{}/kubepods/burstable/podu", tree.root).split('/') {
            path = format!("{path}/{part}");
            fs::write(format!("{path}/cgroup.subtree_control"), "+cpuset").unwrap();
        }
        let limits = MigrationLimits {
            cpu_percent: 100,
            reserve: Bytes(4 << 20),
            pressure_percent: 100,
            ..MigrationLimits::default()
        };
        tree.host.limit_migrations(limits);
        Some(Self { tree, from, to, hogs: Vec::new() })
    }

    fn directory(&self, id: ContainerId) -> String {
        format!("/sys/fs/cgroup/{}", self.tree.host.attached_path(Target::Container(id)).unwrap())
    }

    fn pin(&self, id: ContainerId, to: NumaId) {
        let topology = self.tree.host.numa_topology();
        let cpus: Vec<_> = topology.get(to).unwrap().cpus.iter().map(u32::to_string).collect();
        fs::write(format!("{}/cpuset.cpus", self.directory(id)), cpus.join(",")).unwrap();
    }

    /// Allocates `megabytes` on the first node, then pins the container to the other.
    fn fill(&mut self, id: ContainerId, megabytes: u32) {
        self.pin(id, self.from);
        // `dd` reads into one buffer of that size, and then waits for a reader.
        let script = format!(
            "echo $$ > {}/cgroup.procs; exec dd if=/dev/zero bs={megabytes}000000 count=1 2>/dev/null",
            self.directory(id)
        );
        let hog = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        self.hogs.push(hog);
        let least = u64::from(megabytes) * 1_000_000 / self.tree.host.page_size().0 * 99 / 100;
        let begun = Instant::now();
        while self.sum(id) < least {
            sleep(Duration::from_millis(100));
            assert!(begun.elapsed() < PATIENCE, "{} of {least} pages", self.sum(id));
        }
        self.pin(id, self.to);
        self.wait_for_pages(id, |local, remote| local < remote);
    }

    fn sum(&mut self, id: ContainerId) -> u64 {
        let (local, remote) = self.local_and_remote(id);
        local + remote
    }

    /// Waits for the counts of pages: the kernel only sums its per-CPU counters every two seconds.
    fn wait_for_pages(&mut self, id: ContainerId, until: impl Fn(u64, u64) -> bool) -> (u64, u64) {
        let begun = Instant::now();
        loop {
            let (local, remote) = self.local_and_remote(id);
            if until(local, remote) {
                return (local, remote);
            }
            let progress = self.tree.host.migrations();
            assert!(begun.elapsed() < PATIENCE, "{local} local, {remote} remote: {progress:?}");
            sleep(Duration::from_millis(50));
        }
    }

    fn local_and_remote(&mut self, id: ContainerId) -> (u64, u64) {
        let topology = self.tree.host.numa_topology();
        self.tree.host.numa_sample(id, &topology).unwrap().local_and_remote()
    }

    fn migrate(&mut self, id: ContainerId, token: u64) {
        let (from, to) = (vec![self.from], vec![self.to]);
        self.tree.host.migrate(&Migration { container: id, from, to, token, reason: "test".into() }).unwrap();
    }

    fn progress(&self, id: ContainerId) -> MigrationProgress {
        self.tree.host.migrations().into_iter().find(|sample| sample.container == id).unwrap().progress
    }

    fn wait_for(&self, id: ContainerId, until: impl Fn(&MigrationProgress) -> bool) -> MigrationProgress {
        let begun = Instant::now();
        loop {
            let progress = self.progress(id);
            if until(&progress) {
                return progress;
            }
            assert!(begun.elapsed() < PATIENCE, "{progress:?}");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Astray {
    fn drop(&mut self) {
        for hog in &mut self.hogs {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

fn limit(host: &mut Host, kib_per_second: u64) {
    let limits = MigrationLimits {
        bytes_per_second: Bytes(kib_per_second << 10),
        cpu_percent: 100,
        reserve: Bytes(4 << 20),
        pressure_percent: 100,
    };
    host.limit_migrations(limits);
}

#[test]
fn pages_on_the_wrong_numa_node_come_home() {
    let Some(mut astray) = Astray::new("numa-home") else { return };
    astray.fill(ID, 30);
    // So slow that it takes seconds.
    limit(&mut astray.tree.host, 4 << 10);
    let begun = Instant::now();
    astray.migrate(ID, 1);
    let progress = astray.progress(ID);
    assert!(!progress.state.has_ended(), "the loop does not wait for it: {progress:?}");
    let progress = astray.wait_for(ID, |progress| progress.state.has_ended());
    assert_eq!(progress.state, MigrationState::Done, "{progress:?}");
    let took = begun.elapsed();
    let (local, remote) = astray.wait_for_pages(ID, |local, remote| local_percent(local, remote) >= 99);
    println!("{local} pages local, {remote} remote after {took:?}: {progress:?}");
    // Program pages that other processes have mapped too are tried, and stay.
    let shared: u64 = progress.pages_failed.iter().map(|(_, pages)| pages).sum();
    assert!((progress.pages_moved + shared) * 100 >= progress.pages_found * 99, "{progress:?}");
    assert!(progress.pages_failed.iter().all(|(errno, _)| *errno == "EACCES") && shared < 1000, "{progress:?}");
    assert_eq!((progress.processes, progress.processes_done), (1, 1), "{progress:?}");
}

#[test]
fn a_process_that_is_killed_while_its_pages_move_is_reported() {
    let Some(mut astray) = Astray::new("numa-killed") else { return };
    astray.fill(ID, 20);
    limit(&mut astray.tree.host, 1024);
    astray.migrate(ID, 1);
    astray.wait_for(ID, |progress| progress.pages_moved > 0);
    let mut hog = astray.hogs.remove(0);
    hog.kill().unwrap();
    hog.wait().unwrap();
    let progress = astray.wait_for(ID, |progress| progress.state.has_ended());
    assert_eq!(progress.state, MigrationState::Done, "{progress:?}");
    assert_eq!(progress.failures[0].error, "No such process", "{progress:?}");
    assert_eq!(progress.processes_gone, 1, "{progress:?}");
}

#[test]
fn two_containers_take_turns_and_can_be_called_off() {
    let Some(mut astray) = Astray::new("numa-two") else { return };
    astray.fill(ID, 12);
    astray.fill(SECOND, 12);
    limit(&mut astray.tree.host, 512);
    astray.migrate(ID, 1);
    astray.migrate(SECOND, 2);
    // The kernel may count fewer than some hundred pages only later.
    astray.wait_for(ID, |progress| progress.pages_moved > 600);
    assert_eq!(astray.progress(SECOND).state, MigrationState::Waiting);
    astray.tree.host.stop_migration(ID);
    astray.wait_for(ID, |progress| progress.state == MigrationState::Stopped);
    astray.wait_for(SECOND, |progress| progress.pages_moved > 0);
    astray.wait_for_pages(ID, |local, remote| local > 0 && remote > 0);
    // A second start replaces the earlier migrations.
    limit(&mut astray.tree.host, 1 << 20);
    astray.tree.host.stop_migration(SECOND);
    for (id, token) in [(ID, 3), (SECOND, 4)] {
        astray.migrate(id, token);
        let progress = astray.wait_for(id, |progress| progress.token == token && progress.state.has_ended());
        assert_eq!(progress.state, MigrationState::Done, "{progress:?}");
        astray.wait_for_pages(id, |local, remote| local_percent(local, remote) >= 99);
    }
}

#[test]
fn a_target_without_room_is_left_alone() {
    let Some(mut astray) = Astray::new("numa-full") else { return };
    astray.fill(ID, 8);
    let limits = MigrationLimits { reserve: Bytes(1 << 50), pressure_percent: 100, ..MigrationLimits::default() };
    astray.tree.host.limit_migrations(limits);
    astray.migrate(ID, 1);
    let progress = astray.wait_for(ID, |progress| progress.state.has_ended());
    assert_eq!((progress.state, progress.pages_moved), (MigrationState::Done, 0), "{progress:?}");
    assert!(progress.pages_without_room > 0, "{progress:?}");
    let (local, remote) = astray.local_and_remote(ID);
    assert!(local * 10 < remote, "{local} {remote}");
}
