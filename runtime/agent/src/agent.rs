//! The agent: each step of the loop gets the time and the sources as values. Each part of the agent owns its state; a step passes the
//! result of one part to the next.

mod observe;
mod requests;
#[cfg(test)]
mod tests;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use qosm_engine::{Cause, Engine, Interface, Part};
use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::pod::Tier;
use qosm_model::problem::chain;
use qosm_model::setting::EventKind;

use crate::alarm::AlarmState;
use crate::columns;
use crate::columns::{ColumnCost, Readings};
use crate::config::AgentConfig;
use crate::controls::{Controls, evictions};
use crate::cpusets::Cpusets;
use crate::event::{AgentEvent, INVALID};
use crate::good_texts::SavedTexts;
use crate::journal::{Journal, JournalError};
use crate::ledger::{Applied, Ledger};
use crate::loaded::LoadedPolicy;
use crate::metrics::Metrics;
use crate::now::Now;
use crate::observed::Observed;
use crate::policies::{Evaluation, Policies, PoliciesError, ShadowError, StagedPolicy};
use crate::policy_set::resolved::LoadFailed;
use crate::reporting::Reporting;
use crate::saved_state::SavedState;
use crate::step::{Mode, Step};
use crate::table::PodTable;

/// Number of ticks after which knobs that an earlier agent held and no policy claims are restored, even if a policy has not started yet.
const SETTLE_TICKS: u64 = 60;
/// Number of ticks between two readings of the agent's own resource usage.
const PROCESS_TICKS: u64 = 10;

/// The agent of one node.
pub struct Agent {
    host: Host,
    pods: PodTable,
    policies: Policies,
    ledger: Ledger,
    controls: Controls,
    reporting: Reporting,
    alarms: AlarmState,
    cpusets: Cpusets,
    observed: Observed,
    run: RunConfig,
    ticks: u64,
}

/// How the agent runs.
struct RunConfig {
    /// Configuration from the operator's file.
    agent: AgentConfig,
    mode: Mode,
    /// Whether an API server is connected.
    has_api_server: bool,
}

/// What [`Agent::new`] needs.
pub struct AgentOptions {
    /// Access to the kernel.
    pub host: Host,
    /// The WebAssembly engine.
    pub engine: Engine,
    /// The modules to run.
    pub policies: Vec<LoadedPolicy>,
    /// Policies whose module could not be loaded.
    pub load_failed: Vec<LoadFailed>,
    /// Configuration from the operator's file.
    pub config: AgentConfig,
    /// Whether the agent writes to the kernel or only plans.
    pub mode: Mode,
    /// Whether the agent creates cgroups for pods that have none: only without a kubelet.
    pub create_cgroups: bool,
    /// Stores baselines; `None` in a plan or replay, where nothing survives the agent.
    pub journal: Option<Journal>,
    /// The metrics that the agent updates.
    pub metrics: Arc<Metrics>,
}

/// An agent could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// A policy's entry asks for a grant that does not exist.
    #[error(transparent)]
    Grant(#[from] crate::config::UnknownGrant),
    /// Two policies have the same name.
    #[error("policy `{0}` is configured twice; give one of them another name")]
    Duplicate(String),
    /// `shadowOf` of a policy that is active, or that names no active policy.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
    /// The journal cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl From<PoliciesError> for SetUpError {
    fn from(error: PoliciesError) -> Self {
        match error {
            PoliciesError::Grant(error) => Self::Grant(error),
            PoliciesError::Duplicate(name) => Self::Duplicate(name),
            PoliciesError::Shadow(error) => Self::Shadow(error),
        }
    }
}

/// Builds the [`Inputs`](crate::inputs::Inputs) of the ledger and the controls. A macro, since it borrows some fields while others
/// change.
macro_rules! inputs {
    ($agent:ident, $now:expr) => {
        $crate::inputs::Inputs {
            pods: &$agent.pods,
            policies: &$agent.policies,
            config: &$agent.run.agent,
            metrics: &$agent.reporting.metrics,
            memory_allocatable: $agent.observed.memory_allocatable(),
            answer: $agent.observed.answer(),
            has_api_server: $agent.run.has_api_server,
            mode: $agent.run.mode,
            now: $now,
            ticks: $agent.ticks,
        }
    };
}

