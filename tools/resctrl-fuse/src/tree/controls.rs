//! Resources, CLOSIDs, and the value of each class in each domain.

use std::collections::BTreeMap;

use super::Tree;
use crate::profile::{Bandwidth, Cache, Domain, Profile};

/// A CLOSID, which identifies a class of allocations. The root has 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Closid(pub(crate) u32);

/// The resources that can be allocated, in the kernel's order of registration (`enum resctrl_res_level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    L3,
    L2,
    Mb,
    Smba,
}

/// The accesses that a mask applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConfType {
    Both,
    Code,
    Data,
}

/// A kind of line in `schemata` (`struct resctrl_schema`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schema {
    pub(crate) name: String,
    pub(crate) resource: Resource,
    pub(crate) conf_type: ConfType,
    /// Number of CLOSIDs; halved if code and data have separate masks.
    pub(crate) num_closids: u32,
    /// Length of the name for the alignment of lines.
    pub(crate) name_width: usize,
}

/// The key of a value: resource, kind of mask, domain id and class.
pub(crate) type Place = (Resource, ConfType, u32, Closid);

/// The values that differ from the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controls(pub(crate) BTreeMap<Place, u32>);

/// Whether each CLOSID is taken. Their number is the minimum over all resources; 0 without allocation.
#[derive(Clone, Debug)]
pub(crate) struct Closids(Vec<bool>);

impl Resource {
    pub(crate) fn is_cache(self) -> bool {
        matches!(self, Self::L3 | Self::L2)
    }
}

impl ConfType {
    /// The other mask of the same cache.
    pub(crate) fn peer(self) -> Self {
        match self {
            Self::Both => Self::Both,
            Self::Code => Self::Data,
            Self::Data => Self::Code,
        }
    }
}

/// The schemas of a mount, the last registered first, as `schemata` shows them (`schemata_list_create`).
pub(crate) fn schemas(profile: &Profile) -> Vec<Schema> {
    let mut schemas = Vec::new();
    for (resource, name, cache, cdp) in
        [(Resource::L3, "L3", &profile.l3, profile.mount.cdp), (Resource::L2, "L2", &profile.l2, profile.mount.cdpl2)]
    {
        let Some(cache) = cache else { continue };
        let kinds: &[_] =
            if cdp { &[(ConfType::Code, "CODE"), (ConfType::Data, "DATA")] } else { &[(ConfType::Both, "")] };
        for &(conf_type, suffix) in kinds {
            let name = format!("{name}{suffix}");
            // The width does not depend on the mount option `cdp`.
            let name_width = name.len() + if cache.cdp_capable && !cdp { 4 } else { 0 };
            let num_closids = if cdp { cache.num_closids / 2 } else { cache.num_closids };
            schemas.push(Schema { name, resource, conf_type, num_closids, name_width });
        }
    }
    for (resource, name, bandwidth) in [(Resource::Mb, "MB", &profile.mb), (Resource::Smba, "SMBA", &profile.smba)] {
        let Some(bandwidth) = bandwidth else { continue };
        let num_closids = bandwidth.num_closids;
        let name = name.to_owned();
        schemas.push(Schema { name_width: name.len(), name, resource, conf_type: ConfType::Both, num_closids });
    }
    schemas.reverse();
    schemas
}

impl Closids {
    /// Creates the CLOSIDs; only the root's is taken.
    pub(crate) fn new(schemas: &[Schema]) -> Self {
        let count = schemas.iter().map(|schema| schema.num_closids).min().unwrap_or(0);
        Self((0..count).map(|closid| closid == 0).collect())
    }

    /// Takes the lowest free CLOSID (`closid_alloc`).
    pub(crate) fn take(&mut self) -> Option<Closid> {
        let free = self.0.iter().position(|taken| !taken)?;
        *self.0.get_mut(free)? = true;
        u32::try_from(free).ok().map(Closid)
    }

    pub(crate) fn give_back(&mut self, closid: Closid) {
        if let Some(taken) = usize::try_from(closid.0).ok().and_then(|index| self.0.get_mut(index)) {
            *taken = false;
        }
    }
}

impl Tree {
    /// The cache of a resource; `None` for bandwidth.
    pub(crate) fn cache(&self, resource: Resource) -> Option<&Cache> {
        match resource {
            Resource::L3 => self.profile.l3.as_ref(),
            Resource::L2 => self.profile.l2.as_ref(),
            Resource::Mb | Resource::Smba => None,
        }
    }

    /// The bandwidth of a resource; `None` for caches.
    pub(crate) fn bandwidth(&self, resource: Resource) -> Option<&Bandwidth> {
        match resource {
            Resource::Mb => self.profile.mb.as_ref(),
            Resource::Smba => self.profile.smba.as_ref(),
            Resource::L3 | Resource::L2 => None,
        }
    }

    /// The domains of a resource with an online CPU, sorted by id.
    pub(crate) fn domains(&self, resource: Resource) -> Vec<&Domain> {
        let domains = match resource {
            Resource::L2 => &self.profile.l2_domains,
            _ => &self.profile.l3_domains,
        };
        let mut there: Vec<_> = domains.iter().filter(|domain| self.is_online(domain)).collect();
        there.sort_by_key(|domain| domain.id);
        there
    }

    /// The initial value of the hardware: all ways, or the whole bandwidth (`resctrl_get_default_ctrl`).
    pub(crate) fn default_control(&self, resource: Resource) -> u32 {
        let mask = self.cache(resource).map(|cache| cache.cbm_mask);
        mask.or(self.bandwidth(resource).map(|bandwidth| bandwidth.max)).unwrap_or(0)
    }

    /// The value of a class in a domain (`resctrl_arch_get_config`).
    pub(crate) fn control(&self, place: Place) -> u32 {
        self.controls.0.get(&place).copied().unwrap_or_else(|| self.default_control(place.0))
    }

    /// Whether code and data of this cache have separate masks.
    pub(crate) fn has_cdp(&self, resource: Resource) -> bool {
        match resource {
            Resource::L3 => self.profile.mount.cdp,
            Resource::L2 => self.profile.mount.cdpl2,
            Resource::Mb | Resource::Smba => false,
        }
    }

    /// Every taken CLOSID, with the mode of its group.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (Closid, super::Mode)> + '_ {
        self.groups.values().filter(|group| group.parent.is_none()).map(|group| (group.closid, group.mode))
    }
}
