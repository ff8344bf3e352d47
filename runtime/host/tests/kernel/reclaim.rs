//! Background reclaim by the host instead of the kernel.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use qosm_host::{CgroupVersion, Controller, Executed, Support};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::PodId;

use super::{CONTAINER, ID, PATIENCE, Tree, want};

/// A sparse file of 200 MiB on a real file system: page cache that costs no disk I/O to fill or to reclaim. `QOSM_DISK`
/// names a folder on such a file system; tmpfs does not work, since its pages cannot be reclaimed.
struct Sparse(std::path::PathBuf);

impl Sparse {
    fn new(name: &str) -> Self {
        let folder = std::env::var_os("QOSM_DISK").map_or_else(std::env::temp_dir, Into::into);
        let path = folder.join(format!("qosm-test-{}-{name}", std::process::id()));
        fs::File::create(&path).unwrap().set_len(200 << 20).unwrap();
        Self(path)
    }

    /// A command that slowly reads pieces of 2 MiB one after the other, then stays alive.
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
            assert!(begun.elapsed() < PATIENCE, "the reader does not come to its end");
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
    // Reclaim from 44.8 MiB down to 38.4 MiB.
    tree.carry_out(&watermarks(70));
    assert!(matches!(tree.host.support(CONTAINER, Knob::WmarkRatio), Support::Emulated { .. }));
    tree.run(&sparse.reader(90));
    sparse.wait_until_read();
    // The last round may still be in progress.
    tree.wait_until("usage below the mark", |host| host.memory_counters(ID).unwrap().usage.0 < 45 * MIB);
    let usage = tree.host.memory_counters(ID).unwrap().usage.0;
    let report = tree.host.reclaim_report(CONTAINER).unwrap();
    assert_eq!(at_limit(), 0, "it was reclaimed before it met its limit; {report:?}");
    assert!(usage < 45 * MIB && usage > 30 * MIB, "{usage} bytes in use; {report:?}");
    assert!(report.rounds > 3 && report.reclaimed.0 > 100 * MIB && report.last_error.is_none(), "{report:?}");

    // Without watermarks, the same reading reaches the limit.
    tree.carry_out(&[want(CONTAINER, Knob::WmarkRatio, 0), want(CONTAINER, Knob::WmarkScale, 50)]);
    assert_eq!(tree.host.reclaim_report(CONTAINER), None);
    let mut load = tree.load.take().unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
    tree.run(&sparse.reader(90));
    sparse.wait_until_read();
    assert!(at_limit() > 0, "nobody reclaims any more");

    // A bound far below current use is also reached.
    let plan = tree.host.plan(&[want(CONTAINER, Knob::MemoryHigh, 16 << 20)]);
    let executed = tree.host.execute(&plan.steps[0]).unwrap();
    if executed == Executed::Pending {
        tree.wait_for(CONTAINER, Knob::MemoryHigh, Value::Number(16 << 20));
    }
    assert_eq!(tree.host.read(CONTAINER, Knob::MemoryHigh).unwrap(), Value::Number(16 << 20));
    assert!(tree.host.memory_counters(ID).unwrap().usage.0 <= 17 * MIB);
}

/// Two groups without limits read the same amount of page cache; an ancestor of both has a limit. The test counts whose
/// pages were reclaimed.
#[test]
fn of_two_groups_without_limits_the_be_one_pays_for_the_limit_above_both() {
    const MIB: u64 = 1 << 20;
    let mut tree = Tree::new("unbounded");
    let marks = |target, adj| {
        [want(target, Knob::WmarkRatio, 90), want(target, Knob::WmarkScale, 200), want(target, Knob::WmarkMinAdj, adj)]
    };
    if tree.version(Controller::Memory) != Some(CgroupVersion::V2) {
        assert_eq!(tree.host.plan(&marks(CONTAINER, 50)).refused.len(), 3, "v1 has no memory.reclaim");
        return;
    }
    let ls_path = tree.paths.last().unwrap().clone();
    // The pod `u` is LS, its sibling `be` has the BE container; the tier above both may use 192 MiB.
    let (be, be_path) = (Target::Pod(PodId(2)), format!("{}/kubepods/burstable/podbe", tree.root));
    tree.host.create(&be_path).unwrap();
    // Before the container's path, which must be the last: `run` uses the last one.
    tree.paths.insert(3, be_path.clone());
    tree.host.attach(be, &be_path).unwrap();
    let tier = tree.directory_of(Controller::Memory, &format!("{}/kubepods/burstable", tree.root));
    fs::write(format!("{tier}/memory.max"), (192 * MIB).to_string()).unwrap();
    tree.carry_out(&[marks(CONTAINER, -25), marks(be, 50)].concat());
    for (target, words) in [(be, "uses more than"), (CONTAINER, "uses more than")] {
        assert!(tree.host.describe_software_reclaim(target, &[]).unwrap().contains(words));
    }
    let mount = tier.split(&tree.root).next().unwrap().to_owned();
    let number = |path: &str, file: &str, key: &str| {
        let text = fs::read_to_string(format!("{mount}{path}/{file}")).unwrap();
        let value =
            text.lines().find_map(|line| line.strip_prefix(key).map(str::trim).and_then(|rest| rest.parse().ok()));
        value.unwrap_or(0_u64)
    };
    // LS first, and it stays at 80 MiB. Then BE reads 180 MiB, and would drive LS out of the 192 MiB.
    let (ls_data, be_data) = (Sparse::new("unbounded-ls"), Sparse::new("unbounded-be"));
    tree.run(&ls_data.reader(40));
    ls_data.wait_until_read();
    let ls_before = number(&ls_path, "memory.current", "");
    assert!(ls_before > 70 * MIB, "{ls_before}");
    let mut reader = tree.start_in(&be_path, &be_data.reader(90));
    be_data.wait_until_read();
    let begun = Instant::now();
    while number(&be_path, "memory.stat", "pgsteal ") * 4096 <= 50 * MIB && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(50));
    }
    let report = tree.host.reclaim_report(be);
    let (ls_stolen, be_stolen) =
        (number(&ls_path, "memory.stat", "pgsteal "), number(&be_path, "memory.stat", "pgsteal "));
    let ls_after = number(&ls_path, "memory.current", "");
    rustix::process::kill_process_group(rustix::process::Pid::from_child(&reader), rustix::process::Signal::KILL)
        .unwrap();
    reader.wait().unwrap();
    let reported = format!("LS {ls_before} -> {ls_after}, {ls_stolen} pages; BE {be_stolen} pages; {report:?}");
    assert!(be_stolen * 4096 > 50 * MIB, "{reported}");
    assert!(ls_stolen * 20 < be_stolen && ls_after * 10 > ls_before * 9, "{reported}");
}
