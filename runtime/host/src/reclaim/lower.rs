//! Lowering a bound below current use. Written at once, the kernel would reclaim all of the difference in the writer, and hold up
//! every process of the group that allocates meanwhile.

use std::io;

use qosm_model::unit::Bytes;

/// In about so many parts the bound comes down.
const PARTS: u64 = 16;
/// None smaller than this.
const LEAST: u64 = 1 << 20;

/// A group whose bound is to be lowered.
pub(crate) trait Lowered {
    /// Memory in use.
    fn usage(&mut self) -> io::Result<Bytes>;
    /// Writes `memory.reclaim`; any error where there is no such file.
    fn reclaim(&mut self, amount: Bytes) -> io::Result<()>;
    /// Writes the bound.
    fn bound(&mut self, bound: Bytes) -> io::Result<()>;
}

/// First the memory is reclaimed, in parts and while the old bound still stands, so that nobody is throttled for it. What cannot
/// be had that way (it is in use, or grows as fast) is left to the bound, which follows in steps and in any case ends at `to`.
///
/// # Errors
///
/// What the kernel answers to a write of the bound.
pub(crate) fn lower(group: &mut impl Lowered, to: Bytes) -> io::Result<()> {
    let Ok(mut usage) = group.usage() else { return group.bound(to) };
    let part = (usage.0.saturating_sub(to.0) / PARTS).max(LEAST);
    for _ in 0..2 * PARTS {
        let above = usage.0.saturating_sub(to.0);
        if above == 0 || group.reclaim(Bytes(above.min(part))).is_err() {
            break;
        }
        usage = group.usage()?;
    }
    let mut bound = group.usage()?.0;
    while bound > to.0.saturating_add(part) {
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
        usage: u64,
        fixed: u64,
        reclaims: usize,
        bounds: Vec<u64>,
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
        fn bound(&mut self, bound: Bytes) -> io::Result<()> {
            self.bounds.push(bound.0 / MIB);
            Ok(())
        }
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
            let mut toy = Toy { usage: usage * MIB, fixed: fixed * MIB, reclaims: 0, bounds: Vec::new() };
            lower(&mut toy, Bytes(to * MIB)).unwrap();
            assert_eq!((toy.reclaims, toy.bounds), (reclaims, bounds), "{usage} {fixed} {to}");
        }
    }
}
