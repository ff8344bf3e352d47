//! Domains in the form that policies receive.

use std::collections::BTreeMap;

use qosm_model::resctrl::{Domain, DomainId};
use qosm_model::unit::Bytes;

use super::counters::Counters;
use super::groups::Groups;
use super::mask::Mask;
use super::resource::{CacheId, CacheResource};

/// The online domains, and the resources that can be divided in each.
pub(crate) fn domains(groups: &Groups) -> Vec<Domain> {
    let info = groups.info();
    let mut found: BTreeMap<CacheId, Domain> = BTreeMap::new();
    let empty = |id: CacheId| Domain { id: DomainId(id.0), cache_ways: 0, cache: None, divides_bandwidth: false };
    for (resource, cache) in info.caches_of(info.level()) {
        let sizes = groups.sizes(resource);
        for &id in &cache.ids {
            let domain = found.entry(id).or_insert_with(|| empty(id));
            domain.cache_ways = cache.cbm_mask.ways();
            domain.cache = sizes.get(&id).copied();
        }
    }
    if let Some(bandwidth) = info.limited() {
        for &id in &bandwidth.ids {
            found.entry(id).or_insert_with(|| empty(id)).divides_bandwidth = true;
        }
    }
    if found.is_empty()
        && let Ok(counters) = Counters::open(groups, None)
    {
        found.extend(counters.samples().iter().map(|sample| (sample.cache, empty(sample.cache))));
    }
    found.into_values().collect()
}

impl Groups {
    /// Sizes of whole caches: `size` only has those of the root's part.
    fn sizes(&self, resource: CacheResource) -> BTreeMap<CacheId, Bytes> {
        let mut sizes = BTreeMap::new();
        let (Ok(text), Ok(root)) = (self.read("size"), self.schemata(None)) else { return sizes };
        let ways = self.info().caches.get(&resource).map_or(0, |cache| cache.cbm_mask.ways());
        let lines = text.lines().filter_map(|line| line.trim_ascii().split_once(':'));
        for item in
            lines.filter(|(name, _)| name.trim_ascii() == resource.as_str()).flat_map(|(_, items)| items.split(';'))
        {
            let Some((id, size)) = item.split_once('=') else { continue };
            let number = |text: &str| crate::parse::number(text.as_bytes());
            let (Some(id), Some(size)) = (number(id).and_then(|id| u32::try_from(id).ok()), number(size)) else {
                continue;
            };
            let of_root = root.mask(resource, CacheId(id)).map_or(0, Mask::ways);
            if let Some(way) = size.checked_div(u64::from(of_root)) {
                sizes.insert(CacheId(id), Bytes(way * u64::from(ways)));
            }
        }
        sizes
    }
}
