//! Controls that are no knobs: page migration, classes of cache and memory bandwidth, resources of the node, and evictions.
//!
//! Policies stage them like settings, but they are not leases: they have no baseline, and only evictions are in the journal.

mod classes;
pub(crate) mod control;
pub(crate) mod evictions;
mod migrations;
pub(crate) mod resctrl_totals;
mod resources;
mod wanted_classes;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::setting::Setting;

use crate::columns::Readings;
use crate::inputs::Inputs;
use crate::policies::Policies;
use crate::policy::Reach;
use crate::replay::line::TickLine;
use crate::report::PodReport;
use crate::table::PodTable;

use self::classes::Classes;
use self::control::{Control, ControlDecisions, Rows};
use self::evictions::Evictions;
use self::migrations::Migrations;
use self::resources::Resources;

/// All controls of the node.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    migrations: Migrations,
    classes: Classes,
    resources: Resources,
    evictions: Evictions,
    /// Requests that a policy may not make, with the reason.
    refused: BTreeMap<(Arc<str>, Target, &'static str), Arc<str>>,
}

impl Controls {
    fn all(&self) -> [&dyn Control; 4] {
        [&self.migrations, &self.classes, &self.resources, &self.evictions]
    }

    fn all_mut(&mut self) -> [&mut dyn Control; 4] {
        [&mut self.migrations, &mut self.classes, &mut self.resources, &mut self.evictions]
    }

    /// Begins taking the settings that a policy staged. With `anew`, the policy stages all that it wants.
    pub(crate) fn begin_staging(&mut self, policy: &str, anew: bool) {
        self.all_mut().into_iter().for_each(|control| control.begin_staging(policy, anew));
    }

    /// Takes a setting, unless the policy may not act on the target. A refusal is logged once, for as long as it lasts.
    pub(crate) fn stage(
        &mut self,
        holder: &Holder,
        setting: Setting,
        reach: &Reach<'_>,
        pods: &PodTable,
        now: Timestamp,
    ) {
        let acts_on = self.all().into_iter().find_map(|control| control.acts_on(&setting));
        if let Some((target, what)) = acts_on
            && self.refuses(&holder.policy, target, what, reach, pods)
        {
            return;
        }
        let mut left = Some(setting);
        for control in self.all_mut() {
            let Some(setting) = left.take() else { return };
            left = control.stage(holder, setting, now);
        }
    }

    /// Releases what the policy did not declare again.
    pub(crate) fn end_staging(&mut self, policy: &str) {
        self.all_mut().into_iter().for_each(|control| control.end_staging(policy));
    }

    fn refuses(
        &mut self,
        policy: &Arc<str>,
        target: Target,
        what: &'static str,
        reach: &Reach<'_>,
        pods: &PodTable,
    ) -> bool {
        let key = (Arc::clone(policy), target, what);
        let Some(why) = reach(target) else {
            self.refused.remove(&key);
            return false;
        };
        if let Entry::Vacant(refused) = self.refused.entry(key) {
            tracing::warn!(%policy, subject = pods.shown(target), error = %why, "{what}");
            refused.insert(why);
        }
        true
    }

    /// Requests that policies may not make, one line each.
    pub(crate) fn refused(&self, pods: &PodTable) -> Vec<String> {
        let line = |((policy, target, what), why): (&(Arc<str>, Target, &str), &Arc<str>)| {
            format!("policy {policy}: {what} for {}: {why}", pods.shown(*target))
        };
        self.refused.iter().map(line).collect()
    }

    /// Releases all settings of a policy.
    pub(crate) fn release(&mut self, policy: &str) {
        self.all_mut().into_iter().for_each(|control| control.release(policy));
    }

    /// Releases settings of policies that may no longer act on their target.
    pub(crate) fn judge(&mut self, policies: &Policies, pods: &PodTable) {
        for policy in policies.active() {
            let reach = |target: Target| policy.out_of_reach(pods, target);
            self.all_mut().into_iter().for_each(|control| control.release_beyond(policy.name(), &reach));
        }
    }

    /// Forgets a target that is gone.
    pub(crate) fn forget(&mut self, target: Target) {
        self.refused.retain(|(_, refused, _), _| *refused != target);
        self.all_mut().into_iter().for_each(|control| control.forget(target));
    }

    /// Applies the policies' settings to the host.
    pub(crate) fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>, is_settled: bool) -> ControlDecisions {
        let mut out = ControlDecisions::default();
        self.all_mut().into_iter().for_each(|control| control.apply(host, inputs, is_settled, &mut out));
        out
    }

    /// Undoes everything when the agent ends. Returns why something is left, if anything is.
    pub(crate) fn end(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Option<String> {
        let left: Vec<_> = self.all_mut().into_iter().filter_map(|control| control.end(host, inputs)).collect();
        (!left.is_empty()).then(|| left.join("; "))
    }

    /// Adds what is in force for a pod to `report`.
    pub(crate) fn report(&self, host: &Host, pods: &PodTable, pod: PodId, report: &mut PodReport) {
        self.all().into_iter().for_each(|control| control.report(host, pods, pod, report));
    }

    /// Adds what the controls did in a step to the line of a recording.
    pub(crate) fn replay_line(&self, now: &Readings, earlier: &Readings, tick: &mut TickLine, rows: &mut Rows) {
        self.all().into_iter().for_each(|control| control.replay_line(now, earlier, tick, rows));
    }

    /// Page migration, for its columns.
    pub(crate) fn migrations(&mut self) -> &mut Migrations {
        &mut self.migrations
    }

    /// Share of a container's pages on the NUMA nodes that it runs on, in percent; `None` if they are not counted.
    pub(crate) fn local_percent(&self, container: ContainerId) -> Option<u64> {
        self.migrations.local_percent(container)
    }

    /// Resources of the node, for their column and reports.
    pub(crate) fn resources(&self) -> &Resources {
        &self.resources
    }

    /// Evictions, for their column and reports.
    pub(crate) fn evictions(&self) -> &Evictions {
        &self.evictions
    }

    /// Evictions, for the journal.
    pub(crate) fn evictions_mut(&mut self) -> &mut Evictions {
        &mut self.evictions
    }

    /// Classes, for their columns and reports.
    pub(crate) fn classes(&self) -> &Classes {
        &self.classes
    }

    /// Classes, for their columns.
    pub(crate) fn classes_mut(&mut self) -> &mut Classes {
        &mut self.classes
    }
}
