//! A simulated hierarchy: its directories, created and removed like in the kernel.

use std::collections::BTreeMap;
use std::io;

use rustix::io::Errno;

use super::cpuset;
use super::rules::{self, Rules};
use crate::backend::join;
use crate::mounts::{CgroupVersion, Controller};
use crate::reclaim::worker::RECLAIM;

pub(super) struct Node {
    pub(super) parent: Option<usize>,
    pub(super) children: BTreeMap<String, usize>,
    inode: u64,
    alive: bool,
    files: BTreeMap<String, String>,
}

pub(super) struct Tree {
    pub(super) mount: String,
    pub(super) version: CgroupVersion,
    pub(super) controllers: Vec<Controller>,
    nodes: Vec<Node>,
    free: Vec<usize>,
    next_inode: u64,
}

/// The hierarchy's root directory.
pub(super) const ROOT: usize = 0;

impl Tree {
    pub(super) fn new(mount: String, version: CgroupVersion, controllers: Vec<Controller>, rules: &Rules) -> Self {
        let mut tree = Self { mount, version, controllers, nodes: Vec::new(), free: Vec::new(), next_inode: 1 };
        let files = rules.root_files(version, &tree.controllers);
        tree.nodes.push(Node { parent: None, children: BTreeMap::new(), inode: 1, alive: true, files });
        tree
    }

    pub(super) fn find(&self, path: &str) -> Option<usize> {
        path.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(ROOT, |node, part| self.nodes[node].children.get(part).copied())
    }

    pub(super) fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    pub(super) fn inode(&self, node: usize) -> u64 {
        self.nodes[node].inode
    }

    pub(super) fn lives(&self, node: usize, inode: u64) -> bool {
        self.nodes.get(node).is_some_and(|node| node.alive && node.inode == inode)
    }

    pub(super) fn children(&self, node: usize) -> Vec<String> {
        self.nodes[node].children.keys().cloned().collect()
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut open = vec![(ROOT, String::new())];
        while let Some((node, path)) = open.pop() {
            for (name, &child) in &self.nodes[node].children {
                let path = join(&path, name);
                paths.push(path.clone());
                open.push((child, path));
            }
        }
        paths
    }

    pub(super) fn has(&self, node: usize, file: &str) -> bool {
        self.nodes[node].files.contains_key(file)
    }

    pub(super) fn read(&self, node: usize, file: &str) -> io::Result<&str> {
        self.nodes[node].files.get(file).map(String::as_str).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn put(&mut self, node: usize, file: &str, text: String) {
        self.nodes[node].files.insert(file.to_owned(), text);
    }

    pub(super) fn write(&mut self, node: usize, file: &str, text: &str, rules: &Rules) -> io::Result<()> {
        if !self.has(node, file) {
            return Err(Errno::NOENT.into());
        }
        let text = text.trim();
        if file == rules::SUBTREE && self.version == CgroupVersion::V2 {
            return self.delegate(node, text, rules).map_err(Into::into);
        }
        if file == RECLAIM && node != ROOT {
            rules.check_refusing(file)?;
            return self.reclaim(node, rules::reclaim_amount(text)?);
        }
        let accepted = rules.accept(self, node, file, text)?;
        if file == rules::IDLE && self.read(node, file)? != accepted {
            for (weight, text) in rules::weights_after(&accepted) {
                if self.has(node, weight) {
                    self.put(node, weight, text.to_owned());
                }
            }
        }
        self.put(node, file, accepted);
        Ok(())
    }

    /// Removes the lines of a device from all files.
    pub(super) fn drop_lines(&mut self, prefix: &str) {
        let files =
            self.nodes.iter_mut().flat_map(|node| node.files.iter_mut()).filter(|(name, _)| name.starts_with("io."));
        for (_, text) in files {
            *text = text.lines().filter(|line| !line.starts_with(prefix)).map(|line| format!("{line}\n")).collect();
        }
    }

    /// A write to `memory.reclaim`: takes page cache from the cgroup, and thus from its ancestors; anonymous memory
    /// cannot be swapped. Returns `EAGAIN` after taking less than requested.
    fn reclaim(&mut self, node: usize, bytes: u64) -> io::Result<()> {
        let stat = self.read(node, "memory.stat").unwrap_or_default();
        let cache = crate::parse::keyed(stat.as_bytes(), ["file"])[0].unwrap_or(0);
        let taken = cache.min(bytes);
        let mut place = Some(node);
        while let Some(node) = place {
            if let (Ok(current), Ok(stat)) = (self.read(node, "memory.current"), self.read(node, "memory.stat")) {
                let (current, stat) = rules::after_reclaim(current, stat, taken);
                self.put(node, "memory.current", current);
                self.put(node, "memory.stat", stat);
            }
            place = self.nodes[node].parent;
        }
        if taken < bytes { Err(Errno::AGAIN.into()) } else { Ok(()) }
    }

    /// Ends all processes of a cgroup and of its descendants. The written value cannot be read back.
    pub(super) fn kill(&mut self, node: usize) {
        self.put(node, rules::KILL, String::new());
        self.put(node, rules::PROCS, String::new());
        let below: Vec<usize> = self.nodes[node].children.values().copied().collect();
        below.into_iter().for_each(|child| self.kill(child));
    }

    pub(super) fn make(&mut self, path: &str, rules: &Rules) -> io::Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.find(above).ok_or(Errno::NOENT)?;
        if name.is_empty() || self.nodes[parent].children.contains_key(name) {
            return Err(Errno::EXIST.into());
        }
        self.add(parent, name, rules);
        Ok(())
    }

