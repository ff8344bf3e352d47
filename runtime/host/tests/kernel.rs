//! The host on this machine's own kernel, in cgroups of its own. Needs root; works on cgroup v1 and v2.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_host::simulated::{Kernel, Spec, Versions};
use qosm_host::{
    BurstRule, CgroupVersion, Controller, Directories, Driver, Executed, Host, HostError, LayoutOptions, Plan, Support,
    Wanted,
};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, PodId, Tier};
use qosm_model::unit::Micros;

const TIER: Target = Target::Tier(Tier::Burstable);
const POD: Target = Target::Pod(PodId(1));
const ID: ContainerId = ContainerId(1);
const CONTAINER: Target = Target::Container(ID);

/// A kubepods-shaped tree that goes away with the test, whatever becomes of it.
struct Tree {
    host: Host,
    root: String,
    paths: Vec<String>,
    load: Option<Child>,
}

impl Tree {
    fn new(name: &str) -> Self {
        let root = format!("qosm-test-{}-{name}", std::process::id());
        let options = LayoutOptions { driver: Some(Driver::Cgroupfs), cgroup_root: root.clone(), kubelet_config: None };
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
        while begun.elapsed() < Duration::from_secs(20) {
            for (of, which, result) in self.host.finished() {
                if (of, which) == (target, knob) {
                    assert_eq!(result.unwrap(), value);
                    return;
                }
            }
            sleep(Duration::from_millis(5));
        }
        unreachable!("{knob} was not written within 20 s");
    }

    fn version(&self, controller: Controller) -> Option<CgroupVersion> {
        self.host.facts().controllers.iter().find(|fact| fact.controller == controller).and_then(|fact| fact.version)
    }

    /// The container's directory in a controller's hierarchy.
    fn directory(&self, controller: Controller) -> String {
        let facts = self.host.facts();
        let mount = facts.controllers.into_iter().find(|fact| fact.controller == controller).unwrap().mount.unwrap();
        format!("{mount}/{}", self.paths.last().unwrap())
    }

