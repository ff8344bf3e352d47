//! A latency-sensitive process next to a memory hog without a limit, which uses more memory than the node has: `policy: none` compared with
//! `policy: auto` of memory QoS. Runs as root, on cgroup v2, in the VM of `make bench-workloads`.
//!
//! `overcommit compare SECONDS ROUNDS` starts the agent, which creates the pods' cgroups, and runs this program in them as
//! `overcommit serve SECONDS` and `overcommit hog`.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;
/// The disk, whose page cache can be reclaimed.
const DISK: &str = "/disk";
const ROOT: &str = "/sys/fs/cgroup/overcommit";
const SERVER: &str = "kubepods/burstable/podu-server/app";
const HOG: &str = "kubepods/besteffort/podu-hog/app";
/// The hog has no requests and limits, like the batch pods in Koordinator's documentation: it uses what is free.
const SERVER_LIMIT: &str = "256Mi";
/// Anonymous memory that the server keeps allocated.
const SERVER_HEAP: usize = 16 * MIB;
/// Size of the data that the server reads repeatedly. It fits into the server's limit, so it is read from disk once unless other pages
/// evict it.
const SERVER_DATA: u64 = 160 << 20;
const SERVER_FILE: &str = "server-data";
const PIECE: usize = 64 << 10;
const ALLOCATION: usize = 64 << 10;
const HOG_HEAP: usize = 300 * MIB;
const HOG_DATA: u64 = 1536 << 20;
/// Time in which the hog reads one piece, however fast the read is. It limits the hog's CPU time, so that the hog takes the same from the
/// server under both policies: memory.
const HOG_STEP: Duration = Duration::from_millis(8);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["compare", seconds, rounds] => compare(seconds, rounds),
        ["serve", seconds] => serve(seconds),
        ["hog"] => hog(),
        _ => Err(anyhow::anyhow!("overcommit compare SECONDS ROUNDS | serve SECONDS | hog")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A pseudo-random sequence that is the same in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

/// Allocates memory and touches each page.
fn allocate(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0_u8; bytes];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    black_box(memory)
}

/// Latencies of one kind of operation, in microseconds.
#[derive(Default)]
struct Latencies(Vec<u32>);

impl Latencies {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.0.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        result
    }

    fn summary(&mut self) -> Value {
        self.0.sort_unstable();
        let at = |permille: usize| {
            let place = (self.0.len() * permille / 1000).min(self.0.len().saturating_sub(1));
            self.0.get(place).copied().unwrap_or(0)
        };
        let sum: u64 = self.0.iter().map(|&micros| u64::from(micros)).sum();
        let count = u64::try_from(self.0.len()).unwrap_or(1).max(1);
        json!({"count": count, "mean": sum / count, "p50": at(500), "p99": at(990), "p999": at(999)})
    }
}

/// Performs requests one after the other, a page-cache read, a page-cache write and an allocation, and prints their latencies.
fn serve(seconds: &str) -> anyhow::Result<()> {
    let time = Duration::from_secs(seconds.parse()?);
    let data = File::open(Path::new(DISK).join(SERVER_FILE)).context("the server has no data")?;
    let log = sparse("server-log", 32 << 20)?;
    let _heap = allocate(SERVER_HEAP);
    let mut piece = vec![1_u8; PIECE];
    let mut sequence = Sequence(1);
    let [mut reads, mut writes, mut allocations, mut requests] = [(); 4].map(|()| Latencies::default());
    // Read all data once, so that the measurement does not include the start.
    for place in 0..SERVER_DATA / 65_536 {
        data.read_exact_at(&mut piece, place * 65_536)?;
    }
    let begun = Instant::now();
    let mut bytes = 0_u64;
    while begun.elapsed() < time {
        let read = sequence.below(SERVER_DATA / 65_536) * 65_536;
        let write = sequence.below(512) * 65_536;
        requests.time(|| {
            reads.time(|| data.read_exact_at(&mut piece, read))?;
            writes.time(|| log.write_all_at(&piece[..4096], write))?;
            allocations.time(|| drop(allocate(ALLOCATION)));
            anyhow::Ok(())
        })?;
        bytes += 65_536 + 4096 + (64 << 10);
    }
    let millis = u64::try_from(begun.elapsed().as_millis())?.max(1);
    println!(
        "{}",
        json!({
            "read": reads.summary(), "write": writes.summary(), "allocation": allocations.summary(), "request": requests.summary(),
            "kibPerSecond": bytes / 1024 * 1000 / millis,
        })
    );
    Ok(())
}

