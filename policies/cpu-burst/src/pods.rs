//! The pods and containers with their observations, and the index from column rows to them.

use std::collections::BinaryHeap;

use qosm_sdk::{
    Alarm, Bandwidth, ContainerId, ContainerKind, ContainerState, CpuSample, KubeQos, Pod as NewPod, PodId, QosClass,
    Target, Trigger,
};

use crate::limiter::Bucket;
use crate::pool::{Average, rate};
use crate::protocol::{Mode, PodConfig};
use crate::responsive::StepHistory;
use crate::saved_state;
use crate::step::{Activity, Why};

const LEFT_OUT: &str = "annotation cpuBurst asks for it, but the policy leaves out pods of the classes LSE, LSR and BE; remove the annotation, \
                        or give the pod another QoS class";
const UNLIMITED: &str =
    "annotation cpuBurst asks for it, but no container of the pod has a CPU limit; set resources.limits.cpu";

/// A row of the bandwidth column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) quota: Option<u64>,
    pub(crate) baseline: Option<u64>,
    pub(crate) period_usec: u64,
}

impl Row {
    /// Quota in force and baseline, if both are limits. A quota that has been lifted must not be touched, since whatever lifted it (a
    /// kubelet without CFS quota, exclusive CPUs) did so on purpose.
    pub(crate) fn limited(&self) -> Option<(u64, u64)> {
        self.quota.zip(self.baseline)
    }
}

/// The decision for a container's knobs in this evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Hold nothing.
    #[default]
    Release,
    /// Leave the knobs as they are, since too little is known.
    Leave,
    /// The loop, the burst or both are on.
    Act {
        /// The quota and its reason; `None` = hold none.
        quota: Option<(u64, Why)>,
        /// The burst; 0 = hold none.
        burst: u64,
    },
}

impl Decision {
    /// Changes the decided quota, if there is one.
    pub(crate) fn change_quota(&mut self, change: impl FnOnce(u64) -> (u64, Why)) {
        if let Self::Act { quota: Some((quota, why)), .. } = self {
            (*quota, *why) = change(*quota);
        }
    }
}

/// A container.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    pub(crate) kind: ContainerKind,
    pub(crate) is_running: bool,
    /// CPU limit in thousandths of a CPU, the pod's if the container has none of its own; 0 = none.
    pub(crate) limit_milli: u64,
    has_exclusive_cpus: bool,
    pub(crate) key: u64,
    /// The quota above the baseline to hold, and its reason; `None` = hold none.
    pub(crate) chosen: Option<(u64, String)>,
    pub(crate) row: Option<Row>,
    /// Activity since the last step; `None` until something was measured.
    pub(crate) activity: Option<Activity>,
    /// The part of the activity before the last raise that an alarm caused.
    pub(crate) answered: Option<Activity>,
    /// Whether the container has just used up its quota.
    pub(crate) is_alarmed: bool,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) history: StepHistory,
    pub(crate) decision: Decision,
    /// The inputs of the last step; `None` if the loop is off.
    pub(crate) asked: Option<Asked>,
    /// Why the container is throttled and its quota was not raised in the last step; `None` otherwise.
    pub(crate) unmet: Option<String>,
}

/// The inputs of a step of the loop for one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Quota in force.
    pub(crate) current: u64,
    /// Highest quota allowed.
    pub(crate) ceil: u64,
    /// Whether its burst allowance is used up.
    pub(crate) refused: bool,
    /// Throttled periods in percent of all periods.
    pub(crate) throttled_percent: u64,
    /// `sharePoolThresholdPercent`.
    pub(crate) threshold_percent: u64,
}

/// A pod.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) id: PodId,
    /// The pod's configuration; `None` if there is none, or if the policy does not apply: LSE, LSR, BE, or ended.
    pub(crate) config: Option<PodConfig>,
    /// The knob that the pod's annotation asks for without effect, and why.
    pub(crate) without_effect: Option<(&'static str, &'static str)>,
    /// Whether all use of the pod is outside the share pool.
    is_outside: bool,
    /// CPUs that the pod takes out of the share pool, in thousandths of a CPU.
    pub(crate) reserved_milli: u64,
    pub(crate) containers: Vec<Container>,
    pub(crate) overhead_milli: u64,
    /// `spec.resources.limits.cpu`.
    pub(crate) limit_milli: Option<u64>,
    /// The limit that a kubelet computes from the containers' limits, including init containers and overhead.
    pub(crate) computed_limit_milli: u64,
    /// The reason for the burst of its containers.
    pub(crate) burst_reason: String,
    pub(crate) row: Option<Row>,
    /// Use outside the share pool within the window, in microseconds; `None` if there is none.
    used_outside_usec: Option<u64>,
    outside: Average,
}

