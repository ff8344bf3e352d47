//! How much an instance may use.

use std::time::Duration;

use qosm_model::unit::Bytes;

/// What one instance may use. The defaults suit a node with a few hundred containers.
///
/// The stack is not among them: it is one size for all, [`STACK`](crate::STACK).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Linear memory. Growth beyond it ends the call.
    pub memory: Bytes,
    /// Elements of each table. Growth beyond it ends the call.
    pub table_elements: usize,
    /// CPU time of one call. A call that waits for the CPU is given more wall-clock time, at most twenty times this.
    pub evaluation: Duration,
    /// Settings staged in one call, counted by knob.
    pub settings: usize,
    /// All text staged in one call: reasons (each counted once), events, rejections.
    pub output: Bytes,
    /// One text: a reason, a field of an event or of a rejection. An error message is cut to it.
    pub text: Bytes,
    /// Lines kept of one call's log; further ones are counted and dropped.
    pub log_lines: usize,
    /// Length to which a line is cut.
    pub log_line: Bytes,
    /// Pod events of one call.
    pub events: usize,
    /// Size of [`Interface::State`](crate::Interface::State); a longer one is refused, which is no broken rule.
    pub state: Bytes,
    /// What the host allocates for the arguments of one import call, or the result of an export.
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

/// A limit in the machine's word; a larger one is unlimited.
pub(crate) fn words(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}
