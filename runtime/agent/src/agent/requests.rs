//! What can be asked of the agent: commands, and queries that change nothing.

use std::sync::Arc;
use std::time::Duration;

use qosm_cluster::Outbox;
use qosm_cluster::node_report::NodePolicyReportStatus;
use qosm_confinement::Landlock;
use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::lease::Timestamp;
use qosm_model::pod::{ContainerId, Tier};
use qosm_model::problem::chain;

use super::{Agent, inputs, view};
use crate::config::OnShutdown;
use crate::confinement::ConfinementReports;
use crate::decision_log::DecisionLog;
use crate::event::AgentEvent;
use crate::journal::JournalError;
use crate::now::Now;
use crate::nri::RuntimeLink;
use crate::path::is_within;
use crate::pause::{Pause, PauseSource};
use crate::policy_set::resolved::{RolledBack, Running};
use crate::report::usage::{Counted, CountedNode};
use crate::report::view::View;
use crate::report::{
    ClassReport, DiffReport, EvictionReport, Explanation, KnobReport, NodeResourceReport, NodeUsage, PodReport,
    PolicyReport, RefusalReport, RemarkReport, VersionReport,
};
use crate::restored::Restored;
use crate::step::Step;
use crate::table::Access;

/// Commands.
impl Agent {
    /// The kernel, for those who stand in for it: a replay plays back counters and other writers through the simulation.
    pub fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Publishes events and the node's report through the API server.
    pub fn report_through(&mut self, outbox: Outbox) {
        self.reporting.outbox = Some(outbox);
        self.run.has_api_server = true;
    }

    /// Logs each decision from now on.
    pub fn log_decisions(&mut self, log: DecisionLog) {
        self.reporting.decision_log = Some(log);
    }

    /// Takes what came of the confinement before the agent was made.
    pub fn is_confined_by(&mut self, landlock: Landlock) {
        self.reporting.landlock = landlock;
    }

    /// Takes note of what has to arrive before anything may be done; `None` = nothing.
    pub(crate) fn wait_for(&mut self, missing: Option<String>) {
        self.reporting.waits_for = missing;
    }

    /// Pauses a pod for an operator, or ends that pause. `false` = there is no such pod now; the pause waits for it.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when it could not be written down; then nothing changes.
    pub fn set_pause(&mut self, pod: &str, pause: Option<Option<Timestamp>>, now: Now) -> Result<bool, JournalError> {
        let pause = pause.map(|until| Pause { until, source: PauseSource::Operator });
        if let Some(journal) = self.ledger.journal() {
            journal.set_pause(pod, pause.map(Into::into).as_ref())?;
        }
        self.pods.set_operator_pause(pod, pause);
        self.update_pauses(now);
        Ok(self.pods.iter().any(|entry| entry.pod.key() == pod))
    }

    /// Ends all pauses, for good.
    pub(crate) fn end_pauses(&mut self) {
        self.pods.end_pauses();
    }

    /// Tries a parked policy again. The loader retries those that could not be loaded. `false` = there is none of that name.
    pub fn retry(&mut self, policy: &str) -> bool {
        self.policies.retry(policy)
    }

    /// Restores at the end and ignores the configuration.
    pub(crate) fn restore_at_the_end(&mut self) {
        self.run.agent.on_shutdown = OnShutdown::Restore;
    }

    /// Whether what is held stays as it is at the end.
    pub(crate) fn keeps_at_the_end(&self) -> bool {
        self.run.agent.on_shutdown == OnShutdown::Keep
    }

