//! Ways of a cache: bit masks, and their computation from percentages.

use std::fmt;
use std::ops::Range;

use super::error::ResctrlError;

/// Ways of a cache, one bit each: the kernel's capacity bit mask (CBM). Printed like the kernel does, in hexadecimal without `0x`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mask(u64);

impl Mask {
    /// Creates a mask; bit 0 is the lowest way.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The mask as a number, with one bit for each way.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The ways from `ways.start` to `ways.end`, exclusive. Ways above the 64th do not exist.
    pub(crate) fn of_ways(ways: Range<u32>) -> Self {
        let below = |end: u32| 1_u64.checked_shl(end).map_or(u64::MAX, |bit| bit - 1);
        Self(below(ways.end) & !below(ways.start))
    }

    /// Number of ways.
    pub const fn ways(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the mask has no way. Kernels refuse an empty mask, unless `min_cbm_bits` is 0.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the ways are one run without holes: the only form that most Intel processors accept.
    pub const fn is_contiguous(self) -> bool {
        self.0 != 0 && (self.0 >> self.0.trailing_zeros()).trailing_ones() == self.0.count_ones()
    }

    /// The ways in both masks.
    pub const fn overlap(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The ways in either mask.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the mask contains every way of `other`.
    pub const fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Parses the kernel's format: hexadecimal digits, with optional white space around them. `None` for anything else,
    /// and for more than 64 ways.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_ascii();
        // `from_str_radix` would accept a sign.
        let is_hexadecimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hexadecimal { u64::from_str_radix(text, 16).ok().map(Self) } else { None }
    }

    /// Length of the lowest run, which the kernel compares with `min_cbm_bits`.
    pub(crate) fn first_run(self) -> u32 {
        self.runs().next().map_or(0, |run| run.end - run.start)
    }

    /// The runs of ways, lowest first.
    fn runs(self) -> impl Iterator<Item = Range<u32>> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let rest = self.0.checked_shr(from).filter(|&rest| rest != 0)?;
            let start = from + rest.trailing_zeros();
            from = start + (self.0 >> start).trailing_ones();
            Some(start..from)
        })
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A part of a cache in percent of its ways, from `start` to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PercentRange {
    start: u8,
    end: u8,
}

impl PercentRange {
    /// The whole cache.
    pub const WHOLE: Self = Self { start: 0, end: 100 };

    /// Creates a non-empty range within 0 and 100.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::PercentRange`] if it is empty or ends above 100.
    pub const fn new(start: u8, end: u8) -> Result<Self, ResctrlError> {
        if start < end && end <= 100 { Ok(Self { start, end }) } else { Err(ResctrlError::PercentRange { start, end }) }
    }

    /// Start of the range, in percent.
    pub const fn start(self) -> u8 {
        self.start
    }

    /// End of the range, in percent.
    pub const fn end(self) -> u8 {
        self.end
    }

    /// The range in a cache with `ways` ways: both ends are rounded up, so that adjacent ranges stay adjacent. A range
    /// with fewer than `least` ways grows upwards and, at the end of the cache, downwards.
    fn ways(self, ways: u32, least: u32) -> Range<u32> {
        let at = |percent: u8| ways.saturating_mul(u32::from(percent)).div_ceil(100);
        widen(at(self.start)..at(self.end), 0..ways, least)
    }
}

/// Extends `ways` to at least `least` within `bounds`: upwards first, since the ways below belong to the preceding
/// class.
fn widen(ways: Range<u32>, bounds: Range<u32>, least: u32) -> Range<u32> {
    let least = least.max(1).min(bounds.end - bounds.start);
    let end = ways.end.max(ways.start + least).min(bounds.end);
    ways.start.min(end - least)..end
}

/// Treatment of ways that other hardware uses as well (`shareable_bits`), such as an adapter that writes into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shareable {
    /// Use them like other ways.
    #[default]
    Use,
    /// Leave them out if the other ways suffice, for workloads that I/O should not disturb.
    Avoid,
}

