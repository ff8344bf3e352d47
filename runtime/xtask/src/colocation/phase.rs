//! One of the four phases: the same visitors come, and what became of them and of the batch work is kept.

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

/// The first seconds do not count: the agent takes some steps to where it stays.
const SETTLE: Duration = Duration::from_secs(6);

/// What runs beside the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Alone,
    /// Batch work that no policy manages; the kubelet sets its weights.
    Unmanaged,
    /// The same under `be-suppress` in the profile of Koordinator's loop.
    Koordinator,
    /// The same under `be-suppress` as it is by default, and `cpu-identity`.
    Responsive,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Alone, Self::Unmanaged, Self::Koordinator, Self::Responsive];

    /// For tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Unmanaged => "batch, unmanaged",
            Self::Koordinator => "batch, profile koordinator",
            Self::Responsive => "batch, qosm",
        }
    }

    /// What the agent runs, where there is one.
    pub(crate) fn policies(self) -> Option<Value> {
        let suppress = |profile| json!({"name": "be-suppress", "config": {"profile": profile}});
        match self {
            Self::Alone | Self::Unmanaged => None,
            Self::Koordinator => Some(json!([suppress("koordinator")])),
            // As the chart's set for colocation has them.
            Self::Responsive => {
                Some(json!([suppress("responsive"), {"name": "cpu-identity", "config": {"defaults": "colocation"}}]))
            }
        }
    }
}

/// All rounds of one phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// What runs beside the server.
    pub(crate) kind: Kind,
    /// Latencies of all requests, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// The 99th percentile of each round.
    pub(crate) rounds: Vec<Duration>,
    /// Pages that the batch work compressed.
    pub(crate) pages: u64,
    /// CPU time that it used.
    pub(crate) batch_time: Duration,
    /// CPU time that the node was busy.
    pub(crate) busy: Duration,
    /// How long was measured.
    pub(crate) time: Duration,
    last: String,
}

impl Phase {
    /// Nothing measured yet.
    pub(crate) fn new(kind: Kind) -> Self {
        let zero = Duration::ZERO;
        let (latencies, rounds, last) = (Vec::new(), Vec::new(), String::new());
        Self { kind, latencies, rounds, pages: 0, batch_time: zero, busy: zero, time: zero, last }
    }

    /// The percentile of all latencies.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.latencies, percent)
    }

    /// The part of the node's CPU time that it was busy.
    pub(crate) fn utilisation(&self, cpus: usize) -> f64 {
        self.busy.as_secs_f64() / self.time.as_secs_f64().max(1e-9) / cpus as f64
    }

    /// The last round, in a line.
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
        let load = Load::start(server.address(), moments(setting.rate, SETTLE + length));
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

/// CPU time that all CPUs together were busy since the machine began.
fn busy() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat cannot be read")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; a guest's time is in user. What the hypervisor took is nobody's here.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&place| ticks.get(place)).sum();
    Ok(Duration::from_millis(busy * 1000 / rustix::param::clock_ticks_per_second()))
}
