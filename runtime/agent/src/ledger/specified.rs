//! Values that follow from a pod's specification: those that the kubelet, or the runtime for it, writes.

use qosm_host::knob_table::{Group, SpecifiedBy, TABLE, row};
use qosm_host::{Bandwidth, Host};
use qosm_model::knob::{Knob, Target, Value};
use qosm_model::pod::{KubeQos, Moment, PodId, Tier};
use qosm_model::unit::{Bytes, MilliCpu};

use crate::inputs::Inputs;
use crate::kubelet_memory;
use crate::ledger::resolved::number;
use crate::ledger::{Key, Ledger};
use crate::table::{PodEntry, PodTable, RESIZE_MILLIS};

impl Ledger {
    /// Whether a value is what the kubelet, or the runtime for it, writes for the pod's current specification.
    pub(super) fn is_specified(
        &self,
        host: &Host,
        inputs: &Inputs<'_>,
        target: Target,
        knob: Knob,
        found: Value,
    ) -> bool {
        match row(knob).specified_by {
            None => false,
            Some(SpecifiedBy::Memory) => {
                is_kubelets_memory(host, inputs, self.memory_capacity, target, knob, found)
                    || is_being_resized(inputs, target)
            }
            Some(SpecifiedBy::MemoryLimit) => specified_memory(host, inputs, target).contains(&found),
            // The kubelet itself chooses the list that containers share; a person does not write it to one container after the other.
            Some(SpecifiedBy::CpuManager) => matches!(target, Target::Container(_)),
            Some(SpecifiedBy::CpuLimit) => self.specified_quotas(host, inputs.pods, target).contains(&found),
            Some(SpecifiedBy::CpuRequest) => Moment::ALL.into_iter().any(|moment| {
                requested(inputs, target, moment)
                    .is_some_and(|request| host.requested_weights(request).contains(&found))
            }),
        }
    }

    /// The baseline of a knob that holds `written`. A CFS quota that is just what the pod's limit gives becomes the baseline: a kubelet
    /// that resizes the pod writes the same value, which is not visible, and does not write it again. The kubelet and systemd write
    /// slightly different quotas for one limit: a baseline that is one of them stays. A baseline of `max` stays, since the kubelet sets
    /// no quota there; and a resize that the kubelet has not carried out yet does not count.
    ///
    /// A pod that was just given more has what its limits give as its baseline, once it holds that much: its containers hold their new
    /// quotas, and the old one of the pod would be below theirs, which cgroup v1 refuses. Without a resize, a lower quota is that of a
    /// person.
    pub(super) fn baseline_under(
        &self,
        host: &Host,
        inputs: &Inputs<'_>,
        (target, knob): Key,
        baseline: Value,
        written: Value,
    ) -> Value {
        let is_quota = row(knob).specified_by == Some(SpecifiedBy::CpuLimit);
        if !is_quota || baseline == Value::Max || baseline == written {
            return baseline;
        }
        let given = self.quotas_at(host, inputs.pods, target, Moment::Now);
        if given.contains(&baseline) {
            return baseline;
        }
        let is_resized_pod = matches!(target, Target::Pod(_)) && inputs.pods.is_cpu_being_resized(target);
        match given.first() {
            _ if given.contains(&written) => written,
            Some(&least) if is_resized_pod && baseline < least && least < written => least,
            _ => baseline,
        }
    }

    /// The quotas that the kubelet, or the runtime for it, writes for the pod's resources now and after a pending resize.
    fn specified_quotas(&self, host: &Host, pods: &PodTable, target: Target) -> Vec<Value> {
        Moment::ALL.into_iter().flat_map(|moment| self.quotas_at(host, pods, target, moment)).collect()
    }

    /// The quotas that are written for the limit at a moment, the lowest first; empty if there is no limit.
    pub(super) fn quotas_at(&self, host: &Host, pods: &PodTable, target: Target, moment: Moment) -> Vec<Value> {
        let Some(bandwidth) = self.quotas.get(target) else { return Vec::new() };
        let limit = match target {
            Target::Container(id) => pods
                .owner(id)
                .and_then(|(entry, place)| entry.pod.resources_of(entry.pod.containers.get(place)?, moment).cpu_limit),
            Target::Pod(id) => pods.get(id).and_then(|entry| entry.pod.cpu_limited(moment)),
            Target::Node | Target::Tier(_) => None,
        };
        let limit = limit.filter(|limit| limit.0 > 0);
        limit.map(|limit| host.limit_quotas(limit, bandwidth.period)).unwrap_or_default()
    }
}

