//! Sets of logical CPUs and the kernel's cpulist format.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest CPU id that is accepted: no kernel is built for more than 8192 CPUs.
pub const MAX_CPU: u32 = 8191;

/// A set of logical CPUs, in ascending order: a bit each, so that a range costs little, whoever wrote it. Its text form is a cpulist such
/// as `0-3,8`; the empty set is the empty string.
///
/// ```
/// use cpu_sets::CpuSet;
///
/// let cpus = CpuSet::parse("8,0-3,2")?;
/// assert_eq!((cpus.to_string().as_str(), cpus.len()), ("0-3,8", 5));
/// # Ok::<(), cpu_sets::CpuListError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet {
    /// 64 CPUs each; the last word is not zero.
    words: Vec<u64>,
}

/// A text that is not a valid cpulist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError {
    /// The part between two commas that cannot be read, or the beginning of a long one.
    pub part: String,
    /// What is wrong with it.
    pub fault: CpuListFault,
}

/// Maximum length of a part in an error, in characters.
const SHOWN_CHARS: usize = 100;

/// What is wrong with a part of a cpulist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuListFault {
    /// Neither `N` nor `N-M`.
    Shape,
    /// `N-M` with N above M.
    Backwards,
    /// An id above [`MAX_CPU`].
    TooLarge,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            CpuListFault::Shape => "is no CPU and no range of CPUs; write `4` or `4-7`, joined by commas",
            CpuListFault::Backwards => "is a range that ends before it begins; write the smaller CPU first",
            CpuListFault::TooLarge => "names a CPU above 8191",
        };
        write!(f, "`{}` {fault}", self.part)
    }
}

impl std::error::Error for CpuListError {}

