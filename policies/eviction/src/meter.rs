//! Measures CPU use and memory pressure over sufficiently long windows.

use std::collections::BTreeMap;

use qosm_sdk::{Group, GroupUse, NodePressure, PodId, Tier, scale};

use crate::input::{INTERVAL_USEC, Pressure, Sample};

/// Minimum length of a window in microseconds; a shorter one continues until the next evaluation, since alarms and pod changes trigger
/// evaluations between two intervals.
const MIN_WINDOW_USEC: u64 = INTERVAL_USEC / 2;

/// The current window, and the measurements of the last one that was long enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    window_usec: u64,
    /// CPU time of the node; `None` if unknown for some part of the window. The same holds for `be_usec` and `full_usec`.
    node_usec: Option<u64>,
    be_usec: Option<u64>,
    pods_usec: BTreeMap<PodId, u64>,
    full_usec: Option<u64>,
    last: Measured,
}

/// The measurements of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// CPU use in millionths of a CPU.
    pub(crate) node: Option<Sample>,
    pub(crate) be: Option<Sample>,
    pub(crate) pods: BTreeMap<PodId, Sample>,
    /// Memory pressure of the node.
    pub(crate) pressure: Option<Pressure>,
}

impl Meter {
    /// Adds the measurements since the last evaluation, and returns those of the last window that was long enough.
    pub(crate) fn add(
        &mut self,
        window_usec: u64,
        node_usec: Option<u64>,
        groups: &[GroupUse],
        pressure: Option<NodePressure>,
        now_usec: u64,
    ) -> &Measured {
        if self.window_usec == 0 {
            (self.node_usec, self.be_usec, self.full_usec) = (Some(0), Some(0), Some(0));
        }
        self.window_usec = self.window_usec.saturating_add(window_usec);
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            *sum = sum.zip(more).map(|(sum, more)| sum.saturating_add(more));
        };
        let be = groups.iter().find(|row| row.group == Group::Tier(Tier::BestEffort));
        add(&mut self.node_usec, node_usec);
        add(&mut self.be_usec, be.and_then(|row| row.cpu_usage_usec));
        add(&mut self.full_usec, pressure.map(|pressure| pressure.memory.full_usec));
        for row in groups {
            if let (Group::Pod(pod), Some(used)) = (row.group, row.cpu_usage_usec) {
                let sum = self.pods_usec.entry(pod).or_default();
                *sum = sum.saturating_add(used);
            }
        }
        if self.window_usec >= MIN_WINDOW_USEC {
            let window_usec = std::mem::take(&mut self.window_usec);
            let sample = |usec| Sample { amount: scale(usec, 1_000_000, window_usec), at_usec: now_usec };
            let pods = std::mem::take(&mut self.pods_usec);
            self.last = Measured {
                node: self.node_usec.map(sample),
                be: self.be_usec.map(sample),
                pods: pods.into_iter().map(|(pod, usec)| (pod, sample(usec))).collect(),
                pressure: self.full_usec.map(|full_usec| Pressure { full_usec, window_usec }),
            };
        }
        &self.last
    }
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{NodeStall, mock};

    use super::*;

    fn rows(be: Option<u64>, pods: &[(PodId, u64)]) -> Vec<GroupUse> {
        let row = |group, used| GroupUse { cpu_usage_usec: used, ..mock::group_use(group) };
        let tier = row(Group::Tier(Tier::BestEffort), be);
        [tier].into_iter().chain(pods.iter().map(|&(pod, used)| row(Group::Pod(pod), Some(used)))).collect()
    }

    fn full(full_usec: u64) -> Option<NodePressure> {
        let calm = NodeStall { some_usec: 0, full_usec: 0 };
        Some(NodePressure { cpu: calm, memory: NodeStall { some_usec: full_usec, full_usec }, io: calm })
    }

    fn amounts(measured: &Measured) -> (Option<u64>, Option<u64>, Vec<(PodId, u64)>) {
        let amount = |sample: &Option<Sample>| sample.map(|sample| sample.amount);
        let pods = measured.pods.iter().map(|(pod, sample)| (*pod, sample.amount)).collect();
        (amount(&measured.node), amount(&measured.be), pods)
    }

    #[test]
    fn a_short_window_goes_on_to_the_next() {
        let mut meter = Meter::default();
        let short = meter.add(20_000, Some(20_000), &rows(Some(20_000), &[(1, 20_000)]), full(20_000), 20_000);
        assert_eq!(*short, Measured::default(), "nothing is known yet");
        let more = rows(Some(230_000), &[(1, 80_000), (2, 100_000)]);
        let whole = meter.add(980_000, Some(480_000), &more, full(0), 1_000_000);
        assert_eq!(amounts(whole), (Some(500_000), Some(250_000), vec![(1, 100_000), (2, 100_000)]));
        assert_eq!(whole.pressure, Some(Pressure { full_usec: 20_000, window_usec: 1_000_000 }));
        assert_eq!(whole.node.map(|sample| sample.at_usec), Some(1_000_000));
        let whole = whole.clone();
        assert_eq!(*meter.add(1_000, Some(1_000), &rows(Some(1_000), &[]), full(1_000), 1_001_000), whole);
    }

    #[test]
    fn what_was_not_measured_throughout_is_not_known() {
        let mut meter = Meter::default();
        meter.add(100_000, None, &rows(None, &[]), None, 100_000);
        let known = meter.add(900_000, Some(900_000), &rows(Some(900_000), &[(1, 5)]), full(9), 1_000_000);
        assert_eq!((amounts(known), known.pressure), ((None, None, vec![(1, 5)]), None));
        let known = meter.add(1_000_000, Some(900_000), &rows(Some(100_000), &[]), full(9), 2_000_000);
        assert_eq!(amounts(known), (Some(900_000), Some(100_000), vec![]), "the next window is a new one");
    }
}
