//! Profiles of existing machines, by name.

use std::collections::BTreeSet;

use super::{
    Bandwidth, Cache, Domain, Event, KernelVersion, Monitoring, MountOptions, Profile, RemovedFiles, Scale,
    ThrottleMode,
};
use crate::unit::{Bytes, BytesPerSecond};

const MIB: u64 = 1 << 20;
const CPUS_A_DOMAIN: u32 = 8;

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub const NAMES: &[&str] = &[
        "intel",
        "intel-20-ways",
        "haswell",
        "amd",
        "l3-only",
        "l2-only",
        "mb-only",
        "cdp",
        "few-closids",
        "sub-numa",
        "monitor-only",
        "none",
    ];

    /// The profile with this name; `none` is a machine without resctrl, for which [`Tree::new`](crate::Tree::new) fails.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "intel" => Self::intel(),
            "intel-20-ways" => Self::intel_20_ways(),
            "haswell" => Self::haswell(),
            "amd" => Self::amd(),
            "l3-only" => Self::l3_only(),
            "l2-only" => Self::l2_only(),
            "mb-only" => Self::mb_only(),
            "cdp" => Self::cdp(),
            "few-closids" => Self::few_closids(),
            "sub-numa" => Self::sub_numa(),
            "monitor-only" => Self::monitor_only(),
            "none" => Self::none(),
            _ => return None,
        })
    }

    /// Two sockets with 11 ways each, 16 CLOSIDs for L3 and 8 for memory bandwidth: 7 groups besides the root.
    pub fn intel() -> Self {
        Self {
            kernel: KernelVersion(6, 18),
            mount: MountOptions::default(),
            l3_domains: domains(&[0, 1], Bytes(11 * 2 * MIB)),
            l2_domains: Vec::new(),
            l3: Some(Cache {
                cbm_mask: 0x7ff,
                min_cbm_bits: 1,
                shareable_bits: 0,
                sparse: false,
                num_closids: 16,
                cdp_capable: true,
            }),
            l2: None,
            mb: Some(Bandwidth {
                min: 10,
                gran: 10,
                max: 100,
                num_closids: 8,
                delay_linear: true,
                needs_linear: true,
                thread_throttle_mode: Some(ThrottleMode::Max),
                scale: Scale::Percent,
            }),
            smba: None,
            monitoring: Some(Monitoring {
                num_rmids: 144,
                events: BTreeSet::from([Event::LlcOccupancy, Event::MbmTotalBytes, Event::MbmLocalBytes]),
                counter_unit: Bytes(65536),
            }),
            memory_bandwidth: BytesPerSecond(100_000_000_000),
            cache_turnover_millis: 1000,
            removed_files: RemovedFiles::default(),
        }
    }

    /// Four sockets with 20 ways each.
    pub fn intel_20_ways() -> Self {
        let mut profile = Self::intel();
        profile.l3_domains = domains(&[0, 1, 2, 3], Bytes(20 * 2 * MIB));
        if let Some(l3) = &mut profile.l3 {
            l3.cbm_mask = 0xf_ffff;
        }
        profile
    }

    /// At least two ways per mask, two ways shared with I/O, 4 CLOSIDs, no CDP, no memory bandwidth, occupancy only.
    pub fn haswell() -> Self {
        let mut profile = Self::intel_20_ways();
        profile.l3_domains.truncate(2);
        profile.l3 = Some(Cache {
            cbm_mask: 0xf_ffff,
            min_cbm_bits: 2,
            shareable_bits: 0xc_0000,
            sparse: false,
            num_closids: 4,
            cdp_capable: false,
        });
        profile.mb = None;
        if let Some(monitoring) = &mut profile.monitoring {
            monitoring.events = BTreeSet::from([Event::LlcOccupancy]);
        }
        profile
    }

    /// Cache ids 0 and 8, masks may have holes or be empty, bandwidth in 1/8 GB/s.
    pub fn amd() -> Self {
        let mut profile = Self::intel();
        profile.l3_domains = domains(&[0, 8], Bytes(16 * 2 * MIB));
        profile.l3 = Some(Cache {
            cbm_mask: 0xffff,
            min_cbm_bits: 0,
            shareable_bits: 0,
            sparse: true,
            num_closids: 16,
            cdp_capable: true,
        });
        profile.mb = Some(Bandwidth {
            min: 0,
            gran: 1,
            max: 2048,
            num_closids: 16,
            delay_linear: false,
            needs_linear: false,
            thread_throttle_mode: None,
            scale: Scale::EighthGigabytePerSecond,
        });
        profile
    }

    /// `intel` without memory bandwidth.
    pub fn l3_only() -> Self {
        Self { mb: None, ..Self::intel() }
    }

    /// Only allocation of L2 ways, with one cache for every two CPUs; no monitoring.
    pub fn l2_only() -> Self {
        let intel = Self::intel();
        let cpus = CPUS_A_DOMAIN * 2;
        let l2_domains = (0..cpus / 2)
            .map(|id| Domain {
                id,
                cpus: (id * 2..id * 2 + 2).collect(),
                cache_size: Bytes(2 * MIB),
                sub_numa_nodes: Vec::new(),
            })
            .collect();
        let l2 = intel.l3.clone().map(|cache| Cache { cbm_mask: 0xff, num_closids: 4, ..cache });
        Self { l3: None, mb: None, l2, l2_domains, monitoring: None, ..intel }
    }

    /// `intel` without allocation of L3.
    pub fn mb_only() -> Self {
        Self { l3: None, ..Self::intel() }
    }

    /// `intel` mounted with `cdp`: lines `L3CODE` and `L3DATA`.
    pub fn cdp() -> Self {
        Self { mount: MountOptions { cdp: true, ..MountOptions::default() }, ..Self::intel() }
    }

    /// `intel` with 4 CLOSIDs for memory bandwidth: 3 groups besides the root.
    pub fn few_closids() -> Self {
        let mut profile = Self::intel();
        if let Some(mb) = &mut profile.mb {
            mb.num_closids = 4;
        }
        profile
    }

    /// `intel` with sub-NUMA clustering: two nodes in each L3 cache.
    pub fn sub_numa() -> Self {
        let mut profile = Self::intel();
        for domain in &mut profile.l3_domains {
            domain.sub_numa_nodes = vec![domain.id * 2, domain.id * 2 + 1];
        }
        profile
    }

    /// `intel` without any allocation.
    pub fn monitor_only() -> Self {
        Self { l3: None, mb: None, ..Self::intel() }
    }

    /// A machine without resctrl.
    pub fn none() -> Self {
        Self { monitoring: None, ..Self::monitor_only() }
    }

    /// The same machine with another kernel.
    #[must_use]
    pub fn with_kernel(self, kernel: KernelVersion) -> Self {
        Self { kernel, ..self }
    }
}

