//! The state folder: read-only, full, damaged. Without a journal nothing is written to the kernel.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::agent::Agent;
use crate::node::{APP, BASE, BURST, Node};
use crate::waiting::wait_until;

/// A small tmpfs, unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(path: PathBuf, size: &str) -> Self {
        fs::create_dir(&path).unwrap();
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(&path).status().unwrap();
        assert!(status.success(), "mounting a tmpfs needs root: {status}");
        Self(path)
    }

    /// Fills the file system.
    fn fill(&self) -> PathBuf {
        let filler = self.0.join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        filler
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn refuses(node: &Node, state: &Path, words: &[&str]) {
    let before = node.cgroups.knobs();
    let (code, said) = Agent::run_to_end(node, &[("--state-dir", &state.display().to_string())]);
    assert_eq!(code, Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}`: {said}");
    }
    assert_eq!(node.cgroups.knobs(), before, "without a journal nothing is written");
}

#[test]
fn a_state_folder_that_cannot_be_written_is_refused() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    // Not even root can create files in /proc.
    refuses(&node, Path::new("/proc/self/state"), &["/proc/self/state"]);
    fs::write(node.path("file"), "").unwrap();
    refuses(&node, &node.path("file/state"), &["file/state"]);
    let full = Small::mount(node.path("full"), "size=64k");
    full.fill();
    refuses(&node, &full.0, &["No space left"]);
}

#[test]
fn a_disk_that_fills_up_stops_the_writing_and_not_the_agent() {
    let node = Node::busy(&json!({}));
    let before = node.cgroups.knobs();
    let disk = Small::mount(node.path("disk"), "size=64m");
    let state = disk.0.display().to_string();
    let mut agent = Agent::start_with(&node, &[("--state-dir", &state)]);
    let filler = disk.fill();
    node.pod(&json!({BURST: {"policy": "auto"}}));
    wait_until("the journal to fail", || agent.metric("qosm_journal_failures_total", &[]) >= 1.0);
    let stuck = node.cgroups.knobs();
    agent.let_it_run(5);
    assert_eq!(node.cgroups.knobs(), stuck, "no journal, no write");
    wait_until("it to be reported", || {
        let (status, body) = agent.get("/readyz");
        status.contains("503") && body.contains("journal")
    });
    fs::remove_file(&filler).unwrap();
    wait_until("a raise, once there is room again", || node.cgroups.quota(APP) > BASE);
    wait_until("/readyz", || agent.get("/readyz").0.contains("200"));
    assert!(agent.runs());
    agent.terminate();
    assert_eq!(node.cgroups.knobs(), before);
}

#[test]
fn a_full_disk_does_not_keep_the_end_from_restoring() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    let before = node.cgroups.knobs();
    let disk = Small::mount(node.path("disk"), "size=64m");
    let state = disk.0.display().to_string();
    let agent = Agent::start_with(&node, &[("--state-dir", &state)]);
    wait_until("a raise", || node.cgroups.quota(APP) > BASE);
    disk.fill();
    agent.let_it_run(5);
    let log = agent.terminate();
    assert_eq!(node.cgroups.knobs(), before, "what is put back is what the journal already knows: {log}");
}

#[test]
fn a_damaged_journal_is_set_aside_and_reported() {
    let node = Node::busy(&json!({BURST: {"policy": "auto"}}));
    for damage in ["garbage", "cut off", "zeroes"] {
        let agent = Agent::start_with(&node, &[("--on-shutdown", "keep")]);
        wait_until("a raise", || node.cgroups.quota(APP) > BASE);
        agent.terminate();
        let journal = fs::read_dir(node.path("state")).unwrap().flatten().map(|entry| entry.path());
        let journal = journal.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "redb")).unwrap();
        let size = fs::metadata(&journal).unwrap().len();
        match damage {
            "garbage" => fs::write(&journal, vec![0xa5; usize::try_from(size).unwrap()]).unwrap(),
            "zeroes" => fs::write(&journal, vec![0; usize::try_from(size).unwrap()]).unwrap(),
            _ => fs::File::options().write(true).open(&journal).unwrap().set_len(size / 3).unwrap(),
        }
        // The first program that opens the damaged journal reports it; here it is `restore`.
        if damage == "zeroes" {
            let (report, good) = node.restore(&[]);
            assert!(!good && report.contains("damaged"), "{report}");
        }
        let agent = Agent::start(&node);
        let log = agent.log();
        let aside = journal.with_extension("redb.damaged");
        assert!(aside.exists(), "{damage}: {log}");
        assert!(damage == "zeroes" || log.contains("damaged"), "{damage}: {log}");
        // The agent runs, and holds the quota on top of the value that it found; the burst that it found is already at its maximum.
        wait_until("the quota to be held", || !agent.held("container", "cpu.quota").is_null());
        agent.terminate();
        fs::remove_file(aside).unwrap();
    }
}
