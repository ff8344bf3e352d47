//! resctrl: shares of caches and of memory bandwidth for groups of threads, and counters of their use.
//!
//! [`detect`] returns whether this machine has resctrl and what to do if not, [`capabilities()`] also its resources and
//! groups; [`mount()`] mounts it at the first need. [`Groups`] are the kernel's directories: groups of qosm, whose
//! names begin with [`PREFIX`], are created, adopted after a restart, given [`Schemata`] and threads, and removed. The
//! root group's schemata and groups of other programs are never written. [`Info`] converts percent into schemata;
//! [`Counters`] measure.
//!
//! Writes contain only differences, compared by cache id; every error quotes the kernel's explanation. This module does
//! not know QoS classes or pods, and chooses no shares.
//!
//! Kernel: Documentation/filesystems/resctrl.rst.
//!
//! ```no_run
//! use cap_std::{ambient_authority, fs::Dir};
//! use qosm_host::CgroupVersion;
//! use qosm_host::resctrl::{
//!     self, Availability, BandwidthResource, CacheLevel, ContainerCgroup, Counters, Group, GroupName, Groups, Percent, PercentRange,
//!     Processor, Shareable,
//! };
//!
//! let open = |path: &str| Dir::open_ambient_dir(path, ambient_authority());
//! let proc = open("/proc")?;
//! let (root, path, options) = match resctrl::detect(&proc, None)? {
//!     Availability::Mounted { path, options, .. } => (open(&path)?, path, options),
//!     Availability::NotMounted { path } => (resctrl::mount(&open("/sys")?)?, path, Default::default()),
//!     missing => return Err(missing.to_string().into()),
//! };
//! let groups = Groups::open(root, &path, Processor::read(&proc)?.vendor, options)?;
//!
//! // The lowest 30 % of each level-3 cache and half of the bandwidth, as far as this machine divides them.
//! let info = groups.info();
//! let mut wanted = info.ways(CacheLevel::L3, None, PercentRange::new(0, 30)?, Shareable::Use);
//! wanted.merge(&info.share(BandwidthResource::Memory, None, Percent::new(50)?, None)?);
//!
//! let name = GroupName::new("be")?;
//! let group = Group::Control(name.clone());
//! groups.adopt(&[group.clone()])?;
//! groups.create(&group)?;
//! groups.apply(&name, &wanted)?;
//!
//! let path = "kubepods/besteffort/pod1/c1";
//! let directory = open("/sys/fs/cgroup")?.open_dir(path)?;
//! let moved = groups.assign(&group, &[ContainerCgroup { directory: &directory, version: CgroupVersion::V2, path }])?;
//! assert!(moved.is_settled && moved.out_of_sight == 0);
//!
//! for sample in Counters::open(&groups, Some(&group))?.read()? {
//!     println!("cache {}: {:?}", sample.cache, sample.llc_occupancy);
//! }
//! groups.remove(&group)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod availability;
mod bandwidth;
mod capabilities;
mod classes;
mod counter_delta;
mod counters;
mod domains;
mod error;
#[cfg(test)]
mod fixture;
mod group;
mod groups;
mod info;
mod mask;
mod members;
mod mount;
mod reconciler;
mod resource;
mod schemata;
mod shares;
mod tasks;

pub use availability::{Availability, MountOptions, Processor, USUAL_PATH, Vendor, detect, mount};
pub use bandwidth::{Bandwidth, BandwidthUnit, Percent};
pub use capabilities::{Capabilities, Inventory, SharedWays, capabilities};
pub use counters::{CacheSample, Counters, Traffic};
pub use error::{ResctrlError, Status};
pub use group::{Group, GroupName, PREFIX};
pub use groups::{Adopted, Created, Groups, Present, Removed, Written};
pub use info::{BandwidthInfo, CacheInfo, Info, MonitoringInfo, ThreadThrottleMode};
pub use mask::{Mask, PercentRange, Shareable};
pub use resource::{BandwidthResource, CacheId, CacheLevel, CacheResource};
pub use schemata::{Absent, Difference, Schemata, SchemataError};
pub use tasks::{ContainerCgroup, Moved};

pub(crate) use classes::LazyReconciler;
