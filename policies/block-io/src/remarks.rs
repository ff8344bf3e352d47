//! Remarks by target, bounded in length.

use std::collections::BTreeMap;
use std::fmt;

use qosm_sdk::Target;

/// Maximum length of the remarks on one pod, a tier or the node, in bytes: the host bounds them per evaluation, and a pod's owner can write
/// any number of blocks.
const BYTES: usize = 1_500;

/// Settings that are not applied, by target; `None` = the node's devices.
pub type Remarks = BTreeMap<Option<Target>, Said>;

/// Reasons, sentence by sentence; those that do not fit are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    text: String,
    more: usize,
}

impl Said {
    /// Adds a reason. It is formatted only if there is room.
    pub fn add(&mut self, why: impl fmt::Display) {
        if self.more > 0 {
            self.more += 1;
            return;
        }
        let why = why.to_string();
        if self.text.is_empty() {
            self.text = why;
        } else if self.text.len() + why.len() > BYTES {
            self.more = 1;
        } else {
            self.text.push_str(". ");
            self.text.push_str(&why);
        }
    }

    /// Whether there is no reason.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        if self.more > 0 { write!(f, ". And {} more", self.more) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A sentence that counts how often it is formatted.
    struct Counted<'a>(&'a Cell<usize>);

    impl fmt::Display for Counted<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.set(self.0.get() + 1);
            f.write_str(&"x".repeat(98))
        }
    }

    #[test]
    fn what_no_longer_fits_is_counted_and_not_put_into_words() {
        let (written, mut said) = (Cell::new(0), Said::default());
        assert!(said.is_empty());
        for _ in 0..4_000 {
            said.add(Counted(&written));
        }
        let text = said.to_string();
        assert_eq!((written.get(), text.matches("x. ").count()), (16, 15));
        assert!(text.len() < BYTES + 20 && text.ends_with("x. And 3985 more"), "{text}");
    }

    #[test]
    fn the_first_is_said_however_long_it_is() {
        let mut said = Said::default();
        said.add("a".repeat(BYTES + 1));
        assert_eq!(said.to_string().len(), BYTES + 1);
    }
}
