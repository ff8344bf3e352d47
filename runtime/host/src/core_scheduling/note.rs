//! Notes on cgroups, as extended attributes: the number of a container's group, and which cookies on its processes are qosm's.
//!
//! The kernel does not say which program created a cookie, and other programs create them too: containerd for a pod, a
//! virtual machine monitor for each of its CPUs. A note disappears with its cgroup, and cookies are valid until the
//! kernel restarts, so neither outlives the other.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use qosm_model::knob::MAX_CORE_GROUP;

/// A note. Cgroups accept attributes of the namespace `user` since Linux 5.7; core scheduling came with 5.14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Note {
    /// The number of the container's group.
    Group,
    /// The cookies of qosm's on its processes.
    Cookies,
}

impl Note {
    /// Name of the extended attribute.
    pub(crate) fn attribute(self) -> &'static str {
        match self {
            Self::Group => "user.qosm.core_group",
            Self::Cookies => "user.qosm.core_cookies",
        }
    }
}

/// Maximum number of cookies in a note. A container rarely changes its group, and its processes follow within one scan.
const MAX_COOKIES: usize = 16;

/// A core scheduling cookie as the kernel returns it; 0 means none.
pub(crate) type Cookie = NonZeroU64;

/// Parses the note of a group; `None` if the text is no valid group number.
pub(super) fn group(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|number| (1..=MAX_CORE_GROUP.unsigned_abs()).contains(number))
}

/// Parses the note of cookies: hexadecimal numbers separated by whitespace. Other words are skipped, since every
/// program that may write to the cgroup may write the note.
pub(super) fn cookies(text: &str) -> BTreeSet<Cookie> {
    let numbers = text.split_ascii_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok());
    numbers.filter_map(Cookie::new).take(MAX_COOKIES).collect()
}

/// Prints the note of cookies, of as many as [`cookies`] reads; `None` if there are none.
pub(super) fn print(cookies: &BTreeSet<Cookie>) -> Option<String> {
    let words: Vec<String> = cookies.iter().take(MAX_COOKIES).map(|cookie| format!("{cookie:x}")).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_group_is_none() {
        assert_eq!(group("7\n"), Some(7));
        assert_eq!(group("9007199254740991"), Some(9_007_199_254_740_991));
        for text in ["", "0", "x", "-1", "9007199254740992", "99999999999999999999", "\u{fffd}"] {
            assert_eq!(group(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_cookie_is_skipped() {
        let parsed = |text| cookies(text).into_iter().map(Cookie::get).collect::<Vec<_>>();
        assert_eq!(parsed("ff 1a\n"), [0x1a, 0xff]);
        for text in ["", "0", "x", "-1", "10000000000000000", "\u{fffd}"] {
            assert!(parsed(text).is_empty(), "{text:?}");
        }
        assert_eq!(print(&BTreeSet::new()), None);
    }

    proptest! {
        #[test]
        fn what_is_noted_reads_back(noted in proptest::collection::btree_set(1..u64::MAX, 0..MAX_COOKIES)) {
            let noted: BTreeSet<Cookie> = noted.into_iter().filter_map(Cookie::new).collect();
            prop_assert_eq!(cookies(&print(&noted).unwrap_or_default()), noted);
        }
    }
}
