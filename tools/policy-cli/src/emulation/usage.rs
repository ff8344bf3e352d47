//! Reads the use of caches and memory bandwidth, and the groups of resctrl, from the mounted files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Counters of a group, summed over all caches; `None` if the machine does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) occupancy: Option<u64>,
    pub(super) traffic: Option<u64>,
}

/// Use by a group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Usage {
    /// Bytes in the caches.
    pub(super) occupancy: Option<u64>,
    /// Bytes per second from and to memory.
    pub(super) bandwidth: Option<f64>,
}

impl Counted {
    /// Reads a group's counters.
    pub(super) fn read(group: &Path) -> Self {
        let folders = fs::read_dir(group.join("mon_data")).into_iter().flatten().flatten();
        let folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
        let sum = |file: &str| -> Option<u64> {
            let values =
                folders.iter().filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok());
            values.fold(None, |sum: Option<u64>, value: u64| Some(sum.unwrap_or(0).saturating_add(value)))
        };
        Self { occupancy: sum("llc_occupancy"), traffic: sum("mbm_total_bytes") }
    }
}

/// Use by groups during `time`, for which `wait` waits.
///
/// # Errors
///
/// The error of `wait`.
pub(super) fn measure(
    groups: &[PathBuf],
    time: Duration,
    wait: impl FnOnce(Duration) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Usage>> {
    let before: Vec<Counted> = groups.iter().map(|group| Counted::read(group)).collect();
    let begun = Instant::now();
    wait(time)?;
    let after: Vec<Counted> = groups.iter().map(|group| Counted::read(group)).collect();
    let seconds = begun.elapsed().as_secs_f64();
    Ok(before.iter().zip(after).map(|(before, after)| between(*before, after, seconds)).collect())
}

fn between(before: Counted, after: Counted, seconds: f64) -> Usage {
    let moved = before.traffic.zip(after.traffic).map(|(before, after)| after.saturating_sub(before));
    // The bytes of a few seconds are far below 2⁵³.
    let bytes = |moved: u64| u32::try_from(moved >> 16).map_or(f64::INFINITY, |units| f64::from(units) * 65_536.0);
    Usage { occupancy: after.occupancy, bandwidth: moved.map(|moved| bytes(moved) / seconds) }
}

/// The groups of a mounted resctrl and their `schemata`, the root first.
pub(super) fn schemata(mount: &Path) -> Vec<(String, String)> {
    let read = |folder: &Path| fs::read_to_string(folder.join("schemata")).ok();
    let mut all: Vec<(String, String)> = read(mount).into_iter().map(|text| ("the root".to_owned(), text)).collect();
    all.extend(groups(mount).into_iter().filter_map(|name| read(&mount.join(&name)).map(|text| (name, text))));
    all
}

/// Names of the control groups.
pub(super) fn groups(mount: &Path) -> Vec<String> {
    let names = folders(mount).into_iter();
    names.filter(|name| !["info", "mon_data", "mon_groups"].contains(&name.as_str())).collect()
}

/// Names of qosm's groups, including monitor groups of the root.
pub(super) fn of_qosm(mount: &Path) -> Vec<String> {
    let monitors = folders(&mount.join("mon_groups")).into_iter().map(|name| format!("mon_groups/{name}"));
    let all = groups(mount).into_iter().chain(monitors);
    all.filter(|name| name.rsplit('/').next().is_some_and(|name| name.starts_with("qosm-"))).collect()
}

fn folders(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

/// The group in the content of `/proc/PID/cpu_resctrl_groups`, relative to the mount.
pub(super) fn group_of(cpu_resctrl_groups: &str) -> PathBuf {
    let field = |name: &str| cpu_resctrl_groups.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let control = PathBuf::from(field("res:").trim_start_matches('/'));
    match field("mon:") {
        "" => control,
        monitor => control.join("mon_groups").join(monitor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_group_that_counts_for_a_thread() {
        for (text, expected) in [
            ("res:/\nmon:\n", ""),
            ("res:/\nmon:demo-web\n", "mon_groups/demo-web"),
            ("res:qosm-be\nmon:\n", "qosm-be"),
            ("res:qosm-be\nmon:qosm-c1\n", "qosm-be/mon_groups/qosm-c1"),
        ] {
            assert_eq!(group_of(text), PathBuf::from(expected), "{text:?}");
        }
    }

    #[test]
    fn adds_caches_up_and_leaves_out_what_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        for (cache, occupancy) in [("mon_L3_00", "100\n"), ("mon_L3_08", "Unavailable\n"), ("mon_L3_09", "11\n")] {
            let cache = folder.path().join("mon_data").join(cache);
            fs::create_dir_all(&cache).unwrap();
            fs::write(cache.join("llc_occupancy"), occupancy).unwrap();
        }
        assert_eq!(Counted::read(folder.path()), Counted { occupancy: Some(111), traffic: None });
        assert_eq!(Counted::read(&folder.path().join("mon_data")), Counted::default());
    }

    #[test]
    fn bandwidth_is_what_was_added_in_that_time() {
        let counted = |traffic| Counted { occupancy: Some(1), traffic };
        let usage = between(counted(Some(65_536)), counted(Some(65_536 * 5)), 2.0);
        assert_eq!(usage, Usage { occupancy: Some(1), bandwidth: Some(131_072.0) });
        assert_eq!(between(counted(None), counted(Some(1)), 1.0).bandwidth, None);
    }

    #[test]
    fn tells_groups_of_qosm_from_others() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["info", "mon_data", "mon_groups/qosm-c1", "mon_groups/other", "qosm-be/mon_groups/qosm-c2", "tenant"]
        {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("qosm-be/schemata"), "L3:0=3\n").unwrap();
        assert_eq!(groups(folder.path()), ["qosm-be", "tenant"]);
        assert_eq!(of_qosm(folder.path()), ["qosm-be", "mon_groups/qosm-c1"]);
        assert_eq!(schemata(folder.path()), [("qosm-be".to_owned(), "L3:0=3\n".to_owned())]);
    }
}
