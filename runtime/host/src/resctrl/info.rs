//! The `info` directory: the resources of this machine's processors, and their granularity.

use std::collections::BTreeMap;

use cap_std::fs::Dir;
use qosm_model::unit::Bytes;

use super::availability::{MountOptions, Vendor};
use super::bandwidth::{Bandwidth, BandwidthUnit, Percent};
use super::error::ResctrlError;
use super::mask::{self, Mask, PercentRange, Shareable};
use super::resource::{BandwidthResource, CacheId, CacheLevel, CacheResource};
use super::schemata::Schemata;
use crate::backend::join;
use crate::error::shortened;

/// Resources that can be divided and measured. Each part may be missing: some machines have only masks, bandwidth or monitoring.
///
/// Kernel: Documentation/filesystems/resctrl.rst, "Info directory".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Caches, by line of `schemata`: with code and data separate, a cache has two entries, and none for the cache as a whole.
    pub caches: BTreeMap<CacheResource, CacheInfo>,
    /// Memory bandwidth, by line of `schemata`.
    pub bandwidths: BTreeMap<BandwidthResource, BandwidthInfo>,
    /// Monitoring; `None` without it.
    pub monitoring: Option<MonitoringInfo>,
}

/// A cache that can be divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// Number of CLOSIDs of this resource.
    pub num_closids: u32,
    /// Mask of all ways.
    pub cbm_mask: Mask,
    /// Minimum number of ways of a group. 0 on AMD, whose kernels accept an empty mask.
    pub min_cbm_bits: u32,
    /// Ways that other hardware uses as well.
    pub shareable_bits: Mask,
    /// Whether a mask may have holes. `false` if the kernel does not report it (before Linux 6.7).
    pub sparse_masks: bool,
    /// Ids of the caches, ascending.
    pub ids: Vec<CacheId>,
}

/// Memory bandwidth that can be limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BandwidthInfo {
    /// The bandwidth resource.
    pub resource: BandwidthResource,
    /// Number of CLOSIDs of this resource.
    pub num_closids: u32,
    /// Minimum value.
    pub min_bandwidth: u32,
    /// The kernel rounds values up to a multiple of this.
    pub bandwidth_gran: u32,
    /// Whether the delay grows linearly with the value. Otherwise Intel's kernels refuse all values; meaningless on AMD.
    pub delay_linear: bool,
    /// The limit that applies to two threads on one core; `None` if the kernel does not report it.
    pub thread_throttle_mode: Option<ThreadThrottleMode>,
    /// The unit of values.
    pub unit: BandwidthUnit,
    /// The value that lifts the limit.
    pub maximum: Bandwidth,
    /// Ids of the caches whose cores share a bandwidth, ascending.
    pub ids: Vec<CacheId>,
}

/// The bandwidth limit of a core whose threads have different limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadThrottleMode {
    /// The stricter limit applies to both threads.
    Max,
    /// Each thread has its own limit.
    PerThread,
}

/// Resources that can be measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitoringInfo {
    /// Number of RMIDs: the maximum number of groups that can be measured, including control and monitor groups and the root.
    pub num_rmids: u32,
    /// Whether `llc_occupancy`, the size of a group's lines in a cache, is available.
    pub llc_occupancy: bool,
    /// Whether `mbm_total_bytes`, the traffic of a cache with all memory, is available.
    pub mbm_total: bool,
    /// Whether `mbm_local_bytes`, the traffic with the memory of its own NUMA node, is available.
    pub mbm_local: bool,
    /// Occupancy of each cache below which a released RMID is used again.
    pub max_threshold_occupancy: Option<Bytes>,
}

impl Info {
    /// Reads `info`, and the cache ids in the root's schemata. `path` is the path of `root`, for messages.
    ///
    /// # Errors
    ///
    /// [`ResctrlError::Read`], and [`ResctrlError::Parse`] for a file with unexpected content.
    pub fn read(root: &Dir, path: &str, vendor: Vendor, options: MountOptions) -> Result<Self, ResctrlError> {
        let files = Files { root, path };
        let schemata = match files.text("schemata")? {
            Some(text) => {
                text.parse().map_err(|source| ResctrlError::Schemata { path: join(path, "schemata"), source })?
            }
            // Monitoring only.
            None => Schemata::new(),
        };
        let mut info = Self::default();
        for resource in CacheResource::ALL {
            if let Some(cache) = files.cache(resource, &schemata)? {
                info.caches.insert(resource, cache);
            }
        }
        for resource in BandwidthResource::ALL {
            if let Some(bandwidth) = files.bandwidth(resource, &schemata, vendor, options)? {
                info.bandwidths.insert(resource, bandwidth);
            }
        }
        info.monitoring = files.monitoring()?;
        Ok(info)
    }

