//! The saved state: the limiter's tokens, so that neither a restart of the agent nor an update of the module grants new ones. The format is
//! a version byte followed by 24 bytes per container: key, tokens, capacity, little-endian.

/// Layout that this version writes; other layouts are refused.
const VERSION: u8 = 1;
const ENTRY_BYTES: usize = 24;
/// Maximum number of entries that fit into what the host keeps.
const ENTRIES_MAX: usize = (65_536 - 1) / ENTRY_BYTES;

/// Tokens of one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// Key of the container: see [`key`].
    pub(crate) key: u64,
    /// Number of tokens.
    pub(crate) tokens: i64,
    /// Capacity of the bucket.
    pub(crate) capacity: i64,
}

/// Key of a container that stays valid across restarts: the 64-bit FNV-1a hash of the pod's UID and the container's name.
pub(crate) fn key(pod_uid: &str, container: &str) -> u64 {
    [pod_uid, "/", container]
        .into_iter()
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Serializes the tokens. If there are too many, the last ones are left out.
pub(crate) fn encode(tokens: &[Tokens]) -> Vec<u8> {
    let tokens = &tokens[..tokens.len().min(ENTRIES_MAX)];
    let mut bytes = Vec::with_capacity(1 + tokens.len() * ENTRY_BYTES);
    bytes.push(VERSION);
    for entry in tokens {
        bytes.extend_from_slice(&entry.key.to_le_bytes());
        bytes.extend_from_slice(&entry.tokens.to_le_bytes());
        bytes.extend_from_slice(&entry.capacity.to_le_bytes());
    }
    bytes
}

/// Reads the tokens; empty bytes give none. `None` if the bytes do not have this layout.
pub(crate) fn decode(bytes: &[u8]) -> Option<Vec<Tokens>> {
    let Some((version, entries)) = bytes.split_first() else { return Some(Vec::new()) };
    let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
    if *version != VERSION || !rest.is_empty() {
        return None;
    }
    entries
        .iter()
        .map(|entry| {
            let (words, _) = entry.as_chunks::<8>();
            let [key, tokens, capacity] = *words else { return None };
            let (tokens, capacity) = (i64::from_le_bytes(tokens), i64::from_le_bytes(capacity));
            let fits = capacity >= 0 && (-capacity..=capacity).contains(&tokens);
            fits.then_some(Tokens { key: u64::from_le_bytes(key), tokens, capacity })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_of_this_layout_is_not_read() {
        for bytes in [&[2][..], &[1, 0], &[0; 25], &[1; 24]] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
        let owes_more_than_possible = [Tokens { key: 1, tokens: -9, capacity: 8 }];
        assert_eq!(decode(&encode(&owes_more_than_possible)), None);
        assert_eq!(decode(&[]), Some(Vec::new()));
        assert_eq!(decode(&[1]), Some(Vec::new()));
    }

    #[test]
    fn it_never_outgrows_what_the_host_keeps() {
        let many: Vec<_> = (0..5_000).map(|key| Tokens { key, tokens: 0, capacity: 0 }).collect();
        assert!(encode(&many).len() <= 65_536);
    }

    #[test]
    fn containers_are_told_apart() {
        let keys = [key("a", "bc"), key("ab", "c"), key("a", "bd"), key("b", "bc")];
        assert!((1..keys.len()).all(|index| !keys[..index].contains(&keys[index])));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(entries: Vec<(u64, u32, i32)>) {
            let tokens: Vec<_> = entries
                .into_iter()
                .map(|(key, more, tokens)| {
                    let tokens = i64::from(tokens);
                    Tokens { key, tokens, capacity: tokens.abs() + i64::from(more) }
                })
                .collect();
            prop_assert_eq!(decode(&encode(&tokens)), Some(tokens));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
