//! The files below `info`.

use rustix::io::Errno;

use super::controls::Schema;
use super::node::{MonitorFile, SchemaFile};
use super::{Mode, Tree, line};
use crate::kstrto::{Base, unsigned};
use crate::profile::{Cache, Profile, ThrottleMode};
use crate::unit::Bytes;

impl Tree {
    pub(crate) fn read_schema_file(&self, index: usize, file: SchemaFile) -> Result<Vec<u8>, Errno> {
        let schema = self.schemas.get(index).ok_or(Errno::NOENT)?;
        let cache = || self.cache(schema.resource).ok_or(Errno::NOENT);
        let bandwidth = || self.bandwidth(schema.resource).ok_or(Errno::NOENT);
        Ok(match file {
            SchemaFile::NumClosids => line(&schema.num_closids),
            SchemaFile::CbmMask => line(&format_args!("{:x}", cache()?.cbm_mask)),
            SchemaFile::MinCbmBits => line(&cache()?.min_cbm_bits),
            SchemaFile::ShareableBits => line(&format_args!("{:x}", cache()?.shareable_bits)),
            SchemaFile::BitUsage => self.bit_usage(schema, cache()?),
            SchemaFile::SparseMasks => line(&u8::from(cache()?.sparse)),
            SchemaFile::MinBandwidth => line(&bandwidth()?.min),
            SchemaFile::BandwidthGran => line(&bandwidth()?.gran),
            SchemaFile::DelayLinear => line(&u8::from(bandwidth()?.delay_linear)),
            SchemaFile::ThreadThrottleMode => line(&match bandwidth()?.thread_throttle_mode {
                Some(ThrottleMode::Max) => "max",
                Some(ThrottleMode::PerThread) => "per-thread",
                None => "undefined",
            }),
        })
    }

    /// `rdt_bit_usage_show`: one letter per way, the highest way first.
    fn bit_usage(&self, schema: &Schema, cache: &Cache) -> Vec<u8> {
        let usage = |domain: u32| -> String {
            let ways = |wanted: Mode| {
                self.classes().filter(|&(_, mode)| mode == wanted).fold(0, |ways, (closid, _)| {
                    ways | self.control((schema.resource, schema.conf_type, domain, closid))
                })
            };
            let (shared, exclusive) = (ways(Mode::Shareable), ways(Mode::Exclusive));
            let letter = |way: u32| {
                let has = |mask: u32| mask & (1 << way) != 0;
                match (has(cache.shareable_bits), has(shared)) {
                    (true, true) => 'X',
                    (true, false) => 'H',
                    (false, true) => 'S',
                    (false, false) if has(exclusive) => 'E',
                    (false, false) => '0',
                }
            };
            (0..cache.ways()).rev().map(letter).collect()
        };
        let domains = self.domains(schema.resource);
        let usages: Vec<_> = domains.iter().map(|domain| format!("{}={}", domain.id, usage(domain.id))).collect();
        line(&usages.join(";"))
    }

    pub(crate) fn read_monitor_file(&self, file: MonitorFile) -> Result<Vec<u8>, Errno> {
        let monitoring = self.profile.monitoring.as_ref().ok_or(Errno::NOENT)?;
        Ok(match file {
            MonitorFile::NumRmids => line(&monitoring.num_rmids),
            MonitorFile::MonFeatures => monitoring.events.iter().flat_map(|event| line(&event.name())).collect(),
            MonitorFile::MaxThresholdOccupancy => line(&self.max_threshold_occupancy.0),
        })
    }

    /// `max_threshold_occ_write`: at most the size of a cache, rounded down to the counters' unit. Does not change `last_cmd_status`.
    pub(crate) fn write_threshold(&mut self, text: &[u8]) -> Result<(), Errno> {
        let bytes = unsigned(text, Base::Any, u64::from(u32::MAX))?;
        if bytes > largest_cache(&self.profile).0 {
            return Err(Errno::INVAL);
        }
        self.max_threshold_occupancy = Bytes(self.in_counter_units(bytes));
        Ok(())
    }
}

/// The size of the largest cache, which limits `max_threshold_occupancy`.
pub(crate) fn largest_cache(profile: &Profile) -> Bytes {
    profile.l3_domains.iter().map(|domain| domain.cache_size).max().unwrap_or_default()
}
