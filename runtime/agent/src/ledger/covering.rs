//! Works out `memory.min` and `memory.low` of a tier.
//!
//! A child's protection is capped by every group above it, and a tier is also above pods without configuration. So a policy's value
//! for a tier is added to the baseline, which another owner (such as the kubelet's MemoryQoS) keeps there for all pods, except for
//! what the baseline includes already; and a tier never gets less than the sum of the groups in it.

use qosm_host::knob_table::row;
use qosm_host::{Host, Relative};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::Tier;

use crate::inputs::Inputs;
use crate::ledger::Ledger;
use crate::ledger::resolved::{Railed, number};

/// What the groups in a tier hold, in bytes, once this step is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Below {
    /// Sum over all groups.
    held: u64,
    /// Sum over the pods alone, without what tiers in between hold beyond that.
    needed: u64,
    /// Sum over the groups without a lease.
    foreign: u64,
    /// Sum of what policies want for the pods.
    wanted: u64,
    /// By how much pods with a lease hold more than before; a pod that held more before counts as 0.
    gained: u64,
}

impl Below {
    fn add(&mut self, other: Self) {
        let Self { held, needed, foreign, wanted, gained } = other;
        for (sum, part) in [
            (&mut self.held, held),
            (&mut self.needed, needed),
            (&mut self.foreign, foreign),
            (&mut self.wanted, wanted),
            (&mut self.gained, gained),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// What goes into a tier's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shares {
    /// Value that another owner last wrote.
    baseline: u64,
    /// What policies want for the tier.
    wanted: u64,
    below: Below,
    /// Another owner insists on its value: qosm adds as little as possible.
    is_settled: bool,
}

impl Shares {
    /// The baseline, what the pods of the tier gained, and what is wanted for the tier beyond what is wanted for its pods.
    fn added(self) -> u64 {
        let beyond = self.wanted.saturating_sub(self.below.wanted);
        self.baseline.saturating_add(self.below.gained).saturating_add(beyond)
    }

    /// [`Self::added`], and at least what the groups in it hold.
    fn sum(self) -> u64 {
        if self.is_settled { self.baseline.max(self.below.needed) } else { self.added().max(self.below.held) }
    }

    /// Why the value is not what policies want.
    fn why(self) -> String {
        let Self { baseline, below, is_settled, .. } = self;
        let (sum, added) = (self.sum(), self.added());
        if is_settled && sum == baseline {
            return format!(
                "another owner insists on {baseline}, which covers the {} that the groups in it hold",
                below.needed
            );
        }
        if is_settled || sum > added {
            return format!("raised to the {sum} that the groups in it hold together");
        }
        match added - baseline.min(added) {
            0 => format!("the baseline {baseline} counts it already, and stays for the other groups in it"),
            more => format!("{more} more than the baseline {baseline}, which stays for the other groups in it"),
        }
    }
}

/// A tier's value, composed of its shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Composed {
    /// What policies want for the tier.
    wanted: Value,
    /// The value to set, before guard rails.
    pub(super) value: Value,
    /// What other owners have there: guard rails limit only what policies add to it.
    least: Value,
    /// Why the value is not what policies want.
    why: String,
}

impl Composed {
    /// Applies the guard rails' result for [`Self::value`].
    pub(super) fn within(self, railed: Railed) -> Railed {
        let (bounded, cut) = railed;
        let value = bounded.max(self.least);
        let why = cut.map_or(self.why, |(_, rail)| rail);
        (value, (value != self.wanted).then_some((self.wanted, why)))
    }
}

impl Ledger {
    /// The value that a tier should hold if policies want `wanted`, with the reason if it differs.
    pub(super) fn covering(
        &self,
        host: &Host,
        inputs: &Inputs<'_>,
        target: Target,
        knob: Knob,
        wanted: Value,
    ) -> Composed {
        let held = self.held.get(&(target, knob));
        // A knob that cannot be read cannot be written either: the host's error says why.
        let Some(baseline) = held.map(|held| held.baseline).or_else(|| host.peek(target, knob)) else {
            return Composed { wanted, value: wanted, least: Value::Number(0), why: String::new() };
        };
        if baseline == Value::Max || wanted == Value::Max {
            let why = "the baseline is `max`: there is nothing to add to it".to_owned();
            return Composed { wanted, value: Value::Max, least: baseline, why };
        }
        let shares = Shares {
            baseline: self.bytes(baseline),
            wanted: self.bytes(wanted),
            below: self.below(host, inputs, target, knob),
            is_settled: held.is_some_and(|held| held.is_settled),
        };
        let sum = shares.sum();
        Composed {
            wanted,
            value: Value::Number(number(sum)),
            least: Value::Number(number(shares.baseline.max(shares.below.foreign).min(sum))),
            why: shares.why(),
        }
    }