/// The most that a knob may hold, so that the kubelet can make its next write.
pub(super) struct OwnersNext {
    pub(super) most: Value,
    pub(super) why: String,
}

impl Ledger {
    /// Marks the CPU knobs of resized pods to be resolved again, so that they do not block the kubelet's writes.
    pub(crate) fn touch_cpu(&mut self, pods: &PodTable, resized: &[PodId]) {
        let are_of_cpu = |group: Group| matches!(group, Group::Bandwidth | Group::Weight);
        let knobs = || TABLE.iter().filter(|row| are_of_cpu(row.group)).map(|row| row.knob);
        let targets = resized.iter().filter_map(|id| pods.get(*id)).flat_map(PodEntry::targets);
        let keys: Vec<Key> = targets.flat_map(|target| knobs().map(move |knob| (target, knob))).collect();
        let keys: Vec<Key> = keys.into_iter().filter(|key| self.leads(*key)).collect();
        self.dirty.extend(keys);
    }

    /// Keeps bandwidth and `cpu.idle` out of the kubelet's way. The kernel refuses a quota below the burst of the same cgroup, and on
    /// cgroup v1 one below those of the groups in it: a refused write leaves a resize undone for ever.
    ///
    /// - A burst stays within the least quota that may be written next: the baseline, what the limits give now, and what they are to
    ///   give. Where there is no quota there is no burst, or the first limit could not be set.
    /// - While CPU of a pod shrinks, no quota in it is above its baseline: as long as its status has the former limit, and for a minute after
    ///   the specification changed, since not every server says what is in force. A quota that another agent left above what the limit
    ///   gives is no shrinking.
    /// - `cpu.idle` is lifted while another weight is to come, which the kernel refuses of an idle cgroup.
    pub(super) fn owners_next(
        &mut self,
        host: &mut Host,
        inputs: &Inputs<'_>,
        (target, knob): Key,
    ) -> Option<OwnersNext> {
        if matches!(target, Target::Node | Target::Tier(_)) {
            return None;
        }
        if row(knob).masks().is_some() && is_weight_next(inputs.pods, target) {
            let why =
                "another CPU request is asked for: it is lifted until the kubelet has written the weight".to_owned();
            return Some(OwnersNext { most: Value::Number(0), why });
        }
        if row(knob).group != Group::Bandwidth {
            return None;
        }
        let found = self.baseline(host, target, Bandwidth::KNOB)?;
        if row(knob).is_within_quota() {
            if !host.burst_holds_back_quota() {
                return None;
            }
            let least = self.specified_quotas(host, inputs.pods, target).into_iter().fold(found, Ord::min);
            return Some(match least {
                Value::Max => OwnersNext {
                    most: Value::Number(0),
                    why: "there is no quota, and the kernel would refuse the first one below the burst".to_owned(),
                },
                least if least == found => OwnersNext {
                    most: least,
                    why: format!("this kernel takes no burst above the quota, which is {least} µs"),
                },
                least => OwnersNext {
                    most: least,
                    why: format!(
                        "the kubelet may write a quota of {least} µs next, which this kernel takes only above the burst"
                    ),
                },
            });
        }
        let pod = inputs.pods.of(target).map(|entry| Target::Pod(entry.id))?;
        let (next, awaited) = [target, pod].into_iter().find_map(|of| {
            // Without a quota the kubelet sets none: the CPUs are exclusive, or quotas are off.
            let found = self.baseline(host, of, knob).filter(|found| *found != Value::Max)?;
            let [given, asked] =
                [Moment::Now, Moment::Next].map(|moment| self.quotas_at(host, inputs.pods, of, moment));
            let next = asked.iter().copied().max()?;
            let is_told = given.into_iter().max().is_some_and(|given| next < given);
            let is_asked = is_told || inputs.pods.is_cpu_being_resized(of);
            if is_asked && next < found {
                Some((next, "the kubelet has set it"))
            } else {
                // It has, and the status still has the former limit, which a policy would raise the quota to.
                (is_told && asked.contains(&found)).then_some((found, "the pod's status says so"))
            }
        })?;
        Some(OwnersNext {
            most: found,
            why: format!("a quota of {next} is asked for: nothing is raised until {awaited}"),
        })
    }
}

