//! Page migration: moves the memory of containers between NUMA nodes. Policies stage it like a setting, but it is no lease: moved pages
//! stay where they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_host::Host;
use qosm_model::knob::Target;
use qosm_model::lease::{Holder, Timestamp};
use qosm_model::numa::{
    Migration, MigrationProgress, MigrationSample, MigrationState, NumaColumn, NumaId, local_percent,
};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::problem::chain;
use qosm_model::setting::Setting;

use crate::columns::{Moves, Readings};
use crate::controls::control::{Control, ControlDecisions, Rows};
use crate::inputs::Inputs;
use crate::metrics::Metrics;
use crate::policy::Reach;
use crate::replay::line::TickLine;
use crate::report::{LocalityReport, MigrationDecision, MigrationReport, PodReport, moment};
use crate::step::Mode;
use crate::table::{Access, PodTable};

/// A migration that a policy asked for.
#[derive(Clone, Debug)]
struct Move {
    policy: Arc<str>,
    wanted: Migration,
    since: Timestamp,
    phase: Phase,
    /// The progress that metrics have counted.
    counted: MigrationProgress,
    /// Share of local pages when the migration began, in percent.
    local_before: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Staged in this step.
    Asked,
    /// Handed to the host.
    Begun,
    /// Not allowed or not possible, with the reason.
    Refused(String),
}

/// Migrations of all policies, and the last reading of where memory lies.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    moves: BTreeMap<ContainerId, Move>,
    stops: Vec<ContainerId>,
    /// Containers that the policy that is staging all it wants has not named yet.
    undeclared: Vec<ContainerId>,
    /// The column as it was last read.
    column: Arc<NumaColumn>,
}

/// The reason why a plan moves no pages.
const PLANNED: &str = "nothing is moved in a plan";

impl Move {
    fn decision(&self, pod: String, container: String) -> MigrationDecision {
        let numbers = |nodes: &[NumaId]| nodes.iter().map(|id| id.0).collect();
        MigrationDecision {
            pod,
            container,
            from: numbers(&self.wanted.from),
            to: numbers(&self.wanted.to),
            policy: self.policy.to_string(),
            reason: self.wanted.reason.to_string(),
            error: match &self.phase {
                Phase::Refused(why) if why != PLANNED => Some(why.clone()),
                _ => None,
            },
        }
    }
}

impl Migrations {
    /// Takes a staged start.
    fn ask(&mut self, policy: &Arc<str>, wanted: Migration, now: Timestamp) {
        self.stops.retain(|&stopped| stopped != wanted.container);
        let counted = MigrationProgress { token: wanted.token, ..MigrationProgress::default() };
        let container = wanted.container;
        let asked =
            Move { policy: Arc::clone(policy), wanted, since: now, phase: Phase::Asked, counted, local_before: None };
        self.moves.insert(container, asked);
    }

    /// Takes a staged stop. A policy can stop its own migrations only.
    fn stop(&mut self, policy: &str, container: ContainerId) {
        if let Some(known) = self.moves.get_mut(&container).filter(|known| *known.policy == *policy) {
            if known.phase == Phase::Asked {
                // Started and stopped in the same step.
                known.phase = Phase::Refused("it was called off".to_owned());
            }
            self.stops.push(container);
        }
    }

    /// Share of a container's pages that was local when they were last counted, in percent.
    pub(super) fn local_percent(&self, container: ContainerId) -> Option<u64> {
        let sample = self.column.samples.iter().find(|sample| sample.container == container)?;
        let (local, remote) = sample.local_and_remote();
        Some(local_percent(local, remote))
    }

    /// Keeps the column for reports, and counts it in metrics.
    pub(crate) fn note_numa(&mut self, metrics: &Metrics, column: &Arc<NumaColumn>) {
        let sums = column.samples.iter().map(qosm_model::numa::NumaSample::local_and_remote);
        let (local, remote) =
            sums.fold((0_u64, 0_u64), |(l, r), (local, remote)| (l.saturating_add(local), r.saturating_add(remote)));
        metrics.locality(local, remote);
        self.column = Arc::clone(column);
    }

