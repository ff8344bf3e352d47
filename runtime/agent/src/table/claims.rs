//! Claims on cgroups that pods do not get, and containers without a cgroup: which pods they belong to, and how they are reported.

use std::collections::BTreeMap;

use qosm_host::layout::RuntimeId;
use qosm_host::{Host, HostError};
use qosm_model::knob::Target;
use qosm_model::pod::{Container, ContainerCgroup, ContainerId, ContainerState, PodId};
use qosm_model::problem::{Problem, chain};
use qosm_model::unit::Micros;

use crate::path::is_within;
use crate::table::PodTable;

/// How long a container runs without a cgroup before that is reported. A runtime makes the cgroup before it reports that the container
/// runs; a runtime that keeps containers in a virtual machine never makes it.
const ABSENT_AFTER: Micros = Micros(30_000_000);

/// How long a cgroup that only some hierarchies have is left alone, since its creator is probably about to make the others.
const PARTIAL_UNTIL: Micros = Micros(2_000_000);

/// The problem that is reported for a container without a cgroup.
pub(crate) const WITHOUT_CGROUP: &str = "has no cgroup of its own on this node, as where a runtime keeps containers in a virtual machine (Kata): \
                                         its pod's settings count, its own cannot be applied";

/// Claims that were refused, each until the target is attached, changes, or goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    refused: BTreeMap<Target, Problem>,
    /// Running containers without a cgroup in a pod that has one.
    absent: BTreeMap<ContainerId, Absence>,
    /// Since when cgroups have existed in some hierarchies only.
    partial: BTreeMap<Target, Micros>,
}

#[derive(Clone, Debug)]
struct Absence {
    since: Micros,
    /// The problem that is reported; `None` = it is not reported yet.
    problem: Option<Problem>,
}

impl Claims {
    /// Forgets that a container has no cgroup. Returns `true` if that was reported.
    fn forget_absence(&mut self, target: Target) -> bool {
        let Target::Container(id) = target else { return false };
        self.absent.remove(&id).is_some_and(|absence| absence.problem.is_some())
    }
}

/// Whether a container that is not attached is to be reported as without a cgroup: it runs, and its ID is one that leads to a cgroup.
pub(crate) fn is_without_cgroup(container: &Container) -> bool {
    let is_named = match &container.cgroup {
        ContainerCgroup::Runtime(id) => RuntimeId::parse(id).is_ok(),
        _ => true,
    };
    container.state == ContainerState::Running && is_named
}

impl PodTable {
    /// Checks the cgroup that a pod is bound to. `None` = the pod may have it, or has none. Otherwise nothing of the pod is
    /// opened, and nothing is made for it; `Some(true)` = the reported problems have changed.
    pub(crate) fn refuses_binding(&mut self, host: &Host, id: PodId) -> Option<bool> {
        let Some(entry) = self.get(id) else { return Some(false) };
        if entry.attached || entry.pod.cgroup.is_none() {
            return None;
        }
        match host.check_binding(&entry.pod) {
            Ok(()) => None,
            Err(error) => Some(self.note_claims(&[], vec![(Target::Pod(id), error)])),
        }
    }

    /// Checks that the cgroup that a manifest binds a pod or one of its containers to is free: no other pod has it, nor one
    /// above it or below it.
    pub(crate) fn is_free(&self, host: &Host, id: PodId, path: &str) -> Result<(), HostError> {
        for other in self.iter().filter(|other| other.id != id) {
            for by in other.targets() {
                let Some(held) = host.attached_path(by) else { continue };
                if is_within(held, path) || is_within(path, held) {
                    return Err(HostError::Taken { path: path.to_owned(), by });
                }
            }
        }
        Ok(())
    }

    /// Whether a cgroup is to be left alone for now, since it is still being made. An open cgroup is read and written through the
    /// directories that it had when it was opened.
    pub(crate) fn is_in_the_making(&mut self, host: &Host, target: Target, path: &str, now: Micros) -> bool {
        let partial = &mut self.claims.partial;
        let is_partial = host.is_partial(path) && {
            let since = *partial.entry(target).or_insert(now);
            now.0.saturating_sub(since.0) < PARTIAL_UNTIL.0
        };
        if !is_partial {
            partial.remove(&target);
        }
        is_partial
    }

