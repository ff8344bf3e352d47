//! Shares of the last-level cache and of memory bandwidth, and their usage: Linux' resctrl
//! (`Documentation/filesystems/resctrl.rst`) as policies see it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::pod::ContainerId;
use crate::unit::Bytes;

/// The kernel's number of a cache, and of the memory bandwidth behind it. Numbers may have gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

/// A policy's own name for a class: 1 to 63 letters, digits, dashes and underscores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassName(Arc<str>);

/// A text that is not the name of a class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of a class: give 1 to 63 letters, digits, `-` or `_`")]
pub struct NotAClassName(pub String);

impl ClassName {
    /// The name, which becomes part of a directory's name under resctrl.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClassName {
    type Err = NotAClassName;

    fn from_str(text: &str) -> Result<Self, NotAClassName> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if (1..=63).contains(&text.len()) && text.bytes().all(fits) {
            return Ok(Self(text.into()));
        }
        Err(NotAClassName(text.chars().take(128).collect()))
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A part of a cache's ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheShare {
    /// The ways between two percentages.
    Percent {
        /// Start of the range in percent.
        start: u32,
        /// End of the range in percent; more than `start`, and at most 100.
        end: u32,
    },
    /// Exactly these ways, one bit for each.
    Mask(u64),
}

/// A part of the memory bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BandwidthShare {
    /// At most this percentage, 1 to 100.
    Percent(u32),
    /// At most this many megabytes per second.
    Megabytes(u32),
}

/// The share of a class: on all domains, where `None` means everything, or on a single domain, where `None` means as on all domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Share {
    /// Share of the cache.
    pub cache: Option<CacheShare>,
    /// Share of the memory bandwidth.
    pub bandwidth: Option<BandwidthShare>,
}

/// An invalid share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAShare {
    /// The range is empty, inverted, or ends above 100.
    #[error("the range of ways {start} to {end} % is none: give a start below the end, and an end of at most 100")]
    Range {
        /// Start of the range in percent.
        start: u32,
        /// End of the range in percent.
        end: u32,
    },
    /// The mask has no ways.
    #[error("a mask of no ways is none: set at least one bit")]
    Mask,
    /// The percentage of memory bandwidth is 0 or above 100.
    #[error("{0} % of the memory bandwidth cannot be had: give 1 to 100")]
    Bandwidth(u32),
}

impl Share {
    /// Checks whether any machine can have the share.
    ///
    /// # Errors
    ///
    /// The invalid part of the share.
    pub fn check(self) -> Result<Self, NotAShare> {
        match self.cache {
            Some(CacheShare::Percent { start, end }) if start >= end || end > 100 => {
                return Err(NotAShare::Range { start, end });
            }
            Some(CacheShare::Mask(0)) => return Err(NotAShare::Mask),
            _ => {}
        }
        match self.bandwidth {
            Some(BandwidthShare::Percent(percent)) if !(1..=100).contains(&percent) => {
                Err(NotAShare::Bandwidth(percent))
            }
            _ => Ok(self),
        }
    }

    /// The share on one domain: its own values, else those of all domains.
    #[must_use]
    pub fn over(self, all: Self) -> Self {
        Self { cache: self.cache.or(all.cache), bandwidth: self.bandwidth.or(all.bandwidth) }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cache {
            None => f.write_str("all ways")?,
            Some(CacheShare::Percent { start, end }) => write!(f, "ways {start}-{end} %")?,
            Some(CacheShare::Mask(mask)) => write!(f, "ways {mask:x}")?,
        }
        match self.bandwidth {
            None => Ok(()),
            Some(BandwidthShare::Percent(percent)) => write!(f, ", {percent} % of the memory bandwidth"),
            Some(BandwidthShare::Megabytes(most)) => write!(f, ", {most} MB/s"),
        }
    }
}

/// The shares of a class on all domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shares {
    /// The share on every domain.
    pub all: Share,
    /// Shares on single domains, as far as they differ.
    pub domains: BTreeMap<DomainId, Share>,
}

impl Shares {
    /// The share on one domain.
    pub fn on(&self, domain: DomainId) -> Share {
        self.domains.get(&domain).map_or(self.all, |own| own.over(self.all))
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        self.domains.keys().try_for_each(|&domain| write!(f, "; on domain {}: {}", domain.0, self.on(domain)))
    }
}

/// One domain, and the resources that can be divided there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The kernel's number.
    pub id: DomainId,
    /// Number of ways that can be assigned; 0 if the cache cannot be divided.
    pub cache_ways: u32,
    /// Size of the cache; `None` if the kernel does not report it.
    pub cache: Option<Bytes>,
    /// Whether its memory bandwidth can be divided.
    pub divides_bandwidth: bool,
}

/// Usage on one domain; `None` if the processor does not count it, or has not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The domain.
    pub domain: DomainId,
    /// Current occupancy of the cache.
    pub occupancy: Option<Bytes>,
    /// Bytes moved between the cache and the memory of the same NUMA node within the window.
    pub local: Option<Bytes>,
    /// Bytes moved between the cache and any memory within the window.
    pub total: Option<Bytes>,
}