impl CpuSet {
    /// Reads a cpulist. Blank text is the empty set; blanks around numbers and a trailing newline are skipped; CPUs may repeat.
    ///
    /// Kernel: Documentation/admin-guide/cputopology.rst, `cpuset.cpus` in Documentation/admin-guide/cgroup-v2.rst.
    ///
    /// # Errors
    ///
    /// Returns the first part that is neither a CPU nor an ascending range.
    pub fn parse(text: &str) -> Result<Self, CpuListError> {
        let mut cpus = Self::default();
        if text.trim().is_empty() {
            return Ok(cpus);
        }
        for part in text.split(',') {
            let error = |fault| CpuListError { part: part.trim().chars().take(SHOWN_CHARS).collect(), fault };
            let number = |text: &str| {
                let text = text.trim();
                if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(error(CpuListFault::Shape));
                }
                text.parse::<u32>().ok().filter(|cpu| *cpu <= MAX_CPU).ok_or_else(|| error(CpuListFault::TooLarge))
            };
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => number(part).map(|cpu| (cpu, cpu))?,
            };
            if first > last {
                return Err(error(CpuListFault::Backwards));
            }
            cpus.insert_range(first, last);
        }
        Ok(cpus)
    }

    /// Adds a range word by word: an annotation may name thousands of long ones.
    fn insert_range(&mut self, first: u32, last: u32) {
        self.insert(last);
        let (words, bits) = (Self::place(first).0..=Self::place(last).0, u64::MAX);
        for (word, low) in words.zip((first / 64 * 64..).step_by(64)) {
            let from = bits << first.saturating_sub(low).min(63);
            let to = bits >> 63_u32.saturating_sub(last.saturating_sub(low).min(63));
            if let Some(all) = self.words.get_mut(word) {
                *all |= from & to;
            }
        }
    }

    /// The place of a CPU's bit.
    fn place(cpu: u32) -> (usize, u64) {
        (usize::try_from(cpu / 64).unwrap_or(usize::MAX), 1 << (cpu % 64))
    }

    fn insert(&mut self, cpu: u32) {
        let (word, bit) = Self::place(cpu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        if let Some(bits) = self.words.get_mut(word) {
            *bits |= bit;
        }
    }

    /// The words of both sets, combined.
    fn combined(&self, other: &Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        let word = |set: &Self, place: usize| set.words.get(place).copied().unwrap_or(0);
        let places = 0..self.words.len().max(other.words.len());
        let mut words: Vec<u64> = places.map(|place| combine(word(self, place), word(other, place))).collect();
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether the set contains this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        let (word, bit) = Self::place(cpu);
        self.words.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let bits = |(word, first): (&u64, u32)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        };
        self.words.iter().zip((0..).step_by(64)).flat_map(bits)
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.combined(other, |one, other| one | other)
    }

    /// The CPUs that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combined(other, |one, other| one & !other)
    }

    /// Whether all CPUs of this set are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        let mut set = Self::default();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, cpus: T) {
        cpus.into_iter().for_each(|cpu| self.insert(cpu));
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuListError;

    fn try_from(text: String) -> Result<Self, CpuListError> {
        Self::parse(&text)
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cpulists_are_read_and_written_as_the_kernel_does() {
        for (text, written) in [
            ("", ""),
            ("\n", ""),
            ("0", "0"),
            ("0-3\n", "0-3"),
            ("0,1", "0-1"),
            ("3,1,2,7", "1-3,7"),
            ("0-7,8-15", "0-15"),
            ("4-4", "4"),
            (" 1 - 2 , 5 ", "1-2,5"),
            ("0-3,2-5", "0-5"),
            ("8191", "8191"),
            ("0-8191,0-8191,0-8191", "0-8191"),
            ("63-64,127,130-192", "63-64,127,130-192"),
        ] {
            assert_eq!(CpuSet::parse(text).unwrap().to_string(), written, "{text:?}");
        }
    }

    #[test]
    fn the_part_that_is_no_cpulist_is_named() {
        for (text, part, fault) in [
            ("a", "a", CpuListFault::Shape),
            ("0,,1", "", CpuListFault::Shape),
            ("0,", "", CpuListFault::Shape),
            ("-1", "-1", CpuListFault::Shape),
            ("+1", "+1", CpuListFault::Shape),
            ("1-", "1-", CpuListFault::Shape),
            ("0-3-5", "0-3-5", CpuListFault::Shape),
            ("1.5", "1.5", CpuListFault::Shape),
            ("0-7:1/2", "0-7:1/2", CpuListFault::Shape),
            ("1e400", "1e400", CpuListFault::Shape),
            ("0,5-3", "5-3", CpuListFault::Backwards),
            ("8192", "8192", CpuListFault::TooLarge),
            ("0-4294967295", "0-4294967295", CpuListFault::TooLarge),
            ("99999999999999999999", "99999999999999999999", CpuListFault::TooLarge),
        ] {
            assert_eq!(CpuSet::parse(text), Err(CpuListError { part: part.into(), fault }), "{text:?}");
        }
        let error = CpuSet::parse("5-3").unwrap_err();
        insta::assert_snapshot!(error, @"`5-3` is a range that ends before it begins; write the smaller CPU first");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(cpus in vec(0..=MAX_CPU, 0..100)) {
            let cpus: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(CpuSet::parse(&cpus.to_string()), Ok(cpus));
        }

        #[test]
        fn it_is_a_set_of_numbers(one in btree_set(0..200_u32, 0..30), other in btree_set(0..200_u32, 0..30)) {
            let set = |cpus: &BTreeSet<u32>| cpus.iter().copied().collect::<CpuSet>();
            let (a, b) = (set(&one), set(&other));
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), one.clone());
            prop_assert_eq!((a.len(), a.is_empty()), (one.len(), one.is_empty()));
            prop_assert_eq!(a.union(&b), set(&one.union(&other).copied().collect()));
            prop_assert_eq!(a.difference(&b), set(&one.difference(&other).copied().collect()));
            prop_assert_eq!(a.is_subset(&b), one.is_subset(&other));
            prop_assert!((0..300).all(|cpu| a.contains(cpu) == one.contains(&cpu)));
        }

        #[test]
        fn any_text_is_read_without_panic(text in "[0-9,\\- a]{0,20}") {
            let _ = CpuSet::parse(&text);
        }
    }
}
