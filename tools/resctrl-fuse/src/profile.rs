//! What the emulated machine has: caches, ways, classes, counters, and the kernel that drives them.

mod named;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::cpumask::CpuMask;
use crate::unit::{Bytes, BytesPerSecond};

/// The highest id of a domain: it has to fit into an inode number.
const MAX_ID: u32 = 4000;

/// The emulated machine and how resctrl is mounted on it. Change the fields of a named one, or read one from a file.
///
/// Kernel: `Documentation/filesystems/resctrl.rst`, "Info directory".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// The kernel whose texts and formats are used.
    pub kernel: KernelVersion,
    /// Options of the mount.
    #[serde(default)]
    pub mount: MountOptions,
    /// The L3 caches of the machine, which are also the domains of memory bandwidth and of monitoring. Ids may have gaps.
    pub l3_domains: Vec<Domain>,
    /// The L2 caches. Empty where `l2` is not there.
    #[serde(default)]
    pub l2_domains: Vec<Domain>,
    /// Allocation of L3 ways (CAT).
    #[serde(default)]
    pub l3: Option<Cache>,
    /// Allocation of L2 ways.
    #[serde(default)]
    pub l2: Option<Cache>,
    /// Memory bandwidth allocation (MBA), a domain for each L3 cache.
    #[serde(default)]
    pub mb: Option<Bandwidth>,
    /// Slow memory bandwidth allocation (AMD), a domain for each L3 cache.
    #[serde(default)]
    pub smba: Option<Bandwidth>,
    /// Monitoring (CMT and MBM).
    #[serde(default)]
    pub monitoring: Option<Monitoring>,
    /// What the memory behind one L3 cache gives at most; the load model shares it out.
    pub memory_bandwidth: BytesPerSecond,
    /// How long it takes to replace all lines of a cache, in milliseconds: the pace of `llc_occupancy` and of limbo. 0 is at once.
    pub cache_turnover_millis: u64,
    /// What reading and writing a file of a removed group answers through a descriptor that is still open.
    #[serde(default)]
    pub removed_files: RemovedFiles,
}

/// A version of Linux, of which the first two numbers count: `6.18`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KernelVersion(pub u16, pub u16);

/// The options of `mount -t resctrl -o …`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MountOptions {
    /// `cdp`: code and data have masks of their own in L3.
    #[serde(default)]
    pub cdp: bool,
    /// `cdpl2`: the same in L2.
    #[serde(default)]
    pub cdpl2: bool,
    /// `debug`: shows the CLOSID and RMID of each group. From 6.7.
    #[serde(default)]
    pub debug: bool,
}

/// One cache, and the CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Domain {
    /// The cache id, as `/sys/devices/system/cpu/cpu*/cache/index*/id` has it.
    pub id: u32,
    /// The CPUs behind it. Without any of them online the domain is not there.
    pub cpus: CpuMask,
    /// How large the cache is.
    pub cache_size: Bytes,
    /// The nodes of sub-NUMA clustering within an L3 cache; empty where it is off.
    #[serde(default)]
    pub sub_numa_nodes: Vec<u32>,
}

/// Allocation of a cache's ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cache {
    /// All ways: ones from bit 0 without a gap.
    pub cbm_mask: u32,
    /// How many ways a mask has at least. Intel 1 (Haswell 2), AMD 0.
    pub min_cbm_bits: u32,
    /// Ways that other hardware uses, too.
    #[serde(default)]
    pub shareable_bits: u32,
    /// Whether masks may have holes.
    #[serde(default)]
    pub sparse: bool,
    /// How many CLOSIDs there are, without code and data prioritization.
    pub num_closids: u32,
    /// Whether the hardware can divide code and data separately (CDP).
    #[serde(default)]
    pub cdp_capable: bool,
}

