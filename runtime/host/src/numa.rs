//! NUMA: the machine's nodes, and the CPUs, permitted nodes and pages of containers.

use qosm_model::knob::Target;
use qosm_model::numa::{NumaId, NumaNode, NumaSample, NumaTopology, list_text};
use qosm_model::pod::ContainerId;
use qosm_model::unit::Bytes;

use crate::Host;
use crate::backend::{Area, Backend as _, join};
use crate::error::{HostError, is_absent};
use crate::mounts::{CgroupVersion, Controller};
use crate::parse;
use crate::simulated::numa_stat_text;
use crate::targets::CgroupFile;

/// Maximum number of processes whose `numa_maps` are read if the cgroup has no `memory.numa_stat`: the loop itself reads them.
const MAX_PROCESSES: usize = 64;

/// A node's memory that is usable without swapping: free memory and inactive page cache.
pub(crate) fn available(meminfo: &[u8]) -> Option<Bytes> {
    let free = parse::numa::node_memory(meminfo, "MemFree")?;
    let cache = parse::numa::node_memory(meminfo, "Inactive(file)").unwrap_or(0);
    Some(Bytes(free.saturating_add(cache)))
}

/// Each node's high watermark: memory that the kernel keeps free.
pub(crate) fn read_watermarks(zoneinfo: &[u8], page_size: Bytes) -> Vec<(NumaId, Bytes)> {
    let pages = parse::numa::high_watermarks(zoneinfo);
    pages.into_iter().map(|(id, pages)| (id, Bytes(pages.saturating_mul(page_size.0)))).collect()
}

impl Host {
    /// The online NUMA nodes and their current memory. A machine that booted with one node always has just that node, and no file is read.
    pub fn numa_topology(&self) -> NumaTopology {
        let whole = || {
            let (memory, cpus) = (self.node.memory, (0..self.node.cpus).collect());
            let node = NumaNode { cpus, memory, free: memory, available: memory, distances: vec![10] };
            NumaTopology::new(vec![(NumaId(0), node)])
        };
        if self.node.numa_nodes < 2 {
            return whole();
        }
        let read = |path: String| self.backend.read_once(Area::Sys, &format!("devices/system/node/{path}")).ok();
        let online = read("online".to_owned()).and_then(|text| parse::numa::list(&text)).unwrap_or_default();
        // Before Linux 3.14 `has_normal_memory` listed the nodes with memory.
        let with_memory = read("has_memory".to_owned()).and_then(|text| parse::numa::list(&text));
        let nodes: Vec<_> = online
            .iter()
            .map(|&id| {
                let meminfo = read(format!("node{id}/meminfo")).unwrap_or_default();
                let has_memory = with_memory.as_ref().is_none_or(|nodes| nodes.contains(&id));
                let total = parse::numa::node_memory(&meminfo, "MemTotal").filter(|_| has_memory).unwrap_or(0);
                let node = NumaNode {
                    cpus: read(format!("node{id}/cpulist"))
                        .and_then(|text| parse::numa::list(&text))
                        .unwrap_or_default(),
                    memory: Bytes(total),
                    free: Bytes(parse::numa::node_memory(&meminfo, "MemFree").unwrap_or(0)),
                    available: available(&meminfo).unwrap_or_default(),
                    distances: read(format!("node{id}/distance"))
                        .and_then(|text| parse::numa::distances(&text))
                        .unwrap_or_default(),
                };
                (NumaId(id), node)
            })
            .collect();
        if nodes.is_empty() { whole() } else { NumaTopology::new(nodes) }
    }

    /// The nodes of a container's CPUs, its permitted memory nodes, and its pages on each node.
    ///
    /// # Errors
    ///
    /// [`HostError::Gone`], [`HostError::NotAttached`], [`HostError::Parse`] for a file with unexpected content, and
    /// [`HostError::Unsupported`] without a memory hierarchy.
    pub fn numa_sample(&mut self, id: ContainerId, topology: &NumaTopology) -> Result<NumaSample, HostError> {
        let target = Target::Container(id);
        let pages = self.numa_pages(target)?;
        let cpus = self.cpuset(target, CgroupFile::EffectiveCpus, CgroupFile::Cpuset)?;
        let memory_nodes = self.cpuset(target, CgroupFile::EffectiveMems, CgroupFile::Mems)?;
        Ok(NumaSample {
            container: id,
            identity: self.identity(target).unwrap_or(0),
            cpu_nodes: match cpus {
                Some(cpus) => topology.of_cpus(&cpus),
                None => topology.iter().filter(|(_, node)| !node.cpus.is_empty()).map(|(id, _)| id).collect(),
            },
            memory_nodes: match memory_nodes {
                Some(nodes) => nodes.into_iter().map(NumaId).collect(),
                None => topology.with_memory().map(|(id, _)| id).collect(),
            },
            pages,
        })
    }

