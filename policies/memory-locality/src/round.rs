//! One round: the containers of one pod whose pages are moved, until each of them has an outcome.

use qosm_sdk::{ContainerId, MigrationProgress, MigrationState, NumaNode, NumaSample, PageMigration};

use crate::nodes::{Choice, NO_TARGET, Pages, Way, choose};
use crate::protocol::Settings;
use crate::report::Outcome;

/// The node's state in an evaluation.
pub(crate) struct View<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) nodes: &'a [NumaNode],
    pub(crate) samples: &'a [NumaSample],
    pub(crate) migrations: &'a [MigrationProgress],
}

impl View<'_> {
    pub(crate) fn sample(&self, container: ContainerId) -> Option<&NumaSample> {
        self.samples.iter().find(|sample| sample.container == container)
    }

    /// The decision for a container; `None` if it has no sample.
    pub(crate) fn choice(&self, container: ContainerId) -> Option<Choice> {
        Some(choose(self.nodes, self.sample(container)?, &self.settings.excluded_nodes))
    }
}

/// A round in progress.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) started_usec: u64,
    pub(crate) parts: Vec<Part>,
}

/// One container of a round.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) container: ContainerId,
    pub(crate) name: String,
    /// Identifies this instance of the container together with its configuration.
    pub(crate) digest: u64,
    pub(crate) phase: MigrationPhase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MigrationPhase {
    /// Its pages are being moved this way.
    Moving { token: u64, way: Way },
    /// Finished, with this outcome.
    Ended(Outcome),
}

/// Progress of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Containers are still in progress.
    UnderWay,
    /// All containers have an outcome.
    Ended,
    /// A migration was stopped from outside; the round starts again later.
    CalledOff,
}

/// Generates the tokens of migrations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tokens(u64);

impl Tokens {
    /// Skips the tokens that are in use already, for example by migrations of an earlier instance.
    pub(crate) fn skip(&mut self, used: impl Iterator<Item = u64>) {
        self.0 = used.fold(self.0, u64::max);
    }

    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

impl Part {
    /// Starts with a container: decides, and starts a migration if it is worthwhile.
    pub(crate) fn begin(
        (container, name, digest): (ContainerId, &str, u64),
        choice: Option<Choice>,
        view: &View<'_>,
        tokens: &mut Tokens,
        host: &mut impl PageMigration,
    ) -> Self {
        let phase = match choice {
            None => MigrationPhase::Ended(Outcome::Skipped("no memory of it is known".into())),
            Some(Choice::Skip(reason)) => MigrationPhase::Ended(Outcome::Skipped(reason)),
            Some(Choice::Fail { why, .. }) => MigrationPhase::Ended(Outcome::Failed(why)),
            Some(Choice::Go(way)) => start(container, way, view, tokens, host),
        };
        Self { container, name: name.to_owned(), digest, phase }
    }

    /// Whether the container was skipped because it runs on all nodes.
    pub(crate) fn is_without_target(&self) -> bool {
        matches!(&self.phase, MigrationPhase::Ended(Outcome::Skipped(reason)) if reason == NO_TARGET)
    }

