//! The agent: one step of the loop after the other, driven by values. It owns the host, the policies and the leases, and is the
//! only writer of the kernel. Its parts stand beside it: observing, arbitrating, applying, accounting.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use qosm_cluster::Outbox;
use qosm_engine::{Cause, Engine, Interface};
use qosm_host::Host;
use qosm_model::alarm::Alarm;
use qosm_model::digest::Digest;
use qosm_model::knob::{Knob, Target};
use qosm_model::lease::Leases;
use qosm_model::pod::{PodId, Tier};
use qosm_model::problem::Problem;
use qosm_model::problem::chain;
use qosm_model::unit::Bytes;

use crate::alarm::AlarmState;
use crate::announce::Announced;
use crate::apply::Refusal;
use crate::columns::{self, ColumnCost, Quotas, Readings};
use crate::config::{AgentConfig, OnShutdown, PolicyMode};
use crate::event::{AgentEvent, Events};
use crate::held::HeldKnobs;
use crate::hold::Hold;
use crate::journal::{Entries, Journal, JournalError, Record};
use crate::locality::Locality;
use crate::made::is_within;
use crate::metrics::Metrics;
use crate::node_report::Reporting;
use crate::policy::{Evaluated, LoadedPolicy, Now, Policy};
use crate::report::{ClassDecision, Decision, MigrationDecision};
use crate::resctrl::Resctrl;
use crate::roster::TakenBack;
use crate::shadow::{self, ShadowError};
use crate::sources::Sources;
use crate::table::{Access, GoneContainer, PodEntry, Pods};
use crate::trial::{Probation, Trial};

/// Whether the agent writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
    /// It works out what it would write, and leaves the kernel alone.
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
    /// What pods' owners are told.
    pub events: Vec<AgentEvent>,
    /// What fired since the step before.
    pub(crate) alarms: BTreeSet<Alarm>,
    /// What was read.
    pub(crate) readings: Readings,
}

/// The agent of one node.
pub struct Agent {
    pub(crate) host: Host,
    pub(crate) engine: Engine,
    pub(crate) config: AgentConfig,
    pub(crate) mode: Mode,
    pub(crate) make_cgroups: bool,
    pub(crate) journal: Option<Journal>,
    pub(crate) pods: Pods,
    pub(crate) policies: Vec<Policy>,
    pub(crate) unloaded: Vec<Unloaded>,
    pub(crate) leases: Leases,
    pub(crate) held: HeldKnobs,
    pub(crate) refusals: BTreeMap<(Target, Knob), Refusal>,
    pub(crate) orphans: Vec<Record>,
    pub(crate) quotas: Quotas,
    pub(crate) holds: HashMap<PodId, Hold>,
    pub(crate) operator_holds: BTreeMap<String, Hold>,
    pub(crate) sources: Sources,
    pub(crate) problems: BTreeSet<Problem>,
    pub(crate) events: Events,
    pub(crate) metrics: Arc<Metrics>,
    /// Knobs to look at in this step.
    pub(crate) dirty: BTreeSet<(Target, Knob)>,
    pub(crate) leaving: Vec<PodEntry>,
    pub(crate) leaving_containers: Vec<GoneContainer>,
    pub(crate) verify_queue: VecDeque<(Target, Knob)>,
    pub(crate) ticks: u64,
    pub(crate) settled: bool,
    pub(crate) journal_error: Option<String>,
    /// Knobs to strike out of the journal at the next commit.
    pub(crate) struck: Vec<(Knob, String)>,
    /// What modules saved and the journal does not have yet.
    pub(crate) unsaved: Vec<(String, Vec<u8>)>,
    pub(crate) memory_capacity: Option<Bytes>,
    pub(crate) locality: Locality,
    pub(crate) resctrl: Resctrl,
    pub(crate) alarms: AlarmState,
    /// Cgroups that qosm made, this agent or one before it: each after its parent.
    pub(crate) made: BTreeSet<String>,
    /// What is wrong with the roster.
    pub(crate) roster_problems: Vec<Problem>,
    pub(crate) reporting: Reporting,
    /// What pods' owners were told of.
    pub(crate) announced: Announced,
    /// Where pods' owners and the fleet are told.
    pub(crate) outbox: Option<Outbox>,
    /// What has to arrive before anything may be done.
    pub(crate) waits_for: Option<String>,
    /// The newest roster.
    pub(crate) roster: u64,
    /// Versions that have yet to show that they work.
    pub(crate) trials: Vec<Trial>,
    /// Versions that have just taken their places.
    pub(crate) probations: Vec<Probation>,
    /// Versions that failed, and that nobody has asked for yet.
    pub(crate) taken_back: Vec<TakenBack>,
    /// The same until the roster knows of them: one that was made before that still brings them.
    pub(crate) refused: BTreeMap<String, (Digest, String)>,
    /// Whether what runs has changed since it was told.
    pub(crate) versions_changed: bool,
    /// Whether a policy of another priority may have taken a place in this step.
    pub(crate) is_unordered: bool,
}