    /// Number of pages of a container on each node.
    fn numa_pages(&mut self, target: Target) -> Result<Vec<(NumaId, u64)>, HostError> {
        let file = CgroupFile::NumaStat;
        let length = match self.read_file(target, file) {
            Ok(length) => length,
            // v2 has the file since Linux 5.10.
            Err(HostError::Unsupported { .. }) => return self.numa_pages_of_processes(target),
            Err(error) => return Err(error),
        };
        let version = self.hierarchies.version(Controller::Memory).unwrap_or(CgroupVersion::V2);
        let page_size = self.page_size().0;
        match parse::numa::numa_stat(version, page_size, &self.buffer[..length]) {
            Some(pages) => Ok(pages),
            None => Err(self.garbled(target, file, length, "pages on each NUMA node")),
        }
    }

    fn numa_pages_of_processes(&self, target: Target) -> Result<Vec<(NumaId, u64)>, HostError> {
        let Some(tree) = self.hierarchies.of(Controller::Memory) else {
            let why = "the controller `memory` is not mounted".to_owned();
            return Err(HostError::Unsupported { what: "memory.numa_stat".to_owned(), why });
        };
        let path = self.attached_path(target).ok_or(HostError::NotAttached { target })?;
        let text = self
            .backend
            .read_once(Area::Cgroup(tree), &join(path, "cgroup.procs"))
            .map_err(|source| HostError::Read { path: self.directory_path(tree, path), source })?;
        let base = self.page_size().0;
        let mut sums: Vec<(NumaId, u64)> = Vec::new();
        let numbers: Vec<_> = text.split(|&byte| byte == b'\n').filter_map(parse::number).collect();
        if numbers.is_empty() {
            let why = "Linux has it since 5.10; before, pages are counted by process, and there is none".to_owned();
            return Err(HostError::Unsupported { what: "memory.numa_stat".to_owned(), why });
        }
        // Processes outside this PID namespace have the number 0.
        if numbers.iter().all(|&pid| pid == 0) {
            let why = "Linux has it since 5.10; before, counting pages needs the node's PID namespace".to_owned();
            return Err(HostError::Unsupported { what: "memory.numa_stat".to_owned(), why });
        }
        let mut refused = None;
        for pid in numbers.into_iter().filter(|&pid| pid > 0).take(MAX_PROCESSES) {
            let maps = match self.backend.read_once(Area::Proc, &format!("{pid}/numa_maps")) {
                Ok(maps) => maps,
                // A process that has just ended has no pages.
                Err(source) => {
                    if source.kind() == std::io::ErrorKind::PermissionDenied {
                        refused = Some(HostError::Read { path: format!("/proc/{pid}/numa_maps"), source });
                    }
                    continue;
                }
            };
            for mapping in maps.split(|&byte| byte == b'\n').filter_map(|line| parse::numa::mapping(line, base)) {
                for (id, pages) in mapping.pages {
                    let pages = pages.saturating_mul(mapping.page_size / base.max(1));
                    match sums.iter_mut().find(|(known, _)| *known == id) {
                        Some((_, sum)) => *sum = sum.saturating_add(pages),
                        None => sums.push((id, pages)),
                    }
                }
            }
        }
        sums.sort_unstable();
        match refused {
            Some(error) if sums.is_empty() => Err(error),
            _ => Ok(sums),
        }
    }