/// Builds the [`Context`](crate::policies::Context) in which policies are evaluated.
macro_rules! context {
    ($agent:ident, $now:expr) => {
        $crate::policies::Context {
            pods: &$agent.pods,
            sources: $agent.observed.sources(),
            config: &$agent.run.agent,
            metrics: &$agent.reporting.metrics,
            now: $now,
        }
    };
}

/// Builds the [`View`](crate::report::view::View) that reporting reads.
macro_rules! view {
    ($agent:ident) => {
        $crate::report::view::View {
            host: &$agent.host,
            pods: &$agent.pods,
            policies: &$agent.policies,
            ledger: &$agent.ledger,
            controls: &$agent.controls,
            cpusets: &$agent.cpusets,
            objects: $agent.observed.objects(),
            config: &$agent.run.agent,
            sources: $agent.observed.sources(),
            has_api_server: $agent.run.has_api_server,
            runtime_link: $agent.observed.runtime_link(),
        }
    };
}

use {context, inputs, view};

impl Agent {
    /// Creates an agent, which takes over what an earlier one left in the journal.
    ///
    /// # Errors
    ///
    /// [`SetUpError`] names the policy or the journal that is at fault. A module that does not work is no error: its policy is parked,
    /// and the others run.
    pub fn new(parts: AgentOptions) -> Result<Self, SetUpError> {
        let AgentOptions {
            mut host,
            engine,
            policies: loaded,
            load_failed,
            config,
            mode,
            create_cgroups,
            journal,
            metrics,
        } = parts;
        let saved = |key: &str| match &journal {
            Some(journal) => Ok::<_, SetUpError>(journal.state(key)?),
            None => Ok(SavedState::default()),
        };
        let mut policies = Policies::new(engine, loaded, load_failed, saved)?;
        let saved_texts = SavedTexts::read(journal.as_ref().and_then(|journal| journal.dir().try_clone().ok()));
        policies.begin_with_texts(saved_texts.of_policies());
        let mut pods = PodTable::default();
        if let Some(journal) = &journal {
            let pauses = journal.pauses()?.into_iter().map(|(pod, stored)| (pod, stored.into()));
            pods.restore_operator_pauses(pauses.collect());
        }
        metrics.load_failed(&[], policies.load_failed());
        metrics.modules(policies.running());
        host.limit_migrations(config.page_migration.limits());
        host.use_resctrl_at(config.resctrl.path.as_ref().map(ToString::to_string));
        host.set_full_bandwidth(config.resctrl.full_bandwidth_mbps.map(NonZeroU32::get));
        // A plan reads the kernel once and needs no watch.
        if mode == Mode::Enforce
            && let Err(error) = host.watch_writes()
        {
            tracing::info!(
                error = chain(&error),
                "writes of other programs are polled for, since a cgroup cannot be watched"
            );
        }
        let mut controls = Controls::default();
        controls.evictions_mut().restore(&saved(evictions::JOURNAL_KEY)?.bytes, Now::default());
        let ledger = Ledger::new(&mut host, journal, create_cgroups && mode == Mode::Enforce)?;
        Ok(Self {
            host,
            pods,
            policies,
            ledger,
            controls,
            reporting: Reporting::new(metrics),
            alarms: AlarmState::default(),
            cpusets: Cpusets::default(),
            observed: Observed::new(saved_texts),
            run: RunConfig { agent: config, mode, has_api_server: false },
            ticks: 0,
        })
    }

    /// Runs the step of a tick: observe, evaluate, stage, apply, report.
    pub fn step(&mut self, now: Now) -> Step {
        self.cpusets.is_tick = true;
        let step = self.react(now);
        // Ticks count time: alarms must not advance them.
        if self.ticks == 0 {
            let since_epoch = Duration::from_millis(u64::try_from(now.wall.0).unwrap_or(0));
            self.reporting.metrics.started(since_epoch.as_secs_f64());
        }
        if self.ticks.is_multiple_of(PROCESS_TICKS)
            && let Some(own) = self.host.own_use()
        {
            self.reporting.metrics.process(own);
        }
        self.ticks += 1;
        self.reporting.metrics.tick();
        step
    }