    /// Progress of all migrations.
    pub(crate) fn moves(&self, host: &Host) -> Moves {
        if self.moves.is_empty() {
            return Arc::default();
        }
        let reported = host.migrations();
        let progress = |container: ContainerId, known: &Move| match &known.phase {
            Phase::Refused(why) => MigrationProgress {
                token: known.wanted.token,
                state: MigrationState::Stopped,
                why: why.clone(),
                ..MigrationProgress::default()
            },
            _ => reported
                .iter()
                .find(|sample| sample.container == container && sample.progress.token == known.wanted.token)
                .map_or_else(|| known.counted.clone(), |sample| sample.progress.clone()),
        };
        let sample = |(&container, known): (&ContainerId, &Move)| {
            (Arc::clone(&known.policy), MigrationSample { container, progress: progress(container, known) })
        };
        self.moves.iter().map(sample).collect()
    }

    /// Passes staged starts and stops to the host, and stops migrations of pods that may no longer be touched. Adds starts to `decisions`.
    fn start_and_stop(&mut self, host: &mut Host, inputs: &Inputs<'_>, decisions: &mut Vec<MigrationDecision>) {
        if self.moves.is_empty() {
            return;
        }
        for container in std::mem::take(&mut self.stops) {
            host.stop_migration(container);
        }
        let containers: Vec<_> = self.moves.keys().copied().collect();
        for container in containers {
            let barred = why_not(inputs.pods, container);
            let named = inputs
                .pods
                .owner(container)
                .and_then(|(entry, place)| Some((entry.pod.key(), entry.pod.containers.get(place)?.name.clone())));
            let local = self.local_percent(container);
            let Some(known) = self.moves.get_mut(&container) else { continue };
            let was_asked = known.phase == Phase::Asked;
            match (&known.phase, barred) {
                // Staged again with each plan; it is not reported as refused.
                (Phase::Asked, _) if inputs.mode == Mode::Plan => known.phase = Phase::Refused(PLANNED.to_owned()),
                (Phase::Asked, Some(why)) => known.phase = Phase::Refused(why),
                (Phase::Asked, None) => match host.migrate(&known.wanted) {
                    Ok(()) => {
                        let (policy, from, to) = (&known.policy, &known.wanted.from, &known.wanted.to);
                        tracing::info!(%policy, container = container.0, ?from, ?to, reason = %known.wanted.reason, "pages are moved");
                        known.phase = Phase::Begun;
                        known.local_before = local;
                    }
                    Err(error) => {
                        let error = chain(&error);
                        tracing::warn!(policy = %known.policy, container = container.0, error, "pages cannot be moved");
                        known.phase = Phase::Refused(error);
                    }
                },
                (Phase::Begun, Some(_)) => host.stop_migration(container),
                _ => {}
            }
            if let Some((pod, container)) = named.filter(|_| was_asked) {
                decisions.push(known.decision(pod, container));
            }
        }
        self.count(host, inputs);
    }

    fn count(&mut self, host: &Host, inputs: &Inputs<'_>) {
        for sample in host.migrations() {
            let local = self.local_percent(sample.container);
            let Some(known) = self.moves.get_mut(&sample.container) else { continue };
            if sample.progress.token == known.wanted.token && sample.progress != known.counted {
                inputs.metrics.migration(&known.counted, &sample.progress);
                if sample.progress.state.has_ended() && !known.counted.state.has_ended() {
                    let MigrationProgress { state, pages_found, pages_moved, .. } = sample.progress;
                    let policy = &known.policy;
                    tracing::info!(%policy, container = sample.container.0, state = state.as_str(), pages_found, pages_moved, "migration ended");
                    for (when, percent) in [("before", known.local_before), ("after", local)] {
                        if let Some(percent) = percent {
                            inputs.metrics.migration_local(when, percent);
                        }
                    }
                }
                known.counted = sample.progress;
            }
        }
    }

    /// Locality and migration of a pod's memory, container by container.
    fn locality_reports(&self, host: &Host, pods: &PodTable, pod: PodId) -> Vec<LocalityReport> {
        let Some(entry) = pods.get(pod) else { return Vec::new() };
        let moves = self.moves(host);
        let report = |(place, container): (usize, &crate::table::ContainerEntry)| {
            let sample = self.column.samples.iter().find(|sample| sample.container == container.id);
            let migration = moves.iter().find(|(_, sample)| sample.container == container.id);
            if sample.is_none() && migration.is_none() {
                return None;
            }
            let counted = sample.map(qosm_model::numa::NumaSample::local_and_remote);
            Some(LocalityReport {
                container: entry.pod.containers.get(place).map(|given| given.name.clone()).unwrap_or_default(),
                cpu_nodes: sample.map(|s| s.cpu_nodes.iter().map(|id| id.0).collect()).unwrap_or_default(),
                local_percent: counted.map(|(local, remote)| local_percent(local, remote)),
                remote_pages: counted.map(|(_, remote)| remote),
                migration: migration.and_then(|(policy, sample)| {
                    let known = self.moves.get(&sample.container)?;
                    Some(migration_report(policy, known, &sample.progress))
                }),
            })
        };
        entry.containers.iter().enumerate().filter_map(report).collect()
    }

