//! What a lease on a group means for the groups below it.
//!
//! cgroup v1 keeps the CPUs and the CFS quota of a group within those of the group above, and refuses a write that would break this. So when a
//! tier or pod gets fewer CPUs, the groups below it do too, including sandboxes and groups of unknown pods. A group with a larger quota
//! than its tier is unlimited meanwhile: the tier's quota bounds it as much. These knobs are held like any other: recorded, reported, and
//! restored with the lease. A group that had all CPUs of the group above, as runtimes leave it, gets all of them again; so does a group
//! that appeared while CPUs were fewer. On v2 the kernel does all of this.
//!
//! On both, the CPUs of a tier with protected pods are set on each other pod below it instead, and the tier keeps its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use qosm_host::knob_table::{TABLE, row};
use qosm_host::{Bandwidth, CgroupVersion, Host, Wanted};
use qosm_model::cpus::CpuSet;
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{ContainerId, Tier};

use crate::inputs::Inputs;
use crate::ledger::held::HeldKnob;
use crate::ledger::rails::keeps_tier;
use crate::ledger::resolved::Resolved;
use crate::ledger::{Key, Ledger};
use crate::path::is_within;
use crate::table::{Access, PodTable};

/// The one tier whose quota is set.
const TIER: Target = Target::Tier(Tier::BestEffort);

/// The value of a knob that follows from leases on the groups above.
pub(super) struct Left {
    value: Value,
    why: String,
    policy: Arc<str>,
}

impl Left {
    /// Replaces the value that a policy wants for the group itself.
    pub(super) fn over(self, asked: Value, resolved: Resolved) -> Resolved {
        if self.value == resolved.wanted.value {
            return resolved;
        }
        let wanted = Wanted { value: self.value, ..resolved.wanted };
        Resolved { wanted, guarded: Some((asked, self.why)), ..resolved }
    }

    /// Resolves a knob for which no policy wants a value on the group itself.
    pub(super) fn alone(self, (target, knob): Key) -> Resolved {
        Resolved {
            wanted: Wanted { target, knob, value: self.value },
            policy: self.policy,
            reason: self.why.into(),
            restores: false,
            guarded: None,
            is_refused: false,
        }
    }
}

impl Ledger {
    /// Adds the groups below those in `dirty` that must follow them.
    pub(super) fn add_groups_below(&mut self, host: &mut Host, pods: &PodTable, dirty: &mut BTreeSet<Key>) {
        let tiers = dirty.iter().filter(|key| is_tiers_cpus(**key));
        let followed: Vec<Key> = tiers.flat_map(|key| self.held_below(host, *key)).collect();
        let leaders = dirty.iter().filter(|key| is_tiers_cpus(**key) || is_followed(host, **key)).copied();
        let leaders: Vec<Key> = leaders.filter(|key| self.leads(*key)).collect();
        dirty.extend(followed);
        for (leader, knob) in leaders {
            let mut open = vec![leader];
            if keeps_tier(host, pods, (leader, knob)).is_some() {
                self.widen_others(host, pods, (leader, knob), dirty);
                open = open_pods_below(host, pods, leader);
                for &pod in &open {
                    if let Some(found) = host.peek(pod, knob) {
                        self.note_follower(host, (pod, knob), found);
                    }
                    dirty.insert((pod, knob));
                }
            }
            if !is_followed(host, (leader, knob)) {
                continue;
            }
            while let Some(above) = open.pop() {
                for child in host.groups_below(above, knob) {
                    let known = child.target.or_else(|| self.open_follower(host, knob, &child.path));
                    let Some(target) = known else { continue };
                    if row(knob).is_cpu_list() {
                        self.note_follower(host, (target, knob), child.value);
                    }
                    dirty.insert((target, knob));
                    open.push(target);
                }
            }
        }
    }

