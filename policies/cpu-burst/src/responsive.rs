//! The profile `responsive`: the same bounds and limiter as `koordinator`, but steps by need.
//!
//! - **Raise.** A throttled container gets what it was short of: the time that its threads waited in a throttled period, more of it the
//!   more periods were throttled (the delayed work is still pending), and at least `minRaisePercent`. Raises share what the pool has free,
//!   the longest waiting first.
//! - **Alarm.** A container that has just used up its quota gets `alarmRaisePercent` of it between two steps, on the same terms; the next
//!   step considers the actual shortage.
//! - **Lower.** After `calmWindows` steps without throttling, the quota falls by `lowerPercent` at a time, down to `headroomPercent` above
//!   the use, and finally to the base. If the container is throttled after that, it gets the previous quota back at once, and the next
//!   lowering waits twice as long, up to `calmWindowsMax`: a bursty load keeps its quota. After `calmWindowsMax` steps without throttling
//!   at the base, the doubling is forgotten.
//! - **Overload.** Exactly the excess of the pool over its threshold is taken, first from containers that were not throttled and use least
//!   of their quota.

use crate::protocol::Config;
use crate::step::{Activity, Situation, Why};
use qosm_sdk::scale;

/// Number of lowerings in as many calm windows as the first lowering had to wait for.
const LOWERINGS_PER_CALM: u32 = 5;

/// State of a container that is kept between steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepHistory {
    /// Number of steps without throttling.
    calm: u32,
    /// How many times the required number of calm steps was doubled.
    relapses: u32,
    /// Whether the last change was a lowering.
    was_lowered: bool,
    /// The quota that was sufficient before it was lowered; 0 if it was not lowered.
    sufficed: u64,
}

impl StepHistory {
    /// The container was throttled; if its quota was lowered before, that was too much.
    fn throttled(&mut self) {
        self.relapses = self.relapses.saturating_add(self.was_lowered.into());
        self.was_lowered = false;
        self.calm = 0;
    }

    /// The quota was raised; the previous sufficient quota no longer applies.
    pub(crate) fn raised(&mut self) {
        self.sufficed = 0;
    }

    /// The quota was cut because of the node, which says nothing about the container's needs.
    pub(crate) fn cut(&mut self) {
        self.sufficed = 0;
        self.was_lowered = false;
    }
}

/// What a container's own situation calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// The quota if nothing is given or taken.
    pub(crate) quota: u64,
    /// How much more the container needs; 0 = nothing.
    pub(crate) raise: u64,
    /// The reason.
    pub(crate) why: Why,
}

/// The needs of a container that has just used up its quota. The actual shortage is known only when its period is over.
pub(crate) fn alarm(history: &mut StepHistory, situation: &Situation, config: &Config) -> Proposal {
    let current = situation.bounded(situation.current);
    let keep = Proposal { quota: current, raise: 0, why: Why::Bounds };
    if situation.refused || config.alarm_raise_percent == 0 {
        return keep;
    }
    history.throttled();
    let more = scale(current, config.alarm_raise_percent.into(), 100);
    let needed = current.saturating_add(more).max(history.sufficed);
    Proposal { raise: situation.bounded(needed) - current, why: Why::UsedUp, ..keep }
}

/// The needs of a container according to its activity.
pub(crate) fn propose(history: &mut StepHistory, situation: &Situation, config: &Config) -> Proposal {
    let current = situation.bounded(situation.current);
    let keep = Proposal { quota: current, raise: 0, why: Why::Bounds };
    if situation.refused {
        history.cut();
        history.calm = 0;
        let quota = situation.bounded(lowered(current, config));
        return Proposal {
            quota,
            why: if quota < situation.current { Why::AllowanceUsed } else { Why::Bounds },
            ..keep
        };
    }
    let Some(activity) = situation.activity else { return keep };
    if activity.is_throttled() {
        history.throttled();
        let needed = current.saturating_add(shortfall(&activity, current, config)).max(history.sufficed);
        let raise = situation.bounded(needed) - current;
        return Proposal { raise, why: Why::Throttled(activity.throttled_percent()), ..keep };
    }
    history.calm = history.calm.saturating_add(1);
    let patience = patience(history, config);
    if history.calm < patience {
        return keep;
    }
    let floor = situation.bounded(in_use(&activity, situation.period_usec, config));
    if current > floor {
        history.sufficed = current;
        history.was_lowered = true;
        history.calm = patience - (patience / LOWERINGS_PER_CALM).max(1);
        return Proposal { quota: lowered(current, config).max(floor), why: Why::Calm, ..keep };
    }
    if current == situation.base && history.calm >= config.calm_windows_max {
        *history = StepHistory { calm: history.calm, ..StepHistory::default() };
    }
    keep
}

