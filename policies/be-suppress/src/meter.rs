//! Measures the CPU use of the node and its pods over sufficiently long windows.

use std::collections::BTreeMap;

use qosm_sdk::{ApplicationUse, Group, GroupUse, PodId, QosClass, Tier, scale};

use crate::input::{CgroupBase, HostApp, Pressure, Sample};

const USEC: u64 = 1_000_000;
/// Minimum length of a window in microseconds; a shorter one continues until the next evaluation.
pub(crate) const MIN_WINDOW_USEC: u64 = 50_000;

/// The current window, and the result of the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    window_usec: u64,
    /// CPU time of the node; `None` if unknown for some part of the window.
    node_usec: Option<u64>,
    /// CPU time by pod; `None` if groups were not measured for some part of the window.
    pods_usec: Option<BTreeMap<PodId, u64>>,
    /// CPU time of pods without a row of their own: [`unlisted`].
    unlisted_usec: u64,
    /// CPU time of host applications, by name.
    applications_usec: BTreeMap<String, Application>,
    /// By pod: time in which it waited for a CPU, and time in which its own quotas throttled it.
    waits: BTreeMap<PodId, (u64, u64)>,
    last: Measured,
}

/// A host application.
#[derive(Clone, Debug)]
struct Application {
    class: Option<QosClass>,
    base: CgroupBase,
    used_usec: u64,
}

/// The measurements of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) node: Option<Sample>,
    pub(crate) pods: Option<BTreeMap<PodId, Sample>>,
    /// Pods outside the tier BestEffort that are not listed; `None` before the first window.
    pub(crate) unlisted: Option<Sample>,
    /// Host applications with a measurement.
    pub(crate) applications: Vec<HostApp>,
    /// CPU pressure by pod, if the kernel measures it.
    pub(crate) pressure: BTreeMap<PodId, Pressure>,
}

impl Meter {
    /// Adds the measurements since the last evaluation. `is_best_effort` tells the pods of the tier BestEffort.
    pub(crate) fn add(
        &mut self,
        window_usec: u64,
        node_usec: Option<u64>,
        groups: &[GroupUse],
        applications: Vec<ApplicationUse>,
        is_best_effort: impl Fn(PodId) -> bool,
    ) {
        let is_measured =
            groups.iter().any(|row| row.group == Group::Tier(Tier::Guaranteed) && row.cpu_usage_usec.is_some());
        if self.window_usec == 0 {
            (self.node_usec, self.pods_usec) = (Some(0), Some(BTreeMap::new()));
        }
        self.window_usec = self.window_usec.saturating_add(window_usec);
        self.node_usec = self.node_usec.zip(node_usec).map(|(sum, more)| sum.saturating_add(more));
        self.pods_usec = self.pods_usec.take().filter(|_| is_measured);
        self.unlisted_usec = self.unlisted_usec.saturating_add(unlisted(groups, &applications, is_best_effort));
        for row in applications {
            let Some(used) = row.cpu_usage_usec else { continue };
            let base = match row.tier {
                Some(Tier::BestEffort) => CgroupBase::KubepodsBestEffort,
                _ => CgroupBase::Other,
            };
            let sum =
                self.applications_usec.entry(row.name).or_insert(Application { class: row.qos, base, used_usec: 0 });
            (sum.class, sum.base, sum.used_usec) = (row.qos, base, sum.used_usec.saturating_add(used));
        }
        for row in groups {
            let Group::Pod(pod) = row.group else { continue };
            if let (Some(used), Some(pods)) = (row.cpu_usage_usec, &mut self.pods_usec) {
                let sum = pods.entry(pod).or_default();
                *sum = sum.saturating_add(used);
            }
            if let Some(stall) = row.cpu_pressure {
                let (some, throttled) = self.waits.entry(pod).or_default();
                *some = some.saturating_add(stall.some_usec);
                *throttled = throttled.saturating_add(row.cpu_throttled_usec.unwrap_or(0));
            }
        }
    }

    /// Length of the current window, in microseconds.
    pub(crate) fn window_usec(&self) -> u64 {
        self.window_usec
    }

