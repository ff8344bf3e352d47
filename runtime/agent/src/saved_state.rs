//! State that modules save.

use qosm_engine::InheritedState;
use qosm_model::unit::Micros;

use crate::now::Now;

/// State that a module saved, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedState {
    /// The bytes; empty if the module saved nothing.
    pub bytes: Vec<u8>,
    /// Time since boot when it was saved; `None` if not known.
    pub at: Option<Micros>,
}

impl SavedState {
    /// State that is saved now.
    pub(crate) fn new(bytes: Vec<u8>, now: Now) -> Self {
        Self { bytes, at: now.uptime }
    }

    /// The state that an instance starting now inherits. Its age is unknown if it was saved in the future.
    pub(crate) fn inherited(&self, now: Now) -> InheritedState {
        let age = now.uptime.zip(self.at).and_then(|(now, then)| now.0.checked_sub(then.0));
        InheritedState { bytes: self.bytes.clone(), age: age.filter(|_| !self.bytes.is_empty()).map(Micros) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_where_both_moments_are_known_and_in_order() {
        for (at, uptime, age) in [
            (Some(5), Some(5), Some(0)),
            (Some(5), Some(65), Some(60)),
            (Some(6), Some(5), None),
            (None, Some(5), None),
            (Some(5), None, None),
        ] {
            let now = Now { uptime: uptime.map(Micros), ..Now::default() };
            let saved = SavedState { bytes: vec![1], at: at.map(Micros) };
            assert_eq!(saved.inherited(now), InheritedState { bytes: vec![1], age: age.map(Micros) });
        }
        let now = Now { uptime: Some(Micros(1)), ..Now::default() };
        assert_eq!(SavedState { bytes: vec![], at: now.uptime }.inherited(now), InheritedState::default());
        assert_eq!(SavedState::new(vec![1], now), SavedState { bytes: vec![1], at: Some(Micros(1)) });
    }
}
