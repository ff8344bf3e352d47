//! What the kernel refused lately. A refused write is not repeated at every turn: it is reported once and tried again slowly.

use std::collections::{HashMap, HashSet};

use qosm_model::knob::{Knob, Target, Value};

/// Plans after which a refused write is tried again.
const PLANS_UNTIL_RETRY: u64 = 64;

/// One refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    pub(crate) value: Value,
    pub(crate) errno: &'static str,
    pub(crate) plans_left: u64,
}

struct Parked {
    value: Value,
    errno: &'static str,
    at: u64,
    /// Different values in a row.
    values: u32,
}

/// A refused value is not written again for some plans. Another value is tried, because rules between values are the usual
/// reason; a knob that never took one and has refused two is left alone altogether.
#[derive(Default)]
pub(crate) struct Parking {
    plans: u64,
    parked: HashMap<(Target, Knob), Parked>,
    accepted: HashSet<(Target, Knob)>,
}

impl Parking {
    /// Another plan is made.
    pub(crate) fn advance(&mut self) {
        self.plans += 1;
    }

    pub(crate) fn refused(&mut self, target: Target, knob: Knob, value: Value, errno: &'static str) {
        let parked = self.parked.entry((target, knob)).or_insert(Parked { value, errno, at: 0, values: 1 });
        if parked.value != value {
            parked.values = parked.values.saturating_add(1);
        }
        parked.value = value;
        parked.errno = errno;
        parked.at = self.plans;
    }

    pub(crate) fn accepted(&mut self, target: Target, knob: Knob) {
        self.parked.remove(&(target, knob));
        self.accepted.insert((target, knob));
    }

    /// Something that a refusal may have hung on has changed.
    pub(crate) fn reconsider(&mut self, mut concerned: impl FnMut(Target, Knob) -> bool) {
        self.parked.retain(|&(target, knob), _| !concerned(target, knob));
    }

    pub(crate) fn forget(&mut self, target: Target) {
        self.parked.retain(|&(parked, _), _| parked != target);
        self.accepted.retain(|&(accepted, _)| accepted != target);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    /// The refusal that keeps a knob from being written at all (`None`), or from being set to a value.
    pub(crate) fn refusal(&self, target: Target, knob: Knob, value: Option<Value>) -> Option<Refusal> {
        let parked = self.parked.get(&(target, knob))?;
        let since = self.plans.saturating_sub(parked.at);
        if since >= PLANS_UNTIL_RETRY {
            return None;
        }
        let useless = parked.values > 1 && !self.accepted.contains(&(target, knob));
        let holds = value.is_none_or(|value| value == parked.value || useless);
        let Parked { value, errno, .. } = *parked;
        holds.then_some(Refusal { value, errno, plans_left: PLANS_UNTIL_RETRY - since })
    }
}

#[cfg(test)]
mod tests {
    use qosm_model::pod::PodId;

    use super::*;

    const POD: Target = Target::Pod(PodId(1));

    #[test]
    fn leaves_a_refused_value_alone_for_a_while() {
        let mut parking = Parking::default();
        parking.refused(POD, Knob::CfsBurst, Value::Number(5), "EINVAL");
        let asked =
            |parking: &Parking, value| parking.refusal(POD, Knob::CfsBurst, Some(Value::Number(value))).is_some();
        assert!(asked(&parking, 5));
        assert!(!asked(&parking, 6));
        assert!(parking.refusal(POD, Knob::CfsBurst, None).is_some());
        for _ in 0..PLANS_UNTIL_RETRY {
            assert!(asked(&parking, 5));
            parking.advance();
        }
        assert!(!asked(&parking, 5));
    }

    #[test]
    fn gives_up_a_knob_that_never_took_a_value() {
        let mut parking = Parking::default();
        parking.refused(POD, Knob::MemoryHigh, Value::Number(5), "EINVAL");
        parking.refused(POD, Knob::MemoryHigh, Value::Number(6), "EINVAL");
        assert!(parking.refusal(POD, Knob::MemoryHigh, Some(Value::Number(7))).is_some());
        parking.accepted(POD, Knob::MemoryHigh);
        assert!(parking.refusal(POD, Knob::MemoryHigh, Some(Value::Number(6))).is_none());
        parking.refused(POD, Knob::MemoryHigh, Value::Number(5), "EINVAL");
        parking.refused(POD, Knob::MemoryHigh, Value::Number(6), "EINVAL");
        assert!(parking.refusal(POD, Knob::MemoryHigh, Some(Value::Number(7))).is_none());
    }
}
