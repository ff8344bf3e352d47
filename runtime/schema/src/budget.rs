//! What work on one document may cost.

use std::cell::Cell;

/// Steps that are left for a piece of work. A step is about the cost of reading one small JSON value.
///
/// It counts steps and not time, so that the same document is taken or refused on each machine, however busy it is.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    left: Cell<u64>,
}

/// A piece of work would cost more steps than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("checking it against the schema takes more than {most} steps")]
pub struct Spent {
    /// What the work may cost.
    pub most: u64,
}

impl Budget {
    /// A budget of `steps`.
    pub fn of(steps: u64) -> Self {
        Self { most: steps, left: Cell::new(steps) }
    }

    /// Takes steps from the budget. Once it is spent it stays so.
    ///
    /// # Errors
    ///
    /// [`Spent`] when fewer are left.
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

    /// The steps that were taken.
    pub fn used(&self) -> u64 {
        self.most - self.left.get()
    }

    pub(crate) fn spent(&self) -> Spent {
        Spent { most: self.most }
    }
}
