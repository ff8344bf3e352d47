//! Sets of logical CPUs, as in cpusets.

use std::fmt;
use std::str::FromStr;

use crate::numa::list_text;

/// Exclusive upper bound of the CPU numbers in a [`CpuSet`].
pub const MAX_CPUS: u32 = 1024;

const WORDS: usize = 16;

/// A set of logical CPUs by their numbers in the kernel.
///
/// Values of knobs are copied often and changed rarely, so the set is a plain bit map; the largest machines have some
/// hundred CPUs.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet([u64; WORDS]);

/// A number too large for a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no CPU {0}: the numbers of CPUs are below {MAX_CPUS}")]
pub struct NoSuchCpu(pub u32);

/// A text that is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no list of CPUs, such as `0-3,8`, with numbers below {MAX_CPUS}")]
pub struct NotCpus(pub String);

impl CpuSet {
    /// The set of these CPUs.
    ///
    /// # Errors
    ///
    /// [`NoSuchCpu`] with the first number that is not below [`MAX_CPUS`].
    pub fn of(cpus: &[u32]) -> Result<Self, NoSuchCpu> {
        let mut set = Self::default();
        for &cpu in cpus {
            let (word, bit) = place(cpu).ok_or(NoSuchCpu(cpu))?;
            if let Some(word) = set.0.get_mut(word) {
                *word |= bit;
            }
        }
        Ok(set)
    }

    /// Whether the set has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Number of CPUs.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether the set has this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        place(cpu).is_some_and(|(word, bit)| self.0.get(word).is_some_and(|word| word & bit != 0))
    }

    /// Whether the other set has all CPUs of this set.
    pub fn is_subset(&self, of: &Self) -> bool {
        self.minus(of).is_empty()
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        self.with(other, |one, other| one | other)
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, |one, other| one & other)
    }

    /// The CPUs that are not in the other set.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.with(other, |one, other| one & !other)
    }

    /// The numbers of the CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..MAX_CPUS).filter(|cpu| self.contains(*cpu))
    }

    fn with(&self, other: &Self, join: fn(u64, u64) -> u64) -> Self {
        let mut joined = *self;
        for (word, other) in joined.0.iter_mut().zip(other.0) {
            *word = join(*word, other);
        }
        joined
    }
}

/// The index of a CPU's word, and the CPU's bit in it.
fn place(cpu: u32) -> Option<(usize, u64)> {
    let word = usize::try_from(cpu / u64::BITS).ok().filter(|word| *word < WORDS)?;
    Some((word, 1 << (cpu % u64::BITS)))
}

impl fmt::Display for CpuSet {
    /// Writes a list as the kernel does, such as `0-3,8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&list_text(self.iter()))
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = NotCpus;

    /// Parses a list such as `0-3,8`. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, NotCpus> {
        let wrong = || NotCpus(text.to_owned());
        let mut set = Self::default();
        for range in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| {
                let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse::<u32>().ok().filter(|cpu| is_digits && *cpu < MAX_CPUS).ok_or_else(wrong)
            };
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            let cpus: Vec<u32> = (first..=last).collect();
            set = set.or(&Self::of(&cpus).map_err(|_| wrong())?);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn a_list_is_read_as_the_kernel_writes_it() {
        for (text, shown) in
            [("", ""), ("0", "0"), ("0-3,8", "0-3,8"), ("8,0-1,2,3", "0-3,8"), ("1022-1023", "1022-1023")]
        {
            assert_eq!(set(text).to_string(), shown, "{text}");
        }
        for text in ["1024", "3-1", "a", "0-", "-1", ",", "0,,1", "0 ", "0-1024", "99999999999", "+1", "0--1"] {
            assert_eq!(text.parse::<CpuSet>(), Err(NotCpus(text.to_owned())));
        }
    }

    #[test]
    fn a_number_beyond_is_named() {
        assert_eq!(CpuSet::of(&[0, 1024, 4_000_000_000]), Err(NoSuchCpu(1024)));
        assert_eq!(NoSuchCpu(1024).to_string(), "there is no CPU 1024: the numbers of CPUs are below 1024");
        assert!(!set("0-1023").contains(1024));
    }

    #[test]
    fn sets_are_joined_and_compared() {
        let (low, high, all) = (set("0-3"), set("2-5,900"), set("0-5,900"));
        assert_eq!((low.or(&high), low.and(&high), low.minus(&high)), (all, set("2-3"), set("0-1")));
        assert!(low.is_subset(&all) && !low.is_subset(&high) && set("").is_subset(&low));
        assert_eq!((all.len(), all.is_empty(), set("").is_empty()), (7, false, true));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(cpus in proptest::collection::btree_set(0..MAX_CPUS, 0..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            let set = CpuSet::of(&cpus).unwrap();
            prop_assert_eq!(set.to_string().parse(), Ok(set));
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<CpuSet>();
        }
    }
}
