//! The alarms of a policy between two ticks, and when they make an evaluation due.
//!
//! Evaluations for alarms are at least a gap apart. An alarm of a container that was idle does not wait that long: each past gap without
//! an evaluation allows one that comes a tenth of a gap after the last. On average there is at most one evaluation per gap. An alarm
//! after which nothing was staged is ignored for a while, unless its container has been idle since.

use std::collections::{BTreeMap, BTreeSet};

use qosm_host::Fired;
use qosm_model::alarm::Alarm;
use qosm_model::unit::Micros;

/// Number of gaps for which an alarm is ignored after nothing was staged for it.
const FRUITLESS_GAPS: u64 = 10;
/// Number of evaluations that may come earlier than a gap after the last one.
const EARLY: u64 = 10;
/// Early evaluations are at least the gap divided by this apart.
const EARLY_PART: u64 = 10;

/// The alarms of one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlarmQueue {
    waiting: BTreeSet<Alarm>,
    /// Whether a waiting alarm is about a container that was idle before.
    is_urgent: bool,
    /// Alarms after which nothing was staged for their target, and until when they are ignored.
    fruitless: BTreeMap<Alarm, Micros>,
    /// When alarms last caused an evaluation.
    last: Option<Micros>,
    /// When the next evaluation would be due, had each waited for its gap.
    paced: Micros,
}

impl AlarmQueue {
    /// Queues an alarm. Returns `false` if the alarm is ignored, because nothing was staged for it lately.
    pub(crate) fn receive(&mut self, fired: Fired, now: Micros) -> bool {
        let is_fruitless = self.fruitless.get(&fired.alarm).is_some_and(|until| now < *until);
        if is_fruitless && !fired.after_rest {
            return false;
        }
        self.fruitless.remove(&fired.alarm);
        self.waiting.insert(fired.alarm);
        self.is_urgent |= fired.after_rest;
        true
    }

    /// The alarms that wait for an evaluation.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Alarm> {
        self.waiting.iter()
    }

    /// When the policy is to be evaluated for the waiting alarms; `None` if none waits.
    pub(crate) fn due(&self, gap: Micros) -> Option<Micros> {
        if self.waiting.is_empty() {
            return None;
        }
        let Some(last) = self.last else { return Some(Micros(0)) };
        let paced = last.0.saturating_add(gap.0);
        if !self.is_urgent {
            return Some(Micros(paced));
        }
        let early = last.0.saturating_add(gap.0 / EARLY_PART);
        let earned = self.paced.0.saturating_sub(gap.0.saturating_mul(EARLY));
        Some(Micros(early.max(earned).min(paced)))
    }

    /// Records that alarms caused an evaluation.
    pub(crate) fn evaluated(&mut self, now: Micros, gap: Micros) {
        self.last = Some(now);
        self.paced = Micros(self.paced.0.max(now.0).saturating_add(gap.0));
    }

    /// Ends an evaluation: its alarms no longer wait. Alarms after which nothing was staged are
    /// ignored for a while, since a container at its ceiling is throttled again and again.
    pub(crate) fn debounce(&mut self, is_answered: impl Fn(&Alarm) -> bool, now: Micros, gap: Micros) {
        let until = Micros(now.0.saturating_add(gap.0.saturating_mul(FRUITLESS_GAPS)));
        self.fruitless.retain(|_, until| now < *until);
        self.is_urgent = false;
        for alarm in std::mem::take(&mut self.waiting) {
            if !is_answered(&alarm) {
                self.fruitless.insert(alarm, until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::alarm::Trigger;
    use qosm_model::knob::Target;
    use qosm_model::pod::ContainerId;

    use super::*;

    const GAP: Micros = Micros(100_000);

    fn fired(container: u32, after_rest: bool) -> Fired {
        let target = Some(Target::Container(ContainerId(container)));
        Fired { alarm: Alarm { trigger: Trigger::Throttling, target }, after_rest }
    }

    fn millis(millis: u64) -> Micros {
        Micros(millis * 1000)
    }

    /// Sends alarms at the given times, evaluates when due, and returns the times of evaluations. All in milliseconds.
    fn play(queue: &mut AlarmQueue, alarms: &[(u64, u32, bool)], until: u64, is_answered: bool) -> Vec<u64> {
        let mut evaluated = Vec::new();
        for at in 0..until {
            for &(_, container, after_rest) in alarms.iter().filter(|(when, ..)| *when == at) {
                queue.receive(fired(container, after_rest), millis(at));
            }
            if queue.due(GAP).is_some_and(|due| due <= millis(at)) {
                queue.evaluated(millis(at), GAP);
                queue.debounce(|_| is_answered, millis(at), GAP);
                evaluated.push(at);
            }
        }
        evaluated
    }

    #[test]
    fn alarms_are_gathered_and_answered_a_gap_apart() {
        let alarms = [(5, 1, false), (20, 1, false), (30, 2, false), (140, 1, false)];
        assert_eq!(play(&mut AlarmQueue::default(), &alarms, 400, true), [5, 105, 205]);
    }

    #[test]
    fn a_container_that_was_at_rest_does_not_wait_for_the_gap() {
        let alarms = [(5, 1, false), (20, 2, true), (23, 3, true), (40, 1, false)];
        assert_eq!(play(&mut AlarmQueue::default(), &alarms, 400, true), [5, 20, 30, 130]);
    }

    #[test]
    fn on_average_there_is_one_evaluation_a_gap_whoever_was_at_rest() {
        let alarms: Vec<_> = (0..10_000).map(|at| (at, u32::try_from(at % 300).unwrap(), true)).collect();
        let evaluated = play(&mut AlarmQueue::default(), &alarms, 10_000, true);
        assert!((100..=112).contains(&evaluated.len()), "{} in 10 s", evaluated.len());
        assert!(evaluated.windows(2).all(|pair| pair[1] - pair[0] >= 10), "{evaluated:?}");
    }

    #[test]
    fn what_came_to_nothing_is_not_heard_again_until_it_has_rested() {
        let mut queue = AlarmQueue::default();
        let alarms = [(0, 1, false), (150, 1, false), (300, 1, true), (450, 1, false)];
        assert_eq!(play(&mut queue, &alarms, 600, false), [0, 300]);
        // After ten gaps the alarm is no longer ignored.
        assert!(!queue.receive(fired(1, false), millis(1_299)));
        assert!(queue.receive(fired(1, false), millis(1_300)));
    }
}
