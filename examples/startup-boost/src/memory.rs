//! What outlives the instance: how old the boosts are, by pod UID and container name, since ids do not outlive the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Layout that this version writes; another one is not read.
const VERSION: u32 = 1;

/// Ages of boosts in microseconds, by [`key`].
pub(crate) type Ages = BTreeMap<String, u64>;

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    ages: Ages,
}

/// Names a container beyond the life of its id.
pub(crate) fn key(pod_uid: &str, container: &str) -> String {
    format!("{pod_uid}/{container}")
}

/// # Errors
///
/// None that can be met: maps of text and numbers are JSON.
pub(crate) fn encode(ages: Ages) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&Saved { version: VERSION, ages }).map_err(|error| error.to_string())
}

/// Nothing saved is no boosts; `None` where the bytes are not of this layout.
pub(crate) fn decode(bytes: &[u8]) -> Option<Ages> {
    if bytes.is_empty() {
        return Some(Ages::new());
    }
    let saved: Saved = serde_json::from_slice(bytes).ok()?;
    (saved.version == VERSION).then_some(saved.ages)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn another_layout_is_not_read() {
        for text in ["{", "{}", r#"{"version": 2, "ages": {}}"#, r#"{"version": 1, "ages": {"a": -1}}"#] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(b""), Some(Ages::new()));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(ages: Ages) {
            prop_assert_eq!(decode(&encode(ages.clone()).unwrap()), Some(ages));
        }
    }
}
