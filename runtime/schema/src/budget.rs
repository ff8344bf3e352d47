//! Budget for the work on one document.

use std::cell::Cell;

/// The remaining steps for a piece of work. A step is about the cost of reading one small JSON value.
///
/// It counts steps and not time, so that the same document is accepted or refused on every machine, regardless of its load.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    left: Cell<u64>,
}

/// The error for work that would exceed its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("checking it against the schema takes more than {most} steps")]
pub struct Spent {
    /// The limit in steps.
    pub most: u64,
}

impl Budget {
    /// A budget of `steps`.
    pub fn of(steps: u64) -> Self {
        Self { most: steps, left: Cell::new(steps) }
    }

    /// Takes steps from the budget. A spent budget stays spent.
    ///
    /// # Errors
    ///
    /// [`Spent`] if fewer steps are left.
    pub fn charge(&self, steps: u64) -> Result<(), Spent> {
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                Err(self.spent())
            }
        }
    }

    /// The number of steps that were taken.
    pub fn used(&self) -> u64 {
        self.most - self.left.get()
    }

    pub(crate) fn spent(&self) -> Spent {
        Spent { most: self.most }
    }
}