/// Position of a container in [`Pods`], or of a pod (`container` is [`Place::POD`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) pod: usize,
    pub(crate) container: usize,
}

impl Place {
    const POD: usize = usize::MAX;
}

/// All pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    pub(crate) all: Vec<Pod>,
    /// Sorted by target.
    places: Vec<(Target, Place)>,
    // Rows come in the same order in each tick, so the place of the last tick's row is tried before the index is searched.
    cpu_places: Vec<Place>,
    bandwidth_places: Vec<Place>,
}

impl Pods {
    /// Adds new and changed pods, and drops removed ones. The state of containers that remain is kept.
    pub(crate) fn update(&mut self, upserted: Vec<NewPod<PodConfig>>, removed: &[PodId]) {
        for pod in upserted {
            match self.all.iter().position(|old| old.id == pod.id).and_then(|index| self.all.get_mut(index)) {
                Some(old) => *old = Pod::new(&pod, Some(old)),
                None => self.all.push(Pod::new(&pod, None)),
            }
        }
        self.all.retain(|pod| !removed.contains(&pod.id));
        let mut places = BinaryHeap::new();
        for (index, pod) in self.all.iter().enumerate() {
            places.push((Target::Pod(pod.id), Place { pod: index, container: Place::POD }));
            for (number, container) in pod.containers.iter().enumerate() {
                places.push((Target::Container(container.id), Place { pod: index, container: number }));
            }
        }
        self.places = places.into_sorted_vec();
        self.cpu_places.clear();
        self.bandwidth_places.clear();
    }

    /// Stores the quotas in force. A target without a row has no known quota.
    pub(crate) fn observe_quotas(&mut self, bandwidth: &[Bandwidth]) {
        for pod in &mut self.all {
            pod.row = None;
            pod.containers.iter_mut().for_each(|container| container.row = None);
        }
        for (index, row) in bandwidth.iter().enumerate() {
            let Some(place) = self.place_of(index, row.target) else { continue };
            let entry =
                Row { quota: row.quota_usec, baseline: row.baseline_quota_usec, period_usec: row.period_usec.max(1) };
            let Some(pod) = self.all.get_mut(place.pod) else { continue };
            match pod.containers.get_mut(place.container) {
                Some(container) => container.row = Some(entry),
                None => pod.row = Some(entry),
            }
        }
    }

    /// Adds the containers' use in one window.
    pub(crate) fn observe(&mut self, cpu: &[CpuSample], window_usec: u64) {
        self.all.iter_mut().for_each(|pod| pod.used_outside_usec = None);
        for (index, sample) in cpu.iter().enumerate() {
            let Some(place) = self.place_of_sample(index, sample.container) else { continue };
            let Some(pod) = self.all.get_mut(place.pod) else { continue };
            let Some(container) = pod.containers.get_mut(place.container) else { continue };
            container.activity.get_or_insert_default().add(Activity {
                window_usec,
                usage_usec: sample.usage_usec,
                nr_periods: sample.nr_periods,
                nr_throttled: sample.nr_throttled,
                throttled_usec: sample.throttled_usec,
            });
            if pod.is_outside || container.has_exclusive_cpus {
                let used = pod.used_outside_usec.get_or_insert_default();
                *used = used.saturating_add(sample.usage_usec);
            }
        }
    }

