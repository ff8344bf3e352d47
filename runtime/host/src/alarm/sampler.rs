//! Decides which containers' CPU time is sampled. A cgroup's CPU time is the sum of its members'. So one file of an
//! idle tier answers for all containers below it, and a container needs a sample only when its group has used enough
//! CPU time to have used up the container's quota.
//!
//! A member is *active* when it has recently used a good part of its quota: it is sampled in each round, and its CPU
//! time is subtracted from its group's. All other members are *idle*. The rest, the group's *unattributed* time, may
//! belong to any idle member: once it reaches a member's quota since that member's last sample, the member is sampled
//! again. Containers without a quota are members too: their CPU time would otherwise remain unattributed and cause
//! samples of all other members.
//!
//! The sampler reads no clock and opens no files: the caller passes time, and functions that read CPU time.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use qosm_model::pod::ContainerId;
use rustc_hash::FxHashMap;

use super::throttling::{SampleOutcome, Throttleable, UsageWindow};

/// A group whose CPU time has grown by less than this, in microseconds, since its last sample is idle.
const IDLE_GROUP_USEC: u64 = 50;
/// Number of members from which on a group's own file is read.
const MIN_GROUP_SIZE: usize = 4;
/// Percent of an idle member's quota that may have been used since its last sample before it is sampled again.
const DUE_PERCENT: u64 = 60;
/// A member that uses at least this percentage of its quota within a period is active.
const ACTIVE_PERCENT: u64 = 10;
/// [`DUE_PERCENT`] and [`ACTIVE_PERCENT`] for a member without a quota, in microseconds.
const UNLIMITED_DUE: u64 = 10_000;
const UNLIMITED_ACTIVE: u64 = 5_000;
/// The period of a member without a quota.
const UNLIMITED_PERIOD: Duration = Duration::from_millis(100);
/// A member below [`ACTIVE_PERCENT`] for this long is idle.
const IDLE_AFTER: Duration = Duration::from_millis(400);
/// Percent of the time since the last round; a group that used more CPU time counts as active.
const ACTIVITY_PERCENT: u128 = 5;
/// Due time of a member without a sample: it is sampled at once.
const NEW: i64 = i64::MIN;
/// The longest CFS period of the kernel.
const MAX_PERIOD: Duration = Duration::from_secs(1);
/// Number of containers and groups directly below the root from which on the root's own file is read.
const MIN_ROOT_SIZE: usize = 8;

/// A source of CPU time.
pub(super) trait Usage {
    /// CPU time so far, in microseconds; `None` if the cgroup is gone.
    fn usage(&self) -> Option<u64>;
}

/// The cgroup that a file of CPU time belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageSource<'a> {
    /// A cgroup above containers, by path.
    Group(&'a str),
    Container(ContainerId),
}

/// A container to sample.
pub(super) struct SampledContainer {
    pub(super) container: ContainerId,
    /// `None` if the container has no quota, or no policy wants the alarm.
    pub(super) about: Option<Throttleable>,
    /// Path of its cgroup.
    pub(super) path: String,
}

/// The result of one round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Containers that have just been throttled, and whether this is the first time since they were idle.
    pub(super) throttled: Vec<(ContainerId, bool)>,
    /// Number of files read.
    pub(super) reads: usize,
    /// A container may be throttled at any moment.
    pub(super) is_near_quota: bool,
    /// A container is active, or a group uses CPU time.
    pub(super) has_activity: bool,
    /// A cgroup was removed or cannot be read: the sampler must be arranged again.
    pub(super) has_lost: bool,
}

struct Group<U> {
    path: String,
    /// `None` if no such cgroup exists: only its members can be sampled.
    file: Option<U>,
    parent: Option<usize>,
    members: Range<usize>,
    usage: Option<u64>,
    has_moved: bool,
    /// Total CPU time of no child group and no active member, in microseconds; without a file, the number of rounds.
    unattributed: i64,
    /// Earlier values of `unattributed`.
    history: VecDeque<(Instant, i64)>,
    /// Value of `unattributed` at which the next member is due.
    due: i64,
}

struct Member<U> {
    container: ContainerId,
    about: Option<Throttleable>,
    file: U,
    group: usize,
    last: Option<(Instant, u64)>,
    state: State,
    is_gone: bool,
}

enum State {
    /// Due when the group's unattributed time reaches `due`.
    Idle {
        due: i64,
    },
    Active(ActiveMember),
}

