//! A running agent, its commands, and waits for its effects.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::node::{Node, binary};
use crate::waiting::wait_until;
use crate::{PATIENCE, PAUSE};

const SOCKET_VARIABLE: &str = "QOSM_ADMIN_SOCKET";

/// A running agent. Killed when dropped; its log is printed when the test fails.
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
    socket: PathBuf,
    metrics: u16,
}

impl Agent {
    /// Starts an agent on a node, and waits until it answers.
    #[track_caller]
    pub(crate) fn start(node: &Node) -> Self {
        Self::start_with(node, &[])
    }

    /// As [`Self::start`], with more flags.
    #[track_caller]
    pub(crate) fn start_with(node: &Node, flags: &[(&str, &str)]) -> Self {
        let mut agent = Self::spawn(node, flags);
        agent.wait_until_it_answers();
        agent
    }

    /// Starts an agent without waiting.
    pub(crate) fn spawn(node: &Node, flags: &[(&str, &str)]) -> Self {
        // A free port, which the agent binds a moment later.
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{metrics}");
        let command = node.agent_command(&[&[("--metrics-listen", address.as_str())], flags].concat());
        Self::run(command, node, metrics)
    }

    /// Starts an agent that gets the path of its socket and its log level only from its environment, and waits until it answers there.
    #[track_caller]
    pub(crate) fn start_by_variable(node: &Node) -> Self {
        let socket = node.path("admin.sock");
        let named = node.agent_command(&[]);
        let mut command = Command::new(named.get_program());
        command.args(named.get_args().filter(|argument| *argument != "--admin-socket" && *argument != socket));
        command.stdin(Stdio::null()).env("NO_COLOR", "1").env(SOCKET_VARIABLE, &socket);
        command.env("QOSM_LOG", "qosm_agent=debug,info");
        let mut agent = Self::run(command, node, 0);
        agent.wait_until_it_answers();
        agent
    }

    /// Starts an agent that is expected to end by itself. Returns its exit code and its log.
    pub(crate) fn run_to_end(node: &Node, flags: &[(&str, &str)]) -> (Option<i32>, String) {
        let mut agent = Self::run(node.agent_command(flags), node, 0);
        let status = agent.wait_until_it_ends();
        (status.code(), agent.log())
    }

    fn run(mut command: Command, node: &Node, metrics: u16) -> Self {
        static LOGS: AtomicU32 = AtomicU32::new(0);
        let log = node.path(&format!("agent-{}.log", LOGS.fetch_add(1, Ordering::Relaxed)));
        let child = command.stdout(Stdio::null()).stderr(File::create(&log).unwrap()).spawn().unwrap();
        Self { child, log, socket: node.path("admin.sock"), metrics }
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn wait_until_it_answers(&mut self) {
        let begun = Instant::now();
        // The socket exists before the loop runs; only a response shows that the loop runs.
        while self.admin("/v1/policies").is_none() {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "the agent ended");
            assert!(begun.elapsed() < PATIENCE, "the agent does not answer");
            sleep(PAUSE);
        }
    }