    /// On v1, groups that came while a tier was narrow have its CPUs as their own. Once the tier gets its CPUs back for the sake of a
    /// protected pod, so do that pod and the groups of no known pod.
    fn widen_others(&mut self, host: &mut Host, pods: &PodTable, (tier, knob): Key, dirty: &mut BTreeSet<Key>) {
        let held = self.held.get(&(tier, knob)).filter(|held| held.written != held.baseline);
        let Some((narrow, policy, since)) = held.map(|held| (held.written, Arc::clone(&held.policy), held.since))
        else {
            return;
        };
        let mut open = if is_followed(host, (tier, knob)) { vec![tier] } else { Vec::new() };
        while let Some(above) = open.pop() {
            for child in host.groups_below(above, knob) {
                let known = child.target.or_else(|| self.open_follower(host, knob, &child.path));
                let Some(target) = known.filter(|target| !is_of_open_pod(host, pods, *target)) else { continue };
                if child.value == narrow {
                    let follower = || HeldKnob::new(Value::Max, narrow, child.path.clone(), Arc::clone(&policy), since);
                    self.held.get_or_insert_with((target, knob), follower);
                }
                dirty.insert((target, knob));
                open.push(target);
            }
        }
    }

    /// The held lists of groups below a tier: when it no longer leads, they are resolved again.
    fn held_below(&self, host: &Host, (tier, knob): Key) -> Vec<Key> {
        let Some(above) = host.attached_path(tier) else { return Vec::new() };
        let is_below = |key: &Key, held: &HeldKnob| key.1 == knob && key.0 != tier && is_within(&held.cgroup, above);
        let is_due = |key: &Key| self.is_settled || self.leases.effective(key.0, key.1).is_some();
        let held = self.held.iter().filter(|(key, held)| is_below(key, held) && is_due(key));
        held.map(|(&key, _)| key).collect()
    }

    /// Whether a knob is held or has a lease in force.
    pub(super) fn leads(&self, (target, knob): Key) -> bool {
        self.held.contains_key(&(target, knob)) || self.leases.effective(target, knob).is_some()
    }

    /// Handles a group that has appeared: groups above that it must follow are resolved again.
    pub(super) fn follow_from(&mut self, host: &Host, target: Target) {
        for knob in TABLE.iter().filter(|row| row.is_within_parent()).map(|row| row.knob) {
            let leaders: Vec<Key> = above(host, target).map(|above| (above, knob)).collect();
            let leaders: Vec<Key> =
                leaders.into_iter().filter(|key| is_tiers_cpus(*key) || is_followed(host, *key)).collect();
            // Until all policies have spoken, what an earlier agent held stays.
            let is_due = |key: &Key| self.is_settled || self.leases.effective(key.0, key.1).is_some();
            let leaders: Vec<Key> = leaders.into_iter().filter(|key| self.leads(*key) && is_due(key)).collect();
            self.dirty.extend(leaders);
        }
    }

    /// Opens a group that no pod claims, so that it follows; `None` for a quota, or if it cannot be opened.
    fn open_follower(&mut self, host: &mut Host, knob: Knob, path: &str) -> Option<Target> {
        if !row(knob).is_cpu_list() {
            return None;
        }
        // Container IDs count up, these count down from `u32::MAX`.
        let spare = Target::Container(ContainerId(u32::MAX - self.followers_opened));
        host.attach(spare, path).ok()?;
        self.followers_opened = self.followers_opened.saturating_add(1);
        self.spares.insert(path.to_owned(), spare);
        Some(spare)
    }

