//! Translates a class's shares into schemata of this machine, with reasons for the shares that are not possible.

use qosm_model::resctrl::{BandwidthShare, CacheShare, DomainId, Shares};

use super::bandwidth::{Bandwidth, BandwidthUnit, Percent};
use super::error::ResctrlError;
use super::info::{BandwidthInfo, CacheInfo, Info};
use super::mask::{Mask, PercentRange, Shareable};
use super::resource::{BandwidthResource, CacheId, CacheLevel};
use super::schemata::Schemata;

/// The translation of a class's shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Translated {
    /// A value for each resource of this machine: the maximum if no smaller share is wanted or possible.
    pub(crate) schemata: Schemata,
    /// Shares that are not in force, with reason and remedy; each once.
    pub(crate) missing: Vec<String>,
    /// Whether shares are wanted, and none of them is possible.
    pub(crate) is_in_vain: bool,
}

/// Megabytes per second in an eighth of a gigabyte per second.
const EIGHTH: u32 = 125;

/// The kernel's MB with `mba_MBps` has 2^20 bytes; the operator's has a million.
fn in_mebibytes(megabytes: u32) -> u32 {
    u32::try_from((u64::from(megabytes) * 1_000_000) >> 20).unwrap_or(u32::MAX)
}

impl Info {
    /// The cache level that shares refer to: level 3, or level 2 if only that can be divided.
    pub(crate) fn level(&self) -> CacheLevel {
        let divides = |level| self.caches_of(level).next().is_some();
        if divides(CacheLevel::L2) && !divides(CacheLevel::L3) { CacheLevel::L2 } else { CacheLevel::L3 }
    }

    /// The bandwidth that shares refer to: that of memory, or of slow memory if only that can be limited.
    pub(crate) fn limited(&self) -> Option<&BandwidthInfo> {
        BandwidthResource::ALL.iter().find_map(|resource| self.bandwidths.get(resource))
    }

    /// Translates shares into schemata. `full` is the bandwidth of all cores of a cache together, in MB/s, if it is configured.
    pub(crate) fn translate(&self, shares: &Shares, full: Option<u32>) -> Translated {
        let mut translation = Translation { out: Translated::default(), asked: 0, had: 0 };
        let mut domains: Vec<CacheId> = Vec::new();
        // Resources of other levels get their maximum.
        for (&resource, cache) in &self.caches {
            for &id in &cache.ids {
                translation.out.schemata.set_mask(resource, id, cache.cbm_mask);
            }
        }
        for (&resource, bandwidth) in &self.bandwidths {
            for &id in &bandwidth.ids {
                translation.out.schemata.set_bandwidth(resource, id, bandwidth.maximum);
            }
        }
        let mut divides_cache = false;
        for (resource, cache) in self.caches_of(self.level()) {
            // Code and data have the same ids, which the message lists once.
            divides_cache = true;
            for &id in &cache.ids {
                domains.push(id);
                let Some(share) = shares.on(DomainId(id.0)).cache else { continue };
                if let Some(mask) = translation.take(cache.share(share)) {
                    translation.out.schemata.set_mask(resource, id, mask);
                }
            }
        }
        if let Some(bandwidth) = self.limited() {
            for &id in &bandwidth.ids {
                domains.push(id);
                let Some(share) = shares.on(DomainId(id.0)).bandwidth else { continue };
                if let Some(value) = translation.take(bandwidth.limit(share, full)) {
                    translation.out.schemata.set_bandwidth(bandwidth.resource, id, value);
                }
            }
        }
        let mut every = std::iter::once(&shares.all).chain(shares.domains.values());
        let narrows = |share: CacheShare| !matches!(share, CacheShare::Percent { start: 0, end: 100 });
        if !divides_cache && every.clone().any(|share| share.cache.is_some_and(narrows)) {
            translation.miss("its part of the cache is not in force: this machine divides no cache".to_owned());
        }
        let limits = |share: BandwidthShare| share != BandwidthShare::Percent(100);
        if self.limited().is_none() && every.any(|share| share.bandwidth.is_some_and(limits)) {
            translation.miss(
                "its part of the memory bandwidth is not in force: this machine divides no memory bandwidth".to_owned(),
            );
        }
        for domain in shares.domains.keys() {
            if !domains.contains(&CacheId(domain.0)) {
                let there: Vec<String> = {
                    domains.sort_unstable();
                    domains.dedup();
                    domains.iter().map(CacheId::to_string).collect()
                };
                translation.miss(format!(
                    "its shares of domain {} are not in force: only {} online",
                    domain.0,
                    match there.as_slice() {
                        [] => "no domain is".to_owned(),
                        [one] => format!("domain {one} is"),
                        more => format!("domains {} are", more.join(", ")),
                    }
                ));
            }
        }
        translation.out.is_in_vain = translation.asked > 0 && translation.had == 0;
        translation.out
    }
}