    /// Runs a step without counting a tick: between two ticks, such as for an alarm.
    #[expect(clippy::disallowed_methods, reason = "how long it took is a metric, and decides nothing")]
    pub fn react(&mut self, now: Now) -> Step {
        let _span = tracing::debug_span!("tick", number = self.ticks).entered();
        let started = std::time::Instant::now();
        let mut step = Step { alarms: self.alarms.begin(now), ..Step::default() };
        self.observe_cgroups(now);
        self.verify(now, &mut step);
        self.policies.finish_dry_runs(&self.reporting.metrics);
        let (due, shadows): (Vec<_>, Vec<_>) =
            self.policies.due(now).into_iter().partition(|&(place, _)| self.policies.is_active(place));
        step.readings = self.read(&[due.as_slice(), &shadows].concat(), now);
        for evaluation in self.policies.evaluate(due, &step.readings, &context!(self, now)) {
            self.stage(evaluation, now, &mut step.events);
        }
        let are_problems_new = self.policies.take_key_problem_changes();
        let policies = &self.policies;
        if self.ledger.ties_changed(|name| policies.find(name).map(|policy| policy.holder.priority)) || are_problems_new
        {
            self.collect_problems(now);
        }
        self.apply(now, &mut step);
        self.report(&step);
        // Shadows come last: the settings of active policies are written by then, however long a shadow takes.
        step.shadows =
            self.policies.evaluate_shadows(shadows, &step.readings, &self.pods, &self.reporting.metrics, now);
        self.log_decisions_of(&step, now);
        self.policies.compare_shadows(self.ledger.leases(), &self.reporting.metrics, now);
        self.policies.watch_rollback_windows(&context!(self, now));
        self.policies.begin_dry_runs(&step.readings, &self.pods, self.observed.sources(), now);
        self.policies.order_again(&self.reporting.metrics);
        self.take_policy_changes(now);
        let metrics = &self.reporting.metrics;
        self.alarms.arrange(&mut self.host, &mut self.ledger, &self.policies, &self.pods, metrics);
        let running = self.pods.standing().running.len();
        let seconds = started.elapsed().as_secs_f64();
        metrics.step(seconds, (self.pods.len(), running), self.ledger.leases(), self.policies.running());
        step
    }

    /// Reads held knobs back to detect what other programs wrote.
    fn verify(&mut self, now: Now, step: &mut Step) {
        self.judge_reach();
        let verified = self.ledger.verify(&mut self.host, &inputs!(self, now));
        self.take_applied(verified, now, step);
        if self.ledger.end_contests() {
            self.collect_problems(now);
        }
    }