fn lowered(quota: u64, config: &Config) -> u64 {
    scale(quota, u64::from(100_u32.saturating_sub(config.lower_percent)), 100)
}

/// By how much the quota was too small, estimated from throttled periods and waiting time.
fn shortfall(activity: &Activity, quota: u64, config: &Config) -> u64 {
    let throttled = activity.nr_throttled.min(activity.nr_periods);
    let waited = activity.throttled_usec / throttled.max(1);
    let piled_up = scale(waited, throttled, activity.nr_periods);
    // For kernels that do not count waiting time, the ratio of throttled periods decides.
    let by_ratio = scale(quota, throttled, activity.nr_periods.saturating_mul(2));
    let least = scale(quota, config.min_raise_percent.into(), 100);
    waited.saturating_add(piled_up).max(by_ratio).max(least)
}

/// The use per period plus the headroom.
fn in_use(activity: &Activity, period_usec: u64, config: &Config) -> u64 {
    let used = scale(activity.usage_usec, period_usec, activity.window_usec);
    scale(used, 100 + u64::from(config.headroom_percent), 100)
}

fn patience(history: &StepHistory, config: &Config) -> u32 {
    let doubled = 1_u32.checked_shl(history.relapses).and_then(|times| config.calm_windows.checked_mul(times));
    doubled.map_or(config.calm_windows_max, |calm| calm.min(config.calm_windows_max))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::NodeState;

    const USEC: u64 = 1_000_000;
    const BASE: u64 = 200_000;
    const CEIL: u64 = 600_000;

    fn situation(current: u64, activity: Activity) -> Situation {
        Situation {
            current,
            base: BASE,
            ceil: CEIL,
            period_usec: 100_000,
            activity: Some(activity),
            refused: false,
            node: NodeState::Idle,
        }
    }

    fn throttled(nr_throttled: u64, throttled_usec: u64) -> Activity {
        Activity { window_usec: USEC, usage_usec: 1_500_000, nr_periods: 10, nr_throttled, throttled_usec }
    }

    fn calm(usage_usec: u64) -> Activity {
        Activity { window_usec: USEC, usage_usec, nr_periods: 10, ..Activity::default() }
    }

    #[test]
    fn a_raise_is_as_large_as_the_shortage() {
        for (activity, raise) in [
            // The smallest step, if threads hardly waited.
            (throttled(1, 1_000), 40_000),
            // 300 ms in 3 periods are 100 ms per period, plus three tenths of that for the delayed work.
            (throttled(3, 300_000), 130_000),
            (throttled(10, 1_000_000), 200_000),
            // At once up to the ceiling.
            (throttled(10, 9_000_000), 400_000),
            // Unknown waiting time: half the quota if all periods were throttled.
            (throttled(10, 0), 100_000),
            (throttled(4, 0), 40_000),
            // More throttled periods than periods is an inaccuracy of the counters.
            (throttled(20, 1_000_000), 200_000),
        ] {
            let proposal = propose(&mut StepHistory::default(), &situation(BASE, activity), &Config::default());
            assert_eq!((proposal.quota, proposal.raise), (BASE, raise), "{activity:?}");
        }
    }

    #[test]
    fn without_a_sample_nothing_moves_but_into_the_bounds() {
        for (current, quota) in [(BASE, BASE), (300_000, 300_000), (900_000, CEIL), (50_000, BASE)] {
            let blind = Situation { activity: None, ..situation(current, calm(0)) };
            let proposal = propose(&mut StepHistory::default(), &blind, &Config::default());
            assert_eq!((proposal.quota, proposal.raise), (quota, 0));
        }
    }

    #[test]
    fn a_used_up_allowance_brings_the_quota_down_throttled_or_not() {
        for activity in [Some(throttled(10, 1_000_000)), Some(calm(0)), None] {
            let refused = Situation { refused: true, activity, ..situation(CEIL, calm(0)) };
            let proposal = propose(&mut StepHistory::default(), &refused, &Config::default());
            assert_eq!((proposal.quota, proposal.raise, proposal.why), (480_000, 0, Why::AllowanceUsed));
        }
    }

    /// Plays a load that needs `need` in each period and is throttled below it; returns the quota of each step.
    fn play(history: &mut StepHistory, mut quota: u64, need: impl Fn(usize) -> u64, steps: usize) -> Vec<u64> {
        let mut quotas = Vec::new();
        for index in 0..steps {
            let short = need(index).saturating_sub(quota);
            let activity = if short > 0 { throttled(5, short * 5) } else { calm(need(index) * 2) };
            let proposal = propose(history, &situation(quota, activity), &Config::default());
            quota = proposal.quota + proposal.raise;
            quotas.push(quota);
        }
        quotas
    }

    #[test]
    fn a_quota_is_lowered_to_the_base_after_a_few_calm_windows() {
        let quotas = play(&mut StepHistory::default(), CEIL, |_| 10_000, 10);
        assert_eq!(quotas, [600_000, 600_000, 600_000, 600_000, 480_000, 384_000, 307_200, 245_760, 200_000, 200_000]);
    }

    #[test]
    fn a_quota_in_use_is_kept_with_headroom() {
        let mut history = StepHistory::default();
        let mut quota = CEIL;
        for _ in 0..100 {
            // The load uses 300 ms of each 100 ms period.
            quota = propose(&mut history, &situation(quota, calm(3_000_000)), &Config::default()).quota;
        }
        assert_eq!(quota, 375_000);
    }

    #[test]
    fn a_load_that_comes_back_gets_what_had_sufficed_and_is_left_alone_longer() {
        // One window in twenty needs the ceiling; between them the container is almost idle.
        let mut history = StepHistory::default();
        let quotas = play(&mut history, BASE, |step| if step % 20 == 0 { 550_000 } else { 1_000 }, 400);
        let throttled =
            |steps: std::ops::Range<usize>| steps.filter(|step| step % 20 == 0 && quotas[step - 1] < 550_000).count();
        assert!(throttled(20..120) >= 3, "it learns by being throttled: {quotas:?}");
        assert!(throttled(300..400) <= 2, "and then is mostly left alone: {quotas:?}");
        // When the load is gone for good, the quota returns to the base.
        let last = quotas[quotas.len() - 1];
        assert_eq!(play(&mut history, last, |_| 0, 300).last(), Some(&BASE));
        assert_eq!(history.relapses, 0);
    }

    fn any_activity() -> impl Strategy<Value = Option<Activity>> {
        proptest::option::of((0..1_u64 << 40, 0..1_u64 << 40, 0..100_u64, 0..100_u64, 0..1_u64 << 40).prop_map(
            |(window_usec, usage_usec, nr_periods, nr_throttled, throttled_usec)| Activity {
                window_usec,
                usage_usec,
                nr_periods,
                nr_throttled,
                throttled_usec,
            },
        ))
    }

    proptest! {
        #[test]
        fn a_wish_stays_within_the_bounds(
            steps in proptest::collection::vec((any_activity(), any::<bool>()), 1..50),
            start: u64, base in 1_000_u64..1 << 40, more in 0_u64..1 << 40,
        ) {
            let mut history = StepHistory::default();
            let mut current = start;
            for (activity, refused) in steps {
                let situation =
                    Situation { current, base, ceil: base + more, activity, refused, ..situation(0, calm(0)) };
                let proposal = propose(&mut history, &situation, &Config::default());
                prop_assert!(proposal.quota >= base && proposal.quota + proposal.raise <= base + more);
                current = proposal.quota + proposal.raise;
            }
        }

        #[test]
        fn whatever_was_before_an_idle_container_ends_at_its_base(
            steps in proptest::collection::vec(any_activity(), 0..50),
        ) {
            let mut history = StepHistory::default();
            let mut current = BASE;
            for activity in steps {
                let situation = Situation { activity, ..situation(current, calm(0)) };
                let proposal = propose(&mut history, &situation, &Config::default());
                current = proposal.quota + proposal.raise;
            }
            for _ in 0..400 {
                current = propose(&mut history, &situation(current, calm(0)), &Config::default()).quota;
            }
            prop_assert_eq!(current, BASE);
        }
    }
}