/// What an agent is made of.
pub struct Parts {
    /// The kernel.
    pub host: Host,
    /// Wasm.
    pub engine: Engine,
    /// The modules to run.
    pub policies: Vec<LoadedPolicy>,
    /// Policies whose module could not be loaded.
    pub unloaded: Vec<Unloaded>,
    /// The operator's file.
    pub config: AgentConfig,
    /// Whether to write.
    pub mode: Mode,
    /// Whether pods that come without cgroups get some: only without a kubelet.
    pub make_cgroups: bool,
    /// Where baselines are kept; without one (plan, replay) nothing survives the agent.
    pub journal: Option<Journal>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// A policy that is configured but whose module could not be loaded. The others go on.
#[derive(Clone, Debug)]
pub struct Unloaded {
    /// Its name.
    pub policy: String,
    /// Whether it was to count.
    pub mode: PolicyMode,
    /// Why.
    pub error: String,
    /// Whether its module is only on its way.
    pub is_pending: bool,
}

/// An agent could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetUpError {
    /// A policy's entry asks for a grant that does not exist.
    #[error(transparent)]
    Grant(#[from] crate::config::UnknownGrant),
    /// Two policies of one name.
    #[error("policy `{0}` is configured twice; give one of them another name")]
    Duplicate(String),
    /// A shadow that cannot be compared as asked.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Agent {
    /// Puts an agent together, and takes over what an earlier one left in the journal.
    ///
    /// # Errors
    ///
    /// [`SetUpError`] names the policy or the journal that is at fault. A module that does not work is no error here: it is
    /// parked, and the others go on.
    pub fn new(parts: Parts) -> Result<Self, SetUpError> {
        let Parts { mut host, engine, policies: loaded, unloaded, config, mode, make_cgroups, journal, metrics } =
            parts;
        let mut policies: Vec<Policy> = Vec::with_capacity(loaded.len());
        for policy in loaded {
            let name = policy.config.name.clone();
            if policies.iter().any(|other| **other.name() == *name) {
                return Err(SetUpError::Duplicate(name));
            }
            let grants = policy.config.granted()?;
            let mut policy = Policy::new(policy, grants);
            if let Some(journal) = &journal {
                policy.begin_with(&journal.state(&policy.state_key())?);
            }
            policies.push(policy);
        }
        // The order of evaluation is part of what a replay must reproduce.
        policies.sort_by(Policy::before);
        shadow::pair(&mut policies, &unloaded)?;
        let orphans = match &journal {
            Some(journal) => journal.records()?,
            None => Vec::new(),
        };
        let made = match &journal {
            Some(journal) => journal.made()?,
            None => BTreeSet::new(),
        };
        let mut operator_holds = BTreeMap::new();
        if let Some(journal) = &journal {
            for (pod, stored) in journal.holds()? {
                operator_holds.insert(pod, stored.into());
            }
        }
        metrics.unloaded(&[], &unloaded);
        metrics.modules(&policies);
        host.limit_migrations(config.page_migration.limits());
        host.use_resctrl_at(config.resctrl.path.as_ref().map(ToString::to_string));
        host.set_full_bandwidth(config.resctrl.full_bandwidth_mbps.map(NonZeroU32::get));
        let memory_capacity = host.node_memory().ok().map(|(capacity, _)| capacity);
        Ok(Self {
            host,
            engine,
            config,
            mode,
            make_cgroups,
            journal,
            pods: Pods::default(),
            policies,
            unloaded,
            leases: Leases::default(),
            held: HeldKnobs::default(),
            refusals: BTreeMap::new(),
            orphans,
            quotas: Quotas::default(),
            holds: HashMap::new(),
            operator_holds,
            sources: Sources::default(),
            problems: BTreeSet::new(),
            events: Events::default(),
            metrics,
            dirty: BTreeSet::new(),
            leaving: Vec::new(),
            leaving_containers: Vec::new(),
            verify_queue: VecDeque::new(),
            ticks: 0,
            settled: false,
            journal_error: None,
            struck: Vec::new(),
            unsaved: Vec::new(),
            memory_capacity,
            locality: Locality::default(),
            resctrl: Resctrl::default(),
            alarms: AlarmState::default(),
            made,
            roster_problems: Vec::new(),
            reporting: Reporting::default(),
            announced: Announced::new(),
            outbox: None,
            waits_for: None,
            roster: 0,
            trials: Vec::new(),
            probations: Vec::new(),
            taken_back: Vec::new(),
            refused: BTreeMap::new(),
            versions_changed: true,
            is_unordered: false,
        })
    }

    /// The kernel, for those who stand in for it: a replay plays back counters and other writers through the simulation.
    pub fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// Has pods' owners and the fleet told through the API server as well.
    pub fn tell_through(&mut self, outbox: Outbox) {
        self.outbox = Some(outbox);
    }

    /// One step: observe, evaluate, arbitrate, apply, account.
    pub fn step(&mut self, now: Now) -> Step {
        let step = self.react(now);
        // Whatever is counted in ticks is time: alarms must not hurry it.
        self.ticks += 1;
        self.metrics.tick();
        step
    }

    /// A step between two ticks, for an alarm's sake.
    pub fn react(&mut self, now: Now) -> Step {
        let started = std::time::Instant::now();
        let mut step = Step { alarms: self.begin_alarms(now), ..Step::default() };
        self.discover(now);
        self.update_holds(now);
        self.verify(now, &mut step);
        self.hear_of_trials();
        let due: Vec<_> = self
            .policies
            .iter()
            .enumerate()
            .filter_map(|(place, policy)| {
                let cause = policy.due(now).or_else(|| self.has_successor(policy).then_some(Cause::ConfigChanged));
                cause.map(|cause| (place, cause))
            })
            .collect();
        step.readings = self.observe(&due.iter().map(|&(place, _)| place).collect::<Vec<_>>());
        let (active, shadows): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|&(place, _)| self.policies[place].mode().is_active());
        for (place, cause) in active {
            if !self.succeed(place, &step.readings, now, &mut step.events) {
                self.evaluate(place, cause, &step.readings, now, &mut step.events);
            }
        }
        self.release_leaving();
        self.apply(now, &mut step);
        step.migrations = self.apply_migrations();
        self.tidy_leaving();
        self.settle(now, &mut step);
        step.classes = self.apply_classes();
        self.announce(&step);
        // Shadows come last: however long one takes, what counts is written by then.
        for (place, cause) in shadows {
            self.evaluate(place, cause, &step.readings, now, &mut step.events);
        }
        self.compare_shadows(now);
        self.watch_probations(now);
        self.rehearse(&step.readings, now);
        if std::mem::take(&mut self.is_unordered) {
            self.reorder();
        }
        self.arrange_alarms(&step.readings, now);
        let running = self.pods.standing().running.len();
        self.metrics.step(started.elapsed().as_secs_f64(), (self.pods.len(), running), &self.leases, &self.policies);
        step
    }

