//! Everything that is measured, over time: what of it is known when an amount is worked out.

use std::collections::BTreeMap;

use super::peak::Peaks;
use super::window::{Mean, Window};
use super::{MemoryUse, Sample};
use crate::amounts::Amounts;
use crate::class::PriorityClass;
use crate::strategy::{MemoryView, Strategy};

const SECOND_USEC: u64 = 1_000_000;
/// Slots of a pod's window.
pub(crate) const POD_SLOTS: usize = 5;
/// Slots of the node's windows.
const NODE_SLOTS: usize = 120;
/// Where the count of time begins, so that what was kept can be older than the instance.
pub(crate) const START_USEC: u64 = 8 * 86_400 * SECOND_USEC;

/// What is measured within one evaluation's window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The whole node.
    pub node: Sample,
    /// All that belongs neither to a pod nor to a host application; `None` = what is left of the node.
    pub system: Option<Sample>,
    /// Each pod that has a cgroup, whether it is in the list of pods or not.
    pub pods: Vec<PodUsage>,
    /// Host applications.
    pub host_applications: Vec<HostApplication>,
    /// Time in which some task of the node waited for memory; `None` without pressure information.
    pub memory_stalled_usec: Option<u64>,
}

/// A pod's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// The pod's UID.
    pub uid: String,
    /// Its priority class when it was last known.
    pub priority: PriorityClass,
    /// What it used.
    pub sample: Sample,
}

/// Processes of the node outside Kubernetes that the configuration names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostApplication {
    /// Its priority class.
    pub priority: PriorityClass,
    /// What it used.
    pub sample: Sample,
}

/// Names a pod beyond the life of its id: a hash (64-bit FNV-1a) of its UID.
pub(crate) fn key(uid: &str) -> u64 {
    uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// One pod over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    pub(crate) window: Window,
    pub(crate) peaks: Peaks,
    /// How long it has been measured.
    pub(crate) watched_usec: u64,
    /// Its priority class when it was last measured.
    pub(crate) priority: PriorityClass,
}

/// A window and its peaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) window: Window,
    pub(crate) peaks: Peaks,
}

/// All that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracker {
    /// The sum of all windows.
    pub(crate) now_usec: u64,
    /// Window of the averages.
    pub(crate) span_usec: u64,
    /// The longest window of the node.
    pub(crate) longest_usec: u64,
    /// When a whole sample was taken last.
    pub(crate) measured_usec: Option<u64>,
    pub(crate) node: Window,
    pub(crate) system: Series,
    /// All prod pods together.
    pub(crate) prod: Series,
    pub(crate) host_prod: Window,
    pub(crate) host_mid: Window,
    /// Time lost to memory, in place of CPU time.
    pub(crate) stalled: Window,
    pub(crate) pods: BTreeMap<u64, Tracked>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new(&Strategy::default())
    }
}

impl Tracker {
    /// Nothing measured yet.
    pub fn new(strategy: &Strategy) -> Self {
        let (span_usec, longest_usec) = spans(strategy);
        let pod = || Window::over(span_usec, POD_SLOTS);
        let node = || Window::over(longest_usec, NODE_SLOTS);
        let series = |window| Series { window, peaks: Peaks::default() };
        Self {
            now_usec: START_USEC,
            span_usec,
            longest_usec,
            measured_usec: None,
            node: node(),
            system: series(node()),
            prod: series(pod()),
            host_prod: pod(),
            host_mid: pod(),
            stalled: pod(),
            pods: BTreeMap::new(),
        }
    }

    /// Takes new windows over. A window of another length keeps the mean of what it held.
    pub fn reconfigure(&mut self, strategy: &Strategy) {
        let new = Self::new(strategy);
        let now = self.now_usec;
        if new.span_usec != self.span_usec {
            let pods = self.pods.values_mut().map(|pod| &mut pod.window);
            let windows = [&mut self.prod.window, &mut self.host_prod, &mut self.host_mid, &mut self.stalled];
            for window in windows.into_iter().chain(pods) {
                refit(window, &Window::over(new.span_usec, POD_SLOTS), now, self.span_usec);
            }
        }
        if new.longest_usec != self.longest_usec {
            for window in [&mut self.node, &mut self.system.window] {
                refit(window, &new.node, now, self.longest_usec);
            }
        }
        (self.span_usec, self.longest_usec) = (new.span_usec, new.longest_usec);
    }

