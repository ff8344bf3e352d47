//! Replay: runs the real loop on a simulated kernel, fed from a file: one line of facts, then one line per tick. The output is one line per
//! tick with its decisions. The same input gives the same bytes on every machine.

pub(crate) mod line;
pub(crate) mod resctrl;

use std::collections::BTreeMap;

use qosm_cluster::Objects;
use qosm_engine::Engine;
use qosm_model::lease::Timestamp;
use qosm_model::unit::Micros;
use serde::Serialize;

use crate::agent::{Agent, AgentOptions, SetUpError};
use crate::alarm::line::fired;
use crate::config::{AgentConfig, DriftConfig};
use crate::event::AgentEvent;
use crate::facts::{Facts, read_objects};
use crate::loaded::LoadedPolicy;
use crate::now::Now;
use crate::replay_fixture::ReplayFixture;
use crate::replay_fixture_error::ReplayFixtureError;
use crate::report::{
    ClassDecision, Decision, EvictionDecision, MigrationDecision, NodeUsage, ResourceDecision, ShadowDecision,
};
use crate::sources::Sources;
use crate::step::Mode;

pub use line::{
    ApplicationLine, ContainerLine, FailureLine, MigrationLine, NodeLine, NumaLine, NumaMemoryLine, PodsLine,
    PressureLine, TickLine,
};
pub use resctrl::{ClassLine, DomainLine, ResctrlLine, UsageLine};

/// The result of one tick: a line of a replay's output.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// 0 for the facts, then counted up.
    pub tick: u64,
    /// Milliseconds since the facts.
    pub time_millis: u64,
    /// Knobs that were written.
    pub decisions: Vec<Decision>,
    /// Knobs that could not be written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Decision>,
    /// Containers whose pages are to be moved from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrations: Vec<MigrationDecision>,
    /// Classes of shares that change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassDecision>,
    /// Resources of the node that change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceDecision>,
    /// Evictions that are new or whose state changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<EvictionDecision>,
    /// What shadows want and did not want before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shadows: Vec<ShadowDecision>,
    /// Events of pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventLine>,
    /// Problems of configuration, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Policies that do not run, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failing: BTreeMap<String, String>,
}

/// An event in a replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventLine {
    /// `namespace/name`.
    pub pod: String,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Policy or part of the agent that it comes from.
    pub source: String,
}

/// A document that cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The agent could not be set up.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// The facts do not fit together.
    #[error(transparent)]
    Fixture(#[from] ReplayFixtureError),
}

/// A replay in progress.
pub struct Replay {
    start: Timestamp,
    pub(crate) agent: Agent,
    fixture: ReplayFixture,
    sources: Sources,
    tick: u64,
    time: Micros,
    late: Micros,
    reported: std::collections::BTreeSet<String>,
}

impl Replay {
    /// Sets up a simulated node from facts and additional objects, with the policies that the caller has loaded.
    ///
    /// # Errors
    ///
    /// [`ReplayError`] names the field of the facts that does not fit.
    pub fn new(
        facts: &Facts,
        more: Objects,
        engine: Engine,
        policies: Vec<LoadedPolicy>,
        mode: Mode,
    ) -> Result<Self, ReplayError> {
        let mut objects = read_objects(&facts.pods, &facts.config_maps, facts.node_objects(), "facts");
        objects.pods.extend(more.pods);
        objects.pod_nodes.extend(more.pod_nodes);
        objects.config_maps.extend(more.config_maps);
        objects.problems.extend(more.problems);
        objects.node = more.node.or(objects.node);
        objects.leave_out_other_nodes();
        let set_up = ReplayFixture::set_up(facts, &objects);
        let (host, mut fixture) = set_up.map_err(|error| error.among(&objects.problems))?;
        objects.problems.append(&mut fixture.problems);
        let config = AgentConfig {
            guard_rails: facts.guard_rails.clone().unwrap_or_default(),
            // A replay need not save time: every knob is read back at each tick.
            drift: DriftConfig { verify_over_ticks: 1, ..DriftConfig::default() },
            ..AgentConfig::default()
        };
        let mut agent = Agent::new(AgentOptions {
            host,
            engine,
            policies,
            load_failed: Vec::new(),
            config,
            mode,
            create_cgroups: false,
            journal: None,
            metrics: std::sync::Arc::default(),
        })?;
        if facts.api_server {
            agent.stand_in_for_api_server();
        }
        let sources = Sources::from(objects);
        let start = Timestamp(facts.time.map_or(0, jiff::Timestamp::as_millisecond));
        let mut replay = Self {
            agent,
            fixture,
            sources,
            start,
            tick: 0,
            time: Micros(0),
            late: Micros(0),
            reported: std::collections::BTreeSet::new(),
        };
        replay.update();
        Ok(replay)
    }

