//! The emulated machine: caches, ways, classes, counters, and the kernel version.

mod named;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::cpumask::CpuMask;
use crate::unit::{Bytes, BytesPerSecond};

/// The highest id of a domain, so that it fits into an inode number.
const MAX_ID: u32 = 4000;

/// The emulated machine and the mount options of resctrl. Change the fields of a named profile, or read a profile from a file.
///
/// Kernel: `Documentation/filesystems/resctrl.rst`, "Info directory".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The kernel version, which determines texts and formats.
    pub kernel: KernelVersion,
    /// Mount options.
    #[serde(default)]
    pub mount: MountOptions,
    /// The L3 caches of the machine, which are also the domains of memory bandwidth and of monitoring. Ids may have gaps.
    pub l3_domains: Vec<Domain>,
    /// The L2 caches. Empty without `l2`.
    #[serde(default)]
    pub l2_domains: Vec<Domain>,
    /// Allocation of L3 ways (CAT).
    #[serde(default)]
    pub l3: Option<Cache>,
    /// Allocation of L2 ways (CAT).
    #[serde(default)]
    pub l2: Option<Cache>,
    /// Memory bandwidth allocation (MBA), with a domain for each L3 cache.
    #[serde(default)]
    pub mb: Option<Bandwidth>,
    /// Slow memory bandwidth allocation (AMD), with a domain for each L3 cache.
    #[serde(default)]
    pub smba: Option<Bandwidth>,
    /// Monitoring (CMT and MBM).
    #[serde(default)]
    pub monitoring: Option<Monitoring>,
    /// Maximum bandwidth of the memory behind one L3 cache, which the load model shares out.
    pub memory_bandwidth: BytesPerSecond,
    /// Time to replace all lines of a cache, in milliseconds: the pace of `llc_occupancy` and of limbo. 0 is immediate.
    pub cache_turnover_millis: u64,
    /// Error of reads and writes through an open descriptor whose group was removed.
    #[serde(default)]
    pub removed_files: RemovedFiles,
}

/// A version of Linux as major and minor number, e.g. `6.18`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelVersion(pub u16, pub u16);

/// Options of `mount -t resctrl -o …`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MountOptions {
    /// `cdp`: separate masks for code and data in L3.
    #[serde(default)]
    pub cdp: bool,
    /// `cdpl2`: separate masks for code and data in L2.
    #[serde(default)]
    pub cdpl2: bool,
    /// `debug`: files with the CLOSID and RMID of each group. Since Linux 6.7.
    #[serde(default)]
    pub debug: bool,
}

/// One cache, and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Domain {
    /// The cache id, as in `/sys/devices/system/cpu/cpu*/cache/index*/id`.
    pub id: u32,
    /// The CPUs that share it. The domain disappears while all of them are offline.
    pub cpus: CpuMask,
    /// Size of the cache.
    pub cache_size: Bytes,
    /// The nodes of sub-NUMA clustering within an L3 cache; empty without it.
    #[serde(default)]
    pub sub_numa_nodes: Vec<u32>,
}

/// Allocation of a cache's ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cache {
    /// Mask of all ways: ones from bit 0 without a gap.
    pub cbm_mask: u32,
    /// Minimum number of ways in a mask. Intel 1 (Haswell 2), AMD 0.
    pub min_cbm_bits: u32,
    /// Ways that other hardware uses as well.
    #[serde(default)]
    pub shareable_bits: u32,
    /// Whether masks may have holes.
    #[serde(default)]
    pub sparse: bool,
    /// Number of CLOSIDs without code and data prioritization.
    pub num_closids: u32,
    /// Whether the hardware supports separate masks for code and data (CDP).
    #[serde(default)]
    pub cdp_capable: bool,
}

/// Allocation of memory bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bandwidth {
    /// The smallest accepted value.
    pub min: u32,
    /// Values are rounded up to a multiple of this.
    pub gran: u32,
    /// The largest value, which means unlimited.
    pub max: u32,
    /// Number of CLOSIDs.
    pub num_closids: u32,
    /// Content of `delay_linear`.
    pub delay_linear: bool,
    /// Whether the kernel refuses all values if the delay is not linear, as on Intel.
    #[serde(default)]
    pub needs_linear: bool,
    /// Content of `thread_throttle_mode`; without a value the file does not exist.
    #[serde(default)]
    pub thread_throttle_mode: Option<ThrottleMode>,
    /// The meaning of a value.
    pub scale: Scale,
}

/// The bandwidth limit of two threads on one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThrottleMode {
    /// The stricter limit applies to both.
    Max,
    /// Each thread has its own limit.
    PerThread,
}

/// The unit of a memory bandwidth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scale {
    /// Percent of the memory's maximum bandwidth (Intel).
    Percent,
    /// 1/8 GB/s (AMD).
    EighthGigabytePerSecond,
}

