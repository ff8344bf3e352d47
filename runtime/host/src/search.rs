//! Finds cgroups: first by the names that a kubelet and a runtime would use, otherwise by a search for the UID or ID.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

use qosm_model::pod::{Container, ContainerCgroup, ContainerState, Pod, Tier};

use crate::backend::{Area, Backend as _, join};
use crate::error::HostError;
use crate::layout::{self, Driver, DriverSource, LayoutOptions, RuntimeId};
use crate::ownership::{is_below, names_scope_of};
use crate::{Host, targets};

/// Maximum number of directories per search; a node with 300 pods has about 2000.
const MAX_DIRECTORIES: usize = 50_000;
const MAX_LEVELS: usize = 12;
/// Minimum number of levels from kubepods down to a container: its pod and itself.
const CONTAINER_LEVELS: usize = 2;

/// Searches that found nothing. A pod that has not started is looked up repeatedly, and each search walks the tree; the
/// first two searches are immediate, later ones are spaced out.
#[derive(Default)]
pub(crate) struct NegativeCache {
    seen: RefCell<HashMap<String, FailedSearch>>,
}

#[derive(Clone, Copy)]
struct FailedSearch {
    skip: u32,
    next: u32,
}

const MAX_SKIPPED: u32 = 31;
const MAX_FAILED: usize = 4096;

impl NegativeCache {
    fn is_due(&self, key: &str) -> bool {
        match self.seen.borrow_mut().get_mut(key) {
            Some(miss) if miss.skip > 0 => {
                miss.skip -= 1;
                false
            }
            _ => true,
        }
    }

    fn record(&self, key: &str, found: bool) {
        let mut seen = self.seen.borrow_mut();
        if found {
            seen.remove(key);
            return;
        }
        if seen.len() >= MAX_FAILED {
            seen.clear();
        }
        let miss = seen.entry(key.to_owned()).or_insert(FailedSearch { skip: 0, next: 0 });
        miss.skip = miss.next;
        miss.next = (miss.next * 2 + 1).min(MAX_SKIPPED);
    }
}

impl Host {
    /// A tier's cgroup, relative to each hierarchy's root. If the driver's kubepods directory is missing and the other
    /// driver's exists, that driver's path.
    pub fn tier_path(&self, tier: Tier) -> String {
        let (driver, kubepods) = self.kubepods();
        layout::tier(driver, &kubepods, tier)
    }

    /// A pod's cgroup, relative to each hierarchy's root: the cgroup that its manifest binds it to; else the kubelet's
    /// path under the current driver; else the path under the other driver, or any directory named after the pod's UID.
    /// If none exists, the kubelet's usual path.
    pub fn pod_path(&self, pod: &Pod) -> String {
        if let Some(bound) = &pod.cgroup {
            return targets::clean(bound).unwrap_or_else(|_| bound.clone());
        }
        let (driver, kubepods) = self.kubepods();
        let tier = pod.kube_qos.tier();
        let usual = layout::pod(driver, &kubepods, tier, &pod.uid);
        if self.exists(&usual) {
            return usual;
        }
        let other = driver.other();
        let unusual = layout::pod(other, &layout::kubepods(other, &self.layout.root), tier, &pod.uid);
        if self.exists(&unusual) {
            return unusual;
        }
        let found =
            self.search(&pod.uid, |name| layout::names_pod(name, &pod.uid), |name| !layout::names_some_pod(name));
        found.unwrap_or(usual)
    }

    /// Records the cgroup that the container runtime reports for a container; `id` is the container ID of the pod
    /// status. [`Host::container_path`] uses it if it belongs to the pod.
    pub fn name_container_cgroup(&mut self, id: String, path: String) {
        self.named_cgroups.insert(id, path);
    }

    /// Drops the record of a container that is gone.
    pub fn forget_container_cgroup(&mut self, id: &str) {
        self.named_cgroups.remove(id);
    }

    /// Drops all such records.
    pub fn forget_container_cgroups(&mut self) {
        self.named_cgroups.clear();
    }

