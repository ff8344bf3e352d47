//! Measures a phase of the demo: runs the load and records the results of each second.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::demo::agent::Agent;
use crate::demo::cgroup::{Container, Sample};
use crate::demo::load::{Answer, Load, moments};
use crate::interrupt::Interrupt;

/// The first seconds of a phase are shown but not counted, because a policy needs some steps to adapt.
pub(crate) const SETTLE: u64 = 5;

/// The results of one second.
#[derive(Clone, Debug)]
pub(crate) struct Second {
    /// Number of the second in the phase; the first is 1.
    pub(crate) at: u64,
    /// Periods in which the container ran.
    pub(crate) periods: u64,
    /// Periods of these in which it was throttled.
    pub(crate) throttled: u64,
    /// CPU time used in this second.
    pub(crate) usage: Duration,
    /// Quota at the end of the second.
    pub(crate) quota: Option<Duration>,
    /// Burst at the end of the second.
    pub(crate) burst: Option<Duration>,
    /// Latencies of the requests that were answered in the second, sorted.
    pub(crate) latencies: Vec<Duration>,
}

/// A phase with all of its seconds, including the first [`SETTLE`].
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// The policy in force.
    pub(crate) policy: &'static str,
    /// All seconds of the phase.
    pub(crate) seconds: Vec<Second>,
    /// Requests that were not answered.
    pub(crate) failed: usize,
}

/// The figures of a phase, without its first [`SETTLE`] seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Requests that were answered.
    pub(crate) requests: usize,
    /// Throttled periods in percent of the periods in which the container ran.
    pub(crate) throttled_percent: f64,
    /// Median latency.
    pub(crate) p50: Duration,
    /// 95th percentile.
    pub(crate) p95: Duration,
    /// 99th percentile.
    pub(crate) p99: Duration,
    /// Average number of CPUs used.
    pub(crate) cpus: f64,
    /// Minimum and maximum quota.
    pub(crate) quota: (Duration, Duration),
    /// Minimum and maximum burst; `None` if the kernel does not support it.
    pub(crate) burst: Option<(Duration, Duration)>,
}

impl Phase {
    /// The seconds that count.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Second> {
        self.seconds.iter().filter(|second| second.at > SETTLE)
    }

    /// Computes the figures.
    pub(crate) fn summary(&self) -> Summary {
        let mut latencies: Vec<_> = self.counted().flat_map(|second| second.latencies.iter().copied()).collect();
        latencies.sort_unstable();
        let periods = self.counted().map(|second| second.periods).sum();
        let throttled = self.counted().map(|second| second.throttled).sum();
        let usage: Duration = self.counted().map(|second| second.usage).sum();
        let range = |values: Vec<Duration>| Some((*values.iter().min()?, *values.iter().max()?));
        Summary {
            requests: latencies.len(),
            throttled_percent: percent(throttled, periods),
            p50: percentile(&latencies, 50),
            p95: percentile(&latencies, 95),
            p99: percentile(&latencies, 99),
            cpus: usage.as_secs_f64() / self.counted().count().max(1) as f64,
            quota: range(self.counted().filter_map(|second| second.quota).collect()).unwrap_or_default(),
            burst: range(self.counted().filter_map(|second| second.burst).collect()),
        }
    }
}

/// Runs the load for a phase, and takes a sample every second.
///
/// # Errors
///
/// If the agent or the server exits, or the demo is interrupted.
pub(crate) fn run(
    policy: &'static str,
    rate: f64,
    seconds: u64,
    server: SocketAddr,
    container: &Container<'_>,
    agent: &mut Agent,
    interrupt: &Interrupt,
) -> Result<Phase> {
    let total = SETTLE + seconds;
    let load = Load::start(server, moments(rate, Duration::from_secs(total), 0));
    let start = Instant::now();
    let mut phase = Phase { policy, seconds: Vec::new(), failed: 0 };
    let mut before = container.sample()?;
    for at in 1..=total {
        interrupt.sleep_until(start + Duration::from_secs(at))?;
        agent.check()?;
        let now = container.sample()?;
        let answers = load.answers();
        phase.failed += answers.iter().filter(|answer| answer.took.is_none()).count();
        phase.seconds.push(second(at, &before, &now, &answers));
        before = now;
        show(&phase, total);
    }
    println!();
    if phase.failed > 0 {
        bail!("{} requests failed: the server is in trouble, and the figures would mean nothing", phase.failed);
    }
    Ok(phase)
}

