//! A local socket whose connections lead to a node's agent.

use std::fs::Permissions;
use std::io::Read;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};
use qosm_terminal::interrupt;
use tempfile::TempDir;

use crate::relay::copy;

/// Exit code of a command that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Until it is dropped, each connection to its socket leads to the agent.
pub(super) struct Tunnel {
    shared: Arc<Shared>,
    folder: TempDir,
}

#[derive(Default)]
struct Shared {
    /// The running relays.
    relays: Mutex<Vec<Arc<Mutex<Child>>>>,
    /// Error of the last relay that failed.
    trouble: Mutex<Option<String>>,
}

impl Tunnel {
    /// `relay` is the command whose standard input and output are a connection. A signal ends this process, unless the command
    /// handles signals itself (`ends_on_signals`).
    pub(super) fn open(mut relay: Command, ends_on_signals: bool) -> anyhow::Result<Self> {
        // Mode 0700, because each client of the socket acts as this user.
        let mut folder = tempfile::Builder::new();
        folder.prefix("kubectl-qosm-").permissions(Permissions::from_mode(0o700));
        let folder = folder.tempdir().context("no folder for a socket")?;
        // Own process group: Ctrl-C reaches only the command, which first finishes its work.
        relay.process_group(0);
        if !ends_on_signals {
            let path = folder.path().to_owned();
            interrupt::listen(move || {
                std::fs::remove_dir_all(path).ok();
                std::process::exit(INTERRUPTED);
            })?;
        }
        let tunnel = Self { shared: Arc::default(), folder };
        let listener = UnixListener::bind(tunnel.socket()).context("no socket to ask the agent through")?;
        let shared = tunnel.shared.clone();
        std::thread::spawn(move || accept(&listener, relay, &shared));
        Ok(tunnel)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.folder.path().join("qosm.sock")
    }

    /// A function that returns why the last failed connection failed.
    pub(super) fn trouble(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let shared = self.shared.clone();
        move || lock(&shared.trouble).clone()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for relay in lock(&self.shared.relays).iter() {
            lock(relay).kill().ok();
        }
    }
}

/// Locks, also after a panic: fields are changed one at a time and stay valid.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(listener: &UnixListener, mut relay: Command, shared: &Arc<Shared>) {
    relay.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for connection in listener.incoming().map_while(Result::ok) {
        let started = relay.spawn().context("kubectl cannot be run; is it on the PATH?");
        let shared = shared.clone();
        std::thread::spawn(move || {
            let ended = started.and_then(|relay| serve(relay, &connection, &shared));
            // Recorded before the connection ends, so that the client finds it.
            if let Err(error) = ended {
                *lock(&shared.trouble) = Some(format!("{error:#}"));
            }
            connection.shutdown(Shutdown::Both).ok();
        });
    }
}

/// Serves one connection to its end.
fn serve(mut relay: Child, connection: &UnixStream, shared: &Shared) -> anyhow::Result<()> {
    let (to, from, says) = (relay.stdin.take(), relay.stdout.take(), relay.stderr.take());
    let (to, from) = (to.context("no standard input")?, from.context("no standard output")?);
    let relay = Arc::new(Mutex::new(relay));
    lock(&shared.relays).push(relay.clone());
    let asks = connection.try_clone()?;
    // When the client closes its side, the relay's standard input closes, and the relay ends.
    std::thread::spawn(move || copy(&asks, to));
    let says = std::thread::spawn(move || read(says));
    let copied = copy(from, connection);
    // The client is gone: this ends the thread that reads its requests.
    if copied.is_err() {
        connection.shutdown(Shutdown::Both).ok();
    }
    let says = says.join().unwrap_or_default();
    let status = lock(&relay).wait()?;
    lock(&shared.relays).retain(|other| !Arc::ptr_eq(other, &relay));
    if !status.success() && copied.is_ok() {
        match says.trim() {
            "" => bail!("kubectl: {status}"),
            says => bail!("{says}"),
        }
    }
    Ok(())
}

fn read(from: Option<ChildStderr>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes).ok();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn exchange(socket: &Path, question: &[u8]) -> String {
        let mut connection = UnixStream::connect(socket).unwrap();
        // If the other end is gone already, only its output counts.
        connection.write_all(question).ok();
        connection.shutdown(Shutdown::Write).ok();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_connection_is_a_command_of_its_own() {
        let tunnel = Tunnel::open(shell("sed s/^/answer:/"), true).unwrap();
        let folder = tunnel.socket().parent().unwrap().to_owned();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o077, 0, "it is for this user alone");
        for question in ["one", "two"] {
            assert_eq!(exchange(&tunnel.socket(), question.as_bytes()), format!("answer:{question}"));
        }
        assert_eq!(tunnel.trouble()(), None);
        drop(tunnel);
        assert!(!folder.exists());
    }

    #[test]
    fn what_a_relay_says_before_it_fails_is_kept() {
        let tunnel = Tunnel::open(shell("echo 'error: pods \"x\" is forbidden' >&2; exit 1"), true).unwrap();
        assert_eq!(exchange(&tunnel.socket(), b""), "");
        assert_eq!(tunnel.trouble()().as_deref(), Some("error: pods \"x\" is forbidden"));
        let silent = Tunnel::open(shell("exit 3"), true).unwrap();
        assert_eq!(exchange(&silent.socket(), b""), "");
        assert_eq!(silent.trouble()().as_deref(), Some("kubectl: exit status: 3"));
    }

    #[test]
    fn a_relay_that_hangs_ends_with_the_tunnel() {
        let tunnel = Tunnel::open(shell("echo $$; exec sleep 1000"), true).unwrap();
        let mut connection = UnixStream::connect(tunnel.socket()).unwrap();
        let mut pid = [0; 16];
        let length = connection.read(&mut pid).unwrap();
        let pid = String::from_utf8_lossy(&pid[..length]).trim().to_owned();
        drop(tunnel);
        // The relay's end closes its standard output, and with it the connection.
        connection.read_to_string(&mut String::new()).unwrap();
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z"), "{state}");
    }
}