/// The mask of a percent range in a cache with these ways, of at least `least`. A range that would have too few ways
/// without the shareable ones keeps them: the kernel would refuse the mask otherwise.
pub(crate) fn of_range(range: PercentRange, cache: Mask, least: u32, shareable: Mask, use_of: Shareable) -> Mask {
    let least = least.max(1).min(cache.ways());
    let wanted = range.ways(cache.ways(), least);
    if use_of == Shareable::Use {
        return Mask::of_ways(wanted);
    }
    let free = Mask(cache.0 & !shareable.0);
    let mut best: Option<(u32, Range<u32>, Range<u32>)> = None;
    for run in free.runs().filter(|run| run.end - run.start >= least) {
        let common = wanted.start.max(run.start)..wanted.end.min(run.end);
        let length = common.end.saturating_sub(common.start);
        // Of equal lengths, the lowest.
        if length > 0 && best.as_ref().is_none_or(|(most, ..)| length > *most) {
            best = Some((length, common, run));
        }
    }
    let ways = best.map_or(wanted, |(_, common, run)| widen(common, run, least));
    Mask::of_ways(ways)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(ways: u32, least: u32, start: u8, end: u8) -> Mask {
        let range = PercentRange::new(start, end).unwrap();
        of_range(range, Mask::of_ways(0..ways), least, Mask::default(), Shareable::Use)
    }

    #[test]
    fn a_percent_range_is_a_run_of_ways() {
        for (ways, start, end, expected) in [
            (11, 0, 100, "7ff"),
            (11, 0, 30, "f"),
            (11, 10, 80, "1fc"),
            (11, 20, 80, "1f8"),
            (20, 0, 30, "3f"),
            (20, 30, 100, "fffc0"),
            (12, 50, 100, "fc0"),
            (16, 0, 1, "1"),
            (32, 0, 100, "ffffffff"),
            (64, 0, 100, "ffffffffffffffff"),
            (64, 99, 100, "8000000000000000"),
        ] {
            assert_eq!(mask(ways, 1, start, end).to_string(), expected, "{ways} ways, {start}..{end}");
        }
    }

    #[test]
    fn a_narrow_range_grows_upwards_then_downwards() {
        for (ways, least, start, end, expected) in [
            // Neither end reaches the next way.
            (11, 1, 10, 11, 0b100),
            (11, 2, 10, 11, 0b1100),
            (11, 2, 99, 100, 0b110_0000_0000),
            (11, 1, 99, 100, 0b100_0000_0000),
            // AMD reports 0, but an empty mask is no share.
            (16, 0, 1, 2, 0b10),
            (4, 8, 0, 10, 0b1111),
        ] {
            assert_eq!(mask(ways, least, start, end).bits(), expected, "{ways} ways, {start}..{end}");
        }
    }

    #[test]
    fn a_range_is_neither_empty_nor_beyond_the_cache() {
        for (start, end) in [(0, 0), (30, 30), (40, 30), (0, 101), (100, 100), (255, 0)] {
            assert!(PercentRange::new(start, end).is_err(), "{start}..{end}");
        }
        assert_eq!(
            PercentRange::new(40, 30).unwrap_err().to_string(),
            "40..30 is no part of a cache in percent: the start has to be below the end, and the end at most 100"
        );
    }

    #[test]
    fn shareable_ways_are_left_out_where_the_rest_suffices() {
        let haswell = Mask(0xc0000);
        for (shareable, least, start, end, expected) in [
            (haswell, 2, 0, 100, 0x3ffff),
            (haswell, 2, 0, 50, 0x003ff),
            (haswell, 2, 80, 100, 0x30000),
            // The range has no other ways.
            (haswell, 2, 90, 100, 0xc0000),
            // Grows within the free ways.
            (haswell, 2, 85, 100, 0x30000),
            // The longer of two parts.
            (Mask(0x00010), 1, 0, 100, 0xfffe0),
            (Mask(0x00300), 2, 0, 50, 0x000ff),
            // A part that is too short does not count.
            (Mask(0x0fff2), 2, 0, 20, 0x0000c),
        ] {
            let range = PercentRange::new(start, end).unwrap();
            let got = of_range(range, Mask(0xfffff), least, shareable, Shareable::Avoid);
            assert_eq!(got.bits(), expected, "{start}..{end} beside {shareable}: {got}");
        }
    }

    #[test]
    fn reads_what_kernels_print() {
        for (text, bits) in [("7ff\n", Some(0x7ff)), ("  7f", Some(0x7f)), ("000ff", Some(0xff)), ("7FF", Some(0x7ff))]
        {
            assert_eq!(Mask::parse(text).map(Mask::bits), bits, "{text:?}");
        }
        for text in ["", " ", "0x7f", "+7f", "-1", "7f 7f", "1ffffffffffffffff", "uninitialized"] {
            assert_eq!(Mask::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn knows_holes() {
        for (bits, expected) in
            [(0, false), (1, true), (0x7ff, true), (0b1010, false), (u64::MAX, true), (1 << 63, true)]
        {
            assert_eq!(Mask(bits).is_contiguous(), expected, "{bits:x}");
        }
        assert_eq!(Mask(0b1101_1001).runs().collect::<Vec<_>>(), [0..1, 3..5, 6..8]);
        assert!(Mask(u64::MAX).runs().eq(std::iter::once(0..64)));
    }

    prop_compose! {
        fn cache()(ways in 1_u32..=64, least in 0_u32..=6) -> (u32, u32) { (ways, least) }
    }

    prop_compose! {
        fn range()(start in 0_u8..100)(start in Just(start), end in start + 1..=100) -> (u8, u8) { (start, end) }
    }

    proptest! {
        #[test]
        fn the_kernel_takes_every_mask((ways, least) in cache(), (start, end) in range(), shareable: u64, avoid: bool) {
            let cache = Mask::of_ways(0..ways);
            let shareable = Mask(shareable & cache.0);
            let use_of = if avoid { Shareable::Avoid } else { Shareable::Use };
            let mask = of_range(PercentRange::new(start, end).unwrap(), cache, least, shareable, use_of);
            prop_assert!(mask.is_contiguous() && cache.contains(mask), "{mask}");
            prop_assert!(mask.ways() >= least.max(1).min(ways), "{mask}");
        }

        #[test]
        fn every_way_within_the_range_is_had((ways, least) in cache(), (start, end) in range()) {
            let mask = mask(ways, least, start, end);
            for way in 0..ways {
                if way * 100 >= u32::from(start) * ways && (way + 1) * 100 <= u32::from(end) * ways {
                    prop_assert!(mask.contains(Mask(1 << way)), "{mask} without {way}");
                }
            }
        }

        #[test]
        fn avoiding_shareable_ways_adds_no_overlap((ways, least) in cache(), (start, end) in range(), shareable: u64) {
            let cache = Mask::of_ways(0..ways);
            let shareable = Mask(shareable & cache.0);
            let range = PercentRange::new(start, end).unwrap();
            let using = of_range(range, cache, least, shareable, Shareable::Use);
            let avoiding = of_range(range, cache, least, shareable, Shareable::Avoid);
            prop_assert!(avoiding == using || avoiding.overlap(shareable).is_empty(), "{using} {avoiding} {shareable}");
        }

        #[test]
        fn ranges_that_meet_cover_the_cache((ways, least) in cache(), at in 1_u8..100) {
            let (below, above) = (mask(ways, least, 0, at), mask(ways, least, at, 100));
            prop_assert_eq!(below.union(above), Mask::of_ways(0..ways));
            if below.ways() > least.max(1) && above.ways() > least.max(1) {
                prop_assert!(below.overlap(above).is_empty(), "{} {}", below, above);
            }
        }

        #[test]
        fn a_longer_range_has_no_fewer_ways((ways, least) in cache(), (start, end) in range(), (lower, more) in (0_u8..100, 0_u8..100)) {
            let one = mask(ways, least, start, end);
            let upwards = mask(ways, least, start, end.saturating_add(more).min(100));
            prop_assert!(upwards.contains(one), "{one} {upwards}");
            let downwards = mask(ways, least, start.min(lower), end);
            prop_assert!(downwards.ways() >= one.ways(), "{one} {downwards}");
        }

        #[test]
        fn what_is_printed_reads_back(bits: u64) {
            prop_assert_eq!(Mask::parse(&Mask(bits).to_string()), Some(Mask(bits)));
        }
    }
}
