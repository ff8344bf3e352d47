//! RMIDs: the free ones, and those in limbo until no cache has their lines.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustix::io::Errno;

/// An RMID, which identifies a group's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rmid(pub(crate) u32);

/// The free RMIDs, the first freed in front, and those in limbo (`fs/resctrl/monitor.c`).
#[derive(Clone, Debug)]
pub(crate) struct Rmids {
    free: VecDeque<Rmid>,
    limbo: BTreeMap<Rmid, BTreeSet<u32>>,
}

impl Rmids {
    /// Creates the RMIDs; all are free except the first, which is the root's.
    pub(crate) fn new(count: u32) -> Self {
        Self { free: (1..count).map(Rmid).collect(), limbo: BTreeMap::new() }
    }

    /// Takes the RMID that has been free for longest.
    ///
    /// # Errors
    ///
    /// `EBUSY` while some RMIDs are in limbo, otherwise `ENOSPC`.
    pub(crate) fn take(&mut self) -> Result<Rmid, Errno> {
        let none = if self.limbo.is_empty() { Errno::NOSPC } else { Errno::BUSY };
        self.free.pop_front().ok_or(none)
    }

    /// Returns an RMID: it is free when it has left the caches of the given domains, at once without domains.
    pub(crate) fn give_back(&mut self, rmid: Rmid, domains: BTreeSet<u32>) {
        if domains.is_empty() {
            self.free.push_back(rmid);
        } else {
            self.limbo.insert(rmid, domains);
        }
    }

    /// Checks which RMIDs in limbo still have lines in a cache, and frees the others.
    pub(crate) fn settle(&mut self, mut is_dirty: impl FnMut(Rmid, u32) -> bool) {
        for (&rmid, domains) in &mut self.limbo {
            domains.retain(|&domain| is_dirty(rmid, domain));
        }
        let clean: Vec<Rmid> = self.limbo.iter().filter(|(_, busy)| busy.is_empty()).map(|(&rmid, _)| rmid).collect();
        for rmid in clean {
            self.limbo.remove(&rmid);
            self.free.push_back(rmid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_freed_first_is_taken_first() {
        let mut rmids = Rmids::new(4);
        assert_eq!([rmids.take(), rmids.take(), rmids.take()], [Ok(Rmid(1)), Ok(Rmid(2)), Ok(Rmid(3))]);
        assert_eq!(rmids.take(), Err(Errno::NOSPC));
        rmids.give_back(Rmid(2), BTreeSet::new());
        rmids.give_back(Rmid(1), BTreeSet::new());
        assert_eq!([rmids.take(), rmids.take()], [Ok(Rmid(2)), Ok(Rmid(1))]);
    }

    #[test]
    fn one_in_limbo_is_free_when_the_last_cache_has_forgotten_it() {
        let mut rmids = Rmids::new(2);
        let rmid = rmids.take().unwrap();
        rmids.give_back(rmid, BTreeSet::from([0, 8]));
        assert_eq!(rmids.take(), Err(Errno::BUSY));
        rmids.settle(|_, domain| domain == 8);
        assert_eq!(rmids.take(), Err(Errno::BUSY));
        rmids.settle(|_, domain| domain == 0);
        assert_eq!(rmids.take(), Ok(rmid));
    }
}
