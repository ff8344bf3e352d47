//! Resources of resctrl: caches and memory bandwidth, by their names in `info` and `schemata`.

use std::fmt;

/// Id of a cache, as in `/sys/devices/system/cpu/cpu*/cache/index*/id`. Ids may have gaps. Memory bandwidth is divided
/// by the level-3 cache that it goes through, and uses the same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId(pub u32);

impl fmt::Display for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Level of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheLevel {
    /// Usually private to a core.
    L2,
    /// Usually the last level, shared by many cores.
    L3,
}

/// A line of masks in `schemata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheResource {
    /// Level 2.
    L2,
    /// Level 2, code, with code and data separate (`cdpl2`).
    L2Code,
    /// Level 2, data, with code and data separate.
    L2Data,
    /// Level 3.
    L3,
    /// Level 3, code, with code and data separate (`cdp`).
    L3Code,
    /// Level 3, data, with code and data separate.
    L3Data,
}

impl CacheResource {
    /// All cache resources.
    pub const ALL: [Self; 6] = [Self::L2, Self::L2Code, Self::L2Data, Self::L3, Self::L3Code, Self::L3Data];

    /// The kernel's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L2 => "L2",
            Self::L2Code => "L2CODE",
            Self::L2Data => "L2DATA",
            Self::L3 => "L3",
            Self::L3Code => "L3CODE",
            Self::L3Data => "L3DATA",
        }
    }

    /// Level of the cache.
    pub const fn level(self) -> CacheLevel {
        match self {
            Self::L2 | Self::L2Code | Self::L2Data => CacheLevel::L2,
            Self::L3 | Self::L3Code | Self::L3Data => CacheLevel::L3,
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.as_str() == text)
    }
}

impl fmt::Display for CacheResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A line of bandwidths in `schemata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BandwidthResource {
    /// `MB`: bandwidth of the machine's memory.
    Memory,
    /// `SMBA`: bandwidth of slow memory, such as CXL's (AMD).
    SlowMemory,
}

impl BandwidthResource {
    /// All bandwidth resources.
    pub const ALL: [Self; 2] = [Self::Memory, Self::SlowMemory];

    /// The kernel's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "MB",
            Self::SlowMemory => "SMBA",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource| resource.as_str() == text)
    }
}

impl fmt::Display for BandwidthResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
