//! The saved state: which containers had their single migration, so that a restart of the agent does not repeat it. The format is a version
//! byte followed by 8 bytes per container, little-endian.

use crate::protocol::PodConfig;

/// Layout that this version writes; other layouts are refused.
const VERSION: u8 = 1;
/// Maximum number of digests that fit into what the host keeps.
const MAX: usize = (65_536 - 1) / 8;

/// Identifies one instance of a container together with its configuration: a 64-bit FNV-1a hash.
pub(crate) fn digest(pod_uid: &str, container: &str, identity: u64, config: &PodConfig) -> u64 {
    let interval = config.migrate_interval_minutes;
    let numbers = [identity.to_le_bytes(), interval.to_le_bytes()];
    let words = [pod_uid.as_bytes(), b"/", container.as_bytes(), b"/", &numbers[0], &numbers[1]];
    words
        .into_iter()
        .flatten()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The digest of a container that had no target when it was checked, and may be moved once it is pinned.
pub(crate) fn without_target(digest: u64) -> u64 {
    digest ^ u64::from_le_bytes(*b"untarget")
}

/// Serializes the digests. If there are too many, the first ones are left out.
pub(crate) fn encode(digests: &[u64]) -> Vec<u8> {
    let digests = &digests[digests.len().saturating_sub(MAX)..];
    let mut bytes = Vec::with_capacity(1 + digests.len() * 8);
    bytes.push(VERSION);
    bytes.extend(digests.iter().flat_map(|digest| digest.to_le_bytes()));
    bytes
}

/// Reads the digests; empty bytes give none. `None` if the bytes do not have this layout.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<u64>> {
    let Some((version, words)) = bytes.split_first() else { return Some(Vec::new()) };
    let (words, rest) = words.as_chunks::<8>();
    (*version == VERSION && rest.is_empty()).then(|| words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_of_this_layout_is_not_read() {
        for bytes in [&[2][..], &[1, 0], &[0; 9]] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
        assert_eq!(decode(&[]), Some(Vec::new()));
    }

    #[test]
    fn every_part_of_a_digest_counts() {
        let config = |minutes| PodConfig { policy: "bestEffort".into(), migrate_interval_minutes: minutes };
        let digests = [
            digest("u", "c", 1, &config(0)),
            digest("v", "c", 1, &config(0)),
            digest("u", "d", 1, &config(0)),
            digest("u", "c", 2, &config(0)),
            digest("u", "c", 1, &config(1)),
        ];
        for (place, digest) in digests.iter().enumerate() {
            assert!(!digests[..place].contains(digest), "{place}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(digests in proptest::collection::vec(any::<u64>(), 0..9_000)) {
            let read = decode(&encode(&digests)).unwrap_or_default();
            prop_assert!(digests.ends_with(&read));
            prop_assert_eq!(read.len(), digests.len().min(MAX));
            prop_assert!(encode(&digests).len() <= 65_536);
        }
    }
}
