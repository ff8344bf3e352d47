//! What resctrl divides: caches and memory bandwidth, by the names of `info` and `schemata`.

use std::fmt;

/// Id of a cache, as `/sys/devices/system/cpu/cpu*/cache/index*/id` has it. Ids may have gaps. Memory bandwidth is divided by the
/// level-3 cache that it goes through, so it has the ids of these.
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
    /// Usually a core's own.
    L2,
    /// Usually the last one, shared by many cores.
    L3,
}

/// A line of masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheResource {
    /// Level 2.
    L2,
    /// Level 2, code, where code and data are divided apart (`cdpl2`).
    L2Code,
    /// Level 2, data.
    L2Data,
    /// Level 3.
    L3,
    /// Level 3, code, where code and data are divided apart (`cdp`).
    L3Code,
    /// Level 3, data.
    L3Data,
}

impl CacheResource {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::L2, Self::L2Code, Self::L2Data, Self::L3, Self::L3Code, Self::L3Data];

    /// As the kernel spells it.
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

    /// The cache that it is about.
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

/// A line of bandwidths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BandwidthResource {
    /// `MB`: to the machine's memory.
    Memory,
    /// `SMBA`: to slow memory, such as CXL's (AMD).
    SlowMemory,
}

impl BandwidthResource {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Memory, Self::SlowMemory];

    /// As the kernel spells it.
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
