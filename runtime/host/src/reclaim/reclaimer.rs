//! Schedules the groups, sizes the requests, and interprets the kernel's answers. Time and memory are arguments, so
//! that the thread on a real kernel and the simulation run the same code.

use std::io;

use qosm_model::unit::{Bytes, Micros};
use rustix::io::Errno;

use super::{FreePages, Levels, Nearness, Watermarks};
use crate::error::{self, errno_name};

/// Upper bound of one request: a release, or another group, waits at most until it ends.
pub(crate) const SLICE: Bytes = Bytes(8 << 20);
/// The kernel treats less than a page as nothing.
const MIN: u64 = 4096;
/// Shortest interval between two polls of a group.
const MIN_INTERVAL: Micros = Micros(10_000);
/// Longest interval between two polls of a group whose memory does not grow.
const MAX_INTERVAL: Micros = Micros(250_000);
/// With many groups the shortest interval is at least this per group, so that the total cost stays bounded.
const SHARE: Micros = Micros(100);
/// Pause after the first `EAGAIN`, doubled after each further one.
const FIRST_PAUSE: Micros = Micros(100_000);
/// Longest pause after `EAGAIN`.
const MAX_PAUSE: Micros = Micros(10_000_000);
/// Age at which the node's free memory is read again while it is plentiful.
const NODE_AGE: Micros = Micros(50_000);
/// The same while it is near the watermarks.
const NODE_AGE_NEAR: Micros = Micros(20_000);
/// Poll interval of a growing group with a positive `min_adj`: the node may run short long before the group reaches its
/// limit.
const GROWING: Micros = Micros(20_000);
/// Age at which a limit is read again.
const LIMIT_AGE: Micros = Micros(2_000_000);
/// Age at which the node's available memory is read again.
const MEMORY_AGE: Micros = Micros(250_000);
/// Poll interval of a group that is reclaimed for the node and has no other bound: other groups may make the node short.
const WATCHED: Micros = Micros(100_000);
/// Number of times in a row that a group lets those with a larger `min_adj` go first: they may be under other limits.
const DEFERRALS: u8 = 5;
/// Number of groups above which each is polled less often.
const FEW: u64 = 32;
/// How much earlier a group counts as due for each percent of `min_adj`, while the node runs short.
const HEAD_START: Micros = Micros(1000);

/// Identifies a group in the reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupId(pub(crate) u64);

/// Access to the memory of groups: on a kernel, or in the simulation.
pub(crate) trait MemoryBackend {
    /// Handle on a group's files.
    type Group;
    /// Memory in use.
    fn usage(&mut self, group: &Self::Group) -> io::Result<Bytes>;
    /// The smaller of `memory.high` and `memory.max`; `None` if the group has neither.
    fn limit(&mut self, group: &Self::Group) -> io::Result<Option<Bytes>>;
    /// The limits of the group's ancestors, each with the name of its group.
    fn limits_above(&mut self, group: &Self::Group) -> io::Result<Vec<(String, Bytes)>>;
    /// Memory in use of an ancestor.
    fn usage_above(&mut self, group: &Self::Group, above: &str) -> io::Result<Bytes>;
    /// The node's memory, and how much of it is unavailable: in use and not reclaimable without swapping.
    fn node(&mut self) -> Option<(Bytes, Bytes)>;
    /// Writes `memory.reclaim`.
    fn reclaim(&mut self, group: &Self::Group, amount: Bytes) -> io::Result<()>;
    /// Free memory of each NUMA node.
    fn free_pages(&mut self) -> Option<Vec<FreePages>>;
}

/// State of user-space reclaim for a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReclaimReport {
    /// Sizes at which reclaim currently starts and ends; `None` if the group has no limit of its own, so that its
    /// ancestors' limits and the node's memory apply.
    pub levels: Option<(Bytes, Bytes)>,
    /// Number of reclaim rounds.
    pub rounds: u64,
    /// Total memory reclaimed.
    pub reclaimed: Bytes,
    /// Number of times that the kernel could not reclaim more (`EAGAIN`).
    pub exhausted: u64,
    /// The last other error of the kernel, e.g. `EPERM`.
    pub last_error: Option<&'static str>,
}

struct Group<F> {
    id: GroupId,
    files: F,
    watermarks: Watermarks,
    due: Micros,
    /// Reclaim has started and has not reached `low`.
    in_round: bool,
    pause: Micros,
    interval: Micros,
    seen: Option<(Micros, Bytes)>,
    /// The group's limit, and when it was read.
    limit: Option<(Micros, Option<Bytes>)>,
    /// The limits of the ancestors, and when they were read.
    above: Option<(Micros, Vec<(String, Bytes)>)>,
    /// Number of times in a row that it let other groups go first.
    deferred: u8,
    report: ReclaimReport,
}

/// Result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    /// No group is due.
    Idle,
    /// A group was polled and needs no reclaim.
    Polled(GroupId),
    /// The kernel received a request to reclaim from the group.
    Requested(GroupId),
    /// The group's cgroup is gone; the reclaimer has dropped it.
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

/// The inputs of a group's poll that do not depend on the group.
#[derive(Clone, Copy)]
struct PollContext {
    now: Micros,
    near: Nearness,
    /// The node's memory, and how much of it is unavailable.
    node: Option<(Bytes, Bytes)>,
    /// Shortest interval until the next poll of a group.
    soonest: Micros,
    /// Number of groups.
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
    /// Adds a group, or changes its watermarks.
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

    /// When the next group is due; `None` without groups.
    pub(crate) fn due(&self) -> Option<Micros> {
        self.groups.iter().map(|group| group.due).min()
    }

    /// Polls the group that has been due longest, and requests one slice from it if it is above its watermark. While
    /// the node runs short, groups with a larger `min_adj` count as due earlier; no group starves.
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
                // More memory is available now: another group must not use the old number.
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
    /// Polls the group. Returns whether the kernel received a request.
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
            // Reclaim a whole slice for the node: each call is expensive for the kernel, even if it reclaims little.
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

    /// Polls a group without its own limit, or without a ratio: reclaims from it while an ancestor, or the node, is near its limit.
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
                // An ancestor that has just been removed means that this group is gone, too.
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
            // The next read of the node's memory shows the effect: at most a slice or two too many are reclaimed.
            self.due = self.due.max(now.plus(context.soonest));
        }
        Ok(asked)
    }

    /// Whether this group is reclaimed before a group with this `min_adj`, and may have memory to reclaim: it has no
    /// limit of its own, and the kernel did not just return `EAGAIN`.
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

    /// Requests `amount` bytes from the kernel; the round ends at `low`.
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
                // The normal end: the remaining memory is in use, or protected.
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
