//! The resources that resctrl can divide and measure on this machine, and the existing groups.

use std::io;

use cap_std::fs::Dir;

use super::availability::{Availability, Processor, Vendor, detect};
use super::error::ResctrlError;
use super::group::{Group, GroupName};
use super::groups::Groups;
use super::info::Info;
use super::mask::Mask;
use super::resource::{CacheId, CacheResource};

/// The state of resctrl on a machine.
#[derive(Debug)]
pub struct Capabilities {
    /// Whether resctrl is available, and what to do if not.
    pub availability: Availability,
    /// Vendor of the processor; for an emulation, of the emulated processor.
    pub vendor: Vendor,
    /// Resources and groups; `None` unless resctrl is mounted, an error if they cannot be read.
    pub mounted: Option<Result<Inventory, ResctrlError>>,
}

/// Resources and groups of a mounted resctrl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Resources that can be divided and measured.
    pub info: Info,
    /// qosm's groups, control groups first.
    pub own: Vec<Group>,
    /// Directories of other programs' control groups, without the root.
    pub foreign: Vec<String>,
    /// Ways of qosm's groups that other hardware uses as well.
    pub shared: Vec<SharedWays>,
}

/// Ways of a group that it shares with other hardware, such as devices that write into the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWays {
    /// The group.
    pub group: GroupName,
    /// The resource, a line of the group's schemata.
    pub resource: CacheResource,
    /// The cache.
    pub cache: CacheId,
    /// The ways.
    pub ways: Mask,
}

impl Inventory {
    /// Reads resources and groups.
    fn read(groups: &Groups) -> Result<Self, ResctrlError> {
        let present = groups.present()?;
        let info = groups.info().clone();
        let mut shared = Vec::new();
        if info.caches.values().any(|cache| !cache.shareable_bits.is_empty()) {
            for group in &present.own {
                let Group::Control(name) = group else { continue };
                let schemata = match groups.schemata(Some(name)) {
                    // The group was removed meanwhile.
                    Err(error) if error.is_gone() => continue,
                    read => read?,
                };
                for (resource, cache, mask) in schemata.masks() {
                    let ways = info.shared_with_hardware(resource, mask);
                    if !ways.is_empty() {
                        shared.push(SharedWays { group: name.clone(), resource, cache, ways });
                    }
                }
            }
        }
        Ok(Self { info, own: present.own, foreign: present.foreign, shared })
    }

    /// qosm's control groups.
    pub fn own_control_groups(&self) -> impl Iterator<Item = &GroupName> {
        self.own.iter().filter_map(|group| match group {
            Group::Control(name) => Some(name),
            Group::Monitor { .. } => None,
        })
    }

    /// Number of further control groups that can be created; `None` if no resource can be divided. The root and each group have one CLOSID.
    pub fn free_closids(&self) -> Option<u32> {
        let taken = self.own_control_groups().count() + self.foreign.len() + 1;
        let taken = u32::try_from(taken).unwrap_or(u32::MAX);
        self.info.closids().map(|all| all.saturating_sub(taken))
    }
}

/// Reads the state of resctrl; changes nothing. `proc` is `/proc`, `at` as for [`detect`]. `open` opens the mount
/// point, whose path `detect` finds.
///
/// # Errors
///
/// As [`detect`]. An error while reading the mounted resctrl is in [`Capabilities::mounted`].
pub fn capabilities(
    proc: &Dir,
    at: Option<&str>,
    open: impl FnOnce(&str) -> io::Result<Dir>,
) -> Result<Capabilities, ResctrlError> {
    let availability = detect(proc, at)?;
    let mut vendor = Processor::read(proc)?.vendor;
    let mounted = match &availability {
        Availability::Mounted { path, options, is_emulated } => Some(
            open(path)
                .map_err(|source| ResctrlError::Read { path: path.clone(), source })
                .and_then(|root| {
                    if *is_emulated {
                        vendor = Vendor::of_emulation(&root);
                    }
                    Groups::open(root, path, vendor, *options)
                })
                .and_then(|groups| Inventory::read(&groups)),
        ),
        Availability::NoKernelSupport { .. }
        | Availability::NoHardware { .. }
        | Availability::NotMounted { .. }
        | Availability::Elsewhere { .. } => None,
    };
    Ok(Capabilities { availability, vendor, mounted })
}

