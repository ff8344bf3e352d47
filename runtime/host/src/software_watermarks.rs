//! Watermarks of background reclaim on kernels without `memory.wmark_ratio`: a thread reclaims through `memory.reclaim` instead.
//!
//! The host stores the values and reads them back, so that leases, plans, drift and restore treat them like any other
//! knob. They end with the process; the next agent sets them again from its journal.

use qosm_model::knob::{Knob, Target, Value};
use qosm_model::unit::Bytes;

use crate::Host;
use crate::backend::{Area, Backend as _, join};
use crate::error::{HostError, errno_name, is_absent};
use crate::knob_table::{self, Group};
use crate::knobs::KnobFile;
use crate::mounts::{CgroupVersion, Controller};
use crate::probe::Proof;
use crate::reclaim::reclaimer::{GroupId, ReclaimReport};
use crate::reclaim::worker::{RECLAIM, bound, limits_above, smaller};
use crate::reclaim::{Levels, Nearness, Watermarks};

/// How background reclaim works on this node, for `doctor` and `explain`.
pub(crate) const DESCRIPTION: &str = "qosm reclaims through memory.reclaim instead of the kernel; from a group without a limit of its \
                                   own by the limits above it and by the node's memory";

/// A target's watermarks.
pub(crate) struct SoftwareWatermarks {
    watermarks: Watermarks,
    group: GroupId,
}

impl Host {
    /// Whether [`Host::describe_software_reclaim`] applies to this knob: to each watermark except the scale, which only tunes the others.
    pub fn describes_software_reclaim(&self, knob: Knob) -> bool {
        self.emulates(knob) && knob != Knob::WmarkScale
    }

    /// Whether the host does background reclaim since the kernel has none.
    pub fn reclaims_in_software(&self) -> bool {
        self.emulates(Knob::WmarkRatio)
    }

    /// The state of background reclaim on a target, for the knob that turns it on; `None` for any other knob.
    pub fn reclaim_report_of(&self, target: Target, knob: Knob) -> Option<ReclaimReport> {
        self.reclaim_report(target).filter(|_| knob == Knob::WmarkRatio)
    }

    /// Whether the host emulates this knob: on v2, if the scratch cgroup had no `memory.wmark_ratio` and accepted a
    /// write of `memory.reclaim`.
    pub fn emulates(&self, knob: Knob) -> bool {
        let proof = |knob| self.probe.knobs[knob_table::index(knob)];
        knob_table::row(knob).group == Group::Watermark
            && self.probe.reclaim == Proof::Works
            && proof(Knob::WmarkRatio) == Proof::Missing
            && proof(knob) == Proof::Missing
            && self.hierarchies.version(Controller::Memory) == Some(CgroupVersion::V2)
    }

    pub(crate) fn software_watermark(&self, target: Target, knob: Knob) -> Result<Value, HostError> {
        self.memory_cgroup(target)?;
        let watermarks = self.software_watermarks.get(&target).map(|held| held.watermarks).unwrap_or_default();
        Ok(Value::Number(value_of(watermarks, knob)))
    }

    /// Sets one of the values; the worker uses it from now on.
    pub(crate) fn set_software_watermark(
        &mut self,
        target: Target,
        knob: Knob,
        value: Value,
    ) -> Result<Value, HostError> {
        let (area, path) = self.memory_cgroup(target)?;
        let row = knob_table::row(knob);
        let before = self.software_watermarks.get(&target).map(|held| held.watermarks).unwrap_or_default();
        let after = match value {
            Value::Number(number) if row.accepts(value) => changed(before, knob, number),
            _ => None,
        };
        let Some(after) = after else {
            let path = self.directory_path_of(area, &join(&path, RECLAIM));
            return Err(HostError::Range { target, knob, value: Box::new(value), path, allowed: row.allowed() });
        };
        let group = match self.software_watermarks.get(&target) {
            Some(held) => held.group,
            None => {
                self.next_ticket += 1;
                GroupId(self.next_ticket)
            }
        };
        if after.is_on() {
            if let Err(source) = self.backend.set_watermarks(area, &path, group, after) {
                if is_absent(&source) {
                    return Err(HostError::Gone { path });
                }
                let errno = errno_name(&source);
                let path = self.directory_path_of(area, &join(&path, RECLAIM));
                return Err(HostError::Refused { target, knob, value: value.to_string(), path, errno, source });
            }
        } else if before.is_on() {
            self.backend.remove_watermarks(group);
        }
        if after == Watermarks::default() {
            self.software_watermarks.remove(&target);
        } else {
            self.software_watermarks.insert(target, SoftwareWatermarks { watermarks: after, group });
        }
        Ok(value)
    }

    pub(crate) fn drop_software_watermarks(&mut self, target: Target) {
        if let Some(held) = self.software_watermarks.remove(&target) {
            self.backend.remove_watermarks(held.group);
        }
    }

    /// The state of background reclaim on a target; `None` if the host does none there, or has not polled the group yet.
    pub fn reclaim_report(&self, target: Target) -> Option<ReclaimReport> {
        self.backend.reclaim_report(self.software_watermarks.get(&target)?.group)
    }

