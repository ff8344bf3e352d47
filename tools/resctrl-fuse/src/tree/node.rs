//! Directories and files: names, paths and inode numbers.

use rustix::io::Errno;

use super::{GroupId, Tree};
use crate::profile::{Event, KernelVersion};

/// A directory or file. It keeps its identity when its group is renamed, and ends with its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Node {
    Group(GroupId),
    GroupFile(GroupId, GroupFile),
    MonGroups(GroupId),
    MonData(GroupId),
    /// `mon_data/mon_L3_NN`
    MonDomain(GroupId, u32),
    /// `mon_data/mon_L3_NN/mon_sub_L3_NN`
    MonSubL3(GroupId, u32, u32),
    Counter(GroupId, u32, Option<u32>, Event),
    Info,
    LastCmdStatus,
    /// `info/L3` and similar directories, by index of their schema.
    Schema(usize),
    SchemaFile(usize, SchemaFile),
    Monitor,
    MonitorFile(MonitorFile),
}

/// A file of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupFile {
    Tasks,
    Cpus,
    CpusList,
    Schemata,
    Mode,
    Size,
    CtrlHwId,
    MonHwId,
}

/// A file of `info/L3` and similar directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SchemaFile {
    NumClosids,
    CbmMask,
    MinCbmBits,
    ShareableBits,
    BitUsage,
    SparseMasks,
    MinBandwidth,
    BandwidthGran,
    DelayLinear,
    ThreadThrottleMode,
}

/// A file of `info/L3_MON`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MonitorFile {
    NumRmids,
    MonFeatures,
    MaxThresholdOccupancy,
}

const GROUP_FILES: [GroupFile; 8] = [
    GroupFile::Tasks,
    GroupFile::Cpus,
    GroupFile::CpusList,
    GroupFile::Schemata,
    GroupFile::Mode,
    GroupFile::Size,
    GroupFile::CtrlHwId,
    GroupFile::MonHwId,
];

const SCHEMA_FILES: [SchemaFile; 10] = [
    SchemaFile::NumClosids,
    SchemaFile::CbmMask,
    SchemaFile::MinCbmBits,
    SchemaFile::ShareableBits,
    SchemaFile::BitUsage,
    SchemaFile::SparseMasks,
    SchemaFile::MinBandwidth,
    SchemaFile::BandwidthGran,
    SchemaFile::DelayLinear,
    SchemaFile::ThreadThrottleMode,
];

const MONITOR_FILES: [MonitorFile; 3] =
    [MonitorFile::NumRmids, MonitorFile::MonFeatures, MonitorFile::MaxThresholdOccupancy];

const EVENTS: [Event; 3] = [Event::LlcOccupancy, Event::MbmTotalBytes, Event::MbmLocalBytes];

impl GroupFile {
    const fn name(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Cpus => "cpus",
            Self::CpusList => "cpus_list",
            Self::Schemata => "schemata",
            Self::Mode => "mode",
            Self::Size => "size",
            Self::CtrlHwId => "ctrl_hw_id",
            Self::MonHwId => "mon_hw_id",
        }
    }
}

impl SchemaFile {
    const fn name(self) -> &'static str {
        match self {
            Self::NumClosids => "num_closids",
            Self::CbmMask => "cbm_mask",
            Self::MinCbmBits => "min_cbm_bits",
            Self::ShareableBits => "shareable_bits",
            Self::BitUsage => "bit_usage",
            Self::SparseMasks => "sparse_masks",
            Self::MinBandwidth => "min_bandwidth",
            Self::BandwidthGran => "bandwidth_gran",
            Self::DelayLinear => "delay_linear",
            Self::ThreadThrottleMode => "thread_throttle_mode",
        }
    }
}

impl MonitorFile {
    const fn name(self) -> &'static str {
        match self {
            Self::NumRmids => "num_rmids",
            Self::MonFeatures => "mon_features",
            Self::MaxThresholdOccupancy => "max_threshold_occupancy",
        }
    }
}

impl Node {
    pub(crate) const ROOT: Self = Self::Group(GroupId::ROOT);

    pub(crate) fn is_directory(self) -> bool {
        !matches!(
            self,
            Self::GroupFile(..) | Self::Counter(..) | Self::LastCmdStatus | Self::SchemaFile(..) | Self::MonitorFile(_)
        )
    }

    /// Whether writes to the file can succeed.
    pub(crate) fn is_writable(self) -> bool {
        use GroupFile::{Cpus, CpusList, Mode, Schemata, Tasks};
        matches!(
            self,
            Self::GroupFile(_, Tasks | Cpus | CpusList | Schemata | Mode)
                | Self::MonitorFile(MonitorFile::MaxThresholdOccupancy)
        )
    }

    /// The group whose directory contains the node.
    pub(crate) fn group(self) -> Option<GroupId> {
        match self {
            Self::Group(id)
            | Self::GroupFile(id, _)
            | Self::MonGroups(id)
            | Self::MonData(id)
            | Self::MonDomain(id, _)
            | Self::MonSubL3(id, ..)
            | Self::Counter(id, ..) => Some(id),
            _ => None,
        }
    }