    /// Runs a shell command in the container's cgroups.
    fn run(&mut self, command: &str) {
        let mut directories: Vec<_> = [Controller::Cpu, Controller::Cpuacct, Controller::Memory]
            .into_iter()
            .filter(|&controller| self.version(controller).is_some())
            .map(|controller| self.directory(controller))
            .collect();
        directories.dedup();
        let enter: String =
            directories.iter().map(|directory| format!("echo $$ > {directory}/cgroup.procs; ")).collect();
        let script = format!("{enter}{command}");
        let child = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
        self.load = Some(child);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(mut load) = self.load.take() {
            let _ = load.kill();
            let _ = load.wait();
        }
        self.paths.insert(0, self.root.clone());
        for path in self.paths.iter().rev() {
            // A process that was just killed may be counted for a moment longer.
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
    let directories =
        Directories { cgroup: directory("/sys/fs/cgroup"), proc: directory("/proc"), sys: directory("/sys") };
    Host::open(directories, options).unwrap()
}

fn want(target: Target, knob: Knob, value: impl Into<Option<i64>>) -> Wanted {
    Wanted { target, knob, value: value.into().map_or(Value::Max, Value::Number) }
}

#[test]
fn tells_this_node() {
    let mut host = open(&LayoutOptions::default());
    let facts = host.facts();
    assert!(facts.controllers.iter().any(|fact| fact.controller == Controller::Cpu && fact.version.is_some()));
    assert!(facts.cpus >= 1 && facts.memory.0 > 0 && facts.page_size.0 >= 4096);
    assert!(host.node_cpu_busy().unwrap() > Micros(0));
    let (all, available) = host.node_memory().unwrap();
    assert!(available <= all && all == facts.memory);
    // Nothing is left behind.
    for fact in facts.controllers {
        let Some(mount) = fact.mount else { continue };
        let own = format!("qosm-probe-{}", std::process::id());
        let names = || fs::read_dir(&mount).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // Tests beside this one may be at it for some milliseconds.
        let begun = Instant::now();
        while names().any(|name| name.starts_with(&own)) {
            assert!(begun.elapsed() < Duration::from_secs(20), "a scratch cgroup was left in {mount}");
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
    // Each limited on its own, then the container unlimited under a falling pod.
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
            // Unlimited lifts the rule; coming back, the burst goes first.
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
    // Natively only Alibaba's kernels have it.
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
        if delta.nr_throttled > 2 || begun.elapsed() > Duration::from_secs(20) {
            break delta;
        }
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

/// A fixed sequence that looks random.
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
        ],
        CgroupVersion::V2 => vec![(Controller::Cpu, "cpu.max"), (Controller::Cpu, "cpu.max.burst")],
    };
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
        assert_eq!(twin.read_file(path, file).unwrap(), fs::read_to_string(&real).unwrap(), "turn {turn}: {real}");
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
        // Mainline v1 has none of it, Alibaba's has; either way the host knows before it writes.
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
    // Page cache above the bound: the write reclaims, and does not hold the caller up.
    let file = std::env::temp_dir().join(format!("qosm-test-{}", std::process::id()));
    tree.run(&format!(
        "dd if=/dev/zero of={0} bs=1048576 count=48 2>/dev/null; while :; do sleep 1; done",
        file.display()
    ));
    let begun = Instant::now();
    while tree.host.memory_counters(ID).unwrap().usage.0 < 40 << 20 && begun.elapsed() < Duration::from_secs(30) {
        sleep(Duration::from_millis(50));
    }
    let usage = tree.host.memory_counters(ID).unwrap().usage.0;
    let begun = Instant::now();
    let plan = tree.host.plan(&[want(CONTAINER, Knob::MemoryHigh, 16 << 20)]);
    let executed = tree.host.execute(&plan.steps[0]).unwrap();
    let took = begun.elapsed();
    if executed == Executed::Pending {
        tree.wait_for(CONTAINER, Knob::MemoryHigh, Value::Number(16 << 20));
    }
    assert_eq!(tree.host.read(CONTAINER, Knob::MemoryHigh).unwrap(), Value::Number(16 << 20));
    fs::remove_file(&file).unwrap();
    assert!(usage > 16 << 20, "only {usage} bytes were in use");
    assert!(took < Duration::from_millis(500), "{took:?}");
}

/// A file of 200 MiB on a real file system, without a block on it: page cache that costs no disk to fill and none to give up.
/// `QOSM_DISK` says where there is one; a folder in memory would not do, its pages cannot be reclaimed.
struct Sparse(std::path::PathBuf);

impl Sparse {
    fn new(name: &str) -> Self {
        let folder = std::env::var_os("QOSM_DISK").map_or_else(std::env::temp_dir, Into::into);
        let path = folder.join(format!("qosm-test-{}-{name}", std::process::id()));
        fs::File::create(&path).unwrap().set_len(200 << 20).unwrap();
        Self(path)
    }

    /// Reads so many pieces of 2 MiB one after the other, unhurriedly, then goes on to be.
    fn reader(&self, pieces: u32) -> String {
        format!(
            "i=0; while [ $i -lt {pieces} ]; do dd if={} of=/dev/null bs=2097152 count=1 skip=$i 2>/dev/null; \
             i=$((i+1)); sleep 0.02; done; echo $i >{0}.done; while :; do sleep 1; done",
            self.0.display()
        )
    }

    fn wait_until_read(&self) {
        let done = self.0.with_extension("done");
        let begun = Instant::now();
        while !done.exists() {
            assert!(begun.elapsed() < Duration::from_secs(120), "the reader does not come to its end");
            sleep(Duration::from_millis(50));
        }
        fs::remove_file(done).unwrap();
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn background_reclaim_keeps_a_group_from_meeting_its_limit() {
    const MIB: u64 = 1 << 20;
    let mut tree = Tree::new("watermark");
    let watermarks = |ratio| [want(CONTAINER, Knob::WmarkRatio, ratio), want(CONTAINER, Knob::WmarkScale, 1000)];
    if tree.version(Controller::Memory) != Some(CgroupVersion::V2) {
        assert_eq!(tree.host.plan(&watermarks(70)).refused.len(), 2, "v1 has no memory.reclaim");
        return;
    }
    let directory = tree.directory(Controller::Memory);
    fs::write(format!("{directory}/memory.max"), (64 * MIB).to_string()).unwrap();
    let at_limit = || {
        let events = fs::read_to_string(format!("{directory}/memory.events")).unwrap();
        let line = events.lines().find_map(|line| line.strip_prefix("max ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let sparse = Sparse::new("watermark");
    // 44.8 MiB down to 38.4 MiB.
    tree.carry_out(&watermarks(70));
    assert!(matches!(tree.host.support(CONTAINER, Knob::WmarkRatio), Support::Emulated { .. }));
    tree.run(&sparse.reader(90));
    sparse.wait_until_read();
    sleep(Duration::from_millis(500));
    let usage = tree.host.memory_counters(ID).unwrap().usage.0;
    let report = tree.host.reclaim_report(CONTAINER).unwrap();
    assert_eq!(at_limit(), 0, "it was reclaimed before it met its limit; {report:?}");
    assert!(usage < 45 * MIB && usage > 30 * MIB, "{usage} bytes in use; {report:?}");
    assert!(report.rounds > 3 && report.reclaimed.0 > 100 * MIB && report.trouble.is_none(), "{report:?}");

    // Released, the same reading ends at the limit.
    tree.carry_out(&[want(CONTAINER, Knob::WmarkRatio, 0), want(CONTAINER, Knob::WmarkScale, 50)]);
    assert_eq!(tree.host.reclaim_report(CONTAINER), None);
    let mut load = tree.load.take().unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
    tree.run(&sparse.reader(90));
    sparse.wait_until_read();
    assert!(at_limit() > 0, "nobody reclaims any more");

    // And a bound far below what is in use is reached without the loop being held up.
    let begun = Instant::now();
    let plan = tree.host.plan(&[want(CONTAINER, Knob::MemoryHigh, 16 << 20)]);
    let executed = tree.host.execute(&plan.steps[0]).unwrap();
    let took = begun.elapsed();
    if executed == Executed::Pending {
        tree.wait_for(CONTAINER, Knob::MemoryHigh, Value::Number(16 << 20));
    }
    assert_eq!(tree.host.read(CONTAINER, Knob::MemoryHigh).unwrap(), Value::Number(16 << 20));
    assert!(tree.host.memory_counters(ID).unwrap().usage.0 <= 17 * MIB);
    assert!(took < Duration::from_millis(500), "{took:?}");
}
