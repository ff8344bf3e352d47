//! The verbs that mount an emulated resctrl. Needs root and `/dev/fuse`; uses temporary folders.
//!
//! `QOSM_POLICY_BIN` overrides the path of the binary, by default the one that cargo built, and `QOSM_BIN` that of `qosm`, by default next
//! to it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

fn binary() -> PathBuf {
    std::env::var_os("QOSM_POLICY_BIN").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_qosm-policy")), PathBuf::from)
}

fn qosm_policy(args: &[&str]) -> Output {
    Command::new(binary()).args(args).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

fn qosm(args: &[&str]) -> Output {
    let qosm = std::env::var_os("QOSM_BIN").map_or_else(|| binary().with_file_name("qosm"), PathBuf::from);
    Command::new(qosm).args(args).env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !look() {
        assert!(begun.elapsed() < Duration::from_secs(120), "waited in vain for: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// A running emulation; dropping it ends the process.
struct Emulation {
    process: Child,
    folder: TempDir,
}

impl Emulation {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resctrl");
        let mut command = Command::new(binary());
        command.args(["resctrl", "emulate"]).arg(&path).args(args).stdin(Stdio::piped()).stdout(Stdio::null());
        let emulation = Self { process: command.stderr(Stdio::piped()).spawn().unwrap(), folder };
        wait_until("the mount", || path.join("info/last_cmd_status").exists());
        emulation
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("resctrl")
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn doctor(&self) -> Value {
        let path = self.path().display().to_string();
        let asked = qosm(&["doctor", "--resctrl", &path, "-o", "json"]);
        assert!(asked.status.success(), "{asked:?}");
        serde_json::from_slice(&asked.stdout).unwrap()
    }

    fn interrupt(mut self) -> String {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        let path = self.path();
        let output = loop {
            if self.process.try_wait().unwrap().is_some() {
                let mut said = String::new();
                std::io::Read::read_to_string(self.process.stderr.as_mut().unwrap(), &mut said).unwrap();
                break said;
            }
            sleep(Duration::from_millis(20));
        };
        assert!(!path.exists(), "{} is still there", path.display());
        output
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

fn counter(mount: &Path, file: &str) -> u64 {
    fs::read_to_string(mount.join("mon_data/mon_L3_00").join(file)).unwrap().trim().parse().unwrap()
}

#[test]
fn an_emulation_stays_until_it_is_interrupted_and_leaves_nothing() {
    let emulation = Emulation::start(&["--profile", "few-closids"]);
    let tree = emulation.path();
    fs::create_dir(tree.join("tenant-a")).unwrap();
    fs::create_dir(tree.join("qosm-be")).unwrap();
    let found = &emulation.doctor()["resctrlDetails"];
    assert_eq!((&found["state"], &found["emulated"]), (&"mounted".into(), &true.into()));
    assert_eq!((&found["has"]["closids"], &found["has"]["freeClosids"]), (&4.into(), &1.into()));
    assert_eq!(found["has"]["ownGroups"], serde_json::json!(["qosm-be"]));
    assert_eq!(found["has"]["foreignGroups"], serde_json::json!(["tenant-a"]));
    assert_eq!(emulation.interrupt(), "");
}

#[test]
fn an_emulated_processor_is_not_taken_for_this_ones() {
    let units = ["intel", "amd"].map(|profile| {
        let emulation = Emulation::start(&["--profile", profile]);
        emulation.doctor()["resctrlDetails"]["has"]["bandwidthLines"][0]["unit"].clone()
    });
    assert_eq!(units, ["percent", "eighths-of-gigabyte-per-second"]);
}

#[test]
fn its_counters_follow_standard_input() {
    let mut emulation = Emulation::start(&["--stepped"]);
    let tree = emulation.path();
    emulation.tell(&format!("demand {} 4Mi 1G", std::process::id()));
    emulation.tell("what is this");
    emulation.tell("step 10");
    wait_until("the step", || counter(&tree, "llc_occupancy") == 4 << 20);
    let moved = counter(&tree, "mbm_total_bytes");
    assert!((9_999_000_000..=10_000_000_000).contains(&moved), "{moved}");
    sleep(Duration::from_millis(100));
    assert_eq!(counter(&tree, "mbm_total_bytes"), moved);
    let said = emulation.interrupt();
    assert!(said.contains("`what is this`") && said.contains("step SECONDS"), "{said}");
}

#[test]
fn a_program_that_starts_another_with_a_file_of_it_open_goes_on() {
    let emulation = Emulation::start(&[]);
    let file = fs::File::open(emulation.path().join("schemata")).unwrap();
    for _ in 0..50 {
        assert!(Command::new("/bin/true").status().unwrap().success());
        fs::read_to_string(emulation.path().join("tasks")).unwrap();
    }
    drop(file);
}

#[test]
fn a_machine_that_is_none_is_refused_before_anything_is_mounted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resctrl").display().to_string();
    for (profile, code, word) in [("pentium", 2, "few-closids"), ("none", 1, "neither allocation nor monitoring")] {
        let refused = qosm_policy(&["resctrl", "emulate", &path, "--profile", profile]);
        assert_eq!(refused.status.code(), Some(code), "{refused:?}");
        assert!(text(&refused.stderr).contains(word), "{refused:?}");
        assert!(!Path::new(&path).exists());
    }
}
