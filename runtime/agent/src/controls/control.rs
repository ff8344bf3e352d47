//! What the agent asks of a control that is no knob.

use std::collections::BTreeMap;

use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::pod::PodId;
use qosm_model::setting::Setting;

use crate::columns::Readings;
use crate::inputs::Inputs;
use crate::ledger::Notice;
use crate::policy::Reach;
use crate::replay::line::{ContainerLine, TickLine};
use crate::report::{ClassDecision, EvictionDecision, MigrationDecision, PodReport, ResourceDecision};
use crate::table::PodTable;

/// What changed by a control, for reports and replays.
#[derive(Debug, Default)]
pub(crate) struct ControlDecisions {
    pub(crate) migrations: Vec<MigrationDecision>,
    pub(crate) classes: Vec<ClassDecision>,
    pub(crate) resources: Vec<ResourceDecision>,
    pub(crate) evictions: Vec<EvictionDecision>,
    /// For pods' owners.
    pub(crate) notices: Vec<Notice>,
}

/// A control that is no knob.
pub(crate) trait Control {
    /// Begins to take what a policy staged. With `anew` it says all that it wants.
    fn begin_staging(&mut self, policy: &str, anew: bool);

    /// The target that a setting of this control acts on, and what is left undone where the policy may not.
    fn acts_on(&self, setting: &Setting) -> Option<(Target, &'static str)>;

    /// Takes a setting. One that is not of this control comes back.
    fn stage(&mut self, holder: &Holder, setting: Setting, now: Timestamp) -> Option<Setting>;

    /// Releases what the policy did not declare again.
    fn end_staging(&mut self, policy: &str);

    /// Releases all settings of a policy.
    fn release(&mut self, policy: &str);

    /// Releases settings of policies that may no longer act on their target.
    fn release_beyond(&mut self, policy: &str, reach: &Reach<'_>);

    /// The target is gone.
    fn forget(&mut self, target: Target);

    /// Applies the policies' settings to the host. Until the ledger is settled, what an earlier agent arranged stays.
    fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>, is_settled: bool, out: &mut ControlDecisions);

    /// Gives everything back at the end, but for paused pods. Why something stays, if it does.
    fn end(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Option<String>;

    /// What is in force for a pod.
    fn report(&self, host: &Host, pods: &PodTable, pod: PodId, report: &mut PodReport);

    /// What a recording says of a step that read `now`, where the recording read `earlier` before.
    fn replay_line(&self, now: &Readings, earlier: &Readings, tick: &mut TickLine, rows: &mut Rows);
}

/// Lines of containers, by id.
pub(crate) type Rows = BTreeMap<u32, ContainerLine>;