    fn of_policy(&self, policy: &str) -> Vec<ContainerId> {
        self.moves.iter().filter(|(_, known)| *known.policy == *policy).map(|(&id, _)| id).collect()
    }
}

impl Control for Migrations {
    fn begin_staging(&mut self, policy: &str, anew: bool) {
        self.undeclared = if anew { self.of_policy(policy) } else { Vec::new() };
    }

    fn acts_on(&self, setting: &Setting) -> Option<(Target, &'static str)> {
        match setting {
            Setting::Migrate(migration) => Some((Target::Container(migration.container), "pages are not moved")),
            _ => None,
        }
    }

    fn stage(&mut self, holder: &Holder, setting: Setting, now: Timestamp) -> Option<Setting> {
        match setting {
            Setting::Migrate(migration) => {
                self.undeclared.retain(|&container| container != migration.container);
                self.ask(&holder.policy, migration, now);
                None
            }
            Setting::StopMigration { container } => {
                self.stop(&holder.policy, container);
                None
            }
            other => Some(other),
        }
    }

    fn end_staging(&mut self, policy: &str) {
        for container in std::mem::take(&mut self.undeclared) {
            self.stop(policy, container);
        }
    }

    fn release(&mut self, policy: &str) {
        let of_policy = self.of_policy(policy);
        self.stops.extend(of_policy);
    }

    fn release_beyond(&mut self, policy: &str, reach: &Reach<'_>) {
        for container in self.of_policy(policy) {
            if reach(Target::Container(container)).is_some() {
                self.stop(policy, container);
            }
        }
    }

    fn forget(&mut self, target: Target) {
        if let Target::Container(container) = target {
            self.moves.remove(&container);
        }
    }

    fn apply(&mut self, host: &mut Host, inputs: &Inputs<'_>, _: bool, out: &mut ControlDecisions) {
        self.start_and_stop(host, inputs, &mut out.migrations);
    }

    fn end(&mut self, host: &mut Host, inputs: &Inputs<'_>) -> Option<String> {
        self.start_and_stop(host, inputs, &mut Vec::new());
        None
    }

    fn report(&self, host: &Host, pods: &PodTable, pod: PodId, report: &mut PodReport) {
        report.locality = self.locality_reports(host, pods, pod);
    }

    fn replay_line(&self, now: &Readings, _: &Readings, _: &mut TickLine, rows: &mut Rows) {
        for (_, sample) in now.migrations.iter().flat_map(|moves| moves.iter()) {
            rows.entry(sample.container.0).or_default().migration = Some((&sample.progress).into());
        }
    }
}

/// Why a container's pages must be left where they are.
fn why_not(pods: &PodTable, container: ContainerId) -> Option<String> {
    let entry = pods.of(Target::Container(container))?;
    match entry.access {
        Access::Open => None,
        Access::Paused => Some("the pod is paused".to_owned()),
        Access::Protected => Some(format!("namespace {} is protected by the guard rails", entry.pod.namespace)),
    }
}

fn migration_report(policy: &str, known: &Move, progress: &MigrationProgress) -> MigrationReport {
    MigrationReport {
        policy: policy.to_owned(),
        state: progress.state.as_str().to_owned(),
        from: known.wanted.from.iter().map(|id| id.0).collect(),
        to: known.wanted.to.iter().map(|id| id.0).collect(),
        pages_found: progress.pages_found,
        pages_moved: progress.pages_moved,
        pages_failed: progress.pages_failed.iter().map(|&(errno, pages)| (errno.to_owned(), pages)).collect(),
        pages_without_room: progress.pages_without_room,
        processes: progress.processes,
        processes_done: progress.processes_done,
        failures: progress.failures.iter().map(|failure| format!("pid {}: {}", failure.pid, failure.error)).collect(),
        why: progress.why.clone(),
        reason: known.wanted.reason.to_string(),
        since: moment(known.since),
    }
}
