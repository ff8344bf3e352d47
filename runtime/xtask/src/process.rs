//! Processes that outlive the command that started them. Their folder records the process ID with the start time, so that a reused ID is
//! recognized.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::command;
use crate::state_dir::StateDir;

/// The subfolder with the records of processes.
const RECORDS: &str = "processes";
/// The subfolder with their output.
const LOGS: &str = "logs";

/// A process; a later one with the same ID is not equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: Pid,
    /// Start time in clock ticks since boot.
    start: u64,
}

impl Process {
    /// Starts a program that keeps running after this process ends, with its output in a log and its ID on record.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub(crate) fn start(state: &StateDir, name: &str, command: &Command) -> Result<()> {
        let record = state.make(RECORDS)?.join(name);
        let log = log(state, name)?;
        // The shell records its own ID before it executes the program, so the program never runs without a record. It replaces the old
        // record in one step, because a partial or old record would be believed.
        let script = "cat /proc/$$/stat >\"$RECORD.new\" && mv \"$RECORD.new\" \"$RECORD\" && exec \"$@\"";
        match fs::remove_file(&record) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", record.display()));
            }
            Ok(()) | Err(_) => {}
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", script, "sh"]).arg(command.get_program()).args(command.get_args());
        shell.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?)))).env("RECORD", &record);
        shell.current_dir(state.dir()).stdin(Stdio::null());
        shell.stdout(log.try_clone().context("a log cannot be opened twice")?).stderr(log);
        // A process group of its own, so that Ctrl-C does not reach it.
        shell.process_group(0).spawn().with_context(|| format!("{name} cannot be started"))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Self::recorded(state, name).is_none() {
            if Instant::now() > deadline {
                bail!("{name} does not start");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// The process with this name, if it runs.
    pub(crate) fn running(state: &StateDir, name: &str) -> Option<Self> {
        Self::recorded(state, name).filter(|process| process.runs())
    }

    /// The process that was last started with this name, running or not.
    fn recorded(state: &StateDir, name: &str) -> Option<Self> {
        Stat::parse(&fs::read_to_string(state.path(RECORDS).join(name)).ok()?).map(|stat| stat.process)
    }

    /// The processes with this argument.
    pub(crate) fn with_argument(argument: &str) -> Vec<Self> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if line.split(|&byte| byte == 0).any(|word| word == argument.as_bytes()) {
                let stat = fs::read_to_string(entry.path().join("stat")).ok();
                found.extend(stat.and_then(|line| Stat::parse(&line)).map(|stat| stat.process));
            }
        }
        found
    }

    /// The process ID.
    pub(crate) fn pid(self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Whether the process still runs. A zombie does not.
    fn runs(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok().and_then(|line| Stat::parse(&line));
        stat.is_some_and(|stat| stat.process == self && !stat.ended)
    }

    /// Sends SIGTERM, waits for `patience`, and then sends SIGKILL.
    ///
    /// # Errors
    ///
    /// If the process does not end even then.
    pub(crate) fn end(self, patience: Duration) -> Result<()> {
        for (signal, patience) in [(Signal::TERM, patience), (Signal::KILL, Duration::from_secs(10))] {
            self.signal(signal);
            let deadline = Instant::now() + patience;
            while self.runs() {
                if Instant::now() > deadline {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        if self.runs() {
            bail!("process {} does not end", self.pid());
        }
        Ok(())
    }

    /// Sends a signal, unless the process has ended.
    fn signal(self, signal: Signal) {
        // The descriptor keeps referring to one process, so check the process after it is open.
        if let Ok(descriptor) = pidfd_open(self.pid, PidfdFlags::empty())
            && self.runs()
        {
            let _ = pidfd_send_signal(&descriptor, signal);
        }
    }
}

/// The kernel's status of a process.
struct Stat {
    process: Process,
    ended: bool,
}

impl Stat {
    /// Reads a line of `/proc/<pid>/stat` (Linux, Documentation/filesystems/proc.rst, table 1-4).
    fn parse(line: &str) -> Option<Self> {
        let pid = line.split_once(' ')?.0.parse().ok()?;
        // The program's name is in parentheses, and may contain parentheses.
        let rest = line.rsplit_once(')')?.1;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?;
        let start = fields.nth(18)?.parse().ok()?;
        Some(Self { process: Process { pid: Pid::from_raw(pid)?, start }, ended: matches!(state, "Z" | "X") })
    }
}

/// Prints the last lines of a process's log, if it has one.
pub(crate) fn tail(state: &StateDir, name: &str, lines: usize) {
    let file = state.path(LOGS).join(format!("{name}.log"));
    let Ok(log) = File::open(&file) else { return };
    let mut last = VecDeque::new();
    // An unreadable log is ignored: another error is being reported.
    let _ = command::each_line(log, |line| {
        last.push_back(line.to_owned());
        last.drain(..last.len().saturating_sub(lines));
    });
    command::heading(&format!("the last lines of {}", file.display()));
    for line in last {
        println!("    {line}");
    }
}

/// Opens the log of a process for appending.
fn log(state: &StateDir, name: &str) -> Result<File> {
    let file = state.make(LOGS)?.join(format!("{name}.log"));
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&file);
    opened.with_context(|| format!("{} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let line = "42 (a) b) S 1 42 42 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 9876 0 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.process.pid(), stat.process.start, stat.ended), (42, 9876, false));
        assert!(Stat::parse(&line.replace(" S ", " Z ")).unwrap().ended);
        assert!(Stat::parse("42 (a) S 1").is_none());
    }

    #[test]
    fn what_was_started_can_be_ended_and_a_stranger_of_its_number_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::at(folder.path().to_path_buf()).unwrap();
        Process::start(&state, "one", Command::new("sleep").arg("600")).unwrap();
        let one = Process::running(&state, "one").unwrap();
        let stranger = Process { start: one.start + 1, ..one };
        assert!(!stranger.runs());
        stranger.end(Duration::ZERO).unwrap();
        assert!(one.runs());
        one.end(Duration::from_secs(10)).unwrap();
        assert!(Process::running(&state, "one").is_none());
    }
}