    #[track_caller]
    pub(crate) fn wait_until_it_ends(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the agent does not end");
            sleep(PAUSE);
        }
    }

    /// Waits until the agent handles SIGTERM: before its `main`, the signal would end it.
    #[track_caller]
    pub(crate) fn wait_until_it_hears(&self) {
        wait_until("the agent to hear SIGTERM", || hears_terminate(self.child.id()));
    }

    /// Sends SIGTERM, waits for the end, and returns the log.
    #[track_caller]
    pub(crate) fn terminate(self) -> String {
        let (status, log) = self.end();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// As [`Self::terminate`], for an agent that ends with a failure.
    #[track_caller]
    pub(crate) fn terminate_in_vain(self) -> String {
        let (status, log) = self.end();
        assert_eq!(status.code(), Some(1), "{log}");
        log
    }

    #[track_caller]
    fn end(mut self) -> (ExitStatus, String) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        (self.wait_until_it_ends(), self.log())
    }

    /// Kills the agent (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Runs several steps while the agent is stopped, so that it sees none of them alone.
    pub(crate) fn at_once(&self, act: impl FnOnce()) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next().map(str::to_owned))
        };
        wait_until("the agent to have stopped", || state().as_deref() == Some("T"));
        act();
        kill_process(pid, Signal::CONT).unwrap();
    }

    /// The agent's process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// As [`Agent::ask`], but returns the command's error.
    pub(crate) fn try_ask(&self, args: &[&str]) -> Result<String, String> {
        let output = Command::new(binary()).args(args).arg("--admin-socket").arg(&self.socket).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Whether the agent still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Fetches a document of the admin API directly: a command takes long on an emulated machine. `None` if there is none.
    fn admin(&self, path: &str) -> Option<Value> {
        let (status, body) = exchange(UnixStream::connect(&self.socket).ok()?, path).ok()?;
        status.contains("200").then(|| serde_json::from_str(&body).unwrap())
    }

    /// Runs a command that gets the admin socket's path from its environment; `None` if it fails.
    pub(crate) fn ask_by_variable(&self, args: &[&str]) -> Option<String> {
        let output = Command::new(binary()).args(args).env(SOCKET_VARIABLE, &self.socket).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// Runs a command against the admin socket; `None` if it fails.
    pub(crate) fn ask(&self, args: &[&str]) -> Option<String> {
        let output = Command::new(binary()).args(args).arg("--admin-socket").arg(&self.socket).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// As [`Agent::ask`], as JSON. Fails the test if the command fails.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.ask(&[args, &["-o", "json"]].concat()).unwrap_or_else(|| unreachable!("{args:?} failed"));
        serde_json::from_str(&text).unwrap()
    }

    /// The explanation of `default/web`; `null` while the pod is unknown.
    pub(crate) fn explain(&self) -> Value {
        self.admin("/v1/explain?pod=default/web").unwrap_or_default()
    }

    /// The differences of a shadow; `null` while there is none of that name.
    pub(crate) fn diff(&self, policy: &str) -> Value {
        self.admin(&format!("/v1/diff?policy={policy}")).unwrap_or_default()
    }

    /// The report of a policy; `null` if there is none of that name.
    pub(crate) fn policy(&self, name: &str) -> Value {
        let policies = self.admin("/v1/policies").unwrap_or_default();
        let named = policies.as_array().into_iter().flatten().find(|policy| policy["policy"] == name);
        named.cloned().unwrap_or_default()
    }

    /// The report of one held knob, of the pod or of the container; `null` if it is not held.
    pub(crate) fn held(&self, level: &str, knob: &str) -> Value {
        let explanation = self.explain();
        let knobs = explanation["knobs"].as_array();
        knobs
            .into_iter()
            .flatten()
            .find(|held| held["level"] == level && held["knob"] == knob)
            .cloned()
            .unwrap_or_default()
    }

    /// Problems of the configuration.
    #[track_caller]
    pub(crate) fn problems(&self) -> Vec<String> {
        serde_json::from_value(self.admin("/v1/problems").unwrap()).unwrap()
    }

    /// A response of the HTTP server: status line and body.
    pub(crate) fn get(&self, path: &str) -> (String, String) {
        exchange(TcpStream::connect(("127.0.0.1", self.metrics)).unwrap(), path).unwrap()
    }

    /// The sum of a metric over the label sets that contain all of these words.
    pub(crate) fn metric(&self, name: &str, words: &[&str]) -> f64 {
        metric_in(&self.get("/metrics").1, name, words)
    }

    /// Waits for `ticks` more ticks, after which the agent has done all that it will do.
    #[track_caller]
    pub(crate) fn let_it_run(&self, ticks: u32) {
        let steps = || self.metric("qosm_step_seconds_count", &[]);
        let end = steps() + f64::from(ticks);
        wait_until("the loop to go round", || steps() >= end);
    }
}

/// Whether a process handles SIGTERM.
pub(crate) fn hears_terminate(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> 14 & 1 == 1)
}

/// The sum of a metric's rows that contain these words, in one response.
pub(crate) fn metric_in(text: &str, name: &str, words: &[&str]) -> f64 {
    text.lines()
        .filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
                && words.iter().all(|word| line.contains(word))
        })
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// Sends an HTTP request. Returns status line and body.
fn exchange(mut stream: impl Read + Write, path: &str) -> io::Result<(String, String)> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: qosm\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} said:\n{}", self.log.display(), self.log());
        }
    }
}