struct ActiveMember {
    window: UsageWindow,
    /// When the member last used a good part of its quota.
    last_active: Instant,
    /// The member has not been throttled since it was idle.
    is_first: bool,
}

/// All sampled containers and their groups.
pub(super) struct Sampler<U> {
    /// Parents before their children.
    groups: Vec<Group<U>>,
    /// Sorted by group.
    members: Vec<Member<U>>,
    /// Position of each container in `members`.
    indices: FxHashMap<ContainerId, usize>,
    /// Indices of active members.
    active: Vec<usize>,
    /// The group whose idle members come first in the next round, after a round that reached its allowance.
    cursor: usize,
    /// Buffer that is reused in each round.
    dues: Vec<i64>,
    last_round: Option<Instant>,
}

impl<U> Default for Sampler<U> {
    fn default() -> Self {
        Self {
            groups: Vec::new(),
            members: Vec::new(),
            indices: FxHashMap::default(),
            active: Vec::new(),
            cursor: 0,
            dues: Vec::new(),
            last_round: None,
        }
    }
}

impl<U: Usage> Sampler<U> {
    /// Whether there are no containers to sample.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Replaces the set of sampled containers. `open` opens the files of new ones; containers without a file are left
    /// out. `takes_root`: the sampler may read the root of the hierarchy for members that share no other group.
    pub(super) fn arrange(
        &mut self,
        mut watched: Vec<SampledContainer>,
        takes_root: bool,
        mut open: impl FnMut(UsageSource<'_>) -> Option<U>,
    ) {
        if watched.iter().all(|watched| watched.about.is_none()) {
            *self = Self::default();
            return;
        }
        watched.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
        let plan = plan(&watched, takes_root);
        let mut old_groups: HashMap<String, Group<U>> =
            std::mem::take(&mut self.groups).into_iter().map(|group| (group.path.clone(), group)).collect();
        let mut old: HashMap<ContainerId, Member<U>> =
            std::mem::take(&mut self.members).into_iter().map(|member| (member.container, member)).collect();
        let mut fresh = Vec::with_capacity(plan.groups.len());
        for (path, parent) in plan.groups {
            let kept = path.as_ref().and_then(|path| old_groups.remove(path)).filter(|group| group.file.is_some());
            fresh.push(kept.is_none());
            let mut group = kept.unwrap_or_else(|| Group {
                file: path.as_deref().and_then(|path| open(UsageSource::Group(path))),
                path: path.unwrap_or_default(),
                parent: None,
                members: 0..0,
                usage: None,
                has_moved: false,
                unattributed: 0,
                history: VecDeque::new(),
                due: 0,
            });
            group.parent = parent;
            group.due = NEW;
            self.groups.push(group);
        }
        for (index, &group) in plan.group_of.iter().enumerate() {
            let Some(watched) = watched.get(index) else { continue };
            let kept = old.remove(&watched.container).filter(|member| !member.is_gone);
            let Some(mut member) = kept.or_else(|| {
                Some(Member {
                    container: watched.container,
                    about: watched.about,
                    file: open(UsageSource::Container(watched.container))?,
                    group,
                    last: None,
                    state: State::Idle { due: NEW },
                    is_gone: false,
                })
            }) else {
                continue;
            };
            // A due time counts in one group's unattributed time and has no meaning in another group.
            let has_changed = member.about.is_some() != watched.about.is_some();
            let has_moved = fresh.get(group) != Some(&false) || member.group != group;
            if has_changed || has_moved && matches!(member.state, State::Idle { .. }) {
                member.state = State::Idle { due: NEW };
            }
            let has_file = self.groups.get(group).is_some_and(|group| group.file.is_some());
            member.change_quota(watched.about, has_file);
            member.group = group;
            self.members.push(member);
        }
        self.members.sort_by_key(|member| member.group);
        for (index, group) in self.groups.iter_mut().enumerate() {
            let from = self.members.partition_point(|member| member.group < index);
            group.members = from..self.members.partition_point(|member| member.group <= index);
        }
        self.indices = self.members.iter().enumerate().map(|(index, member)| (member.container, index)).collect();
        self.refresh_active();
        self.cursor = 0;
    }

    /// Changes quotas of the sampled containers. Returns `false` if the set of containers differs, or a container has
    /// gained or lost its quota: then call [`Sampler::arrange`].
    pub(super) fn set_quotas(&mut self, throttleable: &[Throttleable], unlimited: &[ContainerId]) -> bool {
        let is_known = |id: &ContainerId, has_quota: bool| {
            let member = self.indices.get(id).and_then(|&index| self.members.get(index));
            member.is_some_and(|member| member.about.is_some() == has_quota && !member.is_gone)
        };
        let is_same = throttleable.len() + unlimited.len() == self.members.len()
            && throttleable.iter().all(|about| is_known(&about.container, true))
            && unlimited.iter().all(|id| is_known(id, false));
        if !is_same {
            return false;
        }
        for &about in throttleable {
            let member = self.indices.get(&about.container).and_then(|&index| self.members.get_mut(index));
            let Some(member) = member.filter(|member| member.about != Some(about)) else { continue };
            let Some(group) = self.groups.get_mut(member.group) else { continue };
            member.change_quota(Some(about), group.file.is_some());
            group.due = member.due().map_or(group.due, |due| group.due.min(due));
        }
        true
    }

    fn refresh_active(&mut self) {
        self.active.clear();
        let is_active = |member: &Member<U>| matches!(member.state, State::Active(_)) && !member.is_gone;
        self.active
            .extend(self.members.iter().enumerate().filter(|(_, member)| is_active(member)).map(|(index, _)| index));
    }

    /// Takes one round of samples, at most `allowance` of them from idle members.
    pub(super) fn round(&mut self, now: Instant, allowance: usize) -> Round {
        let mut round = Round::default();
        let since = self.last_round.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.sample_groups(since, &mut round);
        self.sample_active(now, &mut round);
        self.sample_idle(now, allowance, &mut round);
        self.refresh_active();
        if round.has_lost && self.members.iter().all(|member| member.is_gone || member.about.is_none()) {
            *self = Self::default();
        }
        round.has_activity |= !self.active.is_empty();
        for group in self.groups.iter_mut().filter(|group| group.has_moved) {
            group.record_history(now);
        }
        round
    }

    fn sample_groups(&mut self, since: Duration, round: &mut Round) {
        for index in 0..self.groups.len() {
            let (before, rest) = self.groups.split_at_mut(index);
            let Some(group) = rest.first_mut() else { return };
            let mut parent = group.parent.and_then(|parent| before.get_mut(parent));
            group.has_moved = parent.as_ref().is_none_or(|parent| parent.has_moved);
            if !group.has_moved {
                continue;
            }
            let Some(file) = &group.file else {
                // The group's use is unknown: its members are due in each round.
                group.unattributed = group.unattributed.saturating_add(1);
                continue;
            };
            round.reads += 1;
            let Some(usage) = file.usage() else {
                round.has_lost = true;
                (group.file, group.due) = (None, NEW);
                // From now on its members are due by rounds.
                for member in self.members.get_mut(group.members.clone()).unwrap_or_default() {
                    if let State::Idle { due } = &mut member.state {
                        *due = NEW;
                    }
                }
                continue;
            };
            let Some(before) = group.usage else {
                group.usage = Some(usage);
                continue;
            };
            let grown = usage.saturating_sub(before);
            if usage >= before && grown < IDLE_GROUP_USEC {
                group.has_moved = false;
                continue;
            }
            group.usage = Some(usage);
            round.has_activity |= u128::from(grown) * 100 >= since.as_micros().max(1) * ACTIVITY_PERCENT;
            let grown = signed(grown);
            group.unattributed = group.unattributed.saturating_add(grown);
            if let Some(parent) = &mut parent {
                parent.attribute(grown);
            }
        }
    }

    fn sample_active(&mut self, now: Instant, round: &mut Round) {
        for &index in &self.active {
            let Some(member) = self.members.get_mut(index) else { continue };
            let Some(group) = self.groups.get_mut(member.group) else { continue };
            let (Some((_, before)), State::Active(work)) = (member.last, &mut member.state) else { continue };
            let usage = if group.has_moved {
                round.reads += 1;
                let Some(usage) = member.file.usage() else {
                    (member.is_gone, round.has_lost) = (true, true);
                    continue;
                };
                usage
            } else {
                // The group's CPU time did not change, so neither did the member's.
                before
            };
            group.attribute(signed(usage.saturating_sub(before)));
            member.last = Some((now, usage));
            let (window, threshold) = (&mut work.window, active_threshold(member.about.as_ref()));
            match member.about {
                Some(about) => match window.add(now, usage, &about) {
                    SampleOutcome::Throttled => {
                        round.throttled.push((member.container, std::mem::take(&mut work.is_first)));
                    }
                    SampleOutcome::NearQuota => round.is_near_quota = true,
                    SampleOutcome::Unchanged => {}
                },
                None => window.record(now, usage, UNLIMITED_PERIOD),
            }
            if window.used() >= threshold {
                work.last_active = now;
            } else if now.saturating_duration_since(work.last_active) >= IDLE_AFTER {
                let due = group.due_of(member.about.as_ref());
                member.state = State::Idle { due };
                group.due = group.due.min(due);
            }
        }
    }

    fn sample_idle(&mut self, now: Instant, allowance: usize, round: &mut Round) {
        let mut left = allowance;
        let groups = self.groups.len();
        for turn in 0..groups {
            let index = (self.cursor + turn) % groups.max(1);
            let Some(group) = self.groups.get_mut(index) else { continue };
            // A new member needs a first sample before it uses CPU time.
            if group.unattributed < group.due || !(group.has_moved || group.due == NEW) {
                continue;
            }
            let Some(members) = self.members.get_mut(group.members.clone()) else { continue };
            // With too many due members, sample those that could have used the most since they were due.
            self.dues.clear();
            self.dues.extend(members.iter().filter_map(|member| member.due()).filter(|due| *due <= group.unattributed));
            let last = left.saturating_sub(1);
            let most = if left < self.dues.len() { *self.dues.select_nth_unstable(last).1 } else { i64::MAX };
            let mut next = i64::MAX;
            for member in members {
                let Some(due) = member.due() else { continue };
                if due > group.unattributed || due > most || left == 0 {
                    next = next.min(due);
                    continue;
                }
                left -= 1;
                round.reads += 1;
                let Some(usage) = member.file.usage() else {
                    (member.is_gone, round.has_lost) = (true, true);
                    continue;
                };
                member.record_idle_sample(now, usage, group);
                match member.state {
                    State::Idle { due } => next = next.min(due),
                    State::Active(_) => round.is_near_quota |= member.is_near_quota(),
                }
            }
            group.due = next;
            if left == 0 {
                self.cursor = index + 1;
                return;
            }
        }
        self.cursor = 0;
    }
}

impl<U> Group<U> {
    /// The unattributed time at which a member sampled just now is due again.
    fn due_of(&self, about: Option<&Throttleable>) -> i64 {
        let after = if self.file.is_some() { signed(due_after(about)) } else { 1 };
        self.unattributed.saturating_add(after)
    }

