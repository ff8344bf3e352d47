//! The simulated kernel's handling of CPUs of cgroups.
//!
//! Kernel: `validate_change`, `update_cpumask` and `update_cpumasks_hier` in kernel/cgroup/cpuset.c.

use qosm_model::numa::list_text;
use rustix::io::Errno;

use super::tree::Tree;
use crate::mounts::CgroupVersion;
use crate::parse;

const OWN: &str = "cpuset.cpus";
const EFFECTIVE: &str = "cpuset.cpus.effective";

/// Checks a list of CPUs, and returns the file's new content.
pub(super) fn cpus(tree: &Tree, node: usize, online: u32, text: &str) -> Result<String, Errno> {
    let wanted = parse::numa::list(text.as_bytes()).ok_or(Errno::INVAL)?;
    if wanted.iter().any(|&cpu| cpu >= online) {
        return Err(Errno::INVAL);
    }
    if tree.version == CgroupVersion::V1 {
        let keeps_cpu = |child: &usize| list(tree, *child, OWN).iter().any(|cpu| !wanted.contains(cpu));
        if tree.node(node).children.values().any(keeps_cpu) {
            return Err(Errno::BUSY);
        }
        let above = above(tree, node);
        if !above.is_empty() && wanted.iter().any(|cpu| !above.contains(cpu)) {
            return Err(Errno::ACCESS);
        }
    }
    // Every cgroup in the simulation counts as having a process.
    if wanted.is_empty() && !list(tree, node, OWN).is_empty() {
        return Err(Errno::NOSPC);
    }
    Ok(line(&wanted))
}

/// v2: updates the effective lists of a cgroup and its descendants.
pub(super) fn follow(tree: &mut Tree, node: usize, online: u32) {
    if !tree.has(node, EFFECTIVE) {
        return;
    }
    let parent = tree.node(node).parent;
    let above = parent.map(|parent| list(tree, parent, EFFECTIVE)).filter(|above| !above.is_empty());
    let above = above.unwrap_or_else(|| (0..online).collect());
    let own = list(tree, node, OWN);
    apply(tree, node, &own, &above);
}

/// Initializes a new cgroup with its parent's list. On v1 the kernel leaves the list empty, and runtimes and the
/// kubelet fill it in.
pub(super) fn inherit(tree: &mut Tree, node: usize) {
    let file = if tree.version == CgroupVersion::V1 { OWN } else { EFFECTIVE };
    let Some(parent) = tree.node(node).parent.filter(|_| tree.has(node, file)) else { return };
    let above = list(tree, parent, file);
    if !above.is_empty() {
        tree.put(node, file, line(&above));
    }
}

fn apply(tree: &mut Tree, node: usize, own: &[u32], above: &[u32]) {
    let before = list(tree, node, EFFECTIVE);
    let both: Vec<u32> = own.iter().copied().filter(|cpu| above.contains(cpu)).collect();
    let after = if both.is_empty() { above.to_vec() } else { both };
    tree.put(node, EFFECTIVE, line(&after));
    let children: Vec<usize> = tree.node(node).children.values().copied().collect();
    for child in children.into_iter().filter(|child| tree.has(*child, EFFECTIVE)).collect::<Vec<_>>() {
        let own = list(tree, child, OWN);
        // A recorded cgroup only has the effective list: if it differed from its parent's, it was the cgroup's own.
        let shown = list(tree, child, EFFECTIVE);
        let own = if own.is_empty() && shown != before { shown } else { own };
        apply(tree, child, &own, &after);
    }
}

/// v1: the list of the nearest ancestor with one.
fn above(tree: &Tree, node: usize) -> Vec<u32> {
    let mut place = tree.node(node).parent;
    while let Some(parent) = place {
        let cpus = list(tree, parent, OWN);
        if !cpus.is_empty() {
            return cpus;
        }
        place = tree.node(parent).parent;
    }
    Vec::new()
}

fn list(tree: &Tree, node: usize, file: &str) -> Vec<u32> {
    let text = tree.read(node, file).unwrap_or_default();
    parse::numa::list(text.as_bytes()).unwrap_or_default()
}

fn line(cpus: &[u32]) -> String {
    format!("{}\n", list_text(cpus.iter().copied()))
}
