//! Memory locality: where the memory of containers lies, and what moves it. Moving is asked for like a setting, but it is no
//! lease: pages that were moved stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use qosm_engine::Interface;
use qosm_model::knob::Target;
use qosm_model::lease::Timestamp;
use qosm_model::numa::{
    Migration, MigrationProgress, MigrationSample, MigrationState, NumaColumn, NumaId, local_percent,
};
use qosm_model::pod::{ContainerId, PodId};
use qosm_model::problem::chain;

use crate::agent::{Agent, Mode};
use crate::policy::Now;
use crate::report::{LocalityReport, MigrationDecision, MigrationReport, moment};
use crate::table::Access;

/// A migration that a policy asked for.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) policy: Arc<str>,
    wanted: Migration,
    since: Timestamp,
    stage: Stage,
    /// What was counted of it.
    counted: MigrationProgress,
    /// Share of local pages when it began.
    local_before: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Staged in this step.
    Asked,
    /// Handed to the host.
    Begun,
    /// It may not be, or cannot be.
    Refused(String),
}

/// What is known of memory locality.
#[derive(Debug, Default)]
pub(crate) struct Locality {
    moves: BTreeMap<ContainerId, Move>,
    stops: Vec<ContainerId>,
    /// The column as it was last read.
    column: Arc<NumaColumn>,
}

/// The migrations of all policies, in the order of container ids.
pub(crate) type Moves = Arc<[(Arc<str>, MigrationSample)]>;

/// What keeps pages from being moved by a plan.
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
            error: match &self.stage {
                Stage::Refused(why) if why != PLANNED => Some(why.clone()),
                _ => None,
            },
        }
    }
}

impl Locality {
    /// Takes a staged start.
    pub(crate) fn ask(&mut self, policy: &Arc<str>, wanted: Migration, now: Now) {
        self.stops.retain(|&stopped| stopped != wanted.container);
        let counted = MigrationProgress { token: wanted.token, ..MigrationProgress::default() };
        let container = wanted.container;
        let asked = Move {
            policy: Arc::clone(policy),
            wanted,
            since: now.wall,
            stage: Stage::Asked,
            counted,
            local_before: None,
        };
        self.moves.insert(container, asked);
    }

    /// Takes a staged stop. A policy can stop its own migrations only.
    pub(crate) fn stop(&mut self, policy: &str, container: ContainerId) {
        if let Some(known) = self.moves.get_mut(&container).filter(|known| *known.policy == *policy) {
            if known.stage == Stage::Asked {
                // Asked for and called off in one breath.
                known.stage = Stage::Refused("it was called off".to_owned());
            }
            self.stops.push(container);
        }
    }

    /// Stops what a policy has under way.
    pub(crate) fn stop_policy(&mut self, policy: &str) {
        let of_policy = self.moves.iter().filter(|(_, known)| *known.policy == *policy).map(|(&id, _)| id);
        self.stops.extend(of_policy);
    }

    /// The containers whose pages a policy has asked to be moved.
    pub(crate) fn of_policy(&self, policy: &str) -> Vec<ContainerId> {
        self.moves.iter().filter(|(_, known)| *known.policy == *policy).map(|(&id, _)| id).collect()
    }

    /// What share of a container's pages was local when they were last counted.
    fn local_percent(&self, container: ContainerId) -> Option<u64> {
        let sample = self.column.samples.iter().find(|sample| sample.container == container)?;
        let (local, remote) = sample.local_and_remote();
        Some(local_percent(local, remote))
    }

    /// The container is gone.
    pub(crate) fn forget(&mut self, container: ContainerId) {
        self.moves.remove(&container);
    }
}

impl Agent {
    /// The containers whose NUMA column the policies in question may see: those of pods that are configured for one of them.
    pub(crate) fn numa_containers(&self, due: &[usize]) -> Option<Vec<ContainerId>> {
        let readers: Vec<_> = due
            .iter()
            .filter_map(|&place| self.policies.get(place))
            .chain(self.trials.iter().filter_map(|trial| trial.to_see(&self.policies)))
            .filter(|policy| policy.imports(Interface::NumaStat))
            .collect();
        if readers.is_empty() {
            return None;
        }
        let is_asked = |id: PodId| readers.iter().any(|policy| policy.is_asked(id));
        let entries = self.pods.iter().filter(|entry| entry.given.active && is_asked(entry.id));
        let open = entries.flat_map(|entry| entry.containers.iter().filter(|container| container.attached));
        let mut containers: Vec<_> = open.map(|container| container.id).collect();
        containers.sort_unstable();
        Some(containers)
    }

    /// Keeps the column for reports, and counts it.
    pub(crate) fn note_numa(&mut self, column: &Arc<NumaColumn>) {
        let sums = column.samples.iter().map(qosm_model::numa::NumaSample::local_and_remote);
        let (local, remote) =
            sums.fold((0_u64, 0_u64), |(l, r), (local, remote)| (l.saturating_add(local), r.saturating_add(remote)));
        self.metrics.locality(local, remote);
        self.locality.column = Arc::clone(column);
    }

