//! Background reclaim for kernels without `memory.wmark_ratio`: emulates in user space, through `memory.reclaim`, what
//! Alibaba's kernels do.
//!
//! This module has the arithmetic; [`reclaimer`] schedules the groups and interprets the kernel's answers, without a
//! clock or a file; [`worker`] is the thread that reclaims on a real kernel, and the simulation reclaims in memory.
//! [`lower`] lowers `memory.high` below current use without a stall.
//!
//! Sources: Alibaba Cloud Linux' manual pages on backend asynchronous reclaim and on the global minimum watermark rating; Linux
//! `Documentation/admin-guide/cgroup-v2.rst` on `memory.reclaim`.

use qosm_model::unit::Bytes;

pub(crate) mod lower;
pub(crate) mod reclaimer;
pub(crate) mod worker;

/// The reclaim settings of a group, as in the kernel's three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watermarks {
    /// `memory.wmark_ratio`: percent of the limit at which reclaim starts; 0 for off.
    pub(crate) ratio: u8,
    /// `memory.wmark_scale_factor`: amount to reclaim from there, in ten-thousandths of the limit.
    pub(crate) scale: u16,
    /// `memory.wmark_min_adj`: percent by which reclaim starts earlier (above 0) or later when the node itself runs short.
    pub(crate) min_adj: i8,
}

impl Default for Watermarks {
    /// The settings of a new cgroup.
    fn default() -> Self {
        Self { ratio: 0, scale: 50, min_adj: 0 }
    }
}

/// The sizes between which a group's memory is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levels {
    /// Reclaim starts at this size.
    pub(crate) high: Bytes,
    /// Reclaim ends at this size.
    pub(crate) low: Bytes,
}

/// Part of a NUMA node's memory, as a divisor. Free memory less than this part above the watermarks counts as near:
/// about what processes may allocate between two polls.
const MARGIN: u64 = 32;

/// How near the node's free memory is to its watermarks, in thousandths: 0 for far, 1000 at the high watermark, where kswapd stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Nearness(u16);

/// Free pages of a NUMA node and its watermarks, summed over its zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreePages {
    /// Free pages.
    pub free: u64,
    /// Min watermark: below it, allocations wait for reclaim.
    pub min: u64,
    /// Low watermark: below it, kswapd reclaims from every group alike.
    pub low: u64,
    /// High watermark, where kswapd stops.
    pub high: u64,
    /// All pages that the allocator manages.
    pub managed: u64,
}

impl Nearness {
    const MAX: u64 = 1000;

    /// Rises from 0 at a [`MARGIN`] above `high` to the maximum at `high`, where kswapd stops: so groups that should be
    /// reclaimed earlier are, before kswapd wakes and reclaims from all groups.
    fn of(pages: FreePages) -> Self {
        let FreePages { free, min, low: _, high, managed } = pages;
        let far = high.saturating_add((managed / MARGIN).max(high.saturating_sub(min)));
        let near = if free <= high {
            Self::MAX
        } else if free >= far {
            0
        } else {
            (far - free).saturating_mul(Self::MAX) / (far - high)
        };
        Self(u16::try_from(near).unwrap_or(1000))
    }

    /// Nearness of the NUMA node that is nearest to its watermarks: each node has its own kswapd, which ignores the other nodes. A node
    /// without memory, which `/proc/zoneinfo` lists as well, has none to run short of.
    pub(crate) fn of_nodes(nodes: &[FreePages]) -> Self {
        let with_memory = nodes.iter().filter(|node| node.managed > 0 || node.free > 0);
        with_memory.map(|node| Self::of(*node)).max().unwrap_or_default()
    }

    pub(crate) fn is_far(self) -> bool {
        self.0 == 0
    }
}

impl Watermarks {
    /// Whether these settings require any reclaim.
    pub(crate) fn is_on(self) -> bool {
        self.ratio > 0 || self.min_adj > 0
    }

