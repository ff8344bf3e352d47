//! Replay: the real loop over a simulated kernel, fed from a file. One line of facts, then one line a tick; out comes one line a
//! tick with what was decided. The same input gives the same bytes on every machine.

mod resctrl;

use std::collections::BTreeMap;

use qosm_cluster::Objects;
use qosm_engine::Engine;
use qosm_model::lease::Timestamp;
use qosm_model::unit::Micros;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::agent::{Agent, Mode, Parts, SetUpError};
use crate::alarm::line::AlarmLine;
use crate::config::{AgentConfig, DriftConfig};
use crate::event::AgentEvent;
use crate::facts::{CgroupFacts, Facts, read_objects};
use crate::policy::{LoadedPolicy, Now};
use crate::report::{ClassDecision, Decision, MigrationDecision};
use crate::sources::Sources;
use crate::stage::{Stage, StageError};

pub use resctrl::{ClassLine, DomainLine, ResctrlLine, UsageLine};

/// One tick. Unknown fields are errors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct TickLine {
    /// Time since the line before.
    pub window_millis: u64,
    /// And so many microseconds more.
    #[serde(skip_serializing_if = "is_zero")]
    pub window_micros: u64,
    /// How many microseconds late the tick came: intervals count from when it was meant to come.
    #[serde(skip_serializing_if = "is_zero")]
    pub late_micros: u64,
    /// What fired since the line before. One with alarms may stand between two ticks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmLine>,
    /// What was measured within the window; a container that is not listed has no sample.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<ContainerLine>,
    /// The node within the window; `null` = not known.
    pub node: Option<NodeLine>,
    /// Memory on NUMA nodes now, by the node's number; those that are not listed stay as they were.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numa_nodes: BTreeMap<u32, NumaMemoryLine>,
    /// Caches and memory bandwidth: what can be divided, how classes fare, and what was counted within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resctrl: Option<ResctrlLine>,
    /// Pods that came, changed or went before the tick.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodsLine>,
    /// All ConfigMaps from now on, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_maps: Option<Vec<Value>>,
    /// What somebody else wrote to cgroup files before the tick.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<CgroupFacts>,
}

impl Default for TickLine {
    fn default() -> Self {
        Self {
            window_millis: 1000,
            window_micros: 0,
            late_micros: 0,
            alarms: Vec::new(),
            containers: Vec::new(),
            node: None,
            numa_nodes: BTreeMap::new(),
            resctrl: None,
            pods: None,
            config_maps: None,
            cgroups: Vec::new(),
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One container's columns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct ContainerLine {
    /// `namespace/name`.
    pub pod: String,
    /// The container's name.
    pub container: String,
    /// CPU use and throttling within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuLine>,
    /// Memory now, and events within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryLine>,
    /// Pressure within the window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<PressureLine>,
    /// NUMA nodes of its CPUs, its `cpuset.mems` and its pages now. A line that has this of no container leaves all as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaLine>,
    /// How far the migration of its pages is. One that no line speaks of is done at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationLine>,
    /// What it has in caches, and moved to and from memory within the window.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resctrl: Vec<UsageLine>,
}

/// Differences over the window.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct CpuLine {
    /// CPU time used.
    pub usage_usec: u64,
    /// Enforcement periods that passed.
    pub nr_periods: u64,
    /// Periods in which the group was throttled.
    pub nr_throttled: u64,
    /// Time that its threads waited.
    pub throttled_usec: u64,
}

/// Sizes now, and differences of events over the window.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct MemoryLine {
    /// All memory.
    pub usage_bytes: u64,
    /// Anonymous memory.
    pub anon_bytes: u64,
    /// Page cache.
    pub file_bytes: u64,
    /// Page cache not used lately.
    pub inactive_file_bytes: u64,
    /// Times above `memory.high`.
    pub high_events: u64,
    /// Times at the limit.
    pub max_events: u64,
    /// Processes killed.
    pub oom_kills: u64,
}

/// Differences over the window.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PressureLine {
    /// Some threads waited for a CPU.
    pub cpu_some_usec: u64,
    /// All did.
    pub cpu_full_usec: u64,
    /// Some threads waited for memory.
    pub memory_some_usec: u64,
    /// All did.
    pub memory_full_usec: u64,
    /// Some threads waited for input or output.
    pub io_some_usec: u64,
    /// All did.
    pub io_full_usec: u64,
}

/// Where a container runs, may have memory, and has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NumaLine {
    /// NUMA nodes of the CPUs that it may run on; empty = all.
    pub cpu_nodes: Vec<u32>,
    /// NUMA nodes that it may have memory on; empty = all.
    pub memory_nodes: Vec<u32>,
    /// Pages by NUMA node.
    pub pages: BTreeMap<u32, u64>,
}

/// How far a migration is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct MigrationLine {
    /// `waiting`, `moving`, `paused`, `done`, `failed` or `stopped`.
    pub state: String,
    /// Processes that there were.
    pub processes: u64,
    /// Those that were worked on to the end.
    pub processes_done: u64,
    /// Those that ended meanwhile.
    pub processes_gone: u64,
    /// Pages that were found in the wrong place.
    pub pages_found: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
    /// Pages that stay, by error.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pages_failed: BTreeMap<String, u64>,
    /// Pages that were not tried for want of room.
    pub pages_without_room: u64,
    /// Processes that could not be worked on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FailureLine>,
    /// Why it failed or waits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// A process that could not be worked on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct FailureLine {
    /// The process.
    pub pid: u32,
    /// What the kernel said.
    pub error: String,
}

