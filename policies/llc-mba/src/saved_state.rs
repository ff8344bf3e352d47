//! The saved state: a JSON object with three numbers per domain, namely what is taken of BE's ways and of its bandwidth, and the largest
//! traffic seen.

use crate::throttle::SavedState;

/// Serializes the state; empty bytes if there is nothing to save.
pub(crate) fn encode(state: &SavedState) -> Vec<u8> {
    if state.is_empty() {
        return Vec::new();
    }
    serde_json::to_vec(state).unwrap_or_default()
}

/// Reads the state; `None` if the bytes cannot be read.
pub(crate) fn decode(bytes: &[u8]) -> Option<SavedState> {
    if bytes.is_empty() {
        return Some(SavedState::new());
    }
    serde_json::from_slice(bytes).ok()
}

/// Whether to save again: a step was taken, or the largest traffic grew by more than a tenth. Each save costs a write to the disk.
pub(crate) fn is_worth_saving(state: &SavedState, saved: &SavedState) -> bool {
    let zero = (0, 0, 0);
    let ids = state.keys().chain(saved.keys());
    ids.into_iter().any(|id| {
        let (cache, bandwidth, most) = state.get(id).copied().unwrap_or(zero);
        let (old_cache, old_bandwidth, old_most) = saved.get(id).copied().unwrap_or(zero);
        let grown = u128::from(most) * 10 > u128::from(old_most) * 11;
        (cache, bandwidth) != (old_cache, old_bandwidth) || grown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_reads_back() {
        for state in [SavedState::new(), SavedState::from([(0, (10, 20, 25_000)), (8, (0, 0, 1))])] {
            assert_eq!(decode(&encode(&state)), Some(state));
        }
        assert_eq!(decode(b"{]"), None);
    }

    #[test]
    fn a_step_is_news_and_a_little_more_traffic_is_not() {
        let with = |cache, bandwidth, most| SavedState::from([(0, (cache, bandwidth, most))]);
        for (now, news) in [
            (with(10, 20, 1_000), false),
            (with(10, 20, 1_100), false),
            (with(10, 20, 1_101), true),
            (with(10, 20, 500), false),
            (with(20, 20, 1_000), true),
            (with(10, 10, 1_000), true),
            (SavedState::new(), true),
        ] {
            assert_eq!(is_worth_saving(&now, &with(10, 20, 1_000)), news, "{now:?}");
        }
        assert!(is_worth_saving(&with(0, 0, 7), &SavedState::new()));
    }
}
