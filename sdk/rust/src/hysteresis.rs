//! A switch that does not flutter.

/// A switch with two thresholds and two times: it goes on after a value has been at `on_at` or above for so long, and off after it has
/// been at `off_at` or below for so long. In between nothing changes, and waiting begins anew.
///
/// Time is what the windows come to; the window in which a value was measured counts as time at that value.
///
/// ```
/// use qosm_sdk::Hysteresis;
///
/// // On after 2 s at 80 % or more, off after 1 s at 60 % or less.
/// let mut is_busy = Hysteresis::new(80, 60).on_after(2_000_000).off_after(1_000_000);
/// let percents = [85, 70, 85, 90, 70, 61, 60];
/// let states = percents.map(|percent| is_busy.add(percent, 1_000_000));
/// assert_eq!(states, [false, false, false, true, true, true, false]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hysteresis {
    on_at: u64,
    off_at: u64,
    on_after_usec: u64,
    off_after_usec: u64,
    is_on: bool,
    /// How long the value has been where the switch would change.
    waited_usec: u64,
}

impl Hysteresis {
    /// Is off, and changes at once. Thresholds the wrong way round count as both being `on_at`: there is then no range in which nothing
    /// changes.
    ///
    /// ```
    /// let mut switch = qosm_sdk::Hysteresis::new(10, 5);
    /// assert_eq!([9, 10, 6, 5].map(|value| switch.add(value, 1)), [false, true, true, false]);
    /// ```
    pub fn new(on_at: u64, off_at: u64) -> Self {
        let off_at = off_at.min(on_at);
        Self { on_at, off_at, on_after_usec: 0, off_after_usec: 0, is_on: false, waited_usec: 0 }
    }

    /// How long a value must be high before the switch goes on.
    ///
    /// ```
    /// let mut switch = qosm_sdk::Hysteresis::new(10, 5).on_after(1_500_000);
    /// assert!(!switch.add(10, 1_000_000));
    /// assert!(switch.add(10, 1_000_000));
    /// ```
    #[must_use]
    pub fn on_after(mut self, usec: u64) -> Self {
        self.on_after_usec = usec;
        self
    }

    /// How long a value must be low before the switch goes off.
    ///
    /// ```
    /// let mut switch = qosm_sdk::Hysteresis::new(10, 5).off_after(1_500_000);
    /// switch.add(10, 1_000_000);
    /// assert!(switch.add(5, 1_000_000));
    /// assert!(!switch.add(5, 1_000_000));
    /// ```
    #[must_use]
    pub fn off_after(mut self, usec: u64) -> Self {
        self.off_after_usec = usec;
        self
    }

    /// Takes what was measured over the window that ends now, and says whether the switch is on. At thresholds that are the same, the
    /// value itself counts as high while the switch is off, and as low while it is on.
    ///
    /// ```
    /// let mut switch = qosm_sdk::Hysteresis::new(80, 60);
    /// assert!(switch.add(95, 1_000_000));
    /// ```
    pub fn add(&mut self, value: u64, window_usec: u64) -> bool {
        let (changes, after) = if self.is_on {
            (value <= self.off_at, self.off_after_usec)
        } else {
            (value >= self.on_at, self.on_after_usec)
        };
        self.waited_usec = if changes { self.waited_usec.saturating_add(window_usec) } else { 0 };
        if changes && self.waited_usec >= after {
            self.is_on = !self.is_on;
            self.waited_usec = 0;
        }
        self.is_on
    }

    /// Whether it is on.
    ///
    /// ```
    /// assert!(!qosm_sdk::Hysteresis::new(80, 60).is_on());
    /// ```
    pub fn is_on(&self) -> bool {
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waiting_begins_anew_in_between() {
        let mut switch = Hysteresis::new(10, 5).on_after(3).off_after(3);
        let values = [10, 10, 7, 10, 10, 10, 5, 5, 6, 5, 5, 5];
        let on = values.map(|value| switch.add(value, 1));
        assert_eq!(on, [false, false, false, false, false, true, true, true, true, true, true, false]);
    }

    proptest! {
        #[test]
        fn it_changes_only_after_its_time(
            thresholds: (u8, u8), after in (0..5_u64, 0..5_u64), values in proptest::collection::vec(any::<(u8, bool)>(), 0..60),
        ) {
            let (on_at, off_at) = (u64::from(thresholds.0), u64::from(thresholds.0.min(thresholds.1)));
            let mut switch = Hysteresis::new(on_at, off_at).on_after(after.0).off_after(after.1);
            // Time that the value has been high, and low, without a break.
            let (mut high, mut low) = (0, 0);
            for (value, is_long) in values {
                let (value, window, was_on) = (u64::from(value), u64::from(is_long) + 1, switch.is_on());
                high = if value >= on_at { high + window } else { 0 };
                low = if value <= off_at { low + window } else { 0 };
                match (was_on, switch.add(value, window)) {
                    (false, true) => prop_assert!(value >= on_at && high >= after.0),
                    (true, false) => prop_assert!(value <= off_at && low >= after.1),
                    (true, true) => prop_assert!(value > off_at || after.1 > 0),
                    (false, false) => prop_assert!(value < on_at || after.0 > 0),
                }
            }
        }
    }
}
