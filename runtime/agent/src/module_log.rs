//! Logs of modules, limited to a rate. A module that logs at each evaluation must not fill the node's disk, nor hide other
//! log lines.

use qosm_engine::{LogLevel, LogLine, Staged};
use qosm_model::unit::Micros;

/// Bytes that a policy may log at once.
const BURST: u64 = 32 << 10;
/// Bytes that a policy may log per second in the long run: 40 MB a day.
const RATE: u64 = 512;
/// What a line costs beside its text: time, level, the policy's name.
const LINE: u64 = 80;
/// Interval at which dropped lines are reported.
const REPORT_INTERVAL: Micros = Micros(60_000_000);

/// A policy's log.
#[derive(Debug)]
pub(crate) struct ModuleLog {
    /// Bytes that may be written now, in millionths, so that short moments count.
    left: u128,
    since: Micros,
    /// Dropped lines that were not reported yet.
    unreported: u64,
    reported_at: Option<Micros>,
    /// Lines that were dropped and not counted.
    uncounted: u64,
    /// The lines of the last evaluation without those of level debug. The engine limits their length.
    latest: Vec<String>,
}

impl Default for ModuleLog {
    fn default() -> Self {
        Self {
            left: u128::from(BURST) * 1_000_000,
            since: Micros(0),
            unreported: 0,
            reported_at: None,
            uncounted: 0,
            latest: Vec::new(),
        }
    }
}

impl ModuleLog {
    /// Writes what an evaluation's calls logged.
    pub(crate) fn write_all(&mut self, policy: &str, calls: &[Staged], now: Micros) {
        self.latest.clear();
        for call in calls {
            let lines = call.log.iter().filter(|line| line.level > LogLevel::Debug);
            self.latest.extend(lines.map(|line| line.message.clone()));
            self.write(policy, &call.log, call.log_dropped, now);
        }
    }

    /// The lines of the last evaluation without those of level debug.
    pub(crate) fn latest(&self) -> &[String] {
        &self.latest
    }

    /// Writes the lines of a call. `beyond`: number of lines that the engine dropped, because the call logged too much.
    pub(crate) fn write(&mut self, policy: &str, lines: &[LogLine], beyond: u32, now: Micros) {
        self.refill(now);
        let mut dropped = u64::from(beyond);
        for line in lines {
            if !self.takes(&line.message) {
                dropped += 1;
                continue;
            }
            match line.level {
                LogLevel::Debug => tracing::debug!(policy, message = line.message, "module log"),
                LogLevel::Info => tracing::info!(policy, message = line.message, "module log"),
                LogLevel::Warn => tracing::warn!(policy, message = line.message, "module log"),
            }
        }
        self.unreported += dropped;
        self.uncounted += dropped;
        if let Some(lines) = self.due_report(now) {
            tracing::warn!(policy, lines, bytes_per_second = RATE, "the module logs too much; lines were dropped");
        }
    }

    /// Number of lines dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.uncounted)
    }

    fn refill(&mut self, now: Micros) {
        let passed = u128::from(now.0.saturating_sub(self.since.0));
        self.since = now;
        self.left = (self.left + passed * u128::from(RATE)).min(u128::from(BURST) * 1_000_000);
    }

    fn takes(&mut self, message: &str) -> bool {
        let cost = u128::from(LINE + u64::try_from(message.len()).unwrap_or(u64::MAX)) * 1_000_000;
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Number of dropped lines to report, if a report is due.
    fn due_report(&mut self, now: Micros) -> Option<u64> {
        let is_time = self.reported_at.is_none_or(|at| now.0.saturating_sub(at.0) >= REPORT_INTERVAL.0);
        (self.unreported > 0 && is_time).then(|| {
            self.reported_at = Some(now);
            std::mem::take(&mut self.unreported)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn lines(count: usize) -> Vec<LogLine> {
        vec![LogLine { level: LogLevel::Info, message: "x".repeat(1024) }; count]
    }

    #[test]
    fn a_burst_is_written_and_what_comes_after_it_is_dropped_and_counted() {
        let mut log = ModuleLog::default();
        log.write("p", &lines(20), 0, Micros(SECOND));
        assert_eq!(log.take_dropped(), 0);
        log.write("p", &lines(64), 100, Micros(2 * SECOND));
        let dropped = log.take_dropped();
        assert!((150..164).contains(&dropped), "{dropped}");
        assert_eq!(log.take_dropped(), 0, "each is counted once");
        // A quiet minute makes room again.
        log.write("p", &lines(20), 0, Micros(70 * SECOND));
        assert_eq!(log.take_dropped(), 0);
    }

    #[test]
    fn a_flood_comes_to_the_rate_whatever_the_interval() {
        for step in [SECOND / 5, SECOND, 10 * SECOND] {
            let (mut log, mut written) = (ModuleLog::default(), 0);
            let day = 86_400 * SECOND;
            let steps = 2_000.min(day / step);
            for tick in 0..steps {
                log.write("p", &lines(64), 0, Micros(tick * step));
                written += 64 - log.take_dropped();
            }
            let bytes = written * (1024 + LINE);
            let may = BURST + RATE * steps * step / SECOND;
            assert!(bytes <= may && bytes * 2 > may, "{bytes} of {may} at {step}");
        }
    }

    #[test]
    fn that_lines_are_dropped_is_told_once_a_minute() {
        let (mut log, mut reported) = (ModuleLog::default(), Vec::new());
        for second in 1..=180 {
            log.unreported += 5;
            reported.extend(log.due_report(Micros(second * SECOND)));
        }
        assert_eq!(reported, [5, 300, 300]);
    }
}
