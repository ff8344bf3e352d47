//! Limits of an instance.

use std::time::Duration;

use qosm_model::unit::Bytes;

/// Limits of one instance. The defaults suit a node with a few hundred containers.
///
/// The stack is not among them: its size is the same for all instances, [`STACK`](crate::STACK).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory. Growth beyond it ends the call.
    pub memory: Bytes,
    /// Elements of each table. Growth beyond it ends the call.
    pub table_elements: usize,
    /// CPU time of one call. A call that waits for a CPU may take more wall-clock time, at most twenty times this limit.
    pub evaluation: Duration,
    /// Number of settings staged in one call; each knob counts.
    pub settings: usize,
    /// All text staged in one call: reasons (each counted once), events, rejections.
    pub output: Bytes,
    /// A single text: a reason, a field of an event or of a rejection. Error messages are cut to this length.
    pub text: Bytes,
    /// Log lines kept of one call; further lines are counted and dropped.
    pub log_lines: usize,
    /// Length to which a log line is cut.
    pub log_line: Bytes,
    /// Pod events of one call.
    pub events: usize,
    /// Size of the state that a module saves by [`Interface::State`](crate::Interface::State). Saving more returns an
    /// error to the module and does not end the call.
    pub state: Bytes,
    /// Memory that the host allocates for the arguments of one import call, or for the result of an export.
    pub hostcall: Bytes,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Bytes(32 << 20),
            table_elements: 20_000,
            evaluation: Duration::from_millis(50),
            settings: 16_384,
            output: Bytes(1 << 20),
            text: Bytes(4096),
            log_lines: 64,
            log_line: Bytes(1024),
            events: 256,
            state: Bytes(65_536),
            hostcall: Bytes(2 << 20),
        }
    }
}

/// A limit as `usize`; `usize::MAX` if it does not fit.
pub(crate) fn words(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}
