//! The interface of controls that are no knobs.

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

/// The changes that controls made, for reports and replays.
#[derive(Debug, Default)]
pub(crate) struct ControlDecisions {
    pub(crate) migrations: Vec<MigrationDecision>,
    pub(crate) classes: Vec<ClassDecision>,
    pub(crate) resources: Vec<ResourceDecision>,
    pub(crate) evictions: Vec<EvictionDecision>,
    /// Notices for the owners of pods.
    pub(crate) notices: Vec<Notice>,
}

/// A control that is no knob.
pub(crate) trait Control {
    /// Begins taking the settings that a policy staged. With `anew`, the policy stages all that it wants.
    fn begin_staging(&mut self, policy: &str, anew: bool);

    /// The target that a setting of this control acts on, and the log message for a policy that may not act on it.
    fn acts_on(&self, setting: &Setting) -> Option<(Target, &'static str)>;

    /// Takes a setting. Returns the setting if it does not belong to this control.
    fn stage(&mut self, holder: &Holder, setting: Setting, now: Timestamp) -> Option<Setting>;

    /// Releases what the policy did not declare again.
    fn end_staging(&mut self, policy: &str);

    /// Releases all settings of a policy.
    fn release(&mut self, policy: &str);

    /// Releases settings of policies that may no longer act on their target.
    fn release_beyond(&mut self, policy: &str, reach: &Reach<'_>);

    /// Forgets a target that is gone.
    fn forget(&mut self, target: Target);

    /// Applies the policies' settings to the host. Until the ledger is settled, the setup of an earlier agent stays.
    fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>, is_settled: bool, out: &mut ControlDecisions);

    /// Undoes everything when the agent ends, except for paused pods. Returns why something is left, if anything is.
    fn end(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Option<String>;

    /// Adds what is in force for a pod to `report`.
    fn report(&self, host: &Host, pods: &PodTable, pod: PodId, report: &mut PodReport);

    /// Adds what this control did in a step to the line of a recording. The step read `now`; the recording read `earlier` before.
    fn replay_line(&self, now: &Readings, earlier: &Readings, tick: &mut TickLine, rows: &mut Rows);
}

/// Lines of containers, by id.
pub(crate) type Rows = BTreeMap<u32, ContainerLine>;
