//! The groups above and below a target, and their values of a knob: a child's protection is limited by that of every
//! group above it.

use qosm_model::knob::{Knob, Target, Value};

use crate::backend::{Area, Backend as _, join};
use crate::{Host, knob_table, parse};

/// A group above or below a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relative {
    /// Its cgroup, relative to the hierarchy's root.
    pub path: String,
    /// The target that the group is attached as; `None` if it is not attached.
    pub target: Option<Target>,
    /// The group's value of the knob.
    pub value: Value,
}

impl Host {
    /// The groups directly below a target that have this knob, in the order of their names. Each file is opened, read
    /// and closed, so call this on changes and not in every tick. Groups whose file cannot be read are left out.
    pub fn groups_below(&self, target: Target, knob: Knob) -> Vec<Relative> {
        let Some(tree) = self.tree_of(knob) else { return Vec::new() };
        let Some(path) = self.attached_path(target) else { return Vec::new() };
        let mut names = self.backend.directories(Area::Cgroup(tree), path).unwrap_or_default();
        names.sort_unstable();
        names.iter().filter_map(|name| self.relative(tree, join(path, name), knob)).collect()
    }

    /// The groups above a target that have this knob, the nearest first. The hierarchy's root has no bounds and is left out.
    pub fn groups_above(&self, target: Target, knob: Knob) -> Vec<Relative> {
        let Some(tree) = self.tree_of(knob) else { return Vec::new() };
        let above = |path: &str| path.rsplit_once('/').map(|(above, _)| above.to_owned());
        let first = self.attached_path(target).and_then(above);
        std::iter::successors(first, |path| above(path)).filter_map(|path| self.relative(tree, path, knob)).collect()
    }

    /// A target's value of a knob, read without keeping the file open; `None` if it cannot be read.
    pub fn peek(&self, target: Target, knob: Knob) -> Option<Value> {
        let tree = self.tree_of(knob)?;
        Some(self.relative(tree, self.attached_path(target)?.to_owned(), knob)?.value)
    }

    /// A cgroup's value of a knob, by path.
    pub(crate) fn peek_at(&self, path: &str, knob: Knob) -> Option<Value> {
        let tree = self.tree_of(knob)?;
        Some(self.relative(tree, path.to_owned(), knob)?.value)
    }

    /// The hierarchy of a knob's files; `None` if it is not mounted, and for node-wide knobs.
    pub(crate) fn tree_of(&self, knob: Knob) -> Option<usize> {
        self.hierarchies.of(knob_table::row(knob).controller()?)
    }

    fn relative(&self, tree: usize, path: String, knob: Knob) -> Option<Relative> {
        let row = knob_table::row(knob);
        let version = self.hierarchies.list.get(tree)?.version;
        let text = self.backend.read_once(Area::Cgroup(tree), &join(&path, row.file(version))).ok()?;
        let value = parse::value_of(knob, row, version, self.page(), &text)?;
        let target = self.by_path.get(&path).copied();
        Some(Relative { path, target, value })
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::pod::{PodId, Tier};

    use super::*;
    use crate::simulated::Spec;

    #[test]
    fn groups_above_and_below_are_found_with_what_they_hold() {
        let mut host = Host::simulated(&Spec::default()).unwrap();
        for path in ["a/kubepods/burstable/podweb/app", "a/kubepods/burstable/poddb", "a/kubepods/podfixed"] {
            host.create(path).unwrap();
        }
        let (tier, web) = (Target::Tier(Tier::Burstable), Target::Pod(PodId(1)));
        host.attach(tier, "a/kubepods/burstable").unwrap();
        host.attach(web, "a/kubepods/burstable/podweb").unwrap();
        let simulation = host.simulated_mut().unwrap();
        simulation.set_file("a/kubepods/burstable/poddb", "memory.min", "8192").unwrap();
        simulation.set_file("a/kubepods", "memory.min", "max").unwrap();

        let relative = |path: &str, target, value| Relative { path: path.to_owned(), target, value };
        assert_eq!(
            host.groups_below(tier, Knob::MemoryMin),
            [
                relative("a/kubepods/burstable/poddb", None, Value::Number(8192)),
                relative("a/kubepods/burstable/podweb", Some(web), Value::Number(0)),
            ]
        );
        assert_eq!(
            host.groups_above(web, Knob::MemoryMin),
            [
                relative("a/kubepods/burstable", Some(tier), Value::Number(0)),
                relative("a/kubepods", None, Value::Max),
                relative("a", None, Value::Number(0)),
            ]
        );
        // Upstream cgroup v1 has no such files.
        assert_eq!(host.groups_below(tier, Knob::OomPriority), []);
        assert_eq!(host.groups_below(Target::Pod(PodId(9)), Knob::MemoryMin), [], "not attached");
    }
}
