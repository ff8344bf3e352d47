//! Schedules the groups, sizes the requests, and interprets the answers. Time and memory are arguments, so that the
//! thread on a real kernel and the simulation run the same code.

use std::io;

use qosm_model::unit::{Bytes, Micros};
use rustix::io::Errno;

use super::{FreePages, Levels, Nearness, Watermarks};
use crate::error::{self, errno_name};

/// Upper bound of one request: a release, or another group, waits no longer than this takes.
pub(crate) const SLICE: Bytes = Bytes(8 << 20);
/// Less than a page the kernel takes for nothing.
const MIN: u64 = 4096;
/// Shortest interval between two polls of a group.
const MIN_INTERVAL: Micros = Micros(10_000);
/// And one that does not, at least.
const MAX_INTERVAL: Micros = Micros(250_000);
/// With many groups the interval grows by this for each, so that the total cost stays bounded.
const SHARE: Micros = Micros(100);
/// Pause after the first `EAGAIN`, doubled at each further one.
const FIRST_PAUSE: Micros = Micros(100_000);
/// Longest pause.
const MAX_PAUSE: Micros = Micros(10_000_000);
/// Age at which the node's free memory is read again while there is plenty.
const NODE_AGE: Micros = Micros(50_000);
/// And while there is not.
const NODE_AGE_NEAR: Micros = Micros(20_000);
/// Poll interval of a growing group with a positive `min_adj`: the node may run short long before the group reaches its
/// limit.
const GROWING: Micros = Micros(20_000);
/// Age at which a limit is read again.
const LIMIT_AGE: Micros = Micros(2_000_000);
/// Age at which the node's available memory is read again.
const MEMORY_AGE: Micros = Micros(250_000);
/// Poll interval of a group that reclaims for the node and has no other bound: other groups make the node short.
const WATCHED: Micros = Micros(100_000);
/// How often in a row a group lets those with a larger `min_adj` go first: its bound may be another than theirs.
const DEFERRALS: u8 = 5;
/// Number of such groups from which on each is polled less often.
const FEW: u64 = 32;
/// How much sooner a group's turn counts as due for each percent of `min_adj`, while the node runs short.
const HEAD_START: Micros = Micros(1000);

/// Names a group to the reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(pub(crate) u64);

/// Where groups stand: a kernel, or a simulated one.
pub(crate) trait MemoryBackend {
    /// A group's files.
    type Group;
    /// Memory in use.
    fn usage(&mut self, group: &Self::Group) -> io::Result<Bytes>;
    /// The smaller of `memory.high` and `memory.max`; `None` = neither bounds it.
    fn limit(&mut self, group: &Self::Group) -> io::Result<Option<Bytes>>;
    /// The limits of the groups above, each with the name of its group.
    fn limits_above(&mut self, group: &Self::Group) -> io::Result<Vec<(String, Bytes)>>;
    /// Memory in use in one of them.
    fn usage_above(&mut self, group: &Self::Group, above: &str) -> io::Result<Bytes>;
    /// The node's memory, and how much of it is not available: in use and not reclaimable without swapping.
    fn node(&mut self) -> Option<(Bytes, Bytes)>;
    /// Writes `memory.reclaim`.
    fn reclaim(&mut self, group: &Self::Group, amount: Bytes) -> io::Result<()>;
    /// Free memory of each NUMA node.
    fn free_pages(&mut self) -> Option<Vec<FreePages>>;
}

/// How it goes with a group that is kept below its watermark from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// Where reclaim starts and ends at the moment; `None` = the group has no limit of its own, and those above it and
    /// the node's memory count.
    pub levels: Option<(Bytes, Bytes)>,
    /// Times that reclaim began.
    pub rounds: u64,
    /// What the kernel gave.
    pub reclaimed: Bytes,
    /// How often the kernel had nothing more to reclaim (`EAGAIN`).
    pub exhausted: u64,
    /// Another answer that it gave last, e.g. `EPERM`.
    pub last_error: Option<&'static str>,
}

