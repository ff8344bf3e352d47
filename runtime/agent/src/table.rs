//! The table of pods and containers, with their ids and whether their cgroups are open.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use qosm_model::knob::Target;
use qosm_model::lease::Timestamp;
use qosm_model::pod::{Container, ContainerId, ContainerState, KubeQos, Moment, Pod, PodId, Resources};
use qosm_model::problem::Problem;

use crate::pause;
use crate::pause::Pause;

use self::claims::Claims;

pub(crate) use self::claims::{WITHOUT_CGROUP, is_without_cgroup};
pub(crate) use self::pauses::PauseChanges;

/// Time after a pod was resized in which a write of its resources is attributed to the kubelet.
pub(crate) const RESIZE_MILLIS: i64 = 60_000;

/// A container of a pod in the table.
#[derive(Clone, Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) id: ContainerId,
    /// Whether its cgroup exists and is open.
    pub(crate) attached: bool,
    /// Number of CPUs that the kubelet gave to it exclusively.
    pub(crate) exclusive_cpus: Option<u32>,
}

/// A pod in the table.
#[derive(Clone, Debug)]
pub(crate) struct PodEntry {
    pub(crate) id: PodId,
    /// The pod as the source lists it.
    pub(crate) pod: Pod,
    /// The pod as policies see it: a container whose cgroup does not exist yet is still waiting.
    pub(crate) view: Pod,
    /// Parallel to `pod.containers`.
    pub(crate) containers: Vec<ContainerEntry>,
    /// Whether the pod's own cgroup exists and is open.
    pub(crate) attached: bool,
    /// Whether the agent made its cgroups, and removes them again.
    pub(crate) is_created: bool,
    /// A limit that the kernel refused when the agent made its cgroups or resized them.
    pub(crate) refused_limit: Option<Problem>,
    /// Whether policies may act on it.
    pub(crate) access: Access,
}

/// Whether policies may act on a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// Policies may act on it.
    #[default]
    Open,
    /// Paused: policies see it as it was when the pause began, so that the values that they compute for the groups above it still
    /// count it. A pod that was paused from the start counts as not configured.
    Paused,
    /// In a namespace that the guard rails protect: counts as not configured.
    Protected,
}

impl PodEntry {
    /// Updates the view after cgroups were attached. Returns `true` if that changes it.
    pub(crate) fn refresh_view(&mut self) -> bool {
        let mut view = self.pod.clone();
        for (container, entry) in view.containers.iter_mut().zip(&self.containers) {
            if container.state == ContainerState::Running && !entry.attached {
                container.state = ContainerState::Waiting;
            }
        }
        let changed = view != self.view;
        self.view = view;
        changed
    }

    /// Whether all cgroups that could exist are attached.
    pub(crate) fn complete(&self) -> bool {
        !self.pod.active
            || (self.attached
                && self
                    .pod
                    .containers
                    .iter()
                    .zip(&self.containers)
                    .all(|(given, entry)| entry.attached || given.state != ContainerState::Running))
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        std::iter::once(Target::Pod(self.id)).chain(self.containers.iter().map(|entry| Target::Container(entry.id)))
    }
}

/// A container that is gone while its pod stays: restarted, or taken out of the specification.
#[derive(Clone, Debug)]
pub(crate) struct GoneContainer {
    pub(crate) id: ContainerId,
    pub(crate) pod: PodId,
    pub(crate) name: String,
}

/// What an update of the sources changed.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Pods that are new or differ.
    pub(crate) upserted: Vec<PodId>,
    /// Pods that are gone, with their entries for cleaning up.
    pub(crate) removed: Vec<PodEntry>,
    /// Pods whose memory was resized, in the specification or in the status.
    pub(crate) resized: Vec<PodId>,
    /// Pods whose CPU was resized, in the specification or in the status.
    pub(crate) cpu_resized: Vec<PodId>,
    /// Containers that are gone from pods that stay, with the pod and their names.
    pub(crate) gone: Vec<GoneContainer>,
    /// Pods that were not added, because another pod has their UID.
    pub(crate) refused: Vec<RefusedPod>,
}

