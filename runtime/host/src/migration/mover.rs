//! Page migration, and core scheduling groups, in a process of their own. The capabilities that it takes to look into other processes and to
//! move their pages are as good as root; the agent, which runs third-party modules, has none of them and sends requests
//! to a small process that does nothing else.

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

/// How the mover is reached.
#[derive(Debug)]
pub enum MoverAddress {
    /// A connected socket that keeps packets apart (`SOCK_SEQPACKET`): the mover is a child.
    Connected(OwnedFd),
    /// A socket that it listens on, and that is connected to again and again.
    Listening(PathBuf),
    /// There is no page mover, for this reason.
    Absent(String),
}

/// What is known of the mover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoverState {
    /// It takes requests.
    Ready(MoverConfinement),
    /// It does not, and why. What is to be moved waits for it.
    Away(String),
}

/// The state as both sides of the client's thread see it.
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
    /// Has pages moved by another process from now on, instead of a thread of this one. A simulated node has no need of it.
    ///
    /// # Errors
    ///
    /// When the thread that talks to it cannot be started.
    pub fn use_page_mover(&mut self, address: MoverAddress) -> io::Result<()> {
        if let AnyBackend::Kernel(kernel) = &mut self.backend {
            kernel.use_page_mover(Client::start(address)?);
        }
        Ok(())
    }

    /// What is known of the process that moves pages; `None` = this one does.
    pub fn page_mover(&self) -> Option<MoverState> {
        match &self.backend {
            AnyBackend::Kernel(kernel) => kernel.page_mover().map(Client::state),
            AnyBackend::Simulated(_) => None,
        }
    }
}
