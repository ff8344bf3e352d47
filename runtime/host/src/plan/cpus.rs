//! CPUs of cgroups: the available part of a wanted set, and the steps to it.
//!
//! cgroup v1 keeps each cgroup within its parent at every moment: a parent grows before its children and shrinks after
//! them, and a set that both gains and loses CPUs first grows to the union. cgroup v2 accepts any set and applies its
//! intersection with the parent's; if that is empty, all of the parent's. The plan refuses such a set.
//!
//! Kernel: `validate_change`, `update_cpumask` and `update_cpumasks_hier` in kernel/cgroup/cpuset.c.

use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Target, Value};

use crate::backend::{Area, Backend as _, join};
use crate::error::HostError;
use crate::mounts::{CgroupVersion, Controller};
use crate::plan::{Changes, Clamp, Plan, Step};
use crate::targets::CgroupFile;
use crate::{Host, parse};

const KNOB: Knob = Knob::CpusetCpus;

impl Host {
    /// Refuses sets without available CPUs, and clamps others to the available CPUs.
    pub(super) fn settle_cpus(&mut self, changes: &mut Changes, plan: &mut Plan) {
        let mut wanted: Vec<Step> = changes.of(KNOB).copied().collect();
        let Some(version) = self.hierarchies.version(Controller::Cpuset).filter(|_| !wanted.is_empty()) else { return };
        let depth = |step: &Step| self.attached_path(step.target).map_or(0, |path| path.split('/').count());
        wanted.sort_by_cached_key(depth);
        let online = CpuSet::of(&self.online_cpus()).unwrap_or_default();
        for change in &wanted {
            match self.cpus_given(version, change, changes, &online) {
                Ok((to, clamp)) => {
                    changes.put(Step { to, ..*change });
                    plan.clamped.extend(clamp);
                }
                Err(refusal) => {
                    changes.drop(change.target, KNOB);
                    plan.refused.push((change.target, KNOB, refusal));
                }
            }
        }
        if version == CgroupVersion::V2 {
            return;
        }
        for change in wanted.iter().rev() {
            if let Some(refusal) = changes.get(change.target, KNOB).and_then(|change| self.wider_below(change, changes))
            {
                changes.drop(change.target, KNOB);
                plan.refused.push((change.target, KNOB, refusal));
            }
        }
    }

    /// The value to write for a wanted set.
    fn cpus_given(
        &self,
        version: CgroupVersion,
        change: &Step,
        changes: &Changes,
        online: &CpuSet,
    ) -> Result<(Value, Option<Clamp>), HostError> {
        let Step { target, knob, to, .. } = *change;
        let Value::Cpus(set) = to else { return Ok((to, None)) };
        let path = self.attached_path(target).ok_or(HostError::NotAttached { target })?;
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let there = self.cpus_in_force(version, above, changes, online);
        let usable = set.and(&there);
        let is_baseline = changes.baselines.contains(&(target, knob));
        if usable.is_empty() && !is_baseline {
            let path = self.file_path_or_name(target, CgroupFile::Knob(knob));
            let above = if above.is_empty() { "the node".to_owned() } else { format!("`{above}` above it") };
            return Err(HostError::NoCpus { target, path, cpus: Box::new(set), above, there: Box::new(there) });
        }
        let to = match version {
            // Restore as much as possible of a baseline.
            CgroupVersion::V1 if usable.is_empty() => there,
            CgroupVersion::V1 => usable,
            // On v2 the kernel remembers CPUs that are not available yet.
            CgroupVersion::V2 if is_baseline => set,
            CgroupVersion::V2 => set.and(&self.possible_cpus()),
        };
        // On v2 all CPUs that the machine can have are read back as no restriction.
        let is_all = version == CgroupVersion::V2 && !is_baseline && self.possible_cpus().is_subset(&to);
        let given = if is_all { Value::Max } else { Value::Cpus(to) };
        if to == set || is_baseline {
            return Ok((given, None));
        }
        let why = format!("CPUs {} cannot be had: there are {there} above it", set.minus(&to));
        Ok((given, Some(Clamp { target, knob, wanted: Value::Cpus(set), given, why })))
    }

