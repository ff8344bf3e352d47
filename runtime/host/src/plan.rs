//! Turns wanted values into steps that the kernel accepts one after the other.
//!
//! First all decreases, from the leaves up, then all increases, from the root down; on one cgroup in the order of the
//! knob table. Weights and `cpu.idle` have no constraint between cgroups: `cpu.idle` always goes first. Neither have
//! group identities; the node's switch is turned on before and off after them. CPUs are added before any are removed
//! ([`cpus`]). So at no moment does a child have more than its parent grants, or a cgroup a quota less than its burst.

use std::collections::{HashMap, HashSet};

use qosm_model::knob::{IDLE_WEIGHT, Knob, Target, Value};
use qosm_model::unit::Micros;

use crate::error::HostError;
use crate::knob_table::{self, Encoding, Group, HierarchyRule, MAX_RUNTIME_MICROS, V1_BURST_MAX};
use crate::mounts::{CgroupVersion, Controller};
use crate::probe::BurstRule;
use crate::targets::CgroupFile;
use crate::{Host, parse, weight};

mod cpus;
mod weights;

/// A wanted value of a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The knob's target.
    pub target: Target,
    /// The knob.
    pub knob: Knob,
    /// The value.
    pub value: Value,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The knob's target.
    pub target: Target,
    /// The knob.
    pub knob: Knob,
    /// The current value.
    pub from: Value,
    /// The value to write.
    pub to: Value,
}

/// A value that was clamped to what the kernel accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clamp {
    /// The knob's target.
    pub target: Target,
    /// The knob.
    pub knob: Knob,
    /// The wanted value.
    pub wanted: Value,
    /// The value that is written instead.
    pub given: Value,
    /// The rule that required it.
    pub why: String,
}

/// The writes that reach the wanted values.
#[derive(Debug, Default)]
pub struct Plan {
    /// Writes, in an order in which the kernel accepts each of them.
    pub steps: Vec<Step>,
    /// Values that were clamped.
    pub clamped: Vec<Clamp>,
    /// Refused values.
    pub refused: Vec<(Target, Knob, HostError)>,
    /// Knobs that already have the wanted value.
    pub unchanged: Vec<(Target, Knob, Value)>,
}

impl Plan {
    /// The steps in one or two parts: all up to the last interim step, and the rest. Each part writes each knob once,
    /// so that the records before a part hold its knobs' values before and after.
    pub fn parts(&self) -> impl Iterator<Item = &[Step]> {
        let end = self.steps.iter().rposition(|step| self.is_interim(step)).map_or(0, |place| place + 1);
        let (first, second) = self.steps.split_at_checked(end).unwrap_or_default();
        Some(first).filter(|first| !first.is_empty()).into_iter().chain([second])
    }

    /// Whether a later step writes the same knob again: on cgroup v1, a set of CPUs that both gains and loses CPUs grows first.
    pub fn is_interim(&self, step: &Step) -> bool {
        let same = |other: &&Step| (other.target, other.knob) == (step.target, step.knob);
        step.knob == Knob::CpusetCpus && self.steps.iter().rfind(same).is_some_and(|last| last != step)
    }
}

impl Host {
    /// Compares wanted values with the kernel's, and returns the ordered writes. Writes nothing.
    ///
    /// Pass all wanted values of one cgroup in one call: a quota and a burst depend on each other. The last of several
    /// values for one knob counts. With `cpu.idle` = 1 also pass [`IDLE_WEIGHT`], which records the weight that is lost
    /// by it; where `cpu.idle` is not supported, the lowest weight is written instead. Memory bounds are rounded down
    /// to a page, but not to 0; a burst is clamped to the quota that will be in force, if the kernel has that rule. A
    /// number that exceeds the file's range in the same unit is clamped to the range ([`knob_table::KnobRow::capped`]).
    pub fn plan(&mut self, wanted: &[Wanted]) -> Plan {
        self.plan_with_baselines(wanted, &Baselines::new())
    }

