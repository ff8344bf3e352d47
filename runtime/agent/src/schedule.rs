//! Schedule: when the interval of a policy makes an evaluation due.

use qosm_model::unit::Micros;

/// The intervals of a policy. They follow each other without gaps, however late a tick comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// `None` if the policy is never evaluated by interval.
    interval: Option<Micros>,
    /// When the current interval began; `None` before the first evaluation.
    from: Option<Micros>,
}

impl Schedule {
    /// Creates a schedule. An interval of 0 means no evaluation by interval.
    pub(crate) fn new(interval_millis: u32) -> Self {
        Self { interval: interval_of(interval_millis), from: None }
    }

    /// Changes the interval; the current one keeps its start.
    pub(crate) fn set(&mut self, interval_millis: u32) {
        self.interval = interval_of(interval_millis);
    }

    /// Whether the interval is over; `None` before the first evaluation. A tick that comes early by up to a twentieth of the interval
    /// counts: timers are not exact.
    pub(crate) fn is_due(&self, now: Micros) -> Option<bool> {
        let from = self.from?;
        let has_passed = |interval: Micros| now.0.saturating_sub(from.0).saturating_add(interval.0 / 20) >= interval.0;
        Some(self.interval.is_some_and(has_passed))
    }

    /// Notes an evaluation. The next interval begins where the last complete one ended, so that a late tick does not push the next one
    /// out of its interval; after an evaluation within the interval it begins now.
    pub(crate) fn evaluated(&mut self, now: Micros) {
        let over = |from: Micros, interval: Micros| now.0.saturating_sub(from.0) / interval.0 * interval.0;
        self.from = match (self.from, self.interval) {
            (Some(from), Some(interval)) if over(from, interval) > 0 => Some(Micros(from.0 + over(from, interval))),
            _ => Some(now),
        };
    }
}

fn interval_of(millis: u32) -> Option<Micros> {
    (millis > 0).then(|| Micros(u64::from(millis) * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of the moments (in milliseconds) at which a policy with this interval is evaluated.
    fn evaluated(interval_millis: u32, moments: &[u64]) -> Vec<u64> {
        let mut schedule = Schedule::new(interval_millis);
        let mut is_evaluated = |moment: &u64| {
            let now = Micros(moment * 1000);
            let is_due = schedule.is_due(now).unwrap_or(true);
            if is_due {
                schedule.evaluated(now);
            }
            is_due
        };
        moments.iter().copied().filter(|moment| is_evaluated(moment)).collect()
    }

    #[test]
    fn an_interval_of_one_tick_is_met_by_each_tick_however_late_one_comes() {
        let jittery = [0, 1000, 2090, 3000, 4180, 5030, 6000, 7000];
        assert_eq!(evaluated(1000, &jittery), jittery);
        // The first tick was late itself: one is missed, and those after it are not.
        assert_eq!(evaluated(1000, &[90, 1000, 2000, 3001, 4000, 5000]), [90, 2000, 3001, 4000, 5000]);
    }

    #[test]
    fn longer_intervals_keep_their_pace_and_a_stall_is_not_made_up_for() {
        let ticks: Vec<u64> = (0..12).map(|tick| tick * 1000 + (tick % 3) * 70).collect();
        assert_eq!(evaluated(5000, &ticks), [0, 5140, 10070]);
        assert_eq!(evaluated(1000, &[0, 1000, 4500, 5000, 5500, 6500]), [0, 1000, 4500, 5000, 6500]);
        assert_eq!(evaluated(200, &[0, 1000, 2100, 3000]), [0, 1000, 2100, 3000]);
        assert_eq!(evaluated(0, &[0, 1000, 2000]), [0]);
    }
}
