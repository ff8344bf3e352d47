//! State kept between evaluations, and saved across restarts of the module.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::CpuSet;
use crate::verdict::Condition;

/// Layout that this version writes; other layouts are refused.
const VERSION: u32 = 1;

/// State kept between evaluations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The CPUs that were chosen last.
    pub chosen: Option<CpuSet>,
    /// When the CPU of batch pods last grew, on the clock of `now`.
    pub risen_at_usec: Option<u64>,
    /// When pressure last reduced it.
    pub cut_at_usec: Option<u64>,
    /// When a latency-sensitive pod was last short of CPU; `None` if a full calm period has passed since.
    pub pressed_at_usec: Option<u64>,
    /// Conditions that were reported as begun and have not ended.
    pub lasting: BTreeSet<Condition>,
}

#[derive(Serialize, Deserialize)]
struct Saved<T> {
    version: u32,
    state: T,
}

impl State {
    /// Serializes the state; always less than 64 KiB.
    pub fn save(&self) -> Vec<u8> {
        serde_json::to_vec(&Saved { version: VERSION, state: self }).unwrap_or_default()
    }

    /// Reads what [`State::save`] wrote; empty bytes give a fresh state.
    ///
    /// # Errors
    ///
    /// Fails if the bytes cannot be read or have another layout. Start with a fresh state then; only the pace of the next steps is lost.
    pub fn restore(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let saved: Saved<Self> =
            serde_json::from_slice(bytes).map_err(|error| format!("the saved state cannot be read: {error}"))?;
        match saved.version {
            VERSION => Ok(saved.state),
            version => Err(format!("the saved state is of layout {version}, this version reads {VERSION}")),
        }
    }

    /// Moves timestamps that lie in the future to `now_usec`, so that a restarted clock does not block steps forever.
    pub(crate) fn heed_clock(&mut self, now_usec: u64) {
        for at in [&mut self.risen_at_usec, &mut self.cut_at_usec, &mut self.pressed_at_usec] {
            *at = at.map(|at| at.min(now_usec));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_saved_is_what_is_restored() {
        let state = State {
            chosen: Some(CpuSet::parse("0-3,8").unwrap()),
            risen_at_usec: Some(u64::MAX),
            cut_at_usec: Some(0),
            pressed_at_usec: None,
            lasting: [Condition::NoCpus, Condition::NoCpuset].into(),
        };
        assert_eq!(State::restore(&state.save()), Ok(state));
        assert_eq!(State::restore(&[]), Ok(State::default()));
    }

    #[test]
    fn another_layout_is_refused() {
        for bytes in
            [&b"{"[..], b"[]", br#"{"version": 1}"#, br#"{"version": 1, "state": {"chosen": "3-1", "lasting": []}}"#]
        {
            assert!(State::restore(bytes).is_err(), "{bytes:?}");
        }
        let error = State::restore(br#"{"version": 2, "state": {"lasting": []}}"#).unwrap_err();
        insta::assert_snapshot!(error, @"the saved state is of layout 2, this version reads 1");
    }

    #[test]
    fn a_clock_that_began_anew_is_heeded() {
        let mut state = State { risen_at_usec: Some(9), cut_at_usec: Some(3), ..State::default() };
        state.heed_clock(5);
        assert_eq!((state.risen_at_usec, state.cut_at_usec, state.pressed_at_usec), (Some(5), Some(3), None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = State::restore(&bytes);
        }
    }
}
