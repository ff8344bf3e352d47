//! Tracks all measurements over time and provides averages and peaks.

use std::collections::BTreeMap;

use super::peak::Peaks;
use super::window::{Mean, Window};
use super::{MemoryUse, Sample};
use crate::amounts::Amounts;
use crate::class::PriorityClass;
use crate::strategy::{MemoryView, Strategy};

const SECOND_USEC: u64 = 1_000_000;
/// Number of slots of a pod's window.
pub(crate) const POD_SLOTS: usize = 5;
/// Number of slots of the node's windows.
const NODE_SLOTS: usize = 120;
/// Start of the time count; above 0, so that restored measurements can be older than the instance.
pub(crate) const START_USEC: u64 = 8 * 86_400 * SECOND_USEC;

/// The measurements of one evaluation's window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Use of the whole node.
    pub node: Sample,
    /// Use of everything that belongs neither to a pod nor to a host application; `None` = what remains of the node's use.
    pub system: Option<Sample>,
    /// Use of each pod that has a cgroup, whether it is in the list of pods or not.
    pub pods: Vec<PodUsage>,
    /// Use of host applications.
    pub host_applications: Vec<HostApplication>,
    /// Time in which some task of the node waited for memory, in microseconds; `None` without pressure information.
    pub memory_stalled_usec: Option<u64>,
}

/// Use of a pod's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// UID of the pod.
    pub uid: String,
    /// The last known priority class of the pod.
    pub priority: PriorityClass,
    /// The pod's use.
    pub sample: Sample,
}

/// A process outside Kubernetes that the configuration names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostApplication {
    /// Priority class of the application.
    pub priority: PriorityClass,
    /// The application's use.
    pub sample: Sample,
}

/// Key of a pod that stays valid across restarts: the 64-bit FNV-1a hash of its UID.
pub(crate) fn key(uid: &str) -> u64 {
    uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A pod over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tracked {
    pub(crate) window: Window,
    pub(crate) peaks: Peaks,
    /// How long the pod has been measured, in microseconds.
    pub(crate) watched_usec: u64,
    /// The priority class of the pod when it was last measured.
    pub(crate) priority: PriorityClass,
}

/// A window and the peaks of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    pub(crate) window: Window,
    pub(crate) peaks: Peaks,
}

/// All measurements over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracker {
    /// Current time: [`START_USEC`] plus the sum of all windows.
    pub(crate) now_usec: u64,
    /// Length of the averages' window.
    pub(crate) span_usec: u64,
    /// Length of the node's longest window.
    pub(crate) longest_usec: u64,
    /// When a complete sample was last taken; `None` = never.
    pub(crate) measured_usec: Option<u64>,
    pub(crate) node: Window,
    pub(crate) system: Series,
    /// All prod pods together.
    pub(crate) prod: Series,
    pub(crate) host_prod: Window,
    pub(crate) host_mid: Window,
    /// Time in which tasks waited for memory, stored as CPU time.
    pub(crate) stalled: Window,
    pub(crate) pods: BTreeMap<u64, Tracked>,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new(&Strategy::default())
    }
}

impl Tracker {
    /// A tracker without measurements.
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

    /// Adapts to the strategy's windows. A window whose length changes keeps the mean of its contents.
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

    /// Lets time pass and adds the measurements. Pods are kept if `priority_of` knows them, that is, if they are listed, or if they were
    /// measured.
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

    /// Time since the last complete sample, in microseconds; `None` = never.
    pub fn age_usec(&self) -> Option<u64> {
        Some(self.now_usec.saturating_sub(self.measured_usec?))
    }

    /// The averages that amounts are computed from; `None` if the node has not been measured for a report interval.
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

    /// The use of a pod; `None` if it has not been measured. A pod that has not been measured for a report interval counts with its request
    /// if that is larger, since it is still starting.
    pub fn pod_usage(&self, key: u64, request: Amounts, strategy: &Strategy, view: MemoryView) -> Option<Amounts> {
        let mean = self.pods.get(&key)?.window.mean(self.now_usec, self.span_usec)?;
        let used = Amounts::new(mean.cpu_milli, mean.memory.view(view));
        Some(if mean.covered_usec >= self.enough_usec(strategy) { used } else { used.max(request) })
    }

    /// The use of high-priority pods for which `is_listed` is false.
    pub fn dangling(&self, view: MemoryView, is_listed: impl Fn(u64) -> bool) -> Amounts {
        let unknown = self.pods.iter().filter(|(key, pod)| pod.priority.is_high() && !is_listed(**key));
        let means = unknown.filter_map(|(_, pod)| pod.window.mean(self.now_usec, self.span_usec));
        means.map(|mean| Amounts::new(mean.cpu_milli, mean.memory.view(view))).fold(Amounts::ZERO, Amounts::plus)
    }

    /// The peak of a pod's use; `None` if it has been measured for less than `cold_usec`.
    pub fn pod_peak(&self, key: u64, cold_usec: u64) -> Option<Amounts> {
        self.pods.get(&key).filter(|pod| pod.watched_usec >= cold_usec)?.peaks.peak()
    }

    /// Share of the time in which tasks waited for memory, in thousandths; `None` if unknown.
    pub fn memory_stalled_permille(&self) -> Option<u64> {
        self.stalled.mean(self.now_usec, self.span_usec).map(|mean| mean.cpu_milli)
    }

    fn enough_usec(&self, strategy: &Strategy) -> u64 {
        strategy.report_seconds.min(strategy.aggregate_seconds).saturating_mul(SECOND_USEC)
    }
}

/// Averages that amounts are computed from, in addition to the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Averages {
    /// The whole node.
    pub node: Amounts,
    /// The system, without pods and host applications.
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

/// Replaces a window by an empty one and puts its mean into that.
fn refit(window: &mut Window, empty: &Window, now_usec: u64, span_usec: u64) {
    let mean = window.mean(now_usec, span_usec);
    *window = empty.clone();
    if let Some(mean) = mean {
        window.restore(now_usec, 0, &mean);
    }
}

#[cfg(test)]
mod tests;