    /// A unique inode number, 1 for the root: composed of the group, the kind, and the indices within the kind.
    pub(crate) fn inode(self) -> u64 {
        let place = |position: Option<usize>| position.and_then(|index| u64::try_from(index).ok()).unwrap_or(0);
        let number = |index: usize| u64::try_from(index).unwrap_or(0);
        let (kind, a, b, c) = match self {
            Self::Group(_) => (0, 0, 0, 0),
            Self::GroupFile(_, file) => (1, 0, 0, place(GROUP_FILES.iter().position(|&one| one == file))),
            Self::MonGroups(_) => (2, 0, 0, 0),
            Self::MonData(_) => (3, 0, 0, 0),
            Self::MonDomain(_, domain) => (4, u64::from(domain), 0, 0),
            Self::MonSubL3(_, domain, node) => (5, u64::from(domain), u64::from(node), 0),
            Self::Counter(_, domain, node, event) => {
                let event = place(EVENTS.iter().position(|&one| one == event));
                (6, u64::from(domain), node.map_or(0, |node| u64::from(node) + 1), event)
            }
            Self::Info => (7, 0, 0, 0),
            Self::LastCmdStatus => (8, 0, 0, 0),
            Self::Schema(schema) => (9, number(schema), 0, 0),
            Self::SchemaFile(schema, file) => {
                (10, number(schema), 0, place(SCHEMA_FILES.iter().position(|&one| one == file)))
            }
            Self::Monitor => (11, 0, 0, 0),
            Self::MonitorFile(file) => (12, 0, 0, place(MONITOR_FILES.iter().position(|&one| one == file))),
        };
        let group = self.group().map_or(0, |group| u64::from(group.0));
        (group << 32 | kind << 28 | a << 16 | b << 4 | c) + 1
    }

    /// The node with this inode number; `None` if no node can have it.
    pub(crate) fn from_inode(inode: u64) -> Option<Self> {
        let number = inode.checked_sub(1)?;
        let group = GroupId(u32::try_from(number >> 32).ok()?);
        let bits = |from: u32, width: u32| u32::try_from(number >> from & ((1 << width) - 1)).ok();
        let (kind, a, b, c) = (bits(28, 4)?, bits(16, 12)?, bits(4, 12)?, usize::try_from(bits(0, 4)?).ok()?);
        let schema = usize::try_from(a).ok()?;
        Some(match kind {
            0 => Self::Group(group),
            1 => Self::GroupFile(group, *GROUP_FILES.get(c)?),
            2 => Self::MonGroups(group),
            3 => Self::MonData(group),
            4 => Self::MonDomain(group, a),
            5 => Self::MonSubL3(group, a, b),
            6 => Self::Counter(group, a, b.checked_sub(1), *EVENTS.get(c)?),
            7 => Self::Info,
            8 => Self::LastCmdStatus,
            9 => Self::Schema(schema),
            10 => Self::SchemaFile(schema, *SCHEMA_FILES.get(c)?),
            11 => Self::Monitor,
            12 => Self::MonitorFile(*MONITOR_FILES.get(c)?),
            _ => return None,
        })
    }
}

impl Tree {
    /// The node at a path.
    pub(crate) fn resolve(&self, path: &str) -> Result<Node, Errno> {
        path.split('/')
            .filter(|name| !matches!(*name, "" | "."))
            .try_fold(Node::ROOT, |node, name| self.lookup(node, name))
    }

    /// The node with a name in a directory.
    pub(crate) fn lookup(&self, directory: Node, name: &str) -> Result<Node, Errno> {
        if !directory.is_directory() {
            return Err(Errno::NOTDIR);
        }
        let children = self.children(directory);
        children.into_iter().find(|(child, _)| child == name).map(|(_, node)| node).ok_or(Errno::NOENT)
    }

    pub(crate) fn exists(&self, node: Node) -> bool {
        if node.group().is_some_and(|id| !self.groups.contains_key(&id)) {
            return false;
        }
        match node {
            Node::MonDomain(_, domain) => self.monitored_domains().any(|one| one.id == domain),
            Node::MonSubL3(_, domain, node) | Node::Counter(_, domain, Some(node), _) => {
                self.monitored_domains().any(|one| one.id == domain && one.sub_numa_nodes.contains(&node))
            }
            Node::Counter(_, domain, None, _) => self.monitored_domains().any(|one| one.id == domain),
            Node::Schema(schema) | Node::SchemaFile(schema, _) => schema < self.schemas.len(),
            _ => true,
        }
    }

