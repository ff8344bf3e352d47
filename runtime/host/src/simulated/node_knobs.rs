//! The simulated kernel's node-wide settings, and its handling of writes.
//!
//! Kernel: `init_per_zone_wmark_min` in mm/page_alloc.c, and the table of `vm` sysctls.

use std::collections::BTreeMap;
use std::io;

use qosm_model::knob::Knob;
use qosm_model::unit::Bytes;
use rustix::io::Errno;

use super::{Simulation, Write};
use crate::backend::Area;
use crate::knob_table::{self, Place};
use crate::mounts::CgroupVersion;
use crate::node_knobs::NODE_PATH;
use crate::parse;
use crate::simulated::{Kernel, Spec};

/// The range and initial value of a setting; `None` if this kernel does not have it.
fn rule(knob: Knob, kernel: Kernel, memory: Bytes) -> Option<(std::ops::RangeInclusive<i64>, i64)> {
    let is_alibaba = kernel == Kernel::Alibaba;
    match knob {
        Knob::MinFreeKbytes => {
            let computed = (memory.0 / 1024).saturating_mul(16).isqrt().clamp(128, 262_144);
            Some((0..=i32::MAX.into(), i64::try_from(computed).unwrap_or(i64::MAX)))
        }
        Knob::WatermarkScaleFactor => Some((1..=3000, 10)),
        Knob::MemcgReaper | Knob::GroupIdentity if is_alibaba => Some((0..=1, 0)),
        Knob::IdleSaverWmark if is_alibaba => Some((0..=i64::MAX, 0)),
        Knob::PageCacheLimit if is_alibaba => Some((0..=1, 1)),
        Knob::SchedCore if is_alibaba => Some((0..=1, 0)),
        _ => None,
    }
}

fn files(spec: &Spec, of: Place) -> BTreeMap<String, String> {
    let rows = Knob::OF_NODE.into_iter().map(knob_table::row).filter(|row| row.place == of);
    rows.filter_map(|row| {
        let (_, initial) = rule(row.knob, spec.kernel, spec.memory)?;
        Some((row.file(CgroupVersion::V2).to_owned(), format!("{initial}\n")))
    })
    .collect()
}

/// Initial files below `/proc`.
pub(super) fn proc_files(spec: &Spec) -> BTreeMap<String, String> {
    files(spec, Place::Proc)
}

/// Initial files below `/sys`.
pub(super) fn sys_files(spec: &Spec) -> BTreeMap<String, String> {
    files(spec, Place::Sys)
}

fn knob_at(area: Area, path: &str) -> Option<Knob> {
    let is_there = |knob: &Knob| crate::node_knobs::file_of(knob_table::row(*knob)) == Some((area, path));
    Knob::OF_NODE.into_iter().find(is_there)
}

impl Simulation {
    /// Sets a node-wide setting like another program; `None` removes it from the node.
    pub fn set_node_knob(&mut self, knob: Knob, value: Option<i64>) {
        let Some((area, path)) = crate::node_knobs::file_of(knob_table::row(knob)) else { return };
        let files = if area == Area::Proc { &mut self.proc } else { &mut self.sys };
        match value {
            Some(value) => drop(files.insert(path.to_owned(), format!("{value}\n"))),
            None => drop(files.remove(path)),
        }
    }

    fn node_switch(&self, knob: Knob) -> Option<i64> {
        let (area, path) = crate::node_knobs::file_of(knob_table::row(knob))?;
        parse::signed(self.plain(area).get(path)?.trim().as_bytes())
    }

    /// Whether the kernel accepts a group identity now: its switch, if there is one, is on, and core scheduling is not.
    /// The real kernel's error is unknown.
    pub(super) fn check_identity(&self, text: &str) -> Result<(), Errno> {
        let is_off = self.node_switch(Knob::GroupIdentity) == Some(0) || self.node_switch(Knob::SchedCore) == Some(1);
        if is_off && parse::signed(text.trim().as_bytes()) != Some(0) { Err(Errno::PERM) } else { Ok(()) }
    }

    pub(super) fn write_node_knob(&mut self, area: Area, path: &str, text: &str) -> io::Result<()> {
        let knob = knob_at(area, path).ok_or(Errno::ACCESS)?;
        if !self.plain(area).contains_key(path) {
            return Err(Errno::NOENT.into());
        }
        if self.read_only {
            return Err(Errno::ROFS.into());
        }
        if self.crash.as_ref().is_some_and(|crash| !crash.step()) {
            return Ok(());
        }
        self.rules.check_refusing(path)?;
        let number = parse::signed(text.trim().as_bytes()).ok_or(Errno::INVAL)?;
        // A replayed node may have a setting of another kernel.
        let rule = rule(knob, Kernel::Alibaba, self.memory);
        if rule.is_some_and(|(range, _)| !range.contains(&number)) {
            return Err(Errno::INVAL.into());
        }
        let excludes = match knob {
            Knob::GroupIdentity => Some(Knob::SchedCore),
            Knob::SchedCore => Some(Knob::GroupIdentity),
            _ => None,
        };
        // The real kernel's error is unknown; it refuses such a write (tools/testing/selftests of the Anolis kernel).
        if number == 1 && excludes.is_some_and(|other| self.node_switch(other) == Some(1)) {
            return Err(Errno::BUSY.into());
        }
        self.set_node_knob(knob, Some(number));
        if self.recording {
            let (path, file) = (NODE_PATH.to_owned(), path.to_owned());
            self.writes.push(Write { path, file, text: text.to_owned() });
        }
        Ok(())
    }
}
