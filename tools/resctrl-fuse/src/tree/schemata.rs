//! The files `schemata` and `size`, and the initial values of a new group.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::controls::{Closid, ConfType, Place, Resource, Schema};
use super::groups::{Group, GroupId};
use super::{Mode, Tree};
use crate::kstrto::{Base, strim, strsep, unsigned};
use crate::profile::{Bandwidth, Cache, KernelVersion};

/// Why a value is refused: the text for `last_cmd_status`. The errno is always `EINVAL`.
enum Refusal {
    Line(String),
    /// The written text between two fixed parts.
    Quote(&'static str, Vec<u8>, &'static str),
    /// No text.
    Silent,
}

impl Tree {
    pub(crate) fn schemata(&self, group: &Group) -> Vec<u8> {
        let (data_width, padded) = (self.data_width(), self.profile.kernel < KernelVersion::PLAIN_VALUES);
        self.lines(|schema, domain| {
            let value = self.control((schema.resource, schema.conf_type, domain, group.closid));
            match (schema.resource.is_cache(), padded) {
                (true, false) => format!("{value:x}"),
                (true, true) => format!("{value:0data_width$x}"),
                (false, false) => value.to_string(),
                (false, true) => format!("{value:data_width$}"),
            }
        })
    }

    /// `rdtgroup_size_show`: bytes of cache, and bandwidth as in `schemata`.
    pub(crate) fn size(&self, group: &Group) -> Vec<u8> {
        self.lines(|schema, domain| {
            let value = self.control((schema.resource, schema.conf_type, domain, group.closid));
            let Some(cache) = self.cache(schema.resource) else { return value.to_string() };
            let domains = self.domains(schema.resource);
            let size = domains.iter().find(|one| one.id == domain).map_or(0, |domain| domain.cache_size.0);
            let bytes = size / u64::from(cache.ways().max(1)) * u64::from(value.count_ones());
            bytes.to_string()
        })
    }

    fn lines(&self, value: impl Fn(&Schema, u32) -> String) -> Vec<u8> {
        let name_width = self.schemas.iter().map(|schema| schema.name_width).max().unwrap_or(0);
        let mut text = String::new();
        for schema in &self.schemas {
            let domains = self.domains(schema.resource);
            let values: Vec<_> =
                domains.iter().map(|domain| format!("{}={}", domain.id, value(schema, domain.id))).collect();
            text += &format!("{:>name_width$}:{}\n", schema.name, values.join(";"));
        }
        text.into_bytes()
    }

    /// Width of padded values before Linux 6.15: that of the widest value of all resources (`rdt_init_padding`).
    fn data_width(&self) -> usize {
        let resources = self.schemas.iter().map(|schema| schema.resource);
        let widths = resources.map(|resource| match self.cache(resource) {
            Some(cache) => format!("{:x}", cache.cbm_mask).len(),
            None => self.default_control(resource).to_string().len(),
        });
        widths.max().unwrap_or(0)
    }

    /// `rdtgroup_schemata_write`: parses every line before applying any value.
    pub(crate) fn write_schemata(&mut self, id: GroupId, text: &[u8]) -> Result<(), Errno> {
        self.status.clear();
        let (closid, mode) = self.groups.get(&id).map(|group| (group.closid, group.mode)).ok_or(Errno::NOENT)?;
        match self.stage(closid, mode, text) {
            Ok(staged) => {
                self.controls.0.extend(staged);
                Ok(())
            }
            Err(refusal) => {
                match refusal {
                    Refusal::Line(line) => self.status.line(&line),
                    Refusal::Quote(before, text, after) => self.status.quote(before, &text, after),
                    Refusal::Silent => {}
                }
                Err(Errno::INVAL)
            }
        }
    }

    fn stage(&self, closid: Closid, mode: Mode, text: &[u8]) -> Result<BTreeMap<Place, u32>, Refusal> {
        let mut staged = BTreeMap::new();
        for line in text.split(|&byte| byte == b'\n') {
            let (name, items) = strsep(line, b':');
            let name = strim(name);
            let items = items.ok_or_else(|| Refusal::Line("Missing ':'".to_owned()))?;
            if items.is_empty() {
                return Err(Refusal::Quote("Missing '", name.to_vec(), "' value"));
            }
            // No check of the CLOSID is needed: every resource has at least as many as there are groups.
            let schema = self.schemas.iter().find(|schema| schema.name.as_bytes() == name);
            let schema =
                schema.ok_or_else(|| Refusal::Quote("Unknown or unsupported resource name '", name.to_vec(), "'"))?;
            let mut rest = Some(items);
            while let Some(items) = rest.filter(|items| !items.is_empty()) {
                let (item, after) = strsep(items, b';');
                rest = after;
                let (domain, value) = self.parse_item(schema, closid, mode, item, &staged)?;
                staged.insert((schema.resource, schema.conf_type, domain, closid), value);
            }
        }
        Ok(staged)
    }