    /// Maximum number of control groups, including the root: the minimum over all resources, since a CLOSID applies to
    /// all of them. `None` if no resource can be divided.
    pub fn closids(&self) -> Option<u32> {
        let caches = self.caches.values().map(|cache| cache.num_closids);
        caches.chain(self.bandwidths.values().map(|bandwidth| bandwidth.num_closids)).min()
    }

    /// The lines of a cache level: one, two with code and data separate, none if it cannot be divided.
    pub fn caches_of(&self, level: CacheLevel) -> impl Iterator<Item = (CacheResource, &CacheInfo)> {
        let caches = self.caches.iter().map(|(&resource, cache)| (resource, cache));
        caches.filter(move |(resource, _)| resource.level() == level)
    }

    /// Schemata with a percent range of one cache, or of all caches of a level. Code and data get the same range. Empty
    /// if the level cannot be divided.
    pub fn ways(&self, level: CacheLevel, only: Option<CacheId>, range: PercentRange, use_of: Shareable) -> Schemata {
        let mut schemata = Schemata::new();
        for (resource, cache) in self.caches_of(level) {
            let mask = cache.mask(range, use_of);
            for id in ids(only, &cache.ids) {
                schemata.set_mask(resource, id, mask);
            }
        }
        schemata
    }

    /// Schemata with a share of the bandwidth of one cache's cores, or of every cache's. Empty if this bandwidth cannot be limited.
    ///
    /// # Errors
    ///
    /// As [`BandwidthInfo::share`], which also describes `full`.
    pub fn share(
        &self,
        resource: BandwidthResource,
        only: Option<CacheId>,
        percent: Percent,
        full: Option<Bandwidth>,
    ) -> Result<Schemata, ResctrlError> {
        let mut schemata = Schemata::new();
        if let Some(bandwidth) = self.bandwidths.get(&resource) {
            let value = bandwidth.share(percent, full)?;
            for id in ids(only, &bandwidth.ids) {
                schemata.set_bandwidth(resource, id, value);
            }
        }
        Ok(schemata)
    }

    /// Wanted schemata as the kernel will show them: with rounded bandwidths, so that they can be compared with the current ones.
    pub fn accepted(&self, wanted: &Schemata) -> Schemata {
        let mut accepted = wanted.clone();
        for (resource, id, value) in wanted.bandwidths() {
            if let Some(bandwidth) = self.bandwidths.get(&resource) {
                accepted.set_bandwidth(resource, id, bandwidth.accepted(value));
            }
        }
        accepted
    }

    /// Whether the schemata contain exactly the known caches.
    pub(crate) fn fits(&self, schemata: &Schemata) -> bool {
        let masks = schemata.masks().map(|(resource, id, _)| (resource, id));
        let known = self.caches.iter().flat_map(|(&resource, cache)| cache.ids.iter().map(move |&id| (resource, id)));
        let bandwidths = schemata.bandwidths().map(|(resource, id, _)| (resource, id));
        let limited = self.bandwidths.values().flat_map(|one| one.ids.iter().map(move |&id| (one.resource, id)));
        masks.eq(known) && bandwidths.eq(limited)
    }

    /// The ways of a mask that other hardware uses as well; empty for a cache that cannot be divided.
    pub fn shared_with_hardware(&self, resource: CacheResource, mask: Mask) -> Mask {
        self.caches.get(&resource).map_or(Mask::default(), |cache| cache.shareable_bits.overlap(mask))
    }
}

impl CacheInfo {
    /// The mask of a percent range, with at least the ways that the kernel requires.
    pub fn mask(&self, range: PercentRange, use_of: Shareable) -> Mask {
        mask::of_range(range, self.cbm_mask, self.min_cbm_bits, self.shareable_bits, use_of)
    }
}

fn ids(only: Option<CacheId>, all: &[CacheId]) -> Vec<CacheId> {
    only.map_or_else(|| all.to_vec(), |id| vec![id])
}

struct Files<'a> {
    root: &'a Dir,
    path: &'a str,
}

