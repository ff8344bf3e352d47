//! Sets of CPUs, as a mask (`cpus`) and as a list (`cpus_list`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A set of CPU numbers. In a profile it is a list: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuMask(BTreeSet<u32>);

/// A text that is not a list of CPUs such as `0-3,8`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a list of CPUs: write numbers and ranges joined with commas, such as `0-3,8`")]
pub struct NotACpuList {
    text: String,
}

impl CpuMask {
    /// An empty set.
    pub const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Whether the set contains the CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The CPUs of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }

    /// The CPUs of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(&self.0 & &other.0)
    }

    /// The CPUs that are not in the other set.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(&self.0 - &other.0)
    }

    /// Parses a mask: words of 32 bits in hexadecimal, the highest first, separated by commas (`bitmap_parse`).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is no mask, `EOVERFLOW` if a word or the mask is too long for `possible` CPUs.
    pub(crate) fn parse_mask(text: &[u8], possible: u32) -> Result<Self, Errno> {
        let text = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut cpus = BTreeSet::new();
        let words = text.split(|&byte| byte == b',' || byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        for (index, word) in (0u32..).zip(words.rev()) {
            let word = std::str::from_utf8(word).map_err(|_| Errno::INVAL)?;
            if !word.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(Errno::INVAL);
            }
            if word.len() > 8 || index.saturating_mul(32) >= possible {
                return Err(Errno::OVERFLOW);
            }
            let bits = u32::from_str_radix(word, 16).map_err(|_| Errno::OVERFLOW)?;
            cpus.extend((0..32).filter(|bit| bits & (1 << bit) != 0).map(|bit| index * 32 + bit));
        }
        if cpus.last().is_some_and(|&last| last >= possible) { Err(Errno::OVERFLOW) } else { Ok(Self(cpus)) }
    }

    /// Parses a list: numbers and ranges separated by commas, `all`, and strides such as `0-7:1/2` (`bitmap_parselist`).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is no list, `ERANGE` if a CPU is not below `possible`.
    pub(crate) fn parse_list(text: &[u8], possible: u32) -> Result<Self, Errno> {
        let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
        let text = text.split('\n').next().unwrap_or_default();
        let mut cpus = BTreeSet::new();
        for region in text.split([',', ' ', '\t', '\x0b', '\x0c', '\r']).filter(|region| !region.is_empty()) {
            let (range, stride) = match region.split_once(':') {
                None => (region, None),
                Some((range, stride)) => (range, Some(stride.split_once('/').ok_or(Errno::INVAL)?)),
            };
            let (first, last) = match range.split_once('-') {
                _ if range.eq_ignore_ascii_case("all") => (0, possible.saturating_sub(1)),
                None if stride.is_some() => return Err(Errno::INVAL),
                None => (number(range, possible)?, number(range, possible)?),
                Some((first, last)) => (number(first, possible)?, number(last, possible)?),
            };
            let (used, group) = match stride {
                None => (1, 1),
                Some((used, group)) => (count(used)?, count(group)?),
            };
            if first > last || group == 0 || used > group {
                return Err(Errno::INVAL);
            }
            if last >= possible {
                return Err(Errno::RANGE);
            }
            cpus.extend((first..=last).filter(|cpu| (cpu - first) % group < used));
        }
        Ok(Self(cpus))
    }

    /// The format of the file `cpus`: as many hexadecimal digits as `possible` CPUs need, with a comma between words of 32 bits.
    pub(crate) fn to_mask(&self, possible: u32) -> String {
        let words = possible.max(1).div_ceil(32);
        let mut text = String::new();
        for index in (0..words).rev() {
            let bits = (0..32).filter(|bit| self.contains(index * 32 + bit)).fold(0u32, |bits, bit| bits | 1 << bit);
            let highest = index + 1 == words;
            let width = if highest { (possible.max(1) - index * 32).div_ceil(4) } else { 8 };
            let width = usize::try_from(width).unwrap_or(8);
            text += &format!("{}{bits:0width$x}", if highest { "" } else { "," });
        }
        text
    }
}

fn number(text: &str, possible: u32) -> Result<u32, Errno> {
    if text == "N" { Ok(possible.saturating_sub(1)) } else { count(text) }
}

fn count(text: &str) -> Result<u32, Errno> {
    if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Errno::INVAL);
    }
    text.parse().map_err(|_| Errno::OVERFLOW)
}

/// The format of `cpus_list`, without the newline; empty for an empty set.
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|&next| next == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuMask {
    type Err = NotACpuList;

    fn from_str(text: &str) -> Result<Self, NotACpuList> {
        // Far above the CPU count of any machine, but low enough that no list creates a set of billions.
        Self::parse_list(text.as_bytes(), 1 << 16).map_err(|_| NotACpuList { text: text.to_owned() })
    }
}

impl TryFrom<String> for CpuMask {
    type Error = NotACpuList;

    fn try_from(text: String) -> Result<Self, NotACpuList> {
        text.parse()
    }
}

impl From<CpuMask> for String {
    fn from(cpus: CpuMask) -> Self {
        cpus.to_string()
    }
}

impl FromIterator<u32> for CpuMask {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_as_wide_as_the_machine() {
        for (cpus, possible, mask) in
            [("", 16, "0000"), ("0-3", 16, "000f"), ("15", 16, "8000"), ("0,33", 40, "02,00000001"), ("0-5", 6, "3f")]
        {
            let cpus: CpuMask = cpus.parse().unwrap();
            assert_eq!(cpus.to_mask(possible), mask);
            assert_eq!(CpuMask::parse_mask(format!("{mask}\n").as_bytes(), possible), Ok(cpus));
        }
    }

    #[test]
    fn bad_texts_have_the_errno_of_the_parser() {
        for (text, errno) in
            [("x", Errno::INVAL), ("n", Errno::INVAL), ("1ffff", Errno::OVERFLOW), ("100000000", Errno::OVERFLOW)]
        {
            assert_eq!(CpuMask::parse_mask(text.as_bytes(), 16), Err(errno), "{text}");
        }
        for (text, errno) in [
            ("3-1", Errno::INVAL),
            ("a", Errno::INVAL),
            ("1-", Errno::INVAL),
            ("16", Errno::RANGE),
            ("0-7:3/2", Errno::INVAL),
        ] {
            assert_eq!(CpuMask::parse_list(text.as_bytes(), 16), Err(errno), "{text}");
        }
    }

    #[test]
    fn lists_take_ranges_strides_and_names() {
        for (text, list) in
            [("0-3,8", "0-3,8"), ("0-7:1/2", "0,2,4,6"), ("all", "0-15"), ("N", "15"), ("1, 2\n", "1-2"), ("\n", "")]
        {
            assert_eq!(CpuMask::parse_list(text.as_bytes(), 16).unwrap().to_string(), list, "{text}");
        }
    }
}