    /// Reads each column that the due policies import, once for all of them.
    fn read(&mut self, due: &[(usize, Cause)], now: Now) -> Readings {
        let mut gone = Vec::new();
        let mut costs: Vec<ColumnCost> = Vec::new();
        let wants = |column: Interface| self.policies.wants(due, column);
        let (wants_quotas, wants_moves) = (wants(Interface::CpuStat), wants(Interface::PageMigration));
        let (wants_node_object, wants_pod_objects) = (wants(Interface::NodeObject), wants(Interface::PodObject));
        let wants_config = wants(Interface::ClusterConfig);
        let wants_cpus = wants(Interface::CpuTopology);
        let wants_node_knobs = wants(Interface::NodeKnobs);
        let wants_identities = wants(Interface::CpuIdentity);
        let wants_devices = wants(Interface::BlockIo);
        let (wants_resources, wants_evictions) = (wants(Interface::NodeResource), wants(Interface::Eviction));
        let (wants_classes, wants_counts) = (wants(Interface::ResctrlAllocation), wants(Interface::ResctrlMonitor));
        let mut readings = columns::read(
            &mut self.host,
            &self.pods.standing().running,
            self.cpusets.reserved(),
            &wants,
            self.observed.memory_allocatable(),
            &mut gone,
            &mut costs,
        );
        let parts = Part::ALL.map(|part| self.policies.reads(due, part).then_some(part));
        let groups = &self.pods.standing().groups;
        readings.read_node(&mut self.host, &parts.into_iter().flatten().collect::<Vec<_>>(), groups, &mut costs);
        if parts.contains(&Some(Part::NodeApplications)) {
            let (applications, changes_problems) = self.observed.read_applications(&mut self.host, &mut self.pods);
            readings.node_use.applications = Some(applications);
            if changes_problems {
                self.collect_problems(now);
            }
        }
        if wants_node_object {
            let memory = self.host.node_memory().ok().map(|(capacity, _)| capacity);
            readings.node_object = Some(self.observed.node_object(self.host.cpus(), memory));
        }
        readings.pod_objects = wants_pod_objects.then(|| self.observed.pod_objects(&self.pods));
        readings.cluster_config = wants_config.then(|| self.observed.cluster_config());
        if wants_devices {
            // The volumes of a pod are mounted by the time its containers start.
            let looks_again = due.iter().any(|(_, cause)| *cause != Cause::Interval) || self.host.is_simulated();
            readings.block_devices = Some(columns::block_devices(&mut self.host, &self.pods, looks_again).into());
        }
        if wants_identities {
            readings.group_identity = Some(columns::support(self.host.group_identity_support()));
            readings.core_scheduling = Some(columns::support(self.host.core_group_support()));
        }
        readings.node_knobs = wants_node_knobs.then(|| self.ledger.read_node_knobs(&self.host).into());
        if wants_quotas {
            let tier = Target::Tier(Tier::BestEffort);
            let tier = self.host.attached_path(tier).map(|_| tier);
            let groups: Vec<Target> = tier.into_iter().chain(self.pods.standing().groups.iter().copied()).collect();
            let inputs = inputs!(self, now);
            readings.bandwidth = Some(self.ledger.read_quotas(&mut self.host, &inputs, &groups));
        }
        let readers = self.policies.readers(due, Interface::NumaStat);
        if !readers.is_empty() {
            let containers = self.pods.containers_of(|pod| readers.iter().any(|policy| policy.is_asked(pod)));
            let column = columns::numa(&mut self.host, &containers, &mut gone, &mut costs);
            self.controls.migrations().note_numa(&self.reporting.metrics, &column);
            readings.numa = Some(column);
        }
        if wants_cpus {
            let cpus = columns::cpu_topology(&mut self.host, &self.pods, &self.cpusets);
            self.reporting.note_cpus(&self.host, &self.pods, &cpus);
            readings.cpu_topology = Some(cpus.into());
        }
        if parts.contains(&Some(Part::CpuSets)) {
            let groups = self.pods.standing().groups.clone();
            readings.cpu_sets = Some(columns::cpu_sets(&mut self.host, &groups, &self.pods, &mut gone).into());
        }
        if wants_moves {
            readings.migrations = Some(self.controls.migrations().moves(&self.host));
        }
        if wants_classes || wants_counts {
            let classes = self.controls.classes_mut();
            readings.resctrl = Some(classes.read(&mut self.host, wants_counts, &mut costs));
        }
        if wants_resources || wants_evictions {
            readings.answer = self.observed.answer().cloned().map(Arc::new);
            readings.resources = wants_resources.then(|| self.controls.resources().states());
            readings.evictions = wants_evictions.then(|| self.controls.evictions().states(now));
        }
        for cost in costs {
            self.reporting.metrics.column(cost.column, cost.seconds);
        }
        gone.sort_unstable();
        gone.dedup();
        for container in gone {
            self.ledger.drop_target(&mut self.host, Target::Container(container));
            self.target_gone(Target::Container(container));
        }
        readings
    }

    /// Passes a policy's staged settings to the ledger and the controls, and its events and rejections to reporting.
    fn stage(&mut self, evaluation: Evaluation, now: Now, events: &mut Vec<AgentEvent>) {
        let StagedPolicy { holder, staged, anew, changes_problems } = match evaluation {
            Evaluation::Staged(staged) => staged,
            Evaluation::Released(policy) => {
                self.ledger.release(&policy);
                self.controls.release(&policy);
                return;
            }
        };
        if changes_problems {
            self.collect_problems(now);
        }
        let Self { ledger, controls, policies, pods, reporting, .. } = self;
        let reach = |target: Target| policies.out_of_reach(&holder.policy, pods, target);
        let source = holder.policy.to_string();
        ledger.begin_staging(&holder, anew);
        controls.begin_staging(&holder.policy, anew);
        for part in staged {
            if let Some(state) = part.state {
                ledger.save_state(source.clone(), SavedState::new(state, now));
            }
            for setting in part.settings {
                if let Some(setting) = ledger.stage(&holder, setting, &reach, now.wall) {
                    controls.stage(&holder, setting, &reach, pods, now.wall);
                }
            }
            let rejections = part.rejections.into_iter().map(|rejection| {
                let message = format!("{}: {}", rejection.field, rejection.message);
                (rejection.pod, EventKind::Warning, INVALID.to_owned(), message)
            });
            let reported = part.events.into_iter().map(|event| (event.pod, event.kind, event.reason, event.message));
            for (pod, kind, reason, message) in rejections.chain(reported) {
                let event = AgentEvent {
                    pod: pods.get(pod).map(|entry| entry.pod.key()).unwrap_or_default(),
                    kind: AgentEvent::kind(kind),
                    reason,
                    message,
                    source: source.clone(),
                    count: 1,
                    last_millis: now.wall.0,
                    id: Some(pod),
                };
                reporting.emit(pods, event, now, events);
            }
        }
        controls.end_staging(&holder.policy);
        ledger.end_staging(&holder);
    }