/// A pod that was not added.
#[derive(Clone, Debug)]
pub(crate) struct RefusedPod {
    pub(crate) pod: Pod,
    /// Namespace and name of the pod that has its UID.
    pub(crate) holder: String,
}

impl RefusedPod {
    pub(crate) fn problem(&self) -> Problem {
        let Self { pod, holder } = self;
        Problem {
            object: format!("pod {}", pod.key()),
            field: Some("metadata.uid".to_owned()),
            message: format!("pod {holder} has the UID {}; this pod is left alone, give it a UID of its own", pod.uid),
        }
    }
}

/// A summary of all pods for each tick, so that a tick need not iterate over them: that alone would cost as much as many reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Containers whose cgroups are open, in the order of their ids.
    pub(crate) running: Vec<ContainerId>,
    /// The open cgroups of active pods and of their containers.
    pub(crate) groups: Vec<Target>,
    /// Containers whose cgroups are open and that could have exclusive CPUs.
    pub(crate) pinnable: Vec<ContainerId>,
    /// Pods that wait for a cgroup.
    pub(crate) incomplete: Vec<PodId>,
    /// Pods that carry the annotation of a pause.
    pub(crate) annotated: Vec<PodId>,
}

/// The amounts of a resource that a pod and its containers have now, and are to have next.
fn amounts_of<T>(pod: &Pod, of: impl Fn(Resources) -> T) -> ([T; 2], Vec<(String, [T; 2])>) {
    let containers = pod.containers.iter();
    let of_container = |container: &Container| Moment::ALL.map(|moment| of(container.resources(moment)));
    (
        Moment::ALL.map(|moment| of(pod.resources(moment))),
        containers.map(|container| (container.name.clone(), of_container(container))).collect(),
    )
}

/// Whether memory, and CPU, of two versions of a pod differ.
fn resized(before: &Pod, now: &Pod) -> (bool, bool) {
    let memory = |pod: &Pod| amounts_of(pod, |resources| (resources.memory_request, resources.memory_limit));
    let cpu = |pod: &Pod| amounts_of(pod, |resources| (resources.cpu_request, resources.cpu_limit));
    (memory(before) != memory(now), cpu(before) != cpu(now))
}

/// All pods of the node. A copy of the table shares the entries with it until they change.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodTable {
    standing: Standing,
    /// Whether the standing is out of date.
    changed: bool,
    by_uid: HashMap<String, PodId>,
    entries: BTreeMap<PodId, Arc<PodEntry>>,
    owners: HashMap<ContainerId, (PodId, usize)>,
    next_pod: u32,
    next_container: u32,
    /// Pods that are paused.
    pauses: HashMap<PodId, Pause>,
    /// Pauses by an operator, by `namespace/name`, whether or not the pod exists.
    operator_pauses: BTreeMap<String, Pause>,
    are_pauses_ended: bool,
    /// Pods that are gone, until their cgroups are closed.
    leaving: Vec<PodEntry>,
    leaving_containers: Vec<GoneContainer>,
    /// Cgroups that pods claim and do not get.
    claims: Claims,
    /// When the memory of pods was last resized.
    resized: HashMap<PodId, Timestamp>,
    /// When the CPU of pods was last resized, as long as the kubelet may still be applying that.
    cpu_resized: HashMap<PodId, Timestamp>,
}

