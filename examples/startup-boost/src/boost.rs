//! One container's boost: its amount by age.

use qosm_sdk::{percent_of, scale};

use crate::config::PodConfig;

const SECOND_USEC: u64 = 1_000_000;

/// A boost under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Boost {
    /// Time since the container started, as the sum of the ticks' windows.
    pub(crate) age_usec: u64,
    /// The container started within the window of the next tick, which is not added to its age.
    pub(crate) is_fresh: bool,
}

impl Boost {
    /// Adds a window to the age.
    pub(crate) fn age(&mut self, window_usec: u64) {
        if !std::mem::take(&mut self.is_fresh) {
            self.age_usec = self.age_usec.saturating_add(window_usec);
        }
    }

    /// The amount that is added to a quota now; `None` once the boost is over.
    pub(crate) fn extra(&self, base_usec: u64, config: &PodConfig) -> Option<u64> {
        let full = percent_of(base_usec, config.percent.saturating_sub(100));
        let decay = config.decay_seconds.saturating_mul(SECOND_USEC);
        let past = self.age_usec.saturating_sub(config.seconds.saturating_mul(SECOND_USEC));
        if self.age_usec < config.seconds.saturating_mul(SECOND_USEC) {
            return Some(full);
        }
        (past < decay).then(|| scale(full, decay - past, decay))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extra(seconds: u64, config: &PodConfig) -> Option<u64> {
        Boost { age_usec: seconds * SECOND_USEC, is_fresh: false }.extra(50_000, config)
    }

    #[test]
    fn it_is_held_and_then_given_back_step_by_step() {
        let config = PodConfig { percent: 300, seconds: 30, decay_seconds: 10 };
        for (seconds, left) in
            [(0, Some(100_000)), (29, Some(100_000)), (30, Some(100_000)), (35, Some(50_000)), (39, Some(10_000))]
        {
            assert_eq!(extra(seconds, &config), left, "after {seconds} s");
        }
        assert_eq!(extra(40, &config), None);
        assert_eq!(extra(30, &PodConfig { decay_seconds: 0, ..config }), None, "at once, if that is asked for");
    }

    #[test]
    fn a_new_one_has_no_age_before_its_first_tick_is_over() {
        let mut boost = Boost { age_usec: 0, is_fresh: true };
        boost.age(700_000);
        assert_eq!(boost.age_usec, 0);
        boost.age(1_000_000);
        assert_eq!(boost.age_usec, 1_000_000);
    }

    proptest! {
        #[test]
        fn it_never_grows_with_age(base: u64, percent: u64, seconds: u64, decay_seconds: u64, ages: [u64; 2]) {
            let config = PodConfig { percent, seconds, decay_seconds };
            let [young, old] = [ages[0].min(ages[1]), ages[0].max(ages[1])]
                .map(|age_usec| Boost { age_usec, is_fresh: false }.extra(base, &config));
            prop_assert!(young >= old, "{young:?} {old:?}");
        }
    }
}
