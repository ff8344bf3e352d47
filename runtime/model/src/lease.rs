//! Leases of policies on knobs. Each (target, knob) has a stack of leases above the kernel's baseline; the lease with the
//! highest priority is effective, and its release makes the next one effective.

use std::collections::HashMap;
use std::sync::Arc;

use crate::knob::{Knob, Target, Value};

/// Priority of a policy's leases. The higher one wins; among equals the policy whose name sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

/// Milliseconds since the Unix epoch. The caller passes it; this crate reads no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// A policy that can hold leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// Priority of its leases.
    pub priority: Priority,
}

/// One policy's hold on one knob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The holder.
    pub holder: Holder,
    /// The value that the policy wants.
    pub value: Value,
    /// The policy's reason.
    pub reason: Arc<str>,
    /// Time since which this value is held.
    pub since: Timestamp,
    /// Why the lease has no effect regardless of its priority: the policy may not set this target. `None` if it may.
    pub denied: Option<Arc<str>>,
}

impl Lease {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let by_right = self.denied.is_some().cmp(&other.denied.is_some());
        let by_priority = || other.holder.priority.cmp(&self.holder.priority);
        by_right.then_with(by_priority).then_with(|| self.holder.policy.cmp(&other.holder.policy))
    }
}

/// All leases of the node.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    stacks: HashMap<(Target, Knob), Vec<Lease>>,
    /// Number of leases of each policy, which every tick reads.
    counts: HashMap<Arc<str>, usize>,
}

impl Leases {
    /// Adds a value to the stack, or replaces the holder's value. Returns whether that changes the effective value.
    pub fn acquire(
        &mut self,
        holder: &Holder,
        target: Target,
        knob: Knob,
        value: Value,
        reason: Arc<str>,
        now: Timestamp,
    ) -> bool {
        let stack = self.stacks.entry((target, knob)).or_default();
        let before = effective(stack).map(|lease| lease.value);
        match stack.iter_mut().find(|lease| lease.holder.policy == holder.policy) {
            Some(own) => {
                if own.value != value {
                    own.value = value;
                    own.since = now;
                }
                own.reason = reason;
                own.holder.priority = holder.priority;
            }
            None => {
                stack.push(Lease { holder: holder.clone(), value, reason, since: now, denied: None });
                *self.counts.entry(Arc::clone(&holder.policy)).or_default() += 1;
            }
        }
        stack.sort_by(Lease::order);
        effective(stack).map(|lease| lease.value) != before
    }

    /// Denies a policy's lease for a reason, or allows it (`None`). Returns whether that changes the effective value.
    pub fn deny(&mut self, policy: &str, target: Target, knob: Knob, why: Option<Arc<str>>) -> bool {
        let Some(stack) = self.stacks.get_mut(&(target, knob)) else { return false };
        let before = effective(stack).map(|lease| lease.value);
        let Some(own) = stack.iter_mut().find(|lease| &*lease.holder.policy == policy) else { return false };
        own.denied = why;
        stack.sort_by(Lease::order);
        effective(stack).map(|lease| lease.value) != before
    }

    /// Removes a policy's value from the stack. Returns whether that changes the effective value.
    pub fn release(&mut self, policy: &str, target: Target, knob: Knob) -> bool {
        let Some(stack) = self.stacks.get_mut(&(target, knob)) else { return false };
        let before = effective(stack).map(|lease| lease.value);
        let count = stack.len();
        stack.retain(|lease| &*lease.holder.policy != policy);
        if let Some(held) = self.counts.get_mut(policy) {
            *held -= count - stack.len();
        }
        let after = effective(stack).map(|lease| lease.value);
        if stack.is_empty() {
            self.stacks.remove(&(target, knob));
        }
        after != before
    }

    /// Releases all knobs of a policy, and returns them.
    pub fn release_policy(&mut self, policy: &str) -> Vec<(Target, Knob)> {
        let mut held: Vec<_> = self.held_by(policy).collect();
        held.sort_unstable();
        for &(target, knob) in &held {
            self.release(policy, target, knob);
        }
        held
    }

    /// Drops a target that is gone, and returns the knobs that were held on it.
    pub fn forget(&mut self, target: Target) -> Vec<Knob> {
        let mut knobs: Vec<_> = self.stacks.keys().filter(|(held, _)| *held == target).map(|&(_, knob)| knob).collect();
        knobs.sort_unstable();
        for &knob in &knobs {
            for lease in self.stacks.remove(&(target, knob)).into_iter().flatten() {
                if let Some(held) = self.counts.get_mut(&lease.holder.policy) {
                    *held -= 1;
                }
            }
        }
        knobs
    }

    /// The lease in force; `None` if the baseline is.
    pub fn effective(&self, target: Target, knob: Knob) -> Option<&Lease> {
        self.stacks.get(&(target, knob)).and_then(|stack| effective(stack))
    }

    /// The whole stack, the effective lease first, denied leases last.
    pub fn stack(&self, target: Target, knob: Knob) -> &[Lease] {
        self.stacks.get(&(target, knob)).map_or(&[], Vec::as_slice)
    }

    /// Number of knobs that a policy holds.
    pub fn count(&self, policy: &str) -> usize {
        self.counts.get(policy).copied().unwrap_or(0)
    }

    /// The knobs that a policy holds, in no particular order.
    pub fn held_by(&self, policy: &str) -> impl Iterator<Item = (Target, Knob)> {
        self.stacks
            .iter()
            .filter(move |(_, stack)| stack.iter().any(|lease| &*lease.holder.policy == policy))
            .map(|(&key, _)| key)
    }

    /// The knobs with a lease on one target, in no particular order.
    pub fn on(&self, target: Target) -> impl Iterator<Item = Knob> {
        self.stacks.keys().filter(move |(of, _)| *of == target).map(|&(_, knob)| knob)
    }

    /// Every knob with a lease, in no particular order.
    pub fn held(&self) -> impl Iterator<Item = (Target, Knob, &[Lease])> {
        self.stacks.iter().map(|(&(target, knob), stack)| (target, knob, stack.as_slice()))
    }
}

/// The effective lease of a sorted stack.
fn effective(stack: &[Lease]) -> Option<&Lease> {
    stack.first().filter(|lease| lease.denied.is_none())
}