    /// Notes a group that has all CPUs of the group above. If these are about to be restored, the group is held as if it had been
    /// narrowed with the others.
    fn note_follower(&mut self, host: &Host, key: Key, found: Value) {
        let (target, knob) = key;
        let Value::Cpus(cpus) = found else { return };
        if self.held.contains_key(&key) || host.cpus_above(target) != Some(cpus) {
            return;
        }
        self.followers.insert(key);
        let leader = above(host, target).find_map(|above| self.held.get(&(above, knob)).map(|held| (above, held)));
        let Some((leader, held)) = leader.filter(|(_, held)| held.written == found) else { return };
        if self.leases.effective(target, knob).is_none() && self.leases.effective(leader, knob).is_none() {
            let cgroup = host.attached_path(target).unwrap_or_default().to_owned();
            let follower = HeldKnob::new(Value::Max, found, cgroup, Arc::clone(&held.policy), held.since);
            self.held.get_or_insert_with(key, || follower);
        }
    }

    /// The baseline of a knob that is written for the first time: all CPUs for a follower, else the value found.
    pub(super) fn first_baseline(&self, key: Key, found: Value) -> Value {
        if self.followers.contains(&key) { Value::Max } else { found }
    }

    /// The value to which leases on groups above change a knob that would otherwise be `asked`, or its baseline; `None` if they do not
    /// affect it.
    pub(super) fn left_from_above(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        (target, knob): Key,
        asked: Option<Value>,
    ) -> Option<Left> {
        if !row(knob).is_within_parent() {
            None
        } else if row(knob).is_cpu_list() {
            self.cpus_left(host, inputs, (target, knob), asked)
        } else if host.version_of(knob) != CgroupVersion::V1 {
            None
        } else {
            self.quota_left(host, inputs, target, asked)
        }
    }

    fn cpus_left(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        (target, knob): Key,
        asked: Option<Value>,
    ) -> Option<Left> {
        let leaders = above(host, target).filter(|leader| self.leases.effective(*leader, knob).is_some());
        let leaders: Vec<Target> = leaders.collect();
        let is_v1 = host.version_of(knob) == CgroupVersion::V1;
        let mut ceiling: Option<(CpuSet, String, Arc<str>)> = None;
        for leader in leaders {
            let protected = keeps_tier(host, inputs.pods, (leader, knob));
            let follows = match &protected {
                Some(_) => is_of_open_pod(host, inputs.pods, target) && (is_v1 || matches!(target, Target::Pod(_))),
                None => is_v1,
            };
            if !follows {
                continue;
            }
            let name = inputs.pods.shown(leader);
            let why = match protected {
                Some(pod) => format!("it stands below {name}, whose own CPUs stay because of protected pod {pod}"),
                None => format!("on cgroup v1 it has no CPU that {name} above it does not have"),
            };
            let Some((Value::Cpus(cpus), policy)) = self.led(host, inputs, (leader, knob)) else { continue };
            ceiling = Some(match ceiling {
                // The message names the nearest one.
                Some((nearer, why, policy)) => {
                    let both = nearer.and(&cpus);
                    (if both.is_empty() { nearer } else { both }, why, policy)
                }
                None => (cpus, why, policy),
            });
        }
        let (ceiling, why, policy) = ceiling?;
        let own = match asked {
            Some(asked) => asked,
            // On v1 a group with an empty list has no process, and may keep it.
            None => {
                let is_bound = |own: &Value| *own != Value::Max || !is_v1 || self.follows((target, knob));
                self.own(host, (target, knob)).filter(is_bound)?
            }
        };
        let value = match own {
            Value::Cpus(own) if own.is_subset(&ceiling) && asked.is_none() => return None,
            Value::Cpus(own) if own.and(&ceiling).is_empty() => ceiling,
            Value::Cpus(own) => own.and(&ceiling),
            _ => ceiling,
        };
        Some(Left { value: Value::Cpus(value), why, policy })
    }