impl Usage {
    /// The same row with 0 for each amount that is counted.
    #[must_use]
    pub fn without_amounts(&self) -> Self {
        let zero = |amount: Option<Bytes>| amount.map(|_| Bytes(0));
        Self { domain: self.domain, occupancy: zero(self.occupancy), local: zero(self.local), total: zero(self.total) }
    }
}

/// Adds traffic domain by domain; occupancy is the current one. A value that was counted neither before nor now stays `None`.
pub fn sum(before: &[Usage], now: &[Usage]) -> Vec<Usage> {
    let plus = |a: Option<Bytes>, b: Option<Bytes>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(Bytes(a.map_or(0, |bytes| bytes.0).saturating_add(b.map_or(0, |bytes| bytes.0)))),
    };
    let row = |now: &Usage| {
        let before = before.iter().find(|usage| usage.domain == now.domain);
        Usage {
            local: plus(before.and_then(|usage| usage.local), now.local),
            total: plus(before.and_then(|usage| usage.total), now.total),
            ..*now
        }
    };
    now.iter().map(row).collect()
}

/// Everything about resctrl that one evaluation sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlColumn {
    /// The domains that are online.
    pub domains: Vec<Domain>,
    /// The policy's classes that are in force.
    pub classes: Vec<(ClassName, Vec<Usage>)>,
    /// Running containers whose usage is counted.
    pub containers: Vec<(ContainerId, Vec<Usage>)>,
    /// Usage of everything that is in no class.
    pub rest: Vec<Usage>,
    /// States of the policy's classes.
    pub states: Vec<ClassState>,
}

/// The state of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassState {
    /// Its name.
    pub class: ClassName,
    /// Whether its shares are in force.
    pub in_force: bool,
    /// Why the shares, or which of them, are not in force; empty if all are.
    pub why: String,
}

/// A class that the agent wants on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedClass {
    /// The policy.
    pub policy: Arc<str>,
    /// The policy's own name for it.
    pub class: ClassName,
    /// Its shares.
    pub shares: Arc<Shares>,
    /// The containers in the class, sorted. A container in several classes belongs to the first.
    pub members: Vec<ContainerId>,
}

/// The outcome of a class on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassOutcome {
    /// Whether its shares are in force. For a class without members, whether they could be.
    pub in_force: bool,
    /// Why the shares, or which of them, are not in force, and how to correct that; empty if all are.
    pub why: String,
    /// Name of the control group, that of another class if the two share a group; empty without a group.
    pub group: String,
    /// The schemata in force as the kernel prints them, on one line; empty without a group.
    pub schemata: String,
    /// Number of threads that were moved into the group this time.
    pub threads_moved: usize,
}

/// Usage since the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResctrlReading {
    /// Usage of each wanted class, in their order. Empty for a class without a group; classes that share a group have the
    /// sum of both.
    pub classes: Vec<Vec<Usage>>,
    /// Usage of each counted container. With too few hardware counters, not all containers are counted.
    pub containers: Vec<(ContainerId, Vec<Usage>)>,
    /// Usage of everything that is in no class.
    pub rest: Vec<Usage>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_share_is_an_error() {
        let range = |start, end| Share { cache: Some(CacheShare::Percent { start, end }), bandwidth: None };
        let bandwidth = |percent| Share { cache: None, bandwidth: Some(BandwidthShare::Percent(percent)) };
        for (share, good) in [
            (Share::default(), true),
            (range(0, 100), true),
            (range(30, 31), true),
            (range(30, 30), false),
            (range(60, 30), false),
            (range(0, 101), false),
            (Share { cache: Some(CacheShare::Mask(0)), bandwidth: None }, false),
            (Share { cache: Some(CacheShare::Mask(5)), bandwidth: None }, true),
            (bandwidth(0), false),
            (bandwidth(1), true),
            (bandwidth(100), true),
            (bandwidth(101), false),
        ] {
            assert_eq!(share.check().is_ok(), good, "{share}");
        }
    }

    #[test]
    fn a_domain_of_its_own_says_only_what_differs() {
        let all = Share {
            cache: Some(CacheShare::Percent { start: 0, end: 30 }),
            bandwidth: Some(BandwidthShare::Percent(50)),
        };
        let own = Share { cache: Some(CacheShare::Mask(1)), bandwidth: None };
        let shares = Shares { all, domains: BTreeMap::from([(DomainId(8), own)]) };
        assert_eq!(shares.on(DomainId(0)), all);
        assert_eq!(shares.on(DomainId(8)), Share { cache: own.cache, bandwidth: all.bandwidth });
        assert_eq!(shares.on(DomainId(8)).to_string(), "ways 1, 50 % of the memory bandwidth");
    }

    #[test]
    fn a_name_of_a_class_becomes_part_of_a_folders_name() {
        for (text, good) in [
            ("be", true),
            ("pod-1b2c_3", true),
            ("", false),
            ("a/b", false),
            ("..", false),
            ("a\n", false),
            (&"x".repeat(63), true),
            (&"x".repeat(64), false),
        ] {
            assert_eq!(text.parse::<ClassName>().is_ok(), good, "{text}");
        }
    }
}
