//! A source of pods and configuration.

use crate::object::Objects;

/// Everything that a source holds, each object once; what cannot be read is among the problems.
pub type Snapshot = Objects;

/// Where pods and configuration come from. Asked by the loop at each tick, and whenever it is woken; never waits.
pub trait Source {
    /// Everything, at first and whenever it has changed since.
    fn poll(&mut self) -> Option<Snapshot>;

    /// Whether there may be something new, for a loop that is woken by others as well.
    fn has_news(&self) -> bool;

    /// What has not arrived yet, while nothing may be done for lack of it: who does not know all pods must not take one for gone.
    fn waits_for(&self) -> Option<String>;
}
