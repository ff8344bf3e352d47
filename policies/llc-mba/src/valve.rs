//! How much is taken of one share, step by step, and given back after a calm.

/// How things stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody suffers: take.
    Squeezed,
    /// Between the marks: leave it as it is.
    Between,
    /// Nobody suffers, or nobody counts it any more: give back in time.
    Calm,
}

/// Bounds of a valve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most that may be taken, in percentage points.
    pub(crate) most: u32,
    /// Taken or given back at a time.
    pub(crate) step: u32,
    /// Least time between two steps.
    pub(crate) step_usec: u64,
    /// Calm before a step is given back.
    pub(crate) calm_usec: u64,
}

/// What is taken at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Valve {
    taken: u32,
    /// Time since the last step; `None` = there was none.
    since_step_usec: Option<u64>,
    calm_usec: u64,
    /// What the last step was taken on.
    why: String,
}

impl Valve {
    /// One that goes on where another left off.
    pub(crate) fn taken(taken: u32) -> Self {
        Self { taken, why: "as before the restart".to_owned(), ..Self::default() }
    }

    /// How much is taken within these bounds.
    pub(crate) fn within(&self, most: u32) -> u32 {
        self.taken.min(most)
    }

    /// What the last step was taken on; empty when that is long ago and nothing is taken.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Lets a window pass that ended like this.
    pub(crate) fn turn(&mut self, verdict: Verdict, why: impl FnOnce() -> String, window_usec: u64, bounds: Bounds) {
        self.taken = self.taken.min(bounds.most);
        if self.taken == 0 {
            self.why.clear();
        }
        self.since_step_usec = self.since_step_usec.map(|since| since.saturating_add(window_usec));
        match verdict {
            Verdict::Squeezed => {
                self.calm_usec = 0;
                let may = self.since_step_usec.is_none_or(|since| since >= bounds.step_usec);
                if may && self.taken < bounds.most {
                    self.taken = self.taken.saturating_add(bounds.step).min(bounds.most);
                    self.since_step_usec = Some(0);
                    self.why = why();
                }
            }
            Verdict::Between => self.calm_usec = 0,
            Verdict::Calm => {
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

    fn play(valve: &mut Valve, verdicts: &[Verdict]) -> Vec<u32> {
        let mut taken = Vec::new();
        for verdict in verdicts {
            valve.turn(*verdict, || "seen".to_owned(), SECOND, BOUNDS);
            taken.push(valve.within(BOUNDS.most));
        }
        taken
    }

    #[test]
    fn it_takes_at_once_and_then_step_by_step_down_to_the_floor() {
        let taken = play(&mut Valve::default(), &[Verdict::Squeezed; 7]);
        assert_eq!(taken, [10, 10, 20, 20, 25, 25, 25]);
    }

    #[test]
    fn it_gives_back_after_a_calm_without_a_break() {
        use Verdict::{Between, Calm, Squeezed};
        let mut valve = Valve::default();
        let verdicts = [Squeezed, Calm, Calm, Between, Calm, Calm, Calm, Calm];
        assert_eq!(play(&mut valve, &verdicts), [10, 10, 10, 10, 10, 10, 0, 0]);
        assert_eq!(valve.why(), "", "long ago");
    }

    #[test]
    fn what_was_said_to_be_smaller_meanwhile_is_heard() {
        let mut valve = Valve::taken(60);
        assert_eq!(valve.within(20), 20);
        valve.turn(Verdict::Between, String::new, SECOND, Bounds { most: 5, ..BOUNDS });
        assert_eq!(valve.within(100), 5);
    }

    fn verdicts() -> impl Strategy<Value = Vec<Verdict>> {
        let one = prop_oneof![Just(Verdict::Squeezed), Just(Verdict::Between), Just(Verdict::Calm)];
        proptest::collection::vec(one, 0..80)
    }

    proptest! {
        #[test]
        fn never_more_than_may_be_and_all_comes_back(verdicts in verdicts(), most in 0..100_u32, step in 1..100_u32) {
            let bounds = Bounds { most, step, ..BOUNDS };
            let (mut one, mut other) = (Valve::default(), Valve::default());
            for verdict in verdicts {
                let before = one.within(most);
                one.turn(verdict, String::new, SECOND, bounds);
                other.turn(verdict, String::new, SECOND, bounds);
                let after = one.within(most);
                prop_assert!(after <= most && before.abs_diff(after) <= step);
                prop_assert_eq!(&one, &other, "the same for the same");
            }
            // A step for each three seconds of calm.
            for _ in 0..3 * (most / step + 1) {
                one.turn(Verdict::Calm, String::new, SECOND, bounds);
            }
            prop_assert_eq!(one.within(most), 0);
        }
    }
}