#[cfg(test)]
mod tests {
    use super::super::bandwidth::BandwidthUnit;
    use super::super::fixture::{self, Fixture};
    use super::super::resource::BandwidthResource;
    use super::*;

    const MOUNTED: &str = "50 24 0:44 / /r rw - resctrl resctrl rw\n";

    fn probe(mountinfo: &str, resctrl: &Fixture) -> Capabilities {
        let proc = Fixture::new(&[
            ("self/mountinfo", mountinfo),
            ("filesystems", "nodev\tresctrl\n"),
            ("cpuinfo", "vendor_id\t: GenuineIntel\nflags\t: cat_l3 mba\n"),
        ]);
        capabilities(&proc.root, None, |path| {
            assert_eq!(path, "/r");
            resctrl.root.try_clone()
        })
        .unwrap()
    }

    #[test]
    fn counts_the_free_closids_and_names_the_holders_of_the_others() {
        let resctrl = fixture::intel();
        resctrl.add(&[
            ("qosm-be/schemata", "MB:0=50;1=50\nL3:0=7;1=607\n"),
            ("qosm-be/mon_groups/qosm-c1/tasks", ""),
            ("tenant-a/schemata", ""),
            ("mon_groups/other/tasks", ""),
        ]);
        let found = probe(MOUNTED, &resctrl).mounted.unwrap().unwrap();
        let names = |found: &Inventory| found.own.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&found), ["qosm-be", "qosm-be/mon_groups/qosm-c1"]);
        assert_eq!((found.info.closids(), found.free_closids()), (Some(8), Some(5)));
        assert_eq!(found.foreign, ["tenant-a"]);
        let [shared] = &found.shared[..] else { unreachable!("{found:?}") };
        assert_eq!((shared.cache, shared.ways.to_string()), (CacheId(1), "600".to_owned()));
    }

    #[test]
    fn an_emulation_is_of_another_processor_than_this_ones() {
        let resctrl = fixture::amd();
        let proc = Fixture::new(&[
            ("self/mountinfo", "70 24 0:60 / /r rw - fuse.resctrl resctrl rw\n"),
            ("filesystems", ""),
            ("cpuinfo", "vendor_id\t: GenuineIntel\n"),
        ]);
        let found = capabilities(&proc.root, Some("/r"), |_| resctrl.root.try_clone()).unwrap();
        assert_eq!(found.vendor, Vendor::Amd);
        let bandwidths = found.mounted.unwrap().unwrap().info.bandwidths;
        assert_eq!(bandwidths[&BandwidthResource::Memory].unit, BandwidthUnit::EighthsOfGigabyte);
    }

    #[test]
    fn more_groups_than_closids_leave_none() {
        let resctrl = fixture::haswell();
        for name in ["a", "b", "c", "d"] {
            resctrl.add(&[(&format!("{name}/schemata"), "")]);
        }
        assert_eq!(probe(MOUNTED, &resctrl).mounted.unwrap().unwrap().free_closids(), Some(0));
    }

    #[test]
    fn where_nothing_is_divided_there_are_no_closids() {
        let found = probe(MOUNTED, &fixture::monitoring_only()).mounted.unwrap().unwrap();
        assert_eq!(found.free_closids(), None);
        assert_eq!(found.info.monitoring.unwrap().num_rmids, 176);
    }

    #[test]
    fn an_unmounted_one_is_not_opened_and_an_unreadable_one_is_an_error() {
        let empty = Fixture::new(&[("info/L3/num_closids", "many\n")]);
        assert!(probe("", &empty).mounted.is_none());
        let error = probe(MOUNTED, &empty).mounted.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "/r/info/L3/num_closids does not hold a whole number: `many`");
    }
}