/// Monitoring of L3 caches and of the memory behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Monitoring {
    /// Number of RMIDs; the root has the first.
    pub num_rmids: u32,
    /// The supported counters.
    pub events: BTreeSet<Event>,
    /// Values are multiples of this.
    pub counter_unit: Bytes,
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Bytes of the group that are in the cache at present.
    LlcOccupancy,
    /// Bytes that the group has moved to and from memory.
    MbmTotalBytes,
    /// Those that it has moved to and from the memory of its own node.
    MbmLocalBytes,
}

/// Error of reads and writes through a descriptor whose group was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemovedFiles {
    /// `ENOENT`: resctrl's own error (`rdtgroup_kn_lock_live`), for a call in progress when the group was removed.
    #[default]
    Enoent,
    /// `ENODEV`: the error of kernfs (`kernfs_get_active`), for a later call.
    Enodev,
}

/// Why a profile describes no possible machine, or cannot be mounted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither allocation nor monitoring: `mount` fails with `ENODEV`.
    #[error(
        "the machine has neither allocation nor monitoring: give the profile one of `l3`, `l2`, `mb`, `smba`, `monitoring`"
    )]
    NoResctrl,
    /// A mount option whose feature is missing: `mount` fails with `EINVAL`.
    #[error("the mount option `{option}` needs {needs}")]
    Option {
        /// The option.
        option: &'static str,
        /// The missing feature.
        needs: &'static str,
    },
    /// A field with a value that no hardware has.
    #[error("`{field}`: {problem}")]
    Field {
        /// The field, as in a profile's file.
        field: String,
        /// The problem, and the valid values.
        problem: String,
    },
}

impl ProfileError {
    /// The kernel's error for `mount` on such a machine: `ENODEV` without resctrl, otherwise `EINVAL`.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::NoResctrl => Errno::NODEV,
            Self::Option { .. } | Self::Field { .. } => Errno::INVAL,
        }
    }
}

impl KernelVersion {
    /// `sparse_masks`, and the mount option `debug`.
    pub(crate) const SPARSE_MASKS: Self = Self(6, 7);
    /// Renaming of monitor groups.
    pub(crate) const RENAME: Self = Self(6, 5);
    /// Several ids in one write to `tasks`, and texts for their errors.
    pub(crate) const TASK_LISTS: Self = Self(6, 8);
    /// The text `Invalid MB value`, and values parsed as 32-bit numbers.
    pub(crate) const MB_VALUES: Self = Self(6, 13);
    /// `schemata` without padding of values.
    pub(crate) const PLAIN_VALUES: Self = Self(6, 15);
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl FromStr for KernelVersion {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        let mut numbers = text.split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Self(major, minor)),
            _ => Err(wrong("kernel", format!("`{text}` is no version of Linux: write it as `6.18`"))),
        }
    }
}

impl TryFrom<String> for KernelVersion {
    type Error = ProfileError;

    fn try_from(text: String) -> Result<Self, ProfileError> {
        text.parse()
    }
}

impl From<KernelVersion> for String {
    fn from(version: KernelVersion) -> Self {
        version.to_string()
    }
}

impl Event {
    /// Name of the counter's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlcOccupancy => "llc_occupancy",
            Self::MbmTotalBytes => "mbm_total_bytes",
            Self::MbmLocalBytes => "mbm_local_bytes",
        }
    }
}

impl Cache {
    /// Number of ways.
    pub(crate) fn ways(&self) -> u32 {
        self.cbm_mask.count_ones()
    }
}

impl Profile {
    /// Whether any resource can be allocated (`resctrl_arch_alloc_capable`).
    pub(crate) fn allocates(&self) -> bool {
        self.l3.is_some() || self.l2.is_some() || self.mb.is_some() || self.smba.is_some()
    }

    /// All CPUs of the machine.
    pub fn cpus(&self) -> CpuMask {
        self.l3_domains.iter().chain(&self.l2_domains).flat_map(|domain| domain.cpus.iter()).collect()
    }

    /// Number of CPU numbers: one more than the highest.
    pub(crate) fn possible_cpus(&self) -> u32 {
        self.cpus().iter().last().map_or(1, |last| last + 1)
    }