    /// The entries of a directory; none for a file.
    pub(crate) fn children(&self, node: Node) -> Vec<(String, Node)> {
        match node {
            Node::Group(id) => self.group_children(id),
            Node::MonGroups(id) => self
                .groups
                .iter()
                .filter(|(_, group)| group.parent == Some(id))
                .map(|(&child, group)| (group.name.clone(), Node::Group(child)))
                .collect(),
            Node::MonData(id) => self
                .monitored_domains()
                .map(|domain| (format!("mon_L3_{:02}", domain.id), Node::MonDomain(id, domain.id)))
                .collect(),
            Node::MonDomain(id, domain) => {
                let nodes = self.monitored_domains().filter(|one| one.id == domain);
                let nodes = nodes.flat_map(|one| &one.sub_numa_nodes);
                self.counters_of(id, domain, None)
                    .into_iter()
                    .chain(nodes.map(|&node| (format!("mon_sub_L3_{node:02}"), Node::MonSubL3(id, domain, node))))
                    .collect()
            }
            Node::MonSubL3(id, domain, node) => self.counters_of(id, domain, Some(node)),
            Node::Info => {
                let schemas = self.schemas.iter().enumerate();
                let monitor = self.profile.monitoring.is_some().then(|| ("L3_MON".to_owned(), Node::Monitor));
                std::iter::once(("last_cmd_status".to_owned(), Node::LastCmdStatus))
                    .chain(schemas.map(|(index, schema)| (schema.name.clone(), Node::Schema(index))))
                    .chain(monitor)
                    .collect()
            }
            Node::Schema(index) => self.schema_files(index),
            Node::Monitor => {
                MONITOR_FILES.iter().map(|&file| (file.name().to_owned(), Node::MonitorFile(file))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn counters_of(&self, id: GroupId, domain: u32, node: Option<u32>) -> Vec<(String, Node)> {
        let events = self.profile.monitoring.iter().flat_map(|monitoring| &monitoring.events);
        events.map(|&event| (event.name().to_owned(), Node::Counter(id, domain, node, event))).collect()
    }

    fn group_children(&self, id: GroupId) -> Vec<(String, Node)> {
        let Some(group) = self.groups.get(&id) else { return Vec::new() };
        let monitors = self.profile.monitoring.is_some();
        let debug = self.profile.mount.debug;
        let is_control = group.parent.is_none();
        let mut children: Vec<_> = GROUP_FILES
            .iter()
            .filter(|file| match file {
                GroupFile::Tasks | GroupFile::Cpus | GroupFile::CpusList => true,
                // The root also has these files without allocation (`rdt_get_tree`).
                GroupFile::Schemata | GroupFile::Mode | GroupFile::Size => is_control,
                GroupFile::CtrlHwId => is_control && debug,
                GroupFile::MonHwId => monitors && debug,
            })
            .map(|&file| (file.name().to_owned(), Node::GroupFile(id, file)))
            .collect();
        if monitors {
            children.push(("mon_data".to_owned(), Node::MonData(id)));
            if is_control {
                children.push(("mon_groups".to_owned(), Node::MonGroups(id)));
            }
        }
        if id == GroupId::ROOT {
            children.push(("info".to_owned(), Node::Info));
            let controls = self.groups.iter().filter(|(other, group)| **other != id && group.parent.is_none());
            children.extend(controls.map(|(&other, group)| (group.name.clone(), Node::Group(other))));
        }
        children
    }

    fn schema_files(&self, index: usize) -> Vec<(String, Node)> {
        let Some(schema) = self.schemas.get(index) else { return Vec::new() };
        let is_cache = schema.resource.is_cache();
        // Both bandwidth resources share one definition of the file: the kernel shows it for both if either has it.
        let throttles = [&self.profile.mb, &self.profile.smba];
        let throttles = throttles.into_iter().flatten().any(|bandwidth| bandwidth.thread_throttle_mode.is_some());
        SCHEMA_FILES
            .iter()
            .filter(|file| match file {
                SchemaFile::NumClosids => true,
                SchemaFile::CbmMask | SchemaFile::MinCbmBits | SchemaFile::ShareableBits | SchemaFile::BitUsage => {
                    is_cache
                }
                SchemaFile::SparseMasks => is_cache && self.profile.kernel >= KernelVersion::SPARSE_MASKS,
                SchemaFile::MinBandwidth | SchemaFile::BandwidthGran | SchemaFile::DelayLinear => !is_cache,
                SchemaFile::ThreadThrottleMode => !is_cache && throttles,
            })
            .map(|&file| (file.name().to_owned(), Node::SchemaFile(index, file)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Profile, Scripted, Writer};

    #[test]
    fn every_inode_number_leads_back() {
        for name in ["intel", "amd", "cdp", "sub-numa", "l2-only", "monitor-only"] {
            let mut tree = Tree::new(Profile::named(name).unwrap(), Scripted::default()).unwrap();
            let _ = tree.mkdir("g", Writer::ROOT);
            let mut seen = std::collections::BTreeSet::new();
            let mut left = vec![Node::ROOT];
            while let Some(node) = left.pop() {
                assert!(seen.insert(node.inode()), "{node:?} has the number of another");
                assert_eq!(Node::from_inode(node.inode()), Some(node));
                assert!(tree.exists(node), "{node:?}");
                left.extend(tree.children(node).into_iter().map(|(_, child)| child));
            }
            assert!(seen.len() > 15, "{name}: {}", seen.len());
        }
        assert_eq!(Node::ROOT.inode(), 1);
        assert_eq!(Node::from_inode(0), None);
    }
}
