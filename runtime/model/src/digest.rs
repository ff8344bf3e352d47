//! Digests, which name modules and artefacts by their content.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// SHA-256 of some content, written as in OCI: `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The hexadecimal digits without `sha256:`.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `sha256:` followed by 64 lower-case hexadecimal digits")]
pub struct NotADigest(pub String);

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        text.strip_prefix("sha256:").and_then(Self::from_hex).ok_or_else(|| NotADigest(text.to_owned()))
    }
}

impl Digest {
    /// Parses what [`Self::hex`] returns.
    fn from_hex(digits: &str) -> Option<Self> {
        let digits = digits.as_bytes();
        let mut digest = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(*pair.first()?)? << 4 | nibble(*pair.last()?)?;
        }
        Some(Self(digest))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_back() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        for wrong in ["", "sha256:", "sha256:E3", &empty[7..], &empty.to_uppercase(), &format!("{empty}0")] {
            assert_eq!(wrong.parse::<Digest>(), Err(NotADigest(wrong.to_owned())));
        }
    }
}