    /// Creates the missing directories of a path, with all controllers enabled.
    pub(super) fn ensure(&mut self, path: &str, rules: &Rules) {
        let mut node = ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            self.delegate_all(node, rules);
            node = match self.nodes[node].children.get(part) {
                Some(&child) => child,
                None => self.add(node, part, rules),
            };
        }
    }

    /// Enables all controllers of a cgroup for its children.
    pub(super) fn delegate_all(&mut self, node: usize, rules: &Rules) {
        if self.version == CgroupVersion::V2 {
            let all: Vec<String> = self.available(node).iter().map(|name| format!("+{name}")).collect();
            // The kernel only refuses unknown controllers, and these names come from the cgroup itself.
            let _ = self.delegate(node, &all.join(" "), rules);
        }
    }

    fn add(&mut self, parent: usize, name: &str, rules: &Rules) -> usize {
        self.next_inode += 1;
        let enabled = match self.version {
            CgroupVersion::V1 => self.controllers.clone(),
            CgroupVersion::V2 => self.enabled(parent),
        };
        let files = rules.new_files(self.version, &enabled);
        let child =
            Node { parent: Some(parent), children: BTreeMap::new(), inode: self.next_inode, alive: true, files };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place] = child;
                place
            }
            None => {
                self.nodes.push(child);
                self.nodes.len() - 1
            }
        };
        self.nodes[parent].children.insert(name.to_owned(), place);
        cpuset::inherit(self, place);
        place
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        let node = self.find(path).ok_or(Errno::NOENT)?;
        if node == ROOT || !self.nodes[node].children.is_empty() {
            return Err(Errno::BUSY.into());
        }
        if let Some(parent) = self.nodes[node].parent {
            self.nodes[parent].children.retain(|_, child| *child != node);
        }
        self.nodes[node].alive = false;
        self.nodes[node].files.clear();
        self.free.push(node);
        Ok(())
    }

    pub(super) fn remove_all(&mut self, path: &str) -> bool {
        let Some(node) = self.find(path) else { return false };
        for child in self.children(node) {
            self.remove_all(&format!("{path}/{child}"));
        }
        self.remove(path).is_ok()
    }

    fn available(&self, node: usize) -> Vec<String> {
        let controllers = self.nodes[node].files.get(rules::CONTROLLERS).map_or("", String::as_str);
        controllers.split_ascii_whitespace().map(str::to_owned).collect()
    }

    fn enabled(&self, node: usize) -> Vec<Controller> {
        let enabled = self.nodes[node].files.get(rules::SUBTREE).map_or("", String::as_str);
        enabled.split_ascii_whitespace().filter_map(Controller::parse).collect()
    }

    /// A write to `cgroup.subtree_control`: `+name` and `-name`. Children gain or lose the controllers' files.
    fn delegate(&mut self, node: usize, text: &str, rules: &Rules) -> Result<(), Errno> {
        let available = self.available(node);
        let mut enabled = self.enabled(node);
        for word in text.split_ascii_whitespace() {
            let (add, name) = match word.split_at_checked(1) {
                Some(("+", name)) => (true, name),
                Some(("-", name)) => (false, name),
                _ => return Err(Errno::INVAL),
            };
            let controller = Controller::parse(name).ok_or(Errno::INVAL)?;
            if add && !available.iter().any(|available| available == name) {
                return Err(Errno::NOENT);
            }
            let below = |child: &usize| self.enabled(*child).contains(&controller);
            if !add && self.nodes[node].children.values().any(below) {
                return Err(Errno::BUSY);
            }
            enabled.retain(|&other| other != controller);
            if add {
                enabled.push(controller);
            }
        }
        enabled.sort_unstable();
        let has_cpu = |enabled: &[Controller]| enabled.contains(&Controller::Cpu);
        // Throttling is in the same file as CPU time, which exists without the controller, too.
        let other_cpu_stat = has_cpu(&enabled) != has_cpu(&self.enabled(node));
        self.put(node, rules::SUBTREE, rules::controller_list(&enabled));
        let fresh = rules.new_files(self.version, &enabled);
        let children: Vec<usize> = self.nodes[node].children.values().copied().collect();
        for child in children {
            let files = &mut self.nodes[child].files;
            files.retain(|name, _| fresh.contains_key(name) || !rules.is_known(name));
            for (name, text) in &fresh {
                let is_other = name == rules::CONTROLLERS || (name == "cpu.stat" && other_cpu_stat);
                if is_other || !files.contains_key(name) {
                    files.insert(name.clone(), text.clone());
                }
            }
        }
        Ok(())
    }
}