/// Runs the load for some seconds without a limit. Returns the CPU time of a request.
///
/// # Errors
///
/// When nothing is answered, or the demo is interrupted.
pub(crate) fn calibrate(
    rate: f64,
    server: SocketAddr,
    container: &Container<'_>,
    interrupt: &Interrupt,
) -> Result<Duration> {
    let length = Duration::from_secs(4);
    let load = Load::start(server, moments(rate, length, 0));
    let before = container.sample()?.usage;
    interrupt.sleep(length + Duration::from_millis(500))?;
    let answered = load.answers().iter().filter(|answer| answer.took.is_some()).count();
    let answered = u32::try_from(answered)?;
    anyhow::ensure!(answered > 0, "the server answered nothing");
    Ok((container.sample()?.usage - before) / answered)
}

fn second(at: u64, before: &Sample, now: &Sample, answers: &[Answer]) -> Second {
    let mut latencies: Vec<_> = answers.iter().filter_map(|answer| answer.took).collect();
    latencies.sort_unstable();
    Second {
        at,
        periods: now.periods.saturating_sub(before.periods),
        throttled: now.throttled.saturating_sub(before.throttled),
        usage: now.usage.saturating_sub(before.usage),
        quota: now.quota,
        burst: now.burst,
        latencies,
    }
}

/// Shows progress: a line that is overwritten on a terminal, else a line for each second.
fn show(phase: &Phase, total: u64) {
    let Some(last) = phase.seconds.last() else { return };
    let settling = last.at <= SETTLE;
    let so_far = if settling { &phase.seconds[..] } else { &phase.seconds[usize::try_from(SETTLE).unwrap_or(0)..] };
    let periods = so_far.iter().map(|second| second.periods).sum();
    let throttled = so_far.iter().map(|second| second.throttled).sum();
    let mut latencies: Vec<_> = so_far.iter().flat_map(|second| second.latencies.iter().copied()).collect();
    latencies.sort_unstable();
    let line = format!(
        "    {:<4} {:>2}/{total} s  throttled {:>5.1} %  p99 {:>4} ms  CPU {:.2}  quota {}  burst {}{}",
        phase.policy,
        last.at,
        percent(throttled, periods),
        percentile(&latencies, 99).as_millis(),
        last.usage.as_secs_f64(),
        millis(last.quota),
        millis(last.burst),
        if settling { "  (settling)" } else { "" },
    );
    if std::io::stdout().is_terminal() {
        print!("\r{line:<100}");
        // A closed terminal does not end the measurement.
        let _ = std::io::stdout().flush();
    } else {
        println!("{line}");
    }
}

/// `part` in percent of `whole`; 0 if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The smallest value that at least `percent` percent of the sorted values do not exceed (nearest rank); zero if there are none.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Milliseconds as text.
pub(crate) fn millis(time: Option<Duration>) -> String {
    time.map_or("none".to_owned(), |time| format!("{:.0} ms", time.as_secs_f64() * 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        for (percent, expected) in [(50, 100), (95, 190), (99, 198), (100, 200)] {
            assert_eq!(percentile(&values, percent), Duration::from_millis(expected));
        }
        assert_eq!(percentile(&values[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn a_phase_counts_from_the_end_of_its_settling() {
        let second = |at, throttled, latency| Second {
            at,
            periods: 10,
            throttled,
            usage: Duration::from_millis(250),
            quota: Some(Duration::from_millis(40 + at)),
            burst: None,
            latencies: vec![Duration::from_millis(latency)],
        };
        let mut seconds: Vec<_> = (1..=SETTLE).map(|at| second(at, 10, 900)).collect();
        seconds.extend((1..=4).map(|at| second(SETTLE + at, 3, at * 10)));
        let summary = Phase { policy: "none", seconds, failed: 0 }.summary();
        assert_eq!((summary.requests, summary.throttled_percent, summary.cpus), (4, 30.0, 0.25));
        assert_eq!((summary.p50, summary.p99), (Duration::from_millis(20), Duration::from_millis(40)));
        assert_eq!(summary.quota, (Duration::from_millis(46), Duration::from_millis(49)));
        assert_eq!(summary.burst, None);
    }
}
