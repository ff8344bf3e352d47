//! One evaluation: inputs in, settings out. No clock, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use qosm_sdk::{PodId, Target, Tier};

use crate::CpuSet;
use crate::allowed::{Allowed, Uses};
use crate::config::{Config, Profile};
use crate::input::{Controls, InForce, Inputs, Node, Quota};
use crate::pressure::{Bound, may_rise};
use crate::quota::{Step, koordinator_step, responsive_step};
use crate::set::{MIN_CPUS, Pools, choose, stepped_cpus, wanted_cpus};
use crate::state::State;
use crate::verdict::{Condition, How, Missing, Report, Verdict};

/// The smallest CPU weight of cgroup v2; 2 shares on v1.
pub const MIN_WEIGHT: u64 = 1;

const TIER: Target = Target::Tier(Tier::BestEffort);

/// A value to hold on one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The CPUs that the cgroup may run on; never empty.
    Cpus(CpuSet),
    /// The CFS quota in microseconds per period; `None` = unlimited.
    Quota(Option<u64>),
    /// The cgroup runs only on otherwise idle CPUs (`cpu.idle`).
    Idle,
    /// The CPU weight, on the scale of cgroup v2.
    Weight(u64),
}

/// The result of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// All values to hold from now on, from the tier to the containers. Values that are held but not listed are released, so the kubelet's
    /// value returns. `None` = nothing changes.
    pub wanted: Option<Vec<(Target, Setting)>>,
    /// The reason.
    pub verdict: Verdict,
    /// Conditions that began or ended; each is reported once.
    pub reports: Vec<Report>,
}

/// Evaluates the inputs. `config` must have been checked; `now_usec` is a clock that does not go back while the agent runs.
pub fn tick(state: &mut State, config: &Config, inputs: &Inputs, now_usec: u64) -> Decisions {
    state.heed_clock(now_usec);
    if !config.is_enabled() {
        *state = State::default();
        return Decisions { wanted: Some(Vec::new()), verdict: Verdict::Off, reports: Vec::new() };
    }
    let mut lasting = BTreeSet::new();
    let (wanted, verdict) = match evaluate(state, config, inputs, now_usec, &mut lasting) {
        Ok((wanted, verdict)) => (Some(wanted), verdict),
        Err(missing) => {
            // Without these inputs it is unknown whether the other conditions have ended.
            lasting = state.lasting.iter().copied().filter(|known| !matches!(known, Condition::Missing(_))).collect();
            lasting.insert(Condition::Missing(missing));
            (None, Verdict::Unchanged(missing))
        }
    };
    let report = |has_begun| move |condition: &Condition| Report { condition: *condition, has_begun };
    let ended = state.lasting.difference(&lasting).map(report(false));
    let reports = ended.chain(lasting.difference(&state.lasting).map(report(true))).collect();
    state.lasting = lasting;
    Decisions { wanted, verdict, reports }
}

type Wanted = Vec<(Target, Setting)>;

fn evaluate(
    state: &mut State,
    config: &Config,
    inputs: &Inputs,
    now_usec: u64,
    lasting: &mut BTreeSet<Condition>,
) -> Result<(Wanted, Verdict), Missing> {
    let node = inputs.node.as_ref().filter(|node| node.capacity.0 > 0).ok_or(Missing::Node)?;
    if inputs.pods.is_empty() {
        return Err(Missing::Pods);
    }
    let profile = config.policy.profile;
    let pools = Pools::of(inputs, node, profile);
    if config.policy.be_cpu_manager {
        return by_numa_node(state, inputs, &pools, lasting);
    }
    let samples = inputs.pods_used.as_ref().ok_or(Missing::PodsUsed)?;
    let samples: BTreeMap<PodId, u64> =
        samples.iter().filter_map(|(id, sample)| Some((*id, sample.fresh(now_usec)?))).collect();
    let node_used = inputs.node_used.and_then(|sample| sample.fresh(now_usec)).ok_or(Missing::NodeUsed)?;
    let unlisted = inputs.unlisted_used.and_then(|sample| sample.fresh(now_usec)).unwrap_or(0);
    let uses = Uses::new(&inputs.pods, &samples, unlisted, &inputs.host_apps);
    let allowed = Allowed::new(&config.strategy, node, node_used, &uses);
    let bound = match profile {
        Profile::Responsive => Bound::now(state, &config.policy, inputs, uses.be_pods(), node.capacity.0, now_usec),
        Profile::Koordinator => Bound::Free,
    };
    let mut round = Round { state, config, inputs, node, pools: &pools, allowed: &allowed, bound, now_usec, lasting };
    let (wanted, how) = match way(config.strategy.wants_quota(), inputs.controls, round.lasting) {
        Way::Cpuset => round.by_cpuset()?,
        Way::Quota => round.by_quota()?,
        Way::Idle => (vec![(TIER, Setting::Idle)], How::Idle),
        Way::Weight => (vec![(TIER, Setting::Weight(MIN_WEIGHT))], How::Weight),
        Way::Nothing => (Vec::new(), How::Nothing),
    };
    Ok((wanted, Verdict::Suppressed { allowed, pressure: bound, how }))
}