    /// `parse_line`, for one item of the line
    fn parse_item(
        &self,
        schema: &Schema,
        closid: Closid,
        mode: Mode,
        item: &[u8],
        staged: &BTreeMap<Place, u32>,
    ) -> Result<(u32, u32), Refusal> {
        let (id, value) = strsep(item, b'=');
        let id = unsigned(id, Base::Ten, u64::MAX).ok();
        let (Some(id), Some(value)) = (id, value) else {
            return Err(Refusal::Line("Missing '=' or non-numeric domain".to_owned()));
        };
        let value = strim(value);
        let domains = self.domains(schema.resource);
        let domain = domains.iter().find(|domain| u64::from(domain.id) == id).ok_or(Refusal::Silent)?.id;
        if staged.contains_key(&(schema.resource, schema.conf_type, domain, closid)) {
            return Err(Refusal::Line(format!("Duplicate domain {domain}")));
        }
        if let Some(cache) = self.cache(schema.resource) {
            let mask = cbm(cache, value)?;
            if self.overlaps_exclusive(schema, domain, mask, closid) {
                return Err(Refusal::Line("Overlaps with exclusive group".to_owned()));
            }
            if mode == Mode::Exclusive && self.overlaps_any(schema, domain, mask, closid) {
                return Err(Refusal::Line("Overlaps with other group".to_owned()));
            }
            return Ok((domain, mask));
        }
        let bandwidth = self.bandwidth(schema.resource).ok_or(Refusal::Silent)?;
        Ok((domain, bandwidth_value(bandwidth, self.profile.kernel, value)?))
    }

    /// Whether a group in mode exclusive uses any of these ways.
    pub(crate) fn overlaps_exclusive(&self, schema: &Schema, domain: u32, mask: u32, closid: Closid) -> bool {
        let others = self.classes().filter(|&(other, mode)| other != closid && mode == Mode::Exclusive);
        others.fold(0, |ways, (other, _)| ways | self.ways_of(schema, domain, other)) & mask != 0
    }

    /// Whether another group, or other hardware, uses any of these ways.
    pub(crate) fn overlaps_any(&self, schema: &Schema, domain: u32, mask: u32, closid: Closid) -> bool {
        let shareable = self.cache(schema.resource).map_or(0, |cache| cache.shareable_bits);
        let others = self.classes().filter(|&(other, _)| other != closid);
        others.fold(shareable, |ways, (other, _)| ways | self.ways_of(schema, domain, other)) & mask != 0
    }

    /// The ways of a class, for code and data together.
    fn ways_of(&self, schema: &Schema, domain: u32, closid: Closid) -> u32 {
        let own = self.control((schema.resource, schema.conf_type, domain, closid));
        if !self.has_cdp(schema.resource) {
            return own;
        }
        own | self.control((schema.resource, schema.conf_type.peer(), domain, closid))
    }

    /// `rdtgroup_init_alloc`: a new class gets the lowest contiguous run of free or shareable ways, and the whole bandwidth.
    pub(crate) fn begin_allocation(&mut self, closid: Closid) -> Result<(), Errno> {
        let mut staged: Vec<(Place, u32)> = Vec::new();
        for schema in &self.schemas {
            for domain in self.domains(schema.resource) {
                let place = (schema.resource, schema.conf_type, domain.id, closid);
                let Some(cache) = self.cache(schema.resource) else {
                    staged.push((place, self.default_control(schema.resource)));
                    continue;
                };
                let mask = first_run(self.usable_ways(schema, cache, domain.id, closid));
                if mask.count_ones() < cache.min_cbm_bits {
                    self.status.line(&format!("No space on {}:{}", schema.name, domain.id));
                    // The kernel has already set the values before it; they have no effect, since the class is removed again.
                    return Err(Errno::NOSPC);
                }
                staged.push((place, mask));
            }
        }
        self.controls.0.extend(staged);
        Ok(())
    }

