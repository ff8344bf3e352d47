//! What a class may use, everywhere, and what it is called.

use std::collections::BTreeMap;
use std::fmt;

use qosm_sdk::{BandwidthShare, CacheShare, Share};

/// Longest name of a class that the host takes.
const NAME_BYTES: usize = 63;
/// What names of classes begin with that pods asked for.
pub(crate) const OF_PODS: &str = "pods";

/// Shares of every domain, and of those that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// Of every domain.
    pub(crate) all: Share,
    /// Of these, as far as it differs.
    pub(crate) domains: BTreeMap<u32, Share>,
}

impl Shares {
    /// The same of every domain.
    pub(crate) fn everywhere(share: Share) -> Self {
        Self { all: share, domains: BTreeMap::new() }
    }

    /// Without what says nothing, so that what comes to the same is the same.
    pub(crate) fn normalized(mut self) -> Self {
        for own in self.domains.values_mut() {
            own.cache = own.cache.filter(|_| own.cache != self.all.cache);
            own.bandwidth = own.bandwidth.filter(|_| own.bandwidth != self.all.bandwidth);
        }
        self.domains.retain(|_, own| !is_nothing(*own));
        self
    }

    /// Whether nothing is given at all.
    pub(crate) fn is_nothing(&self) -> bool {
        is_nothing(self.all) && self.domains.is_empty()
    }

    /// The share of one domain.
    pub(crate) fn on(&self, domain: u32) -> Share {
        let own = self.domains.get(&domain);
        Share {
            cache: own.and_then(|own| own.cache).or(self.all.cache),
            bandwidth: own.and_then(|own| own.bandwidth).or(self.all.bandwidth),
        }
    }

    /// A name for the class of all pods that ask for this: it follows from the shares alone, so that pods with equal ones share a
    /// class, which processors have few of.
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

/// FNV-1a.
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