/// The means of suppression that this node supports.
enum Way {
    Cpuset,
    Quota,
    Idle,
    Weight,
    Nothing,
}

fn way(wants_quota: bool, controls: Controls, lasting: &mut BTreeSet<Condition>) -> Way {
    match (wants_quota, controls.cpuset, controls.quota) {
        (true, _, true) => return Way::Quota,
        (false, true, _) => return Way::Cpuset,
        (false, false, true) => {
            lasting.insert(Condition::NoCpuset);
            return Way::Quota;
        }
        (true, true, false) => {
            lasting.insert(Condition::NoQuota);
            return Way::Cpuset;
        }
        (_, false, false) => {}
    }
    lasting.insert(Condition::NoControl);
    match (controls.idle, controls.weight) {
        (true, _) => Way::Idle,
        (false, true) => Way::Weight,
        (false, false) => Way::Nothing,
    }
}

/// Without suppression: the tier may use the whole set. Containers for which the scheduler chose CPUs or NUMA nodes have less.
fn by_numa_node(
    state: &mut State,
    inputs: &Inputs,
    pools: &Pools,
    lasting: &mut BTreeSet<Condition>,
) -> Result<(Wanted, Verdict), Missing> {
    if inputs.cpus.is_empty() {
        return Err(Missing::Cpus);
    }
    let whole = pools.whole();
    if whole.is_empty() {
        // The tier keeps its last set.
        lasting.insert(Condition::NoCpus);
    } else {
        state.chosen = Some(whole.clone());
    }
    // Containers for which the scheduler chose CPUs or NUMA nodes have them within this set.
    let held = state.chosen.clone().filter(|_| inputs.controls.cpuset);
    Ok((held.map(|cpus| (TIER, Setting::Cpus(cpus))).into_iter().collect(), Verdict::ByNumaNode(whole)))
}

/// State of an evaluation in progress.
struct Round<'a> {
    state: &'a mut State,
    config: &'a Config,
    inputs: &'a Inputs,
    node: &'a Node,
    pools: &'a Pools,
    allowed: &'a Allowed,
    bound: Bound,
    now_usec: u64,
    lasting: &'a mut BTreeSet<Condition>,
}

