//! A group's `schemata` file as a value: parsed, merged, compared by cache id, printed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use super::bandwidth::Bandwidth;
use super::mask::Mask;
use super::resource::{BandwidthResource, CacheId, CacheResource};

/// The ways of each cache, and the bandwidth of each cache's cores, that a group may use. Either all values of a group,
/// as read, or only the wanted ones: values that are not listed stay as they are.
///
/// Kernel: Documentation/filesystems/resctrl.rst, "Schemata files - general concepts".
///
/// ```
/// use qosm_host::resctrl::{CacheId, CacheResource, Mask, Schemata};
///
/// let there: Schemata = "    MB:0=100;8=100\n    L3:0=7ff;8=7ff\n".parse()?;
/// let mut wanted = there.clone();
/// wanted.set_mask(CacheResource::L3, CacheId(8), Mask::from_bits(0xf));
/// assert_eq!(wanted.difference(&there).changed.to_string(), "L3:8=f\n");
/// # Ok::<(), qosm_host::resctrl::SchemataError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schemata {
    masks: BTreeMap<(CacheResource, CacheId), Mask>,
    bandwidths: BTreeMap<(BandwidthResource, CacheId), Bandwidth>,
    /// Lines of unknown resources, and of groups that are not set up yet (`L3:uninitialized`), by name.
    opaque: BTreeMap<String, String>,
}

/// An invalid line of a `schemata` file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{line}` is no line of a schemata file: {why}")]
pub struct SchemataError {
    /// The line, shortened.
    pub line: String,
    /// Why it is invalid.
    pub why: &'static str,
}

/// The difference between current and wanted schemata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The values to write.
    pub changed: Schemata,
    /// Wanted values of caches or resources that the group does not have. They are not in [`Difference::changed`],
    /// since the kernel would refuse a write with any of them as a whole.
    pub absent: Vec<Absent>,
}

/// A value that a group does not have at present: its cache may have disappeared with its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Absent {
    /// Ways of a cache.
    Mask(CacheResource, CacheId),
    /// The bandwidth of a cache's cores.
    Bandwidth(BandwidthResource, CacheId),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mask(resource, id) => write!(f, "{resource}:{id}"),
            Self::Bandwidth(resource, id) => write!(f, "{resource}:{id}"),
        }
    }
}

