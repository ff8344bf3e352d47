//! A moment, as an input: nothing below the service reads a clock.

use qosm_model::lease::Timestamp;
use qosm_model::unit::Micros;

/// A moment, handed in: nothing below asks a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For people: what `since` and events show.
    pub wall: Timestamp,
    /// For windows.
    pub monotonic: Micros,
    /// Time since the machine's start, which no agent's end interrupts and nobody sets: for what outlives an agent. `None` = not known.
    pub uptime: Option<Micros>,
    /// How late a tick comes; 0 for what is no tick.
    pub late: Micros,
}

impl Now {
    /// The moment for which a tick was meant: intervals count from there, so that one that comes late moves none.
    pub(crate) fn meant(self) -> Micros {
        Micros(self.monotonic.0.saturating_sub(self.late.0))
    }
}
