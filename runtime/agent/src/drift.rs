//! Drift: somebody else wrote a knob that qosm holds. Who it was decides what is done.
//!
//! | what is found | who | what qosm does |
//! | --- | --- | --- |
//! | the value that follows from the pod's specification, other than the baseline | the kubelet or runtime, resizing | it is the new baseline; the lease is written again |
//! | the baseline, or the kernel's default | systemd's daemon-reload, a kubelet's sync | the lease is written again |
//! | the same again and again | a fight | hands off for a while |
//! | anything else | a person | hands off for a while; after that it is the new baseline |

use std::collections::BTreeSet;

use qosm_host::HostError;
use qosm_model::knob::{DEFAULT_WEIGHT, IDLE_WEIGHT, Knob, Target, Value};
use qosm_model::lease::Timestamp;
use qosm_model::pod::{KubeQos, Tier};
use qosm_model::unit::MilliCpu;

use crate::agent::{Agent, Step};
use crate::arbitrate::{is_weight, number, partner};
use crate::policy::Now;

/// So many repairs within [`FIGHT_MILLIS`] are a fight.
const FIGHT_REPAIRS: usize = 3;
const FIGHT_MILLIS: i64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Kubelet,
    Reset,
    Person,
}

impl Writer {
    fn as_str(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Reset => "reset",
            Self::Person => "person",
        }
    }
}

impl Agent {
    /// Reads held knobs back: CFS quotas at each tick, the others over several ticks.
    pub(crate) fn verify(&mut self, now: Now, step: &mut Step) {
        let share = self.held.len().div_ceil(self.config.drift.verify_over_ticks.max(1) as usize);
        if self.verify_queue.is_empty() {
            self.verify_queue.extend(self.held.keys().filter(|(_, knob)| *knob != Knob::CfsQuota));
        }
        let mut batch: Vec<_> = self.held.quotas().iter().map(|&target| (target, Knob::CfsQuota)).collect();
        let queued = share.min(self.verify_queue.len());
        batch.extend(self.verify_queue.drain(..queued));
        self.pair_weights(&mut batch);
        let mut reset = BTreeSet::new();
        for key in batch {
            if self.verify_knob(key, now, step) {
                reset.insert(key);
            }
        }
        if !reset.is_empty() {
            // Before the policies look: to them the reset value would be where they start from, and the lease would be lost.
            let others = std::mem::replace(&mut self.dirty, reset);
            self.apply(now, step);
            self.dirty.extend(others);
        }
    }

    /// Weight and `cpu.idle` are looked at together: what became of one says who wrote the other.
    fn pair_weights(&self, batch: &mut Vec<(Target, Knob)>) {
        let weights = batch.iter().filter(|(_, knob)| is_weight(*knob));
        let partners: Vec<_> = weights.filter_map(|&(target, knob)| Some((target, partner(knob)?))).collect();
        for key in partners {
            if self.held.contains_key(&key) && !batch.contains(&key) {
                batch.push(key);
            }
        }
        // A 0 in `cpu.idle` says nothing of who wrote it, a weight does.
        batch.sort_by_key(|(_, knob)| *knob == Knob::CpuIdle);
    }

    /// Whether the knob was reset and is to be written again at once.
    fn verify_knob(&mut self, key: (Target, Knob), now: Now, step: &mut Step) -> bool {
        let (target, knob) = key;
        let Some(held) = self.held.get(&key) else { return false };
        if held.pending {
            return false;
        }
        if let Some(until) = held.hands_off_until {
            if now.wall >= until {
                self.hands_on(key);
            }
            return false;
        }
        let (baseline, written) = (held.baseline, held.written);
        let found = match self.host.read(target, knob) {
            Ok(found) => found,
            Err(HostError::Gone { .. }) => {
                self.target_gone(target);
                return false;
            }
            Err(error) => {
                tracing::debug!(%knob, %error, "held knob cannot be read back");
                return false;
            }
        };
        if found == written {
            return false;
        }
        let writer = if found != baseline && self.is_specified(target, knob, found) {
            Writer::Kubelet
        } else if knob == Knob::CpuIdle && self.is_left_alone((target, Knob::CpuWeight)) {
            Writer::Person
        } else if found == baseline || Some(found) == kernel_default(knob) {
            Writer::Reset
        } else {
            Writer::Person
        };
        self.drifted(key, found, writer, now, step)
    }

    fn is_left_alone(&self, key: (Target, Knob)) -> bool {
        self.held.get(&key).is_some_and(|held| held.hands_off_until.is_some())
    }