struct Group<F> {
    id: GroupId,
    files: F,
    watermarks: Watermarks,
    due: Micros,
    /// Reclaim has begun and has not reached `low`.
    in_round: bool,
    pause: Micros,
    interval: Micros,
    seen: Option<(Micros, Bytes)>,
    /// Its limit, and when it was read.
    limit: Option<(Micros, Option<Bytes>)>,
    /// The limits above it, and when they were read.
    above: Option<(Micros, Vec<(String, Bytes)>)>,
    /// How often in a row it let other groups go first.
    deferred: u8,
    report: ReclaimReport,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    /// No group is due.
    Idle,
    /// A group was polled and needs no reclaim.
    Polled(GroupId),
    /// The kernel received a request to reclaim from it.
    Requested(GroupId),
    /// Its cgroup is gone; it is forgotten.
    Gone(GroupId),
}

/// All groups that are kept below a watermark.
pub(crate) struct Reclaimer<F> {
    groups: Vec<Group<F>>,
    near: Nearness,
    near_read: Option<Micros>,
    node: Option<(Bytes, Bytes)>,
    node_read: Option<Micros>,
}

/// What a turn needs to know of all but the group.
#[derive(Clone, Copy)]
struct PollContext {
    now: Micros,
    near: Nearness,
    /// The node's memory and how much is not available.
    node: Option<(Bytes, Bytes)>,
    /// Shortest interval until the next poll of a group.
    soonest: Micros,
    /// How many groups there are.
    group_count: u64,
    /// Whether a group with a larger `min_adj` may have memory to reclaim.
    others_reclaim_first: bool,
}

impl<F> Default for Reclaimer<F> {
    fn default() -> Self {
        Self { groups: Vec::new(), near: Nearness::default(), near_read: None, node: None, node_read: None }
    }
}

