//! Requests to the agent: commands, and queries that change nothing.

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
    /// The host: a replay plays back counters and other programs' writes through its simulation.
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

    /// Sets the result of Landlock, which was applied before the agent was created.
    pub fn is_confined_by(&mut self, landlock: Landlock) {
        self.reporting.landlock = landlock;
    }

    /// Sets what must arrive before the agent may act; `None` if nothing is missing.
    pub(crate) fn wait_for(&mut self, missing: Option<String>) {
        self.reporting.waits_for = missing;
    }

    /// Pauses a pod for an operator, or ends that pause. Returns `false` if there is no such pod now; the pause applies once it appears.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when the pause cannot be recorded; then nothing changes.
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

    /// Retries a parked policy. The loader retries those that could not be loaded. Returns `false` if there is no policy of that name.
    pub fn retry(&mut self, policy: &str) -> bool {
        self.policies.retry(policy)
    }

    /// Makes the agent restore held knobs when it ends, whatever its configuration says.
    pub(crate) fn restore_at_the_end(&mut self) {
        self.run.agent.on_shutdown = OnShutdown::Restore;
    }

    /// Whether held knobs keep their values when the agent ends.
    pub(crate) fn keeps_at_the_end(&self) -> bool {
        self.run.agent.on_shutdown == OnShutdown::Keep
    }

    /// Releases and restores everything that policies hold, unless the agent is configured to keep it. [`Agent::restore_again`] retries
    /// what could not be restored; [`Agent::ended`] comes last. A journal that fails is logged and does not stop the restore.
    pub fn shut_down(&mut self, now: Now) -> Step {
        let mut step = Step::default();
        if let Err(error) = self.ledger.commit_state(self.policies.saved()) {
            // Knobs matter more than the modules' state: recorded baselines are restored all the same.
            tracing::error!(error = chain(&error), "the modules' state cannot be kept");
        }
        if self.keeps_at_the_end() {
            return step;
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
        step
    }

    /// Tries again to restore what [`Agent::shut_down`] could not, and collects slow writes that have finished.
    pub(crate) fn restore_again(&mut self, now: Now, step: &mut Step) {
        let tried = step.refused.len();
        self.ledger.touch_held();
        self.apply_ledger(now, step);
        self.restore_orphans(now, step);
        // All writes that were refused before have been tried again.
        step.refused.drain(..tried);
    }

    /// Ends the controls: everything that is not a knob. Returns why something stays, if anything does.
    pub(crate) fn end_controls(&mut self, now: Now) -> Option<String> {
        self.controls.end(&mut self.host, &inputs!(self, now))
    }

    /// Waits, at most for `within`, until no process is in a core scheduling group that its cgroup is not in.
    pub(crate) fn finish_core_groups(&mut self, within: Duration) -> Result<(), String> {
        self.host.finish_core_groups(within)
    }

    /// Removes the cgroups that qosm created, except those of paused pods. Called after the last restore.
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

    /// Whether the node's report would lack resources that a policy is about to publish.
    pub(crate) fn awaits_publishers(&self) -> bool {
        self.policies.awaits_publishers()
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

    /// The running versions, and those rolled back since the last call; `None` if neither has changed.
    pub(crate) fn take_version_changes(
        &mut self,
    ) -> Option<(std::collections::BTreeMap<String, Running>, Vec<RolledBack>)> {
        self.policies.take_version_changes()
    }

    /// Reads what containers use now, and lists the knobs held for them. Ticks do not read it: only this call does.
    pub fn usage(&mut self, now: Now) -> NodeUsage {
        let reserved = self.cpusets.reserved().0;
        let node = CountedNode::read(&mut self.host, reserved);
        let containers: Vec<ContainerId> = self.pods.open_containers().collect();
        let counted = containers.into_iter().map(|id| (id, Counted::read(&mut self.host, id))).collect();
        view!(self).usage(node, &counted, self.cpusets.reserved().0.len(), now)
    }

    /// How the decisions of a shadow differ. `policy` names the shadow, or the active policy that only this shadow is compared with.
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

    /// State of the connection to the container runtime.
    pub(crate) fn runtime_link(&self) -> RuntimeLink {
        self.observed.runtime_link().clone()
    }

    /// Number of ticks since the agent began.
    pub(crate) fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Whether the agent is ready: the answer to a readiness probe. In Kubernetes a failing policy is reported by the node's report and
    /// not here: one bad PolicyModule would make every agent unready, and block the update that corrects it.
    pub fn readiness(&self) -> Result<(), String> {
        self.reporting.readiness(&view!(self))
    }

    /// Whether everything works, for a health endpoint, or why not. A failing shadow does not count.
    pub fn health(&self) -> Result<(), String> {
        self.reporting.health(&view!(self))
    }

    /// All pods.
    pub fn pod_reports(&self, now: Now) -> Vec<PodReport> {
        self.reporting.pod_reports(&view!(self), now)
    }

    /// Everything about the pod `namespace/name` (or just the name, if only one pod has it); `None` if no pod or several match.
    pub fn explain(&self, pod: &str, now: Now) -> Option<Explanation> {
        self.reporting.explain(&view!(self), pod, now)
    }

    /// All policies.
    pub fn policy_reports(&self) -> Vec<PolicyReport> {
        view!(self).policy_reports()
    }

    /// All held knobs.
    pub fn knobs(&self) -> Vec<KnobReport> {
        view!(self).knobs()
    }

    /// All settings that are not in force.
    pub fn refusals(&self) -> Vec<RefusalReport> {
        view!(self).refusals()
    }

    /// Remarks of active policies: what they wanted of a knob and did not do.
    pub fn remarks(&self) -> Vec<RemarkReport> {
        view!(self).remarks(|_| true)
    }

    /// Remarks of active policies on the node and the tiers.
    pub fn remarks_above_pods(&self) -> Vec<RemarkReport> {
        view!(self).remarks(|target| matches!(target, Target::Node | Target::Tier(_)))
    }

    /// All classes of shares, in the order in which they get CLOSIDs if the processor has too few.
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

    /// Makes resources and evictions wait for an API server's answer, as on a node that has one. For replays.
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

    /// Kernel features that policies need and this host lacks, one line each: the knobs, and the number of cgroups that need them.
    pub fn missing_features(&self) -> Vec<String> {
        self.ledger.missing_features()
    }

    /// Requests of policies other than leases that were refused, one line each.
    pub fn refused_acts(&self) -> Vec<String> {
        self.controls.refused(&self.pods)
    }

    pub(crate) fn version_of(&self, name: &str) -> VersionReport {
        view!(self).version_of(name)
    }

    /// The knobs that a restore would put back.
    pub(crate) fn restorable(&self) -> Vec<Restored> {
        self.ledger.restorable()
    }

    /// The outcome of a restore for each knob in `before`, which [`Self::restorable`] returned.
    pub(crate) fn restored(&self, before: Vec<Restored>) -> Vec<Restored> {
        self.ledger.restored(&self.pods, before)
    }

    /// The knobs that are not restored, and why.
    pub(crate) fn unrestored(&self) -> Vec<Restored> {
        self.ledger.unrestored(&self.pods)
    }
}