    /// Like [`Host::plan`], but some of the wanted values are baselines: the knobs' values before the agent wrote them.
    /// The kernel has accepted them before, so their range is not checked, and recent refusals do not prevent another
    /// try.
    pub fn plan_with_baselines(&mut self, wanted: &[Wanted], baselines: &Baselines) -> Plan {
        self.write_backoff.advance();
        let mut plan = Plan::default();
        let mut changes = Changes { baselines: baselines.clone(), ..Changes::default() };
        for wanted in latest(wanted) {
            match self.consider(wanted, baselines, &mut plan.clamped) {
                Ok(change) => changes.put(change),
                Err(refusal) => plan.refused.push((wanted.target, wanted.knob, refusal)),
            }
        }
        self.cut_bursts(&mut changes, &mut plan);
        // Only check now: the kernel may have refused the clamped value before.
        changes.keep_unless_baseline(|change| self.allow(change, Knob::CfsBurst), &mut plan);
        if self.probe.burst_rule == BurstRule::BurstWithinQuota {
            let bursts: HashSet<Target> = changes.of(Knob::CfsBurst).map(|change| change.target).collect();
            changes.keep(|change| self.burst_fits(change, &bursts), &mut plan);
        }
        self.settle_weights(&mut changes, &mut plan);
        self.settle_cpus(&mut changes, &mut plan);
        for change in changes.list.into_iter().flatten() {
            // A write in progress would overwrite the current value.
            if change.from == change.to && !self.is_under_way(change.target, change.knob) {
                plan.unchanged.push((change.target, change.knob, change.to));
            } else if let Some(steps) = self.by_way_of_both(&change) {
                plan.steps.extend(steps);
            } else {
                plan.steps.push(change);
            }
        }
        self.order(&mut plan.steps);
        plan
    }

    fn consider(&mut self, wanted: Wanted, baselines: &Baselines, clamped: &mut Vec<Clamp>) -> Result<Step, HostError> {
        let Wanted { target, knob, value } = wanted;
        let row = knob_table::row(knob);
        let from = self.read(target, knob)?;
        if baselines.contains(&(target, knob)) {
            // A device that is gone has no value to restore.
            let is_gone = from == Value::Unset && knob.device().is_some_and(|device| !self.has_device(device));
            return Ok(Step { target, knob, from, to: if is_gone { from } else { value } });
        }
        let refused = |host: &Self, allowed: String| {
            let path = host.file_path_or_name(target, CgroupFile::Knob(knob));
            Err(HostError::Range { target, knob, value: Box::new(value), path, allowed })
        };
        let mut asked = value;
        if !row.accepts(value) && (knob, value) != (Knob::CpuWeight, IDLE_WEIGHT) {
            let shares = || format!("{} to {} shares", weight::MIN_SHARES, weight::MAX_SHARES);
            let allowed = if matches!(value, Value::Shares(_)) { shares() } else { row.allowed() };
            let Some(nearest) = row.nearest(value) else { return refused(self, allowed) };
            let why = format!("{knob} takes {allowed}");
            asked = nearest;
            clamped.push(Clamp { target, knob, wanted: value, given: nearest, why });
        }
        let mut to = self.rounded(row, weight::of_wanted(self.knob_version(row), asked));
        if row.encoding == Encoding::Bytes && to == Value::Number(0) && asked != to {
            // As a limit, 0 is the strictest; as protection, it is none.
            let page = self.page();
            let why = format!("the kernel counts in pages of {page} bytes, and 0 would mean the opposite");
            to = Value::Number(page);
            clamped.push(Clamp { target, knob, wanted: value, given: to, why });
        }
        if knob == Knob::PageCacheLimitSize
            && let (Value::Number(size), Some(limit)) = (to, self.memory_limit(target)?)
            && size > limit
        {
            let why = format!("this kernel takes no page cache limit above the memory limit of {limit}");
            to = Value::Number(limit);
            clamped.push(Clamp { target, knob, wanted: value, given: to, why });
        }
        if let (Value::Number(number), Some((most, why))) = (to, self.node_knob_most(knob)?)
            && number > most
        {
            // A request above the maximum must not lower the current value.
            to = if from > Value::Number(most) { from.min(to) } else { Value::Number(most) };
            clamped.push(Clamp { target, knob, wanted: value, given: to, why });
        }
        let change = Step { target, knob, from, to };
        if knob != Knob::CfsBurst {
            self.allow(&change, knob)?;
        }
        Ok(change)
    }