/// Holds a heap and reads more than fits into memory, until it is killed.
fn hog() -> anyhow::Result<()> {
    let mut data = sparse("hog-data", HOG_DATA)?;
    let _heap = allocate(HOG_HEAP);
    let mut piece = vec![0_u8; MIB];
    let mut next = Instant::now();
    loop {
        data.seek(SeekFrom::Start(0))?;
        while data.read(&mut piece)? > 0 {
            next = (next + HOG_STEP).max(Instant::now() - HOG_STEP);
            sleep(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// Writes the server's data to the disk, from which evicted page cache has to be read again.
fn server_data() -> anyhow::Result<()> {
    let path = Path::new(DISK).join(SERVER_FILE);
    let mut file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let mut sequence = Sequence(7);
    let mut piece = vec![0_u8; MIB];
    for _ in 0..SERVER_DATA / (1 << 20) {
        piece.fill_with(|| u8::try_from(sequence.below(256)).unwrap_or(0));
        file.write_all(&piece).with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.sync_all().with_context(|| format!("cannot write {}", path.display()))
}

/// A sparse file, which fills memory without using disk space.
fn sparse(name: &str, bytes: u64) -> anyhow::Result<File> {
    let path = Path::new(DISK).join(name);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    file.set_len(bytes)?;
    Ok(file)
}

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn compare(seconds: &str, rounds: &str) -> anyhow::Result<()> {
    let rounds: usize = rounds.parse()?;
    for folder in ["pods", "state"] {
        fs::create_dir_all(Path::new("/tmp/overcommit").join(folder))?;
    }
    // An emulated machine needs more time for an evaluation than the default limit.
    let config = json!({"policies": [{"name": "memory-qos", "evaluationMillis": 2000}]});
    fs::write("/tmp/overcommit/agent.json", config.to_string())?;
    manifests("none")?;
    let mut agent = Command::new("/bin/qosm");
    agent.args(["agent", "--create-cgroups", "--cgroup-driver", "cgroupfs", "--cgroup-root", "/overcommit"]);
    agent.args(["--pods", "/tmp/overcommit/pods", "--state-dir", "/tmp/overcommit/state", "--module-dir", "/policies"]);
    agent.args(["--agent-config", "/tmp/overcommit/agent.json", "--metrics-listen", "none"]).env("QOSM_LOG", "warn");
    let agent = Running(agent.stdin(Stdio::null()).spawn().context("cannot start the agent")?);
    for group in [SERVER, HOG] {
        wait_for(&format!("cgroup {group}"), || Path::new(ROOT).join(group).join("memory.max").exists())?;
    }
    server_data()?;
    let mut results: [Vec<Value>; 2] = [Vec::new(), Vec::new()];
    println!("{seconds} s each, {rounds} rounds; server limit {SERVER_LIMIT}, hog without a limit, {}", memory()?);
    for round in 0..rounds {
        // The second run finds other caches than the first, so the order alternates.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for place in order {
            let policy = ["none", "auto"][place];
            let result = measure(policy, seconds, &agent)?;
            println!("round {}, {policy}: {}", round + 1, brief(&result));
            results[place].push(result);
        }
    }
    table(&results);
    Ok(())
}

/// The hog has hardly begun below this amount of memory, in bytes.
const MIN_OF_HOG: u64 = 128 << 20;

fn measure(policy: &str, seconds: &str, agent: &Running) -> anyhow::Result<Value> {
    manifests(policy)?;
    let held = || {
        let said = Command::new("/bin/qosm").args(["get", "knobs", "-o", "json"]).output();
        let knobs: Value = said.ok().and_then(|said| serde_json::from_slice(&said.stdout).ok()).unwrap_or_default();
        knobs["held"].as_array().map(Vec::len)
    };
    let wanted = if policy == "auto" { 12 } else { 0 };
    wait_for(&format!("policy {policy}"), || held() == Some(wanted))?;
    // Page cache of the previous run would be an advantage.
    fs::write("/proc/sys/vm/drop_caches", "3")?;
    let hog = start(HOG, &["hog"])?;
    // Under `auto`, background reclaim decides how much the hog keeps, which depends on the rest of the memory.
    let (mut most, mut looks_at_rest) = (0, 0);
    wait_for("the hog to have all that it gets", || {
        sleep(Duration::from_secs(2));
        let grown = usage(HOG).saturating_sub(most);
        most += grown;
        looks_at_rest = if most > MIN_OF_HOG && grown < 8 << 20 { looks_at_rest + 1 } else { 0 };
        looks_at_rest == 2
    })?;
    let before = (events(SERVER), driven_out(SERVER), agent_ticks(agent));
    let server = start(SERVER, &["serve", seconds])?;
    let output = wait(server)?;
    drop(hog);
    let after = (events(SERVER), driven_out(SERVER), agent_ticks(agent));
    let mut result: Value = serde_json::from_str(&output).with_context(|| format!("the server said `{output}`"))?;
    result["maxEvents"] = after.0.saturating_sub(before.0).into();
    result["agentMillis"] = (after.2.saturating_sub(before.2) * 10).into();
    result["drivenOut"] = after.1.saturating_sub(before.1).into();
    Ok(result)
}

fn start(group: &str, args: &[&str]) -> anyhow::Result<Running> {
    // The shell enters the cgroup and then executes the program, so the cgroup is charged from the first page on.
    let script = format!("echo $$ >{ROOT}/{group}/cgroup.procs; exec /bin/overcommit \"$@\"");
    let mut command = Command::new("/bin/sh");
    // With a fixed threshold, the allocator does not learn to keep freed memory.
    command.args(["-c", &script, "sh"]).args(args).env("MALLOC_MMAP_THRESHOLD_", "32768");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    Ok(Running(child.with_context(|| format!("cannot start {args:?}"))?))
}

fn wait(mut running: Running) -> anyhow::Result<String> {
    let mut output = String::new();
    if let Some(stdout) = &mut running.0.stdout {
        stdout.read_to_string(&mut output)?;
    }
    let status = running.0.wait()?;
    if !status.success() {
        bail!("the server ended with {status}");
    }
    Ok(output)
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > Duration::from_secs(240) {
            bail!("waited in vain for {what}");
        }
        sleep(Duration::from_millis(300));
    }
    Ok(())
}

fn group_file(group: &str, name: &str) -> PathBuf {
    Path::new(ROOT).join(group).join(name)
}

fn usage(group: &str) -> u64 {
    fs::read_to_string(group_file(group, "memory.current")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn key(text: &str, key: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok());
    value.unwrap_or(0)
}

/// Number of times that a process of the pod hit a limit and had to reclaim memory itself. The pod's counter includes that of its
/// containers. The pod has the same limit and hits it first, because the kernel also charges a cgroup's own memory to its parent.
fn events(group: &str) -> u64 {
    let pod = group.rsplit_once('/').map_or(group, |(pod, _)| pod);
    key(&fs::read_to_string(group_file(pod, "memory.events")).unwrap_or_default(), "max")
}

/// CPU time of the agent, including its reclaimer, in hundredths of a second.
fn agent_ticks(agent: &Running) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", agent.0.id())).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Pages of the group's page cache that were evicted and read again.
fn driven_out(group: &str) -> u64 {
    key(&fs::read_to_string(group_file(group, "memory.stat")).unwrap_or_default(), "workingset_refault_file")
}

fn memory() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().next().unwrap_or_default();
    Ok(format!("machine {}", line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")))
}

fn manifests(policy: &str) -> anyhow::Result<()> {
    let pod = |name: &str, labels: Value, resources: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("u-{name}"), "labels": labels,
                "annotations": {"koordinator.sh/memoryQOS": json!({"policy": policy}).to_string()},
            },
            "spec": {"containers": [{"name": "app", "resources": resources}]},
        })
    };
    let server = json!({"requests": {"memory": SERVER_LIMIT}, "limits": {"memory": SERVER_LIMIT}});
    for (name, labels, resources) in [
        ("server", json!({"koordinator.sh/qosClass": "LS"}), server),
        ("hog", json!({"koordinator.sh/qosClass": "BE"}), json!({})),
    ] {
        let path = format!("/tmp/overcommit/pods/{name}.json");
        let fresh = format!("/tmp/overcommit/{name}.new");
        fs::write(&fresh, pod(name, labels, resources).to_string())?;
        fs::rename(fresh, path)?;
    }
    Ok(())
}

fn brief(result: &Value) -> String {
    let number = |kind: &str, what: &str| result[kind][what].as_u64().unwrap_or(0);
    format!(
        "request mean {} µs, p99 {} µs; {} KiB/s; {} times at its limit; {} pages read again",
        number("request", "mean"),
        number("request", "p99"),
        result["kibPerSecond"],
        result["maxEvents"],
        result["drivenOut"]
    )
}

/// The median of the rounds, and a text with the minimum and maximum.
fn spread(results: &[Value], read: impl Fn(&Value) -> u64) -> (u64, String) {
    let mut values: Vec<u64> = results.iter().map(read).collect();
    values.sort_unstable();
    let at = |place: usize| values.get(place).copied().unwrap_or(0);
    let median = (at(values.len() / 2) + at(values.len().saturating_sub(1) / 2)) / 2;
    let (least, most) = (values.first().copied().unwrap_or(0), values.last().copied().unwrap_or(0));
    (median, format!("{median} ({least}–{most})"))
}

fn change(before: u64, after: u64) -> String {
    if before == 0 {
        return "-".to_owned();
    }
    let permille = (i128::from(after) - i128::from(before)) * 1000 / i128::from(before);
    format!("{}{}.{} %", if permille < 0 { "−" } else { "+" }, permille.abs() / 10, permille.abs() % 10)
}

fn table(results: &[Vec<Value>; 2]) {
    println!("\nmedian over the rounds (least–most)");
    println!("{:34} {:>26} {:>26} {:>10}   published", "", "none", "auto", "change");
    let row = |name: &str, published: &str, read: &dyn Fn(&Value) -> u64| {
        let (none, auto) = (spread(&results[0], read), spread(&results[1], read));
        println!("{name:34} {:>26} {:>26} {:>10}   {published}", none.1, auto.1, change(none.0, auto.0));
    };
    for (kind, what) in [
        ("request", "request"),
        ("allocation", "allocation of 64 KiB"),
        ("read", "read of 64 KiB"),
        ("write", "write of 4 KiB"),
    ] {
        for statistic in ["mean", "p50", "p99", "p999"] {
            let published = if (kind, statistic) == ("request", "mean") { "51.32 → 47.25 ms: −7.9 %" } else { "" };
            row(&format!("{what}, {statistic} µs"), published, &|result| {
                result[kind][statistic].as_u64().unwrap_or(0)
            });
        }
    }
    row("throughput, KiB/s", "149.0 → 161.9 MB/s: +8.7 %", &|result| result["kibPerSecond"].as_u64().unwrap_or(0));
    row("times at its limit", "", &|result| result["maxEvents"].as_u64().unwrap_or(0));
    row("pages read again", "", &|result| result["drivenOut"].as_u64().unwrap_or(0));
    row("CPU time of the agent, ms", "", &|result| result["agentMillis"].as_u64().unwrap_or(0));
    let pressed = |result: &Value| result["maxEvents"] != 0 || result["drivenOut"] != 0;
    if !results[0].iter().all(pressed) {
        println!(
            "\nThere was no pressure in some round of `none`: the differences above say nothing about memory QoS."
        );
    }
    let range = |results: &[Value]| {
        let means = results.iter().map(|result| result["request"]["mean"].as_u64().unwrap_or(0));
        (means.clone().min().unwrap_or(0), means.max().unwrap_or(0))
    };
    let (none, auto) = (range(&results[0]), range(&results[1]));
    if none.0 <= auto.1 && auto.0 <= none.1 {
        println!(
            "\nThe rounds of `none` and `auto` overlap: a change of the mean request is within the spread of this machine."
        );
    }
}
