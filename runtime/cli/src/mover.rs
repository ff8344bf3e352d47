//! The page mover: moves pages for the agent, and puts processes into core scheduling groups. The agent starts it, or it runs
//! beside the agent in its own pod.
//!
//! It has the privileges that the agent gives up: to inspect other users' processes, and to move their pages. So it does nothing
//! else. As a child of the agent it consists of two processes: a supervisor that restarts the worker when it ends, since a
//! confined agent cannot start anything with privileges; and the worker.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use qosm_agent::config::PolicyConfig;
use qosm_confinement::{Capability, Confinement, Seccomp, Status};
use qosm_engine::Interface;
use qosm_host::{MoverAddress, schedules_by_cores, send_mover_exit};
use qosm_terminal::{Answer, interrupt, log};
use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with, socketpair, sockopt,
};
use rustix::process::{Signal, geteuid, set_parent_process_death_signal};

use crate::args::{AgentArgs, HostArgs, MoverArgs};
use crate::{confine, host};

/// The name of the command.
const COMMAND: &str = "move-pages";
/// To inspect other users' processes, to read `/proc/PID/pagemap`, and to move pages.
const CAPABILITIES: [Capability; 3] = [Capability::SYS_PTRACE, Capability::DAC_READ_SEARCH, Capability::SYS_NICE];
/// How long the mover serves a connected agent after a signal to end: when a chart is uninstalled, the mover's pod may end before
/// the agent's, which has core scheduling groups to release.
const FAREWELL: Duration = Duration::from_secs(10);
/// Pause before a restart: doubled each time up to `MAX_RESTART`, and reset after `GOOD_WHILE` without an end.
const RESTART: Duration = Duration::from_secs(1);
const MAX_RESTART: Duration = Duration::from_secs(60);
const GOOD_WHILE: Duration = Duration::from_secs(300);

/// Runs `qosm move-pages`.
pub(crate) fn run(args: &MoverArgs) -> anyhow::Result<Answer> {
    log::start(args.log_format);
    confine_mover()?;
    if args.socket.is_none() {
        // A signal to end may reach the agent's children as well. They ignore it and end after the agent, which has core
        // scheduling groups to release.
        interrupt::listen(|| {})?;
    }
    if args.supervise {
        return supervise(&args.host);
    }
    let mut host = host::open_read_only(&args.host)?;
    match &args.socket {
        None => {
            let socket = io::stdin().as_fd().try_clone_to_owned().context("no socket on standard input")?;
            host.serve_migrations(socket).context("the agent cannot be talked to")?;
        }
        Some(path) => {
            let listener = listen_at(path).with_context(|| format!("cannot listen on {}", path.display()))?;
            let is_serving = Arc::new(AtomicBool::new(false));
            end_when_nobody_is_served(&is_serving)?;
            tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %path.display(), "page mover runs");
            loop {
                let agent = accept_with(&listener, SocketFlags::CLOEXEC).context("no agent can connect")?;
                is_serving.store(true, Ordering::SeqCst);
                if let Err(error) = is_root(&agent).and_then(|()| host.serve_migrations(agent)) {
                    tracing::warn!(%error, "an agent could not be served");
                }
                is_serving.store(false, Ordering::SeqCst);
            }
        }
    }
    Ok(Answer::Good)
}

/// Ends the process after a signal, once no agent is connected or [`FAREWELL`] has passed.
fn end_when_nobody_is_served(is_serving: &Arc<AtomicBool>) -> anyhow::Result<()> {
    let is_serving = Arc::clone(is_serving);
    interrupt::listen(move || {
        let begun = std::time::Instant::now();
        while is_serving.load(Ordering::SeqCst) && begun.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::process::exit(0);
    })
}

