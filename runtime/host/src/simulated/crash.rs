//! The sudden end of the process that uses the simulation, and what the next one finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Simulation, Spec};
use crate::backend::AnyBackend;
use crate::{Host, HostError, LayoutOptions};

/// The moment at which a process ends as by `kill -9`: after this many more steps it has no effect outside itself.
///
/// A step is a write of the host's, or whatever else a test counts as one, such as a commit to a journal. Clones count together.
#[derive(Clone, Debug)]
pub struct Crash(Arc<AtomicU64>);

impl Crash {
    /// Crashes after `steps` steps.
    pub fn after(steps: u64) -> Self {
        Self(Arc::new(AtomicU64::new(steps)))
    }

    /// Takes a step. `false` = the process does not live to take it.
    pub fn step(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Whether the next step is not taken any more.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Simulation {
    /// Lets the process that writes the node end at a moment. What it writes afterwards is lost, and it does not notice.
    pub fn crash_at(&mut self, crash: Crash) {
        self.crash = Some(crash);
    }

    /// What a process takes along when it ends: its open files, its threads and what it had queued.
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
    /// The simulated node without the process that used it; `None` for a real one, which is closed.
    pub fn into_simulation(mut self) -> Option<Simulation> {
        // What the host closes when it is dropped, it closes on a node of its own.
        let empty = AnyBackend::Simulated(Box::new(Simulation::new(&Spec::default()).ok()?));
        match std::mem::replace(&mut self.backend, empty) {
            AnyBackend::Simulated(mut simulation) => {
                simulation.process_ends();
                Some(*simulation)
            }
            AnyBackend::Kernel(_) => None,
        }
    }

    /// Another process on a simulated node.
    ///
    /// # Errors
    ///
    /// As [`Host::open`].
    pub fn on_simulation(simulation: Simulation, options: &LayoutOptions) -> Result<Self, HostError> {
        Self::build(AnyBackend::Simulated(Box::new(simulation)), options)
    }
}