    /// Whether a tier with this value caps none of the groups in it.
    pub(super) fn covers(&self, host: &Host, inputs: &Inputs<'_>, target: Target, knob: Knob, value: Value) -> bool {
        value == Value::Max || self.bytes(value) >= self.below(host, inputs, target, knob).needed
    }

    fn below(&self, host: &Host, inputs: &Inputs<'_>, target: Target, knob: Knob) -> Below {
        let mut sum = Below::default();
        for child in host.groups_below(target, knob) {
            sum.add(match child.target {
                Some(Target::Tier(tier)) => self.of_tier(host, inputs, tier, &child, knob),
                _ => self.of_group(host, inputs, &child, knob),
            });
        }
        sum
    }

    fn of_tier(&self, host: &Host, inputs: &Inputs<'_>, tier: Tier, child: &Relative, knob: Knob) -> Below {
        let target = Target::Tier(tier);
        let inner = self.below(host, inputs, target, knob);
        let next = match (self.leases.effective(target, knob), self.held.get(&(target, knob))) {
            _ if self.is_out_of_reach(inputs, target, knob) => child.value,
            (Some(lease), _) => self.covering(host, inputs, target, knob, lease.value).value,
            (None, Some(held)) => held.baseline,
            (None, None) => child.value,
        };
        Below { held: self.bytes(next), ..inner }
    }

    fn of_group(&self, host: &Host, inputs: &Inputs<'_>, child: &Relative, knob: Knob) -> Below {
        let foreign = |value| {
            let bytes = self.bytes(value);
            Below { held: bytes, needed: bytes, foreign: bytes, ..Below::default() }
        };
        let Some(target) = child.target else { return foreign(child.value) };
        let held = self.held.get(&(target, knob));
        let Some(lease) = self.leases.effective(target, knob) else {
            let next =
                held.filter(|_| !self.is_out_of_reach(inputs, target, knob)).map_or(child.value, |held| held.baseline);
            return foreign(next);
        };
        let next = if self.is_out_of_reach(inputs, target, knob) { child.value } else { lease.value };
        let before = self.bytes(held.map_or(child.value, |held| held.baseline));
        let page = host.page_size().0.max(1);
        // Rounded to pages as by the kernel, so that a few bytes more do not overwrite another owner's value.
        let gained = (self.bytes(next) / page * page).saturating_sub(before);
        let bytes = self.bytes(next);
        Below { held: bytes, needed: bytes, foreign: 0, wanted: self.bytes(lease.value), gained }
    }

    /// Whether nothing is written to a target now: its pod is paused or protected, or another writer's value is left alone.
    fn is_out_of_reach(&self, inputs: &Inputs<'_>, target: Target, knob: Knob) -> bool {
        let held = self.held.get(&(target, knob));
        let is_left = held.is_some_and(|held| held.hands_off_until.is_some_and(|until| inputs.now.wall < until));
        let pod = inputs.pods.of(target);
        is_left
            || inputs.pods.is_paused(target, inputs.now.wall)
            || pod.is_some_and(|entry| inputs.config.guard_rails.protected_namespaces.contains(&entry.pod.namespace))
    }

