//! One step of the loop as a value: what it read, decided and reported.

use std::collections::BTreeSet;

use qosm_host::Fired;

use crate::columns::Readings;
use crate::event::AgentEvent;
use crate::report::{ClassDecision, Decision, EvictionDecision, MigrationDecision, ResourceDecision, ShadowDecision};

/// Whether the agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The agent writes to the kernel.
    Enforce,
    /// The agent works out what it would write, and writes nothing.
    Plan,
}

/// What one step did.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Knobs written, or (in [`Mode::Plan`]) to be written.
    pub decisions: Vec<Decision>,
    /// Knobs that could not be written.
    pub refused: Vec<Decision>,
    /// Containers whose pages are moved from now on, or (in [`Mode::Plan`]) would be.
    pub migrations: Vec<MigrationDecision>,
    /// Classes of shares that change, or (in [`Mode::Plan`]) would.
    pub classes: Vec<ClassDecision>,
    /// Resources of the node that change, or (in [`Mode::Plan`]) would.
    pub resources: Vec<ResourceDecision>,
    /// Evictions whose outcome changed, or (in [`Mode::Plan`]) that would be asked for.
    pub evictions: Vec<EvictionDecision>,
    /// What shadows want and did not want before.
    pub shadows: Vec<ShadowDecision>,
    /// Events of pods.
    pub events: Vec<AgentEvent>,
    /// Triggers that fired since the previous step.
    pub(crate) alarms: BTreeSet<Fired>,
    /// The columns that were read.
    pub(crate) readings: Readings,
}
