//! The trait of sources of pods and configuration.

use crate::object::Objects;

/// All objects of a source, each once; unreadable objects are among the problems.
pub type Snapshot = Objects;

/// A source of pods and configuration. The agent's loop calls it at each tick and at each wake-up; no method waits.
pub trait Source {
    /// All objects, on the first call and after each change; `None` if nothing has changed.
    fn poll(&mut self) -> Option<Snapshot>;

    /// Whether something may have changed, for a loop with other wake-ups.
    fn has_changes(&self) -> bool;

    /// The objects that have not arrived yet; `None` if all have. Until then the agent does nothing: a pod that
    /// is not listed yet would look deleted.
    fn waits_for(&self) -> Option<String>;
}