    /// Subtracts CPU time of a child group or an active member.
    fn attribute(&mut self, used: i64) {
        if self.file.is_some() {
            self.unattributed = self.unattributed.saturating_sub(used);
        }
    }

    fn record_history(&mut self, now: Instant) {
        // Keep one entry from before the longest period.
        while self.history.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= MAX_PERIOD) {
            self.history.pop_front();
        }
        self.history.push_back((now, self.unattributed));
    }

    /// Unattributed CPU time of the last period, in microseconds.
    fn unattributed_within(&self, period: Duration, now: Instant) -> u64 {
        if self.file.is_none() {
            return u64::MAX;
        }
        let is_before = |(at, _): &&(Instant, i64)| now.saturating_duration_since(*at) >= period;
        let then = self.history.iter().rev().find(is_before).or_else(|| self.history.front());
        let then = then.map_or(self.unattributed, |(_, unattributed)| *unattributed);
        u64::try_from(self.unattributed.saturating_sub(then)).unwrap_or(0)
    }
}

impl<U> Member<U> {
    /// Sets a new quota. With a file, the due time counts from the last sample; without one, it counts rounds and does not change.
    fn change_quota(&mut self, about: Option<Throttleable>, has_file: bool) {
        if let State::Idle { due } = &mut self.state
            && *due != NEW
            && has_file
        {
            let (before, now) = (signed(due_after(self.about.as_ref())), signed(due_after(about.as_ref())));
            *due = due.saturating_sub(before).saturating_add(now);
        }
        self.about = about;
    }

