//! Formats reasons: short, with the numbers that a value was computed from.

use std::fmt;

/// An amount of bytes, formatted in the largest binary unit that divides it, so that nothing is rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size(u128);

impl<T: Into<u128>> From<T> for Size {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|(shift, _)| self.0 != 0 && self.0.trailing_zeros() >= *shift) {
            Some((shift, unit)) => write!(f, "{} {unit}", self.0 >> shift),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// The parts of a reason, joined by semicolons.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reason(String);

impl Reason {
    /// Adds a part.
    pub(crate) fn add(&mut self, part: &str) {
        if !self.0.is_empty() {
            self.0.push_str("; ");
        }
        self.0.push_str(part);
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (bytes, text) in [
            (0_u64, "0 B"),
            (1, "1 B"),
            (1024, "1 KiB"),
            (104_857_600, "100 MiB"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1536 MiB"),
            (1 << 40, "1 TiB"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(Size::from(bytes).to_string(), text);
        }
    }

    #[test]
    fn parts_are_joined() {
        let mut reason = Reason::default();
        assert_eq!(reason.clone().into_text(), "");
        reason.add("a");
        reason.add("b");
        assert_eq!(reason.into_text(), "a; b");
    }
}