    /// Reads the columns that the policies in question import, once for all of them.
    fn observe(&mut self, due: &[usize]) -> Readings {
        let mut gone = Vec::new();
        let mut costs: Vec<ColumnCost> = Vec::new();
        let policies = &self.policies;
        let trials = &self.trials;
        let wanted = |interface: Interface| {
            due.iter().any(|&place| policies[place].imports(interface))
                || trials.iter().any(|trial| trial.imports(interface))
        };
        let wants_quotas = wanted(Interface::CpuStat);
        let wants_moves = wanted(Interface::PageMigration);
        let wants_classes = wanted(Interface::ResctrlAllocation);
        let wants_counts = wanted(Interface::ResctrlMonitor);
        let allocatable = self.sources.node.memory_allocatable;
        let mut readings =
            columns::read(&mut self.host, &self.pods.standing().running, &wanted, allocatable, &mut gone, &mut costs);
        if wants_quotas {
            readings.bandwidth = Some(self.read_quotas());
        }
        if let Some(containers) = self.numa_containers(due) {
            let column = columns::numa(&mut self.host, &containers, &mut gone, &mut costs);
            self.note_numa(&column);
            readings.numa = Some(column);
        }
        if wants_moves {
            readings.migrations = Some(self.moves());
        }
        if wants_classes || wants_counts {
            readings.resctrl = Some(self.read_resctrl(wants_counts, &mut costs));
        }
        for cost in costs {
            self.metrics.column(cost.column, cost.seconds);
        }
        gone.sort_unstable();
        gone.dedup();
        for container in gone {
            self.container_gone(container);
        }
        readings
    }

    fn evaluate(&mut self, place: usize, cause: Cause, readings: &Readings, now: Now, events: &mut Vec<AgentEvent>) {
        let Some(policy) = self.policies.get_mut(place) else { return };
        let (name, mode) = (Arc::clone(policy.name()), policy.mode());
        let outcome = policy.evaluate(&self.engine, cause, readings, &self.pods, now);
        self.metrics.evaluation(&name, mode, policy.last_evaluation_seconds);
        match outcome {
            Evaluated::Staged { staged, anew } => match mode {
                PolicyMode::Active => self.take_staged(place, staged, anew, now, events),
                PolicyMode::Shadow => self.take_shadowed(place, staged, anew, now),
            },
            Evaluated::Failed { error } => {
                tracing::warn!(policy = %name, mode = mode.as_str(), error, "evaluation discarded; the policy starts anew");
                self.metrics.failure(&name, mode);
            }
            Evaluated::Parked { error, release } => {
                tracing::error!(policy = %name, mode = mode.as_str(), error, release, "policy parked after repeated failure");
                self.metrics.failure(&name, mode);
                if release && mode.is_active() {
                    self.dirty.extend(self.leases.release_policy(&name));
                    self.locality.stop_policy(&name);
                    self.resctrl.classes.release_policy(&name);
                }
            }
        }
    }

