//! Reduces one share step by step, and gives the steps back after a calm.

/// How much latency-sensitive containers suffer from BE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PressureLevel {
    /// Latency-sensitive containers suffer: take a step.
    High,
    /// Between the two thresholds: no change.
    Normal,
    /// No container suffers, or it is not counted any more: give back after some time.
    Low,
}

/// The limits of a stepper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum reduction, in percentage points.
    pub(crate) most: u32,
    /// Size of a step, in percentage points.
    pub(crate) step: u32,
    /// Minimum time between two steps, in microseconds.
    pub(crate) step_usec: u64,
    /// Time in microseconds for which the pressure has to be low before a step is given back.
    pub(crate) calm_usec: u64,
}

/// The current reduction of a share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stepper {
    taken: u32,
    /// Time since the last step, in microseconds; `None` if there was none.
    since_step_usec: Option<u64>,
    calm_usec: u64,
    /// Reason of the last step.
    why: String,
}

impl Stepper {
    /// Continues with the reduction of an earlier instance.
    pub(crate) fn taken(taken: u32) -> Self {
        Self { taken, why: "as before the restart".to_owned(), ..Self::default() }
    }

    /// The current reduction, limited to `most`.
    pub(crate) fn within(&self, most: u32) -> u32 {
        self.taken.min(most)
    }

    /// Reason of the last step; empty if nothing is taken and the last step is older than this window.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Processes a window that ended with this pressure level.
    pub(crate) fn update(
        &mut self,
        level: PressureLevel,
        why: impl FnOnce() -> String,
        window_usec: u64,
        bounds: Bounds,
    ) {
        self.taken = self.taken.min(bounds.most);
        if self.taken == 0 {
            self.why.clear();
        }
        self.since_step_usec = self.since_step_usec.map(|since| since.saturating_add(window_usec));
        match level {
            PressureLevel::High => {
                self.calm_usec = 0;
                let may = self.since_step_usec.is_none_or(|since| since >= bounds.step_usec);
                if may && self.taken < bounds.most {
                    self.taken = self.taken.saturating_add(bounds.step).min(bounds.most);
                    self.since_step_usec = Some(0);
                    self.why = why();
                }
            }
            PressureLevel::Normal => self.calm_usec = 0,
            PressureLevel::Low => {
                self.calm_usec = self.calm_usec.saturating_add(window_usec);
                if self.taken > 0 && self.calm_usec >= bounds.calm_usec {
                    self.taken = self.taken.saturating_sub(bounds.step);
                    self.since_step_usec = Some(0);
                    self.why = format!("calm for {} s, {}", self.calm_usec / 1_000_000, why());
                    self.calm_usec = 0;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const BOUNDS: Bounds = Bounds { most: 25, step: 10, step_usec: 2 * SECOND, calm_usec: 3 * SECOND };

    fn play(stepper: &mut Stepper, levels: &[PressureLevel]) -> Vec<u32> {
        let mut taken = Vec::new();
        for level in levels {
            stepper.update(*level, || "seen".to_owned(), SECOND, BOUNDS);
            taken.push(stepper.within(BOUNDS.most));
        }
        taken
    }

    #[test]
    fn it_takes_at_once_and_then_step_by_step_down_to_the_floor() {
        let taken = play(&mut Stepper::default(), &[PressureLevel::High; 7]);
        assert_eq!(taken, [10, 10, 20, 20, 25, 25, 25]);
    }

    #[test]
    fn it_gives_back_after_a_calm_without_a_break() {
        use PressureLevel::{High, Low, Normal};
        let mut stepper = Stepper::default();
        let levels = [High, Low, Low, Normal, Low, Low, Low, Low];
        assert_eq!(play(&mut stepper, &levels), [10, 10, 10, 10, 10, 10, 0, 0]);
        assert_eq!(stepper.why(), "", "long ago");
    }

    #[test]
    fn what_was_said_to_be_smaller_meanwhile_is_heard() {
        let mut stepper = Stepper::taken(60);
        assert_eq!(stepper.within(20), 20);
        stepper.update(PressureLevel::Normal, String::new, SECOND, Bounds { most: 5, ..BOUNDS });
        assert_eq!(stepper.within(100), 5);
    }

    fn levels() -> impl Strategy<Value = Vec<PressureLevel>> {
        let one = prop_oneof![Just(PressureLevel::High), Just(PressureLevel::Normal), Just(PressureLevel::Low)];
        proptest::collection::vec(one, 0..80)
    }

    proptest! {
        #[test]
        fn never_more_than_may_be_and_all_comes_back(levels in levels(), most in 0..100_u32, step in 1..100_u32) {
            let bounds = Bounds { most, step, ..BOUNDS };
            let (mut one, mut other) = (Stepper::default(), Stepper::default());
            for level in levels {
                let before = one.within(most);
                one.update(level, String::new, SECOND, bounds);
                other.update(level, String::new, SECOND, bounds);
                let after = one.within(most);
                prop_assert!(after <= most && before.abs_diff(after) <= step);
                prop_assert_eq!(&one, &other, "the same for the same");
            }
            // One step is given back every three seconds of calm.
            for _ in 0..3 * (most / step + 1) {
                one.update(PressureLevel::Low, String::new, SECOND, bounds);
            }
            prop_assert_eq!(one.within(most), 0);
        }
    }
}