impl Schemata {
    /// Creates empty schemata.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty() && self.bandwidths.is_empty() && self.opaque.is_empty()
    }

    /// The ways of a cache; `None` if they are not listed.
    pub fn mask(&self, resource: CacheResource, id: CacheId) -> Option<Mask> {
        self.masks.get(&(resource, id)).copied()
    }

    /// Sets the ways of a cache.
    pub fn set_mask(&mut self, resource: CacheResource, id: CacheId, mask: Mask) {
        self.masks.insert((resource, id), mask);
    }

    /// The bandwidth of a cache's cores; `None` if it is not listed.
    pub fn bandwidth(&self, resource: BandwidthResource, id: CacheId) -> Option<Bandwidth> {
        self.bandwidths.get(&(resource, id)).copied()
    }

    /// Sets the bandwidth of a cache's cores.
    pub fn set_bandwidth(&mut self, resource: BandwidthResource, id: CacheId, bandwidth: Bandwidth) {
        self.bandwidths.insert((resource, id), bandwidth);
    }

    /// All masks, sorted by resource and id.
    pub fn masks(&self) -> impl Iterator<Item = (CacheResource, CacheId, Mask)> {
        self.masks.iter().map(|(&(resource, id), &mask)| (resource, id, mask))
    }

    /// All bandwidths, sorted by resource and id.
    pub fn bandwidths(&self) -> impl Iterator<Item = (BandwidthResource, CacheId, Bandwidth)> {
        self.bandwidths.iter().map(|(&(resource, id), &bandwidth)| (resource, id, bandwidth))
    }

    /// Names and text of unknown lines. They are shown and compared as text, and never written.
    pub fn opaque(&self) -> impl Iterator<Item = (&str, &str)> {
        self.opaque.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Splits the schemata into lines.
    pub(crate) fn lines(&self) -> Vec<Self> {
        let mut lines = Vec::new();
        for resource in CacheResource::ALL {
            let line: BTreeMap<_, _> =
                self.masks.iter().filter(|((of, _), _)| *of == resource).map(|(&k, &v)| (k, v)).collect();
            lines.push(Self { masks: line, ..Self::default() });
        }
        for resource in BandwidthResource::ALL {
            let line: BTreeMap<_, _> =
                self.bandwidths.iter().filter(|((of, _), _)| *of == resource).map(|(&k, &v)| (k, v)).collect();
            lines.push(Self { bandwidths: line, ..Self::default() });
        }
        lines.retain(|line| !line.is_empty());
        lines
    }

    /// Overwrites all values that `over` lists; others stay.
    pub fn merge(&mut self, over: &Self) {
        self.masks.extend(&over.masks);
        self.bandwidths.extend(&over.bandwidths);
        self.opaque.extend(over.opaque.iter().map(|(name, text)| (name.clone(), text.clone())));
    }

    /// The values listed here that differ from `there`, compared by id.
    pub fn difference(&self, there: &Self) -> Difference {
        let mut difference = Difference::default();
        for (&(resource, id), &mask) in &self.masks {
            match there.mask(resource, id) {
                None => difference.absent.push(Absent::Mask(resource, id)),
                Some(other) if other != mask => difference.changed.set_mask(resource, id, mask),
                Some(_) => {}
            }
        }
        for (&(resource, id), &bandwidth) in &self.bandwidths {
            match there.bandwidth(resource, id) {
                None => difference.absent.push(Absent::Bandwidth(resource, id)),
                Some(other) if other != bandwidth => difference.changed.set_bandwidth(resource, id, bandwidth),
                Some(_) => {}
            }
        }
        difference
    }

    /// The texts to write one after the other, none longer than `longest` bytes, since the kernel accepts no more than
    /// a page per write. Usually there is only one text, and the kernel applies it as a whole or not at all.
    pub(crate) fn writes(&self, longest: usize) -> Vec<String> {
        let mut writes = Vec::new();
        let mut text = String::new();
        let mut line = "";
        for (name, item) in self.items() {
            // The item with the separator before it, and the end of the line.
            let most = name.len() + item.len() + 2;
            if !text.is_empty() && text.len() + 1 + most > longest {
                text.push('\n');
                writes.push(std::mem::take(&mut text));
                line = "";
            }
            if line != name {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(name);
                text.push(':');
                line = name;
            } else {
                text.push(';');
            }
            text.push_str(&item);
        }
        if !text.is_empty() {
            text.push('\n');
            writes.push(text);
        }
        writes
    }

    fn items(&self) -> impl Iterator<Item = (&'static str, String)> {
        let masks = self.masks().map(|(resource, id, mask)| (resource.as_str(), format!("{id}={mask}")));
        let bandwidths = self.bandwidths().map(|(resource, id, value)| (resource.as_str(), format!("{id}={value}")));
        masks.chain(bandwidths)
    }
}

/// Prints the written format, e.g. `L3:0=7f;1=7f` and `MB:0=50;1=50`, one line each.
impl fmt::Display for Schemata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for text in self.writes(usize::MAX) {
            f.write_str(&text)?;
        }
        self.opaque.iter().try_for_each(|(name, text)| writeln!(f, "{name}:{text}"))
    }
}

/// Parses the kernel's format: names and values may be padded, ids come in any order and with gaps.
impl std::str::FromStr for Schemata {
    type Err = SchemataError;

    fn from_str(text: &str) -> Result<Self, SchemataError> {
        let mut schemata = Self::new();
        for line in text.lines().map(str::trim_ascii).filter(|line| !line.is_empty()) {
            schemata.read_line(line).map_err(|why| SchemataError { line: line.chars().take(80).collect(), why })?;
        }
        Ok(schemata)
    }
}