impl PodTable {
    pub(crate) fn get(&self, id: PodId) -> Option<&PodEntry> {
        self.entries.get(&id).map(Arc::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: PodId) -> Option<&mut PodEntry> {
        self.changed = true;
        self.entries.get_mut(&id).map(Arc::make_mut)
    }

    /// Pods that are new or differ, and pods that are gone, since the table was copied.
    pub(crate) fn since(&self, earlier: &Self) -> (Vec<PodId>, Vec<PodId>) {
        let same = |id: &PodId, entry: &Arc<PodEntry>| {
            earlier.entries.get(id).is_some_and(|before| Arc::ptr_eq(before, entry))
        };
        let upserted = self.entries.iter().filter(|(id, entry)| !same(id, entry)).map(|(id, _)| *id).collect();
        let gone = earlier.entries.keys().filter(|id| !self.entries.contains_key(id)).copied().collect();
        (upserted, gone)
    }

    /// The summary of all pods, computed again if something changed.
    pub(crate) fn standing(&mut self) -> &Standing {
        if std::mem::take(&mut self.changed) {
            let Standing { running, groups, pinnable, incomplete, annotated } = &mut self.standing;
            running.clear();
            groups.clear();
            pinnable.clear();
            incomplete.clear();
            annotated.clear();
            for entry in self.entries.values() {
                let open = || entry.containers.iter().filter(|container| container.attached).map(|open| open.id);
                running.extend(open());
                pinnable.extend(self::pinnable(entry));
                if entry.pod.active {
                    groups.extend(entry.attached.then_some(Target::Pod(entry.id)));
                    groups.extend(open().map(Target::Container));
                }
                if !entry.complete() {
                    incomplete.push(entry.id);
                }
                if pause::is_annotated(&entry.pod) {
                    annotated.push(entry.id);
                }
            }
            running.sort_unstable();
        }
        &self.standing
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PodEntry> {
        self.entries.values().map(Arc::as_ref)
    }

    pub(crate) fn ids(&self) -> Vec<PodId> {
        self.entries.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Targets that are gone and still open, pods with their containers first.
    pub(crate) fn leaving_targets(&self) -> Vec<Target> {
        let pods = self.leaving.iter().flat_map(PodEntry::targets);
        pods.chain(self.leaving_containers.iter().map(|gone| Target::Container(gone.id))).collect()
    }

    /// Takes out the pods that are gone, and the containers that are gone from pods that stay.
    pub(crate) fn take_leaving(&mut self) -> (Vec<PodEntry>, Vec<GoneContainer>) {
        (std::mem::take(&mut self.leaving), std::mem::take(&mut self.leaving_containers))
    }

    /// Keeps pods and containers that are gone until their cgroups are closed.
    pub(crate) fn leave(&mut self, removed: Vec<PodEntry>, gone: Vec<GoneContainer>) {
        for entry in removed {
            self.pauses.remove(&entry.id);
            self.resized.remove(&entry.id);
            self.cpu_resized.remove(&entry.id);
            for target in entry.targets() {
                self.forget_claim(target);
            }
            self.leaving.push(entry);
        }
        for container in &gone {
            self.forget_claim(Target::Container(container.id));
        }
        self.leaving_containers.extend(gone);
    }

    /// Records pods whose memory, and pods whose CPU, was resized.
    pub(crate) fn note_resized(&mut self, memory: Vec<PodId>, cpu: &[PodId], now: Timestamp) {
        self.resized.extend(memory.into_iter().map(|id| (id, now)));
        self.cpu_resized.extend(cpu.iter().map(|id| (*id, now)));
    }

    /// Whether the CPU of the pod that a target is or belongs to was resized so recently that the kubelet may still be applying that.
    pub(crate) fn is_cpu_being_resized(&self, target: Target) -> bool {
        self.of(target).is_some_and(|entry| self.cpu_resized.contains_key(&entry.id))
    }

    /// Forgets CPU resizes that are over by now, and returns their pods.
    pub(crate) fn cpu_resizes_over(&mut self, now: Timestamp) -> Vec<PodId> {
        let is_over = |since: &Timestamp| now.0.saturating_sub(since.0) > RESIZE_MILLIS;
        self.cpu_resized.extract_if(|_, since| is_over(since)).map(|(id, _)| id).collect()
    }

    /// When the memory of the pod that a target is or belongs to was last resized.
    pub(crate) fn resized(&self, target: Target) -> Option<Timestamp> {
        self.resized.get(&self.of(target)?.id).copied()
    }

    /// Marks pods in namespaces that policies must not touch.
    pub(crate) fn protect(&mut self, pods: &[PodId], namespaces: &BTreeSet<String>) {
        for &id in pods {
            if let Some(entry) = self.get_mut(id)
                && namespaces.contains(&entry.pod.namespace)
            {
                entry.access = Access::Protected;
            }
        }
    }

    /// Records that cgroups of a pod and its containers are open.
    pub(crate) fn attach(&mut self, id: PodId, opened: &[Target]) {
        let Some(entry) = self.get_mut(id) else { return };
        for &target in opened {
            match target {
                Target::Pod(_) => entry.attached = true,
                Target::Container(container) => {
                    if let Some(known) = entry.containers.iter_mut().find(|known| known.id == container) {
                        known.attached = true;
                    }
                }
                Target::Node | Target::Tier(_) => {}
            }
        }
        entry.refresh_view();
    }

    /// Containers with open cgroups of the active pods for which `is_wanted` returns `true`, in the order of their ids.
    pub(crate) fn containers_of(&self, is_wanted: impl Fn(PodId) -> bool) -> Vec<ContainerId> {
        let entries = self.iter().filter(|entry| entry.pod.active && is_wanted(entry.id));
        let open = entries.flat_map(|entry| entry.containers.iter().filter(|container| container.attached));
        let mut containers: Vec<_> = open.map(|container| container.id).collect();
        containers.sort_unstable();
        containers
    }

    /// Containers whose cgroups are open, pod by pod.
    pub(crate) fn open_containers(&self) -> impl Iterator<Item = ContainerId> {
        let containers = self.iter().flat_map(|entry| &entry.containers);
        containers.filter(|container| container.attached).map(|container| container.id)
    }

    /// The pod that a container belongs to, and its place in it.
    pub(crate) fn owner(&self, container: ContainerId) -> Option<(&PodEntry, usize)> {
        let &(pod, place) = self.owners.get(&container)?;
        self.get(pod).map(|entry| (entry, place))
    }

    /// The pod that a target is or belongs to; `None` for the node, for tiers and for what is gone.
    pub(crate) fn of(&self, target: Target) -> Option<&PodEntry> {
        match target {
            Target::Node | Target::Tier(_) => None,
            Target::Pod(id) => self.get(id),
            Target::Container(id) => self.owner(id).map(|(entry, _)| entry),
        }
    }

    /// A new id for a cgroup that no pod claims.
    pub(crate) fn spare_pod_id(&mut self) -> PodId {
        self.next_pod = self.next_pod.saturating_add(1);
        PodId(self.next_pod)
    }

    /// A new id for a container.
    pub(crate) fn spare_container_id(&mut self) -> ContainerId {
        self.next_container = self.next_container.saturating_add(1);
        ContainerId(self.next_container)
    }

    /// Replaces the pods by those that a source lists now. Containers that a status shows under another id count as new ones.
    ///
    /// There is one pod per UID: the first in the list. The others are refused. The source of the list knows which pod owns the UID.
    pub(crate) fn update(&mut self, pods: Vec<Pod>) -> Changes {
        self.changed = true;
        let mut changes = Changes::default();
        let mut stale: HashMap<String, PodId> = std::mem::take(&mut self.by_uid);
        for pod in pods {
            if let Some(holder) = self.by_uid.get(&pod.uid).and_then(|id| self.entries.get(id)) {
                let holder = holder.pod.key();
                changes.refused.push(RefusedPod { pod, holder });
                continue;
            }
            // A pod that has another name and the same UID is a different pod, and takes over nothing that was held for the earlier one.
            let is_same = |id: &PodId| self.entries.get(id).is_some_and(|entry| entry.pod.key() == pod.key());
            let known = stale.get(&pod.uid).copied().filter(is_same);
            let id = match known {
                Some(id) => {
                    stale.remove(&pod.uid);
                    self.by_uid.insert(pod.uid.clone(), id);
                    if self.entries.get(&id).is_some_and(|entry| entry.pod == pod) {
                        continue;
                    }
                    let (memory, cpu) = self.entries.get(&id).map_or((false, false), |entry| resized(&entry.pod, &pod));
                    changes.resized.extend(memory.then_some(id));
                    changes.cpu_resized.extend(cpu.then_some(id));
                    self.replace(id, pod, &mut changes.gone);
                    id
                }
                None => {
                    let id = self.spare_pod_id();
                    self.by_uid.insert(pod.uid.clone(), id);
                    self.insert(id, pod);
                    id
                }
            };
            changes.upserted.push(id);
        }
        let mut removed: Vec<PodId> = stale.into_values().collect();
        removed.sort_unstable();
        for id in removed {
            if let Some(entry) = self.entries.remove(&id) {
                for container in &entry.containers {
                    self.owners.remove(&container.id);
                }
                changes.removed.push(Arc::unwrap_or_clone(entry));
            }
        }
        changes
    }

    fn insert(&mut self, id: PodId, pod: Pod) {
        let containers = pod.containers.iter().map(|_| self.fresh_container()).collect();
        let mut entry = PodEntry {
            id,
            view: pod.clone(),
            pod,
            containers,
            attached: false,
            is_created: false,
            refused_limit: None,
            access: Access::Open,
        };
        entry.refresh_view();
        self.own(&entry);
        self.entries.insert(id, Arc::new(entry));
    }

    fn replace(&mut self, id: PodId, pod: Pod, gone: &mut Vec<GoneContainer>) {
        let Some(mut entry) = self.entries.remove(&id).map(Arc::unwrap_or_clone) else { return self.insert(id, pod) };
        let mut old: Vec<_> = entry.pod.containers.iter().zip(std::mem::take(&mut entry.containers)).collect();
        let containers = pod
            .containers
            .iter()
            .map(|container| {
                let same = old.iter().position(|(was, _)| was.name == container.name && was.cgroup == container.cgroup);
                match same {
                    Some(place) => old.swap_remove(place).1,
                    None => self.fresh_container(),
                }
            })
            .collect();
        for (was, container) in old {
            self.owners.remove(&container.id);
            gone.push(GoneContainer { id: container.id, pod: id, name: was.name.clone() });
        }
        entry.containers = containers;
        entry.pod = pod;
        entry.refresh_view();
        self.own(&entry);
        self.entries.insert(id, Arc::new(entry));
    }

    /// Gives a container whose cgroup vanished a new id: if it comes back, it is another container. Returns its pod.
    pub(crate) fn renew_container(&mut self, container: ContainerId) -> Option<PodId> {
        self.changed = true;
        let (pod, place) = self.owners.remove(&container)?;
        let fresh = self.fresh_container();
        self.owners.insert(fresh.id, (pod, place));
        let entry = self.get_mut(pod)?;
        *entry.containers.get_mut(place)? = fresh;
        entry.refresh_view();
        Some(pod)
    }

    fn fresh_container(&mut self) -> ContainerEntry {
        ContainerEntry { id: self.spare_container_id(), attached: false, exclusive_cpus: None }
    }

    fn own(&mut self, entry: &PodEntry) {
        for (place, container) in entry.containers.iter().enumerate() {
            self.owners.insert(container.id, (entry.id, place));
        }
    }
}

/// Containers of a pod that could have exclusive CPUs.
fn pinnable(entry: &PodEntry) -> impl Iterator<Item = ContainerId> {
    let open = entry.containers.iter().enumerate().filter(|(_, container)| container.attached);
    open.filter(|(place, _)| pinnable_cpus(&entry.pod, *place).is_some()).map(|(_, container)| container.id)
}

/// Number of CPUs that the kubelet's static policy would give exclusively to a container: the limit, if the pod is Guaranteed and the limit
/// is a whole number of CPUs.
pub(crate) fn pinnable_cpus(pod: &Pod, place: usize) -> Option<u32> {
    let container = pod.containers.get(place)?;
    let limit = container.cpu_limit?.0;
    let is_whole = pod.kube_qos == KubeQos::Guaranteed && limit > 0 && limit % 1000 == 0;
    let runs = pod.active && container.state == ContainerState::Running;
    (is_whole && runs).then(|| u32::try_from(limit / 1000).ok())?
}

mod claims;
mod pauses;
mod subject;

#[cfg(test)]
mod tests;