    /// Applies leases and controls to the kernel, and restores what is no longer leased.
    fn apply(&mut self, now: Now, step: &mut Step) {
        let _span = tracing::debug_span!("apply").entered();
        let leaving = self.pods.leaving_targets();
        self.ledger.release_targets(&leaving);
        for target in leaving {
            self.policies.forget_target(target);
        }
        self.take_policy_changes(now);
        self.apply_ledger(now, step);
        self.close_leaving();
        self.host.settle_core_groups(now.monotonic);
        self.settle(now, step);
        self.ledger.close_spares(&mut self.host);
        let is_settled = self.ledger.is_settled();
        self.controls.evictions_mut().judge(&inputs!(self, now));
        // So that no pod is evicted twice, requests are journaled before they are carried out, and the outcome right after.
        self.write_evictions_down();
        let decisions = self.controls.apply(&mut self.host, &inputs!(self, now), is_settled);
        self.write_evictions_down();
        (step.migrations, step.classes) = (decisions.migrations, decisions.classes);
        (step.resources, step.evictions) = (decisions.resources, decisions.evictions);
        self.reporting.send_notices(&self.pods, decisions.notices, now, &mut step.events);
    }

    fn write_evictions_down(&mut self) {
        let Some(saved) = self.controls.evictions_mut().unsaved() else { return };
        let kept =
            self.ledger.commit_state(vec![(evictions::JOURNAL_KEY.to_owned(), SavedState { bytes: saved, at: None })]);
        if let Err(error) = &kept {
            tracing::error!(error = chain(error), "evictions are suspended until the journal works");
        }
        self.controls.evictions_mut().set_recorded(kept.is_ok());
    }

    fn apply_ledger(&mut self, now: Now, step: &mut Step) {
        self.judge_reach();
        let applied = self.ledger.apply(&mut self.host, &inputs!(self, now));
        self.take_applied(applied, now, step);
    }

    /// Works out again which policies may act on which targets, if that has changed.
    fn judge_reach(&mut self) {
        if self.ledger.judge_leases(&self.policies, &self.pods) {
            self.controls.judge(&self.policies, &self.pods);
        }
    }

    /// Passes the ledger's results on to the step and to the parts that come after it.
    fn take_applied(&mut self, applied: Applied, now: Now, step: &mut Step) {
        let Applied { decisions, refused, notices, gone, changes_problems } = applied;
        step.decisions.extend(decisions);
        step.refused.extend(refused);
        self.reporting.send_notices(&self.pods, notices, now, &mut step.events);
        for target in gone {
            self.target_gone(target);
        }
        if changes_problems {
            self.collect_problems(now);
        }
    }

    /// Passes changes of the policies on to the other parts.
    fn take_policy_changes(&mut self, now: Now) {
        let changes = self.policies.take_changes();
        for policy in changes.released {
            self.ledger.release(&policy);
            self.controls.release(&policy);
        }
        for (key, state) in changes.saved {
            self.ledger.save_state(key, state);
        }
        if changes.reach {
            self.ledger.reach_changed();
        }
        if changes.watches {
            self.alarms.is_stale = true;
        }
        if changes.problems {
            self.collect_problems(now);
        }
    }

