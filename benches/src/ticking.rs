//! A running agent: the loop as shipped, with a journal, and with a clock that the bench advances.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use anyhow::Context;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qosm_agent::config::AgentConfig;
use qosm_agent::journal::Journal;
use qosm_agent::policy_set::{PolicySet, ResolvedPolicy};
use qosm_agent::record::Recorder;
use qosm_agent::{Agent, AgentOptions, LoadedPolicy, Mode, Now};
use qosm_engine::Engine;
use qosm_host::Host;
use qosm_model::lease::Timestamp;
use qosm_model::pod::Pod;
use qosm_model::unit::Micros;
use tempfile::TempDir;

use crate::workload::{self, WINDOW};

/// Number of ticks after which an agent without changes must be at rest.
const UNTIL_REST: usize = 60;
/// Number of ticks without a write that count as rest: two rounds of reading held knobs.
const AT_REST: usize = 20;

/// An agent with its clock.
pub struct Ticking {
    agent: Agent,
    now: Now,
    recorder: Option<Recorder>,
    // Dropped after the agent, whose journal is in it.
    _state: TempDir,
}

impl Ticking {
    /// Starts an agent on these pods and ticks until it is at rest: everything is decided, written and read back.
    ///
    /// # Errors
    ///
    /// If the agent cannot be set up, a policy fails, or the agent does not come to rest.
    pub fn start(host: Host, engine: Engine, policies: Vec<LoadedPolicy>, pods: &[Pod]) -> anyhow::Result<Self> {
        let state = tempfile::tempdir().context("no folder for the journal")?;
        let agent = Agent::new(AgentOptions {
            host,
            engine,
            policies,
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: Some(journal(state.path())?),
            metrics: Arc::default(),
        })?;
        let now = Now { wall: Timestamp(1_700_000_000_000), monotonic: WINDOW, ..Now::default() };
        let mut ticking = Self { agent, now, recorder: None, _state: state };
        ticking.agent.update(workload::sources(pods), now);
        ticking.rest()?;
        Ok(ticking)
    }

    fn rest(&mut self) -> anyhow::Result<()> {
        let mut rest = 0;
        for _ in 0..UNTIL_REST {
            rest = if self.tick() == 0 { rest + 1 } else { 0 };
        }
        self.agent.health().map_err(anyhow::Error::msg).context("a policy does not run")?;
        anyhow::ensure!(rest >= AT_REST, "the agent still writes after {UNTIL_REST} ticks in which nothing happened");
        Ok(())
    }

    /// Runs one step of the loop, one window after the last. Returns the number of knobs that it wrote.
    pub fn tick(&mut self) -> usize {
        self.now.monotonic = Micros(self.now.monotonic.0 + WINDOW.0);
        self.now.wall = Timestamp(self.now.wall.0.saturating_add_unsigned(WINDOW.0 / 1000));
        let step = self.agent.step(self.now);
        if self.recorder.as_mut().is_some_and(|recorder| !recorder.step(&self.agent, &step, self.now)) {
            self.recorder = None;
        }
        step.decisions.len()
    }

    /// Replaces the running version of a policy.
    pub fn apply(&mut self, policy: &LoadedPolicy) {
        let policies =
            vec![ResolvedPolicy { policy: policy.clone(), generation: None, pending_update: None, is_fallback: false }];
        self.agent.apply_policy_set(PolicySet { policies, ..PolicySet::default() }, self.now);
    }

    /// Whether this version of the policy runs.
    pub fn runs(&self, policy: &LoadedPolicy) -> bool {
        let digest = policy.module.digest().to_string();
        self.agent.policy_reports().iter().any(|report| report.digest == digest)
    }

    /// Records every further tick, until the receiver is dropped or does not keep up.
    pub fn record(&mut self, lines: SyncSender<String>) {
        self.recorder = Recorder::start(&self.agent, lines, self.now);
    }

    /// Whether the agent is still recording.
    pub fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Number of knobs that the agent holds.
    pub fn held(&self) -> usize {
        self.agent.knobs().len()
    }
}

impl Drop for Ticking {
    /// Restores what the agent set, so that the next agent finds the cgroups as this one did: a knob that
    /// already has the wanted value is not held.
    fn drop(&mut self) {
        drop(self.agent.shut_down(self.now));
    }
}

fn journal(folder: &Path) -> anyhow::Result<Journal> {
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).context("the journal's folder cannot be opened")?;
    Ok(Journal::open(&dir, folder, "bench")?)
}