    /// The effective cpuset list: `effective`, else the target's own, else that of the nearest ancestor with one.
    /// `None` if all are empty: no restriction.
    pub(crate) fn cpuset(
        &mut self,
        target: Target,
        effective: CgroupFile,
        own: CgroupFile,
    ) -> Result<Option<Vec<u32>>, HostError> {
        for file in [effective, own] {
            match self.read_file(target, file) {
                Ok(length) => match parse::numa::list(&self.buffer[..length]) {
                    Some(list) if list.is_empty() => {}
                    Some(list) => return Ok(Some(list)),
                    None => return Err(self.garbled(target, file, length, "a list of CPUs or NUMA nodes")),
                },
                Err(HostError::Unsupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.cpuset_above(target, effective))
    }

    /// Files of a container's cgroup that describe its CPUs and, on a machine with several NUMA nodes, its permitted
    /// memory nodes and its pages. For documents that simulations are created from: effective lists stand in the files
    /// that the simulation reads, and pages are reduced to their number on each node. Files that cannot be read are
    /// left out.
    pub fn placement_files(&self, id: ContainerId, topology: &NumaTopology) -> Vec<(&'static str, String)> {
        let target = Target::Container(id);
        let mut files = Vec::new();
        if let Some(file) = self.cpuset_file()
            && let Some(cpus) = self.cpuset_once(target, CgroupFile::EffectiveCpus, CgroupFile::Cpuset)
        {
            files.push((file, list_text(cpus)));
        }
        if topology.is_one_place() {
            return files;
        }
        if let Some(version) = self.hierarchies.version(Controller::Cpuset)
            && let Some(mems) = self.cpuset_once(target, CgroupFile::EffectiveMems, CgroupFile::Mems)
        {
            files.push((CgroupFile::Mems.name(version), list_text(mems)));
        }
        if let Some(version) = self.hierarchies.version(Controller::Memory)
            && let Some(pages) = self.numa_pages_once(target, version)
        {
            let nodes = topology.iter().map(|(id, _)| id.0).max().map_or(1, |last| last.saturating_add(1));
            files.push(("memory.numa_stat", numa_stat_text(version, self.page_size().0, nodes, &pages)));
        }
        files
    }

    /// Name of the file in which a simulation stores a cgroup's CPUs; `None` without the cpuset controller.
    pub fn cpuset_file(&self) -> Option<&'static str> {
        Some(CgroupFile::Cpuset.name(self.hierarchies.version(Controller::Cpuset)?))
    }

    fn cpuset_once(&self, target: Target, effective: CgroupFile, own: CgroupFile) -> Option<Vec<u32>> {
        let tree = self.hierarchies.of(Controller::Cpuset)?;
        let version = self.hierarchies.list.get(tree)?.version;
        let path = self.attached_path(target)?;
        let read = |file: CgroupFile| {
            let text = self.backend.read_once(Area::Cgroup(tree), &join(path, file.name(version))).ok()?;
            parse::numa::list(&text).filter(|list| !list.is_empty())
        };
        read(effective).or_else(|| read(own)).or_else(|| self.cpuset_above(target, effective))
    }

    fn numa_pages_once(&self, target: Target, version: CgroupVersion) -> Option<Vec<(NumaId, u64)>> {
        let tree = self.hierarchies.of(Controller::Memory)?;
        let path = join(self.attached_path(target)?, CgroupFile::NumaStat.name(version));
        match self.backend.read_once(Area::Cgroup(tree), &path) {
            Ok(text) => parse::numa::numa_stat(version, self.page_size().0, &text),
            Err(error) if is_absent(&error) => self.numa_pages_of_processes(target).ok(),
            Err(_) => None,
        }
    }

    /// The NUMA nodes of the nearest ancestor with a list.
    pub(crate) fn mems_above(&self, target: Target) -> Option<Vec<u32>> {
        self.cpuset_above(target, CgroupFile::EffectiveMems)
    }

    fn cpuset_above(&self, target: Target, file: CgroupFile) -> Option<Vec<u32>> {
        let tree = self.hierarchies.of(Controller::Cpuset)?;
        let name = file.name(self.hierarchies.list.get(tree)?.version);
        let mut path = self.attached_path(target)?;
        while !path.is_empty() {
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
            if let Ok(text) = self.backend.read_once(Area::Cgroup(tree), &join(path, name))
                && let Some(list) = parse::numa::list(&text).filter(|list| !list.is_empty())
            {
                return Some(list);
            }
        }
        None
    }
}
