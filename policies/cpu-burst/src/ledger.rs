//! What the policy holds, so that only changes are staged.

/// What is held on one knob of one target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Not known: an earlier instance of the policy may have left something.
    #[default]
    Unknown,
    /// Nothing.
    Free,
    /// This value.
    Held(u64),
}

/// What has to be staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Hold this value.
    Hold(u64),
    /// Give it up.
    Release,
}

impl Lease {
    /// Makes it what is wanted (`None` = hold nothing), and says what to stage for that.
    pub(crate) fn settle(&mut self, wanted: Option<u64>) -> Option<Change> {
        match (*self, wanted) {
            (Self::Free, None) => None,
            (Self::Held(held), Some(wanted)) if held == wanted => None,
            (_, Some(wanted)) => {
                *self = Self::Held(wanted);
                Some(Change::Hold(wanted))
            }
            (_, None) => {
                *self = Self::Free;
                Some(Change::Release)
            }
        }
    }

    /// What is not known is taken for nothing: there is no group, or the column shows that nobody holds anything.
    pub(crate) fn assume_free(&mut self) {
        if *self == Self::Unknown {
            *self = Self::Free;
        }
    }

    /// Whether there may be something to give up.
    pub(crate) fn may_hold(self) -> bool {
        self != Self::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_staged() {
        let mut lease = Lease::default();
        for (wanted, change) in [
            (None, Some(Change::Release)),
            (None, None),
            (Some(5), Some(Change::Hold(5))),
            (Some(5), None),
            (Some(6), Some(Change::Hold(6))),
            (None, Some(Change::Release)),
        ] {
            assert_eq!(lease.settle(wanted), change);
        }
    }
}