    /// Closes the cgroups of pods and containers that left, once their knobs are restored.
    fn close_leaving(&mut self) {
        let (pods, containers) = self.pods.take_leaving();
        for entry in pods {
            for target in entry.targets() {
                self.ledger.forget_target(&mut self.host, target);
                self.forget_target(target);
            }
            self.ledger.remove_pod(&mut self.host, &entry);
        }
        for container in containers {
            let target = Target::Container(container.id);
            self.ledger.forget_target(&mut self.host, target);
            self.forget_target(target);
        }
    }

    /// Restores what an earlier agent held and no policy claims, once every policy was evaluated or [`SETTLE_TICKS`] have passed.
    fn settle(&mut self, now: Now, step: &mut Step) {
        if self.ledger.is_settled() || (!self.policies.have_all_evaluated() && self.ticks < SETTLE_TICKS) {
            return;
        }
        if self.ledger.settle() {
            self.apply_ledger(now, step);
        }
        self.restore_orphans(now, step);
        self.ledger.remove_unclaimed(&mut self.host, &self.pods);
    }

    /// Restores knobs that the journal records in cgroups that no pod claims.
    fn restore_orphans(&mut self, now: Now, step: &mut Step) {
        self.ledger.open_orphans(&mut self.host, &mut self.pods);
        self.apply_ledger(now, step);
        self.ledger.close_spares(&mut self.host);
    }

    /// Updates the other parts after the ledger dropped a target whose cgroup is gone. A pod or tier keeps what policies declared for it,
    /// for its next cgroup; a container gets another ID, for which they declare anew.
    fn target_gone(&mut self, target: Target) {
        match target {
            Target::Container(container) => {
                self.forget_target(target);
                if let Some(pod) = self.pods.renew_container(container) {
                    self.policies.pod_changed(pod, &self.pods);
                }
            }
            Target::Pod(_) | Target::Tier(_) | Target::Node => {
                self.pods.forget_claim(target);
                self.cpusets.forget(target);
                self.alarms.is_stale = true;
                if let Target::Pod(pod) = target
                    && let Some(entry) = self.pods.get_mut(pod)
                {
                    entry.attached = false;
                }
            }
        }
    }

    /// Removes a target that is gone from all parts but the ledger.
    fn forget_target(&mut self, target: Target) {
        self.policies.forget_target(target);
        self.pods.forget_claim(target);
        self.controls.forget(target);
        self.cpusets.forget(target);
        self.alarms.is_stale = true;
    }

    /// Sends events for the pods that this step wrote to.
    fn report(&mut self, step: &Step) {
        self.reporting.emit_pod_events(&view!(self), &step.decisions);
    }

    /// Writes the results of a step to the decision log, if one is configured.
    fn log_decisions_of(&mut self, step: &Step, now: Now) {
        if let Some(log) = &mut self.reporting.decision_log {
            log.step(step, now);
        }
    }

    fn collect_problems(&mut self, now: Now) {
        self.reporting.collect_problems(&view!(self), now);
    }
}

/// Accessors for tests.
#[cfg(test)]
impl Agent {
    pub(crate) fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    pub(crate) fn cpu_parts(&mut self) -> (&mut Host, &PodTable, &Cpusets) {
        (&mut self.host, &self.pods, &self.cpusets)
    }

    pub(crate) fn pods(&mut self) -> &mut PodTable {
        &mut self.pods
    }

    pub(crate) fn config_mut(&mut self) -> &mut AgentConfig {
        &mut self.run.agent
    }

    /// Calls `f` with the ledger, the host and the inputs.
    pub(crate) fn with_ledger<T>(
        &mut self,
        now: Now,
        f: impl FnOnce(&mut Ledger, &mut Host, &crate::inputs::Inputs<'_>) -> T,
    ) -> T {
        f(&mut self.ledger, &mut self.host, &inputs!(self, now))
    }

    /// Calls `f` with the controls, the host and the inputs.
    pub(crate) fn with_controls<T>(
        &mut self,
        now: Now,
        f: impl FnOnce(&mut Controls, &mut Host, &crate::inputs::Inputs<'_>) -> T,
    ) -> T {
        f(&mut self.controls, &mut self.host, &inputs!(self, now))
    }

    /// Ends the agent as `kill -9` would, except that the host stays open.
    pub(crate) fn into_host(self) -> Host {
        let Self { host, ledger, .. } = self;
        drop(ledger);
        host
    }
}
