//! Background reclaim in the simulation, and bounds that fall below current use.

use std::io;

use qosm_model::unit::{Bytes, Micros};
use rustix::io::Errno;

use super::Simulation;
use crate::backend::{Area, Backend as _, Lowering, join};
use crate::parse;
use crate::reclaim::FreePages;
use crate::reclaim::lower::{Lowered, lower};
use crate::reclaim::reclaimer::{MemoryBackend, PollOutcome};
use crate::reclaim::worker::{CURRENT, RECLAIM, limits_above, smaller};

/// A cgroup of a hierarchy, until it is removed.
pub(crate) struct Place {
    tree: usize,
    path: String,
    inode: u64,
}

impl Simulation {
    /// Sets the node's free pages and watermarks in `/proc/zoneinfo`.
    pub fn set_free_pages(&mut self, pages: FreePages) {
        let FreePages { free, min, low, high, managed } = pages;
        let text = format!(
            "Node 0, zone   Normal\n  pages free     {free}\n        min      {min}\n        low      {low}\n        \
             high     {high}\n        managed  {managed}\n"
        );
        self.proc.insert("zoneinfo".to_owned(), text);
    }

    /// Advances the clock of background reclaim, if the host emulates it. The simulation has no clock of its own.
    pub fn reclaim_for(&mut self, time: Micros) {
        let end = Micros(self.now.0.saturating_add(time.0));
        let mut reclaimer = std::mem::take(&mut self.reclaimer);
        while let Some(due) = reclaimer.due().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            if reclaimer.poll(self.now, self) == PollOutcome::Idle {
                break;
            }
        }
        self.reclaimer = reclaimer;
        self.now = end;
    }

    pub(super) fn place(&self, area: Area, path: &str) -> io::Result<Place> {
        let Area::Cgroup(tree) = area else { return Err(Errno::NOENT.into()) };
        Ok(Place { tree, path: path.to_owned(), inode: self.inode(area, path)? })
    }

    pub(super) fn lower(&mut self, area: Area, file: &str, lowering: Lowering) -> io::Result<()> {
        let (to, beyond) = (lowering.to, lowering.beyond);
        lower(&mut Falling { simulation: self, area, file, lowering }, to, beyond)
    }

    fn bytes(&self, area: Area, path: &str) -> io::Result<Option<Bytes>> {
        Ok(parse::number(&self.read_once(area, path)?).map(Bytes))
    }
}

impl MemoryBackend for Simulation {
    type Group = Place;

    fn usage(&mut self, group: &Place) -> io::Result<Bytes> {
        let area = Area::Cgroup(group.tree);
        if self.inode(area, &group.path)? != group.inode {
            return Err(Errno::NODEV.into());
        }
        self.bytes(area, &join(&group.path, CURRENT))?.ok_or(Errno::INVAL.into())
    }

    fn limit(&mut self, group: &Place) -> io::Result<Option<Bytes>> {
        let bound = |name| self.bytes(Area::Cgroup(group.tree), &join(&group.path, name));
        Ok(smaller(bound("memory.high")?, bound("memory.max")?))
    }

    fn limits_above(&mut self, group: &Place) -> io::Result<Vec<(String, Bytes)>> {
        let read = |above: &str, file: &str| self.read_once(Area::Cgroup(group.tree), &join(above, file)).ok();
        Ok(limits_above(&group.path, read))
    }

    fn usage_above(&mut self, group: &Place, above: &str) -> io::Result<Bytes> {
        self.bytes(Area::Cgroup(group.tree), &join(above, CURRENT))?.ok_or(Errno::INVAL.into())
    }

    fn node(&mut self) -> Option<(Bytes, Bytes)> {
        let (total, available) = parse::meminfo(self.proc.get("meminfo")?.as_bytes())?;
        Some((total, Bytes(total.0.saturating_sub(available.0))))
    }

    fn reclaim(&mut self, group: &Place, amount: Bytes) -> io::Result<()> {
        self.write(Area::Cgroup(group.tree), &join(&group.path, RECLAIM), &amount.0.to_string())
    }

    fn free_pages(&mut self) -> Option<Vec<FreePages>> {
        parse::zoneinfo(self.proc.get("zoneinfo")?.as_bytes())
    }
}

/// A bound that is being lowered.
struct Falling<'a> {
    simulation: &'a mut Simulation,
    area: Area,
    file: &'a str,
    lowering: Lowering,
}

impl Lowered for Falling<'_> {
    fn usage(&mut self) -> io::Result<Bytes> {
        let path = join(&self.lowering.path, self.lowering.usage);
        self.simulation.bytes(self.area, &path)?.ok_or(Errno::INVAL.into())
    }

    fn reclaim(&mut self, amount: Bytes) -> io::Result<()> {
        self.simulation.write(self.area, &join(&self.lowering.path, RECLAIM), &amount.0.to_string())
    }

    fn present(&mut self) -> io::Result<Option<Bytes>> {
        self.simulation.bytes(self.area, self.file)
    }

    fn bound(&mut self, bound: Bytes) -> io::Result<()> {
        self.simulation.write(self.area, self.file, &bound.0.to_string())
    }
}