/// Memory on a NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NumaMemoryLine {
    /// What nobody uses.
    pub free_bytes: u64,
    /// What could be used without swapping.
    pub available_bytes: u64,
}

/// The node.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct NodeLine {
    /// CPU time that all CPUs spent busy within the window.
    pub cpu_usage_usec: Option<u64>,
    /// `MemAvailable` now.
    pub memory_available_bytes: Option<u64>,
}

/// Changed pods.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct PodsLine {
    /// New or changed ones, as Pod objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upserted: Vec<Value>,
    /// Those that went: `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// What one tick came to: a line of a replay's output.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// 0 for the facts, then counted up.
    pub tick: u64,
    /// Time since the facts.
    pub time_millis: u64,
    /// Knobs that were written.
    pub decisions: Vec<Decision>,
    /// Knobs that could not be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Decision>,
    /// Containers whose pages are to be moved from now on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrations: Vec<MigrationDecision>,
    /// Classes of shares that change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassDecision>,
    /// What pods' owners were told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventLine>,
    /// What is wrong with what was written, said once.
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
    /// Who says it.
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
    Stage(#[from] StageError),
}

/// A replay under way.
pub struct Replay {
    start: Timestamp,
    agent: Agent,
    stage: Stage,
    sources: Sources,
    tick: u64,
    time: Micros,
    late: Micros,
    told: std::collections::BTreeSet<String>,
}

impl Replay {
    /// Sets the stage from facts and what comes on top of them, with the policies that the caller has loaded.
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
        let mut objects = read_objects(&facts.pods, &facts.config_maps, facts.node.as_ref(), "facts");
        objects.pods.extend(more.pods);
        objects.config_maps.extend(more.config_maps);
        objects.problems.extend(more.problems);
        objects.node = more.node.or(objects.node);
        let (host, stage) = Stage::set(facts, &objects)?;
        let config = AgentConfig {
            guard_rails: facts.guard_rails.clone().unwrap_or_default(),
            // A replay has one reader and all the time of the world: every knob is read back at each tick.
            drift: DriftConfig { verify_over_ticks: 1, ..DriftConfig::default() },
            ..AgentConfig::default()
        };
        let agent = Agent::new(Parts {
            host,
            engine,
            policies,
            unloaded: Vec::new(),
            config,
            mode,
            make_cgroups: false,
            journal: None,
            metrics: std::sync::Arc::default(),
        })?;
        let sources = Sources::from(objects);
        let start = Timestamp(facts.time.map_or(0, jiff::Timestamp::as_millisecond));
        let mut replay = Self {
            agent,
            stage,
            sources,
            start,
            tick: 0,
            time: Micros(0),
            late: Micros(0),
            told: std::collections::BTreeSet::new(),
        };
        replay.update();
        Ok(replay)
    }

    fn now(&self) -> Now {
        let elapsed = i64::try_from(self.time.0 / 1000).unwrap_or(i64::MAX);
        Now { wall: Timestamp(self.start.0.saturating_add(elapsed)), monotonic: self.time, late: self.late }
    }

    fn update(&mut self) {
        self.agent.update(self.sources.clone(), self.now());
    }

    /// The first step: what the facts alone come to.
    pub fn open(&mut self) -> Outcome {
        self.step()
    }

    /// Why some pods get nothing; see [`Agent::notes`].
    pub fn notes(&self) -> Vec<String> {
        self.agent.notes(self.now())
    }

    /// The agent, to ask it what it holds and why.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Plays one line.
    ///
    /// # Errors
    ///
    /// [`ReplayError::Stage`] names the pod or container that the line speaks of and that does not exist. Nothing of the line
    /// is played then.
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
                    return Err(StageError::unknown_pod("pods.removed", key, &self.sources.pods).into());
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
        line.alarms.iter().try_for_each(|alarm| alarm.check(&self.sources.pods))?;
        self.stage.play(self.agent.host_mut(), &self.sources.pods, line)?;
        let window = line.window_millis.saturating_mul(1000).saturating_add(line.window_micros);
        self.time = Micros(self.time.0.saturating_add(window));
        self.late = Micros(line.late_micros);
        if changed {
            self.update();
        }
        for alarm in &line.alarms {
            let now = self.now();
            self.agent.hear_line(alarm, now)?;
        }
        Ok(self.step())
    }

    fn step(&mut self) -> Outcome {
        let step = self.agent.step(self.now());
        let problems = self.agent.problems();
        let news: Vec<String> = problems.iter().filter(|problem| !self.told.contains(*problem)).cloned().collect();
        self.told = problems.into_iter().collect();
        Outcome {
            tick: self.tick,
            time_millis: self.time.0 / 1000,
            decisions: step.decisions,
            refused: step.refused,
            migrations: step.migrations,
            classes: step.classes,
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

fn event_line(event: AgentEvent) -> EventLine {
    EventLine { pod: event.pod, kind: event.kind, reason: event.reason, message: event.message, source: event.source }
}