    /// Ends the agent's hold on the node as configured: everything that policies wanted is released and put back. What could not be
    /// is left to [`Agent::restore_again`]; [`Agent::ended`] comes last.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when a baseline was restored but could not be deleted from the journal.
    pub fn shut_down(&mut self, now: Now) -> Result<Step, JournalError> {
        let mut step = Step::default();
        if let Err(error) = self.ledger.commit_state(self.policies.saved()) {
            // Knobs come before the modules' memories: what the journal already knows is put back all the same.
            tracing::error!(error = chain(&error), "the modules' state cannot be kept");
        }
        if self.keeps_at_the_end() {
            return Ok(step);
        }
        self.ledger.end();
        let names: Vec<_> = self.policies.iter().map(|policy| Arc::clone(policy.name())).collect();
        for name in names {
            self.controls.release(&name);
            self.ledger.release(&name);
        }
        let mut left = Default::default();
        self.ledger.leave_to_others(&mut self.host, &inputs!(self, now), &mut left);
        self.take_applied(left, now, &mut step);
        self.ledger.leave_paused_orphans(&inputs!(self, now));
        self.restore_again(now, &mut step);
        for entry in self.pods.iter().filter(|entry| entry.access == Access::Paused) {
            let left = entry.targets().map(|target| self.ledger.held().of(target).count()).sum::<usize>();
            if left > 0 {
                tracing::warn!(
                    pod = entry.pod.key(),
                    knobs = left,
                    "paused: left as it is; `qosm restore` puts it back"
                );
            }
        }
        self.report(&step);
        self.log_decisions_of(&step, now);
        Ok(step)
    }

    /// Tries again to put back what [`Agent::shut_down`] could not, and takes in what slow writes have come to.
    pub(crate) fn restore_again(&mut self, now: Now, step: &mut Step) {
        let tried = step.refused.len();
        self.ledger.touch_held();
        self.apply_ledger(now, step);
        self.restore_orphans(now, step);
        // All writes that were refused before have been tried again.
        step.refused.drain(..tried);
    }

    /// Ends what is no knob. Why something stays, if it does.
    pub(crate) fn end_controls(&mut self, now: Now) -> Option<String> {
        self.controls.end(&mut self.host, &inputs!(self, now))
    }

    /// Takes processes out of core scheduling groups, once their containers are in none.
    pub(crate) fn finish_core_groups(&mut self, within: Duration) -> Result<(), String> {
        self.host.finish_core_groups(within)
    }

    /// Removes the cgroups that were made, once all is put back that could be.
    pub(crate) fn ended(&mut self) {
        if self.keeps_at_the_end() {
            return;
        }
        let paused: Vec<String> =
            self.pods.iter().filter(|e| e.access == Access::Paused).map(|e| self.host.pod_path(&e.pod)).collect();
        for tier in Tier::ALL {
            self.host.detach(Target::Tier(tier));
        }
        self.ledger.remove_created(&mut self.host, |cgroup| !paused.iter().any(|pod| is_within(cgroup, pod)));
    }

    /// Publishes the node's report, if there is an API server.
    pub(crate) fn report_node(&mut self, now: Now) {
        self.reporting.report(&view!(self), now);
    }

    /// Publishes that this agent ends.
    pub(crate) fn send_final_report(&mut self, now: Now) {
        let keeps = self.keeps_at_the_end();
        self.reporting.send_final_report(&view!(self), keeps, now);
    }

    /// This node's report.
    pub fn node_report(&mut self, now: Now) -> NodePolicyReportStatus {
        self.reporting.node_status(&view!(self), now)
    }

    /// What runs, and versions that failed since this was asked last; `None` = neither has changed.
    pub(crate) fn take_version_changes(
        &mut self,
    ) -> Option<(std::collections::BTreeMap<String, Running>, Vec<RolledBack>)> {
        self.policies.take_version_changes()
    }

    /// What containers use now and what is held for them. Nothing of it is read unless somebody asks.
    pub fn usage(&mut self, now: Now) -> NodeUsage {
        let reserved = self.cpusets.reserved().0;
        let node = CountedNode::read(&mut self.host, reserved);
        let containers: Vec<ContainerId> = self.pods.open_containers().collect();
        let counted = containers.into_iter().map(|id| (id, Counted::read(&mut self.host, id))).collect();
        view!(self).usage(node, &counted, self.cpusets.reserved().0.len(), now)
    }

    /// How a shadow would do otherwise. It is named itself, or by the active policy that it alone is compared with.
    ///
    /// # Errors
    ///
    /// Why there is no comparison, with the names of the existing shadows.
    pub fn diff(&mut self, policy: &str) -> Result<DiffReport, String> {
        let (mut report, reads) = view!(self).diff(policy)?;
        for (difference, unread) in report.differences.iter_mut().zip(reads) {
            if let Some((target, knob)) = unread {
                difference.in_force = self.host.read(target, knob).ok().map(Into::into);
            }
        }
        Ok(report)
    }
}