    /// Value of the group's unattributed time at which the member is due; `None` if the member is active or gone.
    fn due(&self) -> Option<i64> {
        match self.state {
            State::Idle { due } if !self.is_gone => Some(due),
            _ => None,
        }
    }

    fn is_near_quota(&self) -> bool {
        match (&self.state, &self.about) {
            (State::Active(work), Some(about)) => work.window.used() >= due_after(Some(about)),
            _ => false,
        }
    }

    fn record_idle_sample(&mut self, now: Instant, usage: u64, group: &Group<U>) {
        let period = self.about.map_or(UNLIMITED_PERIOD, |about| about.period());
        // How much of the use since the last sample falls within the last period is only known approximately.
        let (since, used) = match self.last.replace((now, usage)) {
            None => (now, 0),
            Some((last, before)) => {
                let grown = usage.saturating_sub(before);
                let since = now.checked_sub(period).unwrap_or(now);
                if last >= since { (last, grown) } else { (since, grown.min(group.unattributed_within(period, now))) }
            }
        };
        self.state = if used >= active_threshold(self.about.as_ref()) && used > 0 {
            let window = UsageWindow::begin(now, usage, since, used);
            State::Active(ActiveMember { window, last_active: now, is_first: true })
        } else {
            State::Idle { due: group.due_of(self.about.as_ref()) }
        };
    }
}

