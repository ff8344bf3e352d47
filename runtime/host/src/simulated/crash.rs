//! The crash of the process that uses the simulation, and the state that the next process finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Simulation, Spec};
use crate::backend::AnyBackend;
use crate::{Host, HostError, LayoutOptions};

/// The moment of a crash like `kill -9`: after this number of further steps, the process has no effect outside itself.
///
/// A step is a write by the host, or any other action that a test counts as one, such as a commit to a journal. Clones share one counter.
#[derive(Clone, Debug)]
pub struct Crash(Arc<AtomicU64>);

impl Crash {
    /// Crashes after `steps` steps.
    pub fn after(steps: u64) -> Self {
        Self(Arc::new(AtomicU64::new(steps)))
    }

    /// Takes a step. Returns `false` if the process has crashed before it.
    pub fn step(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Whether the process has crashed, so that the next step has no effect.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Simulation {
    /// Crashes the process that uses the simulation at this moment. Its later writes are lost, without an error.
    pub fn crash_at(&mut self, crash: Crash) {
        self.crash = Some(crash);
    }

    /// Drops the state of a process that ends: its open files, threads and queued writes.
    fn process_ends(&mut self) {
        self.crash = None;
        self.files.clear();
        self.slow.clear();
        self.reclaimer = crate::reclaim::reclaimer::Reclaimer::default();
        self.migrations.clear();
        self.cookies.process_ends();
    }
}

impl Host {
    /// The simulated node without the process that used it; `None` for a real node, which is closed.
    pub fn into_simulation(mut self) -> Option<Simulation> {
        // Dropping the host closes files on an empty simulation instead.
        let empty = AnyBackend::Simulated(Box::new(Simulation::new(&Spec::default()).ok()?));
        match std::mem::replace(&mut self.backend, empty) {
            AnyBackend::Simulated(mut simulation) => {
                simulation.process_ends();
                Some(*simulation)
            }
            AnyBackend::Kernel(_) => None,
        }
    }

    /// Starts another process on a simulated node.
    ///
    /// # Errors
    ///
    /// As [`Host::open`].
    pub fn on_simulation(simulation: Simulation, options: &LayoutOptions) -> Result<Self, HostError> {
        Self::build(AnyBackend::Simulated(Box::new(simulation)), options)
    }
}