    /// Checks every field.
    ///
    /// # Errors
    ///
    /// The first problem; see [`ProfileError`].
    pub fn check(&self) -> Result<(), ProfileError> {
        if !self.allocates() && self.monitoring.is_none() {
            return Err(ProfileError::NoResctrl);
        }
        check_domains("l3Domains", &self.l3_domains)?;
        check_domains("l2Domains", &self.l2_domains)?;
        let needs_l3 = self.l3.is_some() || self.mb.is_some() || self.smba.is_some() || self.monitoring.is_some();
        if needs_l3 && self.l3_domains.is_empty() {
            return Err(wrong("l3Domains", "L3, MB, SMBA and monitoring need at least one".to_owned()));
        }
        if self.l2.is_some() && self.l2_domains.is_empty() {
            return Err(wrong("l2Domains", "L2 needs at least one".to_owned()));
        }
        for (field, cache) in [("l3", &self.l3), ("l2", &self.l2)] {
            cache.as_ref().map_or(Ok(()), |cache| cache.check(field))?;
        }
        for (field, bandwidth) in [("mb", &self.mb), ("smba", &self.smba)] {
            bandwidth.as_ref().map_or(Ok(()), |bandwidth| bandwidth.check(field))?;
        }
        self.monitoring.as_ref().map_or(Ok(()), Monitoring::check)?;
        self.check_mount(self.mount)
    }

    /// Whether the machine supports these mount options.
    pub(crate) fn check_mount(&self, mount: MountOptions) -> Result<(), ProfileError> {
        let capable = |cache: &Option<Cache>| cache.as_ref().is_some_and(|cache| cache.cdp_capable);
        for (asked, option, needs, met) in [
            (mount.cdp, "cdp", "an `l3` that is `cdpCapable`", capable(&self.l3)),
            (mount.cdpl2, "cdpl2", "an `l2` that is `cdpCapable`", capable(&self.l2)),
            (mount.debug, "debug", "a `kernel` from 6.7", self.kernel >= KernelVersion::SPARSE_MASKS),
        ] {
            if asked && !met {
                return Err(ProfileError::Option { option, needs });
            }
        }
        Ok(())
    }
}

impl Cache {
    fn check(&self, field: &str) -> Result<(), ProfileError> {
        let problem = if self.cbm_mask == 0 || self.cbm_mask & self.cbm_mask.wrapping_add(1) != 0 {
            Some(("cbmMask", "has to be ones from bit 0 without a gap".to_owned()))
        } else if self.min_cbm_bits > self.ways() {
            Some(("minCbmBits", format!("has to be at most {}, the number of ways", self.ways())))
        } else if self.shareable_bits & !self.cbm_mask != 0 {
            Some(("shareableBits", "has to lie within `cbmMask`".to_owned()))
        } else if !(2..=128).contains(&self.num_closids) {
            Some(("numClosids", "has to be between 2 and 128".to_owned()))
        } else {
            None
        };
        problem.map_or(Ok(()), |(name, problem)| Err(wrong(&format!("{field}.{name}"), problem)))
    }
}

impl Bandwidth {
    fn check(&self, field: &str) -> Result<(), ProfileError> {
        let problem = if self.gran == 0 {
            Some(("gran", "has to be at least 1".to_owned()))
        } else if self.min > self.max {
            Some(("min", format!("has to be at most `max`, {}", self.max)))
        } else if self.max == 0 || !self.max.is_multiple_of(self.gran) {
            Some(("max", format!("has to be a multiple of `gran`, {}, and not 0", self.gran)))
        } else if !(1..=128).contains(&self.num_closids) {
            Some(("numClosids", "has to be between 1 and 128".to_owned()))
        } else {
            None
        };
        problem.map_or(Ok(()), |(name, problem)| Err(wrong(&format!("{field}.{name}"), problem)))
    }
}

impl Monitoring {
    fn check(&self) -> Result<(), ProfileError> {
        let problem = if !(1..=1 << 16).contains(&self.num_rmids) {
            Some(("numRmids", "has to be between 1 and 65536"))
        } else if self.events.is_empty() {
            Some(("events", "has to name at least one"))
        } else if self.counter_unit.0 == 0 {
            Some(("counterUnit", "has to be at least 1"))
        } else {
            None
        };
        problem.map_or(Ok(()), |(name, problem)| Err(wrong(&format!("monitoring.{name}"), problem.to_owned())))
    }
}

fn check_domains(field: &str, domains: &[Domain]) -> Result<(), ProfileError> {
    let mut ids = BTreeSet::new();
    let mut cpus = CpuMask::new();
    for domain in domains {
        let id = domain.id;
        let problem = if id > MAX_ID || domain.sub_numa_nodes.iter().any(|&node| node > MAX_ID) {
            Some(format!("id {id}: ids are at most {MAX_ID} here"))
        } else if !ids.insert(id) {
            Some(format!("id {id} is there twice"))
        } else if domain.cpus.is_empty() {
            Some(format!("id {id} has no `cpus`"))
        } else if !domain.cpus.intersection(&cpus).is_empty() {
            Some(format!("id {id} shares CPUs {} with another", domain.cpus.intersection(&cpus)))
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(wrong(field, problem));
        }
        cpus = cpus.union(&domain.cpus);
    }
    Ok(())
}

fn wrong(field: &str, problem: String) -> ProfileError {
    ProfileError::Field { field: field.to_owned(), problem }
}
