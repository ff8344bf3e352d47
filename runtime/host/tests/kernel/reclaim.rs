//! Background reclaim in the kernel's place.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use qosm_host::{CgroupVersion, Controller, Executed, Support};
use qosm_model::knob::{Knob, Value};

use super::{CONTAINER, ID, Tree, want};

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
