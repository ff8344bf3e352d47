//! Amounts of CPU and memory; all formulas of this policy apply to both.

use std::fmt;

/// CPU or memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// CPU, in thousandths of a CPU.
    Cpu,
    /// Memory, in bytes.
    Memory,
}

impl Resource {
    /// Both resources.
    pub const EACH: [Self; 2] = [Self::Cpu, Self::Memory];

    /// Formats an amount exactly, with its unit.
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

/// An amount of CPU and an amount of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// Thousandths of a CPU.
    pub cpu_milli: u64,
    /// Bytes.
    pub memory_bytes: u64,
}

impl Amounts {
    /// Both amounts 0.
    pub const ZERO: Self = Self { cpu_milli: 0, memory_bytes: 0 };

    /// Creates a pair of amounts.
    pub const fn new(cpu_milli: u64, memory_bytes: u64) -> Self {
        Self { cpu_milli, memory_bytes }
    }

    /// The amount of one resource.
    pub fn of(self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.cpu_milli,
            Resource::Memory => self.memory_bytes,
        }
    }

    /// Applies a function to each pair of amounts.
    #[must_use]
    pub fn with(self, other: Self, function: impl Fn(u64, u64) -> u64) -> Self {
        Self::new(function(self.cpu_milli, other.cpu_milli), function(self.memory_bytes, other.memory_bytes))
    }

    /// The sums, saturating at [`u64::MAX`].
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// The differences, at least 0.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.with(other, u64::saturating_sub)
    }

    /// The larger amount of each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    /// The smaller amount of each resource.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        self.with(other, u64::min)
    }

    /// One of `parts` equal parts, rounded up to a thousandth of a CPU and a byte. 0 parts count as 1.
    #[must_use]
    pub fn part(self, parts: usize) -> Self {
        let parts = u64::try_from(parts).unwrap_or(u64::MAX).max(1);
        Self::new(self.cpu_milli.div_ceil(parts), self.memory_bytes.div_ceil(parts))
    }
}

/// Converts the result of a formula to an amount: at least 0, at most [`u64::MAX`].
pub(crate) fn bounded(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

/// `percent` of an amount, truncated towards 0.
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