    /// Opens the cgroups that have appeared since the last look.
    fn discover(&mut self, now: Now) {
        for tier in Tier::ALL {
            let target = Target::Tier(tier);
            if self.host.attached_path(target).is_none() {
                let path = self.host.tier_path(tier);
                if self.host.attach(target, &path).is_ok() {
                    self.adopt(target);
                }
            }
        }
        for id in self.pods.standing().incomplete.clone() {
            self.attach_pod(id, now);
        }
    }

    /// Ends the agent's hold on the node as configured. Returns what could not be restored.
    ///
    /// # Errors
    ///
    /// [`JournalError`] when a baseline was restored but could not be struck out.
    pub fn shut_down(&mut self, now: Now) -> Result<Step, JournalError> {
        let mut step = Step::default();
        let mut state = Entries::default();
        for policy in &self.policies {
            state.state.push((policy.state_key(), policy.saved().to_vec()));
        }
        if let Some(journal) = &self.journal
            && let Err(error) = journal.commit(&state)
        {
            // Knobs come before the modules' memories: what the journal already knows is put back all the same.
            tracing::error!(error = chain(&error), "the modules' state cannot be kept");
        }
        if self.config.on_shutdown == OnShutdown::Keep {
            return Ok(step);
        }
        let names: Vec<_> = self.policies.iter().map(|policy| Arc::clone(policy.name())).collect();
        for name in names {
            self.locality.stop_policy(&name);
            self.resctrl.classes.release_policy(&name);
            self.dirty.extend(self.leases.release_policy(&name));
        }
        self.dirty.extend(self.held.keys().copied());
        self.apply(now, &mut step);
        self.apply_migrations();
        self.clear_classes();
        for entry in self.pods.iter().filter(|entry| entry.access == Access::OnHold) {
            let left = entry.targets().map(|target| self.held.of(target).count()).sum::<usize>();
            if left > 0 {
                tracing::warn!(
                    pod = entry.given.key(),
                    knobs = left,
                    "on hold: left as it is; `qosm restore` puts it back"
                );
            }
        }
        self.restore_orphans(now, &mut step);
        let on_hold: Vec<String> =
            self.pods.iter().filter(|e| e.access == Access::OnHold).map(|e| self.host.pod_path(&e.given)).collect();
        for tier in Tier::ALL {
            self.host.detach(Target::Tier(tier));
        }
        self.remove_made(|cgroup| !on_hold.iter().any(|pod| is_within(cgroup, pod)));
        self.announce(&step);
        Ok(step)
    }

    /// Tries a parked policy again; whoever loads modules tries those that could not be. `false` = there is none of that name.
    pub fn retry(&mut self, policy: &str) -> bool {
        match self.policies.iter_mut().find(|known| **known.name() == *policy) {
            Some(known) => {
                known.retry();
                true
            }
            None => self.unloaded.iter().any(|unloaded| unloaded.policy == policy),
        }
    }

    /// Whether the agent does its work: a readiness probe's answer. In Kubernetes a policy that fails is told by the node's report and
    /// not here: one bad PolicyModule would make every agent unready, and hold up the update that mends it.
    pub fn readiness(&self) -> Result<(), String> {
        match (&self.outbox, &self.waits_for, &self.journal_error) {
            (None, ..) => self.health(),
            (_, Some(missing), _) => Err(format!("waiting for {missing}")),
            (.., Some(error)) => Err(error.clone()),
            (Some(_), None, None) => Ok(()),
        }
    }

    /// Whether everything works: what a health endpoint says, and why not. A shadow that fails leaves the node as well as it was.
    pub fn health(&self) -> Result<(), String> {
        if let Some(missing) = &self.waits_for {
            return Err(format!("waiting for {missing}"));
        }
        if let Some(error) = &self.journal_error {
            return Err(error.clone());
        }
        let ailing: Vec<_> = self
            .policies
            .iter()
            .filter(|policy| policy.mode().is_active())
            .filter_map(|policy| policy.health.error().map(|error| format!("{}: {error}", policy.name())))
            .chain(
                self.unloaded
                    .iter()
                    .filter(|policy| policy.mode.is_active())
                    .map(|policy| format!("{}: {}", policy.policy, policy.error)),
            )
            .collect();
        if ailing.is_empty() { Ok(()) } else { Err(ailing.join("; ")) }
    }
}