/// Queries.
impl Agent {
    pub(crate) fn view(&self) -> View<'_> {
        view!(self)
    }

    /// How the agent is confined now.
    pub(crate) fn confinement(&self) -> Result<ConfinementReports, String> {
        ConfinementReports::now(&self.host, &self.reporting.landlock)
    }

    /// How the connection to the container runtime stands.
    pub(crate) fn runtime_link(&self) -> RuntimeLink {
        self.observed.runtime_link().clone()
    }

    /// Ticks since it began.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Whether the agent does its work: a readiness probe's answer. In Kubernetes a failing policy is reported by the node's report and
    /// not here: one bad PolicyModule would make every agent unready, and block the update that corrects it.
    pub fn readiness(&self) -> Result<(), String> {
        self.reporting.readiness(&view!(self))
    }

    /// Whether everything works: what a health endpoint says, and why not. A shadow that fails leaves the node as well as it was.
    pub fn health(&self) -> Result<(), String> {
        self.reporting.health(&view!(self))
    }

    /// All pods.
    pub fn pod_reports(&self, now: Now) -> Vec<PodReport> {
        self.reporting.pod_reports(&view!(self), now)
    }

    /// All about the pod `namespace/name` (or just the name, where only one pod has it).
    pub fn explain(&self, pod: &str, now: Now) -> Option<Explanation> {
        self.reporting.explain(&view!(self), pod, now)
    }

    /// All policies.
    pub fn policy_reports(&self) -> Vec<PolicyReport> {
        view!(self).policy_reports()
    }

    /// All knobs that are held.
    pub fn knobs(&self) -> Vec<KnobReport> {
        view!(self).knobs()
    }

    /// All settings that are not in force.
    pub fn refusals(&self) -> Vec<RefusalReport> {
        view!(self).refusals()
    }

    /// What active policies wanted and did not do.
    pub fn remarks(&self) -> Vec<RemarkReport> {
        view!(self).remarks(|_| true)
    }

    /// The same of the node and tiers alone.
    pub fn remarks_above_pods(&self) -> Vec<RemarkReport> {
        view!(self).remarks(|target| matches!(target, Target::Node | Target::Tier(_)))
    }

    /// All classes, in the order in which a processor that has too few serves them.
    pub fn class_reports(&self) -> Vec<ClassReport> {
        self.controls.classes().reports(&self.pods)
    }

    /// Resources of the node that policies publish.
    pub fn resource_reports(&self) -> Vec<NodeResourceReport> {
        self.controls.resources().reports()
    }

    /// Evictions that policies asked for.
    pub fn eviction_reports(&self) -> Vec<EvictionReport> {
        self.controls.evictions().reports()
    }

    /// Has what is asked for wait for an API server's answer, as on a node that has one: in a replay.
    pub(crate) fn stand_in_for_api_server(&mut self) {
        self.run.has_api_server = true;
    }

    /// Pods that get no settings, and why: for a plan, which otherwise shows only writes.
    pub fn notes(&self, now: Now) -> Vec<String> {
        view!(self).notes(now)
    }

    /// All problems of configuration that are not about one pod.
    pub fn problems(&self) -> Vec<String> {
        self.reporting.problems()
    }

    /// All events that are kept.
    pub fn event_reports(&self) -> Vec<AgentEvent> {
        self.reporting.events.iter().cloned().collect()
    }

    /// What this host lacks and policies want, one line for each thing: the knobs, and for how many cgroups they are wanted.
    pub fn missing_features(&self) -> Vec<String> {
        self.ledger.missing_features()
    }

    /// What policies asked for beside leases and may not have, one line each.
    pub fn refused_acts(&self) -> Vec<String> {
        self.controls.refused(&self.pods)
    }

    pub(crate) fn version_of(&self, name: &str) -> VersionReport {
        view!(self).version_of(name)
    }

    /// What a restore would put back, or (`after` it) what became of each of these knobs.
    pub(crate) fn restorable(&self) -> Vec<Restored> {
        self.ledger.restorable()
    }

    /// What became of knobs that were to be restored.
    pub(crate) fn restored(&self, before: Vec<Restored>) -> Vec<Restored> {
        self.ledger.restored(&self.pods, before)
    }

    /// What is not put back, and why.
    pub(crate) fn unrestored(&self) -> Vec<Restored> {
        self.ledger.unrestored(&self.pods)
    }
}