fn is_kubelets_memory(
    host: &Host,
    inputs: &Inputs<'_>,
    capacity: Option<Bytes>,
    target: Target,
    knob: Knob,
    found: Value,
) -> bool {
    let allocatable = inputs.memory_allocatable.or(capacity);
    let ground = kubelet_memory::Ground { allocatable, page: host.page_size() };
    Moment::ALL.into_iter().any(|moment| match target {
        Target::Container(id) => inputs.pods.owner(id).is_some_and(|(entry, place)| {
            let container = entry.pod.containers.get(place);
            let resources = container.map(|container| entry.pod.resources_of(container, moment));
            resources.is_some_and(|resources| kubelet_memory::of_container(resources, knob, found, ground))
        }),
        Target::Pod(id) => {
            inputs.pods.get(id).is_some_and(|entry| kubelet_memory::of_pod(&entry.pod, moment, knob, found, ground))
        }
        Target::Node | Target::Tier(_) => false,
    })
}

/// The memory limits that the kubelet, or the runtime for it, writes for the pod's resources now and after a pending resize.
fn specified_memory(host: &Host, inputs: &Inputs<'_>, target: Target) -> Vec<Value> {
    let page = host.page_size().0.max(1);
    let written = |limit: Option<Bytes>| {
        let limit = limit.filter(|limit| limit.0 > 0);
        limit.map_or(Value::Max, |limit| Value::Number(number(limit.0 / page * page)))
    };
    let at = |moment: Moment| match target {
        Target::Container(id) => {
            let (entry, place) = inputs.pods.owner(id)?;
            Some(written(entry.pod.resources_of(entry.pod.containers.get(place)?, moment).memory_limit))
        }
        Target::Pod(id) => Some(written(inputs.pods.get(id)?.pod.memory_limited(moment))),
        Target::Node | Target::Tier(_) => None,
    };
    Moment::ALL.into_iter().filter_map(at).collect()
}

/// Whether a pending resize gives a container another weight, which the kubelet has yet to write.
pub(super) fn is_weight_next(pods: &PodTable, target: Target) -> bool {
    let Target::Container(id) = target else { return false };
    pods.owner(id).is_some_and(|(entry, place)| {
        entry.pod.containers.get(place).is_some_and(|container| {
            let [now, next] = Moment::ALL.map(|moment| {
                let resources = entry.pod.resources_of(container, moment);
                resources.cpu_request.or(resources.cpu_limit)
            });
            now != next
        })
    })
}

/// Whether the memory of the target's pod was resized within the last [`RESIZE_MILLIS`]: the kubelet may still be writing.
fn is_being_resized(inputs: &Inputs<'_>, target: Target) -> bool {
    inputs.pods.resized(target).is_some_and(|then| inputs.now.wall.0.saturating_sub(then.0) <= RESIZE_MILLIS)
}

/// The CPU request of a container, pod or tier, from which the kubelet derives the weight. `None` for the tier of all pods, whose weight
/// follows from the node.
fn requested(inputs: &Inputs<'_>, target: Target, moment: Moment) -> Option<MilliCpu> {
    match target {
        Target::Container(id) => {
            let (entry, place) = inputs.pods.owner(id)?;
            let resources = entry.pod.resources_of(entry.pod.containers.get(place)?, moment);
            Some(resources.cpu_request.or(resources.cpu_limit).unwrap_or_default())
        }
        Target::Pod(id) => Some(inputs.pods.get(id)?.pod.cpu_requested(moment)),
        Target::Tier(Tier::Burstable) => {
            let burstable = inputs.pods.iter().filter(|entry| entry.pod.active);
            let requests = burstable.filter(|entry| entry.pod.kube_qos == KubeQos::Burstable);
            Some(MilliCpu(requests.map(|entry| entry.pod.cpu_requested(moment).0).fold(0, u64::saturating_add)))
        }
        Target::Tier(Tier::BestEffort) => Some(MilliCpu(0)),
        Target::Node | Target::Tier(Tier::Guaranteed) => None,
    }
}
