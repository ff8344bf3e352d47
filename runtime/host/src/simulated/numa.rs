//! NUMA files of the simulated kernel: CPUs and memory are divided equally among the nodes.

use std::collections::BTreeMap;

use qosm_model::numa::NumaId;
use qosm_model::unit::Bytes;

use super::Spec;
use crate::mounts::CgroupVersion;

/// The files below `/sys/devices/system/node`.
pub(super) fn files(spec: &Spec) -> BTreeMap<String, String> {
    let nodes = spec.numa_nodes.max(1);
    let last = nodes - 1;
    let mut files = BTreeMap::from([("devices/system/node/has_memory".to_owned(), format!("0-{last}\n"))]);
    let kib = spec.memory.0 / u64::from(nodes) / 1024;
    for node in 0..nodes {
        let cpus: Vec<String> = (0..spec.cpus)
            .filter(|cpu| u64::from(*cpu) * u64::from(nodes) / u64::from(spec.cpus.max(1)) == u64::from(node))
            .map(|cpu| cpu.to_string())
            .collect();
        let distances: Vec<&str> = (0..nodes).map(|other| if other == node { "10" } else { "20" }).collect();
        let half = Bytes(kib / 2 * 1024);
        let meminfo = meminfo(node, Bytes(kib * 1024), half, half);
        for (name, text) in
            [("cpulist", cpus.join(",") + "\n"), ("distance", distances.join(" ") + "\n"), ("meminfo", meminfo)]
        {
            files.insert(format!("devices/system/node/node{node}/{name}"), text);
        }
    }
    files
}

/// A node's `meminfo`.
pub(super) fn meminfo(node: u32, total: Bytes, free: Bytes, available: Bytes) -> String {
    let line = |name: &str, bytes: u64| format!("Node {node} {name}: {} kB\n", bytes / 1024);
    line("MemTotal", total.0) + &line("MemFree", free.0) + &line("Inactive(file)", available.0.saturating_sub(free.0))
}

/// A cgroup's `memory.numa_stat`, with all pages anonymous.
pub(crate) fn stat(version: CgroupVersion, page_size: u64, nodes: u32, pages: &[(NumaId, u64)]) -> String {
    let on = |node: u32| pages.iter().find(|(id, _)| *id == NumaId(node)).map_or(0, |(_, pages)| *pages);
    let line = |unit: u64| (0..nodes).map(|node| format!(" N{node}={}", on(node) * unit)).collect::<String>();
    let none: String = (0..nodes).map(|node| format!(" N{node}=0")).collect();
    let total: u64 = (0..nodes).map(on).sum();
    match version {
        CgroupVersion::V1 => {
            let each = line(1);
            format!("total={total}{each}\nfile=0{none}\nanon={total}{each}\nhierarchical_total={total}{each}\n")
        }
        CgroupVersion::V2 => format!("anon{}\nfile{none}\n", line(page_size)),
    }
}