    /// Marks the containers that have just used up their quota.
    pub(crate) fn alarm(&mut self, alarms: &[Alarm]) {
        for container in self.all.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.is_alarmed = false;
        }
        for alarm in alarms.iter().filter(|alarm| alarm.trigger == Trigger::Throttling) {
            if let Some(place) = alarm.target.and_then(|target| self.search(target))
                && let Some(container) = self.container_mut(place)
            {
                container.is_alarmed = true;
            }
        }
    }

    /// The use outside the share pool: on average, and in this window; in millionths of a CPU.
    pub(crate) fn used_outside(&mut self, now_usec: u64, window_usec: u64) -> (u64, u64) {
        let (mut average, mut latest) = (0_u64, 0_u64);
        for pod in &mut self.all {
            if let Some(used) = pod.used_outside_usec {
                pod.outside.add(now_usec, window_usec, used);
                latest = latest.saturating_add(rate(used, window_usec).unwrap_or(0));
            }
            average = average.saturating_add(pod.outside.rate(now_usec).unwrap_or(0));
        }
        (average, latest)
    }

    /// Drops the activity since the last step.
    pub(crate) fn forget_activity(&mut self) {
        for container in self.all.iter_mut().flat_map(|pod| &mut pod.containers) {
            container.activity = None;
            container.answered = None;
        }
    }

    /// Drops the averages of the use outside the share pool.
    pub(crate) fn forget_use(&mut self) {
        self.all.iter_mut().for_each(|pod| pod.outside.clear());
    }

    /// The container at a place.
    pub(crate) fn container_mut(&mut self, place: Place) -> Option<&mut Container> {
        self.all.get_mut(place.pod)?.containers.get_mut(place.container)
    }

    fn place_of(&mut self, index: usize, target: Target) -> Option<Place> {
        let likely = self.bandwidth_places.get(index).copied().filter(|place| self.is_at(*place, target));
        likely.or_else(|| {
            let place = self.search(target)?;
            remember(&mut self.bandwidth_places, index, place);
            Some(place)
        })
    }

    fn place_of_sample(&mut self, index: usize, id: ContainerId) -> Option<Place> {
        let target = Target::Container(id);
        let likely = self.cpu_places.get(index).copied().filter(|place| self.is_at(*place, target));
        likely.or_else(|| {
            let place = self.search(target)?;
            remember(&mut self.cpu_places, index, place);
            Some(place)
        })
    }

    fn search(&self, target: Target) -> Option<Place> {
        let index = self.places.binary_search_by(|(known, _)| known.cmp(&target)).ok()?;
        self.places.get(index).map(|(_, place)| *place)
    }

    fn is_at(&self, place: Place, target: Target) -> bool {
        let Some(pod) = self.all.get(place.pod) else { return false };
        match target {
            Target::Container(id) => pod.containers.get(place.container).is_some_and(|container| container.id == id),
            Target::Pod(id) => place.container == Place::POD && pod.id == id,
            Target::Tier(_) => false,
        }
    }
}

fn remember(places: &mut Vec<Place>, index: usize, place: Place) {
    if places.len() <= index {
        places.resize(index + 1, Place { pod: usize::MAX, container: Place::POD });
    }
    places[index] = place;
}

impl Pod {
    fn new(pod: &NewPod<PodConfig>, old: Option<&mut Self>) -> Self {
        let reserves = matches!(pod.declared_qos, Some(QosClass::Lse | QosClass::Lsr));
        let is_outside = reserves || pod.declared_qos == Some(QosClass::Be);
        let mut known = Vec::new();
        let mut outside = Average::default();
        if let Some(old) = old {
            known = std::mem::take(&mut old.containers);
            outside = std::mem::take(&mut old.outside);
        }
        let containers: Vec<_> = pod
            .containers
            .iter()
            .map(|new| {
                let limit_milli = pod.cpu_limit_of(new).unwrap_or(0);
                let known = known.iter().position(|old| old.id == new.id).map(|index| known.swap_remove(index));
                Container::new(new, limit_milli, &pod.uid, known)
            })
            .collect();
        let burst_percent = pod.config.map_or(0, |config| config.cpu_burst_percent);
        Self {
            id: pod.id,
            config: pod.config.filter(|_| pod.active && !is_outside),
            without_effect: without_effect(pod, is_outside),
            is_outside,
            reserved_milli: reserved_milli(pod, reserves),
            containers,
            overhead_milli: pod.cpu_overhead_milli,
            limit_milli: pod.cpu_limit_milli.filter(|limit| *limit > 0),
            computed_limit_milli: together(pod, |container| container.cpu_limit_milli),
            burst_reason: format!("{burst_percent} % of the CPU limit"),
            row: None,
            used_outside_usec: None,
            outside,
        }
    }