    fn memory_limit(&mut self, target: Target) -> Result<Option<i64>, HostError> {
        let length = match self.read_file(target, CgroupFile::MemoryLimit) {
            Ok(length) => length,
            Err(HostError::Unsupported { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let version = self.hierarchies.version(Controller::Memory).unwrap_or(CgroupVersion::V2);
        let encoding = Encoding::Bytes;
        match parse::knob(encoding, version, self.page(), &self.buffer[..length]) {
            Some(Value::Number(limit)) => Ok(Some(limit)),
            Some(_) => Ok(None),
            None => Err(self.garbled(target, CgroupFile::MemoryLimit, length, "a memory limit")),
        }
    }

    /// Refuses a change that is known not to work, if it is of this knob.
    fn allow(&self, change: &Step, knob: Knob) -> Result<(), HostError> {
        if change.knob != knob || change.from == change.to {
            return Ok(());
        }
        self.usable(change.target, change.knob, Some(change.to))
    }

    /// Clamps each burst to what its file accepts, which depends on the quota that will be in force.
    fn cut_bursts(&mut self, changes: &mut Changes, plan: &mut Plan) {
        let bursts: Vec<Step> = changes.of(Knob::CfsBurst).copied().collect();
        for burst in bursts {
            let Step { target, knob, to, .. } = burst;
            let depends = self.probe.burst_rule == BurstRule::BurstWithinQuota || to > Value::Number(V1_BURST_MAX);
            let quota = match changes.get(target, Knob::CfsQuota) {
                Some(change) => Some(change.to),
                None if depends => self.read(target, Knob::CfsQuota).ok(),
                None => None,
            };
            let within_quota = self.burst_within_quota(quota);
            // A baseline or the current value has been accepted by the kernel before.
            let is_given = burst.from == to || changes.baselines.contains(&(target, knob));
            let others = self.burst_ends(quota).into_iter().flatten().filter(|_| !is_given);
            let least = within_quota.into_iter().chain(others).min_by_key(|(most, _)| *most);
            if let Some((most, why)) = least.filter(|(most, _)| to > Value::Number(*most)) {
                let given = Value::Number(most);
                let earlier = plan.clamped.iter().find(|clamp| (clamp.target, clamp.knob) == (target, knob));
                let wanted = earlier.map_or(to, |clamp| clamp.wanted);
                plan.clamped.push(Clamp { target, knob, wanted, given, why });
                changes.put(Step { to: given, ..burst });
            }
        }
    }

    /// The quota as the maximum of a burst, on kernels with this rule.
    fn burst_within_quota(&self, quota: Option<Value>) -> Option<(i64, String)> {
        let Some(Value::Number(quota)) = quota else { return None };
        (self.probe.burst_rule == BurstRule::BurstWithinQuota)
            .then(|| (quota, format!("this kernel takes no burst above the quota, which is {quota} µs")))
    }

    /// Maximum bursts of the file: on v1 the most that Koordinator's agent writes, and everywhere the kernel's limit.
    fn burst_ends(&self, quota: Option<Value>) -> [Option<(i64, String)>; 2] {
        let is_v1 = self.hierarchies.version(Controller::Cpu) == Some(CgroupVersion::V1);
        let on_v1 = is_v1.then(|| (V1_BURST_MAX, format!("a burst on cgroup v1 is at most {V1_BURST_MAX} µs")));
        let beside = match quota {
            Some(Value::Number(quota)) => {
                let most = MAX_RUNTIME_MICROS.saturating_sub(quota).max(0);
                Some((most, format!("quota and burst together are at most {MAX_RUNTIME_MICROS} µs")))
            }
            _ => None,
        };
        [on_v1, beside]
    }

    /// Refuses a quota below a burst without a lease, since the burst stays.
    fn burst_fits(&mut self, change: &Step, bursts: &HashSet<Target>) -> Result<(), HostError> {
        let Step { target, knob, from, to } = *change;
        if knob != Knob::CfsQuota || from == to || bursts.contains(&target) {
            return Ok(());
        }
        let (Value::Number(quota), Ok(Value::Number(burst))) = (to, self.read(target, Knob::CfsBurst)) else {
            return Ok(());
        };
        if burst <= quota {
            return Ok(());
        }
        let micros = |number: i64| Micros(number.unsigned_abs());
        let path = self.attached_path(target).unwrap_or_default().to_owned();
        Err(HostError::BurstAboveQuota { target, path, burst: micros(burst), quota: micros(quota) })
    }

    fn order(&mut self, steps: &mut [Step]) {
        let falling = self.falling_quotas(steps);
        let targets = &self.targets;
        steps.sort_by_cached_key(|step| {
            let row = knob_table::row(step.knob);
            let falls = match falling.get(&step.target) {
                Some(&falls) if row.hierarchy == HierarchyRule::WithinParentOnV1 => falls,
                _ if matches!(row.group, Group::Weight | Group::Io | Group::Identity) => false,
                _ if ends_identities(step) => false,
                _ if row.hierarchy == HierarchyRule::WithinParent => cpus::falls(step),
                _ => step.to < step.from,
            };
            let depth = targets.get(&step.target).map_or(0, |attached| attached.path.split('/').count());
            let level = level_rank(step.target);
            // Decreases use the reverse order of increases.
            let way = |rank: usize| if falls { usize::MAX - rank } else { rank };
            let group = row.group as usize;
            // Add CPUs before removing any: a set that gains and loses CPUs grows first.
            let phase = match falls {
                _ if ends_identities(step) => 3,
                false if row.hierarchy == HierarchyRule::WithinParent => 0_u8,
                true => 1,
                false => 2,
            };
            (phase, way(level), way(depth), step.target, group, way(usize::from(row.raise_order)))
        });
    }

    /// v1: the quotas that count as falling. The effective limit of a cgroup is its own quota or, if that is unlimited,
    /// that of its nearest limited ancestor, each in proportion to its period; the kernel compares just these. So a
    /// container that becomes unlimited while its pod's quota falls must be among those that fall.
    fn falling_quotas(&mut self, steps: &[Step]) -> HashMap<Target, bool> {
        if self.hierarchies.version(Controller::Cpu) != Some(CgroupVersion::V1) {
            return HashMap::new();
        }
        let moving: HashMap<Target, Step> =
            steps.iter().filter(|step| step.knob == Knob::CfsQuota).map(|&step| (step.target, step)).collect();
        let mut known: HashMap<Target, (Share, Share)> = HashMap::new();
        let mut falling = HashMap::with_capacity(moving.len());
        for &target in moving.keys() {
            let (mut before, mut after) = (None, None);
            let mut path = self.attached_path(target).map(str::to_owned);
            let mut at = Some(target);
            loop {
                if let Some(at) = at {
                    let (own_before, own_after) = match known.get(&at) {
                        Some(&shares) => shares,
                        None => {
                            let shares = self.shares(at, moving.get(&at));
                            known.insert(at, shares);
                            shares
                        }
                    };
                    before = before.or(own_before);
                    after = after.or(own_after);
                }
                path = path.as_deref().and_then(|path| path.rsplit_once('/')).map(|(above, _)| above.to_owned());
                match &path {
                    Some(above) if before.is_none() || after.is_none() => at = self.by_path.get(above).copied(),
                    _ => break,
                }
            }
            let size = |share: Share| share.unwrap_or(u128::MAX);
            falling.insert(target, size(after) < size(before));
        }
        falling
    }

    /// A cgroup's own quota in proportion to its period, before and after the step.
    fn shares(&mut self, target: Target, step: Option<&Step>) -> (Share, Share) {
        let Ok(now) = self.bandwidth(target) else { return (None, None) };
        let share = |value: Value| match value {
            Value::Number(quota) => Some((u128::from(quota.unsigned_abs()) << 20) / u128::from(now.period.0.max(1))),
            _ => None,
        };
        let current = now.quota.map(|quota| (u128::from(quota.0) << 20) / u128::from(now.period.0.max(1)));
        match step {
            Some(step) => (share(step.from), share(step.to)),
            None => (current, current),
        }
    }
}

/// The knobs of a plan whose wanted values are baselines.
pub type Baselines = HashSet<(Target, Knob)>;

/// Planned changes, indexed by target and knob.
#[derive(Default)]
struct Changes {
    list: Vec<Option<Step>>,
    baselines: Baselines,
    places: HashMap<(Target, Knob), usize>,
}

impl Changes {
    fn put(&mut self, change: Step) {
        let place = *self.places.entry((change.target, change.knob)).or_insert(self.list.len());
        match self.list.get_mut(place) {
            Some(slot) => *slot = Some(change),
            None => self.list.push(Some(change)),
        }
    }

    fn get(&self, target: Target, knob: Knob) -> Option<&Step> {
        self.places.get(&(target, knob)).and_then(|&place| self.list.get(place)?.as_ref())
    }

    fn drop(&mut self, target: Target, knob: Knob) {
        if let Some(slot) = self.places.remove(&(target, knob)).and_then(|place| self.list.get_mut(place)) {
            *slot = None;
        }
    }

    fn of(&self, knob: Knob) -> impl Iterator<Item = &Step> {
        self.list.iter().flatten().filter(move |change| change.knob == knob)
    }

    /// Like [`Changes::keep`], but keeps all baselines.
    fn keep_unless_baseline(&mut self, allow: impl Fn(&Step) -> Result<(), HostError>, plan: &mut Plan) {
        let baselines = std::mem::take(&mut self.baselines);
        self.keep(
            |change| if baselines.contains(&(change.target, change.knob)) { Ok(()) } else { allow(change) },
            plan,
        );
        self.baselines = baselines;
    }

    /// Drops refused values and records them in the plan.
    fn keep(&mut self, mut allow: impl FnMut(&Step) -> Result<(), HostError>, plan: &mut Plan) {
        for slot in &mut self.list {
            let Some(change) = slot else { continue };
            if let Err(refusal) = allow(change) {
                plan.refused.push((change.target, change.knob, refusal));
                *slot = None;
            }
        }
    }
}

/// Quota / period as the kernel compares them; `None` for unlimited.
type Share = Option<u128>;

/// Whether this step disables group identities, so that it must come after all of them.
fn ends_identities(step: &Step) -> bool {
    match step.knob {
        Knob::GroupIdentity => step.to < step.from,
        Knob::SchedCore => step.to > step.from,
        _ => false,
    }
}

fn level_rank(target: Target) -> usize {
    use qosm_model::knob::Level;
    match target.level() {
        Level::Node => 0,
        Level::Tier => 1,
        Level::Pod => 2,
        Level::Container => 3,
    }
}

/// The last value for each knob, in the order in which the knobs first appear.
fn latest(wanted: &[Wanted]) -> Vec<Wanted> {
    let mut places: HashMap<(Target, Knob), usize> = HashMap::with_capacity(wanted.len());
    let mut latest: Vec<Wanted> = Vec::with_capacity(wanted.len());
    for &wanted in wanted {
        match places.get(&(wanted.target, wanted.knob)) {
            Some(&place) => latest[place] = wanted,
            None => {
                places.insert((wanted.target, wanted.knob), latest.len());
                latest.push(wanted);
            }
        }
    }
    latest
}