/// The state of a translation.
struct Translation {
    out: Translated,
    asked: usize,
    had: usize,
}

impl Translation {
    fn take<T>(&mut self, part: Result<T, String>) -> Option<T> {
        self.asked += 1;
        match part {
            Ok(part) => {
                self.had += 1;
                Some(part)
            }
            Err(why) => {
                self.say(why);
                None
            }
        }
    }

    /// Records a share of a resource that this machine does not have.
    fn miss(&mut self, why: String) {
        self.asked += 1;
        self.say(why);
    }

    fn say(&mut self, why: String) {
        if !self.out.missing.contains(&why) {
            self.out.missing.push(why);
        }
    }
}

impl CacheInfo {
    fn share(&self, share: CacheShare) -> Result<Mask, String> {
        let mask = match share {
            CacheShare::Percent { start, end } => {
                let range = u8::try_from(start).ok().zip(u8::try_from(end).ok());
                let range = range.and_then(|(start, end)| PercentRange::new(start, end).ok());
                let range = range.ok_or_else(|| {
                    format!("ways {start} to {end} % are none: give a start below the end, and an end of at most 100")
                })?;
                return Ok(self.mask(range, Shareable::Use));
            }
            CacheShare::Mask(bits) => Mask::from_bits(bits),
        };
        let least = self.min_cbm_bits.max(1);
        let refuse = |why: String| Err(format!("the ways {mask} are not in force: {why}"));
        if !self.cbm_mask.contains(mask) {
            return refuse(format!("this cache has {}; name ways within them, or a range in percent", self.cbm_mask));
        }
        if mask.ways() < least {
            return refuse(format!("this processor takes no fewer than {least}; name more, or a range in percent"));
        }
        if !self.sparse_masks && !mask.is_contiguous() {
            return refuse(
                "this processor takes no holes between them; name one run, or a range in percent".to_owned(),
            );
        }
        if mask.first_run() < least {
            return refuse(format!("this processor takes no run shorter than {least}; name one run"));
        }
        Ok(mask)
    }
}

impl BandwidthInfo {
    fn limit(&self, share: BandwidthShare, full: Option<u32>) -> Result<Bandwidth, String> {
        let out_of_force = |error: ResctrlError| format!("its part of the memory bandwidth is not in force: {error}");
        match (share, self.unit) {
            (BandwidthShare::Megabytes(most), BandwidthUnit::MegabytesPerSecond) => {
                Ok(self.accepted(Bandwidth(most.max(1))))
            }
            (BandwidthShare::Megabytes(most), _) => Err(format!(
                "{most} MB/s are not in force: resctrl is not mounted with mba_MBps; ask for percent, or mount it with that option"
            )),
            (BandwidthShare::Percent(percent), unit) => {
                let percent = u8::try_from(percent).unwrap_or(u8::MAX);
                let full = full.map(|full| match unit {
                    BandwidthUnit::EighthsOfGigabyte => Bandwidth(full / EIGHTH),
                    BandwidthUnit::Percent => Bandwidth(full),
                    BandwidthUnit::MegabytesPerSecond => Bandwidth(in_mebibytes(full)),
                });
                Percent::new(percent).and_then(|percent| self.share(percent, full)).map_err(out_of_force)
            }
        }
    }
}
