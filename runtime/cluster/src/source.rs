//! A source of pods and configuration.

use crate::object::Objects;

/// Everything that a source holds, each object once; what cannot be read is among the problems.
pub type Snapshot = Objects;

/// Where pods and configuration come from. Asked by the loop at each tick, and whenever it is woken; never waits.
pub trait Source {
    /// Everything, at first and whenever it has changed since.
    fn poll(&mut self) -> Option<Snapshot>;

    /// Whether something may have changed, for a loop with other wake-ups.
    fn has_changes(&self) -> bool;

    /// What has not arrived yet. Until then the agent does nothing: a pod that has not been listed would look deleted.
    fn waits_for(&self) -> Option<String>;
}
