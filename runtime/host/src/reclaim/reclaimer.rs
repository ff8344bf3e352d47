//! Whose turn it is, how much to ask for, and what an answer means. Time and memory are handed in, so that the thread on a real
//! kernel and the simulation are driven by the same code.

use std::io;

use qosm_model::unit::{Bytes, Micros};
use rustix::io::Errno;

use super::{FreePages, Levels, Nearness, Watermarks};
use crate::error::{self, errno_name};

/// At most so much is asked for at once: a release, or another group, waits no longer than this takes.
pub(crate) const SLICE: Bytes = Bytes(8 << 20);
/// Less than a page the kernel takes for nothing.
const LEAST: u64 = 4096;
/// How often a group that grows is looked at, at most.
const SOONEST: Micros = Micros(10_000);
/// And one that does not, at least.
const LATEST: Micros = Micros(250_000);
/// With many groups each is looked at less often, so that all of them together cost no more.
const SHARE: Micros = Micros(100);
/// Pause after the first `EAGAIN`, doubled at each further one.
const FIRST_PAUSE: Micros = Micros(100_000);
/// Longest pause.
const LONGEST_PAUSE: Micros = Micros(10_000_000);
/// The node's free memory is looked at no more often while there is plenty.
const NODE_AGE: Micros = Micros(50_000);
/// And while there is not.
const NODE_AGE_NEAR: Micros = Micros(20_000);
/// A group that is to come earlier and grows is looked at so often: the node may run short long before the group is at its limit.
const GROWING: Micros = Micros(20_000);
/// A limit is read again after so long.
const LIMIT_AGE: Micros = Micros(2_000_000);
/// How much sooner a group's turn counts as due for each percent of `min_adj`, while the node runs short.
const HEAD_START: Micros = Micros(1000);

/// Names a group to the reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(pub(crate) u64);

/// Where groups stand: a kernel, or a simulated one.
pub(crate) trait Ground {
    /// A group's files.
    type Group;
    /// Memory in use.
    fn usage(&mut self, group: &Self::Group) -> io::Result<Bytes>;
    /// The smaller of `memory.high` and `memory.max`; `None` = neither bounds it.
    fn limit(&mut self, group: &Self::Group) -> io::Result<Option<Bytes>>;
    /// Writes `memory.reclaim`.
    fn reclaim(&mut self, group: &Self::Group, amount: Bytes) -> io::Result<()>;
    /// Free memory of each NUMA node.
    fn free_pages(&mut self) -> Option<Vec<FreePages>>;
}

/// How it goes with a group that is kept below its watermark from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// Where reclaim starts and ends at the moment; `None` = there is no limit that a ratio could relate to.
    pub levels: Option<(Bytes, Bytes)>,
    /// Times that reclaim began.
    pub rounds: u64,
    /// What the kernel gave.
    pub reclaimed: Bytes,
    /// How often it said that there was no more to be had for now (`EAGAIN`).
    pub exhausted: u64,
    /// Another answer that it gave last, e.g. `EPERM`.
    pub trouble: Option<&'static str>,
}

struct Group<F> {
    id: GroupId,
    files: F,
    watermarks: Watermarks,
    due: Micros,
    /// Reclaim has begun and is not at its end.
    in_round: bool,
    pause: Micros,
    interval: Micros,
    seen: Option<(Micros, Bytes)>,
    /// Its limit, and when it was read.
    limit: Option<(Micros, Option<Bytes>)>,
    report: ReclaimReport,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nobody is due.
    Idle,
    /// A group was looked at and left alone.
    Looked(GroupId),
    /// The kernel was asked to reclaim from it.
    Asked(GroupId),
    /// Its cgroup is gone; it is forgotten.
    Gone(GroupId),
}

/// All groups that are kept below a watermark.
pub(crate) struct Reclaimer<F> {
    groups: Vec<Group<F>>,
    near: Nearness,
    near_read: Option<Micros>,
}

impl<F> Default for Reclaimer<F> {
    fn default() -> Self {
        Self { groups: Vec::new(), near: Nearness::default(), near_read: None }
    }
}

impl<F> Reclaimer<F> {
    /// Takes a group in, or changes what it is kept by.
    pub(crate) fn hold(&mut self, id: GroupId, watermarks: Watermarks, files: F, now: Micros) {
        match self.groups.iter_mut().find(|group| group.id == id) {
            Some(group) => {
                group.watermarks = watermarks;
                group.files = files;
                group.pause = Micros(0);
                group.limit = None;
                group.due = now;
            }
            None => self.groups.push(Group {
                id,
                files,
                watermarks,
                due: now,
                in_round: false,
                pause: Micros(0),
                interval: SOONEST,
                seen: None,
                limit: None,
                report: ReclaimReport::default(),
            }),
        }
    }

    pub(crate) fn release(&mut self, id: GroupId) {
        self.groups.retain(|group| group.id != id);
    }

    pub(crate) fn report(&self, id: GroupId) -> Option<ReclaimReport> {
        self.groups.iter().find(|group| group.id == id).map(|group| group.report)
    }

    /// When the next group is due; `None` = there is none.
    pub(crate) fn due(&self) -> Option<Micros> {
        self.groups.iter().map(|group| group.due).min()
    }

