//! Page migration and core scheduling groups in a separate process. The capabilities to access other processes and to
//! move their pages are as powerful as root; the agent, which runs third-party modules, has none of them and sends
//! requests to a small process that does nothing else.

mod client;
pub(crate) mod protocol;
mod server;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use self::client::Client;
pub use self::protocol::MoverConfinement;
pub use self::server::send_mover_exit;
use crate::Host;
use crate::backend::AnyBackend;

/// How the agent reaches the page mover.
#[derive(Debug)]
pub enum MoverAddress {
    /// A connected socket that preserves packets (`SOCK_SEQPACKET`): the mover is a child process.
    Connected(OwnedFd),
    /// Path of a socket on which the mover listens; the agent reconnects after a disconnect.
    Listening(PathBuf),
    /// There is no page mover, for this reason.
    Absent(String),
}

/// Last known state of the mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverState {
    /// The mover accepts requests.
    Ready(MoverConfinement),
    /// The mover accepts no requests, for this reason. Requests wait for it.
    Away(String),
}

/// The mover's state, shared by the client and its thread.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<MoverState>>);

impl Shared {
    fn new(state: MoverState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn get(&self) -> MoverState {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, state: MoverState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Host {
    /// Moves pages in another process from now on, instead of a thread of this process. No effect on a simulated node.
    ///
    /// # Errors
    ///
    /// If the client's thread cannot be started.
    pub fn use_page_mover(&mut self, address: MoverAddress) -> io::Result<()> {
        if let AnyBackend::Kernel(kernel) = &mut self.backend {
            kernel.use_page_mover(Client::start(address)?);
        }
        Ok(())
    }

    /// State of the process that moves pages; `None` if this process moves them.
    pub fn page_mover(&self) -> Option<MoverState> {
        match &self.backend {
            AnyBackend::Kernel(kernel) => kernel.page_mover().map(Client::state),
            AnyBackend::Simulated(_) => None,
        }
    }
}