    /// Updates the progress.
    fn advance(&mut self, view: &View<'_>, tokens: &mut Tokens, host: &mut impl PageMigration) -> Standing {
        let MigrationPhase::Moving { token, way } = &self.phase else { return Standing::Ended };
        match view.choice(self.container) {
            // The container's pinning has changed, so the migration goes to the wrong nodes.
            Some(Choice::Go(now)) if now != *way => {
                self.phase = start(self.container, now, view, tokens, host);
                // A new migration replaces the one to the wrong nodes; without a new one, that has to be stopped.
                if matches!(self.phase, MigrationPhase::Ended(_)) {
                    host.stop_migration(self.container);
                    return Standing::Ended;
                }
                return Standing::UnderWay;
            }
            Some(Choice::Skip(reason)) => {
                host.stop_migration(self.container);
                self.phase = MigrationPhase::Ended(Outcome::Skipped(reason));
                return Standing::Ended;
            }
            Some(Choice::Fail { why, .. }) => {
                host.stop_migration(self.container);
                self.phase = MigrationPhase::Ended(Outcome::Failed(why));
                return Standing::Ended;
            }
            _ => {}
        }
        let reported =
            view.migrations.iter().find(|progress| progress.container == self.container && progress.token == *token);
        let Some(progress) = reported else { return Standing::UnderWay };
        let outcome = match progress.state {
            MigrationState::Waiting | MigrationState::Moving | MigrationState::Paused => return Standing::UnderWay,
            MigrationState::Stopped => return Standing::CalledOff,
            MigrationState::Failed => Outcome::Failed(progress.why.clone()),
            // There was nothing to move.
            MigrationState::Done if !progress.why.is_empty() => Outcome::Skipped(progress.why.clone()),
            MigrationState::Done if progress.pages_without_room > 0 && progress.pages_moved == 0 => {
                let (to, pages) = (crate::nodes::list(&way.to), progress.pages_without_room);
                Outcome::Failed(format!("local numa {to} is short of memory for {pages} pages"))
            }
            MigrationState::Done => Outcome::Completed {
                way: way.clone(),
                failures: progress.failures.clone(),
                without_room: progress.pages_without_room,
            },
        };
        self.phase = MigrationPhase::Ended(outcome);
        Standing::Ended
    }
}

fn start(
    container: ContainerId,
    way: Way,
    view: &View<'_>,
    tokens: &mut Tokens,
    host: &mut impl PageMigration,
) -> MigrationPhase {
    let pages = view.sample(container).map(|sample| Pages::of(sample, &way)).unwrap_or_default();
    let Settings { min_remote_percent, min_remote_pages, .. } = *view.settings;
    if pages.is_local_enough(min_remote_percent, min_remote_pages) {
        return MigrationPhase::Ended(Outcome::Completed { way, failures: Vec::new(), without_room: 0 });
    }
    let token = tokens.next();
    let reason = format!("{} % of its pages are local, {} are not", pages.local_percent(), pages.remote);
    host.start_migration(container, &way.remote, &way.to, token, &reason);
    MigrationPhase::Moving { token, way }
}

impl Round {
    /// Updates the progress of all containers.
    pub(crate) fn advance(&mut self, view: &View<'_>, tokens: &mut Tokens, host: &mut impl PageMigration) -> Standing {
        let mut standing = Standing::Ended;
        for part in &mut self.parts {
            match part.advance(view, tokens, host) {
                Standing::CalledOff => return Standing::CalledOff,
                Standing::UnderWay => standing = Standing::UnderWay,
                Standing::Ended => {}
            }
        }
        standing
    }

    /// Stops migrations in progress, for containers that still exist.
    pub(crate) fn stop(&self, is_there: impl Fn(ContainerId) -> bool, host: &mut impl PageMigration) {
        for part in &self.parts {
            if matches!(part.phase, MigrationPhase::Moving { .. }) && is_there(part.container) {
                host.stop_migration(part.container);
            }
        }
    }

    /// Whether the container was skipped.
    pub(crate) fn has_skipped(&self, container: ContainerId) -> bool {
        let is_skipped = |part: &Part| matches!(part.phase, MigrationPhase::Ended(Outcome::Skipped(_)));
        self.parts.iter().any(|part| part.container == container && is_skipped(part))
    }

    /// The finished containers and their outcomes.
    pub(crate) fn outcomes(&self) -> Vec<(&str, &Outcome)> {
        let ended = |part: &'_ Part| matches!(part.phase, MigrationPhase::Ended(_));
        self.parts
            .iter()
            .filter(|part| ended(part))
            .filter_map(|part| match &part.phase {
                MigrationPhase::Ended(outcome) => Some((part.name.as_str(), outcome)),
                MigrationPhase::Moving { .. } => None,
            })
            .collect()
    }
}
