//! Knobs that the kernel lacks and the host stands in for: the watermarks of background reclaim, through `memory.reclaim`.
//!
//! Their values are kept here and read back from here, so that leases, plans, drift and restoring need not know. They end with the
//! process: what an earlier agent held is set again by whoever has it written down.

use qosm_model::knob::{Knob, Target, Value};

use crate::Host;
use crate::backend::{Area, Backend as _, join};
use crate::error::{HostError, errno_name, is_absent};
use crate::knob_table::{self, Group};
use crate::knobs::KnobFile;
use crate::mounts::{CgroupVersion, Controller};
use crate::probe::Proof;
use crate::reclaim::Watermarks;
use crate::reclaim::reclaimer::{GroupId, ReclaimReport};
use crate::reclaim::worker::RECLAIM;

/// How it is done, for people.
pub(crate) const EMULATED: &str = "qosm reclaims through memory.reclaim instead of the kernel";

/// A target's watermarks.
pub(crate) struct Emulated {
    watermarks: Watermarks,
    group: GroupId,
}

impl Host {
    /// Whether the host stands in for the kernel here: on v2, where a scratch cgroup had no `memory.wmark_ratio` and took a write
    /// of `memory.reclaim`.
    pub fn emulates(&self, knob: Knob) -> bool {
        let proof = |knob| self.probe.knobs[knob_table::index(knob)];
        knob_table::row(knob).group == Group::Watermark
            && self.probe.reclaim == Proof::Works
            && proof(Knob::WmarkRatio) == Proof::Missing
            && proof(knob) == Proof::Missing
            && self.hierarchies.version(Controller::Memory) == Some(CgroupVersion::V2)
    }

    pub(crate) fn emulated_value(&self, target: Target, knob: Knob) -> Result<Value, HostError> {
        self.emulated_place(target)?;
        let watermarks = self.emulated.get(&target).map(|emulated| emulated.watermarks).unwrap_or_default();
        Ok(Value::Number(value_of(watermarks, knob)))
    }

    /// Sets one of the values, and has the group kept by them from now on.
    pub(crate) fn emulate(&mut self, target: Target, knob: Knob, value: Value) -> Result<Value, HostError> {
        let (area, path) = self.emulated_place(target)?;
        let row = knob_table::row(knob);
        let before = self.emulated.get(&target).map(|emulated| emulated.watermarks).unwrap_or_default();
        let after = match value {
            Value::Number(number) if row.accepts(value) => changed(before, knob, number),
            _ => None,
        };
        let Some(after) = after else {
            let path = self.directory_path_of(area, &join(&path, RECLAIM));
            return Err(HostError::Range { target, knob, value, path, allowed: row.allowed() });
        };
        let group = match self.emulated.get(&target) {
            Some(emulated) => emulated.group,
            None => {
                self.next_ticket += 1;
                GroupId(self.next_ticket)
            }
        };
        if after.is_on() {
            if let Err(source) = self.backend.hold_watermarks(area, &path, group, after) {
                if is_absent(&source) {
                    return Err(HostError::Gone { path });
                }
                let errno = errno_name(&source);
                let path = self.directory_path_of(area, &join(&path, RECLAIM));
                return Err(HostError::Refused { target, knob, value: value.to_string(), path, errno, source });
            }
        } else if before.is_on() {
            self.backend.release_watermarks(group);
        }
        if after == Watermarks::default() {
            self.emulated.remove(&target);
        } else {
            self.emulated.insert(target, Emulated { watermarks: after, group });
        }
        Ok(value)
    }

    pub(crate) fn end_emulation(&mut self, target: Target) {
        if let Some(emulated) = self.emulated.remove(&target) {
            self.backend.release_watermarks(emulated.group);
        }
    }

    /// How background reclaim goes on a target, where the host does it. `None` where it has nothing to do there, or has not yet
    /// looked.
    pub fn reclaim_report(&self, target: Target) -> Option<ReclaimReport> {
        self.backend.reclaim_report(self.emulated.get(&target)?.group)
    }

    /// The file that is written in place of the knob's.
    pub(crate) fn emulation_file(&self, target: Target) -> Option<KnobFile> {
        let tree = self.hierarchies.of(Controller::Memory)?;
        let path = self.directory_path(tree, &join(self.attached_path(target)?, RECLAIM));
        Some(KnobFile { file: RECLAIM, path })
    }

    /// The target's cgroup, which must still be the one that was attached.
    fn emulated_place(&self, target: Target) -> Result<(Area, String), HostError> {
        let path = self.attached_path(target).ok_or(HostError::NotAttached { target })?.to_owned();
        match self.hierarchies.of(Controller::Memory) {
            Some(tree) if self.is_same(target, tree) => Ok((Area::Cgroup(tree), path)),
            _ => Err(HostError::Gone { path }),
        }
    }

    fn directory_path_of(&self, area: Area, path: &str) -> String {
        match area {
            Area::Cgroup(tree) => self.directory_path(tree, path),
            Area::Proc | Area::Sys => path.to_owned(),
        }
    }
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