fn domains(ids: &[u32], cache_size: Bytes) -> Vec<Domain> {
    (0u32..)
        .zip(ids)
        .map(|(index, &id)| Domain {
            id,
            cpus: (index * CPUS_A_DOMAIN..(index + 1) * CPUS_A_DOMAIN).collect(),
            cache_size,
            sub_numa_nodes: Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileError;

    #[test]
    fn every_named_machine_but_none_is_right() {
        for name in Profile::NAMES {
            let checked = Profile::named(name).unwrap().check();
            let expected = if *name == "none" { Err(ProfileError::NoResctrl) } else { Ok(()) };
            assert_eq!(checked, expected, "{name}");
        }
        assert_eq!(Profile::named("pentium"), None);
    }

    #[test]
    fn a_machine_can_be_written_to_a_file() {
        for name in Profile::NAMES {
            let profile = Profile::named(name).unwrap();
            let text = serde_json::to_string(&profile).unwrap();
            assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile, "{text}");
        }
    }

    #[test]
    fn what_no_machine_has_is_refused_by_name() {
        fn wrong(change: impl FnOnce(&mut Profile)) -> String {
            let mut profile = Profile::intel();
            change(&mut profile);
            profile.check().unwrap_err().to_string()
        }
        for (message, expected) in [
            (
                wrong(|p| p.l3.as_mut().unwrap().cbm_mask = 0b1011),
                "`l3.cbmMask`: has to be ones from bit 0 without a gap",
            ),
            (
                wrong(|p| p.l3.as_mut().unwrap().min_cbm_bits = 12),
                "`l3.minCbmBits`: has to be at most 11, the number of ways",
            ),
            (
                wrong(|p| p.l3.as_mut().unwrap().shareable_bits = 0x800),
                "`l3.shareableBits`: has to lie within `cbmMask`",
            ),
            (wrong(|p| p.l3.as_mut().unwrap().num_closids = 1), "`l3.numClosids`: has to be between 2 and 128"),
            (wrong(|p| p.mb.as_mut().unwrap().gran = 0), "`mb.gran`: has to be at least 1"),
            (wrong(|p| p.mb.as_mut().unwrap().max = 95), "`mb.max`: has to be a multiple of `gran`, 10, and not 0"),
            (wrong(|p| p.mb.as_mut().unwrap().min = 110), "`mb.min`: has to be at most `max`, 100"),
            (wrong(|p| p.mb.as_mut().unwrap().num_closids = 0), "`mb.numClosids`: has to be between 1 and 128"),
            (
                wrong(|p| p.monitoring.as_mut().unwrap().num_rmids = 0),
                "`monitoring.numRmids`: has to be between 1 and 65536",
            ),
            (wrong(|p| p.monitoring.as_mut().unwrap().events.clear()), "`monitoring.events`: has to name at least one"),
            (
                wrong(|p| p.monitoring.as_mut().unwrap().counter_unit = Bytes(0)),
                "`monitoring.counterUnit`: has to be at least 1",
            ),
            (wrong(|p| p.l3_domains.clear()), "`l3Domains`: L3, MB, SMBA and monitoring need at least one"),
            (wrong(|p| p.l3_domains[1].id = 0), "`l3Domains`: id 0 is there twice"),
            (wrong(|p| p.l3_domains[1].id = 4001), "`l3Domains`: id 4001: ids are at most 4000 here"),
            (wrong(|p| p.l3_domains[1].cpus = "7-9".parse().unwrap()), "`l3Domains`: id 1 shares CPUs 7 with another"),
            (wrong(|p| p.l3_domains[1].cpus = crate::CpuMask::new()), "`l3Domains`: id 1 has no `cpus`"),
            (wrong(|p| p.l2 = p.l3.clone()), "`l2Domains`: L2 needs at least one"),
            (wrong(|p| p.mount.cdpl2 = true), "the mount option `cdpl2` needs an `l2` that is `cdpCapable`"),
            (
                wrong(|p| (p.mount.debug, p.kernel) = (true, KernelVersion(6, 6))),
                "the mount option `debug` needs a `kernel` from 6.7",
            ),
        ] {
            assert_eq!(message, expected);
        }
        assert!(serde_json::from_str::<Profile>(r#"{"kernel": "six"}"#).unwrap_err().to_string().contains("`six`"));
    }
}
