//! One of the four phases: the same load runs in each, and the results of the server and of the batch work are recorded.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::colocation::batch::Batch;
use crate::colocation::report::Setting;
use crate::demo::agent::Agent;
use crate::demo::cgroup::Container;
use crate::demo::load::{Load, moments};
use crate::demo::measure::percentile;
use crate::demo::server::Server;
use crate::interrupt::Interrupt;

/// The first seconds do not count, because the agent needs some steps to reach a stable state.
const SETTLE: Duration = Duration::from_secs(6);

/// The work that runs next to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No batch work.
    Alone,
    /// Batch work that no policy manages; the kubelet sets its weights.
    Unmanaged,
    /// Batch work under `be-suppress` in the profile of Koordinator's loop.
    Koordinator,
    /// Batch work under `be-suppress` in its default profile, and `cpu-identity`.
    Responsive,
}

impl Kind {
    /// All kinds.
    pub(crate) const ALL: [Self; 4] = [Self::Alone, Self::Unmanaged, Self::Koordinator, Self::Responsive];

    /// Name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "batch, unmanaged",
            Self::Koordinator => "batch, profile koordinator",
            Self::Responsive => "batch, qosm",
        }
    }

    /// The agent's policies; `None` if no agent runs.
    pub(crate) fn policies(self) -> Option<Value> {
        let suppress = |profile| json!({"name": "be-suppress", "config": {"profile": profile}});
        match self {
            Self::Alone | Self::Unmanaged => None,
            Self::Koordinator => Some(json!([suppress("koordinator")])),
            // As in the chart's policy set for colocation.
            Self::Responsive => {
                Some(json!([suppress("responsive"), {"name": "cpu-identity", "config": {"defaults": "colocation"}}]))
            }
        }
    }
}

/// The results of all rounds of a phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// The work that runs next to the server.
    pub(crate) kind: Kind,
    /// Latencies of all requests, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// The 99th percentile of each round.
    pub(crate) rounds: Vec<Duration>,
    /// Pages that the batch work compressed.
    pub(crate) pages: u64,
    /// CPU time of the batch work.
    pub(crate) batch_time: Duration,
    /// CPU time that all CPUs of the node were busy.
    pub(crate) busy: Duration,
    /// Duration of the measurement.
    pub(crate) time: Duration,
    last: String,
}

impl Phase {
    /// A phase without measurements.
    pub(crate) fn new(kind: Kind) -> Self {
        let zero = Duration::ZERO;
        let (latencies, rounds, last) = (Vec::new(), Vec::new(), String::new());
        Self { kind, latencies, rounds, pages: 0, batch_time: zero, busy: zero, time: zero, last }
    }

    /// A percentile of all latencies.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.latencies, percent)
    }

    /// Utilisation: the share of the node's CPU time that was busy, 0 to 1.
    pub(crate) fn utilisation(&self, cpus: usize) -> f64 {
        self.busy.as_secs_f64() / self.time.as_secs_f64().max(1e-9) / cpus as f64
    }

    /// The result of the last round as a line of text.
    pub(crate) fn last_line(&self) -> &str {
        &self.last
    }

    /// Measures one more round.
    ///
    /// # Errors
    ///
    /// When a request fails, the agent ends, or the run is interrupted.
    #[expect(clippy::too_many_arguments, reason = "all that runs in a phase, each of another kind")]
    pub(crate) fn measure(
        &mut self,
        setting: &Setting,
        seconds: u64,
        server: &Server,
        beside: &Container<'_>,
        batch: Option<&Batch>,
        mut agent: Option<&mut Agent>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let length = Duration::from_secs(seconds);
        let load = Load::start(server.address(), moments(setting.rate, SETTLE + length, self.rounds.len()));
        let begun = Instant::now();
        interrupt.sleep_until(begun + SETTLE)?;
        let settling = load.answers();
        let before = (busy()?, beside.sample()?.usage, batch.map_or(0, Batch::pages));
        interrupt.sleep_until(begun + SETTLE + length)?;
        let after = (busy()?, beside.sample()?.usage, batch.map_or(0, Batch::pages));
        if let Some(agent) = &mut agent {
            agent.check()?;
        }
        let answers = load.answers();
        drop(load);
        let failed = settling.iter().chain(&answers).filter(|answer| answer.took.is_none()).count();
        if failed > 0 {
            bail!("{failed} requests failed: the server is in trouble, and the figures would mean nothing");
        }
        let mut latencies: Vec<_> = answers.iter().filter_map(|answer| answer.took).collect();
        latencies.sort_unstable();
        let p99 = percentile(&latencies, 99);
        let (pages, used) = (after.2.saturating_sub(before.2), after.1.saturating_sub(before.1));
        self.last = format!(
            "{:<27} p50 {:>6.1} ms  p99 {:>6.1} ms  batch {:>6.1} pages/s on {:.2} CPUs  node {:>3.0} % busy",
            self.kind.name(),
            percentile(&latencies, 50).as_secs_f64() * 1000.0,
            p99.as_secs_f64() * 1000.0,
            pages as f64 / length.as_secs_f64(),
            used.as_secs_f64() / length.as_secs_f64(),
            (after.0 - before.0).as_secs_f64() / length.as_secs_f64() / setting.cpus as f64 * 100.0,
        );
        self.rounds.push(p99);
        self.latencies.append(&mut latencies);
        self.latencies.sort_unstable();
        self.pages += pages;
        self.batch_time += used;
        self.busy += after.0 - before.0;
        self.time += length;
        Ok(())
    }
}

/// CPU time that all CPUs together were busy since boot.
fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat cannot be read")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; a guest's time is part of user. Steal time, which the hypervisor took, does not
    // count.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&place| ticks.get(place)).sum();
    Ok(Duration::from_millis(busy * 1000 / rustix::param::clock_ticks_per_second()))
}