    /// Looks at the one group that has been due longest, and asks for one slice of it if it is above its watermark. While the node
    /// runs short, groups that are to come earlier count as due earlier, but nobody waits for ever.
    pub(crate) fn turn<G: Ground<Group = F>>(&mut self, now: Micros, ground: &mut G) -> Turn {
        self.look_at_node(now, ground);
        let (near, crowd) = (self.near, u64::try_from(self.groups.len()).unwrap_or(u64::MAX));
        let place = |group: &Group<F>| {
            let due = i128::from(group.due.0);
            let head_start = i128::from(group.watermarks.min_adj) * i128::from(HEAD_START.0);
            if near.is_far() { due } else { due - head_start }
        };
        let next = self.groups.iter_mut().filter(|group| group.due <= now).min_by_key(|group| place(group));
        let Some(group) = next else { return Turn::Idle };
        let id = group.id;
        let soonest = Micros(SOONEST.0.max(SHARE.0.saturating_mul(crowd)));
        match group.turn(now, near, soonest, ground) {
            Ok(true) => Turn::Asked(id),
            Ok(false) => Turn::Looked(id),
            Err(gone) if error::is_absent(&gone) => {
                self.release(id);
                Turn::Gone(id)
            }
            Err(trouble) => {
                group.report.trouble = Some(errno_name(&trouble));
                group.in_round = false;
                group.due = now.plus(LONGEST_PAUSE);
                Turn::Looked(id)
            }
        }
    }

    fn look_at_node<G: Ground<Group = F>>(&mut self, now: Micros, ground: &mut G) {
        if self.groups.iter().all(|group| group.watermarks.min_adj == 0) {
            self.near = Nearness::default();
            return;
        }
        let age = if self.near.is_far() { NODE_AGE } else { NODE_AGE_NEAR };
        if self.near_read.is_none_or(|read| now.0 >= read.plus(age).0) {
            self.near = ground.free_pages().map(|nodes| Nearness::of_nodes(&nodes)).unwrap_or_default();
            self.near_read = Some(now);
        }
    }
}

impl<F> Group<F> {
    /// Whether the kernel was asked for memory.
    fn turn<G: Ground<Group = F>>(
        &mut self,
        now: Micros,
        near: Nearness,
        soonest: Micros,
        ground: &mut G,
    ) -> io::Result<bool> {
        let usage = ground.usage(&self.files)?;
        let limit = match self.limit {
            Some((read, limit)) if now.0 < read.plus(LIMIT_AGE).0 => limit,
            _ => ground.limit(&self.files)?,
        };
        if self.limit.is_none_or(|(read, _)| now.0 >= read.plus(LIMIT_AGE).0) {
            self.limit = Some((now, limit));
        }
        let levels = self.watermarks.levels(limit, near);
        self.report.levels = levels.map(|levels| (levels.high, levels.low));
        let Some(levels) = levels else {
            self.in_round = false;
            self.due = now.plus(LATEST);
            return Ok(false);
        };
        if !self.in_round && usage >= levels.high && usage.0 > 0 {
            self.in_round = true;
            self.report.rounds += 1;
        }
        let mut low = levels.low.0;
        if !near.is_far() && self.watermarks.min_adj > 0 {
            // For the node's sake a whole slice: the kernel has much to do for each call, however little it is asked for.
            low = low.min(levels.high.0.saturating_sub(SLICE.0.min(levels.high.0 / 8)));
        }
        let amount = usage.0.saturating_sub(low).min(SLICE.0) / LEAST * LEAST;
        if !self.in_round || amount == 0 {
            self.in_round = false;
            self.rest(now, usage, levels, soonest);
            return Ok(false);
        }
        let asked = ground.reclaim(&self.files, Bytes(amount));
        let left = ground.usage(&self.files)?;
        match asked {
            Ok(()) => {
                self.pause = Micros(0);
                self.report.trouble = None;
                // The kernel reclaims in batches, and may give more than it was asked for.
                let given = amount.max(usage.0.saturating_sub(left.0));
                self.report.reclaimed.0 = self.report.reclaimed.0.saturating_add(given);
                self.in_round = left.0 > low;
                self.seen = None;
                self.interval = soonest;
                self.due = if self.in_round { now } else { now.plus(soonest) };
            }
            Err(end) if error::is(&end, Errno::AGAIN) => {
                // The normal end: what is left is in use, or protected.
                self.report.exhausted += 1;
                let given = usage.0.saturating_sub(left.0);
                self.report.reclaimed.0 = self.report.reclaimed.0.saturating_add(given);
                self.in_round = false;
                self.pause = Micros((self.pause.0 * 2).clamp(FIRST_PAUSE.0, LONGEST_PAUSE.0));
                self.due = now.plus(self.pause);
            }
            Err(interrupted) if error::is(&interrupted, Errno::INTR) => self.due = now.plus(soonest),
            Err(other) => return Err(other),
        }
        Ok(true)
    }

    /// Looks again before the group can have grown to its watermark, if it goes on growing as it did; less and less often while it
    /// does not grow.
    fn rest(&mut self, now: Micros, usage: Bytes, levels: Levels, soonest: Micros) {
        let latest = LATEST.0.max(soonest.0);
        let grown = self.seen.map(|(then, before)| (now.0.saturating_sub(then.0), usage.0.saturating_sub(before.0)));
        self.interval = match grown {
            Some((_, 0)) => Micros((self.interval.0 * 2).clamp(soonest.0, latest)),
            Some((took, grown)) => {
                let room = u128::from(levels.high.0.saturating_sub(usage.0));
                let time = room * u128::from(took) / u128::from(grown) / 2;
                let latest = if self.watermarks.min_adj > 0 { GROWING.0.max(soonest.0) } else { latest };
                Micros(u64::try_from(time).unwrap_or(u64::MAX).clamp(soonest.0, latest))
            }
            None => soonest,
        };
        self.seen = Some((now, usage));
        self.due = now.plus(self.interval);
    }
}

trait Later {
    fn plus(self, later: Micros) -> Micros;
}

impl Later for Micros {
    fn plus(self, later: Micros) -> Micros {
        Micros(self.0.saturating_add(later.0))
    }
}

#[cfg(test)]
mod tests;
