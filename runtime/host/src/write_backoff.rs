//! Back-off after a refused write: it is reported once, and retried after [`PLANS_UNTIL_RETRY`] plans instead of in each tick.

use std::collections::{HashMap, HashSet};

use qosm_model::knob::{Knob, Target, Value};

/// Number of plans until a refused write is retried.
const PLANS_UNTIL_RETRY: u64 = 64;

/// A refusal that still prevents writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) value: Value,
    pub(crate) errno: &'static str,
    pub(crate) plans_left: u64,
}

struct BackedOff {
    value: Value,
    errno: &'static str,
    /// Number of the plan with the last refusal.
    at: u64,
    /// Number of different values refused in a row.
    values: u32,
}

/// Refused writes. A refused value is not written again for [`PLANS_UNTIL_RETRY`] plans. A different value is tried at
/// once, since most refusals come from rules between values. A knob that never accepted a value and refused two
/// different ones is not written at all during that time.
#[derive(Default)]
pub(crate) struct WriteBackoff {
    plans: u64,
    refusals: HashMap<(Target, Knob), BackedOff>,
    accepted: HashSet<(Target, Knob)>,
}

impl WriteBackoff {
    /// Counts a plan.
    pub(crate) fn advance(&mut self) {
        self.plans += 1;
    }

    pub(crate) fn refused(&mut self, target: Target, knob: Knob, value: Value, errno: &'static str) {
        let entry = self.refusals.entry((target, knob)).or_insert(BackedOff { value, errno, at: 0, values: 1 });
        if entry.value != value {
            entry.values = entry.values.saturating_add(1);
        }
        entry.value = value;
        entry.errno = errno;
        entry.at = self.plans;
    }

    pub(crate) fn accepted(&mut self, target: Target, knob: Knob) {
        self.refusals.remove(&(target, knob));
        self.accepted.insert((target, knob));
    }

    /// Drops the refusals for which `concerned` returns `true`: a value that they may depend on has changed.
    pub(crate) fn reconsider(&mut self, mut concerned: impl FnMut(Target, Knob) -> bool) {
        self.refusals.retain(|&(target, knob), _| !concerned(target, knob));
    }

    pub(crate) fn forget(&mut self, target: Target) {
        self.refusals.retain(|&(refused, _), _| refused != target);
        self.accepted.retain(|&(accepted, _)| accepted != target);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.refusals.is_empty()
    }

    /// The refusal that prevents writing a value to a knob; with `None` as the value, any refusal of the knob.
    pub(crate) fn refusal(&self, target: Target, knob: Knob, value: Option<Value>) -> Option<Refusal> {
        let entry = self.refusals.get(&(target, knob))?;
        let since = self.plans.saturating_sub(entry.at);
        if since >= PLANS_UNTIL_RETRY {
            return None;
        }
        let never_accepted = entry.values > 1 && !self.accepted.contains(&(target, knob));
        let applies = value.is_none_or(|value| value == entry.value || never_accepted);
        let BackedOff { value, errno, .. } = *entry;
        applies.then_some(Refusal { value, errno, plans_left: PLANS_UNTIL_RETRY - since })
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::pod::PodId;

    use super::*;

    const POD: Target = Target::Pod(PodId(1));

    #[test]
    fn a_refused_value_is_retried_after_some_plans() {
        let mut backoff = WriteBackoff::default();
        backoff.refused(POD, Knob::CfsBurst, Value::Number(5), "EINVAL");
        let is_refused =
            |backoff: &WriteBackoff, value| backoff.refusal(POD, Knob::CfsBurst, Some(Value::Number(value))).is_some();
        assert!(is_refused(&backoff, 5));
        assert!(!is_refused(&backoff, 6));
        assert!(backoff.refusal(POD, Knob::CfsBurst, None).is_some());
        for _ in 0..PLANS_UNTIL_RETRY {
            assert!(is_refused(&backoff, 5));
            backoff.advance();
        }
        assert!(!is_refused(&backoff, 5));
    }

    #[test]
    fn a_knob_that_never_accepted_a_value_backs_off_whatever_the_value() {
        let mut backoff = WriteBackoff::default();
        backoff.refused(POD, Knob::MemoryHigh, Value::Number(5), "EINVAL");
        backoff.refused(POD, Knob::MemoryHigh, Value::Number(6), "EINVAL");
        assert!(backoff.refusal(POD, Knob::MemoryHigh, Some(Value::Number(7))).is_some());
        backoff.accepted(POD, Knob::MemoryHigh);
        assert!(backoff.refusal(POD, Knob::MemoryHigh, Some(Value::Number(6))).is_none());
        backoff.refused(POD, Knob::MemoryHigh, Value::Number(5), "EINVAL");
        backoff.refused(POD, Knob::MemoryHigh, Value::Number(6), "EINVAL");
        assert!(backoff.refusal(POD, Knob::MemoryHigh, Some(Value::Number(7))).is_none());
    }
}
