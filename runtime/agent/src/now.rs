//! The current time as an input: nothing below the service reads a clock.

use qosm_model::lease::Timestamp;
use qosm_model::unit::Micros;

/// The current time, as the service passes it in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, for `since`, events and other output.
    pub wall: Timestamp,
    /// The monotonic clock, for intervals and windows.
    pub monotonic: Micros,
    /// Time since the machine's start, which a restart of the agent does not interrupt and which cannot be set. `None` = not known.
    pub uptime: Option<Micros>,
    /// How late a tick comes; 0 for steps that are no ticks.
    pub late: Micros,
}

impl Now {
    /// The time for which the tick was scheduled. Intervals count from there, so that a late tick does not shift them.
    pub(crate) fn meant(self) -> Micros {
        Micros(self.monotonic.0.saturating_sub(self.late.0))
    }
}