fn active_threshold(about: Option<&Throttleable>) -> u64 {
    about.map_or(UNLIMITED_ACTIVE, |about| about.quota.0.saturating_mul(ACTIVE_PERCENT) / 100)
}

fn due_after(about: Option<&Throttleable>) -> u64 {
    about.map_or(UNLIMITED_DUE, |about| about.quota.0.saturating_mul(DUE_PERCENT) / 100)
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// The groups whose own file is worth reading, and the group of each container.
struct Plan {
    /// Path and parent of each group; no path if no cgroup contains all of its members.
    groups: Vec<(Option<String>, Option<usize>)>,
    /// Index of each container's group, in the order of the containers.
    group_of: Vec<usize>,
}

/// Plans the groups of containers that are sorted by path.
fn plan(watched: &[SampledContainer], takes_root: bool) -> Plan {
    let mut plan = Plan { groups: vec![(None, None)], group_of: vec![0; watched.len()] };
    split(watched, 0..watched.len(), 0, 0, &mut plan);
    let groups = plan.groups.iter().filter(|(_, parent)| *parent == Some(0)).count();
    let members = plan.group_of.iter().filter(|group| **group == 0).count();
    if let Some((path, _)) = plan.groups.first_mut()
        && takes_root
        && groups + members >= MIN_ROOT_SIZE
    {
        *path = Some(String::new());
    }
    // A container inside of another is already counted with it.
    let mut outer: Option<&str> = None;
    for (index, watched) in watched.iter().enumerate() {
        let is_inside = |outer: &str| watched.path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
        if !outer.is_some_and(is_inside) {
            outer = Some(&watched.path);
            continue;
        }
        if plan.groups.last() != Some(&(None, None)) || plan.groups.len() == 1 {
            plan.groups.push((None, None));
        }
        if let Some(group) = plan.group_of.get_mut(index) {
            *group = plan.groups.len() - 1;
        }
    }
    plan
}

/// Splits the containers of a group into subgroups that share more of their path.
fn split(watched: &[SampledContainer], range: Range<usize>, depth: usize, group: usize, plan: &mut Plan) {
    let mut from = range.start;
    while from < range.end {
        let Some(name) = watched.get(from).and_then(|first| first.path.split('/').nth(depth)) else {
            from += 1;
            continue;
        };
        let is_beside = |other: &&SampledContainer| other.path.split('/').nth(depth) == Some(name);
        let until = from + watched.get(from..range.end).unwrap_or_default().iter().take_while(is_beside).count();
        if until - from >= MIN_GROUP_SIZE {
            let common = common(watched.get(from..until).unwrap_or_default());
            let path = watched.get(from).map(|first| first.path.split('/').take(common).collect::<Vec<_>>().join("/"));
            plan.groups.push((path, Some(group)));
            let own = plan.groups.len() - 1;
            if let Some(members) = plan.group_of.get_mut(from..until) {
                members.fill(own);
            }
            split(watched, from..until, common, own, plan);
        }
        from = until.max(from + 1);
    }
}

/// Number of leading path components that all paths share.
fn common(watched: &[SampledContainer]) -> usize {
    let Some((first, others)) = watched.split_first() else { return 0 };
    let mut common = first.path.split('/').count();
    for other in others {
        let same = first.path.split('/').zip(other.path.split('/')).take_while(|(a, b)| a == b).count();
        common = common.min(same);
    }
    common
}

#[cfg(test)]
mod tests;