    fn usable_ways(&self, schema: &Schema, cache: &Cache, domain: u32, closid: Closid) -> u32 {
        let mut usable = cache.shareable_bits;
        let mut used = cache.shareable_bits;
        for (other, mode) in self.classes().filter(|&(other, _)| other != closid) {
            let ways = self.ways_of(schema, domain, other);
            used |= ways;
            if mode == Mode::Shareable {
                usable |= ways;
            }
        }
        usable | (cache.cbm_mask & !used)
    }

    /// The ways that a class may use in an L3 cache; all ways without L3 allocation.
    pub(crate) fn l3_ways(&self, domain: u32, closid: Closid) -> u32 {
        let Some(schema) = self.schemas.iter().find(|schema| schema.resource == Resource::L3) else { return u32::MAX };
        self.ways_of(schema, domain, closid)
    }

    /// The MB value of a class.
    pub(crate) fn mb_value(&self, domain: u32, closid: Closid) -> u32 {
        self.control((Resource::Mb, ConfType::Both, domain, closid))
    }
}

/// `cbm_validate`
fn cbm(cache: &Cache, text: &[u8]) -> Result<u32, Refusal> {
    let refuse = |text: &str| Refusal::Line(text.to_owned());
    let value = unsigned(text, Base::Sixteen, u64::MAX)
        .map_err(|_| Refusal::Quote("Non-hex character in the mask ", text.to_vec(), ""))?;
    let mask = u32::try_from(value).ok().filter(|mask| *mask <= cache.cbm_mask);
    let Some(mask) = mask.filter(|mask| *mask != 0 || cache.min_cbm_bits == 0) else {
        return Err(refuse("Mask out of range"));
    };
    let run = first_run(mask);
    if !cache.sparse && run != mask {
        return Err(Refusal::Line(format!("The mask {mask:x} has non-consecutive 1-bits")));
    }
    if run.count_ones() < cache.min_cbm_bits {
        return Err(Refusal::Line(format!("Need at least {} bits in the mask", cache.min_cbm_bits)));
    }
    Ok(mask)
}

/// `bw_validate`
fn bandwidth_value(bandwidth: &Bandwidth, kernel: KernelVersion, text: &[u8]) -> Result<u32, Refusal> {
    if bandwidth.needs_linear && !bandwidth.delay_linear {
        return Err(Refusal::Line("No support for non-linear MB domains".to_owned()));
    }
    // Before Linux 6.13, values were parsed as 64-bit numbers, so that large numbers were out of range instead of invalid.
    let (text_of_refusal, max) = if kernel < KernelVersion::MB_VALUES {
        ("Non-decimal digit in MB value ", u64::MAX)
    } else {
        ("Invalid MB value ", u64::from(u32::MAX))
    };
    let value = unsigned(text, Base::Ten, max).map_err(|_| Refusal::Quote(text_of_refusal, text.to_vec(), ""))?;
    let within = u32::try_from(value).ok().filter(|value| (bandwidth.min..=bandwidth.max).contains(value));
    let (min, max) = (bandwidth.min, bandwidth.max);
    let value = within.ok_or_else(|| Refusal::Line(format!("MB value {value} out of range [{min},{max}]")))?;
    Ok(value.div_ceil(bandwidth.gran) * bandwidth.gran)
}

/// The lowest contiguous run of ones.
fn first_run(mask: u32) -> u32 {
    let below = mask.trailing_zeros();
    let run = mask.checked_shr(below).unwrap_or(0).trailing_ones();
    let ones = u32::MAX.checked_shr(32 - run).unwrap_or(0);
    ones.checked_shl(below).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::first_run;

    #[test]
    fn a_run_ends_at_the_first_hole() {
        for (mask, run) in [(0, 0), (1, 1), (0b1101_1000, 0b1_1000), (u32::MAX, u32::MAX), (1 << 31, 1 << 31)] {
            assert_eq!(first_run(mask), run, "{mask:b}");
        }
    }

    proptest! {
        #[test]
        fn a_run_is_part_of_its_mask_and_nothing_lies_below(mask: u32) {
            let run = first_run(mask);
            prop_assert_eq!(run & mask, run);
            prop_assert_eq!(run.trailing_zeros(), mask.trailing_zeros());
            prop_assert!(run == 0 || run.count_ones() + run.trailing_zeros() + run.leading_zeros() == 32);
        }
    }
}