    /// Lets time pass, and adds what was measured meanwhile. Of pods, only those are kept that `priority_of` knows, as they
    /// are in the list of pods, and those that were measured.
    pub fn advance(
        &mut self,
        window_usec: u64,
        usage: Option<&Usage>,
        view: MemoryView,
        priority_of: impl Fn(u64) -> Option<PriorityClass>,
    ) {
        self.now_usec = self.now_usec.saturating_add(window_usec);
        let now = self.now_usec;
        let used = |mean: &Mean| Amounts::new(mean.cpu_milli, mean.memory.view(view));
        for series in [&mut self.system, &mut self.prod] {
            series.peaks.age(window_usec);
        }
        for pod in self.pods.values_mut() {
            pod.peaks.age(window_usec);
        }
        let measured = usage.map(|usage| usage.pods.as_slice()).unwrap_or_default();
        let is_measured: BTreeMap<u64, ()> = measured.iter().map(|pod| (key(&pod.uid), ())).collect();
        self.pods.retain(|key, _| is_measured.contains_key(key) || priority_of(*key).is_some());
        let Some(usage) = usage.filter(|_| window_usec > 0) else { return };

        self.measured_usec = Some(now);
        self.node.add(now, window_usec, &usage.node);
        let (mut pods, mut prod) = (Sample::default(), Sample::default());
        for pod in &usage.pods {
            let key = key(&pod.uid);
            let tracked = self.pods.entry(key).or_insert_with(|| Tracked {
                window: Window::over(self.span_usec, POD_SLOTS),
                peaks: Peaks::default(),
                watched_usec: 0,
                priority: pod.priority,
            });
            tracked.window.add(now, window_usec, &pod.sample);
            tracked.watched_usec = tracked.watched_usec.saturating_add(window_usec);
            tracked.window.take_closed(now, |mean| tracked.peaks.add(used(mean), mean.covered_usec));
            pods = pods.plus(pod.sample);
            tracked.priority = priority_of(key).unwrap_or(pod.priority);
            if tracked.priority.is_prod() {
                prod = prod.plus(pod.sample);
            }
        }
        self.prod.window.add(now, window_usec, &prod);
        self.prod.window.take_closed(now, |mean| self.prod.peaks.add(used(mean), mean.covered_usec));

        let mut hosts = [Sample::default(); 3];
        for application in &usage.host_applications {
            let at = match application.priority {
                PriorityClass::Prod => 0,
                PriorityClass::Mid => 1,
                _ => 2,
            };
            hosts[at] = hosts[at].plus(application.sample);
        }
        let [host_prod, host_mid, host_low] = hosts;
        self.host_prod.add(now, window_usec, &host_prod);
        self.host_mid.add(now, window_usec, &host_mid);
        let rest = || usage.node.minus(pods).minus(host_prod).minus(host_mid).minus(host_low);
        self.system.window.add(now, window_usec, &usage.system.unwrap_or_else(rest));
        self.system.window.take_closed(now, |mean| self.system.peaks.add(used(mean), mean.covered_usec));
        if let Some(stalled) = usage.memory_stalled_usec {
            let sample = Sample { cpu_usec: stalled.min(window_usec), memory: MemoryUse::default() };
            self.stalled.add(now, window_usec, &sample);
        }
    }

    /// How long ago a whole sample was taken; `None` = never.
    pub fn age_usec(&self) -> Option<u64> {
        Some(self.now_usec.saturating_sub(self.measured_usec?))
    }

    /// The averages that an amount is worked out from; `None` while the node has not been measured for as long as a report
    /// takes.
    pub fn averages(&self, strategy: &Strategy, view: MemoryView) -> Option<Averages> {
        let mean = |window: &Window| window.mean(self.now_usec, self.span_usec);
        let used = |mean: Mean| Amounts::new(mean.cpu_milli, mean.memory.view(view));
        let node = mean(&self.node).filter(|mean| mean.covered_usec >= self.enough_usec(strategy))?;
        let of = |window: &Window| mean(window).map(used).unwrap_or_default();
        Some(Averages {
            node: used(node),
            system: of(&self.system.window),
            host_prod: of(&self.host_prod),
            host_mid: of(&self.host_mid),
        })
    }

    /// What a pod uses; `None` where it has not been measured. A pod that has not been measured for as long as a report takes
    /// counts with what it requests, if that is more: it is still starting.
    pub fn pod_usage(&self, key: u64, request: Amounts, strategy: &Strategy, view: MemoryView) -> Option<Amounts> {
        let mean = self.pods.get(&key)?.window.mean(self.now_usec, self.span_usec)?;
        let used = Amounts::new(mean.cpu_milli, mean.memory.view(view));
        Some(if mean.covered_usec >= self.enough_usec(strategy) { used } else { used.max(request) })
    }

    /// What all processes use that belong to no pod that `is_listed` knows, and are of high priority.
    pub fn dangling(&self, view: MemoryView, is_listed: impl Fn(u64) -> bool) -> Amounts {
        let unknown = self.pods.iter().filter(|(key, pod)| pod.priority.is_high() && !is_listed(**key));
        let means = unknown.filter_map(|(_, pod)| pod.window.mean(self.now_usec, self.span_usec));
        means.map(|mean| Amounts::new(mean.cpu_milli, mean.memory.view(view))).fold(Amounts::ZERO, Amounts::plus)
    }

    /// The peak of a pod's use; `None` where it has been measured for less than `cold_usec`.
    pub fn pod_peak(&self, key: u64, cold_usec: u64) -> Option<Amounts> {
        self.pods.get(&key).filter(|pod| pod.watched_usec >= cold_usec)?.peaks.peak()
    }

    /// Share of the time that tasks waited for memory, in thousandths; `None` when not known.
    pub fn memory_stalled_permille(&self) -> Option<u64> {
        self.stalled.mean(self.now_usec, self.span_usec).map(|mean| mean.cpu_milli)
    }

    fn enough_usec(&self, strategy: &Strategy) -> u64 {
        strategy.report_seconds.min(strategy.aggregate_seconds).saturating_mul(SECOND_USEC)
    }
}

/// What an amount is worked out from, beside the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Averages {
    /// The whole node.
    pub node: Amounts,
    /// Beside pods and host applications.
    pub system: Amounts,
    /// Host applications of class prod.
    pub host_prod: Amounts,
    /// Host applications of class mid.
    pub host_mid: Amounts,
}

fn spans(strategy: &Strategy) -> (u64, u64) {
    let longest = strategy.aggregate_durations.iter().copied().chain([strategy.aggregate_seconds]).max().unwrap_or(1);
    (strategy.aggregate_seconds.saturating_mul(SECOND_USEC), longest.saturating_mul(SECOND_USEC))
}

/// Puts the mean of a window into an empty one.
fn refit(window: &mut Window, empty: &Window, now_usec: u64, span_usec: u64) {
    let mean = window.mean(now_usec, span_usec);
    *window = empty.clone();
    if let Some(mean) = mean {
        window.restore(now_usec, 0, &mean);
    }
}

#[cfg(test)]
mod tests;
