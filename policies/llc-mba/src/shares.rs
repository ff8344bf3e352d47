//! The shares of a class on all domains, and the name of the class.

use std::collections::BTreeMap;
use std::fmt;

use qosm_sdk::{BandwidthShare, CacheShare, Share};

/// Maximum length of a class name that the host accepts, in bytes.
const NAME_BYTES: usize = 63;
/// Prefix of the names of classes that pods ask for.
pub(crate) const OF_PODS: &str = "pods";

/// The shares on every domain, with the domains that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The share on every domain.
    pub(crate) all: Share,
    /// The shares on domains that differ; unset parts are those of `all`.
    pub(crate) domains: BTreeMap<u32, Share>,
}

impl Shares {
    /// The same share on every domain.
    pub(crate) fn everywhere(share: Share) -> Self {
        Self { all: share, domains: BTreeMap::new() }
    }

    /// Removes parts that do not differ from `all`, so that equal shares compare equal.
    pub(crate) fn normalized(mut self) -> Self {
        for own in self.domains.values_mut() {
            own.cache = own.cache.filter(|_| own.cache != self.all.cache);
            own.bandwidth = own.bandwidth.filter(|_| own.bandwidth != self.all.bandwidth);
        }
        self.domains.retain(|_, own| !is_nothing(*own));
        self
    }

    /// Whether no share is set at all.
    pub(crate) fn is_nothing(&self) -> bool {
        is_nothing(self.all) && self.domains.is_empty()
    }

    /// The share on one domain.
    pub(crate) fn on(&self, domain: u32) -> Share {
        let own = self.domains.get(&domain);
        Share {
            cache: own.and_then(|own| own.cache).or(self.all.cache),
            bandwidth: own.and_then(|own| own.bandwidth).or(self.all.bandwidth),
        }
    }

    /// Name of the class of all pods that ask for these shares. It depends on the shares only, so that pods with equal shares are in the
    /// same class; processors have few classes.
    pub(crate) fn name(&self) -> String {
        let mut name = OF_PODS.to_owned();
        push(&mut name, "", self.all);
        for (domain, own) in &self.domains {
            push(&mut name, &format!("{domain}-"), *own);
        }
        if name.len() > NAME_BYTES { format!("{OF_PODS}_{:016x}", digest(&name)) } else { name }
    }
}

fn is_nothing(share: Share) -> bool {
    share.cache.is_none() && share.bandwidth.is_none()
}

fn push(name: &mut String, domain: &str, share: Share) {
    match share.cache {
        Some(CacheShare::Percent((start, end))) => name.push_str(&format!("_{domain}l3-{start}-{end}")),
        Some(CacheShare::Mask(mask)) => name.push_str(&format!("_{domain}l3-{mask:x}")),
        None => {}
    }
    match share.bandwidth {
        Some(BandwidthShare::Percent(percent)) => name.push_str(&format!("_{domain}mb-{percent}")),
        Some(BandwidthShare::Megabytes(most)) => name.push_str(&format!("_{domain}mb-{most}-mbps")),
        None => {}
    }
}

/// 64-bit FNV-1a hash.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe(self.all))?;
        self.domains.iter().try_for_each(|(domain, own)| write!(f, "; on cache {domain} {}", describe(*own)))
    }
}

fn describe(share: Share) -> String {
    let cache = share.cache.map(|cache| match cache {
        CacheShare::Percent((start, end)) => format!("ways {start} to {end} %"),
        CacheShare::Mask(mask) => format!("ways {mask:x}"),
    });
    let bandwidth = share.bandwidth.map(|bandwidth| match bandwidth {
        BandwidthShare::Percent(percent) => format!("{percent} % of the memory bandwidth"),
        BandwidthShare::Megabytes(most) => format!("{most} MB/s"),
    });
    let parts: Vec<String> = cache.into_iter().chain(bandwidth).collect();
    if parts.is_empty() { "all".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(start: u32, end: u32) -> Share {
        Share { cache: Some(CacheShare::Percent((start, end))), bandwidth: None }
    }

    fn bandwidth(percent: u32) -> Share {
        Share { cache: None, bandwidth: Some(BandwidthShare::Percent(percent)) }
    }

    #[test]
    fn a_name_follows_from_the_shares_alone() {
        for (all, domains, name) in [
            (ways(20, 80), vec![], "pods_l3-20-80"),
            (Share { bandwidth: bandwidth(35).bandwidth, ..ways(20, 80) }, vec![], "pods_l3-20-80_mb-35"),
            (Share { cache: None, bandwidth: None }, vec![(8, bandwidth(80))], "pods_8-mb-80"),
            (ways(20, 80), vec![(0, ways(20, 80)), (1, ways(0, 10))], "pods_l3-20-80_1-l3-0-10"),
        ] {
            let shares = Shares { all, domains: domains.into_iter().collect() }.normalized();
            assert_eq!(shares.name(), name);
        }
    }

    #[test]
    fn a_name_never_gets_too_long() {
        let many = |last| Shares { all: ways(0, 50), domains: (0..16).map(|id| (id, ways(0, id + last))).collect() };
        let (one, other) = (many(1).normalized().name(), many(2).normalized().name());
        assert!(one.len() <= NAME_BYTES && one.starts_with("pods_"), "{one}");
        assert_ne!(one, other);
        assert_eq!(one, many(1).normalized().name());
    }

    #[test]
    fn shares_are_described_in_words() {
        let shares = Shares { all: ways(20, 80), domains: BTreeMap::from([(1, bandwidth(35))]) };
        assert_eq!(shares.to_string(), "ways 20 to 80 %; on cache 1 35 % of the memory bandwidth");
        assert_eq!(shares.on(1), Share { bandwidth: bandwidth(35).bandwidth, ..ways(20, 80) });
    }
}