    /// A bound in bytes; `max` counts as the node's memory.
    fn bytes(&self, value: Value) -> u64 {
        let most = self.memory_capacity.map_or(u64::MAX, |capacity| capacity.0.max(1));
        match value {
            Value::Number(number) => u64::try_from(number).unwrap_or(0),
            Value::Max => most,
            _ => 0,
        }
    }

    /// Describes the group above that grants a target less protection than it holds; `None` if there is none.
    pub(crate) fn capped(&self, host: &Host, target: Target, knob: Knob) -> Option<String> {
        let own = host.peek(target, knob).filter(|_| row(knob).is_granted_from_above())?;
        if self.bytes(own) == 0 {
            return None;
        }
        let above = host.groups_above(target, knob);
        let least = above.iter().filter(|group| group.value < own).min_by_key(|group| group.value);
        if let Some(Relative { path, value, .. }) = least {
            return Some(format!(
                "no more than {value} of it is in force: {knob} of {path} is {value}, and a group has no more than each one above it"
            ));
        }
        // Siblings share their parent's protection according to their usage.
        above.iter().find_map(|group| {
            let parent = group.target?;
            let together: u64 = host
                .groups_below(parent, knob)
                .iter()
                .map(|child| self.bytes(child.value))
                .fold(0, u64::saturating_add);
            (group.value != Value::Max && together > self.bytes(group.value)).then(|| {
                format!(
                    "it is shared where memory is short: the groups in {} hold {together} together, {knob} of it is {}",
                    group.path, group.value
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use qosm_engine::Engine;
    use qosm_host::Host;
    use qosm_host::simulated::Spec;
    use qosm_model::pod::PodId;

    use super::*;
    use crate::agent::{Agent, AgentOptions};
    use crate::config::AgentConfig;
    use crate::now::Now;
    use crate::step::Mode;

    const GIB: u64 = 1 << 30;
    const TIER: Target = Target::Tier(Tier::Burstable);
    const POD: Target = Target::Pod(PodId(1));

    /// An agent on a node with two pods in a tier, of which it knows one.
    fn agent() -> Agent {
        let mut host = Host::simulated(&Spec::default()).unwrap();
        for (target, path) in [
            (Some(Target::Tier(Tier::Guaranteed)), "kubepods"),
            (Some(TIER), "kubepods/burstable"),
            (Some(POD), "kubepods/burstable/podweb"),
            (None, "kubepods/burstable/poddb"),
        ] {
            host.create(path).unwrap();
            if let Some(target) = target {
                host.attach(target, path).unwrap();
            }
        }
        Agent::new(AgentOptions {
            host,
            engine: Engine::new().unwrap(),
            policies: Vec::new(),
            load_failed: Vec::new(),
            config: AgentConfig::default(),
            mode: Mode::Enforce,
            create_cgroups: false,
            journal: None,
            metrics: std::sync::Arc::default(),
        })
        .unwrap()
    }

    fn set(agent: &mut Agent, path: &str, bytes: &str) {
        agent.host_mut().simulated_mut().unwrap().set_file(path, "memory.min", bytes).unwrap();
    }

    fn capped(agent: &mut Agent, target: Target, knob: Knob) -> Option<String> {
        agent.with_ledger(Now::default(), |ledger, host, _| ledger.capped(host, target, knob))
    }

    fn covers(agent: &mut Agent, bytes: i64) -> bool {
        let covers = |ledger: &mut Ledger, host: &mut Host, inputs: &Inputs<'_>| {
            ledger.covers(host, inputs, TIER, Knob::MemoryMin, Value::Number(bytes))
        };
        agent.with_ledger(Now::default(), covers)
    }

    #[test]
    fn a_group_above_that_caps_a_protection_is_named() {
        let mut agent = agent();
        assert_eq!(capped(&mut agent, POD, Knob::MemoryMin), None, "nothing is held");
        for (path, bytes) in
            [("kubepods/burstable/podweb", "8192"), ("kubepods/burstable", "8192"), ("kubepods", "8192")]
        {
            set(&mut agent, path, bytes);
        }
        assert_eq!(capped(&mut agent, POD, Knob::MemoryMin), None);
        set(&mut agent, "kubepods/burstable/poddb", "4096");
        assert_eq!(
            capped(&mut agent, POD, Knob::MemoryMin).unwrap(),
            "it is shared where memory is short: the groups in kubepods/burstable hold 12288 together, memory.min of it is 8192"
        );
        set(&mut agent, "kubepods", "4096");
        assert_eq!(
            capped(&mut agent, POD, Knob::MemoryMin).unwrap(),
            "no more than 4096 of it is in force: memory.min of kubepods is 4096, and a group has no more than each one above it"
        );
        assert_eq!(capped(&mut agent, POD, Knob::CfsQuota), None, "another rule");
    }

    #[test]
    fn a_tier_covers_groups_that_the_agent_does_not_know() {
        let mut agent = agent();
        set(&mut agent, "kubepods/burstable/poddb", "8192");
        let wanted = Value::Number(4096);
        let composed = agent.with_ledger(Now::default(), |ledger, host, inputs| {
            ledger.covering(host, inputs, TIER, Knob::MemoryMin, wanted)
        });
        assert_eq!(composed.value, Value::Number(8192));
        assert_eq!(composed.why, "raised to the 8192 that the groups in it hold together");
        set(&mut agent, "kubepods/burstable", "8192");
        assert_eq!(
            agent
                .with_ledger(Now::default(), |ledger, host, inputs| {
                    ledger.covering(host, inputs, TIER, Knob::MemoryMin, wanted)
                })
                .value,
            Value::Number(8192 + 4096)
        );
        assert!(covers(&mut agent, 8192));
        assert!(!covers(&mut agent, 4096));
        set(&mut agent, "kubepods/burstable", "max");
        assert_eq!(
            agent
                .with_ledger(Now::default(), |ledger, host, inputs| {
                    ledger.covering(host, inputs, TIER, Knob::MemoryMin, wanted)
                })
                .value,
            Value::Max
        );
    }

    #[test]
    fn a_tier_holds_the_baseline_and_what_its_pods_gained_and_at_least_what_they_hold() {
        let below = |held, foreign, wanted, gained| Below { held, needed: held, foreign, wanted, gained };
        for (what, shares, expected) in [
            ("there is no other writer", (0, GIB, below(GIB, 0, GIB, GIB), false), GIB),
            ("the baseline is another writer's", (9 * GIB, GIB, below(9 * GIB, 8 * GIB, GIB, GIB), false), 10 * GIB),
            ("the baseline counts the pod", (9 * GIB, GIB, below(9 * GIB, 8 * GIB, GIB, 0), false), 9 * GIB),
            (
                "the pod asks for less than it had",
                (9 * GIB, GIB / 2, below(9 * GIB, 8 * GIB, GIB / 2, 0), false),
                9 * GIB,
            ),
            ("others hold more than the tier grants", (0, GIB, below(9 * GIB, 8 * GIB, GIB, GIB), false), 9 * GIB),
            ("more for the tier than for its pods", (GIB, 5 * GIB, below(GIB, 0, GIB, GIB), false), 6 * GIB),
            ("the owner insists", (9 * GIB, GIB, below(9 * GIB, 8 * GIB, GIB, GIB), true), 9 * GIB),
            ("the owner insists on too little", (GIB, GIB, below(9 * GIB, 8 * GIB, GIB, GIB), true), 9 * GIB),
            ("numbers that do not fit", (u64::MAX, GIB, below(GIB, 0, GIB, GIB), false), u64::MAX),
        ] {
            let (baseline, wanted, below, is_settled) = shares;
            assert_eq!(Shares { baseline, wanted, below, is_settled }.sum(), expected, "{what}");
        }
    }
}