    /// How far all migrations are.
    pub(crate) fn moves(&self) -> Moves {
        if self.locality.moves.is_empty() {
            return Arc::default();
        }
        let told = self.host.migrations();
        let progress = |container: ContainerId, known: &Move| match &known.stage {
            Stage::Refused(why) => MigrationProgress {
                token: known.wanted.token,
                state: MigrationState::Stopped,
                why: why.clone(),
                ..MigrationProgress::default()
            },
            _ => told
                .iter()
                .find(|sample| sample.container == container && sample.progress.token == known.wanted.token)
                .map_or_else(|| known.counted.clone(), |sample| sample.progress.clone()),
        };
        let sample = |(&container, known): (&ContainerId, &Move)| {
            (Arc::clone(&known.policy), MigrationSample { container, progress: progress(container, known) })
        };
        self.locality.moves.iter().map(sample).collect()
    }

    /// Hands staged starts and stops to the host, and stops what has come to be on hold. Returns the starts.
    pub(crate) fn apply_migrations(&mut self) -> Vec<MigrationDecision> {
        let mut decisions = Vec::new();
        if self.locality.moves.is_empty() {
            return decisions;
        }
        for container in std::mem::take(&mut self.locality.stops) {
            self.host.stop_migration(container);
        }
        let containers: Vec<_> = self.locality.moves.keys().copied().collect();
        for container in containers {
            let barred = self.why_not(container);
            let named = self
                .pods
                .owner(container)
                .and_then(|(entry, place)| Some((entry.given.key(), entry.given.containers.get(place)?.name.clone())));
            let local = self.locality.local_percent(container);
            let Some(known) = self.locality.moves.get_mut(&container) else { continue };
            let was_asked = known.stage == Stage::Asked;
            match (&known.stage, barred) {
                // Staged anew with each plan; nobody is to see it as refused.
                (Stage::Asked, _) if self.mode == Mode::Plan => known.stage = Stage::Refused(PLANNED.to_owned()),
                (Stage::Asked, Some(why)) => known.stage = Stage::Refused(why),
                (Stage::Asked, None) => match self.host.migrate(&known.wanted) {
                    Ok(()) => {
                        let (policy, from, to) = (&known.policy, &known.wanted.from, &known.wanted.to);
                        tracing::info!(%policy, container = container.0, ?from, ?to, reason = %known.wanted.reason, "pages are moved");
                        known.stage = Stage::Begun;
                        known.local_before = local;
                    }
                    Err(error) => {
                        let error = chain(&error);
                        tracing::warn!(policy = %known.policy, container = container.0, error, "pages cannot be moved");
                        known.stage = Stage::Refused(error);
                    }
                },
                (Stage::Begun, Some(_)) => self.host.stop_migration(container),
                _ => {}
            }
            if let Some((pod, container)) = named.filter(|_| was_asked) {
                decisions.push(known.decision(pod, container));
            }
        }
        self.count_migrations();
        decisions
    }

    /// Why a container's pages must be left where they are.
    fn why_not(&self, container: ContainerId) -> Option<String> {
        let entry = self.pods.of(Target::Container(container))?;
        match entry.access {
            Access::Open => None,
            Access::OnHold => Some("the pod is on hold".to_owned()),
            Access::Protected => Some(format!("namespace {} is protected by the guard rails", entry.given.namespace)),
        }
    }

    fn count_migrations(&mut self) {
        for sample in self.host.migrations() {
            let local = self.locality.local_percent(sample.container);
            let Some(known) = self.locality.moves.get_mut(&sample.container) else { continue };
            if sample.progress.token == known.wanted.token && sample.progress != known.counted {
                self.metrics.migration(&known.counted, &sample.progress);
                if sample.progress.state.has_ended() && !known.counted.state.has_ended() {
                    let MigrationProgress { state, pages_found, pages_moved, .. } = sample.progress;
                    let policy = &known.policy;
                    tracing::info!(%policy, container = sample.container.0, state = state.as_str(), pages_found, pages_moved, "migration ended");
                    for (when, percent) in [("before", known.local_before), ("after", local)] {
                        if let Some(percent) = percent {
                            self.metrics.migration_local(when, percent);
                        }
                    }
                }
                known.counted = sample.progress;
            }
        }
    }

    /// What is known of a pod's memory, container by container.
    pub(crate) fn locality_reports(&self, pod: PodId) -> Vec<LocalityReport> {
        let Some(entry) = self.pods.get(pod) else { return Vec::new() };
        let moves = self.moves();
        let report = |(place, container): (usize, &crate::table::ContainerEntry)| {
            let sample = self.locality.column.samples.iter().find(|sample| sample.container == container.id);
            let migration = moves.iter().find(|(_, sample)| sample.container == container.id);
            if sample.is_none() && migration.is_none() {
                return None;
            }
            let counted = sample.map(qosm_model::numa::NumaSample::local_and_remote);
            Some(LocalityReport {
                container: entry.given.containers.get(place).map(|given| given.name.clone()).unwrap_or_default(),
                cpu_nodes: sample.map(|s| s.cpu_nodes.iter().map(|id| id.0).collect()).unwrap_or_default(),
                local_percent: counted.map(|(local, remote)| local_percent(local, remote)),
                remote_pages: counted.map(|(_, remote)| remote),
                migration: migration.and_then(|(policy, sample)| {
                    let known = self.locality.moves.get(&sample.container)?;
                    Some(migration_report(policy, known, &sample.progress))
                }),
            })
        };
        entry.containers.iter().enumerate().filter_map(report).collect()
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
