//! Lowers a bound below current use. On a single write, the kernel would reclaim the whole difference in the writer,
//! and block every process of the group that allocates memory meanwhile.

use std::io;

use qosm_model::unit::Bytes;
use rustix::io::Errno;

use crate::backend::Beyond;

/// Approximate number of steps in which the bound is lowered.
const PARTS: u64 = 16;
/// Minimum size of a step, in bytes.
const MIN: u64 = 1 << 20;

/// A group whose bound is lowered.
pub(crate) trait Lowered {
    /// Memory in use.
    fn usage(&mut self) -> io::Result<Bytes>;
    /// Writes `memory.reclaim`; returns any error if the file does not exist.
    fn reclaim(&mut self, amount: Bytes) -> io::Result<()>;
    /// The bound in force; `None` if there is none.
    fn present(&mut self) -> io::Result<Option<Bytes>>;
    /// Writes the bound.
    fn bound(&mut self, bound: Bytes) -> io::Result<()>;
    /// Whether a newer value is waiting to be written, so that this one need not be reached.
    fn is_superseded(&self) -> bool {
        false
    }
}

/// Lowers a bound. First reclaims the memory in parts under the old bound, so that no process is throttled. For memory
/// that cannot be reclaimed (it is in use, or grows as fast), lowers the bound in steps until `to`, unless a newer
/// value supersedes it. A bound above which the kernel kills processes is never set below the memory in use: it falls
/// to one step above that, and stays where it is if it is lower already: it may be the kubelet's.
///
/// # Errors
///
/// The kernel's error for a write of the bound, and `EBUSY` if the bound has not reached `to`.
pub(crate) fn lower(group: &mut impl Lowered, to: Bytes, beyond: Beyond) -> io::Result<()> {
    let Ok(mut usage) = group.usage() else { return group.bound(to) };
    let part = (usage.0.saturating_sub(to.0) / PARTS).max(MIN);
    for _ in 0..2 * PARTS {
        if group.is_superseded() {
            return Ok(());
        }
        let above = usage.0.saturating_sub(to.0);
        if above == 0 || group.reclaim(Bytes(above.min(part))).is_err() {
            break;
        }
        usage = group.usage()?;
    }
    let mut bound = group.usage()?.0;
    if beyond == Beyond::Kills && bound > to.0 {
        let next = Bytes(bound.saturating_add(part));
        if !group.is_superseded() && group.present()?.is_none_or(|present| next < present) {
            group.bound(next)?;
        }
        return Err(Errno::BUSY.into());
    }
    while bound > to.0.saturating_add(part) {
        if group.is_superseded() {
            return Ok(());
        }
        bound -= part;
        group.bound(Bytes(bound))?;
    }
    group.bound(to)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    const MIB: u64 = 1 << 20;

    struct Toy {
        present: Option<u64>,
        usage: u64,
        fixed: u64,
        reclaims: usize,
        bounds: Vec<u64>,
        /// Number of bounds after which another value is written.
        patience: usize,
    }

    impl Lowered for Toy {
        fn usage(&mut self) -> io::Result<Bytes> {
            Ok(Bytes(self.usage))
        }
        fn reclaim(&mut self, amount: Bytes) -> io::Result<()> {
            self.reclaims += 1;
            let given = amount.0.min(self.usage.saturating_sub(self.fixed));
            self.usage -= given;
            if given < amount.0 { Err(Errno::AGAIN.into()) } else { Ok(()) }
        }
        fn present(&mut self) -> io::Result<Option<Bytes>> {
            Ok(self.present.map(|present| Bytes(present * MIB)))
        }
        fn bound(&mut self, bound: Bytes) -> io::Result<()> {
            self.bounds.push(bound.0 / MIB);
            Ok(())
        }
        fn is_superseded(&self) -> bool {
            self.bounds.len() >= self.patience
        }
    }

    fn toy(usage: u64, fixed: u64) -> Toy {
        let (usage, fixed) = (usage * MIB, fixed * MIB);
        Toy { present: None, usage, fixed, reclaims: 0, bounds: Vec::new(), patience: 99 }
    }

    #[test]
    fn the_bound_comes_down_only_as_fast_as_memory_does() {
        for (usage, fixed, to, reclaims, bounds) in [
            (100, 0, 20, 16, vec![20]),
            (100, 100, 20, 1, (20..=95).rev().step_by(5).collect()),
            (100, 60, 20, 9, (20..=55).rev().step_by(5).collect()),
            (10, 0, 20, 0, vec![20]),
            (22, 0, 20, 2, vec![20]),
        ] {
            let mut toy = toy(usage, fixed);
            lower(&mut toy, Bytes(to * MIB), Beyond::Throttles).unwrap();
            assert_eq!((toy.reclaims, toy.bounds), (reclaims, bounds), "{usage} {fixed} {to}");
        }
    }

    #[test]
    fn a_bound_above_which_the_kernel_kills_never_goes_below_what_is_in_use() {
        for (present, usage, fixed, to, bounds, is_done) in [
            (None, 100, 0, 20, vec![20], true),
            (None, 100, 100, 20, vec![105], false),
            (Some(106), 100, 100, 20, vec![105], false),
            // It would rise.
            (Some(102), 100, 100, 20, vec![], false),
            (None, 100, 60, 20, vec![65], false),
            (None, 10, 10, 20, vec![20], true),
        ] {
            let mut toy = Toy { present, ..toy(usage, fixed) };
            let lowered = lower(&mut toy, Bytes(to * MIB), Beyond::Kills);
            assert_eq!((toy.bounds, lowered.is_ok()), (bounds, is_done), "{usage} {fixed} {to}");
        }
    }

    #[test]
    fn a_superseded_bound_stops_where_it_is() {
        for (patience, reclaims, bounds) in [(0, 0, vec![]), (2, 1, vec![95, 90])] {
            let mut toy = Toy { patience, ..toy(100, 100) };
            lower(&mut toy, Bytes(20 * MIB), Beyond::Throttles).unwrap();
            assert_eq!((toy.reclaims, toy.bounds), (reclaims, bounds));
        }
    }
}