/// Allocation of memory bandwidth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bandwidth {
    /// The smallest value that is taken.
    pub min: u32,
    /// Values are rounded up to a multiple of this.
    pub gran: u32,
    /// The largest value, which means unlimited.
    pub max: u32,
    /// How many CLOSIDs there are.
    pub num_closids: u32,
    /// What `delay_linear` shows.
    pub delay_linear: bool,
    /// Whether the kernel refuses values where the delay is not linear, as on Intel.
    #[serde(default)]
    pub needs_linear: bool,
    /// The content of `thread_throttle_mode`; without it there is no such file.
    #[serde(default)]
    pub thread_throttle_mode: Option<ThrottleMode>,
    /// The meaning of a value.
    pub scale: Scale,
}

/// Which setting counts for two threads of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThrottleMode {
    /// The stricter of the two, for both.
    Max,
    /// Each its own.
    PerThread,
}

/// The unit of a memory bandwidth value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scale {
    /// Percent of what the memory gives (Intel).
    Percent,
    /// 1/8 GB/s (AMD).
    EighthGigabytePerSecond,
}

/// Monitoring of L3 caches and of the memory behind them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Monitoring {
    /// How many RMIDs there are; the root has the first.
    pub num_rmids: u32,
    /// What can be counted.
    pub events: BTreeSet<Event>,
    /// Values are multiples of this.
    pub counter_unit: Bytes,
}

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Bytes that the group has in the cache now.
    LlcOccupancy,
    /// Bytes that it has moved to and from memory.
    MbmTotalBytes,
    /// Those of them that went to the memory of its own node.
    MbmLocalBytes,
}

/// The read of a descriptor whose group is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RemovedFiles {
    /// `ENOENT`: resctrl's own answer (`rdtgroup_kn_lock_live`), for a call that was under way when the group went.
    #[default]
    Enoent,
    /// `ENODEV`: the answer of kernfs (`kernfs_get_active`), for a call that comes later.
    Enodev,
}

/// Why there can be no machine such as a profile describes, or no mount on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Neither allocation nor monitoring: the kernel answers `ENODEV` to the mount.
    #[error(
        "the machine has neither allocation nor monitoring: give the profile one of `l3`, `l2`, `mb`, `smba`, `monitoring`"
    )]
    NoResctrl,
    /// An option whose feature is not there: the kernel answers `EINVAL` to the mount.
    #[error("the mount option `{option}` needs {needs}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is missing.
        needs: &'static str,
    },
    /// A field that no hardware has like that.
    #[error("`{field}`: {problem}")]
    Field {
        /// The field, as it is written in a file.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl ProfileError {
    /// What the kernel answers to `mount` on such a machine: `ENODEV` without resctrl, else `EINVAL`.
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
    /// Monitor groups can be renamed.
    pub(crate) const RENAME: Self = Self(6, 5);
    /// Several ids in one write to `tasks`, and texts for what is wrong with them.
    pub(crate) const TASK_LISTS: Self = Self(6, 8);
    /// `Invalid MB value`, and values read as 32-bit numbers.
    pub(crate) const MB_VALUES: Self = Self(6, 13);
    /// Values are no longer padded on read.
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
    /// The name of its file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LlcOccupancy => "llc_occupancy",
            Self::MbmTotalBytes => "mbm_total_bytes",
            Self::MbmLocalBytes => "mbm_local_bytes",
        }
    }
}

impl Cache {
    /// How many ways there are.
    pub(crate) fn ways(&self) -> u32 {
        self.cbm_mask.count_ones()
    }
}

impl Profile {
    /// Whether anything can be allocated (`resctrl_arch_alloc_capable`).
    pub(crate) fn allocates(&self) -> bool {
        self.l3.is_some() || self.l2.is_some() || self.mb.is_some() || self.smba.is_some()
    }

    /// All CPUs of the machine.
    pub fn cpus(&self) -> CpuMask {
        self.l3_domains.iter().chain(&self.l2_domains).flat_map(|domain| domain.cpus.iter()).collect()
    }

    /// How many CPU numbers there are: one more than the highest.
    pub(crate) fn possible_cpus(&self) -> u32 {
        self.cpus().iter().last().map_or(1, |last| last + 1)
    }

    /// Checks every field before a tree is made of it.
    ///
    /// # Errors
    ///
    /// What is wrong first; see [`ProfileError`].
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

    /// Whether the machine can be mounted with these options.
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
