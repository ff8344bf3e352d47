//! The thread that holds a cookie while it is copied to processes.
//!
//! The kernel copies cookies only from and to the calling thread, and everything that this thread starts inherits its
//! cookie. So the helper is a thread that does nothing else and ends after the last copy: no other thread of this
//! process ever has a cookie.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{
    CoreSchedulingScope, core_scheduling_cookie, create_core_scheduling_cookie, gettid, pull_core_scheduling_cookie,
    push_core_scheduling_cookie,
};

/// The cookie that the thread should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The default cookie, 0, unless this process itself was started with another.
    Default,
    /// A new cookie.
    New,
    /// The cookie of the process with this PID.
    Of(u32),
}

enum Request {
    Hold(Hold),
    Push(u32),
}

/// Handle on the helper thread, which ends when the handle is dropped.
pub(crate) struct Helper {
    /// `None` only during drop.
    requests: Option<SyncSender<Request>>,
    answers: Receiver<io::Result<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel copies cookies from and to the calling thread, which must be none of the loop's"
    )]
    pub(crate) fn start() -> io::Result<Self> {
        let (requests, queue) = mpsc::sync_channel(0);
        let (done, answers) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("qosm-core-sched".to_owned()).spawn(move || {
            for request in queue {
                if done.send(answer(request)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests: Some(requests), answers, thread: Some(thread) })
    }

    /// Makes the thread hold a cookie, and returns the cookie.
    pub(crate) fn hold(&self, hold: Hold) -> io::Result<u64> {
        self.ask(Request::Hold(hold))
    }

    /// Gives all threads of a process the held cookie.
    pub(crate) fn push(&self, pid: u32) -> io::Result<()> {
        self.ask(Request::Push(pid)).map(drop)
    }

    fn ask(&self, request: Request) -> io::Result<u64> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let requests = self.requests.as_ref().ok_or_else(broken)?;
        requests.send(request).map_err(|_| broken())?;
        self.answers.recv().map_err(|_| broken())?
    }
}

impl Drop for Helper {
    /// Waits for the end of the thread, so that no cookie is held afterwards.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn answer(request: Request) -> io::Result<u64> {
    let me = gettid();
    match request {
        Request::Hold(Hold::Default) => {}
        Request::Hold(Hold::New) => create_core_scheduling_cookie(me, CoreSchedulingScope::Thread)?,
        Request::Hold(Hold::Of(pid)) => pull_core_scheduling_cookie(process(pid)?, CoreSchedulingScope::Thread)?,
        Request::Push(pid) => {
            push_core_scheduling_cookie(process(pid)?, CoreSchedulingScope::ThreadGroup)?;
            return Ok(0);
        }
    }
    Ok(core_scheduling_cookie(me, CoreSchedulingScope::Thread)?)
}

/// The cookie of a process, that is, of its main thread.
pub(crate) fn cookie_of(pid: u32) -> io::Result<u64> {
    Ok(core_scheduling_cookie(process(pid)?, CoreSchedulingScope::Thread)?)
}

fn process(pid: u32) -> io::Result<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| Errno::SRCH.into())
}