const NO_NUMBER: &str = "a value is not a number of the kind that the resource has";
const TWICE: &str = "an id or a resource is there twice";

impl Schemata {
    fn read_line(&mut self, line: &str) -> Result<(), &'static str> {
        let (name, text) = line.split_once(':').ok_or("there is no `:` behind a name")?;
        let (name, text) = (name.trim_ascii(), text.trim_ascii());
        if let Some(resource) = CacheResource::parse(name).filter(|_| text != UNINITIALIZED) {
            read_items(&mut self.masks, resource, text, Mask::parse)
        } else if let Some(resource) = BandwidthResource::parse(name).filter(|_| text != UNINITIALIZED) {
            read_items(&mut self.bandwidths, resource, text, Bandwidth::parse)
        } else {
            match self.opaque.insert(name.to_owned(), text.to_owned()) {
                None => Ok(()),
                Some(_) => Err(TWICE),
            }
        }
    }
}

/// The kernel's text instead of values in a group that waits to be pseudo-locked.
const UNINITIALIZED: &str = "uninitialized";

fn read_items<R: Copy + Ord, V>(
    into: &mut BTreeMap<(R, CacheId), V>,
    resource: R,
    text: &str,
    value: impl Fn(&str) -> Option<V>,
) -> Result<(), &'static str> {
    for item in text.split(';').map(str::trim_ascii).filter(|item| !item.is_empty()) {
        let (id, text) = item.split_once('=').ok_or("there is no `=` behind an id")?;
        let id = Bandwidth::parse(id).ok_or("an id is not a whole number")?;
        match into.entry((resource, CacheId(id.0))) {
            Entry::Vacant(entry) => entry.insert(value(text).ok_or(NO_NUMBER)?),
            Entry::Occupied(_) => return Err(TWICE),
        };
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Schemata {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn reads_what_kernels_print() {
        for (text, written) in [
            ("L3:0=7ff;1=7ff\n", "L3:0=7ff;1=7ff\n"),
            ("    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n", "L3:0=7ff;1=7ff\nMB:0=100;1=100\n"),
            // Values are padded before Linux 6.15.
            ("    MB:0=2048;1=  16\n    L3:0=00ff;1=0fff\n", "L3:0=ff;1=fff\nMB:0=2048;1=16\n"),
            ("L3:8=ffff;0=ff;\n", "L3:0=ff;8=ffff\n"),
            ("  SMBA:0=2048\n    MB:0=2048\n", "MB:0=2048\nSMBA:0=2048\n"),
            ("L3CODE:0=f\nL3DATA:0=f0\n", "L3CODE:0=f\nL3DATA:0=f0\n"),
            ("MB:0=4294967295", "MB:0=4294967295\n"),
            ("L2:0=ff;1=ff\n\n", "L2:0=ff;1=ff\n"),
            ("L9:0=what;1=ever\n  L3:0=f\n", "L3:0=f\nL9:0=what;1=ever\n"),
            ("L3:uninitialized\n", "L3:uninitialized\n"),
            ("", ""),
        ] {
            assert_eq!(read(text).to_string(), written, "{text:?}");
        }
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        for (text, expected) in [
            ("L3:0=f\nL3", "`L3` is no line of a schemata file: there is no `:` behind a name"),
            ("L3:0", "`L3:0` is no line of a schemata file: there is no `=` behind an id"),
            ("L3:x=f", "`L3:x=f` is no line of a schemata file: an id is not a whole number"),
            (
                "MB:0=f",
                "`MB:0=f` is no line of a schemata file: a value is not a number of the kind that the resource has",
            ),
            ("L3:0=f;0=f", "`L3:0=f;0=f` is no line of a schemata file: an id or a resource is there twice"),
            ("L3:0=f\nL3:0=f", "`L3:0=f` is no line of a schemata file: an id or a resource is there twice"),
            ("X:1\nX:2", "`X:2` is no line of a schemata file: an id or a resource is there twice"),
        ] {
            assert_eq!(text.parse::<Schemata>().unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn compares_by_id_and_only_what_is_named() {
        let there = read("L3:0=7ff;8=7ff\nMB:0=100;8=50\n");
        for (wanted, changed, absent) in [
            ("L3:0=7ff;8=7ff\nMB:0=100;8=50", "", ""),
            ("L3:8=7ff", "", ""),
            ("L3:8=f", "L3:8=f\n", ""),
            ("L3:0=f;8=7ff\nMB:8=60", "L3:0=f\nMB:8=60\n", ""),
            // Only wanted values are compared, not all existing ones.
            ("L3:1=f;8=f\nSMBA:0=1", "L3:8=f\n", "L3:1 SMBA:0"),
            ("L3CODE:0=f", "", "L3CODE:0"),
            ("L9:0=1", "", ""),
        ] {
            let difference = read(wanted).difference(&there);
            assert_eq!(difference.changed.to_string(), changed, "{wanted}");
            let names: Vec<_> = difference.absent.iter().map(Absent::to_string).collect();
            assert_eq!(names.join(" "), absent, "{wanted}");
        }
    }

    #[test]
    fn merging_changes_what_is_named_alone() {
        let mut schemata = read("L3:0=7ff;8=7ff\nMB:0=100\nL9:x");
        schemata.merge(&read("L3:8=f\nMB:1=10\nL9:y"));
        assert_eq!(schemata.to_string(), "L3:0=7ff;8=f\nMB:0=100;1=10\nL9:y\n");
    }

    #[test]
    fn a_text_beyond_a_page_is_cut_between_values() {
        let schemata = read("L3:0=7ff;1=7ff;10=7ff\nMB:0=10\nL9:x");
        for (longest, expected) in [
            (4096, vec!["L3:0=7ff;1=7ff;10=7ff\nMB:0=10\n"]),
            (25, vec!["L3:0=7ff;1=7ff;10=7ff\n", "MB:0=10\n"]),
            (12, vec!["L3:0=7ff\n", "L3:1=7ff\n", "L3:10=7ff\n", "MB:0=10\n"]),
        ] {
            assert_eq!(schemata.writes(longest), expected);
        }
    }

    prop_compose! {
        pub(crate) fn schemata()(
            masks in proptest::collection::btree_map((0_usize..6, 0_u32..300), any::<u64>(), 0..12),
            bandwidths in proptest::collection::btree_map((0_usize..2, 0_u32..300), any::<u32>(), 0..12),
        ) -> Schemata {
            let mut schemata = Schemata::new();
            for ((resource, id), bits) in masks {
                schemata.set_mask(CacheResource::ALL[resource], CacheId(id), Mask::from_bits(bits));
            }
            for ((resource, id), value) in bandwidths {
                schemata.set_bandwidth(BandwidthResource::ALL[resource], CacheId(id), Bandwidth(value));
            }
            schemata
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(schemata in schemata(), longest in 40_usize..200) {
            prop_assert_eq!(read(&schemata.to_string()), schemata.clone());
            let mut merged = Schemata::new();
            for text in schemata.writes(longest) {
                prop_assert!(text.len() <= longest && text.ends_with('\n'), "{text:?}");
                merged.merge(&read(&text));
            }
            prop_assert_eq!(merged, schemata);
        }

        #[test]
        fn the_difference_leads_to_what_is_wanted(wanted in schemata(), there in schemata()) {
            let difference = wanted.difference(&there);
            let mut after = there.clone();
            after.merge(&difference.changed);
            let left = wanted.difference(&after);
            prop_assert!(left.changed.is_empty());
            prop_assert_eq!(left.absent, difference.absent);
            // No value was added that did not exist.
            prop_assert!(after.difference(&there).absent.is_empty());
        }

        #[test]
        fn survives_any_text(text: String) {
            let _ = text.parse::<Schemata>();
        }
    }
}
