//! Sets of logical CPUs and the kernel's cpulist format.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Largest CPU id that is accepted. No kernel is built for more than 8192 CPUs; the bound keeps a mistyped range from filling the memory.
pub const MAX_CPU: u32 = 65_535;

/// A set of logical CPUs, in ascending order. Its text form is a cpulist such as `0-3,8`; the empty set is the empty string.
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
pub struct CpuSet(BTreeSet<u32>);

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
            CpuListFault::TooLarge => "names a CPU above 65535",
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
        let mut cpus = BTreeSet::new();
        if text.trim().is_empty() {
            return Ok(Self(cpus));
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
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains this CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// The CPUs that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Whether all CPUs of this set are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(cpus: T) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, cpus: T) {
        self.0.extend(cpus);
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
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
            ("65535", "65535"),
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
            ("65536", "65536", CpuListFault::TooLarge),
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
        fn what_is_written_reads_back(cpus: Vec<u16>) {
            let cpus: CpuSet = cpus.into_iter().map(u32::from).collect();
            prop_assert_eq!(CpuSet::parse(&cpus.to_string()), Ok(cpus));
        }

        #[test]
        fn any_text_is_read_without_panic(text in "[0-9,\\- a]{0,20}") {
            let _ = CpuSet::parse(&text);
        }
    }
}