    /// Whether the knob is to be written again at once.
    fn drifted(&mut self, key: (Target, Knob), found: Value, writer: Writer, now: Now, step: &mut Step) -> bool {
        let hands_off = Timestamp(now.wall.0.saturating_add(i64::from(self.config.drift.hands_off_seconds) * 1000));
        let Some(held) = self.held.get_mut(&key) else { return false };
        let wanted = held.written;
        held.written = found;
        while held.rewrites.front().is_some_and(|then| now.wall.0.saturating_sub(then.0) > FIGHT_MILLIS) {
            held.rewrites.pop_front();
        }
        let fight = held.rewrites.len() >= FIGHT_REPAIRS;
        let message = match writer {
            Writer::Person => format!("somebody set {} to {found} over qosm's {wanted}; hands off for now", key.1),
            _ if fight => {
                format!("something keeps setting {} to {found} over qosm's {wanted}; hands off for now", key.1)
            }
            Writer::Kubelet => {
                format!("the kubelet set {} to {found}, the new baseline; qosm's lease stays on top", key.1)
            }
            Writer::Reset => format!("{} was reset to {found}; qosm puts {wanted} back", key.1),
        };
        if writer == Writer::Person || fight {
            held.hands_off_until = Some(hands_off);
        } else {
            held.rewrites.push_back(now.wall);
            if writer == Writer::Kubelet {
                held.baseline = found;
            }
            self.dirty.insert(key);
        }
        held.drift = Some(message.clone());
        let kind = if fight { "fight" } else { writer.as_str() };
        self.metrics.drift(key.1, kind);
        tracing::warn!(subject = self.shown(key.0), knob = %key.1, writer = kind, %found, %wanted, "drift");
        if key.1 == Knob::CfsQuota {
            self.quotas.refresh(&mut self.host, key.0);
        }
        self.tell_pod(key.0, "KnobDrift", message, now, step);
        writer == Writer::Reset && !fight
    }

    /// The wait is over: what the other writer left is the new baseline, and the lease is written on top of it.
    fn hands_on(&mut self, key: (Target, Knob)) {
        let Ok(found) = self.host.read(key.0, key.1) else { return };
        if let Some(held) = self.held.get_mut(&key) {
            held.hands_off_until = None;
            // Somebody made it an idle one: which weight it had, we still know.
            if key.1 != Knob::CpuWeight || found != IDLE_WEIGHT {
                held.baseline = found;
            }
            held.written = found;
            held.rewrites.clear();
            self.dirty.insert(key);
        }
    }

    /// Whether a value is what the kubelet, or the runtime for it, writes for this pod as it is specified now.
    fn is_specified(&self, target: Target, knob: Knob, found: Value) -> bool {
        match knob {
            Knob::CfsQuota => self.specified_quota(target) == Some(found),
            Knob::CpuWeight => {
                self.requested(target).is_some_and(|request| self.host.requested_weights(request).contains(&found))
            }
            _ => false,
        }
    }

    /// The CPU that a container, pod or tier requests: what the kubelet makes a weight of. `None` for the tier of all pods, whose weight
    /// follows from the node.
    fn requested(&self, target: Target) -> Option<MilliCpu> {
        match target {
            Target::Container(id) => {
                let (entry, place) = self.pods.owner(id)?;
                let container = entry.given.containers.get(place)?;
                Some(container.cpu_request.or(container.cpu_limit).unwrap_or_default())
            }
            Target::Pod(id) => Some(self.pods.get(id)?.given.cpu_requested()),
            Target::Tier(Tier::Burstable) => {
                let burstable = self.pods.iter().filter(|entry| entry.given.active);
                let requests = burstable.filter(|entry| entry.given.kube_qos == KubeQos::Burstable);
                Some(MilliCpu(requests.map(|entry| entry.given.cpu_requested().0).fold(0, u64::saturating_add)))
            }
            Target::Tier(Tier::BestEffort) => Some(MilliCpu(0)),
            Target::Tier(Tier::Guaranteed) => None,
        }
    }

    fn specified_quota(&self, target: Target) -> Option<Value> {
        let period = self.quotas.get(target)?.period.0;
        let quota = |milli: u64| Value::Number(number(milli.saturating_mul(period) / 1000).max(1000));
        match target {
            Target::Container(id) => {
                let (entry, place) = self.pods.owner(id)?;
                entry.given.containers.get(place)?.cpu_limit.filter(|limit| limit.0 > 0).map(|limit| quota(limit.0))
            }
            Target::Pod(id) => {
                let entry = self.pods.get(id)?;
                let total = entry
                    .given
                    .containers
                    .iter()
                    .filter(|container| container.kind != qosm_model::pod::ContainerKind::Init)
                    .map(|container| container.cpu_limit.map(|limit| limit.0))
                    .sum::<Option<u64>>()?;
                (total > 0).then(|| quota(total.saturating_add(entry.given.cpu_overhead.0)))
            }
            Target::Tier(_) => None,
        }
    }
}

/// What a knob holds when nobody ever wrote it.
fn kernel_default(knob: Knob) -> Option<Value> {
    match knob {
        Knob::CfsQuota | Knob::MemoryHigh => Some(Value::Max),
        Knob::CfsBurst | Knob::MemoryMin | Knob::MemoryLow | Knob::CpuIdle => Some(Value::Number(0)),
        Knob::CpuWeight => Some(DEFAULT_WEIGHT),
        _ => None,
    }
}