    /// Records claims that were refused, and forgets those that no longer are. Returns `true` if anything changed.
    pub(crate) fn note_claims(&mut self, opened: &[Target], refused: Vec<(Target, HostError)>) -> bool {
        let mut changed = false;
        for target in opened {
            changed |= self.claims.refused.remove(target).is_some();
            changed |= self.claims.forget_absence(*target);
        }
        for (target, error) in refused {
            if error.is_gone() {
                changed |= self.claims.refused.remove(&target).is_some();
            }
            let Some(problem) = self.refused_claim(target, &error) else { continue };
            changed |= self.claims.refused.insert(target, problem.clone()).as_ref() != Some(&problem);
        }
        changed
    }

    /// Records containers that run without a cgroup in a pod that has one. Returns `true` if the reported problems changed.
    pub(crate) fn note_absent(&mut self, id: PodId, now: Micros) -> bool {
        let Self { entries, claims, .. } = self;
        let Some(entry) = entries.get(&id).filter(|entry| entry.attached) else { return false };
        let mut changed = false;
        for (container, known) in entry.pod.containers.iter().zip(&entry.containers) {
            if known.attached || !is_without_cgroup(container) {
                changed |= claims.forget_absence(Target::Container(known.id));
                continue;
            }
            let absence = claims.absent.entry(known.id).or_insert(Absence { since: now, problem: None });
            let is_long = now.0.saturating_sub(absence.since.0) >= ABSENT_AFTER.0;
            if is_long && absence.problem.is_none() {
                changed = true;
                absence.problem = Some(Problem {
                    object: format!("pod {}", entry.pod.key()),
                    field: Some(format!("container {}", container.name)),
                    message: format!("it runs and {WITHOUT_CGROUP}"),
                });
            }
        }
        changed
    }

    /// The problems to report.
    pub(crate) fn claim_problems(&self) -> impl Iterator<Item = (Target, &Problem)> {
        // A container that has ended meanwhile needs no cgroup.
        let still = |id: ContainerId| {
            let container = self.owner(id).and_then(|(entry, place)| entry.pod.containers.get(place));
            container.is_some_and(|container| container.state == ContainerState::Running)
        };
        let Claims { refused, absent, .. } = &self.claims;
        let absent = absent.iter().filter(move |(id, _)| still(**id));
        let absent = absent.filter_map(|(id, absence)| Some((Target::Container(*id), absence.problem.as_ref()?)));
        refused.iter().map(|(target, problem)| (*target, problem)).chain(absent)
    }

    /// Forgets a target that is gone.
    pub(crate) fn forget_claim(&mut self, target: Target) {
        self.claims.refused.remove(&target);
        self.claims.partial.remove(&target);
        self.claims.forget_absence(target);
    }

    /// The problem to report for an error; `None` if it passes by itself.
    fn refused_claim(&self, target: Target, error: &HostError) -> Option<Problem> {
        let entry = self.of(target)?;
        let why = match error {
            HostError::NotOwn { .. } | HostError::Path { .. } => chain(error),
            // The owner has ended, and releases the cgroup in this step.
            HostError::Taken { by, .. } if !matches!(by, Target::Tier(_)) && self.of(*by).is_none() => {
                return None;
            }
            HostError::Taken { path, by } => format!("cgroup `{path}` is that of {} already", self.shown(*by)),
            HostError::Gone { .. } | HostError::ContainerId { .. } => return None,
            error => {
                tracing::debug!(pod = entry.pod.key(), error = chain(error), "cgroup not opened");
                return None;
            }
        };
        let container = match target {
            Target::Container(id) => {
                let (_, place) = self.owner(id)?;
                entry.pod.containers.get(place)
            }
            Target::Pod(_) | Target::Tier(_) | Target::Node => None,
        };
        let is_bound = match container {
            Some(container) => matches!(container.cgroup, ContainerCgroup::Bound(_)),
            None => entry.pod.cgroup.is_some(),
        };
        let (field, way_out) = match (container, is_bound) {
            (Some(container), true) => (
                format!("annotation {}: \"{}\"", qosm_cluster::CGROUP_ANNOTATION, container.name),
                "name a cgroup of its own",
            ),
            (None, true) => {
                (format!("annotation {}: \"\"", qosm_cluster::CGROUP_ANNOTATION), "name a cgroup of its own")
            }
            (Some(container), false) => {
                (format!("containerID of container {}", container.name), "only a container of this pod counts")
            }
            (None, false) => ("metadata.uid".to_owned(), "each pod needs a UID of its own"),
        };
        let message = format!("{why}; nothing is written to it, {way_out}");
        Some(Problem { object: format!("pod {}", entry.pod.key()), field: Some(field), message })
    }
}

#[cfg(test)]
mod tests;