    /// The CPUs that a cgroup will have after the changes.
    fn cpus_in_force(&self, version: CgroupVersion, path: &str, changes: &Changes, online: &CpuSet) -> CpuSet {
        if path.is_empty() {
            return *online;
        }
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let there = self.cpus_in_force(version, above, changes, online);
        let own = self.own_cpus(path, changes).or_else(|| {
            // A recorded node only has the effective lists.
            let effective = |path: &str| self.effective_cpus(path).filter(|_| version == CgroupVersion::V2);
            effective(path).filter(|own| effective(above).is_some_and(|above| above != *own))
        });
        match own.map(|own| own.and(&there)) {
            Some(both) if !both.is_empty() => both,
            _ => there,
        }
    }

    /// A cgroup's own list after the changes; `None` if it is empty.
    fn own_cpus(&self, path: &str, changes: &Changes) -> Option<CpuSet> {
        let change = self.by_path.get(path).and_then(|&target| changes.get(target, KNOB));
        match change.map_or_else(|| self.peek_at(path, KNOB), |change| Some(change.to)) {
            Some(Value::Cpus(cpus)) => Some(cpus),
            _ => None,
        }
    }

    fn effective_cpus(&self, path: &str) -> Option<CpuSet> {
        let tree = self.hierarchies.of(Controller::Cpuset)?;
        let name = CgroupFile::EffectiveCpus.name(self.hierarchies.list.get(tree)?.version);
        let text = self.backend.read_once(Area::Cgroup(tree), &join(path, name)).ok()?;
        CpuSet::of(&parse::numa::list(&text)?).ok().filter(|cpus| !cpus.is_empty())
    }

    /// The CPUs that the machine has or may get.
    pub(crate) fn possible_cpus(&self) -> CpuSet {
        let text = self.backend.read_once(Area::Sys, "devices/system/cpu/possible").unwrap_or_default();
        let listed = parse::numa::list(&text).and_then(|cpus| CpuSet::of(&cpus).ok()).unwrap_or_default();
        listed.or(&CpuSet::of(&self.online_cpus()).unwrap_or_default())
    }

    /// v1: the error for a child that has more CPUs than its parent would keep.
    fn wider_below(&self, change: &Step, changes: &Changes) -> Option<HostError> {
        let Value::Cpus(set) = change.to else { return None };
        let below = self.groups_below(change.target, KNOB);
        below.into_iter().find_map(|child| {
            let own = self.own_cpus(&child.path, changes)?;
            let more = own.minus(&set);
            (!more.is_empty()).then(|| HostError::WiderBelow {
                target: change.target,
                path: self.file_path_or_name(change.target, CgroupFile::Knob(KNOB)),
                cpus: Box::new(set),
                below: child.path,
                more: Box::new(more),
            })
        })
    }

    /// The two steps of a set that both gains and loses CPUs on v1.
    pub(super) fn by_way_of_both(&self, change: &Step) -> Option<[Step; 2]> {
        let (Value::Cpus(from), Value::Cpus(to)) = (change.from, change.to) else { return None };
        let is_v1 = self.hierarchies.version(Controller::Cpuset) == Some(CgroupVersion::V1);
        if !is_v1 || from.is_subset(&to) || to.is_subset(&from) {
            return None;
        }
        let both = Value::Cpus(from.or(&to));
        Some([Step { to: both, ..*change }, Step { from: both, ..*change }])
    }

    /// The list of the nearest ancestor with one: the CPUs that a cgroup may have on v1.
    pub fn cpus_above(&self, target: Target) -> Option<CpuSet> {
        let mut path = self.attached_path(target)?;
        while !path.is_empty() {
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
            if let Some(Value::Cpus(cpus)) = self.peek_at(path, KNOB) {
                return Some(cpus);
            }
        }
        None
    }
}

/// Whether a step only removes CPUs.
pub(super) fn falls(step: &Step) -> bool {
    match (step.from, step.to) {
        (Value::Cpus(from), Value::Cpus(to)) => to != from && to.is_subset(&from),
        (_, Value::Max) => false,
        _ => true,
    }
}
