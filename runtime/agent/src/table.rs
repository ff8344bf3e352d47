//! The table of pods and containers: who has which id, and whose cgroups are at hand.

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

/// Time after a pod's resources were specified again in which a write of them is taken for the kubelet's.
pub(crate) const RESIZE_MILLIS: i64 = 60_000;

/// A container of a pod in the table.
#[derive(Clone, Debug)]
pub(crate) struct ContainerEntry {
    pub(crate) id: ContainerId,
    /// Its cgroup is there and open.
    pub(crate) attached: bool,
    /// CPUs that the kubelet set aside for it alone.
    pub(crate) exclusive_cpus: Option<u32>,
}

/// A pod in the table.
#[derive(Clone, Debug)]
pub(crate) struct PodEntry {
    pub(crate) id: PodId,
    /// As the source gave it.
    pub(crate) pod: Pod,
    /// As policies see it: a container whose cgroup is not there yet is still waiting.
    pub(crate) view: Pod,
    /// Parallel to `pod.containers`.
    pub(crate) containers: Vec<ContainerEntry>,
    /// The pod's own cgroup is there and open.
    pub(crate) attached: bool,
    /// The agent made its cgroups and removes them again.
    pub(crate) is_created: bool,
    /// Whether policies may act on it.
    pub(crate) access: Access,
}

/// Whether policies may act on a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// They may.
    #[default]
    Open,
    /// Paused: policies see it as it was when the pause began, so that the values that they compute for the groups above it still
    /// count it. One that was paused from the start is as good as not configured.
    Paused,
    /// In a namespace that the guard rails protect: as good as not configured.
    Protected,
}

impl PodEntry {
    /// Updates the view after cgroups were attached. `true` if that changes it.
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

    /// Whether all that could be there is attached.
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
    /// Pods that are gone; their entries are handed over for tidying up.
    pub(crate) removed: Vec<PodEntry>,
    /// Pods whose memory is specified anew.
    pub(crate) resized: Vec<PodId>,
    /// Pods whose CPU is specified anew, or given.
    pub(crate) cpu_resized: Vec<PodId>,
    /// Containers that are gone from pods that stay, with the pod and their names.
    pub(crate) gone: Vec<GoneContainer>,
    /// Pods that were not taken, since another has their UID.
    pub(crate) refused: Vec<RefusedPod>,
}

/// A pod that was not taken.
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

/// What each tick needs to know of all pods, without going through them: that alone would cost as much as many reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Containers whose cgroups are open, in the order of their ids.
    pub(crate) running: Vec<ContainerId>,
    /// The open cgroups of active pods and of their containers.
    pub(crate) groups: Vec<Target>,
    /// Containers whose cgroups are open and that could have CPUs for themselves alone.
    pub(crate) pinnable: Vec<ContainerId>,
    /// Pods that wait for a cgroup.
    pub(crate) incomplete: Vec<PodId>,
    /// Pods that carry the annotation of a pause.
    pub(crate) annotated: Vec<PodId>,
}

/// What a pod and its containers have of a resource, and are to have next.
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
    /// The standing no longer holds.
    changed: bool,
    by_uid: HashMap<String, PodId>,
    entries: BTreeMap<PodId, Arc<PodEntry>>,
    owners: HashMap<ContainerId, (PodId, usize)>,
    next_pod: u32,
    next_container: u32,
    /// Pods that are paused.
    pauses: HashMap<PodId, Pause>,
    /// What an operator paused, whether or not the pod is there.
    operator_pauses: BTreeMap<String, Pause>,
    are_pauses_ended: bool,
    /// Pods that went, until their cgroups are closed.
    leaving: Vec<PodEntry>,
    leaving_containers: Vec<GoneContainer>,
    /// Cgroups that pods claim and do not get.
    claims: Claims,
    /// When the memory of pods was last specified anew.
    resized: HashMap<PodId, Timestamp>,
    /// When their CPU was, as long as the kubelet may be at it.
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

    /// How all pods stand; worked out anew where something changed.
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

    /// All that has left and is still open, pods with their containers first.
    pub(crate) fn leaving_targets(&self) -> Vec<Target> {
        let pods = self.leaving.iter().flat_map(PodEntry::targets);
        pods.chain(self.leaving_containers.iter().map(|gone| Target::Container(gone.id))).collect()
    }

    /// Takes out what has left: pods, and containers of pods that stay.
    pub(crate) fn take_leaving(&mut self) -> (Vec<PodEntry>, Vec<GoneContainer>) {
        (std::mem::take(&mut self.leaving), std::mem::take(&mut self.leaving_containers))
    }

    /// Keeps what has left until its cgroups are closed.
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

    /// The memory of these pods is specified anew, and the CPU of those.
    pub(crate) fn note_resized(&mut self, memory: Vec<PodId>, cpu: &[PodId], now: Timestamp) {
        self.resized.extend(memory.into_iter().map(|id| (id, now)));
        self.cpu_resized.extend(cpu.iter().map(|id| (*id, now)));
    }

    /// Whether the CPU of the pod that a target is or belongs to was specified anew so short ago that the kubelet may still be at it.
    pub(crate) fn is_cpu_being_resized(&self, target: Target) -> bool {
        self.of(target).is_some_and(|entry| self.cpu_resized.contains_key(&entry.id))
    }

    /// Pods of which that has ended by now.
    pub(crate) fn cpu_resizes_over(&mut self, now: Timestamp) -> Vec<PodId> {
        let is_over = |since: &Timestamp| now.0.saturating_sub(since.0) > RESIZE_MILLIS;
        self.cpu_resized.extract_if(|_, since| is_over(since)).map(|(id, _)| id).collect()
    }

    /// When the memory of the pod that a target is or belongs to was last specified anew.
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

    /// The cgroups of a pod and its containers are open.
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

    /// Containers with open cgroups of the active pods that `is_wanted` says, in the order of their ids.
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

    /// Takes the pods that a source now knows. Containers that a status shows under another id count as new ones.
    ///
    /// There is one pod of each UID: the first of the list. The others are refused. The lister knows whose the UID is.
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
            // Another pod that now has the UID is another pod: nothing that was held for the one before is handed on to it.
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

    /// Gives a container whose cgroup vanished a new id: if it comes back, it is another container. Returns the old one.
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

/// How many CPUs the kubelet's static policy would set aside for a container: those of a Guaranteed pod that ask for whole ones.
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