/// Without Landlock: under it, a process may inspect only processes under the same rules.
fn confine_mover() -> anyhow::Result<()> {
    // CAP_DAC_OVERRIDE allows reading as well.
    let reads = Status::read().map_or(true, |status| status.effective & Capability::DAC_READ_SEARCH.bit() != 0);
    Confinement::new(Seccomp::MovePages)
        .keep(CAPABILITIES)
        .keep((!reads).then_some(Capability::DAC_OVERRIDE))
        .all_paths()
        .enter()
        .context("the page mover cannot be confined")?;
    Ok(())
}

/// Opens a socket for root alone, and replaces one that an earlier mover left.
fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
        Ok(_) => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file of that name, and it is no socket",
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // `bind` creates the file with the mode of the socket, so no client may connect before a later chmod.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 4)?;
    Ok(socket)
}

/// Checks that a client is root. The socket's mode ensures this too, unless its folder was changed meanwhile.
fn is_root(peer: &OwnedFd) -> io::Result<()> {
    let credentials = sockopt::socket_peercred(peer)?;
    if credentials.uid.is_root() || credentials.uid == geteuid() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("user {} is not root", credentials.uid.as_raw())))
}

/// Starts the worker, and restarts it as long as the agent is connected.
fn supervise(args: &HostArgs) -> anyhow::Result<Answer> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut pause = RESTART;
    loop {
        let begun = std::time::Instant::now();
        let socket = || io::stdin().as_fd().try_clone_to_owned();
        let mut command = command(args);
        let status = command.stdin(Stdio::from(socket()?)).status().context("the page mover cannot be started")?;
        if status.success() {
            // The agent has closed its end.
            return Ok(Answer::Good);
        }
        if begun.elapsed() > GOOD_WHILE {
            pause = RESTART;
        }
        if send_mover_exit(socket()?, status.to_string(), pause).is_err() {
            return Ok(Answer::Good);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_RESTART);
    }
}

fn command(args: &HostArgs) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(COMMAND).arg("--cgroup-mount").arg(&args.cgroup_mount).arg("--cgroup-root").arg(&args.cgroup_root);
    command.arg("--proc").arg(&args.proc).arg("--sys").arg(&args.sys);
    if let Some(driver) = args.cgroup_driver {
        command.arg("--cgroup-driver").arg(driver.as_str());
    }
    command.current_dir("/").stdout(Stdio::null());
    command
}

/// The address of the page mover; starts it if necessary. Called before the agent confines itself, because a child inherits the
/// agent's privileges. The mover itself reports what it lacks.
pub(crate) fn start(args: &AgentArgs, entries: &[PolicyConfig]) -> MoverAddress {
    if let Some(path) = &args.page_mover {
        return MoverAddress::Listening(path.clone());
    }
    let absent = |why: &str| MoverAddress::Absent(why.to_owned());
    let online = std::fs::read_to_string(args.host.sys.join("devices/system/node/online")).unwrap_or_default();
    let has_pages = online.trim().contains(['-', ',']);
    let has_cores = schedules_by_cores();
    if !has_pages && !has_cores {
        return absent("this node has one NUMA node, and no core scheduling");
    }
    if args.kubernetes.kubernetes {
        return absent(
            "no --page-mover is given: in a cluster it is a DaemonSet of its own (policies.memoryLocality.enabled, \
             agent.hostAccess.coreScheduling)",
        );
    }
    // PolicyModules in a file may request the grant at any time.
    let grants = |interface| confine::grants(entries, &[interface]) || !args.config.is_empty();
    if !(has_pages && grants(Interface::PageMigration) || has_cores && grants(Interface::CpuIdentity)) {
        return absent("no policy is granted page-migration, or cpu-identity; restart the agent after granting it");
    }
    match spawn(args) {
        Ok(socket) => MoverAddress::Connected(socket),
        Err(error) => absent(&format!("it cannot be started: {error}")),
    }
}

fn spawn(args: &AgentArgs) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // Not waited for: the child ends with the agent, by its socket or by the kernel.
    command(&args.host).arg("--supervise").stdin(Stdio::from(theirs)).spawn()?;
    Ok(ours)
}