    /// The levels for a group with a limit. `limit` is the smaller of `memory.high` and `memory.max`; `None` without a
    /// limit or at a ratio of 0.
    ///
    /// ```text
    /// high = limit × ratio / 100
    /// low  = high − limit × scale / 10000
    /// ```
    ///
    /// The kernel moves a group's share of the *node's* watermarks by `min_adj`; in user space only the group's own
    /// levels can move. When the node's free memory is at its watermark, they fall by `min_adj` percent, or rise by
    /// that percentage of the distance to the limit; proportionally less when free memory is farther away, and not at
    /// all while it is plentiful.
    pub(crate) fn levels(self, limit: Option<Bytes>, near: Nearness) -> Option<Levels> {
        let limit = u128::from(limit?.0);
        if self.ratio == 0 {
            return None;
        }
        let start = limit * u128::from(self.ratio) / 100;
        let share = u128::from(self.min_adj.unsigned_abs()) * u128::from(near.0);
        let whole = 100 * u128::from(Nearness::MAX);
        let high = if self.min_adj > 0 {
            start.saturating_sub(start * share / whole)
        } else {
            start + limit.saturating_sub(start) * share / whole
        };
        Some(self.from(high, limit))
    }

    /// The levels for a group without its own limit: usage of an ancestor with this limit, or of the node with this
    /// memory, at which the group is reclaimed. `None` at a ratio of 0.
    ///
    /// ```text
    /// high = limit × ratio / 100, moved by min_adj percent of what is left from there to the limit
    /// low  = high − limit × scale / 10000
    /// ```
    ///
    /// So among several such groups under one limit, those with the largest `min_adj` are reclaimed first, and the
    /// others only if that was not enough.
    pub(crate) fn levels_above(self, limit: Bytes) -> Option<Levels> {
        if self.ratio == 0 {
            return None;
        }
        let limit = u128::from(limit.0);
        let start = limit * u128::from(self.ratio) / 100;
        let shift = limit.saturating_sub(start) * u128::from(self.min_adj.unsigned_abs()) / 100;
        let high = if self.min_adj > 0 { start.saturating_sub(shift) } else { start + shift };
        Some(self.from(high, limit))
    }

    fn from(self, high: u128, limit: u128) -> Levels {
        let low = high.saturating_sub(limit * u128::from(self.scale) / 10_000);
        let bytes = |size: u128| Bytes(u64::try_from(size).unwrap_or(u64::MAX));
        Levels { high: bytes(high), low: bytes(low) }
    }

