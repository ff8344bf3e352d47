//! One phase of the demo: the load runs, and each second tells what became of it.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::demo::agent::Agent;
use crate::demo::cgroup::{Container, Sample};
use crate::demo::load::{Answer, Load, moments};
use crate::interrupt::Interrupt;

/// The first seconds of a phase are shown but not counted: the change to a policy takes a few of its steps.
pub(crate) const SETTLE: u64 = 5;

/// What happened in one second.
#[derive(Clone, Debug)]
pub(crate) struct Second {
    /// Since the phase began, the first is 1.
    pub(crate) at: u64,
    /// Periods in which the container ran, and those of them in which it was throttled.
    pub(crate) periods: u64,
    /// See there.
    pub(crate) throttled: u64,
    /// CPU time used in this second.
    pub(crate) usage: Duration,
    /// Quota at its end.
    pub(crate) quota: Option<Duration>,
    /// Burst at its end.
    pub(crate) burst: Option<Duration>,
    /// Latencies of the requests answered in it, sorted.
    pub(crate) latencies: Vec<Duration>,
}

/// A phase: what it is called and its seconds, the first [`SETTLE`] of them included.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    /// The policy in force.
    pub(crate) policy: &'static str,
    /// All of them.
    pub(crate) seconds: Vec<Second>,
    /// Requests that were not answered.
    pub(crate) failed: usize,
}

/// The figures of a phase, over its seconds after the first few.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// Requests that were answered.
    pub(crate) requests: usize,
    /// Throttled periods in percent of those in which the container ran.
    pub(crate) throttled_percent: f64,
    /// Median latency.
    pub(crate) p50: Duration,
    /// 95th percentile.
    pub(crate) p95: Duration,
    /// 99th percentile.
    pub(crate) p99: Duration,
    /// CPUs used on average.
    pub(crate) cpus: f64,
    /// Least and greatest quota.
    pub(crate) quota: (Duration, Duration),
    /// Least and greatest burst; `None` where the kernel has none.
    pub(crate) burst: Option<(Duration, Duration)>,
}

impl Phase {
    /// The seconds that count.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Second> {
        self.seconds.iter().filter(|second| second.at > SETTLE)
    }

    /// Sums it up.
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

/// Runs the load for that long and looks once a second.
///
/// # Errors
///
/// When the agent or the server ends, or the demo is interrupted.
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
    let load = Load::start(server, moments(rate, Duration::from_secs(total)));
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

/// Runs the load for some seconds without a limit, and returns what a request costs in CPU time.
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
    let load = Load::start(server, moments(rate, length));
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

/// The line that moves while the phase lasts; a line a second where the output is no terminal.
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
        // A terminal that is gone is no reason to stop measuring.
        let _ = std::io::stdout().flush();
    } else {
        println!("{line}");
    }
}

/// `part` in percent of `whole`; 0 of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// The smallest of the sorted values that at least `percent` percent of them do not exceed (nearest rank); zero of none.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// Milliseconds for people.
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