impl Files<'_> {
    /// The content of a file; `None` if it does not exist.
    fn text(&self, file: &str) -> Result<Option<String>, ResctrlError> {
        match self.root.read(file) {
            Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Err(source) if crate::error::is_absent(&source) => Ok(None),
            Err(source) => Err(ResctrlError::Read { path: join(self.path, file), source }),
        }
    }

    fn optional<T>(
        &self,
        file: &str,
        expected: &'static str,
        value: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ResctrlError> {
        let Some(text) = self.text(file)? else { return Ok(None) };
        match value(&text) {
            Some(value) => Ok(Some(value)),
            None => {
                Err(ResctrlError::Parse { path: join(self.path, file), expected, text: shortened(text.as_bytes()) })
            }
        }
    }

    fn required<T>(
        &self,
        file: &str,
        expected: &'static str,
        value: impl Fn(&str) -> Option<T>,
    ) -> Result<T, ResctrlError> {
        let missing =
            || ResctrlError::Read { path: join(self.path, file), source: std::io::ErrorKind::NotFound.into() };
        self.optional(file, expected, value)?.ok_or_else(missing)
    }

    fn number(&self, file: &str) -> Result<u32, ResctrlError> {
        self.required(file, "a whole number", number)
    }

    fn has(&self, directory: &str) -> bool {
        self.root.metadata(directory).is_ok_and(|metadata| metadata.is_dir())
    }

    fn cache(&self, resource: CacheResource, schemata: &Schemata) -> Result<Option<CacheInfo>, ResctrlError> {
        let directory = format!("info/{resource}");
        if !self.has(&directory) {
            return Ok(None);
        }
        let file = |name| join(&directory, name);
        // All ways from the first on: a percentage of ways has no meaning in a mask with holes.
        let whole = |text: &str| Mask::parse(text).filter(|mask| mask.is_contiguous() && mask.bits() & 1 == 1);
        Ok(Some(CacheInfo {
            num_closids: self.number(&file("num_closids"))?,
            cbm_mask: self.required(&file("cbm_mask"), "a mask without holes", whole)?,
            min_cbm_bits: self.number(&file("min_cbm_bits"))?,
            // Since Linux 4.16.
            shareable_bits: self.optional(&file("shareable_bits"), "a mask", Mask::parse)?.unwrap_or_default(),
            sparse_masks: self.optional(&file("sparse_masks"), "0 or 1", flag)?.unwrap_or(false),
            ids: schemata.masks().filter(|&(of, ..)| of == resource).map(|(_, id, _)| id).collect(),
        }))
    }

    fn bandwidth(
        &self,
        resource: BandwidthResource,
        schemata: &Schemata,
        vendor: Vendor,
        options: MountOptions,
    ) -> Result<Option<BandwidthInfo>, ResctrlError> {
        let directory = format!("info/{resource}");
        if !self.has(&directory) {
            return Ok(None);
        }
        let file = |name| join(&directory, name);
        let delay_linear = self.optional(&file("delay_linear"), "0 or 1", flag)?.unwrap_or(false);
        let unit = match vendor {
            _ if options.mba_mbps && resource == BandwidthResource::Memory => BandwidthUnit::MegabytesPerSecond,
            Vendor::Intel => BandwidthUnit::Percent,
            Vendor::Amd => BandwidthUnit::EighthsOfGigabyte,
            Vendor::Other => BandwidthUnit::Percent,
        };
        let lines = || schemata.bandwidths().filter(|&(of, ..)| of == resource);
        Ok(Some(BandwidthInfo {
            resource,
            num_closids: self.number(&file("num_closids"))?,
            min_bandwidth: self.number(&file("min_bandwidth"))?,
            bandwidth_gran: self.number(&file("bandwidth_gran"))?,
            delay_linear,
            // Since Linux 5.8, on Intel only.
            thread_throttle_mode: self.text(&file("thread_throttle_mode"))?.and_then(|text| match text.trim_ascii() {
                "max" => Some(ThreadThrottleMode::Max),
                "per-thread" => Some(ThreadThrottleMode::PerThread),
                _ => None,
            }),
            unit,
            maximum: BandwidthResource::maximum(unit, lines().map(|(.., value)| value).max()),
            ids: lines().map(|(_, id, _)| id).collect(),
        }))
    }

    fn monitoring(&self) -> Result<Option<MonitoringInfo>, ResctrlError> {
        const DIRECTORY: &str = "info/L3_MON";
        if !self.has(DIRECTORY) {
            return Ok(None);
        }
        let features = self.text(&join(DIRECTORY, "mon_features"))?.unwrap_or_default();
        let has = |name: &str| features.lines().any(|line| line.trim_ascii() == name);
        let threshold = join(DIRECTORY, "max_threshold_occupancy");
        Ok(Some(MonitoringInfo {
            num_rmids: self.number(&join(DIRECTORY, "num_rmids"))?,
            llc_occupancy: has("llc_occupancy"),
            mbm_total: has("mbm_total_bytes"),
            mbm_local: has("mbm_local_bytes"),
            max_threshold_occupancy: self
                .optional(&threshold, "a number of bytes", |text| crate::parse::number(text.as_bytes()))?
                .map(Bytes),
        }))
    }
}

fn number(text: &str) -> Option<u32> {
    crate::parse::number(text.as_bytes()).and_then(|number| u32::try_from(number).ok())
}

fn flag(text: &str) -> Option<bool> {
    match text.trim_ascii() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
