//! The state that survives the instance: the ages of boosts by pod UID and container name, since ids do not survive the agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the layout; other versions are not read.
const VERSION: u32 = 1;

/// Ages of boosts in microseconds, by [`key`].
pub(crate) type Ages = BTreeMap<String, u64>;

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    ages: Ages,
}

/// A container's name that survives its id.
pub(crate) fn key(pod_uid: &str, container: &str) -> String {
    format!("{pod_uid}/{container}")
}

/// # Errors
///
/// None in practice: maps of text and numbers can be written as JSON.
pub(crate) fn encode(ages: Ages) -> Result<Vec<u8>, String> {
    serde_json::to_vec(&Saved { version: VERSION, ages }).map_err(|error| error.to_string())
}

/// No bytes mean no boosts; `None` if the bytes do not have this layout.
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