    fn now(&self) -> Now {
        let elapsed = i64::try_from(self.time.0 / 1000).unwrap_or(i64::MAX);
        let wall = Timestamp(self.start.0.saturating_add(elapsed));
        Now { wall, monotonic: self.time, uptime: Some(self.time), late: self.late }
    }

    fn update(&mut self) {
        self.agent.update(self.sources.clone(), self.now());
    }

    /// Runs the first step, on the facts alone.
    pub fn open(&mut self) -> Outcome {
        self.step()
    }

    /// Why some pods get nothing; see [`Agent::notes`].
    pub fn notes(&self) -> Vec<String> {
        self.agent.notes(self.now())
    }

    /// The agent, for reports of what it holds and why.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// What containers use, and what is held for them.
    pub fn usage(&mut self) -> NodeUsage {
        let now = self.now();
        self.agent.usage(now)
    }

    /// Plays one line.
    ///
    /// # Errors
    ///
    /// [`ReplayError::Fixture`] names the pod or container in the line that does not exist. No step runs then.
    pub fn play(&mut self, line: &TickLine) -> Result<Outcome, ReplayError> {
        self.tick += 1;
        let mut changed = false;
        if let Some(pods) = &line.pods {
            let objects = read_objects(&pods.upserted, &[], None, &format!("tick {}", self.tick));
            self.sources.problems = objects.problems;
            for key in &pods.removed {
                let before = self.sources.pods.len();
                self.sources.pods.retain(|pod| pod.key() != *key);
                if self.sources.pods.len() == before {
                    return Err(ReplayFixtureError::unknown_pod("pods.removed", key, &self.sources.pods).into());
                }
            }
            for pod in objects.pods {
                match self.sources.pods.iter_mut().find(|known| known.key() == pod.key()) {
                    Some(known) => *known = pod,
                    None => self.sources.pods.push(pod),
                }
            }
            changed = true;
        }
        if let Some(maps) = &line.config_maps {
            let objects = read_objects(&[], maps, None, &format!("tick {}", self.tick));
            self.sources.config_maps = objects.config_maps;
            self.sources.problems = objects.problems;
            changed = true;
        }
        if let Some(node) = &line.node_object {
            let objects =
                read_objects(&[], &[], [node].into_iter().chain(&line.topology), &format!("tick {}", self.tick));
            self.sources.node = objects.node.unwrap_or_default();
            self.sources.problems = objects.problems;
            changed = true;
        }
        if let Some(answer) = &line.controller {
            self.sources.answer = Some(answer.clone());
            changed = true;
        }
        line.alarms.iter().try_for_each(|alarm| alarm.check(&self.sources.pods))?;
        self.fixture.play(self.agent.host_mut(), &self.sources.pods, line)?;
        changed |= !self.fixture.problems.is_empty();
        self.sources.problems.append(&mut self.fixture.problems);
        let window = line.window_millis.saturating_mul(1000).saturating_add(line.window_micros);
        self.time = Micros(self.time.0.saturating_add(window));
        self.late = Micros(line.late_micros);
        if changed {
            self.update();
        }
        for alarm in &line.alarms {
            let now = self.now();
            let fired = fired(self.agent.view().pods, alarm)?;
            self.agent.receive(fired, now);
        }
        Ok(self.step())
    }

    fn step(&mut self) -> Outcome {
        let step = self.agent.step(self.now());
        let problems = self.agent.problems();
        let news: Vec<String> = problems.iter().filter(|problem| !self.reported.contains(*problem)).cloned().collect();
        self.reported = problems.into_iter().collect();
        Outcome {
            tick: self.tick,
            time_millis: self.time.0 / 1000,
            decisions: step.decisions,
            refused: step.refused,
            migrations: step.migrations,
            classes: step.classes,
            resources: step.resources,
            evictions: step.evictions,
            shadows: step.shadows,
            events: step.events.into_iter().map(event_line).collect(),
            problems: news,
            failing: self
                .agent
                .policy_reports()
                .into_iter()
                .filter_map(|policy| Some((policy.policy, policy.error?)))
                .collect(),
        }
    }
}

/// Converts an event to the format of a replay.
pub fn event_line(event: AgentEvent) -> EventLine {
    EventLine { pod: event.pod, kind: event.kind, reason: event.reason, message: event.message, source: event.source }
}