    /// Describes the effect of a target's watermarks, including those in `planned`: against its own limit, an
    /// ancestor's limit, or the node's memory. `None` if the kernel has its own watermarks, or the host cannot emulate
    /// them.
    pub fn describe_software_reclaim(&self, target: Target, planned: &[(Knob, Value)]) -> Option<String> {
        if !self.emulates(Knob::WmarkRatio) {
            return None;
        }
        let held = self.software_watermarks.get(&target).map(|held| held.watermarks).unwrap_or_default();
        let mut watermarks = held;
        let mut high = None;
        for &(knob, value) in planned {
            match value {
                Value::Number(number) if knob == Knob::MemoryHigh => high = u64::try_from(number).ok().map(Bytes),
                Value::Number(number) if knob_table::row(knob).group == Group::Watermark => {
                    watermarks = changed(watermarks, knob, number)?;
                }
                _ => {}
            }
        }
        let path = self.attached_path(target)?;
        let tree = self.hierarchies.of(Controller::Memory)?;
        let read = |group: &str, file: &str| self.backend.read_once(Area::Cgroup(tree), &join(group, file)).ok();
        let limit = |file| read(path, file).and_then(|text| bound(&text).ok().flatten());
        let own = smaller(smaller(limit("memory.high"), limit("memory.max")), high);
        let above = limits_above(path, read).into_iter().min_by_key(|(_, limit)| *limit);
        Some(describe(watermarks, own, above, self.node.memory))
    }

    /// The file that the host writes instead of the knob's file.
    pub(crate) fn software_watermark_file(&self, target: Target) -> Option<KnobFile> {
        let tree = self.hierarchies.of(Controller::Memory)?;
        let path = self.directory_path(tree, &join(self.attached_path(target)?, RECLAIM));
        Some(KnobFile { file: RECLAIM, path })
    }

    /// The target's cgroup, if it is still the one that was attached.
    fn memory_cgroup(&self, target: Target) -> Result<(Area, String), HostError> {
        let path = self.attached_path(target).ok_or(HostError::NotAttached { target })?.to_owned();
        match self.hierarchies.of(Controller::Memory) {
            Some(tree) if self.is_same(target, tree) => Ok((Area::Cgroup(tree), path)),
            _ => Err(HostError::Gone { path }),
        }
    }

    fn directory_path_of(&self, area: Area, path: &str) -> String {
        match area {
            Area::Cgroup(tree) => self.directory_path(tree, path),
            Area::Proc | Area::Sys | Area::Kubelet => path.to_owned(),
        }
    }
}

/// Describes at which usage memory is reclaimed.
fn describe(watermarks: Watermarks, own: Option<Bytes>, above: Option<(String, Bytes)>, memory: Bytes) -> String {
    let Watermarks { min_adj, .. } = watermarks;
    if let (Some(limit), Some(Levels { high, low })) = (own, watermarks.levels(own, Nearness::default())) {
        let moved = match min_adj {
            0 => String::new(),
            1.. => format!("; while the node runs short up to {min_adj} % earlier"),
            _ => "; while the node runs short later".to_owned(),
        };
        return format!(
            "it is reclaimed from {} down to {} bytes of the {} that it may use{moved}",
            high.0, low.0, limit.0
        );
    }
    let mut parts = Vec::new();
    let levels = |limit| watermarks.levels_above(limit).filter(|_| own.is_none());
    if let Some((group, limit)) = above {
        parts.extend(levels(limit).map(|Levels { high, .. }| {
            format!(
                "it has no limit: memory is taken from it while {group} uses more than {} of its {} bytes",
                high.0, limit.0
            )
        }));
    } else {
        parts.extend(levels(memory).map(|Levels { high, .. }| {
            format!(
                "it has no limit, nor has any group above it: memory is taken from it while more than {} of the node's {} bytes are \
                 not available",
                high.0, memory.0
            )
        }));
    }
    if min_adj > 0 {
        let also = if parts.is_empty() { "memory is taken from it" } else { "and" };
        parts.push(format!(
            "{also} while free memory of a NUMA node is near the kernel's watermarks, before the kernel takes from all groups alike"
        ));
    }
    if parts.is_empty() { "it is off".to_owned() } else { parts.join("; ") }
}

fn value_of(watermarks: Watermarks, knob: Knob) -> i64 {
    match knob {
        Knob::WmarkRatio => watermarks.ratio.into(),
        Knob::WmarkScale => watermarks.scale.into(),
        _ => watermarks.min_adj.into(),
    }
}

fn changed(before: Watermarks, knob: Knob, number: i64) -> Option<Watermarks> {
    Some(match knob {
        Knob::WmarkRatio => Watermarks { ratio: number.try_into().ok()?, ..before },
        Knob::WmarkScale => Watermarks { scale: number.try_into().ok()?, ..before },
        _ => Watermarks { min_adj: number.try_into().ok()?, ..before },
    })
}
