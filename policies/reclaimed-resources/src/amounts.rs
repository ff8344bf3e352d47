//! CPU and memory side by side: every formula of this policy is worked out for both.

use std::fmt;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// In thousandths of a CPU.
    Cpu,
    /// In bytes.
    Memory,
}

impl Resource {
    /// Both.
    pub const EACH: [Self; 2] = [Self::Cpu, Self::Memory];

    /// An amount as people read it, exactly.
    pub fn show(self, amount: i128) -> String {
        match self {
            Self::Cpu => format!("{amount}m"),
            Self::Memory => {
                let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
                let fits = |(shift, _): &(u32, &str)| amount != 0 && amount.trailing_zeros() >= *shift;
                match units.into_iter().find(fits) {
                    Some((shift, unit)) => format!("{} {unit}", amount >> shift),
                    None => format!("{amount} B"),
                }
            }
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        })
    }
}

/// An amount of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
}

impl Amounts {
    /// Nothing.
    pub const ZERO: Self = Self { cpu_milli: 0, memory_bytes: 0 };

    /// Both amounts.
    pub const fn new(cpu_milli: u64, memory_bytes: u64) -> Self {
        Self { cpu_milli, memory_bytes }
    }

    /// One of them.
    pub fn of(self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.cpu_milli,
            Resource::Memory => self.memory_bytes,
        }
    }

    /// What a function gives for each pair.
    #[must_use]
    pub fn with(self, other: Self, function: impl Fn(u64, u64) -> u64) -> Self {
        Self::new(function(self.cpu_milli, other.cpu_milli), function(self.memory_bytes, other.memory_bytes))
    }

    /// The sum of each; what does not fit is the largest value.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The difference of each, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    /// The smaller of each.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.with(other, u64::min)
    }

    /// An even part of each, rounded up to a thousandth of a CPU and a byte. Of none it is the whole.
    #[must_use]
    pub fn part(self, parts: usize) -> Self {
        let parts = u64::try_from(parts).unwrap_or(u64::MAX).max(1);
        Self::new(self.cpu_milli.div_ceil(parts), self.memory_bytes.div_ceil(parts))
    }
}

/// A formula's result as an amount: not below 0, not above what fits.
pub(crate) fn bounded(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

/// So many percent of an amount, truncated towards 0.
pub(crate) fn share(amount: u64, percent: i128) -> i128 {
    i128::from(amount) * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_exactly() {
        for (resource, amount, text) in [
            (Resource::Cpu, 25_000, "25000m"),
            (Resource::Cpu, -500, "-500m"),
            (Resource::Memory, 0, "0 B"),
            (Resource::Memory, 1 << 30, "1 GiB"),
            (Resource::Memory, 3 << 29, "1536 MiB"),
            (Resource::Memory, -(1 << 20), "-1 MiB"),
            (Resource::Memory, 1_000_000_001, "1000000001 B"),
        ] {
            assert_eq!(resource.show(amount), text);
        }
    }

    #[test]
    fn arithmetic_stays_within_what_fits() {
        let (small, large) = (Amounts::new(3, 7), Amounts::new(u64::MAX, 5));
        assert_eq!(small.plus(large), Amounts::new(u64::MAX, 12));
        assert_eq!(small.minus(large), Amounts::new(0, 2));
        assert_eq!(small.max(large), Amounts::new(u64::MAX, 7));
        assert_eq!(small.min(large), Amounts::new(3, 5));
        assert_eq!(small.part(2), Amounts::new(2, 4));
        assert_eq!(small.part(0), small);
        assert_eq!((bounded(-1), bounded(7), bounded(i128::MAX)), (0, 7, u64::MAX));
    }

    #[test]
    fn percentages_truncate_towards_zero() {
        for (amount, percent, expected) in [
            (1000, 40, 400),
            (999, 40, 399),
            (999, -40, -399),
            (1001, -5, -50),
            (7, 0, 0),
            (u64::MAX, 100, u64::MAX.into()),
        ] {
            assert_eq!(share(amount, percent), expected, "{percent} % of {amount}");
        }
    }
}