    /// Whether a group without any bound is reclaimed because the node runs short: only with `min_adj` above 0, which
    /// sets how early; at 50, as soon as free memory comes near the watermarks. For other groups the kernel's own
    /// reclaim is early enough.
    pub(crate) fn reclaims_for_node(self, near: Nearness) -> bool {
        let percent = u16::from(self.min_adj.unsigned_abs()).min(50);
        self.min_adj > 0 && u64::from(near.0) > Nearness::MAX - Nearness::MAX * u64::from(percent) / 50
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAR: Nearness = Nearness(0);
    const NEAR: Nearness = Nearness(1000);

    fn levels(limit: u64, ratio: u8, scale: u16, min_adj: i8, near: Nearness) -> Option<(u64, u64)> {
        let levels = Watermarks { ratio, scale, min_adj }.levels(Some(Bytes(limit)), near)?;
        Some((levels.high.0, levels.low.0))
    }

    #[test]
    fn levels_are_those_of_the_kernel() {
        for (limit, ratio, scale, expected) in [
            // The published example: `memory.high` is 80 % of 100 MiB.
            (83_886_080, 95, 20, Some((79_691_776, 79_524_004))),
            (83_886_080, 95, 50, Some((79_691_776, 79_272_346))),
            (1 << 30, 100, 1000, Some((1 << 30, 966_367_642))),
            (1 << 30, 1, 1000, Some((10_737_418, 0))),
            (0, 95, 20, Some((0, 0))),
            (1 << 30, 0, 20, None),
        ] {
            assert_eq!(levels(limit, ratio, scale, 0, FAR), expected, "{limit} {ratio} {scale}");
        }
        assert_eq!(Watermarks { ratio: 95, ..Watermarks::default() }.levels(None, FAR), None);
    }

    #[test]
    fn be_comes_earlier_and_ls_later_as_the_node_runs_short() {
        for (adj, near, high) in [
            (50, FAR, 950),
            (50, Nearness(500), 713),
            (50, NEAR, 475),
            (-25, FAR, 950),
            (-25, Nearness(500), 956),
            (-25, NEAR, 962),
            (0, NEAR, 950),
        ] {
            assert_eq!(levels(1000, 95, 20, adj, near), Some((high, high - 2)), "{adj} {near:?}");
        }
    }

    #[test]
    fn nearness_begins_before_kswapd_does() {
        let node = |free, managed| FreePages { free, min: 60, low: 80, high: 100, managed };
        for (free, near) in [(1000, 0), (140, 0), (139, 25), (120, 500), (101, 975), (100, 1000), (60, 1000), (0, 1000)]
        {
            assert_eq!(Nearness::of(node(free, 0)), Nearness(near), "{free}");
        }
        assert_eq!(Nearness::of(node(300, 12_800)), Nearness(500), "a large node is near from afar");
        assert_eq!(Nearness::of_nodes(&[node(1000, 0), node(120, 0)]), Nearness(500), "the shortest counts");
        assert_eq!(Nearness::of_nodes(&[node(1000, 0), FreePages::default()]), Nearness(0), "one has no memory");
        assert_eq!(Nearness::of(FreePages::default()), NEAR, "no watermarks and nothing free");
    }

    #[test]
    fn without_a_limit_of_its_own_a_group_goes_by_those_above_be_before_ls() {
        for (ratio, scale, adj, expected) in [
            (95, 20, 50, Some((925, 923))),
            (95, 20, 0, Some((950, 948))),
            (95, 20, -25, Some((962, 960))),
            (100, 20, 50, Some((1000, 998))),
            (0, 20, 50, None),
        ] {
            let levels = Watermarks { ratio, scale, min_adj: adj }.levels_above(Bytes(1000));
            assert_eq!(levels.map(|levels| (levels.high.0, levels.low.0)), expected, "{ratio} {scale} {adj}");
        }
    }

    #[test]
    fn be_pays_for_the_node_the_earlier_the_larger_its_min_adj() {
        for (adj, near, pays) in [
            (50, FAR, false),
            (50, Nearness(1), true),
            (25, Nearness(500), false),
            (25, Nearness(501), true),
            (1, Nearness(980), false),
            (1, NEAR, true),
            (0, NEAR, false),
            (-25, NEAR, false),
        ] {
            let watermarks = Watermarks { ratio: 95, scale: 20, min_adj: adj };
            assert_eq!(watermarks.reclaims_for_node(near), pays, "{adj} {near:?}");
        }
    }

    proptest! {
        #[test]
        fn levels_lie_below_the_limit_and_rise_with_the_ratio(
            limit in 0..=u64::MAX, ratio in 1..=99_u8, scale in 1..=1000_u16, adj in -25..=50_i8, near in 0..=1000_u16,
        ) {
            let near = Nearness(near);
            let (high, low) = levels(limit, ratio, scale, adj, near).unwrap();
            prop_assert!(low <= high && high <= limit);
            let (more_high, more_low) = levels(limit, ratio + 1, scale, adj, near).unwrap();
            prop_assert!(more_high >= high && more_low >= low);
        }

        #[test]
        fn nearer_means_earlier_for_be_and_later_for_ls(
            limit in 0..=u64::MAX, adj in 1..=25_i8, near in 0..1000_u16,
        ) {
            let at = |adj, near| levels(limit, 95, 20, adj, Nearness(near)).unwrap().0;
            prop_assert!(at(adj, near + 1) <= at(adj, near));
            prop_assert!(at(-adj, near + 1) >= at(-adj, near));
        }
    }
}