    /// Ends the window if it is at least `least_usec` long and returns its measurements. Otherwise returns those of the last window,
    /// without pressure: each pressure value is returned once.
    pub(crate) fn close(&mut self, now_usec: u64, least_usec: u64) -> Measured {
        if self.window_usec < least_usec.max(1) {
            return Measured { pressure: BTreeMap::new(), ..self.last.clone() };
        }
        let window_usec = std::mem::take(&mut self.window_usec);
        let sample = |usec: u64| Sample { micro_cpu: scale(usec, USEC, window_usec), at_usec: now_usec };
        let application = |Application { class, base, used_usec }| HostApp {
            class,
            base,
            used_micro_cpu: Some(sample(used_usec).micro_cpu),
        };
        let pressure = |(some_usec, throttled_usec)| Pressure { some_usec, throttled_usec, window_usec };
        self.last = Measured {
            node: self.node_usec.take().map(sample),
            pods: self.pods_usec.take().map(|pods| pods.into_iter().map(|(pod, usec)| (pod, sample(usec))).collect()),
            unlisted: Some(sample(std::mem::take(&mut self.unlisted_usec))),
            applications: std::mem::take(&mut self.applications_usec).into_values().map(application).collect(),
            pressure: std::mem::take(&mut self.waits).into_iter().map(|(pod, waits)| (pod, pressure(waits))).collect(),
        };
        self.last.clone()
    }

    /// Discards all measurements, since windows are missing from here on.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The CPU time of the tiers Guaranteed and Burstable beyond the known pods and applications, that is, of pods that the API server has
/// forgotten while their processes still run. 0 while some use is unknown: a new pod is measured as part of its tier before it is measured
/// itself.
fn unlisted(groups: &[GroupUse], applications: &[ApplicationUse], is_best_effort: impl Fn(PodId) -> bool) -> u64 {
    let tier = |tier| groups.iter().find(|row| row.group == Group::Tier(tier)).and_then(|row| row.cpu_usage_usec);
    let Some(all) = tier(Tier::Guaranteed) else { return 0 };
    let pods = groups.iter().filter_map(|row| match row.group {
        Group::Pod(pod) => Some((is_best_effort(pod), row.cpu_usage_usec)),
        Group::Tier(_) | Group::Outside => None,
    });
    let applications = applications.iter().filter_map(|row| Some((row.tier? == Tier::BestEffort, row.cpu_usage_usec)));
    let (mut best_effort, mut others) = (0_u64, 0_u64);
    for (is_best_effort, used) in pods.chain(applications) {
        let Some(used) = used else { return 0 };
        let sum = if is_best_effort { &mut best_effort } else { &mut others };
        *sum = sum.saturating_add(used);
    }
    // The tier's counters may be below the sum of its pods, since they are read at different moments.
    let best_effort = best_effort.max(tier(Tier::BestEffort).unwrap_or(0));
    all.saturating_sub(best_effort).saturating_sub(others)
}

#[cfg(test)]
mod tests {
    use qosm_sdk::{NodeStall, mock};

    use super::*;

    fn rows(pods: &[(PodId, u64, u64)]) -> Vec<GroupUse> {
        let tier = GroupUse { cpu_usage_usec: Some(0), ..mock::group_use(Group::Tier(Tier::Guaranteed)) };
        let pod = |&(pod, used, some_usec): &(PodId, u64, u64)| GroupUse {
            cpu_usage_usec: Some(used),
            cpu_pressure: Some(NodeStall { some_usec, full_usec: 0 }),
            ..mock::group_use(Group::Pod(pod))
        };
        [tier].into_iter().chain(pods.iter().map(pod)).collect()
    }

    fn is_best_effort(pod: PodId) -> bool {
        pod == 2
    }

    fn used(measured: &Measured) -> (Option<u64>, Vec<(PodId, u64)>) {
        let pods = measured.pods.iter().flatten().map(|(pod, sample)| (*pod, sample.micro_cpu)).collect();
        (measured.node.map(|sample| sample.micro_cpu), pods)
    }

