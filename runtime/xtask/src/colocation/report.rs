//! Reports costs and benefits of colocation: a table, the same data as JSON, and whether the promise is kept.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::colocation::node::Mode;
use crate::colocation::phase::{Kind, Phase};

/// Maximum ratio of the 99th percentile under qosm to that of the server alone.
const MAX_LONGER: f64 = 1.05;
/// Minimum ratio of the utilisation under qosm to that of the server alone.
const MIN_UTILISATION: f64 = 2.0;

/// Machine and parameters of the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// `uname -r`.
    pub(crate) kernel: String,
    /// CPUs of the machine.
    pub(crate) cpus: usize,
    /// The cgroup version.
    pub(crate) cgroup: &'static str,
    /// How batch work is held back.
    pub(crate) mode: Mode,
    /// CPU time that a page costs the server.
    pub(crate) cost: Duration,
    /// Requests a second.
    pub(crate) rate: f64,
    /// Duration of each phase, in seconds.
    pub(crate) seconds: u64,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The results as a table.
pub(crate) fn table(setting: &Setting, phases: &[Phase]) -> String {
    let mut text = format!(
        "  {:<28}{:>9}{:>9}{:>9}{:>11}{:>12}{:>9}\n",
        "", "p50 ms", "p95 ms", "p99 ms", "p99/alone", "batch p./s", "node %"
    );
    let alone = phases.first().map_or(Duration::ZERO, |phase| phase.percentile(99));
    for phase in phases {
        text += &format!(
            "  {:<28}{:>9.1}{:>9.1}{:>9.1}{:>11.2}{:>12.1}{:>9.0}\n",
            phase.kind.name(),
            millis(phase.percentile(50)),
            millis(phase.percentile(95)),
            millis(phase.percentile(99)),
            ratio(phase.percentile(99), alone),
            phase.pages as f64 / phase.time.as_secs_f64().max(1e-9),
            phase.utilisation(setting.cpus) * 100.0,
        );
    }
    text + &format!(
        "\n  Apache, {:.1} ms of CPU a page, {:.1} requests a second at moments of their own; batch work held back by {}; {} s a\n  \
         phase; {} CPUs, Linux {}, {}.\n",
        millis(setting.cost),
        setting.rate,
        setting.mode.as_str(),
        setting.seconds,
        setting.cpus,
        setting.kernel,
        setting.cgroup,
    )
}

fn ratio(time: Duration, alone: Duration) -> f64 {
    time.as_secs_f64() / alone.as_secs_f64().max(1e-9)
}

/// The results as JSON.
pub(crate) fn json(setting: &Setting, phases: &[Phase]) -> Value {
    let row = |phase: &Phase| {
        json!({
            "phase": phase.kind.name(),
            "requests": phase.latencies.len(),
            "p50Millis": millis(phase.percentile(50)),
            "p95Millis": millis(phase.percentile(95)),
            "p99Millis": millis(phase.percentile(99)),
            "p99MillisOfRounds": phase.rounds.iter().map(|time| millis(*time)).collect::<Vec<_>>(),
            "batchPages": phase.pages,
            "batchCpuSeconds": phase.batch_time.as_secs_f64(),
            "utilisation": phase.utilisation(setting.cpus),
            "seconds": phase.time.as_secs_f64(),
        })
    };
    json!({
        "setting": {
            "kernel": setting.kernel, "cpus": setting.cpus, "cgroup": setting.cgroup, "mode": setting.mode.as_str(),
            "costMillis": millis(setting.cost), "requestsPerSecond": setting.rate,
        },
        "phases": phases.iter().map(row).collect::<Vec<_>>(),
    })
}

/// The figures of the promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ColocationResult {
    /// Ratio of the 99th percentile under qosm to that of the server alone.
    longer: f64,
    /// The same ratio in the profile of Koordinator's loop.
    longer_koordinator: f64,
    /// Ratio of the utilisation under qosm to that of the server alone.
    utilisation: f64,
}

/// Computes the figures of the promise.
pub(crate) fn result(phases: &[Phase]) -> ColocationResult {
    let of = |kind| phases.iter().find(|phase| phase.kind == kind);
    let p99 = |kind| of(kind).map_or(Duration::ZERO, |phase| phase.percentile(99));
    let busy = |kind| of(kind).map_or(0.0, |phase| phase.utilisation(1));
    ColocationResult {
        longer: ratio(p99(Kind::Responsive), p99(Kind::Alone)),
        longer_koordinator: ratio(p99(Kind::Koordinator), p99(Kind::Alone)),
        utilisation: busy(Kind::Responsive) / busy(Kind::Alone).max(1e-9),
    }
}

impl ColocationResult {
    /// Whether the promise is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.longer <= MAX_LONGER && self.utilisation >= MIN_UTILISATION && self.longer <= self.longer_koordinator
    }
}

impl fmt::Display for ColocationResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |kept| if kept { "kept" } else { "not kept" };
        writeln!(
            f,
            "  p99 under qosm at most {MAX_LONGER} times that of alone: {:.2}, {}",
            self.longer,
            word(self.longer <= MAX_LONGER)
        )?;
        writeln!(
            f,
            "  node utilisation at least {MIN_UTILISATION} times that of alone: {:.2}, {}",
            self.utilisation,
            word(self.utilisation >= MIN_UTILISATION)
        )?;
        write!(
            f,
            "  p99 not above that of the profile koordinator, {:.2}: {}",
            self.longer_koordinator,
            word(self.longer <= self.longer_koordinator)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(kind: Kind, p99: u64, busy: u64, pages: u64) -> Phase {
        let mut phase = Phase::new(kind);
        phase.latencies = (1..=100).map(|percent| Duration::from_millis(percent * p99 / 99)).collect();
        (phase.busy, phase.time, phase.pages) = (Duration::from_secs(busy), Duration::from_secs(20), pages);
        phase
    }

    fn phases(responsive: u64, busy: u64) -> Vec<Phase> {
        vec![
            phase(Kind::Alone, 40, 10, 0),
            phase(Kind::Unmanaged, 99, 39, 900),
            phase(Kind::Koordinator, 50, 26, 400),
            phase(Kind::Responsive, responsive, busy, 420),
        ]
    }

    #[test]
    fn each_part_of_the_promise_counts() {
        for (p99, busy, kept) in [(41, 24, true), (44, 24, false), (41, 19, false), (60, 24, false)] {
            let result = result(&phases(p99, busy));
            assert_eq!(result.is_kept(), kept, "{p99} {busy}\n{result}");
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_phase() {
        let setting = Setting {
            kernel: "6.1".into(),
            cpus: 2,
            cgroup: "cgroup v1",
            mode: Mode::CfsQuota,
            cost: Duration::from_millis(12),
            rate: 41.7,
            seconds: 20,
        };
        insta::assert_snapshot!(format!("{}{}", table(&setting, &phases(41, 24)), result(&phases(41, 24))));
    }
}