    /// A container's cgroup, relative to each hierarchy's root; `None` if the container has not started or has no cgroup.
    ///
    /// Looks below the pod's cgroup for the names that the runtime uses with either driver, then searches the tree. A
    /// directory elsewhere counts if its path contains the pod's name, as with a runtime that takes a systemd path for
    /// a plain one. The result is the container's own directory, even if the runtime created further directories in it.
    ///
    /// # Errors
    /// [`HostError::ContainerId`] for an ID of an unknown runtime or without a proper ID, [`HostError::Path`] for an
    /// invalid bound path, [`HostError::NotOwn`] for a cgroup that is not the pod's (see [`Host::check_binding`]) or a
    /// status that names the container of another pod.
    pub fn container_path(&self, pod: &Pod, container: &Container) -> Result<Option<String>, HostError> {
        let text = match &container.cgroup {
            ContainerCgroup::Unknown => return Ok(None),
            ContainerCgroup::Bound(path) => {
                let path = targets::clean(path)?;
                self.check_container(pod, &path)?;
                return Ok(self.exists(&path).then_some(path));
            }
            ContainerCgroup::Named(name) => {
                let path = targets::clean(&join(&self.pod_path(pod), name))?;
                return Ok(self.exists(&path).then_some(path));
            }
            ContainerCgroup::Runtime(text) => text,
        };
        let id = RuntimeId::parse(text).map_err(|why| HostError::ContainerId {
            container: container.name.clone(),
            id: text.clone(),
            why,
        })?;
        let above = self.pod_path(pod);
        let is_own = |path: &str| is_below(path, &above) || path.split('/').any(|name| names_scope_of(name, &pod.uid));
        if let Some(path) = self.named_cgroups.get(text).filter(|path| is_own(path) && self.exists(path)) {
            return Ok(Some(path.clone()));
        }
        let first = if above.ends_with(".slice") { Driver::Systemd } else { Driver::Cgroupfs };
        for driver in [first, first.other()] {
            for name in id.names(driver) {
                let path = join(&above, &name);
                if self.exists(&path) {
                    return Ok(Some(path));
                }
            }
        }
        // A terminated container has no cgroup, but its ID stays in the status as long as the pod exists.
        if container.state == ContainerState::Terminated {
            return Ok(None);
        }
        if !self.negative_cache.is_due(text) {
            return Ok(None);
        }
        let found = self.walk(|name| id.is_named(name), |_| true, MAX_LEVELS);
        self.negative_cache.record(text, found.as_deref().is_some_and(is_own));
        match found {
            Some(path) if !is_own(&path) => {
                let why = format!("it does not lie below `{above}`");
                Err(HostError::NotOwn { path, why })
            }
            found => Ok(found),
        }
    }

    /// Whether the directory exists in any hierarchy.
    pub(crate) fn exists(&self, path: &str) -> bool {
        !path.is_empty() && self.trees.iter().any(|&tree| self.backend.inode(Area::Cgroup(tree), path).is_ok())
    }

    /// Whether a cgroup appears to be still under construction: one hierarchy has it, and another has only its parent.
    /// On cgroup v1, kubelets and runtimes create the directories one after the other. The cpuset hierarchy is not
    /// considered: kubelets and runtimes create that directory first, and other programs (and this host, see
    /// [`Host::create`]) create none.
    pub fn is_partial(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let has = |tree: usize, path: &str| self.backend.inode(Area::Cgroup(tree), path).is_ok();
        let lacks = |tree: usize| !has(tree, path) && (parent.is_empty() || has(tree, parent));
        self.exists(path) && self.made_in().into_iter().any(lacks)
    }

    /// The current driver and its kubepods directory. Checked at each call: kubepods may appear after the agent has started.
    pub(crate) fn kubepods(&self) -> (Driver, String) {
        let crate::Layout { driver, root, kubepods, .. } = &self.layout;
        if !self.exists(kubepods) {
            let other = layout::kubepods(driver.other(), root);
            if self.exists(&other) {
                return (driver.other(), other);
            }
        }
        (*driver, kubepods.clone())
    }

    /// The cgroup that contains the node's containers, and the minimum number of levels from there to a container:
    /// kubepods, or the cgroup root if kubepods does not exist.
    pub(crate) fn above_containers(&self) -> (String, usize) {
        let (_, kubepods) = self.kubepods();
        if self.exists(&kubepods) { (kubepods, CONTAINER_LEVELS) } else { (self.layout.root.clone(), 1) }
    }

    /// The cleaned path of a container's cgroup, or the reason why the path is not one.
    pub(crate) fn container_cgroup(&self, cgroup: &str) -> Result<String, String> {
        let clean = targets::clean(cgroup).map_err(|error| error.to_string())?;
        let (above, levels) = self.above_containers();
        let below = if above.is_empty() {
            Some(clean.as_str())
        } else {
            clean.strip_prefix(&above).and_then(|rest| rest.strip_prefix('/'))
        };
        match below {
            Some(below) if below.split('/').count() >= levels => Ok(clean),
            _ => Err(format!("{clean} is no container's cgroup below /{above}")),
        }
    }