    #[test]
    fn short_windows_are_joined() {
        let mut meter = Meter::default();
        meter.add(20_000, Some(10_000), &rows(&[(1, 5_000, 1_000)]), Vec::new(), is_best_effort);
        assert_eq!(meter.close(20_000, MIN_WINDOW_USEC), Measured::default(), "nothing was measured yet");
        meter.add(80_000, Some(60_000), &rows(&[(1, 45_000, 9_000), (2, 10_000, 0)]), Vec::new(), is_best_effort);
        let measured = meter.close(100_000, MIN_WINDOW_USEC);
        assert_eq!(used(&measured), (Some(700_000), vec![(1, 500_000), (2, 100_000)]));
        assert_eq!(measured.pressure[&1], Pressure { some_usec: 10_000, throttled_usec: 0, window_usec: 100_000 });
        // Until the next window is long enough, the last one is returned again, without pressure.
        meter.add(10_000, Some(10_000), &rows(&[(1, 10_000, 10_000)]), Vec::new(), is_best_effort);
        let again = meter.close(110_000, MIN_WINDOW_USEC);
        assert_eq!((used(&again), again.pressure.len()), (used(&measured), 0));
    }

    #[test]
    fn applications_add_up_by_name() {
        let mut meter = Meter::default();
        let one = |name: &str, used: u64, qos, tier| ApplicationUse {
            name: name.to_owned(),
            qos,
            priority: None,
            tier,
            cpu_usage_usec: Some(used),
            memory: None,
        };
        for used in [10_000, 30_000] {
            let both = vec![
                one("etl", used, Some(QosClass::Be), Some(Tier::BestEffort)),
                one("nginx", 2 * used, Some(QosClass::Ls), None),
            ];
            meter.add(50_000, Some(used), &rows(&[]), both, is_best_effort);
        }
        let applications = meter.close(100_000, MIN_WINDOW_USEC).applications;
        let shown: Vec<_> = applications.iter().map(|one| (one.is_be(), one.used_micro_cpu)).collect();
        assert_eq!(shown, [(true, Some(400_000)), (false, Some(800_000))]);
    }

    #[test]
    fn use_beyond_the_known_pods_and_applications_is_that_of_unlisted_pods() {
        let group = |group, used| GroupUse { cpu_usage_usec: used, ..mock::group_use(group) };
        let etl = |tier, used| ApplicationUse {
            name: "etl".to_owned(),
            qos: None,
            priority: None,
            tier,
            cpu_usage_usec: used,
            memory: None,
        };
        let all = |used| group(Group::Tier(Tier::Guaranteed), Some(used));
        let batch = |used| group(Group::Tier(Tier::BestEffort), Some(used));
        let pod = |id, used| group(Group::Pod(id), used);
        let known = || vec![all(9), batch(3), pod(1, Some(2)), pod(2, Some(3))];
        for (case, groups, application, expected) in [
            ("beyond the pods", known(), etl(None, Some(1)), 4),
            ("less an application there", known(), etl(Some(Tier::Burstable), Some(1)), 3),
            ("an application that is not measured yet", known(), etl(Some(Tier::Burstable), None), 0),
            ("a pod that is not measured yet", known().into_iter().chain([pod(3, None)]).collect(), etl(None, None), 0),
            ("of the tier BestEffort", vec![all(9), batch(7), pod(1, Some(2)), pod(2, Some(3))], etl(None, None), 0),
            ("without the tier's row", vec![all(9), pod(1, Some(2)), pod(2, Some(3))], etl(None, None), 4),
            ("read a moment before", vec![all(4), batch(2), pod(1, Some(2)), pod(2, Some(3))], etl(None, None), 0),
            ("not measured", vec![pod(1, Some(2))], etl(None, None), 0),
        ] {
            assert_eq!(unlisted(&groups, &[application], is_best_effort), expected, "{case}");
        }
        // Of two windows that are joined, both count.
        let mut meter = Meter::default();
        for _ in 0..2 {
            meter.add(20, Some(10), &known(), Vec::new(), is_best_effort);
        }
        let unlisted = meter.close(40, 40).unlisted.map(|sample| sample.micro_cpu);
        assert_eq!(unlisted, Some(200_000));
    }

    #[test]
    fn what_was_not_measured_throughout_is_not_known() {
        let mut meter = Meter::default();
        meter.add(500_000, None, &[], Vec::new(), is_best_effort);
        meter.add(500_000, Some(100_000), &rows(&[(1, 100_000, 0)]), Vec::new(), is_best_effort);
        assert_eq!(used(&meter.close(1_000_000, MIN_WINDOW_USEC)), (None, vec![]));
        meter.add(1_000_000, Some(100_000), &rows(&[(1, 100_000, 0)]), Vec::new(), is_best_effort);
        assert_eq!(used(&meter.close(2_000_000, MIN_WINDOW_USEC)), (Some(100_000), vec![(1, 100_000)]));
    }
}