    fn quota_left(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        target: Target,
        asked: Option<Value>,
    ) -> Option<Left> {
        let is_below = target != TIER && above(host, target).any(|above| above == TIER);
        let (Value::Number(most), policy) = self.led(host, inputs, (TIER, Bandwidth::KNOB)).filter(|_| is_below)?
        else {
            return None;
        };
        let own = match asked {
            Some(asked) => asked,
            None => self.own(host, (target, Bandwidth::KNOB))?,
        };
        let Value::Number(own) = own else { return None };
        let mut period = |target| host.bandwidth(target).map_or(100_000, |bandwidth| bandwidth.period.0);
        // Compares quota / period of both by cross-multiplication.
        let (own, most_of_own) = (
            i128::from(own).saturating_mul(period(TIER).into()),
            i128::from(most).saturating_mul(period(target).into()),
        );
        let why = format!(
            "the quota of {} is no larger: on cgroup v1 a group below it may not have more, and is bounded by it",
            Tier::BestEffort
        );
        (own > most_of_own).then_some(Left { value: Value::Max, why, policy })
    }

    /// The value that a lease gives a group above, and its policy; `None` if the lease is not in force.
    fn led(&mut self, host: &mut Host, inputs: &Inputs<'_>, (target, knob): Key) -> Option<(Value, Arc<str>)> {
        let lease = self.leases.effective(target, knob)?;
        let (value, policy) = (lease.value, Arc::clone(&lease.holder.policy));
        if self.is_left_alone(inputs, target, knob) || inputs.pods.is_paused(target, inputs.now.wall) {
            return None;
        }
        let (value, _) = match keeps_tier(host, inputs.pods, (target, knob)) {
            Some(_) => self.beyond_exclusive(host, inputs, target, value).ok()?,
            None => self.guarded(host, inputs, target, knob, value).ok()?,
        };
        Some((value, policy))
    }

    /// Whether a group has all CPUs of the group above, or its list is held.
    fn follows(&self, key: Key) -> bool {
        self.followers.contains(&key) || self.held.contains_key(&key)
    }

    /// The value of a knob without any policy: its baseline if it is held.
    fn own(&self, host: &Host, key: Key) -> Option<Value> {
        match self.held.get(&key) {
            Some(held) => Some(held.baseline),
            None if self.followers.contains(&key) => Some(Value::Max),
            None => host.peek(key.0, key.1),
        }
    }
}

pub(super) fn is_tiers_cpus((target, knob): Key) -> bool {
    matches!(target, Target::Tier(_)) && row(knob).is_cpu_list()
}

/// The pods below a tier whose cgroups are open and that are not protected.
fn open_pods_below(host: &Host, pods: &PodTable, tier: Target) -> Vec<Target> {
    let Some(above) = host.attached_path(tier) else { return Vec::new() };
    let open = pods.iter().filter(|entry| entry.pod.active && entry.access != Access::Protected);
    let targets = open.map(|entry| Target::Pod(entry.id));
    targets.filter(|target| host.attached_path(*target).is_some_and(|path| is_within(path, above))).collect()
}

/// Whether a group is that of a pod that is not protected, or below it.
fn is_of_open_pod(host: &Host, pods: &PodTable, target: Target) -> bool {
    let pod = std::iter::once(target).chain(above(host, target)).find_map(|target| match target {
        Target::Pod(id) => pods.get(id),
        Target::Node | Target::Tier(_) | Target::Container(_) => None,
    });
    pod.is_some_and(|entry| entry.pod.active && entry.access != Access::Protected)
}

/// Whether groups below must follow this one.
fn is_followed(host: &Host, (target, knob): Key) -> bool {
    let row = row(knob);
    (row.is_cpu_list() || row.is_quota() && target == TIER) && host.version_of(knob) == CgroupVersion::V1
}

/// The targets above another, the nearest first.
fn above(host: &Host, target: Target) -> impl Iterator<Item = Target> {
    let cut = |path: &str| path.rsplit_once('/').map(|(above, _)| above.to_owned());
    let first = host.attached_path(target).and_then(cut);
    let paths: Vec<String> = std::iter::successors(first, |path| cut(path)).collect();
    let targets: Vec<Target> = paths.iter().filter_map(|path| host.attached_at(path)).collect();
    targets.into_iter()
}
