//! The table of pods and containers: who has which id, and whose cgroups are at hand.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use qosm_model::knob::Target;
use qosm_model::pod::{ContainerId, ContainerState, Pod, PodId};

use crate::hold;

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
    pub(crate) given: Pod,
    /// As policies see it: a container whose cgroup is not there yet is still waiting.
    pub(crate) view: Pod,
    /// Parallel to `given.containers`.
    pub(crate) containers: Vec<ContainerEntry>,
    /// The pod's own cgroup is there and open.
    pub(crate) attached: bool,
    /// The agent made its cgroups and removes them again.
    pub(crate) made: bool,
    /// What policies are told of it.
    pub(crate) access: Access,
}

/// Whether policies may act on a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Access {
    /// They may.
    #[default]
    Open,
    /// On hold: to policies it stays as it was when the hold began, so that what they reckon for the groups above it still
    /// counts what it holds. One that was on hold from the start is as good as not configured.
    OnHold,
    /// In a namespace that the guard rails protect: as good as not configured.
    Protected,
}

impl PodEntry {
    /// Brings the view in line with what is attached. `true` if that changes it.
    pub(crate) fn refresh_view(&mut self) -> bool {
        let mut view = self.given.clone();
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
        !self.given.active
            || (self.attached
                && self
                    .given
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
    /// Containers that are gone from pods that stay, with the pod and their names.
    pub(crate) gone: Vec<GoneContainer>,
}

/// What each tick needs to know of all pods, without going through them: that alone would cost as much as many reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standing {
    /// Containers whose cgroups are open, in the order of their ids.
    pub(crate) running: Vec<ContainerId>,
    /// The open cgroups of active pods and of their containers.
    pub(crate) groups: Vec<Target>,
    /// Pods that wait for a cgroup.
    pub(crate) incomplete: Vec<PodId>,
    /// Pods that carry the annotation of a hold.
    pub(crate) annotated: Vec<PodId>,
}

/// All pods of the node. A copy of the table shares the entries with it until they change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pods {
    standing: Standing,
    /// The standing no longer holds.
    changed: bool,
    by_uid: HashMap<String, PodId>,
    entries: BTreeMap<PodId, Arc<PodEntry>>,
    owners: HashMap<ContainerId, (PodId, usize)>,
    next_pod: u32,
    next_container: u32,
}

impl Pods {
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
            let Standing { running, groups, incomplete, annotated } = &mut self.standing;
            running.clear();
            groups.clear();
            incomplete.clear();
            annotated.clear();
            for entry in self.entries.values() {
                let open = || entry.containers.iter().filter(|container| container.attached).map(|open| open.id);
                running.extend(open());
                if entry.given.active {
                    groups.extend(entry.attached.then_some(Target::Pod(entry.id)));
                    groups.extend(open().map(Target::Container));
                }
                if !entry.complete() {
                    incomplete.push(entry.id);
                }
                if entry.given.annotations.contains_key(hold::ANNOTATION) {
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

    /// The pod that a container belongs to, and its place in it.
    pub(crate) fn owner(&self, container: ContainerId) -> Option<(&PodEntry, usize)> {
        let &(pod, place) = self.owners.get(&container)?;
        self.get(pod).map(|entry| (entry, place))
    }

    /// The pod that a target is or belongs to; `None` for tiers and for what is gone.
    pub(crate) fn of(&self, target: Target) -> Option<&PodEntry> {
        match target {
            Target::Tier(_) => None,
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
    pub(crate) fn update(&mut self, pods: Vec<Pod>) -> Changes {
        self.changed = true;
        let mut changes = Changes::default();
        let mut stale: HashMap<String, PodId> = std::mem::take(&mut self.by_uid);
        for pod in pods {
            let known = stale.remove(&pod.uid);
            let id = match known {
                Some(id) => {
                    self.by_uid.insert(pod.uid.clone(), id);
                    if self.entries.get(&id).is_some_and(|entry| entry.given == pod) {
                        continue;
                    }
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
            given: pod,
            containers,
            attached: false,
            made: false,
            access: Access::Open,
        };
        entry.refresh_view();
        self.own(&entry);
        self.entries.insert(id, Arc::new(entry));
    }

    fn replace(&mut self, id: PodId, pod: Pod, gone: &mut Vec<GoneContainer>) {
        let Some(mut entry) = self.entries.remove(&id).map(Arc::unwrap_or_clone) else { return self.insert(id, pod) };
        let mut old: Vec<_> = entry.given.containers.iter().zip(std::mem::take(&mut entry.containers)).collect();
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
        entry.given = pod;
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