impl<F> Reclaimer<F> {
    /// Takes a group in, or changes what it is kept by.
    pub(crate) fn set(&mut self, id: GroupId, watermarks: Watermarks, files: F, now: Micros) {
        match self.groups.iter_mut().find(|group| group.id == id) {
            Some(group) => {
                group.watermarks = watermarks;
                group.files = files;
                group.pause = Micros(0);
                group.limit = None;
                group.above = None;
                group.due = now;
            }
            None => self.groups.push(Group {
                id,
                files,
                watermarks,
                due: now,
                in_round: false,
                pause: Micros(0),
                interval: MIN_INTERVAL,
                seen: None,
                limit: None,
                above: None,
                deferred: 0,
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

    /// Polls the group that has been due longest, and requests one slice of it if it is above its watermark. While the
    /// node runs short, groups with a larger `min_adj` count as due earlier; no group starves.
    pub(crate) fn poll<G: MemoryBackend<Group = F>>(&mut self, now: Micros, ground: &mut G) -> PollOutcome {
        self.refresh_nearness(now, ground);
        self.refresh_node_memory(now, ground);
        let node = self.node;
        let (near, group_count) = (self.near, u64::try_from(self.groups.len()).unwrap_or(u64::MAX));
        let place = |group: &Group<F>| {
            let due = i128::from(group.due.0);
            let head_start = i128::from(group.watermarks.min_adj) * i128::from(HEAD_START.0);
            if near.is_far() { due } else { due - head_start }
        };
        let next = self.groups.iter().filter(|group| group.due <= now).min_by_key(|group| place(group));
        let Some((id, rank)) = next.map(|group| (group.id, group.watermarks.min_adj)) else { return PollOutcome::Idle };
        let others_reclaim_first = self.groups.iter().any(|group| group.reclaims_before(rank));
        let soonest = Micros(MIN_INTERVAL.0.max(SHARE.0.saturating_mul(group_count)));
        let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else { return PollOutcome::Idle };
        let asked = group.poll(PollContext { now, near, node, soonest, group_count, others_reclaim_first }, ground);
        if group.deferred > 0 {
            for group in self.groups.iter_mut().filter(|group| group.reclaims_before(rank)) {
                group.due = group.due.min(now);
            }
        }
        match asked {
            Ok(true) => {
                // More memory is available now than was read: another group must not go by the old number.
                self.node_read = None;
                PollOutcome::Requested(id)
            }
            Ok(false) => PollOutcome::Polled(id),
            Err(gone) if error::is_absent(&gone) => {
                self.release(id);
                PollOutcome::Gone(id)
            }
            Err(error) => {
                if let Some(group) = self.groups.iter_mut().find(|group| group.id == id) {
                    group.report.last_error = Some(errno_name(&error));
                    group.in_round = false;
                    group.due = now.plus(MAX_PAUSE);
                }
                PollOutcome::Polled(id)
            }
        }
    }

    fn refresh_nearness<G: MemoryBackend<Group = F>>(&mut self, now: Micros, ground: &mut G) {
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

impl<F> Reclaimer<F> {
    fn refresh_node_memory<G: MemoryBackend<Group = F>>(&mut self, now: Micros, ground: &mut G) {
        let is_unbounded = |group: &Group<F>| group.watermarks.ratio > 0 && matches!(group.limit, Some((_, None)));
        if !self.groups.iter().any(is_unbounded) {
            self.node = None;
            self.node_read = None;
        } else if self.node_read.is_none_or(|read| now.0 >= read.plus(MEMORY_AGE).0) {
            self.node = ground.node();
            self.node_read = Some(now);
        }
    }
}

impl<F> Group<F> {
    /// Returns whether the kernel received a request.
    fn poll<G: MemoryBackend<Group = F>>(&mut self, context: PollContext, ground: &mut G) -> io::Result<bool> {
        let PollContext { now, near, soonest, .. } = context;
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
        let Some(levels) = levels else { return self.poll_unbounded(usage, limit, context, ground) };
        if !self.in_round && usage >= levels.high && usage.0 > 0 {
            self.in_round = true;
            self.report.rounds += 1;
        }
        let mut low = levels.low.0;
        if !near.is_far() && self.watermarks.min_adj > 0 {
            // For the node's sake a whole slice: each call costs the kernel much, however little it reclaims.
            low = low.min(levels.high.0.saturating_sub(SLICE.0.min(levels.high.0 / 8)));
        }
        let amount = usage.0.saturating_sub(low).min(SLICE.0) / MIN * MIN;
        if !self.in_round || amount == 0 {
            self.in_round = false;
            self.rest(now, usage, levels, soonest);
            return Ok(false);
        }
        self.ask(usage, amount, low, context, ground)
    }

    /// The turn of a group without a limit of its own, or without a ratio: memory is taken from it while a group above it, or the node, is
    /// near its end.
    fn poll_unbounded<G: MemoryBackend<Group = F>>(
        &mut self,
        usage: Bytes,
        limit: Option<Bytes>,
        context: PollContext,
        ground: &mut G,
    ) -> io::Result<bool> {
        let PollContext { now, near, node, .. } = context;
        let mut excess = 0;
        let mut is_bounded = false;
        if limit.is_none() && self.watermarks.ratio > 0 {
            if self.above.as_ref().is_none_or(|(read, _)| now.0 >= read.plus(LIMIT_AGE).0) {
                self.above = Some((now, ground.limits_above(&self.files)?));
            }
            let mut rooms: Vec<(Bytes, Bytes)> = node.into_iter().collect();
            for (name, limit) in self.above.iter().flat_map(|(_, limits)| limits) {
                // A group above that has just gone takes this one with it.
                rooms.push((*limit, ground.usage_above(&self.files, name)?));
            }
            is_bounded = !rooms.is_empty();
            for (limit, used) in rooms {
                let Some(Levels { high, low }) = self.watermarks.levels_above(limit) else { continue };
                if used >= high || (self.in_round && used > low) {
                    excess = excess.max(used.0.saturating_sub(low.0));
                }
            }
        }
        if excess > 0 && !self.in_round && context.others_reclaim_first && self.deferred < DEFERRALS {
            self.deferred += 1;
            self.seen = Some((now, usage));
            self.due = now.plus(context.soonest);
            return Ok(false);
        }
        let pays = self.watermarks.reclaims_for_node(near);
        if pays {
            excess = excess.max(SLICE.0);
        }
        let amount = excess.min(usage.0).min(SLICE.0) / MIN * MIN;
        if amount == 0 {
            self.in_round = false;
            self.deferred = 0;
            self.rest_unbounded(usage, is_bounded, context);
            return Ok(false);
        }
        if !self.in_round {
            self.in_round = true;
            self.report.rounds += 1;
        }
        let asked = self.ask(usage, amount, 0, context, ground)?;
        if pays && self.in_round {
            // The next read of the node shows the effect: at most a slice or two too many are reclaimed.
            self.due = self.due.max(now.plus(context.soonest));
        }
        Ok(asked)
    }

    /// Whether this group is reclaimed before one of that `min_adj`, and may have memory to reclaim: it has no limit of
    /// its own, and the kernel has not just answered `EAGAIN`.
    fn reclaims_before(&self, min_adj: i8) -> bool {
        let is_unbounded = matches!(self.limit, None | Some((_, None)));
        let has_memory = self.seen.is_none_or(|(_, usage)| usage.0 >= MIN);
        self.watermarks.min_adj > min_adj && is_unbounded && self.pause.0 == 0 && has_memory
    }

    fn rest_unbounded(&mut self, usage: Bytes, is_bounded: bool, context: PollContext) {
        let PollContext { now, soonest, group_count, .. } = context;
        let latest = if self.watermarks.min_adj > 0 && group_count <= FEW { WATCHED } else { MAX_INTERVAL };
        let latest = latest.0.max(soonest.0);
        let is_watched = is_bounded || self.watermarks.min_adj > 0;
        let grows = self.seen.is_none_or(|(_, before)| usage > before);
        self.interval = Micros(match (is_watched, grows) {
            (false, _) => MAX_INTERVAL.0,
            (true, true) => GROWING.0.max(soonest.0),
            (true, false) => (self.interval.0 * 2).clamp(soonest.0, latest),
        });
        self.seen = Some((now, usage));
        self.due = now.plus(self.interval);
    }

    /// Requests `amount` from the kernel; the round ends at `low`.
    fn ask<G: MemoryBackend<Group = F>>(
        &mut self,
        usage: Bytes,
        amount: u64,
        low: u64,
        context: PollContext,
        ground: &mut G,
    ) -> io::Result<bool> {
        let PollContext { now, soonest, .. } = context;
        let asked = ground.reclaim(&self.files, Bytes(amount));
        let left = ground.usage(&self.files)?;
        match asked {
            Ok(()) => {
                self.pause = Micros(0);
                self.report.last_error = None;
                // The kernel reclaims in batches, and may reclaim more than requested.
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
                self.pause = Micros((self.pause.0 * 2).clamp(FIRST_PAUSE.0, MAX_PAUSE.0));
                self.due = now.plus(self.pause);
            }
            Err(interrupted) if error::is(&interrupted, Errno::INTR) => self.due = now.plus(soonest),
            Err(other) => return Err(other),
        }
        Ok(true)
    }

    /// Schedules the next poll before the group can reach its watermark at its present rate of growth; the interval
    /// doubles while it does not grow.
    fn rest(&mut self, now: Micros, usage: Bytes, levels: Levels, soonest: Micros) {
        let latest = MAX_INTERVAL.0.max(soonest.0);
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