    pub(crate) fn find_layout(&mut self, options: &LayoutOptions) {
        let root = options.root();
        let candidate = |driver| layout::kubepods(driver, &root);
        let (systemd, cgroupfs) = (candidate(Driver::Systemd), candidate(Driver::Cgroupfs));
        let (driver, source) = match (options.configured_driver(), self.exists(&systemd), self.exists(&cgroupfs)) {
            (Some(known), ..) => known,
            (None, true, false) => (Driver::Systemd, DriverSource::Directory),
            (None, false, true) => (Driver::Cgroupfs, DriverSource::Directory),
            // Both exist after a change of drivers: the one with more pods is in use.
            (None, true, true) if self.pods_below(&cgroupfs) > self.pods_below(&systemd) => {
                (Driver::Cgroupfs, DriverSource::Pods)
            }
            (None, true, true) => (Driver::Systemd, DriverSource::Pods),
            (None, false, false) => (Driver::Cgroupfs, DriverSource::Assumed),
        };
        let confined = !root.is_empty();
        self.layout = crate::Layout { driver, source, kubepods: candidate(driver), root, confined };
        if !self.exists(&systemd) && !self.exists(&cgroupfs) && self.layout.root.is_empty() {
            self.find_nested(options.driver);
        }
    }

    /// Finds a kubelet whose `cgroupRoot` is not configured here, as in kind.
    fn find_nested(&mut self, driver: Option<Driver>) {
        let named = |name: &str| match name.strip_suffix(".slice") {
            Some(slice) => slice.ends_with("-kubepods") && driver != Some(Driver::Cgroupfs),
            None => name == "kubepods" && driver != Some(Driver::Systemd),
        };
        let Some(kubepods) = self.walk(named, |name| !layout::names_some_pod(name), 4) else { return };
        self.layout.driver = if kubepods.ends_with(".slice") { Driver::Systemd } else { Driver::Cgroupfs };
        if self.layout.source == DriverSource::Assumed {
            self.layout.source = DriverSource::Directory;
        }
        self.layout.root = kubepods.rsplit_once('/').map_or("", |(root, _)| root).to_owned();
        self.layout.kubepods = kubepods;
    }

    fn pods_below(&self, kubepods: &str) -> usize {
        let driver = if kubepods.ends_with(".slice") { Driver::Systemd } else { Driver::Cgroupfs };
        let Some(&tree) = self.trees.first() else { return 0 };
        Tier::ALL
            .into_iter()
            .map(|tier| layout::tier(driver, kubepods, tier))
            .filter_map(|path| self.backend.directories(Area::Cgroup(tree), &path).ok())
            .flatten()
            .filter(|name| layout::names_some_pod(name))
            .count()
    }

    fn search(&self, key: &str, wanted: impl Fn(&str) -> bool, descend: impl Fn(&str) -> bool) -> Option<String> {
        if key.is_empty() || !self.negative_cache.is_due(key) {
            return None;
        }
        let found = self.walk(wanted, descend, MAX_LEVELS);
        self.negative_cache.record(key, found.is_some());
        found
    }

    /// Breadth-first search: the nearest directory for which `wanted` returns `true`.
    fn walk(&self, wanted: impl Fn(&str) -> bool, descend: impl Fn(&str) -> bool, levels: usize) -> Option<String> {
        let &tree = self.trees.first()?;
        // With a configured root, only search below it: elsewhere there may be another node's kubepods (kind, tests).
        let start = if self.layout.confined { self.layout.root.clone() } else { String::new() };
        let mut queue = VecDeque::from([(start, 0)]);
        let mut visited = 0;
        while let Some((path, level)) = queue.pop_front() {
            visited += 1;
            if visited > MAX_DIRECTORIES {
                return None;
            }
            // A directory may be removed during the search.
            for name in self.backend.directories(Area::Cgroup(tree), &path).unwrap_or_default() {
                if wanted(&name) {
                    return Some(join(&path, &name));
                }
                if level + 1 < levels && descend(&name) {
                    queue.push_back((join(&path, &name), level + 1));
                }
            }
        }
        None
    }
}