impl Round<'_> {
    fn is_responsive(&self) -> bool {
        self.config.policy.profile == Profile::Responsive
    }

    /// What pressure leaves of the allowed CPU, in thousandths of a CPU; never below the operator's floor.
    fn bounded(&self, current_milli: i64, least_milli: i64) -> i64 {
        let bounded = self.bound.apply(&self.config.policy, self.allowed.milli, current_milli, least_milli);
        bounded.max(self.allowed.floor.unwrap_or(bounded)).min(self.allowed.milli)
    }

    fn note_change(&mut self, old: u64, new: u64) {
        if new > old {
            self.state.risen_at_usec = Some(self.now_usec);
        } else if new < old && matches!(self.bound, Bound::Cut(_) | Bound::Risen) {
            self.state.cut_at_usec = Some(self.now_usec);
        }
    }

    fn by_cpuset(&mut self) -> Result<(Wanted, How), Missing> {
        if self.inputs.cpus.is_empty() {
            return Err(Missing::Cpus);
        }
        let tier = self.inputs.in_force.tier_cpus.as_ref().ok_or(Missing::TierCpus)?;
        if self.pools.is_empty() {
            return Ok(self.without_cpus());
        }
        let old = self.old_cpus(tier);
        let allowed_cpus = wanted_cpus(self.allowed.milli);
        let mut wanted = wanted_cpus(self.bounded(signed(old).saturating_mul(1000), 1000));
        if self.is_responsive() && !may_rise(self.state, self.now_usec) {
            wanted = wanted.min(old.max(MIN_CPUS));
        }
        let stepped = stepped_cpus(wanted, old, number(self.inputs.cpus.len()));
        let choice = choose(self.pools, stepped, self.config.policy.profile);
        if number(choice.picked.len()) < MIN_CPUS {
            self.lasting.insert(Condition::FewCpus);
        }
        if choice.picked.is_empty() {
            // In this case koordinator leaves the old set in place, even if it is larger.
            return Ok(self.keep_cpus());
        }
        let cpus = choice.cpus();
        self.note_change(old, number(cpus.len()));
        let how = How::Cpus { cpus: cpus.clone(), from_lsr: choice.from_lsr, wanted: allowed_cpus, old };
        self.state.chosen = Some(cpus.clone());
        Ok((self.hold_cpus(&cpus), how))
    }

    /// Number of CPUs that batch pods have now. Under the kubelet's static CPU manager the tier has all CPUs, so the containers are
    /// counted; koordinator counts the tier even then. So are they where the tier keeps its CPUs because of a protected pod, and the host
    /// sets the chosen ones on the other pods.
    fn old_cpus(&self, tier: &CpuSet) -> u64 {
        let InForce { container_cpus, .. } = &self.inputs.in_force;
        let ids = self.inputs.pods.iter().filter(|pod| pod.is_in_tier()).flat_map(|pod| &pod.containers);
        let mut sets = ids.filter_map(|id| container_cpus.get(id));
        let chosen = self.state.chosen.as_ref();
        if self.inputs.kubelet.is_static {
            // A new container has the kubelet's set, which is the whole one.
            let known = chosen.map(CpuSet::len).or_else(|| sets.map(CpuSet::len).min());
            return number(known.filter(|_| self.is_responsive()).unwrap_or(tier.len()));
        }
        let is_of_pods = |chosen: &&CpuSet| chosen.len() < tier.len() && sets.any(|set| set.is_subset(chosen));
        number(chosen.filter(is_of_pods).unwrap_or(tier).len())
    }

    /// Sets the chosen CPUs on the tier; pods and containers within it follow. Under the kubelet's static CPU manager, which writes the
    /// cpusets of pods itself, the tier gets the whole set and containers the chosen one.
    fn hold_cpus(&self, cpus: &CpuSet) -> Wanted {
        let whole = self.pools.whole();
        if !self.inputs.kubelet.is_static || !cpus.is_subset(&whole) {
            return vec![(TIER, Setting::Cpus(cpus.clone()))];
        }
        let containers = self.inputs.pods.iter().filter(|pod| pod.is_in_tier()).flat_map(|pod| &pod.containers);
        let chosen = containers.map(|id| (Target::Container(*id), Setting::Cpus(cpus.clone())));
        [(TIER, Setting::Cpus(whole))].into_iter().chain(chosen).collect()
    }

    /// Batch pods keep the set that was chosen last, if any.
    fn keep_cpus(&self) -> (Wanted, How) {
        let kept = self.state.chosen.clone();
        let wanted = kept.as_ref().map(|cpus| self.hold_cpus(cpus)).unwrap_or_default();
        (wanted, How::NoCpus { kept, quota_usec: None })
    }

    /// Both pools are empty: batch pods keep their last set, and a quota bounds them.
    fn without_cpus(&mut self) -> (Wanted, How) {
        self.lasting.insert(Condition::NoCpus);
        let (mut wanted, mut how) = self.keep_cpus();
        let quota = self.inputs.in_force.tier_quota.filter(|quota| quota.period_usec > 0);
        if let (true, true, Some(quota)) = (self.is_responsive(), self.inputs.controls.quota, quota) {
            let next = self.next_quota(quota);
            wanted.extend(next.map(of_tier));
            if let How::NoCpus { quota_usec, .. } = &mut how {
                *quota_usec = next;
            }
        }
        (wanted, how)
    }

    fn by_quota(&mut self) -> Result<(Wanted, How), Missing> {
        let quota = self.inputs.in_force.tier_quota.filter(|quota| quota.period_usec > 0).ok_or(Missing::TierQuota)?;
        let quota_usec = self.next_quota(quota);
        // CPUs that are exclusive to other pods stay out of reach; without any, the cpuset needs no value.
        let whole = self.pools.whole();
        if !self.inputs.controls.cpuset {
            self.state.chosen = None;
        } else if !whole.is_empty() {
            self.state.chosen = Some(whole).filter(|whole| whole.len() < self.all_cpus());
        } else if !self.inputs.cpus.is_empty() {
            // Batch pods keep their last set.
            self.lasting.insert(Condition::NoCpus);
        }
        let mut wanted: Wanted = self.state.chosen.iter().map(|cpus| (TIER, Setting::Cpus(cpus.clone()))).collect();
        wanted.extend(quota_usec.map(of_tier));
        Ok((wanted, How::Quota { quota_usec, old_usec: quota.quota_usec, period_usec: quota.period_usec }))
    }

    /// Number of CPUs of the machine.
    fn all_cpus(&self) -> usize {
        self.inputs.cpus.iter().map(|cpu| cpu.id).collect::<CpuSet>().len()
    }

    /// The new quota in microseconds; `None` = unlimited.
    fn next_quota(&mut self, quota: Quota) -> Option<u64> {
        let step = if self.is_responsive() {
            let node_milli = signed(self.node.capacity.0);
            // Without a quota, batch pods have the whole node.
            let current =
                quota.quota_usec.map_or(node_milli, |usec| signed(qosm_sdk::scale(usec, 1000, quota.period_usec)));
            let allowed = self.bounded(current, node_milli / 100 + 1);
            responsive_step(allowed, quota, node_milli, may_rise(self.state, self.now_usec))
        } else {
            koordinator_step(self.allowed.milli, quota.quota_usec, self.allowed.capacity)
        };
        match (step, quota.quota_usec) {
            (Step::Stay, current) => current,
            (Step::Set(usec), current) => {
                self.note_change(current.unwrap_or(u64::MAX), usec);
                Some(usec)
            }
        }
    }
}

/// A quota for the tier. The host lifts larger quotas below the tier meanwhile, since cgroup v1 refuses a quota above the parent's.
fn of_tier(quota_usec: u64) -> (Target, Setting) {
    (TIER, Setting::Quota(Some(quota_usec)))
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