    /// Whether one of the two mechanisms is on.
    pub(crate) fn is_wanted(&self) -> bool {
        self.config.is_some_and(|config| config.policy != Mode::None)
    }
}

/// The knob that an annotation asks for without effect, and why. The cluster's configuration is not meant for each single pod.
fn without_effect(pod: &NewPod<PodConfig>, is_outside: bool) -> Option<(&'static str, &'static str)> {
    let policy = pod.config.filter(|_| pod.active && pod.annotated)?.policy;
    let knob = match policy {
        Mode::None => return None,
        Mode::Auto | Mode::Burst => "cpu.burst",
        Mode::Quota => "cpu.quota",
    };
    let is_unlimited = pod.containers.iter().all(|container| pod.cpu_limit_of(container).unwrap_or(0) == 0);
    if is_outside { Some((knob, LEFT_OUT)) } else { is_unlimited.then_some((knob, UNLIMITED)) }
}

impl Container {
    /// The activity since the last step that no raise has answered yet.
    pub(crate) fn unanswered(&self) -> Option<Activity> {
        self.activity.map(|activity| self.answered.map_or(activity, |answered| activity.since(&answered)))
    }

    fn new(new: &qosm_sdk::Container, limit_milli: u64, pod_uid: &str, known: Option<Self>) -> Self {
        let fresh = Self {
            id: new.id,
            kind: new.kind,
            is_running: new.state == ContainerState::Running,
            limit_milli,
            has_exclusive_cpus: new.exclusive_cpus.is_some(),
            key: saved_state::key(pod_uid, &new.name),
            chosen: None,
            row: None,
            activity: None,
            answered: None,
            is_alarmed: false,
            bucket: None,
            history: StepHistory::default(),
            decision: Decision::default(),
            asked: None,
            unmet: None,
        };
        match known {
            Some(old) => Self {
                chosen: old.chosen,
                activity: old.activity,
                answered: old.answered,
                bucket: old.bucket,
                history: old.history,
                ..fresh
            },
            None => fresh,
        }
    }
}

/// CPUs that a pod takes out of the share pool: the whole request of an LSE or LSR pod, and the CPUs that the kubelet assigned to single
/// containers. A pod that has ended takes none. In thousandths of a CPU.
fn reserved_milli(pod: &NewPod<PodConfig>, reserves: bool) -> u64 {
    if !pod.active {
        return 0;
    }
    let exclusive = pod
        .containers
        .iter()
        .filter(|container| container.state != ContainerState::Terminated)
        .filter_map(|container| container.exclusive_cpus)
        .fold(0_u64, |sum, cpus| sum.saturating_add(u64::from(cpus) * 1_000));
    if reserves {
        // The API server defaults an unset request to the limit; a directory of manifests does not.
        let asked = |container: &qosm_sdk::Container| container.cpu_request_milli.or(container.cpu_limit_milli);
        // The pod-level request is what the scheduler counts. Only of a Guaranteed pod it is known to equal the limit: what others write as
        // their limit is given to nobody.
        let limit = pod.cpu_limit_milli.filter(|_| pod.kube_qos == KubeQos::Guaranteed);
        let of_pod = limit.map_or(0, |limit| limit.saturating_add(pod.cpu_overhead_milli));
        exclusive.max(together(pod, asked)).max(of_pod)
    } else {
        exclusive
    }
}

/// The amount that Kubernetes counts for a pod: regular containers and sidecars together, or the largest init container with the sidecars
/// started before it, plus the overhead.
fn together(pod: &NewPod<PodConfig>, amount: impl Fn(&qosm_sdk::Container) -> Option<u64>) -> u64 {
    let (mut regular, mut beside, mut peak) = (0_u64, 0_u64, 0_u64);
    for container in &pod.containers {
        let amount = amount(container).unwrap_or(0);
        match container.kind {
            ContainerKind::Regular => regular = regular.saturating_add(amount),
            ContainerKind::Sidecar => {
                beside = beside.saturating_add(amount);
                peak = peak.max(beside);
            }
            ContainerKind::Init => peak = peak.max(beside.saturating_add(amount)),
        }
    }
    regular.saturating_add(beside).max(peak).saturating_add(pod.cpu_overhead_milli)
}
